"""Which of a lease's artifacts are on this computer, by its newest collect and by the snapshots since."""

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
    """The artifacts of one lease that are on this computer. Each was proved by its hash when it came."""

    files: Mapping[str, str]
    """By kept name: the hash of the file, or the target of the link."""
    ended: frozenset[JobId] = frozenset()
    """The jobs that had ended when the box was sealed. Everything that they left is among the files."""
    lacking: frozenset[str] = frozenset()
    """What was on the box at the newest snapshot and is not here. Empty if no snapshot counts."""
    as_of: datetime | None = None
    """When that snapshot was taken. None if no snapshot counts."""
    more: Literal["may come", "never"] = "may come"
    """Whether the box can still be asked for what is not here."""


def files_here(lease: Lease, *, ledger: Ledger) -> Here:
    """List what came, by the record made when each file's hash was proved. Nothing is read again."""
    entries, here = _entries(lease, ledger)
    files = {entry.name: entry.sha256 or entry.target or "" for entry in entries.values()}
    more: Literal["may come", "never"] = "never" if lease.state is LeaseState.GONE else "may come"
    return Here(files, ended=here.ended, lacking=here.lacking, as_of=here.as_of, more=more)


def is_kept(lease: Lease) -> bool:
    """Whether the directory that keeps the lease's files, if there is one, can be read."""
    return lease.kept_in is None or Path(lease.kept_in).is_dir()


async def still_here(names: Collection[str], lease: Lease, *, ledger: Ledger) -> bool:
    """Whether each of those files is still here as it came. Each is re-read."""
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
        # Do not go by the newest seal: a collect that was cut short leaves a seal, but brought only
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
