"""Where on this computer a lease's files belong, whoever collects them."""

import shlex
from pathlib import Path

from gpu_tenant.artifacts.destination import claim_directory
from gpu_tenant.domain.errors import BadRequest, LocalTrouble, Refused
from gpu_tenant.domain.interruption import went_on
from gpu_tenant.domain.model import Lease
from gpu_tenant.leases.context import Context


async def wanted_place(context: Context, lease: Lease) -> Path:
    """Return the directory for the lease's files, where nobody has named one for this collect.

    It is the one that was named for the lease's work: for its errand, or for the lease whose work it continues. If
    this process cannot write there, it is the lease's own. What was left on a box whose work went on elsewhere must not
    take the place of what came after it, so such a lease gets a directory of its own.
    """
    ledger, own = context.ledger, context.home.artifacts_of(lease.id)
    now_in = Path(lease.kept_in) if lease.kept_in is not None else own
    if went_on(ledger.events(lease.id)) is not None:
        is_shared = any(x.kept_in == lease.kept_in for x in ledger.leases() if x.id != lease.id)
        return own if lease.kept_in is None or is_shared else now_in
    if now_in != own:
        return now_in
    named = _named_for(context, lease)
    if named is None:
        return now_in
    try:
        return await claim_directory(named, lease, ledger)
    except (BadRequest, LocalTrouble):
        return now_in


def copy_line(kept_in: str | Path, to: str | Path) -> str:
    """Return the line of a shell that copies what was kept to another directory."""
    there = shlex.quote(str(to))
    return f"`mkdir -p {there} && cp -a {shlex.quote(str(kept_in))}/. {there}/`"


def must_have_a_box(lease: Lease, to: str | None) -> None:
    """Require, for a collect to a directory that was named, that the lease may still have a box.

    Raises:
        Refused: it has ended, and its files are on this computer already; the remedy copies them.
    """
    if to is None or lease.state.live or lease.kept_in is None:
        return
    raise Refused(
        f"{lease.id} has ended, and what was kept of it is in {lease.kept_in} already",
        remedy=f"{copy_line(lease.kept_in, Path(to).expanduser().absolute())} puts it there",
    )


def _named_for(context: Context, lease: Lease) -> Path | None:
    """Return the directory that somebody named for the lease's work. None if nobody did."""
    errand = context.ledger.errand_of(lease.id)
    if errand is not None and errand.to is not None:
        return Path(errand.to)
    if lease.recovers is None:
        return None
    before = context.ledger.lease(lease.recovers)
    if before.kept_in is not None and Path(before.kept_in) != context.home.artifacts_of(before.id):
        return Path(before.kept_in)
    return _named_for(context, before)
