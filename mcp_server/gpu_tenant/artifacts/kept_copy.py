"""Copies the kept files of an ended lease to another directory, and checks each copy against the seal."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from gpu_tenant.artifacts.collect import Collected, answer_of, superseded_words
from gpu_tenant.artifacts.destination import claim_directory
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.seal import Manifest, SealedFile
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.wording import some
from gpu_tenant.files.artifact_directory import (
    SUPERSEDED,
    Arrived,
    cannot_keep,
    is_here,
    land_all,
    partial_of,
)
from gpu_tenant.files.hash_cache import clone_file
from gpu_tenant.files.paths import below
from gpu_tenant.files.state_dir import require_room, reread
from gpu_tenant.ledger import Ledger

_AT_ONCE = 64


async def copy_kept(
    lease: Lease, seal: Manifest, *, kept_in: Path, to: Path, ledger: Ledger
) -> Collected:
    """Copy every sealed file that is kept in `kept_in` to `to`. Each copy is read back, and must equal the seal.

    If a later collect has replaced a file in `kept_in`, its older version is copied. A file in `to` that is in
    the way is moved to `.superseded/`, as by any collect. The files in `kept_in` are not changed.

    Raises:
        BadRequest: `to` is no suitable directory for a lease's files.
        LocalTrouble: files are no longer kept as they were sealed; all others were copied.
        DiskFull: there is no room.
    """
    to = await claim_directory(to, lease, ledger)
    aside = to / SUPERSEDED / f"{ledger.now():%Y%m%dT%H%M%S.%f}"
    try:
        copied, wrong = await asyncio.to_thread(_copy, lease, seal, kept_in, to, aside)
    except OSError as error:
        raise cannot_keep("what was kept", lease, error) from error
    if wrong:
        named = ", ".join(quote_text(entry.name) for entry in wrong[:3])
        raise LocalTrouble(
            f"{kept_in} does not have all of {lease.id} as it was sealed: {named} ({some(len(wrong), 'file')}); all else came to {to}",
            remedy=f"{Command('report', lease.id)} has the hash of each file that was kept",
        )
    told = answer_of(lease, seal, to, copied, ledger.declarations(lease.id)[1])
    words = await asyncio.to_thread(superseded_words, aside)
    return told.model_copy(update={"superseded": words, "next": str(Command("report", lease.id))})


def _copy(
    lease: Lease, seal: Manifest, kept_in: Path, to: Path, aside: Path
) -> tuple[list[SealedFile], list[SealedFile]]:
    """Return the entries that were copied, and the entries of which no whole copy is kept."""
    older = sorted((kept_in / SUPERSEDED).glob("*"), reverse=True)
    missing = [entry for entry in seal.entries if not is_here(to, entry)]
    require_room(
        to,
        sum(entry.size_bytes for entry in missing),
        files=len(missing),
        remedy=f"free some space, or choose another place: {Command('collect', lease.id, to='DIR')}",
    )
    copied: list[SealedFile] = []
    wrong: list[SealedFile] = []
    waiting: list[Arrived] = []
    for entry in missing:
        if entry.kind == "link":
            waiting.append((entry, None))
        elif (partial := _copied(entry, (kept_in, *older), to)) is not None:
            waiting.append((entry, partial))
        else:
            wrong.append(entry)
            continue
        copied.append(entry)
        if len(waiting) >= _AT_ONCE:
            land_all(waiting, to, lease, superseded=aside)
            waiting = []
    land_all(waiting, to, lease, superseded=aside)
    return copied, wrong


def _copied(entry: SealedFile, places: Sequence[Path], to: Path) -> Path | None:
    """Copy the entry from the first place that has its bytes. Returns the path of the copy. None if none has them."""
    partial = partial_of(to, entry)
    for place in places:
        partial.unlink(missing_ok=True)
        try:
            clone_file(below(place, entry.name), partial)
        except FileNotFoundError:
            continue
        held = reread(partial)
        if held is not None and (held.size_bytes, held.sha256) == (entry.size_bytes, entry.sha256):
            return partial
    partial.unlink(missing_ok=True)
    return None
