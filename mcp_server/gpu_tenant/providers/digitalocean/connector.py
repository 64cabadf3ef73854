"""Boxes at DigitalOcean: GPU Droplets. They bill in full until they are destroyed, even when powered off."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from gpu_tenant.domain.address import ssh_address
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    NoCapacity,
    NoQuota,
    ProviderSilent,
    ProviderTrouble,
    Rejected,
)
from gpu_tenant.domain.model import MARK_PREFIX, Box, BoxId, BoxState, Lease
from gpu_tenant.domain.offers import USD_STEP, Attachable, Leftover, Offer, Price, Wish
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
from gpu_tenant.providers.http_client import Json, Reply, Wire
from gpu_tenant.providers.list_rows import Subject, read_each
from gpu_tenant.providers.mount_script import mount_script
from gpu_tenant.providers.patience import ASK_AGAIN_S, insist, insist_on_delete
from gpu_tenant.providers.response_limits import Leafing, silent

_DROPLETS, _KEYS, _SIZES = "/v2/droplets", "/v2/account/keys", "/v2/sizes"
_VOLUMES, _SNAPSHOTS = "/v2/volumes", "/v2/snapshots"
_PAGE = 200
_SETUP_S = 180

_OUTBOUND_USD_GB = Decimal("0.01")
"""The price of a GB beyond the included ones: docs.digitalocean.com/products/droplets/details/pricing, 2026-05."""
_SNAPSHOT_USD_GB_MONTH = Decimal("0.06")
"""By docs.digitalocean.com/products/images/snapshots/details/pricing. We have read no such page for volumes."""

_DEVICE = "/dev/disk/by-id/scsi-0DO_Volume_"
"""The device of an attached volume is this and the volume's name (DigitalOcean's guide to mounting volumes)."""
_MOST_VOLUMES = 15
"""The most volumes that one Droplet can have, by the reference of `doctl compute volume-action attach`."""
_SURE = (400, 401, 403, 404, 422)
"""Statuses of a refused create after which no volume exists. Any other status leaves that unclear."""

_NO_CONTAINER = (
    "a Droplet is a virtual machine: name a machine image by its slug or number, as `template` "
    "in [provider.digitalocean]"
)
_KEY_WITHIN_S = 120
"""A new key is unknown to the create for about 45 s (seen on a real account, 2026-10-05)."""
_KEY_UNKNOWN = re.compile(r"invalid key identifier", re.IGNORECASE)
_KEY_THERE = re.compile(r"already|in use|duplicate", re.IGNORECASE)
_FULL = re.compile(r"not available|unavailable|capacity|sold out", re.IGNORECASE)
_TOO_MANY = re.compile(
    r"\blimit\b|quota|restricted|open a ticket|contact support|not (?:allowed|enabled|permitted)",
    re.IGNORECASE,
)
_IMAGE = re.compile(r"\bimage\b", re.IGNORECASE)
"""All refused creates have the same status. Only the words tell what was wrong."""


class _Vram(BaseModel):
    amount: int


class _Gpu(BaseModel):
    count: int
    model: str
    vram: _Vram | None = None


class _Size(BaseModel):
    slug: str
    price_hourly: Decimal
    disk: int
    vcpus: int | None = None
    memory: int | None = None
    """In MiB."""
    regions: list[str]
    available: bool
    gpu_info: _Gpu | None = None


class _Network(BaseModel):
    ip_address: str
    type: str


class _Networks(BaseModel):
    v4: list[_Network] = []


class _Droplet(BaseModel):
    id: int
    name: str | None = None
    status: str
    size: _Size
    networks: _Networks
    tags: list[str]
    created_at: JsonValue = None


class _Made(BaseModel):
    droplet: _Droplet


class _Key(BaseModel):
    id: int
    public_key: str


class _Added(BaseModel):
    ssh_key: _Key


class _Region(BaseModel):
    slug: str


class _Volume(BaseModel):
    id: str
    name: str
    size_gigabytes: int
    region: _Region
    droplet_ids: list[int] | None = None
    tags: list[str] | None = None


class _Stored(BaseModel):
    volume: _Volume


class _Snapshot(BaseModel):
    id: str
    name: str
    size_gigabytes: Decimal
    tags: list[str] | None = None


class _Pages(BaseModel):
    next: str | None = None


class _Links(BaseModel):
    pages: _Pages = _Pages()


class _Meta(BaseModel):
    total: int


class _Page(BaseModel):
    links: _Links
    meta: _Meta


class _Team(BaseModel):
    uuid: str


class _Account(BaseModel):
    uuid: str
    team: _Team | None = None


class _Refusal(BaseModel):
    id: str
    message: str


T = TypeVar("T")
Row = TypeVar("Row", _Droplet, _Key, _Volume, _Snapshot)

_PAGE_OF = TypeAdapter(_Page)
_SIZE_LIST, _DROPLET_LIST = TypeAdapter(list[_Size]), TypeAdapter(list[dict[str, object]])
_DROPLET = TypeAdapter(_Droplet)
_KEY_LIST, _VOLUME_LIST = TypeAdapter(list[_Key]), TypeAdapter(list[_Volume])
_SNAPSHOT_LIST = TypeAdapter(list[_Snapshot])
_ACCOUNT = TypeAdapter(_Account)
_MADE, _ADDED, _STORED = TypeAdapter(_Made), TypeAdapter(_Added), TypeAdapter(_Stored)


class DigitalOceanConnector:
    """One account (a team) at DigitalOcean.

    It does not implement `Billing`, because an invoice names a box only when the month is over.
    """

    has_registry_logins = False

    def __init__(self, setting: Setting) -> None:
        # Not the whole setting is kept, because its environment may contain the key.
        self._states, self._public_key = setting.profile.states, setting.public_key
        self._clock = setting.clock
        self._added_key = 0, setting.clock.now()
        self._drift = Drift(setting)
        self._wire = Wire(
            drift=self._drift,
            title=setting.profile.title,
            base_url=setting.api("https://api.digitalocean.com", variable="DIGITALOCEAN_API_URL"),
            credential=setting.credential,
            clock=setting.clock,
        )

    # --- boxes

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`."""
        quote = wanted_quote(lease)
        if ours := find_marked(lease, await self.list_boxes()):
            return ours
        size, region, image = quote.offer.id.split("@")
        order: Json = {
            "name": re.sub(r"[^a-z0-9.-]", "-", lease.id),
            "region": region,
            "size": size,
            "image": _ordered_image(quote.wish.order.image_at("digitalocean").template) or image,
            "ssh_keys": [await self._key_id()],
            "tags": [lease.mark],
            **_fields_of_volumes(quote.wish),
        }
        reply = await insist(
            lambda: self._order(order),
            is_passing=lambda reply: bool(
                reply.status == 422 and _KEY_UNKNOWN.search(_message(reply))
            ),
            within_s=_KEY_WITHIN_S,
            clock=self._clock,
            words="DigitalOcean does not know the new ssh key yet; no box is made, and nothing bills",
        )
        if reply.status != 202:
            raise self._refusal(reply)
        return self._box(_read(_MADE, reply).droplet)

    async def _order(self, order: Json) -> Reply:
        try:
            return await self._wire.call("POST", _DROPLETS, body=order, expect=(202, 422))
        except Rejected as no:
            if no.status in _SURE:
                raise
            raise silent(f"{no.message}; a Droplet may exist") from no

    async def list_boxes(self) -> Sequence[Box]:
        """Implement `Connector.list_boxes`: every GPU Droplet.

        A list without a type shows no GPU Droplets, and a list by tag cannot name a type. So every GPU Droplet is
        requested, and our marks are found in their tags here.
        """
        shown = await self._pages(_DROPLETS, "droplets", _DROPLET_LIST, {"type": "gpus"})
        named = [row["id"] for row in shown if isinstance(row.get("id"), int)]
        if len(set(named)) < len(named):
            raise _incomplete(_DROPLETS, "a Droplet is on two pages")
        return read_each(
            "digitalocean",
            shown,
            lambda row: self._box(_DROPLET.validate_python(row)),
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
        """Implement `Accounted.account`. A team's Droplets belong to the team, and not to the owner of the token."""
        shown = _read(_ACCOUNT, await self._wire.get("/v2/account"), "account")
        return f"team {shown.team.uuid}" if shown.team else f"user {shown.uuid}"

    async def find_box(self, lease: Lease) -> Box | None:
        """Implement `Findable.find_box`."""
        path = f"{_DROPLETS}/{lease.box_id}"
        reply = await self._wire.get(path, expect=(200, 404))
        if reply.status == 404:
            if _code(reply) == "not_found":
                return None
            raise self._wire.trouble("GET", path, reply)
        return self._box(_read(_MADE, reply).droplet)

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`. Volumes and snapshots of the box are left as they are.

        While an event of the Droplet is pending, the destroy is refused, and asked for again.
        """
        permit = genuine(permit, provider="digitalocean")
        path = f"{_DROPLETS}/{permit.box_id}"
        reply = await insist_on_delete(
            self._wire,
            path,
            clock=self._clock,
            words=f"DigitalOcean does not destroy {permit.box_id} yet; it bills until then",
        )
        if reply.status != 204 and _code(reply) != "not_found":
            raise self._wire.trouble("DELETE", path, reply)

    def refused_image(self, source: AtProvider) -> str | None:
        """Implement `Imaging.refused_image`: a Droplet is a virtual machine, made from a machine image."""
        return _NO_CONTAINER if source.image else None

    # --- volumes

    def refused_volumes(self, volumes: Sequence[Attachable]) -> str | None:
        """Implement `Storing.refused_volumes`."""
        if len({volume.region for volume in volumes}) > 1:
            return "its volumes are in several regions, and a Droplet is in one"
        return (
            f"a Droplet has {_MOST_VOLUMES} volumes at most"
            if len(volumes) > _MOST_VOLUMES
            else None
        )

    def volume_usd_month(self, size_gb: int, region: str) -> Decimal | None:
        """Implement `Storing.volume_usd_month`: the API does not give the price of a volume."""
        return None

    async def create_volume(self, volume: Volume) -> ListedVolume:
        """Implement `Storing.create_volume`. DigitalOcean puts a file system on it, so we never format one."""
        if ours := next((v for v in await self.list_volumes() if v.name == volume.mark), None):
            return ours
        order: Json = {
            "name": volume.mark,
            "size_gigabytes": volume.size_gb,
            "region": volume.region,
            "filesystem_type": "ext4",
        }
        try:
            reply = await self._wire.call("POST", _VOLUMES, body=order, expect=(201,))
        except Rejected as no:
            if no.status in _SURE:
                raise
            raise ProviderSilent(f"{no.message}; a volume may exist", remedy=no.remedy) from no
        return _volume_of(_read(_STORED, reply).volume)

    async def list_volumes(self) -> Sequence[ListedVolume]:
        """Implement `Storing.list_volumes`."""
        return [_volume_of(each) for each in await self._all(_VOLUMES, "volumes", _VOLUME_LIST, {})]

    async def grow_volume(self, volume: Volume, size_gb: int) -> None:
        """Implement `Growing.grow_volume`. The script of the next Droplet enlarges the file system."""
        path = f"{_VOLUMES}/{volume.volume_id}/actions"
        order: Json = {"type": "resize", "size_gigabytes": size_gb, "region": volume.region}
        await self._wire.call("POST", path, body=order, expect=(202,), repeatable="repeatable")

    async def destroy_volume(self, permit: VolumePermit) -> None:
        """Implement `Storing.destroy_volume`. DigitalOcean itself refuses it (409) while a Droplet has the volume."""
        permit = genuine_for_volume(permit, provider="digitalocean")
        path = f"{_VOLUMES}/{permit.volume_id}"
        reply = await self._wire.call(
            "DELETE", path, expect=(204, 404), repeatable="repeatable", urgent="teardown"
        )
        if reply.status == 404 and _code(reply) != "not_found":
            raise self._wire.trouble("DELETE", path, reply)

    # --- what can be rented, and what is left

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """Implement `Market.offers`: an offer for each size in each region that has it in stock."""
        found = [
            _offer(size, size.gpu_info, region)
            for size in await self._pages(_SIZES, "sizes", _SIZE_LIST, {})
            if size.gpu_info is not None and size.available
            for region in size.regions
            if wish.reaches_volumes("digitalocean", region)
        ]
        if wish.offer is not None:
            return [offer for offer in found if offer.id == wish.offer]
        return [offer for offer in found if offer.suits(wish)]

    async def leftovers(self) -> Sequence[Leftover]:
        """Implement `Residue.leftovers`: volumes that are attached to no Droplet, and all snapshots."""
        volumes = await self._all(_VOLUMES, "volumes", _VOLUME_LIST, {})
        snapshots = await self._all(_SNAPSHOTS, "snapshots", _SNAPSHOT_LIST, {})
        return [
            *(
                Leftover(
                    provider="digitalocean",
                    kind="volume",
                    id=each.id,
                    name=each.name,
                    mark=_mark(each.tags),
                    size_gb=each.size_gigabytes,
                    usd_month=None,
                )
                for each in volumes
                if not each.droplet_ids
            ),
            *(
                Leftover(
                    provider="digitalocean",
                    kind="snapshot",
                    id=each.id,
                    name=each.name,
                    mark=_mark(each.tags),
                    size_gb=float(each.size_gigabytes),
                    usd_month=(each.size_gigabytes * _SNAPSHOT_USD_GB_MONTH).quantize(USD_STEP),
                )
                for each in snapshots
            ),
        ]

    # --- the provider's answers

    async def _all(
        self, path: str, field: str, kind: TypeAdapter[list[Row]], query: Mapping[str, str]
    ) -> list[Row]:
        """Return every item of that list, and refuse a list that names an item twice."""
        rows = await self._pages(path, field, kind, query)
        if len({row.id for row in rows}) < len(rows):
            raise _incomplete(path, "an item is on two pages")
        return rows

    async def _pages(
        self, path: str, field: str, kind: TypeAdapter[list[T]], query: Mapping[str, str]
    ) -> list[T]:
        rows: list[T] = []
        page = 1
        leafing = Leafing(f"DigitalOcean's list of {field}")
        while True:
            asked = {**query, "per_page": str(_PAGE), "page": str(page)}
            reply = await self._wire.get(path, query=asked)
            shown = _read(_PAGE_OF, reply)
            held: list[T] = _read(kind, reply, field)
            rows += held
            if shown.links.pages.next is None:
                break
            following = parse_qs(urlsplit(shown.links.pages.next).query).get("page", [])
            if following != [str(page + 1)]:
                raise _incomplete(
                    path, f"page {quote_text(' '.join(following))} follows page {page}"
                )
            leafing.turn(len(reply.text))
            page += 1
        if len(rows) != shown.meta.total:
            raise _incomplete(path, f"{len(rows)} of {shown.meta.total} are on its pages")
        return rows

    async def _key_id(self) -> int:
        """Return the account's number for our public key. The key is added if it is missing."""
        ours = self._public_key()
        text = ours.split()[1]
        name = f"gpu-tenant-{hashlib.sha256(base64.b64decode(text)).hexdigest()[:16]}"
        until = self._clock.now() + timedelta(seconds=_KEY_WITHIN_S)
        while True:
            for key in await self._all(_KEYS, "ssh_keys", _KEY_LIST, {}):
                if key.public_key.split()[:2] == ours.split()[:2]:
                    return key.id
            added_id, added_at = self._added_key
            if added_id and until - added_at < timedelta(seconds=2 * _KEY_WITHIN_S):
                return added_id  # the list is late
            added: Json = {"name": name, "public_key": ours}
            reply = await self._wire.call("POST", _KEYS, body=added, expect=(201, 422))
            if reply.status == 201:
                made = _read(_ADDED, reply).ssh_key.id
                self._added_key = made, self._clock.now()
                return made
            # Another process may have added the same key, and the list may be late.
            if not _KEY_THERE.search(_message(reply)) or self._clock.now() >= until:
                raise self._wire.trouble("POST", _KEYS, reply)
            await self._clock.sleep(ASK_AGAIN_S)

    def _box(self, shown: _Droplet) -> Box:
        state = self._states.get(shown.status, BoxState.UNKNOWN)
        address = next((net.ip_address for net in shown.networks.v4 if net.type == "public"), None)
        words = None
        if shown.status == "off":
            words = "it is powered off, and bills in full; only destroying it ends the bill"
        elif state in (BoxState.BROKEN, BoxState.UNKNOWN):
            words = f"DigitalOcean calls it {quote_text(shown.status)}"
        return Box(
            provider="digitalocean",
            id=BoxId(str(shown.id)),
            mark=_mark(shown.tags),
            state=state,
            address=ssh_address(f"root@{address}") if address else None,
            price_usd_h=shown.size.price_hourly.quantize(USD_STEP),
            name=shown.name or None,
            gpus=shown.size.slug,
            words=words,
            created_at=instant(shown.created_at),
        )

    def _refusal(self, reply: Reply) -> ProviderTrouble:
        """Return the error for the answer to a create after which no box was made."""
        told = self._wire.trouble("POST", _DROPLETS, reply)
        said = _message(reply)
        if _IMAGE.search(said):
            told.remedy = (
                "name another `template` in [provider.digitalocean], or another region: no other size of this region "
                "has the image either"
            )
            return told
        if _TOO_MANY.search(said):
            return NoQuota(told.message, remedy="ask its support for more, or rent elsewhere")
        if _FULL.search(said):
            return NoCapacity(told.message, remedy=f"{Command('offers')} shows what there is now")
        return told


def _read(kind: TypeAdapter[T], reply: Reply, field: str | None = None) -> T:
    """Return the answer, or one field of it, validated against its documented form.

    Raises:
        ProviderSilent: it does not have that form, so nothing can be concluded from it.
    """
    try:
        return kind.validate_python(reply.fields.get(field) if field else reply.fields)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
    # Raised outside the handler, and names only the field. The validation error contains the value.
    raise ProviderSilent(
        f"an answer of DigitalOcean cannot be read: its {field or ''} {where} is not as documented",
        remedy=f"try again in a minute; {Command('leases')} looks again",
    )


def _code(reply: Reply) -> str | None:
    """Return the provider's short name for an error."""
    try:
        return _Refusal.model_validate_json(reply.text).id.casefold()
    except ValidationError:
        return None


def _message(reply: Reply) -> str:
    try:
        return _Refusal.model_validate_json(reply.text).message
    except ValidationError:
        return ""


def _incomplete(path: str, why: str) -> ProviderSilent:
    return ProviderSilent(
        f"DigitalOcean's list {path} is not complete: {why}",
        remedy=f"try again in a minute; {Command('leases')} looks again",
    )


def _subject(row: Mapping[str, object]) -> Subject:
    tags = row.get("tags") or []
    return Subject.of_row(row.get("id"), tags if isinstance(tags, list) else [tags])


def _mark(tags: Sequence[str] | None) -> str | None:
    return next((tag for tag in tags or [] if tag.startswith(MARK_PREFIX)), None)


def _fields_of_volumes(wish: Wish) -> dict[str, Json]:
    """Return the fields for the volumes that are ordered. Without volumes, the Droplet gets no script of ours."""
    volumes = wish.volumes_at("digitalocean")
    if not volumes:
        return {}
    return {
        "volumes": [volume.id for volume in volumes],
        "user_data": mount_script((f"{_DEVICE}{v.mark}", v.path) for v in volumes),
    }


def _volume_of(shown: _Volume) -> ListedVolume:
    return ListedVolume(
        id=shown.id,
        name=plain(shown.name),
        region=shown.region.slug,
        size_gb=shown.size_gigabytes,
        usd_month=None,
        boxes=tuple(map(str, shown.droplet_ids or [])),
    )


def _offer(size: _Size, gpu: _Gpu, region: str) -> Offer:
    name, vram_gib = _gpu(gpu)
    return Offer(
        provider="digitalocean",
        id=f"{size.slug}@{region}@{_image(gpu)}",
        gpu=name,
        gpu_count=gpu.count,
        vram_gib=vram_gib,
        region=region,
        disk_gb=size.disk,
        price=Price(
            gpu_usd_h=size.price_hourly,
            disk_usd_h=Decimal(0),
            parked_usd_h=None,
            upload_usd_gb=Decimal(0),
            download_usd_gb=_OUTBOUND_USD_GB,
            source="api",
        ),
        interruptible=False,
        trust="datacenter",
        reliability=None,
        max_hours=None,
        download_mbps=None,
        upload_mbps=None,
        cpus=size.vcpus,
        ram_gib=None if size.memory is None else size.memory / 1024,
        setup_s=_SETUP_S,
        notes=(
            "powered off it bills in full: only destroying it ends the bill",
            "the first bytes off it are included; the price is for the rest",
        ),
    )


def _gpu(gpu: _Gpu) -> tuple[str, float | None]:
    """Return the canonical name and the memory of each GPU, parsed from words like `nvidia_rtx6000_ada`."""
    called = gpu.model.replace("_", " ")
    amount = gpu.vram.amount if gpu.vram else None
    # Some sizes state the memory of all GPUs together, others of one GPU. The GPU catalog shows which.
    for each in (amount, amount // gpu.count if amount and gpu.count else None):
        model = known_gpu(called) or known_gpu(f"{called} {each}GB")
        if model is not None and each in (None, model.vram_gib):
            return model.name, model.vram_gib
    return plain(gpu.model), amount if gpu.count == 1 else None


def _ordered_image(template: str | None) -> str | int | None:
    """Return the image that is ordered: public ones have a slug, private ones a number."""
    return int(template) if template is not None and template.isdigit() else template


def _image(gpu: _Gpu) -> str:
    """Return the name of the provider's own image with that GPU's drivers."""
    if gpu.model.startswith("amd_"):
        return "gpu-amd-base"
    return "gpu-h100x8-base" if gpu.count == 8 else "gpu-h100x1-base"


def connect(setting: Setting) -> DigitalOceanConnector:
    """Return the connector for the account of the setting's credential."""
    return DigitalOceanConnector(setting)
