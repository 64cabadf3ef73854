"""Boxes that their provider takes while a job runs on them."""

import asyncio
from pathlib import Path
from typing import Any

from arranged import Alone
from e2e.renting import Tenant
from errands import a_tree
from sshd import wait_until

from gpu_tenant.artifacts.snapshot import Snapshot, snapshot
from gpu_tenant.domain.model import Lease
from gpu_tenant.service import Tenancy


async def checkpointed(tenancy: Tenancy, lease: Lease) -> Snapshot:
    """What came home of the running job's files, at once and however lately they were written."""
    return await snapshot(
        tenancy.context.session(lease),
        directory=tenancy.home.artifacts_of(lease.id),
        ledger=tenancy.ledger,
        turn=Alone(),
        quiet_s=0,
    )


async def outbid(
    tenant: Tenant,
    tree: Path,
    command: str,
    *,
    quote: str | None = None,
    wrote: str | None = None,
    is_saved: bool = False,
    wakes_in_s: float | None = None,
    **asked: Any,
) -> str:
    """A lease whose interruptible box was outbid while its job ran, and stays so, or wakes after some seconds.

    It is outbid once its job wrote that file of its work directory, and once that came home if it is saved.
    """
    if quote is None:
        quote = (await tenant.quotes(hours=2, interruptible="yes"))[0]
    card = await tenant.tenancy.provision(smoke="none", quotes=[quote], wait_s=3600, **asked)
    await tenant.tenancy.push(card.lease, str(a_tree(tree)))
    await tenant.tenancy.launch_detached(card.lease, command, ["out/"], name="train")
    lease = tenant.lease(card.lease)
    if wrote is not None:
        at = tenant.home_of(str(lease.box_id)) / lease.work_directory / wrote
        await asyncio.to_thread(wait_until, at.exists)
    if is_saved:
        await checkpointed(tenant.tenancy, lease)
    wakes = {} if wakes_in_s is None else {"seconds": wakes_in_s}
    tenant.fault("outbid", box=card.box, **wakes)
    await tenant.tenancy.list_leases()
    return card.lease
