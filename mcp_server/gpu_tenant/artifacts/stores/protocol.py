"""The owner's durable store, which outlives every box and this computer, and what it may be trusted to prove.

Nothing that a store says counts: no listing, no size, no checksum. Only bytes that were read back do.
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
    """Files under names, kept where the owner said.

    A name is relative, with `/` between its parts, in the form that `files/paths.py` describes.
    """

    @property
    def words(self) -> str:
        """The store as its owner named it. Contains no secret."""
        ...

    async def where(self) -> Whereabouts:
        """Where the store is, as far as that can be told."""
        ...

    async def put(self, source: Path, name: str, *, superseded: str) -> None:
        """`name` holds the bytes of `source`. What it held before is now under `superseded`.

        Raises:
            StoreTrouble: the store did not take it; what `name` held is still there, or under `superseded`.
        """
        ...

    async def get(self, name: str, into: Path) -> None:
        """The new file `into` holds the bytes that the store has just given for `name`.

        Raises:
            NotStored: the store has nothing under that name.
            StoreTrouble: it could not be asked, or did not give it.
        """
        ...

    async def names(self, directory: str) -> frozenset[str]:
        """Every name below `directory`, as the store lists it. This helps to save work, and proves nothing.

        Raises:
            StoreTrouble: it could not be asked.
        """
        ...


def stored_as(lease_id: LeaseId, name: str) -> str:
    """The name in a store for what a lease's seal calls `name`."""
    return f"{lease_id}/{name}"


def seal_stored_as(lease_id: LeaseId, digest: str) -> str:
    """The name in a store of the seal with that digest, which lists what was kept, and every link."""
    return f"{lease_id}/.seals/{digest}.json"


def superseded_as(lease_id: LeaseId, stamp: str, name: str) -> str:
    """The name in a store for what was stored under `name` before that moment."""
    return f"{lease_id}/.superseded/{stamp}/{name}"


@asynccontextmanager
async def brought_back(
    store: DurableStore, name: str, *, size_bytes: int, scratch: Path
) -> AsyncIterator[Path]:
    """A file below `scratch` with the bytes that the store gives now. It is deleted afterwards.

    Raises:
        NotStored, StoreTrouble: as `DurableStore.get`.
        DiskFull: there is no room here for `size_bytes`.
    """
    require_room(scratch, size_bytes, remedy=f"free some: {name} is re-read from {store.words}")
    with tempfile.TemporaryDirectory(
        dir=scratch, prefix=".brought-back-", ignore_cleanup_errors=True
    ) as directory:
        into = Path(directory) / "bytes"
        await store.get(name, into)
        yield into


async def held(store: DurableStore, name: str, *, like: Reread, scratch: Path) -> Reread | None:
    """What the store's bytes for `name` are now, expected to equal `like`. None if the store has none.

    Raises:
        StoreTrouble, DiskFull: as `brought_back`.
    """
    try:
        async with brought_back(store, name, size_bytes=like.size_bytes, scratch=scratch) as path:
            return await asyncio.to_thread(reread, path)
    except NotStored:
        return None


class DirectoryStore:
    """A directory on this computer: a second disk, a file server, a mounted bucket."""

    def __init__(self, root: Path, *, words: str) -> None:
        self._root = root
        self.words = words

    async def where(self) -> Whereabouts:
        """As `DurableStore.where`."""
        return await asyncio.to_thread(whereabouts_of, self._root)

    async def put(self, source: Path, name: str, *, superseded: str) -> None:
        """As `DurableStore.put`. The file appears by rename, durably."""
        await asyncio.to_thread(self._put, source, self._at(name), self._at(superseded))

    async def get(self, name: str, into: Path) -> None:
        """As `DurableStore.get`. The bytes are read from the disk, not from the page cache."""
        await asyncio.to_thread(self._get, name, into)

    async def names(self, directory: str) -> frozenset[str]:
        """As `DurableStore.names`."""
        return await asyncio.to_thread(self._names, directory)

    def _at(self, name: str) -> Path:
        return below(self._root, name)

    def _put(self, source: Path, final: Path, superseded: Path) -> None:
        try:
            # The root is never created: an empty mount point is not the disk that should be mounted there.
            if not self._root.is_dir():
                raise self._trouble("there is no such directory now")
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
            raise self._trouble("there is no such directory now")
        try:
            path = self._at(name)
            opened = open_cold(path) if is_reached(self._root, path) else None
            if opened is None:
                raise NotStored(
                    f"{self.words} has no file {name}", remedy="keep it there again, or collect it"
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
            f"{self.words} did not do its part: {why}",
            remedy="see that it is mounted, has room and may be written to, then the same again",
        )
