"""Says what the work of several boxes has cost in all, and where the files of each box are."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.wording import some, usd_words
from gpu_tenant.files.artifact_directory import SUPERSEDED
from gpu_tenant.leases.recovery_plan import gone_on
from gpu_tenant.ledger import Ledger


def leases_of_work(ledger: Ledger, lease: Lease) -> list[Lease]:
    """Return the leases under which that lease's work was done, oldest first."""
    while (later := gone_on(ledger, lease)) is not None:
        lease = later
    return ledger.lineage(lease)[::-1]


def whole_work_words(ledger: Ledger, leases: Sequence[Lease]) -> str | None:
    """Say what the leases of one work have cost in all, and where the files of the earlier leases are.

    None if only one of them had a box.
    """
    had = [lease for lease in leases if lease.active_at is not None]
    if len(had) < 2:
        return None
    now = ledger.now()
    costs = {lease.id: ledger.cost_usd(lease, now) for lease in had}
    known = [usd for usd in costs.values() if usd is not None]
    least = "" if len(known) == len(had) else "at least "
    each = ", ".join(f"{name} {usd_words(usd)}" for name, usd in costs.items())
    told = [f"{least}{usd_words(sum(known, Decimal(0)))} on {some(len(had), 'box')} in all: {each}"]
    return "; ".join([*told, *_earlier_files(had)])


def _earlier_files(leases: Sequence[Lease]) -> list[str]:
    """For each lease except the last, say where its files are on this computer."""
    last, told = leases[-1], list[str]()
    for lease in leases[:-1]:
        if lease.kept_in is None:
            continue
        if lease.kept_in == last.kept_in:
            aside = Path(lease.kept_in) / SUPERSEDED
            told.append(f"files from {lease.id} that {last.id} replaced are in {aside}")
        else:
            told.append(f"files from {lease.id} are in {lease.kept_in}")
    return told
