"""The live view: shows all leases on one screen, until the person leaves it."""

import asyncio
import os
import re
import signal
import sys
import termios
import traceback
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from gpu_tenant.app import open_tenancy
from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.concurrency import each
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, TenantError
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.faces.cli.live_frame import NOTES, Frame, LiveState, SilentBox, gpu_count
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.service import Tenancy

_RARELY_S = 5.0
"""Providers are asked at most this often, in seconds, even if keys are pressed to refresh."""
_JOBS_EVERY_S = 3.0
_FRAME_S = 1.0
_LOG_BYTES = 4096
_PAGE = 10

_KEYS = "q leaves, r looks now, arrows scroll"
_NO_KEYS = "Ctrl-C leaves"
_KEY = re.compile(rb"\x1b\[[0-9;]*[A-Za-z~]|.", re.DOTALL)
_MOVES = {b"\x1b[A": -1, b"k": -1, b"\x1b[B": 1, b"j": 1, b"\x1b[5~": -_PAGE, b"\x1b[6~": _PAGE}


async def live(which: Literal["live", "all"], every_s: float) -> None:
    """Show the leases until the person leaves with q. Then the terminal is restored, even after Ctrl-C or a signal.

    Providers are asked every `every_s` seconds, boxes with a running job every few seconds. An unexpected
    error is shown in words on the screen, and its traceback is printed after the person has left.

    Raises:
        BadRequest: this is not a terminal, or nothing can be drawn on it.
    """
    console = Console(highlight=False)
    if not sys.stdout.isatty() or console.is_dumb_terminal:
        raise BadRequest(
            "--live draws on a terminal, but this is not one",
            remedy=f"{Command('leases', json=True)}, as often as needed",
        )
    notes: deque[str] = deque(maxlen=NOTES)
    tenancy = open_tenancy(tell=notes.append, purpose="look")
    try:
        view = _View(tenancy, which, every_s, notes)
        with _keys_alone(), Live(console=console, screen=True, auto_refresh=False) as screen:
            await view.run(screen)
        if view.unforeseen is not None:
            told = "".join(traceback.format_exception(view.unforeseen))
            click.echo(f"a look failed in a way nobody foresaw:\n{plain(told)}", err=True)
    finally:
        await tenancy.aclose()


@contextmanager
def _keys_alone() -> Iterator[None]:
    """While the block runs, read each key at once and without an echo. Then restore the terminal."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        told = termios.tcgetattr(sys.stdin)
        # Turn off Ctrl-Z, which would leave the shell on the alternate screen.
        told[6][termios.VSUSP] = os.fpathconf(sys.stdin.fileno(), "PC_VDISABLE").to_bytes(1, "big")
        termios.tcsetattr(sys.stdin, termios.TCSANOW, told)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, before)


class _View:
    """The live view: its state, the tasks that ask boxes and providers, and the effect of the keys."""

    def __init__(
        self, tenancy: Tenancy, which: Literal["live", "all"], every_s: float, notes: deque[str]
    ) -> None:
        self._tenancy = tenancy
        self._which: Literal["live", "all"] = which
        self._every_s = every_s
        titles = {slug: profile.title for slug, profile in tenancy.profiles.items()}
        self._seen = LiveState(titles, notes=notes)
        self._from_line = 0
        self._changed = asyncio.Event()
        self._look_now = asyncio.Event()
        self._left = asyncio.Event()
        self._asking: set[str] = set()
        self.unforeseen: Exception | None = None
        """The last error that is not a TenantError."""

    async def run(self, screen: Live) -> None:
        """Run until q is pressed, the input ends, or a signal asks to end."""
        loop = asyncio.get_running_loop()
        status = 0

        def told_to_end() -> None:
            nonlocal status
            status = 128 + signal.SIGTERM
            self._left.set()

        loop.add_signal_handler(signal.SIGTERM, told_to_end)
        if sys.stdin.isatty():
            loop.add_reader(sys.stdin, self._key)
        try:
            async with asyncio.TaskGroup() as tasks:
                looking = [
                    tasks.create_task(self._look_at_leases()),
                    tasks.create_task(self._look_at_jobs()),
                    tasks.create_task(self._draw(screen)),
                ]
                await self._left.wait()
                for task in looking:
                    task.cancel()
        finally:
            loop.remove_reader(sys.stdin)
            loop.remove_signal_handler(signal.SIGTERM)
        if status:
            sys.exit(status)

    def _key(self) -> None:
        pressed = os.read(sys.stdin.fileno(), 64)
        # If there are no bytes, the input has ended.
        for key in _KEY.findall(pressed) or [b"q"]:
            if key in (b"q", b"Q"):
                self._left.set()
            elif key in (b"r", b"R"):
                self._look_now.set()
            else:
                self._from_line = max(0, self._from_line + _MOVES.get(key, 0))
        self._changed.set()

    async def _draw(self, screen: Live) -> None:
        while True:
            now = self._tenancy.clock.now()
            keys = _KEYS if sys.stdin.isatty() else _NO_KEYS
            frame = Frame(self._seen, now, from_line=self._from_line, keys=keys)
            try:
                screen.update(frame, refresh=True)
            except Exception as error:  # noqa: BLE001 - the view continues, and shows the error
                screen.update(Text(f"{self._words_of(error)}; {keys}"), refresh=True)
            self._from_line = frame.from_line
            await _set_within(self._changed, _FRAME_S)

    def _words_of(self, error: Exception) -> str:
        """Return the error in words. An unexpected error is also kept, to be shown at the end."""
        if isinstance(error, TenantError):
            return f"{error.message}; {error.remedy}"
        self.unforeseen = error
        return f"a failure that nobody foresaw ({type(error).__name__})"

    async def _look_at_leases(self) -> None:
        while True:
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - the view continues, and shows the error
                self._seen.trouble = self._words_of(error)
            self._changed.set()
            await asyncio.sleep(_RARELY_S)
            await _set_within(self._look_now, self._every_s - _RARELY_S)

    async def _look(self) -> None:
        seen, ledger = self._seen, self._tenancy.ledger
        leases = await self._tenancy.list_leases(self._which)
        for card in leases.leases:
            quote = None if card.lease in seen.gpus else ledger.lease(card.lease).quote
            if quote is not None:
                seen.gpus[card.lease] = gpu_count(quote.offer.gpu, quote.offer.gpu_count)
        seen.leases, seen.trouble, seen.at = leases, None, self._tenancy.clock.now()

    async def _look_at_jobs(self) -> None:
        """Ask for the state of jobs for ever. A slow box delays no other, and is not asked again before it answers."""
        async with asyncio.TaskGroup() as rounds:
            while True:
                try:
                    due = self._due()
                except Exception as error:  # noqa: BLE001 - the view continues, and shows the error
                    due, self._seen.trouble = [], self._words_of(error)
                self._asking |= set(due)
                rounds.create_task(each(due, self._job_of, heard=self._note_look))
                await asyncio.sleep(_JOBS_EVERY_S if self._seen.leases else _FRAME_S)

    def _due(self) -> list[str]:
        """Return the leases whose newest job is not known to have ended."""
        seen = self._seen
        return [
            card.lease
            for card in (seen.leases.leases if seen.leases else ())
            if card.phase == "ready"
            and card.jobs
            and card.lease not in self._asking
            and not self._is_over(seen.jobs.get(card.lease))
        ]

    def _is_over(self, watched: Watched | None) -> bool:
        if watched is None or watched.state not in ENDED:
            return False
        return watched.job == self._tenancy.ledger.jobs(LeaseId(watched.lease))[-1].id

    async def _job_of(self, lease: str) -> Watched:
        return await self._tenancy.follow(
            lease, None, cursor=None, wait_s=0, limit_bytes=_LOG_BYTES
        )

    def _note_look(self, lease: str, came: Watched | Exception) -> None:
        self._asking.discard(lease)
        if isinstance(came, Exception):
            since = self._seen.blind.get(lease, SilentBox(self._tenancy.clock.now(), "")).since
            words = came.message if isinstance(came, TenantError) else self._words_of(came)
            self._seen.blind[lease] = SilentBox(since, words)
        else:
            self._seen.blind.pop(lease, None)
            self._seen.jobs[lease] = came
        self._changed.set()


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, or until `seconds` have passed. Clear the event."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        return
    event.clear()
