"""What the copies on this computer prove about a seal. Each copy is re-read from its disk, several at the same time."""

import asyncio
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Literal

from pydantic import Field

from gpu_tenant.artifacts.formats import Proof, ReadRequest, Stopped, prove_all
from gpu_tenant.artifacts.stores.locality import store_doubt, whereabouts_of
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.evidence import Evidence, Verdict
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.wording import some
from gpu_tenant.files.artifact_directory import is_on_the_box
from gpu_tenant.files.hash_cache import distrust
from gpu_tenant.files.paths import below, to_bytes
from gpu_tenant.files.state_dir import is_reached, link_target

_AT_ONCE = min(os.cpu_count() or 1, 8)
"""This many files are re-read at the same time. Each takes one core and a few megabytes of memory."""
_MOST_TOGETHER = 100
_MOST_BYTES_TOGETHER = 1 << 20
"""Small files are sent to a reader in batches of about this size."""


_UNASKED = Verdict(
    format="undeclared",
    outcome="opaque",
    not_proved=("kept although nobody declared it, and proved by its hash alone",),
)


class Loss(Record):
    """Something that would be gone for good if the box were destroyed now."""

    what: str
    remedy: str
    names: tuple[str, ...] = Field(default=(), description="everything that would be lost, by name")
    versions: tuple[str, ...] = Field(
        default=(),
        description="what tells the content of each file from any other content of its name and size",
    )
    so_far: tuple[str, ...] = Field(
        default=(),
        description="the names of what a job that still runs had written at that moment",
    )


async def reread_all(entries: Sequence[SealedFile], lease: Lease) -> Sequence[Evidence | Loss]:
    """Re-read the kept copy of every entry. Returns what each copy proves, in the order of the entries.

    Raises:
        OSError: this computer's disk could not be read.
    """
    directory, stop = Path(lease.kept_in or ""), Event()
    # Check this again now: since the collect, the directory may have been replaced by a link, or mounted over.
    doubt = await store_doubt(await asyncio.to_thread(whereabouts_of, directory), lease)
    if doubt is not None:
        return [
            Loss(
                what=f"{entry.name} here may not outlive the box or this computer: {doubt.words}",
                remedy=f"{Command('collect', lease.id, to='DIR')}, on a disk of this computer",
            )
            for entry in entries
        ]
    found: dict[int, Evidence | Loss] = {}
    # Begin with the largest files. Otherwise the largest might start last and be read alone at the end.
    order = sorted(range(len(entries)), key=lambda i: -entries[i].size_bytes)
    waiting = iter(list(_together(order, entries)))

    async def reread_some() -> None:
        for group in waiting:
            try:
                proved = await asyncio.to_thread(
                    reread_several, directory, [entries[i] for i in group], lease, stop
                )
            except BaseException:
                # After one failure, stop the other reads, because their results are no longer needed.
                stop.set()
                raise
            found.update(zip(group, proved, strict=True))
            if stop.is_set():
                return

    ended = await asyncio.gather(
        *(reread_some() for _ in range(min(_AT_ONCE, len(entries)))), return_exceptions=True
    )
    for failure in ended:
        if failure is not None and not isinstance(failure, Stopped):
            raise failure
    return [found[i] for i in range(len(entries))]


def _together(order: Sequence[int], entries: Sequence[SealedFile]) -> Iterator[Sequence[int]]:
    """Group the indices, in that order. Small entries share a group, because each group costs a switch of threads."""
    some: list[int] = []
    size_bytes = 0
    for i in order:
        if some and (len(some) == _MOST_TOGETHER or size_bytes > _MOST_BYTES_TOGETHER):
            yield some
            some, size_bytes = [], 0
        some.append(i)
        size_bytes += entries[i].size_bytes
    if some:
        yield some


def reread(
    directory: Path, entry: SealedFile, lease: Lease, stop: Event | None = None
) -> Evidence | Loss:
    """Re-read the kept copy of one entry. Returns what it proves, or what would be lost with the box.

    Raises:
        OSError: this computer's disk could not be read.
        Stopped: `stop` was set.
    """
    return reread_several(directory, [entry], lease, stop)[0]


def reread_several(
    directory: Path, entries: Sequence[SealedFile], lease: Lease, stop: Event | None = None
) -> Sequence[Evidence | Loss]:
    """Do the same as `reread` for each of the entries, and return the results in their order."""
    paths = [below(directory, entry.name) for entry in entries]
    ways = _ways_to(directory, paths, lease)
    looked = [
        _looked_at(path, entry, lease, way)
        for path, entry, way in zip(paths, entries, ways, strict=True)
    ]
    files = [
        ReadRequest(path, entry.name, entry.size_bytes, entry.sha256)
        for path, entry, seen in zip(paths, entries, looked, strict=True)
        if seen is None
    ]
    proofs = iter(prove_all(files, stop=stop))
    return [
        _compare(directory, entry, lease, next(proofs)) if seen is None else seen
        for entry, seen in zip(entries, looked, strict=True)
    ]


Way = Literal["on the box", "broken", "sound"]
"""Where a copy's directory is: on the box itself; missing or behind a link ("broken"); or in our place ("sound")."""


def _ways_to(directory: Path, paths: Sequence[Path], lease: Lease) -> Iterator[Way]:
    """Yield for each copy where its directory is. Each directory is examined only once."""
    known: dict[Path, Way] = {}
    for path in paths:
        if path.parent not in known:
            known[path.parent] = _way_to(directory, path, lease)
        yield known[path.parent]


def _way_to(directory: Path, path: Path, lease: Lease) -> Way:
    if is_on_the_box(path.parent, lease):
        return "on the box"
    return "sound" if is_reached(directory, path) else "broken"


def _looked_at(path: Path, entry: SealedFile, lease: Lease, way: Way) -> Evidence | Loss | None:
    """Judge the copy of an entry without reading it. None if the file must be read."""
    if way == "on the box":
        return Loss(
            what=f"{quote_text(entry.name)} on this computer is the box's own file, and not a copy",
            remedy=f"{Command('collect', lease.id, to='DIR')} makes a copy that outlives the box",
        )
    if way == "broken":
        return Loss(what=f"{quote_text(entry.name)} is not here", remedy=_again(lease))
    if entry.kind == "link":
        again = _again(lease)
        target = link_target(path)
        if target is None:
            return Loss(what=f"{quote_text(entry.name)} is not here", remedy=again)
        if target != to_bytes(entry.target or ""):
            return Loss(
                what=f"{quote_text(entry.name)} points elsewhere here than on the box", remedy=again
            )
        verdict = Verdict(
            format="link", outcome="loads", proved=("points where it did on the box",)
        )
        return Evidence(name=entry.name, size_bytes=0, sha256="", verdict=verdict)
    return None


def _compare(
    directory: Path, entry: SealedFile, lease: Lease, held: Proof | None
) -> Evidence | Loss:
    """Return what a copy proves. `held` is the result of reading it; None if there was no regular file to read."""
    if held is None:
        is_there = _exists(below(directory, entry.name))
        what = "is not a regular file here" if is_there else "is not here"
        return Loss(what=f"{quote_text(entry.name)} {what}", remedy=_again(lease))
    if held.size_bytes != entry.size_bytes:
        return Loss(
            what=f"{quote_text(entry.name)} has {some(held.size_bytes, 'byte')} here and {entry.size_bytes:,} on the box",
            remedy=_again(lease),
        )
    if held.sha256 != entry.sha256:
        # Otherwise the next collect would trust the file's times, take it for a good copy, and fetch nothing.
        distrust(directory)
        return Loss(
            what=f"{quote_text(entry.name)} has other bytes here than on the box",
            remedy=_again(lease),
        )
    # Nobody asked for this file, so nobody waits for a sound one: its bytes are all that has to be kept.
    verdict = _UNASKED if entry.role == "unasked" else held.verdict
    return Evidence(
        name=entry.name, size_bytes=held.size_bytes, sha256=held.sha256, verdict=verdict
    )


def _again(lease: Lease) -> str:
    return f"{Command('collect', lease.id)} fetches the file again"


def _exists(path: Path) -> bool:
    try:
        return stat.S_IFMT(path.lstat().st_mode) != 0
    except OSError:
        return False
