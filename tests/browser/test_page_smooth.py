"""The page answers at once with fifty leases and a log of a hundred megabytes."""

import statistics
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
import pytest_asyncio
from browser.served import Dashboard
from browser.states import Work, dashboard_of, long_log, many_leases, somebody
from browser.tab import Tab
from playwright.async_api import Page, expect
from waited import over

pytestmark = pytest.mark.asyncio(loop_scope="session")

LEASES = 50
LOG_MIB = 100
MOST_MS = 100
"""Of the median: what a person feels as at once."""


@dataclass
class Crowd:
    """Fifty leases; the job of one of them wrote a very long log."""

    dashboard: Dashboard
    leases: Sequence[str]
    loud: str


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def crowd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Crowd]:
    root = tmp_path_factory.mktemp("smooth")
    with somebody(root) as person:
        begun_s = time.monotonic()
        async with person.tenancy() as tenancy:
            loud = await Work(root / "work").launched(tenancy, command=long_log(LOG_MIB))
            others = await many_leases(tenancy, LEASES - 1)
            leased_s = time.monotonic() - begun_s
            assert (await over(tenancy, loud)).state == "finished"
        print(
            f"\n{LEASES} leases in {leased_s:.1f} s, {LOG_MIB} MiB of log in "
            f"{time.monotonic() - begun_s:.1f} s"
        )
        with dashboard_of(person, root) as dashboard:
            yield Crowd(dashboard, [loud, *others], loud)


@pytest.fixture
def dashboard(crowd: Crowd) -> Dashboard:
    return crowd.dashboard


async def watch_events(page: Page) -> None:
    """From here on the page notes how long each event took until it was painted."""
    await page.evaluate(
        """() => {
          window.slow = [];
          new PerformanceObserver((list) => {
            for (const entry of list.getEntries()) window.slow.push([entry.name, entry.duration]);
          }).observe({type: "event", durationThreshold: 16});
        }"""
    )


async def painted_ms(page: Page, name: str, count: int) -> list[float]:
    """How long `count` events of that name took, by the browser; those below 16 ms are not told apart."""
    await page.wait_for_timeout(200)
    told: list[float] = await page.evaluate(
        "name => window.slow.filter(([n]) => n === name).map(([, ms]) => ms)", name
    )
    return sorted([*[8.0] * (count - len(told)), *told])


async def frames_ms(page: Page, step: str, count: int) -> list[float]:
    """The gaps between frames, in each of which that was done once."""
    gaps: list[float] = await page.evaluate(
        f"""async (count) => {{
          const step = {step};
          const gaps = [];
          const frame = () => new Promise(requestAnimationFrame);
          for (let before = await frame(); gaps.length < count; ) {{
            step();
            const now = await frame();
            gaps.push(now - before);
            before = now;
          }}
          return gaps;
        }}""",
        count,
    )
    return sorted(gaps)


def told(what: str, times_ms: Sequence[float]) -> float:
    """The median, after both it and the worst were printed."""
    middle = statistics.median(times_ms)
    print(
        f"{what}: median {middle:.0f} ms, 95 % within {times_ms[int(len(times_ms) * 0.95)]:.0f} ms, "
        f"worst {times_ms[-1]:.0f} ms, of {len(times_ms)}"
    )
    return middle


async def test_fifty_leases_are_shown_and_scrolled_without_a_stutter(
    tab: Tab, crowd: Crowd
) -> None:
    begun_s = time.monotonic()
    await expect(tab.page.locator("li.lease")).to_have_count(LEASES)
    print(f"\nfifty leases stand after {1000 * (time.monotonic() - begun_s):.0f} ms")

    assert (
        told(
            "a frame while the overview scrolls",
            await frames_ms(tab.page, "() => scrollBy(0, 60)", 60),
        )
        < MOST_MS
    )


async def test_a_lease_opens_and_closes_at_once_among_fifty(tab: Tab, crowd: Crowd) -> None:
    await expect(tab.page.locator("li.lease")).to_have_count(LEASES)
    await watch_events(tab.page)
    took_ms = []
    for lease in crowd.leases[1:9]:
        link = tab.row(lease).locator("h3 a")
        await link.scroll_into_view_if_needed()
        begun_s = time.monotonic()
        await link.click()
        await expect(tab.page.locator(".lease-who")).to_contain_text(lease)
        took_ms.append(1000 * (time.monotonic() - begun_s))
        await tab.page.get_by_role("link", name="Leases", exact=True).click()
        await expect(tab.row(lease)).to_be_attached()

    told("a lease from click to heading, with what the test itself takes", sorted(took_ms))
    assert told("a click until it is painted", await painted_ms(tab.page, "click", 16)) < MOST_MS


async def test_a_log_of_a_hundred_megabytes_is_scrolled_and_searched_at_once(
    tab: Tab, crowd: Crowd
) -> None:
    page = tab.page
    await tab.go(f"#/lease/{crowd.loud}/log")
    lines = page.locator(".log-line")
    await expect(lines.last).to_contain_text("ok")
    assert await lines.count() < 300

    up = "() => { document.querySelector('.log-scroller').scrollTop -= 400; }"
    assert told("\na frame while the log scrolls", await frames_ms(page, up, 120)) < MOST_MS

    await watch_events(page)
    search = page.get_by_role("searchbox", name="Search the whole log")
    await search.press_sequentially("a needle in the hay", delay=20)
    assert told("a key until it is painted", await painted_ms(page, "keydown", 19)) < MOST_MS

    begun_s = time.monotonic()
    await search.press("Enter")
    hit = page.get_by_role("list", name="What was found").get_by_text("a needle in the hay")
    await expect(hit).to_be_visible(timeout=60_000)
    print(f"a line after {LOG_MIB // 10} MiB is found in {time.monotonic() - begun_s:.1f} s")
    await hit.click()
    await expect(page.locator(".log-line.is-found")).to_contain_text("a needle in the hay")
