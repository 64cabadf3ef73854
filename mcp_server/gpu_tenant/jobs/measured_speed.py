"""How fast one command ran on the user's own leases, by the progress that the jobs reported."""

from statistics import median
from typing import NamedTuple

from gpu_tenant.domain import timeline
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.model import Lease, LeaseId
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.gpu_catalog import known_gpu

_LEAST_FRACTION, _LEAST_S = 0.02, 60
"""A pace is measured only over at least this much progress and this many seconds.

A job's first steps are its slowest.
"""


class MeasuredPace(NamedTuple):
    """The share of the whole work that was done in one hour on one kind of GPU."""

    share_h: float
    leases: tuple[str, ...]


def measured_paces(ledger: Ledger, like: LeaseId) -> dict[tuple[str, int], MeasuredPace]:
    """Return how fast the command of the newest job of the lease `like` ran, for each kind and number of GPUs.

    All leases that ran this command count. Of several, the median is taken.
    """
    jobs = ledger.jobs(like)
    if not jobs:
        return {}
    command = jobs[-1].command
    found: dict[tuple[str, int], list[tuple[float, str]]] = {}
    for lease in ledger.leases():
        for job in ledger.jobs(lease.id) if lease.quote is not None else ():
            share_h = _pace(ledger, lease, job.id) if job.command == command else None
            if share_h is not None:
                found.setdefault(gpus_of(lease), []).append((share_h, lease.id))
    return {
        gpus: MeasuredPace(median(share for share, _ in each), tuple(name for _, name in each))
        for gpus, each in found.items()
    }


def gpus_of(lease: Lease) -> tuple[str, int]:
    """Return the canonical name of the GPU that was rented by a quote, and the number of GPUs."""
    assert lease.quote is not None
    model = known_gpu(lease.quote.offer.gpu)
    return model.name if model else lease.quote.offer.gpu, lease.quote.offer.gpu_count


def _pace(ledger: Ledger, lease: Lease, job: str) -> float | None:
    """Return the share of the work that the job did in an hour. None if too little of it was seen to tell."""
    marks = [
        (at, event.fraction)
        for at, event in ledger.events(lease.id, timeline.Progressed)
        if isinstance(event, timeline.Progressed)
        and event.job == job
        and event.fraction is not None
        and event.state not in ENDED
    ]
    if len(marks) < 2:
        return None
    (began, first), (ended, last) = marks[0], marks[-1]
    took_s = (ended - began).total_seconds()
    if last - first < _LEAST_FRACTION or took_s < _LEAST_S:
        return None
    return (last - first) / took_s * 3600
