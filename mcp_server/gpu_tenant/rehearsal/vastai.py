"""Vast.ai in a rehearsal: asks and bids, containers on hosts that come and go, meters that never sleep."""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import ClassVar

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from gpu_tenant.rehearsal.faults import Fault, Tariff
from gpu_tenant.rehearsal.sites import Sites
from gpu_tenant.rehearsal.world import KEY, Thing, World

TARIFF = Tariff(rounding_s=1, model="prepaid")

_LOAD_S, _BOOT_S, _MONTH_H, _PAGE = 10, 80, 720, 25
_MAY_DELETE_S = 48 * 3600
_VOLUME_USD_MONTH = Decimal("0.10")
_FIELDS = (
    "id gpu_name num_gpus of gpu_ram dph_base min_bid storage_cost inet_up_cost inet_down_cost inet_up "
    "inet_down reliability2 verification datacenter geolocation days disk_space direct_port_count machine_id"
).split()
_ASKS: tuple[dict[str, JsonValue], ...] = tuple(
    dict(zip(_FIELDS, row, strict=True))
    for row in (
        (9001, "RTX 4090", 1, 8, 24564, "0.40", "0.20", "0.15", "0.004", "0.003", 800.0, 900.0, 0.995,
         "verified", False, "Oregon, US", 30, 900, 200, 41),
        (9002, "RTX 4090", 1, 4, 24564, "0.28", "0.14", "0.20", "0.02", "0.02", 90.0, 250.0, 0.91,
         "unverified", False, "Hanoi, VN", 12, 300, 60, 42),
        (9003, "RTX 4090", 2, 8, 24564, "0.80", "0.40", "0.15", "0.004", "0.003", 800.0, 900.0, 0.995,
         "verified", False, "Oregon, US", 30, 900, 200, 41),
        (9004, "RTX 3090", 1, 4, 24576, "0.22", "0.10", "0.12", "0.005", "0.005", 500.0, 600.0, 0.98,
         "verified", False, "Brno, CZ", 60, 500, 100, 43),
        (9005, "H100 SXM", 1, 8, 81559, "2.20", "1.30", "0.18", "0.002", "0.002", 5000.0, 6000.0, 0.999,
         "verified", True, "Virginia, US", 90, 4000, 500, 44),
        (9006, "H100 SXM", 8, 8, 81559, "17.60", "10.40", "0.18", "0.002", "0.002", 5000.0, 6000.0, 0.999,
         "verified", True, "Virginia, US", 90, 4000, 500, 45),
        (9007, "A100 SXM4", 1, 8, 81920, "1.10", "0.60", "0.15", "0.003", "0.003", 2000.0, 3000.0, 0.997,
         "verified", True, "Amsterdam, NL", 45, 2000, 300, 46),
        (9008, "A100 PCIE", 1, 2, 40960, "0.70", "0.35", "0.15", "0.003", "0.003", 900.0, 900.0, 0.99,
         "verified", False, "Lyon, FR", 20, 700, 50, 47),
        # Cheap, and over before the hour is; and one that nobody can reach directly.
        (9009, "RTX 4090", 1, 1, 24564, "0.19", "0.08", "0.15", "0.004", "0.003", 700.0, 700.0, 0.97,
         "verified", False, "Texas, US", 0.03, 500, 100, 48),
        (9010, "RTX 4090", 1, 1, 24564, "0.21", "0.09", "0.15", "0.004", "0.003", 700.0, 700.0, 0.97,
         "verified", False, "Texas, US", 30, 500, 0, 49),
    )
)  # fmt: skip
_OPEN = ("/api/v0/gpu_names/unique/", "/api/v0/gpu_types/", "/api/v0/bundles/")
_BILLING = ("/api/v0/charges/", "/api/v1/invoices/")
_COMPARE: Mapping[str, Callable[[object, object], bool]] = {
    "eq": lambda a, b: a == b, "neq": lambda a, b: a != b,
    "gt": lambda a, b: float(str(a)) > float(str(b)), "gte": lambda a, b: float(str(a)) >= float(str(b)),
    "lt": lambda a, b: float(str(a)) < float(str(b)), "lte": lambda a, b: float(str(a)) <= float(str(b)),
    "in": lambda a, b: isinstance(b, list) and a in b,
    "notin": lambda a, b: isinstance(b, list) and a not in b,
}  # fmt: skip

Row = dict[str, JsonValue]
Handler = Callable[[Request, Row], Response | Awaitable[Response]]


class VastEmulator:
    """One account, whose state is the world's and nothing else's."""

    faults: ClassVar[Mapping[str, str]] = {
        "no_capacity": "this create finds its offer gone",
        "created_despite_error": "this create is answered with an error, and leaves a stopped instance",
        "price_moved": "every offer costs `amount` times as much; with `box`, that box as well",
        "stuck_termination": "deletes are accepted and nothing goes, until struck with amount 0",
        "soft_failure": "this delete answers 200, and says that it failed",
        "null_after_destroy": "a destroyed instance reads as null, as it always does here",
        "two_factor": "this request wants a second factor",
        "auth_404": "this request is answered 404, as a bad key is on billing endpoints",
        "unknown_status": "a box shows a status that nobody knows",
        "preempted": "a box loses its GPU to a dearer one, without notice",
        "outbid": "a bid box is stopped; it starts again by itself after `seconds`, when given",
        "host_lost": "a box's host goes offline, and comes back never",
        "exited": "a box's container ends by itself, and stays so",
        "end_date": "a box's rental ends: it is stopped, and 48 h later deleted",
        "gpu_taken": "a parked box's next start is put off, until struck with amount 0",
        "never_ready": "the next box never gets past loading",
        "page_boundary": "this list's cursor leads back to its start; with amount 1 its last row is lost",
        "balance_zero": "the credit is gone: everything stops; after `seconds`, when given, all is destroyed",
        "list_lag": "new boxes are listed `seconds` late",
        "foreign_box": "somebody else's box is in the account",
        "leftover": "a volume of 30 GB is in the account, attached to nothing",
        "traffic": "`amount` GB go to a box, and as many come from it",
    }

    def __init__(self, world: World, sites: Sites) -> None:
        self._world = world
        self._sites = sites

    def environment(self, base_url: str) -> dict[str, str]:
        """As `Emulator.environment`."""
        return {"VAST_URL": base_url, "VAST_API_KEY": KEY}

    def routes(self) -> Sequence[BaseRoute]:
        """As `Emulator.routes`; the seconds are how far apart the provider wants those calls."""
        one = "/api/v0/instances/{id:int}/"
        return [
            self._route("GET", "/api/v0/gpu_names/unique/", self._gpu_names),
            self._route("GET", "/api/v0/gpu_types/", self._gpu_types),
            self._route("GET", "/api/v0/users/current", self._user),
            self._route("POST", "/api/v0/bundles/", self._search),
            self._route("PUT", "/api/v0/asks/{id:int}/", self._create, 4.5),
            self._route("GET", "/api/v1/instances/", self._list, 1.0),
            self._route("GET", one, self._show, 2.0),
            self._route("PUT", one, self._manage, 1.0),
            self._route("DELETE", one, self._destroy, 3.0),
            self._route("POST", f"{one}ssh/", self._attach, 1.0),
            self._route("PUT", "/api/v0/instances/reboot/{id:int}/", self._reboot, 1.0),
            self._route("PUT", "/api/v0/instances/bid_price/{id:int}/", self._bid, 5.5),
            self._route("PUT", "/api/v0/instances/request_logs/{id:int}/", self._logs),
            Route("/s3/log/{id:int}", self._log_text),
            self._route("GET", "/api/v0/ssh/", self._keys, 1.0),
            self._route("POST", "/api/v0/ssh/", self._add_key, 1.0),
            self._route("GET", "/api/v0/volumes", self._volumes, 5.5),
            self._route("PUT", "/api/v0/volumes/", self._make_volume, 5.5),
            self._route("DELETE", "/api/v0/volumes/", self._drop_volume, 5.5),
            self._route("POST", "/api/v0/volumes/search/", self._volume_offers, 5.5),
            self._route("GET", "/api/v0/charges/", self._charges),
            self._route("GET", "/api/v1/invoices/", self._invoices),
        ]

    # --- at the door

    def _route(self, method: str, path: str, handler: Handler, apart_s: float = 0) -> Route:
        async def answer(request: Request) -> Response:
            turned_away = self._door(request, f"{method} {path}", apart_s)
            if turned_away is not None:
                return turned_away
            try:
                body = json.loads(await request.body() or b"{}")
            except ValueError:
                return _no(400, "invalid_request", "Invalid json body")
            if not isinstance(body, dict):
                return _no(400, "invalid_request", "Invalid json body")
            answered = handler(request, body)
            return answered if isinstance(answered, Response) else await answered

        return Route(path, answer, methods=[method])

    def _door(self, request: Request, endpoint: str, apart_s: float) -> Response | None:
        """Why this request gets no further; None where it does."""
        path, now = request.url.path, self._world.now
        if self._struck(request, "two_factor"):
            return _no(401, "auth_error", "This action requires Two Factor Authentication.")
        if self._struck(request, "auth_404"):
            return _no(404, "auth_error", "Invalid user key")
        if path not in _OPEN:
            said = request.headers.get("Authorization")
            if said is None:
                return _no(403, "auth_error", "This action requires login.")
            if said != f"Bearer {KEY}" and not self._may(said, request):
                return _no(404 if path in _BILLING else 401, "auth_error", "Invalid user key")
        free_at = self._facts("free_at")
        fault = request.state.fault
        twice = fault is not None and fault.do == "twice"
        if now < float(str(free_at.get(endpoint, 0))) and not twice:
            if "asks" in path:
                free_at[endpoint] = max(float(str(free_at[endpoint])), now + 12 - apart_s)
            return PlainTextResponse(
                f"API requests too frequent endpoint threshold={apart_s}", status_code=429
            )
        if apart_s:
            free_at[endpoint] = now + apart_s
        if self._credit() <= 0 and not self._world.state.facts.get("broke"):
            self._go_broke(0)
        return None

    def _may(self, said: str, request: Request) -> bool:
        """Whether it is an instance's own key, which starts, stops and destroys that one alone."""
        own = re.fullmatch(r"/api/v0/instances/(\d+)/", request.url.path)
        thing = self._world.state.things.get(own[1]) if own else None
        key = thing.facts.get("api_key") if thing else None
        return key is not None and said == f"Bearer {key}" and request.method in ("PUT", "DELETE")

    def _struck(self, request: Request, name: str) -> Fault | None:
        """The fault that strikes this request under that name."""
        fault = request.state.fault
        if isinstance(fault, Fault) and fault.do == name:
            return fault
        waiting = self._world.state.facts.get("waiting")
        if isinstance(waiting, list) and name in waiting:
            waiting.remove(name)
            return Fault(do=name)
        return None

    def _facts(self, name: str) -> dict[str, JsonValue]:
        kept = self._world.state.facts.setdefault(name, {})
        assert isinstance(kept, dict)
        return kept

    # --- what is offered

    def _gpu_names(self, request: Request, body: Row) -> Response:
        return JSONResponse(
            {"success": True, "gpu_names": sorted({str(a["gpu_name"]) for a in _ASKS})}
        )

    def _gpu_types(self, request: Request, body: Row) -> Response:
        names = sorted({str(ask["gpu_name"]) for ask in _ASKS})
        return JSONResponse({"success": True, "gpu_types": [{"name": name} for name in names]})

    def _search(self, request: Request, body: Row) -> Response:
        asked = dict(body)
        kind, order, limit = (
            asked.pop("type", "on-demand"),
            asked.pop("order", []),
            asked.pop("limit", None),
        )
        disk = Decimal(str(asked.pop("allocated_storage", 8)))
        rows = [self._offer(ask, disk, bid=kind in ("bid", "interruptible")) for ask in _ASKS]
        for name, tests in asked.items():
            if (
                name not in rows[0]
                or not isinstance(tests, dict)
                or not set(tests) <= set(_COMPARE)
            ):
                return _no(
                    400, "invalid_request", f"Error in query: {name} is not a valid search key"
                )
            for op, value in tests.items():
                # A scope, not a field: without it community machines and data centres are shown alike.
                if name in ("datacenter", "external") and not value:
                    continue
                rows = [row for row in rows if _COMPARE[op](row[name], _like(value, row[name]))]
        for name, direction in reversed(order if isinstance(order, list) else []):
            rows.sort(key=lambda row: float(str(row.get(name) or 0)), reverse=direction == "desc")  # noqa: B023
        return JSONResponse({"offers": rows[: limit if isinstance(limit, int) else len(rows)]})

    def _offer(self, ask: Row, disk: Decimal, *, bid: bool) -> Row:
        factor = self._world.state.price_factor
        gpu = Decimal(str(ask["min_bid" if bid else "dph_base"])) * factor
        hourly = disk * Decimal(str(ask["storage_cost"])) / _MONTH_H
        seconds = float(str(ask["days"])) * 86400
        free = self._free(ask)
        return {
            **{name: float(value) if isinstance(value, str) and value[0].isdigit() else value
               for name, value in ask.items() if name not in ("of", "days")},
            "ask_contract_id": ask["id"], "bundle_id": ask["machine_id"], "host_id": ask["machine_id"],
            "dph_base": float(gpu), "dph_total": float(gpu + hourly), "storage_total_cost": float(hourly),
            "min_bid": float(Decimal(str(ask["min_bid"])) * factor), "is_bid": bid,
            "search": _costs(gpu, hourly), "instance": _costs(Decimal(0), hourly),
            "reliability": ask["reliability2"], "verified": ask["verification"] == "verified",
            "rentable": free > 0, "rented": False, "external": False, "hosting_type": 0,
            "duration": seconds, "start_date": self._world.now, "end_date": self._world.now + seconds,
            "gpu_frac": int(str(ask["num_gpus"])) / int(str(ask["of"])), "gpu_arch": "nvidia",
            "gpu_total_ram": int(str(ask["gpu_ram"])) * int(str(ask["num_gpus"])), "cpu_arch": "amd64",
            "cuda_max_good": 12.8, "compute_cap": 890, "driver_version": "570.124.04", "cpu_ram": 128000,
            "cpu_cores": 64, "cpu_cores_effective": 16.0, "dlperf": 90.0, "score": float(1000 / gpu),
            "dlperf_per_dphtotal": float(90 / gpu), "flops_per_dphtotal": 80.0, "static_ip": True,
            "vms_enabled": False, "public_ipaddr": _ip(ask), "disk_bw": 2000.0,
        }  # fmt: skip

    def _free(self, ask: Row) -> int:
        """How many of that ask's kind its machine still has room for; a stopped box holds no GPU."""
        taken = sum(
            int(str(box.facts["num_gpus"])) for box in self._world.things()
            if box.facts.get("machine_id") == ask["machine_id"] and box.phase != "parked"
        )  # fmt: skip
        return (int(str(ask["of"])) - taken) // int(str(ask["num_gpus"]))

    # --- instances

    def _create(self, request: Request, body: Row) -> Response:
        number = request.path_params["id"]
        ask = next((ask for ask in _ASKS if ask["id"] == number), None)
        wrong = _unfit(body)
        if wrong is not None:
            return wrong
        if self._credit() <= 0:
            return _no(
                400, "insufficient_credit", "Your account lacks credit; see the billing page."
            )
        gone = ask is None or self._struck(request, "no_capacity") or self._free(ask) < 1
        bid = None if body.get("price") is None else Decimal(str(body["price"]))
        kept = body.get("cancel_unavail") is not True and bid is not None
        if ask is None or (gone and not kept):
            if ask is not None and body.get("cancel_unavail") is True:
                return _no(410, "no_such_ask", f"error 410/3907: no_such_ask Instance type {number} is no "
                           "longer available.", ask_id=number)  # fmt: skip
            return _no(404, "no_such_ask", f"error 404/3603: no_such_ask Instance type by id {number} is "
                       "not available.", ask_id=number)  # fmt: skip
        low = (
            bid is not None and bid < Decimal(str(ask["min_bid"])) * self._world.state.price_factor
        )
        if low and not kept:
            return _no(410, "no_such_ask", f"error 410/3907: no_such_ask Instance type {number} is no "
                       "longer available.", ask_id=number)  # fmt: skip
        failed = self._struck(request, "created_despite_error") or low
        thing = self._rent(ask, body, bid, started=not (failed or gone))
        key = {"instance_api_key": thing.facts["api_key"]}
        if failed:
            return _no(400, "invalid_price", "Bid is below the minimum for this offer.", ask_id=number,
                       new_contract=int(thing.id))  # fmt: skip
        return JSONResponse({"success": True, "new_contract": int(thing.id), **key})

    def _rent(self, ask: Row, body: Row, bid: Decimal | None, *, started: bool) -> Thing:
        number = self._world.number()
        seconds = float(str(ask["days"])) * 86400
        keys = re.findall(r"ssh-\S+ [A-Za-z0-9+/=]+", str(body.get("onstart") or ""))
        gpu = (
            bid
            if bid is not None
            else Decimal(str(ask["dph_base"])) * self._world.state.price_factor
        )
        thing = self._world.rent(
            str(21_000_000 + number), "box", str(body.get("label") or ""), status="created",
            **{name: ask[name] for name in _FIELDS}, ask=ask["id"], label=body.get("label"),
            disk=str(body.get("disk", 8)), gpu_usd_h=str(gpu), is_bid=bid is not None, state="running",
            image=body.get("image"), onstart=body.get("onstart"), env=body.get("env") or {}, keys=list(keys),
            runtype=body.get("runtype"), end_date=self._world.now + seconds, next="running",
            intended="running", api_key=f"ik-{number:06d}",
        )  # fmt: skip
        thing.phase = "booting"
        thing.facts["never_ready"] = self._world.state.facts.pop("never_ready", False)
        self._meter(thing)
        self._world.later(seconds, "end_date", thing.id)
        volume = body.get("volume_info")
        if isinstance(volume, dict):
            self._mount(thing, volume)
        if started:
            self._world.later(_LOAD_S, "load", thing.id)
        else:
            self._stop(thing)
        return thing

    def _meter(self, thing: Thing) -> None:
        """The GPU bills while it runs, the disk as long as it exists and its host is there."""
        disk = (
            Decimal(str(thing.facts["disk"])) * Decimal(str(thing.facts["storage_cost"])) / _MONTH_H
        )
        gpu = Decimal(str(thing.facts["gpu_usd_h"])) if thing.status == "running" else Decimal(0)
        if thing.status == "offline":
            self._world.bill(thing)
        else:
            self._world.bill(thing, gpu=gpu, disk=disk)

    def _turn(self, thing: Thing, status: str, state: str) -> None:
        """The container is in `status` and its contract in `state`; the meter goes as that has it."""
        thing.status, thing.facts["state"] = status, state
        self._meter(thing)

    def _stop(self, thing: Thing, status: str = "exited") -> None:
        """It does not run, keeps its disk, and nobody means it to run."""
        self._down(thing)
        thing.phase = "parked"
        thing.facts["intended"] = thing.facts["next"] = "stopped"
        self._turn(thing, status, "stopped")

    def _down(self, thing: Thing) -> None:
        self._sites.close(thing.id)
        self._world.state.routes.pop(thing.target or "", None)
        thing.target = None
        self._world.state.due = [
            due for due in self._world.state.due
            if due.thing != thing.id or due.event not in ("load", "boot")
        ]  # fmt: skip

    def _start(self, thing: Thing) -> None:
        thing.phase = "booting"
        thing.facts["intended"] = thing.facts["next"] = "running"
        self._turn(thing, "loading", "running")
        self._world.later(_BOOT_S, "boot", thing.id)

    def _delete(self, thing: Thing) -> None:
        self._down(thing)
        self._sites.delete(thing.id)
        self._world.end(thing, status="destroyed")
        for volume in self._world.things("volume"):
            if volume.facts.get("attached_to") == thing.id:
                volume.facts["attached_to"] = ""

    def happen(self, event: str, thing: Thing) -> None:
        """As `Emulator.happen`."""
        match event:
            case "load":
                thing.status = "loading"
                if not thing.facts.get("never_ready"):
                    self._world.later(_BOOT_S, "boot", thing.id)
            case "boot":
                account = [str(key) for key in self._facts("keys").values()]
                keys = thing.facts["keys"]
                assert isinstance(keys, list)
                at = self._sites.open(thing.id, [*account, *map(str, keys)])
                thing.facts["port"] = 40000 + self._world.number()
                thing.target = f"root@{_ip(thing.facts)}:{thing.facts['port']}"
                self._world.state.routes[thing.target] = at
                thing.phase = "running"
                self._turn(thing, "running", "running")
            case "regain":
                self._start(thing)
            case "end_date":
                thing.facts["end_date"] = self._world.now
                self._stop(thing)
                self._world.later(_MAY_DELETE_S, "expire", thing.id)
            case "expire" | "broke":
                self._delete(thing)

    def _mine(self, request: Request) -> Thing | None:
        thing = self._world.state.things.get(str(request.path_params["id"]))
        return None if thing is None or thing.phase == "ended" or thing.kind != "box" else thing

    def _show(self, request: Request, body: Row) -> Response:
        thing = self._mine(request)
        return JSONResponse({"instances": self._row(thing) if thing else None})

    def _list(self, request: Request, body: Row) -> Response:
        asked = request.query_params
        things = sorted(self._world.listed(), key=lambda thing: int(thing.id))
        rows = [self._row(thing) for thing in things]
        try:
            filters = json.loads(asked.get("select_filters", "{}"))
            after = (
                json.loads(b64decode(asked["after_token"]))["values"]["id"]
                if "after_token" in asked
                else 0
            )
        except (ValueError, KeyError, TypeError):
            return JSONResponse({"error": "invalid_token", "msg": "Invalid after_token"}, 400)
        for name, tests in filters.items():
            if name not in ("id", "label", "actual_status", "gpu_name", "verification"):
                said = f"Error in query parameters: {name} is not a valid search key"
                return JSONResponse({"error": "invalid_request", "msg": said}, 400)
            for op, value in tests.items():
                rows = [row for row in rows if _COMPARE[op](row[name], value)]
        limit = min(int(asked.get("limit", _PAGE)), _PAGE)
        rest = [row for row in rows if int(str(row["id"])) > after]
        page = rest[: limit if limit > 0 else 5]
        token = _token(page[-1]["id"]) if len(page) < len(rest) else None
        fault = self._struck(request, "page_boundary")
        if fault is not None:
            page, token = (page[:-1], None) if fault.amount == 1 else (page, _token(0))
        labels = [str(row["label"] or "") for row in rows]
        return JSONResponse({
            "success": True, "instances_found": len(page), "total_instances": len(rows),
            "label_counts": {label: labels.count(label) for label in labels}, "next_token": token,
            "instances": page,
        })  # fmt: skip

    def _row(self, thing: Thing) -> Row:
        facts = thing.facts
        disk = Decimal(str(facts["disk"])) * Decimal(str(facts["storage_cost"])) / _MONTH_H
        gpu = Decimal(str(facts["gpu_usd_h"]))
        burns = gpu if thing.status == "running" else Decimal(0)
        env = facts["env"] if isinstance(facts["env"], dict) else {}
        ports: JsonValue = None
        if thing.target is not None and "ssh_direc" in str(facts["runtype"]):
            ports = {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(facts["port"])}]}  # noqa: S104
        number = int(thing.id)
        return {
            **{name: facts[name] for name in ("gpu_name", "num_gpus", "gpu_ram", "inet_up", "inet_down",
               "reliability2", "verification", "geolocation", "machine_id", "label")},
            "id": number, "actual_status": facts.get("shown", None if thing.status == "created" else
                                                     thing.status),
            "intended_status": facts["intended"], "cur_state": facts["state"], "next_state": facts["next"],
            "status_msg": facts.get("message"), "is_bid": facts["is_bid"], "host_id": facts["machine_id"],
            "min_bid": float(str(facts["min_bid"])), "dph_base": float(gpu), "dph_total": float(gpu + disk),
            "search": _costs(gpu, disk), "instance": _costs(burns, disk),
            "storage_cost": float(str(facts["storage_cost"])), "storage_total_cost": float(disk),
            "inet_up_cost": float(str(facts["inet_up_cost"])),
            "inet_down_cost": float(str(facts["inet_down_cost"])), "start_date": thing.created_at,
            "end_date": facts["end_date"], "duration": float(str(facts["end_date"])) - self._world.now,
            "ssh_host": "ssh7.vast.ai", "ssh_idx": "7", "ssh_port": 10000 + number % 20000,
            "public_ipaddr": _ip(facts), "ports": ports, "direct_port_count": facts["direct_port_count"],
            "disk_space": float(str(facts["disk"])), "image_uuid": facts["image"], "template_id": None,
            "image_runtype": facts["runtype"], "onstart": facts["onstart"], "static_ip": True,
            "extra_env": [[name, str(value)] for name, value in env.items()], "jupyter_token": "0" * 64,
            "local_ipaddrs": "10.0.0.5 172.17.0.2 \n", "gpu_arch": "nvidia", "cuda_max_good": 12.8,
            "rentable": True, "external": False, "uptime_mins": None, "time_remaining": "",
            "time_remaining_isbid": "", "volume_info": [],
        }  # fmt: skip

    def _manage(self, request: Request, body: Row) -> Response:
        thing = self._mine(request)
        if thing is None:
            return _no(404, "no_such_instance", "Instance with that ID does not exist.")
        if "label" in body:
            thing.facts["label"] = body["label"]
            thing.name = str(body["label"])
        state = body.get("state")
        if state == "stopped" and thing.status != "offline":
            self._stop(thing, thing.status if thing.phase == "parked" else "exited")
        elif state == "running" and thing.phase == "parked":
            if self._credit() <= 0:
                said = "Your account lacks credit; see the billing page."
                return _no(400, "insufficient_credit", said)
            if float(str(thing.facts["end_date"])) <= self._world.now:
                return _no(400, "invalid_args", "The contract of this instance has expired.")
            if thing.facts.get("gpu_taken"):
                thing.facts["intended"] = thing.facts["next"] = "running"
                said = "Required resources are currently unavailable, state change queued."
                return _no(200, "resources_unavailable", said)
            self._start(thing)
        elif "label" not in body and state not in ("stopped", "running"):
            return _no(400, "invalid_args", "Please provide a state or a label.")
        return JSONResponse({"success": True})

    def _destroy(self, request: Request, body: Row) -> Response:
        thing = self._mine(request)
        if thing is None:
            return _no(404, "no_such_instance", "Instance not found")
        if self._struck(request, "soft_failure"):
            return _no(200, "internal_error", "Instance could not be destroyed, please try again.")
        if self._world.state.facts.get("stuck"):
            thing.facts["doomed"] = True
        else:
            self._delete(thing)
        return JSONResponse({"success": True, "msg": "Instance destroyed successfully"})

    def _attach(self, request: Request, body: Row) -> Response:
        thing, key = self._mine(request), body.get("ssh_key")
        if thing is None:
            return _no(404, "no_such_instance", "Instance with that ID does not exist.")
        if not isinstance(key, str) or not key:
            return _no(400, "no_ssh_key", "No ssh key provided")
        keys = thing.facts["keys"]
        assert isinstance(keys, list)
        # Whoever attaches after the box is up is let in from its next start on.
        thing.facts["keys"] = [*keys, key]
        return JSONResponse({"success": True, "msg": "SSH key attached successfully"})

    def _reboot(self, request: Request, body: Row) -> Response:
        thing = self._mine(request)
        if thing is None or thing.phase != "running":
            return _no(400, "invalid_args", "invalid instance_id")
        self._down(thing)
        thing.phase = "booting"
        self._turn(thing, "rebooting", "running")
        self._world.later(_LOAD_S, "boot", thing.id)
        return JSONResponse({"success": True})

    def _bid(self, request: Request, body: Row) -> Response:
        thing = self._mine(request)
        if thing is None:
            return _no(404, "no_such_instance", "Instance with that ID does not exist.")
        price = body.get("price")
        if not isinstance(price, int | float) or price < 0.001 or not thing.facts["is_bid"]:
            return _no(400, "invalid_args", "Please set a bid price >= 0.001.")
        thing.facts["gpu_usd_h"] = str(price)
        self._meter(thing)
        return JSONResponse({"success": True})

    def _logs(self, request: Request, body: Row) -> Response:
        thing = self._mine(request)
        if thing is None:
            return JSONResponse({"error": "invalid_id", "msg": "Invalid instance id."}, 404)
        url = str(request.base_url.replace(path=f"/s3/log/{thing.id}"))
        return JSONResponse({"success": True, "result_url": url, "msg": "Logs are being uploaded"})

    def _log_text(self, request: Request) -> Response:
        thing = self._mine(request)
        return (
            PlainTextResponse(f"C.{thing.id} is {thing.status}\n")
            if thing
            else Response(status_code=403)
        )

    # --- keys, volumes, the account

    def _keys(self, request: Request, body: Row) -> Response:
        return JSONResponse([
            {"id": int(number), "user_id": 7, "key": key, "created_at": "2026-11-18T17:46:40Z",
             "deleted_at": None} for number, key in self._facts("keys").items()
        ])  # fmt: skip

    def _add_key(self, request: Request, body: Row) -> Response:
        key = body.get("ssh_key")
        if not isinstance(key, str) or not key:
            return _no(400, "no_ssh_key", "No ssh key provided")
        number = self._world.number()
        self._facts("keys")[str(number)] = key
        return JSONResponse({"success": True, "key": {
            "id": number, "user_id": 7, "public_key": key, "created_at": "2026-11-18T17:46:40Z",
            "deleted_at": None}})  # fmt: skip

    def _volume(self, gb: int, label: JsonValue, attached_to: str) -> Thing:
        thing = self._world.rent(
            str(31_000_000 + self._world.number()), "volume", str(label or ""), status="running",
            size=gb, label=label, attached_to=attached_to,
        )  # fmt: skip
        self._world.bill(thing, volume=gb * _VOLUME_USD_MONTH / _MONTH_H)
        return thing

    def _mount(self, box: Thing, asked: Mapping[str, JsonValue]) -> None:
        if asked.get("create_new"):
            self._volume(int(str(asked.get("size", 15))), asked.get("name"), box.id)
        elif str(asked.get("volume_id")) in self._world.state.things:
            self._world.state.things[str(asked["volume_id"])].facts["attached_to"] = box.id

    def _volumes(self, request: Request, body: Row) -> Response:
        return JSONResponse({"volumes": [
            {"id": int(thing.id), "label": thing.facts["label"], "disk_space": thing.facts["size"],
             "storage_total_cost": float(self._world.rate(thing)), "status": thing.status,
             "start_date": thing.created_at, "machine_id": 41, "host_id": 41, "public_ipaddr": "203.0.113.41",
             "reliability2": 0.995, "verification": "verified", "disk_name": "NVME 4TB", "inet_up": 800.0,
             "inet_down": 900.0, "geolocation": "Oregon, US", "driver_version": "570.124.04",
             "cluster_id": None,
             "instances": [{"id": int(str(box))} for box in [thing.facts["attached_to"]] if box]}
            for thing in self._world.listed("volume")
        ]})  # fmt: skip

    def _make_volume(self, request: Request, body: Row) -> Response:
        if not isinstance(body.get("id"), int):
            return _no(400, "invalid_args", "Please provide a valid volume ID.")
        thing = self._volume(int(str(body.get("size", 15))), body.get("name"), "")
        return JSONResponse({"success": True, "volume_name": f"V.{thing.id}"})

    def _drop_volume(self, request: Request, body: Row) -> Response:
        thing = self._world.state.things.get(str(request.query_params.get("id", body.get("id"))))
        if thing is None or thing.kind != "volume" or thing.phase == "ended":
            return _no(404, "no_such_volume", "Volume with that ID does not exist.")
        self._world.end(thing, status="deleted")
        return JSONResponse({"success": True})

    def _volume_offers(self, request: Request, body: Row) -> Response:
        return JSONResponse({"offers": [
            {"id": 77, "ask_contract_id": 77, "machine_id": 41, "host_id": 41, "disk_space": 900,
             "storage_cost": float(_VOLUME_USD_MONTH), "verification": "verified", "inet_up": 800.0,
             "inet_down": 900.0, "geolocation": "Oregon, US", "reliability2": 0.995, "static_ip": True}
        ]})  # fmt: skip

    def _user(self, request: Request, body: Row) -> Response:
        credit = float(round(self._credit(), 6))
        return JSONResponse({
            "id": 7, "key_id": 11, "email": "rehearsal@example.com", "balance": 0.0, "credit": credit,
            "ssh_key": "", "sid": "S7", "host_agreement_accepted": False, "currency": "USD",
        })  # fmt: skip

    def _charges(self, request: Request, body: Row) -> Response:
        meter = self._world.meter()["by_thing"]
        assert isinstance(meter, dict)
        rows = [
            {"start": int(thing.created_at), "end": int(thing.ended_at or self._world.now),
             "type": "volume" if thing.kind == "volume" else "instance", "source": f"instance-{thing.id}",
             "description": thing.name, "amount": float(str(meter[thing.id])), "metadata": {}, "items": []}
            for thing in self._world.state.things.values()
        ]  # fmt: skip
        return JSONResponse({"success": True, "count": len(rows), "total": len(rows), "next_token": None,
                             "results": rows})  # fmt: skip

    def _invoices(self, request: Request, body: Row) -> Response:
        return JSONResponse(
            {"success": True, "count": 0, "total": 0, "next_token": None, "results": []}
        )

    def _credit(self) -> Decimal:
        billed = Decimal(str(self._world.meter()["billed_usd"]))
        return self._world.state.balance_usd - billed

    def _go_broke(self, seconds: float) -> None:
        """Everything stops; a saved card goes on paying for the disks, and without one they go, too."""
        self._world.state.facts["broke"] = True
        for box in self._world.things():
            if box.phase in ("booting", "running") and box.status != "offline":
                self._stop(box)
            if seconds:
                self._world.later(seconds, "broke", box.id)

    # --- what goes wrong

    def strike(self, fault: Fault) -> None:
        """As `Emulator.strike`; what strikes one request is seen by its handler."""
        state, amount = self._world.state, fault.amount
        box = self._world.newest(fault)
        match fault.do:
            case "price_moved":
                factor = Decimal(str(amount if amount is not None else 2))
                state.price_factor *= factor
                if fault.box is not None and box is not None:
                    box.facts["gpu_usd_h"] = str(Decimal(str(box.facts["gpu_usd_h"])) * factor)
                    self._meter(box)
            case "stuck_termination":
                state.facts["stuck"] = amount != 0
                for doomed in [box for box in self._world.things() if box.facts.get("doomed")]:
                    if amount == 0:
                        self._delete(doomed)
            case "balance_zero":
                state.balance_usd -= self._credit()
                self._go_broke(fault.seconds)
            case "list_lag":
                state.list_lag_s = fault.seconds
            case "never_ready":
                state.facts["never_ready"] = True
            case "foreign_box":
                order: Row = {"label": "somebody-elses-run", "disk": 40, "image": "pytorch/pytorch",
                              "runtype": "ssh_proxy", "env": {}}  # fmt: skip
                thing = self._rent(_ASKS[3], order, None, started=False)
                thing.phase = "running"
                thing.facts["intended"] = thing.facts["next"] = "running"
                self._turn(thing, "running", "running")
            case "leftover":
                self._volume(30, "old-checkpoints", "")
            case _ if box is not None:
                self._befall(box, fault)
            case _:
                pass
        if fault.match is None and fault.do in _OF_A_REQUEST:
            waiting = state.facts.setdefault("waiting", [])
            assert isinstance(waiting, list)
            waiting.append(fault.do)

    def _befall(self, box: Thing, fault: Fault) -> None:
        """What happens to one box."""
        match fault.do:
            case "unknown_status":
                box.facts["shown"] = "defrosting"
            case "preempted" | "outbid":
                self._stop(box)
                if fault.seconds:
                    self._world.later(fault.seconds, "regain", box.id)
            case "host_lost":
                self._down(box)
                box.facts["message"] = "Host is offline"
                self._turn(box, "offline", str(box.facts["state"]))
            case "exited":
                self._down(box)
                box.facts["message"] = "Error: container exited"
                self._turn(box, "exited", "running")
            case "end_date":
                self.happen("end_date", box)
            case "gpu_taken":
                box.facts["gpu_taken"] = fault.amount != 0
                if fault.amount == 0 and box.facts["next"] == "running" and box.phase == "parked":
                    self._start(box)
            case "traffic":
                gb = Decimal(str(fault.amount or 0))
                rates = (box.facts["inet_up_cost"], box.facts["inet_down_cost"])
                box.bytes_usd += sum((gb * Decimal(str(rate)) for rate in rates), Decimal(0))
            case _:
                pass


_OF_A_REQUEST = (
    "no_capacity", "created_despite_error", "soft_failure", "two_factor", "auth_404", "page_boundary",
)  # fmt: skip


def _unfit(body: Row) -> Response | None:
    """Why that create is refused before anything is looked up."""
    price, disk = body.get("price"), body.get("disk", 8)
    if not body.get("image") and not body.get("template_hash_id"):
        return _no(400, "invalid_args", "error 400: Invalid args: 'image' is required")
    if not isinstance(disk, int | float) or disk < 8:
        return _no(400, "invalid_args", "error 400: Invalid args: 'disk' must be at least 8 GB")
    if len(str(body.get("label") or "")) > 256 or len(str(body.get("onstart") or "")) > 4048:
        return _no(400, "invalid_args", "error 400: Invalid args: 'label' or 'onstart' is too long")
    if price is not None and (not isinstance(price, int | float) or not 0.001 <= price <= 128):
        return _no(400, "invalid_price", "Please set a bid price between 0.001 and 128.")
    return None


def _no(status: int, error: str, said: str, **more: JsonValue) -> Response:
    return JSONResponse({"success": False, "error": error, "msg": said, **more}, status)


def _costs(gpu: Decimal, disk: Decimal) -> Row:
    total = float(gpu + disk)
    return {"gpuCostPerHour": float(gpu), "diskHour": float(disk), "totalHour": total,
            "discountTotalHour": 0, "discountedTotalPerHour": total}  # fmt: skip


def _ip(facts: Row) -> str:
    return f"203.0.113.{facts['machine_id']}"


def _token(number: JsonValue) -> str:
    return b64encode(json.dumps({"values": {"id": number}}).encode()).decode()


def _like(value: JsonValue, field: JsonValue) -> JsonValue:
    """A filter's value as its field is: clients send numbers as text."""
    number = isinstance(field, int | float) and not isinstance(field, bool)
    return float(value) if number and isinstance(value, str) else value


def emulate(world: World, sites: Sites) -> VastEmulator:
    """The provider, on the state that `world` holds."""
    return VastEmulator(world, sites)
