"""Lambda Cloud's REST API: one request a second, no way to stop an instance, and a terminate that may have to wait."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import cast

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from gpu_tenant.emulators.boxes import Sites
from gpu_tenant.emulators.faults import Fault, Tariff
from gpu_tenant.emulators.gpus import rented_gpus
from gpu_tenant.emulators.world import BEARERS, KEY, METHODS, Thing, World

TARIFF = Tariff(rounding_s=60)

_BOOT_S = 180.0
_LAUNCHING_S = 45.0
"""How long a new instance cannot be terminated."""
_ENDING_S = 25.0
_APART_S, _LAUNCHES_APART_S = 1.0, 12.0
_JITTER_S = 0.1
_GIB = 2**30
_FILESYSTEM_USD_GIB_MONTH = Decimal("0.20")
"""Made up, because the API shows no price of a filesystem."""
_MONTH_H = 720

Json = dict[str, JsonValue]
Answer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _Type:
    """An instance type. Prices and capacity are made up, because the real ones change daily."""

    gpu: str
    gpus: int
    cents: int
    vcpus: int
    memory_gib: int
    storage_gib: int
    regions: tuple[str, ...]


_TYPES: Mapping[str, _Type] = {
    "gpu_1x_a10": _Type("A10 (24 GB PCIe)", 1, 75, 30, 200, 1400, ("us-east-1", "us-west-1")),
    "gpu_1x_a100_sxm4": _Type("A100 (40 GB SXM4)", 1, 129, 30, 200, 512, ("us-east-1",)),
    "gpu_1x_rtx6000": _Type("RTX 6000 (24 GB)", 1, 50, 14, 46, 512, ("us-south-1",)),
    "gpu_1x_gh200": _Type("GH200 (96 GB)", 1, 149, 64, 432, 4096, ("us-east-3",)),
    "gpu_1x_h100_pcie": _Type("H100 (80 GB PCIe)", 1, 249, 26, 200, 1024, ("us-west-1",)),
    "gpu_1x_h100_sxm5": _Type("H100 (80 GB SXM5)", 1, 329, 26, 225, 2816, ("us-south-1",)),
    "gpu_8x_h100_sxm5gdr": _Type("H100 (80 GB SXM5)", 8, 3592, 208, 1800, 24780, ("us-east-1",)),
    "gpu_8x_v100": _Type("Tesla V100 (16 GB)", 8, 440, 88, 448, 5939, ()),
    "cpu_4x_general": _Type("N/A", 0, 6, 4, 16, 64, ("us-east-1",)),
}
_IMAGES: tuple[JsonValue, ...] = (
    {"family": "lambda-stack-24-04"},
    {"family": "ubuntu-24-04"},
    {"id": "43336648-096d-4cba-9aa2-f9bb7727639d"},
)
"""The machine images, as a launch names them."""
_REGIONS = {
    "us-east-1": "Virginia, USA",
    "us-east-3": "Washington DC, USA",
    "us-south-1": "Texas, USA",
    "us-west-1": "California, USA",
}
_ERRORS: Mapping[str, tuple[int, str, str]] = {
    "global/invalid-api-key": (
        401,
        "API key was invalid, expired, or deleted.",
        "Check your API key or create a new one, then try again.",
    ),
    "global/account-inactive": (
        403,
        "Your account is inactive.",
        "Make sure you have a valid payment method.",
    ),
    "global/invalid-parameters": (400, "Invalid request data.", "Check the request."),
    "global/object-does-not-exist": (404, "Specified instance does not exist.", "Check the id."),
    "global/not-found": (404, "The requested resource was not found.", "Check the address."),
    "global/quota-exceeded": (400, "Quota exceeded.", "Contact Support to increase your quota."),
    "global/duplicate": (400, "This name is used already.", "Take another name."),
    "filesystems/filesystem-in-use": (
        400,
        "The filesystem is in use.",
        "Terminate the instances that use it, then try again.",
    ),
    "instance-operations/launch/file-system-in-wrong-region": (
        400,
        "The filesystem is in another region than the instance.",
        "Take the filesystem's region.",
    ),
    "global/internal-error": (
        500,
        "An internal server error occurred.",
        "Try again later. Contact Support if the problem persists.",
    ),
    "instance-operations/launch/insufficient-capacity": (
        400,
        "Not enough capacity to fulfill launch request.",
        "Try another region.",
    ),
}


class LambdaCloudEmulator:
    """One account at Lambda Cloud."""

    faults: Mapping[str, str] = {
        "no_capacity": "the launch is refused: there is not enough capacity",
        "no_quota": "the launch is refused: the account may not have more",
        "price_moved": "everything, and `box` where it is given, costs `amount` times as much now",
        "stuck_termination": "terminates are accepted and change nothing, until struck with amount=0",
        "soft_failure": "the terminate is answered with 200 and an empty list of what it ended",
        "terminate_unavailable": "for `seconds` the box cannot be terminated: an action is in progress",
        "unknown_status": "the box shows a status that nobody knows",
        "host_lost": "the box is unhealthy and nothing on it answers; it bills on",
        "never_ready": "the next box never gets beyond booting",
        "balance_zero": "the account is inactive: launches are refused, boxes stay and bill",
        "list_lag": "new boxes are listed `seconds` later",
        "created_despite_error": "the launch is carried out and answered with 500",
        "foreign_box": "somebody else's instance appears in the account",
        "leftover": "a filesystem of 100 GiB appears that no instance mounts",
    }

    def __init__(self, world: World, sites: Sites) -> None:
        self._world = world
        self._sites = sites

    def environment(self, base_url: str) -> dict[str, str]:
        """As `Emulator.environment`."""
        return {"LAMBDA_CLOUD_BASE_URL": base_url, "LAMBDA_API_KEY": KEY}

    def routes(self) -> Sequence[BaseRoute]:
        """As `Emulator.routes`."""
        table: list[tuple[str, str, Answer]] = [
            ("GET", "/instance-types", self._types),
            ("GET", "/instances", self._list),
            ("GET", "/instances/{id}", self._get),
            ("POST", "/instance-operations/launch", self._launch),
            ("POST", "/instance-operations/terminate", self._terminate),
            ("GET", "/ssh-keys", self._list_keys),
            ("POST", "/ssh-keys", self._add_key),
            ("GET", "/file-systems", self._list_filesystems),
            ("POST", "/filesystems", self._create_filesystem),
            ("DELETE", "/filesystems/{id}", self._delete_filesystem),
        ]
        known = [Route(f"/api/v1{at}", self._admit(do), methods=[how]) for how, at, do in table]
        return [*known, Route("/{path:path}", self._admit(self._nothing), methods=METHODS)]

    def strike(self, fault: Fault) -> None:
        """As `Emulator.strike`. A fault of one request is left to the handler of that request."""
        state, box = self._world.state, self._world.newest(fault)
        amount = Decimal(str(1 if fault.amount is None else fault.amount))
        match fault.do:
            case "price_moved":
                state.price_factor = amount
                if fault.box and box:
                    box.facts["cents"] = int(_number(box.facts["cents"]) * amount)
                    self._bill(box)
            case "stuck_termination":
                state.facts["stuck"] = amount != 0
            case "terminate_unavailable" if box:
                box.facts["busy_until"] = self._world.now + fault.seconds
            case "unknown_status" if box:
                box.status = "hibernating"
            case "host_lost" if box:
                box.status = "unhealthy"
                self._close(box)
            case "never_ready" | "balance_zero":
                state.facts[fault.do] = True
            case "list_lag":
                state.list_lag_s = fault.seconds
            case "foreign_box":
                self._foreign_box()
            case "leftover":
                name = f"training-{self._world.number()}"
                left = self._keep(name, "us-east-1", held=100 * _GIB)
                self._bill_filesystem(left)
            case _:
                pass

    def happen(self, event: str, thing: Thing) -> None:
        """As `Emulator.happen`."""
        if event == "boot":
            number = self._world.number()
            thing.status, thing.phase = "active", "running"
            thing.facts["ip"] = f"203.0.113.{number % 254 + 1}"
            thing.target = f"ubuntu@{thing.facts['ip']}"
            keys = self._public_keys(thing.facts["ssh_key_names"])
            kind = _TYPES[str(thing.facts["type"])]
            gpus = rented_gpus(kind.gpu, kind.gpus)
            volumes = {m["mount_point"]: m["file_system_id"] for m in _mounts_of(thing)}
            at = self._sites.open(thing.id, keys, volumes=volumes, gpus=gpus)
            self._world.state.routes[thing.target] = at
            self._bill(thing)
        elif event == "gone":
            for mount in _mounts_of(thing):
                self._world.state.things[mount["file_system_id"]].facts["attached_to"] = ""
            self._world.end(thing, status="terminated")

    def rent_by_hand(self, volume: Thing) -> Thing:
        """As `KeepsVolumes.rent_by_hand`."""
        mount: JsonValue = {"mount_point": "/data", "file_system_id": volume.id}
        return self._foreign_box([mount], str(volume.facts["region"]))

    def end_by_hand(self, box: Thing) -> None:
        """As `KeepsVolumes.end_by_hand`."""
        self._end(box)

    # --- the API

    def _admit(self, do: Answer) -> Answer:
        async def answer(request: Request) -> Response:
            if not self._in_time(request):
                # A gateway in front of the API gives this answer, so it is not in the API's form.
                return PlainTextResponse("error code: 1015", 429)
            if request.headers.get("authorization") not in BEARERS:
                return _error("global/invalid-api-key")
            return await do(request)

        return answer

    def _in_time(self, request: Request) -> bool:
        """Whether the provider accepts another request now."""
        is_launch = request.url.path.endswith("/launch")
        facts, now = self._world.state.facts, self._world.now
        waits = {"asked_at": _APART_S, **({"launched_at": _LAUNCHES_APART_S} if is_launch else {})}
        if any(now - float(_number(facts.get(at))) < s - _JITTER_S for at, s in waits.items()):
            return False
        facts.update(dict.fromkeys(waits, now))
        return True

    async def _nothing(self, request: Request) -> Response:
        return _error("global/not-found")

    async def _types(self, request: Request) -> Response:
        types: Json = {}
        for name, kind in _TYPES.items():
            regions: list[JsonValue] = [_region(region) for region in kind.regions]
            shown = self._shown_type(name, self._cents_of(name))
            types[name] = {"instance_type": shown, "regions_with_capacity_available": regions}
        return _ok(types)

    async def _list(self, request: Request) -> Response:
        return _ok([self._as_listed(box) for box in self._world.listed_things()])

    async def _get(self, request: Request) -> Response:
        box = self._world.state.things.get(request.path_params["id"])
        if box is None or box.kind != "box":
            return _error("global/object-does-not-exist")
        return _ok(self._as_listed(box))

    async def _launch(self, request: Request) -> Response:
        body = cast("Json", await request.json())
        if (refusal := self._refusal(request, body)) is not None:
            return refusal
        facts, number = self._world.state.facts, self._world.number()
        name = str(body["instance_type_name"])
        box = self._world.rent(
            _id(f"instance {number}"),
            "box",
            str(body.get("name") or ""),
            status="booting",
            type=name,
            cents=self._cents_of(name),
            region=body["region_name"],
            ssh_key_names=body["ssh_key_names"],
            tags=body.get("tags") or [],
            image=body.get("image") or {"family": "lambda-stack-24-04"},
            mounts=body.get("file_system_mounts") or [],
            busy_until=self._world.now + _LAUNCHING_S,
        )
        box.phase = "booting"
        self._mount(box)
        if not facts.pop("never_ready", False):
            self._world.later(_BOOT_S, "boot", box.id)
        if _fault_of(request) == "created_despite_error":
            return _error("global/internal-error")
        return _ok({"instance_ids": [box.id]})

    def _refusal(self, request: Request, body: Json) -> Response | None:
        """What is wrong with a launch, checked in the provider's order. None if nothing is."""
        if self._world.state.facts.get("balance_zero"):
            return _error("global/account-inactive")
        keys = body.get("ssh_key_names")
        if not isinstance(keys, list) or len(keys) != 1:
            return _invalid("Exactly one SSH key must be specified.")
        if len(str(body.get("name") or "")) > 64:
            return _invalid("name: must be 64 characters or fewer.")
        for tag in cast("list[dict[str, str]]", body.get("tags") or []):
            if not re.fullmatch(r"[a-z][a-z0-9-:]{1,54}", tag["key"]) or len(tag["value"]) > 128:
                return _invalid(f"tags: {tag['key']} is not a tag.")
        kind = _TYPES.get(str(body.get("instance_type_name")))
        if kind is None or body.get("region_name") not in _REGIONS or not self._public_keys(keys):
            return _error("global/object-does-not-exist", "The key, type or region was not found.")
        if body.get("image") is not None and body["image"] not in _IMAGES:
            return _error("global/object-does-not-exist", "The image was not found.")
        for mount in cast("list[dict[str, str]]", body.get("file_system_mounts") or []):
            if not re.fullmatch(r"(/home|/lambda/nfs|/data)[/a-zA-Z0-9-]*", mount["mount_point"]):
                return _invalid(f"file_system_mounts: {mount['mount_point']} is no mount point.")
            kept = self._filesystem(mount["file_system_id"])
            if kept is None:
                return _error("global/object-does-not-exist", "Filesystem was not found.")
            if kept.facts["region"] != body["region_name"]:
                return _error("instance-operations/launch/file-system-in-wrong-region")
        if _fault_of(request) == "no_quota":
            return _error("global/quota-exceeded")
        if _fault_of(request) == "no_capacity" or body["region_name"] not in kind.regions:
            return _error("instance-operations/launch/insufficient-capacity")
        return None

    async def _terminate(self, request: Request) -> Response:
        ids = cast("list[str]", (await request.json()).get("instance_ids") or [])
        boxes = [box for box in self._world.things() if box.id in ids]
        if len(boxes) != len(set(ids)):
            return _error("global/object-does-not-exist")
        for reason in filter(None, map(self._unavailable, boxes)):
            return _invalid(f"An instance cannot be terminated now: {reason}.")
        if _fault_of(request) == "soft_failure":
            return _ok({"terminated_instances": []})
        if not self._world.state.facts.get("stuck"):
            for box in boxes:
                self._end(box)
        ended: list[JsonValue] = [
            {**self._as_listed(box), "status": "terminating"} for box in boxes
        ]
        return _ok({"terminated_instances": ended})

    def _end(self, box: Thing) -> None:
        """End the instance, and end its bill."""
        box.status, box.phase = "terminating", "running"
        self._world.bill(box)
        self._close(box)
        self._sites.delete(box.id)
        self._world.state.due = [due for due in self._world.state.due if due.thing != box.id]
        self._world.later(_ENDING_S, "gone", box.id)

    async def _list_keys(self, request: Request) -> Response:
        return _ok([_shown_key(key) for key in self._world.things("key")])

    async def _add_key(self, request: Request) -> Response:
        body = cast("Json", await request.json())
        name, public_key = str(body.get("name") or ""), str(body.get("public_key") or "")
        if not 0 < len(name) <= 64 or len(public_key.split()) < 2 or self._public_keys([name]):
            return _invalid("name: must be new, public_key: must be a key.")
        key = self._world.rent(_id(f"key {name}"), "key", name, status="ok", public_key=public_key)
        return _ok(_shown_key(key))

    async def _list_filesystems(self, request: Request) -> Response:
        for each in self._world.things("filesystem"):
            held = self._sites.held_bytes(each.id)
            if held is not None and held != each.facts["bytes"]:
                each.facts["bytes"] = held
                self._bill_filesystem(each)
        return _ok([_shown_filesystem(each) for each in self._world.listed_things("filesystem")])

    async def _create_filesystem(self, request: Request) -> Response:
        body = cast("Json", await request.json())
        name, region = str(body.get("name") or ""), str(body.get("region") or "")
        if set(body) - {"name", "region"} or not re.fullmatch(r"[a-zA-Z]+[0-9a-zA-Z-]{0,59}", name):
            return _invalid("name: must be letters, digits and -, a letter first.")
        if region not in _REGIONS:
            return _invalid(f"region: {region} is not a region.")
        if any(each.name == name for each in self._world.things("filesystem")):
            return _error("global/duplicate")
        return _ok(_shown_filesystem(self._keep(name, region, held=0)))

    async def _delete_filesystem(self, request: Request) -> Response:
        kept = self._filesystem(request.path_params["id"])
        if kept is None:
            return _error("global/object-does-not-exist", "Filesystem was not found.")
        if kept.facts["attached_to"]:
            return _error("filesystems/filesystem-in-use")
        self._sites.delete_volume(kept.id)
        self._world.end(kept, status="deleted")
        return _ok({"deleted_ids": [kept.id]})

    # --- the world

    def _keep(self, name: str, region: str, *, held: int) -> Thing:
        """Make a filesystem that holds so many bytes."""
        facts: Json = {"attached_to": "", "bytes": held, "region": region}
        identity = _id(f"filesystem {self._world.number()}")
        return self._world.rent(identity, "filesystem", name, status="ok", **facts)

    def _bill_filesystem(self, kept: Thing) -> None:
        """Bill the filesystem by what it holds."""
        held_gib = _number(kept.facts["bytes"]) / _GIB
        self._world.bill(kept, disk=held_gib * _FILESYSTEM_USD_GIB_MONTH / _MONTH_H)

    def _filesystem(self, named: str) -> Thing | None:
        return next((f for f in self._world.things("filesystem") if f.id == named), None)

    def _mount(self, box: Thing) -> None:
        for mount in _mounts_of(box):
            self._world.state.things[mount["file_system_id"]].facts["attached_to"] = box.id

    def _public_keys(self, names: JsonValue) -> list[str]:
        keys = {key.name: str(key.facts["public_key"]) for key in self._world.things("key")}
        return [keys[name] for name in cast("list[str]", names) if name in keys]

    def _cents_of(self, name: str) -> int:
        return int(_TYPES[name].cents * self._world.state.price_factor)

    def _bill(self, box: Thing) -> None:
        """Bill the instance if it runs. A booting or a terminated instance does not bill."""
        if box.phase == "running" and box.status != "terminating":
            self._world.bill(box, gpu=_number(box.facts["cents"]) / 100)

    def _close(self, box: Thing) -> None:
        self._sites.close(box.id)
        self._world.state.routes.pop(box.target or "", None)

    def _foreign_box(self, mounts: Sequence[JsonValue] = (), region: str = "us-west-1") -> Thing:
        number = self._world.number()
        box = self._world.rent(
            _id(f"instance {number}"),
            "box",
            "somebody else's",
            status="active",
            type="gpu_1x_a10",
            cents=self._cents_of("gpu_1x_a10"),
            region=region,
            ssh_key_names=["laptop"],
            mounts=[*mounts],
            tags=[{"key": "team", "value": "vision"}],
            ip=f"203.0.113.{number % 254 + 1}",
        )
        self._mount(box)
        self._bill(box)
        return box

    def _unavailable(self, box: Thing) -> str | None:
        """Why the instance cannot be terminated now, as the provider's code. None if it can."""
        if box.status in ("terminating", "terminated"):
            return "vm-is-terminating"
        if _number(box.facts.get("busy_until")) > Decimal(self._world.now):
            return "vm-has-not-launched" if box.status == "booting" else "vm-action-in-progress"
        return None

    def _shown_type(self, name: str, cents: JsonValue) -> Json:
        kind = _TYPES[name]
        return {
            "name": name,
            "gpu_description": kind.gpu,
            "price_cents_per_hour": cents,
            "description": f"{kind.gpus}x {kind.gpu}"
            if kind.gpus
            else f"{kind.vcpus}x CPU General",
            "specs": {
                "vcpus": kind.vcpus,
                "memory_gib": kind.memory_gib,
                "storage_gib": kind.storage_gib,
                "gpus": kind.gpus,
            },
        }

    def _as_listed(self, box: Thing) -> Json:
        facts, reason = box.facts, self._unavailable(box)
        free: Json = {"available": box.status == "active"}
        why: Json = {"available": False, "reason_code": reason, "reason_description": "Not now."}
        shown: Json = {
            "id": box.id,
            "name": box.name,
            "status": "terminated" if box.phase == "ended" else box.status,
            "ssh_key_names": facts["ssh_key_names"],
            "file_system_names": [
                self._world.state.things[m["file_system_id"]].name for m in _mounts_of(box)
            ],
            "region": _region(str(facts["region"])),
            "instance_type": self._shown_type(str(facts["type"]), facts["cents"]),
            "actions": {
                "migrate": free,
                "rebuild": free,
                "restart": free,
                "cold_reboot": free,
                "terminate": why if reason else {"available": True},
            },
            "tags": facts["tags"],
            "is_reserved": False,
        }
        if facts.get("mounts"):
            shown["file_system_mounts"] = facts["mounts"]
        if "ip" in facts:
            url = f"https://jupyter-{box.id}.lambdaspaces.com/?token={_id(f'jupyter {box.id}')}"
            shown |= {"ip": facts["ip"], "jupyter_url": url}
        return shown


def _fault_of(request: Request) -> str:
    fault: Fault | None = request.state.fault
    return fault.do if fault else ""


def _id(what: str) -> str:
    return hashlib.sha256(what.encode()).hexdigest()[:32]


def _number(value: JsonValue) -> Decimal:
    return Decimal(str(value or 0))


def _mounts_of(box: Thing) -> list[dict[str, str]]:
    """The filesystems that the instance mounts, as its launch named them."""
    return cast("list[dict[str, str]]", box.facts.get("mounts") or [])


def _region(name: str) -> Json:
    return {"name": name, "description": _REGIONS[name]}


def _shown_key(key: Thing) -> Json:
    return {"id": key.id, "name": key.name, "public_key": key.facts["public_key"]}


def _shown_filesystem(each: Thing) -> Json:
    return {
        "id": each.id,
        "name": each.name,
        "mount_point": f"/lambda/nfs/{each.name}",
        "created": datetime.fromtimestamp(each.created_at, UTC).isoformat(),
        "created_by": {"id": _id("user"), "email": "me@example.com", "status": "active"},
        "is_in_use": bool(each.facts["attached_to"]),
        "region": _region(str(each.facts["region"])),
        "bytes_used": each.facts["bytes"],
    }


def _ok(payload: JsonValue) -> Response:
    return JSONResponse({"data": payload})


def _error(code: str, message: str = "") -> Response:
    status, usual, suggestion = _ERRORS[code]
    said = {"code": code, "message": message or usual, "suggestion": suggestion}
    return JSONResponse({"error": said}, status)


def _invalid(message: str) -> Response:
    return _error("global/invalid-parameters", message)


def emulate(world: World, sites: Sites) -> LambdaCloudEmulator:
    """The emulator of Lambda Cloud, for one account."""
    return LambdaCloudEmulator(world, sites)
