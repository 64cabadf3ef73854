"""What a seal believes: the tenant's own words, and what can be checked on the box itself."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from arranged import PATIENCE_S
from parts import required
from unit.test_caretaker_seal import CARETAKER, Box, Reply, member, whys

SCRIPTS = [hashlib.sha256(at.read_bytes()).hexdigest() for at in CARETAKER.parent.glob("*.py")]
MIB = 1 << 20


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "lease")


@pytest.fixture
def begun() -> Iterator[list[subprocess.Popen[bytes]]]:
    """What a test has set going on the box; it ends with the test."""
    going: list[subprocess.Popen[bytes]] = []
    yield going
    for process in going:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def unclaimed(sealed: Reply) -> list[str]:
    return sorted(one["at"] for one in sealed["unclaimed"]["largest"])


def sent(content: bytes) -> list[list[object]]:
    return [[len(content), hashlib.sha256(content).hexdigest()]]


# --- records that a job can write ---------------------------------------------------------------


def test_what_a_job_enters_among_the_pushed_files_is_unclaimed_all_the_same(box: Box) -> None:
    box.ran(job="j0")
    box.push((member("train.py"), b"true"))
    digest = hashlib.sha256(b"weights").hexdigest()
    box.ran(
        f"""printf weights > w.bin; printf '{{"w.bin": {{"size": 7, "sha256": "{digest}"}}}}' """
        "> $GPU_TENANT_CARETAKER/pushed.json"
    )

    sealed = box.seal(pushed={"train.py": sent(b"true")})

    assert unclaimed(sealed) == [str(box.work / "w.bin")]
    assert sealed["pushed"] == {"count": 1, "bytes": 4}


def test_a_job_that_sets_the_record_of_its_beginning_later_hides_nothing(box: Box) -> None:
    began = box.ask("start", job="j0", argv=["true"], cwd=str(box.work))["since_ns"]
    box.ran("printf weights > w.bin")
    later = time.time_ns() + 10**9
    (box.home / "since.json").write_text(f'{{"since_ns": {later}}}', encoding="utf-8")

    assert unclaimed(box.seal()) == []
    assert unclaimed(box.seal(since_ns=began)) == [str(box.work / "w.bin")]


@pytest.mark.parametrize(
    ("field", "patterns"), [("artifacts", '["ok.txt"]'), ("discard", '["out/", "w.bin"]')]
)
def test_a_job_that_declares_otherwise_on_the_box_keeps_and_gives_up_no_less(
    box: Box, field: str, patterns: str
) -> None:
    record = "$GPU_TENANT_CARETAKER/jobs/j1/spec.json"
    box.ran(
        "mkdir out; printf weights > out/m.bin; printf weights > w.bin; "
        f'sed -i \'s#"{field}": *\\[[^]]*\\]#"{field}": {patterns}#\' {record}; grep -q {patterns[2:5]} {record}',
        artifacts=["out/"],
    )

    sealed = box.seal("out/", pushed={})

    assert box.ask("status", job="j1")["exit_code"] == 0, "the record was changed"
    assert "work/out/m.bin" in [entry["name"] for entry in sealed["entries"]]
    assert unclaimed(sealed) == [str(box.work / "w.bin")]


def test_what_a_job_writes_into_the_shell_s_own_files_is_unclaimed(box: Box) -> None:
    rented_ns = time.time_ns() - 10**12
    box.ran("echo 'python3() { echo forged; }' >> ~/.bashrc")

    sealed = box.seal(rented_ns=rented_ns, quiet=["~/.bashrc"])

    assert unclaimed(sealed) == [str(box.login / ".bashrc")]


@pytest.mark.parametrize(
    "place",
    [
        "caretaker/out.bin",
        "caretaker/jobs/j1/out.bin",
        "caretaker/jobs/j2/log",
        "caretaker/jobs/x.bin",
        "caretaker/home.lock",
        "caretaker/queue/out.bin",
        "caretaker/guard.json",
        "work/.gpu-tenant-incoming/" + "0" * 64,
    ],
)
def test_no_place_is_passed_over_by_its_name(box: Box, place: str) -> None:
    path = box.root / place
    box.ran(f"mkdir -p {path.parent}; head -c 2000000 /dev/urandom > {path}")

    assert unclaimed(box.seal(pushed={})) == [str(path)]


@pytest.mark.parametrize("made", ["mkdir", "mkfifo"])
@pytest.mark.parametrize("name", ["started.json", "lock", "main.json", "spec.json"])
def test_what_is_no_file_where_a_record_belongs_is_no_record(
    box: Box, made: str, name: str
) -> None:
    other = "$GPU_TENANT_CARETAKER/jobs/other"
    box.ran(f"mkdir -p {other}; {made} {other}/{name}; printf weights > {other}/w.bin")

    sealed = box.seal(pushed={})

    assert sealed["digest"]
    assert unclaimed(sealed) == [str(box.home / "jobs/other/w.bin")]


def test_a_mount_from_after_the_beginning_is_told_by_name_until_it_is_undone(box: Box) -> None:
    """Root in a job may hide its output below an empty directory."""
    required("mount")
    ask = f"HOME={box.login} {sys.executable} -I -S {CARETAKER} --home {box.home}"
    start = {"job": "j1", "argv": ["sleep", "0"], "cwd": str(box.work)}
    sealing = {"work": str(box.work), "roots": [str(box.login)], "ever": True}
    seal = f"echo '{json.dumps(sealing)}' | {ask} manifest --request -"
    script = f"""set -e; cd {box.root}
    mkdir -p work/hid login/hid login/disk empty; printf w > work/hid/m.bin; printf w > login/hid/m.bin
    mount --bind empty login/disk
    echo '{json.dumps(start)}' | {ask} start --request - >&2
    while {ask} status --job j1 | grep -q running; do :; done
    {seal}
    mount --bind empty work/hid; mount --bind empty login/hid; mount --bind empty login/disk
    {seal}
    umount work/hid login/hid login/disk
    {seal}"""
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        stdout=subprocess.PIPE,
        check=True,
        timeout=PATIENCE_S,
    )

    before, hidden, after = map(json.loads, done.stdout.splitlines())
    over = {str(box.login / "disk"), str(box.login / "hid"), str(box.work / "hid")}
    told = [
        {one["at"] for one in x["problems"] if one["why"] == "mounted_over"}
        for x in (before, hidden, after)
    ]
    assert told == [set(), over, set()]
    assert len(unclaimed(hidden)) == len(unclaimed(after)) - 2


def test_each_file_is_told_with_the_time_of_its_last_change_which_no_job_sets_back(
    box: Box,
) -> None:
    write = (
        "mkdir -p out; printf {0}{0}{0} > out/a; printf {0}{0}{0} > b; touch -d 2001-01-01 out/a b"
    )

    def told() -> tuple[int, int]:
        sealed = box.seal("out/")
        (entry,) = (x for x in sealed["entries"] if x["name"] == "work/out/a")
        (stray,) = sealed["unclaimed"]["largest"]
        return entry["ctime_ns"], stray["ctime_ns"]

    box.ran(write.format("0"))
    first = told()
    assert told() == first
    box.ran(write.format("1"), job="j2")

    assert all(new > old for new, old in zip(told(), first, strict=True))


def test_a_file_named_as_a_script_of_the_tenants_is_one_only_if_it_is_that_very_script(
    box: Box,
) -> None:
    bundle = box.root / "gpu-tenant"
    bundle.mkdir()
    shutil.copy(CARETAKER, bundle / "caretaker-0123456789abcdef.py")
    content = b"x" * (MIB + 5)
    long = f"keep-{hashlib.sha256(content[:MIB]).hexdigest()[:16]}.py"
    short = f"keep-{hashlib.sha256(b'mine').hexdigest()[:16]}.py"
    keep = CARETAKER.parent / "keep.py"
    ours = f"keep-{hashlib.sha256(keep.read_bytes()).hexdigest()[:16]}.py"
    box.ran()
    (bundle / long).write_bytes(content)
    (bundle / short).write_bytes(b"mine")
    shutil.copy(keep, bundle / ours)

    sealed = box.ask_by(
        bundle / "caretaker-0123456789abcdef.py",
        "manifest",
        work=str(box.work),
        roots=[str(bundle)],
        ours=SCRIPTS,
    )

    assert unclaimed(sealed) == sorted(str(bundle / name) for name in (long, short))


def test_what_a_broken_link_left_of_a_script_is_ours_if_the_script_begins_so(box: Box) -> None:
    bundle = box.root / "gpu-tenant"
    bundle.mkdir()
    shutil.copy(CARETAKER, bundle / "caretaker-0123456789abcdef.py")
    content = (CARETAKER.parent / "keep.py").read_bytes()
    (bundle / f"keep-{hashlib.sha256(content).hexdigest()[:16]}.py").write_bytes(content)
    box.ran()
    begun, other, named = (
        bundle / f".gpu-tenant-{n * 16}{end}"
        for n, end in (("0", ".part"), ("1", ".part"), ("2", ".parts"))
    )
    begun.write_bytes(content[:9000])
    other.write_bytes(content[:9000] + b"and what a job keeps here")
    named.write_bytes(content[:9000])

    sealed = box.ask_by(
        bundle / "caretaker-0123456789abcdef.py",
        "manifest",
        work=str(box.work),
        roots=[str(bundle)],
        ours=SCRIPTS,
    )

    assert unclaimed(sealed) == [str(other), str(named)]


# --- what is given up without a word ------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        ".cache/mine/w.bin",
        "out/venv/ckpt/w.bin",
        "login:.cache/huggingface/mine/w.bin",
        "node_modules/w.bin",
        "__pycache__/w.bin",
        "login:.triton/w.bin",
    ],
)
def test_what_is_large_and_only_bears_a_caches_name_is_unclaimed(box: Box, place: str) -> None:
    path = box.login / place[6:] if place.startswith("login:") else box.work / place
    box.ran(f"mkdir -p {path.parent}; head -c 11000000 /dev/zero > {path}")

    assert unclaimed(box.seal()) == [str(path)]
    assert unclaimed(box.seal(discard=[str(path.parent) + "/"])) == []


def test_large_caches_of_the_usual_tools_are_given_up_as_ever(box: Box) -> None:
    for place in (
        ".venv/lib/python3.11/site-packages/torch/lib/x.so",
        "login:.cache/huggingface/hub/models--a--b/blobs/0123",
        "login:.cache/pip/http-v2/a/b/c",
        "login:.cache/uv/archive-v0/x/y",
        "login:.triton/cache/ABC/k.cubin",
        "node_modules/left-pad/index.js",
    ):
        path = box.login / place[6:] if place.startswith("login:") else box.work / place
        box.ran(
            f"mkdir -p {path.parent}; head -c 11000000 /dev/zero > {path}",
            job=f"j{abs(hash(place))}",
        )
    (box.work / ".venv" / "pyvenv.cfg").touch()
    (box.work / "node_modules" / "left-pad" / "package.json").touch()

    assert box.seal()["unclaimed"]["count"] == 0


# --- names --------------------------------------------------------------------------------------


def test_a_few_empty_files_are_told_and_many_are_unclaimed(box: Box) -> None:
    box.ran("touch ready a.lock")
    few = box.seal()
    box.ran("for i in $(seq 300); do touch secret-data-in-a-name-$i; done", job="j2")
    many = box.seal()

    assert (few["empty"]["count"], few["unclaimed"]["count"]) == (2, 0)
    assert str(box.work / "ready") in few["empty"]["first"]
    assert (many["empty"]["count"], many["unclaimed"]["count"]) == (0, 302)


def test_what_lies_too_deep_is_a_problem_and_the_rest_is_sealed(box: Box) -> None:
    box.ran("echo x > a; for i in $(seq 600); do mkdir d && cd d || exit; done; echo y > b")

    sealed = box.seal("a", "d/")

    assert "work/a" in [entry["name"] for entry in sealed["entries"]]
    assert "too_deep" in whys(sealed).values()


# --- patterns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        "?*",
        "***",
        "[!q]*",
        "**?",
        "*.*",
        "./?*",
        "*[a-z]*",
        "~/?*",
        "~/",
        "/",
        "{login}/",
        "{parent}/**",
        "{work}/",
        "{work}/../work/",
        "~/gpu-tenant/own-kdhv/",
        "~/gpu-tenant/",
        "~/gpu-tenant/*/work/",
        "**/*",
        "[a-z0-9]*/**",
    ],
)
def test_a_pattern_that_gives_up_a_place_as_a_whole_gives_up_nothing(
    tmp_path: Path, pattern: str
) -> None:
    box = Box(tmp_path / "lease")
    box.work = box.login / "gpu-tenant" / "own-mine" / "work"
    box.work.mkdir(parents=True)
    text = pattern.format(login=box.login, parent=box.root, work=box.work)
    box.ran("echo x > a.bin; mkdir -p ~/gpu-tenant/own-kdhv; echo y > ~/gpu-tenant/own-kdhv/a")

    asked = box.ask("patterns", work=str(box.work), roots=["~"], discard=[text])
    sealed = box.seal(discard=[text])

    assert [one["why"] for one in asked["problems"]] in (["wide_pattern"], ["bad_pattern"])
    assert sealed["unclaimed"]["count"] == 2
    assert len(sealed["problems"]) == 1


@pytest.mark.parametrize(
    "pattern",
    [
        "*.pt",
        "out/",
        "tmp*",
        "*.log",
        "**/cache/",
        "~/wandb/",
        "/tmp/x/*",
        "*_old*",
        "data/**/*.bin",
    ],
)
def test_a_pattern_that_names_something_is_taken(box: Box, pattern: str) -> None:
    asked = box.ask("patterns", work=str(box.work), roots=["~"], discard=[pattern])

    assert asked["problems"] == []


# --- who is at work -----------------------------------------------------------------------------


def begin(
    begun: list[subprocess.Popen[bytes]], argv: list[str], cwd: Path, **more: Any
) -> subprocess.Popen[bytes]:
    """A process of nobody's, as one that a job left behind: no mark, a session of its own."""
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env={"PATH": os.environ["PATH"]},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        **more,
    )
    begun.append(process)
    return process


def test_a_process_that_waits_in_the_work_directory_keeps_the_seal_from_being_made(
    box: Box, begun: list[subprocess.Popen[bytes]]
) -> None:
    box.ran()
    process = begin(begun, ["sh", "-c", "sleep 600; echo x > w.bin"], box.work)

    refused = box.ask("manifest", work=str(box.work), roots=["~"])

    assert (refused["code"], refused["pids"][:1]) == ("AT_WORK", [process.pid])
    assert f"process {process.pid} (sh -c sleep 600" in refused["message"]


NAMED = "keep-0123456789abcdef.py"
SLEEPS = "import time; time.sleep(600)"


@pytest.mark.parametrize(
    "words",
    [["-c", SLEEPS, NAMED], [NAMED], ["-I", "-S", f"./{NAMED}"], ["sleeper.py", NAMED]],
    ids=["argument-of-a-text", "under-its-name", "as-ours-are-run", "argument-of-a-script"],
)
def test_a_process_with_the_name_of_a_script_of_ours_on_its_line_is_not_ours_for_that(
    box: Box, begun: list[subprocess.Popen[bytes]], words: list[str]
) -> None:
    box.ran()
    for name in (NAMED, "sleeper.py"):
        (box.work / name).write_text(SLEEPS, encoding="utf-8")
    process = begin(begun, ["python3", *words], box.work)

    refused = box.ask("manifest", work=str(box.work), roots=["~"])

    assert (refused["code"], refused["pids"]) == ("AT_WORK", [process.pid])


def test_a_job_that_killed_its_supervisor_and_left_a_daemon_is_not_passed_over(
    box: Box, begun: list[subprocess.Popen[bytes]]
) -> None:
    box.ran("env -i setsid sleep 600 & sleep 0.2; kill -9 $PPID; kill -9 $$")
    try:
        refused = box.ask("manifest", work=str(box.work))
        assert refused["code"] == "AT_WORK"
        assert "sleep 600" in refused["message"]
    finally:
        for pid in refused.get("pids", []):
            os.kill(pid, signal.SIGKILL)


def test_a_job_that_removed_its_own_record_is_still_at_work(
    box: Box, begun: list[subprocess.Popen[bytes]]
) -> None:
    gate = box.work / "gate"
    waits = f"until [ -e {gate} ]; do sleep 0.05; done"
    script = f"{waits}; rm -rf $GPU_TENANT_CARETAKER/jobs; sleep 600"
    began = box.ask("start", job="j1", argv=["sh", "-c", script], cwd=str(box.work))["since_ns"]
    gate.touch()
    give_up = time.monotonic() + PATIENCE_S
    while (box.home / "jobs").exists():
        assert time.monotonic() < give_up
    refused = box.ask("manifest", work=str(box.work), since_ns=began)
    for pid in refused.get("pids", []):
        os.kill(pid, signal.SIGKILL)

    assert refused["code"] == "AT_WORK", refused


def test_shells_that_wait_services_elsewhere_and_what_was_there_before_are_let_be(
    box: Box, begun: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    required("bash")
    begin(begun, ["sleep", "600"], box.work)
    time.sleep(2.2)  # noqa: TID251 - the clock that dates a process goes in seconds
    box.ran()
    ours, theirs = os.openpty()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shell = subprocess.Popen(
        ["bash", "--norc", "-i"],
        cwd=box.work,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    begun.append(shell)
    begin(begun, ["sleep", "600"], elsewhere)
    begin(begun, ["sleep", "600"], box.login)
    with (
        (box.work / "train.py").open("w", encoding="utf-8"),
        (box.work / "train.py").open("rb") as read,
    ):
        begin(
            begun,
            ["tail", "-f", str(box.work / "train.py")],
            elsewhere,
            stdout=subprocess.DEVNULL,
            pass_fds=(read.fileno(),),
        )
    os.close(theirs)

    sealed = box.ask("manifest", work=str(box.work), roots=["~"], artifacts=["train.py"])
    os.close(ours)

    assert sealed["ok"], sealed


def test_a_notebook_that_idles_is_let_be_and_one_that_computes_is_not(
    box: Box, begun: list[subprocess.Popen[bytes]]
) -> None:
    box.ran()
    kernel = box.root / "ipykernel_launcher.py"
    kernel.write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    idle = begin(begun, [sys.executable, "-S", str(kernel)], box.work)
    assert box.ask("manifest", work=str(box.work))["ok"]
    idle.kill()
    kernel.write_text("while True: pass\n", encoding="utf-8")
    busy = begin(begun, [sys.executable, "-S", str(kernel)], box.work)

    assert box.ask("manifest", work=str(box.work)).get("pids") == [busy.pid]


def test_a_notebook_that_computes_is_seen_where_it_hardly_gets_a_processor(
    box: Box, begun: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    box.ran()
    kernel = box.root / "ipykernel_launcher.py"
    kernel.write_text("while True: pass\n", encoding="utf-8")
    busy = begin(begun, [sys.executable, "-S", str(kernel)], box.work)
    others = [
        begin(begun, [sys.executable, "-S", "-c", "while True: pass"], tmp_path) for _ in range(12)
    ]
    os.setpriority(os.PRIO_PROCESS, busy.pid, 19)
    for process in (busy, *others):
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})

    assert box.ask("manifest", work=str(box.work)).get("pids") == [busy.pid]


def test_a_seal_whose_asker_is_gone_ends(box: Box) -> None:
    with (box.work / "sparse").open("wb") as file:
        file.truncate(1 << 42)
    box.ran()
    argv = [
        sys.executable,
        "-I",
        "-S",
        str(CARETAKER),
        "--home",
        str(box.home),
        "manifest",
        "--request",
        "-",
    ]
    sealing = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert sealing.stdin
    assert sealing.stdout
    sealing.stdin.write(
        f'{{"work": "{box.work}", "artifacts": ["sparse"], "tells_s": 0.1}}'.encode()
    )
    sealing.stdin.close()
    told = [json.loads(sealing.stdout.readline())["done"] for _ in range(3)]
    assert told == sorted(told), "it says how far it is"
    assert told[0][1] < told[2][1]
    sealing.stdout.close()

    assert sealing.wait(60) != 0


@pytest.mark.parametrize("verb", ["manifest", "complete"])
def test_what_only_looks_ends_with_its_asker_in_the_middle_of_a_file(box: Box, verb: str) -> None:
    sparse = box.work / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 42)
    box.ran()
    argv = [sys.executable, "-I", "-S", str(CARETAKER), "--home", str(box.home), verb]
    looking = subprocess.Popen(
        [*argv, "--request", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert looking.stdin
    assert looking.stdout
    more = {"quiet_s": 0} if verb == "complete" else {}
    looking.stdin.write(
        json.dumps({"work": str(box.work), "artifacts": ["sparse"], **more}).encode()
    )
    looking.stdin.close()
    give_up = time.monotonic() + PATIENCE_S
    while str(sparse) not in opened_by(looking.pid):
        assert time.monotonic() < give_up
    looking.stdout.close()

    assert looking.wait(60) != 0


def opened_by(pid: int) -> set[str]:
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.add(str(fd.readlink()))
    return found


# --- elsewhere ----------------------------------------------------------------------------------


def at_of(sealed: Reply) -> list[str]:
    return [entry["at"] for entry in sealed["entries"] if entry["class"] == "unasked"]


def test_what_a_job_wrote_on_other_disks_is_as_what_it_wrote_here(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setenv("GPU_TENANT_DISKS", str(disk))
    box.ran(f"echo model > {disk}/model.pt; echo x > {disk}/mine.tmp", discard=[f"{disk}/*.tmp"])

    passed_over, sealed = box.seal(), box.seal(elsewhere=True)

    assert (passed_over["elsewhere"], unclaimed(passed_over)) == (None, [])
    assert unclaimed(sealed) == [f"{disk}/model.pt"]
    assert [one["pattern"] for one in sealed["discarded"]["patterns"]] == [f"{disk}/*.tmp"]
    assert at_of(box.seal(elsewhere=True, bring_bytes=100)) == [f"{disk}/model.pt"]


def test_what_changes_there_after_the_jobs_is_told_and_taken_only_if_a_result_may_lie_there(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setenv("GPU_TENANT_DISKS", str(disk))
    box.ran("echo x > a.pt")
    ended = box.home / "jobs" / "j1" / "exit.json"
    os.utime(ended, ns=(0, time.time_ns() - 10**10))
    (disk / "state").write_text("a service's", encoding="utf-8")

    def look(*artifacts: str, **more: Any) -> Reply:
        return box.seal(*artifacts, elsewhere=True, bring_bytes=100, **more)

    appeared = look("*.pt", demanded=["*.pt"])
    assert (at_of(appeared), appeared["elsewhere"]["count"]) == ([], 1)
    assert at_of(look("*.pt", "out/", demanded=["*.pt", "out/"])) == [f"{disk}/state"]
    assert at_of(look("*.pt", demanded=["*.pt"], late=True)) == [f"{disk}/state"]


# --- unasked ------------------------------------------------------------------------------------


def test_what_nobody_claimed_is_listed_to_be_fetched_the_smallest_first_up_to_a_limit(
    box: Box,
) -> None:
    box.ran("printf 1 > a; printf 22 > b; printf 4444 > c; : > empty; printf 88888888 > ~/d")

    sealed = box.seal(bring_bytes=8)

    assert [(e["name"], e["size"]) for e in sealed["entries"] if e["class"] == "unasked"] == sorted(
        [("work/empty", 0), ("work/a", 1), ("work/b", 2), ("work/c", 4)], key=lambda one: one[0]
    )
    assert all(len(entry["sha256"]) == 64 for entry in sealed["entries"])
    assert (unclaimed(sealed), sealed["unclaimed"]["bytes"]) == ([str(box.login / "d")], 8)
    assert sealed["empty"]["count"] == 0
    assert sealed["digest"]


@pytest.mark.parametrize(
    ("script", "comes"),
    [
        ("mkdir __pycache__; printf '\\0\\0\\0\\0' > __pycache__/data.pyc", True),
        ("mkdir __pycache__; printf '\\247\\15\\15\\12' > __pycache__/code.pyc", False),
        ("mkdir .ipynb_checkpoints; echo x > .ipynb_checkpoints/a-checkpoint.ipynb", True),
        (
            "echo x > a.ipynb; mkdir .ipynb_checkpoints; cp a.ipynb .ipynb_checkpoints/a-checkpoint.ipynb",
            False,
        ),
        ("mkdir -p .cache/mine; echo x > .cache/mine/w.bin", True),
        ("mkdir -p venv/ckpt; echo x > venv/ckpt/w.bin", True),
        ("mkdir -p .cache/pip; echo x > .cache/pip/w", False),
        ("echo x > ~/.bash_history", False),
        ("mkdir -p lightning_logs/version_0; echo x > lightning_logs/version_0/metrics.csv", True),
        ("mkdir -p mlruns/0; echo x > mlruns/0/meta.yaml", True),
        ("echo x > nohup.out", True),
        ("echo x > events.out.tfevents.1.host", True),
        ("echo x > half.tmp", True),
    ],
)
def test_only_what_can_be_made_again_stays(box: Box, script: str, comes: bool) -> None:
    box.ran(script)

    sealed = box.seal(bring_bytes=1 << 20)

    found = [name for name in at_of(sealed) if not name.endswith("/a.ipynb")]
    assert bool(found) == comes
    assert unclaimed(sealed) == []


def test_what_a_process_still_writes_is_not_taken_for_whole(box: Box, tmp_path: Path) -> None:
    box.ran("echo x > ~/log; echo y > ~/done")

    with (box.login / "log").open("a"):
        sealed = box.seal(bring_bytes=1 << 20)

    assert at_of(sealed) == [str(box.login / "done")]
    assert unclaimed(sealed) == [str(box.login / "log")]
