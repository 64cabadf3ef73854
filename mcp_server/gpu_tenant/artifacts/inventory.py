"""Which of a lease's artifacts are on this computer, according to its newest collect and any later snapshot."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from gpu_tenant.artifacts.checkpoints import read_list
from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import JobId, Lease, LeaseState
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.files.artifact_directory import is_here
from gpu_tenant.ledger import Ledger

_LOG = ".log"


@dataclass(frozen=True, slots=True)
class Here:
    """The artifacts of one lease that are on this computer. Each was checked by its hash when it came."""

    files: Mapping[str, str]
    """For each kept name, the hash of the file, or the target of the link."""
    ended: frozenset[JobId] = frozenset()
    """The jobs that had ended when the box was sealed. All the files that they left are in `files`."""
    lacking: frozenset[str] = frozenset()
    """The artifacts that the box had at the newest snapshot and that are not here. Empty if no snapshot counts."""
    as_of: datetime | None = None
    """When that snapshot was taken. None if no snapshot counts."""
    more: Literal["may come", "never"] = "may come"
    """Whether files that are not here may still come from the box."""


def files_here(lease: Lease, *, ledger: Ledger) -> Here:
    """List the artifacts that came, from the record made when each hash was checked. No file is read again."""
    entries, here = _entries(lease, ledger)
    files = {entry.name: entry.sha256 or entry.target or "" for entry in entries.values()}
    more: Literal["may come", "never"] = "never" if lease.state is LeaseState.GONE else "may come"
    return Here(files, ended=here.ended, lacking=here.lacking, as_of=here.as_of, more=more)


def is_kept(lease: Lease) -> bool:
    """Whether the lease's kept directory can be read. True if it has none."""
    return lease.kept_in is None or Path(lease.kept_in).is_dir()


async def still_here(names: Collection[str], lease: Lease, *, ledger: Ledger) -> bool:
    """Re-read each of those files. Returns whether all of them are still here as they came."""
    entries, _ = _entries(lease, ledger)
    directory = Path(lease.kept_in or "")

    def reread() -> bool:
        return all(is_here(directory, entries[name]) for name in names)

    return lease.kept_in is not None and await asyncio.to_thread(reread)


def _entries(lease: Lease, ledger: Ledger) -> tuple[dict[str, SealedFile], Here]:
    entries: dict[str, SealedFile] = {}
    newer = None
    for at, event in reversed(ledger.events(lease.id)):
        if isinstance(event, timeline.Snapped) and newer is None:
            listed = read_list(Path(lease.kept_in or ""), event)
            newer = (at, listed) if listed else None
        if not isinstance(event, timeline.Collected):
            continue
        # Do not use the newest seal: a collect that was cut short leaves a seal, but brought only
        # part of its files.
        if seal := ledger.seal(lease.id, digest=event.seal):
            entries = {entry.name: entry for entry in seal.entries}
        break
    ended = frozenset(
        JobId(entry.name.removeprefix("log/").removesuffix(_LOG))
        for entry in entries.values()
        if entry.role == "log"
    )
    artifacts = {name: entry for name, entry in entries.items() if entry.role == "artifact"}
    if newer is None or newer[1].lacking is None:
        return artifacts, Here({}, ended=ended)
    _, listed = newer
    since = {entry.name: entry for entry in listed.entries if entry.name not in listed.broken}
    return artifacts | since, Here(
        {}, ended=ended, lacking=frozenset(listed.lacking or ()), as_of=listed.taken_at
    )
