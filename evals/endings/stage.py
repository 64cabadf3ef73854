"""Where one ending is really produced: disks, groups and namespaces of its own, and the caretaker in them."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from evals.endings.ending import Ending, Need
from gpu_tenant.box.caretaker import ENDED, JobStatus
from gpu_tenant.jobs.failure_cause import Diagnosis, diagnose

CARETAKER: Final = Path(__file__).parents[2] / "scripts" / "caretaker.py"
_GROUPS: Final = Path("/sys/fs/cgroup")
_PATIENCE_S: Final = 20.0
_TAIL_BYTES: Final = 32768


class Broken(Exception):
    """The stage could not be set, or the job did not end: that is no verdict."""


def missing() -> dict[Need, str]:
    """The mechanisms that this machine does not lend, and why."""
    lacks: dict[Need, str] = {}
    if os.geteuid() != 0 or shutil.which("unshare") is None or not _works("unshare", "-m", "true"):
        why = "it takes root, and a kernel that gives mount namespaces"
        inside: tuple[Need, ...] = ("mounts", "memory", "pids", "network", "processes", "loop")
        return dict.fromkeys(inside, why)
    if not _works("unshare", "-n", "true"):
        lacks["network"] = "no network namespace can be made"
    if not _works("unshare", "-p", "-f", "--mount-proc", "true"):
        lacks["processes"] = "no process namespace can be made"
    controllers: tuple[tuple[Need, str], ...] = (
        ("memory", "memory.limit_in_bytes"),
        ("pids", "cgroup.procs"),
    )
    for need, file in controllers:
        if not os.access(_GROUPS / need / file, os.F_OK):
            lacks[need] = f"version 1 of the {need} cgroup is not mounted"
    if not Path("/dev/loop-control").exists() or shutil.which("mkfs.ext4") is None:
        lacks["loop"] = "there is no loop device, or no mkfs.ext4"
    if shutil.which("cc") is None:
        lacks["compiler"] = "there is no C compiler"
    return lacks


def _works(*argv: str) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def produced(ending: Ending) -> tuple[JobStatus, Diagnosis | None]:
    """How the box tells of that ending, and the verdict on it; nothing of it is left behind.

    Raises:
        Broken: it could not be produced.
    """
    with tempfile.TemporaryDirectory(prefix="gpu-tenant-ending-") as directory, ExitStack() as undo:
        stage = Stage(ending, Path(directory), undo)
        status = stage.played()
        log = stage.ask("tail", job="j", offset=-_TAIL_BYTES, limit=_TAIL_BYTES)
        text = base64.b64decode(str(log["base64"])).decode("utf-8", "replace")
        return status, diagnose(status, text, box=ending.box)


class Stage:
    """One box for one ending."""

    def __init__(self, ending: Ending, root: Path, undo: ExitStack) -> None:
        self._ending, self._root, self._undo = ending, root, undo
        self._work = root / "work"
        self._work.mkdir()
        self._home = (self._work if ending.log_on_disk else root) / "home"
        self._groups: list[Path] = []
        self._inside: list[str] = []

    def played(self) -> JobStatus:
        """The job's status when it has ended."""
        ending = self._ending
        self._set_disk()
        self._set_groups()
        if ending.within:
            self._enter_namespace()
        self._undo.callback(self._cleared)
        started = self.ask(
            "start",
            job="j",
            argv=[self._filled(word) for word in ending.argv],
            cwd=str(self._work),
            max_runtime_s=ending.max_runtime_s,
            env=dict(ending.env),
        )
        if not started["ok"] and started["code"] != "COMMAND_NOT_FOUND":
            raise Broken(str(started))
        for step in ending.then:
            self._do(step)
        until(lambda: self.status().state in ENDED)
        return self.status()

    def status(self) -> JobStatus:
        return JobStatus.model_validate(self.ask("status", job="j"))

    def ask(self, verb: str, **arguments: object) -> dict[str, JsonValue]:
        """The caretaker's reply, from inside the box."""
        argv = [
            *self._inside,
            sys.executable,
            "-I",
            "-S",
            str(CARETAKER),
            "--home",
            str(self._home),
        ]
        enter = "".join(
            f"echo $$ > {group}/cgroup.procs; " for group in self._groups if verb == "start"
        )
        done = subprocess.run(
            ["sh", "-c", enter + 'exec "$@"', "sh", *argv, verb, "--request", "-"],
            input=json.dumps({k: v for k, v in arguments.items() if v is not None}).encode(),
            capture_output=True,
            check=False,
            timeout=_PATIENCE_S + 20,
        )
        try:
            reply = json.loads(done.stdout)
        except ValueError:
            raise Broken(f"{verb}: {done.stderr.decode(errors='replace')[-300:]}") from None
        if not isinstance(reply, dict):
            raise Broken(f"{verb}: {reply!r}")
        return reply

    # --- the box --------------------------------------------------------------------------------

    def _filled(self, word: str) -> str:
        return word.replace("@ROOT@", str(self._root)).replace("@WORK@", str(self._work))

    def _set_disk(self) -> None:
        match self._ending.disk:
            case ("tmpfs", options):
                self._mount("-t", "tmpfs", "-o", options, "ending", str(self._work))
            case None:
                pass
            case ("ext4", options):
                image = self._root / "disk"
                with image.open("wb") as file:
                    file.truncate(8 << 20)
                _run("mkfs.ext4", "-q", "-F", "-m", "0", *options.split(), str(image))
                self._mount("-o", "loop", str(image), str(self._work))

    def _mount(self, *argv: str) -> None:
        _run("mount", *argv)
        self._undo.callback(_run, "umount", "-l", argv[-1])

    def _set_groups(self) -> None:
        name = f"gpu-tenant-ending-{os.getpid()}"
        if self._ending.memory:
            group = _GROUPS / "memory" / name
            self._new_group(group, "memory.limit_in_bytes", self._ending.memory)
            if self._ending.within_group:
                group = group / "inner"
                self._new_group(group, None, "")
            self._groups.append(group)
        if self._ending.pids:
            group = _GROUPS / "pids" / name
            self._new_group(group, "pids.max", str(self._ending.pids))
            self._groups.append(group)

    def _new_group(self, group: Path, limit: str | None, value: str) -> None:
        group.mkdir()
        self._undo.callback(_removed, group)
        if limit:
            (group / limit).write_text(value, encoding="ascii")

    def _enter_namespace(self) -> None:
        """The namespace stands, held by a process of ours, and is set as the ending says."""
        flags = [
            {"mounts": "-m", "network": "-n", "processes": "-p"}[n] for n in self._ending.within
        ]
        if "processes" in self._ending.within:
            flags += ["-f", "--kill-child", "--mount-proc"]
        memory = self._groups[0] if self._groups else _GROUPS
        script = self._filled("\n".join(self._ending.set)).replace("@GROUP@", str(memory))
        holder = subprocess.Popen(
            ["unshare", *flags, "sh", "-ec", script + "\necho ready; exec sleep 600"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._undo.callback(_ended, holder)
        assert holder.stdout is not None
        if holder.stdout.readline() != b"ready\n":
            raise Broken("the namespace could not be set")
        pid = holder.pid
        if "processes" in self._ending.within:
            pid = int(
                Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0]
            )
        self._holder, self._pid = holder, pid
        self._inside = ["nsenter", *flags[: len(self._ending.within)], "-t", str(pid)]

    # --- what befalls the job -------------------------------------------------------------------

    def _do(self, step: str) -> None:
        verb, _, argument = step.partition(" ")
        match verb:
            case "ready":  # it has said so
                until(lambda: b"ready" in self._log())
            case "signal":
                os.kill(self._record("pid"), signal.Signals[f"SIG{argument}"])
            case "lose":  # the command and its supervisor at once, as a container's end does
                for whose in ("supervisor_pid", "pid"):
                    os.kill(self._record(whose), signal.SIGKILL)
            case "stop":
                self.ask("stop", job="j", grace_s=0.3)
            case "deadline":
                self.ask("guard", deadline=time.time() + 0.2, grace_s=0.3)  # noqa: TID251
            case "restart":  # of the container: all its processes end, and it comes up again
                _ended(self._holder)
                self._enter_namespace()
            case "within":
                _run(*self._inside, "sh", "-ec", self._filled(argument))
            case _:
                raise Broken(f"there is no step {step}")

    def _record(self, name: str) -> int:
        record = json.loads((self._home / "jobs/j/started.json").read_text(encoding="utf-8"))
        return int(record[name])

    def _log(self) -> bytes:
        with suppress(FileNotFoundError):
            return (self._home / "jobs/j/log").read_bytes()
        return b""

    def _cleared(self) -> None:
        """No process of the job is left, nor of a guard."""
        with suppress(Broken, subprocess.TimeoutExpired):
            self.ask("stop", job="j", grace_s=0)
        (self._home / "guard.json").unlink(missing_ok=True)


def until(is_so: Callable[[], bool]) -> None:
    """`is_so` has become true.

    Raises:
        Broken: not in time.
    """
    give_up = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > give_up:
            raise Broken("the job did not come so far in time")
        time.sleep(0.02)  # noqa: TID251


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, check=False, timeout=_PATIENCE_S)
    if done.returncode:
        raise Broken(f"{argv[0]}: {done.stderr.decode(errors='replace').strip()[-200:]}")


def _removed(group: Path) -> None:
    """The group is gone; its processes were ended before, and the kernel takes a moment."""
    give_up = time.monotonic() + 5
    while group.exists():
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)  # noqa: TID251


def _ended(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


@contextmanager
def compiled(sources: Mapping[str, str]) -> Iterator[Path]:
    """A folder with each C program, built."""
    with tempfile.TemporaryDirectory(prefix="gpu-tenant-endings-bin-") as directory:
        for name, source in sources.items():
            at = Path(directory, name + ".c")
            at.write_text(source, encoding="ascii")
            _run("cc", "-O0", "-o", str(at.with_suffix("")), str(at))
        yield Path(directory)
