"""Sends a box the files that it lacks: small ones as one stream, large ones in ranges that can be resumed."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path

from gpu_tenant.box.caretaker import Index
from gpu_tenant.box.script_replies import make_room
from gpu_tenant.box.session import Session
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxTrouble, CaretakerFailed, LocalTrouble
from gpu_tenant.files.direct_io import open_regular
from gpu_tenant.files.paths import to_bytes
from gpu_tenant.transfer.chunks import SMALL_BYTES
from gpu_tenant.transfer.shared_state import BandwidthTurn
from gpu_tenant.transfer.upload_state import (
    FileChanged,
    Identity,
    Upload,
    acknowledged_spans,
    identity,
    key_of,
)
from gpu_tenant.transfer.upload_worker import NotTaken, send_files

_INCOMING = ".gpu-tenant-incoming"
"""The caretaker's name for the directory of partial uploads. Nothing in it is ever collected."""


@dataclass(frozen=True, slots=True)
class FileHash:
    """A local file, as it was when it was hashed."""

    path: Path
    size_bytes: int
    sha256: str
    mode: int
    mtime_s: int
    seen: Identity


def hash_file(path: Path) -> FileHash | None:
    """Hash the regular file at `path`, and use the page cache. None if there is no such file."""
    opened = open_regular(path)
    if opened is None:
        return None
    with os.fdopen(opened, "rb", buffering=0) as file:
        # Take the identity before hashing. If the file changes from here on, its identity no longer matches.
        seen = os.fstat(opened)
        digest = file_digest(file, "sha256").hexdigest()
    return FileHash(
        path, seen.st_size, digest, seen.st_mode & 0o755, int(seen.st_mtime), identity(seen)
    )


async def ship(
    session: Session,
    files: Mapping[str, FileHash],
    there: Index,
    *,
    turn: BandwidthTurn,
    records: Path,
    progress: Callable[[int, int], None],
    over: Mapping[str, str] | None = None,
) -> None:
    """Send the `files` to the work directory. The box renames each into its place once its hash is right.

    `there` is the box's last list of its files. `records` is a directory: it records how much of each large
    file the box already has, and the next call continues from that. `progress` is called with the number of
    bytes on the box, and the total. With `over`, a file that appeared on the box meanwhile is not replaced: see
    `Caretaker.place`.

    Raises:
        BoxUnreachable: the link broke.
        BoxTrouble: the box has no room, refuses a file, or has other bytes than were sent.
        CaretakerFailed: a file changed on this computer while it was sent.
        LocalTrouble: a file cannot be read.
        NotSaved: a file on the box would be lost.
    """
    shipment = _Shipment(session, files, there, turn, records, over)
    try:
        await shipment.go(progress)
    except FileChanged as changed:
        raise CaretakerFailed(
            f"{changed} changed while it was sent", remedy="push again when nothing writes to it"
        ) from changed
    except NotTaken as refusal:
        raise BoxTrouble(
            f"the box does not take {refusal.name}: {refusal.why}; what has arrived stays on the box",
            remedy=f"{Command('audit', session.lease.id)} looks at its disks; then push again",
        ) from refusal
    except OSError as error:
        raise LocalTrouble(
            f"{error.filename or 'a file'} cannot be read: {error.strerror}",
            remedy="make it readable, or add it to .gitignore; then push again",
        ) from error


class _Shipment:
    def __init__(
        self,
        session: Session,
        files: Mapping[str, FileHash],
        there: Index,
        turn: BandwidthTurn,
        records: Path,
        over: Mapping[str, str] | None,
    ) -> None:
        self._lease, self._files, self._there, self._over = session.lease, files, there, over
        self._caretaker, self._transport, self._turn = session.caretaker, session.transport, turn
        self._records = records
        self._here_bytes, self._total_bytes = 0, sum(f.size_bytes for f in files.values())
        self._arrived: list[Upload] = []
        self._other: list[str] = []
        self._placing: asyncio.Task[None] | None = None

    async def go(self, progress: Callable[[int, int], None]) -> None:
        self._progress = progress
        small = {n: f.path for n, f in self._files.items() if f.size_bytes < SMALL_BYTES}
        large = [self._upload(name) for name in self._files if name not in small]
        if large:
            await asyncio.to_thread(self._records.mkdir, parents=True, exist_ok=True, mode=0o700)
        # A partial upload of an older version is never continued, and takes up room.
        stale = [key for one in large if (key := key_of(one.record)) not in (None, one.key)]
        room = (
            await self._caretaker.place([], stale=[k for k in stale if k]) if stale else self._there
        )
        held = sum(acknowledged_spans(g.record, g.key, g.size_bytes).size_bytes for g in large)
        self._require_room(room, self._total_bytes - held)
        self._came(held)
        going = [asyncio.create_task(way) for way in (self._stream(small), self._send_all(large))]
        try:
            # If one of them fails, the other must not continue for hours.
            done, _ = await asyncio.wait(going, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            tasks = [task for task in (*going, self._placing) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with suppress(OSError):  # The directory is not empty, or was not made.
                self._records.rmdir()

    async def _send_all(self, large: Sequence[Upload]) -> None:
        await self._send(large)
        if self._other:
            # The local record of these files is wrong. For example, the box was reset.
            again = [self._upload(name, older=False) for name in self._other]
            self._other = []
            await self._send(again)
        if self._other:
            raise self._wrong(self._other[0])

    def _upload(self, name: str, *, older: bool = True) -> Upload:
        held, known = self._files[name], self._there.files.get(name)
        key = sha256(f"{held.size_bytes} {held.sha256} {name}".encode()).hexdigest()
        is_worth_it = older and known is not None and known.size_bytes >= SMALL_BYTES
        return Upload(
            name,
            held.path,
            held.size_bytes,
            held.seen,
            key,
            at=f"{self._there.work}/{_INCOMING}/{key}",
            record=self._records / f"{sha256(name.encode()).hexdigest()}.json",
            older=f"{self._there.work}/{name}" if is_worth_it else None,
        )

    def _require_room(self, room: Index, coming_bytes: int) -> None:
        free_bytes, inodes = room.disk_free_bytes, room.inodes_free
        if free_bytes is not None and coming_bytes > free_bytes:
            what = f"{coming_bytes:,} bytes are to be sent, but there is room for {free_bytes:,}"
        elif inodes is not None and len(self._files) > inodes:
            what = f"{len(self._files):,} files are to be sent, but there is room for {inodes:,}"
        else:
            return
        raise BoxTrouble(
            f"the box's disk is too small: {what}",
            remedy=f"{make_room(self._lease.id)}; or add to .gitignore what the job does not need, then push again",
        )

    def _came(self, size_bytes: int) -> None:
        self._here_bytes = min(self._total_bytes, self._here_bytes + size_bytes)
        self._progress(self._here_bytes, self._total_bytes)

    async def _stream(self, small: Mapping[str, Path]) -> None:
        if not small:
            return

        async def before(size_bytes: int) -> None:
            await asyncio.sleep(self._turn.pause_s(size_bytes))
            self._came(size_bytes)

        told = (
            await self._caretaker.receive(small, before=before, over=self._over_of(small))
        ).files
        # Compare the names as bytes, because the two ends escape different characters.
        arrived = {to_bytes(name): known.sha256 for name, known in told.items()}
        for name in small:
            if arrived.get(to_bytes(name)) != self._files[name].sha256:
                raise self._wrong(name)

    async def _send(self, large: Sequence[Upload]) -> None:
        coming = send_files(large, transport=self._transport, turn=self._turn, on_bytes=self._came)
        async with aclosing(coming) as whole:
            async for one in whole:
                self._arrived.append(one)
                # While the box checks the files that have arrived, others are still being sent.
                if self._placing is None or self._placing.done():
                    await self._await_placing()
                    self._placing = asyncio.create_task(self._place())
        await self._await_placing()
        await self._place()

    async def _await_placing(self) -> None:
        if self._placing is not None:
            await self._placing

    async def _place(self) -> None:
        while self._arrived:
            batch, self._arrived = self._arrived, []
            reply = await self._caretaker.place(
                [self._as_said(one) for one in batch], over=self._over_of([o.name for o in batch])
            )
            for one in batch:
                known = reply.files.get(one.name)
                if known is None or known.sha256 != self._files[one.name].sha256:
                    self._other.append(one.name)
                one.record.unlink(missing_ok=True)

    def _over_of(self, names: Iterable[str]) -> Mapping[str, str] | None:
        if self._over is None:
            return None
        return {name: self._over[name] for name in names if name in self._over}

    def _as_said(self, one: Upload) -> dict[str, str | int]:
        held = self._files[one.name]
        return {
            "name": one.name,
            "incoming": one.key,
            "size": held.size_bytes,
            "sha256": held.sha256,
            "mode": held.mode,
            "mtime": held.mtime_s,
        }

    def _wrong(self, name: str) -> BoxTrouble:
        return BoxTrouble(
            f"{name} did not arrive as it was sent",
            remedy=f"{Command('push', 'DIR', self._lease.id)} again",
        )
