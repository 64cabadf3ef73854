"""The nouns of a tenancy, as frozen records: box, lease, job, and what a platform is like."""

from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Literal, NewType

from pydantic import AwareDatetime, Field, field_validator

from gpu_tenant.domain.address import Address as Address
from gpu_tenant.domain.address import LocalAddress as LocalAddress
from gpu_tenant.domain.address import PodAddress as PodAddress
from gpu_tenant.domain.address import SlurmAddress as SlurmAddress
from gpu_tenant.domain.address import SshAddress as SshAddress
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.offers import USD_STEP, Quote, UsdH
from gpu_tenant.domain.record import Line, Record
from gpu_tenant.domain.sourced_fact import Fact
from gpu_tenant.domain.terms import Rate, Terms, cost_usd
from gpu_tenant.domain.untrusted_text import bare, quote_text

LeaseId = NewType("LeaseId", str)
BoxId = NewType("BoxId", str)
_LONGEST_NAME = 1000
JobId = NewType("JobId", str)

MARK_PREFIX = "gpu-tenant:"
"""Every box of ours carries `gpu-tenant:<deployment>:<lease id>` in the labels that its provider keeps."""


# --- the box ------------------------------------------------------------------------------------


class BoxState(StrEnum):
    """What a provider says about a box, in our words. `UNKNOWN` is a valid answer, and never means *gone*."""

    BOOTING = "booting"
    READY = "ready"
    STOPPING = "stopping"
    """It will be `PARKED`, or leave the list. The provider's own steps say which."""
    PARKED = "parked"
    BROKEN = "broken"
    UNKNOWN = "unknown"


Fate = Literal[
    "preempted", "outbid", "host_lost", "balance_zero", "walltime", "stopped_by_provider"
]
"""How a box was taken from us."""


class Box(Record):
    """A box as its provider last showed it."""

    provider: str
    id: BoxId
    mark: str | None = Field(
        description="our mark as the provider lists it; None: somebody else's box"
    )
    state: BoxState
    address: Address | None
    price_usd_h: UsdH = Field(
        description="what it costs now, as its provider says; None: unknown, which is not zero"
    )
    running_usd_h: UsdH = Field(
        default=None, description="what it will cost once it runs, if that differs"
    )
    booting_usd_h: UsdH = Field(
        default=None, description="what the box cost before it ran, if that differed"
    )
    interruptible: bool = False
    name: Line | None = Field(default=None, description="what its owner calls it at its provider")
    gpus: Line | None = Field(default=None, description="its GPUs, as its provider names them")
    words: Line | None = Field(
        default=None, description="what the provider says about it, if its state needs words"
    )
    taken: Fate | None = Field(
        default=None, description="what took the box from us, as its provider says"
    )
    rental_ends_at: AwareDatetime | None = Field(
        default=None, description="when its rental ends, as its provider says"
    )
    published: tuple[Line, ...] = Field(
        default=(),
        description="its ports that are open to the whole internet, with their addresses",
    )
    created_at: AwareDatetime | None = Field(
        default=None, description="when it was made, as its provider says; None: it does not say"
    )
    runs_since: AwareDatetime | None = Field(
        default=None, description="since when it runs, as its provider says; None: it does not say"
    )
    made_by_word_of: Literal["provider", "request"] = Field(
        default="provider",
        description="who says `created_at`; `request`: our own text, which a clone carries as well",
    )

    @field_validator("id")
    @classmethod
    def _plain_id(cls, said: str) -> BoxId:
        # An id that is not plain cannot be used in a request. The box still exists, so it is shown, quoted.
        return BoxId(said if _is_plain(said) else quote_text(said))

    @field_validator("mark")
    @classmethod
    def _plain_mark(cls, said: str | None) -> str | None:
        return said if said is None or _is_plain(said) else None  # we never wrote such a mark


def _is_plain(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and "\n" not in name and bare(name) == name


# --- the lease ----------------------------------------------------------------------------------


class LeaseState(StrEnum):
    """The state of a lease. A lease moves down this list only."""

    INTENDED = "intended"
    """Recorded. The box may or may not exist."""
    ACTIVE = "active"
    """The box is ours, and may be billing."""
    TERMINATING = "terminating"
    """A permit is recorded. The destroy was sent, or is about to be."""
    GONE = "gone"
    """A receipt is recorded: the provider's list has omitted the box twice."""
    VOID = "void"
    """The intent ended without a box: the provider's list has twice shown none with its mark."""
    LOST = "lost"
    """The provider's list has omitted the box twice, and we did not destroy it."""

    @property
    def live(self) -> bool:
        """Whether a box may exist, and bill, under this lease."""
        return self in (LeaseState.INTENDED, LeaseState.ACTIVE, LeaseState.TERMINATING)


class MountedVolume(Record):
    """One ordered volume on a box, as the first contact found it."""

    name: str
    path: str = Field(description="as it was ordered")
    at: str = Field(description="how a command on the box reaches it")


class WorkPlace(Record):
    """Where a lease's directory is on its box, and where its volumes are, as the first contact found it."""

    path: str = Field(description="as its profile names it; `~` is the login home")
    at: str | None = Field(
        default=None, description="how a command on the box reaches it; None: the login home"
    )
    why: Line | None = Field(
        default=None, description="why it is the home, where the platform has a better place"
    )
    volumes: tuple[MountedVolume, ...] = ()


class Lease(Record):
    """Our record of one tenancy, from intent to proof of end."""

    id: LeaseId
    mark: str = Field(description="the name, label or tag that its box carries at its provider")
    provider: str
    state: LeaseState
    terms: Terms
    quote: Quote | None = Field(description="what was to be rented, and the highest price for it")
    box_id: BoxId | None
    address: Address | None
    price_usd_h: Decimal | None = Field(description="the rate now; None is unknown")
    rates: tuple[Rate, ...] = Field(description="every change of the rate, oldest first")
    created_at: AwareDatetime
    active_at: AwareDatetime | None
    ready_at: AwareDatetime | None = Field(description="when the box first let us in")
    parked_at: AwareDatetime | None = Field(
        description="since when it is parked; None: it is not parked"
    )
    ended_at: AwareDatetime | None
    touched_at: AwareDatetime | None = Field(
        description="written before the first push, launch or login; None: not used by this ledger"
    )
    rental_ends_at: AwareDatetime | None = Field(
        default=None,
        description="when its provider said that the box's rental ends, if sooner than its offer",
    )
    kept_in: str | None = Field(description="the directory here that collect fills")
    place: WorkPlace | None = Field(
        default=None,
        description="where its directory is on the box; None: the first contact settles that",
    )
    recovers: LeaseId | None = Field(default=None, description="the lease whose work it continues")
    fleet: str | None = Field(default=None, description="the name of all leases of one request")
    fleet_size: int | None = Field(default=None, description="how many boxes that request is for")

    @property
    def scripts_directory(self) -> str:
        """The directory on the box where our scripts and the leases' directories are.

        A relative path is relative to the login home.
        """
        at = self.place.at if self.place else None
        return f"{at}/gpu-tenant" if at else "gpu-tenant"

    @property
    def directory(self) -> str:
        """The lease's directory on the box. A relative path is relative to the login home."""
        return f"{self.scripts_directory}/{self.id}"

    @property
    def work_directory(self) -> str:
        """The directory where pushed files are stored and jobs run."""
        return f"{self.directory}/work"

    def from_work(self, at: str) -> str:
        """Return a path on the box in the form that a pattern would use: relative if it is in the work directory."""
        # The box names a file by its real path, which may differ from the path that we use.
        _, inside, rest = at.partition(f"/gpu-tenant/{self.id}/work/")
        return rest if inside else at

    @property
    def goes_by_address(self) -> bool:
        """Whether a person named the box by its address: the id has an `@`, which no provider's id has."""
        return self.box_id is not None and "@" in self.box_id

    @property
    def caretaker_home(self) -> str:
        """The directory where the caretaker keeps its records and the job logs."""
        return f"{self.directory}/caretaker"

    @property
    def was_taken_over(self) -> bool:
        """Whether the box was in use before the lease. Its files may be older than our records, and count as well."""
        return self.touched_at is not None and self.touched_at == self.created_at

    @property
    def lets_us_in(self) -> bool:
        """Whether the box has let us in, and has not been stopped since."""
        return self.ready_at is not None and self.parked_at is None

    def cost_usd(self, now: datetime) -> Decimal | None:
        """Return what the box has cost so far. None if the price is unknown."""
        spent = cost_usd(self.rates, since=None, until=min(self.ended_at or now, now))
        return None if spent is None else spent.quantize(USD_STEP)


class Declared(Record):
    """One detached command as it was declared. Values of `env` are never recorded."""

    id: JobId
    command: str
    artifacts: tuple[str, ...]
    discard: tuple[str, ...]
    env_names: tuple[str, ...]
    declared_at: AwareDatetime
    launched_at: AwareDatetime | None


class Job(Declared):
    """A declared command on the box of a lease."""

    lease_id: LeaseId
    env_from: tuple[str, ...] = Field(default=(), description="NAME=reference, without values")
    max_runtime_s: float | None
    stalled_after_s: float | None = Field(
        default=None, description="it is stopped once it has written nothing for so long"
    )


# --- what a platform is like --------------------------------------------------------------------


class CredentialPlace(Record):
    """Where a provider's key is looked for when the owner's configuration names no other place."""

    env: tuple[str, ...]
    file: str | None = None


class Console(Record):
    """What a person has to do by hand, word for word, because there is no API for it."""

    where: str
    rent: str | None = None
    address: str | None = None
    park: str | None = None
    resume: str | None = None
    destroy: str
    bootstrap: str | None = None


class Place(Record):
    """A path that the platform documents, and what it may hold."""

    path: str
    name: str | None = Field(default=None, description="what the disk is, if its path does not say")
    inode_cap: int | None = None
    emptied_after_h: float | None = Field(
        default=None, description="a stop keeps it for so long, and not longer"
    )
    survives: dict[str, str] = Field(description="by event: yes, no, unknown, n/a")


class Profile(Record):
    """The facts of `profiles/<slug>.md` that decide what the program does."""

    id: str
    title: str
    kind: Literal["container", "vm", "marketplace", "scheduler", "kubernetes", "notebook", "own"]
    lease: Literal["created", "adopted", "either", "none"] = Field(
        description="who makes its boxes: this program, or a person who names one; none: no box"
    )
    console: Console | None = Field(description="what a person does by hand, word for word")
    python: str | None = Field(description="the interpreter that the image's frameworks are in")
    price_source: Literal["api", "table", "owner"]
    credential: CredentialPlace | None = Field(description="where its key is looked for")
    states: dict[str, BoxState] = Field(
        description="which state each of the provider's words for a box means"
    )
    boot_timeout_s: float = Field(
        description="a box that is not ready after this time is given back"
    )
    list_lag_s: float = Field(description="how long a box may exist before the provider lists it")
    confirm_s: float = Field(description="how far apart two looks must be to prove a box gone")
    park: Literal["keeps", "wipes", "none"] = Field(
        description="keeps: everything on disk; wipes: not everything, so a used box only if all that counts is kept"
    )
    parked_for_h: float | None = Field(
        default=None,
        description="a box that is stopped for so long in a row is deleted with its disk; None: no such limit "
        "is known",
    )
    park_how: Literal["api", "in_box", "owner"]
    park_command: str | None = Field(description="in_box: what stops the GPU meter on the box")
    interruption: str | None = Field(description="how the platform takes a box back, in a sentence")
    notice_s: float | None = Field(
        default=None,
        description="how long before taking a box the platform gives notice; None: unknown, or it takes no "
        "box",
    )
    notice_at_metadata: bool = Field(
        default=False, description="whether the box's metadata server gives that notice"
    )
    destroy: Literal["deletes", "hands_back"]
    accounted_paths: tuple[str, ...] = Field(
        description="where destroy loses bytes written since launch, besides the work directory"
    )
    places: tuple[Place, ...] = Field(description="the paths that the platform documents")
    volume: Place | None = Field(
        default=None,
        description="a disk rented by itself that takes the place of a path's own disk, and has another fate",
    )
    work_places: tuple[str, ...] = Field(
        default=(), description="where a lease's directory goes, best first; else the login home"
    )
    doubts: tuple[str, ...] = Field(
        description="facts about billing and survival that nobody has confirmed, in words"
    )
    checked_on: date
    outlived: tuple[str, ...] = Field(
        default=(),
        description="the facts that are too old to be believed by now; they are unknown in the fields above",
    )
    mirror_needed: bool
    speed_up: str | None = Field(
        description="what a shell on the box sources to reach foreign sites"
    )
    stops: str = Field(description="the verb that ends the bill, in the platform's words")
    stops_the_meter: str = Field(
        description="what ends the bill if this computer dies, in a sentence"
    )
    provider_timer: Literal["none", "stop", "delete"] = Field(
        description="what the platform's own timer does, if it has one that can be trusted"
    )
    in_box: Literal["none", "api_key", "poweroff"] = Field(
        description="what a guard on the box can use to end the bill"
    )
    trap: str = Field(description="the one thing that surprises people here")
    facts: tuple[Fact, ...] = Field(default=(), description="each with its source")
    runbook: str = Field(description="the body, for a person")

    def console_words(self, verb: Literal["rent", "address", "park", "resume", "destroy"]) -> str:
        """Return where a person has to go and what to do there, in one sentence."""
        if self.console is None:
            return f"see {Command('profiles', self.id)}"
        return f"in {self.console.where}: {getattr(self.console, verb) or 'see its runbook'}"
