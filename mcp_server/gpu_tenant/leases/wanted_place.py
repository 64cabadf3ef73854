"""Finds the directory on this computer for a lease's files."""

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
    """Return the directory for the lease's files, if nobody has named one for this collect.

    It is the directory that was named for the lease's work: for its errand (a `run` command), or for the lease whose
    work it continues. If this process cannot write there, it is the lease's own directory.

    If the lease's work went on elsewhere, its files must not replace newer ones. So such a lease gets a directory of
    its own.
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
    """Return the shell command that copies the kept files to another directory."""
    there = shlex.quote(str(to))
    return f"`mkdir -p {there} && cp -a {shlex.quote(str(kept_in))}/. {there}/`"


async def copy_of_ended(context: Context, lease: Lease, to: str | None) -> Collected | None:
    """Copy the kept files of an ended lease to the directory `to`. None if `to` is None, or if the lease has not ended.

    Raises:
        Refused: without a seal, the copy cannot be proved. The remedy is a command that copies without proof.
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
