"""GPU memory is attributed to whom it can be proved to belong to, and only what is ours is ended."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
VRAM, CARETAKER = SCRIPTS / "vram.py", SCRIPTS / "caretaker.py"
BOOT = "f0000000-0000-4000-8000-00000000f00d"
Reply = dict[str, Any]


def gpu(bus: str, used_mib: int, *, processes: str = "", minor: str = "") -> str:
    return f"""<gpu id="{bus}"><product_name>NVIDIA FAKE</product_name>{minor}
      <pci><pci_bus_id>{bus}</pci_bus_id></pci>
      <fb_memory_usage><total>81559 MiB</total><used>{used_mib} MiB</used></fb_memory_usage>
      <processes>{processes}</processes></gpu>"""


def listed(pid: int, mib: str) -> str:
    return f"<process_info><pid>{pid}</pid><process_name>a, b</process_name><used_memory>{mib}</used_memory></process_info>"


class Box:
    """A fake box: a PATH with an nvidia-smi that prints fake data, and a fake /proc."""

    def __init__(self, root: Path) -> None:
        self.root, self.proc, self.bin = root, root / "proc", root / "bin"
        self.home = root / "care taker"
        self.bin.mkdir()
        self.process(1, "init", 1)
        (self.proc / "sys/kernel/random").mkdir(parents=True)
        (self.proc / "sys/kernel/random/boot_id").write_text(BOOT + "\n", encoding="ascii")

    def smi(self, *gpus: str, body: str = 'cat "$FAKE_SMI"') -> None:
        (self.root / "fake.xml").write_text(
            '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
            f"<nvidia_smi_log>{''.join(gpus)}</nvidia_smi_log>",
            encoding="utf-8",
        )
        (self.bin / "nvidia-smi").write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (self.bin / "nvidia-smi").chmod(0o755)

    def process(
        self, pid: int, name: str, ticks: int, *opens: str, parent: int = 1, session: int = 0
    ) -> None:
        """A process in the fake /proc, which holds these files open."""
        (self.proc / str(pid) / "fd").mkdir(parents=True)
        for number, target in enumerate(opens):
            (self.proc / str(pid) / "fd" / str(number)).symlink_to(target)
        fields = ["S", parent, 0, session or pid, *[0] * 15, ticks, 0]
        (self.proc / str(pid) / "stat").write_text(
            f"{pid} (a ) name) {' '.join(map(str, fields))}\n", encoding="ascii"
        )
        (self.proc / str(pid) / "comm").write_text(name + "\n", encoding="ascii")
        (self.proc / str(pid) / "environ").write_bytes(b"")

    def record(self, job: str, **fields: object) -> None:
        directory = self.home / "jobs" / job
        directory.mkdir(parents=True)
        record = {"pid": 0, "start_ticks": 0, "boot_id": BOOT, "started_at": 1.0, "init_ticks": 1}
        record |= {"supervisor_pid": 0, "supervisor_ticks": 0} | fields
        (directory / "started.json").write_text(json.dumps(record), encoding="ascii")

    def report(self, *words: str) -> Reply:
        homes = ["--home", str(self.home)] if self.home.exists() else []
        return vram(self, "--proc", str(self.proc), *homes, *words)


def vram(box: Box, *words: str) -> Reply:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(VRAM), *words],
        capture_output=True,
        check=False,
        timeout=120,
        env={"PATH": f"{box.bin}:{os.environ['PATH']}", "FAKE_SMI": str(box.root / "fake.xml")},
    )
    reply: Reply = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == (0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1)
    return reply


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_memory_that_nobody_here_holds_is_nobodys_that_can_be_seen(box: Box) -> None:
    box.smi(gpu("00000000:3B:00.0", 61000, minor="<minor_number>0</minor_number>"))
    box.process(50, "python", 9)

    (seen,) = box.report()["gpus"]

    assert (seen["nobody_visible_mib"], seen["ours_mib"], seen["not_ours_mib"]) == (61000, 0, 0)
    assert "nobody who can be seen" in seen["words"]
    assert seen["processes"] == []


def test_ours_and_not_ours_are_told_apart(box: Box) -> None:
    minor = "<minor_number>0</minor_number>"
    box.smi(gpu("0:0", 900, minor=minor, processes=listed(60, "500 MiB") + listed(70, "300 MiB")))
    box.process(60, "python3", 77, "/dev/nvidia0", "/dev/nvidiactl")
    box.process(70, "python3", 78, "/dev/nvidia0")
    box.record("train", pid=60, start_ticks=77)

    reply = box.report()

    (seen,) = reply["gpus"]
    assert (seen["ours_mib"], seen["not_ours_mib"], seen["nobody_visible_mib"]) == (500, 300, 100)
    assert [(p["pid"], p["owner"], p["job"]) for p in seen["processes"]] == [
        (60, "ours", "train"),
        (70, "not ours", None),
    ]
    assert reply["jobs"][0]["alive"] is True


@pytest.mark.parametrize(
    "change",
    [{"start_ticks": 76}, {"boot_id": "another"}, {"init_ticks": 2}],
    ids=["its number was given anew", "the machine began anew", "the container began anew"],
)
def test_a_recycled_number_is_not_ours(box: Box, change: Reply) -> None:
    box.smi(gpu("0:0", 900, minor="<minor_number>0</minor_number>"))
    box.process(60, "python3", 77, "/dev/nvidia0", session=3)
    box.record("train", **({"pid": 60, "start_ticks": 77} | change))

    reply = box.report()

    assert reply["gpus"][0]["processes"][0]["owner"] == "not ours"
    assert reply["jobs"][0]["alive"] is False


def test_a_worker_of_a_job_is_the_jobs(box: Box) -> None:
    box.smi(gpu("0:0", 900, minor="<minor_number>0</minor_number>"))
    box.process(60, "sh", 77)
    box.process(61, "python", 80, "/dev/nvidia0", parent=60, session=60)
    box.process(62, "python", 81, "/dev/nvidia0", parent=61, session=62)
    box.record("train", pid=60, start_ticks=77)

    assert {p["job"] for p in box.report()["gpus"][0]["processes"]} == {"train"}


def test_a_number_of_the_hosts_that_is_another_process_here_gets_nothing(box: Box) -> None:
    minor = "<minor_number>0</minor_number>"
    box.smi(gpu("0:0", 900, minor=minor, processes=listed(70, "880 MiB")))
    box.process(70, "bash", 5)
    box.process(71, "python", 6, "/dev/nvidia0")

    (seen,) = box.report()["gpus"]

    assert (seen["not_ours_mib"], seen["nobody_visible_mib"]) == (0, 900)
    assert seen["unseen_pids"] == [70]
    assert [(p["pid"], p["mib"]) for p in seen["processes"]] == [(71, None)]
    assert "host's numbers" in seen["words"]


def test_pci_addresses_are_hexadecimal_in_any_spelling(box: Box) -> None:
    box.smi(gpu("00000000:0A:00.0", 10), gpu("00000000:10:00.0", 20), gpu("0000:AF:1F.0", 30))
    for name, number in (("0000:0a:00.0", 7), ("0000:10:00.0", 8), ("00000000:af:1f.0", 9)):
        directory = box.proc / "driver/nvidia/gpus" / name
        directory.mkdir(parents=True)
        (directory / "information").write_text(
            f"Model: FAKE\nDevice Minor: \t {number}", encoding="ascii"
        )
    box.process(70, "python", 5, "/dev/nvidia8")

    seen = box.report()["gpus"]

    assert [(g["device"], g["bus"]) for g in seen] == [
        ("/dev/nvidia7", "0000:0a:00.0"),
        ("/dev/nvidia8", "0000:10:00.0"),
        ("/dev/nvidia9", "0000:af:1f.0"),
    ]
    assert [len(g["processes"]) for g in seen] == [0, 1, 0]


def test_what_the_driver_does_not_say_is_null(box: Box) -> None:
    unsaid = gpu("0:0", 0).replace("0 MiB</used>", "[N/A]</used>")
    box.smi(unsaid)
    box.process(70, "python", 5, "/dev/nvidia0")

    (seen,) = box.report()["gpus"]

    assert (seen["used_mib"], seen["nobody_visible_mib"]) == (None, None)


def test_it_runs_from_stdin_with_a_driver_that_would_read_it(box: Box) -> None:
    box.smi(gpu("0:0", 5), body='cat >/dev/null; cat "$FAKE_SMI"')

    done = subprocess.run(
        [sys.executable, "-", "--proc", str(box.proc)],
        input=VRAM.read_bytes(),
        stdout=subprocess.PIPE,
        check=True,
        env={"PATH": f"{box.bin}:{os.environ['PATH']}", "FAKE_SMI": str(box.root / "fake.xml")},
    )

    assert json.loads(done.stdout)["gpus"][0]["used_mib"] == 5


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "echo 'Unable to determine the device handle for GPU 0000:3B:00.0'; exit 15",
            "device handle",
        ),
        ("echo '<?xml version=\"1.0\" ?><nvidia_smi_log><gpu>'", "no whole XML"),
        ("echo '<!ENTITY a \"aa\">'", "ENTITY"),
    ],
)
def test_a_driver_that_fails_is_quoted(box: Box, body: str, told: str) -> None:
    box.smi(body=body)

    reply = box.report()

    assert reply["code"] == "DRIVER_REFUSED"
    assert told in reply["message"]


def test_without_a_driver_it_says_so(box: Box) -> None:
    for tool in ("nvidia-smi",):
        assert shutil.which(tool, path=str(box.bin)) is None
    done = subprocess.run(
        [sys.executable, str(VRAM)], stdout=subprocess.PIPE, check=False, env={"PATH": str(box.bin)}
    )

    assert json.loads(done.stdout)["code"] == "NO_NVIDIA_SMI"


# --- ending -------------------------------------------------------------------------------------

DEAF = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(300)"


def caretaker(box: Box, verb: str, **arguments: object) -> Reply:
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            str(CARETAKER),
            "--home",
            str(box.home),
            verb,
            "--request",
            "-",
        ],
        input=json.dumps(arguments).encode(),
        stdout=subprocess.PIPE,
        check=False,
    )
    reply: Reply = json.loads(done.stdout)
    return reply


@pytest.fixture
def job(box: Box) -> Iterator[Reply]:
    argv = ["sh", "-c", f'{sys.executable} -c "{DEAF}" & echo $! >child; wait; sleep 300']
    yield caretaker(box, "start", job="j1", argv=argv, cwd=str(box.root / "work"))
    caretaker(box, "stop", job="j1", grace_s=0)


def end(box: Box, pid: int, *words: str) -> Reply:
    return vram(box, "--home", str(box.home), "--end", str(pid), *words)


def alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return (
            "Z"
            not in Path(f"/proc/{pid}/stat")
            .read_text(encoding="ascii")
            .rpartition(")")[2]
            .split()[0]
        )
    return False


def test_what_a_caretaker_started_is_ended(box: Box, job: Reply) -> None:
    reply = end(box, job["pid"])

    assert (reply["ended"], reply["job"], reply["sent"]) == (job["pid"], "j1", ["SIGTERM"])
    assert not alive(job["pid"])


def test_what_does_not_hear_is_killed(box: Box) -> None:
    started = caretaker(
        box, "start", job="j1", argv=[sys.executable, "-c", DEAF], cwd=str(box.root / "w")
    )
    log = box.home / "jobs" / "j1" / "log"
    while not log.read_bytes():
        time.sleep(0.01)  # noqa: TID251

    reply = end(box, started["pid"], "--grace-s", "0.1")

    assert reply["sent"] == ["SIGTERM", "SIGKILL"]
    assert not alive(started["pid"])


def test_a_stranger_is_left_alone(box: Box, job: Reply) -> None:
    with subprocess.Popen(["sleep", "300"]) as stranger:
        reply = end(box, stranger.pid)
        left_alone = stranger.poll() is None
        stranger.kill()

    assert (reply["code"], left_alone) == ("NOT_OURS", True)


def test_a_child_of_a_job_is_the_caretakers_to_end(box: Box, job: Reply) -> None:
    child = box.root / "work" / "child"
    while not (child.exists() and child.read_bytes()):
        time.sleep(0.01)  # noqa: TID251
    pid = int(child.read_text(encoding="ascii"))

    reply = end(box, pid)

    assert (reply["code"], reply["job"]) == ("NOT_OURS", "j1")
    assert "stop --job j1" in reply["message"]
    assert alive(pid)


@pytest.mark.parametrize("field", ["start_ticks", "boot_id"])
def test_a_record_that_does_not_fit_ends_nothing(box: Box, job: Reply, field: str) -> None:
    path = box.home / "jobs" / "j1" / "started.json"
    record = json.loads(path.read_text(encoding="ascii"))
    path.write_text(
        json.dumps(record | {field: job["start_ticks"] - 1 if field == "start_ticks" else "x"}),
        encoding="ascii",
    )

    reply = end(box, job["pid"])
    left_alone = alive(job["pid"])
    path.write_text(json.dumps(record), encoding="ascii")

    assert (reply["code"], left_alone) == ("NOT_OURS", True)


@pytest.mark.parametrize(
    "words",
    [("--end", "1"), ("--end", "x"), ("--end", "-5"), ("--home", "/nowhere"), ("--grace-s", "nan")],
)
def test_a_wrong_request_is_refused(box: Box, words: tuple[str, ...]) -> None:
    box.smi(gpu("0:0", 5))

    assert vram(box, *words)["code"] == "BAD_REQUEST"


def test_a_process_that_is_not_there_is_told(box: Box, job: Reply) -> None:
    assert end(box, 4194303)["code"] == "NO_SUCH_PROCESS"
