"""Jobs whose launch was cut short before the box began them. The artifacts that they declared will never come."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Job, JobId, LeaseId
from gpu_tenant.domain.seal import Manifest
from gpu_tenant.ledger import Ledger

_MAY_STILL_BEGIN = timedelta(minutes=2)
"""A job may still begin this long after it was declared: the box may be starting it although the client is gone."""


@dataclass(frozen=True, slots=True)
class UnbegunJobs:
    """The jobs of a lease that its box never began, and the artifact patterns that only these jobs declared."""

    jobs: tuple[JobId, ...]
    patterns: Collection[str]


def unconfirmed_jobs(lease_id: LeaseId, ledger: Ledger) -> list[Job]:
    """Return the declared jobs for which no answer of the box confirms the start.

    The box may have started such a job, and only its answer was lost.
    """
    cells = ledger.cell_jobs(lease_id)
    return [job for job in ledger.jobs(lease_id) if not job.launched_at and job.id not in cells]


def may_begin(seal: Manifest, lease_id: LeaseId, ledger: Ledger) -> list[JobId]:
    """Return the jobs that the box has not begun, and may begin at any moment: their launch was cut short just now."""
    names, now = {entry.name for entry in seal.entries}, ledger.now()
    return [
        job.id
        for job in unconfirmed_jobs(lease_id, ledger)
        if f"log/{job.id}.log" not in names and now - job.declared_at < _MAY_STILL_BEGIN
    ]


def unbegun_jobs(seal: Manifest, lease_id: LeaseId, ledger: Ledger) -> UnbegunJobs:
    """Find the jobs that never began, according to the ledger and to the box's seal.

    Every seal lists the logs of all jobs that the box has started. A returned pattern may match a file
    nevertheless; that file is kept like any artifact. If it matches nothing, nothing is lost.
    """
    names, now = {entry.name for entry in seal.entries}, ledger.now()
    unbegun = [
        job
        for job in unconfirmed_jobs(lease_id, ledger)
        if f"log/{job.id}.log" not in names and now - job.declared_at >= _MAY_STILL_BEGIN
    ]
    ids = {job.id for job in unbegun}
    wanted = {p for job in ledger.jobs(lease_id) if job.id not in ids for p in job.artifacts}
    for _, event in ledger.events(lease_id, timeline.Claimed):
        if isinstance(event, timeline.Claimed):
            wanted.update(event.artifacts)
    patterns = {p for job in unbegun for p in job.artifacts} - wanted
    return UnbegunJobs(tuple(job.id for job in unbegun), patterns)
