"""The Chinese README and manual have the commands of the English ones."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [("README.md", "README.zh.md"), ("mcp_server/MANUAL.md", "mcp_server/MANUAL.zh.md")]
BOTH = pytest.mark.parametrize(
    ("english", "chinese"),
    [tuple((ROOT / name).read_text("utf-8") for name in pair) for pair in PAGES],
    ids=["readme", "manual"],
)
REMARK = re.compile(r"(^|\s+)# .*$", re.MULTILINE)


def typed(page: str) -> list[str]:
    """Every block of lines to type, without its remarks."""
    return [REMARK.sub("", block) for block in re.findall(r"```\w+\n(.*?)```", page, re.DOTALL)]


def quoted(page: str) -> set[str]:
    """Every name and command inside of the prose and of the tables that are not generated."""
    prose = re.sub(r"```.*?```|<!-- generated.*?<!-- end -->", "", page, flags=re.DOTALL)
    return set(re.findall("`([^`]+)`", prose))


@BOTH
def test_its_commands_are_those_of_the_english_one(english: str, chinese: str) -> None:
    assert typed(english)
    assert typed(chinese) == typed(english)
    assert quoted(chinese) == quoted(english)


@BOTH
def test_every_remark_is_in_chinese(english: str, chinese: str) -> None:
    assert english
    remarks = re.findall(
        r"(?m)(?:^|\s)# (.+)$", "".join(re.findall(r"```\w+\n.*?```", chinese, re.DOTALL))
    )

    assert remarks
    assert [remark for remark in remarks if not re.search("[\u4e00-\u9fff]", remark)] == []


@pytest.mark.parametrize(("page", "other"), [*PAGES, *((z, e) for e, z in PAGES)])
def test_each_links_to_the_other(page: str, other: str) -> None:
    assert f"]({Path(other).name})" in (ROOT / page).read_text("utf-8")
