"""Lists or seals the files that are on a box now, by all the declarations that the ledger has for its lease."""

from collections.abc import Sequence
from typing import Literal

from gpu_tenant.box.ownership import home_was_emptied, since_ns
from gpu_tenant.box.seal_request import seal_facts
from gpu_tenant.box.session import Session
from gpu_tenant.box.setup import settle_setup
from gpu_tenant.domain.seal import Manifest
from gpu_tenant.domain.survival import accounted_paths
from gpu_tenant.ledger import Ledger


async def reseal(
    session: Session,
    *,
    ledger: Ledger,
    artifacts: Sequence[str] = (),
    discard: Sequence[str] = (),
    hashes: Literal["taken", "recalled"] = "taken",
    running: Literal["refused", "listed"] = "refused",
    named: int = 20,
    unread_bytes: int | None = None,
    outlives: Sequence[str] | None = None,
    bring_bytes: int | None = None,
) -> Manifest:
    """Seal the box by all declarations: those of its jobs, the owner's later ones, and the patterns given here.

    With `hashes="recalled"`, or with running jobs listed, the result is a draft. `unread_bytes` comes from an
    earlier draft, and `outlives` are the paths that outlive a stop: see `Caretaker.manifest`. With `bring_bytes=None`,
    as much of what nobody has claimed comes home as at the newest seal. So two seals of the same files are equal.

    Raises:
        JobRunning: a job, or a process that it left behind, still runs.
    """
    lease = session.lease
    # Record the files that a setup made before anything is sealed.
    await settle_setup(session, ledger=ledger)
    kept, given_up = ledger.declarations(lease.id)
    return await session.caretaker.manifest(
        accounted=accounted_paths(session.profile, lease),
        artifacts=[*kept, *artifacts],
        discard=[*given_up, *discard],
        since="ever" if lease.was_taken_over else "launch",
        rented_ns=since_ns(session, ledger),
        hashes=hashes,
        running=running,
        named=named,
        told=seal_facts(session, ledger).request(),
        unread_bytes=unread_bytes,
        kept=outlives,
        bring_bytes=ledger.bring_bytes(lease) if bring_bytes is None else bring_bytes,
        home="emptied" if home_was_emptied(session, ledger) else "as it was",
    )


def unread_bytes(draft: Manifest) -> int:
    """Return how many bytes a seal must still read after this draft."""
    return draft.pushed.size_bytes + sum(
        entry.size_bytes for entry in draft.entries if entry.sha256 is None
    )
