"""The ways to a box, one per file, and what they share: pipes, and the local file a `get` grows."""

import asyncio
import errno
import os
from collections.abc import AsyncIterable, Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self, TypeVar

from gpu_tenant.errors import BoxTrouble, DiskFull, LocalTrouble

T = TypeVar("T")

CHUNK_BYTES = 1 << 20
MAX_OUTPUT_BYTES = 64 << 20

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Sink(Protocol):
    """The writing end of a pipe."""

    def write(self, chunk: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def write_eof(self) -> None: ...


class Source(Protocol):
    """The reading end of a pipe; an empty read is its end."""

    async def read(self, size_bytes: int, /) -> bytes: ...


async def converse(
    stdin: bytes | AsyncIterable[bytes], sink: Sink, *answers: Coroutine[None, None, T]
) -> list[T]:
    """Every one of `answers` came; `stdin` was fed to `sink` as long as somebody read it.

    Raises:
        Exception: the first that `stdin` or one of `answers` raised, as it was.
    """
    try:
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(_feed(stdin, sink))
            coming = [group.create_task(answer) for answer in answers]
            came = [await answer for answer in coming]
            feeding.cancel()
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return came


async def _feed(stdin: bytes | AsyncIterable[bytes], sink: Sink) -> None:
    async for chunk in _sliced(stdin) if isinstance(stdin, bytes) else stdin:
        try:
            sink.write(chunk)
            await sink.drain()
        except OSError:
            # A command need not read its input. If the link broke, its output tells.
            return
    try:
        sink.write_eof()
    except OSError:
        return


async def _sliced(whole: bytes) -> AsyncIterable[bytes]:
    for start in range(0, len(whole), CHUNK_BYTES):
        yield whole[start : start + CHUNK_BYTES]


async def all_of(source: Source) -> bytes:
    """Everything `source` had to say.

    Raises:
        BoxTrouble: that is more than 64 MiB.
    """
    said = bytearray()
    while chunk := await source.read(CHUNK_BYTES):
        said += chunk
        if len(said) > MAX_OUTPUT_BYTES:
            raise BoxTrouble(
                f"the command printed more than {MAX_OUTPUT_BYTES >> 20} MiB",
                remedy="have it write to a file, and run `gpu-tenant collect`",
            )
    return bytes(said)


def as_told(output: bytes) -> str:
    """The end of what a box said, quoted so that it can neither hide nor move text on a screen."""
    return repr(output.decode("utf-8", "backslashreplace").strip()[-500:])


async def uninterrupted(work: Callable[[], T]) -> T:
    """What `work` returned, in a thread; the thread has ended, also when this is cancelled."""
    thread = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        # The thread uses open files of the caller, which the caller is about to close.
        await asyncio.wait([thread])
        thread.exception()
        raise


class Growth:
    """A local file that only grows. It appears with its first byte, or when it is settled."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file:
            self._file.close()

    @property
    def size_bytes(self) -> int:
        """How much is there already."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0
        except OSError as exc:
            raise self._trouble(exc) from exc

    async def add(self, chunk: bytes) -> None:
        """The file ends with `chunk`.

        Raises:
            DiskFull: there was room for a part of it, or none; that part stays.
            LocalTrouble: the file could not be written for another reason.
        """
        await uninterrupted(lambda: self._write(chunk))

    async def settle(self) -> None:
        """The file, and its name in its directory, survive a power cut.

        Raises:
            DiskFull, LocalTrouble: as for `add`.
        """
        await uninterrupted(self._sync)

    def _write(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        try:
            file = self._opened()
            while rest:
                rest = rest[file.write(rest) :]
        except OSError as exc:
            raise self._trouble(exc) from exc

    def _sync(self) -> None:
        try:
            os.fsync(self._opened().fileno())
            if os.name == "posix":
                directory = os.open(self._path.parent, os.O_RDONLY)
                try:
                    os.fsync(directory)
                finally:
                    os.close(directory)
        except OSError as exc:
            raise self._trouble(exc) from exc

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
        return self._file

    def _trouble(self, exc: OSError) -> LocalTrouble:
        if exc.errno in _NO_ROOM:
            return DiskFull(
                f"no room for {str(self._path)!r}: {exc.strerror}; what was fetched stays",
                remedy="free some space there, then run `gpu-tenant collect` to go on",
            )
        return LocalTrouble(
            f"cannot write {str(self._path)!r}: {exc.strerror}",
            remedy="make that place writable, then run `gpu-tenant collect` to go on",
        )
