"""How a command is run on a box. Each way to a box has a file of its own.

This module has what these ways share: feeding a command with input, and reading its output.
"""

import asyncio
from collections.abc import AsyncIterable, Callable, Coroutine
from typing import Protocol, TypeVar

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxTrouble
from gpu_tenant.domain.ports import Listener

T = TypeVar("T")

CHUNK_BYTES = 1 << 20
MAX_OUTPUT_BYTES = 192 << 20
"""The output is held in memory, so more is refused. A list of about 600,000 files fits."""


class Sink(Protocol):
    """The writing end of a pipe."""

    def write(self, chunk: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def write_eof(self) -> None: ...


class PipeReader(Protocol):
    """The reading end of a pipe. An empty read means that the pipe has ended."""

    async def read(self, size_bytes: int, /) -> bytes: ...


async def converse(
    stdin: bytes | AsyncIterable[bytes],
    sink: Sink,
    *answers: Coroutine[None, None, T],
    listener: Listener | None = None,
) -> list[T]:
    """Write `stdin` to `sink` as long as the command reads it. Return the results of `answers` when all have ended.

    `listener` is told how many bytes were written.

    Raises:
        Exception: the first error that `stdin` or one of `answers` raised, unchanged.
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
    async for chunk in _slices(stdin) if isinstance(stdin, bytes) else stdin:
        try:
            sink.write(chunk)
            await sink.drain()
        except OSError:
            # A command need not read its input. If the link broke, the reader of the output notices it.
            return
        if listener is not None:
            listener.note_input(len(chunk))
    try:
        sink.write_eof()
    except OSError:
        return


async def _slices(whole: bytes) -> AsyncIterable[bytes]:
    for start in range(0, len(whole), CHUNK_BYTES):
        yield whole[start : start + CHUNK_BYTES]


async def all_of(source: PipeReader, listener: Listener | None = None) -> bytes:
    """Return everything that comes from `source`. Each piece is also given to `listener` when it comes.

    Raises:
        BoxTrouble: more than `MAX_OUTPUT_BYTES` came.
    """
    said = bytearray()
    while chunk := await source.read(CHUNK_BYTES):
        said += chunk
        if listener is not None:
            listener.note_output(chunk)
        if len(said) > MAX_OUTPUT_BYTES:
            raise BoxTrouble(
                f"the command printed more than {MAX_OUTPUT_BYTES >> 20} MiB",
                remedy="let it write to a file, or pack very many small files into one; then "
                f"{Command('collect')}",
            )
    return bytes(said)


def as_told(output: bytes) -> str:
    """Return the end of a box's output. It is escaped, so that it cannot hide or move text on a screen."""
    return repr(output.decode("utf-8", "backslashreplace").strip()[-500:])


async def cancelled_once(work: Coroutine[object, object, T]) -> T:
    """Run `work`, and return its result.

    If the caller is cancelled, `work` is cancelled once, even if the caller is cancelled several times. The
    call then waits until `work` has cleaned up.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as said:
            if cancelled is None:
                task.cancel()
            cancelled = said
    if cancelled is not None:
        if not task.cancelled():
            task.exception()
        raise cancelled
    return task.result()


async def run_uninterrupted(work: Callable[[], T]) -> T:
    """Run `work` in a thread, and return its result. A cancelled call still waits until the thread has ended."""
    thread = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        # The thread uses open files that the caller closes next.
        await asyncio.wait([thread])
        thread.exception()
        raise
