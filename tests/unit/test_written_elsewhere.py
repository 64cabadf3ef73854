"""What a job writes elsewhere than it declared: on a machine of the lease's own, each of these files comes home."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from parts import required, root_required

CARETAKER = Path(__file__).parents[2] / "scripts" / "caretaker.py"
Reply = dict[str, Any]

JOBS = {
    "tmp": "echo $M > /tmp/result.txt",
    "tmp deep": "mkdir -p /tmp/a/b/c; echo $M > /tmp/a/b/c/model.pt",
    "tmp hidden": "echo $M > /tmp/.hidden-result",
    "mkdtemp": 'python3 -c \'import os, tempfile; open(tempfile.mkdtemp() + "/m", "w").write(os.environ["M"])\'',
    "mkstemp": "python3 -c 'import os, tempfile; f, _ = tempfile.mkstemp(); os.write(f, os.environ[\"M\"].encode())'",
    "named temporary file": "python3 -c 'import os, tempfile; "
    'tempfile.NamedTemporaryFile("w", delete=False).write(os.environ["M"])\'',
    "TMPDIR": "mkdir -p /scratch/t; TMPDIR=/scratch/t; echo $M > $TMPDIR/r",
    "var tmp": "echo $M > /var/tmp/result",
    "shm": "echo $M > /dev/shm/result",
    "home": "echo $M > ~/result.txt",
    "HOME deep": 'mkdir -p "$HOME/results/run 1"; echo $M > "$HOME/results/run 1/metrics.json"',
    "home dot": "mkdir -p ~/.local/share/tool; echo $M > ~/.local/share/tool/state",
    "other home": "mkdir -p /home/other/out; echo $M > /home/other/out/result",
    "root's home": "echo $M > /root/result",
    "mnt": "mkdir -p /mnt/disk1; echo $M > /mnt/disk1/result",
    "another disk": "echo $M > /mnt/disk/result",
    "a mount in another": "mkdir -p /data/inner/d; echo $M > /data/inner/d/r",
    "data": "echo $M > /data/result",
    "opt": "mkdir -p /opt/mine/results; echo $M > /opt/mine/results/r",
    "opt lib": "mkdir -p /opt/mine/lib; echo $M > /opt/mine/lib/r",
    "srv": "mkdir -p /srv/out; echo $M > /srv/out/r",
    "the root": "echo $M > /result.txt",
    "a new directory in the root": "mkdir -p /results/run; echo $M > /results/run/r",
    "usr local": "mkdir -p /usr/local/results; echo $M > /usr/local/results/r",
    "var lib": "mkdir -p /var/lib/mine; echo $M > /var/lib/mine/r",
    "media": "mkdir -p /media/usb; echo $M > /media/usb/r",
    "workspace": "mkdir -p /workspace/out; echo $M > /workspace/out/r",
    "a wrong directory": "mkdir -p output; echo $M > output/r",
    "a typo": "mkdir -p ouput; echo $M > ouput/r",
    "after cd": "mkdir -p src; cd src; mkdir -p results; echo $M > results/r",
    "one up": "mkdir -p ../results; echo $M > ../results/r",
    "two up": "mkdir -p ../../results; echo $M > ../../results/r",
    "cd to tmp": "cd /tmp; mkdir -p saved; echo $M > saved/r",
    "through a link": "ln -s /scratch linked; mkdir -p linked/far; echo $M > linked/far/r",
    "by a child that was left": "(sleep 0.2; echo $M > /tmp/by-a-child) &",
    "moved there": "echo $M > x.tmp; mv x.tmp /opt/moved",
    "copied with old times": "echo $M > y.tmp; cp -p y.tmp /srv/copied; touch -d 2001-01-01 /srv/copied; rm y.tmp",
    "a name that is odd": "echo $M > \"$(printf '/tmp/new\\nline %% \\377')\"",
    "an environment's results": "mkdir -p /opt/env/conda-meta /opt/env/results; echo $M > /opt/env/results/r",
    "a failing job": "echo $M > /tmp/before-it-failed; exit 3",
    "one that is killed": "echo $M > /tmp/before-it-was-killed; kill -9 $$",
    "in place of an older file": "echo $M > /opt/older",
}
NOISE = {
    "pip": "mkdir -p /opt/py/site-packages/x; echo n > /opt/py/site-packages/x/a.py",
    "conda": "mkdir -p /opt/conda/conda-meta /opt/conda/lib; echo n > /opt/conda/lib/a.so",
    "a package manager": "mkdir -p /var/lib/dpkg/info; mkdir -p /opt/vendor; echo n > /opt/vendor/tool; "
    "echo /opt/vendor/tool > /var/lib/dpkg/info/vendor.list",
    "a system log": "mkdir -p /var/log; echo n > /var/log/daemon.log",
    "a hub's cache": "mkdir -p /data/hf/models--a--b/blobs; echo n > /data/hf/models--a--b/blobs/0",
    "settings": "echo n > /etc/mine.conf",
}
MACHINE = """
set -e
mount --make-rprivate /
mount -t tmpfs machine "$ROOT"
cd "$ROOT"
for place in usr bin sbin lib lib32 lib64 libx32; do
    if [ -L /$place ]; then cp -P /$place .
    elif [ -d /$place ]; then mkdir $place; mount --rbind -o ro /$place $place; fi
done
mkdir -p usr proc dev etc tmp var/tmp home/other root mnt/disk data/inner opt srv scratch media box script usr
mount --rbind /proc proc; mount --rbind /dev dev; mount -t tmpfs shm dev/shm
mount -t tmpfs local usr/local; mkdir -p usr/local/bin
mount -t tmpfs disk mnt/disk; mount -t tmpfs inner data/inner
for file in passwd group ld.so.cache; do [ ! -e /etc/$file ] || cp /etc/$file etc/; done
for place in $NEEDS; do mkdir -p ".$place"; mount --rbind -o ro "$place" ".$place"; done
cp "$CARETAKER" script/caretaker.py
echo old > opt/older
exec chroot . "$PYTHON" -I -S -c "$DRIVER"
"""
DRIVER = """
import json, os, subprocess, sys, time
jobs, noise = json.loads(os.environ.pop("JOBS")), json.loads(os.environ.pop("NOISE"))
os.environ.update(HOME="/home/login", PATH="/usr/local/bin:/usr/bin:/bin")
os.makedirs("/home/login/gpu-tenant/lease/work")
work, home = "/home/login/gpu-tenant/lease/work", "/home/login/gpu-tenant/lease/caretaker"
def ask(verb, **request):
    argv = [sys.executable, "-I", "-S", "/script/caretaker.py", "--home", home, verb, "--request", "-"]
    done = subprocess.run(argv, input=json.dumps(request).encode(), stdout=subprocess.PIPE)
    return json.loads(done.stdout)
for number, (mark, script) in enumerate({**jobs, **noise}.items()):
    told = ask("start", job="j%d" % number, argv=["sh", "-c", script], cwd=work, artifacts=["out/"],
               env={"M": mark})
    assert told["ok"], told
while any(job["state"] in ("starting", "running", "lingering") for job in ask("status")["jobs"]):
    time.sleep(0.05)
answer = ask("manifest", work=work, roots=["~"], elsewhere=True, alone=True, demanded=["out/"],
             bring_bytes=1 << 30)
print(json.dumps({"seal": answer, "in": {e["at"]: e["sha256"] for e in answer.get("entries", ())}}))
"""


@pytest.fixture(scope="module")
def seal(tmp_path_factory: pytest.TempPathFactory) -> Reply:
    """The seal of a machine of its own, on which each of the jobs ran once."""
    required("mount")
    root_required()
    root = tmp_path_factory.mktemp("machine")
    python = Path(sys.executable).resolve()
    needs = [] if str(python).startswith("/usr/") else [str(python.parents[1])]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", MACHINE],
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
        env={
            "PATH": os.environ["PATH"],
            "ROOT": str(root),
            "PYTHON": str(python),
            "NEEDS": " ".join(needs),
            "CARETAKER": str(CARETAKER),
            "DRIVER": DRIVER,
            "JOBS": json.dumps(JOBS),
            "NOISE": json.dumps(NOISE),
        },
    )
    answer: Reply = json.loads(done.stdout)
    assert answer["seal"]["ok"], answer["seal"]
    return answer


def hashes(mark: str) -> set[str]:
    """A job writes its own name, with or without a line's end."""
    return {hashlib.sha256(text.encode()).hexdigest() for text in (mark, f"{mark}\n")}


@pytest.mark.parametrize("mark", JOBS)
def test_what_a_job_writes_elsewhere_comes_home(seal: Reply, mark: str) -> None:
    assert hashes(mark) & {*seal["in"].values()}


def test_nothing_of_it_is_a_question(seal: Reply) -> None:
    assert (seal["seal"]["unclaimed"]["count"], seal["seal"]["unmatched"]) == (0, ["out/"])


def test_what_package_managers_and_the_system_wrote_stays(seal: Reply) -> None:
    noise = hashlib.sha256(b"n\n").hexdigest()

    assert [at for at, sha256 in seal["in"].items() if sha256 == noise] == []
