"""Boxes at AutoDL: containers of the kind *instance Pro*, billed by the second.

To end one, it is powered off first, and then released.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Literal, TypeVar

from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError

from gpu_tenant.domain.address import ssh_address
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    CredentialRefused,
    LocalTrouble,
    NoCapacity,
    NoFunds,
    ProviderSilent,
    ProviderTrouble,
    Rejected,
)
from gpu_tenant.domain.model import MARK_PREFIX, Box, BoxId, BoxState, Lease
from gpu_tenant.domain.offers import USD_STEP, Leftover, Offer, Wish
from gpu_tenant.domain.order import AtProvider
from gpu_tenant.domain.permit import TeardownPermit, genuine
from gpu_tenant.domain.ports import Asking, Setting, find_marked, wanted_quote
from gpu_tenant.domain.timestamps import instant
from gpu_tenant.providers.autodl.instances import ANYWHERE, offers, order_of, owners_word
from gpu_tenant.providers.drift import Drift
from gpu_tenant.providers.http_client import Json, Method, Reply, Wire, figure, rejection, words
from gpu_tenant.providers.list_rows import in_fields, read_each, try_read
from gpu_tenant.providers.response_limits import Leafing

_PRO, _BALANCE = "/api/v1/dev/instance/pro", "/api/v1/dev/wallet/balance"
_PAGE = 100
_SAID = ("AUTODL_CNY_USD", "AUTODL_CNY_USD_ON", "AUTODL_CNY_H")

_RELEASE_WITHIN_S = 300
_ASK_AGAIN_S = 10

_KEY_REFUSED = re.compile(r"AuthorizeFailed|Unauthorized|token", re.IGNORECASE)
_UNVERIFIED = re.compile(r"RealName|实名|PermissionDenied|权限", re.IGNORECASE)
_POOR = re.compile(r"balance|余额|欠费", re.IGNORECASE)
_FULL = re.compile(r"库存|无可用|资源不足|售罄|空闲")
_NOT_THERE = re.compile(r"RecordNotFound|不存在")
_WRONG_ORDER = re.compile(r"ParamError|RequestParameterIsWrong|参数")
"""AutoDL's error codes are not documented. These match codes and words that users have reported."""


class _Instance(BaseModel):
    uuid: str
    name: str | None = None
    status: str
    start_mode: str | None = None
    charge_type: str | None = None
    req_gpu_amount: int | None = None
    created_at: JsonValue = None


class _Snapshot(BaseModel):
    """The part of the provider's answer that we keep. The rest contains the root password.

    Any of it may be left out, or have another form. That must hide no box.
    """

    payg_price: JsonValue = None
    proxy_host: JsonValue = None
    ssh_port: JsonValue = None
    ssh_command: JsonValue = None

    @property
    def target(self) -> str | None:
        """Where sshd answers. None if the answer does not say it."""
        host, port = self.proxy_host, self.ssh_port
        if isinstance(host, str) and host and str(port).isdigit() and int(str(port)):
            return f"root@{host}:{port}".removesuffix(":22")
        told = re.fullmatch(r"ssh -p (\d+) (root@[\w.-]+)", str(self.ssh_command))
        return f"{told[2]}:{told[1]}".removesuffix(":22") if told else None

    @property
    def cny_h(self) -> Decimal | None:
        """The price of an hour in yuan. None if it is not told."""
        price = figure(self.payg_price)
        return Decimal(str(price)) / 1000 if price else None


class _Image(BaseModel):
    uuid: str = Field(alias="image_uuid")
    name: str | None = None
    image_size: int | None = None


class _Balance(BaseModel):
    assets: Decimal | None = None
    voucher_balance: Decimal | None = None
    blocked_asset: Decimal | None = None


class _Page(BaseModel):
    list: list[JsonValue] | None
    page_index: int | None = None
    max_page: int
    result_total: int


T = TypeVar("T")

_INSTANCE, _IMAGES = TypeAdapter(_Instance), TypeAdapter(list[_Image])
_PAGE_OF, _SNAPSHOT, _HELD = TypeAdapter(_Page), TypeAdapter(_Snapshot), TypeAdapter(_Balance)
_TEXT = TypeAdapter(str)


class AutodlConnector:
    """One account at AutoDL, through the API for instances Pro. A person rents the account's other boxes by hand.

    It does not implement `Billing`, because the API does not say what a box has cost.
    """

    has_registry_logins = False

    def __init__(self, setting: Setting) -> None:
        # Not the whole setting is kept, because its environment may contain the key.
        self._states, self._public_key = setting.profile.states, setting.public_key
        self._clock = setting.clock
        said = {name: setting.environ.get(name, "") for name in _SAID}
        self._owner = partial(owners_word, setting.state / "config.toml", said)
        self._drift = Drift(setting)
        self._wire = Wire(
            drift=self._drift,
            title=setting.profile.title,
            base_url=setting.api("https://api.autodl.com", variable="AUTODL_API_URL"),
            credential=setting.credential,
            clock=setting.clock,
            scheme="",
        )

    # --- boxes

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`. The box's start command installs our key."""
        quote = wanted_quote(lease)
        if ours := find_marked(lease, await self.list_boxes()):
            return ours
        owner, what, ordered = self._owner(), order_of(quote.offer.id), quote.wish.order
        if what is None:
            raise NoCapacity(
                f"AutoDL has no offer {quote.offer.id}", remedy=f"{Command('offers')} has others"
            )
        order: dict[str, Json] = {
            "req_gpu_amount": what.gpu_count,
            "gpu_spec_uuid": what.spec,
            "image_uuid": ordered.image_at("autodl").template or owner.image,
            "cuda_v_from": _cuda_number(ordered.cuda) or owner.cuda_v_from,
            "expand_system_disk_by_gb": 0,
            "instance_name": lease.mark,
            "start_command": _lets_in(self._public_key()),
        }
        if what.where != ANYWHERE:
            order["data_center_list"] = [*what.where.split("+")]
        try:
            made = _read(
                _TEXT, await self._unwrap("POST", f"{_PRO}/create", body=order, once="once")
            )
        except Rejected as error:
            if error.status != 200 or _WRONG_ORDER.search(error.body):
                raise
            # What this failure means is not documented, so it does not prove that there is no box.
            raise ProviderSilent(
                error.message, remedy=f"{Command('leases')} looks again"
            ) from error
        return Box(
            provider="autodl",
            id=BoxId(made),
            mark=lease.mark,
            state=BoxState.BOOTING,
            address=None,
            price_usd_h=None,
        )

    def refused_image(self, source: AtProvider) -> str | None:
        """Implement `Imaging.refused_image`. Only AutoDL's public and private images can be used, named by their id."""
        if source.image is None:
            return None
        return "AutoDL's containers start only from AutoDL's own images; set `template` in [provider.autodl] to the id of one"

    async def list_boxes(self) -> Sequence[Box]:
        """Implement `Connector.list_boxes`: every instance Pro, except those that AutoDL calls released."""
        there = [row for row in await self._instances() if row.get("status") != "released"]
        details = {
            shown.uuid: await self._snapshot(shown.uuid)
            for row in there
            if isinstance(shown := try_read(_INSTANCE.validate_python, row), _Instance)
            and self._is_looked_into(shown)
        }
        return read_each(
            "autodl",
            there,
            lambda row: self._box(_INSTANCE.validate_python(row), details),
            in_fields("uuid", "name"),
            self._drift,
        )

    async def find_box(self, lease: Lease) -> Box | None:
        """Implement `Findable.find_box`. The state comes without the order, so the box counts as what was ordered."""
        box_id = lease.box_id or BoxId("")
        status = await self._status(box_id)
        if status is None or status == "released":
            return None
        ordered = _Instance(
            uuid=box_id,
            name=lease.mark,
            status=status,
            start_mode="gpu",
            charge_type="payg",
            req_gpu_amount=lease.quote.offer.gpu_count if lease.quote else 0,
        )
        details: dict[str, Json | Rejected] = {}
        if self._is_looked_into(ordered):
            details[box_id] = await self._snapshot(box_id)
        return self._box(ordered, details)

    @property
    def ahead(self) -> timedelta | None:
        """Implement `Timekeeping.ahead`."""
        return self._wire.ahead

    def asked_with(self, salt: str) -> Asking:
        """Implement `Accounted.asked_with`."""
        return self._wire.asked_with(salt)

    async def account(self) -> str | None:
        """Implement `Accounted.account`. None, because no call of the API names the account."""
        return None

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`. The box is powered off first, and stays off if the release fails."""
        permit = genuine(permit, provider="autodl")
        give_up_at = self._clock.now() + timedelta(seconds=_RELEASE_WITHIN_S)
        hindrance = ""
        while True:
            status = await self._status(permit.box_id, urgent="teardown")
            if status in (None, "releasing", "released"):
                return
            try:
                if status == "shutdown":
                    await self._tell("release", permit.box_id, urgent="teardown")
                    return
                # A second power_off is refused. One that is sent while the box starts may not stop
                # the box.
                if status != "shutting_down":
                    await self._tell("power_off", permit.box_id, urgent="teardown")
            except Rejected as error:
                if error.status != 200:
                    raise
                hindrance = f": {error.message}"
            if self._clock.now() >= give_up_at:
                raise ProviderTrouble(
                    f"AutoDL has not released {permit.box_id} within {_RELEASE_WITHIN_S} s, and calls "
                    f"it {words(str(status))}{hindrance}",
                    remedy=f"{Command('leases')} shows the current state",
                )
            await self._clock.sleep(_ASK_AGAIN_S)

    async def park(self, lease: Lease) -> None:
        """Implement `Parking.park`. Anybody may then take the GPU, and after 15 days the box is released."""
        await self._switch(lease, "power_off", ("shutting_down", "shutdown"), {})

    async def resume(self, lease: Lease) -> None:
        """Implement `Parking.resume`. Port and password may have changed, and our key is installed again."""
        more: dict[str, Json] = {"payload": "gpu", "start_command": _lets_in(self._public_key())}
        await self._switch(lease, "power_on", ("starting", "running"), more)

    async def _switch(
        self, lease: Lease, verb: str, already: Sequence[str], more: dict[str, Json]
    ) -> None:
        box_id = lease.box_id or BoxId("")
        try:
            await self._tell(verb, box_id, more=more)
        except Rejected:
            if await self._status(box_id) not in already:
                raise

    # --- what can be rented, and what is left

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """Implement `Market.offers`: return an offer for every kind of GPU that the API rents.

        Whether a kind is in stock is certain only when a box is created. The API gives no price before a box exists, so
        the prices are those that the owner states.
        """
        held = _read(_HELD, await self._unwrap("POST", _BALANCE, body={}))
        cny = None
        if held.assets is not None:
            # What is blocked cannot be spent.
            free = held.assets + (held.voucher_balance or 0) - (held.blocked_asset or 0)
            cny = max(Decimal(0), free) / 1000
        return offers(wish, self._owner(), cny, today=self._clock.now().date())

    async def leftovers(self) -> Sequence[Leftover]:
        """Implement `Residue.leftovers`: saved images, whose price the API does not give.

        Files in a region's file storage may bill, too, but the API does not show them.
        """
        images = _read(_IMAGES, await self._pages(f"{_PRO}/image/private/list", "image_uuid"))
        return [
            Leftover(
                provider="autodl",
                kind="snapshot",
                id=image.uuid,
                name=image.name or "",
                mark=None,
                size_gb=None if image.image_size is None else image.image_size / 1e9,
                usd_month=None,
            )
            for image in images
        ]

    # --- the provider's answers

    def _is_looked_into(self, shown: _Instance) -> bool:
        """Whether to ask for the box's address and price."""
        state = self._states.get(shown.status, BoxState.UNKNOWN)
        return _mark(shown) is not None and state in (
            BoxState.READY,
            BoxState.STOPPING,
            BoxState.UNKNOWN,
        )

    def _box(self, shown: _Instance, details: Mapping[str, "Json | Rejected"]) -> Box:
        state = self._states.get(shown.status, BoxState.UNKNOWN)
        mark = _mark(shown)
        address, price = None, None
        told = f"AutoDL calls it {words(shown.status)}"
        said = told if state in (BoxState.BROKEN, BoxState.UNKNOWN) else None
        if state is BoxState.PARKED:
            price = Decimal(0)  # the included disks cost nothing
        elif self._is_looked_into(shown):
            detail = details[shown.uuid]
            if isinstance(detail, Rejected):
                why = f"AutoDL does not tell its address and price: {detail.message}"
                said = f"{said}; {why}" if said else why
                detail = None
            known = _read(_SNAPSHOT, detail or {})
            price = self._usd_h(shown, known)
            if state is BoxState.READY and known.target:
                address = ssh_address(known.target)
            elif state is BoxState.READY and said is None:
                said = "it runs, and AutoDL shows no address for ssh"
        return Box(
            provider="autodl",
            id=BoxId(shown.uuid),
            mark=mark,
            state=state,
            address=address,
            price_usd_h=price,
            name=shown.name or None,
            words=said,
            created_at=instant(shown.created_at),
        )

    def _usd_h(self, shown: _Instance, detail: _Snapshot) -> Decimal | None:
        """Return what the box costs by the provider's figure. None unless the box has one GPU at the plain hourly rate.

        For several GPUs it is not documented whether the figure is for one of them or for all.
        """
        plain_one = (shown.req_gpu_amount, shown.start_mode, shown.charge_type) == (
            1,
            "gpu",
            "payg",
        )
        if detail.cny_h is None or not plain_one:
            return None
        try:
            owner = self._owner()
        except LocalTrouble:
            return None  # a bad line in our own configuration must not hide a box
        usd_h = owner.usd(detail.cny_h)
        return None if usd_h is None else usd_h.quantize(USD_STEP)

    async def _snapshot(self, box_id: str) -> "Json | Rejected":
        """Return the answer with the box's address and price, or the refusal to give them."""
        try:
            return await self._about("snapshot", box_id)
        except Rejected as refusal:
            return refusal

    async def _about(self, what: str, box_id: str, *, urgent: Literal["", "teardown"] = "") -> Json:
        """Return what the provider tells of that box.

        A public client names the box in the query, and the official page in the body.
        """
        path, named = f"{_PRO}/{what}", {"instance_uuid": box_id}
        try:
            return await self._unwrap("GET", path, query=named, urgent=urgent)
        except Rejected as refusal:
            if refusal.status != 200 or not _WRONG_ORDER.search(refusal.body):
                raise
        return await self._unwrap("GET", path, body={**named}, urgent=urgent)

    async def _status(self, box_id: str, *, urgent: Literal["", "teardown"] = "") -> str | None:
        """Return the provider's word for the box's state. None if the provider knows no such box and lists none."""
        try:
            return _read(_TEXT, await self._about("status", box_id, urgent=urgent))
        except Rejected as error:
            if not _NOT_THERE.search(error.body):
                raise
            # The wording for this is not documented, so the words alone prove nothing.
            rows = await self._instances(urgent=urgent)
            if not all(isinstance(row.get("uuid"), str) for row in rows):
                raise _unusable(f"{_PRO}/list", "a row lacks the id of its box") from error
            listed = [_read(_TEXT, row.get("status")) for row in rows if row["uuid"] == box_id]
            return listed[0] if listed else None

    async def _tell(
        self,
        verb: str,
        box_id: BoxId,
        *,
        more: Mapping[str, Json] | None = None,
        urgent: Literal["", "teardown"] = "",
    ) -> None:
        body: dict[str, Json] = {"instance_uuid": box_id, **(more or {})}
        await self._unwrap("POST", f"{_PRO}/{verb}", body=body, urgent=urgent)

    async def _instances(self, *, urgent: Literal["", "teardown"] = "") -> list[Mapping[str, Json]]:
        """Return every row of the list of instances. A row that is not an object becomes an empty one."""
        rows = await self._pages(f"{_PRO}/list", "uuid", urgent=urgent)
        return [row if isinstance(row, dict) else {} for row in rows]

    async def _pages(
        self, path: str, identity: str, *, urgent: Literal["", "teardown"] = ""
    ) -> list[JsonValue]:
        """Return every row of that list.

        Raises:
            ProviderSilent: the list names something twice, or is not complete.
        """
        rows: list[JsonValue] = []
        page, leafing = 1, Leafing(f"AutoDL's list of {path}")
        while True:
            body: Json = {"page_index": page, "page_size": _PAGE}
            shown = _read(_PAGE_OF, await self._unwrap("POST", path, body=body, urgent=urgent))
            if shown.page_index not in (None, page):
                raise _unusable(path, f"page {shown.page_index} was answered for page {page}")
            rows += shown.list or []
            if page >= shown.max_page:
                break
            leafing.turn()
            page += 1
        ids = [row.get(identity) for row in rows if isinstance(row, dict)]
        named = [each for each in ids if isinstance(each, str)]
        if again := [each for each, times in Counter(named).items() if times > 1]:
            raise _unusable(path, f"it names {words(again[0])} twice")
        if len(rows) != shown.result_total:
            raise _unusable(
                path, f"its number of rows should be {shown.result_total}, but is {len(rows)}"
            )
        return rows

    async def _unwrap(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json = None,
        once: Literal["", "once"] = "",
        urgent: Literal["", "teardown"] = "",
    ) -> Json:
        """Return the data in the provider's envelope. The provider reports even failures with status 200.

        Raises:
            Rejected: the call failed. The body of the error is the provider's code and message.
            ProviderTrouble: any error of `Wire.call`, or a failure whose meaning is known.
        """
        reply = await self._wire.call(
            method,
            path,
            query=query,
            body=body,
            urgent=urgent,
            repeatable="" if once else "repeatable",
        )
        code = reply.fields.get("code")
        if code == "Success":
            return reply.fields.get("data")
        if not isinstance(code, str):
            raise ProviderSilent(
                f"an answer of AutoDL to {method} {path} has no code: {words(reply.text)}",
                remedy=f"try again in a minute; {Command('leases')} looks again",
            )
        raise self._refusal(method, path, code, reply)

    def _refusal(self, method: str, path: str, code: str, reply: Reply) -> ProviderTrouble:
        """Return the error for a failure. If the meaning of its words is unknown, that is a `Rejected`."""
        said = f"{code} {reply.fields.get('msg') or ''}"
        what = f"AutoDL answered {method} {path} with {words(said)}"
        if _UNVERIFIED.search(said):
            return CredentialRefused(
                what,
                remedy="its API requires an account whose owner's identity is verified (实名认证, in the "
                f"console under 账号); {Command('profiles', 'autodl')}",
            )
        if _KEY_REFUSED.search(said):
            return CredentialRefused(
                what, remedy=f"check that the key is right; {Command('doctor')}"
            )
        if _POOR.search(said):
            return NoFunds(what, remedy="add credit in the console, or rent elsewhere")
        if _FULL.search(said):
            return NoCapacity(what, remedy=f"{Command('offers')} has others; or try again later")
        if code == "InternalError":
            return ProviderSilent(what, remedy=f"{Command('leases')} looks again")
        return rejection(200, said, what)


def _mark(shown: _Instance) -> str | None:
    return shown.name if shown.name and shown.name.startswith(MARK_PREFIX) else None


def _read(kind: TypeAdapter[T], told: object) -> T:
    """Validate the data against its documented form, and return it.

    Raises:
        ProviderSilent: the data does not have that form, so nothing can be concluded from it.
    """
    try:
        return kind.validate_python(told)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
    # Raised outside the handler, and names only the field. The validation error contains the value,
    # which may be a password.
    raise ProviderSilent(
        f"an answer of AutoDL cannot be read: its {where or 'data'} is not as documented",
        remedy=f"try again in a minute; {Command('leases')} looks again",
    )


def _unusable(path: str, why: str) -> ProviderSilent:
    return ProviderSilent(
        f"AutoDL's list {path} cannot be used: {why}",
        remedy=f"try again in a minute; {Command('leases')} looks again",
    )


def _lets_in(public_key: str) -> str:
    """Return the command that the box runs when it starts: it adds our key to the authorized keys.

    The command has no quotes, because how the provider passes it on is not documented.
    """
    kind, text = public_key.split()[:2]
    file = "/root/.ssh/authorized_keys"
    return (
        f"mkdir -p /root/.ssh; grep -qsF {text} {file} || (echo; echo {kind} {text}) >> {file}; "
        f"chmod 700 /root/.ssh; chmod 600 {file}"
    )


def _cuda_number(version: str | None) -> int | None:
    """Write a version such as `12.4` in AutoDL's form, which is 124."""
    return None if version is None else int(version.replace(".", ""))


def connect(setting: Setting) -> AutodlConnector:
    """Return the connector for the account of the setting's credential."""
    return AutodlConnector(setting)
