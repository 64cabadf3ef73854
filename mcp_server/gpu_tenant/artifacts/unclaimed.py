"""The files on a box that nobody has claimed: their names, patterns for them, and the commands that decide on them."""

import os
from collections.abc import Sequence

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.seal import Unclaimed
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.wording import in_words
from gpu_tenant.files.patterns import literal_pattern, matches_kept_name
from gpu_tenant.ledger import Ledger

NAMED = 5
"""An answer names this many unclaimed files."""


def unclaimed_now(ledger: Ledger, lease: Lease) -> Unclaimed | None:
    """Return the files that nobody has claimed, as far as is known: by the newest seal, without those declared since.

    None if no such file is known by name. If there are very many, the box names only the largest.
    """
    sealed = ledger.unclaimed(lease.id)
    if sealed is None:
        return None
    declared = [pattern for each in ledger.declarations(lease.id) for pattern in each]
    left = tuple(x for x in sealed.largest if not _is_declared(lease.from_work(x.at), declared))
    claimed = [x for x in sealed.largest if x not in left]
    count = sealed.count - len(claimed)
    if not left:
        return None
    size = max(0, sealed.size_bytes - sum(x.size_bytes for x in claimed))
    return sealed.model_copy(update={"count": count, "size_bytes": size, "largest": left})


def _is_declared(at: str, patterns: Sequence[str]) -> bool:
    name = f"root{at}" if at.startswith("/") else f"work/{at}"
    return any(matches_kept_name(pattern, name) for pattern in patterns)


def unclaimed_patterns(lease: Lease, unclaimed: Unclaimed) -> list[str]:
    """Return patterns for the unclaimed files, either to keep them or to give them up."""
    return _patterns_of([lease.from_work(path.at) for path in unclaimed.largest], unclaimed.count)


def unclaimed_words(lease: Lease, unclaimed: Unclaimed, *, first: Command | None = None) -> str:
    """Name the unclaimed files, and the commands that keep or give them up. `first` is the command to start the box."""
    told = unclaimed_names(lease, unclaimed)
    what = (
        f"1 file is unclaimed, so the box is not torn down: {told}"
        if unclaimed.count == 1
        else f"{unclaimed.count:,} files are unclaimed, so the box is not torn down: {told}"
    )
    if first is None:
        return f"{what}; {claim_words(lease, unclaimed)}"
    keeps, gives_up = _claims(lease, unclaimed)
    if unclaimed.count == 1:
        return f"{what}; its box is stopped: {first}, then {keeps} keeps it, or {gives_up} gives it up, if the person signs"
    return f"{what}; its box is stopped: {first}, then {keeps} keeps them, or {gives_up} gives them up, if the person signs"


def unclaimed_names(lease: Lease, unclaimed: Unclaimed) -> str:
    """Name the largest of the unclaimed files, and say how many more there are."""
    names = [quote_text(lease.from_work(path.at)) for path in unclaimed.largest]
    return in_words(names, unclaimed.count)


def claim_words(lease: Lease, unclaimed: Unclaimed) -> str:
    """Return two commands for the unclaimed files: one that keeps them, and one that gives them up."""
    keeps, gives_up = _claims(lease, unclaimed)
    if unclaimed.count == 1:
        return f"{keeps} keeps it; {gives_up} gives it up, if the person signs"
    return f"{keeps} keeps them; {gives_up} gives them up, if the person signs"


def _claims(lease: Lease, unclaimed: Unclaimed) -> tuple[Command, Command]:
    patterns = unclaimed_patterns(lease, unclaimed)
    return (
        Command("collect", lease.id, artifact=patterns),
        Command("collect", lease.id, discard=patterns),
    )


def _patterns_of(named: Sequence[str], count: int) -> list[str]:
    """Return patterns for the first few files. If many files share a directory, return a pattern for the directory."""
    if count <= NAMED:
        return [literal_pattern(at) for at in named[:NAMED]]
    shared = os.path.commonpath(named) if len({at.startswith("/") for at in named}) == 1 else ""
    if shared.strip("/") and shared not in named:
        return [f"{literal_pattern(shared)}/"]
    return [literal_pattern(at) for at in named[:NAMED]]
