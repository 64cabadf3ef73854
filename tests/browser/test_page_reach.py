"""The page is for everybody: by keyboard, by screen reader, on a phone, in the dark, in Chinese."""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from browser.chrome import barriers
from browser.conftest import NewTab
from browser.pictures import picture
from browser.served import Dashboard
from browser.states import Renter, Work, dashboard_of, renter_at
from browser.tab import Tab
from e2e.leased import end_processes
from playwright.async_api import Page, Route, expect
from waited import over

from gpu_tenant.faces import dashboard as dashboard_package

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGE = Path(dashboard_package.__file__).parent / "page"
SAID = re.compile(r"""\bt\(\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
CHINESE = re.compile(r"[\u4e00-\u9fff]")


@dataclass
class Scene:
    """A dashboard with something in every view."""

    dashboard: Dashboard
    idle: str
    trained: str
    rented: str

    @property
    def views(self) -> dict[str, str]:
        """Every view by a name of its own."""
        return {
            "overview": "#/",
            **{
                f"lease-{part}": f"#/lease/{self.trained}/{part}"
                for part in ("job", "log", "files", "story", "terms")
            },
            "lease-rented": f"#/lease/{self.rented}",
            "offers": "#/offers",
            "runbooks": "#/runbooks",
            "history": "#/history",
            "settings": "#/settings",
            "nowhere": "#/elsewhere",
        }


@pytest.fixture(scope="module")
def renter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renter]:
    root = tmp_path_factory.mktemp("reach")
    with renter_at("vastai", root) as made:
        yield made
        end_processes(root / "stage" / "tenant" / "boxes")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(renter: Renter) -> AsyncIterator[Scene]:
    work = Work(renter.root / "work")
    rented = await renter.rents(hours=4)
    async with renter.tenancy() as tenancy:
        idle = (await tenancy.provision(smoke="none")).lease
        trained = await work.launched(tenancy, command=f"{work.command} && echo more >undeclared")
        while (await tenancy.monitor(trained, wait_s=0)).log.count("loss=") < 30:
            pass
        await tenancy.change_lease(trained, "terms", unasked_gib=0)
        work.let_it_end()
        assert (await over(tenancy, trained)).state == "finished"
        await tenancy.collect(trained)
        ended = await work.launched(tenancy, name="again")
        assert (await over(tenancy, ended)).state == "finished"
        await tenancy.collect(ended)
        await tenancy.verify_and_teardown(ended)
    renter.befalls("foreign_box")
    renter.befalls("leftover")
    with dashboard_of(renter, renter.root) as dashboard:
        yield Scene(dashboard, idle, trained, rented)


@pytest.fixture
def dashboard(scene: Scene) -> Dashboard:
    return scene.dashboard


async def show(tab: Tab, route: str) -> None:
    """The view stands, with what it had to fetch."""
    await tab.go(route)
    await expect(tab.page.locator("main h1").first).to_be_attached()
    for asks in ("Find offers", "Check now"):
        if await tab.page.locator("main").get_by_text(asks, exact=True).count():
            await tab.button(asks).click()
    await expect(tab.page.locator("main .waiting, main .skeleton")).to_have_count(0)


# For those who do not see it, or not well


async def test_no_view_keeps_anybody_out_in_light_or_dark(
    new_tab: NewTab, scene: Scene, axe: Path
) -> None:
    found = []
    async with new_tab(scene.dashboard, script=axe) as tab:
        await tab.open()
        for name, route in scene.views.items():
            await show(tab, route)
            for theme in ("light", "dark"):
                await tab.page.emulate_media(color_scheme=theme)
                found += [f"{name}, {theme}: {each}" for each in await barriers(tab.page)]
                if theme == "light" or name in ("overview", "lease-job"):
                    await picture(tab, f"{name}-{theme}")

    assert not found, "\n".join(found)


async def test_no_dialog_keeps_anybody_out(new_tab: NewTab, scene: Scene, axe: Path) -> None:
    found = []
    async with new_tab(scene.dashboard, script=axe) as tab:
        await tab.open()
        for lease, verb in (
            (scene.idle, "Extend"),
            (scene.rented, "Park"),
            (scene.trained, "Collect"),
            (scene.trained, "Verify and tear down"),
            (scene.trained, "Destroy and accept the loss"),
        ):
            dialog = await tab.begin(lease, verb)
            await expect(dialog.locator("form, .waiver").first).to_be_visible()
            found += [f"{verb}: {each}" for each in await barriers(tab.page)]
            await tab.page.keyboard.press("Escape")
            await expect(tab.dialog).to_have_count(0)

    assert not found, "\n".join(found)


# By keyboard alone


async def focused(page: Page) -> str:
    """What has the focus, by its name."""
    name: str = await page.evaluate(
        "() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent.trim()"
    )
    return name


async def test_the_way_by_keyboard_begins_with_a_shortcut_and_shows_where_it_is(tab: Tab) -> None:
    keyboard = tab.page.keyboard
    await keyboard.press("Tab")
    assert await focused(tab.page) == "Skip to the content"
    order = []
    for _ in range(8):
        await keyboard.press("Tab")
        order.append(await focused(tab.page))
        ringed = await tab.page.evaluate(
            "() => getComputedStyle(document.activeElement).outlineStyle !== 'none'"
        )
        assert ringed, f"nothing shows that {order[-1]!r} has the focus"
    assert order[:6] == ["gpu-tenant", "Leases", "Offers", "Runbooks", "History", "Settings"]

    await keyboard.press("Shift+Tab")
    await tab.page.get_by_role("link", name="Skip to the content").focus()
    await keyboard.press("Enter")
    assert await tab.page.evaluate("() => document.activeElement.id") == "main"


async def test_a_dialog_holds_the_focus_and_gives_it_back(tab: Tab, scene: Scene) -> None:
    keyboard = tab.page.keyboard
    await tab.page.locator("details.is-free > summary").click()
    opener = tab.row(scene.idle).get_by_role("button", name="Extend")
    await opener.focus()
    await keyboard.press("Enter")
    await expect(tab.dialog).to_be_visible()
    within = "() => document.activeElement === document.body || document.querySelector('dialog').contains(document.activeElement)"
    for _ in range(12):
        await keyboard.press("Tab")
        assert await tab.page.evaluate(within)

    await keyboard.press("Escape")
    await expect(tab.dialog).to_have_count(0)
    await expect(opener).to_be_focused()


async def test_a_menu_is_walked_with_the_arrows(tab: Tab, scene: Scene) -> None:
    keyboard = tab.page.keyboard
    opener = tab.row(scene.rented).get_by_role("button", name="More for")
    await opener.focus()
    await keyboard.press("Enter")
    items = tab.page.get_by_role("menuitem")
    await expect(items.first).to_be_focused()
    await keyboard.press("ArrowDown")
    await expect(items.nth(1)).to_be_focused()
    await keyboard.press("End")
    await expect(items.last).to_be_focused()

    await keyboard.press("Escape")
    await expect(items.first).to_be_hidden()
    await expect(opener).to_be_focused()


# On a phone


async def test_on_a_phone_nothing_is_wider_than_the_screen_or_smaller_than_a_finger(
    new_tab: NewTab, scene: Scene
) -> None:
    wide, cut, small = {}, {}, {}
    async with new_tab(scene.dashboard, screen="phone") as tab:
        await tab.open()
        for name, route in scene.views.items():
            await show(tab, route)
            if (width := await tab.width()) > 390:
                wide[name] = width
            cut[name] = await tab.page.evaluate(
                """() => [...document.querySelectorAll("main *:not(.unseen)")]
                  .filter((part) => part.scrollWidth > part.clientWidth + 1)
                  .filter((part) => ["clip", "hidden"].includes(getComputedStyle(part).overflowX)
                    && getComputedStyle(part).textOverflow !== "ellipsis")
                  .map((part) => `${part.className} ${part.scrollWidth} > ${part.clientWidth}`)"""
            )
            small[name] = await tab.page.evaluate(
                """() => [...document.querySelectorAll("button")]
                  .filter((button) => button.checkVisibility() && button.getBoundingClientRect().height < 43.5)
                  .map((button) => `${button.ariaLabel ?? button.textContent} ${button.getBoundingClientRect().height}`)"""
            )
            if name in ("overview", "lease-job"):
                await picture(tab, f"phone-{name}")

    assert wide == {}
    assert {name: found for name, found in cut.items() if found} == {}
    assert {name: found for name, found in small.items() if found} == {}


# In Chinese


def sentences() -> set[str]:
    """Everything that the page says by a literal sentence."""
    scripts = [path for path in PAGE.rglob("*.js") if "vendor" not in path.parts]
    literals = [found for path in scripts for found in SAID.findall(path.read_text("utf-8"))]
    return {literal[1:-1].replace('\\"', '"').replace("\\'", "'") for literal in literals}


async def test_every_sentence_of_the_page_has_its_chinese(tab: Tab) -> None:
    translated: dict[str, str] = await tab.page.evaluate(
        """async (parts) => Object.assign({}, ...(await Promise.all(parts.map(
          (part) => import(`/page/chinese/${part}`)))).map((module) => module.default))""",
        [path.name for path in PAGE.glob("chinese/*.js")],
    )

    assert sentences() - set(translated) == set()
    holes = re.compile(r"\{\w+\}")
    for english, chinese in translated.items():
        assert set(holes.findall(english)) == set(holes.findall(chinese)), english


async def test_in_chinese_no_view_looks_for_a_sentence_in_vain(
    new_tab: NewTab, scene: Scene
) -> None:
    async def noted(route: Route) -> None:
        """The table of sentences, which notes what is missing in it."""
        answer = await route.fetch()
        script, count = re.subn(
            r"const CHINESE = (\{[^}]*\});",
            r"""const CHINESE = new Proxy(\1, {get: (all, key) => {
              if (!(key in all)) (window.missing ??= new Set()).add(key);
              return all[key];
            }});""",
            await answer.text(),
        )
        assert count == 1
        await route.fulfill(response=answer, body=script)

    missing: set[str] = set()
    async with new_tab(scene.dashboard, language="zh-CN") as tab:
        await tab.page.route("**/page/words.js", noted)
        await tab.open()
        assert await tab.page.evaluate("() => document.documentElement.lang") == "zh-Hans"
        for name, route in scene.views.items():
            await show(tab, route)
            heading = await tab.page.locator("main").inner_text()
            assert CHINESE.search(heading), f"{name} is not in Chinese: {heading[:200]}"
            if name == "lease-job":
                await picture(tab, f"chinese-{name}")
        missing |= set(await tab.page.evaluate("() => [...(window.missing ?? [])]"))

    assert missing == set()


async def test_the_language_and_the_theme_are_chosen_and_kept(tab: Tab) -> None:
    await tab.button("中文").click()
    await expect(tab.page.get_by_role("link", name="租约").first).to_be_visible()
    await tab.page.reload()
    await expect(tab.button("English")).to_be_visible()
    await tab.button("English").click()

    for theme in ("light", "dark"):
        await tab.page.get_by_role("button", name=re.compile("^Theme")).click()
        await expect(tab.page.locator("html")).to_have_attribute("data-theme", theme)
    await tab.page.reload()
    await expect(tab.page.locator("html")).to_have_attribute("data-theme", "dark")
