"""Finds the link to a job's page at an experiment tracker (such as Weights & Biases), in the job's log."""

from typing import Literal

from gpu_tenant.box.caretaker import JobStatus
from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import JobId, LeaseId
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.trackers import first_links, tracker_links
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.ledger import Ledger

_HEAD_BYTES = 65_536
"""This many bytes at the beginning of a log are searched for links: a tracker prints its link when a job begins."""


def known_trackers(events: Lines, job: str) -> tuple[str, ...]:
    """Return the links that have been found and recorded so far."""
    return first_links(
        link
        for _, event in events
        if isinstance(event, timeline.Tracked) and event.job == job
        for link in event.links
    )


async def trackers_of(
    session: Session, job: JobId, text: str, *, reaches: Literal["head", "tail"], ledger: Ledger
) -> tuple[str, ...]:
    """Return the links to the job's trackers, and record those that are new.

    `text` is the part of the log that was read. If it is the `tail`, the beginning of the log is read as well, but only
    once per job.
    """
    lease = session.lease.id
    known = known_trackers(ledger.events(lease, timeline.Tracked), job)
    found = tracker_links(text)
    if reaches == "tail" and not _is_head_read(ledger, lease, job):
        head = await session.caretaker.status(job, offset=0, limit=_HEAD_BYTES, sample="plain")
        found = (*_links_in(head), *found)
        ledger.note(lease, timeline.Tracked(job=job, links=found), at=ledger.now())
    elif first_links((*known, *found)) != known:
        ledger.note(lease, timeline.Tracked(job=job, links=found), at=ledger.now())
    return first_links((*known, *found))


def _links_in(head: JobStatus) -> tuple[str, ...]:
    return tracker_links(plain(head.log.raw.decode("utf-8", "replace"))) if head.log else ()


def _is_head_read(ledger: Ledger, lease: LeaseId, job: str) -> bool:
    return any(
        isinstance(event, timeline.Tracked) and event.job == job
        for _, event in ledger.events(lease, timeline.Tracked)
    )
