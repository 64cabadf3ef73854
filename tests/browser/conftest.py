"""One browser for each worker, and tabs that must have nothing to complain of."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from browser import chrome
from browser.served import Dashboard
from browser.tab import Tab, tab_on
from playwright.async_api import Browser

NewTab = Callable[..., AbstractAsyncContextManager[Tab]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with chrome.chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def axe() -> Path:
    """The script that finds barriers."""
    return chrome.axe()


@pytest_asyncio.fixture(loop_scope="session")
async def tab(chromium: Browser, dashboard: Dashboard) -> AsyncIterator[Tab]:
    """A tab that has opened the link of the module's dashboard."""
    async with tab_on(chromium, dashboard) as opened:
        await opened.open()
        yield opened


@pytest.fixture
def new_tab(chromium: Browser) -> NewTab:
    """Makes a tab on a dashboard: `async with new_tab(dashboard, screen="phone") as tab`."""
    return partial(tab_on, chromium)
