"""Pictures of the dashboard's states, taken by the tests that reach them."""

import os
from io import BytesIO
from pathlib import Path

from browser.tab import Tab
from playwright.async_api import expect

PICTURES = Path(__file__).with_name("pictures")
MOST_BYTES = 120_000


async def picture(tab: Tab, name: str) -> None:
    """With `make pictures`, `pictures/NAME.png` shows the tab.

    They are for people, and only the README's is kept: nothing could compare them, because every font
    draws another one.
    """
    if not os.environ.get("GPU_TENANT_PICTURES"):
        return
    from PIL import Image

    # What is still being asked for is no state that a person stays in.
    unsaid = ".link.is-wait, .meter.is-unsaid, .waiting, .skeleton"
    await expect(tab.page.locator(unsaid)).to_have_count(0)
    await tab.page.evaluate("() => scrollTo(0, 0)")
    taken = await tab.page.screenshot(animations="disabled", caret="hide")
    with Image.open(BytesIO(taken)) as image:
        PICTURES.mkdir(exist_ok=True)
        small = image.convert("RGB").quantize(128, method=Image.Quantize.MEDIANCUT)
        small.save(PICTURES / f"{name}.png", optimize=True)
    assert (PICTURES / f"{name}.png").stat().st_size < MOST_BYTES, name
