"""One browser tab on a dashboard, and everything that went wrong in it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from browser.served import Dashboard
from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    Response,
    expect,
)

DESK = (1280, 800)
PHONE = (390, 844)
Screen = Literal["desk", "phone"]
Theme = Literal["light", "dark"]

expect.set_options(timeout=60_000)


class Tab:
    """What a person looks at, and every complaint of the browser about it."""

    def __init__(self, page: Page, dashboard: Dashboard) -> None:
        self.page, self.dashboard = page, dashboard
        self.asked: list[str] = []
        """The address of every request, as a log of a proxy would have it."""
        self._complaints: list[str] = []
        self._foreseen: list[re.Pattern[str]] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._complaints.append(f"uncaught: {error}"))
        page.on("dialog", self._on_dialog)
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("requestfailed", self._on_failure)
        page.on("response", self._on_response)

    @property
    def complaints(self) -> list[str]:
        """Errors of the console, of the policy, of scripts and of our own requests, but the foreseen."""
        return [
            words for words in self._complaints if not any(f.search(words) for f in self._foreseen)
        ]

    def may_say(self, pattern: str) -> None:
        """What this test provokes; anything else is a fault of the page."""
        self._foreseen.append(re.compile(pattern))

    async def open(self, route: str = "") -> None:
        """The link of the terminal was opened, and then that route."""
        await self.page.goto(self.dashboard.link)
        await expect(self.page.locator("main")).to_be_visible()
        if route:
            await self.go(route)

    async def go(self, route: str) -> None:
        """The page shows that route, without a reload."""
        await self.page.goto(f"{self.dashboard.url}/{route}")

    def button(self, name: str) -> Locator:
        """The button with exactly that name."""
        return self.page.get_by_role("button", name=name, exact=True)

    def row(self, lease: str) -> Locator:
        """That lease among the others."""
        return self.page.locator("li.lease").filter(has_text=lease)

    @property
    def dialog(self) -> Locator:
        """The dialog that is open."""
        return self.page.locator("dialog[open]")

    async def begin(self, lease: str, verb: str) -> Locator:
        """The dialog of that verb, which is a button of the lease's page, or stands in its menu."""
        if await self.dialog.count():
            await self.page.keyboard.press("Escape")
        await self.go(f"#/lease/{lease}")
        # The overview has a menu of the same name, which closes as the lease's own page comes.
        await expect(self.page.locator(".leasepage")).to_be_visible()
        menu = self.button(f"More for {lease}")
        await expect(self.button(verb).or_(menu).first).to_be_visible()
        if await self.button(verb).count():
            await self.button(verb).click()
        else:
            await menu.click()
            await self.page.get_by_role("menuitem", name=f"{verb}…").click()
        await expect(self.dialog).to_be_visible()
        return self.dialog

    async def says(self, words: str | re.Pattern[str]) -> None:
        """The page shows these words somewhere, soon."""
        await expect(self.page.get_by_text(words).first).to_be_visible()

    async def width(self) -> int:
        """How wide the page's content is, in CSS pixels."""
        wide: int = await self.page.evaluate("() => document.documentElement.scrollWidth")
        return wide

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._complaints.append(f"console: {message.text} ({message.location.get('url')})")

    async def _on_dialog(self, dialog: Dialog) -> None:
        self._complaints.append(f"dialog of the browser: {dialog.message}")
        await dialog.dismiss()

    def _on_failure(self, request: Request) -> None:
        # A stream ends whenever the tab is hidden, moves on, or is closed.
        if request.failure != "net::ERR_ABORTED":
            self._complaints.append(f"failed: {request.url} {request.failure}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self._complaints.append(f"answer {response.status}: {response.url}")


@asynccontextmanager
async def tab_on(
    browser: Browser,
    dashboard: Dashboard,
    *,
    screen: Screen = "desk",
    theme: Theme = "light",
    language: str = "en-GB",
    script: Path | None = None,
) -> AsyncIterator[Tab]:
    """A tab of a profile of its own, which had nothing to complain of; `script` is in its pages from the start."""
    width, height = PHONE if screen == "phone" else DESK
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=theme,
        locale=language,
        is_mobile=screen == "phone",
        has_touch=screen == "phone",
        reduced_motion="reduce",
    )
    try:
        await context.grant_permissions(["clipboard-read", "clipboard-write"])
        if script is not None:
            await context.add_init_script(path=script)
        tab = Tab(await context.new_page(), dashboard)
        try:
            yield tab
        except BaseException as error:
            error.add_note(f"the browser complained of: {tab.complaints}")
            raise
        assert tab.complaints == []
        assert not any(dashboard.token in url for url in tab.asked), "a token in an address"
    finally:
        await context.close()
