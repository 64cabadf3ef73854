"""Any file name travels as safe text, comes back as the same bytes, and stays below its root."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_tenant.domain.untrusted_text import bare
from gpu_tenant.files.paths import below, escape, to_bytes, to_remote

ROOT = Path("/kept/lease")

raw_names = st.binary(min_size=1, max_size=60).filter(lambda raw: b"\0" not in raw)
"""Every name a POSIX file system can hold, directories included."""


@given(raw_names)
@example(b"100%.txt")
@example(b"%41")
@example(b"\xff\xfe")
@example("naïve 汉字 🙂".encode())
@example(b"\x1b[31m\n\t")
@example("right\u202eleft".encode())
def test_any_name_comes_back_as_the_same_bytes(raw: bytes) -> None:
    assert to_bytes(escape(os.fsdecode(raw))) == raw


@given(raw_names)
def test_a_transport_gets_the_name_the_box_has(raw: bytes) -> None:
    assert to_remote(escape(os.fsdecode(raw))) == os.fsdecode(raw)


@given(raw_names)
def test_a_name_in_transit_is_plain_text_of_one_line(raw: bytes) -> None:
    shown = escape(os.fsdecode(raw))

    assert bare(shown) == shown
    assert len(shown.splitlines()) == 1
    assert shown.encode()


@given(st.text(alphabet=st.characters(categories=["L", "N"]), min_size=1))
def test_a_plain_name_is_itself(name: str) -> None:
    assert escape(name) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("out/model.pt", "out/model.pt"),
        ("with space", "with space"),
        ("50%", "50%25"),
        ("a\nb", "a%0Ab"),
        ("\udcff", "%FF"),
        ("\u202e", "%E2%80%AE"),
        ("汉字", "汉字"),
    ],
)
def test_what_a_screen_would_obey_is_written_out(name: str, shown: str) -> None:
    assert escape(name) == shown


@given(raw_names)
@example(b"../../etc/passwd")
@example(b"/etc/passwd")
@example(b"a/../../b")
@example(b"..")
@example(b"a//b")
@example(b"a/./b")
@example(b"a/")
def test_no_name_leaves_its_root(raw: bytes) -> None:
    try:
        path = below(ROOT, escape(os.fsdecode(raw)))
    except ValueError:
        assert {b"", b".", b".."} & set(raw.split(b"/"))
    else:
        assert Path(os.path.normpath(path)) == path
        assert path.is_relative_to(ROOT)
        assert path != ROOT
        assert os.fsencode(path.relative_to(ROOT)) == raw


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "/abs",
        "..",
        "a/..",
        "../a",
        ".",
        "./a",
        "a//b",
        "a/",
        "%2e%2e/a",
        "a/%2E%2E",
        "%2Fetc",
        "a%00b",
    ],
)
def test_a_name_that_would_leave_its_root_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a relative name"):
        below(ROOT, name)
