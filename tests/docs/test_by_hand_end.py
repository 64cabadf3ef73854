"""The end by hand, as the page of phase 5 prints it: its own lines, pasted in their order, against a real sshd.

What the lines of phase 3 have launched by hand, these lines end.
"""

import getpass
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from parts import required
from sshd import LOOPBACK, Sshd, make_key, wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "references/phase-5-teardown.md").read_text("utf-8")
BY_HAND = PAGE.partition("## By hand\n")[2].partition("\n## ")[0]
FIRST, LOOK, SEAL, FETCH, PROVE, ELSEWHERE, NO_PYTHON = re.findall(
    r"```sh\n(.*?)```", BY_HAND, re.DOTALL
)
LAUNCH_PAGE = (ROOT / "references/phase-3-launch.md").read_text("utf-8")
LAUNCH, _, RUNS = (
    LAUNCH_PAGE.partition("## By hand\n\n```sh\n")[2].partition("```")[0].partition("sleep 30; ")
)
(LAUNCH_WITHOUT_PYTHON,) = re.findall(r"```sh\n(ssh HOST '[^\n]*setsid[^\n]*\n)```", LAUNCH_PAGE)
(TAIL,) = re.findall(r"```sh\n(python3 train.py [^`]*)```", LAUNCH_PAGE)
AT_BY_HAND = re.findall(r"launched by hand: (AT=\w+)\n", FIRST)
KEEP_WITHOUT_LEASE = re.findall(r"for a box without a\nlease `(KEEP=.*?)`\.", BY_HAND)
LOADS, SETTLED = "every file is here, equal, and loads", "nothing was written since"
HOME = "gpu-tenant/LEASE/caretaker"


class Night:
    """Somebody at 3 a.m. with a box, a shell and the page."""

    def __init__(self, box: Sshd, directory: Path) -> None:
        self._directory = directory
        self._box = box
        ssh_config = directory / "ssh_config"
        ssh_config.write_text(
            f"Host LEASE\nHostName {LOOPBACK}\nPort {box.port}\nUser {getpass.getuser()}\n"
            f"IdentityFile {directory / 'key'}\nIdentitiesOnly yes\nStrictHostKeyChecking accept-new\n"
            f"UserKnownHostsFile {directory / 'known_hosts'}\nLogLevel ERROR\n",
            encoding="utf-8",
        )
        filled = {
            "S=/PATH/scripts": f"S={ROOT / 'scripts'}",
            "F=~/.gpu-tenant/ssh_config": f"F={ssh_config}",
            "2026-11-20 21:00 UTC": "10 minutes ago",
        }
        self._first = FIRST
        for printed, value in filled.items():
            assert printed in self._first
            self._first = self._first.replace(printed, value)

    def pastes(self, *blocks: str) -> str:
        """What the shell says to these blocks of the page, after the first one."""
        told = subprocess.run(
            ["bash", "-c", "\n".join((self._first, *blocks))],
            cwd=self._directory,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return told.stdout + told.stderr

    def knows(self, name: str) -> None:
        """Whoever types `ssh NAME`, `scp x NAME:` or `rsync x NAME:` reaches the box."""
        config = self._directory / "ssh_config"
        named = config.with_name("ssh_config_too")
        named.write_text(
            config.read_text("utf-8").replace("Host LEASE", f"Host {name}"), encoding="utf-8"
        )
        programs = self._directory / "programs"
        programs.mkdir()
        for program, how in (("ssh", ""), ("scp", "-O ")):  # this sshd serves no sftp
            there = programs / program
            there.write_text(
                f'#!/bin/sh\nexec {shutil.which(program)} {how}-F {named} "$@"\n', encoding="utf-8"
            )
            there.chmod(0o755)
        self._path = f"{programs}{os.pathsep}{os.environ['PATH']}"

    def types(self, block: str, directory: Path) -> str:
        """What the shell says to a block of a page, in that directory."""
        told = subprocess.run(
            ["bash", "-c", block],
            cwd=directory,
            env={**os.environ, "PATH": self._path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return told.stdout + told.stderr

    def leaves(self) -> None:
        """Every connection to the box is cut."""
        self._box.kill_sessions()

    def on_box(self, command: str) -> None:
        subprocess.run(["sh", "-c", command], cwd=self._box.home, check=True)

    def trains(self, command: str) -> None:
        """A job of the lease was started, as the program starts it."""
        caretaker = self._box.home / "gpu-tenant/caretaker.py"
        caretaker.parent.mkdir(parents=True, exist_ok=True)
        caretaker.write_bytes((ROOT / "scripts/caretaker.py").read_bytes())
        self.on_box(
            f"HOME=$PWD python3 gpu-tenant/caretaker.py --home {HOME} start --job j1 --cwd gpu-tenant/LEASE/work "
            f"--artifact out/ -- sh -c '{command}'"
        )


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    required("bash", "ssh", "sshd", "rsync", "jq")
    key = make_key(tmp_path / "key")
    with Sshd(tmp_path / "box", authorized=key.with_name("key.pub")) as box:
        yield Night(box, tmp_path)


def test_what_phase_3_launches_by_hand_is_sealed_with_its_job_and_its_artifacts(
    night: Night, tmp_path: Path
) -> None:
    """Each line is as its page prints it. The programs on PATH know the host that it calls HOST."""
    required("git")
    night.knows("HOST")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "scripts").symlink_to(ROOT / "scripts")
    (tree / ".gitignore").write_text("scripts\n", encoding="utf-8")
    (tree / "train.py").write_text(
        "import pathlib\n"
        "pathlib.Path('out').mkdir()\n"
        "pathlib.Path('out/metrics.json').write_text('{}')\n"
        "print('trained', flush=True)\n",
        encoding="utf-8",
    )
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)

    launched = night.types(LAUNCH, tree)
    for _ in range(100):
        told = night.types(RUNS, tree)
        if "true" in told and '"state":"finished"' in (tree / "look.json").read_text("utf-8"):
            break
    else:
        pytest.fail(f"{launched}\n{told}")
    at, keep = AT_BY_HAND[0] + "; W=$AT/work", KEEP_WITHOUT_LEASE[0]
    told = night.pastes(at, keep, LOOK, SEAL, FETCH, PROVE)

    assert LOADS in told, told
    assert SETTLED in told, told
    seal = json.loads((tmp_path / "manifest.json").read_text("utf-8"))
    sealed = {entry["name"] for entry in seal["entries"]}
    assert {"work/out/metrics.json", "work/train.py", "log/run-1.log"} <= sealed
    assert (tmp_path / "kept/log/run-1.log").read_text("utf-8") == "trained\n"


def test_the_plain_launch_of_phase_3_returns_while_its_job_runs_which_outlives_the_connection(
    night: Night, tmp_path: Path
) -> None:
    """A job that waits for a word can be told it only once the line has returned."""
    night.knows("HOST")
    work = tmp_path / "box/home/t/work"
    work.mkdir(parents=True)
    (work / "train.py").write_text(
        "import pathlib, sys, time\n"
        "print('waits')\n"
        "for _ in range(600):\n"
        "    if pathlib.Path('go').exists():\n"
        "        sys.exit(7)\n"
        "    time.sleep(0.1)\n",
        encoding="utf-8",
    )

    told = night.types(LAUNCH_WITHOUT_PYTHON, tmp_path)
    wait_until(lambda: (work / "run.log").exists() and (work / "run.log").read_text() == "waits\n")
    unended = not (work / "run.exit").exists()
    night.leaves()
    (work / "go").touch()
    wait_until(lambda: (work / "run.exit").exists() and bool((work / "run.exit").read_text()))

    assert (told, unended) == ("", True)
    assert (work / "run.exit").read_text("utf-8") == "7\n"


@pytest.mark.parametrize(
    ("script", "status"), [("open('out/w', 'w').write('7')", "0"), ("raise SystemExit(3)", "3")]
)
def test_a_tail_that_ends_the_box_does_so_after_a_crash_too_once_the_copy_is_equal(
    tmp_path: Path, script: str, status: str
) -> None:
    told = tail_of(tmp_path, script)

    assert told.splitlines()[-1:] == ["ends the box"], told
    assert (tmp_path / "net/r/rc").read_text("utf-8") == f"{status}\n"


def test_a_tail_whose_copy_failed_leaves_the_box_running_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "net").write_text("no directory", encoding="utf-8")

    told = tail_of(tmp_path, "print('trained')")

    assert "ends the box" not in told
    assert told.splitlines()[-1:] == ["alarms"], told


def test_a_tail_whose_copy_failed_at_first_tries_again_and_then_ends_the_box(
    tmp_path: Path,
) -> None:
    (tmp_path / "net").write_text("no directory", encoding="utf-8")

    told = tail_of(tmp_path, "print('trained')", pause="rm -f net && mkdir net")

    assert told.splitlines() == ["ends the box"], told
    assert (tmp_path / "net/r/rc").read_text("utf-8") == "0\n"


def tail_of(directory: Path, script: str, pause: str = ":") -> str:
    """What the page's tail of a script says, where `END` and `ALARM` only say what they would do.

    `pause` is done in the place of each wait before the next try.
    """
    required("bash")
    (directory / "out").mkdir()
    (directory / "train.py").write_text(script, encoding="utf-8")
    tail = TAIL.replace("END", "echo ends the box").replace("ALARM", "echo alarms")
    told = subprocess.run(
        ["bash", "-c", f"K={directory / 'net'}\nsleep() {{ {pause}; }}\n{tail}"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return told.stdout


def ended(night: Night) -> None:
    """Its job has ended, and left two files: one with a name that needs care."""
    night.trains('mkdir out; echo {} > out/metrics.json; echo 1 > "out/a b%.txt"')
    for _ in range(100):
        if '"state":"finished"' in night.pastes(SEAL, f'box "python3 $C --home {HOME} status"'):
            return
    pytest.fail("the job did not end")


def test_what_is_sealed_comes_home_is_compared_loads_and_is_sealed_again(night: Night) -> None:
    ended(night)

    told = night.pastes(LOOK, SEAL, FETCH, PROVE)

    assert LOADS in told, told
    assert SETTLED in told, told


def test_a_file_in_the_home_that_nobody_claims_is_a_gap_until_it_is_kept(night: Night) -> None:
    ended(night)
    night.on_box("echo mine > notes.txt")

    assert LOADS not in night.pastes(SEAL, FETCH, PROVE)

    told = night.pastes("KEEP=\"--artifact '~/notes.txt'\"", SEAL, FETCH, PROVE)
    assert LOADS in told, told
    assert SETTLED in told, told


def test_what_is_written_after_the_seal_is_noticed_before_the_end(night: Night) -> None:
    ended(night)

    told = night.pastes(SEAL, FETCH, "box 'echo late > gpu-tenant/LEASE/work/out/late'", PROVE)

    assert LOADS in told, told
    assert SETTLED not in told, told


def test_a_box_whose_job_still_runs_is_not_sealed(night: Night) -> None:
    night.trains("mkdir out; sleep 30")

    told = night.pastes(SEAL, FETCH, PROVE, 'box "python3 $C --home $AT/caretaker stop --job j1"')

    assert "JOB_RUNNING" in told, told
    assert LOADS not in told, told
    assert SETTLED not in told, told


def test_a_copy_on_a_disk_of_the_platform_s_is_compared_there(night: Night, tmp_path: Path) -> None:
    night.trains("mkdir out; echo {} > out/metrics.json")
    disk = tmp_path / "disk"

    for _ in range(100):
        told = night.pastes(f"K={disk}", SEAL, ELSEWHERE)
        if "the same" in told:
            break

    assert "the same" in told, told
    assert (disk / "work/out/metrics.json").is_file()
    assert (disk / "caretaker/jobs/j1/log").is_file()


def test_without_python_there_two_looks_are_compared_with_the_copy(night: Night) -> None:
    night.on_box("mkdir -p gpu-tenant/LEASE/work && echo 1 > gpu-tenant/LEASE/work/m && echo 2 > n")

    told = night.pastes(NO_PYTHON)

    assert "the same" in told, told
    assert "box/home/n" in told, "what lies outside of the work directory is named"
