"""What a shell completes on a command line: leases, quotes, platforms and jobs, from what is on record here.

Nothing is asked, created or changed, and a completion that fails completes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    import click

    from gpu_tenant.ledger import Ledger

    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_VARIABLE = "_GPU_TENANT_COMPLETE"
"""In this variable, the script says which form of answer it wants. click gives it its name."""
_ENDED = 20
"""So many ended leases are offered, the newest."""


@contextmanager
def _ledger() -> Iterator[Ledger | None]:
    """Open the ledger, if there is one."""
    from gpu_tenant.files.state_dir import Home

    at = Home.of(os.environ).ledger
    if not at.exists():
        yield None
        return
    from gpu_tenant.ledger import Ledger

    ledger = Ledger(at)
    try:
        yield ledger
    finally:
        ledger.close()


def _complete(found: Callable[[click.Context, Ledger], Iterable[tuple[str, str]]]) -> Complete:
    """Make a completion of what `found` yields: pairs of a word and its help."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            with _ledger() as ledger:
                pairs = list(found(ctx, ledger)) if ledger else []
        except Exception:  # noqa: BLE001 - in the middle of typing, an error message helps nobody
            return []
        return [
            CompletionItem(word, help=words) for word, words in pairs if word.startswith(incomplete)
        ]

    return complete


@_complete
def leases(_: click.Context, ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Complete live leases and fleets, then the newest ended leases."""
    live = [lease for lease in ledger.leases() if lease.state.live]
    yield from ((lease.id, f"{lease.provider}, {lease.state}") for lease in live)
    yield from ((fleet, "a fleet") for fleet in {lease.fleet for lease in live if lease.fleet})
    for lease in ledger.newest_ended(limit=_ENDED):
        yield lease.id, f"{lease.provider}, ended"


@_complete
def quotes(_: click.Context, ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Complete the quotes that still hold."""
    for quote in ledger.valid_quotes(ledger.now()):
        offer = quote.offer
        yield quote.id, f"{offer.gpu_count} x {offer.gpu}, {offer.provider}"


@_complete
def jobs(ctx: click.Context, ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Complete the jobs of the lease that was named, or else of every live lease."""
    named = ctx.params.get("lease") or ctx.meta.get("lease")
    live = [lease.id for lease in ledger.leases() if lease.state.live]
    for lease_id in [ledger.lease(named).id] if named else live:
        yield from ((job.id, lease_id) for job in ledger.jobs(lease_id))


def platforms(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the platforms that have a profile."""
    from gpu_tenant.files.skill_files import skill_directory

    names = sorted(page.stem for page in (skill_directory() / "profiles").glob("*.md"))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def script(shell: str) -> str:
    """Return the script by which that shell asks this program."""
    from gpu_tenant.faces.cli import group

    asks = get_completion_class(shell)
    assert asks is not None
    completion = asks(group, {}, "gpu-tenant", _VARIABLE)
    return completion.source_template % completion.source_vars()
