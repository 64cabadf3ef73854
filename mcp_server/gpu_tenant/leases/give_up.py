"""Who may give up files that exist nowhere else: before a job runs, anybody; afterwards, a person by name."""

from collections.abc import Sequence
from functools import partial

from gpu_tenant.artifacts.given_up import OnlyCopy, given_up_by
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.wording import some
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.speaker import speaker


def names_to_give_up(
    context: Context, lease: Lease, patterns: Sequence[str], only: Sequence[OnlyCopy]
) -> tuple[str, ...]:
    """Return the patterns to put on record, when `patterns` would give up these files for good.

    A pattern that covers such a file is replaced by the names of the files, so that it gives up nothing that comes
    later. Whoever typed these very names at a terminal has said so already. Anybody else needs a signature.

    Raises:
        SignatureWanted: no person has signed for exactly these files.
    """
    if not only or speaker.get() == "program":
        return tuple(patterns)
    narrow = [pattern for pattern in patterns if not any(map(partial(_covers, pattern), only))]
    names = tuple(dict.fromkeys((*narrow, *(copy.pattern for copy in only))))
    if speaker.get() == "person" and {*names} == {*patterns}:
        return names
    code = context.ledger.must_be_signed(
        kind="discard",
        subject=lease.id,
        would=f"giving up {some(len(only), 'file')} of {lease.id} that exist nowhere else",
        words=[copy.words for copy in only],
        at=context.clock.now(),
    )
    context.ledger.use_signature(code, at=context.clock.now())
    return names


async def must_give_up_nothing(
    context: Context, lease: Lease, discard: Sequence[str], artifacts: Sequence[str]
) -> None:
    """Require that a new job's declaration gives up no only copy of what an earlier job wrote.

    Raises:
        SignatureWanted: it would, and no person has signed for these files.
    """
    if not discard or not context.ledger.jobs(lease.id) or speaker.get() == "program":
        return
    only = await given_up_by(
        context.session(lease),
        discard,
        ledger=context.ledger,
        artifacts=artifacts,
        running="listed",
    )
    names_to_give_up(context, lease, discard, only)


def _covers(pattern: str, copy: OnlyCopy) -> bool:
    return copy.is_covered_by(pattern)
