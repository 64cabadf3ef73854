"""Runs actions that take a while. The page starts them, and gets their progress. They go on if the page is closed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, Field, JsonValue

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LocalTrouble, Refused, SignatureWanted, TenantError
from gpu_tenant.domain.ports import Clock
from gpu_tenant.domain.record import Record
from gpu_tenant.leases.context import progress_to
from gpu_tenant.transfer.eta import Eta

_log = logging.getLogger(__name__)

_REMEMBERED = 50
_TOLD_EVERY_S = 0.5
_CUT = ("collect", "snapshot")
"""Actions that may be interrupted at any time, because the next call continues from there. Others are waited for."""


class Trouble(Record):
    """An error, in the form that every answer of the API uses."""

    code: str
    message: str
    remedy: str
    asked: str | None = Field(
        default=None, description="the code of the signature that it waits for, if it waits for one"
    )

    @classmethod
    def of(cls, error: Exception) -> "Trouble":
        """Describe the error in its own words. If it is not a TenantError, say that it was unexpected."""
        if not isinstance(error, TenantError):
            error = LocalTrouble(
                f"it failed in a way nobody foresaw ({type(error).__name__}); how far it came is on record",
                remedy=f"{Command('leases')} shows the state of every lease; the terminal of the "
                "dashboard shows the error: please report it",
            )
        asked = error.asked if isinstance(error, SignatureWanted) else None
        return cls(code=error.code, message=error.message, remedy=error.remedy, asked=asked or None)


class Errand(Record):
    """One action, and its progress."""

    id: int
    lease: str | None
    verb: str
    state: Literal["running", "done", "failed"]
    began_at: AwareDatetime
    ended_at: AwareDatetime | None = None
    done_bytes: int = 0
    total_bytes: int = 0
    words: str = ""
    result: dict[str, JsonValue] | None = None
    error: Trouble | None = None


@dataclass(slots=True)
class Errands:
    """All actions since the dashboard started, in order. `changed` is called at each change of one."""

    clock: Clock
    changed: Callable[[Errand], None]
    ended: Callable[[], None]
    _asked: dict[int, str] = field(default_factory=dict)
    _all: dict[int, Errand] = field(default_factory=dict)
    _tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    _begun: int = 0

    @property
    def newest_first(self) -> list[Errand]:
        """Return all actions that are remembered, the newest first."""
        return list(reversed(self._all.values()))

    def begin(
        self,
        verb: str,
        lease: str | None,
        act: Callable[[], Awaitable[Record | None]],
        *,
        asked: str,
    ) -> Errand:
        """Start the action, and return it. If the same one runs already, with the same `asked`, return that one.

        Raises:
            Refused: the same verb runs already for this lease, with a different `asked`.
        """
        for other in self._all.values():
            if (other.lease, other.verb, other.state) == (lease, verb, "running"):
                if self._asked[other.id] == asked:
                    return other
                if lease is not None:
                    raise Refused(
                        f"another {verb} of {lease} is under way, with other words",
                        remedy="wait until it has ended, then try again",
                    )
        self._begun += 1
        errand = Errand(
            id=self._begun, lease=lease, verb=verb, state="running", began_at=self._now()
        )
        self._asked[errand.id] = asked
        self._tell(errand)
        self._tasks[errand.id] = asyncio.create_task(self._run(errand, act))
        for old in [e.id for e in self._all.values() if e.state != "running"][:-_REMEMBERED]:
            del self._all[old], self._asked[old]
        return errand

    @property
    def under_way(self) -> list[str]:
        """The running actions that must not be interrupted, in words."""
        waited = (e for e in self._all.values() if e.state == "running" and e.verb not in _CUT)
        return [f"{e.verb} of {e.lease or 'a box'}" for e in waited]

    async def aclose(self) -> None:
        """Cancel the actions that may be interrupted, and wait for all others."""
        for number, task in self._tasks.items():
            if self._all[number].verb in _CUT:
                task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, errand: Errand, act: Callable[[], Awaitable[Record | None]]) -> None:
        eta, now_s, told_s = Eta(), asyncio.get_running_loop().time, 0.0

        def tell_progress(done: int, total: int) -> None:
            nonlocal told_s
            eta.note_progress(done, total, at_s=now_s())
            if now_s() - told_s >= _TOLD_EVERY_S:
                told_s = now_s()
                self._change(
                    errand.id, done_bytes=done, total_bytes=total, words=eta.words(at_s=now_s())
                )

        progress_to.set(tell_progress)
        try:
            came = await act()
            result = came.model_dump(mode="json") if came else None
            self._change(errand.id, state="done", result=result, ended_at=self._now(), words="")
        except Exception as error:  # noqa: BLE001 - it is reported, and the other actions continue
            if not isinstance(error, TenantError):
                _log.exception("%s of %s failed", errand.verb, errand.lease)
            self._change(
                errand.id, state="failed", error=Trouble.of(error), ended_at=self._now(), words=""
            )
        finally:
            del self._tasks[errand.id]
        self.ended()

    def _change(self, number: int, **news: object) -> None:
        self._tell(Errand.model_validate({**dict(self._all[number]), **news}))

    def _tell(self, errand: Errand) -> None:
        self._all[errand.id] = errand
        self.changed(errand)

    def _now(self) -> datetime:
        return self.clock.now()
