"""Money is written in one form, and rounded by one rule, on every face: `12.30 USD`, `0.0352 USD`."""

import json
import re
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest
from page.test_page_code import FACES, scripts
from parts import required

from gpu_tenant.domain.wording import usd_words

ROOT = Path(__file__).parents[2]
SUMS = ("0", "0.00004", "0.0352", "0.45", "0.9999", "1", "1.005", "12.3", "999.999", "12345.6")
DOLLARS = re.compile(r"""\$\$\{|["'`>]\$["'`<]|\$\d""")
"""A sign before an amount, in a template of JavaScript, in a text of its own, or as words."""
NAMED_SUM = re.compile(r'^ *"[^"]*\$\{', re.MULTILINE)
"""The same in a sentence with holes: in a plain string `${` is no template."""


def function_of(script: str, begins: str, ends: str) -> str:
    source = (FACES / script).read_text("utf-8")
    found = source[source.index(begins) :]
    return found[: found.index(ends) + len(ends)].removeprefix("export ")


def test_the_page_and_the_card_write_a_sum_as_the_terminal_and_the_report_do() -> None:
    required("node")
    widgets, card = "dashboard/page/parts/widgets.js", "mcp/chat_card/card.js"
    script = "\n".join(
        (
            "const t = (words) => words;",
            function_of(widgets, "const PER =", ";\n"),
            function_of(widgets, "export function amount", "\n}\n"),
            function_of(widgets, "export const usdWords", ";\n"),
            function_of(card, "function money", "\n}\n"),
            f"const sums = {json.dumps(SUMS)};",
            "console.log(JSON.stringify(sums.map((sum) => [usdWords(sum), money(sum)])));",
        )
    )

    ran = subprocess.run(
        ["node", "--eval", script], capture_output=True, encoding="utf-8", check=False
    )

    assert ran.returncode == 0, ran.stderr
    for sum_usd, shown in zip(SUMS, json.loads(ran.stdout), strict=True):
        written = usd_words(Decimal(sum_usd))
        if sum_usd != "1.005":  # a float lies beside what is written, and is rounded as it lies
            assert shown == [written, written]
        assert written.endswith(" USD")


def test_what_is_unknown_is_no_zero() -> None:
    assert usd_words(None) == "unknown"
    assert usd_words(None, "an unknown sum") == "an unknown sum"


def faces() -> list[Path]:
    """Every text that a face shows, and the pictures of what it showed."""
    ours = FACES.parent
    shown = [path for kind in ("html", "md") for path in FACES.rglob(f"*.{kind}")]
    snapshots = [path for path in (ROOT / "tests").rglob("snapshots/*") if path.is_file()]
    recorded = [*(ROOT / "tests/e2e/pictures").glob("demo.*"), ROOT / "README.md"]
    said = [*FACES.rglob("*.py"), *(ours / "leases").glob("*.py"), *(ours / "domain").glob("*.py")]
    return [*scripts(), *shown, *snapshots, *recorded, *said]


@pytest.mark.parametrize("place", faces(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_face_writes_a_sum_with_a_sign(place: Path) -> None:
    text = place.read_text("utf-8")
    if place.suffix == ".py":  # the money in what the program says stands in an f-string
        assert not re.search(r"""\$\{\w*(usd|cost|price)""", text), place
        return
    amiss = DOLLARS.findall(text) + NAMED_SUM.findall(text)

    assert amiss == [], place
