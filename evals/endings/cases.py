"""The table of endings: each with its true cause, written before it is produced."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evals.endings import said
from evals.endings.ending import Ending
from evals.endings.programs import (
    CHILD_EATS,
    EATS,
    FEW_INODES,
    FILES,
    FILLS,
    MAPS,
    NO_KERNEL_LOG,
    PROGRESS,
    SEGMENT,
    SHM,
    SMALL,
    WAITS,
    python,
    says,
    says_and_dies,
    shell,
)
from gpu_tenant.domain.model import BoxState
from gpu_tenant.jobs.failure_cause import BoxSeen, Fate, Verdict


def endings(binaries: Path) -> list[Ending]:
    """Every ending; `binaries` holds the C programs."""
    return [
        *_exits(binaries),
        *_signals(binaries),
        *_memory(binaries),
        *_disks(binaries),
        *_shm(),
        *_pids(),
        *_gpu(),
        *_network(),
        *_asked_for(),
        *_taken(),
        *_decoys(),
        *_ambiguous(),
    ]


def _e(truth: Verdict, name: str, argv: Sequence[str], **more: Any) -> Ending:
    return Ending(name=f"{truth}: {name}", truth=truth, argv=argv, **more)


def _exits(binaries: Path) -> list[Ending]:
    return [
        _e("exit", "a status and no word", shell("exit 3")),
        _e("exit", "an exception", python(PROGRESS + "raise ValueError('shapes do not fit')")),
        _e("exit", "an assertion", python("assert 1 == 2, 'labels out of range'")),
        _e("exit", "a module that is not there", python("import torch_that_is_not_there")),
        _e(
            "exit",
            "a usage error",
            python(
                "import argparse\np = argparse.ArgumentParser()\n"
                "p.add_argument('--lr', required=True)\np.parse_args()"
            ),
        ),
        _e("exit", "a command that is not there", ["no-such-command-anywhere"]),
        _e("exit", "a last word", python("raise SystemExit('config.yaml is missing')")),
        _e("exit", "a C program's status", [str(binaries / "returns7")], compiled=True),
        _e(
            "exit",
            "a port where nobody listens",
            python(
                "import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\n"
                "socket.create_connection(s.getsockname())"
            ),
        ),
        _e(
            "exit",
            "an unequal collective by gloo",
            says(
                said.TORCH_FRAMES
                + "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection "
                "closed by peer [127.0.0.1]:4242"
            ),
            written=True,
        ),
    ]


def _signals(binaries: Path) -> list[Ending]:
    hup = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n" + WAITS
    return [
        _e("signal", "SIGKILL by somebody", python(WAITS), then=("ready", "signal KILL")),
        _e("signal", "SIGTERM by somebody", python(WAITS), then=("ready", "signal TERM")),
        _e("signal", "SIGINT at a Python program", python(WAITS), then=("ready", "signal INT")),
        _e("signal", "SIGKILL by its own shell", shell("kill -9 $$")),
        _e("signal", "a child of the shell killed", shell("sh -c 'kill -9 $$'; exit $?")),
        _e("signal", "a segmentation fault", [str(binaries / "segv")], compiled=True),
        _e("signal", "an abort", [str(binaries / "aborts")], compiled=True),
        _e("signal", "a division by zero", [str(binaries / "divides")], compiled=True),
        _e(
            "signal",
            "SIGTERM and 143",
            shell("trap 'exit 143' TERM; echo ready; while :; do sleep 0.05; done"),
            then=("ready", "signal TERM"),
        ),
        _e(
            "signal",
            "a bus error of a file that was cut",
            python(
                "import mmap\nf = open('cut', 'w+b')\nf.truncate(8192)\nm = mmap.mmap(f.fileno(), 8192)\n"
                "f.truncate(0)\nm[5000]"
            ),
        ),
        _e(
            "hangup",
            "a launcher that listens to it again",
            python(hup),
            then=("ready", "signal HUP"),
        ),
        _e(
            "hangup",
            "in a child, told by the shell",
            [
                "sh",
                "-c",
                '"$@"; exit $?',
                "sh",
                *python(
                    "import os, signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\nos.kill(os.getpid(), 1)"
                ),
            ],
        ),
    ]


def _memory(binaries: Path) -> list[Ending]:
    limit: dict[str, Any] = {"memory": "64M"}
    v2: dict[str, Any] = limit | {
        "within": ("mounts",),
        "set": (
            "mkdir @ROOT@/v1",
            "mount --bind @GROUP@ @ROOT@/v1",
            "mount -t tmpfs v2 /sys/fs/cgroup",
            "printf 'low 0\\nhigh 0\\nmax 0\\noom 0\\noom_kill 0\\n' > /sys/fs/cgroup/memory.events",
            NO_KERNEL_LOG,
        ),
    }
    told = (
        "n=$(sed -n 's/^oom_kill //p' @ROOT@/v1/memory.oom_control); "
        "printf 'low 0\\nhigh 0\\nmax 9\\noom %s\\noom_kill %s\\n' $n $n > /sys/fs/cgroup/memory.events; "
    )
    inner: dict[str, Any] = limit | {
        "within_group": True,
        "within": ("mounts",),
        "set": (NO_KERNEL_LOG, "mount --bind @GROUP@ /sys/fs/cgroup/memory"),
    }
    bare: dict[str, Any] = limit | {
        "within": ("mounts",),
        "set": (NO_KERNEL_LOG, "mount -t tmpfs none /sys/fs/cgroup"),
    }
    eats = [str(binaries / "eats")]
    return [
        _e("cgroup_oom", "Python", python(EATS), **limit),
        _e("cgroup_oom", "Python after a thousand steps", python(PROGRESS * 20 + EATS), **limit),
        _e("cgroup_oom", "C", eats, compiled=True, **limit),
        _e(
            "cgroup_oom",
            "a child of the shell",
            ["sh", "-c", '"$@"; exit $?', "sh", *python(EATS)],
            **limit,
        ),
        _e(
            "cgroup_oom",
            "a child of bash, which says Killed",
            ["bash", "-c", '"$@"; exit 5', "sh", *eats],
            compiled=True,
            **limit,
        ),
        _e(
            "cgroup_oom",
            "a child whose parent complains",
            python(CHILD_EATS + "done.check_returncode()"),
            **limit,
        ),
        _e(
            "cgroup_oom",
            "a worker of a pool",
            python(
                "from concurrent.futures import ProcessPoolExecutor\nimport os\n"
                "def eat(n):\n    kept = []\n    while True: kept.append(b'x' * (4 << 20))\n"
                "with ProcessPoolExecutor(1) as pool: pool.submit(eat, 1).result()"
            ),
            **limit,
        ),
        _e(
            "cgroup_oom",
            "a loader's worker",
            python(CHILD_EATS + f"print({said.LOADER_KILLED!r})\nraise SystemExit(1)"),
            written=True,
            **limit,
        ),
        _e(
            "cgroup_oom",
            "a rank of torchrun",
            python(
                CHILD_EATS
                + f"print({said.torchrun(-9, 'Signal 9 (SIGKILL) received by PID 2630')!r})\n"
                "raise SystemExit(1)"
            ),
            written=True,
            **limit,
        ),
        _e(
            "cgroup_oom",
            "one rank killed, the other's watchdog",
            python(CHILD_EATS + f"print({said.WATCHDOG!r}, flush=True)\nimport os\nos.abort()"),
            written=True,
            **limit,
        ),
        _e(
            "cgroup_oom",
            "pages of a disk in memory",
            python("f = open('big', 'wb')\nwhile True: f.write(b'x' * 65536)"),
            disk=("tmpfs", "size=1g"),
            **limit,
        ),
        _e(
            "cgroup_oom",
            "after a CUDA OOM that was caught",
            python(
                f"{PROGRESS}print({said.FIRST_CAUGHT!r}, flush=True)\nprint('batch halved', flush=True)\n"
                + EATS
            ),
            written=True,
            **limit,
        ),
        _e(
            "cgroup_oom",
            "version 2's file, of a real kill",
            ["sh", "-c", '"$@"; ' + told + "kill -9 $$", "sh", *python(EATS)],
            **v2,
        ),
        _e(
            "cgroup_oom",
            "version 2's file, told by the shell",
            ["sh", "-c", '"$@"; s=$?; ' + told + "exit $s", "sh", *python(EATS)],
            **v2,
        ),
        _e(
            "cgroup_oom",
            "version 2's file, C",
            ["bash", "-c", '"$@"; ' + told + "exit 1", "sh", *eats],
            compiled=True,
            **v2,
        ),
        _e(
            "cgroup_oom",
            "the scheduler tells of it",
            says_and_dies(said.SLURM_OOM, "KILL"),
            written=True,
        ),
        _e("host_oom", "a group around the box, Python", python(EATS), **inner),
        _e("host_oom", "a group around the box, C", eats, compiled=True, **inner),
        _e(
            "host_oom",
            "a group around the box, a child",
            ["sh", "-c", '"$@"; exit $?', "sh", *python(EATS)],
            **inner,
        ),
        _e("host_oom", "only the machine counts, Python", python(EATS), **bare),
        _e("host_oom", "only the machine counts, C", eats, compiled=True, **bare),
        _e("memory_error", "an absurd list", python(PROGRESS + "x = bytearray(1 << 60)")),
        _e(
            "memory_error",
            "a limit of address space",
            shell(f"ulimit -v 200000; exec {sys.executable} -c \"x = b'x' * (1 << 30)\""),
        ),
        _e(
            "memory_error",
            "torch on the CPU",
            says(
                said.TORCH_FRAMES
                + "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: "
                "can't allocate memory: you tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate "
                "memory)"
            ),
            written=True,
        ),
        _e(
            "memory_error",
            "C++",
            says_and_dies(
                "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
                "ABRT",
            ),
            written=True,
        ),
    ]


def _disks(binaries: Path) -> list[Ending]:
    small: dict[str, Any] = {"disk": SMALL}
    ext4: dict[str, Any] = {"disk": ("ext4", "-N 64")}
    return [
        _e("disk_full", "Python", python(PROGRESS + FILLS), **small),
        _e("disk_full", "Python on ext4", python(FILLS), **ext4),
        _e("disk_full", "dd", shell("dd if=/dev/zero of=big bs=64k"), **small),
        _e(
            "disk_full",
            "a shell's redirection",
            shell("while :; do echo 0123456789 >> big || exit 1; done"),
            disk=("tmpfs", "size=64k"),
        ),
        _e("disk_full", "C, without a word", [str(binaries / "fills")], compiled=True, **small),
        _e("disk_full", "the log lies on it", python(PROGRESS + FILLS), log_on_disk=True, **small),
        _e(
            "disk_full",
            "C, and the log lies on it",
            [str(binaries / "fills")],
            compiled=True,
            log_on_disk=True,
            **small,
        ),
        _e(
            "disk_full",
            "a save of torch",
            python(
                f"try:\n    f = open('big', 'wb', buffering=0)\n    while True: f.write(b'x' * 65536)\n"
                f"except OSError: print({said.WRITER!r})\nraise SystemExit(1)"
            ),
            written=True,
            **small,
        ),
        _e(
            "disk_full",
            "sqlite",
            python(
                "import sqlite3\nc = sqlite3.connect('db')\nc.execute('create table t (x)')\n"
                "while True:\n    c.execute('insert into t values (?)', ('x' * 9000,)); c.commit()"
            ),
            **small,
        ),
        _e("disk_full", "a mapped file", python(MAPS % "big"), **small),
        _e(
            "disk_full",
            "after a CUDA OOM that was caught",
            python(f"print({said.FIRST_CAUGHT!r}, flush=True)\n{PROGRESS}{FILLS}"),
            written=True,
            **small,
        ),
        _e(
            "disk_full",
            "another disk, of temporary files",
            python(FILLS.replace("'big'", "'/tmp/big'")),
            within=("mounts",),
            set=("mount -t tmpfs -o size=1m tmp /tmp",),
        ),
        _e(
            "disk_full",
            "an error raised from it",
            python(
                "try:\n    " + FILLS.replace("\n", "\n    ") + "\nexcept OSError as e:\n"
                "    raise RuntimeError('the checkpoint was not written') from e"
            ),
            **small,
        ),
        _e("inodes_full", "Python", python(FILES), disk=FEW_INODES),
        _e("inodes_full", "Python on ext4", python(FILES), disk=("ext4", "-N 32")),
        _e(
            "inodes_full",
            "directories",
            shell("n=0; while mkdir d$n; do n=$((n+1)); done; exit 1"),
            disk=FEW_INODES,
        ),
        _e(
            "inodes_full",
            "a shell's files",
            shell("set -e; n=0; while :; do : > f$n; n=$((n+1)); done"),
            disk=FEW_INODES,
        ),
        _e(
            "inodes_full",
            "touch",
            shell("n=0; while touch f$n; do n=$((n+1)); done; exit 1"),
            disk=FEW_INODES,
        ),
        _e(
            "inodes_full",
            "C, without a word",
            [str(binaries / "files")],
            compiled=True,
            disk=FEW_INODES,
        ),
    ]


def _shm() -> list[Ending]:
    small: dict[str, Any] = {"within": ("mounts",), "set": (SHM,)}
    maps = MAPS % SEGMENT
    return [
        _e("shm_full", "a file", python(FILLS.replace("'big'", "'/dev/shm/big'")), **small),
        _e("shm_full", "a mapping", python(PROGRESS + maps), **small),
        _e(
            "shm_full",
            "a segment of Python's",
            python(
                "from multiprocessing import shared_memory, resource_tracker\n"
                "resource_tracker.register = lambda *_: None\n"
                "s = shared_memory.SharedMemory(create=True, size=4 << 20)\n"
                "for at in range(0, 4 << 20, 4096): s.buf[at] = 1"
            ),
            **small,
        ),
        _e(
            "shm_full",
            "a child of the shell",
            ["bash", "-c", '"$@"; exit $?', "sh", *python(maps)],
            **small,
        ),
        _e(
            "shm_full",
            "a loader's worker",
            python(
                f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {maps!r}])\n"
                f"print({said.LOADER_BUS!r})\nraise SystemExit(1)"
            ),
            written=True,
            **small,
        ),
        _e(
            "shm_full",
            "torch's own words, and it is free again",
            says(
                said.TORCH_FRAMES
                + "RuntimeError: unable to write to file </torch_4711_0>: No space left on device "
                "(28)"
            ),
            written=True,
            **small,
        ),
    ]


def _pids() -> list[Ending]:
    few: dict[str, Any] = {"pids": 12}
    return [
        _e(
            "pids_full",
            "threads",
            python(
                "import threading, time\nfor n in range(50): threading.Thread(target=time.sleep, args=(2,), "
                "daemon=True).start()"
            ),
            **few,
        ),
        _e(
            "pids_full",
            "processes",
            python(
                "import os, time\nfor n in range(50):\n    if os.fork() == 0: time.sleep(2); os._exit(0)"
            ),
            **few,
        ),
    ]


def _gpu() -> list[Ending]:
    def kernel(line: str) -> dict[str, Any]:
        return {
            "within": ("mounts",),
            "written": True,
            "set": (
                f"printf '4,1,999999999999999,-;{line}\\n' > @ROOT@/kmsg",
                "mount --bind @ROOT@/kmsg /dev/kmsg",
            ),
        }

    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python, GPU has fallen off the bus."
    ecc = "NVRM: Xid (PCI:0000:3b:00): 48, pid=4711, name=python, An uncorrectable double bit error (DBE)"
    abort = said.torchrun(-6, "Signal 6 (SIGABRT) received by PID 2630")
    return [
        *(_e("cuda_oom", name, says(text), written=True) for name, text in said.CUDA_OOM.items()),
        _e(
            "cuda_oom",
            "a rank of torchrun",
            says(
                "".join(f"[rank1]: {line}\n" for line in said.CUDA_OOM["torch 2"].splitlines())
                + said.torchrun(
                    1,
                    "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
                )
            ),
            written=True,
        ),
        _e(
            "cuda_oom",
            "one rank's, and the other's watchdog",
            says(
                "".join(f"[rank1]: {line}\n" for line in said.CUDA_OOM["torch 2"].splitlines())
                + said.WATCHDOG.replace("ank1", "ank0").replace("Rank 1", "Rank 0")
                + abort
            ),
            written=True,
        ),
        _e(
            "cuda_oom",
            "with a bar drawn once more",
            python(
                "print(' 12%|#    | 12/100 [00:03<00:20]', flush=True)\n"
                f"print({said.CUDA_OOM['torch 2']!r})\nprint(' 12%|#    | 12/100 [00:04<00:29]')\nraise SystemExit(1)"
            ),
            written=True,
        ),
        _e(
            "nccl_timeout",
            "the watchdog aborts",
            says_and_dies(said.WATCHDOG, "ABRT"),
            written=True,
        ),
        _e("nccl_timeout", "under torchrun", says(said.WATCHDOG + abort), written=True),
        _e(
            "nccl_timeout",
            "older words",
            says_and_dies(
                "[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: "
                "WorkNCCL(SeqNum=96120, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1804887 milliseconds before "
                "timing out.\nterminate called after throwing an instance of 'std::runtime_error'\n  what():  [Rank 0] "
                "NCCL watchdog thread terminated with exception: [Rank 0] Watchdog caught collective operation timeout: "
                "WorkNCCL(SeqNum=96120, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1804887 milliseconds before "
                "timing out.",
                "ABRT",
            ),
            written=True,
        ),
        _e("xid", "the job says a CUDA error", says(said.CUDA_FAULT), **kernel(ecc)),
        _e("xid", "aborted", says_and_dies("", "ABRT"), **kernel(xid)),
        _e("xid", "without a word", shell("exit 1"), **kernel(xid)),
        _e("xid", "the others hear of it by NCCL", says(said.NCCL_REMOTE), **kernel(xid)),
        _e(
            "unknown",
            "a GPU fault, and then somebody's SIGKILL",
            python(WAITS),
            then=("ready", "signal KILL"),
            **kernel(xid),
        ),
        _e(
            "unknown",
            "a GPU fault, and an error of its own",
            python(PROGRESS + "raise KeyError('labels')"),
            **kernel(xid),
        ),
    ]


def _network() -> list[Ending]:
    none: dict[str, Any] = {"within": ("network",), "set": (":",)}
    resets = (
        "import socket, struct, threading\ns = socket.create_server(('127.0.0.1', 0))\n"
        "def serve():\n    c, _ = s.accept(); c.recv(1)\n"
        "    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); c.close()\n"
        "threading.Thread(target=serve, daemon=True).start()\n"
    )
    return [
        _e(
            "network_lost",
            "no way to the address",
            python(
                PROGRESS + "import socket\nsocket.create_connection(('10.9.8.7', 443), timeout=5)"
            ),
            **none,
        ),
        _e(
            "network_lost",
            "no name is resolved",
            python(
                "import urllib.request\nurllib.request.urlopen('https://data.invalid/x', timeout=5)"
            ),
            **none,
        ),
        _e(
            "network_lost",
            "the other side resets",
            python(
                resets + "c = socket.create_connection(s.getsockname())\nc.sendall(b'x')\nc.recv(9)"
            ),
        ),
        _e(
            "network_lost",
            "the server goes away",
            python(
                "import http.client, socket, threading\ns = socket.create_server(('127.0.0.1', 0))\n"
                "def serve():\n    c, _ = s.accept(); c.recv(999); c.close()\n"
                "threading.Thread(target=serve, daemon=True).start()\n"
                "h = http.client.HTTPConnection(*s.getsockname())\nh.request('GET', '/')\nh.getresponse()"
            ),
        ),
        _e(
            "network_lost",
            "a mount whose server is gone",
            says(
                said.TORCH_FRAMES
                + "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/bucket/shard-1'"
            ),
            written=True,
        ),
        _e(
            "network_lost",
            "a hub, through requests",
            says(
                said.TORCH_FRAMES
                + 'requests.exceptions.ConnectionError: (MaxRetryError("HTTPSConnectionPool('
                "host='hub.invalid', port=443): Max retries exceeded with url: /api\"), '(Request ID: 1)')"
            ),
            written=True,
        ),
    ]


def _asked_for() -> list[Ending]:
    clean = shell("trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    deaf = shell("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    return [
        _e("walltime", "its own limit", ["sleep", "60"], max_runtime_s=0.3),
        _e("walltime", "its own limit, saved and clean", clean, max_runtime_s=0.6),
        _e(
            "walltime",
            "its own limit, below a CUDA OOM it caught",
            python(f"print({said.FIRST_CAUGHT!r})\n{WAITS}"),
            written=True,
            max_runtime_s=0.6,
        ),
        _e(
            "walltime",
            "the scheduler's",
            says_and_dies(said.slurm("TIME LIMIT"), "TERM"),
            written=True,
        ),
        _e(
            "walltime",
            "the scheduler's, by SIGKILL",
            says_and_dies(said.slurm("TIME LIMIT"), "KILL"),
            written=True,
        ),
        _e(
            "preempted",
            "the scheduler's word",
            says_and_dies(said.slurm("PREEMPTION"), "TERM"),
            written=True,
        ),
        _e(
            "host_lost",
            "the scheduler's word",
            says_and_dies(said.slurm("NODE FAILURE"), "KILL"),
            written=True,
        ),
        _e("deadline", "the guard", python(WAITS), then=("ready", "deadline")),
        _e("deadline", "the guard, at a deaf job", deaf, then=("ready", "deadline")),
        _e("stopped", "by us", clean, then=("ready", "stop")),
        _e("stopped", "by us, deaf", deaf, then=("ready", "stop")),
    ]


def _taken() -> list[Ending]:
    def box(fate: Fate, words: str) -> BoxSeen:
        return BoxSeen(BoxState.PARKED, words, fate)

    restart: dict[str, Any] = {"within": ("mounts", "processes"), "set": (":",)}
    return [
        _e(
            "preempted",
            "the provider's word, and SIGTERM",
            python(WAITS),
            then=("ready", "signal TERM"),
            box=box("preempted", "instance was preempted"),
        ),
        _e(
            "preempted",
            "the provider's word, and no record",
            python(WAITS),
            then=("ready", "lose"),
            box=box("preempted", "TERMINATED by preemption"),
        ),
        _e(
            "outbid",
            "the provider's word",
            python(WAITS),
            then=("ready", "lose"),
            box=box("outbid", "outbid"),
        ),
        _e(
            "host_lost",
            "the provider's word",
            python(WAITS),
            then=("ready", "lose"),
            box=box("host_lost", "the machine is offline"),
        ),
        _e(
            "balance_zero",
            "the provider's word, and SIGKILL",
            python(WAITS),
            then=("ready", "signal KILL"),
            box=box("balance_zero", "stopped: no credit"),
        ),
        _e(
            "cgroup_oom",
            "and the box was preempted later",
            python(EATS),
            memory="64M",
            box=box("preempted", "preempted"),
        ),
        _e(
            "exit",
            "and the box was preempted later",
            python("raise ValueError('shapes do not fit')"),
            box=box("preempted", "preempted"),
        ),
        _e(
            "reboot",
            "the container began anew",
            python(WAITS),
            then=("ready", "restart"),
            **restart,
        ),
        _e(
            "reboot",
            "with a full log",
            python(PROGRESS + WAITS),
            then=("ready", "restart"),
            **restart,
        ),
        _e(
            "reboot",
            "another boot id",
            python(WAITS),
            within=("mounts",),
            set=(":",),
            then=(
                "ready",
                "lose",
                (
                    "within echo 0-1 > @ROOT@/boot; mount --bind @ROOT@/boot "
                    "/proc/sys/kernel/random/boot_id"
                ),
            ),
        ),
    ]


def _decoys() -> list[Ending]:
    """What the log talks of is not what the job dies of."""
    return [
        _e(
            "exit",
            "MemoryError caught",
            python(
                "try: bytearray(1 << 60)\nexcept MemoryError: print('MemoryError, so a smaller one')\nraise SystemExit(3)"
            ),
        ),
        _e(
            "exit",
            "a page about OOM read aloud",
            says(
                "If you see 'RuntimeError: CUDA out of memory. Tried to allocate', use a smaller batch.\n"
                "> torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\nKilled means the OOM killer.",
                4,
            ),
        ),
        _e(
            "exit",
            "a traceback quoted, and status 3",
            says(said.CUDA_OOM["torch 2"], 3),
            written=True,
        ),
        _e(
            "exit",
            "a CUDA OOM caught, and another error after it",
            python(
                f"print({said.FIRST_CAUGHT!r}, flush=True)\n{PROGRESS}raise ValueError('labels')"
            ),
            written=True,
        ),
        _e(
            "exit",
            "a CUDA OOM caught at the end, and a retry",
            says(
                said.CUDA_OOM["torch 2"] + "\nretrying with batch 8\nvalidation below the threshold"
            ),
            written=True,
        ),
        _e(
            "exit",
            "no space, said in prose",
            says("Note: 'No space left on device' is what a full disk says", 2),
        ),
        _e(
            "exit",
            "the scheduler's words, quoted",
            says(f"  he wrote: {said.slurm('TIME LIMIT')}", 2),
            written=True,
        ),
        _e(
            "signal",
            "SIGKILL by somebody, and a page about OOM",
            python("print('Memory cgroup out of memory: Killed process 1')\n" + WAITS),
            then=("ready", "signal KILL"),
        ),
        _e(
            "signal",
            "SIGTERM, and a caught watchdog long ago",
            python(f"print({said.WATCHDOG!r})\n{PROGRESS}{WAITS}"),
            written=True,
            then=("ready", "signal TERM"),
        ),
        _e(
            "exit",
            "text of a dataset",
            says('{"text": "Bus error (core dumped)"}\n{"text": "Killed"}', 2),
        ),
    ]


def _ambiguous() -> list[Ending]:
    """Where an honest witness would not say."""
    return [
        _e("unknown", "command and supervisor killed", python(WAITS), then=("ready", "lose")),
        _e(
            "unknown",
            "the same with much in the log",
            python(PROGRESS + WAITS),
            then=("ready", "lose"),
        ),
        _e(
            "unknown",
            "SIGKILL where nothing counts",
            python(WAITS),
            within=("mounts",),
            set=(
                "mount -t tmpfs none /sys/fs/cgroup",
                "mount --bind /dev/null /proc/vmstat",
                NO_KERNEL_LOG,
            ),
            then=("ready", "signal KILL"),
        ),
        _e(
            "unknown",
            "a worker killed, and nothing counted it",
            says(said.LOADER_KILLED),
            written=True,
        ),
        _e(
            "unknown",
            "a child killed for memory and survived, then a quiet word",
            python(
                CHILD_EATS
                + "print('giving up: the score is below the threshold')\nraise SystemExit(3)"
            ),
            memory="64M",
        ),
        _e(
            "unknown",
            "a child killed for memory, then somebody's SIGKILL",
            python(CHILD_EATS + WAITS),
            memory="64M",
            then=("ready", "signal KILL"),
        ),
        _e(
            "unknown",
            "both disk and shared memory full, a bus error",
            python("open('/dev/shm/a', 'wb').write(b'x' * (1 << 20))\n" + MAPS % "big"),
            disk=SMALL,
            within=("mounts",),
            set=(SHM,),
        ),
        _e(
            "unknown",
            "the log was cut below an older traceback",
            python(
                f"said = {said.FIRST_CAUGHT!r}\nprint('#' * (-len(said) % 4096 - 2), said, sep='\\n', flush=True)\n"
                + FILLS
            ),
            written=True,
            disk=SMALL,
            log_on_disk=True,
        ),
        _e(
            "unknown",
            "the disk is full, and it says something else",
            python(
                "try:\n    " + FILLS.replace("\n", "\n    ") + "\nexcept OSError: pass\n"
                "print('stopping: the loss is not finite')\nraise SystemExit(4)"
            ),
            disk=SMALL,
        ),
        _e("unknown", "torch's writer, and there is room", says(said.WRITER), written=True),
        _e(
            "disk_full",
            "the half-written file was removed",
            python(
                "import os\ntry:\n    "
                + FILLS.replace("\n", "\n    ")
                + "\nfinally: os.unlink('big')"
            ),
            disk=SMALL,
        ),
    ]
