"""Finds processes that belong to no job, but work in the directories that are to be sealed."""

from __future__ import annotations

import os
import re
import time

from box_scripts.caretaker.own_files import TENANT_SCRIPT, Own
from box_scripts.caretaker.paths import escape_path, is_below, utf8_bytes
from box_scripts.caretaker.processes import living_processes, text_of
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

SHELLS = {"sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "tcsh", "csh"}
BESIDE = re.compile(  # these only carry or show the work of other processes, which are checked separately
    r"sshd.*|dropbear|sftp-server|tmux.*|screen|mosh-server|dtach|abduco|zellij|script|less|more|man|top|htop|btop"
    r"|nvtop|nvitop|gpustat|watch|tail|nvidia-smi|journalctl|gpg-agent|ssh-agent|dbus-daemon|dirmngr|keyboxd",
    re.IGNORECASE,
).fullmatch
WAITS = re.compile(  # these wait for a person, and compute only on request
    r"jupyter.*|ipykernel(?:_launcher)?.*|tensorboard.*|code-server.*|.*/\.(?:vscode|cursor|windsurf)-server/.*|mlflow"
).fullmatch
IDLE_LOOK_S, IDLE_LOOKS, IDLE_CORES = 1.0, 5, 0.1


class AtWork:
    """Finds processes that belong to no job, but work in the directories that are to be sealed."""

    def __init__(
        self, home: str, works: list[bytes], tops: list[bytes], since_ns: int | None, own: Own
    ) -> None:
        """`works` are the work directories, ours first. `tops` are other directories in which only this lease works."""
        self._own = own
        self._home, self._since_ns = os.path.realpath(os.fsencode(home)), since_ns
        self._places = list(dict.fromkeys([*works, *tops]))
        self._mark = b"GPU_TENANT_CARETAKER=" + os.fsencode(home)

    def refuse(self, known: Collection[int] = ()) -> None:
        """Refuse the seal if there is such a process. Processes whose number is in `known` do not count.

        A process counts if it began after the launch and works in one of the places: its directory is there, or it has
        a file there open for writing. It counts even if it sleeps now, because it may write later.

        Raises:
            Refusal: AT_WORK.
        """
        if self._since_ns is None or not os.path.isdir("/proc/self"):
            return
        table, found = living_processes(), []
        apart, pid = set(known), os.getpid()
        # Leave out this process, which makes the seal, and its ancestors.
        while pid in table and pid not in apart:
            apart.add(pid)
            pid = table[pid].parent
        began = re.search(r"^btime (\d+)$", text_of("/proc/stat"), re.MULTILINE)
        if began is None:
            return
        since_ticks = (self._since_ns / 1e9 - 2 - int(began.group(1))) * os.sysconf("SC_CLK_TCK")
        for process in table.values():
            if process.pid in apart or process.ticks < since_ticks:
                continue
            where = self._stands_in(process.pid)
            if where is not None:
                found.append((process, where))
        busy = [one for one in found if not self._waits(one[0].pid)]
        waiting = [one for one in found if one not in busy]
        if waiting and not busy:
            busy = self._computing(waiting)
        if busy:
            words = "; ".join(
                "process %d (%s) in %s" % (process.pid, _words_of(process.pid), escape_path(where))
                for process, where in busy[:3]
            )
            more = ", and %d more" % (len(busy) - 3) if busy[3:] else ""
            raise Refusal(
                "AT_WORK",
                "no job's, and at work: " + words + more,
                pids=[one[0].pid for one in busy],
            )

    def _stands_in(self, pid: int) -> bytes | None:
        """Return the path in our places at which the process works. None if it works in none of them."""
        directory = b"/proc/%d" % pid
        try:
            if os.stat(directory).st_uid != os.geteuid():
                return None
            cwd = os.readlink(directory + b"/cwd")
            with open(directory + b"/environ", "rb") as file:
                is_marked = self._mark in file.read().split(b"\0")
        except OSError:
            return None
        if self._is_apart(pid):
            return None
        if is_marked or self._is_inside(cwd):
            return cwd
        return self._writes_to(pid)

    def _is_inside(self, path: bytes) -> bool:
        """Whether the path is below one of our places, or is the work directory itself.

        For other places, only paths below count: the home directory is one of them, and every login begins there.
        """
        is_deeper = any(is_below(path, place) and path != place for place in self._places)
        return (is_deeper or path == self._places[0]) and not is_below(path, self._home)

    def _writes_to(self, pid: int) -> bytes | None:
        directory = "/proc/%d/" % pid
        try:
            for fd in os.listdir(directory + "fd"):
                path = os.readlink(os.fsencode(directory + "fd/" + fd))
                flags = re.search(r"flags:\s+(\d+)", text_of(directory + "fdinfo/" + fd))
                is_open = flags and int(flags.group(1), 8) & os.O_ACCMODE != os.O_RDONLY
                if is_open and path.startswith(b"/") and self._is_inside(path):
                    return path
        except OSError:
            pass
        return None

    def _is_apart(self, pid: int) -> bool:
        """Whether the process does not count: a waiting shell, a program in BESIDE, or a script of ours."""
        words = _argv_of(pid)
        name = os.path.basename(words[0] if words else "").lstrip("-").rstrip(":")
        if not words:
            return True  # a process of the kernel
        if name in SHELLS:
            return not [
                w for w in words[1:] if not w.startswith("-") or w == "-c"
            ] and _on_terminal(pid)
        if name.startswith("python") and self._runs_ours(pid, words):
            return True
        return bool(BESIDE(name)) and self._writes_to(pid) is None

    def _runs_ours(self, pid: int, words: list[str]) -> bool:
        """Whether the process runs a script of the tenant. Only the file that it runs counts, not further arguments."""
        for word in words[1:]:
            if word in ("-c", "-m", "-"):
                return False
            if not word.startswith("-"):
                break
        else:
            return False
        try:
            # A daemon may have changed its directory. It was started in the one above our scripts.
            begun = os.path.dirname(self._own.beside)
            paths = [os.path.join(at, os.fsencode(word)) for at in (_cwd_of(pid), begun)]
            path = next((path for path in paths if os.path.lexists(path)), paths[0])
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            is_named = TENANT_SCRIPT(os.path.basename(path))
            return bool(is_named) and self._own.is_ours(path, os.lstat(path))
        except OSError:
            return False

    @staticmethod
    def _waits(pid: int) -> bool:
        return any(WAITS(w) or WAITS(os.path.basename(w)) for w in _argv_of(pid)[:4])

    @staticmethod
    def _computing(processes: list) -> list:
        before = {process.pid: _cpu_s(process.pid) for process, _ in processes}
        runnable = dict.fromkeys(before, 0)
        for _ in range(IDLE_LOOKS):
            time.sleep(IDLE_LOOK_S / IDLE_LOOKS)
            for pid in before:
                runnable[pid] += _is_runnable(pid)
        most_s = IDLE_CORES * IDLE_LOOK_S
        return [
            one
            for one in processes
            if _cpu_s(one[0].pid) - before[one[0].pid] > most_s
            or runnable[one[0].pid] > IDLE_LOOKS / 2
        ]


def _cwd_of(pid: int) -> bytes:
    return os.readlink(b"/proc/%d/cwd" % pid)


def _argv_of(pid: int) -> list[str]:
    return [word for word in text_of("/proc/%d/cmdline" % pid).split("\0") if word]


def _words_of(pid: int) -> str:
    return escape_path(utf8_bytes(" ".join(_argv_of(pid)).encode("utf-8", "replace").decode()))[:80]


def _on_terminal(pid: int) -> bool:
    try:
        return os.readlink("/proc/%d/fd/0" % pid).startswith(
            ("/dev/pts/", "/dev/tty", "/dev/console")
        )
    except OSError:
        return False


def _cpu_s(pid: int) -> float:
    fields = text_of("/proc/%d/stat" % pid).rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if len(fields) > 13 else 0.0


def _is_runnable(pid: int) -> bool:
    """Whether a thread of the process runs, or would run if a CPU were free."""
    tasks = "/proc/%d/task" % pid
    try:
        threads = os.listdir(tasks)
    except OSError:
        return False
    stats = (text_of("%s/%s/stat" % (tasks, thread)) for thread in threads)
    return any(stat.rpartition(")")[2].split()[:1] == ["R"] for stat in stats)
