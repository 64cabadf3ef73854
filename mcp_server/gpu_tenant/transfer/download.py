"""Files come from a box: over the carriage's channels, and read back from the storage here as they do."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Literal, Self

from gpu_tenant.domain.ports import Transport
from gpu_tenant.transfer.channel_pool import Carriage
from gpu_tenant.transfer.chunks import Coming
from gpu_tenant.transfer.download_state import Work
from gpu_tenant.transfer.download_worker import Courier
from gpu_tenant.transfer.protocol import Conversation
from gpu_tenant.transfer.readback import Arrived, Lost, Prover
from gpu_tenant.transfer.shared_state import Turn
from gpu_tenant.transfer.worker import Way


class Arrival:
    """The channels over which files come while the block runs; they are opened before anybody knows which.

    With `news="some"` they are opened at once, because something is sure to come. `on_bytes` is told of
    bytes as they come, those that were here from an earlier attempt left out.
    """

    def __init__(
        self,
        transport: Transport,
        turn: Turn,
        *,
        on_bytes: Callable[[int], None],
        news: Literal["some", "unknown"] = "unknown",
    ) -> None:
        self._work = Work(turn)
        self._told: list[Arrived | Lost] = []
        self._news, self._total_bytes = news, 0
        self._carriage = Carriage(
            self._work, self._opened, transport, turn, total_bytes=0, on_bytes=on_bytes
        )
        self._prover = Prover(self._work, self._tell)
        self._has_begun = False

    async def __aenter__(self) -> Self:
        if self._news == "some":
            self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._has_begun:
            # To its end, also where it is cancelled: threads are still writing.
            await asyncio.shield(self._end())

    async def _end(self) -> None:
        await self._carriage.end(self._prover)
        self._work.leave()

    async def bring(self, coming: Sequence[Coming]) -> AsyncGenerator[Arrived | Lost, None]:
        """Each file once, when it has arrived and was read back, or cannot be had.

        Raises:
            BoxUnreachable: the link broke; what came is here, and the next attempt goes on from it.
            BoxTrouble: the box does not start what gives its files.
            OSError: a partial file cannot be written, or read back.
        """
        left = len(coming)
        if not left:
            return
        if not self._has_begun:
            self._begin()
        self._total_bytes += sum(one.entry.size_bytes for one in coming)
        self._carriage.expect(self._total_bytes)
        self._work.add(coming)
        while left:
            await self._carriage.look()
            while self._told:
                left -= 1
                yield self._told.pop(0)

    def _begin(self) -> None:
        self._has_begun = True
        self._prover.start()
        self._carriage.begin(self._news)

    def _opened(
        self, talk: Conversation, script: bytes, *, way: Way, mark: str, wake: Callable[[], None]
    ) -> Courier:
        return Courier(talk, self._work, script, way=way, mark=mark, wake=wake)

    def _tell(self, what: Sequence[Arrived | Lost]) -> None:
        self._told.extend(what)
        self._carriage.wake()


async def carried(
    coming: Sequence[Coming], *, transport: Transport, turn: Turn, on_bytes: Callable[[int], None]
) -> AsyncGenerator[Arrived | Lost, None]:
    """As `Arrival.bring`, over channels for these files alone."""
    async with (
        Arrival(transport, turn, on_bytes=on_bytes) as arrival,
        aclosing(arrival.bring(coming)) as arriving,
    ):
        async for told in arriving:
            yield told
