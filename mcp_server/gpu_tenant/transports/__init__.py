"""How a command is run on a box: one file for each way.

This module has what these ways share: feeding a command and reading its output.
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
"""As much as the list of some 600,000 files takes. A box may send it, so it is all held in memory here."""


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
    """Feed `stdin` to `sink` for as long as the command reads it. Return when all of `answers` have ended.

    `listener` is told how many bytes were fed.

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
            # A command need not read its input. If the link broke, reading its output will show that.
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
    """Return everything that comes from `source`. `listener` is given each piece as it comes.

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
    """Return the end of a box's output, escaped so that it can neither hide nor move text on a screen."""
    return repr(output.decode("utf-8", "backslashreplace").strip()[-500:])


async def cancelled_once(work: Coroutine[object, object, T]) -> T:
    """Run `work`, and return its result.

    However often the caller is cancelled, `work` is cancelled once, and the call waits until `work` has tidied up.
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
        # The thread uses open files of the caller, which the caller closes next.
        await asyncio.wait([thread])
        thread.exception()
        raise
