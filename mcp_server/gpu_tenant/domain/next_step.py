"""What is next for a lease, as a value: who acts, with which verb, on what, and until when.

Every face makes its sentence, its buttons and its alarm from this value. No code reads a sentence to learn it.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.policy import LookedAfter

Lack = Literal["budget", "time", "both"]
"""What will run out before a job ends, if the job continues at its present pace."""

_FOUND: Final = object()


@dataclass(frozen=True, slots=True)
class Watcher:
    """A watchdog, or a server that acts as one, which looks after the leases now."""

    _seal: object = field(repr=False)

    def __post_init__(self) -> None:
        if self._seal is not _FOUND:
            raise TypeError("a watcher is only what `watcher` has found")


def watcher(looked_after: LookedAfter) -> Watcher | None:
    """Return who looks after the leases now. None if nobody does."""
    return Watcher(_FOUND) if looked_after == "watched" else None


@dataclass(frozen=True, slots=True)
class GoElsewhere:
    """Continue the work on another box, with `recover`."""

    lease: LeaseId


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Start the stopped box, with `resume`: to go on working there, or to collect its files and end it."""

    lease: LeaseId
    to: Literal["work", "end"]


@dataclass(frozen=True, slots=True)
class BringHome:
    """Collect the files of the box, then end it. After `until`, the box no longer answers."""

    lease: LeaseId
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class AskForFiles:
    """Say of these files whether they are kept or given up: they keep the box from its end."""

    lease: LeaseId
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class End:
    """End the box, with `teardown`."""

    lease: LeaseId


@dataclass(frozen=True, slots=True)
class LaunchAgain:
    """Launch a job on the box: its first one, or again the one that was cut off."""

    lease: LeaseId
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Furnish:
    """Put the work on the box, and set it up."""

    lease: LeaseId


@dataclass(frozen=True, slots=True)
class Await:
    """Look again: the box boots, is being set up, or runs a job."""

    lease: LeaseId


@dataclass(frozen=True, slots=True)
class GiveMore:
    """Raise a term, if the running job is worth more than it allows."""

    lease: LeaseId
    lack: Lack


@dataclass(frozen=True, slots=True)
class GiveTime:
    """The lease ends soon: extend it, if the running job needs longer."""

    lease: LeaseId


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """A person has nothing to do, because `by` does the next step without being asked."""

    by: Watcher
    does: Literal["recover", "launch", "end", "park"]


@dataclass(frozen=True, slots=True)
class Over:
    """The lease has ended, and nothing follows."""


NextStep: TypeAlias = (
    GoElsewhere
    | StartAgain
    | BringHome
    | AskForFiles
    | End
    | LaunchAgain
    | Furnish
    | Await
    | GiveMore
    | GiveTime
    | NothingToDo
    | Over
)
