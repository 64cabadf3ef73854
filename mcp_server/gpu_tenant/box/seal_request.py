"""The facts that we send to the caretaker for a seal.

They come from our own records, because a job can change the records on the box.
"""

from pydantic import JsonValue

from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.seal import Problem
from gpu_tenant.domain.survival import mounted_volumes, reached_path
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.wording import some
from gpu_tenant.files.patterns import no_pattern, too_wide
from gpu_tenant.ledger import Ledger


class SealFacts(Record):
    """Facts that the caretaker uses in place of the records on its box."""

    pushed: dict[str, list[tuple[int, str]]]
    """The files that were sent to the box, by name: the size and the hash of each version."""
    older: bool
    """Whether files were sent before we kept such records. If so, the box's own record counts as well."""
    since_ns: int | None
    ours: list[str]
    """The hashes of the scripts that we may have put on the box."""
    alone: bool
    """Whether only this lease uses the machine."""
    demanded: list[str]
    """The artifacts that must appear. If one did not, it may be anywhere on the box's disks."""
    late: bool
    """Whether somebody else than a job, such as a person with a login, may have written anywhere on the box."""
    outliving: list[str]
    """The directories that outlive the box, as a command on it reaches them."""

    def request(self) -> dict[str, JsonValue]:
        """Return the facts in the form that the caretaker takes."""
        return self.model_dump(mode="json", exclude_none=True)


def seal_facts(session: Session, ledger: Ledger) -> SealFacts:
    """Collect the facts about the lease's box from the ledger."""
    lease, profile = session.lease, session.profile
    return SealFacts(
        pushed=ledger.sent_versions(lease.id),
        older=ledger.sent_before(lease.id),
        since_ns=ledger.since_ns(lease.id),
        ours=ledger.scripts(),
        # The nodes and home directories of a scheduler are shared with other allocations.
        alone=profile.destroy == "deletes" and profile.kind != "scheduler",
        demanded=sorted(ledger.demanded_patterns(lease.id)),
        late=bool(ledger.events(lease.id, timeline.LoggedIn, timeline.Executed)),
        outliving=[
            *(volume.path for volume in mounted_volumes(lease)),
            *(
                reached_path(place.path, lease.place)
                for place in profile.places
                if place.survives.get("destroy") == "yes"
            ),
        ],
    )


def overwritten(ledger: Ledger, lease: Lease) -> tuple[str, ...]:
    """Return the files that pushes have replaced because the owner allowed it, each with its size, in words."""
    return tuple(
        f"{name} ({some(size, 'byte')}), overwritten by a push"
        for _, event in ledger.events(lease.id)
        if isinstance(event, timeline.Overwritten)
        for name, size in event.files.items()
    )


def as_refusal(problem: Problem) -> BadRequest:
    """Make the error for a pattern that the box does not accept."""
    if problem.why == "wide_pattern":
        what = plain(problem.detail).removeprefix("it gives up ").removesuffix(", unseen")
        return too_wide(plain(problem.at), what)
    return no_pattern(plain(problem.at), plain(problem.detail))
