"""`python -m evals.idle.record [SCENE …] --python PYTHON --wheels DIR`: real work, looked at and labelled while it runs; as root."""

import argparse
import importlib.util
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from evals.idle.traces import COUNTED, packed, write

ROOT: Final = Path(__file__).parents[2]
EVERY_S: Final = 2.0
SCALE: Final = 15
"""A look of 2 s stands for one of 30 s: times and counters are multiplied, rates are what they were."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Work on a box: `job` is declared, `hand` is a person's; each says in $PHASE what it is about to do."""

    made: str
    job: str = ""
    hand: str = ""
    keys: Callable[[int, float], None] | None = None
    script: str = "main.py"
    looks: int = 34
    needs_net: str = ""


PY: Final = """
import os, sys, time
def phase(words): open(os.environ["PHASE"], "w").write(words)
"""
TRAINING: Final = (
    PY
    + """
import numpy as np
rng = np.random.default_rng(0)
w1, w2 = rng.normal(size=(512, 1024)) * .02, rng.normal(size=(1024, 10)) * .02
def step(lr=1e-3):
    global w1, w2
    x, y = rng.normal(size=(256, 512)), rng.normal(size=(256, 10))
    h = np.maximum(x @ w1, 0); e = h @ w2 - y
    g2, g1 = h.T @ e, x.T @ ((e @ w2.T) * (h > 0))
    w1 -= lr * g1 / 256; w2 -= lr * g2 / 256
    return float((e ** 2).mean())
"""
)

SCENES: Final[dict[str, Scene]] = {
    "pip_install": Scene(
        "a new environment, then pip install of numpy, scipy, pandas and scikit-learn from wheels behind a 5 MB/s link",
        job="""echo busy setup >$PHASE; python3 -m venv v; v/bin/pip install -q --no-index --disable-pip-version-check \
            --trusted-host $HOST --find-links http://$HOST:8000/ numpy scipy pandas scikit-learn; echo idle idle >$PHASE""",
        needs_net="wheels",
        looks=48,
    ),
    "pip_by_hand": Scene(
        "a person's pip install in a shell, no job declared; then the person leaves",
        hand="""echo busy setup >$PHASE; python3 -m venv v; v/bin/pip install -q --no-index --disable-pip-version-check \
            --trusted-host $HOST --find-links http://$HOST:8000/ numpy pandas; echo idle idle >$PHASE; sleep 1000""",
        needs_net="wheels",
        looks=44,
    ),
    "compile_c": Scene(
        "make -j2 of 90 C files with gcc -O2: its processes are all shorter than a look",
        job="""echo busy setup >$PHASE; for i in $(seq 90); do { echo '#include <stdio.h>'; for j in $(seq 150); do
            echo "double f${i}_$j(double*a,int n){double s=0;for(int k=0;k<n;k++)for(int m=0;m<k;m++)s+=a[k]*a[m]/(k+m+1.0);return s*$j;}";
            done; } >f$i.c; done; printf 'all: %s\\n%%.o: %%.c\\n\\tgcc -O2 -c $< -o $@\\n' "$(for i in $(seq 90); do echo -n f$i.o' '; done)" >Makefile;
            make -s -j2; echo idle idle >$PHASE""",
        looks=36,
    ),
    "archive": Scene(
        "6,000 files of 30 kB are written, packed by tar and gzip, and unpacked again, three times over",
        script="pack.py",
        job=PY
        + """
import subprocess, random
phase("busy data")
os.mkdir("files")
for n in range(6000): open(f"files/{n}", "wb").write(random.randbytes(15000) + b"a" * 15000)
for n in range(3):
    subprocess.run("tar cf - files | gzip -4 >a.tgz && mkdir -p b && tar xzf a.tgz -C b && sync", shell=True)
phase("idle idle"); time.sleep(1000)
""",
        looks=32,
    ),
    "numpy_training": Scene(
        "a numpy training loop on CPU, a line of log every 50 steps",
        job=TRAINING
        + """
phase("busy training")
for n in range(10 ** 9):
    loss = step()
    if n % 50 == 0: print(n, loss, flush=True)
""",
        looks=30,
    ),
    "python_training": Scene(
        "a training loop in pure Python, one thread, a line of log every 5 s",
        script="train.py",
        job=PY
        + """
import random
phase("busy training")
w = [random.random() for _ in range(200)]
said = time.time()
while True:
    x = [random.random() for _ in w]; e = sum(a * b for a, b in zip(w, x)) - 1
    w = [a - .001 * e * b for a, b in zip(w, x)]
    if time.time() - said > 5: print(e, flush=True); said = time.time()
""",
        looks=30,
    ),
    "starved_training": Scene(
        "a numpy training loop that waits for its input four fifths of the time",
        job=TRAINING
        + """
phase("busy training")
open("data", "wb").write(os.urandom(40 << 20))
data, n = open("data", "rb", buffering=0), 0
while True:
    began = time.time()
    for _ in range(2): step()
    if not data.read(1 << 20): data.seek(0)
    time.sleep((time.time() - began) * 4)
""",
        looks=30,
    ),
    "data_workers": Scene(
        "two workers tokenise text into shards, then the job is done",
        script="tokenize_text.py",
        job=PY
        + """
import multiprocessing, hashlib, json
def work(n):
    text = " ".join(hashlib.md5(str(i).encode()).hexdigest()[:6] for i in range(n, n + 120000))
    vocabulary = {}
    ids = [vocabulary.setdefault(w[:3], len(vocabulary)) for w in text.split()]
    json.dump(ids, open(f"shard{n}.json", "w"))
if __name__ == "__main__":
    phase("busy data")
    with multiprocessing.Pool(2) as pool: pool.map(work, range(0, 160 * 200000, 200000), chunksize=1)
    phase("idle idle")
""",
        looks=40,
    ),
    "checkpoints": Scene(
        "training with a checkpoint of 300 MB, written and fsynced at 60 MB/s, every 14 s",
        script="train.py",
        job=TRAINING
        + """
block = os.urandom(3 << 20)
while True:
    phase("busy training"); end = time.time() + 14
    while time.time() < end: step()
    phase("busy flush")
    with open("checkpoint", "wb") as f:
        for _ in range(100): f.write(block); f.flush(); os.fsync(f.fileno()); time.sleep(.05)
""",
        looks=36,
    ),
    "download_3mb": Scene(
        "a file is downloaded at 3 MB/s; then nothing is done with it",
        job="""echo busy data >$PHASE; timeout 55 curl -s -o big --limit-rate 3M http://$HOST:8000/big; echo idle idle >$PHASE; sleep 1000""",
        needs_net="wheels",
        looks=36,
    ),
    "download_300kb": Scene(
        "a file is downloaded at 300 kB/s by a person's wget, no job declared",
        hand="""echo busy data >$PHASE; timeout 50 wget -q -O big --limit-rate=300k http://$HOST:8000/big; echo idle idle >$PHASE; sleep 1000""",
        needs_net="wheels",
        looks=32,
    ),
    "idle_shell": Scene("a login shell at its prompt, nobody types", hand="bash -i"),
    "sleeping_job": Scene("a declared job that is one long sleep", job="sleep 3000"),
    "lock_blocked": Scene(
        "a job that works for 16 s, then waits for a file lock that nobody gives back",
        job=TRAINING
        + """
import fcntl
phase("busy training"); end = time.time() + 16
while time.time() < end: step()
phase("idle idle")
if os.fork() == 0:
    f = open("lock", "w"); fcntl.flock(f, fcntl.LOCK_EX); open("taken", "w"); time.sleep(3000)
while not os.path.exists("taken"): time.sleep(.05)
fcntl.flock(open("lock", "w"), fcntl.LOCK_EX)
""",
    ),
    "dead_socket": Scene(
        "a job downloads for 12 s, then waits on a connection that says nothing more",
        script="fetch_files.py",
        job=PY
        + """
import socket, urllib.request
phase("busy data"); end = time.time() + 12
with urllib.request.urlopen(f"http://{os.environ['HOST']}:8000/big") as r, open("big", "wb") as f:
    while time.time() < end: f.write(r.read(200_000)); time.sleep(.1)
phase("idle idle")
s = socket.create_connection((os.environ["HOST"], 8000)); s.recv(1)
""",
        needs_net="wheels",
    ),
    "finished_job": Scene(
        "a job that trains for 20 s and ends; nobody comes",
        job=TRAINING
        + """
phase("busy training"); end = time.time() + 20
while time.time() < end: step()
phase("idle idle")
""",
    ),
    "child_left_working": Scene(
        "the declared process ends after 12 s; what it started with nohup goes on computing for 34 s more",
        job="""echo busy training >$PHASE; nohup setsid $PYTHON -c '
import time, os; end = time.time() + 46; n = 0
while time.time() < end: n += 1
open(os.environ["PHASE"], "w").write("idle idle")' >/dev/null 2>&1 & sleep 12""",
        looks=36,
    ),
    "child_left_waiting": Scene(
        "the declared process ends after 12 s; what it started with nohup waits for requests that never come",
        job="""echo busy training >$PHASE; nohup setsid $PYTHON -m http.server 8765 >/dev/null 2>&1 & $PYTHON -c '
import time; end = time.time() + 12
while time.time() < end: pass'; echo idle idle >$PHASE""",
    ),
    "notebook_waiting": Scene(
        "a jupyter server with a running kernel that nobody uses, after its start",
        needs_net="",
        hand="""echo busy setup >$PHASE; $PYTHON -m jupyter server --allow-root --no-browser --ServerApp.token= --ServerApp.disable_check_xsrf=True --port 8899 >jl 2>&1 &
            for i in $(seq 60); do curl -sf http://127.0.0.1:8899/api/status >/dev/null && break; sleep .3; done;
            curl -sf -X POST http://127.0.0.1:8899/api/kernels >/dev/null; sleep 3; echo idle idle >$PHASE; wait""",
        looks=40,
    ),
    "notebook_cells": Scene(
        "a kernel runs a cell of 14 s of numpy, then waits 50 s for the person, who is thinking",
        script="ipykernel_launcher.py",
        job=TRAINING
        + """
from code import InteractiveConsole
shell = InteractiveConsole(globals())
def cell(s):
    phase("busy training"); end = time.time() + s
    while time.time() < end: step()
    phase("idle idle")
shell.push("cell(14)"); time.sleep(50); shell.push("cell(8)"); time.sleep(1000)
""",
        looks=42,
    ),
    "tensorboard_left": Scene(
        "tensorboard left on over a log directory that no longer grows",
        script="board.py",
        job=PY
        + """
phase("busy setup")
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
w = EventFileWriter("logs")
for n in range(20000):
    w.add_event(Event(step=n, wall_time=time.time(), summary=Summary(value=[Summary.Value(tag="loss", simple_value=1 / (n + 1))])))
w.close()
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import subprocess
p = subprocess.Popen([sys.executable, "-m", "tensorboard.main", "--logdir", "logs", "--port", "6016"], stderr=subprocess.DEVNULL)
time.sleep(8); phase("idle idle"); p.wait()
""",
        looks=40,
    ),
    "editor_open": Scene("vim is open on a file, nobody types", hand="vim -u NONE notes.txt"),
    "editor_typing": Scene(
        "vim, with somebody who types four keys a second for 30 s and then leaves; typing is no work of the box",
        hand="vim -u NONE notes.txt",
        keys=lambda fd, t: os.write(fd, b"i" if t < 0.3 else b"a") and None if t < 30 else None,
    ),
    "evaluation_one_thread": Scene(
        "a model is read from disk and evaluated by one thread, over a file that is read as it goes; then the job is done",
        script="evaluate.py",
        job=TRAINING
        + """
phase("busy evaluation")
os.environ["OMP_NUM_THREADS"] = "1"
np.save("evaluate.npy", rng.normal(size=(20000, 512)))
data, right, end = np.load("evaluate.npy", mmap_mode="r"), 0, time.time() + 48
while time.time() < end:
    for n in range(0, len(data), 50):
        right += int((np.maximum(np.asarray(data[n:n + 50]) @ w1, 0) @ w2).argmax(1).sum())
phase("idle idle")
""",
        looks=32,
    ),
    "retry_loop": Scene(
        "a script tries for 3 s, fails, and sleeps 26 s before it tries again (6.5 minutes, scaled)",
        job="""while true; do echo busy training >$PHASE; $PYTHON -c '
import time, sys; end = time.time() + 3
while time.time() < end: pass
sys.exit(1)'; echo idle idle >$PHASE; sleep 26; done""",
        looks=46,
    ),
    "polling_waiter": Scene(
        "a job asks every second whether a file is there, which never comes",
        job="while ! test -e never; do sleep 1; done",
    ),
    "watch_left": Scene(
        "a person left `watch -n 2 ps aux` and `top` on in two panes",
        hand="top -b -d 3 >/dev/null & TERM=xterm watch -n 2 ps aux",
    ),
    "stopped_job": Scene(
        "a job trains for 14 s, and somebody stopped it with Ctrl-Z and forgot it",
        script="finetune.py",
        job=TRAINING
        + """
import signal
phase("busy training"); end = time.time() + 14
while time.time() < end: step()
phase("idle idle"); os.kill(os.getpid(), signal.SIGSTOP)
""",
    ),
    "push_then_wait": Scene(
        "files arrive over ssh-like tar by hand for 20 s, are unpacked, and nothing is started",
        hand="""echo busy data >$PHASE; curl -s --limit-rate 6M http://$HOST:8000/big --max-time 20 | tee big | gzip -1 >/dev/null;
            echo idle idle >$PHASE; sleep 1000""",
        needs_net="wheels",
    ),
}


def main() -> int:
    """The exit status, when every scene named, or every one, has been recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenes", nargs="*", metavar="SCENE")
    parser.add_argument("--python", required=True, help="one with numpy, notebook and tensorboard")
    parser.add_argument("--wheels", required=True, help="a directory of wheels, and a file `big`")
    parser.add_argument("--inside", metavar="HOST", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside is not None:
        _record(asked.scenes[0], asked.python, asked.inside)
        return 0
    for number, name in enumerate(asked.scenes or SCENES):
        with _network(os.getpid() % 200, asked.wheels) as (space, host):
            started = subprocess.run(
                [
                    "ip",
                    "netns",
                    "exec",
                    space,
                    "unshare",
                    "--pid",
                    "--fork",
                    "--mount-proc",
                    "--kill-child",
                    sys.executable,
                    "-m",
                    "evals.idle.record",
                    name,
                    "--inside",
                    host,
                    "--python",
                    asked.python,
                    "--wheels",
                    asked.wheels,
                ],
                check=False,
                cwd=ROOT,
            )
        sys.stdout.write(f"{number + 1} {name}: {started.returncode}\n")
        sys.stdout.flush()
    return 0


@contextmanager
def _network(number: int, wheels: str) -> Iterator[tuple[str, str]]:
    """A network of its own, and the address of a web server outside it."""
    space, host = f"gtrec{number}", f"10.88.{number}.1"
    near, far = f"gtr{number}a", f"gtr{number}b"
    for words in (
        f"ip netns add {space}",
        f"ip link add {near} type veth peer name {far}",
        f"ip link set {far} netns {space}",
        f"ip addr add {host}/30 dev {near}",
        f"ip link set {near} up",
        f"ip -n {space} addr add 10.88.{number}.2/30 dev {far}",
        f"ip -n {space} link set {far} up",
        f"ip -n {space} link set lo up",
        f"tc qdisc add dev {near} root tbf rate 40mbit burst 128kb latency 200ms",
    ):
        subprocess.run(words.split(), check=True)
    server = subprocess.Popen(
        [sys.executable, "-m", "http.server", "8000", "--bind", host, "--directory", wheels],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex((host, 8000)) == 0:
                break
        time.sleep(0.1)  # noqa: TID251
    try:
        yield space, host
    finally:
        server.terminate()
        server.wait()
        subprocess.run(["ip", "link", "del", near], check=False)
        subprocess.run(["ip", "netns", "del", space], check=False)


def _activity() -> ModuleType:
    spec = importlib.util.spec_from_file_location("activity", ROOT / "scripts" / "activity.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _record(name: str, python: str, host: str) -> None:
    """The scene has run in these namespaces, and its trace is on the disk."""
    scene, activity = SCENES[name], _activity()
    place = Path(tempfile.mkdtemp(prefix="recording"))
    home = place / "home"
    home.mkdir()
    truth = place / "phase"
    truth.write_text("idle idle", encoding="ascii")
    plain = {
        "PATH": f"{Path(python).parent}:/usr/bin:/bin:/usr/sbin",
        "PHASE": str(truth),
        "HOST": host,
    }
    plain |= {
        "PYTHON": python,
        "HOME": str(place),
        "TMPDIR": str(place),
        "TERM": "xterm",
        "OMP_NUM_THREADS": "1",
        "LANG": "C.UTF-8",
    }
    looks, labels = [activity.look(str(home))["look"]], []
    began = time.monotonic()
    job = hand = None
    fd = -1
    if scene.job:
        words = ["sh", "-c", scene.job]
        if scene.job.startswith("\nimport"):
            (place / scene.script).write_text(scene.job, encoding="utf-8")
            words = [python, scene.script]
        marks = {"GPU_TENANT_CARETAKER": str(home), "GPU_TENANT_JOB": name}
        job = subprocess.Popen(
            words,
            cwd=place,
            env=plain | marks,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=(place / "log").open("wb"),
            stderr=subprocess.STDOUT,
        )
    if scene.hand:
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(place)
            os.execve("/bin/bash", ["bash", "-c", scene.hand], plain)  # noqa: S606
        hand = pid
        os.set_blocking(fd, False)
    for number in range(1, scene.looks + 1):
        seen: Counter[tuple[str, str, int]] = Counter()
        while time.monotonic() < began + number * EVERY_S:
            time.sleep(0.1)  # noqa: TID251
            alive = int(job is not None and job.poll() is None)
            phase = (truth.read_text(encoding="ascii").split() or ["idle", "idle"])[:2]
            seen[(phase[0], phase[1], alive)] += 1
            if fd >= 0:
                if scene.keys is not None and sum(seen.values()) % 3 == 0:
                    scene.keys(fd, time.monotonic() - began)
                with suppress(OSError):
                    os.read(fd, 65536)
        looks.append(activity.look(str(home))["look"])
        labels.append(seen.most_common(1)[0][0])
    rows = [_row(one, two) for one, two in pairwise(looks)]
    header = {
        "how": "recorded",
        "made": f"{scene.made}; looked at every {EVERY_S:g} s, times and counters multiplied by {SCALE}",
        "scale": SCALE,
        "spans": packed(labels),
    }
    write(f"recorded_{name}", header, rows)
    for child in (job.pid if job else None, hand):
        if child:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    shutil.rmtree(place, ignore_errors=True)


def _row(one: dict[str, Any], two: dict[str, Any]) -> list[Any]:
    cells: list[Any] = [(two["up"] - one["up"]) * SCALE]
    for group in ("job", "other"):
        for name in COUNTED:
            unit = 1.0 if name == "cpu_s" else 1e3
            cells.append((two[group][name] - one[group][name]) * SCALE / unit)
        cells.append(two[group]["procs"])
    cells += [(b - a) * SCALE / 1e3 for a, b in zip(one["net"], two["net"], strict=True)]
    kinds = {k: (v - one["kinds"].get(k, 0.0)) * SCALE for k, v in two["kinds"].items()}
    return [*cells, {k: v for k, v in kinds.items() if v > 0}]


if __name__ == "__main__":
    sys.exit(main())
