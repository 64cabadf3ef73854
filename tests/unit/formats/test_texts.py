"""JSON, JSON lines and CSV: whole or broken, with the place named."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from unit.formats.samples import verdict

from gpu_tenant.artifacts.formats.bounded_file import Broken
from gpu_tenant.artifacts.formats.json_text import Structure

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def streams(text: bytes, step: int) -> bool:
    """Whether the streaming reader takes the text, fed a few bytes at a time."""
    structure = Structure()
    try:
        for at in range(0, len(text), step):
            structure.feed(text[at : at + step])
        structure.close()
    except Broken:
        return False
    return True


def parses(text: bytes) -> bool:
    """Whether the standard parser takes the text."""
    try:
        json.loads(text.decode())
    except ValueError:
        return False
    return True


@given(value=VALUES, step=st.integers(1, 9), indent=st.none() | st.integers(0, 2))
def test_streaming_takes_every_json_value(value: object, step: int, indent: int | None) -> None:
    assert streams(
        json.dumps(value, indent=indent, ensure_ascii=False).encode(errors="replace"), step
    )


@given(
    text=st.text(st.sampled_from('{}[]",:0123-+.eE\\u ntrfalsNI\n\x01é')).map(str.encode),
    step=st.integers(1, 9),
)
@example(text=b"[1,]", step=1)
@example(text=b'{"a":1,}', step=1)
@example(text=b"-", step=1)
@example(text=b"01", step=1)
@example(text=b'"\\u12', step=1)
@example(text=b"1 2", step=1)
@example(text=b"-Infinity", step=2)
def test_streaming_agrees_with_the_standard_parser(text: bytes, step: int) -> None:
    assert streams(text, step) == parses(text)


@given(value=VALUES, at=st.integers(0, 200), byte=st.binary(min_size=1, max_size=1))
def test_streaming_agrees_on_damaged_json_too(value: object, at: int, byte: bytes) -> None:
    text = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    damaged = text[:at] + byte + text[at + 1 :]

    assert streams(damaged, 7) == parses(damaged)


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
    ],
)
def test_deep_and_large_json_is_read_to_the_end(
    tmp_path: Path, content: bytes, outcome: str
) -> None:
    assert verdict(tmp_path, "x.json", content).outcome == outcome


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
        (b"\n", "broken", "no row"),
    ],
)
def test_rows_are_whole_or_the_fault_is_named(
    tmp_path: Path, content: bytes, outcome: str, note: str
) -> None:
    seen = verdict(tmp_path, "table.csv", content)

    assert seen.outcome == outcome
    assert note in " ".join([seen.problem or "", *seen.warnings])
    assert note or not seen.warnings
