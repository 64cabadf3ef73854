"""How soon the dashboard's page shows its leases, how smoothly many of them scroll, and what an open page costs: `make bench-page`.

In a real browser, with leases on boxes of this computer. A first row is timed by the page's own clock, from the beginning
of its navigation; frames by the gaps between them; the server by the processor time that its process took.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from browser.chrome import chromium
from browser.served import Dashboard
from browser.states import dashboard_of, many_leases, somebody
from playwright.async_api import Browser, Page

FEW, MANY, OPENED = 50, 500, 7
IDLE_S = 60
FIRST_S, FRAMES, SHARE = 1.0, 50.0, 0.01
NOTED = """\
new MutationObserver((_, watch) => {
  if (!document.querySelector("li.lease h3")) return;
  watch.disconnect();
  requestAnimationFrame(() => { window.firstRowMs = performance.now(); });
}).observe(document, {childList: true, subtree: true});
"""
GAPS = """async (count) => {
  const gaps = [];
  const frame = () => new Promise(requestAnimationFrame);
  for (let before = await frame(); gaps.length < count; ) {
    scrollBy(0, 60);
    const now = await frame();
    gaps.push(now - before);
    before = now;
  }
  return gaps;
}"""


async def opened(browser: Browser, dashboard: Dashboard) -> tuple[Page, float]:
    """A fresh profile's page with its leases, and the seconds until the first row stood."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    await context.add_init_script(NOTED)
    page = await context.new_page()
    await page.goto(dashboard.link)
    await page.wait_for_function("() => window.firstRowMs !== undefined", timeout=120_000)
    return page, float(await page.evaluate("() => window.firstRowMs")) / 1000


def processor_s(pid: int) -> float:
    """The processor time that the process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(few: int, many: int, idle_s: float) -> None:
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        with somebody(root) as person:
            async with person.tenancy() as tenancy, chromium() as browser:
                await many_leases(tenancy, few)
                with dashboard_of(person, root / "few") as dashboard:
                    firsts = []
                    for _ in range(OPENED):
                        page, first_s = await opened(browser, dashboard)
                        await page.context.close()
                        firsts.append(first_s)
                    print(
                        f"first row with {few} leases: median {statistics.median(firsts):.3f} s, worst "
                        f"{max(firsts):.3f} s, of {len(firsts)} (bar {FIRST_S:g} s)"
                    )
                    page, _ = await opened(browser, dashboard)
                    await asyncio.sleep(5)
                    pid = dashboard.pid
                    before_s = processor_s(pid)
                    await asyncio.sleep(idle_s)
                    share = (processor_s(pid) - before_s) / idle_s
                    print(f"an idle page costs the server {share:.2%} of a core (bar {SHARE:.0%})")
                    await page.context.close()
                await many_leases(tenancy, many - few)
                with dashboard_of(person, root / "many") as dashboard:
                    page, first_s = await opened(browser, dashboard)
                    gaps = sorted(await page.evaluate(GAPS, 200))
                    rate = 1000 / statistics.median(gaps)
                    print(
                        f"{many} leases: first row after {first_s:.2f} s; they scroll at {rate:.0f} frames a second "
                        f"(bar {FRAMES:.0f}), 95 % of the frames within {gaps[int(0.95 * len(gaps))]:.0f} ms"
                    )


def main() -> None:
    said = argparse.ArgumentParser(description=__doc__)
    said.add_argument("--few", type=int, default=FEW)
    said.add_argument("--many", type=int, default=MANY)
    said.add_argument("--idle-s", type=float, default=IDLE_S)
    asked = said.parse_args()
    asyncio.run(measure(asked.few, asked.many, asked.idle_s))


if __name__ == "__main__":
    main()
