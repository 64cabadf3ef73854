"""Checks whether a job may have written files that nobody declared. A watchdog does not end a box with such files."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import TenantError

if TYPE_CHECKING:
    from gpu_tenant.domain.model import Lease
    from gpu_tenant.domain.seal import Unclaimed
    from gpu_tenant.domain.timeline import Lines
    from gpu_tenant.leases.context import Context

_LOOK_S = 20.0
"""A look at the box's files may take this many seconds."""


def is_sealed_since(events: Lines) -> bool:
    """Whether the box was sealed after its newest launch. If so, everything that its jobs wrote is recorded."""
    told = [event for _, event in events if isinstance(event, timeline.Launched | timeline.Sealed)]
    return bool(told) and isinstance(told[-1], timeline.Sealed)


def what_may_be_open(context: Context, lease: Lease) -> str:
    """Say what may keep a watchdog from ending the box, judged by the ledger. Empty if all written files are known.

    A file that the smoke test wrote and nobody declared is named. Otherwise the words name the command that looks at
    the box's files.
    """
    if is_sealed_since(context.ledger.events(lease.id, timeline.Launched, timeline.Sealed)):
        return ""
    if context.ledger.newest_smoke() is not None and (tested := _of_smoke(context, lease)):
        return tested
    return f"{Command('collect', lease.id)} shows what nobody has declared"


def _of_smoke(context: Context, lease: Lease) -> str | None:
    from gpu_tenant.artifacts.push import pushed_trees
    from gpu_tenant.jobs.smoke import unclaimed_output

    ledger = context.ledger
    for tree in pushed_trees(ledger, lease.id)[-1:]:
        kept, given_up = ledger.declarations(lease.id)
        return unclaimed_output(lease.id, tree.directory, kept, given_up, ledger=ledger)
    return None


async def unclaimed_on_box(context: Context, lease: Lease) -> Unclaimed | None:
    """Look at the box, and list the files that nobody has claimed. Nothing is changed. None if the look failed."""
    from gpu_tenant.box.manifest import reseal

    try:
        async with asyncio.timeout(_LOOK_S):
            draft = await reseal(
                context.session(lease), ledger=context.ledger, hashes="recalled", running="listed"
            )
    except (TenantError, TimeoutError):
        return None  # a look at a job must not fail because of this
    return draft.unclaimed
