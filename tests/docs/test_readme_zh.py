"""The Chinese README has the commands of the English one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGLISH, CHINESE = ((ROOT / name).read_text("utf-8") for name in ("README.md", "README.zh.md"))
REMARK = re.compile(r"(^|\s+)# .*$", re.MULTILINE)


def typed(page: str) -> list[str]:
    """Every block of lines to type, without its remarks."""
    return [REMARK.sub("", block) for block in re.findall(r"```\w+\n(.*?)```", page, re.DOTALL)]


def quoted(page: str) -> set[str]:
    """Every name and command inside of the prose and of the tables that are not generated."""
    prose = re.sub(r"```.*?```|<!-- generated.*?<!-- end -->", "", page, flags=re.DOTALL)
    return set(re.findall("`([^`]+)`", prose))


def test_its_commands_are_those_of_the_english_one() -> None:
    assert typed(ENGLISH)
    assert typed(CHINESE) == typed(ENGLISH)
    assert quoted(CHINESE) == quoted(ENGLISH)


def test_every_remark_is_in_chinese() -> None:
    remarks = re.findall(
        r"(?m)(?:^|\s)# (.+)$", "".join(re.findall(r"```\w+\n.*?```", CHINESE, re.DOTALL))
    )

    assert remarks
    assert [remark for remark in remarks if not re.search("[\u4e00-\u9fff]", remark)] == []


@pytest.mark.parametrize(("page", "other"), [(ENGLISH, "README.zh.md"), (CHINESE, "README.md")])
def test_each_links_to_the_other(page: str, other: str) -> None:
    assert f"]({other})" in page
