"""Every kind of event in a lease's timeline, with its fields as the ledger stores them.

The words in a ledger never change: a kind keeps its name, and a field keeps its name and its form. A field that was
added later has a default, because older ledgers lack it.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import ClassVar, Literal, NamedTuple, TypeAlias, get_args

from pydantic import AwareDatetime, ConfigDict, Field, JsonValue, ValidationError, field_serializer

from gpu_tenant.domain.model import Fate
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.terms import Terms


class Told(Record):
    """One thing that happened to a lease. Only the fields that were given are stored."""

    # A newer version may have written more fields.
    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    kind: ClassVar[str]

    def as_stored(self) -> dict[str, JsonValue]:
        """Return the fields as the ledger stores them."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


# Its box and its terms


class Intended(Terms, Told):
    """The lease was recorded, before it has a box."""

    kind = "intended"


class Bound(Told):
    """The box now belongs to the lease, and has billed since it was made."""

    kind = "bound"
    box: str
    since: str | None = None


class Ready(Told):
    """The box let us in."""

    kind = "ready"


class Placed(Told):
    """It was decided where the lease's directory is on its box."""

    kind = "placed"
    path: str
    at: str | None = None
    why: str | None = None


class Marking(Told):
    """The box is about to get the lease's mark."""

    kind = "marking"
    nonce: str


class Marked(Told):
    """The box has the lease's mark."""

    kind = "marked"
    nonce: str
    box: str | None = None
    since_ns: int | None = None
    identity: str | None = None
    key: str | None = None
    first: bool = False


class Looked(Told):
    """A look at the box showed that nobody has used it."""

    kind = "looked"


class Audited(Told):
    """What an audit saw of the box. A field is None if the audit could not find it out."""

    kind = "audited"
    gpus: tuple[str, ...]
    driver: str | None = None
    cuda: str | None = None
    blockers: int
    warnings: int


class TakesOver(Told):
    """A person made the lease take the place of another lease."""

    kind = "takes over"
    over: str


class Brokered(Told):
    """Another tool rents the box, and ends its bill."""

    kind = "brokered"
    broker: str
    name: str
    place: str


class Parking(Told):
    """The box is about to be parked."""

    kind = "parking"
    how: str | None = None


class RunsOn(Told):
    """The box was to be parked, and still runs."""

    kind = "runs on"


class Parked(Told):
    """The box is stopped, with its disk kept."""

    kind = "parked"


class Resuming(Told):
    """The box is about to be started again."""

    kind = "resuming"


class Resumed(Told):
    """The box was started again."""

    kind = "resumed"


class NewTerms(Terms, Told):
    """The terms changed."""

    kind = "terms"


class Tested(Told):
    """The lease was rented with that smoke test."""

    kind = "tested"
    smoke: str


class Labelled(Told):
    """Somebody set the labels of the lease. Earlier labels no longer count."""

    kind = "labelled"
    project: str | None = None
    name: str | None = None
    tags: tuple[str, ...] = ()


class Priced(Told):
    """The price changed."""

    kind = "price"
    was: str | None = Field(default=None, alias="from")
    now: str | None = Field(default=None, alias="to")


class Billed(Told):
    """The provider was asked for its bill. If there is no sum, the provider named none."""

    kind = "billed"
    usd: str | None = None
    until: str | None = None
    parts: dict[str, str] = Field(default={})
    words: str | None = None


class Noticed(Told):
    """Something that a person may want to know later."""

    kind = "notice"
    words: str


class Taken(Told):
    """The provider took the box. If `fate` is None, the box is no longer taken."""

    kind = "taken"
    fate: Fate | None = None
    words: str | None = None


class Forewarned(Told):
    """The box heard that its platform will take it back. Later events of this kind say what was done then."""

    kind = "preemption notice"
    source: str
    at: AwareDatetime
    """When the box heard it, by this computer's clock."""
    jobs: tuple[str, ...] = ()
    """The jobs that were asked to save."""
    ended: bool = False
    """Whether all these jobs have ended."""
    stored_files: int | None = None
    """How many files the box has copied to the store since then. None if it has no store, or has not copied any."""

    @field_serializer("at")
    def _as_stored(self, at: datetime) -> str:
        return at.isoformat()


class Recovered(Told):
    """The work of a lost box continues under another lease. This event also says what was lost of the work."""

    kind = "recovered"
    fate: Fate | None = None
    words: str | None = None
    jobs: tuple[str, ...] = ()
    restored_files: int | None = None
    restored_bytes: int | None = None
    checkpoint_at: AwareDatetime | None = None
    lost_s: float | None = None
    lost_usd: Decimal | None = None
    trust: str | None = Field(default=None, description="what its provider says of the new host")
    budget_usd: Decimal | None = Field(
        default=None, description="the budget that both leases divide from then on"
    )
    half: tuple[str, ...] = Field(
        default=(),
        description="newer checkpoints that are not whole, and why: no job resumes from them",
    )
    of: str | None = Field(default=None, alias="from")
    by: str | None = Field(default=None, alias="to")


class Absent(Told):
    """The provider did not list the box. Only ledgers of early versions have this."""

    kind = "absent"


# Its work


class Pushed(Told):
    """The work tree was pushed to the box."""

    kind = "pushed"
    files: int | None = None
    bytes: int | None = None
    tree: dict[str, JsonValue] | None = None
    left_out: dict[str, str] | None = None
    """The largest files and folders that stayed here, each with the reason."""


class Overwritten(Told):
    """A push replaced files that were saved nowhere else, because its caller named them. `files` has their sizes."""

    kind = "overwritten"
    files: dict[str, int] = Field(default={})


class LoggedIn(Told):
    """Somebody was given a way in, to work on the box by hand."""

    kind = "logged in"


class Executed(Told):
    """A command is about to run on the box, for a quick look."""

    kind = "executed"
    command: str


class SettingUp(Told):
    """The commands that set the box up are about to run, as the caretaker's job `job`."""

    kind = "setting up"
    job: str
    commands: tuple[str, ...]


class SetUp(Told):
    """The setup has ended. `filed` is how many of the files that it made were recorded."""

    kind = "set up"
    job: str
    state: str
    why: str | None = None
    filed: int = 0
    unfiled: str | None = None


class Preparing(Told):
    """A job is making an environment."""

    kind = "preparing"
    job: str


class Prepared(Told):
    """The result of making an environment: ready, done, or failed."""

    kind = "prepared"
    state: str
    job: str | None = None
    record: dict[str, JsonValue] | None = None


class Guarded(Told):
    """What the guard on the box will do, as far as this was tested."""

    kind = "guarded"
    armed: bool
    ends_the_meter: bool
    when_done: bool = False
    until: AwareDatetime | None = None
    """Until when it lets the jobs run. None in a line of an earlier version: until the deadline."""
    words: str


class StoppedByGuard(Told):
    """The guard on the box stopped it, for this term of the lease."""

    kind = "guard stop"
    term: Literal["deadline", "budget", "idle"]
    words: str


class Launched(Told):
    """One job was launched, or several cells of a sweep were launched together."""

    kind = "launched"
    job: str | None = None
    command: str | None = None
    sweep: str | None = None
    jobs: tuple[str, ...] | None = None
    box_time_s: float | None = None


class Together(Told):
    """One job was declared on several leases at once, under the same name on each."""

    kind = "gang"
    job: str
    launcher: str
    leases: tuple[str, ...]
    """In the order of their ranks: the first lease has rank 0."""
    command: str
    """The script with its arguments, as requested."""
    lines: tuple[str, ...]
    interface: str


class Progressed(Told):
    """The state in which a job was seen."""

    kind = "progress"
    job: str
    state: str | None = None
    fraction: float | None = None
    done: float | None = None
    total: float | None = None
    exit_code: int | None = None
    cause: str | None = None
    """Why it ended, in one of the words of `jobs/failure_cause.py`. None if it finished, or if nobody judged it."""
    evidence: str | None = None


class Tracked(Told):
    """Links to a tracker's pages were found in a job's log. If `links` is empty, the beginning of the log had none."""

    kind = "tracked"
    job: str
    links: tuple[str, ...] = ()


class Stopped(Told):
    """A job was asked to end, and killed after the grace period."""

    kind = "stopped"
    job: str
    term: str | None = None
    """The term of the lease that it was stopped for. None if somebody asked for it."""
    words: str | None = None


class JobEnded(Told):
    """A look showed for the first time that a job has ended. The job ended `ago_s` before that look."""

    kind = "job ended"
    job: str
    state: str | None = None
    ago_s: float | None = None
    why: str | None = None
    metric: str | None = None


class Lingers(Told):
    """A look showed for the first time that a job's command has ended and left processes running."""

    kind = "lingers"
    job: str


class AwaitsWork(Told):
    """More work is coming. Until the named time, the lease does not end because its work is done."""

    kind = "hold"
    until: AwareDatetime
    by: str | None = None

    @field_serializer("until")
    def _as_stored(self, until: datetime) -> str:
        return until.isoformat()


class Accepted(Told):
    """A person accepted what is wrong with a sweep."""

    kind = "accepted"
    sweep: str


class Done(Told):
    """The work is done. The lease is being ended for that reason, or this event says why it was not ended."""

    kind = "done"
    outcome: str | None = None
    words: str = ""
    why: str | None = None
    """Why its work counts as done. Older ledgers have this only in the words."""


class Snapped(Told):
    """Complete files were copied here while a job ran, or copies were deleted by the owner's policy."""

    kind = "snapshot"
    files: int = 0
    bytes: int = 0
    names: tuple[str, ...] = ()
    took_s: float | None = None
    saves: tuple[tuple[float, float, int], ...] = ()
    listed: str | None = Field(default=None, alias="list")
    pruned_here: tuple[str, ...] | None = None
    prunes_box: tuple[str, ...] | None = None
    pruned_on_box: tuple[str, ...] | None = None


class Claimed(Told):
    """Somebody said after the launch which unclaimed files must be kept, and which may be lost."""

    kind = "claimed"
    artifacts: tuple[str, ...] = ()
    discard: tuple[str, ...] = ()


class Sealed(Told):
    """The box was sealed."""

    kind = "sealed"
    digest: str
    files: int | None = None


class Collected(Told):
    """Everything that a seal lists is here."""

    kind = "collected"
    seal: str
    files: int | None = None
    bytes: int | None = None
    took_s: float | None = None


class Stored(Told):
    """Everything that a seal lists is in the store, except for `missing` files."""

    kind = "stored"
    store: str
    seal: str
    files: int | None = None
    bytes: int | None = None
    missing: int = 0


class Reread(Told):
    """What is kept was re-read from its storage, and equals the seal."""

    kind = "verified"
    digest: str


# Its end


class Refused(Told):
    """A teardown was refused."""

    kind = "refused"
    words: str
    lost: str = ""
    """What would have been lost, as the start of a sentence."""


class ReadAtStop(Told):
    """The whole box was read right before its stop, and it holds nothing that is not kept.

    `seal` is None if a look for a permit as *never used* found nothing on it. `last_change` is the newest start or
    stop that its provider reported after the stop. None if the provider keeps no record of them.
    """

    kind = "read at stop"
    seal: str | None
    last_change: str | None


class ReadInNotice(Told):
    """The whole box was read after its platform gave notice to take it, and it held nothing that is not kept.

    `started` is the newest start that its provider reported then.
    """

    kind = "read in notice"
    seal: str
    started: str


class Waived(Told):
    """A person signed for the loss of what could not be proved."""

    kind = "waived"
    by: str
    loss: str
    losses: tuple[str, ...] = ()


class WaivedAhead(Told):
    """A person signed ahead for the loss of what cannot be saved by the end."""

    kind = "waived ahead"
    by: str
    signature: str = "waived ahead"


class Ending(Told):
    """An attempt to end the lease began."""

    kind = "ending"
    term: str | None = None
    words: str | None = None


class Permitted(Told):
    """The box may be destroyed, on one ground."""

    kind = "permitted"
    ground: str
    seal: str | None = None
    signed_by: str | None = None
    loss: str | None = None
    signature: str | None = None


class Unseen(Told):
    """While nobody looked, the box may have cost less than is counted."""

    kind = "unseen"
    likely_less_usd: Decimal
    most_less_usd: Decimal
    words: str


class ClockOffset(Told):
    """This computer's clock is so far ahead of its provider's. `words` are there if it has jumped while the box billed.

    `too_much_usd` is by how much the jump makes the counted cost too high. It is negative if the cost is too low.
    """

    kind = "clock"
    ahead_s: float
    too_much_usd: Decimal | None = None
    words: str | None = None


class Destroyed(Told):
    """The provider was asked to destroy the box. `outcome` says how far that went."""

    kind = "destroy"
    outcome: str | None = None


class Attested(Told):
    """A person said that the box was ended in its console."""

    kind = "attested"
    by: str
    signature: str | None = None


class Receipted(Told):
    """The receipt was recorded."""

    kind = "receipt"
    ground: str | None = None


class Ended(Told):
    """The lease ended without a receipt."""

    kind = "ended"
    state: str


class CameBack(Told):
    """A lost box is listed again."""

    kind = "came back"


class Unread(Told):
    """A line that this version cannot read: its kind is newer, or it is damaged."""

    kind = ""
    was: str
    """The word under which the line is stored."""
    detail: dict[str, JsonValue]

    def as_stored(self) -> dict[str, JsonValue]:
        """Return what is stored, unchanged."""
        return self.detail


Event: TypeAlias = (
    Intended
    | Bound
    | Ready
    | Placed
    | Marking
    | Marked
    | Looked
    | TakesOver
    | Brokered
    | Parking
    | RunsOn
    | Parked
    | Resuming
    | Resumed
    | NewTerms
    | Labelled
    | Tested
    | Priced
    | Billed
    | Noticed
    | StoppedByGuard
    | Taken
    | Forewarned
    | Recovered
    | Absent
    | Pushed
    | Overwritten
    | LoggedIn
    | Executed
    | SettingUp
    | SetUp
    | Preparing
    | Prepared
    | Audited
    | Guarded
    | Launched
    | Together
    | Progressed
    | Tracked
    | Stopped
    | JobEnded
    | Lingers
    | AwaitsWork
    | Accepted
    | Done
    | Snapped
    | Claimed
    | Sealed
    | Collected
    | Stored
    | Reread
    | Refused
    | ReadAtStop
    | ReadInNotice
    | Waived
    | WaivedAhead
    | Ending
    | Permitted
    | Unseen
    | ClockOffset
    | Destroyed
    | Attested
    | Receipted
    | Ended
    | CameBack
    | Unread
)

KINDS: Mapping[str, type[Event]] = {
    each.kind: each for each in get_args(Event) if each is not Unread
}
"""The class of each kind, by the word under which the kind is stored."""


def kind_of(event: Event) -> str:
    """Return the word under which the event is stored."""
    return event.was if isinstance(event, Unread) else event.kind


class Line(NamedTuple):
    """One line of a lease's timeline."""

    at: datetime
    event: Event

    @property
    def kind(self) -> str:
        """The word under which the event is stored."""
        return kind_of(self.event)


Lines: TypeAlias = Sequence[Line]
"""A timeline, or the end of one, oldest first."""


WANTED = frozenset(
    each.kind
    for each in (AwaitsWork, Launched, Pushed, SettingUp, SetUp, Preparing, Prepared, Resumed)
)
"""The kinds which show that the box is wanted for more work."""


def event_of(kind: str, detail: dict[str, JsonValue]) -> Event:
    """Return the event that is stored under that word with these fields."""
    known = KINDS.get(kind)
    if known is not None:
        with suppress(ValidationError):
            return known.model_validate(detail)
    return Unread(was=kind, detail=detail)
