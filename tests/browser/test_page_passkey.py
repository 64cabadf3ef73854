"""A passkey signs on the page, and where there is one nothing else does."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from browser.conftest import NewTab
from browser.served import Dashboard
from browser.states import Renter, Work, dashboard_of, renter_at
from browser.tab import Tab
from e2e.leased import end_processes
from playwright.async_api import expect
from sshd import wait_until
from terminal import typed_at
from waited import over

pytestmark = pytest.mark.asyncio(loop_scope="session")

CODE = re.compile(r"type there: (\w{6})")


@pytest.fixture(scope="module")
def renter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renter]:
    root = tmp_path_factory.mktemp("passkey")
    with renter_at("vastai", root) as made:
        yield made
        end_processes(root / "stage" / "tenant" / "boxes")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lossy(renter: Renter) -> str:
    async with renter.tenancy() as tenancy:
        lease = await Work(renter.root / "lossy").launched(
            tenancy, command="mkdir -p out && echo '[1]' >out/model.json && echo more >undeclared"
        )
        assert (await over(tenancy, lease)).state == "finished"
    return lease


@pytest.fixture(scope="module")
def dashboard(renter: Renter, lossy: str) -> Iterator[Dashboard]:
    with dashboard_of(renter, renter.root / "signed", keyboard="person") as served:
        yield served


@asynccontextmanager
async def with_a_key(tab: Tab) -> AsyncIterator[None]:
    """The browser has an authenticator whose owner is there."""
    session = await tab.page.context.new_cdp_session(tab.page)
    await session.send("WebAuthn.enable")
    await session.send(
        "WebAuthn.addVirtualAuthenticator",
        {
            "options": {
                "protocol": "ctap2",
                "transport": "internal",
                "hasResidentKey": True,
                "hasUserVerification": True,
                "isUserVerified": True,
                "automaticPresenceSimulation": True,
            }
        },
    )
    yield
    await session.send("WebAuthn.disable")


async def test_a_passkey_is_set_up_and_then_signs_and_nothing_else_does(
    renter: Renter, dashboard: Dashboard, new_tab: NewTab, lossy: str
) -> None:
    async with new_tab(dashboard) as tab:
        tab.may_say("answer 409|status of 409")
        await tab.open("#/settings")
        # A passkey belongs to a name: the page leads there, with its token.
        await tab.page.get_by_role("link", name="Open the page as localhost").click()
        await tab.page.wait_for_url(re.compile(r"^http://localhost:"))
        await tab.page.goto(f"http://localhost:{dashboard.port}/#/settings")
        async with with_a_key(tab):
            known = len(CODE.findall(dashboard.said))
            await tab.button("Set up a passkey").click()
            await tab.page.get_by_label("To sign, type: passkey").fill("passkey")
            wait_until(lambda: len(CODE.findall(dashboard.said)) > known)
            code = CODE.findall(dashboard.said)[-1]
            await tab.page.get_by_label("Code from the dashboard's terminal").fill(code)
            await tab.button("Sign").click()
            await tab.says(re.compile("the passkey .* was set up"))

            # A terminal signs no more, however well a program plays one.
            status, _, words = typed_at(["waive", lossy], lossy, env=renter.environment)
            assert (status, "a passkey is set up" in words) == (3, True), words
            asked = dashboard.shows(f"/api/leases/{lossy}/losses")["asked"]
            told = dashboard.shows(f"/api/signatures/{asked}")
            for said in ({"code": code}, {"credential": '{"id": "x"}'}, {"credential": "{}"}):
                body = {"shown": told["shown"], "typed": lossy, **said}
                assert dashboard.ask(f"/api/signatures/{asked}", body)[0] == 409

            await tab.page.goto(f"http://localhost:{dashboard.port}/#/lease/{lossy}")
            menu = tab.button(f"More for {lossy}")
            await menu.click()
            await tab.page.get_by_role("menuitem", name="Destroy and accept the loss…").click()
            await tab.dialog.get_by_label("To sign, type the id").fill(lossy)
            await tab.dialog.get_by_role("button", name="Destroy and lose this").click()
            await expect(tab.dialog).to_contain_text("over a person's signature", timeout=60_000)

    receipt = dashboard.shows(f"/api/leases/{lossy}")["receipt"]
    assert receipt["ground"] == "waived"
    events = dashboard.shows(f"/api/leases/{lossy}")["events"]
    assert any("with a passkey" in line["words"] for line in events)


async def test_who_has_lost_a_passkey_waits_a_day_which_is_told(tmp_path: Path) -> None:
    with renter_at("vastai", tmp_path) as renter:
        async with renter.tenancy() as tenancy:
            now = tenancy.clock.now()
            asked = tenancy.ledger.ask_signature(
                kind="passkey", subject="passkey", digest="d", would="w", words=(), at=now
            )
            signed = tenancy.ledger.sign(asked, by="ada", form="page", proof=None, at=now)
            tenancy.ledger.set_up_passkey("k1", "pk", signed, at=now)

        status, out, words = typed_at(["sign", "--lost-passkey"], "passkey", env=renter.environment)
        assert (status, "the passkeys end at" in out) == (0, True), words

        async with renter.tenancy() as tenancy:
            now = tenancy.clock.now()
            (key,) = tenancy.ledger.passkeys(now)
            assert key.ends_at is not None
            assert 23 < (key.ends_at - now).total_seconds() / 3600 <= 24
            found = await tenancy.list_leases()
            assert any("and ends at" in line for line in found.alarms)
            assert any("and ends at" in f.words for f in (await tenancy.doctor()).findings)
