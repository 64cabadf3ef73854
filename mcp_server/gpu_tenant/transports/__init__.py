"""The ways to a box, one per file, and what they share: how a command is fed and heard."""

import asyncio
from collections.abc import AsyncIterable, Callable, Coroutine
from typing import Protocol, TypeVar

from gpu_tenant.domain.errors import BoxTrouble
from gpu_tenant.domain.ports import Listener

T = TypeVar("T")

CHUNK_BYTES = 1 << 20
MAX_OUTPUT_BYTES = 64 << 20


class Sink(Protocol):
    """The writing end of a pipe."""

    def write(self, chunk: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def write_eof(self) -> None: ...


class Source(Protocol):
    """The reading end of a pipe; an empty read is its end."""

    async def read(self, size_bytes: int, /) -> bytes: ...


async def converse(
    stdin: bytes | AsyncIterable[bytes],
    sink: Sink,
    *answers: Coroutine[None, None, T],
    listener: Listener | None = None,
) -> list[T]:
    """Every one of `answers` came; `stdin` was fed to `sink` as long as somebody read it.

    `listener` is told what was.

    Raises:
        Exception: the first that `stdin` or one of `answers` raised, as it was.
    """
    try:
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(_feed(stdin, sink, listener))
            coming = [group.create_task(answer) for answer in answers]
            came = [await answer for answer in coming]
            feeding.cancel()
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return came


async def _feed(stdin: bytes | AsyncIterable[bytes], sink: Sink, listener: Listener | None) -> None:
    async for chunk in _sliced(stdin) if isinstance(stdin, bytes) else stdin:
        try:
            sink.write(chunk)
            await sink.drain()
        except OSError:
            # A command need not read its input. If the link broke, its output tells.
            return
        if listener is not None:
            listener.sent(len(chunk))
    try:
        sink.write_eof()
    except OSError:
        return


async def _sliced(whole: bytes) -> AsyncIterable[bytes]:
    for start in range(0, len(whole), CHUNK_BYTES):
        yield whole[start : start + CHUNK_BYTES]


async def all_of(source: Source, listener: Listener | None = None) -> bytes:
    """Everything `source` had to say; `listener` has heard each piece as it came.

    Raises:
        BoxTrouble: that is more than 64 MiB.
    """
    said = bytearray()
    while chunk := await source.read(CHUNK_BYTES):
        said += chunk
        if listener is not None:
            listener.heard(chunk)
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
