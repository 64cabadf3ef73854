"""Limits in time, size and pages for every answer, so that a slow provider does not delay the watch over the others."""

import asyncio
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import ProviderSilent

T = TypeVar("T")

_LOOKS_AGAIN = f"{Command('leases')} looks again; the meter of a box may be running"
PIECE_BYTES = 1 << 16
_ABANDONED = 8
"""How many calls of one client may hang at a time. While that many hang, no further call is started."""


class Bounds(NamedTuple):
    """The limits of one call and of one list. Times are in real time, even in a rehearsal."""

    call_s: float = 60
    list_s: float = 120
    answer_bytes: int = 32 << 20
    """The size of an answer, counted after unpacking."""
    pages: int = 1000
    list_bytes: int = 128 << 20


BOUNDS = Bounds()


class Leafing:
    """The limits of one list that is read page by page."""

    def __init__(self, whose: str, bounds: Bounds = BOUNDS) -> None:
        self._whose = whose
        self._bounds = bounds
        self._pages = self._bytes = 0
        self._until = asyncio.get_running_loop().time() + bounds.list_s

    def turn(self, size_bytes: int = 0) -> None:
        """Count a page of that size. The next page may be asked for if this raises nothing.

        Raises:
            ProviderSilent: the list is longer than any real list, or takes too long.
        """
        self._pages += 1
        self._bytes += size_bytes
        if self._pages >= self._bounds.pages:
            raise silent(f"{self._whose} has more than {self._bounds.pages} pages")
        if self._bytes > self._bounds.list_bytes:
            raise silent(f"{self._whose} is larger than {self._bounds.list_bytes >> 20} MiB")
        if asyncio.get_running_loop().time() > self._until:
            raise silent(f"{self._whose} took longer than {self._bounds.list_s:g} s")


async def await_list(asking: Awaitable[T], whose: str, bounds: Bounds = BOUNDS) -> T:
    """Return the result of `asking`, within the time for a list.

    Raises:
        ProviderSilent: it took longer.
    """
    try:
        async with asyncio.timeout(bounds.list_s):
            return await asking
    except TimeoutError:
        raise silent(f"{whose} did not come within {bounds.list_s:g} s") from None


def silent(what: str) -> ProviderSilent:
    """Return the error for an answer from which nothing can be concluded: the request may have been carried out."""
    return ProviderSilent(what, remedy=_LOOKS_AGAIN)


async def unpack(
    pieces: AsyncIterator[bytes], encoding: str, whose: str, bounds: Bounds = BOUNDS
) -> bytes:
    """Return the body of an answer, unpacked, within the size limit.

    Raises:
        ProviderSilent: the body is too large, cannot be unpacked, or is packed in a way that was not asked for.
    """
    whole = bytearray()
    if encoding.strip().lower() in ("", "identity"):
        async for piece in pieces:
            _add(whole, piece, whose, bounds)
        return bytes(whole)
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        raise silent(f"{whose} is packed as {encoding[:40]!r}, which was not asked for")
    packed = zlib.decompressobj(wbits=31)
    try:
        async for piece in pieces:
            while piece and not packed.eof:
                _add(whole, packed.decompress(piece, PIECE_BYTES), whose, bounds)
                piece = packed.unconsumed_tail
    except zlib.error as error:
        raise silent(f"{whose} cannot be unpacked") from error
    if whole and not packed.eof:
        raise silent(f"{whose} ends in the middle")
    return bytes(whole)


def read_bounded(pieces: Iterable[bytes], whose: str, bounds: Bounds = BOUNDS) -> bytes:
    """Return all of `pieces`, within the size limit.

    Raises:
        ProviderSilent: they are larger.
    """
    whole = bytearray()
    for piece in pieces:
        _add(whole, piece, whose, bounds)
    return bytes(whole)


def _add(whole: bytearray, piece: bytes, whose: str, bounds: Bounds) -> None:
    whole += piece
    if len(whole) > bounds.answer_bytes:
        raise silent(f"{whose} is larger than {bounds.answer_bytes >> 20} MiB")


class Aside:
    """Runs the calls of a client that blocks, each in a thread of its own.

    A call that hangs does not delay other calls. Its caller gets an error when the time is over, and the program can
    still end.
    """

    def __init__(self, whose: str, bounds: Bounds = BOUNDS) -> None:
        self._whose = whose
        self._bounds = bounds
        self._hanging: list[threading.Thread] = []

    async def do(self, work: Callable[[], T], what: str) -> T:
        """Run `work` in a thread, and return or raise what it does.

        Raises:
            ProviderSilent: the time is over, and `work` may or may not be carried out, even later. Or too many
                earlier calls still hang.
        """
        self._hanging = [thread for thread in self._hanging if thread.is_alive()]
        if len(self._hanging) >= _ABANDONED:
            raise silent(f"{self._whose}: {len(self._hanging)} earlier calls hang")
        loop = asyncio.get_running_loop()
        came: asyncio.Future[T] = loop.create_future()

        def tell(result: T | None, error: BaseException | None) -> None:
            if came.done():
                return
            if error is None:
                came.set_result(result)  # type: ignore[arg-type]
            else:
                came.set_exception(error)

        def run() -> None:
            result, trouble = None, None
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - raised again in the caller
                trouble = error
            with suppress(RuntimeError):  # nobody waits any more, and the loop is closed
                loop.call_soon_threadsafe(tell, result, trouble)

        thread = threading.Thread(target=run, name=f"{self._whose}: {what}", daemon=True)
        thread.start()
        try:
            async with asyncio.timeout(self._bounds.call_s):
                return await came
        except TimeoutError:
            self._hanging.append(thread)
            raise silent(
                f"{self._whose} did not answer {what} within {self._bounds.call_s:g} s"
            ) from None
