"""The interface for Python programs and notebooks: `from gpu_tenant import run, Order, Tenancy`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_tenant import app
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.order import Order
from gpu_tenant.errands.answers import ErrandStatus, RentalPlan, Unanswered
from gpu_tenant.errands.drive import Answers, Drive, begin
from gpu_tenant.errands.requests import errand_of
from gpu_tenant.service import Tenancy

if TYPE_CHECKING:
    from gpu_tenant.jobs.monitor import Watched

__all__ = [
    "Answers",
    "ErrandStatus",
    "Order",
    "RentalPlan",
    "Tenancy",
    "Unanswered",
    "run",
    "run_async",
]

Agrees = Callable[[RentalPlan], bool]
Says = Callable[[Unanswered], Answers | None]
Hears = Callable[[str], None]


@asynccontextmanager
async def open_tenancy(environ: Mapping[str, str] | None = None) -> AsyncIterator[Tenancy]:
    """Open this computer's tenancy. Its methods are the operations, such as `provision`.

    At the end of the block the tenancy is closed. The boxes keep running.
    """
    tenancy = app.open_tenancy(environ)
    try:
        yield tenancy
    finally:
        await tenancy.aclose()


async def run_async(
    command: str = "",
    *,
    artifacts: Sequence[str] = (),
    directory: str | Path = ".",
    gpu: str | None = None,
    hours: float | None = None,
    max_usd: Decimal | float | str | None = None,
    max_price_usd_h: Decimal | float | str | None = None,
    smoke: str | None = None,
    on: str | None = None,
    target: str | None = None,
    discard: Sequence[str] = (),
    env: Sequence[str] = (),
    recover: Sequence[str] = (),
    interruptible: str | None = None,
    to: str | Path | None = None,
    order: Order | None = None,
    agree: Agrees | None = None,
    answer: Says | None = None,
    hear: Hears = lambda words: None,
    tenancy: Tenancy | None = None,
) -> ErrandStatus:
    """Run the command on a box, bring its artifacts home, prove them, tear the box down, and return the errand's state.

    `standing.outcome` is `done`, `failed` or `asks`. If this program dies, the same call continues where it was.
    Whatever is left out is taken from `[run]` of gpu-tenant.toml in `directory`. `order` says what the box should
    have besides its GPU. If it is None, that file decides.

    `agree` is asked once before anything is rented, and gets the plan. Without it nothing is rented, and the plan
    comes back. `answer` is asked at the end about files that nobody has claimed. `hear` is called with what is
    being done.

    Raises:
        gpu_tenant.TenantError: a step was refused or failed; it has `code`, `message` and `remedy`.
    """
    said: dict[str, Any] = {
        "command": command,
        "artifacts": tuple(artifacts),
        "gpu": gpu,
        "hours": hours,
        "max_usd": None if max_usd is None else str(max_usd),
        "max_price_usd_h": None if max_price_usd_h is None else str(max_price_usd_h),
        "smoke": smoke,
        "on": on,
        "target": target,
        "discard": tuple(discard),
        "env": tuple(env),
        "recover": tuple(recover),
        "interruptible": interruptible,
        "to": None if to is None else str(to),
    }
    if tenancy is None:
        async with open_tenancy() as own:
            return await _run(own, Path(directory), said, order, _Program(own, agree, answer, hear))
    return await _run(tenancy, Path(directory), said, order, _Program(tenancy, agree, answer, hear))


def run(
    command: str = "",
    *,
    artifacts: Sequence[str] = (),
    directory: str | Path = ".",
    gpu: str | None = None,
    hours: float | None = None,
    max_usd: Decimal | float | str | None = None,
    max_price_usd_h: Decimal | float | str | None = None,
    smoke: str | None = None,
    on: str | None = None,
    target: str | None = None,
    discard: Sequence[str] = (),
    env: Sequence[str] = (),
    recover: Sequence[str] = (),
    interruptible: str | None = None,
    to: str | Path | None = None,
    order: Order | None = None,
    agree: Agrees | None = None,
    answer: Says | None = None,
    hear: Hears = lambda words: None,
) -> ErrandStatus:
    """Do the same as `run_async`, without `await`. It also works in a notebook, where an event loop runs already."""

    def whole() -> Coroutine[object, object, ErrandStatus]:
        return run_async(
            command,
            artifacts=artifacts,
            directory=directory,
            gpu=gpu,
            hours=hours,
            max_usd=max_usd,
            max_price_usd_h=max_price_usd_h,
            smoke=smoke,
            on=on,
            target=target,
            discard=discard,
            env=env,
            recover=recover,
            interruptible=interruptible,
            to=to,
            order=order,
            agree=agree,
            answer=answer,
            hear=hear,
        )

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_to_the_end(whole))
    with ThreadPoolExecutor(1, "gpu-tenant run") as thread:
        return thread.submit(copy_context().run, asyncio.run, _to_the_end(whole)).result()


async def _to_the_end(whole: Callable[[], Coroutine[object, object, ErrandStatus]]) -> ErrandStatus:
    return await whole()


async def _run(
    tenancy: Tenancy, directory: Path, said: dict[str, Any], order: Order | None, program: _Program
) -> ErrandStatus:
    name = begin(tenancy, errand_of(tenancy.context, directory, said, order))
    drive = Drive(tenancy, name, program)
    standing = await drive.go_on()
    # The program gets the state, so the end counts as shown.
    drive.note_shown(standing)
    return standing


class _Program:
    """The face of an errand that a Python program runs: calls the program's functions."""

    def __init__(
        self, tenancy: Tenancy, agree: Agrees | None, answer: Says | None, hear: Hears
    ) -> None:
        self._tenancy, self._agree, self._answer, self._hear = tenancy, agree, answer, hear

    @property
    def agrees_ahead(self) -> bool:
        return False  # Its function is given the plan.

    def hear(self, words: str) -> None:
        self._hear(words)

    async def agree(self, plan: RentalPlan) -> str | None:
        return "program" if self._agree is not None and self._agree(plan) else None

    async def follow(self, lease: str, job: str) -> Watched:
        while True:
            seen = await self._tenancy.follow(
                lease, job, cursor=None, wait_s=_LOOK_S, limit_bytes=_LOG_BYTES
            )
            if seen.state in ENDED or seen.state == "absent":
                return seen

    async def answer(self, asks: Unanswered) -> Answers | None:
        return self._answer(asks) if self._answer is not None else None


_LOOK_S, _LOG_BYTES = 5, 4096
