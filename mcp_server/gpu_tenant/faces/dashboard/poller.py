"""Keeps the state of all leases up to date for the open pages.

Providers are asked only while a page is open, and not more often than needed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.concurrency import each
from gpu_tenant.domain.errors import LeaseHeld, TenantError
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.record import Record
from gpu_tenant.faces.dashboard.background_tasks import Trouble
from gpu_tenant.faces.dashboard.lease_rows import (
    LastSeen,
    LeaseRow,
    Overview,
    Sums,
    Working,
    rows_of,
    sums_of,
)
from gpu_tenant.leases.cards import Leases
from gpu_tenant.leases.watch_actions import standing_of
from gpu_tenant.service import Tenancy

_log = logging.getLogger(__name__)

_ASK_S = 15.0
"""While a page is open, all providers are asked this often, in seconds."""
_LEAST_S = 4.0
"""Providers are never asked more often than this, in seconds, because they limit the number of calls."""
_NOTICE_S = 1.0
"""The ledger is checked this often for new events, which another program may have added."""
_AT_ONCE = 4
"""At most this many boxes are asked for their jobs at once, because each request starts a program on a box."""
_TAIL_BYTES = 4096
_NOTHING = Leases(leases=(), alarms=())
_UNKNOWN = dict.fromkeys(("spent_usd", "burning_usd_h", "leaking_usd_month"))
_BEHIND = 128
"""At most this many events wait for a page. A page that reads too slowly gets the whole state instead."""


@dataclass(frozen=True, slots=True)
class PageEvent:
    """An event that is sent to the open pages."""

    event: str
    content: Record


_HISTORY = 500
"""At most this many ended leases are shown on the page."""

Told = asyncio.Queue[PageEvent | None]
"""The events for one page. A None in the queue ends the page's stream."""


class ChangedRows(Sums):
    """The rows that have changed, with the sums and the alarms of all rows."""

    rows: tuple[LeaseRow, ...]


class Looks:
    """Keeps the newest state of all leases, and sends each change to the open pages."""

    def __init__(self, opened: Callable[[], Tenancy]) -> None:
        self._opened = opened
        self.begun: Callable[[], Sequence[PageEvent]] = tuple
        """Returns the state of each action as events, for a page that may have missed them."""
        self._before: list[Tenancy] = []
        self.tenancy = opened()
        self.blind: dict[str, str] = {}
        self._silent_since: dict[str, datetime] = {}
        self._working: dict[str, Working] = {}
        self._states: dict[str, dict[str, LastSeen]] = {}
        """The state of each job on its box, for every lease with several jobs."""
        self._seen: Leases | None = None
        self._at: datetime | None = None
        self._trouble: Trouble | None = None
        self._looked_s = -1e9
        self._newest_event = 0
        self._wanted = asyncio.Event()
        self._looking = asyncio.Lock()
        self._hearers: set[Told] = set()

    # The state

    async def overview(self, which: Literal["live", "all"] = "live") -> Overview:
        """Return the last known state of all leases. If it is old, ask all providers first."""
        if which == "all":
            seen = await self.tenancy.list_leases("all", _HISTORY)
            return self._overview_of(seen, self.tenancy.clock.now())
        if _now_s() - self._looked_s > 2 * _ASK_S:
            await self._look()
        return self._overview_of(self._seen or _NOTHING)

    def row(self, lease: str) -> LeaseRow | None:
        """Return the last known state of that lease. None if it was not among the leases."""
        cards = self._seen.leases if self._seen else ()
        shown = tuple(card for card in cards if card.lease == lease)
        return next(iter(self._rows(Leases(leases=shown, alarms=()))), None)

    @property
    def looked_at(self) -> datetime:
        """Return when all providers were last asked. If never, return the present time."""
        return self._at or self.tenancy.clock.now()

    def job_of(self, lease: str) -> str | None:
        """Return the job that is shown for that lease. None if its box was not asked yet."""
        job = self._working.get(lease)
        return None if job is None else job.id

    def states_on(self, lease: str) -> Mapping[str, LastSeen]:
        """Return the state of each job of that lease, as the box listed it. Empty if the box was not asked."""
        return self._states.get(lease, {})

    def others_on(self, lease: str) -> int:
        """Return how many jobs run on that lease's box besides the job that is shown."""
        job = self._working.get(lease)
        return 0 if job is None else job.others_running

    def declared_id(self, lease: str, run: str) -> str:
        """Return the ledger's id of a job. `run` is the box's name for a run of it, such as `NAME.2` for a retry."""
        known = {job.id for job in self.tenancy.ledger.jobs(self.tenancy.ledger.lease(lease).id)}
        return run if run in known else run.rpartition(".")[0]

    def _overview_of(self, seen: Leases, at: datetime | None = None) -> Overview:
        return Overview(**dict(self._sums(seen, at)), leases=self._rows(seen))

    def _sums(self, seen: Leases, at: datetime | None = None) -> Sums:
        now = self.tenancy.clock.now()
        sums = sums_of(
            seen, self.tenancy.profiles, at=at or self._at or now, now=now, trouble=self._trouble
        )
        # Before the providers were asked, the sums are unknown, which is not the same as zero.
        return sums.model_copy(update=_UNKNOWN) if seen is _NOTHING else sums

    def _rows(self, seen: Leases) -> tuple[LeaseRow, ...]:
        return rows_of(
            seen,
            self.tenancy,
            blind=self.blind,
            silent_since=self._silent_since,
            working=self._working,
        )

    # Sending events to the pages

    @contextmanager
    def listen(self) -> Iterator[Told]:
        """Yield a queue that receives all events while the block runs."""
        news: Told = asyncio.Queue(_BEHIND)
        self._hearers.add(news)
        self._wanted.set()
        try:
            yield news
        finally:
            self._hearers.discard(news)

    def tell(self, event: str, content: Record) -> None:
        """Send an event to every open page. A page that is too far behind gets the whole state instead."""
        for news in self._hearers:
            if news.full():
                while not news.empty():
                    news.get_nowait()
                for anew in (
                    PageEvent("overview", self._overview_of(self._seen or _NOTHING)),
                    *self.begun(),
                ):
                    news.put_nowait(anew)
            news.put_nowait(PageEvent(event, content))

    def end(self) -> None:
        """End the stream of every open page."""
        for news in self._hearers:
            if news.full():
                news.get_nowait()
            news.put_nowait(None)

    def want(self) -> None:
        """Request that all providers are asked again soon."""
        self._wanted.set()

    def sees(self, lease: str, job: Working) -> None:
        """Record that the lease's box answered, and that `job` is shown for it. Send a change to the pages."""
        before = self._working.get(lease)
        if before is not None and before.id == job.id and before.spark is not None:
            known = job.spark.after(before.spark) if job.spark else before.spark
            job = job.model_copy(update={"spark": known})
        changed = before is None or before.model_copy(update={"at": job.at}) != job
        changed = changed or lease in self.blind
        self._working[lease] = job
        self.blind.pop(lease, None)
        self._silent_since.pop(lease, None)
        if changed:
            self._tell_row(lease)

    def is_blind(self, lease: str, words: str) -> None:
        """Record that the box of that lease does not answer. Send a change to the pages."""
        if self.blind.get(lease) != words:
            self.blind[lease] = words
            self._silent_since.setdefault(lease, self.tenancy.clock.now())
            self._tell_row(lease)

    def _tell_row(self, lease: str) -> None:
        row = self.row(lease)
        if row is not None and self._seen is not None:
            self.tell("rows", ChangedRows(**dict(self._sums(self._seen)), rows=(row,)))

    def take_tenancy(self) -> None:
        """Open the tenancy again, so that it uses new keys. Calls that still use the old tenancy may finish."""
        fresh = self._opened()
        self._before.append(self.tenancy)
        self.tenancy = fresh
        self.want()

    # Polling

    @asynccontextmanager
    async def kept_up(self) -> AsyncIterator[None]:
        """While the block runs, keep the state up to date as long as a page is open."""
        tasks = [
            asyncio.create_task(_insist(turn)) for turn in (self._ask, self._notice, self._see_work)
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for tenancy in (*self._before, self.tenancy):
                await tenancy.aclose()

    async def _ask(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), _ASK_S)
            await asyncio.sleep(self._looked_s + _LEAST_S - _now_s())
            if self._hearers:
                await self._look()
            else:
                self._wanted.clear()
                await self._wanted.wait()

    async def _notice(self) -> None:
        while True:
            await asyncio.sleep(_NOTICE_S)
            if self._hearers and self.tenancy.ledger.newest_event() != self._newest_event:
                self.want()

    async def _look(self) -> None:
        """Ask every provider, or record why this failed. Send the result to the open pages."""
        self._wanted.clear()
        async with self._looking:
            if _now_s() - self._looked_s < _LEAST_S / 2:
                return  # another caller has just asked them
            try:
                self._seen = await self.tenancy.list_leases()
                self._at, self._trouble = self.tenancy.clock.now(), None
            except TenantError as trouble:
                self._trouble = Trouble.of(trouble)
            except Exception as trouble:  # noqa: BLE001 - shown on the page, and polling continues
                _log.exception("a look failed")
                self._trouble = Trouble.of(trouble)
            self._looked_s = _now_s()
            self._newest_event = self.tenancy.ledger.newest_event()
        seen = self._seen or _NOTHING
        gone = {*self._working, *self._states, *self.blind} - {c.lease for c in seen.leases}
        for lease in gone:
            self._working.pop(lease, None)
            self._states.pop(lease, None)
            self.blind.pop(lease, None)
            self._silent_since.pop(lease, None)
        self.tell("overview", self._overview_of(seen))

    async def _see_work(self) -> None:
        """Ask for the newest job of each running lease from time to time, a few boxes at once."""
        while True:
            begun_s = _now_s()
            if self._hearers and self._seen is not None:
                running = [
                    card.lease
                    for card in self._seen.leases
                    if card.state is LeaseState.ACTIVE and card.phase == "ready" and card.jobs
                    if self._is_unsettled(card.lease)
                ]
                await each(running, self._see, at_once=_AT_ONCE)
            # Pause for twice as long as the round took, so that these boxes and this computer have
            # time for other work.
            await asyncio.sleep(max(3.0, min(60.0, 2 * (_now_s() - begun_s))))

    def _is_unsettled(self, lease: str) -> bool:
        job = self._working.get(lease)
        newest = self.tenancy.ledger.jobs(self.tenancy.ledger.lease(lease).id)[-1].id
        return job is None or job.id != newest or job.state not in ENDED or lease in self.blind

    async def _see(self, lease: str) -> None:
        try:
            running = await self._running_on(lease)
            newest = running[-1] if running else None
            seen = await self.tenancy.follow(
                lease, newest, cursor=None, wait_s=0, limit_bytes=_TAIL_BYTES
            )
        except LeaseHeld:
            return
        except TenantError as trouble:
            self.is_blind(lease, trouble.message)
        else:
            others = max(0, len(running) - 1)
            job = seen.model_copy(update={"job": self.declared_id(lease, seen.job)})
            now = self.tenancy.clock.now()
            self.sees(lease, Working.of(job, at=now, others_running=others))

    async def _running_on(self, lease: str) -> list[str]:
        """Return the jobs that run on that box, the newest last.

        If the lease has only one job, return an empty list, without asking the box.
        """
        jobs = [job.id for job in self.tenancy.ledger.jobs(self.tenancy.ledger.lease(lease).id)]
        if len(jobs) == 1:
            return []
        there, now = await standing_of(self.tenancy.context, lease), self.tenancy.clock.now()
        # The names of one job's runs differ in the number at their end. The newest run has the greatest number,
        # so it comes last, and its state is kept.
        self._states[lease] = {
            self.declared_id(lease, brief.job): LastSeen(at=now, state=brief.state)
            for brief in sorted(there.jobs, key=lambda brief: (len(brief.job), brief.job))
        }
        runs = set(there.live)
        runs |= {run.rpartition(".")[0] for run in runs}
        return [job for job in jobs if job in runs]


async def _insist(turn: Callable[[], Awaitable[None]]) -> None:
    """Repeat the work for ever. An unexpected error is logged, and the work goes on."""
    while True:
        try:
            await turn()
        except Exception:  # noqa: BLE001 - logged, and looked again
            _log.exception("a part of the dashboard failed, and is tried again")
        await asyncio.sleep(_LEAST_S)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
