"""One command, timed from its spawn to its end, with the memory and the CPU of its whole tree."""

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_S = 0.1


@dataclass(frozen=True, slots=True)
class Reading:
    """How a command went; `status` is None where it was ended at its limit."""

    seconds: float
    cpu_s: float
    peak_mb: float
    status: int | None
    out: str
    err: str


def measured(argv: Sequence[str], *, env: Mapping[str, str], limit_s: float) -> Reading:
    """The command has ended, by itself or killed with all its descendants at the limit."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        process = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        over, late, peaks = threading.Event(), threading.Event(), [0.0]

        def watch() -> None:
            while not over.wait(_SAMPLE_S):
                peaks.append(sum(map(_pss_mb, tree(process.pid))))
                if time.perf_counter() - began > limit_s:
                    late.set()
                    end_tree(process.pid, itself=True)
                    return

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            end_tree(process.pid, itself=True)
            process.wait()
            raise
        finally:
            over.set()
        took = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)  # it is waited for already
        watching.join()
        out.seek(0)
        err.seek(0)
        return Reading(
            seconds=took,
            cpu_s=used.ru_utime + used.ru_stime,
            peak_mb=max(peaks),
            status=None if late.is_set() else process.returncode,
            out=out.read().decode(errors="replace"),
            err=err.read().decode(errors="replace"),
        )


def tree(pid: int) -> Iterator[int]:
    """That process and whatever descends from it."""
    waiting = [pid]
    while waiting:
        found = waiting.pop()
        yield found
        with suppress(OSError):
            for task in Path(f"/proc/{found}/task").iterdir():
                waiting += map(int, (task / "children").read_text(encoding="utf-8").split())


def end_tree(pid: int, *, itself: bool) -> None:
    """What descends from that process was killed, and so was it, if wanted."""
    for found in list(tree(pid))[0 if itself else 1 :]:
        with suppress(ProcessLookupError):
            os.kill(found, signal.SIGKILL)


def end_living_in(home: Path) -> None:
    """Whatever had that directory for its home was killed."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"HOME={home}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def _pss_mb(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1000
    return 0.0
