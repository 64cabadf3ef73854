"""A real Slurm of one node, with two GPUs that are device files, without systemd and without accounting."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from arranged import PATIENCE_S
from parts import required, root_required
from sshd import wait_until

_PATH = f"/usr/sbin:/sbin:{os.environ.get('PATH', '/usr/bin:/bin')}"
_HOST = socket.gethostname().partition(".")[0]


class Cluster:
    """One controller, one node and one munge, each a process of ours, in one folder of their own.

    Several may be up at once: their jobs' ids, by which the node fences processes, lie far apart.
    Partition `low` is preempted by `high`, and its jobs are requeued. Nothing waits as long as it does
    at a site: a requeued job starts again in seconds, and what is told to end has fifteen.
    Whoever submitted jobs ends them: what still runs when the cluster goes is left alone.
    """

    def __init__(self, directory: Path) -> None:
        required("slurm")
        root_required()
        self.directory = directory
        self.configuration = directory / "slurm.conf"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for name in ("state", "spool", "log"):
            (self.directory / name).mkdir(parents=True)
        for number in range(2):
            # slurmd counts device files: another /dev/null serves.
            os.mknod(self.directory / f"gpu{number}", 0o20666, os.makedev(1, 3))
        self._write()
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=120)

    @property
    def environment(self) -> Mapping[str, str]:
        """What a shell on the login node has."""
        return {**os.environ, "SLURM_CONF": str(self.configuration)}

    def told(self, *argv: str) -> str:
        """What a command of Slurm printed; it succeeded."""
        ended = subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert ended.returncode == 0, (argv, ended.stderr)
        return ended.stdout.strip()

    def jobs(self) -> Sequence[str]:
        """The ids of those that wait or run."""
        return self.told("squeue", "-h", "-o", "%i").split()

    def state(self, job: str) -> str:
        """What Slurm calls it now."""
        return self.told("squeue", "-h", "--states=all", "-o", "%T", "-j", job)

    def until(self, job: str, *states: str, within_s: float = PATIENCE_S) -> None:
        """It is in one of those states at last; asserted."""
        wait_until(lambda: self.state(job) in states, within_s=within_s)

    def end_jobs(self) -> None:
        """Nothing waits or runs any more."""
        self.told("scancel", "--user", getpass.getuser())
        wait_until(lambda: not self.jobs())

    def _start(self) -> None:
        at = self.directory
        self._run(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={at}/munge.key",
            f"--socket={at}/munge.sock",
            f"--pid-file={at}/munge.pid",
            f"--log-file={at}/log/munged",
            f"--seed-file={at}/seed",
        )
        self._wait_for(lambda: (at / "munge.sock").exists())
        self._run("slurmctld", "-D")
        self._run("slurmd", "-D", "-N", _HOST)
        self._wait_for(self._is_up)

    def _is_up(self) -> bool:
        said = subprocess.run(
            ["sinfo", "-h", "-p", "low", "-o", "%T"],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return said.stdout.strip() == "idle"

    def _run(self, *argv: str) -> None:
        with (self.directory / "log" / f"{argv[0]}.out").open("wb") as log:
            program = shutil.which(argv[0], path=_PATH)
            assert program
            self._processes.append(
                subprocess.Popen(
                    [program, *argv[1:]],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _wait_for(self, true: Callable[[], bool]) -> None:
        try:
            wait_until(true)
        except AssertionError:
            raise AssertionError(self._last_words()) from None

    def _last_words(self) -> str:
        logs = sorted((self.directory / "log").iterdir())
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-800:]}" for log in logs)

    def _write(self) -> None:
        at = self.directory
        controller, node = _free_ports(2)
        key = at / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        (at / "gres.conf").write_text(
            f"NodeName={_HOST} Name=gpu Type=a100 File={at}/gpu[0-1]\n", encoding="utf-8"
        )
        (at / "cgroup.conf").write_text("CgroupAutomount=no\n", encoding="utf-8")
        self.configuration.write_text(
            f"""\
ClusterName=lab
SlurmctldHost={_HOST}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={at}/munge.sock
SlurmUser=root
SlurmdUser=root
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool
SlurmctldPidFile={at}/ctld.pid
SlurmdPidFile={at}/slurmd.pid
SlurmctldPort={controller}
SlurmdPort={node}
ProctrackType=proctrack/cgroup
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0,sched_min_interval=0,requeue_delay=1
SchedulerTimeSlice=5
KillWait=15
OverTimeLimit=0
MinJobAge=300
FirstJobId={controller * 1000}
NodeName={_HOST} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} RealMemory=2000 Gres=gpu:a100:2 State=UNKNOWN
PartitionName=low Nodes={_HOST} Default=YES PriorityTier=1 MaxTime=60 PreemptMode=REQUEUE GraceTime=3 OverSubscribe=FORCE:8
PartitionName=high Nodes={_HOST} PriorityTier=10 MaxTime=60 PreemptMode=OFF OverSubscribe=FORCE:8
""",
            encoding="utf-8",
        )


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
