"""Copies complete artifacts to this computer while jobs run, and records the newest from which a job can resume."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

from pydantic import Field

from gpu_tenant.artifacts.checkpoint_interval import saves_of
from gpu_tenant.artifacts.checkpoints import CheckpointList, put_list
from gpu_tenant.artifacts.destination import claim_directory
from gpu_tenant.artifacts.formats import inspect
from gpu_tenant.artifacts.half_checkpoints import files_without_the_rest
from gpu_tenant.artifacts.prune import (
    ARRIVES,
    QUIET_S,
    SHARE,
    Complete,
    Pruned,
    alone,
    last_list,
    look,
    tidy,
)
from gpu_tenant.artifacts.retention import Retention, surplus
from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.domain.wording import some
from gpu_tenant.files.artifact_directory import (
    SUPERSEDED,
    cannot_keep,
    is_here,
    land,
    partial_of,
)
from gpu_tenant.files.paths import below
from gpu_tenant.files.state_dir import is_reached
from gpu_tenant.ledger import Ledger
from gpu_tenant.transfer.bandwidth_share import LowPriorityShare
from gpu_tenant.transfer.chunks import Coming
from gpu_tenant.transfer.download import carry_files
from gpu_tenant.transfer.partial_file import discard, forget, names_of
from gpu_tenant.transfer.readback import Arrived
from gpu_tenant.transfer.shared_state import BandwidthTurn

_LIMIT_BYTES = 16 << 30
"""The box reads at most this many bytes for one snapshot, the newest files first."""
_LIMIT_S = 900
_RESERVE_BYTES = 1 << 30
"""This many bytes stay free on this computer. A full disk would stop everything, above all the ledger."""
_NAMED, _SAVES = 5, 40
_LEFT = 5000


class Snapshot(Record):
    """What a look at a running box brought home. It is no seal, and does not prove that nothing else is on the box."""

    lease: str
    directory: str
    files: int
    size_bytes: int
    names: tuple[str, ...]
    left_out: int = Field(description="how many complete files are left for the next look")
    to_come_bytes: int = Field(
        default=0, description="bytes of artifacts that only the box has so far, as far as it says"
    )
    unfinished_files: int = 0
    unfinished: tuple[str, ...] = Field(
        default=(),
        description="files that are still being written, and the other files of the same checkpoint",
    )
    broken: tuple[str, ...]
    no_room: tuple[str, ...]
    not_wanted: tuple[str, ...] = Field(
        default=(), description="older checkpoints that the owner's policy leaves on the box"
    )
    pruned: Pruned = Pruned()
    running: tuple[str, ...] = ()
    pace: str = Field(
        default="", description="the limit on how much of the box's CPU and disk the snapshot uses"
    )
    proves: str = "nothing about the rest of the box; a snapshot is never a reason to destroy a box"
    next: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """Sentences for a person about what the snapshot did. Empty if there is nothing to tell."""
        said = []
        if self.files:
            more = (
                f" and {self.files - len(self.names)} more" if self.files > len(self.names) else ""
            )
            said.append(
                f"{', '.join(self.names)}{more} came home ({some(self.size_bytes, 'byte')})"
            )
        if self.broken:
            said.append(f"{self.broken[0]} does not load, so no job resumes from it")
        if self.no_room:
            said.append(
                f"no room in {self.directory} for {some(len(self.no_room), 'file')}, such as {self.no_room[0]}"
            )
        if self.pruned.here:
            said.append(f"removed from this computer by its policy: {', '.join(self.pruned.here)}")
        if self.pruned.on_the_box:
            said.append(
                f"removed from the box, and kept only here: {', '.join(self.pruned.on_the_box)}"
            )
        return tuple(said)


async def snapshot(
    session: Session,
    *,
    directory: Path,
    ledger: Ledger,
    turn: BandwidthTurn,
    quiet_s: float = QUIET_S,
    policy: Retention | None = None,
    done: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Snapshot:
    """Fetch every complete artifact that is missing here. Keep it if its hash is right and it loads. Jobs keep running.

    The caretaker's verb `complete` decides which files are complete, by two looks that are `quiet_s` seconds
    apart. `done` lists the names of files that jobs write last. On the box, a snapshot uses at most `SHARE` of
    one core and of the disk. `turn` limits its use of the link. Checkpoints that the `policy` does not keep are
    not fetched.

    A file that changed or vanished meanwhile is left for the next snapshot. A file here that a newer version
    replaces is moved to `.superseded/`. The two newest versions of each name that came with snapshots are kept
    there. Older ones are deleted, because a job that saves in place would otherwise fill any disk. A file that
    a collect or a person brought is never deleted. A file that the job itself deleted stays here.

    Raises:
        BoxUnreachable: the link broke; the files that came before are here and on record.
        LeaseHeld: another snapshot is writing into this directory.
        LocalTrouble: a file cannot be kept here.
    """
    lease = session.lease
    directory = await claim_directory(directory, lease, ledger)
    with alone(directory, lease):
        # Take the time before looking: the box may have missed what was written after this moment.
        began_at = ledger.now()
        seen = await look(
            session, ledger, limit_bytes=_LIMIT_BYTES, limit_s=_LIMIT_S, quiet_s=quiet_s, done=done
        )
        seen = _without_half_checkpoints(seen, ledger.declarations(lease.id)[1])
        one = _Look(session, directory, ledger, at=began_at, turn=turn, progress=progress)
        try:
            not_wanted = await one.take_all(seen.files, policy)
        finally:
            if one.came or one.broken != one.before_broken:
                one.record(seen)
        kept = {partial_of(directory, entry, ARRIVES) for entry in seen.files}
        await asyncio.to_thread(tidy, directory, {n for p in kept for n in names_of(p)})
    home = str(Command("collect", lease.id))
    return Snapshot(
        lease=lease.id,
        directory=str(directory),
        files=len(one.came),
        size_bytes=sum(entry.size_bytes for entry in one.came),
        names=_newest_names(one.came),
        left_out=seen.left_out,
        to_come_bytes=one.to_come_bytes(seen),
        unfinished_files=len(seen.unfinished) - seen.left_out,
        unfinished=seen.unfinished[:_NAMED],
        broken=tuple(n for n, held in one.broken.items() if one.before_broken.get(n) != held),
        no_room=tuple(one.no_room),
        not_wanted=not_wanted,
        running=seen.running,
        pace=seen.pace,
        next=f"{Command('monitor', lease.id)}; when the job has ended, {home}"
        if seen.running
        else home,
    )


def _without_half_checkpoints(seen: Complete, discard: Sequence[str]) -> Complete:
    """Count the files of a checkpoint that lacks weights as unfinished, however long nothing of it has changed."""
    names = [*(entry.name for entry in seen.files), *seen.unfinished]
    half = files_without_the_rest(names, discard)
    unfinished = sorted({*seen.unfinished, *(x.name for x in seen.files if x.name in half)})
    files = tuple(entry for entry in seen.files if entry.name not in half)
    return seen.model_copy(update={"files": files, "unfinished": tuple(unfinished)})


class _Look:
    """One look at a running box: what was known before it, and what came."""

    def __init__(
        self,
        session: Session,
        directory: Path,
        ledger: Ledger,
        *,
        at: datetime,
        turn: BandwidthTurn,
        progress: Callable[[int, int], None],
    ) -> None:
        self._lease, self._directory, self._transport = session.lease, directory, session.transport
        self._turn = turn
        self._ledger, self._at, self._progress = ledger, at, progress
        self._known = known = last_list(session.lease, directory, ledger)
        self.held = {entry.name: entry for entry in known.entries} if known else {}
        self.before_broken = dict(known.broken) if known else {}
        self.broken = dict(self.before_broken)
        self.came: list[SealedFile] = []
        self.no_room: list[str] = []
        self._brought = set(known.brought) if known else set()
        self._arrived = self._coming = self._room_bytes = 0
        self._fetching_since = ledger.now()
        # If the turn has no low priority, the lease is ending, and the transfer uses the whole link.
        self._share = SHARE if isinstance(turn, LowPriorityShare) else 1.0

    async def take_all(
        self, entries: Sequence[SealedFile], policy: Retention | None
    ) -> tuple[str, ...]:
        """Fetch the wanted files that are available now, and keep those that load. Returns the unwanted checkpoints.

        If a newer checkpoint turns out to be broken, an older one is wanted in its place.
        """
        # Each round may find broken checkpoints, which changes what the policy keeps. So repeat
        # until a round finds nothing new.
        tried: set[str] = set()
        while True:
            unsound = tried - {entry.name for entry in entries if self._is_sound(entry)}
            left = surplus(entries, policy, unsound=unsound) if policy else []
            skipped = {entry.name for one in left for entry in one.entries}
            todo = [e for e in entries if e.name not in skipped | tried]
            if not todo:
                return tuple(one.at for one in left)
            self._coming += sum(entry.size_bytes for entry in todo)
            tried |= {entry.name for entry in todo}
            wanted = [entry for entry in todo if await self._wants(entry)]
            self._on_bytes(sum(e.size_bytes for e in todo) - sum(e.size_bytes for e in wanted))
            self._room_bytes = shutil.disk_usage(self._directory).free
            await self._fetch(wanted)
            for entry in wanted:
                if entry.kind == "link":
                    await self._keep(entry, None)

    def _on_bytes(self, count: int) -> None:
        self._arrived = min(self._coming, self._arrived + count)
        self._progress(self._arrived, self._coming)

    def _is_sound(self, entry: SealedFile) -> bool:
        """Whether this version of the file is here, and loaded when it came."""
        is_known = _same(self.held.get(entry.name), entry) or entry in self.came
        return is_known and self.broken.get(entry.name) != entry.sha256

    async def _fetch(self, entries: Sequence[SealedFile]) -> None:
        """Fetch the entries. Keep each that arrives with the hash that the box gave, and drop the others."""
        coming = [
            Coming(entry, partial_of(self._directory, entry, ARRIVES))
            for entry in entries
            if entry.kind == "file" and self._has_room_for(entry)
        ]
        try:
            arriving = carry_files(
                coming, transport=self._transport, turn=self._turn, on_bytes=self._on_bytes
            )
            async with aclosing(arriving):
                async for told in arriving:
                    entry, partial = told.coming.entry, told.coming.partial
                    if isinstance(told, Arrived) and told.sha256 == entry.sha256:
                        await self._keep(entry, partial)
                    else:
                        discard(partial)
        except OSError as error:
            raise cannot_keep("what came", self._lease, error) from error

    async def _wants(self, entry: SealedFile) -> bool:
        """Whether the entry must be fetched. A file that is already here is treated as if it had just been fetched."""
        has_its_size = _has_its_size(self._directory, entry)
        if _same(self.held.get(entry.name), entry) and has_its_size:
            return False
        if self.broken.get(entry.name) == entry.sha256:
            return False
        if has_its_size and await asyncio.to_thread(is_here, self._directory, entry):
            self._brought.discard(entry.name)
            self._came(entry)
            return False
        return True

    def _has_room_for(self, entry: SealedFile) -> bool:
        self._room_bytes -= entry.size_bytes
        if self._room_bytes < _RESERVE_BYTES:
            self.no_room.append(entry.name)
            self._room_bytes += entry.size_bytes
            return False
        return True

    async def _keep(self, entry: SealedFile, partial: Path | None) -> None:
        """Keep the fetched file if it loads. Otherwise delete it, and note that this version is broken."""
        if partial is not None and not await asyncio.to_thread(_loads, partial, entry, self._lease):
            discard(partial)
            self.broken[entry.name] = entry.sha256 or ""
            return
        held = self.held.get(entry.name)
        stamp = f"{self._at:%Y%m%dT%H%M%S.%f}"
        # The old file counts as a snapshot's only if its bytes are those that a snapshot brought.
        # Otherwise a person's own file of that name could be pruned.
        if held and entry.name in self._brought:
            is_ours = await asyncio.to_thread(is_here, self._directory, held)
            stamp = f"snapshot-{stamp}" if is_ours else stamp
        superseded = self._directory / SUPERSEDED / stamp
        await land(entry, partial, self._directory, self._lease, superseded=superseded)
        if partial is not None:
            forget(partial)
        self._brought.add(entry.name)
        self._came(entry)

    def _came(self, entry: SealedFile) -> None:
        self.came.append(entry)
        self.broken.pop(entry.name, None)

    def to_come_bytes(self, seen: Complete) -> int:
        """How many bytes of the box's artifacts are not here."""
        here = sum(e.size_bytes for e in seen.files if e.kind == "file" and self._is_sound(e))
        return max(0, (seen.all_bytes or 0) - here)

    def record(self, seen: Complete) -> None:
        """Record what a job can resume from: what came now, and what was here and is still on the box."""
        on_the_box = {entry.name for entry in seen.files} | set(seen.unfinished)
        entries = {n: e for n, e in self.held.items() if n in on_the_box}
        entries |= {entry.name: entry for entry in self.came}
        known = self._known
        left = {entry.name: entry for entry in known.left} if known else {}
        left |= {n: e for n, e in self.held.items() if n in self._brought}
        still = [
            e for n, e in left.items() if n not in entries and _has_its_size(self._directory, e)
        ]
        listed = CheckpointList(
            taken_at=self._at,
            login=seen.login,
            entries=tuple(entries[name] for name in sorted(entries)),
            brought=tuple(sorted(self._brought & set(entries))),
            broken={n: held for n, held in self.broken.items() if n in on_the_box},
            left=tuple(still[-_LEFT:]),
            only_here=known.only_here if known else (),
            lacking=tuple(sorted(on_the_box - set(entries))),
        )
        saves = saves_of((e.mtime_ns / 1e9, e.size_bytes) for e in self.came if e.kind == "file")
        told = timeline.Snapped(
            files=len(self.came),
            bytes=sum(entry.size_bytes for entry in self.came),
            took_s=(self._ledger.now() - self._fetching_since).total_seconds() * self._share,
            names=_newest_names(self.came),
            saves=tuple((s.at_s, s.took_s, s.size_bytes) for s in saves[-_SAVES:]),
            listed=put_list(self._directory, listed, self._lease),
        )
        self._ledger.keep_in(self._lease.id, self._directory)
        self._ledger.note(self._lease.id, told, at=self._at)


def _newest_names(entries: Sequence[SealedFile]) -> tuple[str, ...]:
    """Return the names of the few newest entries, the newest first. Files arrive in another order."""
    newest = sorted(entries, key=lambda entry: entry.mtime_ns, reverse=True)
    return tuple(entry.name for entry in newest[:_NAMED])


# What is here


def _same(one: SealedFile | None, other: SealedFile) -> bool:
    return one is not None and (one.sha256, one.size_bytes, one.kind) == (
        other.sha256,
        other.size_bytes,
        other.kind,
    )


def _has_its_size(directory: Path, entry: SealedFile) -> bool:
    """Whether a file of that size is here. Its bytes are checked only when they are needed."""
    path = below(directory, entry.name)
    try:
        return is_reached(directory, path) and path.lstat().st_size == entry.size_bytes
    except OSError:
        return False


def _loads(path: Path, entry: SealedFile, lease: Lease) -> bool:
    try:
        return inspect(path, name=entry.name).outcome != "broken"
    except OSError as error:
        raise LocalTrouble(
            f"{entry.name} cannot be read here: {error.strerror}",
            remedy=f"{Command('collect', lease.id, to='DIR')} keeps the files elsewhere",
        ) from error
