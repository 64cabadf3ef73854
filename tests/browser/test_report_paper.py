"""A report on screen and on A4: result, proof and money stand on its first sheet, and nothing is cut off."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import LEASE, NOON, HandClock, active, job
from playwright.async_api import Browser

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain import timeline
from gpu_tenant.faces.report import as_html, expenses_html, expenses_of, report_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

SHEET = (688, 1002)
"""An A4 sheet within its margins of 14 and 16 mm, in CSS pixels."""


async def test_result_proof_and_money_stand_on_the_first_sheet_and_nothing_is_cut_off(
    chromium: Browser, tmp_path: Path
) -> None:
    tenancy = open_tenancy({"GPU_TENANT_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)})
    clock = HandClock()
    tenancy.context.clock = clock
    ledger = tenancy.ledger
    active(ledger)
    ledger.ready(LEASE, at=NOON)
    ledger.note_rate(LEASE, Decimal("2.00"), at=NOON)
    ledger.note_launched(ledger.declare(job("train")), at=NOON)
    ledger.note(LEASE, timeline.JobEnded(job="train", state="failed"), at=NOON)
    clock.advance(3600)
    told = await report_of(tenancy.context, LEASE)
    summed = expenses_of(tenancy.context, NOON - timedelta(days=1), NOON + timedelta(days=1))
    await tenancy.aclose()

    page = await chromium.new_page()
    try:
        for (width, height), media in ((SHEET, "print"), ((1280, 800), "screen")):
            await page.set_viewport_size({"width": width, "height": height})
            await page.emulate_media(media="print" if media == "print" else "screen")
            await page.set_content(as_html(told))
            for name in ("Result", "Proof", "Money"):
                row = page.get_by_role("row", name=name).first
                box = await row.bounding_box()
                assert box is not None
                assert box["y"] + box["height"] <= height, (media, name)
            await page.set_content(expenses_html(summed, "all-x"))
            wide = await page.evaluate("() => document.documentElement.scrollWidth")
            assert wide <= width, media
        sheets = await page.pdf(prefer_css_page_size=True)
        assert b"/MediaBox [0 0 594" in sheets or b"/MediaBox [0 0 595" in sheets, "A4"
    finally:
        await page.close()
