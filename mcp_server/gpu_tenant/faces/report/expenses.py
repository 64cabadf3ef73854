"""Adds up what all leases have cost in a period, from this computer's records, for an expense claim."""

from datetime import datetime, timedelta
from decimal import Decimal

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.billing import BYTES, counted_usd, newest_bill
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.domain.terms import cost_usd
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.names import labels_of

NO_PROJECT = "no project"


class Expense(Record):
    """What one lease has cost in the period."""

    lease: str
    name: str = Field(description="what it is called")
    project: str | None
    title: str
    gpu: str | None
    state: LeaseState
    since: AwareDatetime = Field(description="the later of its box's beginning and the period's")
    until: AwareDatetime = Field(description="the earlier of its end and the period's")
    usd: Usd = Field(description="None: a rate is unknown")
    billed_usd: Usd = Field(
        description="by its provider's books, for the whole lease; None: they do not say, or it was "
        "not wholly in the period"
    )


class Expenses(Record):
    """What all leases have cost in a period."""

    since: AwareDatetime
    until: AwareDatetime
    made_at: AwareDatetime
    leases: tuple[Expense, ...] = Field(description="the oldest first")
    total_usd: Decimal = Field(description="the sum of all that is known")
    by_platform: dict[str, Decimal]
    by_project: dict[str, Decimal] = Field(description="empty: no lease has a project")
    unknown: tuple[str, ...] = Field(description="leases whose cost is unknown, and not in the sum")
    running: tuple[str, ...] = Field(description="leases that are not over, and may cost more")
    not_counted: str

    @property
    def last_day(self) -> datetime:
        """A time on the period's last day."""
        return self.until - timedelta(microseconds=1)


def expenses_of(context: Context, since: datetime, until: datetime) -> Expenses:
    """Add up what every lease has cost between these times. No box and no provider is asked."""
    now = context.clock.now()
    until = min(until, now)
    rows = [
        row
        for lease in context.ledger.leases_since(since)
        if (row := _expense(context, lease, since, until)) is not None
    ]
    free = {lease.lease for lease in rows if _is_free(context, lease)}
    by_platform: dict[str, Decimal] = {}
    by_project: dict[str, Decimal] = {}
    for row in rows:
        if row.usd is not None:
            project = row.project or NO_PROJECT
            by_platform[row.title] = by_platform.get(row.title, Decimal(0)) + row.usd
            by_project[project] = by_project.get(project, Decimal(0)) + row.usd
    return Expenses(
        since=since,
        until=until,
        made_at=now,
        leases=tuple(rows),
        total_usd=sum(by_platform.values(), Decimal(0)),
        by_platform=by_platform,
        by_project=by_project if set(by_project) - {NO_PROJECT} else {},
        unknown=tuple(row.lease for row in rows if row.usd is None and row.lease not in free),
        running=tuple(row.lease for row in rows if row.state.live),
        not_counted=f"{BYTES} moved by a lease that is not wholly in the period; taxes; and whatever "
        "bills in the account besides these boxes: volumes, addresses, snapshots",
    )


def _is_free(context: Context, row: Expense) -> bool:
    provider = context.ledger.lease(row.lease).provider
    return row.usd is None and context.profile(provider).kind == "own"


def _expense(context: Context, lease: Lease, since: datetime, until: datetime) -> Expense | None:
    """Return what the lease has cost in the period. None if it had no box then."""
    receipt = context.ledger.receipt(lease.id)
    # A box counts as billing until it was first seen to be gone.
    ended = receipt.first_absent_at if receipt else lease.ended_at
    began = lease.active_at
    if began is None or began >= until or (ended is not None and ended <= since):
        return None
    events = context.ledger.events(lease.id)
    bill, labels = newest_bill(events), labels_of(events, context.ledger.jobs(lease.id))
    whole = began >= since and (until if ended is None else ended) <= until
    usd = (
        counted_usd(lease, until, billed=bill, receipt=receipt)
        if whole
        else cost_usd(lease.rates, since=since, until=min(until, ended or until))
    )
    offer = lease.quote.offer if lease.quote else None
    return Expense(
        lease=lease.id,
        name=plain(labels.words),
        project=labels.project and plain(labels.project),
        title=context.profile(lease.provider).title,
        gpu=None if offer is None else f"{plain(offer.gpu)} x{offer.gpu_count}",
        state=lease.state,
        since=max(began, since),
        until=min(until, ended or until),
        usd=None if usd is None else usd.quantize(USD_STEP),
        billed_usd=bill.usd if bill and whole else None,
    )
