"""The system's Chromium, driven by Playwright, and axe, which finds what some people cannot use."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from parts import required
from playwright.async_api import Browser, Page, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = "axe-core@4.14.1"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-tenant-tests"
"""Read before any test has a home of its own."""

REBOUND = "--host-resolver-rules=MAP rebound.test 127.0.0.1"
"""A name of somebody else's that leads to this computer, as one in their own zone can."""

_STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """One browser, without a window; it has ended with every page when the block is left."""
    if CHROMIUM is None:
        required("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM,
            chromium_sandbox=os.geteuid() != 0,
            args=["--disable-gpu", "--disable-dev-shm-usage", REBOUND],
        )
        try:
            yield browser
        finally:
            await browser.close()


def axe() -> Path:
    """The script of axe, fetched once into the cache of the tests and the very one that is meant."""
    required("npm")
    directory = CACHE / AXE.replace("@", "-")
    script = directory / "node_modules" / "axe-core" / "axe.min.js"
    # npm writes this one last, so an install that was cut off is done again.
    if not (directory / "node_modules" / ".package-lock.json").is_file():
        directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                "npm",
                "install",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                "--prefix",
                directory,
                AXE,
            ],
            check=True,
            timeout=150,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=directory,
        )
    assert hashlib.sha256(script.read_bytes()).hexdigest() == AXE_SHA256, script
    return script


async def barriers(page: Page) -> list[str]:
    """What keeps somebody from using the page as it is now, where it is serious; axe must be in it."""
    found = await page.evaluate(
        "tags => axe.run(document, {resultTypes: ['violations'], runOnly: {type: 'tag', values: tags}})",
        _STANDARDS,
    )
    return [
        f"{each['impact']} {each['id']}: {node['html'][:160]} ({node['failureSummary']})"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
