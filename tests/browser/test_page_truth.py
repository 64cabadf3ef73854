"""What the page says of a job and its box is so now, or it says since when it is not known."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from decimal import Decimal

import pytest
import pytest_asyncio
from browser.conftest import NewTab
from browser.pictures import picture
from browser.served import Dashboard
from browser.states import Renter, Work, dashboard_of, renter_at
from browser.tab import Tab
from e2e.leased import end_processes
from playwright.async_api import expect
from waited import over

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATIENCE_MS = 90_000
MEASURES = """\
echo "step 1 loss=0.9 val_loss=0.8"
step=1
until [ -e "$1" ]; do
  step=$((step + 1))
  echo "step $step loss=0.5"
  sleep 0.3
done
"""
"""The validation loss once, and then the loss alone, until a file is there."""


@dataclass
class Scene:
    """A rented box whose job has failed, and a box of this computer with two jobs of which one has ended."""

    dashboard: Dashboard
    work: Work
    rented: str
    ours: str


@pytest.fixture(scope="module")
def renter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renter]:
    root = tmp_path_factory.mktemp("truth")
    with renter_at("vastai", root) as made:
        yield made
        end_processes(root / "stage" / "tenant" / "boxes")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(renter: Renter) -> AsyncIterator[Scene]:
    work = Work(renter.root / "work")
    (work.tree / "measures.sh").write_text(MEASURES, encoding="utf-8")
    rented = await renter.rents(hours=4)
    async with renter.tenancy() as tenancy:
        await work.goes_on(tenancy, rented, command="exit 3")
        assert (await over(tenancy, rented)).state == "failed"
        ours = (await tenancy.provision(smoke="none")).lease
        await work.goes_on(tenancy, ours, command="true", name="short")
        await tenancy.launch_detached(
            ours, work.command.replace("train.sh", "measures.sh"), ["out/"], name="long"
        )
    with dashboard_of(renter, renter.root) as dashboard:
        yield Scene(dashboard, work, rented, ours)
        work.let_it_end()


@pytest.fixture
def dashboard(scene: Scene) -> Dashboard:
    return scene.dashboard


async def test_a_failed_job_on_a_box_that_bills_needs_attention(tab: Tab, scene: Scene) -> None:
    row = tab.page.locator(".group.is-attention li.lease").filter(has_text=scene.rented)
    await expect(row).to_be_visible(timeout=PATIENCE_MS)

    await expect(row.locator(".pill")).to_have_text("Job failed")
    await expect(row).to_have_class(re.compile("is-bad"))
    await expect(row).to_contain_text("The box bills on until it is torn down.")
    await expect(tab.page).to_have_title(re.compile(r"▲ 1 ·"))
    await expect(row.locator(".since")).to_have_text(
        re.compile(r"That was .+\. It has cost\s+[\d.]+\s+USD\s+since\.")
    )
    first = tab.page.locator("main .group").first
    await expect(first.locator("h2")).to_contain_text("Do this")
    await expect(row.locator(".doing button").first).to_have_text("Collect, then end it")
    await expect(row.locator(".doing button").first).to_have_class(re.compile("is-primary"))


async def test_how_a_job_ended_is_said_by_the_record_before_anybody_has_looked(
    new_tab: NewTab, scene: Scene
) -> None:
    unseen = scene.dashboard.shows("/api/overview")
    for row in unseen["leases"]:
        row["job"] = None
    async with new_tab(scene.dashboard) as tab:
        told = f"event: overview\ndata: {json.dumps(unseen)}\n\n"
        headers = {"content-type": "text/event-stream"}
        await tab.page.route(
            "**/api/stream*", lambda route: route.fulfill(body=told, headers=headers)
        )
        await tab.page.goto(scene.dashboard.link)

        work = tab.row(scene.rented).locator(".is-job")
        await expect(work).to_contain_text("failed")
        await expect(work).not_to_contain_text("not looked at yet")


async def test_that_nobody_watches_comes_with_the_command_to_copy(tab: Tab, scene: Scene) -> None:
    await tab.button("Copy the command gpu-tenant watchdog").click()

    copied = await tab.page.evaluate("() => navigator.clipboard.readText()")
    assert copied == "gpu-tenant watchdog"


async def test_what_nobody_bills_is_folded_while_anything_else_is_there(
    tab: Tab, scene: Scene
) -> None:
    free = tab.page.locator("details.is-free")
    await expect(free.locator("summary")).to_contain_text("Nobody bills", timeout=PATIENCE_MS)

    await expect(tab.row(scene.ours)).to_be_hidden()
    await free.locator("summary").click()
    await expect(tab.row(scene.ours)).to_be_visible()
    await picture(tab, "do-this")


async def test_a_lease_that_needs_nobody_has_one_line_with_what_was_measured(
    tab: Tab, scene: Scene
) -> None:
    await tab.page.locator("details.is-free summary").click(timeout=PATIENCE_MS)
    row = tab.row(scene.ours)
    await expect(row).to_have_class(re.compile("is-fine"))
    spark = row.locator("svg.spark")
    await expect(spark).to_be_visible(timeout=PATIENCE_MS)

    box = await row.bounding_box()
    assert box is not None
    assert box["height"] < 56, "a line, with its button"
    name = await spark.get_attribute("aria-label") or ""
    points = (await spark.locator("polyline").get_attribute("points") or "").split()
    assert re.match(rf"loss at {len(points)} measured points, from ", name), name


async def test_a_moment_in_a_sentence_of_the_server_is_by_the_clock_of_the_page(
    tab: Tab, scene: Scene
) -> None:
    fence = tab.row(scene.rented).locator(".is-fence")
    await expect(fence).to_contain_text("it stops the jobs", timeout=PATIENCE_MS)

    # One line; the whole of it is behind that.
    await expect(fence.locator("time").first).to_be_hidden()
    await fence.locator("summary").click()
    await expect(fence.locator("time").first).to_be_visible()
    await expect(fence).not_to_contain_text("UTC")


async def test_a_job_that_has_ended_is_not_shown_as_running_beside_one_that_runs(
    tab: Tab, scene: Scene
) -> None:
    await tab.go(f"#/lease/{scene.ours}")
    chips = tab.page.locator(".joblist li")
    await expect(chips.filter(has_text="short")).to_contain_text("finished", timeout=PATIENCE_MS)
    await expect(chips.filter(has_text="long")).to_contain_text("running")

    await expect(tab.page.locator("#job-title")).to_contain_text("long")


async def test_a_chart_has_a_point_for_each_measurement_and_no_more(tab: Tab, scene: Scene) -> None:
    await tab.go(f"#/lease/{scene.ours}/job/long")
    tables = {
        name: tab.page.locator("details.as-table").filter(
            has=tab.page.get_by_role("columnheader", name=name, exact=True)
        )
        for name in ("loss", "val_loss")
    }
    summaries = tab.page.locator("details.as-table > summary")
    await expect(summaries.nth(1)).to_be_visible(timeout=PATIENCE_MS)
    for at in (0, 1):
        await summaries.nth(at).click()
    rows = tables["loss"].locator("tbody tr")
    before = await rows.count()
    await expect(rows.nth(before + 20)).to_be_attached(timeout=PATIENCE_MS)

    assert await tables["val_loss"].locator("tbody tr").count() == 1


async def test_a_teardown_of_a_box_of_this_computer_says_that_its_directory_goes(
    tab: Tab, scene: Scene
) -> None:
    dialog = await tab.begin(scene.ours, "Verify and tear down")

    await expect(dialog).to_contain_text("its directory on this computer is deleted")
    await expect(dialog).to_contain_text("Nobody bills for it, so no bill ends")
    await expect(dialog).not_to_contain_text("handed back")


async def test_the_job_of_an_outbid_box_is_grey_with_its_age_and_has_one_next_step(
    tab: Tab, scene: Scene, renter: Renter
) -> None:
    async with renter.tenancy() as tenancy:
        await tenancy.launch_detached(scene.rented, scene.work.command, ["out/"], name="again")
        box = tenancy.ledger.lease(scene.rented).box_id
    row = tab.row(scene.rented)
    await expect(row.locator(".state")).to_have_text("running", timeout=PATIENCE_MS)

    renter.befalls("outbid", box=box)

    await expect(row.locator(".state.is-soft")).to_have_text("was running", timeout=PATIENCE_MS)
    await expect(row).to_contain_text(re.compile(r"seen .+ ago"))
    await expect(row).not_to_contain_text("ends in")
    await expect(row.locator(".doing button").first).to_have_text("Resume")
    await expect(row).to_contain_text("resume")
    await expect(row).not_to_contain_text("Go on elsewhere")

    # The page asks for the job's log, too, and a dashboard that ends waits for no box.
    async with tab.page.expect_response(re.compile("/readings"), timeout=PATIENCE_MS) as read:
        await tab.go(f"#/lease/{scene.rented}")
        await expect(tab.page.locator(".job-head")).to_contain_text("was running")
        await expect(tab.page.locator(".job-head")).to_contain_text("as it was last seen")
    assert (await read.value).ok


async def test_the_next_step_is_in_the_language_of_the_page(tab: Tab, scene: Scene) -> None:
    spoken = await tab.page.evaluate(
        """async () => {
          const {said, setLang} = await import("/page/words.js");
          await setLang("zh");
          const told = [
            "`gpu-tenant collect a`, then `gpu-tenant teardown a`: its work has ended",
            "what nobody foresaw, at `a`",
          ].map(said);
          await setLang("en");
          return told;
        }"""
    )

    assert spoken == [
        "`gpu-tenant collect a`，然后 `gpu-tenant teardown a`：任务已经结束",
        "what nobody foresaw, at `a`",
    ]


async def test_one_button_collects_what_a_finished_job_made_and_ends_the_bill(
    tab: Tab, scene: Scene, renter: Renter
) -> None:
    async with renter.tenancy() as tenancy:
        card = await tenancy.provision(
            "local", smoke="none", price_usd_h=Decimal(2), max_price_usd_h=Decimal(3)
        )
        await scene.work.goes_on(
            tenancy, card.lease, command="mkdir -p out && echo '[1]' >out/model.json", name="made"
        )
        assert (await over(tenancy, card.lease)).state == "finished"
    row = tab.row(card.lease)
    await expect(row).to_contain_text("Its job has ended.", timeout=PATIENCE_MS)

    await row.get_by_role("button", name="Collect, then end it").click()
    await tab.dialog.get_by_role("button", name="Collect, then end it").click()

    await expect(tab.dialog).to_contain_text("Done", timeout=PATIENCE_MS)
    receipt = scene.dashboard.shows(f"/api/leases/{card.lease}")["receipt"]
    assert receipt["ground"] == "verified"
    assert receipt["kept_files"] >= 1
