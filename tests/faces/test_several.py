"""One command on many leases: all at once, each told in its place, and none hides another."""

import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_tenant.app import open_tenancy
from gpu_tenant.concurrency import each
from gpu_tenant.faces.cli import main


def run(home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """The command, in this process: a dozen interpreters would start longer than all of it takes."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_TENANT_HOME", str(home / ".gpu-tenant"))
        patch.setattr(sys, "argv", ["gpu-tenant", *argv])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as ended:
                status = int(str(ended.code or 0))
    return subprocess.CompletedProcess(argv, status, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a fleet of three local boxes, each with a job of its own making."""
    made = tmp_path_factory.mktemp("several")
    card = json.loads(run(made, "provision", "--smoke", "none", "--count", "3", "--json").stdout)
    assert card["together"]["had"] == 3
    (made / "tree").mkdir()
    (made / "tree" / "job.sh").write_text("mkdir out; echo 1 >out/a.txt\n", encoding="utf-8")
    return made


def fleet(home: Path) -> list[str]:
    listed = json.loads(run(home, "leases", "--all", "--json").stdout)["leases"]
    return [row["lease"] for row in listed if row["fleet"] == "fl-1"]


def test_the_same_command_again_makes_no_second_fleet(home: Path) -> None:
    again = run(home, "provision", "--smoke", "none", "--count", "3")

    assert again.returncode == 0
    assert "fl-1: 3 of 3" in again.stdout
    assert len(fleet(home)) == 3


def test_all_of_them_are_audited_by_one_command(home: Path) -> None:
    told = run(home, "audit", "--all", "--json")

    answers = json.loads(told.stdout)
    assert [answer["lease"] for answer in answers] == fleet(home)
    assert told.returncode == (1 if any(answer["blockers"] for answer in answers) else 0)


def test_what_fails_on_one_stands_in_its_place_and_the_others_are_done(home: Path) -> None:
    first, second, third = fleet(home)
    tree = str(home / "tree")

    told = run(home, "push", tree, third, "nobody", first)
    as_json = json.loads(run(home, "push", tree, third, "nobody", first, "--json").stdout)

    assert told.returncode == 2
    assert [line.split()[0] for line in told.stdout.splitlines()] == [third, "nobody", first]
    assert told.stdout.splitlines()[1].split()[1] == "UNKNOWN_LEASE"
    assert "hint: `gpu-tenant leases --all` lists them" in told.stderr
    assert [list(answer)[:2] for answer in as_json] == [
        ["lease", "directory"],
        ["lease", "error"],
        ["lease", "directory"],
    ]
    assert second not in told.stdout


def test_several_are_watched_collected_and_torn_down(home: Path) -> None:
    leases = fleet(home)
    run(home, "push", str(home / "tree"), "--fleet", "fl-1")
    for lease in leases:
        run(home, "launch", "--lease", lease, "--artifact", "out/", "--", "sh job.sh")
    run(home, "monitor", leases[2], "--follow")

    watched = run(home, "monitor", "fl-1", "--wait-s", "20")
    early = run(home, "teardown", *leases)
    collected = run(home, "collect", *leases[:2])
    with_a_place = run(home, "collect", *leases[:2], "--to", str(home / "x"))
    ended = run(home, "teardown", "--all")

    assert watched.stdout.count("finished, status 0") == 3
    assert (early.returncode, early.stdout.count("UNVERIFIED")) == (3, 3)
    assert collected.returncode == 0
    assert with_a_place.returncode == 0
    assert {at.name for at in (home / "x").iterdir()} == set(leases[:2])
    assert ended.returncode == 3, "the third was not collected, and its refusal is the worst"
    assert [line.split()[1] for line in ended.stdout.splitlines()] == [
        "gone:",
        "gone:",
        "UNVERIFIED",
    ]


def test_ctrl_c_begins_no_other_and_leaves_nothing_half(tmp_path: Path) -> None:
    run(tmp_path, "provision", "--smoke", "none", "--count", "2")
    leases = fleet(tmp_path)
    (tmp_path / "tree").mkdir()
    for lease in leases:
        run(tmp_path, "push", str(tmp_path / "tree"), lease)
        run(
            tmp_path,
            "launch",
            "--lease",
            lease,
            "--artifact",
            "x",
            "--",
            "trap 'touch asked; sleep 1; exit 0' TERM; touch up; while :; do sleep 0.05; done",
        )
    works = [next(tmp_path.glob(f".gpu-tenant/boxes/{x}/**/gpu-tenant/{x}/work")) for x in leases]
    stopping = subprocess.Popen(
        [sys.executable, "-m", "gpu_tenant", "stop", "fl-1"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        while not all((work / "asked").exists() for work in works):
            assert stopping.poll() is None
            _ = signal.sigtimedwait([], 0.02)
        stopping.send_signal(signal.SIGINT)
        out, _ = stopping.communicate(timeout=120)
    finally:
        stopping.kill()

    assert stopping.returncode == 130
    assert [line.split()[0] for line in out.splitlines()] == leases, "both went on to their end"
    tenancy = open_tenancy({"GPU_TENANT_HOME": str(tmp_path / ".gpu-tenant")})
    for lease in leases:
        with tenancy.ledger.hold(lease, "test", at=tenancy.clock.now()):
            pass
    tenancy.ledger.close()
    assert run(tmp_path, "monitor", "fl-1").stdout.count("stopped") == 2


async def test_so_many_at_a_time_in_order_and_one_failure_stops_none() -> None:
    under_way, most = 0, 0

    async def work(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001 * (10 - number))
        under_way -= 1
        if number == 3:
            raise ValueError(number)
        return number

    came = await each(range(10), work, at_once=4)

    assert most == 4
    assert [x for x in came if not isinstance(x, Exception)] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert isinstance(came[3], ValueError)


@pytest.mark.parametrize(("begun", "ended"), [("is cut", []), ("goes on", [0, 1])])
async def test_what_is_cancelled_begins_nothing_more_and_leaves_nothing_running(
    begun: str, ended: list[int]
) -> None:
    let_go, began, done = asyncio.Event(), [], []

    async def work(number: int) -> None:
        began.append(number)
        await let_go.wait()
        done.append(number)

    crowd = asyncio.create_task(each(range(9), work, at_once=2, begun=begun))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    crowd.cancel()
    await asyncio.sleep(0)
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await crowd

    assert (began, done) == ([0, 1], ended)
