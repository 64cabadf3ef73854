"""Fetches the files that a box lists into one directory on this computer.

A file whose bytes are already on this computer is copied and not fetched. Each file is checked by its hash.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxTrouble
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.seal import Manifest, SealedFile
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.files.artifact_directory import PARTIAL, cannot_keep, is_ours, land_all, partial_of
from gpu_tenant.files.hash_cache import Brought, HashCache, clone_file
from gpu_tenant.files.paths import below
from gpu_tenant.files.state_dir import require_room, reread
from gpu_tenant.transfer.chunks import SMALL_BYTES, Coming
from gpu_tenant.transfer.download import Arrival
from gpu_tenant.transfer.partial_file import discard, forget, held_bytes
from gpu_tenant.transfer.readback import Arrived

_WORTH_COPYING_BYTES = 64 << 10
"""For a file smaller than this, no local copy is looked for, because fetching the file is faster."""
_LANDED_AT_ONCE, _LANDED_AT_ONCE_BYTES = 256, 64 << 20


class Way(NamedTuple):
    """Where the files of a list will come from."""

    here: list[SealedFile]
    links: list[SealedFile]
    sure: list[SealedFile]
    """The files that are fetched in any case. Their hashes need not be known for that."""
    unsure: list[SealedFile]
    """The files whose bytes may be on this computer already. Only their hashes in the seal will tell."""


class Gathering:
    """Fetches the files of one lease into one directory."""

    def __init__(
        self,
        lease: Lease,
        directory: Path,
        *,
        arrival: Arrival,
        superseded: Path,
        elsewhere: Sequence[Path] = (),
    ) -> None:
        self._lease, self._directory, self._arrival = lease, directory, arrival
        self._superseded, self._elsewhere = superseded, elsewhere
        self._known = HashCache.of(directory)
        self._brought: Brought | None = None
        self._arrived: dict[str, Arrived] = {}
        self._landed: dict[str, SealedFile] = {}
        self._refused: dict[str, str] = {}

    @property
    def landed(self) -> Sequence[SealedFile]:
        """The files that have landed here, in the order in which they landed."""
        return tuple(self._landed.values())

    def ways(self, entries: Iterable[SealedFile]) -> Way:
        """Decide where each of the entries will come from. An entry of a draft may have no hash yet."""
        here, missing, unread = self._known.glance(entries)
        here += [entry for entry in unread if self._known.is_here(entry)]
        known = {entry.name for entry in here}
        way = Way(here, [], [], [])
        for entry in (*missing, *unread):
            if entry.name in known:
                continue
            if entry.kind == "link":
                way.links.append(entry)
            elif self._may_be_here(entry) if entry.sha256 is None else self._copy_of(entry):
                way.unsure.append(entry)
            else:
                way.sure.append(entry)
        return way

    def held_bytes(self, entries: Iterable[SealedFile]) -> int:
        """How many bytes of the entries are here from an earlier attempt."""
        large = (entry for entry in entries if entry.size_bytes >= SMALL_BYTES)
        return sum(
            held_bytes(partial_of(self._directory, entry), entry.size_bytes) for entry in large
        )

    def require_room(self, entries: Sequence[SealedFile]) -> None:
        """Check that there is room here for the entries, in bytes and in number of files.

        Raises:
            DiskFull: there is not enough room.
        """
        coming = sum(entry.size_bytes for entry in entries) - self.held_bytes(entries)
        require_room(
            self._directory,
            coming,
            files=len(entries),
            remedy=f"free some space, or choose another place: {Command('collect', self._lease.id, to='DIR')}",
        )

    async def fetch(
        self, entries: Sequence[SealedFile], sealed: Callable[[], Manifest | None]
    ) -> None:
        """Fetch the bytes of `entries`. Once `sealed` returns a seal, put the files that equal it in their places.

        Files that the box cannot send any more, and files that have changed meanwhile, are left out.

        Raises:
            BoxUnreachable: the link broke; the next call continues after what has arrived.
            DiskFull, LocalTrouble: the files cannot be kept here.
            Exception: what `sealed` raises.
        """
        try:
            coming = [self._coming(entry) for entry in entries]
            async with aclosing(self._arrival.bring(coming)) as arriving:
                async for told in arriving:
                    name = told.coming.entry.name
                    if isinstance(told, Arrived):
                        self._arrived[name] = told
                    else:
                        self._refused[name] = told.why
                    if (seal := sealed()) is not None:
                        await self._land(seal.entries, least=_LANDED_AT_ONCE)
        except OSError as error:
            raise cannot_keep("what came", self._lease, error) from error

    async def settle(self, entries: Sequence[SealedFile]) -> list[SealedFile]:
        """Put everything that arrived and matches its entry in its place. Returns the entries still missing here."""
        await self._land(entries, least=1)
        rest = [entry for entry in entries if entry.name not in self._landed]
        way = await asyncio.to_thread(self.ways, rest)
        if way.links:
            await self._put([(entry, None) for entry in way.links])
        missing: list[SealedFile] = []
        for entry in (*way.sure, *way.unsure):
            source = self._copy_of(entry)
            if source is None or not await asyncio.to_thread(self._copy_from, entry, source):
                missing.append(entry)
        await self._land(entries, least=1)
        return missing

    def trouble(self, entry: SealedFile) -> BoxTrouble:
        """Make the error for an entry that cannot be fetched as the seal describes it."""
        again = f"then {Command('collect', self._lease.id)} again"
        if why := self._refused.get(entry.name):
            return BoxTrouble(
                f"the box could not send {quote_text(entry.name)}: {quote_text(why)}",
                remedy=f"look at that file on the box, {again}",
            )
        return BoxTrouble(
            f"{quote_text(entry.name)} changed on the box while it was fetched",
            remedy=f"find out what writes that file, {again}",
        )

    def clear(self) -> None:
        """Delete abandoned partial files."""
        for path in (self._directory / PARTIAL).iterdir():
            if is_ours(path.name) and not path.is_dir():
                path.unlink()

    def save(self) -> None:
        """Store what is known about the directory, so that the next run need not read all its files again."""
        self._known.save()

    async def _land(self, entries: Sequence[SealedFile], *, least: int) -> None:
        """Put each arrived file in its place if it matches its entry. Delete it if it does not."""
        size = sum(arrived.size_bytes for arrived in self._arrived.values())
        if len(self._arrived) < least and (least == 1 or size < _LANDED_AT_ONCE_BYTES):
            return
        wanted = {entry.name: entry for entry in entries if entry.name in self._arrived}
        proved: list[tuple[SealedFile, Path | None]] = []
        for name, arrived in self._arrived.items():
            entry, partial = wanted.get(name), arrived.coming.partial
            if entry and (entry.size_bytes, entry.sha256) == (arrived.size_bytes, arrived.sha256):
                proved.append((entry, partial))
            else:
                discard(partial)
        self._arrived = {}
        await self._put(proved)

    async def _put(self, proved: Sequence[tuple[SealedFile, Path | None]]) -> None:
        if proved:
            await asyncio.to_thread(self._put_now, proved)
        for entry, partial in proved:
            self._landed[entry.name] = entry
            if partial is not None and entry.size_bytes >= SMALL_BYTES:
                forget(
                    partial
                )  # Smaller files come whole, so nothing about their progress is on record.

    def _put_now(self, proved: Sequence[tuple[SealedFile, Path | None]]) -> None:
        land_all(proved, self._directory, self._lease, superseded=self._superseded)
        # Record this at once. Otherwise a later change of the file could be taken for the bytes that landed.
        self._known.note(entry for entry, _ in proved)

    def _coming(self, entry: SealedFile) -> Coming:
        """Describe the file to fetch. If the version here is large as well, only their differences are fetched."""
        path = below(self._directory, entry.name)
        seen = _regular(path) if entry.size_bytes >= SMALL_BYTES else None
        basis = path if seen is not None and seen.st_size >= SMALL_BYTES else None
        return Coming(entry, partial_of(self._directory, entry), basis)

    def _may_be_here(self, entry: SealedFile) -> bool:
        seen = _regular(below(self._directory, entry.name))
        if seen is not None and seen.st_size == entry.size_bytes:
            # If the times differ, the file has changed. It is fetched in any case, by its
            # differences from the version here.
            return seen.st_mtime_ns == entry.mtime_ns or entry.size_bytes < SMALL_BYTES
        return (
            entry.size_bytes >= _WORTH_COPYING_BYTES
            and entry.size_bytes in self._copies.sizes_bytes
        )

    def _copy_of(self, entry: SealedFile) -> Path | None:
        """Return a file on this computer with the same bytes, whichever collect brought it. None if there is none."""
        if entry.sha256 is None or entry.size_bytes < _WORTH_COPYING_BYTES:
            return None
        return self._copies.find(entry.sha256, entry.size_bytes)

    def _copy_from(self, entry: SealedFile, source: Path) -> bool:
        """Copy the bytes from `source` and read them back. Returns whether they are those of the entry."""
        partial = partial_of(self._directory, entry)
        discard(partial)
        try:
            clone_file(source, partial)
            held = reread(partial)
        except OSError:
            held = None
        if held is None or (held.size_bytes, held.sha256) != (entry.size_bytes, entry.sha256):
            partial.unlink(missing_ok=True)
            return False
        self._arrived[entry.name] = Arrived(Coming(entry, partial), held.size_bytes, held.sha256)
        return True

    @property
    def _copies(self) -> Brought:
        if self._brought is None:
            self._brought = Brought.of([self._directory, *self._elsewhere])
        return self._brought


def _regular(path: Path) -> os.stat_result | None:
    """The status of the regular file at `path`. None if there is none."""
    try:
        seen = os.lstat(path)
    except OSError:
        return None
    return seen if stat.S_ISREG(seen.st_mode) else None
