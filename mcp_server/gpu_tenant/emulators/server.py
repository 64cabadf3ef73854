"""One provider's emulator on a loopback port, with the control interface that all emulators share."""

import asyncio
import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import ClassVar, Literal, Protocol, Self, runtime_checkable

import uvicorn
from pydantic import JsonValue, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.emulators.box_time import BoxTime
from gpu_tenant.emulators.boxes import Sites, Way
from gpu_tenant.emulators.faults import OF_A_BOX, ON_THE_WIRE, Fault, Tariff
from gpu_tenant.emulators.gpus import FAULTS as GPU_FAULTS
from gpu_tenant.emulators.gpus import GpuFault
from gpu_tenant.emulators.world import Due, Logged, Thing, World
from gpu_tenant.files.installation import extra_line
from gpu_tenant.files.rehearsal_marker import Rehearsal, put_rehearsal
from gpu_tenant.files.replace_file import replace_file
from gpu_tenant.providers.http_client import redact

_REMEMBERED = 2_000
"""How many requests are remembered, to be looked at."""

_FAULTS: TypeAdapter[list[Fault]] = TypeAdapter(list[Fault])


class Emulator(Protocol):
    """One provider. `emulators/<slug>/app.py` has `TARIFF` and `emulate(world: World, sites: Sites)`."""

    faults: Mapping[str, str]
    """The provider's own faults, each with a sentence."""

    def routes(self) -> Sequence[BaseRoute]:
        """The provider's API. A handler finds the fault that strikes it in `request.state.fault`."""
        ...

    def environment(self, base_url: str) -> dict[str, str]:
        """What a client must have in its environment to reach this emulator. The key is `world.KEY`."""
        ...

    def strike(self, fault: Fault) -> None:
        """Let one of the provider's own faults strike. A fault of one request is left to that request's handler."""
        ...

    def happen(self, event: str, thing: Thing) -> None:
        """Carry out an event that was scheduled with `World.later` and is due now."""
        ...


@runtime_checkable
class SwitchedOff(Protocol):
    """An emulator whose boxes can switch themselves off."""

    def switched_off(self, thing: Thing) -> None:
        """Do what the platform does when the box's own system shuts down."""
        ...


@runtime_checkable
class HasMetadata(Protocol):
    """An emulator whose boxes have a metadata server, which answers that box alone."""

    def metadata(self, thing: Thing, path: str, request: Request) -> Response:
        """What the server says to the box at that path."""
        ...


@runtime_checkable
class KeepsVolumes(Protocol):
    """An emulator with volumes, which somebody's own boxes can mount."""

    def rent_by_hand(self, volume: Thing) -> Thing:
        """Somebody rents a box of their own in the console, with that volume."""
        ...

    def end_by_hand(self, box: Thing) -> None:
        """Somebody ends that box in the console."""
        ...


class Stage:
    """An emulator that answers at `url` until it is closed. Its boxes end with it."""

    def __init__(
        self,
        provider: str,
        directory: Path,
        *,
        port: int = 0,
        way: Way = "ssh",
        time: Literal["runs", "frozen"] = "runs",
        box_time: Literal["real", "leaps"] = "real",
    ) -> None:
        """`box_time` says what the guards on its boxes go by: real time, or the rehearsal's, with its leaps."""
        module = _module_of(provider)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.provider = provider
        self.directory = directory
        self._socket = socket.create_server(("127.0.0.1", port))
        self._socket_port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._socket_port}"
        self._box_time = BoxTime(directory / "boxes") if box_time == "leaps" else None
        self._sites = Sites(directory / "boxes", way, self.url, self._box_time)
        tariff: Tariff = module.TARIFF
        self.world = World(tariff=tariff, file=directory / "state.json", time=time)
        self._emulator: Emulator = module.emulate(self.world, self._sites)
        self.world.on = self._happen
        if self._box_time is not None:
            self.world.on_leap = self._box_time.leap
        self._late: list[Due] = []
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._answer,
                http=_Breakable,
                date_header=False,
                loop="asyncio",
                lifespan="off",
                log_level="critical",
                timeout_graceful_shutdown=1,
                ws="none",
                interface="asgi3",
            )
        )
        self._api = Starlette(
            routes=[Mount("/_rehearsal", routes=self._control()), *self._emulator.routes()]
        )
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which gpu-tenant uses this emulator, and nothing but it."""
        return {
            "GPU_TENANT_HOME": str(self.directory / "tenant"),
            **{name: at for name, at in self.for_clients.items() if at != self.url},
        }

    @property
    def for_clients(self) -> dict[str, str]:
        """The environment in which the provider's own programs use this emulator."""
        return self._emulator.environment(self.url)

    def __enter__(self) -> Self:
        self.begin_at(self.directory / "tenant")
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            self._thread.join(0.005)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(5)
        if self.world.clock_file is not None:
            self.world.clock_file.unlink(missing_ok=True)  # so that nobody goes by it any more
        self._sites.close_all()

    def rent_by_hand(self, volume: str) -> str:
        """Return the id of a box that somebody has rented in the console, with that volume."""
        return self._keeping().rent_by_hand(self.world.state.things[volume]).id

    def end_by_hand(self, box: str) -> None:
        """Somebody has ended that box in the console."""
        self._keeping().end_by_hand(self.world.state.things[box])

    @contextlib.contextmanager
    def nothing_mounted(self) -> Iterator[None]:
        """Let no box that is opened meanwhile find its volumes mounted."""
        self._sites.mounts_volumes = False
        try:
            yield
        finally:
            self._sites.mounts_volumes = True

    def _keeping(self) -> KeepsVolumes:
        assert isinstance(self._emulator, KeepsVolumes), f"{self.provider} keeps no volumes"
        return self._emulator

    def begin_at(self, state: Path) -> None:
        """Write into that state directory that it belongs to this rehearsal."""
        put_rehearsal(state, Rehearsal(provider=self.provider, url=self.url))

    def know_rates(self, state: Path) -> None:
        """Write the rates that no price list has into that state directory, unless it has a configuration already."""
        rates: str | None = getattr(_module_of(self.provider), "OWNERS_RATES", None)
        configuration = state / "config.toml"
        if rates is not None and not configuration.exists():
            state.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(configuration, rates, durable="none")

    def wait(self) -> None:
        """Wait until the server has ended, because somebody pressed Ctrl-C."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    # --- requests

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        if not self._is_for_us(request):
            refusal = PlainTextResponse("this rehearsal answers programs of its own computer", 403)
            await refusal(scope, receive, send)
            return
        if request.url.path.startswith("/_rehearsal"):
            await self._api(scope, receive, send)
            # To ask for the time changes nothing. Nor does a box that asks its metadata server.
            asks = request.url.path.startswith(("/_rehearsal/boxes/", "/_rehearsal/clock"))
            if not asks or request.method != "GET":
                self.world.save()
            return
        body = await request.body()
        self.world.advance(0)
        await self._carry_out_late_ones()
        log = self._log(request, body)
        fault = next(
            (f for f in self.world.state.faults if f.strikes(request.method, request.url.path)),
            None,
        )
        status = await self._on_the_wire(fault, request, body, send)
        log.status = status
        self.world.save()

    def _is_for_us(self, request: Request) -> bool:
        """Whether the request comes from a program of this computer, and not from a web page.

        The script of any web page may send a request to this computer. Such a request names the page's origin.
        If the page's host name was pointed to this computer, the request names that host name.
        """
        port = self._socket_port
        hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        origin = request.headers.get("origin")
        return request.headers.get("host") in hosts and (
            origin is None or origin in {f"http://{host}" for host in hosts}
        )

    async def _on_the_wire(
        self, fault: Fault | None, request: Request, body: bytes, send: Send
    ) -> int | None:
        """Answer the request as the fault says. Returns the status, or None for a broken connection."""
        match fault.do if fault else "":
            case "drop_before":
                self._break(request)
                return None
            case "drop_after":
                await self._carry_out(request.scope, body)
                self.world.save()
                self._break(request)
                return None
            case "cut":
                return await self._cut(request, body, send)
            case "late":
                assert fault is not None
                path = f"{request.url.path}?{request.url.query}"
                self.world.later(
                    fault.seconds,
                    "late",
                    method=request.method,
                    path=path,
                    body=body.decode(),
                    authorization=request.headers.get("authorization", ""),
                )
                self._break(request)
                return None
            case "status":
                assert fault is not None
                shown: Response = (
                    PlainTextResponse(fault.body, fault.status, fault.headers)
                    if isinstance(fault.body, str)
                    else JSONResponse(fault.body, fault.status, fault.headers)
                )
                await shown(request.scope, request.receive, send)
                return fault.status
            case "twice":
                await self._carry_out(request.scope, body)
            case "delay":
                assert fault is not None
                self.world.advance(fault.seconds)
            case "":
                pass
            case _:
                assert fault is not None
                self._strike(fault)
        return await self._carry_out(request.scope, body, send, fault)

    async def _carry_out(
        self, scope: Scope, body: bytes, send: Send | None = None, fault: Fault | None = None
    ) -> int:
        """Let the provider's API handle the request. The answer goes to `send`, if that is given."""
        statuses: list[int] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def keep(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                # The provider's clock is the rehearsal's. The server would send this computer's.
                date = format_datetime(datetime.fromtimestamp(self.world.now, UTC), usegmt=True)
                message = {**message, "headers": [*message["headers"], (b"date", date.encode())]}
                # Save the world before the answer goes out. Then the saved world matches the answer, even after
                # a crash.
                self.world.save()
            if send is not None:
                await send(message)

        await self._api({**scope, "state": {"fault": fault}}, receive, keep)
        return statuses[0]

    async def _cut(self, request: Request, body: bytes, send: Send) -> int:
        """Carry the request out, and break the connection after half of the answer's body."""

        async def half(message: Message) -> None:
            if message["type"] == "http.response.body":
                whole = message.get("body", b"")
                message = {**message, "body": whole[: len(whole) // 2], "more_body": True}
            await send(message)

        status = await self._carry_out(request.scope, body, half)
        client = request.scope["client"]
        _Breakable.open[client[0], client[1]].close()
        return status

    def _break(self, request: Request) -> None:
        client = request.scope["client"]
        _Breakable.open[client[0], client[1]].abort()

    async def _carry_out_late_ones(self) -> None:
        late, self._late = self._late, []
        for due in late:
            path, _, query = due.request["path"].partition("?")
            scope: Scope = {
                "type": "http",
                "http_version": "1.1",
                "method": due.request["method"],
                "scheme": "http",
                "path": path,
                "raw_path": path.encode(),
                "root_path": "",
                "query_string": query.encode(),
                "client": None,
                "server": None,
                "headers": [
                    (b"content-type", b"application/json"),
                    (b"authorization", due.request["authorization"].encode()),
                ],
            }
            await self._carry_out(scope, due.request["body"].encode())

    def _happen(self, due: Due, thing: Thing | None) -> None:
        if due.event == "late":
            self._late.append(due)
        elif thing is not None and thing.phase != "ended":
            self._emulator.happen(due.event, thing)

    def _log(self, request: Request, body: bytes) -> Logged:
        shown: JsonValue = None
        with contextlib.suppress(ValueError):
            shown = redact(json.loads(body)) if body else None
        line = Logged(
            at=self.world.now,
            method=request.method,
            path=request.url.path,
            query=request.url.query,
            body=shown,
            status=None,
        )
        requests = self.world.state.requests
        requests.append(line)
        # The state is written after every request, so it must not grow for ever.
        del requests[:-_REMEMBERED]
        return line

    # --- the control interface

    def _control(self) -> list[Route]:
        return [
            Route("/meter", self._meter),
            Route("/requests", self._requests),
            Route("/clock", self._clock, methods=["GET", "POST"]),
            Route("/faults", self._set_faults, methods=["GET", "POST", "DELETE"]),
            Route("/routes", self._routes),
            Route("/reset", self._reset, methods=["POST"]),
            Route("/boxes/{site}/power_off", self._power_off, methods=["POST"]),
            Route("/boxes/{site}/metadata/{path:path}", self._metadata),
        ]

    async def _meter(self, request: Request) -> Response:
        self.world.advance(0)
        await self._carry_out_late_ones()
        return JSONResponse(self.world.meter())

    async def _requests(self, request: Request) -> Response:
        return JSONResponse([line.model_dump() for line in self.world.state.requests])

    async def _clock(self, request: Request) -> Response:
        if request.method == "POST":
            await self._let_pass(float((await request.json())["advance_s"]))
        now = datetime.fromtimestamp(self.world.now, UTC)
        file = self.world.clock_file
        return JSONResponse({"now": now.isoformat(), "file": file and str(file.absolute())})

    async def _let_pass(self, seconds: float) -> None:
        """So much time has passed. It stopped wherever the guard on a box had something to do, until that was done."""
        until = self.world.now + seconds
        if self._box_time is not None:
            while (known := self._box_time.next_due()) is not None:
                due, in_s = known
                if self.world.now + in_s >= until:
                    break
                self.world.advance(in_s)
                await self._carry_out_late_ones()
                await self._box_time.wait_until_done(due)
        self.world.advance(max(0.0, until - self.world.now))
        await self._carry_out_late_ones()

    async def _set_faults(self, request: Request) -> Response:
        known = _known_faults(self._emulator)
        if request.method == "GET":
            return JSONResponse(known)
        if request.method == "DELETE":
            self.world.state.faults.clear()
            return JSONResponse({"did": ["no fault waits for a request any more"]})
        try:
            asked = await request.json()
            faults = _FAULTS.validate_python(asked if isinstance(asked, list) else [asked])
        except (ValidationError, ValueError) as error:
            words = f'that names no fault as [{{"do": NAME}}] does: {error}'
            return JSONResponse({"error": words, "known": known}, 400)
        if not faults:
            return JSONResponse({"error": "no fault is named", "known": known}, 400)
        unknown = [fault.do for fault in faults if fault.do not in known]
        if unknown:
            return JSONResponse({"error": f"no fault {unknown}", "known": known}, 400)
        did = list[str]()
        for named in faults:
            fault = named.model_copy(update={"box": self._box_named(named.box)})
            if fault.match is not None:
                self.world.state.faults.append(fault)
                did.append(f"{fault.do} waits for {_request_words(fault)}: {known[fault.do]}")
            elif fault.do in ON_THE_WIRE:
                return JSONResponse({"error": f"{fault.do} needs a match"}, 400)
            else:
                did.append(f"{self._struck_words(fault)}: {known[fault.do]}")
        return JSONResponse({"did": did})

    def _box_named(self, name: str | None) -> str | None:
        """Return the id of the box that goes by that name: its id, its number alone, or the lease that it is for.

        Return the name itself if no box goes by it, or more than one.
        """
        boxes = self.world.things()
        if name is None or any(box.id == name for box in boxes):
            return name
        found = [box.id for box in boxes if _goes_by(box, name)]
        return found[0] if len(found) == 1 else name

    def _struck_words(self, fault: Fault) -> str:
        """Let the fault strike, and say what it has struck."""
        before = {box.id: box.status for box in self.world.things()}
        stood = self.world.state.model_dump_json()
        if fault.box is not None and fault.box not in before:
            here = ", ".join(before) or "none"
            said = f"{fault.do} finds no box {fault.box} (there are: {here}), and may have changed nothing"
        else:
            said = f"{fault.do} has struck"
        self._strike(fault)
        may_be_elsewhere = fault.do in GPU_FAULTS or (fault.do in OF_A_BOX and before)
        is_named = fault.box is not None and fault.box not in before
        if not is_named and not may_be_elsewhere and self.world.state.model_dump_json() == stood:
            return (
                f"{fault.do} has changed nothing: it strikes a box, and none is there, or a request, which it needs as "
                'in "match": {"method": "POST"}'
            )
        after = {box.id: box.status for box in self.world.things()}
        new = [f"{box} is there" for box in after if box not in before]
        gone = [f"{box} is gone" for box in before if box not in after]
        other = [
            f"{box} is now {status}"
            for box, status in after.items()
            if before.get(box, status) != status
        ]
        changed = "; ".join((*other, *gone, *new))
        return f"{said} ({changed})" if changed else said

    def _strike(self, fault: Fault) -> None:
        box = self.world.newest(fault)
        site = None if box is None else box.id.rpartition("/")[2]
        if fault.do in OF_A_BOX:
            if site is not None:
                change = self._sites.answer_again if fault.amount == 0 else self._sites.fall_silent
                change(site)
            return
        if fault.do not in GPU_FAULTS:
            self._emulator.strike(fault)
            return
        self._sites.befall(site, GpuFault(do=fault.do, amount=fault.amount))

    async def _routes(self, request: Request) -> Response:
        return JSONResponse(
            {shown: at.model_dump() for shown, at in self.world.state.routes.items()}
        )

    async def _reset(self, request: Request) -> Response:
        for box in self.world.things():
            self._sites.delete(box.id)
        self.world.start_again()
        return JSONResponse({"reset": True})

    async def _power_off(self, request: Request) -> Response:
        """A box shuts itself down. The computer that it runs on is never shut down."""
        box = self._running_box(request)
        if box is None:
            return JSONResponse({"error": "no such box runs"}, 404)
        if isinstance(self._emulator, SwitchedOff):
            self._emulator.switched_off(box)
            return JSONResponse({"off": box.id})
        return JSONResponse({"error": "this platform's boxes stay on"}, 409)

    async def _metadata(self, request: Request) -> Response:
        """A box asks the server that only it can reach."""
        box = self._running_box(request)
        if box is None or not isinstance(self._emulator, HasMetadata):
            return PlainTextResponse("there is no such box, or nothing to ask", 404)
        return self._emulator.metadata(box, request.path_params["path"], request)

    def _running_box(self, request: Request) -> Thing | None:
        """The box that the request's path names, as it stands now. None if it does not run."""
        self.world.advance(0)
        site = request.path_params["site"]
        for box in self.world.things():
            if site in (box.id, box.id.rpartition("/")[2]) and box.phase == "running":
                return box
        return None


class _Breakable(H11Protocol):
    """Remembers each connection's transport, so that a fault can break it without an answer."""

    open: ClassVar[dict[tuple[str, int], asyncio.Transport]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.open[transport.get_extra_info("peername")[:2]] = transport
        # asyncio does not set this on a socket that was made elsewhere. Without it each answer
        # would take 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is not None:
            self.open.pop(self.transport.get_extra_info("peername")[:2], None)
        super().connection_lost(exc)


def faults_of(provider: str) -> Mapping[str, str]:
    """Return every fault that a rehearsal of that provider can be told to have, each with a sentence.

    Raises:
        BadRequest: that provider cannot be rehearsed.
    """
    module = _module_of(provider)
    nowhere = Sites(Path(), "local", "")
    emulator: Emulator = module.emulate(World(tariff=module.TARIFF), nowhere)
    return _known_faults(emulator)


def _goes_by(box: Thing, name: str) -> bool:
    """Whether that is the box's number, or the name of its lease, which every mark of a box ends with."""
    if box.id.rpartition("/")[2] == name:
        return True
    ends = re.compile(rf"(^|[^a-z0-9]){re.escape(name)}$")
    return any(ends.search(said) for said in (box.name, *_strings_of(box.facts)))


def _strings_of(value: JsonValue) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from _strings_of(each)
        case list():
            for each in value:
                yield from _strings_of(each)
        case _:
            pass


def _request_words(fault: Fault) -> str:
    assert fault.match is not None
    which = f"the next {fault.match.method or 'request'}"
    at = f" at a path like {fault.match.path_regex!r}" if fault.match.path_regex else ""
    times = f", {fault.times} times" if fault.times > 1 else ""
    return f"{which}{at}{times}"


def lacking_package(provider: str) -> str | None:
    """Return the line that installs what a client of that provider lacks here. None if it lacks nothing.

    Raises:
        BadRequest: that provider cannot be rehearsed.
    """
    module, extra = getattr(_module_of(provider), "NEEDS", (None, ""))
    try:
        is_here = module is None or find_spec(module) is not None
    except ModuleNotFoundError:  # one of the packages around it
        is_here = False
    return None if is_here else extra_line(extra)


def _known_faults(emulator: Emulator) -> dict[str, str]:
    return {**ON_THE_WIRE, **OF_A_BOX, **emulator.faults, **GPU_FAULTS}


def _module_of(provider: str) -> ModuleType:
    try:
        return import_module(f"gpu_tenant.emulators.{provider}.app")
    except ModuleNotFoundError as error:
        raise BadRequest(
            f"there is no rehearsal of {provider!r}",
            remedy=f"one of: {', '.join(rehearsable_providers())}",
        ) from error


def rehearsable_providers() -> list[str]:
    """The providers that can be rehearsed."""
    files = Path(__file__).parent.glob("*/app.py")
    return sorted(f.parent.name for f in files if "\nTARIFF = " in f.read_text(encoding="utf-8"))
