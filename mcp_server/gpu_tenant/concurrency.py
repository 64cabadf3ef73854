"""Does many things at once, up to a limit. A failure of one neither stops nor hides the others."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Literal, TypeVar

K = TypeVar("K")
T = TypeVar("T")

AT_ONCE = 32
"""How many boxes are asked at a time. A larger number was no faster, and a provider's gateway counts logins.
"""


async def each(
    things: Iterable[K],
    do: Callable[[K], Awaitable[T]],
    *,
    at_once: int = AT_ONCE,
    begun: Literal["is cut", "goes on"] = "is cut",
    heard: Callable[[K, T | Exception], None] = lambda thing, came: None,
) -> list[T | Exception]:
    """Return the outcome of each thing, in the order of the things: what `do` returned, or what it raised.

    `heard` is called for each thing as soon as it has ended. If `each` is cancelled, it begins nothing more. What
    is under way is cancelled too, or continues to its end, as `begun` says. Nothing is under way any more when
    `each` returns.
    """
    waiting = list(enumerate(things))
    waiting.reverse()
    came: dict[int, T | Exception] = {}

    async def work() -> None:
        while waiting:
            place, thing = waiting.pop()
            try:
                came[place] = await do(thing)
            except Exception as error:  # noqa: BLE001 - returned in the thing's place
                came[place] = error
            heard(thing, came[place])

    workers = [asyncio.create_task(work()) for _ in range(min(at_once, len(waiting)))]
    try:
        if workers:
            await asyncio.wait(workers)
        for worker in workers:
            worker.result()
    except BaseException:
        waiting.clear()
        for worker in workers if begun == "is cut" else ():
            worker.cancel()
        # Another cancellation may arrive here. Wait on until every worker has really ended.
        while not all(worker.done() for worker in workers):
            with suppress(asyncio.CancelledError):
                await asyncio.wait(workers)
        raise
    return [came[place] for place in range(len(came))]


async def finish_first(work: Coroutine[object, object, T]) -> T:
    """Run `work` to its end, however often the caller is cancelled, and return its result.

    A caller that was cancelled is cancelled when `work` has ended. `work` must end by itself.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as said:
            cancelled = said
    if cancelled is not None:
        if not task.cancelled():
            task.exception()
        raise cancelled
    return task.result()
