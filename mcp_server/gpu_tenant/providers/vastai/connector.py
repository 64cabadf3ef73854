"""Boxes at Vast.ai: containers on other people's machines, rented by the second or by a bid."""

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from gpu_tenant.domain.address import ssh_address
from gpu_tenant.domain.billing import Balance, Billed
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    CredentialRefused,
    NoCapacity,
    NoFunds,
    PriceMoved,
    ProviderTrouble,
)
from gpu_tenant.domain.model import MARK_PREFIX, Box, BoxId, BoxState, Lease, SshAddress
from gpu_tenant.domain.offers import (
    TESTED_RELIABILITY,
    USD_STEP,
    Attachable,
    Leftover,
    Offer,
    Price,
    Quote,
    Wish,
    sane,
)
from gpu_tenant.domain.order import AtProvider, port_number
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
from gpu_tenant.providers.http_client import (
    Json,
    Method,
    Reply,
    Spacing,
    Wire,
    counted_gpus,
    figure,
    words,
)
from gpu_tenant.providers.list_rows import in_fields, must_be_whole, read_each
from gpu_tenant.providers.response_limits import Leafing, silent
from gpu_tenant.providers.vastai.billing import (
    CHARGES,
    MONTH_H,
    USER,
    charge,
    charges_query,
    credit,
    leftover,
    money,
)
from gpu_tenant.providers.vastai.volumes import (
    SEARCH,
    VOLUMES,
    linked,
    listed_volume,
    made,
    name_of,
    room,
    search,
)

# The provider's default: it picks the CUDA version that the host's driver can run.
_IMAGE = "vastai/base-image:@vastai-automatic-tag"
_HAS_PYTHON = (
    "; command -v python3 >/dev/null || (apt-get update && apt-get install -y python3)"
    " || apk add --no-cache python3"
)
"""Installs python3, because our scripts on a box need it. Vast.ai itself installs sshd in any image."""
_SPACING = (
    Spacing("PUT", r"/api/v0/asks/\d+/", 4.5),
    Spacing("DELETE", r"/api/v0/instances/\d+/", 3.0),
    Spacing("PUT", r"/api/v0/instances/\d+/", 1.0),
    Spacing("GET", r"/api/v0/instances/\d+/", 2.0),
    Spacing("POST", r"/api/v0/instances/\d+/ssh/", 1.0),
    Spacing("GET", r"/api/v1/instances/", 1.0),
    *(Spacing(method, rf"{VOLUMES}/?", 5.5) for method in ("GET", "PUT", "DELETE")),
    Spacing("POST", SEARCH, 5.5),
    Spacing("GET", CHARGES, 1.0),
)
_PAGE = 64
"""The most offers that one search showed on a real account, whatever its `limit` (2026-09-29)."""
_SMALL_PAGE = 16
"""A page with fewer offers is the last. One with more may be cut, because the provider may change its limit."""
_PAGES, _MOST_PAGES = 4, 40
"""How many pages of offers are read if something fits, and how many at most."""
_USABLE = 0.9
"""A driver reports a little less memory than the maker."""
_SETUP_S = 240
# A create's answer is read whatever its status is, because an error may name a box that was made.
# Only a 429 never names a box.
_ANY = tuple(status for status in range(200, 600) if status != 429)
_GONE = ("not_found", "no_such_instance")
_NO_VOLUME = "no_such_volume"
_BID = ":bid"
_ENDED = (
    "its rental has ended: it cannot start again, its disk bills, and 48 h later it may be deleted"
)
_NEVER_STARTS = re.compile(
    r"OCI runtime create failed|manifest unknown|failed to resolve reference|pull access denied"
    r"|repository does not exist|unauthorized:",
    re.IGNORECASE,
)
"""What the status message says if a box that is shown as created or loading will never run. Two clients that are used
with real accounts match these texts: dstackai/dstack (2026-08-21), and one in production (2026-10-06)."""
_OUTBID = "it may start again by itself, and bill"

# Canonical names that differ from Vast.ai's. GPUs that share one of its names are told apart by their memory.
_THEIR_NAMES: Mapping[str, tuple[str, ...]] = {
    "GTX 970": ("GeForce 970",),
    **{f"GTX {n} SUPER": (f"GTX {n} S",) for n in (1650, 1660)},
    **{f"RTX {n} SUPER": (f"RTX {n}S",) for n in (2060, 2070, 2080, 4070, 4080)},
    "RTX 4080 SUPER 32GB": ("RTX 4080S",),
    "RTX 4070 Ti SUPER": ("RTX 4070S Ti",),
    **{f"RTX {n} Laptop": (f"RTX {n} laptop",) for n in (3060, 3070, 4060, 4070, 4080)},
    "TITAN RTX": ("Titan RTX",),
    "TITAN V": ("Titan V",),
    "TITAN X": ("Titan X",),
    "TITAN Xp": ("Titan Xp",),
    **{
        name: (shared,)
        for shared, *others in (
            ("RTX 2060", "RTX 2060 12GB"),
            ("RTX 2080 Ti", "RTX 2080 Ti 22GB"),
            ("RTX 3050", "RTX 3050 6GB"),
            ("RTX 3060", "RTX 3060 8GB"),
            ("RTX 3080", "RTX 3080 12GB"),
            ("RTX 3090", "RTX 3090 48GB"),
            ("RTX 4060 Ti", "RTX 4060 Ti 16GB"),
            ("RTX 4090", "RTX 4090 48GB"),
            ("RTX 4090D", "RTX 4090D 48GB"),
            ("RTX 5060 Ti", "RTX 5060 Ti 16GB"),
            ("RTX A2000", "RTX A2000 12GB"),
        )
        for name in (shared, *others)
    },
    **{f"Quadro RTX {n}": (f"Q RTX {n}",) for n in (4000, 5000, 6000, 8000)},
    **{f"RTX {n} Ada": (f"RTX {n}Ada",) for n in (2000, 4000, 4500, 5000, 5880, 6000)},
    "RTX PRO 6000 Server": ("RTX PRO 6000 S",),
    "RTX PRO 6000 Workstation": ("RTX PRO 6000 WS",),
    **{name: (f"Tesla {name}",) for name in ("K80", "M40", "P4", "P6", "P40", "P100", "T4")},
    **{f"V100 {form} {size}GB": ("Tesla V100",) for form in ("SXM", "PCIe") for size in (16, 32)},
    "A10G": ("A10g",),
    **{f"A100 PCIe {size}GB": ("A100 PCIE",) for size in (40, 80)},
    **{f"A100 SXM {size}GB": ("A100 SXM4", "A100 SXM") for size in (40, 80)},
    **{f"A800 PCIe {size}GB": ("A800 PCIE",) for size in (40, 80)},
    "H100 PCIe": ("H100 PCIE",),
    "GH200": ("GH200 SXM",),
    **{name: (f"Instinct{name}",) for name in ("MI50", "MI100", "MI210", "MI250X")},
    "PRO V620": ("Pro V620",),
    "Radeon PRO VII": ("Radeon Pro VII",),
}


class VastConnector:
    """One account at Vast.ai."""

    has_registry_logins = False
    has_strangers = True

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._drift = Drift(setting)
        self._wire = Wire(
            drift=self._drift,
            title=setting.profile.title,
            clock=setting.clock,
            credential=setting.credential,
            base_url=setting.api("https://console.vast.ai", variable="VAST_URL"),
            spacing=_SPACING,
        )

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`.

        If the provider refuses but names a box, that box is returned as it is, so that the caller gives it back.

        Whether the box is interruptible is taken from the provider's answer, not from the order. If the bid is lost
        on the way to the provider, the request rents a box at the full price, and nothing reports that.
        """
        quote = wanted_quote(lease)
        if ours := find_marked(lease, await self._boxes({"label": {"in": [lease.mark]}})):
            return ours
        ask, _, _ = quote.offer.id.partition(":")
        path = f"/api/v0/asks/{ask}/"
        body = self._order(lease.mark, quote)
        reply = await self._wire.call("PUT", path, body=body, expect=_ANY)
        contract = _field(reply, "new_contract")
        if not isinstance(contract, int):
            refusal = self._refusal("PUT", path, reply)
            # The refusal names neither a box nor a known reason, so only the list can tell.
            is_clear = reply.status >= 400 and reply.status != 408
            raise refusal if is_clear else silent(refusal.message)
        shown = f"/api/v0/instances/{contract}/"
        key: Json = {"ssh_key": self._setting.public_key()}
        try:
            await self._call("POST", f"{shown}ssh/", body=key, how="repeatable")
            row = (await self._call("GET", shown, query={"owner": "me"})).fields.get("instances")
        except ProviderTrouble as error:
            # Any error other than ProviderSilent would say that no box was made.
            raise silent(f"Vast.ai made instance {contract}, but: {error.message}") from error
        if not isinstance(row, dict):
            raise silent(f"Vast.ai made instance {contract}, and does not show it yet")
        return self._box(row)

    async def list_boxes(self) -> Sequence[Box]:
        """Implement `Connector.list_boxes`."""
        return await self._boxes({})

    @property
    def ahead(self) -> timedelta | None:
        """Implement `Timekeeping.ahead`."""
        return self._wire.ahead

    def asked_with(self, salt: str) -> Asking:
        """Implement `Accounted.asked_with`."""
        return self._wire.asked_with(salt)

    async def account(self) -> str | None:
        """Implement `Accounted.account`."""
        number = (await self._call("GET", USER)).fields.get("id")
        return f"user {number}" if isinstance(number, int | str) else None

    async def find_box(self, lease: Lease) -> Box | None:
        """Implement `Findable.find_box`."""
        path = f"/api/v0/instances/{lease.box_id}/"
        reply = await self._call("GET", path, query={"owner": "me"}, expect=(200, 404))
        if reply.status == 404:
            if _field(reply, "error") in _GONE:
                return None
            raise self._wire.trouble("GET", path, reply)
        row = reply.fields.get("instances")
        return self._box(row) if isinstance(row, dict) else None

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`."""
        permit = genuine(permit, provider="vastai")
        path = f"/api/v0/instances/{permit.box_id}/"
        reply = await self._call("DELETE", path, body={}, expect=(200, 404), how="teardown")
        if _field(reply, "success") is not True and _field(reply, "error") not in _GONE:
            raise self._wire.trouble("DELETE", path, reply)

    async def park(self, lease: Lease) -> None:
        """Implement `Parking.park`."""
        refusal = await self._set(lease, "stopped")
        if refusal is not None:
            raise refusal

    async def resume(self, lease: Lease) -> None:
        """Implement `Parking.resume`. If the provider only queues the start, it is withdrawn: it could bill unseen."""
        refusal = await self._set(lease, "running")
        if refusal is None:
            return
        if "unavailable" not in refusal.message:
            raise refusal
        await self.park(lease)
        raise NoCapacity(
            f"the GPU of {lease.id} is in use by somebody else now: {refusal.message}",
            remedy=f"{Command('resume', lease.id)} tries again; its disk is kept, and bills",
        )

    async def _set(self, lease: Lease, state: str) -> ProviderTrouble | None:
        path = f"/api/v0/instances/{lease.box_id}/"
        reply = await self._call("PUT", path, body={"state": state}, how="repeatable")
        return None if _field(reply, "success") is True else self._wire.trouble("PUT", path, reply)

    async def _boxes(self, filters: dict[str, Json]) -> Sequence[Box]:
        rows: dict[str, dict[str, Json]] = {}
        query = {
            "select_filters": json.dumps(filters),
            "limit": "25",
            "order_by": json.dumps([{"col": "id", "dir": "asc"}]),
        }
        leafing = Leafing("Vast.ai's list")
        while True:
            page = (await self._call("GET", "/api/v1/instances/", query=query)).fields
            for row in _rows(page, "instances"):
                if (number := str(row.get("id"))) in rows:
                    raise silent("Vast.ai's list: an instance is on two pages")
                # A row without a number is kept, too: it must be reported as unreadable.
                rows[number if number.isdigit() else f"none {len(rows)}"] = row
            token, total = page.get("next_token"), page.get("total_instances")
            if token is None:
                known = ("instances", "next_token", "label_counts", "total_instances")
                must_be_whole("Vast.ai's list", page, len(rows), known=known, drift=self._drift)
                break
            if not isinstance(token, str) or token == query.get("after_token"):
                raise silent("Vast.ai's list: the cursor to its next page leads to the same page")
            leafing.turn()
            query["after_token"] = token
        if isinstance(total, int) and len(rows) < total:
            raise silent(f"Vast.ai's list: {len(rows)} of {total} instances are on its pages")
        return read_each("vastai", rows.values(), self._box, in_fields("id", "label"), self._drift)

    def _box(self, row: Mapping[str, Json]) -> Box:
        label, word = row.get("label"), _word(row)
        state = self._setting.profile.states.get(word, BoxState.UNKNOWN)
        if state is BoxState.BOOTING and _NEVER_STARTS.search(str(row.get("status_msg"))):
            state = BoxState.BROKEN
        # While the box loads, only its disk bills.
        price = _price_now(row)
        running = sane(money(row.get("dph_total"))) if state is BoxState.BOOTING else None
        return Box(
            provider="vastai",
            id=BoxId(str(int(str(row["id"])))),
            state=state,
            mark=label if isinstance(label, str) and label.startswith(MARK_PREFIX) else None,
            address=_direct(row) if state is BoxState.READY else None,
            price_usd_h=None if price is None else price.quantize(USD_STEP),
            running_usd_h=None if running is None else running.quantize(USD_STEP),
            interruptible=row.get("is_bid") is True,
            name=label if isinstance(label, str) and label else None,
            gpus=counted_gpus(row.get("num_gpus"), row.get("gpu_name")),
            words=self._words(row, word, state),
            published=_published(row) if state is BoxState.READY else (),
            taken="host_lost"
            if word == "offline"
            else None,  # such a box never comes back by itself
            created_at=instant(row.get("start_date")),
            rental_ends_at=instant(row.get("end_date")),
        )

    def _words(self, row: Mapping[str, Json], word: str, state: BoxState) -> str | None:
        told = []
        ends = figure(row.get("end_date"))
        if ends is not None and ends <= self._setting.clock.now().timestamp():
            told.append(_ENDED)
        elif state is BoxState.PARKED and row.get("intended_status") == "running":
            told.append("it waits for its GPU; as soon as the GPU is free, it starts and bills")
        elif state is BoxState.PARKED and row.get("is_bid") is True:
            told.append(_OUTBID)
        if state in (BoxState.BROKEN, BoxState.UNKNOWN):
            told.append(f"Vast.ai calls it {quote_text(word)}")
        if word == "exited" and row.get("intended_status") == "running":
            told.append("for up to 10 min after a start it is called so, else it has ended")
        if state is BoxState.READY and _price_now(row) is None:
            told.append("Vast.ai does not tell its price now")
        if state is BoxState.READY and _direct(row) is None:
            told.append("it runs, and Vast.ai shows no port of its own for ssh")
        if state in (BoxState.BROKEN, BoxState.UNKNOWN, BoxState.BOOTING):
            why = row.get("status_msg")
            told.append(words(why) if isinstance(why, str) and why.strip() else "")
        return "; ".join(filter(None, told)) or None

    def refused_image(self, source: AtProvider) -> str | None:
        """Implement `Imaging.refused_image`: any image of any registry, and any template, by its hash."""
        return None

    def refused_ports(self, ports: Sequence[str]) -> str | None:
        """Implement `Publishing.refused_ports`: each is a port of the host, without a proxy and without TLS."""
        return None

    # --- volumes

    def refused_volumes(self, volumes: Sequence[Attachable]) -> str | None:
        """Implement `Storing.refused_volumes`. An order can name only one."""
        return "Vast.ai mounts one volume on an instance" if len(volumes) > 1 else None

    def volume_usd_month(self, size_gb: int, region: str) -> Decimal | None:
        """Implement `Storing.volume_usd_month`: each host has its own price, which `ask_volume_usd_month` asks for."""
        return None

    async def ask_volume_usd_month(self, size_gb: int, region: str) -> Decimal | None:
        """Implement `VolumeMarket.ask_volume_usd_month`."""
        _, usd_month = await self._room(region, size_gb)
        return usd_month

    async def create_volume(self, volume: Volume) -> ListedVolume:
        """Implement `Storing.create_volume`, on the machine that is the volume's region."""
        if ours := next((v for v in await self.list_volumes() if v.name == volume.mark), None):
            return ours
        offer, usd_month = await self._room(volume.region, volume.size_gb)
        if volume.usd_month is not None and (usd_month is None or usd_month > volume.usd_month):
            raise PriceMoved(
                f"the volume would cost {usd_month} USD a month now, and not {volume.usd_month}",
                remedy="run the same command again",
            )
        order: dict[str, Json] = {
            "size": volume.size_gb,
            "id": offer,
            "name": name_of(volume.mark),
        }
        reply = await self._call("PUT", f"{VOLUMES}/", body=order)
        if reply.fields.get("success") is False:
            raise self._refusal("PUT", f"{VOLUMES}/", reply)
        number = made(reply.fields)
        if number is None:
            raise silent(f"Vast.ai made the volume {volume.mark}, and does not say its number")
        return ListedVolume(
            id=number,
            name=volume.mark,
            region=volume.region,
            size_gb=volume.size_gb,
            usd_month=usd_month,
        )

    async def list_volumes(self) -> Sequence[ListedVolume]:
        """Implement `Storing.list_volumes`."""
        now = self._setting.clock.now()
        return [listed_volume(row, now) for row in await self._volume_rows()]

    async def destroy_volume(self, permit: VolumePermit) -> None:
        """Implement `Storing.destroy_volume`. Vast.ai itself refuses it while an instance has the volume."""
        permit = genuine_for_volume(permit, provider="vastai")
        path, number = f"{VOLUMES}/", permit.volume_id
        # The official client names the volume in the query, and the API's description names it in the body. So this
        # call does both.
        reply = await self._call(
            "DELETE",
            path,
            query={"id": number},
            body={"id": int(number)},
            expect=(200, 404),
            how="teardown",
        )
        if _field(reply, "success") is not True and _field(reply, "error") != _NO_VOLUME:
            raise self._wire.trouble("DELETE", path, reply)

    async def _room(self, region: str, size_gb: int) -> tuple[int, Decimal | None]:
        """Return the number of the machine's offer for such a volume, and what the volume would cost a month."""
        if not region.isdecimal():
            raise BadRequest(
                f"the region of a volume at Vast.ai is a machine, and {region!r} is none",
                remedy=f"{Command('offers')} shows each machine's number as `host`; take one that will be rented again",
            )
        reply = await self._call("POST", SEARCH, body=search(region, size_gb), how="repeatable")
        found = room(_rows(reply.fields, "offers"), region, size_gb)
        if found is None:
            raise NoCapacity(
                f"the machine {region} offers no room for a volume of {size_gb} GB now",
                remedy="take another machine, or a smaller size",
            )
        return found

    async def _volume_rows(self) -> list[dict[str, Json]]:
        owned = {"owner": "me", "type": "all_volume"}
        return _rows((await self._call("GET", VOLUMES, query=owned)).fields, "volumes")

    def _order(self, mark: str, quote: Quote) -> dict[str, Json]:
        """Return the body of a create. A bid is the quote's price, and never above the quote's cap."""
        bid = None
        if quote.offer.interruptible:
            bid, price = quote.offer.price.gpu_usd_h, quote.offer.price.running_usd_h
            if bid is None or price is None or price > quote.cap_usd_h:
                raise PriceMoved(
                    f"the bid would cost {price} USD/h, and the cap is {quote.cap_usd_h} USD/h",
                    remedy=f"{Command('offers')} shows what the cap allows",
                )
        key = shlex.quote(self._setting.public_key())
        opened = quote.wish.order.public_ports
        source = quote.wish.order.image_at("vastai")
        return {
            "client_id": "me",
            # What is stated beside a template replaces what the template says.
            **({} if source.template else {"image": source.image or _IMAGE}),
            # Vast.ai's own client writes a port as a variable, too.
            "env": {f"-p {port}:{port}": "1" for port in map(port_number, opened)},
            "label": mark,
            "price": None if bid is None else float(bid),
            "disk": float(quote.wish.disk_gb),
            # The first command keeps logins out of tmux. The rest installs our key even if the call
            # that attaches the key is lost.
            "onstart": "touch ~/.no_auto_tmux; mkdir -p ~/.ssh; "
            f"grep -qxF {key} ~/.ssh/authorized_keys || echo {key} >> ~/.ssh/authorized_keys"
            + ("" if source == AtProvider() else _HAS_PYTHON),
            # Otherwise an offer that is gone leaves behind a stopped box, whose disk bills.
            "cancel_unavail": True,
            "runtype": "ssh_direc ssh_proxy",
            "force": False,
            "python_utf8": False,
            "lang_utf8": False,
            "use_jupyter_lab": False,
            "jupyter_dir": None,
            "extra": None,
            "image_login": None,
            "template_hash_id": source.template,
            "user": None,
            **linked(quote.wish.volumes_at("vastai")),
        }

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """Implement `Market.offers`. If the wish allows both a bid and a firm price, each is requested."""
        number, bid, rest = (wish.offer or "").partition(_BID)
        if wish.offer is not None and (rest or not number.isdigit()):
            return []
        if not all(volume.region.isdecimal() for volume in wish.volumes_at("vastai")):
            return []
        kinds = {"no": ["on-demand"], "yes": ["bid"], "either": ["on-demand", "bid"]}
        found: list[Offer] = []
        for kind in kinds["yes" if bid else "no" if number else wish.interruptible]:
            sought = _search(wish, kind)
            if number:
                # A search by `id` finds nothing, whatever is offered. Eight public clients search by this field.
                sought["ask_contract_id"] = {"eq": int(number)}
            found += [
                offer
                for offer in await self._every_offer(wish, kind, sought)
                if number in ("", offer.id.removesuffix(_BID))
            ]
        return found

    async def _every_offer(self, wish: Wish, kind: str, sought: dict[str, Json]) -> list[Offer]:
        """Return the offers that fit the wish. One search shows the cheapest ones only, so it is asked page by page.

        Raises:
            ProviderSilent: none fits among those that could be read, and there are more.
        """
        seen: set[str] = set()
        fit: list[Offer] = []
        largest = _SMALL_PAGE
        is_whole = True
        for page in range(1, _MOST_PAGES + 1):
            reply = await self._call("POST", "/api/v0/bundles/", body=sought, how="repeatable")
            shown = _rows(reply.fields, "offers")
            new = [row for row in shown if str(row.get("id")) not in seen]
            seen |= {str(row.get("id")) for row in new}
            fit += filter(None, (_offer(row, wish, kind) for row in new))
            prices = [usd for row in shown if (usd := figure(row.get("dph_total"))) is not None]
            is_last = len(shown) < largest or not prices
            if (is_last and is_whole) or "ask_contract_id" in sought:
                return fit
            over = (
                wish.max_price_usd_h is not None and max(prices, default=0) > wish.max_price_usd_h
            )
            if fit and (is_last or over or page >= _PAGES):
                return fit
            bounds = sought.get("dph_total")
            stuck = not new and isinstance(bounds, dict) and "gt" in bounds
            if is_last or stuck:
                break
            # A full page that shows nothing new has one price alone, and may hide more offers of that price.
            is_whole &= bool(new)
            largest = max(largest, len(shown))
            sought = {**sought, "dph_total": {"gte" if new else "gt": max(prices)}}
        if fit:
            return fit
        raise silent(
            f"Vast.ai shows a few offers at a time, and none of the {len(seen)} cheapest fits; name a GPU to see the others"
        )

    async def leftovers(self) -> Sequence[Leftover]:
        """Implement `Residue.leftovers`: volumes, which outlive the boxes they were made for."""
        return [leftover(row) for row in await self._volume_rows() if not row.get("instances")]

    async def ask_bill(self, lease: Lease) -> Billed | None:
        """Implement `Billing.ask_bill`.

        The charges of one contract alone cannot be requested. Each charge names its contract.
        """
        now = self._setting.clock.now()
        query = charges_query(lease, now)
        leafing = Leafing("Vast.ai's list of charges")
        while True:
            page = (await self._call("GET", CHARGES, query=query)).fields
            found = charge(_rows(page, "results"), str(lease.box_id), now)
            token = page.get("next_token")
            if found or not isinstance(token, str) or token == query.get("after_token"):
                return found
            leafing.turn()
            query["after_token"] = token

    async def balance(self) -> Balance | None:
        """Implement `Funded.balance`."""
        return credit((await self._call("GET", USER)).fields)

    async def _call(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json = None,
        expect: Sequence[int] = (200,),
        how: Literal["", "repeatable", "teardown"] = "",
    ) -> Reply:
        """Make the same call as `Wire.call`, but raise a 404 about the key as a refused credential."""
        reply = await self._wire.call(
            method,
            path,
            query=query,
            body=body,
            expect=(*expect, 400, 404),
            repeatable="repeatable" if how == "repeatable" else "",
            urgent="teardown" if how == "teardown" else "",
        )
        if reply.status not in expect or _about_the_key(reply):
            raise self._refusal(method, path, reply)
        return reply

    def _refusal(self, method: Method, path: str, reply: Reply) -> ProviderTrouble:
        """Return the error for an answer that did not give what was asked for."""
        trouble = self._wire.trouble(method, path, reply)
        error, said = _field(reply, "error"), trouble.message
        if _about_the_key(reply):
            return CredentialRefused(
                said, remedy=f"check that the key is right; {Command('doctor')}"
            )
        if error in ("missing_billing", "insufficient_credit"):
            return NoFunds(said, remedy="add credit in Vast.ai's console, or rent elsewhere")
        remedy = f"{Command('offers')} shows what there is now"
        if error == "invalid_price":
            return PriceMoved(said, remedy=remedy)
        if reply.status in (404, 410) and "/asks/" in path:
            return NoCapacity(said, remedy=remedy)
        return trouble


def _word(row: Mapping[str, Json]) -> str:
    """Return the provider's word for the state of a box."""
    status = row.get("actual_status", "missing")
    # A container's state is still shown after its contract has stopped: a stopped box reads "exited",
    # and so does a dead one.
    if row.get("cur_state") == "stopped" and status not in ("offline", "unknown"):
        return "stopped"
    return "created" if status is None else str(status)


def _price_now(row: Mapping[str, Json]) -> Decimal | None:
    now = row.get("instance")
    return sane(money(now.get("totalHour") if isinstance(now, dict) else None))


def _published(row: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the open ports except sshd's, each with its port at the host's address, which other boxes share."""
    ports, ip = row.get("ports"), row.get("public_ipaddr")
    return tuple(
        f"{port} at {ip}:{at}"
        for port in sorted(ports if isinstance(ports, dict) else ())
        if port != "22/tcp" and (at := _host_port(row, port)) is not None
    )


def _host_port(row: Mapping[str, Json], port: str) -> str | None:
    ports = row.get("ports")
    bound = ports.get(port) if isinstance(ports, dict) else None
    first = bound[0] if isinstance(bound, list) and bound else None
    told = first.get("HostPort") if isinstance(first, dict) else None
    return told if isinstance(told, str) and told.isdigit() else None


def _direct(row: Mapping[str, Json]) -> SshAddress | None:
    """Return the address of the box's own sshd. `ssh_host` is the provider's proxy, which is slow."""
    ip, port = row.get("public_ipaddr"), _host_port(row, "22/tcp")
    if not isinstance(ip, str) or port is None:
        return None
    return ssh_address(f"root@{ip.strip()}" + ("" if port == "22" else f":{port}"))


def _search(wish: Wish, kind: str) -> dict[str, Json]:
    asked: dict[str, Json] = {
        "external": {"eq": False},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "num_gpus": {"eq": wish.gpu_count},
        "disk_space": {"gte": wish.disk_gb},
        "duration": {"gte": wish.hours * 3600 + _SETUP_S},
        "direct_port_count": {"gte": 1 + len(wish.order.public_ports)},
        "order": [["dph_total", "asc"]],
        "type": kind,
        "limit": _PAGE,
        "allocated_storage": float(wish.disk_gb),
    }
    if wish.vram_gib is not None:
        asked["gpu_ram"] = {"gte": _USABLE * wish.vram_gib * 1024}
    provider, _, machine = (wish.host or "").partition(":")
    if provider == "vastai" and machine.isdecimal():
        asked["machine_id"] = {"eq": int(machine)}
    for volume in wish.volumes_at("vastai"):
        # A volume is on one machine, and no other sees it.
        asked["machine_id"] = {"eq": int(volume.region)}
    if wish.order.cuda is not None:
        asked["cuda_max_good"] = {"gte": float(wish.order.cuda)}
    if wish.trust != "any":
        asked["verified"] = {"eq": True}
        asked["reliability2"] = {"gte": TESTED_RELIABILITY}
    if wish.trust == "datacenter":
        asked["datacenter"] = {"eq": True}
    if wish.gpus:
        theirs = [name for gpu in wish.gpus for name in _THEIR_NAMES.get(gpu, (gpu,))]
        asked["gpu_name"] = {"in": list(dict.fromkeys(theirs))}
    return asked


def _offer(row: Mapping[str, Json], wish: Wish, kind: str) -> Offer | None:
    """Return the offer in that row. None if it does not fit the wish."""
    name, vram = _gpu(str(row.get("gpu_name")), figure(row.get("gpu_ram")))
    place, seconds = row.get("geolocation"), figure(row.get("duration"))
    region = plain(place) if isinstance(place, str) else None
    score = figure(row.get("dlperf"))
    ask, count, machine = row.get("id"), row.get("num_gpus"), row.get("machine_id")
    if (
        not (isinstance(ask, int) and isinstance(count, int))
        or not _keeps_to(row, wish)
        or wish.preference(name) is None
        or (wish.vram_gib is not None and (vram is None or vram < wish.vram_gib))
        or not wish.reaches_volumes("vastai", str(machine))
        or (wish.region is not None and wish.region.casefold() not in (region or "").casefold())
    ):
        return None
    storage = money(row.get("storage_cost"))
    disk = None if storage is None else (storage * wish.disk_gb / MONTH_H).quantize(USD_STEP)
    notes = ["bytes are billed in both directions, in every state"]
    if kind == "bid":
        notes.append("whoever bids more stops it without notice; it may start again by itself")
    return Offer(
        provider="vastai",
        id=f"{ask}{_BID}" if kind == "bid" else str(ask),
        host=str(machine) if isinstance(machine, int) else None,
        gpu=name,
        gpu_count=count,
        vram_gib=vram,
        region=region,
        price=Price(
            gpu_usd_h=money(row.get("min_bid" if kind == "bid" else "dph_base")),
            disk_usd_h=disk,
            parked_usd_h=disk,
            # Vast.ai counts from the side of the box. Our upload is the box's download.
            upload_usd_gb=money(row.get("inet_down_cost")),
            download_usd_gb=money(row.get("inet_up_cost")),
            source="api",
        ),
        disk_gb=wish.disk_gb,
        interruptible=kind == "bid",
        trust="datacenter"
        if wish.trust == "datacenter"
        else "verified"
        if row.get("verification") == "verified"
        else "unverified",
        reliability=figure(row.get("reliability2", row.get("reliability"))),
        max_hours=None if seconds is None else seconds / 3600,
        setup_s=_SETUP_S,
        download_mbps=figure(row.get("inet_down")),
        upload_mbps=figure(row.get("inet_up")),
        dlperf=score if score is not None and 0 < score < math.inf else None,
        cpus=figure(row.get("cpu_cores_effective")),
        ram_gib=_ram_gib(row),
        notes=tuple(notes),
    )


def _keeps_to(row: Mapping[str, Json], wish: Wish) -> bool:
    """Whether the row keeps to what the search asked for. The provider does not always apply the bounds of a search.

    What the row does not say is left to the provider.
    """
    least: dict[str, float] = {
        "disk_space": wish.disk_gb,
        "duration": wish.hours * 3600 + _SETUP_S,
        "direct_port_count": 1 + len(wish.order.public_ports),
        "cuda_max_good": float(wish.order.cuda or 0),
    }
    told = {name: figure(row.get(name)) for name in least}
    return (
        all(value is None or value >= least[name] for name, value in told.items())
        and row.get("num_gpus") == wish.gpu_count
        and row.get("rentable") is not False
        and row.get("rented") is not True
        and (wish.trust == "any" or row.get("verification") in (None, "verified"))
    )


def _ram_gib(row: Mapping[str, Json]) -> float | None:
    """Return the memory of the offered part of the machine. Some rows state that of the whole machine."""
    whole_mb, part, cores = (
        figure(row.get(name)) for name in ("cpu_ram", "cpu_cores_effective", "cpu_cores")
    )
    if whole_mb is None:
        return None
    share = part / cores if part and cores and 0 < part < cores else 1
    return whole_mb / 1024 * share


def _gpu(theirs: str, ram_mb: float | None) -> tuple[str, float | None]:
    """Return the canonical name, and the memory of each GPU in GiB. One name may mean several sizes."""
    gib = None if ram_mb is None else round(ram_mb / 1024)
    called = [ours for ours, names in _THEIR_NAMES.items() if theirs in names]
    models = [model for model in map(known_gpu, called or [theirs]) if model is not None]
    if not models:
        return plain(theirs), gib
    # The driver's figure is a little lower than the maker's.
    nearest = min(models, key=lambda model: abs(model.vram_gib - (gib or 0)))
    fits = gib is not None and abs(nearest.vram_gib - gib) <= 0.07 * nearest.vram_gib
    return nearest.name, nearest.vram_gib if fits else gib


def _rows(answer: Mapping[str, Json], name: str) -> list[dict[str, Json]]:
    listed = answer.get(name)
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    if not isinstance(listed, list) or len(rows) < len(listed):
        raise silent(f"Vast.ai's list: its {name} cannot be read")
    return rows


def _field(reply: Reply, name: str) -> Json:
    """Return that field of an answer. None if the answer is not an object."""
    try:
        answer: Json = json.loads(reply.text)
    except (ValueError, RecursionError):
        return None
    return answer.get(name) if isinstance(answer, dict) else None


def _about_the_key(reply: Reply) -> bool:
    """Whether the answer is about the key: billing endpoints report a bad key with a 404."""
    return _field(reply, "error") == "auth_error" or _field(reply, "msg") == "Invalid user key"


def connect(setting: Setting) -> VastConnector:
    """Return the connector for the account whose key the setting names."""
    return VastConnector(setting)
