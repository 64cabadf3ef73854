"""JSON, JSON lines and CSV: whole or broken, with the place named."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from unit.formats.samples import verdict

from gpu_tenant.artifacts.formats.bounded_file import Broken
from gpu_tenant.artifacts.formats.json_text import _must_be_closed


def is_closed(text: bytes, step: int) -> bool:
    """Whether the text is taken as if it were large, fed a few bytes at a time."""
    try:
        _must_be_closed(text[at : at + step] for at in range(0, len(text), step))
    except Broken:
        return False
    return True


CLOSED = st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(value=CLOSED, step=st.integers(1, 9), indent=st.none() | st.integers(0, 2))
def test_large_json_is_closed(value: object, step: int, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False).encode(errors="replace")

    assert is_closed(text, step)


@given(value=CLOSED, step=st.integers(1, 9), cut=st.integers(1, 200))
@example(value=["\\\\", '"'], step=1, cut=1)
def test_large_json_that_is_cut_off_is_not(value: object, step: int, cut: int) -> None:
    text = json.dumps(value, ensure_ascii=False).encode(errors="replace")

    assert not is_closed(text[:-cut], step)
    assert not is_closed(text[:-cut] + bytes(min(cut, len(text))), step)


@pytest.mark.parametrize(
    "text", [b"[}", b"]", b"[[1]", b'{"a": "b}', b"plain prose", b"", b'["\xff"]', b"[1,\0\0]"]
)
def test_what_is_open_crossed_or_no_text_is_broken_at_any_size(text: bytes) -> None:
    assert not is_closed(text, 1)
    assert not is_closed(text, 9)


@pytest.mark.parametrize(
    ("content", "outcome"),
    [
        (b"[" * 200_000 + b"]" * 200_000, "loads"),
        (b"[" * 200_000 + b"]" * 199_999, "broken"),
        (b"[" + b"1," * 3_000_000 + b"1]", "loads"),
        (b"[" + b"1," * 3_000_000 + b"1", "broken"),
        (b'["' + b"x" * 6_000_000 + b'"]', "loads"),
        (b'["' + b"x" * 6_000_000 + b"]", "broken"),
        (b"1" * 5000, "loads"),
        (b"words " * 1_000_000, "broken"),
    ],
)
def test_deep_and_large_json_is_read_to_the_end(
    tmp_path: Path, content: bytes, outcome: str
) -> None:
    assert verdict(tmp_path, "x.json", content).outcome == outcome


def test_what_a_large_file_does_not_prove_is_said(tmp_path: Path) -> None:
    seen = verdict(tmp_path, "x.json", b"[" + b"1," * 3_000_000 + b"1]")

    assert seen.proved == ("UTF-8 to the last byte, and every string and bracket is closed",)
    assert "a file this large is not parsed" in seen.not_proved[0]


def test_nan_in_json_is_a_warning_because_strict_readers_refuse_it(tmp_path: Path) -> None:
    seen = verdict(tmp_path, "x.json", b'{"loss": NaN}')

    assert seen.outcome == "loads"
    assert "strict JSON readers refuse" in seen.warnings[0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": 1}\n{"a": \n', "line 2"),
        (b'{"a": 1}\n{"a": 2', "line 2"),
        (b'{"a": 1}\n\0\0\0\0', "line 2"),
        (b'{"a": 1} {"a": 2}\n', "line 1"),
        (b"\n\n", "no line holds a value"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    seen = verdict(tmp_path, "log.jsonl", content)

    assert seen.outcome == "broken"
    assert reason in (seen.problem or "")


def test_a_last_line_without_newline_is_fine(tmp_path: Path) -> None:
    seen = verdict(tmp_path, "log.jsonl", b'{"a": 1}\n{"a": 2}')

    assert (seen.outcome, seen.warnings) == ("loads", ())


@pytest.mark.parametrize(
    ("content", "outcome", "note"),
    [
        (b"a,b\n1,2\n", "loads", ""),
        (b"a,b\r\n1,2\r\n", "loads", ""),
        (b"\xef\xbb\xbfa,b\n1,2\n", "loads", ""),
        (b'a,b\n"1\n\n,2",3\n', "loads", ""),
        (b"a,b\n1,2", "loads", "no newline"),
        (b"a,b\n1,2\n3,4\n5", "broken", "cut off in the last row: 1 columns of 2"),
        (b'a,b\n1,"2\n3,4\n', "broken", "a quote stays open, from row 2"),
        (b"a,b\n1,2\n3\n4,5\n", "loads", "1 of 4 rows do not have the 2 columns"),
        (b"a,b\n1,\0\n", "broken", "line 2 holds NUL bytes"),
        (b"a,b\n1,na\xefve\n", "loads", "line 2 is not UTF-8"),
        (b"\n", "loads", "no row"),
    ],
)
def test_rows_are_whole_or_the_fault_is_named(
    tmp_path: Path, content: bytes, outcome: str, note: str
) -> None:
    seen = verdict(tmp_path, "table.csv", content)

    assert seen.outcome == outcome
    assert note in " ".join([seen.problem or "", *seen.warnings])
    assert note or not seen.warnings
