"""The skill's files keep the rules of every host, and each rule can fail."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from docs.lint import FOLDERS, NAME, RULES

ROOT = Path(__file__).resolve().parents[2]
VALIDATOR = Path(sys.executable).with_name("agentskills")


@pytest.mark.parametrize("name", RULES)
def test_the_skill_keeps_the_rule(name: str) -> None:
    broken = list(RULES[name](ROOT))

    assert not broken, "\n".join(broken)


def validated(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [VALIDATOR, "validate", str(directory)], capture_output=True, encoding="utf-8", check=False
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """What a host is given: the skill in a directory of its name."""
    skill = tmp_path / NAME
    skill.mkdir()
    shutil.copy(ROOT / "SKILL.md", skill)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, skill / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return skill


def test_the_specifications_own_validator_takes_it(copied: Path) -> None:
    ran = validated(copied)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_specifications_own_validator_can_refuse(copied: Path) -> None:
    elsewhere = copied.rename(copied.with_name("another-name"))

    assert validated(elsewhere).returncode != 0


# Each rule, broken

SKILL = """\
---
name: gpu-tenant
description: "Runs work on GPUs. Use when training. 租用显卡训练时使用。"
license: Apache-2.0
metadata:
  version: "1"
---

# Hub

[one](references/one.md#first-part), [deep](references/debug/deep.md), `profiles/own.md`, `scripts/a.py`
"""
PAGE = "# One\n\nRead this when it burns.\n\n## First part\n\nText.\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small skill that keeps every rule."""
    for name, text in {
        "SKILL.md": SKILL,
        "references/one.md": PAGE,
        "references/debug/deep.md": PAGE,
        "profiles/own.md": "---\nid: own\n---\n# Own\n\nRead this when it is yours.\n",
        "scripts/a.py": "print()\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


Break = Callable[[str], str]


def instead(old: str, new: str) -> Break:
    def replace(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return replace


def and_then(more: str) -> Break:
    return lambda text: text + more


LONG = "\n\n".join(f"## Part {n}\n" + "\nline" * 30 for n in range(4)) + "\n"
BREAKS: list[tuple[str, str, Break]] = [
    (
        "its_front_matter_has_the_four_fields_of_every_host",
        "SKILL.md",
        instead("license:", "compatibility: x\nlicense:"),
    ),
    (
        "its_front_matter_has_the_four_fields_of_every_host",
        "SKILL.md",
        instead("name: gpu-tenant", "name: gpu"),
    ),
    (
        "its_front_matter_has_the_four_fields_of_every_host",
        "SKILL.md",
        instead('version: "1"', "version: 1"),
    ),
    (
        "its_front_matter_has_the_four_fields_of_every_host",
        "SKILL.md",
        instead('version: "1"', "version: one"),
    ),
    ("its_description_says_what_and_when_in_two_languages", "SKILL.md", instead("Runs", "I run")),
    ("its_description_says_what_and_when_in_two_languages", "SKILL.md", instead("Use when", "For")),
    (
        "its_description_says_what_and_when_in_two_languages",
        "SKILL.md",
        instead("租用显卡训练时使用。", ""),
    ),
    (
        "its_description_says_what_and_when_in_two_languages",
        "SKILL.md",
        instead("GPUs", "<b>GPUs</b>"),
    ),
    (
        "its_description_says_what_and_when_in_two_languages",
        "SKILL.md",
        instead("GPUs", "GPUs" * 300),
    ),
    ("the_hub_fits_a_context", "SKILL.md", and_then("x" * 9000)),
    ("the_hub_fits_a_context", "SKILL.md", and_then("\n" * 500)),
    ("nothing_in_the_hub_is_substituted_by_a_host", "SKILL.md", and_then("at $2.49 an hour\n")),
    ("nothing_in_the_hub_is_substituted_by_a_host", "SKILL.md", and_then("run $ARGUMENTS\n")),
    ("nothing_in_the_hub_is_substituted_by_a_host", "SKILL.md", and_then("now !`date`\n")),
    ("the_pages_together_stay_small", "references/one.md", and_then("x" * 270_000)),
    ("the_pages_together_stay_small", "profiles/own.md", and_then("x" * 9_300)),
    (
        "a_reference_begins_with_when_to_read_it",
        "references/one.md",
        instead("Read this when", "When"),
    ),
    ("a_long_page_has_a_table_of_contents", "references/one.md", and_then(LONG)),
    ("every_file_that_a_page_names_is_there", "references/one.md", and_then("[gone](gone.md)\n")),
    ("every_file_that_a_page_names_is_there", "references/one.md", and_then("`scripts/gone.py`\n")),
    ("every_file_that_a_page_names_is_there", "references/one.md", and_then("[out](../../../)\n")),
    ("every_anchor_that_a_page_names_is_there", "SKILL.md", instead("#first-part", "#second-part")),
    ("links_have_forward_slashes", "references/one.md", and_then("[x](debug\\deep.md)\n")),
    (
        "everything_is_reached_from_the_hub_in_two_hops",
        "SKILL.md",
        instead("`profiles/own.md`", "own"),
    ),
    (
        "references_are_one_level_deep",
        "SKILL.md",
        instead("(references/debug/deep.md)", "(references/one.md)"),
    ),
    ("references_are_one_level_deep", "references/debug/more/x.md", and_then(PAGE)),
    (
        "no_page_names_a_package_registry",
        "scripts/a.py",
        and_then("'https://" + "pypi" + ".org/simple'\n"),
    ),
    ("no_page_names_a_package_registry", "profiles/own.md", and_then("mirrors" + ".example.cn\n")),
    ("no_page_has_a_dollar_before_a_digit", "profiles/own.md", and_then("$2 an hour\n")),
]


def test_a_sound_tree_breaks_no_rule(tree: Path) -> None:
    assert [broken for rule in RULES.values() for broken in rule(tree)] == []


@pytest.mark.parametrize(
    ("rule", "file", "breaks"), BREAKS, ids=[f"{r}-{n}" for n, (r, _, _) in enumerate(BREAKS)]
)
def test_the_rule_names_the_file_and_the_line_that_break_it(
    tree: Path, rule: str, file: str, breaks: Break
) -> None:
    broken = tree / file
    broken.parent.mkdir(parents=True, exist_ok=True)
    text = broken.read_text(encoding="utf-8") if broken.exists() else ""
    broken.write_text(breaks(text), encoding="utf-8")

    found = list(RULES[rule](tree))

    assert found
    assert all(re.match(r"[\w./-]+:\d+: \S", words) for words in found)


def test_every_rule_is_shown_to_fail() -> None:
    assert {rule for rule, _, _ in BREAKS} == set(RULES)


def test_a_table_of_contents_is_taken_for_one(tree: Path) -> None:
    page = tree / "references/one.md"
    contents = "Contents: first part, and four more"
    page.write_text(PAGE.replace("\n## First", f"\n{contents}\n\n## First", 1) + LONG, "utf-8")

    assert list(RULES["a_long_page_has_a_table_of_contents"](tree)) == []
