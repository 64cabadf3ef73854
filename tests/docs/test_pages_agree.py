"""What two pages say of one thing is one thing, and what the program does."""

import re
from pathlib import Path

import pytest

from gpu_tenant.box.audit.gpu_checks import XIDS
from gpu_tenant.providers.profiles import load_profiles

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("SKILL.md", "README.md", "README.zh.md", "mcp_server/MANUAL.md")),
    *(
        page
        for folder in ("references", "profiles")
        for page in sorted((ROOT / folder).rglob("*.md"))
    ),
]
WITHOUT_A_BOX = {"kaggle", "local"}
"""Where nobody else has a box, or none that is ended by hand."""


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def numbers(words: str) -> set[int]:
    return {int(number) for number in re.findall(r"\d+", words)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_rents_by_a_quote_has_its_smoke_test(page: Path) -> None:
    shown = re.findall(r"provision --quote[^`\n]*", page.read_text(encoding="utf-8"))

    assert [line for line in shown if "--smoke" not in line] == []


@pytest.mark.parametrize("slug", sorted(set(load_profiles(ROOT / "profiles")) - WITHOUT_A_BOX))
def test_no_platform_s_page_ends_a_box_by_less_than_phase_5(slug: str) -> None:
    by_hand = text(f"profiles/{slug}.md").partition("## By hand")[2]

    assert "references/phase-5-teardown.md" in by_hand


def test_the_pages_re_rent_for_the_faults_that_the_audit_takes_for_blockers() -> None:
    blockers = {number for number, (level, _) in XIDS.items() if level == "blocker"}
    audit = re.search(r"xid ([\d ]+)\|", text("references/phase-0-audit.md"))
    entry = text("references/gotchas.md").partition("### dead-gpu\n")[2].partition("\n\n")[0]
    re_rent, _, warned = entry.partition("re-rent")

    assert audit
    assert numbers(audit[1]) == blockers
    assert numbers(re_rent.replace("/", " ")) == blockers
    assert numbers(warned.partition("warnings")[0]) == set(XIDS) - blockers


def test_every_page_has_the_one_layout_of_a_launch_by_hand() -> None:
    homes = {
        home
        for page in PAGES
        for home in re.findall(r"--home (t/\w+)", page.read_text(encoding="utf-8"))
    }

    assert homes == {"t/caretaker"}, "as `$AT/caretaker` of phase 5"
