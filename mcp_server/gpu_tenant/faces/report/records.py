"""The types for the content of a report. They contain only facts, in the words of their sources."""

from decimal import Decimal

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.model import Declared, LeaseState
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.jobs.metrics import Series
from gpu_tenant.jobs.samples import Readings


class Charged(Record):
    """A period at one rate."""

    since: AwareDatetime
    until: AwareDatetime
    usd_h: Usd
    usd: Usd


class Cost(Record):
    """What the lease has cost, by our count and by its provider's. An unknown sum is None, never 0."""

    spent_usd: Usd = Field(description="the rates over their time; None: one of them is unknown")
    budget_usd: Usd
    max_price_usd_h: Usd
    rates: tuple[Charged, ...]
    parked_s: float
    counts: str = Field(description="what the sum includes, and who says so")
    not_counted: tuple[str, ...]
    billed_usd: Usd = Field(description="by its provider's own books; None: they do not say")
    billed_until: AwareDatetime | None
    billed_parts: dict[str, Decimal]
    billed_by: str | None
    difference: str | None = Field(description="how the two sums differ, if they do")


class JobTold(Declared):
    """A job as it was declared, its last known state, and its metrics by step."""

    last_seen: str | None = Field(description="its state and progress; None: nobody has looked")
    trackers: tuple[str, ...] = Field(
        default=(), description="pages of a tracker that its log names; the log may lie"
    )
    metrics: dict[str, Series]
    metrics_from: str = Field(description="which part of the log the metrics were read from")


class FileTold(Record):
    """A file of the seal, and what was proved by reading its copy."""

    name: str
    role: str
    kind: str
    size_bytes: int
    sha256: str | None
    where: str | None = Field(description="where the copy was re-read; None: nothing is proved")
    read_at: AwareDatetime | None = Field(description="when that was, by this computer's clock")
    format: str | None
    outcome: str | None
    proved: tuple[str, ...] = ()
    not_proved: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: str | None = None


class KeptFiles(Record):
    """The files that were sealed on the box, and how many of their copies here were proved."""

    digest: str
    sealed_at: AwareDatetime = Field(description="by the box's clock")
    verified_at: AwareDatetime | None
    kept_in: str | None
    total: int
    total_bytes: int
    proved: int
    files: tuple[FileTold, ...] = Field(description="broken and unproved ones first")
    left_out: int = Field(description="how many more files are in the ledger")
    unclaimed: int
    unclaimed_bytes: int
    discarded: tuple[tuple[str, int, int], ...] = Field(description="pattern, files, bytes")
    problems: tuple[str, ...]
    moved: tuple[str, ...] = Field(
        default=(), description="where what was proved lies now, if something else took its place"
    )


class GivenUp(Record):
    """Files that may be lost with the box, and who decided this."""

    at: AwareDatetime
    by: str
    what: tuple[str, ...]


class EventTold(Record):
    """An event of the timeline."""

    at: AwareDatetime
    kind: str
    words: str


class Environment(Record):
    """The environment that was made for the jobs."""

    python_version: str
    installer: str
    packages: tuple[str, ...] = Field(description="each with its version, as `pip freeze` names it")


class Report(Record):
    """All that was recorded about one lease at the time `made_at`."""

    lease: str
    made_at: AwareDatetime
    provider: str
    title: str = Field(description="the platform's own name")
    state: LeaseState
    is_over: bool
    standing: str = Field(description="its condition, in a sentence")
    to_do: str | None = Field(
        description="why a person is needed, and the next command; None: no person is needed"
    )
    result: str = Field(description="how its newest job ended, and its last metrics")
    proof: str = Field(description="what was proved of the files that were kept")
    box: str | None
    gpu: str | None
    machine: str | None = Field(
        description="its GPUs and driver as the last audit saw them; None: no audit was made"
    )
    environment: Environment | None = Field(
        description="None: none was made, and the jobs ran with the image's own"
    )
    created_at: AwareDatetime
    active_at: AwareDatetime | None
    ready_at: AwareDatetime | None
    ended_at: AwareDatetime | None
    deadline_at: AwareDatetime
    fleet: str | None
    recovers: str | None = Field(description="the lease whose work it continues")
    goes_on_under: str | None = Field(description="the lease that continues its work")
    terms: tuple[str, ...]
    if_this_computer_dies: str
    receipt: Receipt | None
    cost: Cost
    kept: KeptFiles | None = Field(description="None: nothing was ever sealed")
    given_up: tuple[GivenUp, ...]
    jobs: tuple[JobTold, ...] = Field(description="the newest last")
    jobs_left_out: int
    readings: Readings
    events: tuple[EventTold, ...]
