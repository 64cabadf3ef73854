"""AutoDL's developer API for instances Pro.

An instance is created without knowing the stock. It can be released only after it was stopped.

Known, from the platform's page docs/instance_pro_api (read in copies of 2026-08) and from clients
that ran against it live (2026-08, 2026-09): paths, methods, fields, the token without a scheme,
failures inside a 200, page numbers, prices in thousandths of a yuan, the states running,
shutting_down and shutdown, the command that a box runs when it starts, and these answers:
AuthorizeFailed, RecordNotFoundError, TORealName, 暂无库存 for no GPU in stock, 当前实例正在关机中 to a second
stop. It is also known that stopping a box that is still starting changes nothing.

Assumed, because it is documented nowhere:

- the words creating, starting, releasing; that a released box leaves the list, after some seconds;
- that an instance's name keeps a mark with colons as it is;
- that GPUs are billed from running until shutdown, by the second, and that included disks are never billed;
- that payg_price is the price of the GPU, if an instance has one; if it has several, nobody knows whether
  payg_price is for one of them or for all;
- that an instance starts with its key command run as root, and with another port each time;
- the codes of no GPU, no credit and a refused stop or release; a client must go by their words;
- that an account without credit cannot create or start a box, and that its running boxes go on;
- the prices below, the price of a saved image, and every duration.
"""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import cast

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gpu_tenant.emulators.autodl.responses import (
    Json,
    failure,
    ok,
    page,
    shown_image,
    shown_instance,
    snapshot,
)
from gpu_tenant.emulators.boxes import Sites
from gpu_tenant.emulators.faults import Fault, Tariff
from gpu_tenant.emulators.gpus import rented_gpus
from gpu_tenant.emulators.world import KEY, Thing, World

TARIFF = Tariff(rounding_s=1, model="prepaid")

_CNY_USD = Decimal("0.14")
_CNY_H = {
    "4090D": Decimal("1.98"),
    "v-48g": Decimal("2.98"),
    "v-48g-350w": Decimal("1.58"),
    "v-32g-p": Decimal("1.68"),
    "5090-p": Decimal("3.03"),
    "pro6000-p": Decimal("5.98"),
    "h800": Decimal("8.88"),
}
_GPUS = {
    "4090D": "RTX 4090D",
    "v-48g": "RTX 4090 48GB",
    "v-48g-350w": "RTX 3090 48GB",
    "v-32g-p": "RTX 4080 SUPER 32GB",
    "5090-p": "RTX 5090",
    "pro6000-p": "RTX PRO 6000",
    "h800": "H800 SXM",
}
_BOOT_S, _STOP_S, _RELEASE_S = 60.0, 20.0, 5.0
_FORGOTTEN_S = 15 * 86_400.0
_REGIONS = ("westDC3", "beijingDC2")
_IMAGE_USD_H = Decimal("0.001")

Answer = Callable[[Request], Awaitable[Response]]


class AutodlEmulator:
    """One account at AutoDL."""

    faults: Mapping[str, str] = {
        "no_capacity": "the create, or the start, is refused: no such GPU is free",
        "dearer": "every box costs `amount` times as much now, whatever its owner said",
        "stuck_termination": "releases are accepted and change nothing, until struck with amount=0",
        "soft_failure": "the release is answered with 200 and a code of failure",
        "unknown_status": "the box shows a status that nobody knows",
        "never_ready": "the next box never gets beyond `creating`",
        "page_boundary": "the list lacks a row of those that it counts; amount=1: it is another page",
        "balance_zero": "the account is empty: creates and starts are refused, boxes stay as they are",
        "unverified": "the owner's identity is not verified: every call is refused",
        "no_snapshot": "the box's address and price cannot be had: a failure inside a 200",
        "wants_body": "the details and the state of a box are given only if the body names it",
        "sparse": "answers leave out every field that a client can do without, and prices have decimals",
        "blocked": "all the money of the account is blocked",
        "list_lag": "new boxes are listed `seconds` later",
        "created_despite_error": "the create is carried out and answered with InternalError",
        "foreign_box": "somebody else's instance appears in the account",
        "leftover": "a saved image of 56 GB appears",
    }

    def __init__(self, world: World, sites: Sites) -> None:
        self._world = world
        self._sites = sites

    def environment(self, base_url: str) -> dict[str, str]:
        """As `Emulator.environment`. It includes the prices, because the owner states those."""
        prices = " ".join(f"{spec}={cny}" for spec, cny in _CNY_H.items())
        return {
            "AUTODL_API_URL": base_url,
            "AUTODL_TOKEN": KEY,
            "AUTODL_CNY_USD": str(_CNY_USD),
            "AUTODL_CNY_H": prices,
            "AUTODL_CNY_USD_ON": str(datetime.fromtimestamp(self._world.now, UTC).date()),
        }

    def routes(self) -> Sequence[BaseRoute]:
        """As `Emulator.routes`."""
        table: list[tuple[str, str, Answer]] = [
            ("POST", "/instance/pro/create", self._create),
            ("POST", "/instance/pro/list", self._list),
            ("GET", "/instance/pro/status", self._status),
            ("GET", "/instance/pro/snapshot", self._snapshot),
            ("POST", "/instance/pro/power_on", self._power_on),
            ("POST", "/instance/pro/power_off", self._power_off),
            ("POST", "/instance/pro/release", self._release),
            ("POST", "/instance/pro/image/private/list", self._images),
            ("POST", "/wallet/balance", self._balance),
        ]
        return [Route(f"/api/v1/dev{at}", self._admit(do), methods=[how]) for how, at, do in table]

    def strike(self, fault: Fault) -> None:
        """As `Emulator.strike`. A fault of one request is left to the handler of that request."""
        state, box = self._world.state, self._world.newest(fault)
        match fault.do:
            case "dearer":
                state.price_factor = Decimal(str(fault.amount or 1))
                for each in self._world.things():
                    self._bill(each)
            case "stuck_termination":
                state.facts["stuck"] = fault.amount != 0
            case "unknown_status" if box:
                box.status = "migrating"
            case (
                "never_ready" | "balance_zero" | "unverified" | "wants_body" | "sparse" | "blocked"
            ):
                state.facts[fault.do] = True
            case "list_lag":
                state.list_lag_s = fault.seconds
            case "foreign_box":
                box = self._rent("comfyui", {"req_gpu_amount": 1, "gpu_spec_uuid": "5090-p"})
                self._run(box)
            case "leftover":
                number = self._world.number()
                left = self._world.rent(
                    f"image-{_id(f'image {number}')}",
                    "snapshot",
                    f"training-{number}",
                    status="finished",
                    attached_to="",
                    bytes=56 * 10**9,
                )
                self._world.bill(left, disk=_IMAGE_USD_H)
            case _:
                pass

    def happen(self, event: str, thing: Thing) -> None:
        """As `Emulator.happen`."""
        if event == "boot" and thing.phase == "booting":
            self._run(thing)
        elif event == "off":
            thing.status, thing.phase = "shutdown", "parked"
            thing.facts["stopped_at"] = self._world.now
            self._bill(thing)
            self._close(thing)
            self._world.later(_FORGOTTEN_S, "forgotten", thing.id)
        elif event == "gone":
            self._world.end(thing, status="released")
        elif event == "forgotten" and thing.phase == "parked":
            # The box may have been started and stopped again meanwhile.
            if self._world.now < float(str(thing.facts["stopped_at"])) + _FORGOTTEN_S:
                return
            self._sites.delete(thing.id)
            self._world.end(thing, status="released")

    def switched_off(self, thing: Thing) -> None:
        """As `SwitchedOff.switched_off`. The GPU stops billing, as after power_off."""
        if thing.status == "running":
            self._go_down(thing)

    # --- the API

    def _admit(self, do: Answer) -> Answer:
        async def answer(request: Request) -> Response:
            if request.headers.get("authorization") != KEY:
                return failure("AuthorizeFailed", "登录超时，请重新登录")
            if self._world.state.facts.get("unverified"):
                return failure("TORealName", "请先完成实名认证")
            return await do(request)

        return answer

    async def _create(self, request: Request) -> Response:
        body = cast("Json", await request.json())
        regions = body.get("data_center_list", list(_REGIONS))
        if (
            body.get("gpu_spec_uuid") not in _CNY_H
            or body.get("req_gpu_amount") not in (1, 2, 3, 4)
            or not isinstance(body.get("expand_system_disk_by_gb"), int)
            or not isinstance(body.get("cuda_v_from"), int)
            or not str(body.get("image_uuid", "")).startswith(("image-", "base-image-"))
            or not isinstance(regions, list)
            or not regions
            or any(region not in _REGIONS for region in regions)
        ):
            return failure("ParamError", "请求参数错误")
        if (refusal := self._refusal(request)) is not None:
            return refusal
        box = self._rent(str(body.get("instance_name") or ""), body)
        if not self._world.state.facts.pop("never_ready", False):
            self._world.later(_BOOT_S, "boot", box.id)
        if _fault_of(request) == "created_despite_error":
            return failure("InternalError", "系统繁忙，请稍后重试")
        return ok(box.id)

    def _refusal(self, request: Request) -> Response | None:
        """Why no GPU can be rented now. None if one can."""
        if self._world.state.facts.get("balance_zero"):
            return failure("ServerError", "账户余额不足，请充值后重试")
        if _fault_of(request) == "no_capacity":
            return failure("ServerError", "暂无库存")
        return None

    async def _list(self, request: Request) -> Response:
        return await self._page(
            request, [shown_instance(box) for box in self._world.listed_things()]
        )

    async def _images(self, request: Request) -> Response:
        return await self._page(
            request, [shown_image(i) for i in self._world.listed_things("snapshot")]
        )

    async def _page(self, request: Request, rows: Sequence[JsonValue]) -> Response:
        body = await request.json()
        number, size = int(body["page_index"]), int(body["page_size"])
        held = list(rows[(number - 1) * size : number * size])
        fault: Fault | None = request.state.fault
        if fault is not None and fault.do == "page_boundary":
            held, number = (held, number + 1) if fault.amount == 1 else (held[1:], number)
        return ok(page(held, number, size, len(rows)))

    async def _status(self, request: Request) -> Response:
        if (wanted := await self._wanted(request)) is None:
            return failure("RequestParameterIsWrong", "请求参数错误")
        box = self._find_box(wanted)
        return _nothing() if box is None else ok(box.status)

    async def _wanted(self, request: Request) -> str | None:
        """The box that a GET is about. The official page names it in the body, and the official client in the query."""
        body = json.loads(await request.body() or b"{}").get("instance_uuid")
        if self._world.state.facts.get("wants_body"):
            return cast("str | None", body)
        return cast("str | None", body or request.query_params.get("instance_uuid"))

    async def _snapshot(self, request: Request) -> Response:
        if (wanted := await self._wanted(request)) is None:
            return failure("RequestParameterIsWrong", "请求参数错误")
        box = self._find_box(wanted)
        if box is None or _fault_of(request) == "no_snapshot":
            return _nothing()
        price = int(self._cny_h(box) * 1000)
        told = snapshot(box, payg_price=price, secret=_id(f"password {box.id}"))
        if self._world.state.facts.get("sparse"):
            told = {"payg_price": float(price), "ssh_command": told["ssh_command"]}
        return ok(told)

    async def _power_on(self, request: Request) -> Response:
        body = await request.json()
        box = self._find_box(body.get("instance_uuid"))
        if box is None:
            return _nothing()
        if body.get("payload") != "gpu":
            return failure("ServerError", "不支持的启动模式")
        if box.status != "shutdown":
            return failure("ServerError", "当前实例状态不支持开机")
        if (refusal := self._refusal(request)) is not None:
            return refusal
        box.status, box.phase = "starting", "booting"
        box.facts["keys"] = _keys(body.get("start_command")) or box.facts["keys"]
        self._world.later(_BOOT_S, "boot", box.id)
        return ok()

    async def _power_off(self, request: Request) -> Response:
        box = self._find_box((await request.json()).get("instance_uuid"))
        if box is None:
            return _nothing()
        if box.status == "shutting_down":
            return failure("ServerError", "当前实例正在关机中,无需重复操作")
        if box.status in ("shutdown", "releasing"):
            return failure("ServerError", "当前实例已关机")
        # A box that is still starting was observed to start in spite of a stop.
        if box.phase == "running" or box.id in self._never_ready():
            self._go_down(box)
        return ok()

    def _go_down(self, box: Thing) -> None:
        box.status, box.phase = "shutting_down", "running"
        self._world.later(_STOP_S, "off", box.id)

    def _never_ready(self) -> set[str]:
        """The boxes whose start never ends by itself. Only a stop ends such a start."""
        ahead = {due.thing for due in self._world.state.due if due.event == "boot"}
        return {box.id for box in self._world.things() if box.phase == "booting"} - ahead

    async def _release(self, request: Request) -> Response:
        box = self._find_box((await request.json()).get("instance_uuid"))
        if box is None:
            return _nothing()
        if box.status != "shutdown" or _fault_of(request) == "soft_failure":
            return failure("ServerError", "请先关机后再释放实例")
        if not self._world.state.facts.get("stuck"):
            box.status = "releasing"
            self._world.bill(box)
            self._sites.delete(box.id)
            self._world.later(_RELEASE_S, "gone", box.id)
        return ok()

    async def _balance(self, request: Request) -> Response:
        spent = sum(self._world.billed_by_component().values(), Decimal(0))
        held = 0 if self._world.state.facts.get("balance_zero") else self._world.state.balance_usd
        assets = int(max(Decimal(0), held - spent) / _CNY_USD * 1000)
        if self._world.state.facts.get("sparse"):
            return ok({"assets": assets, "voucher_balance": None})
        return ok(
            {
                "assets": assets,
                "voucher_balance": 0,
                # Answers of real accounts have it, and it cannot be spent.
                "blocked_asset": assets if self._world.state.facts.get("blocked") else 0,
                "accumulate": int(spent / _CNY_USD * 1000),
            }
        )

    # --- the world

    def _find_box(self, box_id: JsonValue) -> Thing | None:
        return next((box for box in self._world.things() if box.id == box_id), None)

    def _rent(self, name: str, body: Json) -> Thing:
        number = self._world.number()
        box = self._world.rent(
            f"pro-{_id(f'instance {number}')}",
            "box",
            name,
            status="creating",
            spec=body["gpu_spec_uuid"],
            gpu_count=body["req_gpu_amount"],
            image=body.get("image_uuid"),
            keys=_keys(body.get("start_command")),
            region=cast("list[JsonValue]", body.get("data_center_list") or ["beijingDC2"])[0],
        )
        box.phase = "booting"
        return box

    def _run(self, box: Thing) -> None:
        """Run the box, at an address that it never had before."""
        number = self._world.number()
        box.status, box.phase = "running", "running"
        box.facts |= {
            "host": f"203.0.113.{number % 254 + 1}",
            "port": 30_000 + number,
            "started_at": self._world.now,
        }
        box.target = f"root@{box.facts['host']}:{box.facts['port']}"
        keys = cast("list[str]", box.facts["keys"])
        gpus = rented_gpus(_GPUS[str(box.facts["spec"])], int(str(box.facts["gpu_count"])))
        self._world.state.routes[box.target] = self._sites.open(box.id, keys, gpus=gpus)
        self._bill(box)

    def _cny_h(self, box: Thing) -> Decimal:
        each = _CNY_H[str(box.facts["spec"])] * self._world.state.price_factor
        return each * int(str(box.facts["gpu_count"]))

    def _bill(self, box: Thing) -> None:
        if box.phase == "running" and box.status != "releasing":
            self._world.bill(box, gpu=self._cny_h(box) * _CNY_USD)
        else:
            self._world.bill(box)

    def _close(self, box: Thing) -> None:
        self._sites.close(box.id)
        self._world.state.routes.pop(box.target or "", None)


def _fault_of(request: Request) -> str:
    fault: Fault | None = request.state.fault
    return fault.do if fault else ""


def _nothing() -> Response:
    return failure("RecordNotFoundError", "实例不存在")


def _id(what: str) -> str:
    return hashlib.sha256(what.encode()).hexdigest()[:12]


def _keys(start_command: JsonValue) -> list[JsonValue]:
    """The public keys that the command lets in."""
    return [*re.findall(r"echo (ssh-[a-z0-9-]+ [A-Za-z0-9+/=]+)", str(start_command or ""))]


def emulate(world: World, sites: Sites) -> AutodlEmulator:
    """The emulator of AutoDL, for one account."""
    return AutodlEmulator(world, sites)
