"""Each state that costs money or data, as a person meets it: what is wrong, and the one thing to press."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import pytest_asyncio
from arranged import eventually
from browser.conftest import NewTab
from browser.pictures import picture
from browser.served import Dashboard
from browser.states import Renter, Work, dashboard_of, renter_at
from browser.tab import Tab
from e2e.leased import end_processes
from e2e.test_gpu_memory import TRAINS, a_training
from playwright.async_api import expect
from waited import over

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATIENCE_MS = 90_000
CODE = re.compile(r"type there: (\w{6})")
MAKES = "mkdir -p out && echo '[1]' >out/model.json"
LEAP_S = 6_600
"""So far the clock leaps once all boxes stand: a lease of two hours then ends within minutes."""

SEEN = {
    "crashed": ("Its job has failed, with exit code 3.", "Collect, then end it"),
    "finished": ("The box still costs 0.2267 USD/h until it is ended.", "Collect, then end it"),
    "parked": ("Its job has finished. Its files can be proved", "Start it, collect, then end it"),
    "outbid": ("the box starts, and no job does", "Resume"),
    "dear": ("the budget of 1.8 USD is used up, and the lease ends", "Raise budget and deadline"),
    "late": ("but the lease ends at", "Extend"),
}
"""For each scene the words that tell what is wrong, and the button that is the way out."""


@dataclass
class Scenes:
    """One lease for each scene, and the page that shows them."""

    dashboard: Dashboard
    leases: dict[str, str]


@pytest.fixture(scope="module")
def renter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renter]:
    root = tmp_path_factory.mktemp("glance")
    with renter_at("vastai", root) as made:
        yield made
        end_processes(root / "stage" / "tenant" / "boxes")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scenes(renter: Renter) -> AsyncIterator[Scenes]:
    work = Work(renter.root / "work")
    leases: dict[str, str] = {}
    async with renter.tenancy() as tenancy:
        tested = await tenancy.run_smoke(str(a_training(renter.root / "training")), TRAINS)

        async def runs(name: str, command: str | None = None, *, work_h: float = 4) -> str:
            quote = (await tenancy.find_offers(hours=work_h)).cheapest
            assert quote
            budget = Decimal("1.8") if name == "dear" else None
            hours = 6 if name == "dear" else None
            smoke = tested.id if name == "late" else "none"
            card = await tenancy.provision(
                smoke=smoke, quotes=[quote], hours=hours, budget_usd=budget, wait_s=3600
            )
            leases[name] = card.lease
            await work.goes_on(tenancy, card.lease, command=command)
            return card.lease

        for name, command in (("crashed", "exit 3"), ("finished", MAKES), ("parked", MAKES)):
            await over(tenancy, await runs(name, command))
        await runs("outbid")
        await runs("dear", work_h=1)
        await runs("late", work_h=1)
        await tenancy.collect(leases["parked"])
        await tenancy.change_lease(leases["parked"], "park")
        renter.befalls("outbid", box=tenancy.ledger.lease(leases["outbid"]).box_id)
        renter.ask("clock", {"advance_s": LEAP_S})
    with dashboard_of(renter, renter.root) as dashboard:
        yield Scenes(dashboard, leases)
        work.let_it_end()


@pytest.fixture
def dashboard(scenes: Scenes) -> Dashboard:
    return scenes.dashboard


@pytest.mark.parametrize("name", SEEN)
async def test_what_is_wrong_and_what_to_press_stand_first(
    tab: Tab, scenes: Scenes, name: str
) -> None:
    words, button = SEEN[name]
    await tab.go(f"#/lease/{scenes.leases[name]}")

    head = tab.page.locator(".leasepage")
    await expect(head).to_contain_text(words, timeout=PATIENCE_MS)
    first = tab.page.locator(".lease-do .verbs > button").first
    await expect(first).to_have_text(button, timeout=PATIENCE_MS)
    await expect(first).to_have_class(re.compile("is-primary"))
    # Of a box that is stopped it is known why it does not answer.
    await expect(head).not_to_contain_text("does not answer")
    await picture(tab, f"glance-{name}")


async def test_the_head_says_whether_the_job_ends_in_time_and_whether_the_gpu_is_too_small(
    tab: Tab, scenes: Scenes
) -> None:
    lease = scenes.leases["late"]
    await tab.go(f"#/lease/{lease}")

    outlook = tab.page.locator(".vital.is-outlook")
    await expect(outlook).to_contain_text("Whether its job ends in time", timeout=PATIENCE_MS)
    await expect(outlook).to_contain_text("but its deadline ends the lease before that")
    await expect(outlook.locator(".copy code")).to_contain_text(f"gpu-tenant extend {lease}")
    memory = tab.page.locator(".vital.is-memory")
    await expect(memory.locator("strong")).to_have_text(re.compile(r"^36\.\d GiB \(.+ to .+\)$"))
    await expect(memory).to_contain_text("24 GiB is too small, by the estimate of smoke-")
    await picture(tab, "glance-outlook-and-memory")

    await tab.go(f"#/lease/{scenes.leases['crashed']}")
    await expect(tab.page.locator(".vital").first).to_be_visible()
    await expect(outlook).to_have_count(0)
    await expect(memory).to_have_count(0)


async def test_an_offer_whose_gpu_is_too_small_for_what_was_tested_is_marked(
    tab: Tab, scenes: Scenes
) -> None:
    await tab.go("#/offers?gpu=RTX+4090&hours=2")

    small = tab.page.locator("li.offer").filter(has_text="24 GiB a GPU").first
    await expect(small).to_contain_text("too little GPU memory", timeout=PATIENCE_MS)
    await expect(small.locator(".notes")).to_contain_text("24 GiB is too small, by the estimate")


async def test_no_moment_is_shown_by_the_browsers_clock(new_tab: NewTab, scenes: Scenes) -> None:
    lease = scenes.leases["crashed"]
    said = scenes.dashboard.shows(f"/api/leases/{lease}")
    ends_at = datetime.fromisoformat(said["lease"]["deadline_at"])
    async with new_tab(scenes.dashboard) as tab:
        await tab.page.clock.set_system_time(ends_at + timedelta(days=3))
        # Without its stream the page knows what it has asked for, and no more.
        await tab.page.route("**/api/stream*", lambda _: None)
        await tab.page.goto(scenes.dashboard.link)
        await tab.go(f"#/lease/{lease}")
        deadline = tab.page.locator(".vital").filter(has_text="Deadline in")
        moment = await deadline.locator("time").get_attribute("datetime") or ""

        assert abs((datetime.fromisoformat(moment) - ends_at).total_seconds()) < 90
        await expect(deadline.locator(".countdown")).to_have_text(re.compile(r"^[0-4]:\d\d:\d\d$"))


async def test_all_that_needs_a_person_stands_above_all_that_does_not(
    tab: Tab, scenes: Scenes
) -> None:
    attention = tab.page.locator(".group.is-attention li.lease")
    for name in ("crashed", "finished", "outbid", "dear", "late"):
        await expect(attention.filter(has_text=scenes.leases[name])).to_be_visible(
            timeout=PATIENCE_MS
        )
    first = tab.page.locator("main .group").first
    await expect(first.locator("h2")).to_contain_text("Do this")
    await expect(attention.filter(has_text=scenes.leases["parked"])).to_have_count(0)
    await picture(tab, "glance-overview")


def is_late(card: Mapping[str, Any]) -> bool:
    """Whether the job ends after the deadline, by the pace that has been measured so far."""
    return (card["job_ends_in_s"] or 0) > card["deadline_in_s"]


async def test_one_dialog_gives_a_job_the_budget_and_the_time_that_it_needs(
    new_tab: NewTab, renter: Renter, scenes: Scenes
) -> None:
    lease = scenes.leases["dear"]
    async with renter.tenancy() as tenancy:
        agreed = tenancy.ledger.lease(lease).terms.deadline_at
    with dashboard_of(renter, renter.root / "signed", keyboard="person") as signed:
        async with new_tab(signed) as tab:
            await tab.open(f"#/lease/{lease}")
            await expect(tab.button("Raise budget and deadline")).to_be_visible(timeout=PATIENCE_MS)
            cards: list[Mapping[str, Any]] = []

            def late() -> bool:
                cards.append(signed.shows(f"/api/leases/{lease}")["row"]["card"])
                return is_late(cards[-1])

            assert eventually(late)
            card = cards[-1]
            dialog = await tab.begin(lease, "Raise budget and deadline")
            budget = float(await dialog.get_by_label("Budget in all, USD").input_value())
            hours = float(await dialog.get_by_label("Hours from now").input_value())
            assert budget > float(card["forecast_job_usd"])
            assert hours * 3600 > card["job_ends_in_s"] > card["deadline_in_s"]
            await dialog.get_by_role("button", name="Raise budget and deadline").click()

            # More than was agreed is for its owner to say, in the same dialog.
            await dialog.get_by_role("button", name="Look and sign").click()
            await dialog.get_by_label("To sign, type").fill(lease)
            assert eventually(lambda: CODE.search(signed.said))
            code = CODE.findall(signed.said)[-1]
            await dialog.get_by_label("Code from the dashboard's terminal").fill(code)
            await dialog.get_by_role("button", name="Sign, and go on").click()
            await expect(dialog).to_contain_text("The terms have changed.")
            await expect(tab.page.locator(".lease-says")).to_be_hidden()

        now = signed.shows(f"/api/leases/{lease}")["row"]["card"]
    assert (float(now["budget_usd"]), now["alarm"]) == (budget, None)
    # The rehearsal's time leaps where somebody waits: how much is left says less than until when.
    async with renter.tenancy() as tenancy:
        assert tenancy.ledger.lease(lease).terms.deadline_at > agreed


async def test_a_parked_box_whose_job_is_done_is_started_collected_and_ended_by_one_button(
    tab: Tab, scenes: Scenes
) -> None:
    lease = scenes.leases["parked"]
    dialog = await tab.begin(lease, "Start it, collect, then end it")
    await expect(dialog).to_contain_text("only a box that runs can be proved and ended")
    await dialog.get_by_role("button", name="Start it, collect, then end it").click()

    await expect(dialog).to_contain_text("Verified, then destroyed", timeout=PATIENCE_MS)
    await expect(tab.page.locator(".receipt")).to_contain_text("nothing that counts was lost")
