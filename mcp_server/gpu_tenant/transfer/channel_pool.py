"""The channels of one transfer. There are as many as are worthwhile, and each has a thread that works over it.

The event loop checks the threads many times a second. The threads know nothing of the loop.
"""

import asyncio
import math
import secrets
import statistics
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from threading import Thread
from typing import Generic, Literal, Protocol

from gpu_tenant.domain.errors import BoxUnreachable, TenantError
from gpu_tenant.domain.ports import Transport
from gpu_tenant.files.skill_files import script
from gpu_tenant.transfer.concurrency import FAR, MOST, NEAR, Pace
from gpu_tenant.transfer.protocol import Conversation
from gpu_tenant.transfer.shared_state import BandwidthTurn, P, Transfer
from gpu_tenant.transfer.worker import ChannelWorker, Way

_LOOK_S = 0.05
_DIALLED_AT_ONCE = 10
"""If more connections than this wait to log in, sshd begins to drop some."""
_WORTH_A_CONNECTION_BYTES = 2 << 20
_REFUSED = 5
"""After this many channels in a row that moved no bytes, no more are opened for `_REFUSED_FOR_S` seconds."""
_REFUSED_FOR_S = 60
_GREETED_WITHIN_S = 60
_NEAR_OPENS_S = 0.25
_TRIPS_KNOWN_S, _TRIPS_KNOWN = 5, 3
_HELD_BACK_S = 1
_STALL_S = 120
_AGAIN = "what arrived is kept; run the same command again to continue from there"

_START = """\
import sys, zlib
script = zlib.decompress(sys.stdin.buffer.read(int(sys.argv[1])))
del sys.argv[:2]
sys.argv.insert(0, "courier")
exec(compile(script, "courier", "exec"), {"__name__": "__main__"})
"""


class Opened(Protocol[P]):
    """A function that makes the thread for a channel that was opened."""

    def __call__(
        self, talk: Conversation, script: bytes, *, way: Way, mark: str, wake: Callable[[], None]
    ) -> ChannelWorker[P]:
        """Return the thread, not yet started."""
        ...


class ChannelPool(Generic[P]):
    """The channels of one transfer with their threads, managed from the event loop."""

    def __init__(
        self,
        job: Transfer[P],
        opened: Opened[P],
        transport: Transport,
        turn: BandwidthTurn,
        *,
        total_bytes: int,
        on_bytes: Callable[[int], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._work, self._opened = job, opened
        self._transport, self._turn, self._on_bytes = transport, turn, on_bytes
        self._sleep: asyncio.Future[None] = self._loop.create_future()
        self._most = self._refused_at = MOST
        self.expect(total_bytes)
        self._pace = Pace()
        self._couriers: list[ChannelWorker[P]] = []
        self._dialling: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Semaphore(_DIALLED_AT_ONCE)
        self._refused, self._was_ready = 0, False
        self._refused_until = 0.0
        self._refusal: TenantError | None = None
        self._reported_bytes = 0
        self._rates: deque[tuple[float, int]] = deque()

    def begin(self, news: Literal["some", "unknown"] = "unknown") -> None:
        """Start to open the first channel, over the kept connection.

        With `news="some"` there is certainly something to move, so start to open more channels at once.
        """
        self._dial("kept")
        if news == "some":
            for _ in range(NEAR):
                self._dial("own")
            self._loop.call_later(_NEAR_OPENS_S, self._dial_far)

    def _dial_far(self) -> None:
        """If the first channel is not open yet, the box is far away. Start to open more, because each takes long."""
        is_open = any(courier.way == "kept" for courier in self._couriers)
        if not is_open and not self._work.has_ended:
            for _ in range(FAR - NEAR):
                self._dial("own")

    def expect(self, total_bytes: int) -> None:
        """Set how many bytes the transfer will move in all. This limits the number of connections."""
        self._most = 1 + total_bytes // _WORTH_A_CONNECTION_BYTES

    async def look(self) -> None:
        """Report progress, start to open missing channels, and wait for a short time, or until `wake` is called.

        Raises:
            BoxUnreachable: the link broke; the bytes that came are kept, and the next call continues after
                them.
            BoxTrouble: the box does not start the courier.
            Exception: the error that ended the transfer.
        """
        self._look()
        alarm = self._loop.call_later(_LOOK_S, self._rouse)
        await self._sleep
        alarm.cancel()
        self._sleep = self._loop.create_future()

    async def end(self, *others: Thread) -> None:
        """End every thread, including `others`, and wait until they have ended."""
        self._work.stop()
        for task in self._dialling:
            task.cancel()
        await asyncio.gather(*self._dialling, return_exceptions=True)
        for courier in self._couriers:
            courier.hang_up()
        for thread in (*self._couriers, *others):
            while thread.is_alive():  # noqa: ASYNC110
                # Polling is used because a join would block the loop, or occupy a thread of a small pool.
                await asyncio.sleep(0.005)
        self._report()

    def wake(self) -> None:
        """Make the event loop check the threads soon. May be called from any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._rouse)

    def _rouse(self) -> None:
        if not self._sleep.done():
            self._sleep.set_result(None)

    def _look(self) -> None:
        """Report progress, and start to open missing channels.

        Raises:
            Exception: the error that ended the transfer.
        """
        self._report()
        if self._work.trouble is not None:
            raise self._work.trouble
        over = [courier for courier in self._couriers if courier.is_over]
        self._couriers = [courier for courier in self._couriers if not courier.is_over]
        for courier in over:
            self._refused = 0 if courier.carried_bytes else self._refused + 1
        for courier in self._couriers:
            if courier.is_waiting and time.monotonic() - courier.moved_at > _STALL_S:
                courier.hang_up()
        ready = [courier for courier in self._couriers if courier.is_ready]
        self._was_ready = self._was_ready or any(courier.is_ready for courier in (*over, *ready))
        if not self._couriers and not self._dialling and not self._work.is_over:
            raise self._refusal or BoxUnreachable(
                "the link broke during a transfer"
                if self._was_ready
                else "the box did not start the program that moves its files",
                remedy=_AGAIN,
            )
        self._find_pace(ready)

    def _find_pace(self, ready: Sequence[ChannelWorker[P]]) -> None:
        now = time.monotonic()
        self._pace.round_trip_s, self._pace.queued_s = _trips(ready, now)
        if now - self._work.held_back_until < _HELD_BACK_S:
            # The transfer's own limit holds it back, so more connections would only wait as well.
            self._pace.queued_s = math.inf
        rate = self._rate_bytes_s(now)
        if now >= self._refused_until:
            self._refused_at = MOST
        most = min(self._turn.connections(MOST), self._most, self._refused_at)
        wanted = self._pace.look(
            now,
            self._work.linked_bytes,
            working=len(ready),
            most=most,
            busy_s=time.process_time(),
        )
        # Threads with high numbers get no work. The kept connection gets the last number, because
        # this process decrypts it, on the core that runs everything else here.
        for number, courier in enumerate(sorted(ready, key=lambda one: one.way == "kept")):
            courier.number = number
        self._work.want(wanted, rate)
        # For a far box, a few connections are opened ahead of need, because opening one takes long.
        target = min(wanted + self._pace.spare, most)
        missing = target - len(self._couriers) - len(self._dialling)
        if self._refused >= _REFUSED:
            self._refused, self._refused_until = 0, now + _REFUSED_FOR_S
            self._refused_at = max(1, len(self._couriers))
            return
        for _ in range(missing):
            self._dial("own")

    def _rate_bytes_s(self, now: float) -> float:
        """Return how many bytes a second have moved over the link recently. 0 if unknown."""
        if not self._rates or now - self._rates[-1][0] >= _LOOK_S / 2:
            self._rates.append((now, self._work.linked_bytes))
        while self._rates[0][0] < now - 2:
            self._rates.popleft()
        since, before = self._rates[0]
        return (self._work.linked_bytes - before) / (now - since) if now - since > 0.5 else 0.0

    def _dial(self, way: Way) -> None:
        task = asyncio.create_task(self._open_channel(way))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)
        task.add_done_callback(lambda _: self._rouse())

    async def _open_channel(self, way: Way) -> None:
        """Open a channel and start a courier's thread over it. If opening fails, keep the error."""
        async with self._gate:
            mark, packed = secrets.token_hex(16), _pack_script()
            argv = ["python3", "-I", "-S", "-c", _START, str(len(packed)), mark]
            try:
                channel = await self._transport.open(argv, way=way)
            except TenantError as trouble:
                # The transfer may continue over other channels. If there is none, this error is raised.
                self._refused, self._refusal = self._refused + 1, trouble
                return
            except Exception as trouble:  # noqa: BLE001 - raised again by the code that waits for the transfer
                self._work.fail(trouble)
                return
            courier = self._opened(
                Conversation(channel), packed, way=way, mark=mark, wake=self.wake
            )
            self._couriers.append(courier)
            courier.start()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GREETED_WITHIN_S):
                    while not courier.is_ready and not courier.is_over:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
            if not courier.is_ready:
                courier.hang_up()

    def _report(self) -> None:
        came = self._work.came_bytes
        if came > self._reported_bytes:
            self._on_bytes(came - self._reported_bytes)
            self._reported_bytes = came


def _trips(ready: Sequence[ChannelWorker[P]], now: float) -> tuple[float, float | None]:
    """Return the shortest round trip in seconds, and by how much the latest ones exceed it (None if unknown)."""
    shortest = min((c.round_trip_s for c in ready if c.round_trip_s is not None), default=0.0)
    newest = sorted(trip for courier in ready for trip in tuple(courier.trips))[-_TRIPS_KNOWN:]
    lately = [took_s for at, took_s in newest if now - at < _TRIPS_KNOWN_S]
    return shortest, statistics.median(lately) - shortest if lately else None


@cache
def _pack_script() -> bytes:
    return zlib.compress(script("courier.py").read_bytes(), 9)
