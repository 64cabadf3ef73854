"""Everything that can be done on the page, with what is refused there and why."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from browser.conftest import NewTab
from browser.served import Dashboard
from browser.states import Renter, Work, dashboard_of, renter_at
from browser.tab import Tab
from e2e.leased import end_processes
from playwright.async_api import Locator, Route, expect
from sshd import wait_until
from waited import over

pytestmark = pytest.mark.asyncio(loop_scope="session")

LITERAL = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

CODE = re.compile(r"type there: (\w{6})")


@dataclass
class Leases:
    """One lease for each thing that is done here."""

    idle: str
    rented: str
    working: str
    lossy: str


@pytest.fixture(scope="module")
def renter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renter]:
    root = tmp_path_factory.mktemp("actions")
    with renter_at("vastai", root) as made:
        yield made
        end_processes(root / "stage" / "tenant" / "boxes")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def leases(renter: Renter) -> Leases:
    async with renter.tenancy() as tenancy:
        idle = (await tenancy.provision(smoke="none")).lease
        working = await Work(renter.root / "working").launched(tenancy)
        lossy = await Work(renter.root / "lossy").launched(
            tenancy, command="mkdir -p out && echo '[1]' >out/model.json && echo more >undeclared"
        )
        await tenancy.change_lease(lossy, "terms", unasked_gib=0)
        assert (await over(tenancy, lossy)).state == "finished"
    return Leases(idle, await renter.rents(), working, lossy)


@pytest.fixture(scope="module")
def dashboard(renter: Renter, leases: Leases) -> Iterator[Dashboard]:
    with dashboard_of(renter, renter.root) as served:
        yield served


@pytest.fixture(scope="module")
def signed(renter: Renter, leases: Leases) -> Iterator[Dashboard]:
    """One that a person started at a terminal."""
    with dashboard_of(renter, renter.root / "signed", keyboard="person") as served:
        yield served


def errand(dashboard: Dashboard) -> Any:
    """What was begun last; nothing yet, perhaps."""
    return next(iter(dashboard.shows("/api/errands")["errands"]), {"verb": None, "state": "none"})


async def done(dashboard: Dashboard, verb: str, *, after: str | None = None) -> Any:
    """The last errand, which is of that verb and has ended, and is not the one with the id `after`."""
    async with asyncio.timeout(60):
        while True:
            last = errand(dashboard)
            if last["verb"] == verb and last["state"] != "running" and last["id"] != after:
                return last
            await asyncio.sleep(0.05)


async def carried_out(dialog: Locator, name: str, dashboard: Dashboard, verb: str) -> Any:
    """The result of what the dialog's button began."""
    before = errand(dashboard).get("id")
    await dialog.get_by_role("button", name=name, exact=True).click()
    ended = await done(dashboard, verb, after=before)
    assert ended["state"] == "done", ended
    return ended["result"]


async def test_a_deadline_is_moved(tab: Tab, dashboard: Dashboard, leases: Leases) -> None:
    def deadline() -> datetime:
        shown = dashboard.shows(f"/api/leases/{leases.idle}")["lease"]["deadline_at"]
        return datetime.fromisoformat(shown)

    before = deadline()
    dialog = await tab.begin(leases.idle, "Extend")
    await dialog.get_by_label("Hours from now").fill("100")

    await carried_out(dialog, "Extend", dashboard, "extend")

    await expect(dialog).to_contain_text("The deadline has moved")
    assert timedelta(hours=75) < deadline() - before < timedelta(hours=77)


async def test_the_end_of_an_action_is_shown_though_it_is_told_before_its_beginning(
    tab: Tab, dashboard: Dashboard, leases: Leases
) -> None:
    async def held_back(route: Route) -> None:
        answer = await route.fetch()
        await done(dashboard, "extend")
        await asyncio.sleep(1)  # the stream has told it by now
        await route.fulfill(response=answer)

    await tab.page.route("**/extend", held_back)
    dialog = await tab.begin(leases.idle, "Extend")
    await dialog.get_by_label("Hours from now").fill("90")

    await carried_out(dialog, "Extend", dashboard, "extend")

    await expect(dialog).to_contain_text("The deadline has moved")


async def test_a_rented_box_is_parked_and_started_again(
    tab: Tab, renter: Renter, dashboard: Dashboard, leases: Leases
) -> None:
    dialog = await tab.begin(leases.rented, "Park")
    await expect(dialog).to_contain_text("The GPU is no longer billed")
    await carried_out(dialog, "Park", dashboard, "park")
    assert [box["id"] for box in renter.ask("meter")["parked"]]
    await dialog.get_by_role("button", name="Close").last.click()
    await tab.says(re.compile("^parked$", re.IGNORECASE))

    dialog = await tab.begin(leases.rented, "Resume")
    await carried_out(dialog, "Resume", dashboard, "resume")
    assert [box["id"] for box in renter.ask("meter")["running"]]


async def test_a_job_is_stopped_and_its_box_parked_by_one_button(
    tab: Tab, renter: Renter, dashboard: Dashboard, leases: Leases
) -> None:
    tree = renter.root / "long"
    tree.mkdir()
    (tree / "long.sh").write_text("sleep 600\n", encoding="utf-8")
    async with renter.tenancy() as tenancy:
        await tenancy.push(leases.rented, str(tree))
        await tenancy.launch_detached(leases.rented, "sh long.sh", ["out/"])

    dialog = await tab.begin(leases.rented, "Stop the job, then park")
    await dialog.get_by_label("Grace in seconds").fill("1")
    parked = await carried_out(dialog, "Stop the job, then park", dashboard, "stop_and_park")

    assert parked["phase"] == "parked"
    assert [box["id"] for box in renter.ask("meter")["parked"]]


async def test_a_job_is_asked_to_stop_and_a_snapshot_taken_before(
    tab: Tab, dashboard: Dashboard, leases: Leases
) -> None:
    dialog = await tab.begin(leases.working, "Take a snapshot")
    await carried_out(dialog, "Take a snapshot", dashboard, "snapshot")

    dialog = await tab.begin(leases.working, "Stop the job")
    await dialog.get_by_label("Grace in seconds").fill("1")
    stopped = await carried_out(dialog, "Stop the job", dashboard, "stop")

    assert stopped["state"] not in ("running", "starting")


async def test_a_teardown_is_refused_in_words_until_everything_is_collected(
    tab: Tab, dashboard: Dashboard, leases: Leases
) -> None:
    dialog = await tab.begin(leases.lossy, "Verify and tear down")
    await dialog.get_by_role("button", name="Verify and tear down").click()
    refused = await done(dashboard, "teardown")
    assert refused["state"] == "failed", refused
    await expect(dialog).to_contain_text(refused["error"]["message"])
    await expect(dialog).to_contain_text("Nothing was destroyed")
    assert dashboard.shows(f"/api/leases/{leases.lossy}")["row"]["card"]["state"] == "active"

    dialog = await tab.begin(leases.lossy, "Collect")
    collected = await carried_out(dialog, "Collect", dashboard, "collect")
    assert collected["unclaimed_files"] == 1, collected


async def test_an_unclaimed_file_is_kept_or_given_up_by_its_row(
    tab: Tab, dashboard: Dashboard, leases: Leases
) -> None:
    await tab.go(f"#/lease/{leases.lossy}/files")
    collect = tab.page.get_by_role("button", name="Collect with these choices…")
    await expect(collect).to_be_disabled()
    await tab.page.get_by_label("What becomes of undeclared").select_option("keep it")
    await collect.click()
    await expect(tab.dialog.get_by_label("Keep these, too")).to_have_value("undeclared")

    # Nothing was decided before the dialog's own button: the file stays for what follows.
    await tab.dialog.get_by_role("button", name="Leave it as it is").click()
    files = dashboard.shows(f"/api/leases/{leases.lossy}")["files"]
    assert files["unclaimed"]["count"] == 1


async def test_the_head_of_a_lease_says_which_file_is_unclaimed_and_the_step(
    tab: Tab, dashboard: Dashboard, leases: Leases
) -> None:
    await tab.go(f"#/lease/{leases.lossy}")

    says = tab.page.locator(".lease-says")
    await expect(says).to_contain_text(
        "1 file is unclaimed, so the box is not torn down: undeclared"
    )
    await expect(says).to_contain_text(f"gpu-tenant collect {leases.lossy} --discard 'undeclared'")


async def test_a_kept_file_is_looked_at(tab: Tab, dashboard: Dashboard, leases: Leases) -> None:
    await tab.go(f"#/lease/{leases.lossy}/files")
    await tab.page.get_by_role("button", name="work/out/model.json", exact=True).click()
    await expect(tab.dialog.locator("pre")).to_have_text("[1]\n")
    async with tab.page.expect_download() as saved:
        await tab.dialog.get_by_role("button", name="Save a copy").click()
    download = await saved.value
    assert download.suggested_filename == "model.json"
    assert (await download.path()).read_text() == "[1]\n"

    tab.may_say("answer 4|status of 4")
    for name in ("../../etc/passwd", "/etc/passwd", "work/undeclared", ""):
        status, _, _ = dashboard.ask(f"/api/leases/{leases.lossy}/preview?name={name}")
        assert status == 400, name


async def test_terms_and_name_are_changed_in_place(
    tab: Tab, dashboard: Dashboard, leases: Leases
) -> None:
    dialog = await tab.begin(leases.idle, "Change the terms")
    await dialog.get_by_label("Name", exact=True).fill("llama/first try #paper")
    await dialog.get_by_label("When its work is done").select_option("park it")
    await dialog.get_by_role("button", name="Change the terms", exact=True).click()
    refused = await done(dashboard, "terms")
    assert refused["state"] == "failed", "a directory of this computer cannot be parked"
    await tab.page.keyboard.press("Escape")

    dialog = await tab.begin(leases.idle, "Change the terms")
    await dialog.get_by_label("Name", exact=True).fill("llama/first try #paper")
    changed = await carried_out(dialog, "Change the terms", dashboard, "terms")
    await expect(dialog).to_contain_text("The terms have changed")
    assert changed["name"] == "llama/first try #paper"
    await tab.page.keyboard.press("Escape")
    await tab.says("llama/first try #paper")


async def test_leases_are_found_by_name_and_the_link_leads_back(
    tab: Tab, dashboard: Dashboard, leases: Leases
) -> None:
    await tab.go("#/?search=llama")
    found = tab.page.locator("li.lease")
    await expect(found).to_have_count(1)
    await expect(found).to_contain_text(leases.idle)
    await tab.says("1 of 4 leases")

    await tab.page.get_by_label("Find").fill("#pap")
    await expect(found).to_have_count(0)
    await tab.page.get_by_label("Find").fill("#paper")
    await expect(found).to_have_count(1)
    await expect(tab.page).to_have_url(re.compile("search=%23paper"))

    await tab.page.get_by_label("Find").fill("")
    await tab.page.get_by_label("In the order of").select_option("name")
    await expect(found).to_have_count(4)
    await expect(found.first).to_contain_text(leases.idle)
    await tab.page.reload()
    await expect(found.first).to_contain_text(leases.idle)


async def test_a_waiver_lists_the_losses_and_is_signed_where_a_person_is(
    tab: Tab, dashboard: Dashboard, leases: Leases
) -> None:
    dialog = await tab.begin(leases.lossy, "Destroy and accept the loss")
    report = dashboard.shows(f"/api/leases/{leases.lossy}/losses")
    assert report["losses"]
    for loss in report["losses"]:
        await expect(dialog).to_contain_text(loss)
    await expect(dialog).to_contain_text(f"gpu-tenant waive {leases.lossy}")
    await expect(dialog.get_by_role("textbox")).to_have_count(0)

    # Nor does the server let whoever goes around the page sign there.
    asked = f"/api/signatures/{report['asked']}"
    body = {"shown": dashboard.shows(asked)["shown"], "typed": leases.lossy, "code": ""}
    status, _, words = dashboard.ask(asked, body)
    assert status == 409
    assert f"gpu-tenant sign {report['asked']}".encode() in words
    assert dashboard.ask(f"/api/leases/{leases.lossy}/waive", {})[0] == 202
    assert (await done(dashboard, "waive"))["error"]["code"] == "SIGNATURE_WANTED"
    assert dashboard.shows(f"/api/leases/{leases.lossy}")["row"]["card"]["state"] == "active"


async def test_a_signature_counts_only_for_the_list_that_was_shown_and_the_id_that_was_typed(
    new_tab: NewTab, signed: Dashboard, leases: Leases
) -> None:
    path = f"/api/leases/{leases.lossy}"

    asked = f"/api/signatures/{signed.shows(f'{path}/losses')['asked']}"

    def shown() -> tuple[str, str]:
        """The name of the list, and the code that the terminal shows for it."""
        known = len(CODE.findall(signed.said))
        name = signed.shows(asked)["shown"]
        return name, code_after(known)

    def code_after(known: int) -> str:
        """The newest code, once the terminal has shown more than those."""
        wait_until(lambda: len(CODE.findall(signed.said)) > known)
        return str(CODE.findall(signed.said)[-1])

    digest, code = shown()
    for refused in (
        {"shown": digest, "typed": leases.lossy},
        {"shown": digest, "typed": leases.lossy, "code": "aaaaaa"},
        {"shown": "of-another-list", "typed": leases.lossy, "code": code},
        {
            "shown": digest,
            "typed": leases.lossy,
            "code": code,
        },  # good for once, and that was above
    ):
        assert signed.ask(asked, refused)[0] == 409
    digest, code = shown()
    assert signed.ask(asked, {"shown": digest, "typed": leases.idle, "code": code})[0] == 409

    async with new_tab(signed) as tab:
        await tab.open()
        known = len(CODE.findall(signed.said))
        dialog = await tab.begin(leases.lossy, "Destroy and accept the loss")
        typed = dialog.get_by_label("To sign, type the id")
        sign = dialog.get_by_role("button", name="Destroy and lose this")
        await typed.fill(leases.lossy)
        await expect(sign).to_be_disabled()
        code = code_after(known)
        await dialog.get_by_label("Code from the dashboard's terminal").fill(code)
        for wrong_id in (leases.idle, leases.lossy.upper(), f"{leases.lossy} "):
            await typed.fill(wrong_id)
            await expect(sign).to_be_disabled()
        await typed.fill(leases.lossy)
        torn = await carried_out(dialog, "Destroy and lose this", signed, "waive")

    assert torn["receipt"]["ground"] == "waived"


async def test_a_box_of_the_account_is_adopted_and_another_one_parked(
    tab: Tab, renter: Renter, dashboard: Dashboard
) -> None:
    renter.befalls("foreign_box")
    renter.befalls("foreign_box")
    boxes = tab.page.get_by_role("region", name="Under no lease").get_by_role("rowheader")
    await expect(boxes).to_have_count(2, timeout=60_000)
    kept, parked = (text.splitlines()[0] for text in await boxes.all_inner_texts())

    await tab.button(f"Adopt {kept}").click()
    adopted = await carried_out(tab.dialog, "Adopt", dashboard, "adopt")
    assert (adopted["box"], adopted["state"]) == (kept, "active")
    await tab.page.keyboard.press("Escape")

    await tab.button(f"Adopt and park {parked}").click()
    await expect(tab.dialog).to_contain_text("What runs on it ends")
    stopped = await carried_out(tab.dialog, "Adopt and park", dashboard, "adopt")
    assert (stopped["box"], stopped["phase"]) == (parked, "parked")
    await tab.page.keyboard.press("Escape")
    await expect(boxes).to_have_count(0, timeout=60_000)


async def test_an_offer_is_rented_with_its_terms_and_one_confirmation(
    tab: Tab, renter: Renter, dashboard: Dashboard
) -> None:
    await tab.go("#/offers?gpu=RTX+4090&hours=2")
    rent = tab.page.get_by_role("button", name="Rent it…").first
    await rent.click(timeout=60_000)
    before = len(renter.ask("meter")["running"])
    confirm = tab.dialog.get_by_role("button", name=re.compile("^Rent it at .* USD an hour$"))
    await expect(tab.dialog).to_contain_text("No smoke test of the last week has passed")
    await expect(confirm).to_be_disabled()
    await tab.dialog.get_by_role("button", name="Rent nothing").click()
    assert len(renter.ask("meter")["running"]) == before

    await rent.click()
    await tab.dialog.get_by_label("No: rent without a smoke test").check()
    await tab.dialog.get_by_label("Budget in all, USD").fill("3")
    await tab.dialog.get_by_label("Name").fill("llama/from the page")
    await confirm.click()
    ended = await done(dashboard, "provision")
    assert ended["state"] == "done", ended
    card = ended["result"]
    assert (card["name"], float(card["budget_usd"])) == ("llama/from the page", 3)
    assert len(renter.ask("meter")["running"]) == before + 1
    await tab.dialog.get_by_role("link", name="To its page").click()
    await tab.says("llama/from the page")
    assert dashboard.shows(f"/api/leases/{card['lease']}")["row"]["card"]["state"] == "active"


async def test_where_a_key_is_kept_is_written_down_and_the_key_tested(
    tab: Tab, renter: Renter
) -> None:
    secret = renter.root / "vast.key"
    secret.write_text(renter.environment["VAST_API_KEY"], encoding="utf-8")
    secret.chmod(0o600)
    await tab.go("#/settings")
    await tab.button("Test the key of Vast.ai").click()
    await tab.says(re.compile("Vast.ai answered"))

    await tab.button("Say where the key of Vast.ai is").click()
    await tab.dialog.get_by_label("A file that only you read").check()
    await tab.dialog.get_by_label("Its path").fill(str(secret))
    await tab.dialog.get_by_role("button", name="Write it down and test it").click()

    await expect(tab.dialog).to_contain_text("Vast.ai answered")
    written = (renter.stage.directory / "tenant" / "config.toml").read_text(encoding="utf-8")
    assert f'vastai = "file:{secret}"' in written
    assert renter.environment["VAST_API_KEY"] not in written


@pytest.mark.parametrize("kept_in", ["An environment variable", "A file that only you read"])
async def test_a_key_that_is_pasted_is_refused_and_repeated_nowhere(
    tab: Tab, renter: Renter, dashboard: Dashboard, kept_in: str
) -> None:
    tab.may_say("answer 4|status of 4")
    await tab.go("#/settings")
    await tab.button("Say where the key of RunPod is").click()
    await tab.dialog.get_by_label(kept_in).check()
    await tab.dialog.get_by_role("textbox").fill(LITERAL)
    await tab.dialog.get_by_role("button", name="Write it down and test it").click()

    refusal = tab.dialog.get_by_role("alert")
    await expect(refusal).to_be_visible()
    assert LITERAL not in await tab.page.content()
    for reference in (LITERAL, f"env:{LITERAL}", f"file:{LITERAL}", f"text:{LITERAL}"):
        body = {"provider": "runpod", "reference": reference}
        status, _, words = dashboard.ask("/api/credentials", body)
        assert status >= 400
        assert LITERAL.encode() not in words
    assert LITERAL not in dashboard.said
    for path in (renter.stage.directory / "tenant").glob("*.toml"):
        assert LITERAL not in path.read_text(encoding="utf-8")
