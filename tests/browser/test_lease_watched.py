"""A whole lease, from its first box to its receipt, watched in one page that is never loaded again."""

import json
import re
from collections.abc import Iterator

import pytest
from browser.pictures import picture
from browser.served import Dashboard
from browser.states import Work, dashboard_of, somebody
from browser.tab import Tab
from e2e.people import Person
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with somebody(tmp_path_factory.mktemp("watched")) as made:
        yield made


@pytest.fixture(scope="module")
def dashboard(person: Person) -> Iterator[Dashboard]:
    with dashboard_of(person, person.home) as served:
        yield served


async def test_a_lease_is_watched_from_its_first_moment_to_its_receipt(
    tab: Tab, person: Person, dashboard: Dashboard
) -> None:
    page, work = tab.page, Work(person.home / "work")
    await tab.says("Nothing is leased, and no lease bills")
    await page.evaluate("() => { window.since = 'the first moment'; }")

    # Somebody rents at a terminal, and the page shows it.
    provisioned = person.gpu_tenant("provision", "--smoke", "none", "--json")
    lease = json.loads(provisioned.out)["lease"]
    row = tab.row(lease)
    await expect(row).to_be_visible(timeout=30_000)
    assert person.gpu_tenant("push", str(work.tree), lease).status == 0
    launch = ("launch", "--lease", lease, "--artifact", "out/", "--name", "train", work.command)
    assert person.gpu_tenant(*launch).status == 0
    await expect(row).to_contain_text("running", timeout=30_000)
    await expect(row).to_contain_text(re.compile(r"\d+ % +loss [\d.]+"), timeout=30_000)
    await picture(tab, "overview-running")

    # Its log comes as it is written, in colours, and its charts grow.
    await row.get_by_role("link").first.click()
    chart = page.get_by_role("figure").or_(page.locator(".chart")).filter(has_text="loss").first
    await expect(chart.locator("canvas")).to_be_visible(timeout=30_000)
    job = page.locator(".job-way")
    before = await job.inner_text()
    await expect(job).not_to_have_text(before, timeout=30_000)
    await picture(tab, "lease-running")

    # Its curves are smoothed, drawn on another scale, and seen in part, and back again.
    await page.get_by_label("Logarithmic scale").check()
    await page.get_by_label("Smoothing").fill("0.6")
    await expect(chart).to_contain_text("smoothed by 0.6")
    await chart.scroll_into_view_if_needed()
    box = await chart.locator(".u-over").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + box["width"] * 0.2, middle)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=5)
    await page.mouse.up()
    await chart.get_by_role("button", name="Show the whole").click()
    await expect(chart.get_by_role("button", name="Show the whole")).to_have_count(0)
    await page.get_by_label("Logarithmic scale").uncheck()
    await page.get_by_role("link", name="Log", exact=True).click()
    lines = page.locator(".log-line")
    await expect(lines.filter(has_text="loss=").last).to_be_visible()
    await expect(page.locator(".log-line .a-fg-green").last).to_contain_text("step")
    newest = await lines.last.inner_text()
    await expect(lines.last).not_to_have_text(newest)
    await picture(tab, "log-running")

    # It ends; what it made is collected.
    work.let_it_end()
    await expect(lines.last).to_contain_text("trained enough", timeout=30_000)
    await page.get_by_role("link", name="Job", exact=True).click()
    await expect(page.locator(".job-head")).to_contain_text("finished", timeout=30_000)
    await tab.button("Collect").click()
    await tab.dialog.get_by_role("button", name="Collect").click()
    await expect(tab.dialog).to_contain_text("Done", timeout=30_000)
    await page.keyboard.press("Escape")
    await page.get_by_role("link", name=re.compile("^Files")).click()
    model = page.get_by_role("row").filter(has_text="out/model.json")
    await expect(model).to_be_visible()

    # It is verified and torn down, and each file has its evidence.
    await tab.begin(lease, "Verify and tear down")
    await tab.dialog.get_by_role("button", name="Verify and tear down").click()
    await expect(tab.dialog).to_contain_text("Verified, then destroyed", timeout=30_000)
    await page.keyboard.press("Escape")
    await expect(page.locator(".receipt")).to_contain_text(
        "Ended, and nothing that counts was lost"
    )
    await expect(page.locator(".receipt .proof li")).to_have_count(3)
    await model.locator("summary").click()
    await expect(model).to_contain_text("sha256")
    await expect(model).not_to_contain_text("not proved")
    await picture(tab, "receipt")
    await page.get_by_role("link", name="Leases", exact=True).first.click()
    await tab.says("Everything has ended, and no lease bills")
    await expect(page.get_by_role("rowheader", name=lease)).to_be_visible()

    assert dashboard.shows(f"/api/leases/{lease}")["receipt"]["ground"] == "verified"
    assert await page.evaluate("() => window.since") == "the first moment"
