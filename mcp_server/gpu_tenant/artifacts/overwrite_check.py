"""Decides which files on a box a push may replace: those that are also saved elsewhere, or were given up by name."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path

from gpu_tenant.box.caretaker import KnownFile
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest, NotSaved
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.wording import some
from gpu_tenant.files.artifact_directory import SUPERSEDED
from gpu_tenant.files.paths import below
from gpu_tenant.files.patterns import matches_kept_name
from gpu_tenant.files.state_dir import reread
from gpu_tenant.ledger import Ledger

_NAMED = 5


async def may_replace(
    lease: Lease,
    there: Mapping[str, KnownFile],
    placed: Mapping[str, KnownFile],
    *,
    overwrite: Collection[str],
    ledger: Ledger,
) -> Mapping[str, str]:
    """Check that each file in `there` may be replaced. Returns for each the hash under which the box may replace it.

    For a name in `overwrite`, the hash is `*`: the file may be replaced whatever it contains.

    A file may be replaced in four cases: it is what was sent there; a copy of it is kept here; the owner has
    given it up; or `overwrite` names it. `placed` is the box's own record of what was sent. It is used only if
    the ledger's record may be incomplete, because files were sent before it was kept.

    Raises:
        NotSaved: one of the files may not be replaced. None was replaced.
    """
    sent, older = ledger.sent_versions(lease.id), ledger.sent_before(lease.id)
    kept, given_up = ledger.declarations(lease.id)
    lost = []
    for name, held in there.items():
        known = sent.get(name, ())
        was_placed = older and name in placed and placed[name].sha256 == held.sha256
        is_wanted = any(matches_kept_name(pattern, f"work/{name}") for pattern in kept)
        is_given_up = not is_wanted and any(matches_kept_name(p, f"work/{name}") for p in given_up)
        if (
            (held.size_bytes, held.sha256) in known
            or was_placed
            or is_given_up
            or name in overwrite
            or await asyncio.to_thread(is_kept, lease, f"work/{name}", held)
        ):
            continue
        lost.append(f"{plain(name)} ({some(held.size_bytes, 'byte')})")
    if lost:
        more = f", and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        raise NotSaved(
            "nothing was sent: these files were written on the box since they were pushed, and are saved nowhere else: "
            f"{', '.join(lost[:_NAMED])}{more}",
            remedy=f"{Command('collect', lease.id)} first, then push again; or name each file that may be lost: "
            f"{Option('overwrite', 'NAME')}",
        )
    return {name: "*" if name in overwrite else held.sha256 for name, held in there.items()}


def is_kept(lease: Lease, name: str, held: KnownFile) -> bool:
    """Whether a collected copy of the file is still here: in its place, or moved aside for a newer version."""
    if lease.kept_in is None:
        return False
    directory = Path(lease.kept_in)
    places: Sequence[Path] = sorted((directory / SUPERSEDED).glob("*"))
    try:
        copies = [below(place, name) for place in chain((directory,), places)]
    except ValueError:
        return False
    return any(_holds(copy, held) for copy in copies)


def _holds(copy: Path, held: KnownFile) -> bool:
    try:
        if copy.lstat().st_size != held.size_bytes:
            return False
        found = reread(copy)
    except OSError:
        return False
    return found is not None and found.sha256 == held.sha256


def require_named(overwrite: Sequence[str], names: Collection[str]) -> None:
    """Check that each name in `overwrite` is a file of the tree.

    Raises:
        BadRequest: a name is not a file of the tree.
    """
    unknown = next((name for name in overwrite if name not in names), None)
    if unknown is not None:
        raise BadRequest(
            f"the tree has no {unknown!r}, so nothing of that name would be overwritten",
            remedy="give the file's name in the tree, for example out/weights.bin",
        )
