"""A sweep over several boxes goes on whatever dies: nothing runs twice, nothing is lost, and the table says so."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.leased import end_processes
from signed import with_signature

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import Refused, SweepOpen
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.sweep_grid import Grid, grid_of
from gpu_tenant.domain.sweep_placement import Placement
from gpu_tenant.faces.cli.sweep import table as print_table
from gpu_tenant.leases.watch_actions import pull
from gpu_tenant.service import Tenancy
from gpu_tenant.sweeps.commands import (
    add_to_sweep,
    begin_sweep,
    give_up_cells,
    reckoned_of,
    retry_cells,
    settle_sweep,
    tend,
    tend_all,
    vacate,
)
from gpu_tenant.sweeps.status import Reckoning

CELL = """\
echo "$GPU_TENANT_CELL begun" >>"$2/ran"
case $GPU_TENANT_CELL in seed-flaky) [ "$(grep -c 'flaky begun' "$2/ran")" -ge 3 ] || exit 7;; esac
mkdir -p "out/$GPU_TENANT_CELL"
echo "$1" >"out/$GPU_TENANT_CELL/loss.txt"
case $GPU_TENANT_CELL in seed-[0-5]) ;; *) until [ -e "$2/go" ]; do sleep 0.2; done;; esac
echo "$GPU_TENANT_CELL done" >>"$2/ran"
"""
"""Seeds 0 to 5 end at once, the others when they may; one fails twice."""
SEEDS = [*range(59), "flaky"]
BOXES = 6

ADA = "the owner, typed at a terminal"


async def settled(tenancy: Tenancy) -> Reckoning:
    """The table, once a person has signed for what is wrong with it."""

    async def accept() -> Reckoning:
        return settle_sweep(tenancy.context, "sw-1")

    return await with_signature(tenancy, accept)


class Desk:
    """Somebody with some local boxes, and the file to which every cell adds its lines."""

    def __init__(self, tenancy: Tenancy, state: Path, outside: Path) -> None:
        self.tenancy, self.state, self.outside = tenancy, state, outside

    async def boxes(self, count: int) -> list[str]:
        """So many leases, each with the tree on its box."""
        tree = self.outside / "tree"
        tree.mkdir()
        (tree / "cell.sh").write_text(CELL, encoding="utf-8")
        found = [(await self.tenancy.provision(smoke="none")).lease for _ in range(count)]
        for lease in found:
            await self.tenancy.push(lease, str(tree))
        return found

    def let_them_end(self) -> None:
        (self.outside / "go").touch()

    def ran(self, what: str) -> Counter[str]:
        """How often each cell did that."""
        ran = self.outside / "ran"
        lines = ran.read_text(encoding="utf-8").splitlines() if ran.exists() else []
        return Counter(line.split()[0] for line in lines if line.endswith(what))

    def lose(self, lease: str) -> None:
        """The box is no more, with all that ran and lay there."""
        box = self.state / "boxes" / lease
        end_processes(box)
        box.rename(self.outside / f"lost-{lease}")

    def begin(self, *words: str) -> "subprocess.Popen[bytes]":
        """The command in a process of its own, which a test may kill."""
        return subprocess.Popen(
            [sys.executable, "-m", "gpu_tenant", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    async def tended_until_over(self, cells: int) -> Reckoning:
        """The table, once so many cells have ended and every box has said so."""
        # A look at every box costs more than one at a file.
        await until(lambda: self.ran("done").total() >= cells)
        for _ in range(60):
            if not (found := (await tend(self.tenancy.context, "sw-1")).table).still_open:
                return found
            await asyncio.sleep(0.5)
        raise AssertionError(found.words)


async def until(enough: Callable[[], object]) -> None:
    """It came to be so."""
    for _ in range(1800):
        if enough():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never did")


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    state = tmp_path / "state"
    monkeypatch.setenv("GPU_TENANT_HOME", str(state))
    (tmp_path / "outside").mkdir()
    tenancy = open_tenancy(os.environ)
    yield Desk(tenancy, state, tmp_path / "outside")
    await tenancy.aclose()


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    yield
    end_processes(tmp_path / "state" / "boxes")


def grid(desk: Desk, *seeds: object, run: str = "sh cell.sh {seed} {out}") -> Grid:
    return grid_of(
        run.replace("{out}", str(desk.outside)), artifacts=["out/{cell}/"], matrix={"seed": seeds}
    )


def of(placements: list[Placement], lease: str) -> list[str]:
    return [p.cell for p in placements if p.lease_id == lease and p.released is None]


async def killed_when(process: "subprocess.Popen[bytes]", enough: Callable[[], object]) -> None:
    """The process was killed, and had not ended before."""
    await until(enough)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()


async def test_sixty_cells_over_six_boxes_run_once_each_whoever_dies(desk: Desk) -> None:
    tenancy, ledger = desk.tenancy, desk.tenancy.ledger
    leases = await desk.boxes(BOXES)
    matrix = f"seed={','.join(map(str, SEEDS))}"
    launching = desk.begin(
        "launch",
        *leases,
        "--matrix",
        matrix,
        "--attempts",
        "3",
        "--artifact",
        "out/{cell}/",
        "--",
        f"sh cell.sh {{seed}} {desk.outside}",
    )
    await killed_when(launching, lambda: desk.ran("begun"))
    half = sum(1 for lease in leases for job in ledger.jobs(lease) if job.launched_at is None)

    # Another look does the rest; each box ends its first cell and is in its second.
    await tend(tenancy.context, "sw-1")
    await until(lambda: desk.ran("begun").total() >= 2 * BOXES)
    await tend(tenancy.context, "sw-1")
    assert len(ledger.placements("sw-1")) == len(SEEDS)
    lost = leases[2]
    was_there = of(ledger.placements("sw-1"), lost)
    came_home = 0
    for _ in range(15):
        # What was written in these seconds is left for the next look.
        if came_home := (await pull(tenancy.context, lost)).files:
            break
        await asyncio.sleep(1)
    busy = {cell for cell in was_there if desk.ran("begun")[cell] > desk.ran("done")[cell]}
    desk.lose(lost)
    while ledger.lease(lost).state is not LeaseState.LOST:
        await tenancy.list_leases()
    assert of(ledger.placements("sw-1"), lost) == was_there[:1], "its first cell is here"

    watching = desk.begin("sweep", "sw-1", "--watch")
    desk.let_them_end()
    await killed_when(watching, lambda: desk.ran("done").total() >= 30)
    over = await desk.tended_until_over(len(SEEDS))
    for lease in set(leases) - {lost}:
        await tenancy.collect(lease)
    end = reckoned_of(tenancy.context, "sw-1")

    print(f"\n{half} of 60 cells unconfirmed when the launch was killed; {came_home} files")
    print(
        f"came home of {lost} before it was lost with {len(was_there)} cells, {len(busy)} running"
    )
    for row in end.rows:
        print(f"{row.cell:<12} {row.state:<9} {row.lease:<12} {row.attempts}")
    print(end.words, end.wrong)
    assert (end.counts["verified"], end.wrong, over.wrong) == (len(SEEDS), (), ())
    begun, done = desk.ran("begun"), desk.ran("done")
    assert done == Counter({f"seed-{seed}": 1 for seed in SEEDS}), "each ended well once"
    assert {cell: times for cell, times in begun.items() if times != 1} == {
        "seed-flaky": 3,
        **dict.fromkeys(busy, 2),
    }, "only what failed, and what ran on the lost box, was begun again"
    for row in end.rows:
        kept = desk.state / "kept" / str(row.lease) / "work" / "out" / row.cell / "loss.txt"
        assert kept.read_text(encoding="utf-8").strip() == row.parameters["seed"]
    for lease in set(leases) - {lost}:
        assert (await tenancy.verify_and_teardown(lease)).state is LeaseState.GONE


async def test_a_box_is_kept_for_open_cells_and_not_for_a_doubt_about_their_work(
    desk: Desk,
) -> None:
    tenancy = desk.tenancy
    (lease,) = await desk.boxes(1)
    alike = grid(desk, 7, 8, 9, run="sh cell.sh $(({seed} / {seed})) {out}")
    await begin_sweep(tenancy.context, [lease], alike)

    with pytest.raises(SweepOpen, match="still to run there"):
        await tenancy.verify_and_teardown(lease)
    await settled(tenancy)
    with pytest.raises(SweepOpen, match="still to run there"):
        await tenancy.verify_and_teardown(lease)
    desk.let_them_end()
    await desk.tended_until_over(3)
    await tenancy.collect(lease)
    told = await tend(tenancy.context, "sw-1")
    assert told.table.wrong == (
        "the files of seed-7, seed-8, seed-9 are identical, although their parameters differ",
    )

    assert (await tenancy.verify_and_teardown(lease)).state is LeaseState.GONE


async def test_a_cell_that_failed_runs_once_more_by_the_identical_command(desk: Desk) -> None:
    tenancy = desk.tenancy
    (lease,) = await desk.boxes(1)
    desk.let_them_end()
    flaky = grid(desk, "flaky", 1)
    await begin_sweep(tenancy.context, [lease], flaky, attempts=2)
    failed = await desk.tended_until_over(1)
    again = await begin_sweep(tenancy.context, [lease], flaky, attempts=2)

    assert failed.wrong == (f"seed-flaky failed after 2 attempts on {lease}: exit 7",)
    assert again.table == failed, "the same launch begins nothing twice"
    with pytest.raises(Refused, match="seed-1 is finished"):
        await retry_cells(tenancy.context, "sw-1", ["seed-1"])
    await retry_cells(tenancy.context, "sw-1", ["seed-flaky"])
    await desk.tended_until_over(2)
    await tenancy.collect(lease)

    end = reckoned_of(tenancy.context, "sw-1")
    assert (end.words, end.wrong) == ("2 cells: 2 verified", ())
    assert {job.command for job in tenancy.ledger.jobs(lease) if "flaky" in job.id} == {
        flaky.command_of(flaky.cells[0])
    }
    assert (await tenancy.verify_and_teardown(lease)).state is LeaseState.GONE


async def test_a_cell_in_its_second_run_is_looked_at_and_stopped_by_its_own_name(
    desk: Desk,
) -> None:
    tenancy = desk.tenancy
    (lease,) = await desk.boxes(1)
    await begin_sweep(
        tenancy.context,
        [lease],
        grid(desk, 7, run="[ -e out ] && exec sleep 60; mkdir out; exit {seed}"),
        attempts=2,
    )
    await until(lambda: list((desk.state / "boxes" / lease).rglob("seed-7.2/started.json")))

    assert (
        await tenancy.follow(lease, "seed-7", cursor=None, wait_s=0, limit_bytes=9)
    ).job == "seed-7.2"
    stopped = await tenancy.stop_job(lease, "seed-7", grace_s=1)

    assert (stopped.job, stopped.state) == ("seed-7.2", "stopped")
    assert (await tenancy.monitor(lease, "seed-7", wait_s=0)).state == "stopped"


async def test_what_was_accepted_as_missing_does_not_run_again_when_its_box_has_gone(
    desk: Desk,
) -> None:
    tenancy, ledger = desk.tenancy, desk.tenancy.ledger
    lease, other = await desk.boxes(2)
    run = "echo {seed} begun >>{out}/ran; until [ -e {out}/go ]; do sleep 0.2; done; echo {seed} done >>{out}/ran"
    await begin_sweep(tenancy.context, [lease], grid(desk, 7, 8, 9, run=run))
    await until(lambda: desk.ran("begun"))
    given_up = await give_up_cells(tenancy.context, "sw-1", ["seed-8", "seed-9"])
    assert [row.state for row in given_up.table.rows] == ["running", "given_up", "given_up"]
    desk.let_them_end()
    await desk.tended_until_over(1)
    await tenancy.collect(lease, discard=["out/seed-7/"])
    assert (await settled(tenancy)).settled_by == ADA
    assert (await tenancy.verify_and_teardown(lease)).state is LeaseState.GONE

    left = await add_to_sweep(tenancy.context, "sw-1", [other])

    assert [row.state for row in left.table.rows] == ["missing", "given_up", "given_up"]
    assert of(ledger.placements("sw-1"), other) == []
    assert left.table.settled_by == ADA


async def test_a_box_that_joins_takes_over_what_waits_and_one_that_is_vacated_takes_nothing(
    desk: Desk,
) -> None:
    tenancy = desk.tenancy
    first, second = await desk.boxes(2)
    await begin_sweep(tenancy.context, [first], grid(desk, *range(7, 14)))
    await until(lambda: desk.ran("begun").total() == 1)

    joined = (await add_to_sweep(tenancy.context, "sw-1", [second])).table
    assert Counter(row.lease for row in joined.rows) == {first: 4, second: 3}
    await until(lambda: desk.ran("begun").total() == 2)
    await vacate(tenancy.context, second)

    left = await tend(tenancy.context, "sw-1", no_more_cells_on=tenancy.ledger.lease(second).id)
    assert Counter(row.lease for row in left.table.rows) == {first: 6, second: 1}
    desk.let_them_end()
    await desk.tended_until_over(7)
    assert set(desk.ran("begun").values()) == {1}


async def test_the_table_tells_the_metric_the_time_and_the_cost_by_cell_the_best_first(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    run = "mkdir -p out/{cell}; echo {lr} > out/{cell}/r; echo step 1 loss {lr} acc {lr}; echo x done >> {out}/ran"
    cells = grid_of(
        run.replace("{out}", str(desk.outside)),
        artifacts=["out/{cell}/"],
        matrix={"lr": [0.3, 0.1, 0.2]},
    )
    lease = (await desk.tenancy.provision(smoke="none", price_usd_h=Decimal("3.6"))).lease

    await begin_sweep(desk.tenancy.context, [lease], cells)
    await desk.tended_until_over(3)
    await desk.tenancy.collect(lease)
    tended = await tend(desk.tenancy.context, "sw-1")
    found = tended.table

    assert [row.cell for row in found.rows] == ["lr-0.1", "lr-0.2", "lr-0.3"]
    assert found.by == "loss, the lowest first"
    assert found.best is not None
    words, _, files = found.best.partition(": ")
    assert words == "lr-0.1, loss 0.1"
    assert (Path(files) / "r").read_text(encoding="utf-8") == "0.1\n"
    assert found.folder is not None
    assert {link.name for link in Path(found.folder).iterdir()} == {"lr-0.1", "lr-0.2", "lr-0.3"}
    assert (Path(found.folder) / "lr-0.3" / "r").read_text(encoding="utf-8") == "0.3\n"
    assert all(row.took_s is not None and row.cost_usd is not None for row in found.rows)
    assert "; best lr-0.1, loss 0.1" in (await tend_all(desk.tenancy.context))[0]
    highest = (await tend(desk.tenancy.context, "sw-1", by="acc")).table
    assert [row.cell for row in highest.rows] == ["lr-0.3", "lr-0.2", "lr-0.1"]
    print_table(tended)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == [
        "CELL",
        "STATE",
        "loss",
        "acc",
        "TIME",
        "COST",
        "BOX",
        "RUNS",
        "WHY",
    ]
    assert shown[1].split()[:4] == ["lr-0.1", "verified", "0.1", "0.1"]
    assert any(line.split()[:4] == ["best", "lr-0.1,", "loss", "0.1:"] for line in shown)
