"""Where on this computer a lease's files belong, whoever collects them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_tenant.artifacts.destination import claim_directory
from gpu_tenant.domain.errors import BadRequest, LocalTrouble, Refused
from gpu_tenant.domain.interruption import went_on
from gpu_tenant.domain.model import Lease

if TYPE_CHECKING:
    from gpu_tenant.artifacts.collect import Collected
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


async def copy_of_ended(context: Context, lease: Lease, to: str | None) -> Collected | None:
    """Copy what was kept of a lease that has ended to the directory `to`. None if it may still have a box, or none is named.

    Raises:
        Refused: there is no seal of it to prove a copy by; the remedy copies it without.
        BadRequest, LocalTrouble: as `copy_kept`.
    """
    if to is None or lease.state.live or lease.kept_in is None:
        return None
    seal, there = context.ledger.seal(lease.id), Path(to).expanduser().absolute()
    if seal is None:
        raise Refused(
            f"{lease.id} has ended without a seal, and what was kept of it is in {lease.kept_in} already",
            remedy=f"{copy_line(lease.kept_in, there)} puts it there",
        )
    from gpu_tenant.artifacts.kept_copy import copy_kept

    return await copy_kept(
        lease, seal, kept_in=Path(lease.kept_in), to=there, ledger=context.ledger
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
