"""Sends changes to an open page as server-sent events. There is one stream for each page."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator

from pydantic import AwareDatetime, Field
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request

from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.domain.errors import BadRequest, BoxTrouble, TenantError
from gpu_tenant.domain.record import Record
from gpu_tenant.faces.dashboard.lease_rows import Working
from gpu_tenant.faces.dashboard.poller import Looks, PageEvent, Told
from gpu_tenant.jobs.logs.window import LogWindow
from gpu_tenant.jobs.metrics import Series, measured_by
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.jobs.progress import whole_lines
from gpu_tenant.leases.read_logs import log_window

_log = logging.getLogger(__name__)

_NUMBER = re.compile(r"[0-9]{1,15}")
_EVERY_S = 2.0
_SLOWER_S = 10.0
"""The job's state is asked for this often, in seconds, after it has ended or while its box does not answer."""
_TAIL_BYTES = 4096
_WINDOW_BYTES = 256 * 1024
_WINDOWS = 8
"""If a log grows by more windows than this between two requests, the page skips to its newest part."""
_PING_S = 15


class JobMoment(Watched):
    """A job at one moment. `run` is the box's name for this run of the job."""

    at: AwareDatetime
    run: str
    measured: dict[str, Series] = Field(
        description="the metrics in the newest lines of its log, by step"
    )


class Sight(Record):
    """Whether a box answers; if not, the error, and since when."""

    lease: str
    words: str | None = None
    since: AwareDatetime | None = None


async def stream(request: Request) -> EventSourceResponse:
    """`GET /api/stream?lease=&job=&cursor=`: send the overview, then every change, and one job in detail."""
    looks: Looks = request.app.state.looks
    lease, job = request.query_params.get("lease"), request.query_params.get("job")
    cursor = request.query_params.get("cursor", "")
    if cursor and not _NUMBER.fullmatch(cursor):
        raise BadRequest(
            "cursor is not a number of bytes",
            remedy="leave the cursor out: then the newest lines come",
        )

    async def events() -> AsyncIterator[ServerSentEvent]:
        with looks.listen() as news:
            closely = None
            if lease:
                watching = _Closely(looks, news, lease, job, int(cursor) if cursor else None)
                closely = asyncio.create_task(watching.forever())
            try:
                yield _event("overview", await looks.overview())
                for begun in looks.begun():
                    yield _event(begun.event, begun.content)
                while (told := await news.get()) is not None:
                    yield _event(told.event, told.content)
            finally:
                if closely is not None:
                    closely.cancel()
                    await asyncio.gather(closely, return_exceptions=True)

    return EventSourceResponse(events(), ping=_PING_S)


def _event(name: str, content: Record) -> ServerSentEvent:
    return ServerSentEvent(content.model_dump_json(by_alias=True), event=name)


class _Closely:
    """Follows one job for one page: sends its state every two seconds, and each byte of its log once."""

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
        """Run until cancelled. A box that does not answer is reported, and asked again."""
        was_blind: bool | None = None
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
                state = "over"  # The lease has ended, or has no job. The overview shows which.
            except Exception:  # noqa: BLE001 - logged, and the next attempt may succeed
                _log.exception("%s could not be looked at", self._lease)
                state = "over"
            if was_blind is not False and state not in ("blind", "over"):
                await self._put("seeing", Sight(lease=self._lease))
            if state != "over":
                was_blind = state == "blind"
            is_slow = state in (*ENDED, "blind", "over", "absent")
            await asyncio.sleep(_SLOWER_S if is_slow else _EVERY_S)

    async def _once(self) -> str:
        tenancy = self._looks.tenancy
        if not tenancy.ledger.lease(self._lease).lets_us_in:
            # The box does not let us in. A request would wait for this, and hold the lease meanwhile.
            return "over"
        chosen = self._job or self._looks.job_of(self._lease)
        seen = await tenancy.follow(
            self._lease, chosen, cursor=None, wait_s=0, limit_bytes=_TAIL_BYTES
        )
        now, job = tenancy.clock.now(), self._looks.declared_id(self._lease, seen.job)
        told = {**dict(seen), "log": "", "job": job, "run": seen.job}
        tail = whole_lines(seen.log) if seen.log_size_bytes > _TAIL_BYTES else seen.log
        await self._put("job", JobMoment(**told, at=now, measured=measured_by(tail)))
        if self._looks.job_of(self._lease) in (None, job):
            others = self._looks.others_on(self._lease)
            shown = Working.of(seen.model_copy(update={"job": job}), at=now, others_running=others)
            self._looks.sees(self._lease, shown)
        if self._cursor is None:
            self._cursor = seen.log_size_bytes
        if self._cursor > seen.log_size_bytes:
            self._cursor = 0  # The log was started again.
        if seen.log_size_bytes - self._cursor > _WINDOWS * _WINDOW_BYTES:
            self._cursor = seen.log_size_bytes - _WINDOW_BYTES
        for _ in range(_WINDOWS):
            if self._cursor >= seen.log_size_bytes:
                break
            part: LogWindow = await log_window(
                tenancy.context, self._lease, seen.job, start=self._cursor, limit=_WINDOW_BYTES
            )
            if part.to <= self._cursor:
                break
            self._cursor = part.to
            await self._put("log", part)
        return seen.state

    async def _put(self, event: str, content: Record) -> None:
        await self._news.put(PageEvent(event, content))
