"""Which spans of an arriving file are here is told truly, also after this end was killed."""

import json
import os
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from gpu_tenant.transfer.partial_file import Partial, Span, Spans, forget, held_bytes

SIZE = 1000


def record_of(path: Path) -> Path:
    (found,) = path.parent.glob(f"{path.name}.*")
    return found


@contextmanager
def killed_at_the_end() -> Iterator[None]:
    """What was opened in between is closed as the system closes it: nobody is told."""

    def opened() -> set[int]:
        return {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}

    before = opened()
    yield
    for left in opened() - before:
        with suppress(OSError):  # the one that listed them
            os.close(left)


def killed(path: Path, *spans: Span, size_bytes: int = SIZE) -> None:
    """An attempt wrote and recorded those spans, and was killed."""
    with killed_at_the_end():
        partial = Partial(path, size_bytes)
        for span in spans:
            partial.write(memoryview(b"x" * span.size_bytes), span.first)
            partial.note_filled(span)
        partial.save()


@pytest.mark.parametrize("seed", range(8))
def test_spans_are_the_set_of_the_bytes_that_were_added(seed: int) -> None:
    chance, spans, model = random.Random(seed), Spans(), set[int]()
    for _ in range(60):
        first = chance.randrange(200)
        size = chance.choice((0, 1, chance.randrange(12), chance.randrange(40)))
        spans.add(Span(first, size))
        model |= set(range(first, first + size))

        held = list(spans)
        assert {byte for span in held for byte in range(span.first, span.end)} == model
        assert spans.size_bytes == len(model)
        assert all(a.end < b.first for a, b in pairwise(held)), "merged"
        assert spans.front == next(byte for byte in range(300) if byte not in model)
        gaps = [byte for gap in spans.missing(240) for byte in range(gap.first, gap.end)]
        assert gaps == [byte for byte in range(240) if byte not in model]


def test_of_an_empty_file_nothing_is_missing() -> None:
    assert Spans().missing(0) == []


def test_what_was_recorded_before_a_kill_is_here_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "partial"
    killed(path, Span(0, 100), Span(500, 250))

    again = Partial(path, SIZE)

    assert again.missing() == [Span(100, 400), Span(750, 250)]
    assert (again.front, again.held_bytes, again.is_whole) == (100, 350, False)
    assert held_bytes(path, SIZE) == 350
    again.close()
    assert path.read_bytes()[:100] == b"x" * 100


def test_what_was_written_and_not_recorded_is_fetched_again(tmp_path: Path) -> None:
    path = tmp_path / "partial"
    killed(path, Span(0, 100))
    with killed_at_the_end():
        partial = Partial(path, SIZE)
        partial.note_filled(Span(100, 900))
        assert partial.is_whole

    assert held_bytes(path, SIZE) == 100


def test_closing_records_all_that_is_here(tmp_path: Path) -> None:
    path = tmp_path / "partial"
    partial = Partial(path, SIZE)
    partial.note_filled(Span(3, 4))

    partial.close()

    assert held_bytes(path, SIZE) == 4


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"7",
        b'"spans"',
        b"{}",
        b'{"size": 1000}',
        b'{"size": 1000, "spans": 7}',
        b'{"size": 1000, "spans": [7]}',
        b'{"size": 1000, "spans": [[0]]}',
        b'{"size": 1000, "spans": [[0, null]]}',
        b'{"size": 1000, "spans": [["a", "b"]]}',
        b'{"size": 1000, "spans": [[-5, 20]]}',
        b'{"size": 1000, "spans": [[900, 101]]}',
        b'{"size": 1000, "spans": [[0, -1]]}',
        b'{"size": 999, "spans": [[0, 100]]}',
        b'{"size": "1000", "spans": [[0, 100]]}',
        b'{"size": 1000, "spans": [[0, NaN]]}',
        b'{"size": 1000, "spans": [[0, 1e999]]}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_or_foreign_record_counts_for_nothing(tmp_path: Path, record: bytes) -> None:
    path = tmp_path / "partial"
    killed(path, Span(0, 100))
    record_of(path).write_bytes(record)

    again = Partial(path, SIZE)

    assert again.missing() == [Span(0, SIZE)]
    again.close()


def test_a_record_is_of_the_file_of_its_size_alone(tmp_path: Path) -> None:
    path = tmp_path / "partial"
    killed(path, Span(0, 100))

    assert held_bytes(path, SIZE + 1) == 0
    again = Partial(path, SIZE + 1)
    assert again.missing() == [Span(0, SIZE + 1)]
    assert path.stat().st_size == SIZE + 1
    again.close()


@pytest.mark.parametrize("size_bytes", [0, 99, SIZE - 1, SIZE + 1])
def test_a_file_that_was_cut_or_has_grown_is_not_what_was_recorded(
    tmp_path: Path, size_bytes: int
) -> None:
    path = tmp_path / "partial"
    killed(path, Span(0, 100))
    os.truncate(path, size_bytes)

    assert held_bytes(path, SIZE) == 0


def test_a_record_whose_file_is_gone_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "partial"
    killed(path, Span(0, 100))
    path.unlink()

    assert held_bytes(path, SIZE) == 0


def test_a_record_never_speaks_of_a_file_that_was_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "partial"
    killed(path, Span(0, SIZE))
    path.unlink()

    with killed_at_the_end():
        Partial(path, SIZE)

    assert held_bytes(path, SIZE) == 0


def test_where_so_large_a_file_may_not_be_as_much_of_it_comes_as_may(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE - 1, before[1]))

    try:
        partial = Partial(tmp_path / "partial", SIZE)
        partial.write(memoryview(b"here"), 0)
        with pytest.raises(OSError, match="too large"):
            partial.write(memoryview(b"there"), SIZE)
        partial.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert (tmp_path / "partial").read_bytes() == b"here"


def test_what_was_forgotten_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "partial"
    killed(path, Span(0, 100))

    forget(path)
    forget(path)

    assert held_bytes(path, SIZE) == 0


def test_nothing_is_written_through_a_link_in_the_place_of_a_partial_file(tmp_path: Path) -> None:
    precious, path = tmp_path / "precious", tmp_path / "partial"
    precious.write_bytes(b"mine")
    path.symlink_to(precious)

    with pytest.raises(OSError, match="symbolic"):
        Partial(path, SIZE)

    assert precious.read_bytes() == b"mine"


def test_a_record_is_replaced_whole_and_says_what_it_is_of(tmp_path: Path) -> None:
    path = tmp_path / "partial"
    killed(path, Span(0, 100))
    first = record_of(path).read_bytes()
    killed(path, Span(100, 5))

    assert json.loads(first) == {"size": SIZE, "spans": [[0, 100]]}
    assert json.loads(record_of(path).read_bytes()) == {"size": SIZE, "spans": [[0, 105]]}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["partial", "partial.spans"]


def test_a_record_that_cannot_be_written_costs_no_more_than_fetching_again(tmp_path: Path) -> None:
    path = tmp_path / "partial"
    partial = Partial(path, SIZE)
    partial.note_filled(Span(0, 10))
    (tmp_path / "partial.spans").mkdir()

    partial.close()

    assert held_bytes(path, SIZE) == 0
