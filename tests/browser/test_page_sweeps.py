"""A sweep on the page: what each cell came to, the best first, as the terminal's table has it."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from browser.chrome import barriers
from browser.conftest import NewTab
from browser.served import Dashboard
from browser.states import Renter, dashboard_of, renter_at
from e2e.leased import end_processes
from playwright.async_api import expect
from sshd import wait_until

from gpu_tenant.sweeps.commands import reckoned_of, tend

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATIENCE_MS = 90_000
CELL = """\
mkdir -p "$1"
echo '{}' >"$1/told.json"
case $2 in 0.1) loss=0.5;; 0.2) loss=0.25;; *) exit 3;; esac
echo "step 1/1 loss=$loss acc=0.9"
"""
"""Three cells, of which the second is the best, and the third fails before it tells anything."""
GRID = """\
mkdir -p "$1"
echo '{}' >"$1/told.json"
[ "$2$3" = 210 ] && exit 3
echo "step 1/1 loss=$(($2 + $3))"
"""
"""Four cells, of which the last fails."""
CHINESE = re.compile(r"[\u4e00-\u9fff]")


@dataclass
class Scene:
    """A dashboard with a sweep of three cells on a box of this computer."""

    dashboard: Dashboard
    lease: str


@pytest.fixture(scope="module")
def renter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renter]:
    root = tmp_path_factory.mktemp("sweeps")
    with renter_at("vastai", root) as made:
        yield made
        end_processes(root / "stage" / "tenant" / "boxes")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(renter: Renter) -> AsyncIterator[Scene]:
    tree = renter.root / "tree"
    tree.mkdir()
    (tree / "cell.sh").write_text(CELL, encoding="utf-8")
    async with renter.tenancy() as tenancy:
        lease = (await tenancy.provision(smoke="none")).lease
        await tenancy.push(lease, str(tree))
        await tenancy.launch_detached(
            lease, "sh cell.sh {cell} {lr}", ["{cell}/"], matrix={"lr": ["0.1", "0.2", "0.3"]}
        )
        while reckoned_of(tenancy.context, "sw-1").still_open:
            await tend(tenancy.context, "sw-1")
            await asyncio.sleep(0.2)
        await tenancy.collect(lease)
    with dashboard_of(renter, renter.root) as dashboard:
        yield Scene(dashboard, lease)


async def test_the_cells_are_shown_with_the_best_first_and_keep_nobody_out(
    new_tab: NewTab, scene: Scene, axe: Path
) -> None:
    async with new_tab(scene.dashboard, script=axe) as tab:
        await tab.open()
        await tab.button("Show the cells of sw-1").click(timeout=PATIENCE_MS)
        table = tab.page.get_by_role("region", name="Cells of sw-1, the best first")
        rows = table.locator("tbody tr")
        await expect(rows).to_have_count(3, timeout=PATIENCE_MS)

        head = await table.locator("thead th").all_inner_texts()
        first, second, last = [
            await row.locator("th, td").all_inner_texts() for row in await rows.all()
        ]
        assert head == [
            "Cell",
            "State",
            "loss",
            "acc",
            "Lasted",
            "Cost",
            "Lease",
            "What can be done",
        ]
        assert first[:4] == ["lr-0.2", "verified", "0.25", "0.9"]
        assert second[:4] == ["lr-0.1", "verified", "0.5", "0.9"]
        assert last[:4] == ["lr-0.3", "failed", "–", "–"]
        assert first[6] == scene.lease
        assert re.search(r"\d", first[4]), first
        for theme in ("light", "dark"):
            await tab.page.emulate_media(color_scheme=theme)
            assert not await barriers(tab.page)

        await tab.button("Hide the cells of sw-1").click()
        await expect(table).to_have_count(0)


async def test_a_sweep_over_two_parameters_is_drawn_and_a_failed_cell_runs_again(
    renter: Renter, new_tab: NewTab, axe: Path
) -> None:
    tree = renter.root / "grid"
    tree.mkdir()
    (tree / "cell.sh").write_text(GRID, encoding="utf-8")
    async with renter.tenancy() as tenancy:
        lease = (await tenancy.provision(smoke="none")).lease
        await tenancy.push(lease, str(tree))
        launched = await tenancy.launch_detached(
            lease,
            "sh cell.sh {cell} {a} {b}",
            ["{cell}/"],
            matrix={"a": ["1", "2"], "b": ["10", "9"]},
        )
        assert launched.sweep is not None
        sweep = launched.sweep.partition(":")[0]
        while reckoned_of(tenancy.context, sweep).still_open:
            await tend(tenancy.context, sweep)
            await asyncio.sleep(0.2)
        await tenancy.collect(lease)

    with dashboard_of(renter, renter.root / "other") as dashboard:
        async with new_tab(dashboard, script=axe) as tab:
            await tab.open()
            await tab.button(f"Show the cells of {sweep}").click(timeout=PATIENCE_MS)
            await tab.page.get_by_text("Draw it").click()
            heat = tab.page.get_by_role("region", name="loss over a and b").locator("table")
            told = [
                await row.locator("th, td").all_inner_texts()
                for row in await heat.locator("tr").all()
            ]
            assert told == [["b / a", "1", "2"], ["9", "10", "11"], ["10", "11", "–"]]
            lines = tab.page.get_by_role("img", name="3 cells over a, b to loss")
            await expect(lines.locator("polyline")).to_have_count(3)
            assert not await barriers(tab.page)

            # What one cell measured is laid over what another one did.
            await tab.go(f"#/lease/{lease}/job/a-1_b-9")
            await tab.button("Compare with another job").click()
            await tab.page.get_by_label("Compare with").select_option(f"{lease} a-2_b-9")
            chart = tab.page.locator(".chart").filter(has_text="loss").first
            await expect(chart.locator(".legend li")).to_have_text(
                ["a-1_b-9 10", f"{lease} a-2_b-9 11"]
            )
            rows = tab.page.get_by_role("region", name="Jobs side by side").locator("tbody tr")
            await expect(rows.locator("th")).to_have_text(["a-1_b-9", f"{lease} a-2_b-9"])
            assert [await row.locator("td").nth(1).inner_text() for row in await rows.all()] == [
                "10",
                "11",
            ]
            assert not await barriers(tab.page)
            await tab.button(f"Leave out {lease} a-2_b-9").click()
            await expect(chart.locator(".legend li")).to_have_count(0)
            await tab.go("#/")
            await tab.button(f"Show the cells of {sweep}").click(timeout=PATIENCE_MS)
            await tab.button("Run again: a-2_b-10").click()
            wait_until(
                lambda: any(
                    (one["verb"], one["state"]) == ("again", "done")
                    for one in dashboard.shows("/api/errands")["errands"]
                )
            )
    async with renter.tenancy() as tenancy:
        rows = {row.cell: row for row in reckoned_of(tenancy.context, sweep).rows}
        job = rows["a-2_b-10"].job
        assert job is not None
        assert job.endswith(".r2"), "it runs once more, under a name of its own"
        while reckoned_of(tenancy.context, sweep).still_open:
            await tend(tenancy.context, sweep)
            await asyncio.sleep(0.2)


async def test_the_table_is_in_chinese_and_a_sweep_that_is_unknown_is_told(
    new_tab: NewTab, scene: Scene
) -> None:
    async with new_tab(scene.dashboard, language="zh-CN") as tab:
        await tab.open()
        await tab.page.get_by_role("button", name="显示 sw-1").click(timeout=PATIENCE_MS)
        region = tab.page.get_by_role("region", name="sw-1 的各组参数")
        await expect(region.locator("tbody tr")).to_have_count(3, timeout=PATIENCE_MS)

        words = await region.locator("thead th").all_inner_texts()
        states = await region.locator("tbody td:nth-child(2)").all_inner_texts()
        assert [bool(CHINESE.search(word)) for word in words] == [
            True,
            True,
            False,
            False,
            True,
            True,
            True,
            True,
        ]
        assert states == ["已验证", "已验证", "失败"]

    status, _, told = scene.dashboard.ask("/api/sweeps/sw-9")
    assert status == 400
    assert "no sweep" in str(told)
