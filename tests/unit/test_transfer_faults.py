"""A box that lies, breaks or is stuck costs a transfer time; no other bytes than the file's are told as its own."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Literal

import pytest
from arranged import Alone, eventually
from transferring import (
    LYING,
    MB,
    NOISE,
    Box,
    Throttled,
    Told,
    coming,
    fetched,
    is_whole,
    nothing_left,
)

from gpu_tenant.domain.errors import BoxTrouble, BoxUnreachable, LocalTrouble
from gpu_tenant.domain.ports import Channel
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.transfer.chunks import Bundle, Coming, Comparison, Piece, Stretch
from gpu_tenant.transfer.download_state import DownloadState
from gpu_tenant.transfer.partial_file import Partial, Span
from gpu_tenant.transfer.readback import Arrived, Lost, Prover

LARGE_BYTES = 3 * MB // 2
UNREADABLE = "/sys/class/net/lo/speed"
"""A regular file of 4,096 bytes, of which none can be read."""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    made = tmp_path / "here"
    made.mkdir()
    return made


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "box")


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    with nothing_left():
        yield


# A box that lies


@pytest.mark.parametrize(
    ("size_bytes", "says"),
    [
        (LARGE_BYTES, "say(head(b'Q', size) + bytes(size))"),
        (1000, "say(b'HTTP/1.1 400 Bad Request')"),
        (LARGE_BYTES, "say(head(b'S', 8) + bytes(8))"),
        (1000, "say(head(b'D', size - 1) + bytes(size - 1))"),
        (LARGE_BYTES, "say(head(b'D', size + 1) + bytes(size + 1))"),
        (LARGE_BYTES, "say(head(b'D', size) + bytes(size // 2)); os._exit(0)"),
        (1000, "say(head(b'E', 1 << 62)); [say(bytes(1 << 20)) for _ in range(10 ** 9)]"),
        (LARGE_BYTES, "say(head(b'Z', 1 << 62)); [say(bytes(1 << 20)) for _ in range(10 ** 9)]"),
        (LARGE_BYTES, "bomb = zlib.compress(bytes(8 << 20)); say(head(b'Z', len(bomb)) + bomb)"),
        (1000, "torn = zlib.compress(os.urandom(size))[:-3]; say(head(b'Z', len(torn)) + torn)"),
        (LARGE_BYTES, "few = zlib.compress(bytes(size // 2)); say(head(b'Z', len(few)) + few)"),
    ],
)
async def test_an_answer_that_is_none_ends_the_conversation_and_nothing_arrives(
    tmp_path: Path, here: Path, says: str, size_bytes: int
) -> None:
    box = Box(tmp_path / "box", instead=LYING + says)
    told = Told()

    with pytest.raises(BoxUnreachable):
        await fetched(coming(here, [box.holds("file", NOISE[:size_bytes])]), box, told=told)

    assert (told.arrived, told.lost) == ({}, {})


async def test_a_box_whose_every_answer_is_none_is_given_up(tmp_path: Path, here: Path) -> None:
    box, told = Box(tmp_path / "box", instead=LYING + "os._exit(1)"), Told()
    files = coming(here, [box.holds("large", NOISE)])

    try:
        await fetched(files, box, turn=Throttled(most=8), told=told)
    except BoxTrouble:
        assert not told.lost
    else:
        assert set(told.lost) == {"large"}

    assert not told.arrived
    assert len(box.opened) <= 12


async def test_a_packed_answer_for_an_empty_file_is_bounded(tmp_path: Path, here: Path) -> None:
    says = "bomb = zlib.compress(bytes(8 << 20)); say(head(b'Z', len(bomb)) + bomb)"
    box, told = Box(tmp_path / "box", instead=LYING + says), Told()
    (file,) = coming(here, [box.holds("empty", b"")])

    with pytest.raises(BoxTrouble):
        await fetched([file], box, told=told)

    assert not told.arrived
    assert not file.partial.exists()


async def test_other_bytes_than_the_file_s_are_told_as_what_they_are(
    tmp_path: Path, here: Path
) -> None:
    box = Box(tmp_path / "box", instead=LYING + "say(head(b'D', size) + b'x' * size)")
    sizes = {"small": 1000, "large": LARGE_BYTES}
    entries = [box.holds(name, NOISE[:size]) for name, size in sizes.items()]

    told = await fetched(coming(here, entries), box)

    assert all(is_whole(told.arrived[name], b"x" * size) for name, size in sizes.items())


async def test_whatever_a_refusal_says_the_file_is_lost(tmp_path: Path, here: Path) -> None:
    says = "why = (b'not even JSON', bytes(range(256)) * 9999, b'')[size % 3]"
    box = Box(tmp_path / "box", instead=f"{LYING}{says}; say(head(b'E', len(why)) + why)")
    sizes = (999, 1000, 1001, LARGE_BYTES, LARGE_BYTES + 1)

    told = await fetched(coming(here, [box.holds(f"{n}", NOISE[:n]) for n in sizes]), box)

    assert set(told.lost) == {f"{n}" for n in sizes}


async def test_wrong_digests_cost_time_and_spoil_nothing(tmp_path: Path, here: Path) -> None:
    """They say of every block that it is as it was: then the hash tells that the file is another one."""
    says = "pass\n    blocks = asked['size'] // 16384; from hashlib import sha256"
    says += "\n    say(head(b'S', 8 * blocks) + sha256(bytes(16384)).digest()[:8] * blocks)"
    box = Box(tmp_path / "box", instead=LYING + says)
    (here / "old").write_bytes(bytes(LARGE_BYTES))

    told = await fetched(coming(here, [box.holds("large", NOISE[:LARGE_BYTES])], here / "old"), box)

    assert is_whole(told.arrived["large"], bytes(LARGE_BYTES)), "and not what the box holds"


# A box that is broken


async def test_a_file_the_box_cannot_read_is_lost_and_the_rest_arrives(
    box: Box, here: Path
) -> None:
    good = [box.holds(f"good {n}", NOISE[:5000]) for n in range(5)]
    odd = good[0].model_copy(update={"name": "odd", "at": UNREADABLE, "size_bytes": 4096})

    told = await fetched(coming(here, [odd, *good]), box)

    assert set(told.lost) == {"odd"}
    assert all(is_whole(told.arrived[entry.name], NOISE[:5000]) for entry in good)


class FirstStuck(Box):
    """A box whose process behind the first channel begins an answer and does nothing more."""

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        self._instead = f"{LYING}say(head(b'D', size)); time.sleep(9999)" if way == "kept" else None
        return await super().open(argv, way=way)


async def test_one_silent_channel_does_not_hold_up_the_end(tmp_path: Path, here: Path) -> None:
    box = FirstStuck(tmp_path / "box")

    told = await fetched(coming(here, [box.holds("large", NOISE)]), box)

    assert is_whole(told.arrived["large"], NOISE)


class Undiallable(Box):
    """A way that fails on this side."""

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        raise LocalTrouble("cannot start 'ssh': Too many open files", remedy="close some")


async def test_an_error_here_while_dialling_is_told_as_what_it_is(
    tmp_path: Path, here: Path
) -> None:
    box = Undiallable(tmp_path / "box")

    with pytest.raises(LocalTrouble, match="Too many open files"):
        await fetched(coming(here, [box.holds("large", NOISE[:MB])]), box)


# What the threads share

SIZE = 2 * MB


class Idle:
    """A courier that asks when the test says so."""

    number = 0

    def __init__(self) -> None:
        self.asked: list[Piece] = []

    def hang_up(self) -> None:
        """It has no link."""


def working(tmp_path: Path, *held: Span, basis: Path | None = None) -> DownloadState:
    """Work on one large file, of which those spans came before."""
    partial = Partial(tmp_path / "p", SIZE)
    for span in held:
        partial.note_filled(span)
    partial.close()
    entry = SealedFile(
        name="f", at="/f", kind="file", role="artifact", mtime_ns=1, size_bytes=SIZE, sha256=None
    )
    work = DownloadState(Alone())
    work.add([Coming(entry, tmp_path / "p", basis)])
    return work


@pytest.fixture
def older(tmp_path: Path) -> Path:
    (tmp_path / "old").write_bytes(bytes(SIZE))
    return tmp_path / "old"


def test_a_file_is_not_read_to_its_end_while_something_of_it_can_still_be_asked_for(
    tmp_path: Path, older: Path
) -> None:
    gaps = Span(0, 2000), Span(3000, 1000), Span(5000, SIZE - 5000)
    work, courier = working(tmp_path, *gaps, basis=older), Idle()
    first, second = work.take(courier, MB), work.take(courier, MB)
    assert isinstance(first, Comparison)
    assert isinstance(second, Comparison)
    file = second.file
    file.partial.note_filled(Span(0, SIZE))
    work.take_comparison(file, [], [second.span])
    work.note_done(second)
    work.give_back(first)
    due: list[object] = []
    prover = Thread(target=lambda: due.append(work.provable(least_bytes=32 * MB, least_s=60)))
    prover.start()

    assert not eventually(lambda: due, within_s=0.3)

    again = work.take(courier, MB)
    assert isinstance(again, Comparison)
    work.take_comparison(file, [], [again.span])
    work.note_done(again)
    prover.join(5)
    assert due == [([file], [], [])]
    work.close(file)


def test_what_is_here_already_is_not_fetched_again_nor_written_over(
    tmp_path: Path, older: Path
) -> None:
    work, courier = working(tmp_path, Span(0, 100_000), basis=older), Idle()
    piece = work.take(courier, MB)
    assert isinstance(piece, Comparison)
    work.take_comparison(piece.file, [piece.span], [])
    work.note_done(piece)

    asked = work.take(courier, MB)

    assert isinstance(asked, Stretch)
    assert asked.spans[0].first >= 100_000
    work.close(asked.file)


class Filling(Partial):
    """A file whose last bytes come in the moment in which somebody looks how far it has come."""

    @property
    def front(self) -> int:
        here = super().front
        self.note_filled(Span(0, SIZE))
        return here


def test_a_file_that_becomes_whole_while_it_is_looked_at_is_told_when_all_of_it_was_read(
    tmp_path: Path,
) -> None:
    work, told = working(tmp_path, Span(0, MB)), list[Arrived | Lost]()
    piece = work.take(Idle(), SIZE)
    assert isinstance(piece, Stretch)
    piece.file.partial.__class__ = Filling
    prover = Prover(work, told.extend)

    prover._read_back(piece.file)
    before = list(told)
    prover._read_back(piece.file)

    assert before == []
    assert [one.size_bytes for one in told if isinstance(one, Arrived)] == [SIZE]


def test_channels_that_end_over_what_others_have_brought_are_no_sign_of_a_file_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    """At the end of a lossy transfer, all who were still asked for something again are hung up on."""
    work = working(tmp_path)
    asked = [work.take(Idle(), SIZE // 4) for _ in range(4)]
    for piece in asked:
        assert isinstance(piece, Stretch)
        for span in piece.spans:
            piece.file.partial.note_filled(span)

    for piece in asked:
        assert piece is not None
        work.broke(piece)
        work.give_back(piece)

    due = work.provable(least_bytes=MB, least_s=60)
    assert due is not None
    assert (len(due[0]), due[2]) == (1, []), "to be read back, and not lost"
    work.close(due[0][0])


def test_who_is_not_wanted_measures_the_link_and_asks_for_nothing_even_if_that_is_late(
    tmp_path: Path,
) -> None:
    work, beside = working(tmp_path), Idle()
    (first, *_), beside.number = [work.take(Idle(), SIZE // 4) for _ in range(4)], 1
    assert isinstance(first, Stretch)
    work._under_way[first] = (time.monotonic() - 60, Idle())

    assert work.take(beside, MB) is None, "after a moment, though nothing has ended"

    beside.number = 0
    again = work.take(beside, MB)
    assert isinstance(again, Stretch), "whoever is wanted brings what is late"
    assert again.spans == first.spans
    work.close(first.file)


def test_what_is_written_while_something_else_is_read_back_is_told_once(tmp_path: Path) -> None:
    work = working(tmp_path, Span(0, SIZE))
    small = SealedFile(
        name="s", at="/s", kind="file", role="artifact", mtime_ns=1, size_bytes=9, sha256=None
    )
    work.add([Coming(small, tmp_path / "s")])
    piece = work.take(Idle(), MB)
    due = work.provable(least_bytes=MB, least_s=0)
    assert due is not None
    assert due[1:] == ([], [])

    work.wrote(Coming(small, tmp_path / "s"))

    assert not due[1], "it is for whoever asks next"
    again = work.provable(least_bytes=MB, least_s=0)
    assert again is not None
    assert [one.entry.name for one in again[1]] == ["s"]
    assert isinstance(piece, Bundle)
    work.leave()
