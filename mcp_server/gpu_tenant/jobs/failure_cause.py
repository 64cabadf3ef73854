"""Why a job ended, judged from what the box counted, from the end of the log, and from what the provider says."""

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, Self

from gpu_tenant.artifacts.left_behind import Missing
from gpu_tenant.box.caretaker import ENDED, JobStatus
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.model import BoxState, LeaseId
from gpu_tenant.domain.stop_cause import StopCause
from gpu_tenant.domain.untrusted_text import plain, quote_text
from gpu_tenant.domain.wording import with_dates
from gpu_tenant.jobs.failure_patterns import Kind, LastWords, read_last_words

Fate = Literal["preempted", "outbid", "host_lost", "balance_zero", "walltime"]
Verdict = Literal[
    "exit",
    "signal",
    "hangup",
    "cgroup_oom",
    "host_oom",
    "memory_error",
    "disk_full",
    "inodes_full",
    "shm_full",
    "pids_full",
    "cuda_oom",
    "xid",
    "nccl_timeout",
    "network_lost",
    "walltime",
    "stalled",
    "deadline",
    "preempted",
    "outbid",
    "host_lost",
    "balance_zero",
    "reboot",
    "stopped",
    "budget",
    "price",
    "idle",
    "left_out",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class BoxSeen:
    """What the provider shows of the box, and what happened to the box if the provider says so."""

    state: BoxState
    words: str = ""
    fate: Fate | None = None
    at: datetime | None = None
    """When this was noticed. None if it is the state now."""
    way_on: str | None = None
    """What to do next about the lost work. None: the general advice for this fate."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a job ended: the verdict, its evidence, what to do next, and which page to `read` (PAGE or PAGE#PART)."""

    verdict: Verdict
    evidence: str
    advice: str
    read: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.evidence}; {self.advice}; read {Command('guide', *self.read.split('#'))}"

    def of(self, lease: LeaseId) -> Self:
        """Return the same diagnosis, with that lease's name in its commands."""
        return replace(self, advice=self.advice.replace("LEASE", lease))


_GOTCHAS: Final = "gotchas"
_MEMORY: Final = "debug/memory"
ADVICE: Final[Mapping[Verdict, tuple[str, str]]] = {
    "exit": (
        "it ended by itself: read the end of the log, correct the code on this computer, launch again",
        "phase-4-monitor",
    ),
    "signal": ("find who sent the signal before you launch again", f"{_GOTCHAS}#vanished-process"),
    "hangup": (
        "something in the command has enabled SIGHUP again: start the command in a session of its own",
        f"{_GOTCHAS}#rearmed-sighup",
    ),
    "cgroup_oom": (
        "it used more memory than the box allows: `audit` shows the limit, then use fewer workers",
        f"{_MEMORY}#not-vram",
    ),
    "host_oom": (
        "the machine, or a control group (cgroup) that contains the box, ran out of memory: use less memory, or take another box",
        f"{_MEMORY}#not-vram",
    ),
    "memory_error": (
        "an allocation was refused, or the program raised this itself: read the line where it failed, and compare the size there with `ulimit -v`",
        _MEMORY,
    ),
    "disk_full": (
        "make room or keep fewer checkpoints, then launch again",
        f"{_GOTCHAS}#ckpt-write-full",
    ),
    "inodes_full": (
        "write fewer, larger files, then launch again",
        f"{_GOTCHAS}#inodes-or-wrong-mount",
    ),
    "shm_full": (
        "use fewer workers, `prefetch_factor=1` or `num_workers=0`, or a box with more /dev/shm",
        f"{_GOTCHAS}#shm-bus-error",
    ),
    "pids_full": (
        "use fewer workers and threads: the box limits their number",
        f"{_GOTCHAS}#thread-storm",
    ),
    "cuda_oom": (
        "read the four numbers in the error message before you shrink anything",
        f"{_MEMORY}#reading-the-trace",
    ),
    "xid": (
        "the GPU failed: collect, keep the kernel's message for the provider, and take another box",
        f"{_GOTCHAS}#dead-gpu",
    ),
    "nccl_timeout": (
        "find the rank that did not arrive: the other ranks only waited for it",
        "debug/distributed#hangs",
    ),
    "network_lost": (
        "try the same connection from the box, then launch again with retries",
        "transfer",
    ),
    "walltime": (
        "its time limit ended it: launch it again; it continues if it loads its checkpoint",
        "spot",
    ),
    "stalled": (
        "it wrote nothing for too long: read the end of the log, then launch it again; it continues if it loads its checkpoint",
        "phase-4-monitor",
    ),
    "deadline": (
        "the lease's deadline stopped it: collect what it wrote",
        "phase-5-teardown",
    ),
    "preempted": (
        "its platform takes the box back: its profile says what survives; continue from the checkpoint",
        "spot",
    ),
    "outbid": (
        (
            f"somebody bid more: {Command('recover', 'LEASE')} continues on another box; {Command('resume', 'LEASE')} asks "
            f"for this box again; {Command('teardown', 'LEASE')} ends it: otherwise it may start by itself, and bill"
        ),
        f"{_GOTCHAS}#outbid-wakes",
    ),
    "host_lost": (
        "the machine under the box failed: see in its profile what survives that, then take another box",
        "spot",
    ),
    "balance_zero": (
        "fund the account before the provider deletes the box, then collect",
        f"{_GOTCHAS}#zero-balance",
    ),
    "reboot": (
        "the box restarted: launch the same command again, it resumes from its checkpoint",
        f"{_GOTCHAS}#vanished-process",
    ),
    "stopped": ("it was stopped on request", "phase-4-monitor"),
    "budget": ("collect what it wrote", "phase-5-teardown"),
    "price": ("collect what it wrote", "phase-5-teardown"),
    "idle": ("collect what it wrote", "phase-5-teardown"),
    "left_out": (
        "send the missing files to the box, and launch the job again",
        f"{_GOTCHAS}#ignored-data-not-pushed",
    ),
    "unknown": ("find the cause before you change the experiment", f"{_GOTCHAS}#vanished-process"),
}
"""What to do, and which page describes it, for each verdict."""

_BY_US: Final[Mapping[str, Verdict]] = {
    "stopped": "stopped",
    "deadline": "deadline",
    "walltime": "walltime",
    "stalled": "stalled",
    "preempted": "preempted",
}
_STANDS_ALONE: Final[Mapping[Kind, Verdict]] = {
    "cuda_oom": "cuda_oom",
    "memory_error": "memory_error",
    "nccl_timeout": "nccl_timeout",
    "network_lost": "network_lost",
    "quota": "disk_full",
    "walltime": "walltime",
    "preempted": "preempted",
    "host_lost": "host_lost",
    "scheduler_oom": "cgroup_oom",
}
"""Causes for which the words of the log are enough, because the box has no counter that could confirm them."""

_OUT_OF_MEMORY: Final[tuple[Verdict, ...]] = ("cgroup_oom", "host_oom")
_FULL: Final[tuple[Verdict, ...]] = ("disk_full", "inodes_full")
_HEARD_OF_A_KILL: Final = (
    "killed",
    "scheduler_oom",
    "echo",
    "silent",
    "memory_error",
    "nccl_timeout",
)
_OF_PROVIDERS: Final = ("TERM", "KILL", "INT", "HUP")
_QUOTED: Final = 240
_LOW, _AMPLE = 0.05, 0.5
_TINY_SHM: Final = 1 << 30
_TELLS_OF_A_KILL: Final = re.compile(
    r"(?<!\w)-9\b|\bsignal:? 9\b|\bSIGKILL\b|\bKilled\b|\b(?:status|code) 137\b"
)
_ELSEWHERE: Final = re.compile(r"['\"/:( ]/\w")
_IN_SHM: Final = re.compile(r"/dev/shm/|</?torch_")  # noqa: S108


@dataclass(frozen=True, slots=True)
class _End:
    """How the command ended: by itself, by a signal, or without anybody having seen it."""

    exit_code: int | None
    signal: str | None
    words: str

    @property
    def recorded(self) -> bool:
        return self.exit_code is not None or self.signal is not None


def diagnose(
    status: JobStatus,
    log_tail: str,
    *,
    box: BoxSeen | None = None,
    stopped_for: StopCause | None = None,
    missing: Missing | None = None,
) -> Diagnosis | None:
    """Return why the job ended, by the strongest evidence there is. None while it runs, and None if it finished.

    `stopped_for` is the term of the lease because of which we stopped the job, if we did. `missing` are the
    files that its log reports as missing and that the push left out.

    What the box counted outranks what the log says. Of the log, only the last words count. If the evidence
    contradicts itself, or is not conclusive, the verdict is `unknown`, and the evidence lists what is known.
    """
    if status.state not in ENDED:
        return _fate_of(box) if status.state != "absent" else None
    if status.state == "finished":
        return None
    reason = status.reason
    if reason is not None and (ours := _BY_US.get(reason.code)):
        if ours == "stopped" and stopped_for is not None:
            # The advice for a deadline already names it, so its evidence does not.
            is_deadline = stopped_for.term == "deadline"
            evidence = stopped_for.words if is_deadline else stopped_for.sentence
            return _diagnosis(stopped_for.term, evidence)
        return _diagnosis(ours, quote_text(reason.evidence))
    end = _end_of(status)
    signs = {sign: quote_text(said) for sign, said in reason.signs.items()} if reason else {}
    if not signs and reason and reason.code not in ("exit", "signal", "supervisor_lost"):
        signs = {reason.code: quote_text(reason.evidence)}
    taken = _fate_of(box)
    killed_here = end.signal == "KILL" and any(sign in signs for sign in _OUT_OF_MEMORY)
    if taken and not killed_here and (not end.recorded or end.signal in _OF_PROVIDERS):
        return taken
    if "reboot" in signs:
        return _diagnosis("reboot", signs["reboot"])
    words = read_last_words(log_tail, exit_code=end.exit_code if end.signal is None else None)
    verdict, evidence = _weigh(end, signs, reason.shares if reason else {}, words)
    if verdict == "exit" and missing is not None:
        return _diagnosis("left_out", f"{end.words}; {missing.words}")
    return _diagnosis(verdict, evidence)


def _fate_of(box: BoxSeen | None) -> Diagnosis | None:
    if box is None or box.fate is None:
        return None
    if box.at is not None:
        said = f"its provider took the box, as was seen at {box.at:%Y-%m-%d %H:%M} UTC, while the job ran"
    elif box.words:
        said = f"the provider says {_quote(box.words)}"
    else:
        said = "the provider's own record says so"
    told = _diagnosis(box.fate, said)
    return replace(told, advice=box.way_on) if box.way_on else told


def _diagnosis(verdict: Verdict, evidence: str) -> Diagnosis:
    advice, read = ADVICE[verdict]
    return Diagnosis(verdict, with_dates(" ".join(plain(evidence).split())), advice, read)


def _end_of(status: JobStatus) -> _End:
    if status.signal:
        return _End(None, status.signal, f"ended by {quote_text(f'SIG{status.signal}')}")
    code = status.exit_code
    if code is None:
        return _End(None, None, "it left no exit record")
    if status.state == "killed" and 128 < code < 160:
        name = _signal_name(code - 128)
        return _End(code, name, f"exit status {code}, by which a shell reports SIG{name}")
    return _End(code, None, f"exit status {code}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return str(number)


def _weigh(
    end: _End, signs: Mapping[str, str], shares: Mapping[str, float], words: LastWords
) -> tuple[Verdict, str]:
    says = f"the log ends {_quote(words.line)}" if words.line else "the log says nothing about it"
    if not end.recorded:
        return _unseen_end(end, signs, says)
    if end.signal is not None:
        return _by_signal(end, end.signal, signs, shares, words, says)
    return _by_exit(end, signs, shares, words, says)


def _unseen_end(end: _End, signs: Mapping[str, str], says: str) -> tuple[Verdict, str]:
    """The verdict if nobody saw the end, because both the command and its supervisor are gone."""
    for memory in _OUT_OF_MEMORY:
        if memory in signs:
            return memory, f"{signs[memory]}; {end.words}"
    return "unknown", f"{end.words}, and its supervisor is gone as well; {says}"


def _by_signal(
    end: _End,
    name: str,
    signs: Mapping[str, str],
    shares: Mapping[str, float],
    words: LastWords,
    says: str,
) -> tuple[Verdict, str]:
    scheduler = words.kind in ("walltime", "preempted", "host_lost", "scheduler_oom")
    memory = next((sign for sign in _OUT_OF_MEMORY if sign in signs), None)
    if name == "KILL":
        if memory and "another_killed" in signs:
            return (
                "unknown",
                f"{end.words}; the kernel killed another process: {signs['another_killed']}",
            )
        if memory and words.kind in ("walltime", "preempted", "host_lost"):
            return "unknown", f"{signs[memory]}; {says}"
        if memory:
            return memory, f"{signs[memory]}; {end.words}"
    if memory and name == "ABRT" and words.kind == "nccl_timeout":
        return memory, f"{signs[memory]}; the other ranks waited for it; {end.words}"
    if scheduler and name in ("KILL", "TERM"):
        return _STANDS_ALONE[words.kind], f"{says}; {end.words}"
    if name == "KILL" and "uncounted" in signs:
        return "unknown", f"{end.words}; {signs['uncounted']}"
    if name == "HUP":
        return "hangup", end.words
    if name == "BUS":
        return _by_bus_error(end, signs, shares, words, says)
    if name == "ABRT" and words.kind in ("nccl_timeout", "cuda_oom", "memory_error"):
        return _STANDS_ALONE[words.kind], f"{says}; {end.words}"
    if "xid" in signs:
        if name in ("ABRT", "SEGV", "BUS") or words.kind == "gpu_error":
            return "xid", f"{signs['xid']}; {end.words}"
        return "unknown", f"{end.words}, but the kernel also reported a GPU fault: {signs['xid']}"
    return "signal", f"{end.words}; {says}" if words.kind != "silent" else end.words


def _by_bus_error(
    end: _End, signs: Mapping[str, str], shares: Mapping[str, float], words: LastWords, says: str
) -> tuple[Verdict, str]:
    """The verdict on a bus error: the process touched a mapped file that was truncated, or whose disk was full."""
    disk, shm = "disk_full" in signs, "shm_full" in signs
    if disk and shm:
        return "unknown", f"{end.words}; {signs['shm_full']}; {signs['disk_full']}"
    if shm or (words.kind == "shm" and not disk):
        return "shm_full", f"{signs.get('shm_full', says)}; {end.words}"
    if disk:
        return "disk_full", f"{signs['disk_full']}; {end.words}"
    if 0 < shares.get("shm_bytes", 0) < _TINY_SHM:
        return (
            "unknown",
            f"{end.words}; the whole size of /dev/shm is {int(shares['shm_bytes'])} bytes",
        )
    return "signal", f"{end.words}; {says}"


def _by_exit(
    end: _End, signs: Mapping[str, str], shares: Mapping[str, float], words: LastWords, says: str
) -> tuple[Verdict, str]:
    memory = next((sign for sign in _OUT_OF_MEMORY if sign in signs), None)
    full = next((sign for sign in _FULL if sign in signs), None)
    if memory:
        if words.kind in _HEARD_OF_A_KILL or _TELLS_OF_A_KILL.search(words.line):
            return memory, f"{signs[memory]}; {says}; {end.words}"
        return "unknown", f"{signs[memory]}, but {says}; {end.words}"
    if "log_cut" in signs and words.kind not in ("no_space", "write_failed", "quota"):
        if full and words.kind in ("silent", "talk"):
            return full, f"{signs[full]}; {signs['log_cut']}; {end.words}"
        return (
            "unknown",
            f"{signs['log_cut']}, so its last words may be old: {says}; {end.words}",
        )
    if "xid" in signs:
        if words.kind in ("gpu_error", "nccl_timeout", "silent", "echo"):
            return "xid", f"{signs['xid']}; {end.words}"
        return (
            "unknown",
            f"{says}, but the kernel also reported a GPU fault: {signs['xid']}; {end.words}",
        )
    if words.kind in _STANDS_ALONE:
        return _STANDS_ALONE[words.kind], f"{says}; {end.words}"
    match words.kind:
        case "no_space":
            return _without_space(end, signs, shares, words, says)
        case "write_failed":
            if full:
                return full, f"{signs[full]}; {says}"
            return "unknown", f"a write failed, but there is room now: {says}; {end.words}"
        case "shm":
            return _without_shm(signs, shares, says)
        case "bus_error":
            return _by_bus_error(end, signs, shares, words, says)
        case "pids" if "pids_full" in signs:
            return "pids_full", f"{signs['pids_full']}; {says}"
        case "pids":
            return (
                "unknown",
                f"a process or thread could not start, but no counter on the box shows a limit: {says}",
            )
        case "killed":
            return (
                "unknown",
                f"a part of the job was killed, but no counter on the box shows why: {says}; {end.words}",
            )
        case "silent" if full:
            return full, f"{signs[full]}; {says}; {end.words}"
        case "echo":
            return (
                "unknown",
                f"the job lost another of its processes, but nothing says why: {says}; {end.words}",
            )
        case _ if full and not words.raised:
            return "unknown", f"{signs[full]}, but {says}; {end.words}"
        case _:
            return "exit", f"{end.words}; {says}"


def _without_space(
    end: _End, signs: Mapping[str, str], shares: Mapping[str, float], words: LastWords, says: str
) -> tuple[Verdict, str]:
    """Return the verdict if the system refused a write because bytes or inodes ran out.

    The facts show which of the two ran out.
    """
    if _IN_SHM.search(words.line):
        return _without_shm(signs, shares, says)
    disk, inodes = "disk_full" in signs, "inodes_full" in signs
    if disk != inodes:
        full: Verdict = "disk_full" if disk else "inodes_full"
        return full, f"{signs[full]}; {says}"
    if "shm_full" in signs and not disk:
        return "shm_full", f"{signs['shm_full']}, but there was room where the job worked; {says}"
    free, left = shares.get("disk_share"), shares.get("inode_share")
    if free is not None and free < _LOW and (left is None or left > _AMPLE):
        return "disk_full", f"{says}; {free:.1%} of the disk was free at its end"
    if left is not None and left < _LOW and free is not None and free > _AMPLE:
        return "inodes_full", f"{says}; {left:.1%} of the inodes were free at its end"
    if left is not None and left > _AMPLE and not _ELSEWHERE.search(words.line):
        # Free bytes prove nothing, because one removed file may have freed them. But if half of all inodes
        # are free now, they had not run out at the failure. So it was the bytes.
        return (
            "disk_full",
            f"{says}; after its end there was room again, and the inodes had never run out",
        )
    return "unknown", f"{says}, but there was room where the job worked; {end.words}"


def _without_shm(
    signs: Mapping[str, str], shares: Mapping[str, float], says: str
) -> tuple[Verdict, str]:
    if "shm_full" in signs:
        return "shm_full", f"{signs['shm_full']}; {says}"
    whole, free = shares.get("shm_bytes", 0), shares.get("shm_free_bytes", 0)
    if whole > _TINY_SHM and free > whole * _AMPLE:
        # When a process dies, what it held in /dev/shm becomes free again. But it can hardly have held this much.
        return "unknown", f"{says}, but {int(free)} of {int(whole)} bytes are free in /dev/shm"
    return "shm_full", says


def _quote(line: str) -> str:
    text = " ".join(plain(line).split()).replace("“", '"').replace("”", '"')
    return f"“{text if len(text) <= _QUOTED else text[:_QUOTED] + '…'}”"
