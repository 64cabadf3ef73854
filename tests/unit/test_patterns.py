"""A pattern means the same here and on the box, and one that names nothing gives up nothing."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from box_scripts.caretaker.pattern_bounds import Bounds
from box_scripts.caretaker.patterns import Pattern
from box_scripts.caretaker.refusal import Refusal
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.files.patterns import require_narrow, require_patterns

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
