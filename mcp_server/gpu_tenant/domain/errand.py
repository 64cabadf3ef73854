"""An errand is one command that is to run on a box, from the smoke test to the receipt.

The module also defines what the ledger records of an errand.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, ValidationError

from gpu_tenant.domain.choices import USUAL_TRUST, Trust
from gpu_tenant.domain.order import NOTHING_ORDERED, Order
from gpu_tenant.domain.record import Amount, Hours, Record
from gpu_tenant.domain.terms import SaidOnFailure, duration_words, seconds_of

ERRAND = "run"
"""The word that the id of an errand begins with."""

RENTED = "rented"
"""The value of `on` in a request whose box is rented wherever it is cheapest."""

GATE_S = 60.0
"""How long the smoke test's command is usually tried on the rented GPU before the job starts."""


def gate_seconds(said: str) -> float:
    """Return how many seconds the try on the GPU may take: 0 for `none`.

    Raises:
        ValueError: the text is neither `none` nor a duration of at most 10 minutes.
    """
    seconds = 0.0 if said.strip() == "none" else seconds_of(said)
    if seconds > _LONGEST_GATE_S:
        raise ValueError(f"{said!r} is longer than {duration_words(_LONGEST_GATE_S)}")
    return seconds


def _checked(said: str) -> str:
    gate_seconds(said)
    return said


def _checked_silence(said: str) -> str:
    if seconds_of(said) < _SHORTEST_SILENCE_S:
        raise ValueError(f"{said!r} is shorter than {duration_words(_SHORTEST_SILENCE_S)}")
    return said


SaidGate = Annotated[str, AfterValidator(_checked)]
SaidStalledAfter = Annotated[str, AfterValidator(_checked_silence)]
_LONGEST_GATE_S, _SHORTEST_SILENCE_S = 600.0, 60.0
_Names = tuple[str, ...]


class Usual(Record):
    """What `[run]` of `gpu-tenant.toml` says. A flag on the command line takes precedence."""

    command: str | None = Field(default=None, description="the job's command, run by sh")
    artifacts: _Names = Field(default=(), description="what must be kept, as in .gitignore: out/")
    discard: _Names = Field(default=(), description="what may be lost with the box")
    smoke: str | None = Field(
        default=None, description="the command of the smoke test, if it is shorter; or `none`"
    )
    gate: SaidGate | None = Field(
        default=None,
        description="how long the smoke command is tried on the rented GPU: `60s`; or `none`",
    )
    gpu: str | None = Field(default=None, description="as in 'RTX 4090|RTX 3090', best first")
    hours: Annotated[float, Field(gt=0, le=8760)] | None = Field(
        default=None, description="how long the work takes"
    )
    max_usd: Amount | None = Field(default=None, description="the most that it may cost in all")
    max_usd_all: Amount | None = Field(
        default=None, description="the most that all runs of this directory may cost together"
    )
    max_price_usd_h: Amount | None = Field(default=None, description="price cap, by the hour")
    on: str | None = Field(
        default=None, description="local, own, or the only provider to rent at; any if left out"
    )
    target: str | None = Field(default=None, description='with `on = "own"`: user@host[:port]')
    vram_gib: float | None = Field(default=None, description="memory of each GPU")
    trust: Trust | None = Field(default=None, description="whose machine will do")
    interruptible: Literal["no", "yes", "either"] | None = None
    recover: _Names = Field(default=(), description="where lost work goes on: `same`, or providers")
    on_failure: SaidOnFailure | None = Field(
        default=None, description="`end`, which is usual, `end after 15m`, `park` or `keep`"
    )
    unasked_gib: Annotated[float, Field(ge=0, le=2**20)] | None = Field(
        default=None, description="of what nobody declared, so much comes home unasked; 2 or more"
    )
    idle_h: Hours | None = None
    stalled_after: SaidStalledAfter | None = Field(
        default=None, description="the job is stopped when it has written nothing for so long: 45m"
    )
    store: str | None = Field(default=None, description="a second place for artifacts")
    to: str | None = Field(default=None, description="the directory here for what comes home")
    include: _Names = Field(default=(), description="ignored files to send all the same")
    env: _Names = Field(default=(), description="NAME=env:VAR and the like")


class ErrandRequest(Record):
    """What an errand is to do.

    While the errand is open, an equal request continues it, and does not begin a second one.
    """

    directory: str = Field(description="the work tree here")
    command: str
    artifacts: _Names
    discard: _Names = ()
    smoke: str | None = None
    gate: SaidGate | None = None
    gpu: str | None = None
    hours: float = 1
    max_usd: Decimal | None = None
    max_usd_all: Decimal | None = None
    max_price_usd_h: Decimal | None = None
    on: str = RENTED
    target: str | None = None
    vram_gib: float | None = None
    trust: Trust = USUAL_TRUST
    interruptible: Literal["no", "yes", "either"] = "no"
    recover: _Names = ()
    on_failure: str | None = None
    unasked_gib: float | None = None
    idle_h: float | None = None
    stalled_after: SaidStalledAfter | None = None
    store: str | None = None
    to: str | None = None
    include: _Names = ()
    env: _Names = ()
    order: Order = NOTHING_ORDERED
    name: str = Field(default="", description="what its leases are called")

    @property
    def gate_s(self) -> float:
        """How long the smoke test's command is tried on the box before the job. 0: not at all.

        Without a smoke command of its own, the job itself is the try.
        """
        if self.smoke in (None, "", "none") or self.on == "local":
            return 0
        return GATE_S if self.gate is None else gate_seconds(self.gate)

    @property
    def digest(self) -> str:
        """The errand in one canonical form, to recognize it when it is asked for again."""
        # The name is left out: the same work under another name is the same errand.
        asked = self.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
        return json.dumps(asked, sort_keys=True)


class Noted(Record):
    """One thing that the ledger records of an errand. What happened to its lease is in the lease's own timeline."""

    model_config = ConfigDict(extra="ignore")

    kind: ClassVar[str]


class Smoked(Noted):
    """The smoke test passed."""

    kind = "smoked"
    receipt: str
    tree: str = Field(default="", description="the tried files' fingerprint; empty: not recorded")
    newest_ns: int = Field(default=0, description="when the newest of these files was changed")


class Agreed(Noted):
    """Somebody agreed to what is about to be rented."""

    kind = "agreed"
    quotes: _Names = ()
    most_usd_h: Decimal | None = Field(
        default=None, description="no box above this price is rented without asking again"
    )
    by: str = "person"


class MoreDeclared(Noted):
    """Somebody said, after the run began, what else must be kept and what else may be lost."""

    kind = "declared"
    artifacts: _Names = ()
    discard: _Names = ()
    lease: str | None = Field(
        default=None, description="on whose box; None: for the job, which was not launched yet"
    )


class Unprepared(Noted):
    """The tree has nothing that could be installed."""

    kind = "unprepared"
    words: str


class Gated(Noted):
    """The smoke test's command was tried on the box, or could not be tried there, and the job may start."""

    kind = "gated"
    lease: str
    words: str


class EndShown(Noted):
    """The end was shown to the caller. Only then is the errand over, and an equal request begins a new one."""

    kind = "shown"
    outcome: Literal["receipt", "lost", "declined"]


ErrandEvent: TypeAlias = Smoked | Agreed | MoreDeclared | Unprepared | Gated | EndShown

_KINDS: Mapping[str, type[ErrandEvent]] = {
    each.kind: each for each in (Smoked, Agreed, MoreDeclared, Unprepared, Gated, EndShown)
}


class ErrandLine(NamedTuple):
    """One line of an errand's record."""

    at: datetime
    event: ErrandEvent


def errand_event(kind: str, detail: Mapping[str, JsonValue]) -> ErrandEvent | None:
    """Return the stored event of that kind. None if this version cannot read it."""
    known = _KINDS.get(kind)
    if known is not None:
        with suppress(ValidationError):
            return known.model_validate(detail)
    return None
