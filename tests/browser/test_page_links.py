"""A link leads to the same place in another tab, and the end of a job is told where it was asked for."""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from browser.served import Dashboard
from browser.states import Work, dashboard_of, somebody
from browser.tab import Tab
from e2e.people import Person
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATIENCE_MS = 90_000
HEARD = """\
window.notes = [];
window.Notification = class extends window.Notification {
  constructor(title, how) { super(title, how); window.notes.push(how.body); }
};
"""
"""The browser's own notifications, and a list of what they said."""


@dataclass
class Running:
    """A lease whose job runs until the work lets it end."""

    lease: str
    work: Work


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with somebody(tmp_path_factory.mktemp("links")) as made:
        yield made


@pytest.fixture(scope="module")
def dashboard(person: Person) -> Iterator[Dashboard]:
    with dashboard_of(person, person.home) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running(person: Person) -> AsyncIterator[Running]:
    work = Work(person.home / "work")
    async with person.tenancy() as tenancy:
        lease = await work.launched(tenancy)
    yield Running(lease, work)
    work.let_it_end()


async def test_what_is_wished_for_is_in_the_address_and_the_way_back_leads_to_it(tab: Tab) -> None:
    page = tab.page
    await tab.go("#/offers")
    await page.get_by_label("Hours of work").fill("7")
    await tab.button("Find offers").click()
    await expect(page).to_have_url(re.compile(r"#/offers\?.*hours=7"))
    link = page.url

    await page.get_by_label("Hours of work").fill("9")
    await tab.button("Find offers").click()
    await expect(page).to_have_url(re.compile("hours=9"))
    # No person goes back before the browser has told the page of its new address.
    await page.evaluate("() => new Promise((done) => setTimeout(done, 100))")
    await page.go_back()
    await expect(page).to_have_url(link)
    await expect(page.get_by_label("Hours of work")).to_have_value("7")

    pasted = await page.context.new_page()
    await pasted.goto(link)
    await expect(pasted.get_by_label("Hours of work")).to_have_value("7")
    await expect(pasted.locator(".found, .trouble").first).to_be_visible()
    await pasted.close()


async def test_a_link_to_a_search_leads_to_its_line(tab: Tab, running: Running) -> None:
    page = tab.page
    await tab.go(f"#/lease/{running.lease}/log")
    search = page.get_by_role("searchbox", name="Search the whole log")
    await search.fill("step 3/4000")
    await search.press("Enter")
    await expect(page).to_have_url(
        re.compile(rf"#/lease/{running.lease}/log/train\?q=step\+3%2F4000"), timeout=PATIENCE_MS
    )
    await expect(page.locator(".log-said")).to_have_text("1 hit")
    await search.press("Enter")
    await expect(page).to_have_url(re.compile(r"&at=\d+$"))
    link = page.url

    pasted = await page.context.new_page()
    await pasted.goto(link)
    await expect(pasted.get_by_role("searchbox")).to_have_value("step 3/4000")
    await expect(pasted.locator(".log-line.is-found")).to_contain_text("step 3/4000")

    await pasted.goto(link.replace("q=step+3%2F4000&", ""))
    await pasted.reload()
    await expect(pasted.locator(".log-line.is-found")).to_contain_text("step 3/4000")
    await pasted.close()


async def test_the_browser_tells_of_a_job_s_end_only_to_who_has_asked_for_it(
    tab: Tab, running: Running
) -> None:
    page = tab.page
    await page.context.grant_permissions(["notifications"], origin=tab.dashboard.url)
    await page.add_init_script(HEARD)
    await page.reload()
    row = tab.row(running.lease)
    await expect(row.locator(".state")).to_have_text("running", timeout=PATIENCE_MS)
    assert await page.evaluate("() => localStorage.getItem('gpu-tenant.notify')") is None

    await tab.go("#/settings")
    await tab.button("Turn on notifications").click()
    await tab.says("On: each alarm and each end of a job is shown once")
    assert await page.evaluate("() => window.notes") == []
    running.work.let_it_end()

    await page.wait_for_function("() => window.notes.length > 0", timeout=PATIENCE_MS)
    assert await page.evaluate("() => window.notes") == [
        f"The job train on {running.lease} has finished."
    ]
