"""What changes, told to an open page as it happens: server-sent events, one stream a page."""

import asyncio
from collections.abc import AsyncIterator

import anyio
from pydantic import AwareDatetime
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request

from gpu_tenant.caretaker import ENDED
from gpu_tenant.dashboard.looks import Looks, News, Told
from gpu_tenant.dashboard.rows import Working
from gpu_tenant.errors import BadRequest, BoxTrouble, TenantError
from gpu_tenant.joblog import LogWindow
from gpu_tenant.record import Record
from gpu_tenant.speech import in_commands
from gpu_tenant.watch import Watched

_EVERY_S = 2.0
_SLOWER_S = 10.0
"""After the job has ended, or where its box does not answer."""
_WINDOW_BYTES = 256 * 1024
_WINDOWS = 8
"""A log that grows faster than this many windows a look is met at its newest end."""
_PING_S = 15


class Seen(Watched):
    """A job at one moment."""

    at: AwareDatetime


class Sight(Record):
    """Whether a box could be asked."""

    lease: str
    words: str | None = None
    since: AwareDatetime | None = None


async def stream(request: Request) -> EventSourceResponse:
    """`GET /api/stream?lease=&job=&cursor=`: the overview, every change, and one job closely."""
    looks: Looks = request.app.state.looks
    lease, job = request.query_params.get("lease"), request.query_params.get("job")
    cursor = request.query_params.get("cursor", "")
    if cursor and not cursor.isdigit():
        raise BadRequest(
            "cursor is no number of bytes", remedy="leave it out: the newest lines come"
        )

    ending = anyio.Event()

    async def events() -> AsyncIterator[ServerSentEvent]:
        with looks.heard() as news:
            others = [asyncio.create_task(_last(news, ending))]
            if lease:
                watching = _Closely(looks, news, lease, job, int(cursor) if cursor else None)
                others.append(asyncio.create_task(watching.forever()))
            try:
                yield _event("overview", await looks.overview())
                while (told := await news.get()) is not None:
                    yield _event(told.event, told.content)
            finally:
                for other in others:
                    other.cancel()
                await asyncio.gather(*others, return_exceptions=True)

    return EventSourceResponse(
        events(), ping=_PING_S, shutdown_event=ending, shutdown_grace_period=1
    )


async def _last(news: Told, ending: anyio.Event) -> None:
    """Nothing more is told once the dashboard is to end."""
    await ending.wait()
    while news.full():
        news.get_nowait()
    news.put_nowait(None)


def _event(name: str, content: Record) -> ServerSentEvent:
    return ServerSentEvent(content.model_dump_json(by_alias=True), event=name)


class _Closely:
    """One job for one page: how it stands every two seconds, and each byte of its log once."""

    def __init__(
        self,
        looks: Looks,
        news: Told,
        lease: str,
        job: str | None,
        cursor: int | None,
    ) -> None:
        self._looks, self._news = looks, news
        self._lease, self._job, self._cursor = lease, job, cursor

    async def forever(self) -> None:
        """Until it is cancelled; a box that does not answer is told, and asked again."""
        was_blind = False
        while True:
            try:
                state = await self._once()
            except BoxTrouble as trouble:
                state = "blind"
                if not was_blind:
                    now = self._looks.tenancy.clock.now()
                    await self._put(
                        "blind", Sight(lease=self._lease, words=trouble.message, since=now)
                    )
                self._looks.is_blind(self._lease, trouble.message)
            except TenantError:
                state = "over"  # it has ended, or has no job: the overview says which
            if was_blind and state not in ("blind", "over"):
                await self._put("seeing", Sight(lease=self._lease))
            was_blind = state == "blind"
            is_slow = state in (*ENDED, "blind", "over", "absent")
            await asyncio.sleep(_SLOWER_S if is_slow else _EVERY_S)

    async def _once(self) -> str:
        tenancy = self._looks.tenancy
        seen = await tenancy.follow(self._lease, self._job, cursor=None, wait_s=0, limit_bytes=4096)
        now = tenancy.clock.now()
        await self._put(
            "job", Seen(**{**dict(seen), "log": "", "next": in_commands(seen.next)}, at=now)
        )
        if self._job is None or self._is_newest(seen):
            self._looks.sees(self._lease, Working.of(seen))
        if self._cursor is None:
            self._cursor = seen.log_size_bytes
        if self._cursor > seen.log_size_bytes:
            self._cursor = 0  # it was begun anew
        if seen.log_size_bytes - self._cursor > _WINDOWS * _WINDOW_BYTES:
            self._cursor = seen.log_size_bytes - _WINDOW_BYTES
        for _ in range(_WINDOWS):
            if self._cursor >= seen.log_size_bytes:
                break
            part: LogWindow = await tenancy.log_window(
                self._lease, seen.job, start=self._cursor, limit=_WINDOW_BYTES
            )
            if part.to <= self._cursor:
                break
            self._cursor = part.to
            await self._put("log", part)
        return seen.state

    def _is_newest(self, seen: Watched) -> bool:
        ledger = self._looks.tenancy.ledger
        return ledger.jobs(ledger.lease(self._lease).id)[-1].id == seen.job

    async def _put(self, event: str, content: Record) -> None:
        await self._news.put(News(event, content))
