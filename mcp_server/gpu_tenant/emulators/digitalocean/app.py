"""DigitalOcean's REST API: GPU Droplets that plain lists omit, and that bill until they are destroyed."""

import base64
import hashlib
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import cast

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from gpu_tenant.emulators.boxes import Sites
from gpu_tenant.emulators.digitalocean.responses import (
    SIZES,
    Json,
    error,
    instant,
    not_found,
    refusal,
    shown_droplet,
    shown_key,
    shown_size,
    shown_snapshot,
    shown_volume,
    uuid_of,
)
from gpu_tenant.emulators.faults import Fault, Tariff
from gpu_tenant.emulators.gpus import rented_gpus
from gpu_tenant.emulators.world import BEARERS, KEY, METHODS, Thing, World

TARIFF = Tariff(rounding_s=1, minimum_s=60)
"""CPU Droplets are billed like this. The provider does not say how GPU Droplets are billed."""

_BOOT_S, _ENDING_S, _GROWS_S = 60.0, 10.0, 15.0
_KEY_LAG_S = 45.0
"""How long after a key was added the list of keys, the check for a duplicate and the create of a Droplet do not know
it: seen on a real account on 2026-10-05, by visgotti/asap-vps, DigitalOcean.ts."""
_EVENT_S = 30.0
"""How long the event of a create is pending here. Meanwhile a delete is refused: hashicorp/packer#1814, 2015-01-05."""
_PENDING = "Droplet already has a pending event."
_HOUR_S, _HOURLY = 3600.0, 5000
_MINUTE_S, _MINUTELY = 60.0, 250
_MOST_A_PAGE = 200
_MOST_AT_ONCE = 10
_VOLUME_USD_GIB_MONTH, _SNAPSHOT_USD_GB_MONTH = Decimal("0.10"), Decimal("0.06")
"""The price of a volume is made up, because the API does not show that price."""
_MONTH_H = 720
_IMAGES = ("gpu-h100x1-base", "gpu-h100x8-base", "gpu-amd-base", "ubuntu-24-04-x64", 166407999)
"""Public images have a slug, and this team's own snapshot a number."""
_MOST_VOLUME_GIB = 16384
_ATTACHED = "A volume that's attached to a Droplet cannot be deleted. Please detach it first before deleting."
_FULL = "Size is not available in this region."
_TOO_MANY = "creating this/these droplet(s) will exceed your droplet limit"

Answer = Callable[[Request], Awaitable[Response]]


class DigitalOceanEmulator:
    """One team at DigitalOcean."""

    faults: Mapping[str, str] = {
        "no_capacity": "the create is refused: the size is not available in that region",
        "no_quota": "the create is refused: it would exceed the team's limit",
        "price_moved": "everything, and `box` where it is given, costs `amount` times as much now",
        "stuck_termination": "deletes are accepted and change nothing, until struck with amount=0",
        "unknown_status": "the box shows a status that nobody knows",
        "never_ready": "the next box never gets beyond `new`",
        "page_boundary": "the list ends in the middle and names no next page, though its total is"
        " more; amount=1: it names itself as the next page; amount=2: 500",
        "allowance": "so many calls, `amount`, are left of this hour's allowance",
        "list_lag": "new boxes are listed `seconds` later",
        "foreign_box": "somebody else's GPU Droplet appears in the team",
        "leftover": "a volume of 100 GiB appears that is attached to nothing",
        "snapshot": "a snapshot of 25 GB appears",
    }

    def __init__(self, world: World, sites: Sites) -> None:
        self._world = world
        self._sites = sites

    def environment(self, base_url: str) -> dict[str, str]:
        """As `Emulator.environment`."""
        return {"DIGITALOCEAN_API_URL": base_url, "DIGITALOCEAN_TOKEN": KEY}

    def routes(self) -> Sequence[BaseRoute]:
        """As `Emulator.routes`."""
        table: list[tuple[str, str, Answer]] = [
            ("GET", "/sizes", self._sizes),
            ("GET", "/droplets", self._list),
            ("POST", "/droplets", self._create),
            ("DELETE", "/droplets", self._delete_tagged),
            ("GET", "/droplets/{id}", self._get),
            ("DELETE", "/droplets/{id}", self._delete),
            ("POST", "/droplets/{id}/actions", self._act),
            ("GET", "/account", self._account),
            ("GET", "/account/keys", self._list_keys),
            ("POST", "/account/keys", self._add_key),
            ("GET", "/volumes", self._list_volumes),
            ("POST", "/volumes", self._create_volume),
            ("DELETE", "/volumes/{id}", self._delete_volume),
            ("POST", "/volumes/{id}/actions", self._resize_volume),
            ("GET", "/snapshots", self._list_snapshots),
            ("GET", "/customers/my/balance", self._balance),
        ]
        known = [Route(f"/v2{at}", self._admit(do), methods=[how]) for how, at, do in table]
        return [*known, Route("/{path:path}", self._admit(self._nothing), methods=METHODS)]

    def strike(self, fault: Fault) -> None:
        """As `Emulator.strike`. A fault of one request is left to the handler of that request."""
        state, box = self._world.state, self._world.newest(fault)
        amount = Decimal(str(1 if fault.amount is None else fault.amount))
        match fault.do:
            case "price_moved":
                state.price_factor = amount
                if fault.box and box:
                    box.facts["usd_h"] = str(Decimal(str(box.facts["usd_h"])) * amount)
                    self._bill(box)
            case "stuck_termination":
                state.facts["stuck"] = amount != 0
            case "unknown_status" if box:
                box.status = "migrating"
            case "never_ready":
                state.facts["never_ready"] = True
            case "allowance":
                state.facts["hourly"] = len(self._calls(_HOUR_S)) + int(amount)
            case "list_lag":
                state.list_lag_s = fault.seconds
            case "foreign_box":
                box = self._droplet(
                    {
                        "name": "somebody-else",
                        "tags": ["team:vision"],
                        "size": "gpu-l40sx1-48gb",
                        "region": "tor1",
                    }
                )
                box.status, box.phase = "active", "running"
            case "leftover":
                name = f"training-{self._world.number()}"
                self._keep(name, "tor1", 100)
            case "snapshot":
                number = str(6_000_000 + self._world.number())
                left = self._world.rent(
                    number, "snapshot", "before", status="ok", size_gigabytes=25
                )
                self._world.bill(left, disk=25 * _SNAPSHOT_USD_GB_MONTH / _MONTH_H)
            case _:
                pass

    def happen(self, event: str, thing: Thing) -> None:
        """As `Emulator.happen`."""
        if event == "boot":
            thing.facts["ip"] = f"203.0.113.{int(thing.id) % 254 + 1}"
            self._open(thing)
        elif event == "grown" and thing.phase != "ended":
            size = int(str(thing.facts["growing_to"]))
            thing.facts["size_gigabytes"] = size
            self._world.bill(thing, disk=size * _VOLUME_USD_GIB_MONTH / _MONTH_H)
        elif event == "gone":
            for volume in self._world.things("volume"):
                if volume.facts["attached_to"] == thing.id:
                    volume.facts["attached_to"] = ""
            self._world.end(thing, status="archive")

    def rent_by_hand(self, volume: Thing) -> Thing:
        """As `KeepsVolumes.rent_by_hand`."""
        region = str(volume.facts["region"])
        size = next(n for n, size in SIZES.items() if size.count and region in size.regions)
        body: Json = {"name": "by-hand", "size": size, "region": region, "volumes": [volume.id]}
        box = self._droplet(body)
        box.status, box.phase = "active", "running"
        return box

    def end_by_hand(self, box: Thing) -> None:
        """As `KeepsVolumes.end_by_hand`."""
        self._end(box)

    # --- what stands before every answer

    def _admit(self, do: Answer) -> Answer:
        async def answer(request: Request) -> Response:
            hour, minute = self._calls(_HOUR_S), self._calls(_MINUTE_S)
            hourly = int(str(self._world.state.facts.get("hourly", _HOURLY)))
            if len(hour) > hourly or len(minute) > _MINUTELY:
                wait_s = hour[0] + _HOUR_S if len(hour) > hourly else minute[0] + _MINUTE_S
                reply = error(429, "too_many_requests", "API rate limit exceeded.")
                reply.headers["retry-after"] = str(math.ceil(wait_s - self._world.now))
            elif request.headers.get("authorization") not in BEARERS:
                reply = error(401, "unauthorized", "Unable to authenticate you.")
            else:
                reply = await do(request)
            reply.headers["ratelimit-limit"] = str(hourly)
            reply.headers["ratelimit-remaining"] = str(max(0, hourly - len(hour)))
            reply.headers["ratelimit-reset"] = str(int(hour[0] + _HOUR_S))
            return reply

        return answer

    def _calls(self, seconds: float) -> list[float]:
        """The times of all calls within the last `seconds`, including this one."""
        since = self._world.now - seconds
        return [call.at for call in self._world.state.requests if call.at > since]

    def _page(self, request: Request, field: str, rows: Sequence[JsonValue]) -> Response:
        """One page of a list, with its links."""
        asked = request.query_params
        words = asked.get("per_page", "20"), asked.get("page", "1")
        if not all(re.fullmatch(r"[1-9][0-9]{0,8}", said) for said in words):
            return error(400, "bad_request", "per_page and page must be positive numbers.")
        # Real clients ask for more than the documented maximum a page, and get the maximum.
        per_page, page = min(int(words[0]), _MOST_A_PAGE), int(words[1])
        shown = list(rows[(page - 1) * per_page : page * per_page])
        last = max(1, -(-len(rows) // per_page))
        pages: Json = {}

        def to(number: int) -> str:
            return str(request.url.include_query_params(page=number))

        if page < last:
            pages |= {"next": to(page + 1), "last": to(last)}
        if page > 1:
            pages |= {"first": to(1), "prev": to(page - 1)}
        fault = _fault_of(request)
        if fault is not None and fault.do == "page_boundary":
            if fault.amount == 2:
                return error(500, "server_error", "Unexpected server-side error")
            shown = shown[: len(shown) // 2]
            pages = {"next": to(page)} if fault.amount == 1 else {}
        links: Json = {"pages": pages} if pages else {}
        return JSONResponse({field: shown, "links": links, "meta": {"total": len(rows)}})

    # --- the API

    async def _nothing(self, request: Request) -> Response:
        return not_found()

    async def _sizes(self, request: Request) -> Response:
        factor = self._world.state.price_factor
        return self._page(
            request,
            "sizes",
            [shown_size(name, size.usd_h * factor) for name, size in SIZES.items()],
        )

    async def _list(self, request: Request) -> Response:
        kind, tag = request.query_params.get("type"), request.query_params.get("tag_name")
        if tag is not None and (kind is not None or "name" in request.query_params):
            return refusal("tag_name can not be combined with name or type.")
        rows = [
            shown_droplet(box)
            for box in self._world.listed_things()
            if (SIZES[str(box.facts["size"])].count > 0) == (kind == "gpus")
            and (tag is None or tag in cast("list[str]", box.facts["tags"]))
        ]
        return self._page(request, "droplets", rows)

    async def _get(self, request: Request) -> Response:
        box = self._find_box(request)
        return not_found() if box is None else JSONResponse({"droplet": shown_droplet(box)})

    async def _create(self, request: Request) -> Response:
        body = cast("Json", await request.json())
        names: JsonValue = body["names"] if "names" in body else [body.get("name")]
        fault = _fault_of(request)
        struck = {"no_capacity": _FULL, "no_quota": _TOO_MANY}.get(fault.do) if fault else None
        wrong = struck or self._wrong(body, names)
        if wrong is not None:
            return refusal(wrong)
        boxes = [self._droplet({**body, "name": name}) for name in cast("list[str]", names)]
        for box in boxes:
            if not self._world.state.facts.pop("never_ready", False):
                self._world.later(_BOOT_S, "boot", box.id)
        actions: list[JsonValue] = [
            {
                "id": self._world.number(),
                "rel": "create",
                "href": f"{request.base_url}v2/actions/{box.id}",
            }
            for box in boxes
        ]
        shown: list[JsonValue] = [shown_droplet(box) for box in boxes]
        made: Json = {"droplets": shown} if "names" in body else {"droplet": shown[0]}
        return JSONResponse({**made, "links": {"actions": actions}}, 202)

    def _wrong(self, body: Json, names: JsonValue) -> str | None:
        """What is wrong with a create, in the provider's words. None if nothing is."""
        size = SIZES.get(str(body.get("size")))
        if size is None:
            return "You specified an invalid size for Droplet creation."
        if body.get("image") not in _IMAGES:
            return "You specified an invalid image for Droplet creation."
        if not isinstance(names, list) or not 1 <= len(names) <= _MOST_AT_ONCE:
            return f"You can create between 1 and {_MOST_AT_ONCE} Droplets at a time."
        if not all(
            isinstance(name, str) and re.fullmatch(r"[a-zA-Z0-9]?[a-z0-9A-Z.-]*[a-z0-9A-Z]", name)
            for name in names
        ):
            return "Only valid hostname characters are allowed. (a-z, A-Z, 0-9, . and -)"
        strange = [
            k for k in cast("list[JsonValue]", body.get("ssh_keys") or []) if not self._known_key(k)
        ]
        if strange:
            return f"{strange[0]} are invalid key identifiers for Droplet creation."
        for tag in cast("list[str]", body.get("tags") or []):
            if not re.fullmatch(r"[a-zA-Z0-9_\-:]{1,255}", tag):
                return "Tags may contain letters, numbers, colons, dashes and underscores."
        for named in cast("list[str]", body.get("volumes") or []):
            volume = self._volume(named)
            if volume is None or volume.facts["region"] != body.get("region"):
                return f"volume {named} could not be found in that region"
            if volume.facts["attached_to"]:
                return f"volume {named} is already attached to a Droplet"
        return None if body.get("region") in size.regions else _FULL

    async def _delete(self, request: Request) -> Response:
        box = self._find_box(request)
        if box is None:
            return not_found()
        if self._world.now - box.created_at < _EVENT_S:
            return refusal(_PENDING)
        self._end(box)
        return Response(status_code=204, media_type="application/json")

    async def _delete_tagged(self, request: Request) -> Response:
        tag = request.query_params.get("tag_name")
        for box in self._world.things():
            if tag in cast("list[str]", box.facts["tags"]):
                self._end(box)
        return Response(status_code=204, media_type="application/json")

    async def _act(self, request: Request) -> Response:
        box, kind = self._find_box(request), (await request.json()).get("type")
        if box is None:
            return not_found()
        if kind == "power_off" and box.status == "active":
            self._sites.close(box.id)
            self._world.state.routes.pop(box.target or "", None)
            box.status = "off"  # a Droplet that is off bills as before
        elif kind == "power_on" and box.status == "off":
            self._open(box)
        else:
            return refusal(f"Droplet cannot {kind} while it is {box.status}.")
        at = instant(self._world.now)
        shown = {
            "id": self._world.number(),
            "status": "completed",
            "type": kind,
            "started_at": at,
            "completed_at": at,
            "resource_id": int(box.id),
            "resource_type": "droplet",
            "region_slug": box.facts["region"],
        }
        return JSONResponse({"action": shown}, 201)

    async def _list_keys(self, request: Request) -> Response:
        return self._page(request, "ssh_keys", [shown_key(k) for k in self._known_keys()])

    async def _add_key(self, request: Request) -> Response:
        body = await request.json()
        name, text = str(body.get("name") or ""), str(body.get("public_key") or "").split()
        try:
            digest = hashlib.md5(base64.b64decode(text[1]), usedforsecurity=False).hexdigest()
        except (IndexError, ValueError):
            return refusal("Key invalid, key should be of the format `type key [comment]`")
        fingerprint = ":".join(re.findall("..", digest))
        if not name or self._known_key(fingerprint):
            return refusal("SSH Key is already in use on your account")
        key = self._world.rent(
            str(512_000 + self._world.number()),
            "key",
            name,
            status="ok",
            public_key=" ".join(text),
            fingerprint=fingerprint,
        )
        return JSONResponse({"ssh_key": shown_key(key)}, 201)

    async def _list_volumes(self, request: Request) -> Response:
        return self._page(
            request, "volumes", [shown_volume(v) for v in self._world.things("volume")]
        )

    async def _create_volume(self, request: Request) -> Response:
        body = cast("Json", await request.json())
        name, size = str(body.get("name") or ""), body.get("size_gigabytes")
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,63}", name):
            return refusal("Volume name must be lowercase letters, digits and -, a letter first.")
        if not isinstance(size, int) or not 1 <= size <= _MOST_VOLUME_GIB:
            return refusal("Volume size must be between 1 and 16384.")
        if not any(body.get("region") in each.regions for each in SIZES.values()):
            return refusal("Region is not valid for volumes.")
        if any(each.name == name for each in self._world.things("volume")):
            return error(409, "conflict", "failed to create volume")
        volume = self._keep(name, str(body["region"]), size)
        return JSONResponse({"volume": shown_volume(volume)}, 201)

    async def _resize_volume(self, request: Request) -> Response:
        body = cast("Json", await request.json())
        volume, size = self._volume(request.path_params["id"]), body.get("size_gigabytes")
        if volume is None:
            return not_found()
        has = int(str(volume.facts.get("growing_to", volume.facts["size_gigabytes"])))
        if body.get("type") != "resize" or not isinstance(size, int):
            return refusal("This rehearsal knows the action resize alone.")
        if not has < size <= _MOST_VOLUME_GIB:
            return refusal("Volume size must be larger than it is, and 16384 at most.")
        volume.facts["growing_to"] = size
        self._world.later(_GROWS_S, "grown", volume.id)
        action: Json = {
            "id": self._world.number(),
            "status": "in-progress",
            "type": "resize_volume",
            "started_at": instant(self._world.now),
            "completed_at": None,
            "resource_id": None,
            "resource_type": "volume",
            "region_slug": volume.facts["region"],
        }
        return JSONResponse({"action": action}, 202)

    async def _delete_volume(self, request: Request) -> Response:
        volume = self._volume(request.path_params["id"])
        if volume is None:
            return not_found()
        if volume.facts["attached_to"]:
            return error(409, "conflict", _ATTACHED)
        self._sites.delete_volume(volume.id)
        self._world.end(volume, status="deleted")
        return Response(status_code=204, media_type="application/json")

    async def _list_snapshots(self, request: Request) -> Response:
        rows = [shown_snapshot(each) for each in self._world.things("snapshot")]
        return self._page(request, "snapshots", rows)

    async def _balance(self, request: Request) -> Response:
        used = str(self._world.meter()["billed_usd"])
        return JSONResponse(
            {
                "month_to_date_balance": used,
                "account_balance": "0.00",
                "month_to_date_usage": used,
                "generated_at": instant(self._world.now),
            }
        )

    async def _account(self, request: Request) -> Response:
        team: Json = {"uuid": self._world.state.account, "name": "My Team"}
        return JSONResponse(
            {
                "account": {
                    "droplet_limit": 25,
                    "floating_ip_limit": 5,
                    "email": "rehearsal@example.com",
                    "name": "Rehearsal",
                    "uuid": self._world.state.account[::-1],
                    "email_verified": True,
                    "status": "active",
                    "status_message": "",
                    "team": team,
                }
            }
        )

    # --- the world

    def _keep(self, name: str, region: str, size_gib: int) -> Thing:
        """Make a volume of that size, which bills from now on."""
        volume = self._world.rent(
            uuid_of(f"volume {self._world.number()}"),
            "volume",
            name,
            status="ok",
            attached_to="",
            region=region,
            size_gigabytes=size_gib,
        )
        self._world.bill(volume, disk=size_gib * _VOLUME_USD_GIB_MONTH / _MONTH_H)
        return volume

    def _volume(self, named: str) -> Thing | None:
        return next((v for v in self._world.things("volume") if v.id == named), None)

    def _mount_points(self, box: Thing) -> dict[str, str]:
        """What the Droplet's own script mounts of the volumes that are attached to the Droplet."""
        asked = re.findall(
            r"^mount_volume /dev/disk/by-id/scsi-0DO_Volume_(\S+) (\S+)$",
            str(box.facts.get("user_data") or ""),
            re.MULTILINE,
        )
        attached = {
            v.name: v.id for v in map(self._volume, cast("list[str]", box.facts["volumes"])) if v
        }
        return {path: attached[name] for name, path in asked if name in attached}

    def _find_box(self, request: Request) -> Thing | None:
        return next((b for b in self._world.things() if b.id == request.path_params["id"]), None)

    def _key(self, named: JsonValue) -> Thing | None:
        keys = self._world.things("key")
        return next((k for k in keys if str(named) in (k.id, k.facts["fingerprint"])), None)

    def _known_keys(self) -> list[Thing]:
        since = self._world.now - _KEY_LAG_S
        return [key for key in self._world.things("key") if key.created_at <= since]

    def _known_key(self, named: JsonValue) -> Thing | None:
        key = self._key(named)
        return key if key in self._known_keys() else None

    def _droplet(self, body: Json) -> Thing:
        """Make a new Droplet, which bills from now on."""
        size = str(body["size"])
        price = SIZES[size].usd_h * self._world.state.price_factor
        box = self._world.rent(
            str(448_543_000 + self._world.number()),
            "box",
            str(body["name"]),
            status="new",
            size=size,
            usd_h=str(price),
            region=body["region"],
            tags=body.get("tags") or [],
            image=body.get("image") or _IMAGES[0],
            ssh_keys=body.get("ssh_keys") or [],
            volumes=body.get("volumes") or [],
            user_data=body.get("user_data"),
        )
        for named in cast("list[str]", box.facts["volumes"]):
            self._world.state.things[named].facts["attached_to"] = box.id
        box.phase = "booting"
        self._bill(box)
        return box

    def _bill(self, box: Thing) -> None:
        kind = "gpu" if SIZES[str(box.facts["size"])].count else "cpu"
        self._world.bill(box, **{kind: Decimal(str(box.facts["usd_h"]))})

    def _open(self, box: Thing) -> None:
        box.status, box.phase, box.target = "active", "running", f"root@{box.facts['ip']}"
        named = [self._key(name) for name in cast("list[JsonValue]", box.facts["ssh_keys"])]
        keys = [str(key.facts["public_key"]) for key in named if key is not None]
        size = SIZES[str(box.facts["size"])]
        gpus = rented_gpus(size.gpu, size.count, vram_gib=size.vram / max(1, size.count))
        at = self._sites.open(box.id, keys, volumes=self._mount_points(box), gpus=gpus)
        self._world.state.routes[box.target] = at

    def _end(self, box: Thing) -> None:
        """Destroy the Droplet. A list may still show it for a moment. What the Droplet left behind bills on."""
        if self._world.state.facts.get("stuck") or "ending" in box.facts:
            return
        box.facts["ending"] = True
        self._world.bill(box)
        self._world.state.routes.pop(box.target or "", None)
        self._sites.delete(box.id)
        self._world.state.due = [due for due in self._world.state.due if due.thing != box.id]
        self._world.later(_ENDING_S, "gone", box.id)


def emulate(world: World, sites: Sites) -> DigitalOceanEmulator:
    """The emulator of DigitalOcean, for one team."""
    return DigitalOceanEmulator(world, sites)


def _fault_of(request: Request) -> Fault | None:
    return cast("Fault | None", request.state.fault)
