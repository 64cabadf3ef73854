"""Endings written after the rules; what is told of the late ones, which chose nothing, is the honest figure."""

from dataclasses import replace
from typing import Any, Final

from evals.endings import said
from evals.endings.ending import Ending
from evals.endings.programs import python, says, shell
from gpu_tenant.jobs.failure_cause import Verdict

_LIMIT: Final[dict[str, Any]] = {"memory": "96M"}
_SMALL: Final[dict[str, Any]] = {"disk": ("tmpfs", "size=2m,nr_inodes=200")}
_INODES: Final[dict[str, Any]] = {"disk": ("tmpfs", "size=64m,nr_inodes=30")}
_LOG: Final = "import logging\nlogging.basicConfig(format='%(asctime)s %(levelname)s %(message)s', level=20)\n"


def _e(truth: Verdict, name: str, argv: list[str], **more: Any) -> Ending:
    return Ending(name=f"{truth}: {name}", truth=truth, argv=argv, **more)


def second_endings() -> list[Ending]:
    """The first that were late; the rules were mended for seven of them, and they are late no more."""
    return [
        _e(
            "disk_full",
            "numpy saves",
            python("import numpy\nfor n in range(99): numpy.save(f'a{n}.npy', numpy.ones(40000))"),
            **_SMALL,
        ),
        _e(
            "disk_full",
            "h5py writes",
            python(
                "import h5py, numpy\nwith h5py.File('a.h5', 'w') as f:\n"
                "    for n in range(99): f[f'x{n}'] = numpy.ones(40000)"
            ),
            **_SMALL,
        ),
        _e(
            "disk_full",
            "pyarrow writes",
            python(
                "import pyarrow as pa, pyarrow.parquet as pq, numpy\n"
                "pq.write_table(pa.table({'x': numpy.random.rand(900000)}), 'a.parquet')"
            ),
            **_SMALL,
        ),
        _e(
            "disk_full",
            "tar",
            shell("head -c 4000000 /dev/urandom > @ROOT@/in; tar cf out.tar -C @ROOT@ in"),
            **_SMALL,
        ),
        _e(
            "disk_full",
            "cp in a script that stops at errors",
            shell(
                "set -e; head -c 4000000 /dev/urandom > @ROOT@/in; echo copying; cp @ROOT@/in out; echo done"
            ),
            **_SMALL,
        ),
        _e(
            "disk_full",
            "gzip",
            shell("head -c 6000000 /dev/urandom | gzip > out.gz; exit ${?}"),
            **_SMALL,
        ),
        _e(
            "disk_full",
            "json through a log handler",
            python(
                _LOG + "import json\nlogging.info('epoch 3 done')\nwith open('x.json', 'w') as f:\n"
                "    while True: json.dump(list(range(9999)), f)"
            ),
            **_SMALL,
        ),
        _e(
            "inodes_full",
            "git",
            shell("git init -q . && git status"),
            disk=("tmpfs", "size=64m,nr_inodes=12"),
        ),
        _e(
            "inodes_full",
            "tar unpacks",
            shell(
                "mkdir @ROOT@/t; for n in $(seq 60); do : > @ROOT@/t/$n; done; tar cf @ROOT@/t.tar -C @ROOT@ t; "
                "tar xf @ROOT@/t.tar"
            ),
            **_INODES,
        ),
        _e(
            "inodes_full",
            "a cache of samples",
            python(
                _LOG
                + "from pathlib import Path\nfor n in range(999):\n    Path('cache', str(n)).mkdir(parents=True)\n"
            ),
            **_INODES,
        ),
        _e(
            "cgroup_oom",
            "numpy",
            python(
                "import numpy\nprint('epoch 1/3', flush=True)\nkept = [numpy.ones(1 << 20) for n in range(99)]"
            ),
            **_LIMIT,
        ),
        _e(
            "cgroup_oom",
            "a pool of workers, joined",
            python(
                "import multiprocessing as m, sys\ndef eat(): kept = [b'x' * (4 << 20) for n in range(99)]\n"
                "p = m.Process(target=eat); p.start(); p.join()\nif p.exitcode: sys.exit(f'worker died: {p.exitcode}')"
            ),
            **_LIMIT,
        ),
        _e(
            "cgroup_oom",
            "make",
            shell(
                'printf \'all:\\n\\tpython3 -c "kept=[b\\\\"x\\\\"*(4<<20) for n in range(99)]"\\n\' > Makefile; make'
            ),
            **_LIMIT,
        ),
        _e(
            "cgroup_oom",
            "xargs",
            [
                "sh",
                "-c",
                'echo 1 | xargs -I{} "$@"',
                "sh",
                *python("kept = [b'x' * (4 << 20) for n in range(99)]"),
            ],
            **_LIMIT,
        ),
        _e(
            "cgroup_oom",
            "sort in a pipe",
            shell(
                "set -e; tr '\\0' '\\n' < /dev/zero | head -c 300000000 | sort -S 400M > /dev/null"
            ),
            memory="32M",
        ),
        _e("memory_error", "numpy", python("import numpy\nnumpy.ones(1 << 50)")),
        _e(
            "network_lost",
            "httpx, no name",
            python("import httpx\nhttpx.get('https://hub.invalid/x')"),
            within=("network",),
            set=(":",),
        ),
        _e(
            "network_lost",
            "git clone",
            shell("git clone -q https://hub.invalid/x.git"),
            within=("network",),
            set=(":",),
        ),
        _e(
            "network_lost",
            "ssh",
            shell("ssh -o BatchMode=yes -o ConnectTimeout=3 hub.invalid true"),
            within=("network",),
            set=(":",),
        ),
        _e("exit", "timeout(1)", ["timeout", "0.3", "sleep", "9"]),
        _e(
            "exit",
            "a logged CUDA OOM that was mastered, and then a bad label",
            python(
                _LOG
                + "try:\n    raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')\n"
                "except RuntimeError:\n    logging.exception('step 3 did not fit')\n"
                "for n in range(4, 9): logging.info('step %d loss 0.3', n)\nraise IndexError('Target 9 is out of bounds.')"
            ),
        ),
        _e(
            "exit",
            "a unit test that fails",
            python(
                "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.fail('No space left on device')\n"
                "unittest.main(argv=['x'])"
            ),
        ),
        _e(
            "exit",
            "NaN",
            python(
                "for n in range(9): print(f'epoch {n} loss nan')\nraise FloatingPointError('loss is nan')"
            ),
        ),
        _e(
            "exit",
            "a shape that does not fit",
            python("import numpy\nnumpy.ones((2, 3)) @ numpy.ones((2, 3))"),
        ),
        _e("exit", "a file that is not there", shell("cat no/such/file")),
        _e(
            "signal",
            "a segmentation fault with a Python stack",
            python("import faulthandler, ctypes\nfaulthandler.enable()\nctypes.string_at(0)"),
        ),
        _e("signal", "SIGTERM in a pipe of the shell", shell("sh -c 'kill -TERM $$'; exit $?")),
        _e(
            "signal",
            "Python told 130",
            python(
                "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(5)"
            ),
        ),
        _e(
            "cuda_oom",
            "caught, told and raised again",
            python(
                "class OutOfMemoryError(RuntimeError): pass\nOutOfMemoryError.__module__ = 'torch'\n"
                "for n in range(30): print(f'step {n}')\ntry:\n"
                "    raise OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity')\n"
                "except RuntimeError as e:\n    print('cleaning up')\n    raise RuntimeError('training failed') from e"
            ),
            written=True,
        ),
        _e(
            "cuda_oom",
            "in an accelerate launch",
            python(
                f"print({said.CUDA_OOM['torch 2.1']!r})\nimport subprocess\n"
                "raise subprocess.CalledProcessError(1, ['python', 'train.py'])"
            ),
            written=True,
        ),
        _e(
            "unknown",
            "a child killed by somebody under subprocess",
            python("import subprocess\nsubprocess.run(['sh', '-c', 'kill -9 $$'], check=True)"),
        ),
        _e(
            "unknown",
            "SIGKILL by torchrun's word, and no count",
            python(
                f"print({said.torchrun(-9, 'Signal 9 (SIGKILL) received by PID 2630')!r})\nraise SystemExit(1)"
            ),
            written=True,
        ),
    ]


def late_endings() -> list[Ending]:
    """Those that were written after the rules: 24 of 28 were told right at first, and none wrong."""
    return [replace(ending, name="late: " + ending.name, late=True) for ending in _late()]


def _late() -> list[Ending]:
    return [
        _e(
            "disk_full",
            "zstandard",
            python(
                "import zstandard, os\nwith open('a.zst', 'wb') as f, zstandard.ZstdCompressor().stream_writer(f) as w:\n"
                "    while True: w.write(os.urandom(1 << 16))"
            ),
            **_SMALL,
        ),
        _e(
            "disk_full",
            "a zip, in a function of its own",
            python(
                "import zipfile, os\ndef save():\n    with zipfile.ZipFile('a.zip', 'w') as z:\n"
                "        for n in range(99): z.writestr(str(n), os.urandom(1 << 16))\n"
                "for n in range(20): print(f'[{n}/100] loss=0.3', flush=True)\nsave()"
            ),
            **_SMALL,
        ),
        _e(
            "disk_full",
            "shutil, and a word before the exit",
            python(
                "import shutil, sys, os\nopen('/tmp/gt-src-%d' % os.getpid(), 'wb').write(b'x' * (4 << 20))\n"
                "try: shutil.copy('/tmp/gt-src-%d' % os.getpid(), 'out')\n"
                "except OSError as e: sys.exit(f'cannot save: {e}')\n"
                "finally: os.unlink('/tmp/gt-src-%d' % os.getpid())"
            ),
            **_SMALL,
        ),
        _e(
            "disk_full",
            "numpy on ext4, after ten saves",
            python(
                "import numpy\nfor n in range(99):\n    numpy.save(f'ckpt-{n}.npy', numpy.ones(60000))\n"
                "    print(f'saved {n}', flush=True)"
            ),
            disk=("ext4", "-N 256"),
        ),
        _e(
            "disk_full",
            "an append by the shell, with the log on it",
            shell("set -e; while :; do head -c 70000 /dev/zero >> grow; done"),
            log_on_disk=True,
            **_SMALL,
        ),
        _e(
            "disk_full",
            "rsync",
            shell("head -c 4000000 /dev/urandom > @ROOT@/in; exec rsync @ROOT@/in out"),
            **_SMALL,
        ),
        _e(
            "inodes_full",
            "a zip unpacked",
            python(
                "import zipfile\nwith zipfile.ZipFile('a.zip', 'w') as z:\n"
                "    for n in range(99): z.writestr(f's{n}', b'')\nzipfile.ZipFile('a.zip').extractall('x')"
            ),
            **_INODES,
        ),
        _e(
            "inodes_full",
            "cp -r",
            shell("mkdir @ROOT@/t; for n in $(seq 60); do : > @ROOT@/t/$n; done; cp -r @ROOT@/t ."),
            **_INODES,
        ),
        _e(
            "inodes_full",
            "numpy, one file a sample, on ext4",
            python("import numpy\nfor n in range(999): numpy.save(f's{n}.npy', numpy.ones(1))"),
            disk=("ext4", "-N 32"),
        ),
        _e(
            "cgroup_oom",
            "a list of dicts",
            python(
                "rows = []\nfor n in range(10**8):\n    rows.append({'id': n, 'text': 'x' * 50})\n"
                "    if n % 50000 == 0: print('read', n, flush=True)"
            ),
            **_LIMIT,
        ),
        _e(
            "cgroup_oom",
            "one of four workers, by a pool that waits",
            python(
                "import multiprocessing as m\nfrom concurrent.futures import ProcessPoolExecutor as P\n"
                "def f(n): return len([b'x' * (4 << 20) for _ in range(99)]) if n == 2 else n\n"
                "with P(2) as p: print(list(p.map(f, range(4))))"
            ),
            **_LIMIT,
        ),
        _e(
            "cgroup_oom",
            "a script with a trap",
            [
                "bash",
                "-c",
                'trap "echo cleaning up" EXIT; "$@"',
                "sh",
                *python("x = [b'x' * (4 << 20) for _ in range(99)]"),
            ],
            **_LIMIT,
        ),
        _e(
            "cgroup_oom",
            "under timeout(1)",
            ["timeout", "30", *python("x = [b'x' * (4 << 20) for _ in range(99)]")],
            **_LIMIT,
        ),
        _e(
            "memory_error",
            "read whole, below a limit",
            shell(
                "ulimit -v 300000; head -c 400000000 /dev/zero > @ROOT@/in; "
                "exec python3 -c \"open('@ROOT@/in','rb').read()\""
            ),
        ),
        _e(
            "shm_full",
            "a numpy memmap there",
            python(
                f"import numpy\nm = numpy.memmap({'/dev/shm/m'!r}, mode='w+', shape=4 << 20)\nm[:] = 1"  # noqa: S108
            ),
            within=("mounts",),
            set=("mount -t tmpfs -o size=1m shm /dev/shm",),
        ),
        _e(
            "pids_full",
            "a pool of forty",
            python(
                "import multiprocessing as m, time\np = [m.Process(target=time.sleep, args=(3,)) for _ in range(40)]\n"
                "for one in p: one.start()"
            ),
            pids=14,
        ),
        _e(
            "network_lost",
            "urllib through a server that resets",
            python(
                "import socket, struct, threading, urllib.request\ns = socket.create_server(('127.0.0.1', 0))\n"
                "def serve():\n    c, _ = s.accept(); c.recv(10)\n"
                "    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); c.close()\n"
                "threading.Thread(target=serve, daemon=True).start()\n"
                "urllib.request.urlopen('http://127.0.0.1:%d/' % s.getsockname()[1])"
            ),
        ),
        _e(
            "network_lost",
            "asyncssh, no name",
            python(
                "import asyncio, asyncssh\nasync def go():\n    async with asyncssh.connect('hub.invalid'): pass\nasyncio.run(go())"
            ),
            within=("network",),
            set=(":",),
        ),
        _e(
            "exit",
            "a schema that is not met",
            python("import pydantic\nclass C(pydantic.BaseModel): lr: float\nC(lr='fast')"),
        ),
        _e(
            "exit",
            "a full disk was met and mastered, then a bug",
            python(
                "import os\ntry:\n    f = open('a', 'wb', buffering=0)\n    while True: f.write(b'x' * 65536)\n"
                "except OSError as e: print('no room, making some:', e)\nos.unlink('a')\n{}['loss']"
            ),
            **_SMALL,
        ),
        _e(
            "exit",
            "a shell that stops at an unset variable",
            shell("set -u; echo epoch 1; echo $NO_SUCH_THING"),
        ),
        _e(
            "exit",
            "status 2 of a compiler",
            shell("echo 'int main( {' > a.c; cc a.c"),
            compiled=True,
        ),
        _e(
            "exit",
            "an answer of a model about memory",
            says(
                "Q: why Killed?\nA: RuntimeError: CUDA out of memory. Tried to allocate 9 GiB is the GPU; a bare\n"
                "Killed\nis the kernel. Use `dmesg`.\nassertion: score 0.3 < 0.5",
                1,
            ),
        ),
        _e(
            "signal",
            "an abort in a library, by Python's word",
            python("import faulthandler, os\nfaulthandler.enable()\nos.abort()"),
        ),
        _e(
            "signal",
            "killed by a colleague in a pipe",
            shell("(sleep 0.2; kill -9 $$) & exec sleep 9"),
        ),
        _e(
            "nccl_timeout",
            "with a bar glued to it",
            python(
                f"import os\nprint('Epoch 0:   6%|##   | 320/5001 [6:28<94:39,  1.37it/s]', end='')\n"
                f"print({said.WATCHDOG!r}, flush=True)\nos.abort()"
            ),
            written=True,
        ),
        _e(
            "unknown",
            "a worker that left",
            says(
                said.TORCH_FRAMES
                + "RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly"
            ),
            written=True,
        ),
        _e(
            "unknown",
            "a broken pipe to a child",
            python(
                "import subprocess\np = subprocess.Popen(['sh', '-c', 'exit 0'], stdin=subprocess.PIPE)\np.wait()\n"
                "p.stdin.write(b'x'); p.stdin.flush()"
            ),
        ),
    ]
