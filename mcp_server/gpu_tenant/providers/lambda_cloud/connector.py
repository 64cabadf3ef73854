"""Boxes at Lambda Cloud: whole virtual machines, billed by the minute. Only terminating one stops its bill."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Literal, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from gpu_tenant.domain.address import ssh_address
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    NoCapacity,
    NoFunds,
    NoQuota,
    ProviderSilent,
    ProviderTrouble,
    Rejected,
)
from gpu_tenant.domain.model import MARK_PREFIX, Box, BoxId, BoxState, Lease
from gpu_tenant.domain.offers import Attachable, Leftover, Offer, Price, Wish
from gpu_tenant.domain.order import AtProvider
from gpu_tenant.domain.permit import (
    TeardownPermit,
    VolumePermit,
    genuine,
    genuine_for_volume,
)
from gpu_tenant.domain.ports import Asking, Setting, find_marked, wanted_quote
from gpu_tenant.domain.timestamps import instant
from gpu_tenant.domain.untrusted_text import plain, quote_text
from gpu_tenant.domain.volumes import ListedVolume, Volume
from gpu_tenant.providers.drift import Drift
from gpu_tenant.providers.gpu_catalog import known_gpu
from gpu_tenant.providers.http_client import Json, Reply, Spacing, Wire, figure
from gpu_tenant.providers.list_rows import Subject, must_be_whole, read_each
from gpu_tenant.providers.patience import insist
from gpu_tenant.providers.response_limits import silent

_INSTANCES = "/api/v1/instances"
_LAUNCH = "/api/v1/instance-operations/launch"
_TERMINATE = "/api/v1/instance-operations/terminate"
_KEYS = "/api/v1/ssh-keys"
_FILESYSTEMS, _LISTED_FILESYSTEMS = "/api/v1/filesystems", "/api/v1/file-systems"

_SPACING = (Spacing("POST", _LAUNCH, 12.0), Spacing("*", ".*", 1.0))
"""The longer interval comes first, so that the wait for the shorter one comes last, right before the call."""

_MARK_TAG, _CREATED_TAG = "gpu-tenant", "gpu-tenant-created"
_MOST_NAME_CHARS = 64
_SETUP_S = 300
_TERMINATE_WITHIN_S = 300
_ASK_AGAIN_S = 15
_NO_SUCH_OBJECT = "global/object-does-not-exist"

_MOUNT_POINT = re.compile(r"(?:/home|/lambda/nfs|/data)[/a-zA-Z0-9-]*")
"""The paths at which the API can mount a filesystem, by its schema."""
_NOT_NAMED = "of an unknown name"

_IMAGE_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_CONTAINER = (
    "an instance is a virtual machine: name a machine image by its id or family, as `template` in "
    "[provider.lambda_cloud]"
)
_DESCRIPTION = re.compile(r"(?:\d+x )?(?:Tesla )?(?P<model>.+) \((?P<gb>\d+) GB ?(?P<form>\w*)\)")


_KEY_WITHIN_S = 60
_KEY_UNKNOWN = re.compile(
    r"ssh.?keys?\b[^.]*(not |unknown|invalid)|(unknown|invalid) ssh", re.IGNORECASE
)
"""A key that was just added may be unknown to the launch, as it is at DigitalOcean. Nobody has reported it here."""
_SURE = (401, 403, 404, 405, 422)
"""Statuses of a refused launch after which no instance exists, besides those whose code is read."""


class _Specs(BaseModel):
    gpus: int
    storage_gib: int
    vcpus: int | None = None
    memory_gib: int | None = None


class _Type(BaseModel):
    name: str
    description: str
    price_cents_per_hour: int
    specs: _Specs


class _Region(BaseModel):
    name: str


class _Offered(BaseModel):
    instance_type: _Type
    regions_with_capacity_available: list[_Region]


class _Tag(BaseModel):
    key: str
    value: str


class _Availability(BaseModel):
    available: bool
    reason_code: str | None = None


class _Actions(BaseModel):
    terminate: _Availability


class _Mount(BaseModel):
    file_system_id: str


class _Instance(BaseModel):
    id: str
    status: str
    name: str | None = None
    ip: str | None = None
    tags: list[_Tag] | None = None
    file_system_names: list[str] = []
    file_system_mounts: list[_Mount] | None = None
    instance_type: _Type
    actions: _Actions


class _Named(BaseModel):
    id: str


class _Terminated(BaseModel):
    terminated_instances: list[_Named]


class _Launched(BaseModel):
    instance_ids: list[str]


class _Key(BaseModel):
    id: str
    name: str
    public_key: str


class _Filesystem(BaseModel):
    id: str
    name: str
    is_in_use: bool
    region: _Region
    bytes_used: int | None = None


class _Deleted(BaseModel):
    deleted_ids: list[str]


class _Error(BaseModel):
    code: str


class _Refusal(BaseModel):
    error: _Error


_OFFERED = TypeAdapter(dict[str, _Offered])
_INSTANCE, _INSTANCE_LIST = TypeAdapter(_Instance), TypeAdapter(list[dict[str, object]])
_LAUNCHED, _TERMINATED = TypeAdapter(_Launched), TypeAdapter(_Terminated)
_KEY, _KEY_LIST = TypeAdapter(_Key), TypeAdapter(list[_Key])
_FILESYSTEM, _FILESYSTEM_LIST = TypeAdapter(_Filesystem), TypeAdapter(list[_Filesystem])
_DELETED = TypeAdapter(_Deleted)

T = TypeVar("T")


class LambdaCloudConnector:
    """One account at Lambda Cloud. It does not implement `Billing`, because the API has no call about money."""

    has_registry_logins = False

    def __init__(self, setting: Setting) -> None:
        # Not the whole setting is kept, because its environment may contain the key.
        self._states, self._clock = setting.profile.states, setting.clock
        self._public_key = setting.public_key
        self._drift = Drift(setting)
        self._wire = Wire(
            drift=self._drift,
            title=setting.profile.title,
            base_url=setting.api("https://cloud.lambda.ai", variable="LAMBDA_CLOUD_BASE_URL"),
            credential=setting.credential,
            clock=setting.clock,
            spacing=_SPACING,
        )

    # --- boxes

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`."""
        quote = wanted_quote(lease)
        if ours := find_marked(lease, await self.list_boxes()):
            return ours
        instance_type, _, region = quote.offer.id.partition("@")
        order: Json = {
            "region_name": region,
            "instance_type_name": instance_type,
            "ssh_key_names": [await self._key_name()],
            **_image(quote.wish.order.image_at("lambda_cloud").template),
            **_mounts(quote.wish),
            "name": lease.mark[:_MOST_NAME_CHARS],
            "tags": [
                {"key": _MARK_TAG, "value": lease.mark},
                # The API does not tell an instance's age. This tag shows it to people who find it
                # in the console.
                {"key": _CREATED_TAG, "value": self._clock.now().isoformat()},
            ],
        }
        reply = await insist(
            lambda: self._order(order),
            is_passing=lambda reply: bool(
                reply.status in (400, 404) and _KEY_UNKNOWN.search(reply.text)
            ),
            within_s=_KEY_WITHIN_S,
            clock=self._clock,
            words="Lambda Cloud does not know the new ssh key yet; no box is made, and nothing bills",
        )
        if reply.status != 200:
            raise self._refusal(_LAUNCH, reply)
        try:
            (made,) = _payload(_LAUNCHED, reply).instance_ids
            shown = await self._get_instance(made)
        except (ValueError, ProviderTrouble) as error:
            # Any error other than ProviderSilent would say that no box was made.
            raise self._unseen(reply) from error
        if shown is None:
            raise self._unseen(reply)
        return self._box(shown)

    async def _order(self, order: Json) -> Reply:
        try:
            return await self._wire.call("POST", _LAUNCH, body=order, expect=(200, 400, 403, 404))
        except Rejected as no:
            if no.status in _SURE:
                raise
            raise silent(f"{no.message}; an instance may exist") from no

    async def list_boxes(self) -> Sequence[Box]:
        """Implement `Connector.list_boxes`. The provider's list is one page. It leaves out terminated instances."""
        reply = await self._wire.get(_INSTANCES)
        shown = _payload(_INSTANCE_LIST, reply)
        must_be_whole(
            "Lambda Cloud's list", reply.fields, len(shown), known=("data",), drift=self._drift
        )
        return read_each(
            "lambda_cloud",
            shown,
            lambda row: self._box(_INSTANCE.validate_python(row)),
            _subject,
            self._drift,
        )

    @property
    def ahead(self) -> timedelta | None:
        """Implement `Timekeeping.ahead`."""
        return self._wire.ahead

    def asked_with(self, salt: str) -> Asking:
        """Implement `Accounted.asked_with`."""
        return self._wire.asked_with(salt)

    async def account(self) -> str | None:
        """Implement `Accounted.account`: the account's id for our public key. No call names the account itself."""
        ours = self._public_key().split()[:2]
        keys = _payload(_KEY_LIST, await self._wire.get(_KEYS))
        return next(
            (f"ssh key {key.id}" for key in keys if key.public_key.split()[:2] == ours), None
        )

    async def find_box(self, lease: Lease) -> Box | None:
        """Implement `Findable.find_box`."""
        shown = await self._get_instance(str(lease.box_id))
        return None if shown is None or shown.status == "terminated" else self._box(shown)

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`. If the box cannot be terminated yet, wait and try again, within limits."""
        permit = genuine(permit, provider="lambda_cloud")
        give_up_at = self._clock.now() + timedelta(seconds=_TERMINATE_WITHIN_S)
        while (hindrance := await self._terminate(permit.box_id)) is not None:
            if self._clock.now() >= give_up_at:
                raise ProviderTrouble(
                    f"Lambda Cloud has not terminated {permit.box_id} for {_TERMINATE_WITHIN_S} s: "
                    f"{hindrance}",
                    remedy=f"{Command('leases')} shows the current state",
                )
            await self._clock.sleep(_ASK_AGAIN_S)

    async def _terminate(self, box_id: BoxId) -> str | None:
        """Terminate the instance. Return None if it is terminating or gone, otherwise in words what prevents that."""
        reply = await self._wire.call(
            "POST",
            _TERMINATE,
            body={"instance_ids": [box_id]},
            expect=(200, 400, 404, 409),
            repeatable="repeatable",
            urgent="teardown",
        )
        told = self._wire.trouble("POST", _TERMINATE, reply)
        if reply.status == 200:
            if any(each.id == box_id for each in _payload(_TERMINATED, reply).terminated_instances):
                return None
        elif reply.status == 404 and _code(reply) != _NO_SUCH_OBJECT:
            raise told
        shown = await self._get_instance(box_id, urgent="teardown")
        if shown is None or shown.status in ("terminating", "terminated"):
            return None
        if shown.actions.terminate.available and reply.status == 200:
            # The answer is a success, but its list of terminated instances does not name this one.
            raise told
        code = shown.actions.terminate.reason_code
        return quote_text(code) if code else told.message

    def refused_image(self, source: AtProvider) -> str | None:
        """Implement `Imaging.refused_image`: an instance is a virtual machine, made from a machine image."""
        return _NO_CONTAINER if source.image else None

    # --- volumes, which are called filesystems here

    def refused_volumes(self, volumes: Sequence[Attachable]) -> str | None:
        """Implement `Storing.refused_volumes`: a filesystem is mounted below three directories only, by the schema."""
        if len({volume.region for volume in volumes}) > 1:
            return "its volumes are in several regions, and an instance is in one"
        strange = [volume.path for volume in volumes if not _MOUNT_POINT.fullmatch(volume.path)]
        return (
            f"it mounts a filesystem below /data or /lambda/nfs, and not at {strange[0]}"
            if strange
            else None
        )

    def volume_usd_month(self, size_gb: int, region: str) -> Decimal | None:
        """Implement `Storing.volume_usd_month`: the API does not give the price of a filesystem's content."""
        return None

    async def create_volume(self, volume: Volume) -> ListedVolume:
        """Implement `Storing.create_volume`. A filesystem has no fixed size, so the size is not sent."""
        if ours := next((v for v in await self.list_volumes() if v.name == volume.mark), None):
            return ours
        order: Json = {"name": volume.mark, "region": volume.region}
        reply = await self._wire.call("POST", _FILESYSTEMS, body=order, expect=(200, 400, 403, 404))
        if reply.status != 200:
            raise self._refusal(_FILESYSTEMS, reply)
        return _volume_of(_payload(_FILESYSTEM, reply), [])

    async def list_volumes(self) -> Sequence[ListedVolume]:
        """Implement `Storing.list_volumes`. The filesystems are listed last: each says whether it is in use."""
        shown = _payload(_INSTANCE_LIST, await self._wire.get(_INSTANCES))
        boxes = [_payload_of(_INSTANCE, row) for row in shown]
        filesystems = _payload(_FILESYSTEM_LIST, await self._wire.get(_LISTED_FILESYSTEMS))
        return [_volume_of(each, boxes) for each in filesystems]

    async def destroy_volume(self, permit: VolumePermit) -> None:
        """Implement `Storing.destroy_volume`. Lambda Cloud itself refuses it while an instance mounts the filesystem."""
        permit = genuine_for_volume(permit, provider="lambda_cloud")
        path = f"{_FILESYSTEMS}/{permit.volume_id}"
        reply = await self._wire.call(
            "DELETE", path, expect=(200, 404), repeatable="repeatable", urgent="teardown"
        )
        told = self._wire.trouble("DELETE", path, reply)
        if reply.status == 404 and _code(reply) != _NO_SUCH_OBJECT:
            raise told
        if reply.status == 200 and permit.volume_id not in _payload(_DELETED, reply).deleted_ids:
            raise told

    # --- what can be rented, and what is left

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """Implement `Market.offers`: an offer for each type in each region that has it in stock."""
        types = _payload(_OFFERED, await self._wire.get("/api/v1/instance-types"))
        found = [
            _offer(offered.instance_type, region.name)
            for offered in types.values()
            for region in offered.regions_with_capacity_available
            if offered.instance_type.specs.gpus
            and wish.reaches_volumes("lambda_cloud", region.name)
        ]
        if wish.offer is not None:
            return [offer for offer in found if offer.id == wish.offer]
        return [offer for offer in found if offer.suits(wish)]

    async def leftovers(self) -> Sequence[Leftover]:
        """Implement `Residue.leftovers`: filesystems, whose price the API does not give."""
        shown = _payload(_FILESYSTEM_LIST, await self._wire.get(_LISTED_FILESYSTEMS))
        return [
            Leftover(
                provider="lambda_cloud",
                kind="filesystem",
                id=each.id,
                name=each.name,
                mark=None,
                size_gb=None if each.bytes_used is None else each.bytes_used / 1e9,
                usd_month=None,
            )
            for each in shown
            if not each.is_in_use
        ]

    # --- the provider's answers

    async def _key_name(self) -> str:
        """Return a name under which the account has our public key. The key is added if it is missing."""
        ours = self._public_key()
        text = ours.split()[1]
        fingerprint = hashlib.sha256(base64.b64decode(text)).hexdigest()
        added: Json = {"name": f"gpu-tenant-{fingerprint[:16]}", "public_key": ours}
        for _ in range(2):
            for key in _payload(_KEY_LIST, await self._wire.get(_KEYS)):
                if key.public_key.split()[:2] == ours.split()[:2]:
                    return key.name
            reply = await self._wire.call("POST", _KEYS, body=added, expect=(200, 400, 409))
            if reply.status == 200:
                return _payload(_KEY, reply).name
            # The key may be there by now: another launch of ours may have added it at the same moment.
        raise self._wire.trouble("POST", _KEYS, reply)

    async def _get_instance(
        self, box_id: str, *, urgent: Literal["", "teardown"] = ""
    ) -> _Instance | None:
        """Return the instance as the provider shows it now. None if the provider says that there is none."""
        path = f"{_INSTANCES}/{box_id}"
        reply = await self._wire.get(path, expect=(200, 404), urgent=urgent)
        if reply.status == 200:
            return _payload(_INSTANCE, reply)
        if _code(reply) == _NO_SUCH_OBJECT:
            return None
        raise self._wire.trouble("GET", path, reply)

    def _box(self, shown: _Instance) -> Box:
        state = self._states.get(shown.status, BoxState.UNKNOWN)
        marks = [tag.value for tag in shown.tags or [] if tag.key == _MARK_TAG] + [shown.name or ""]
        told = state in (BoxState.BROKEN, BoxState.UNKNOWN)
        return Box(
            provider="lambda_cloud",
            id=BoxId(shown.id),
            state=state,
            mark=next((mark for mark in marks if mark.startswith(MARK_PREFIX)), None),
            address=ssh_address(f"ubuntu@{shown.ip.strip()}") if shown.ip else None,
            # Billing starts when the instance passes its first health check.
            price_usd_h=Decimal(0) if state is BoxState.BOOTING else _usd_h(shown.instance_type),
            running_usd_h=_usd_h(shown.instance_type),
            booting_usd_h=Decimal(0),
            name=shown.name or None,
            gpus=shown.instance_type.description,
            words=f"Lambda Cloud calls it {quote_text(shown.status)}" if told else None,
            taken="preempted" if shown.status == "preempted" else None,
            # The API does not tell an instance's age. This is our own note from just before its
            # launch.
            created_at=instant(_tag(shown, _CREATED_TAG)),
            made_by_word_of="request",
        )

    def _refusal(self, path: str, reply: Reply) -> ProviderTrouble:
        """Return the error for the answer to a create after which nothing was made."""
        told = self._wire.trouble("POST", path, reply)
        match _code(reply):
            case "instance-operations/launch/insufficient-capacity":
                return NoCapacity(
                    told.message, remedy=f"{Command('offers')} shows what there is now"
                )
            case "global/quota-exceeded":
                return NoQuota(told.message, remedy="ask its support for more, or rent elsewhere")
            case "global/account-inactive" | "global/invalid-address":
                return NoFunds(
                    told.message,
                    remedy="correct the payment or the address at https://cloud.lambda.ai, or rent elsewhere",
                )
            case _:
                return told

    def _unseen(self, reply: Reply) -> ProviderSilent:
        """Return the error for a launch that was carried out but whose box is not shown."""
        return ProviderSilent(
            f"{self._wire.trouble('POST', _LAUNCH, reply).message}; and then did not show the box",
            remedy=f"{Command('leases')} looks again; its meter starts when it is active",
        )


def _payload(kind: TypeAdapter[T], reply: Reply) -> T:
    """Return the data in the provider's envelope.

    Raises:
        ProviderSilent: the data does not have the documented form, so nothing can be concluded from it.
    """
    return _payload_of(kind, reply.fields.get("data"))


def _payload_of(kind: TypeAdapter[T], shown: object) -> T:
    try:
        return kind.validate_python(shown)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
    # Raised outside the handler, and names only the field. The validation error contains the value,
    # which may be a token.
    raise ProviderSilent(
        f"an answer of Lambda Cloud cannot be read: its {where or 'data'} is not as documented",
        remedy=f"try again in a minute; {Command('leases')} looks again",
    )


def _code(reply: Reply) -> str | None:
    """Return the provider's code for an error. The provider's messages may change."""
    try:
        return _Refusal.model_validate_json(reply.text).error.code
    except ValidationError:
        return None


def _image(template: str | None) -> dict[str, Json]:
    """Return the field for the image that is ordered: its id, or the newest image of a family."""
    if template is None:
        return {}
    return {"image": {"id" if _IMAGE_ID.fullmatch(template) else "family": template}}


def _mounts(wish: Wish) -> dict[str, Json]:
    """Return the field for the volumes that are ordered. A filesystem can be mounted at the launch only."""
    volumes = wish.volumes_at("lambda_cloud")
    if not volumes:
        return {}
    return {
        "file_system_mounts": [{"mount_point": v.path, "file_system_id": v.id} for v in volumes]
    }


def _volume_of(shown: _Filesystem, instances: Sequence[_Instance]) -> ListedVolume:
    """Return the filesystem with the instances that mount it. Its size is that of its content."""
    boxes = [
        box.id
        for box in instances
        if shown.name in box.file_system_names
        or shown.id in {mount.file_system_id for mount in box.file_system_mounts or []}
    ]
    return ListedVolume(
        id=shown.id,
        name=plain(shown.name),
        region=shown.region.name,
        size_gb=None if shown.bytes_used is None else shown.bytes_used / 1e9,
        usd_month=None,
        boxes=tuple(boxes or ([_NOT_NAMED] if shown.is_in_use else [])),
    )


def _tag(shown: _Instance, key: str) -> str | None:
    return next((tag.value for tag in shown.tags or [] if tag.key == key), None)


def _subject(row: Mapping[str, object]) -> Subject:
    tags = row.get("tags") or []
    told = (
        [t.get("value") if isinstance(t, dict) else 0 for t in tags]
        if isinstance(tags, list)
        else [0]
    )
    return Subject.of_row(row.get("id"), [row.get("name"), *told])


def _usd_h(kind: _Type) -> Decimal:
    return Decimal(kind.price_cents_per_hour) / 100


def _offer(kind: _Type, region: str) -> Offer:
    gpu, vram_gib = _gpu(kind)
    notes = ["only terminating it ends the bill: it cannot be stopped"]
    if gpu == "GH200":
        notes.append("its CPU is ARM (aarch64), so every wheel and image must be for ARM")
    return Offer(
        provider="lambda_cloud",
        id=f"{kind.name}@{region}",
        gpu=gpu,
        gpu_count=kind.specs.gpus,
        vram_gib=vram_gib,
        region=region,
        disk_gb=kind.specs.storage_gib,
        price=Price(
            gpu_usd_h=_usd_h(kind),
            disk_usd_h=Decimal(0),
            parked_usd_h=None,
            upload_usd_gb=Decimal(0),
            download_usd_gb=Decimal(0),
            source="api",
        ),
        interruptible=False,
        trust="datacenter",
        reliability=None,
        max_hours=None,
        download_mbps=None,
        upload_mbps=None,
        cpus=figure(kind.specs.vcpus),
        ram_gib=figure(kind.specs.memory_gib),
        setup_s=_SETUP_S,
        notes=tuple(notes),
    )


def _gpu(kind: _Type) -> tuple[str, float | None]:
    """Return the canonical name and the memory, parsed from words like `8x A100 (40 GB SXM4)`."""
    told = _DESCRIPTION.fullmatch(kind.description)
    if told is None:
        return plain(kind.description), None
    model, gb, form = told["model"], told["gb"], told["form"]
    for called in (f"{model} {form} {gb}GB", f"{model} {form}", f"{model} {gb}GB", model):
        gpu = known_gpu(called)
        # One model is sold with two sizes of memory, so the name alone may mean the other size.
        if gpu is not None and gpu.vram_gib == int(gb):
            return gpu.name, gpu.vram_gib
    return plain(model), int(gb)


def connect(setting: Setting) -> LambdaCloudConnector:
    """Return the connector for the account of the setting's credential."""
    return LambdaCloudConnector(setting)
