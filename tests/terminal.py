"""A person at a terminal: a real pseudo-terminal with `gpu-tenant` running at it."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


class Terminal:
    """What the command has shown, and a keyboard."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process, self._fd = process, fd
        self.shown = ""

    def read_until(self, words: str, *, within_s: float = 120) -> str:
        """All that was shown, of which `words` is a part by now."""
        give_up = time.monotonic() + within_s
        while words not in self.shown:
            assert time.monotonic() < give_up, f"{words!r} was not shown:\n{self.shown}"
            if not self._read(0.2):
                assert words in self.shown, f"{words!r} was never shown:\n{self.shown}"
        return self.shown

    def page_until(self, words: str, *, within_s: float = 120) -> str:
        """As `read_until`, with Enter for each further page."""
        give_up, turned = time.monotonic() + within_s, 0
        while words not in self.shown:
            assert time.monotonic() < give_up, f"{words!r} was not shown:\n{self.shown}"
            assert self._read(0.2) or words in self.shown, f"{words!r} was never shown"
            if self.shown.count("Enter for more") > turned:
                turned += 1
                self.type("")
        return self.shown

    def type(self, words: str) -> None:
        """The words, and Enter."""
        os.write(self._fd, f"{words}\n".encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.write(self._fd, b"\x03")

    def ended(self, *, within_s: float = 120) -> int:
        """The exit status, with all that was shown read."""
        give_up = time.monotonic() + within_s
        while self._read(0.2):
            assert time.monotonic() < give_up, f"it did not end:\n{self.shown}"
        return self.process.wait(timeout=within_s)

    def _read(self, wait_s: float) -> bool:
        """Whether there may be more."""
        if not select.select([self._fd], [], [], wait_s)[0]:
            return True
        with contextlib.suppress(OSError):  # Linux's word for: nobody is at the other end
            some = os.read(self._fd, 65536)
            self.shown += some.decode(errors="replace")
            return bool(some)
        return False


PROGRAM = ("-m", "gpu_tenant")
_SOON = """
from gpu_tenant.leases import end
assert end._SILENT_S == 90
end._SILENT_S = 2
from gpu_tenant.__main__ import main
main()
"""
SOON = ("-c", _SOON)
"""The program, which is content with a box that was silent for two seconds, and not for ninety."""


def typed_at(
    words: Sequence[str],
    typed: str,
    *,
    env: Mapping[str, str] | None = None,
    within_s: float = 170,
    program: Sequence[str] = PROGRAM,
) -> tuple[int, str, str]:
    """The exit status, the stdout, and what a terminal showed at which a person typed that when asked."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (1000, 200))
    process = subprocess.Popen(
        [sys.executable, *program, *words],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=env,
        preexec_fn=_has_it,
    )
    os.close(theirs)
    terminal = Terminal(process, ours)
    try:
        os.write(ours, f"{typed}\n".encode())
        terminal.ended(within_s=within_s)
        assert process.stdout is not None
        out = process.stdout.read().decode()
        return process.returncode, out, terminal.shown.replace("\r\n", "\n")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
        if process.stdout is not None:
            process.stdout.close()


def heed_signals() -> None:
    """Undo what whoever started the tests ignores: `nohup`, and a shell in the background, pass that on."""
    for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(each, signal.SIG_DFL)


def _has_it() -> None:
    """The terminal is this process's own, so that Ctrl-C reaches it. Signals mean what they mean at a new terminal."""
    heed_signals()
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def at_a_terminal(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, rows: int = 40
) -> Iterator[Terminal]:
    """`gpu-tenant` runs with these words at a terminal of so many lines."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (rows, 100))
    environ = {k: v for k, v in (env or os.environ).items() if k not in ("LINES", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "gpu_tenant", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ,
        cwd=cwd,
        preexec_fn=_has_it,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)
