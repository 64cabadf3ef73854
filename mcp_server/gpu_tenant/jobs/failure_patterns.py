"""Finds the failure that the last words of a job's log name, if they name one."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenant.domain.untrusted_text import plain

Kind = Literal[
    "silent",
    "talk",
    "error",
    "cuda_oom",
    "gpu_error",
    "nccl_timeout",
    "memory_error",
    "no_space",
    "quota",
    "write_failed",
    "shm",
    "bus_error",
    "killed",
    "echo",
    "pids",
    "network_lost",
    "walltime",
    "preempted",
    "host_lost",
    "scheduler_oom",
]
"""The failure that the last words of a log name.

`echo`: a pipe or a worker broke, because another process had died. `error`: any other failure.
`talk`: the last line names no failure.
"""

LINES: Final = 400
_AFTER: Final = 40
"""At most this many lines may follow a traceback. If more follow, the traceback is not what ended the job."""

RANK = re.compile(r"^(?:\[(?:rank|default)?\d+\]:? ?|\(\w+ pid=\d+[^)]*\) ?|\d+: (?=\S))+")
HEADER = re.compile(r"(?:^|\])\s*(?:\w+ )?Traceback \(most recent call last\):$")
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_]\w*(?:\.\w+)*)(?:: ?(?P<text>.*))?$")
_CHAINED = re.compile(
    r"^(?:During handling of the above exception|The above exception was the dir)"
)
_LIFE = re.compile(
    r"\d{1,3}%\|.*?(?P<bar>\d+/\d+)|^\W*(?:\w+ )?(?:step|epoch|iter|iteration|batch)s?\b\W{0,4}(?P<at>\d+)",
    re.IGNORECASE,
)
WENT_ON = re.compile(
    r"\b(?:retry|retrying|resum\w+|continu\w+|skipp\w+|fall\w* back|recover\w+)\b", re.I
)
SKIPPED = re.compile(r"^(?:frame #\d+|[=\-]{5,}|wandb:(?: |$)|\[W|W?ARNING[: ]|WARNING:|\s*$)")
_FAILURE = re.compile(
    r"error|exception|fail|fatal|cannot|can't|abort|invalid|not found|denied|missing|usage:", re.I
)
_LAUNCHER = re.compile(r"(?:ChildFailedError|SystemExit|subprocess\.CalledProcessError)$")

_WORKER_9 = (
    r"is killed by signal: Killed|<Signals\.SIGKILL: 9>|terminated with signal SIGKILL"
    r"|Signal 9 \(SIGKILL\) received by PID|exitcode ?: -9\b"
)
_NETWORK_TYPES = (
    r"(?:gaierror|URLError|MaxRetryError|NameResolutionError|NewConnectionError|ProtocolError"
    r"|ConnectionError|ConnectionResetError|ConnectTimeout\w*|ReadTimeout\w*|ClientConnector\w*"
    r"|ClientOSError|ServerDisconnectedError|RemoteDisconnected|SSLError|OSError|TimeoutError"
    r"|ConnectError|ReadError)"
)
_NETWORK_TEXT = (
    r"Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|No route to host|Connection timed out|Connection reset by peer|Read timed out"
    r"|Transport endpoint is not connected|Stale file handle|Software caused connection abort"
    r"|Remote end closed connection without response|Connection aborted|Max retries exceeded"
)


def _kinds(told: Sequence[tuple[Kind, str]]) -> Sequence[tuple[Kind, re.Pattern[str]]]:
    return [(kind, re.compile(pattern)) for kind, pattern in told]


_OF_EXCEPTIONS: Final = _kinds(
    (
        ("cuda_oom", r"^[\w.]*(?:OutOfMemoryError|RuntimeError): (?:CUDA|HIP|XPU) out of memory\."),
        (
            "cuda_oom",
            r"^[\w.]*(?:RuntimeError|AcceleratorError|OutOfMemoryError): CUDA error: (?:out of memory|CUBLAS_STATUS_ALLOC_FAILED)",
        ),
        (
            "cuda_oom",
            r"^[\w.]*(?:Xla|Jax)?RuntimeError: (?:RESOURCE_EXHAUSTED|Resource exhausted): (?:XLA:TPU compile permanent error\. )?(?:Out of memory|Ran out of memory|Failed to allocate)",
        ),
        (
            "memory_error",
            r"^[\w.]*ResourceExhaustedError: .*OOM when allocating tensor.*device:CPU",
        ),
        ("cuda_oom", r"^[\w.]*ResourceExhaustedError: .*OOM when allocating tensor"),
        ("cuda_oom", r"^(?:cupy\.\S*OutOfMemoryError: |[\w.]*Error: .*CUDA_ERROR_OUT_OF_MEMORY)"),
        ("shm", r"DataLoader worker \(pid[^)]*\)? ?\S* is killed by signal: Bus error"),
        (
            "shm",
            r"unable to (?:write to file|resize file|allocate shared memory).*</?torch_\S*: No space left",
        ),
        (
            "no_space",
            r"^(?!AssertionError)[\w.]+: (?:\[Errno 28\] (?!inotify)|.*(?:No space left on device|database or disk is full))",
        ),
        ("quota", r"^[\w.]+: .*Disk quota exceeded"),
        (
            "write_failed",
            r"^[\w.]+: .*(?:PytorchStreamWriter failed writing|unexpected pos \d+ vs|iostream error|\d+ requested and \d+ written)",
        ),
        ("memory_error", r"^[\w.]*MemoryError\b"),
        (
            "memory_error",
            r"^[\w.]+: .*(?:DefaultCPUAllocator: (?:can't allocate|not enough) memory|\[Errno 12\] Cannot allocate memory)",
        ),
        ("killed", rf"^[\w.]+: .*(?:{_WORKER_9})"),
        (
            "pids",
            r"^[\w.]+: can't start new thread|^BlockingIOError: \[Errno 11\] Resource temporarily unavailable$",
        ),
        ("nccl_timeout", r"Watchdog caught collective operation timeout: WorkNCCL\("),
        (
            "gpu_error",
            r"^[\w.]+: (?:CUDA error|CUDA driver error|cuDNN error|NCCL error|CUDA kernel)",
        ),
        (
            "echo",
            r"^(?:EOFError|BrokenPipeError|[\w.]*BrokenProcessPool|[\w.]*WorkerLostError)\b(?!: \('Connection)|^RuntimeError: DataLoader worker \(pid\(s\)",
        ),
        ("network_lost", rf"^(?:\w+\.)*{_NETWORK_TYPES}: .*(?:{_NETWORK_TEXT})"),
    )
)
OF_LINES: Final = _kinds(
    (
        (
            "walltime",
            r"^slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ DUE TO TIME LIMIT",
        ),
        (
            "preempted",
            r"^slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ DUE TO PREEMPTION",
        ),
        (
            "host_lost",
            r"^slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ DUE TO NODE FAILURE",
        ),
        ("scheduler_oom", r"^slurmstepd: error: Detected \d+ oom[-_]kill event"),
        (
            "nccl_timeout",
            r"ProcessGroupNCCL\.cpp:\d+\] .*Watchdog caught collective operation timeout: WorkNCCL\(",
        ),
        (
            "nccl_timeout",
            r"^  what\(\): .*Watchdog caught collective operation timeout: WorkNCCL\(",
        ),
        ("cuda_oom", r"^  what\(\): +(?:CUDA out of memory\.|CUDA error: out of memory)"),
        ("memory_error", r"^  what\(\): +std::bad_alloc$"),
        (
            "shm",
            r"^ERROR: Unexpected bus error encountered in worker\. This might be caused by insuff",
        ),
        ("killed", r"^(?:\S+: (?:line )?\d+: +(?:\d+ )?)?Killed(?:  .*)?$"),
        (
            "killed",
            rf"^\s*(?:[EW]\d{{4}} .*|.*elastic.*|exitcode|traceback) ?.*(?:failed \(exitcode: -9\)|{_WORKER_9})",
        ),
        (
            "bus_error",
            r"^(?:\S+: (?:line )?\d+: +(?:\d+ )?)?Bus error(?: \(core dumped\))?(?:  .*)?$",
        ),
        (
            "no_space",
            r"^(?!\w+Error: )[\w./+ -]+: (?:.*No space left on device(?: \(28\))?\.?|.*\[Errno 28\] No space left on device: .*)$",
        ),
        ("quota", r"^[\w./+-]+: (?:.*: ?|.*)Disk quota exceeded(?: \(122\))?\.?$"),
        (
            "pids",
            r"^[\w./+-]+: .*\bfork: (?:retry: )?Resource temporarily unavailable$|^[\w./+-]+: \d+: Cannot fork$",
        ),
        (
            "network_lost",
            r"^(?:curl: \((?:6|7|28|35|52|56)\) |wget: unable to resolve host|fatal: unable to access '\S+': (?:Could not resolve|Failed to connect|Recv failure)|ssh: .*(?:timed out|No route to host|Temporary failure in name res)|rsync: .*connection unexpectedly closed)",
        ),
        (
            "write_failed",
            r"^[\w./+-]+: .*(?:(?:write error|I/O error|Input/output error)$|Wrote only \d+ of \d+ bytes$)",
        ),
        (
            "network_lost",
            r"^[\w./+-]+: .*: (?:Transport endpoint is not connected|Stale file handle)$",
        ),
    )
)
_NEAR_THE_END: Final = 8
_ANYWHERE: Final = ("nccl_timeout", "killed", "scheduler_oom", "shm")
"""Kinds that count wherever they are in the log. Many lines may follow them, such as a launcher's traceback."""
_WEAK: Final = ("talk", "error", "echo", "write_failed", "gpu_error", "silent")


@dataclass(frozen=True, slots=True)
class LastWords:
    """The failure that the end of a log names, and the line that names it."""

    kind: Kind
    line: str = ""
    raised: bool = False
    """Whether the failure was an uncaught exception."""


@dataclass(slots=True)
class Raised:
    """One exception at the end of a traceback in the log."""

    at: int
    line: str
    block: Sequence[str]
    caused: bool = False
    """Whether it caused the exception after it."""

    @property
    def kind(self) -> Kind:
        found = [kind for kind, seen in _OF_EXCEPTIONS if seen.search(self.line)]
        kind = found[0] if found else "error"
        among_own = any("multiprocessing" in line for line in self.block)
        return "echo" if kind == "network_lost" and among_own else kind


def read_last_words(log_tail: str, *, exit_code: int | None) -> LastWords:
    """Find the failure that the very end of the log names. A failure that the job survived does not count.

    An uncaught exception ends Python with status 1. So if the status is not 1, the job only printed the traceback,
    and something else ended it.
    """
    lines = [RANK.sub("", line) for line in plain(log_tail).split("\n")]
    lines = [line for line in lines if line.strip()][-LINES:]
    lines = lines[_last_life(lines) :]
    raised = [one for one in tracebacks(lines) if len(_told_after(lines, one)) <= _AFTER]
    if raised and any(WENT_ON.search(line) for line in _told_after(lines, raised[-1])):
        raised, lines = [], lines[raised[-1].at + 1 :]
    if exit_code not in (None, 1):
        raised = []
    ended = [one for one in raised if not _LAUNCHER.search(one.line.partition(":")[0])]
    by_exception = _choose(ended)
    by_line = _find_named(lines)
    if by_exception and (by_exception.kind not in _WEAK or by_line is None):
        return by_exception
    if by_line:
        return by_line
    if raised and (killed := raised[-1].kind) == "killed":
        return LastWords(killed, raised[-1].line)
    last = next((line for line in reversed(lines) if not SKIPPED.match(line)), "").strip()
    if not last:
        return LastWords("silent")
    return LastWords("error" if _FAILURE.search(last) else "talk", last)


def _last_life(lines: Sequence[str]) -> int:
    """Return the index after the last line that shows the job at work.

    A progress bar that is only redrawn does not count.
    """
    after, place = 0, None
    for index, line in enumerate(lines):
        seen = None if line.startswith(("  File ", "    ")) else _LIFE.search(line)
        if seen is None:
            continue
        now = seen.group("bar") or seen.group("at")
        glued = bool(HEADER.search(line) or "ProcessGroupNCCL.cpp" in line)
        if now != place and not glued:
            after, place = index + 1, now
    return after


def tracebacks(lines: Sequence[str]) -> Iterator[Raised]:
    """Find every exception with a traceback, in the order of the log."""
    index, before = 0, None
    while index < len(lines):
        if before and _CHAINED.match(lines[index]):
            before.caused = True
        if not HEADER.search(lines[index]):
            index += 1
            continue
        start = index = index + 1
        while index < len(lines) and lines[index].startswith((" ", "\t")):
            index += 1
        if index < len(lines) and index > start and _EXCEPTION.match(lines[index]):
            before = Raised(index, lines[index], lines[start:index])
            yield before


def _told_after(lines: Sequence[str], one: Raised) -> Sequence[str]:
    return [line for line in lines[one.at + 1 :] if not SKIPPED.match(line)]


def _choose(raised: Sequence[Raised]) -> LastWords | None:
    """Choose the exception that ended the job. If another exception caused it and says more, choose the cause."""
    if not raised:
        return None
    last = raised[-1]
    if last.kind in _WEAK:
        for one in reversed(raised[:-1]):
            if not one.caused:
                break
            if one.kind not in _WEAK:
                return LastWords(one.kind, one.line, raised=True)
    return LastWords(last.kind, last.line, raised=True)


def _find_named(lines: Sequence[str]) -> LastWords | None:
    """Find the failure that a line near the end names, outside any traceback."""
    telling = [line for line in lines if not SKIPPED.match(line)]
    near = telling[-_NEAR_THE_END:]
    for kind, pattern in OF_LINES:
        for line in reversed(lines if kind in _ANYWHERE else near):
            if pattern.search(line):
                return LastWords(kind, line.strip())
    return None
