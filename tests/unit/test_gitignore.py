"""Each rule of a `.gitignore` matches what git's own matcher lets it match, and no rule takes long."""

import os
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pathspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gpu_tenant.files.gitignore import bytes_of, parse_rules
from gpu_tenant.files.worktree import files_of

ALONE = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CEILING_DIRECTORIES": "/",
}
FOLDERS = ("a", "b", "ab", "b/a", "b/b", "a b", "a/b/a", "b-/[a")
NAMES = ("a", "b", "ab", "-", "a b", "b ", "[a", "a]", "\\b", "!a", "é", "a.b", "a\udcff")
TREE = sorted({*NAMES, *(f"{folder}/{name}" for folder in FOLDERS for name in NAMES)} - {*FOLDERS})


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a file of each name in each folder."""
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "--quiet", root], env=ALONE, check=True)
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in TREE:
        if not (root / name).is_dir():
            (root / name).touch()
    return root


def ignored_by_git(repository: Path) -> set[str]:
    """The files that git excludes, by its own word."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=repository,
        env=ALONE,
        capture_output=True,
        check=True,
    )
    return {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}


PIECES = st.sampled_from(
    [
        "a",
        "b",
        "*",
        "**",
        "?",
        "/",
        "/",
        "-",
        " ",
        "é",
        "]",
        "[",
        "\\",
        "!",
        "#",
        ".[a-b]",
        "[!a]",
        "[^b]",
        "[]a]",
        "[a-]",
        "[!]-]",
        "[b-a]",
        "[\\]a]",
        "[[:alpha:]]",
        "[[:x:]]",
        "[[:digit:]-a]",
        "[a/b]",
        "\\*",
        "\\[",
        "\\ ",
        "\\b",
        "/**/",
        "**/",
        "/**",
        "a**/",
        "\\/",
        "[[:",
    ]
)
RULES = st.lists(PIECES, min_size=1, max_size=6).map("".join)


@settings(max_examples=100, deadline=None)
@given(rules=st.lists(RULES, min_size=1, max_size=3))
@example(rules=["a**/b"])
@example(rules=["a/b**"])
@example(rules=["*", "!*/", "!b"])
@example(rules=["b   ", "a\\ ", "!\\!a"])
@example(rules=["**/a/**/b", "/b**/**/a"])
def test_git_and_we_agree_on_each_file_whatever_the_rules_are(
    repository: Path, rules: list[str]
) -> None:
    (repository / ".gitignore").write_bytes(os.fsencode("\n".join(rules)))

    assert set(files_of(repository)) == ignored_by_git(repository), rules


@settings(max_examples=500, deadline=None)
@given(
    rule=st.from_regex(
        r"!?/?(\*\*|([ab.*?]|\[ab\]){1,3})(/([ab.*?]|\*\*){1,3}){0,3}", fullmatch=True
    ),
    path=st.from_regex(r"[ab.]{1,3}(/[ab.]{1,3}){0,3}", fullmatch=True),
)
def test_pathspec_and_we_agree_where_it_agrees_with_git(rule: str, path: str) -> None:
    parts = path.split("/")
    assume(not {".", "..", ""} & set(parts))
    # In `a**/b`, git takes the stars for `**`, and pathspec does not.
    assume(not any("**" in part and part != "**" for part in rule.strip("!/").split("/")))
    (ours,) = parse_rules(rule.encode())

    theirs = pathspec.GitIgnoreSpec.from_lines([rule.removeprefix("!")])

    above = [parts[:depth] for depth in range(1, len(parts))]
    is_ours = ours.matches(parts, "file") or any(
        ours.matches(folder, "directory") for folder in above
    )
    assert is_ours == theirs.match_file(path)


@pytest.mark.parametrize(
    "rule",
    [
        "*a*a*a*a*a*a*b",
        "*a" * 127,
        "**/a/" * 60 + "b",
        "a**/" * 60,
        "[ab]*" * 120 + "c",
        "?*" * 120 + "b",
        "**/*a*a*a*/" * 20 + "b",
        "*" * 250 + "b",
        "[[:alpha:]]*" * 120 + "-",
        "*aaaaaaaaaaaaaaaaaaaa" * 12,
    ],
)
@pytest.mark.parametrize("name", ["a" * 255, "a/" * 127 + "a", "é" * 127, "aaab" * 63])
def test_no_rule_takes_long_for_a_name_of_255_characters(rule: str, name: str) -> None:
    parts = bytes_of(name).split("/")
    began = time.thread_time()

    for one in parse_rules(rule.encode()):
        one.matches(parts, "file")

    assert time.thread_time() - began < 0.05


def test_fourteen_characters_of_rules_hold_up_no_walk() -> None:
    with TemporaryDirectory() as fresh:
        root = Path(fresh)
        (root / ".gitignore").write_text("*a*a*a*a*a*a*b\n", encoding="utf-8")
        (root / ("a" * 200)).touch()
        began = time.thread_time()

        assert set(files_of(root)) == {".gitignore", "a" * 200}

        assert time.thread_time() - began < 1
