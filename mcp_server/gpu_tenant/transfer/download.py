"""Downloads files from a box over several channels, and reads them back from the disk as they arrive."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Literal, Self

from gpu_tenant.domain.ports import Transport
from gpu_tenant.transfer.channel_pool import ChannelPool
from gpu_tenant.transfer.chunks import Coming
from gpu_tenant.transfer.download_state import DownloadState
from gpu_tenant.transfer.download_worker import Courier
from gpu_tenant.transfer.protocol import Conversation
from gpu_tenant.transfer.readback import Arrived, Lost, Prover
from gpu_tenant.transfer.shared_state import BandwidthTurn
from gpu_tenant.transfer.worker import Way


class Arrival:
    """The channels over which files can be downloaded while the block runs.

    `news="some"` says that there are certainly files to download. Then the channels are opened at once, before
    these files are known. `on_bytes` is called with the number of bytes that have just arrived. Bytes from an
    earlier attempt are not counted.
    """

    def __init__(
        self,
        transport: Transport,
        turn: BandwidthTurn,
        *,
        on_bytes: Callable[[int], None],
        news: Literal["some", "unknown"] = "unknown",
    ) -> None:
        self._work = DownloadState(turn)
        self._told: list[Arrived | Lost] = []
        self._news, self._total_bytes = news, 0
        self._pool = ChannelPool(
            self._work, self._make_worker, transport, turn, total_bytes=0, on_bytes=on_bytes
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
            # A cancellation must not interrupt this, because threads are still writing.
            await asyncio.shield(self._end())

    async def _end(self) -> None:
        await self._pool.end(self._prover)
        self._work.leave()

    async def bring(self, coming: Sequence[Coming]) -> AsyncGenerator[Arrived | Lost, None]:
        """Yield each file once: when it has arrived and was read back, or when it cannot be fetched.

        Raises:
            BoxUnreachable: the link broke; the bytes that came are kept, and the next attempt continues after
                them.
            BoxTrouble: the box does not start the courier, which sends its files.
            OSError: a partial file cannot be written, or read back.
        """
        left = len(coming)
        if not left:
            return
        if not self._has_begun:
            self._begin()
        self._total_bytes += sum(one.entry.size_bytes for one in coming)
        self._pool.expect(self._total_bytes)
        self._work.add(coming)
        while left:
            await self._pool.look()
            while self._told:
                left -= 1
                yield self._told.pop(0)

    def _begin(self) -> None:
        self._has_begun = True
        self._prover.start()
        self._pool.begin(self._news)

    def _make_worker(
        self, talk: Conversation, script: bytes, *, way: Way, mark: str, wake: Callable[[], None]
    ) -> Courier:
        return Courier(talk, self._work, script, way=way, mark=mark, wake=wake)

    def _tell(self, what: Sequence[Arrived | Lost]) -> None:
        self._told.extend(what)
        self._pool.wake()


async def carry_files(
    coming: Sequence[Coming],
    *,
    transport: Transport,
    turn: BandwidthTurn,
    on_bytes: Callable[[int], None],
) -> AsyncGenerator[Arrived | Lost, None]:
    """Do the same as `Arrival.bring`, over channels that are opened for these files only."""
    async with (
        Arrival(transport, turn, on_bytes=on_bytes) as arrival,
        aclosing(arrival.bring(coming)) as arriving,
    ):
        async for told in arriving:
            yield told
