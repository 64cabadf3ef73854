"""A pattern means the same here and on the box, and one that names nothing gives up nothing."""

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from box_scripts.caretaker.paths import escape_path, unescape_path, utf8_bytes
from box_scripts.caretaker.pattern_bounds import Bounds
from box_scripts.caretaker.patterns import Pattern
from box_scripts.caretaker.refusal import Refusal
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.files.patterns import (
    literal_pattern,
    matches_kept_name,
    patterns_alike,
    require_narrow,
    require_patterns,
    told_apart,
)

TEXTS = st.text(alphabet="ab*?[]!-^/\\.%2e~ 7", min_size=1, max_size=12)


def is_taken(text: str) -> bool:
    try:
        require_patterns([text])
    except BadRequest:
        return False
    return True


def is_taken_there(text: str) -> bool:
    try:
        Pattern(text)
    except Refusal:
        return False
    return True


def is_narrow(text: str) -> bool:
    try:
        require_narrow([text])
    except BadRequest:
        return False
    return True


@pytest.mark.filterwarnings("ignore::FutureWarning")
@settings(max_examples=2000, deadline=None)
@given(TEXTS)
def test_what_is_taken_here_is_never_refused_by_the_box(text: str) -> None:
    assert not is_taken(text) or is_taken_there(text), text


@pytest.mark.parametrize(
    "text",
    [
        "?*",
        "***",
        "**?",
        "[!q]*",
        "*.*",
        "./?*",
        "*[a-z]*",
        "~/?*",
        "~/",
        "~",
        "/",
        "**/*",
        "*/",
        "./",
        "~/**",
        "[a-z0-9]*/**",
    ],
)
def test_a_pattern_that_means_whatever_there_is_gives_up_nothing(text: str) -> None:
    assert not is_narrow(text)
    bounds = Bounds("/c", Path("/w/work").__fspath__().encode(), [b"/root"])
    if is_taken_there(text) and Pattern(text).relative:
        assert bounds.passed_by(Pattern(text)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "*.pt",
        "out/",
        "tmp*",
        "**/cache/",
        "~/wandb/",
        "~/miniconda3/",
        "/tmp/x/*",
        "*_old*",
        "data/**/*.bin",
        "run?/",
    ],
)
def test_a_pattern_that_names_something_is_taken(text: str) -> None:
    assert is_narrow(text)
    assert is_taken(text)
    bounds = Bounds("/c", b"/w/work", [b"/root"])
    assert bounds.passed_by(Pattern(text)) is None


@pytest.mark.filterwarnings("ignore::FutureWarning")
@settings(max_examples=2000, deadline=None)
@given(TEXTS, st.text(alphabet="ab[]-^.e 7/", min_size=1, max_size=6))
def test_a_pattern_means_the_same_file_here_and_on_the_box(text: str, name: str) -> None:
    is_below_the_work = not text.startswith(("/", "~"))
    if not is_taken(text) or not is_below_the_work or {"", ".", ".."} & set(name.split("/")):
        return

    assert matches_kept_name(text, f"work/{name}") == bool(Pattern(text).matches(name))


TOKEN = re.compile(
    r"(?P<run>(?:%[0-9A-F]{2})+)|\\(?P<quoted>.)|(?P<star>\*+)|(?P<one>\?)"
    r"|\[(?P<not>[!^]?)(?P<set>\]?[^]]*)\]|(?P<plain>.)",
    re.DOTALL,
)


def as_regex(text: str) -> str:
    """A regex that says what a pattern below the work directory means. For several stars it may take for ever."""

    def segment(part: str) -> str:
        source = ""
        for token in TOKEN.finditer(part):
            if token.lastgroup == "set":
                chars = "".join(c if c == "-" else re.escape(c) for c in token.group("set"))
                form = "(?:%%[0-9A-F]{2}|(?![/%%])[^%s])" if token.group("not") else "(?![/%%])[%s]"
                source += form % chars
            elif token.lastgroup in ("star", "one"):
                source += "(?:%[0-9A-F]{2}|[^/%])" + "*" * (token.lastgroup == "star")
            else:
                plain = token.group("quoted") or token.group("plain")
                raw = utf8_bytes(plain) if plain else unescape_path(token.group())
                source += re.escape(escape_path(raw))
        return source

    names = [name for name in text.split("/") if name not in ("", ".")]
    source = "" if "/" in text.rstrip("/") else "(?:.*/)?"
    for name in names[:-1]:
        source += "(?:.*/)?" if name == "**" else segment(name) + "/"
    if names[-1] == "**":
        return source + (".+/.+" if text.endswith("/") else ".+")
    return source + segment(names[-1]) + ("/.+" if text.endswith("/") else "(?:/.+)?")


@pytest.mark.filterwarnings("ignore::FutureWarning")
@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["a", "b", "*", "**", "/", "?", "[ab]", "[!a-b]", "\\*", "%00", "%61", ".", "é", "-"]
        ),
        min_size=1,
        max_size=8,
    ).map("".join),
    st.lists(st.text(alphabet="ab*é-\0%", min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_a_pattern_means_what_its_regular_expression_means(text: str, parts: list[str]) -> None:
    if not is_taken_there(text) or not Pattern(text).relative:
        return
    path = escape_path("/".join(parts).encode())

    assert Pattern(text).matches(path) == bool(re.fullmatch(as_regex(text), path))


HARD = [
    *("*a*a*a*a*a*a*b", "*a" * 127, "**/a/" * 60 + "b", "**/*a*a*a*/" * 20 + "b", "?*" * 120 + "b"),
    *("[ab]*" * 120 + "c", "[!b]*" * 120 + "b", "*aaaaaaaaaaaaaaaaaaaa" * 12, "**/a*a" * 60 + "/b"),
]


@pytest.mark.parametrize("text", HARD)
@pytest.mark.parametrize("name", ["a" * 255, "a/" * 127 + "a", "%00" * 255, "aaab" * 63])
def test_no_pattern_takes_long_for_a_name_of_255_characters(text: str, name: str) -> None:
    began = time.thread_time()

    is_there, is_here = Pattern(text).matches(name), matches_kept_name(text, f"work/{name}")

    assert time.thread_time() - began < 0.1
    assert is_there == is_here


def test_a_pattern_longer_than_any_path_is_no_pattern() -> None:
    assert is_taken("a" * 9000)
    assert is_taken_there("a" * 9000)
    assert not is_taken("*a" * 9000)
    assert not is_taken_there("*a" * 9000)


@pytest.mark.parametrize("text", ["/a%00b/c", "~/a%00b/c"])
def test_a_pattern_that_no_path_can_have_is_refused_and_breaks_nothing(text: str) -> None:
    assert not is_taken_there(text)


@pytest.mark.parametrize("name", ["a [b] c.txt", "*", "x?", "back\\slash", "[!a]"])
def test_the_pattern_of_one_file_means_that_file_alone(name: str) -> None:
    pattern = literal_pattern(name)

    assert matches_kept_name(pattern, f"work/{name}")
    assert Pattern(pattern).matches(name)
    assert not Pattern(pattern).matches(f"{name}2")


@pytest.mark.parametrize(
    ("of_the_smoke_test", "of_the_job"),
    [
        ("step-2.pt", "step-2000.pt"),
        ("best.pt", "last.pt"),
        ("runs/7/w.safetensors", "runs/12/model.safetensors"),
        ("ckpt-1/optimizer", "ckpt-900/optimizer"),
        ("a [b] 1.bin", "a [b] 20.bin"),
    ],
)
def test_what_is_kept_of_a_smoke_test_is_kept_of_its_job_under_other_names(
    of_the_smoke_test: str, of_the_job: str
) -> None:
    (pattern,) = patterns_alike([of_the_smoke_test])

    require_narrow([pattern])
    for name in (of_the_smoke_test, of_the_job):
        assert matches_kept_name(pattern, f"work/{name}")
        assert Pattern(pattern).matches(name)
    assert not matches_kept_name(pattern, "work/train.py")


@pytest.mark.parametrize("name", ["7", "12/34"])
def test_a_name_of_nothing_but_numbers_is_kept_alone(name: str) -> None:
    assert patterns_alike([name]) == [name]


@pytest.mark.parametrize(
    ("artifacts", "discard", "kept", "lost"),
    [
        (["out/", "!out/x"], [], ("out/",), ("out/x",)),
        (["out/", "!*.tmp"], [], ("out/",), ("**/out/**/*.tmp",)),
        (["./out/", "!*.tmp"], [], ("./out/",), ("./out/**/*.tmp",)),
        (["a"], ["out/", "!out/y"], ("a", "out/y"), ("out/",)),
        (["a"], ["b"], ("a",), ("b",)),
    ],
)
def test_what_is_negated_is_taken_out(
    artifacts: list[str], discard: list[str], kept: tuple[str, ...], lost: tuple[str, ...]
) -> None:
    assert told_apart(artifacts, discard) == (kept, lost)


def test_an_artifact_that_only_says_what_is_not_kept_is_refused() -> None:
    with pytest.raises(BadRequest, match="nothing says what is kept"):
        told_apart(["!out/"], [])
