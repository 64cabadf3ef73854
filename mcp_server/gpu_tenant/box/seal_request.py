"""What our own records tell the caretaker for a seal, because a job can change the records on the box."""

from pydantic import JsonValue

from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import Lease, Problem
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.files.patterns import no_pattern, too_wide
from gpu_tenant.ledger import Ledger


class Told(Record):
    """What the caretaker believes, whatever is on its box."""

    pushed: dict[str, list[tuple[int, str]]]
    """Each version of each file that was sent there, by name: size and hash."""
    older: bool
    """Whether some files were sent before we kept such records. Then the box's own record counts, too."""
    since_ns: int | None
    ours: list[str]
    """The hashes of the scripts that we may have put there."""
    alone: bool
    """Whether nobody but the lease is at work on that machine."""

    def request(self) -> dict[str, JsonValue]:
        """The same in the form that the caretaker takes."""
        return self.model_dump(mode="json", exclude_none=True)


def told(session: Session, ledger: Ledger) -> Told:
    """What is on record about the lease's box."""
    lease, profile = session.lease, session.profile
    return Told(
        pushed=ledger.sent(lease.id),
        older=ledger.sent_before(lease.id),
        since_ns=ledger.since_ns(lease.id),
        ours=ledger.scripts(),
        # Other allocations share a scheduler's nodes and homes.
        alone=profile.destroy == "deletes" and profile.kind != "scheduler",
    )


def overwritten(ledger: Ledger, lease: Lease) -> tuple[str, ...]:
    """The files that pushes have replaced because their owner said so, each with its size."""
    return tuple(
        f"{name} ({size:,} bytes), overwritten by a push"
        for _, event in ledger.events(lease.id)
        if isinstance(event, timeline.Overwritten)
        for name, size in event.files.items()
    )


def as_refusal(problem: Problem) -> BadRequest:
    """The error for a pattern that the box does not accept."""
    if problem.why == "wide_pattern":
        what = plain(problem.detail).removeprefix("it gives up ").removesuffix(", unseen")
        return too_wide(plain(problem.at), what)
    return no_pattern(plain(problem.at), plain(problem.detail))
