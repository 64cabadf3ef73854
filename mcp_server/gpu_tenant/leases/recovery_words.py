"""Says from which checkpoint the work of a taken box continues, and what it leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_tenant.artifacts.push import pushed_trees
from gpu_tenant.domain import timeline
from gpu_tenant.domain.interruption import is_being_taken, recorded_fate
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.reconcile import rate_words
from gpu_tenant.domain.rental import rental_ends_at
from gpu_tenant.domain.wording import some
from gpu_tenant.leases.taken_step import end_step, known_unclaimed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from gpu_tenant.artifacts.checkpoints import Restorable
    from gpu_tenant.domain.model import Lease
    from gpu_tenant.domain.policy import LookedAfter
    from gpu_tenant.ledger import Ledger


def recovery_words(
    ledger: Ledger, lost: Lease, kept: Restorable | None, looked_after: LookedAfter
) -> str:
    """Say from which checkpoint the lease's work will continue, and what stays behind on its box."""
    taken_at = kept.taken_at if kept else None
    files = len(kept.files) if kept else 0
    half = kept.half if kept else ()
    begins = _begins_words(ledger, lost, taken_at, files, looked_after, half)
    runs = lost.state is LeaseState.ACTIVE and lost.parked_at is None
    if runs and is_being_taken(ledger.events(lost.id), ledger.now()):
        # Its platform has given notice. While the box answers, a newer checkpoint is fetched before the work goes on.
        begins = f"the work of {lost.id} goes on from its newest checkpoint, which is fetched first while its box answers"
        begins += (
            "; none is here yet"
            if taken_at is None
            else f"; what is here so far is of {taken_at:%Y-%m-%d %H:%M:%S} UTC ({some(files, 'file')})"
        )
    return "; ".join(filter(None, (begins, left_words(ledger, lost))))


def recovered_words(ledger: Ledger, new: Lease, looked_after: LookedAfter) -> str:
    """Say from which checkpoint this lease continued another lease's work, and what the work left behind.

    Empty if it continues no other lease's work.
    """
    for _, event in ledger.events(new.id, timeline.Recovered):
        if isinstance(event, timeline.Recovered) and event.of is not None:
            lost = ledger.lease(event.of)
            files = event.restored_files or 0
            begins = _begins_words(
                ledger, lost, event.checkpoint_at, files, looked_after, event.half
            )
            left = left_words(ledger, lost) if lost.state.live else None
            return "; ".join(filter(None, (begins, box_words(new), left)))
    return ""


def tree_words(ledger: Ledger, lease: Lease) -> str | None:
    """Say that the pushed files must not be changed here, because they may have to be pushed again.

    None if the lease's terms do not allow its work to continue elsewhere, or if nothing was pushed.
    """
    trees = pushed_trees(ledger, lease.id) if lease.terms.recover else []
    if not trees:
        return None
    named = " and ".join(tree.directory for tree in trees)
    return f"leave {named} as it is while the job runs: if the box is taken, these files are pushed again, and must be unchanged"


def box_words(new: Lease) -> str:
    """Describe the box on which the work continues: the trust in its host, its price, and when its rental ends."""
    offer = new.quote.offer if new.quote else None
    trust, price = (offer.trust, offer.price.running_usd_h) if offer else (None, None)
    host = (
        f"its provider calls the host {trust}"
        if trust
        else "it is unknown how far the host can be trusted"
    )
    ends_at = rental_ends_at(new)
    cost = "an unknown price" if price is None else f"{price} USD/h"
    end = "no end of the rental is known"
    if ends_at is not None:
        end = f"the rental ends at {ends_at:%Y-%m-%d %H:%M} UTC"
    return f"on {new.id}: {host}, it is rented at {cost}, and {end}"


def ends_early_words(lease: Lease, wanted_until: datetime) -> str | None:
    """Warn that the box's rental ends before that deadline. None if it does not, or if this is unknown."""
    ends_at = rental_ends_at(lease)
    if ends_at is None or ends_at >= wanted_until:
        return None
    return (
        f"the rental of its box ends at {ends_at:%Y-%m-%d %H:%M} UTC, before its deadline at {wanted_until:%H:%M} UTC, and "
        "nothing that lasts longer could be had within its terms"
    )


def _begins_words(
    ledger: Ledger,
    lost: Lease,
    taken_at: datetime | None,
    files: int,
    looked_after: LookedAfter,
    half: Sequence[str],
) -> str:
    goes_on = f"the work of {lost.id} goes on"
    if taken_at is not None:
        words = f"{goes_on} from the checkpoint of {taken_at:%Y-%m-%d %H:%M:%S} UTC ({some(files, 'file')})"
        if half:
            words += f"; not from what is newer: {half[0]}"
        if lost.kept_in is None:
            return f"{words}; only checkpoints are put back"
        return (
            f"{words}; only checkpoints are put back, and its earlier files are in {lost.kept_in}"
        )
    came = (timeline.Snapped, timeline.Collected)
    if not any(ledger.events(lease.id, *came) for lease in ledger.lineage(lost)):
        why = "nothing was snapshotted, because no watchdog brought a checkpoint home while it ran"
        if looked_after == "watched":
            why = "its box was taken before the first snapshot"
    else:
        why = "no checkpoint of it that came home is whole and loads"
    return f"{goes_on} from the start: {why}"


def left_words(ledger: Ledger, lost: Lease) -> str | None:
    """Say what stays behind on the box of a lease whose work goes on elsewhere. None if the lease has ended."""
    events = ledger.events(lost.id)
    if lost.state is LeaseState.LOST:
        return "files that only its box had are lost with it"
    if not lost.state.live:
        return None
    step = end_step(lost, events, ledger.now(), known_unclaimed(ledger, lost))
    if recorded_fate(events) == "host_lost":
        return f"files that only its box had are lost with its host: {step}"
    return f"{lost.id} still has on its disk what its jobs wrote after that, and bills {rate_words(lost)} until it is ended: {step}"
