"""Processes (readers) that read kept files for this process, so that no file can hang it or exhaust its memory.

A reader is started for the first file, and is used again for the next ones. If a file takes more CPU time or
memory than a good file of its size needs, the reader is killed. The next file gets a new one.
"""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import Literal

import gpu_tenant
from gpu_tenant.artifacts.formats.resource_limits import MOST_BYTES, NO_MEMORY, allowance_s
from gpu_tenant.artifacts.formats.single_pass import Stopped

Memory = Literal["limited", "watched"]
MEMORY: Memory = "limited" if sys.platform.startswith("linux") else "watched"
"""On Linux, the kernel enforces the memory limit of a process. Elsewhere, this process watches its readers."""
_TICK_S = 0.2
_LONGEST_ANSWER_BYTES = 4 << 20
_PATIENCE = 20
"""Reading may last this many times the CPU time that a reader is allowed.

The reader may get only a twentieth of a core, or may wait for a slow disk.
"""
_LARGE = Lock()
"""Many small files are read at the same time, but only one large file."""
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "VIRTUAL_ENV", "TZ")
_INHERITED_FAMILIES = ("LC_", "PYTHON", "LD_", "DYLD_", "COVERAGE_")


Answer = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A file to be read. `size_bytes` determines how long that may take."""

    path: Path
    name: str
    size_bytes: int
    sha256: str | None = None


class Ended(Exception):
    """The reader was stopped or crashed while it read the file. The message gives the reason."""


class _Left(Exception):
    """The reader had exited before it got the request: it was idle, or its last file was large."""


class Readers:
    """A pool of readers, with as many as there are calls at the same time."""

    def __init__(self, memory: Memory = MEMORY) -> None:
        self._memory = memory
        self._idle: list[_Reader] = []

    def ask(
        self, files: Sequence[ReadRequest], how: Literal["prove", "inspect"], stop: Event
    ) -> Sequence[Answer | Ended]:
        """Return a reader's answer for each file, or an `Ended` that gives the reason why there is none.

        Raises:
            Stopped: `stop` was set.
        """
        answers: list[Answer | Ended] = []
        at_once = len(files)
        # Small files are requested in one batch. If one of them stops the reader, the rest are
        # requested one by one.
        while left := files[len(answers) : len(answers) + at_once]:
            # A call at the same time takes another reader, or starts one.
            reader = self._take()
            if isinstance(reader, Ended):
                answers.append(reader)
                continue
            try:
                for answer in reader.answers(left, how, stop):
                    if at_once > 1 and "stopped" in answer:
                        break  # If this file is read alone, it may get enough memory.
                    answers.append(answer)
                else:
                    self._idle.append(reader)
                    continue
                at_once = 1
            except Ended as why:
                if at_once == 1:
                    answers.append(why)
                at_once = 1  # Asking for each file alone shows which one it was.
            except _Left:
                if reader.is_new:
                    answers.append(
                        Ended(f"its reader exits before it can be asked: {reader.last_words}")
                    )
            except BaseException:
                reader.close()
                raise
            reader.close()
        return answers

    def _take(self) -> "_Reader | Ended":
        try:
            return self._idle.pop()
        except IndexError:
            pass
        try:
            return _Reader(self._memory)
        except Ended as why:
            return why

    def close(self) -> None:
        """End all idle readers."""
        while self._idle:
            self._idle.pop().close()

    def forget(self) -> None:
        """Drop the idle readers. Called in the new process after a fork: they belong to the parent process."""
        for reader in self._idle:
            reader.disown()
        self._idle.clear()


class _Reader:
    """One reader process, and the pipes to it."""

    def __init__(self, memory: Memory) -> None:
        command = [sys.executable, "-P", "-m", "gpu_tenant.artifacts.formats.worker"]
        self._memory = memory
        self.last_words = ""
        self.is_new = True
        self._is_alone = False
        self._said = b""
        try:
            self._process = subprocess.Popen(
                [*command, memory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(),
                bufsize=0,
                start_new_session=True,  # Ctrl-C is only for us, and the whole group can be killed
            )
        except OSError as error:
            raise Ended(f"no process could be started to read it: {error.strerror}") from error

    def answers(
        self, files: Sequence[ReadRequest], how: Literal["prove", "inspect"], stop: Event
    ) -> Iterator[Answer]:
        """Yield the answers, in the order of the files.

        Raises:
            Ended: the reader gave no answer for the next file, and is gone.
            Stopped: `stop` was set.
            _Left: the reader had exited before the request.
        """
        asked = [
            {"path": str(x.path), "name": x.name, "size_bytes": x.size_bytes, "sha256": x.sha256}
            for x in files
        ]
        self._write(json.dumps({"how": how, "files": asked}).encode() + b"\n")
        patience_s = 60 + _PATIENCE * allowance_s(sum(x.size_bytes for x in files))
        try:
            for _ in files:
                while (said := json.loads(self._line(patience_s, stop))) in ("turn", "done"):
                    self._take_turns(said, stop)
                self.is_new = False
                yield said
        finally:
            if self._is_alone:
                _LARGE.release()

    def _take_turns(self, said: str, stop: Event) -> None:
        if said == "done":
            self._is_alone = False
            _LARGE.release()
            return
        while not _LARGE.acquire(timeout=_TICK_S):
            if stop.is_set():
                raise Stopped
        self._is_alone = True
        self._write(b"\n")

    def close(self) -> None:
        """End the reader, and every process that it has started."""
        self._kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def disown(self) -> None:
        """Close the pipes in this process, which is not the one that started the reader."""
        self._process.returncode = 0
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _write(self, words: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(words)
        except BrokenPipeError:
            raise self._cause_of_end() from None

    def _line(self, patience_s: float, stop: Event) -> bytes:
        """Read the next line that the reader writes.

        Raises:
            Ended: the reader took too much time or memory, crashed, or wrote too much.
            Stopped: `stop` was set.
            _Left: the reader had exited.
        """
        assert self._process.stdout is not None
        until = time.monotonic() + patience_s
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._said:
            if stop.is_set():
                raise Stopped
            if not _is_readable(pipe):
                if time.monotonic() > until:
                    raise Ended("reading it took too long, and was stopped")
                if self._memory == "watched" and self._weighs() > MOST_BYTES:
                    raise Ended(NO_MEMORY)
                continue
            piece = os.read(pipe, 1 << 16)
            if not piece:
                raise self._cause_of_end()
            self._said += piece
            if len(self._said) > _LONGEST_ANSWER_BYTES:
                raise Ended("its reader wrote far more than an answer, and was stopped")
        line, _, self._said = self._said.partition(b"\n")
        return line

    def _cause_of_end(self) -> Exception:
        """Return the error that gives the reason why the reader is gone."""
        code = self._process.wait()
        assert self._process.stderr is not None
        said = os.read(self._process.stderr.fileno(), 1 << 16).decode(errors="replace").strip()
        self.last_words = said.rpartition("\n")[2][:200] or f"exit {code}"
        if code >= 0:
            return _Left()
        if -code == getattr(signal, "SIGXCPU", 0):
            return Ended(
                "reading it took more computing time than a good file would need, and was stopped"
            )
        if -code == signal.SIGKILL:
            return Ended("its reader was killed from outside")
        return Ended(f"its reader crashed (signal {-code})")

    def _weighs(self) -> int:
        """Return how many bytes of memory the reader and its children use, according to the system's process list."""
        try:
            done = subprocess.run(
                ["ps", "-A", "-o", "pgid=,rss="], capture_output=True, check=False, encoding="ascii"
            )
        except FileNotFoundError:
            raise Ended("its memory cannot be watched, because there is no program `ps`") from None
        held = (line.split() for line in done.stdout.splitlines())
        return sum(int(rss) << 10 for pgid, rss in held if int(pgid) == self._process.pid)

    def _kill(self) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                if hasattr(os, "killpg"):
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:
                    self._process.kill()
        self._process.wait()


def environment() -> dict[str, str]:
    """Return the environment for a process that reads files from strangers. It contains no key."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED or name.startswith(_INHERITED_FAMILIES)
    }
    ours = str(Path(gpu_tenant.__file__).parent.parent)
    more = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    return kept | {"PYTHONPATH": os.pathsep.join([ours, *more])}


def _is_readable(pipe: int) -> bool:
    if not hasattr(select, "poll"):
        return True  # Without `poll` this cannot be known: the read itself waits.
    poll = select.poll()  # `select` itself takes no descriptor above 1,023
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(_TICK_S * 1000))


SHARED = Readers()
"""The readers of this process."""
atexit.register(SHARED.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SHARED.forget)
