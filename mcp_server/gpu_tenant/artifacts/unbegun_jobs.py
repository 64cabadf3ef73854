"""Jobs whose launch was cut short before the box began them. Nobody waits for what they declared."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Job, JobId, LeaseId
from gpu_tenant.domain.seal import Manifest
from gpu_tenant.ledger import Ledger

_MAY_STILL_BEGIN = timedelta(minutes=2)
"""A job may still begin this long after it was declared: its start may be under way on the box, without its client."""


@dataclass(frozen=True, slots=True)
class UnbegunJobs:
    """The jobs of a lease that its box never began, and the patterns that nobody else declared."""

    jobs: tuple[JobId, ...]
    patterns: Collection[str]


def unconfirmed_jobs(lease_id: LeaseId, ledger: Ledger) -> list[Job]:
    """Return the declared jobs of which no answer says that the box started them.

    The box may have started one although its answer was lost.
    """
    cells = ledger.cell_jobs(lease_id)
    return [job for job in ledger.jobs(lease_id) if not job.launched_at and job.id not in cells]


def unbegun_jobs(seal: Manifest, lease_id: LeaseId, ledger: Ledger) -> UnbegunJobs:
    """The jobs that neither the ledger nor the box knows to have begun.

    A box that has started a job lists its log in every seal. If such a pattern matches something nevertheless, that
    is kept like any artifact. If it matches nothing, nothing is lost.
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
