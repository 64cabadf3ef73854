"""The world of one rehearsal: a virtual clock, rented things and what they cost, and events that are due."""

import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Literal
from uuid import uuid4

from pydantic import BaseModel, Field, JsonValue, PrivateAttr

from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.model import Address
from gpu_tenant.emulators.faults import Fault, Tariff
from gpu_tenant.files.replace_file import replace_file

BEGIN = 1_795_000_000.0
"""Where a frozen rehearsal's clock starts, in seconds since the epoch: a round moment in November 2026."""

KEY = "rehearsal-key"
"""The account key that every emulator takes."""

NEW_KEY = "rehearsal-key-2"
"""Another key of the same account, as when the owner has made a new key."""

BEARERS = (f"Bearer {KEY}", f"Bearer {NEW_KEY}")
"""The authorization headers of a request with one of these keys."""

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""The methods that a provider answers in its own words, even at a path where it has nothing."""

Kind = Literal["box", "volume", "filesystem", "disk", "address", "snapshot", "key"]


class BilledSpan(BaseModel):
    """A period in which one component was billed at one rate."""

    component: str
    usd_h: Decimal
    since: float
    until: float | None = None


class Thing(BaseModel):
    """Something rented at the provider. `facts` are the provider's own fields, as its API needs them."""

    id: str
    kind: Kind
    name: str
    status: str = Field(description="the provider's own word")
    phase: Literal["booting", "running", "parked", "ended"] = "running"
    facts: dict[str, JsonValue] = {}
    created_at: float
    listed_from: float
    ended_at: float | None = None
    spans: list[BilledSpan] = []
    bytes_usd: Decimal = Decimal(0)
    target: str | None = Field(default=None, description="where the provider says its sshd is")


class Due(BaseModel):
    """An event that the clock has yet to reach."""

    at: float
    event: str
    thing: str
    request: dict[str, str] = Field(default={}, description="a request that arrives late")


class Logged(BaseModel):
    """One request as it was answered, with its secrets redacted."""

    at: float
    method: str
    path: str
    query: str
    body: JsonValue
    status: int | None = Field(description="None: the connection was broken")
    _written: tuple[int | None, str] | None = PrivateAttr(default=None)

    def as_json(self) -> str:
        """The line as JSON. Nothing but its status changes once it is there."""
        if self._written is None or self._written[0] != self.status:
            self._written = (self.status, self.model_dump_json())
        return self._written[1]


class State(BaseModel):
    """Everything that outlives the emulator's process."""

    clock: float = BEGIN
    account: str = Field(
        default_factory=lambda: uuid4().hex,
        description="whose all of it is; no two stages are one's",
    )
    count: int = 0
    things: dict[str, Thing] = {}
    due: list[Due] = []
    faults: list[Fault] = []
    requests: list[Logged] = []
    balance_usd: Decimal = Decimal(100)
    list_lag_s: float = 0
    price_factor: Decimal = Decimal(1)
    routes: dict[str, Address] = Field(
        default={}, description="the addresses that the API shows, and where those boxes really are"
    )
    facts: dict[str, JsonValue] = Field(default={}, description="the emulator's own")


class World:
    """The state and its rules. Time follows the real clock unless it is frozen, and `advance` moves it on."""

    def __init__(
        self, *, tariff: Tariff, file: Path | None = None, time: Literal["runs", "frozen"] = "runs"
    ) -> None:
        self.tariff = tariff
        self._file = file
        self._frozen = time == "frozen"
        self.on: Callable[[Due, Thing | None], None] = lambda due, thing: None
        self.on_leap: Callable[[float], None] = lambda seconds: None
        # Real boxes run in real time. Only a frozen world always begins at the same moment.
        self.state = State() if self._frozen else State(clock=WallClock().now().timestamp())
        if file is not None and file.exists():
            self.state = State.model_validate_json(file.read_bytes())
        self._base, self._since = self.state.clock, monotonic()
        self._tell_time()

    def start_again(self) -> None:
        """Forget everything that is rented. The clock goes on. In a frozen world, the clock starts again."""
        self.state = State(clock=BEGIN if self._frozen else self.now)
        self._set_clock(self.state.clock)
        self._tell_time()

    def save(self) -> None:
        """Write the complete state to its file, for a later start."""
        if self._file is not None:
            self.state.clock = self.now
            replace_file(self._file, self._as_json(), durable="none")

    def _as_json(self) -> str:
        """The state as JSON. A request that was written before is not written out anew: most of the state are those."""
        requests = ",".join(line.as_json() for line in self.state.requests)
        rest = self.state.model_dump_json(exclude={"requests"})
        return f'{rest[:-1]},"requests":[{requests}]}}'

    # --- time

    @property
    def now(self) -> float:
        """Seconds since the epoch, by this world's clock."""
        return self._base if self._frozen else self._base + monotonic() - self._since

    def advance(self, seconds: float) -> None:
        """Let that much time pass. Everything that is due in that time happens, in order."""
        target = self.now + seconds
        while True:
            due = min(self.state.due, key=lambda d: d.at, default=None)
            if due is None or due.at > target:
                break
            self.state.due.remove(due)
            self._set_clock(max(due.at, self.now))
            self.on(due, self.state.things.get(due.thing))
        self._set_clock(max(target, self.now))
        if seconds:
            self._tell_time()
            self.on_leap(seconds)

    @property
    def clock_file(self) -> Path | None:
        """Where programs of this computer can read this world's clock without a request."""
        return self._file and self._file.with_name("clock.json")

    def _tell_time(self) -> None:
        """Write the clock to its file. This is needed only where it jumps: the rest is the real clock."""
        if self.clock_file is not None:
            since = None if self._frozen else self._since
            told = json.dumps({"at": self._base, "since": since})
            replace_file(self.clock_file, told, durable="none")

    def _set_clock(self, at: float) -> None:
        self._base, self._since = at, monotonic()

    def later(self, seconds: float, event: str, thing: str = "", **request: str) -> None:
        """Schedule `event` for `thing`, in `seconds` from now."""
        self.state.due.append(Due(at=self.now + seconds, event=event, thing=thing, request=request))

    # --- things

    def number(self) -> int:
        """A number that no thing has had before."""
        self.state.count += 1
        return self.state.count

    def rent(
        self, thing_id: str, kind: Kind, name: str, *, status: str, **facts: JsonValue
    ) -> Thing:
        """Add a new thing with that id. Nothing is billed for it yet."""
        thing = Thing(
            id=thing_id,
            kind=kind,
            name=name,
            status=status,
            facts=facts,
            created_at=self.now,
            listed_from=self.now + self.state.list_lag_s,
        )
        self.state.things[thing_id] = thing
        return thing

    def bill(self, thing: Thing, **usd_h: Decimal) -> None:
        """Bill exactly these components for `thing` from now on, each at its rate."""
        for span in thing.spans:
            if span.until is None:
                span.until = self.now
        thing.spans += [
            BilledSpan(component=name, usd_h=rate, since=self.now)
            for name, rate in usd_h.items()
            if rate
        ]

    def end(self, thing: Thing, *, status: str) -> None:
        """End the thing and its bill. Its pending events are dropped."""
        self.bill(thing)
        thing.status, thing.phase, thing.ended_at = status, "ended", self.now
        self.state.due = [due for due in self.state.due if due.thing != thing.id]

    def things(self, kind: Kind = "box") -> list[Thing]:
        """The things that exist, oldest first."""
        return [t for t in self.state.things.values() if t.kind == kind and t.phase != "ended"]

    def volumes(self) -> list[Thing]:
        """The disks that exist apart from any box, whatever the provider calls them, oldest first."""
        kinds = ("volume", "filesystem", "disk")
        return [t for t in self.state.things.values() if t.kind in kinds and t.phase != "ended"]

    def listed_things(self, kind: Kind = "box") -> list[Thing]:
        """The things that the provider's list shows already."""
        return [thing for thing in self.things(kind) if thing.listed_from <= self.now]

    def newest(self, fault: Fault) -> Thing | None:
        """The box that `fault` strikes: the named one, or else the newest. None if there is none."""
        boxes = self.things()
        chosen = [box for box in boxes if fault.box in (None, box.id)]
        return chosen[-1] if chosen else None

    # --- money

    def cost_of(self, thing: Thing) -> dict[str, Decimal]:
        """What `thing` has cost so far, by component, with the provider's own rounding."""
        total: dict[str, Decimal] = {}
        for span in thing.spans:
            seconds = (self.now if span.until is None else span.until) - span.since
            step = self.tariff.rounding_s
            # A millisecond of tolerance, because a span of exactly one minute must count as one
            # minute.
            seconds = max(math.ceil((seconds - 0.001) / step) * step, self.tariff.minimum_s)
            if seconds > 0:
                cost = span.usd_h * Decimal(seconds) / 3600
                total[span.component] = total.get(span.component, Decimal(0)) + cost
        if thing.bytes_usd:
            total["bytes"] = thing.bytes_usd
        return total

    @staticmethod
    def rate(thing: Thing) -> Decimal:
        """What `thing` bills per hour now."""
        return sum((span.usd_h for span in thing.spans if span.until is None), Decimal(0))

    def billed_by_component(self) -> dict[str, Decimal]:
        """What everything together has cost so far, by component."""
        total: dict[str, Decimal] = {}
        for thing in self.state.things.values():
            for component, usd in self.cost_of(thing).items():
                total[component] = total.get(component, Decimal(0)) + usd
        return total

    def meter(self) -> dict[str, JsonValue]:
        """Everything billed so far, what bills now, and what bills although no box uses it."""
        by_component = self.billed_by_component()
        by_thing: dict[str, JsonValue] = {
            thing.id: _usd(sum(self.cost_of(thing).values(), Decimal(0)))
            for thing in self.state.things.values()
        }

        def show_thing(thing: Thing) -> JsonValue:
            return {
                "id": thing.id,
                "kind": thing.kind,
                "name": thing.name,
                "status": thing.status,
                "usd_h": _usd(self.rate(thing)),
            }

        alive = [thing for thing in self.state.things.values() if thing.phase != "ended"]
        boxes = [thing for thing in alive if thing.kind == "box"]
        return {
            "now": self.now,
            "billed_usd": _usd(sum(by_component.values(), Decimal(0))),
            "by_component": {name: _usd(usd) for name, usd in by_component.items()},
            "by_thing": by_thing,
            "usd_h": _usd(sum((self.rate(thing) for thing in alive), Decimal(0))),
            "running": [show_thing(box) for box in boxes if box.phase in ("booting", "running")],
            "parked": [show_thing(box) for box in boxes if box.phase == "parked"],
            "leaked": [
                show_thing(thing)
                for thing in alive
                if thing.kind != "box" and self.rate(thing) and not thing.facts.get("attached_to")
            ],
        }


def _usd(amount: Decimal) -> str:
    return str(amount.quantize(Decimal("0.000001")))
