"""The interface of a durable store: it belongs to the owner, and outlives every box and this computer.

What a store reports proves nothing: no listing, no size, no checksum. Only bytes that were read back are a
proof.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from gpu_tenant.artifacts.stores.locality import Whereabouts, whereabouts_of
from gpu_tenant.domain.errors import NotStored, StoreTrouble
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.files.paths import below, escape
from gpu_tenant.files.replace_file import sync_directory
from gpu_tenant.files.state_dir import (
    CHUNK_BYTES,
    Reread,
    is_reached,
    open_cold,
    place,
    require_room,
    reread,
)

_PARTIAL = ".gpu-tenant-partial"


class DurableStore(Protocol):
    """A store that keeps files under names.

    A name is relative, with `/` between its parts, in the form that `files/paths.py` describes.
    """

    @property
    def words(self) -> str:
        """The store in the words of its owner. They contain no secret."""
        ...

    async def where(self) -> Whereabouts:
        """Return where the store is, as far as is known."""
        ...

    async def put(self, source: Path, name: str, *, superseded: str) -> None:
        """Store the bytes of `source` under `name`. A file that the store has there is first moved to `superseded`.

        Raises:
            StoreTrouble: the store did not take it. The earlier file is still there, under `name` or
                `superseded`.
        """
        ...

    async def get(self, name: str, into: Path) -> None:
        """Write the bytes that the store gives for `name` into the new file `into`.

        Raises:
            NotStored: the store has nothing under that name.
            StoreTrouble: the store could not be asked, or did not give the file.
        """
        ...

    async def names(self, directory: str) -> frozenset[str]:
        """List every name below `directory`, as the store reports it. The list may save work, but proves nothing.

        Raises:
            StoreTrouble: the store could not be asked.
        """
        ...


def stored_as(lease_id: LeaseId, name: str) -> str:
    """Return the name in a store for the file that a lease's seal calls `name`."""
    return f"{lease_id}/{name}"


def seal_stored_as(lease_id: LeaseId, digest: str) -> str:
    """Return the name in a store for the seal with that digest. The seal lists every file and every link."""
    return f"{lease_id}/.seals/{digest}.json"


def superseded_as(lease_id: LeaseId, stamp: str, name: str) -> str:
    """Return the name in a store for an older version of `name`, which was replaced at the moment `stamp`."""
    return f"{lease_id}/.superseded/{stamp}/{name}"


@asynccontextmanager
async def brought_back(
    store: DurableStore, name: str, *, size_bytes: int, scratch: Path
) -> AsyncIterator[Path]:
    """Fetch the store's current bytes for `name` into a file below `scratch`. The file is deleted when the block ends.

    Raises:
        NotStored, StoreTrouble: as in `DurableStore.get`.
        DiskFull: there is no room on this computer for `size_bytes`.
    """
    require_room(
        scratch, size_bytes, remedy=f"free some space: {name} is re-read from {store.words}"
    )
    with tempfile.TemporaryDirectory(
        dir=scratch, prefix=".brought-back-", ignore_cleanup_errors=True
    ) as directory:
        into = Path(directory) / "bytes"
        await store.get(name, into)
        yield into


async def reread_held(
    store: DurableStore, name: str, *, like: Reread, scratch: Path
) -> Reread | None:
    """Re-read the store's bytes for `name`, which should equal `like`. None if the store has no such file.

    Raises:
        StoreTrouble: the store could not be asked, or did not give the file.
        DiskFull: there is no room on this computer for the file.
    """
    try:
        async with brought_back(store, name, size_bytes=like.size_bytes, scratch=scratch) as path:
            return await asyncio.to_thread(reread, path)
    except NotStored:
        return None


class DirectoryStore:
    """A store in a directory of this computer: a second disk, a file server, or a mounted bucket."""

    def __init__(self, root: Path, *, words: str) -> None:
        self._root = root
        self.words = words

    async def where(self) -> Whereabouts:
        """Do the same as `DurableStore.where`."""
        return await asyncio.to_thread(whereabouts_of, self._root)

    async def put(self, source: Path, name: str, *, superseded: str) -> None:
        """Do the same as `DurableStore.put`. The file appears by a rename, and is flushed to the disk."""
        await asyncio.to_thread(self._put, source, self._at(name), self._at(superseded))

    async def get(self, name: str, into: Path) -> None:
        """Do the same as `DurableStore.get`. The bytes are read from the disk, not from the page cache."""
        await asyncio.to_thread(self._get, name, into)

    async def names(self, directory: str) -> frozenset[str]:
        """Do the same as `DurableStore.names`."""
        return await asyncio.to_thread(self._names, directory)

    def _at(self, name: str) -> Path:
        return below(self._root, name)

    def _put(self, source: Path, final: Path, superseded: Path) -> None:
        try:
            # The root is never created: an empty mount point must not be taken for the disk that
            # should be mounted there.
            if not self._root.is_dir():
                raise self._trouble("that directory does not exist now")
            handle, arrived = tempfile.mkstemp(dir=self._root, prefix=_PARTIAL)
            try:
                with os.fdopen(handle, "wb") as to, source.open("rb") as of:
                    shutil.copyfileobj(of, to, CHUNK_BYTES)
                    to.flush()
                    os.fsync(to.fileno())
                place(Path(arrived), final, root=self._root, superseded=superseded)
                for parent in final.parents:
                    sync_directory(parent)
                    if parent == self._root:
                        break
            finally:
                Path(arrived).unlink(missing_ok=True)
        except OSError as error:
            raise self._trouble(str(error.strerror)) from error

    def _get(self, name: str, into: Path) -> None:
        if not self._root.is_dir():
            raise self._trouble("that directory does not exist now")
        try:
            path = self._at(name)
            opened = open_cold(path) if is_reached(self._root, path) else None
            if opened is None:
                raise NotStored(
                    f"{self.words} has no file {name}", remedy="store it again, or collect it"
                )
            with opened as of, into.open("xb") as to:
                shutil.copyfileobj(of, to, CHUNK_BYTES)
        except OSError as error:
            raise self._trouble(str(error.strerror)) from error

    def _names(self, directory: str) -> frozenset[str]:
        top = self._at(directory)
        return frozenset(
            escape((Path(where) / file).relative_to(self._root).as_posix())
            for where, _, files in os.walk(top)
            for file in files
        )

    def _trouble(self, why: str) -> StoreTrouble:
        return StoreTrouble(
            f"{self.words} failed: {why}",
            remedy="check that it is mounted, has room and is writable, then run the same command again",
        )
