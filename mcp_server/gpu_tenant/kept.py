"""What the copies on this computer prove of a seal: each is re-read from its storage, several at once."""

import asyncio
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from gpu_tenant.known import distrust
from gpu_tenant.loads import Stopped, prove
from gpu_tenant.model import Evidence, Lease, LocalAddress, SealedFile, Verdict
from gpu_tenant.paths import below, to_bytes
from gpu_tenant.record import Record
from gpu_tenant.store import is_reached, link_target

_AT_ONCE = min(os.cpu_count() or 1, 8)
"""Files re-read at the same time: each takes a core, and some megabytes of memory."""


class Loss(Record):
    """Something that would be gone for good if the box were destroyed now."""

    what: str
    remedy: str


async def reread_all(entries: Sequence[SealedFile], lease: Lease) -> Sequence[Evidence | Loss]:
    """What the kept copy of every entry proves, in the order of the entries.

    Raises:
        OSError: this computer's disk could not be read.
    """
    directory, stop = Path(lease.kept_in or ""), Event()
    found: dict[int, Evidence | Loss] = {}
    # The largest first, or the last one left would be read alone.
    waiting = iter(sorted(range(len(entries)), key=lambda i: -entries[i].size_bytes))

    async def reread_some() -> None:
        for i in waiting:
            try:
                found[i] = await asyncio.to_thread(reread, directory, entries[i], lease, stop)
            except BaseException:
                # The others end with their block; nobody waits for what they would prove.
                stop.set()
                raise
            if stop.is_set():
                return

    ended = await asyncio.gather(
        *(reread_some() for _ in range(min(_AT_ONCE, len(entries)))), return_exceptions=True
    )
    for failure in ended:
        if failure is not None and not isinstance(failure, Stopped):
            raise failure
    return [found[i] for i in range(len(entries))]


def reread(
    directory: Path, entry: SealedFile, lease: Lease, stop: Event | None = None
) -> Evidence | Loss:
    """What the kept copy of one entry proves, or what would be lost with the box.

    Raises:
        OSError: this computer's disk could not be read.
        Stopped: `stop` was set.
    """
    path = below(directory, entry.name)
    if is_on_the_box(path.parent, lease):
        return Loss(
            what=f"{entry.name} here is the box's own, and no copy",
            remedy=f"`gpu-tenant collect {lease.id} --to DIR` makes one that outlives the box",
        )
    again = f"`gpu-tenant collect {lease.id}` fetches it again"
    if not is_reached(directory, path):
        return Loss(what=f"{entry.name} is not here", remedy=again)
    if entry.kind == "link":
        target = link_target(path)
        if target is None:
            return Loss(what=f"{entry.name} is not here", remedy=again)
        if target != to_bytes(entry.target or ""):
            return Loss(what=f"{entry.name} points elsewhere here than on the box", remedy=again)
        verdict = Verdict(
            format="link", outcome="loads", proved=("points where it did on the box",)
        )
        return Evidence(name=entry.name, size_bytes=0, sha256="", verdict=verdict)
    held = prove(path, name=entry.name, sha256=entry.sha256, stop=stop)
    if held is None:
        what = "is not a regular file here" if _exists(path) else "is not here"
        return Loss(what=f"{entry.name} {what}", remedy=again)
    if held.size_bytes != entry.size_bytes:
        return Loss(
            what=f"{entry.name} has {held.size_bytes:,} bytes here and {entry.size_bytes:,} on the box",
            remedy=again,
        )
    if held.sha256 != entry.sha256:
        # Or a collect would find by its times that it is here, and fetch nothing.
        distrust(directory)
        return Loss(what=f"{entry.name} has other bytes here than on the box", remedy=again)
    return Evidence(
        name=entry.name, size_bytes=held.size_bytes, sha256=held.sha256, verdict=held.verdict
    )


def is_on_the_box(path: Path, lease: Lease) -> bool:
    """Whether `path`, wherever its links lead, would go with the box."""
    return isinstance(lease.address, LocalAddress) and path.resolve().is_relative_to(
        Path(lease.address.directory).resolve().parent
    )


def _exists(path: Path) -> bool:
    try:
        return stat.S_IFMT(path.lstat().st_mode) != 0
    except OSError:
        return False
