"""Whatever the bytes, there is a verdict: nothing raises, and every verdict is consistent."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.formats.samples import GOOD, verdict

from gpu_tenant.artifacts.formats import SUFFIXES
from gpu_tenant.artifacts.formats.bounded_file import Source
from gpu_tenant.domain.evidence import Verdict

SMALL = {name: content for name, content in GOOD.items() if len(content) < 20_000}
bounded = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def consistent(seen: Verdict) -> bool:
    """A broken file has a problem, and no other file has."""
    return (seen.outcome == "broken") == bool(seen.problem)


@bounded
@given(content=st.binary(max_size=600), suffix=st.sampled_from((*SUFFIXES, ".bin", "")))
def test_random_bytes_get_a_verdict(tmp_path: Path, content: bytes, suffix: str) -> None:
    assert consistent(verdict(tmp_path, f"x{suffix}", content))


@bounded
@given(
    name=st.sampled_from(sorted(SMALL)),
    edits=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=9)), min_size=1, max_size=6
    ),
    cut=st.floats(0, 1),
    kept=st.booleans(),
)
def test_mutated_files_get_a_verdict(
    tmp_path: Path, name: str, edits: list[tuple[float, bytes]], cut: float, kept: bool
) -> None:
    content = bytearray(SMALL[name])
    for place, written in edits:
        at = int(place * len(content))
        content[at : at + len(written)] = written
    if not kept:
        del content[int(cut * len(content)) :]

    assert consistent(verdict(tmp_path, name, bytes(content)))


@bounded
@given(
    magic=st.sampled_from(sorted({content[:24] for content in GOOD.values()})),
    rest=st.binary(max_size=300),
    suffix=st.sampled_from((*SUFFIXES, ".bin")),
)
def test_a_good_beginning_with_a_random_rest_gets_a_verdict(
    tmp_path: Path, magic: bytes, rest: bytes, suffix: str
) -> None:
    assert consistent(verdict(tmp_path, f"x{suffix}", magic + rest))


def test_an_error_of_the_disk_is_remembered_whatever_a_parser_makes_of_it(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"{}" * 100_000)

    with Source(path, path.name) as source, (tmp_path / "y").open("wb") as unreadable:
        os.dup2(unreadable.fileno(), source._file.fileno())
        with pytest.raises(OSError, match="Bad file descriptor"):
            source.read(0, 100)

        assert isinstance(source.failure, OSError)
