"""Bring home what is complete of the artifacts while jobs run, and know the newest that can be gone on from."""

import asyncio
import fcntl
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue

from gpu_tenant.cadence import saves_of
from gpu_tenant.caretaker import Caretaker
from gpu_tenant.entries import Entries
from gpu_tenant.errors import (
    BoxTrouble,
    BoxUnreachable,
    HostKeyChanged,
    LeaseHeld,
    LocalTrouble,
)
from gpu_tenant.landing import (
    PARTIAL,
    SUPERSEDED,
    arrive,
    is_here,
    land,
    make_place,
    outside_the_box,
    partial_of,
)
from gpu_tenant.ledger import Event, Ledger
from gpu_tenant.loads import inspect
from gpu_tenant.model import Lease, SealedFile
from gpu_tenant.paths import below
from gpu_tenant.ports import Clock, Transport
from gpu_tenant.record import Record
from gpu_tenant.restorable import LISTS, Listed, put_list, read_list
from gpu_tenant.store import is_reached

QUIET_S = 5
_LIMIT_BYTES = 16 << 30
"""So much is read on the box in one look, newest first."""
_WITHIN_S = 1800
_RESERVE_BYTES = 1 << 30
"""So much stays free here: a disk that is full stops everything, the ledger first."""
_SUPERSEDED_KEPT = 2
_ARRIVES = f"{PARTIAL}/live"
"""Apart from what a collect fetches, which may come at any moment and is not kept waiting."""
_LOCK = "lock"
_NAMED, _SAVES = 5, 40


class Complete(BaseModel):
    """What the caretaker says that nobody on the box is writing."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    files: Entries
    left_out: int = 0
    unfinished: tuple[str, ...] = ()
    now: float
    login: str


class Snapshot(Record):
    """What a look at a running box brought home."""

    lease: str
    directory: str
    files: int
    size_bytes: int
    names: tuple[str, ...]
    left_out: int
    broken: tuple[str, ...]
    no_room: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """What a person may want to hear of it, a sentence each; none where nothing new came."""
        said = []
        if self.files:
            more = (
                f" and {self.files - len(self.names)} more" if self.files > len(self.names) else ""
            )
            said.append(f"{', '.join(self.names)}{more} came home ({self.size_bytes:,} bytes)")
        if self.broken:
            said.append(f"{self.broken[0]} does not load, and is not gone on from")
        if self.no_room:
            said.append(
                f"no room in {self.directory} for {len(self.no_room)} files, {self.no_room[0]} first"
            )
        return tuple(said)


async def snapshot(
    lease: Lease,
    *,
    directory: Path,
    caretaker: Caretaker,
    transport: Transport,
    ledger: Ledger,
    clock: Clock,
    quiet_s: float = QUIET_S,
) -> Snapshot:
    """Every complete artifact that was not here is, proved by hash and by loading; jobs were left alone.

    Complete is what nobody on the box has open for writing, and nobody changed for `quiet_s`.

    What changed or vanished meanwhile is left for the next look. What lay in the way of a newer
    version is moved to `.superseded/`; of each name the two newest versions that snapshots brought
    stay there, and older ones go, because a job that saves in place would fill any disk. What a
    collect brought, or a person, is never among those. Files that the job itself deleted stay.

    Raises:
        BoxUnreachable: the link broke; what came before is here and on record.
        LeaseHeld: another snapshot is being brought there.
        LocalTrouble: something cannot be kept here.
    """
    directory = outside_the_box(directory, lease)
    make_place(directory, lease)
    with _alone(directory, lease):
        return await _snapshot(
            lease, directory, caretaker, transport, ledger=ledger, clock=clock, quiet_s=quiet_s
        )


@contextmanager
def _alone(directory: Path, lease: Lease) -> Iterator[None]:
    """No other snapshot is brought to `directory` while the block runs.

    Raises:
        LeaseHeld: one is.
    """
    (directory / _ARRIVES).mkdir(exist_ok=True)
    with (directory / _ARRIVES / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LeaseHeld(
                f"a snapshot of {lease.id} is under way", remedy="wait for it, or collect"
            ) from None
        yield


async def _snapshot(
    lease: Lease,
    directory: Path,
    caretaker: Caretaker,
    transport: Transport,
    *,
    ledger: Ledger,
    clock: Clock,
    quiet_s: float,
) -> Snapshot:
    request: dict[str, JsonValue] = {
        "work": lease.work_directory,
        "artifacts": list(ledger.declared(lease.id)[0]),
        "limit_bytes": _LIMIT_BYTES,
        "quiet_s": quiet_s,
    }
    seen = await caretaker.ask_ours("complete", request, Complete, timeout_s=_WITHIN_S)
    look = _Look(lease, directory, transport, ledger, at=clock.now())
    try:
        for entry in seen.files:
            await look.take(entry)
    finally:
        if look.came or look.broken != look.before_broken:
            look.record(seen)
    kept = {partial_of(directory, entry, _ARRIVES).name for entry in seen.files}
    await asyncio.to_thread(_prune, directory, kept)
    return Snapshot(
        lease=lease.id,
        directory=str(directory),
        files=len(look.came),
        size_bytes=sum(entry.size_bytes for entry in look.came),
        names=tuple(entry.name for entry in look.came[:_NAMED]),
        left_out=seen.left_out,
        broken=tuple(n for n, held in look.broken.items() if look.before_broken.get(n) != held),
        no_room=tuple(look.no_room),
    )


class _Look:
    """One look at a running box: what was known before it, and what came."""

    def __init__(
        self, lease: Lease, directory: Path, transport: Transport, ledger: Ledger, *, at: datetime
    ) -> None:
        self._lease, self._directory, self._transport = lease, directory, transport
        self._ledger, self._at = ledger, at
        events = ledger.events(lease.id)
        known = next(
            (read_list(directory, d) for _, kind, d in reversed(events) if kind == Event.SNAPSHOT),
            None,
        )
        self.held = {entry.name: entry for entry in known.entries} if known else {}
        self.before_broken = dict(known.broken) if known else {}
        self.broken = dict(self.before_broken)
        self.came: list[SealedFile] = []
        self.no_room: list[str] = []
        last = next(
            (kind for _, kind, _ in reversed(events) if kind in (Event.SNAPSHOT, Event.COLLECTED)),
            None,
        )
        self._brought = set(known.brought) if known and last == Event.SNAPSHOT else set()

    async def take(self, entry: SealedFile) -> None:
        """The entry is here and loads, or it is not for now."""
        held = self.held.get(entry.name)
        has_its_size = _has_its_size(self._directory, entry)
        if _same(held, entry) and has_its_size:
            return
        if self.broken.get(entry.name) == entry.sha256:
            return
        partial = None
        if has_its_size and await asyncio.to_thread(is_here, self._directory, entry):
            self._brought.discard(entry.name)
            self._came(entry)
            return
        if entry.kind == "file":
            if shutil.disk_usage(self._directory).free < entry.size_bytes + _RESERVE_BYTES:
                self.no_room.append(entry.name)
                return
            try:
                partial = await arrive(
                    entry, self._directory, self._lease, transport=self._transport,
                    on_bytes=lambda count: None, within=_ARRIVES,
                )  # fmt: skip
            except (BoxUnreachable, HostKeyChanged):
                raise
            except BoxTrouble:
                return
            if not await asyncio.to_thread(_loads, partial, entry, self._lease):
                partial.unlink(missing_ok=True)
                self.broken[entry.name] = entry.sha256 or ""
                return
        stamp = f"{self._at:%Y%m%dT%H%M%S.%f}"
        # By what lies there, and not by its name: else a person's own would be pruned as a snapshot's.
        if held and entry.name in self._brought:
            is_ours = await asyncio.to_thread(is_here, self._directory, held)
            stamp = f"snapshot-{stamp}" if is_ours else stamp
        superseded = self._directory / SUPERSEDED / stamp
        await land(entry, partial, self._directory, self._lease, superseded=superseded)
        self._brought.add(entry.name)
        self._came(entry)

    def _came(self, entry: SealedFile) -> None:
        self.came.append(entry)
        self.broken.pop(entry.name, None)

    def record(self, seen: Complete) -> None:
        """What can be gone on from now is on record: what came, and what was here and still is there."""
        on_the_box = {entry.name for entry in seen.files} | set(seen.unfinished)
        entries = {n: e for n, e in self.held.items() if n in on_the_box}
        entries |= {entry.name: entry for entry in self.came}
        listed = Listed(
            taken_at=self._at,
            login=seen.login,
            entries=tuple(entries[name] for name in sorted(entries)),
            brought=tuple(sorted(self._brought & set(entries))),
            broken={n: held for n, held in self.broken.items() if n in on_the_box},
        )
        saves = saves_of((e.mtime_ns / 1e9, e.size_bytes) for e in self.came if e.kind == "file")
        detail: dict[str, object] = {
            "files": len(self.came),
            "bytes": sum(entry.size_bytes for entry in self.came),
            "names": [entry.name for entry in self.came[:_NAMED]],
            "saves": [(s.at_s, s.took_s, s.size_bytes) for s in saves[-_SAVES:]],
            "list": put_list(self._directory, listed, self._lease),
        }
        self._ledger.keep_in(self._lease.id, self._directory)
        self._ledger.note(self._lease.id, Event.SNAPSHOT, detail, at=self._at)


# What is here


def _same(one: SealedFile | None, other: SealedFile) -> bool:
    return one is not None and (one.sha256, one.size_bytes, one.kind) == (
        other.sha256,
        other.size_bytes,
        other.kind,
    )


def _has_its_size(directory: Path, entry: SealedFile) -> bool:
    """Whether something of that size lies there: what its bytes are is asked when they are needed."""
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
            remedy=f"`gpu-tenant collect {lease.id} --to DIR` keeps it elsewhere",
        ) from error


def _prune(directory: Path, partials: set[str]) -> None:
    """Older versions that snapshots brought, older lists and partial files of nothing are gone."""
    held: Counter[Path] = Counter()
    for place in sorted((directory / SUPERSEDED).glob("snapshot-*"), reverse=True):
        for path in _files_below(place):
            held[path.relative_to(place)] += 1
            if held[path.relative_to(place)] > _SUPERSEDED_KEPT:
                path.unlink()
        for folder, _, _ in os.walk(place, topdown=False):
            if not os.listdir(folder):  # noqa: PTH208 - and nothing is made of the names
                Path(folder).rmdir()
    lists = sorted((directory / LISTS).glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    for path in lists[: -_SUPERSEDED_KEPT - 1]:
        path.unlink()
    for path in (directory / _ARRIVES).iterdir():
        if path.name not in {*partials, _LOCK}:
            path.unlink()


def _files_below(place: Path) -> Iterator[Path]:
    for folder, inner, names in os.walk(place):
        yield from (Path(folder, name) for name in names)
        yield from (path for name in inner if (path := Path(folder, name)).is_symlink())
