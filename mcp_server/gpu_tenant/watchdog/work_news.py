"""Tells a person when a sweep, or the last box of a fleet, has ended.

The end of a single job is reported elsewhere, when the watchdog checks its lease.
"""

from datetime import timedelta
from decimal import Decimal

from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.errors import TenantError
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.wording import usd_words
from gpu_tenant.providers.credentials import read_table
from gpu_tenant.service import Tenancy
from gpu_tenant.sweeps.commands import reckoned_of
from gpu_tenant.sweeps.tend import is_open

NEWS = timedelta(minutes=5)
"""An end counts as news for this long."""
_NEWS_OF = ("sweep", "fleet", "wish")
"""The key of an alarm with such news begins with one of these words."""


def wants_news(tenancy: Tenancy) -> bool:
    """Whether the owner wants to hear of every job that ends.

    `jobs = "off"` below `[news]` in the configuration says no.
    """
    try:
        return read_table(tenancy.home.configuration, "news").get("jobs") != "off"
    except TenantError:
        return True


def tell_what_ended(tenancy: Tenancy) -> None:
    """Tell a person, once, of each sweep that is over and of each fleet whose last box has ended."""
    _end_old_news(tenancy)
    if not wants_news(tenancy):
        return
    ledger = tenancy.ledger
    for sweep_id in ledger.sweeps():
        if ledger.was_raised(f"sweep {sweep_id}"):
            continue
        if not is_open(tenancy.context, ledger.sweep(sweep_id)):
            leases = [ledger.lease(x) for x in ledger.leases_of_sweep(sweep_id)]
            if any(lease.state.live for lease in leases) or _ended_lately(tenancy, leases):
                table = reckoned_of(tenancy.context, sweep_id)
                wrong = f"; {table.wrong[0]}" if table.wrong and not table.settled_by else ""
                _tell(
                    tenancy,
                    f"sweep {sweep_id}",
                    f"the sweep {sweep_id} has ended: {table.words}{wrong}",
                    leases,
                )
    for fleet in ledger.fleets():
        if ledger.was_raised(f"fleet {fleet}"):
            continue
        leases = ledger.leases_of(fleet)
        if not any(lease.state.live for lease in leases) and _ended_lately(tenancy, leases):
            _tell(tenancy, f"fleet {fleet}", f"the fleet {fleet} has ended", leases)


def _end_old_news(tenancy: Tenancy) -> None:
    """Close the alarms about sweeps, fleets and wishes that are older than `NEWS`."""
    ledger, now = tenancy.ledger, tenancy.clock.now()
    for alarm in ledger.open_alarms():
        is_news = alarm.lease_id is None and alarm.key.partition(" ")[0] in _NEWS_OF
        if is_news and now - alarm.since > NEWS:
            ledger.end_alarm(alarm.key, lease_id=None, at=now)


def _ended_lately(tenancy: Tenancy, leases: list[Lease]) -> bool:
    now = tenancy.clock.now()
    return any(lease.ended_at is not None and now - lease.ended_at < NEWS for lease in leases)


def _tell(tenancy: Tenancy, key: str, words: str, leases: list[Lease]) -> None:
    now = tenancy.clock.now()
    costs = [tenancy.ledger.cost_usd(lease, now) for lease in leases]
    cost = None if None in costs else sum(filter(None, costs), Decimal(0))
    live = [lease.id for lease in leases if lease.state.live]
    said = [words, f"{usd_words(cost, 'an unknown sum')} so far"]
    said.append(f"{', '.join(live)} still bill" if live else "none of its boxes bills any more")
    tenancy.ledger.raise_alarm(key, "; ".join(said), level=Level.NOTICE, lease_id=None, at=now)
