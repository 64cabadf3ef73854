"""Vast.ai in a rehearsal: asks and bids, hosts that come and go, and disks that bill as long as they exist."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import ClassVar

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from gpu_tenant.emulators.boxes import Sites
from gpu_tenant.emulators.faults import Fault, Tariff
from gpu_tenant.emulators.gpus import rented_gpus
from gpu_tenant.emulators.vastai.market import ASKS, FIELDS, VastMarket, asks
from gpu_tenant.emulators.vastai.responses import (
    FAULTS,
    Door,
    Row,
    VastAccount,
    disk_usd_h,
    image_of,
    inside,
    instance,
    ip,
    no,
    page_of,
    unfit,
    yes,
)
from gpu_tenant.emulators.vastai.volumes import VastVolumes, mounts_of
from gpu_tenant.emulators.world import KEY, Thing, World

TARIFF = Tariff(rounding_s=1, model="prepaid")

_LOAD_S, _BOOT_S = 10, 80
_RELAUNCH_S = 40
"""How long a container that is started again is still shown as it was left, as `exited`. A real one was shown so for
several minutes on 2026-10-02: visgotti/asap-vps, mappers.ts."""
_MAY_DELETE_S = 48 * 3600
_NO_IMAGE = (
    'Error response from daemon: failed to resolve reference "docker.io/me/train:1": pull access denied, repository does '
    "not exist or may require authorization"
)
"""As a client in production had it on 2026-10-06. The container is shown as loading meanwhile."""
_NO_START = (
    "Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create "
    "failed: nvidia-container-cli: initialization error"
)
"""As dstackai/dstack, backends/vastai/compute.py, had it on 2026-08-21. The container is shown as created meanwhile."""
_OF_A_REQUEST = (
    "no_capacity",
    "created_despite_error",
    "soft_failure",
    "two_factor",
    "auth_404",
    "page_boundary",
)


class VastEmulator:
    """One account. All of its state is in the world."""

    faults: ClassVar[Mapping[str, str]] = FAULTS

    def __init__(self, world: World, sites: Sites) -> None:
        self._world = world
        self._sites = sites
        self._door = Door(world, self._settle)
        self._account = VastAccount(world, self._door)
        self._market = VastMarket(world)
        self._volumes = VastVolumes(world, sites)

    def environment(self, base_url: str) -> dict[str, str]:
        """As `Emulator.environment`."""
        return {"VAST_URL": base_url, "VAST_API_KEY": KEY}

    def routes(self) -> Sequence[BaseRoute]:
        """As `Emulator.routes`. The seconds are the spacing that the provider wants for those calls."""
        one = "/api/v0/instances/{id:int}/"
        names = sorted({str(ask["gpu_name"]) for ask in ASKS})
        return [
            self._door.route(
                "GET", "/api/v0/gpu_names/unique/", lambda r, b: yes(gpu_names=[*names])
            ),
            self._door.route(
                "GET",
                "/api/v0/gpu_types/",
                lambda r, b: yes(gpu_types=[{"name": name} for name in names]),
            ),
            self._door.route("GET", "/api/v0/users/current", self._account.user),
            self._door.route("POST", "/api/v0/bundles/", self._market.search),
            self._door.route("PUT", "/api/v0/asks/{id:int}/", self._create, 4.5),
            self._door.route("GET", "/api/v1/instances/", self._list, 1.0),
            self._door.route("GET", one, self._show, 2.0),
            self._door.route("PUT", one, self._manage, 1.0),
            self._door.route("DELETE", one, self._destroy, 3.0),
            self._door.route("POST", f"{one}ssh/", self._attach, 1.0),
            self._door.route("PUT", "/api/v0/instances/reboot/{id:int}/", self._reboot, 1.0),
            self._door.route("PUT", "/api/v0/instances/bid_price/{id:int}/", self._bid, 5.5),
            self._door.route("PUT", "/api/v0/instances/request_logs/{id:int}/", self._logs),
            # The address that a request for logs returns is read without a key.
            Route(
                "/s3/log/{id:int}",
                lambda r: PlainTextResponse(f"C.{r.path_params['id']}: started\n"),
            ),
            self._door.route("GET", "/api/v0/ssh/", self._account.keys, 1.0),
            self._door.route("POST", "/api/v0/ssh/", self._account.add_key, 1.0),
            self._door.route("GET", "/api/v0/volumes", self._volumes.listed, 5.5),
            self._door.route("PUT", "/api/v0/volumes/", self._volumes.make, 5.5),
            self._door.route("DELETE", "/api/v0/volumes/", self._volumes.drop, 5.5),
            self._door.route("POST", "/api/v0/volumes/search/", self._volumes.search, 5.5),
            self._door.route("GET", "/api/v0/charges/", self._account.charges),
        ]

    def _create(self, request: Request, body: Row) -> Response:
        number = request.path_params["id"]
        ask = next((ask for ask in asks(self._world) if ask["id"] == number), None)
        wrong = unfit(body)
        if wrong is not None:
            return wrong
        if self._account.credit_usd <= 0:
            return _no_credit()
        bid = None if body.get("price") is None else Decimal(str(body["price"]))
        full = self._door.fault_of(request, "no_capacity")
        gone = full or ask is None or self._market.free(ask) < 1
        lowest = (
            Decimal(str(ask["min_bid"])) * self._world.state.price_factor if ask else Decimal(0)
        )
        low = bid is not None and bid < lowest
        if ask is None or ((gone or low) and (bid is None or body.get("cancel_unavail") is True)):
            status = 410 if body.get("cancel_unavail") is True else 404
            said = f"no_such_ask Instance type by id {number} is not available."
            error = "no_such_ask" if status == 410 else "invalid_args"
            return no(status, error, f"error {status}: {said}", ask_id=number)
        unmountable = self._volumes.refused(body.get("volume_info"), ask["machine_id"])
        if unmountable is not None:
            return unmountable
        failed = low or self._door.fault_of(request, "created_despite_error")
        thing = self._rent(ask, body, bid)
        if failed or gone:
            # The box exists and does not run, but its disk bills.
            self._stop(thing, "created")
        else:
            self._world.later(_LOAD_S, "load", thing.id)
        ill = self._world.state.facts.pop("ill", None)
        if ill is not None:
            thing.facts["never_ready"] = True
            thing.facts["message"] = ill
            thing.facts["shown"] = "loading" if ill == _NO_IMAGE else None
        if not failed:
            return yes(new_contract=int(thing.id), instance_api_key=thing.facts["api_key"])
        said = "The bid is below the minimum of this offer."
        return no(400, "invalid_price", said, ask_id=number, new_contract=int(thing.id))

    def _rent(self, ask: Row, body: Row, bid: Decimal | None) -> Thing:
        number, now = self._world.number(), self._world.now
        seconds = float(str(ask["days"])) * 86400
        keys = re.findall(r"ssh-\S+ [A-Za-z0-9+/=]+", str(body.get("onstart") or ""))
        gpu = Decimal(str(ask["dph_base"])) * self._world.state.price_factor if bid is None else bid
        thing = self._world.rent(
            str(21_000_000 + number),
            "box",
            str(body.get("label") or ""),
            status="created",
            **{name: ask[name] for name in FIELDS},
            label=body.get("label"),
            disk=str(body.get("disk", 8)),
            gpu_usd_h=str(gpu),
            is_bid=bid is not None,
            state="running",
            next="running",
            intended="running",
            image=image_of(body),
            onstart=body.get("onstart"),
            runtype=body.get("runtype"),
            env=body.get("env") or {},
            volumes=self._volumes.mount(body.get("volume_info"), ask["machine_id"]),
            keys=[*dict.fromkeys(keys)],
            end_date=now + seconds,
            api_key=f"ik-{number:06d}",
            never_ready=self._world.state.facts.pop("never_ready", False),
            no_address=self._world.state.facts.pop("no_address", False),
        )
        thing.phase = "booting"
        self._meter(thing)
        self._world.later(seconds, "end_date", thing.id)
        return thing

    # --- the life of an instance

    def _meter(self, thing: Thing) -> None:
        """The GPU bills while it runs, the disk as long as it exists. Neither bills while the host is away."""
        gpu = Decimal(str(thing.facts["gpu_usd_h"])) if thing.status == "running" else Decimal(0)
        if thing.status == "offline":
            self._world.bill(thing)
        else:
            self._world.bill(thing, gpu=gpu, disk=disk_usd_h(thing.facts))

    def _turn(self, thing: Thing, status: str, state: str) -> None:
        """Set the container's status and the contract's state. The meter follows them."""
        thing.status, thing.facts["state"] = status, state
        self._meter(thing)

    def _intend(self, thing: Thing, state: str) -> None:
        thing.facts["intended"] = thing.facts["next"] = state

    def _stop(self, thing: Thing, status: str = "exited") -> None:
        """Stop the instance, and record that it is meant to stay stopped. The instance keeps its disk."""
        self._down(thing)
        thing.phase = "parked"
        self._intend(thing, "stopped")
        self._turn(thing, status, "stopped")

    def _down(self, thing: Thing) -> None:
        """End the instance's processes, its address, and every start of it that is under way."""
        self._sites.close(thing.id)
        self._world.state.routes.pop(thing.target or "", None)
        thing.target = None
        under_way = ("load", "boot", "regain", "relaunch")
        self._world.state.due = [
            d for d in self._world.state.due if d.thing != thing.id or d.event not in under_way
        ]

    def _start(self, thing: Thing) -> None:
        thing.phase = "booting"
        self._intend(thing, "running")
        self._turn(thing, "exited", "running")
        self._world.later(_RELAUNCH_S, "relaunch", thing.id)
        self._world.later(_BOOT_S, "boot", thing.id)

    def _delete(self, thing: Thing) -> None:
        self._down(thing)
        self._sites.delete(thing.id)
        self._world.end(thing, status="destroyed")

    def rent_by_hand(self, volume: Thing) -> Thing:
        """As `KeepsVolumes.rent_by_hand`."""
        ask = next(a for a in ASKS if a["machine_id"] == volume.facts["machine_id"])
        linked: Row = {"create_new": False, "volume_id": int(volume.id), "mount_path": "/data"}
        return self._foreign_box(ask, linked)

    def end_by_hand(self, box: Thing) -> None:
        """As `KeepsVolumes.end_by_hand`."""
        self._delete(box)

    def _foreign_box(self, ask: Row, volume: JsonValue = None) -> Thing:
        """Somebody else's box is in the account, and runs."""
        other: Row = {"label": "somebody-elses-run", "disk": 40, "image": "pytorch/pytorch"}
        thing = self._rent(ask, {**other, "volume_info": volume}, None)
        thing.phase = "running"
        self._turn(thing, "running", "running")
        return thing

    def happen(self, event: str, thing: Thing) -> None:
        """As `Emulator.happen`."""
        match event:
            case "load":
                thing.status = "loading"
                if not thing.facts["never_ready"]:
                    self._world.later(_BOOT_S, "boot", thing.id)
            case "boot":
                of_box = keys if isinstance(keys := thing.facts["keys"], list) else []
                let_in = [str(key) for key in (*of_box, *self._door.kept_state("keys").values())]
                gpus = rented_gpus(
                    str(thing.facts["gpu_name"]),
                    int(str(thing.facts["num_gpus"])),
                    vram_gib=float(str(thing.facts["gpu_ram"])) / 1024,
                )
                volumes = mounts_of(thing)
                at = self._sites.open(
                    thing.id, let_in, environ=inside(thing), volumes=volumes, gpus=gpus
                )
                thing.facts["port"] = 40000 + self._world.number()
                thing.target = f"root@{ip(thing.facts)}:{thing.facts['port']}"
                self._world.state.routes[thing.target] = at
                thing.phase = "running"
                self._turn(thing, "running", "running")
            case "regain":
                self._start(thing)
            case "relaunch":
                self._turn(thing, "loading", "running")
            case "end_date":
                thing.facts["end_date"] = self._world.now
                self._stop(thing)
                self._world.later(_MAY_DELETE_S, "expire", thing.id)
            case _:
                self._delete(thing)

    def _mine(self, request: Request) -> Thing | None:
        thing = self._world.state.things.get(str(request.path_params["id"]))
        return None if thing is None or thing.phase == "ended" or thing.kind != "box" else thing

    def _show(self, request: Request, body: Row) -> Response:
        thing = self._mine(request)
        return JSONResponse({"instances": instance(thing, self._world.now) if thing else None})

    def _list(self, request: Request, body: Row) -> Response:
        things = sorted(self._world.listed_things(), key=lambda thing: int(thing.id))
        rows = [instance(thing, self._world.now) for thing in things]
        return page_of(rows, request.query_params, self._door.fault_of(request, "page_boundary"))

    def _manage(self, request: Request, body: Row) -> Response:
        thing, state = self._mine(request), body.get("state")
        if thing is None:
            return _no_instance()
        if "label" in body:
            thing.facts["label"], thing.name = body["label"], str(body["label"])
        elif state == "stopped":
            if thing.status != "offline":
                self._stop(thing, thing.status if thing.phase == "parked" else "exited")
        elif state != "running":
            return no(400, "invalid_args", "Please provide a state or a label.")
        elif thing.phase == "parked":
            return self._start_thing(thing, taken=bool(self._door.fault_of(request, "no_capacity")))
        return yes()

    def _start_thing(self, thing: Thing, *, taken: bool) -> Response:
        if self._account.credit_usd <= 0:
            return _no_credit()
        if float(str(thing.facts["end_date"])) <= self._world.now:
            return no(400, "invalid_args", "The contract of this instance has expired.")
        if taken or thing.facts.get("gpu_taken"):
            self._intend(thing, "running")
            said = "Required resources are currently unavailable, state change queued."
            return no(200, "resources_unavailable", said)
        self._start(thing)
        return yes()

    def _destroy(self, request: Request, body: Row) -> Response:
        thing = self._mine(request)
        if thing is None:
            return no(404, "no_such_instance", "Instance not found")
        if self._door.fault_of(request, "soft_failure"):
            return no(200, "internal_error", "The instance could not be destroyed.")
        if self._world.state.facts.get("stuck"):
            thing.facts["doomed"] = True
        else:
            self._delete(thing)
        return yes(msg="Instance destroyed successfully")

    def _attach(self, request: Request, body: Row) -> Response:
        thing, key = self._mine(request), body.get("ssh_key")
        if thing is None:
            return _no_instance()
        if not isinstance(key, str) or not key:
            return no(400, "no_ssh_key", "No ssh key provided")
        # A key that is attached after the box is up works only from its next start.
        thing.facts["keys"] = [
            *(keys if isinstance(keys := thing.facts["keys"], list) else []),
            key,
        ]
        return yes(msg="SSH key attached successfully")

    def _reboot(self, request: Request, body: Row) -> Response:
        thing = self._mine(request)
        if thing is None or thing.phase != "running":
            return no(400, "invalid_args", "invalid instance_id")
        self._down(thing)
        thing.phase = "booting"
        self._turn(thing, "rebooting", "running")
        self._world.later(_LOAD_S, "boot", thing.id)
        return yes()

    def _bid(self, request: Request, body: Row) -> Response:
        thing, price = self._mine(request), body.get("price")
        if thing is None:
            return _no_instance()
        if not isinstance(price, int | float) or price < 0.001 or not thing.facts["is_bid"]:
            return no(400, "invalid_args", "Please set a bid price >= 0.001.")
        thing.facts["gpu_usd_h"] = str(price)
        self._meter(thing)
        return yes()

    def _logs(self, request: Request, body: Row) -> Response:
        if self._mine(request) is None:
            return JSONResponse({"error": "invalid_id", "msg": "Invalid instance id."}, 404)
        return yes(result_url=f"{request.base_url}s3/log/{request.path_params['id']}")

    # --- what goes wrong

    def _settle(self) -> None:
        """Stop every box as soon as the account has no credit."""
        broke = self._account.credit_usd <= 0
        if broke and not self._world.state.facts.get("broke"):
            self._go_broke(0)
        self._world.state.facts["broke"] = broke

    def _go_broke(self, seconds: float) -> None:
        """Stop every box. A saved card goes on paying for the disks.

        Without a saved card, the boxes are deleted after `seconds`. With `seconds=0`, there is a saved card.
        """
        for box in self._world.things():
            if box.phase in ("booting", "running") and box.status != "offline":
                self._stop(box)
            if seconds:
                self._world.later(seconds, "unpaid", box.id)

    def strike(self, fault: Fault) -> None:
        """As `Emulator.strike`.

        A fault for one request waits for that request's handler, or for the next request.
        """
        state, box = self._world.state, self._world.newest(fault)
        factor = Decimal(str(2 if fault.amount is None else fault.amount))
        match fault.do:
            case name if name in _OF_A_REQUEST:
                if fault.match is None:
                    self._door.kept_state("waiting")[name] = True
            case "null_after_destroy":
                pass
            case "price_moved":
                state.price_factor *= factor
                if fault.box is not None and box is not None:
                    box.facts["gpu_usd_h"] = str(Decimal(str(box.facts["gpu_usd_h"])) * factor)
                    self._meter(box)
            case "stuck_termination":
                state.facts["stuck"] = fault.amount != 0
                for doomed in self._world.things() if fault.amount == 0 else []:
                    if doomed.facts.get("doomed"):
                        self._delete(doomed)
            case "balance_zero":
                state.balance_usd -= self._account.credit_usd
                self._go_broke(fault.seconds)
            case "list_lag":
                state.list_lag_s = fault.seconds
            case "never_ready" | "no_address" | "fee":
                state.facts[fault.do] = True
            case "image_not_found":
                state.facts["ill"] = _NO_IMAGE
            case "cannot_start":
                state.facts["ill"] = _NO_START
            case "crowded":
                state.facts["crowd"] = int(300 if fault.amount is None else fault.amount)
            case "loose_filters":
                state.facts["loose_filters"] = fault.amount != 0
            case "leftover":
                self._volumes.add(30, "old-checkpoints")
            case "foreign_box":
                self._foreign_box(ASKS[3])
            case _:
                if box is not None:
                    self._befall(box, fault)

    def _befall(self, box: Thing, fault: Fault) -> None:
        """Let the fault strike that box."""
        match fault.do:
            case "unknown_status":
                box.facts["shown"] = "defrosting"
            case "preempted" | "outbid":
                self._stop(box)
                if fault.seconds:
                    self._world.later(fault.seconds, "regain", box.id)
            case "host_lost" | "exited":
                self._down(box)
                box.facts["message"] = "Error: the container is not running"
                self._turn(box, "exited" if fault.do == "exited" else "offline", "running")
            case "end_date":
                self.happen("end_date", box)
            case "gpu_taken":
                box.facts["gpu_taken"] = fault.amount != 0
                if fault.amount == 0 and box.phase == "parked" and box.facts["next"] == "running":
                    self._start(box)
            case "traffic":
                gb, rates = Decimal(str(fault.amount or 0)), ("inet_up_cost", "inet_down_cost")
                box.bytes_usd += sum(
                    (gb * Decimal(str(box.facts[rate])) for rate in rates), Decimal(0)
                )

            case _:
                raise AssertionError(fault.do)


def _no_instance() -> Response:
    return no(404, "no_such_instance", "Instance with that ID does not exist.")


def _no_credit() -> Response:
    return no(400, "insufficient_credit", "Your account lacks credit; see the billing page.")


def emulate(world: World, sites: Sites) -> VastEmulator:
    """The emulator of Vast.ai, on the state that `world` holds."""
    return VastEmulator(world, sites)
