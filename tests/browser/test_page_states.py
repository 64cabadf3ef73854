"""What the page shows when there is nothing, when it has no key, when its server or a box is away."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from browser.conftest import NewTab
from browser.pictures import picture
from browser.served import Dashboard
from browser.states import Work, dashboard_of, somebody
from browser.tab import Tab
from e2e.people import Person, nothing_left_on
from playwright.async_api import expect
from sshd import Sshd

pytestmark = pytest.mark.asyncio(loop_scope="session")

AWAY = (
    "ERR_CONNECTION_REFUSED|ERR_INTERNET_DISCONNECTED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET"
)
NO_KEY = "answer 401|status of 401"


@dataclass
class Behind:
    """A lease on a box behind an sshd, where a job runs."""

    box: Sshd
    lease: str


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with somebody(tmp_path_factory.mktemp("states")) as made:
        yield made


@pytest.fixture(scope="module")
def dashboard(person: Person) -> Iterator[Dashboard]:
    with dashboard_of(person, person.home) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def behind(person: Person) -> AsyncIterator[Behind]:
    root = person.home / "box"
    work = Work(person.home / "work")
    with (
        pytest.MonkeyPatch.context() as patch,
        nothing_left_on(root / "home"),
        Sshd(root, authorized=person.public_key) as box,
    ):
        # The client of ssh reads the configuration of whoever is at this computer.
        patch.setenv("HOME", str(person.home))
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        async with person.tenancy() as tenancy:
            lease = (await tenancy.provision("own", box.target)).lease
            await work.goes_on(tenancy, lease)
        yield Behind(box, lease)


async def test_without_a_lease_it_says_so_and_where_to_begin(tab: Tab) -> None:
    await tab.says("Nothing is leased, and no lease bills")
    await tab.says("gpu-tenant demo")
    await expect(tab.page.get_by_text("Live", exact=True)).to_be_visible()
    await picture(tab, "nothing-leased")


async def test_a_lease_that_does_not_exist_is_an_error_with_a_way_on(tab: Tab) -> None:
    tab.may_say("answer 404|answer 400|status of 40[04]")
    await tab.go("#/lease/nowhere-aaaa")
    await tab.says("There is no such lease")
    await picture(tab, "no-such-lease")
    await tab.page.get_by_role("main").get_by_role("link", name="To the leases").click()
    await tab.says("Nothing is leased, and no lease bills")


async def test_a_view_that_does_not_exist_leads_back(tab: Tab) -> None:
    await tab.go("#/elsewhere")
    await tab.page.get_by_role("link", name="To the leases").click()
    await tab.says("Nothing is leased, and no lease bills")


async def test_without_the_link_s_token_nothing_is_shown_but_how_to_get_it(
    new_tab: NewTab, dashboard: Dashboard
) -> None:
    async with new_tab(dashboard) as tab:
        tab.may_say(NO_KEY)
        await tab.page.goto(dashboard.url)
        await tab.says("No key to this dashboard")
        await tab.says("gpu-tenant dashboard")
        await tab.says("Your boxes and leases go on as they are, and so do their bills")
        await picture(tab, "no-key")

        await tab.open()
        await tab.says("Nothing is leased, and no lease bills")


async def test_a_box_that_does_not_answer_is_unknown_and_not_dead(
    tab: Tab, dashboard: Dashboard, behind: Behind
) -> None:
    await tab.go(f"#/lease/{behind.lease}/log")
    await expect(tab.page.locator(".log-line").get_by_text("loss=").last).to_be_visible()

    behind.box.kill_sessions()
    behind.box.stop()
    unseen = tab.page.get_by_text("The box does not answer").first
    await expect(unseen).to_be_visible(timeout=60_000)
    await tab.says("That is unknown, and not dead")
    # Nobody bills for a machine of one's own, and nobody knows that it runs.
    head = tab.page.locator(".leasepage")
    await expect(head.locator(".pill").first).to_have_text("Does not answer")
    await expect(head).not_to_contain_text("billing")
    await expect(head.get_by_text(f"gpu-tenant ssh {behind.lease}")).to_be_visible()
    await picture(tab, "blind-box")
    dialog = await tab.begin(behind.lease, "Look again")
    await dialog.get_by_role("button", name="Look again").click()
    await expect(dialog.locator(".outcome.is-bad")).to_be_visible()
    await dialog.get_by_role("button", name="Close").last.click()
    card = dashboard.shows(f"/api/leases/{behind.lease}")["row"]["card"]
    assert card["state"] == "active"

    behind.box.restart()
    await expect(unseen).to_be_hidden(timeout=60_000)


async def test_what_was_known_stays_while_the_server_is_away_and_goes_on_after(
    tab: Tab, behind: Behind
) -> None:
    tab.may_say(AWAY)
    await tab.go(f"#/lease/{behind.lease}/log")
    await expect(tab.page.locator(".log-line").last).to_be_visible()

    await tab.page.context.set_offline(True)
    # An open stream outlives that; the overview has one of its own.
    await tab.go("#/")
    await expect(tab.page.get_by_text("Offline", exact=True)).to_be_visible(timeout=60_000)
    await tab.says("All of this is as of")
    await expect(tab.row(behind.lease)).to_be_visible()
    # Nothing is offered that could not be done, but what helps.
    row = tab.row(behind.lease)
    await expect(row.locator(".doing button").first).to_be_disabled()
    await expect(tab.button("Copy the command gpu-tenant dashboard")).to_be_visible()
    await expect(tab.page.locator(".meter")).to_contain_text("Burning, as of")
    boxes = [await row.locator(part).bounding_box() for part in (".is-job dd", ".is-deadline")]
    assert boxes[0]
    assert boxes[1]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    await picture(tab, "offline")

    await tab.page.context.set_offline(False)
    await expect(tab.page.get_by_text("Live", exact=True)).to_be_visible(timeout=60_000)
    await expect(tab.page.get_by_text("All of this is as of")).to_be_hidden()


async def test_after_a_new_start_the_old_page_asks_for_the_new_link(
    tab: Tab, dashboard: Dashboard
) -> None:
    tab.may_say(f"{AWAY}|{NO_KEY}|ERR_EMPTY_RESPONSE|ERR_SOCKET_NOT_CONNECTED")
    dashboard.end()
    await expect(tab.page.get_by_text("Offline", exact=True)).to_be_visible(timeout=60_000)

    dashboard.start_again()
    await tab.says("No key to this dashboard")

    await tab.open()
    await expect(tab.page.get_by_text("Live", exact=True)).to_be_visible()
