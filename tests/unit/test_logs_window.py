"""A job's log in windows that tile, searched as an eye would see it, and no byte of it fetched twice."""

import asyncio
import os
import re
import stat
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from e2e.leased import Leased
from hypothesis import example, given, settings
from hypothesis import strategies as st
from waited import over

from gpu_tenant.box.caretaker import Caretaker, JobStatus
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import JobId, Lease, LocalAddress
from gpu_tenant.domain.untrusted_text import bare
from gpu_tenant.files.skill_files import script
from gpu_tenant.jobs.logs.cache import LogCopy
from gpu_tenant.jobs.logs.source import Log, LogBytes, LogOnBox, Source, stretch
from gpu_tenant.jobs.logs.window import Hits, LogWindow, search, window
from gpu_tenant.leases.read_logs import is_run, log_search, log_window
from gpu_tenant.service import Tenancy
from gpu_tenant.transports.local import LocalTransport

WINDOW = 64 << 10
RED, RESET = b"\x1b[31m", b"\x1b[0m"


class Said:
    """A log of these bytes, which grows or has ended; it gives no more than 50 kB at once."""

    source: Source = "kept"

    def __init__(self, raw: bytes, then: Literal["grows", "ended"] = "ended") -> None:
        self.raw, self.grows = raw, then == "grows"

    async def read(self, start: int, limit: int) -> LogBytes:
        at = max(0, len(self.raw) + start) if start < 0 else min(start, len(self.raw))
        return LogBytes(at, self.raw[at:][: min(limit, 50_000)], len(self.raw), self.grows)


def see(log: Log, start: int, limit: int = WINDOW) -> LogWindow:
    return asyncio.run(window(log, start=start, limit=limit))


def find(log: Log, q: str, start: int = 0, case: Literal["no", "yes"] = "no") -> Hits:
    return asyncio.run(search(log, q=q, start=start, case=case, budget_s=30))


def forwards(log: Log, start: int = 0) -> list[LogWindow]:
    """Every window from there to the end."""
    seen = [see(log, start)]
    while seen[-1].to < seen[-1].size:
        seen.append(see(log, seen[-1].to))
    return seen


def backwards(log: Log) -> list[LogWindow]:
    """Every window from the end to the beginning."""
    seen = [see(log, -WINDOW)]
    while end := seen[-1].from_:
        begin = max(0, end - WINDOW)
        seen.append(see(log, begin, end - begin))
    return seen[::-1]


def lines(count: int) -> bytes:
    return b"".join(b"step %d loss %s0.%04d%s\n" % (n, RED, n % 9999, RESET) for n in range(count))


pieces = st.one_of(
    st.sampled_from(
        [b"\n", b"x" * 40_000, b"\x1b[31m", b"\x1b]8;;" + b"u" * 300 + b"\x1b\\", b"\r", b"\x1b"]
    ),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")),
    st.binary(max_size=20),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(pieces, st.integers(1, 4000)), max_size=8), st.integers(0, 300_000))
@example([(b"\xf0\x9f\x99\x82", 60_000)], 1)
@example([(b"\x80", 200_000)], 7)
@example([(b"\x1b[", 100_000)], 3)
def test_windows_tile_whatever_the_bytes(made: list[tuple[bytes, int]], start: int) -> None:
    raw = b"".join(piece * times for piece, times in made)[:400_000]
    log = Said(raw)

    seen = forwards(log)
    assert seen[0].from_ == 0
    assert seen[-1].to == len(raw)
    assert all(one.to == two.from_ for one, two in pairwise(seen))
    jumped = see(log, start)
    assert jumped.from_ <= min(start, len(raw)) <= jumped.to
    assert see(log, jumped.from_).from_ == jumped.from_


def test_windows_tile_backwards_too() -> None:
    for raw in (lines(10_000), b"a\n" + "汉字🙂".encode() * 30_000 + b"\nend"):
        seen = backwards(Said(raw))
        assert seen[-1].to == len(raw)
        assert all(one.to == two.from_ for one, two in pairwise(seen))


def test_a_window_begins_and_ends_with_a_line() -> None:
    raw = lines(10_000)

    seen = see(Said(raw), 100_003)

    assert raw[: seen.from_].endswith(b"\n")
    assert 0 < 100_003 - seen.from_ < 40
    assert raw[: seen.to].endswith(b"\n")
    assert seen.text == raw[seen.from_ : seen.to].decode()


def test_a_line_too_long_for_a_window_is_cut_between_characters_and_escape_sequences() -> None:
    unit = "汉字\x1b[38;2;255;0;0m🙂"
    raw = unit.encode() * 20_000

    for one in forwards(Said(raw)):
        part = raw[one.from_ : one.to].decode()  # or it raises
        assert part.startswith(("汉", "字", "🙂", "\x1b[38;2;255;0;0m"))
        assert "\x1b" not in bare(part)
        assert not re.search(r"\[?[\d;]+m", bare(part))


def test_a_line_that_is_still_written_is_shown_again_from_its_beginning() -> None:
    log = Said(b"one\nepoch 1: 10%", "grows")
    first = see(log, 0)
    log.raw += b"\repoch 1: 20%"

    again = see(log, first.to)

    assert first.text == "one\nepoch 1: 10%"
    assert (again.from_, again.text) == (4, "epoch 1: 20%")


def test_half_a_character_at_the_end_waits_for_the_other_half() -> None:
    log = Said("é\nü".encode()[:-1], "grows")

    assert see(log, 0).text == "é\n"
    log.grows = False
    assert see(log, 0).text == "é\n\N{REPLACEMENT CHARACTER}"
    assert see(Said("é\nü".encode(), "grows"), 0).text == "é\nü"


def test_beyond_the_end_there_is_nothing() -> None:
    assert see(Said(b"one\n"), 99) == LogWindow(from_=4, to=4, size=4, text="", source="kept")
    assert see(Said(b""), -9).model_dump(by_alias=True) == {
        "from": 0,
        "to": 0,
        "size": 0,
        "text": "",
        "source": "kept",
    }


def test_a_word_is_found_whatever_colours_its_letters_have() -> None:
    raw = lines(500) + b"Tr\x1b[1;31mace\x1b[0mba\xe2\x80\x8bck\r\n" + lines(5)

    found = find(Said(raw), "traceback")

    assert [(hit.line, hit.at) for hit in found.hits] == [("Traceback", len(lines(500)))]
    assert found.scanned_to == found.size == len(raw)
    assert not find(Said(raw), "traceback", case="yes").hits
    assert find(Said(raw), "TraceB", case="yes").hits == ()


def test_what_was_overwritten_on_a_line_is_not_found() -> None:
    raw = b"loading 10%\rloading 100%\n"

    assert not find(Said(raw), " 10%").hits
    assert [hit.line for hit in find(Said(raw), "100%").hits] == ["loading 100%"]


@pytest.mark.parametrize("before", [b"y" * 524_285, b"y\n" * 262_143 + b"yy"])
def test_a_word_across_the_border_of_what_is_searched_at_once_is_found_once(before: bytes) -> None:
    found = find(Said(before + b"nee" + RED + b"dle" + b"y" * 600_000), "needle")

    assert len(found.hits) == 1
    assert "needle" in found.hits[0].line


def test_a_search_goes_on_from_where_it_ended_and_finds_every_line_once() -> None:
    raw = lines(30_000)
    at, seen = 0, []
    while at < len(raw):
        found = find(Said(raw), "LOSS 0.00", start=at)
        assert found.scanned_to > at
        at = found.scanned_to
        seen += [hit.at for hit in found.hits]

    where = [m.start() for m in re.finditer(rb"step \d+ loss \x1b\[31m0\.00.*\n", raw)]
    assert seen == where
    assert len(where) > 200, "or one answer holds them all"


def test_a_search_out_of_time_says_how_far_it_came() -> None:
    raw = lines(200_000)

    found = asyncio.run(search(Said(raw), q="nowhere", start=0, case="no", budget_s=0))

    assert 0 < found.scanned_to < found.size
    assert raw[: found.scanned_to].endswith(b"\n")


def test_a_hit_in_a_long_line_is_shown_with_what_is_around_it() -> None:
    found = find(Said(b"a" * 2000 + b" needle " + b"b" * 2000), "NEEDLE")

    (hit,) = found.hits
    assert len(hit.line) == 300
    assert re.fullmatch("…a+ needle b+…", hit.line)


@pytest.mark.parametrize("q", ["", "\x1b[31m", "one\ntwo"])
def test_a_search_for_nothing_or_for_two_lines_is_refused(q: str) -> None:
    with pytest.raises(BadRequest, match="a single line"):
        find(Said(b"one\ntwo\n"), q)


# The copy


def test_a_copy_grows_by_what_follows_on_it_and_is_nobody_else_s(tmp_path: Path) -> None:
    copy = LogCopy(tmp_path / "logs" / "lease" / "job.log")

    copy.join(0, b"abc", 9)
    copy.join(2, b"cdef", 9)
    copy.join(7, b"h", 9)  # does not follow

    assert copy.read(0, 99) == b"abcdef"
    path = tmp_path / "logs" / "lease" / "job.log"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("at", "raw", "size", "left"),
    [(0, b"new", 3, b"new"), (4, b"eX", 6, b""), (3, b"def", 5, b""), (0, b"abX", 9, b"abX")],
    ids=["shorter", "other at its end", "truncated", "other at its beginning"],
)
def test_a_log_that_is_another_one_by_now_has_no_copy(
    tmp_path: Path, at: int, raw: bytes, size: int, left: bytes
) -> None:
    copy = LogCopy(tmp_path / "logs" / "lease" / "job.log")
    copy.join(0, b"abcdef", 6)

    copy.join(at, raw, size)

    assert copy.read(0, 99) == left


def test_all_copies_together_take_no_more_than_they_may(tmp_path: Path) -> None:
    copies = [
        LogCopy(tmp_path / "logs" / name / "job.log", most_bytes=100) for name in ("a", "b", "c")
    ]
    for age, copy in zip((3, 1, 2), copies, strict=True):
        copy.join(0, b"x" * 40, 40)
        last = max((tmp_path / "logs").glob("*/job.log"), key=lambda path: path.stat().st_mtime_ns)
        os.utime(last, (10**9 - age, 10**9 - age))
    copies[0].join(40, b"x" * 61, 101)

    assert [copy.size_bytes() for copy in copies] == [0, 40, 40]
    copies[1].join(40, b"x" * 30, 70)
    assert [copy.size_bytes() for copy in copies] == [0, 70, 0]


# On a real box

JOB = """mkdir -p out && echo {} > out/a.json && python3 - <<'EOF'
import sys
for n in range(60_000):
    sys.stdout.write("step %d \\x1b[32mloss\\x1b[0m 0.%04d 汉字\\n" % (n, n % 9973))
sys.stdout.write("z" * 300_000 + "nee\\x1b[1mdle" + "z" * 300_000 + "\\nlast words")
EOF"""


class Counting(Caretaker):
    """The real caretaker's other end, which counts what came of a log."""

    came = asked = 0

    async def status(
        self, job: JobId, *, offset: int, limit: int, sample: Literal["sample", "plain"]
    ) -> JobStatus:
        status = await super().status(job, offset=offset, limit=limit, sample=sample)
        self.asked += 1
        self.came += len(status.log.raw) if status.log else 0
        return status


class OnBox(Leased):
    """A lease whose job has written a log of some megabytes."""

    @property
    def log(self) -> Path:
        """The log on the box."""
        (path,) = self.records.rglob("log")
        return path

    def counting(self) -> Counting:
        """What asks the box's caretaker."""

        async def look(tenancy: Tenancy) -> Lease:
            return tenancy.ledger.lease(self.id)

        found = self.ask(look)
        assert isinstance(found.address, LocalAddress)
        transport = LocalTransport(Path(found.address.directory))
        return Counting(found, transport, script("caretaker.py"))


@pytest.fixture(scope="module")
def leased(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnBox]:
    root = tmp_path_factory.mktemp("logged")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_TENANT_HOME", os.fspath(root / "state"))
        lease = OnBox(root / "state")

        async def ran(tenancy: Tenancy) -> str:
            made = (await tenancy.provision(smoke="none")).lease
            await tenancy.launch_detached(made, JOB, ["out/"], name="train")
            seen = await over(tenancy, made)
            assert seen.state == "finished", seen
            return made

        lease.id = lease.ask(ran)
        yield lease
        lease.end_processes()


async def _whole(tenancy: Tenancy, lease: str) -> tuple[list[LogWindow], Hits]:
    seen = [await log_window(tenancy.context, lease, "train", start=0, limit=1 << 20)]
    while seen[-1].to < seen[-1].size:
        seen.append(
            await log_window(tenancy.context, lease, None, start=seen[-1].to, limit=1 << 20)
        )
    return seen, await log_search(tenancy.context, lease, "train", q="NEEDLE", budget_s=30)


def test_a_log_on_a_box_is_seen_whole_and_fetched_once(leased: OnBox, tmp_path: Path) -> None:
    raw = leased.log.read_bytes()
    copy = LogCopy(tmp_path / "logs" / "lease" / "train.log")
    caretaker = leased.counting()

    async def everything() -> tuple[bytes, Hits]:
        held = b""
        while len(held) < len(raw):
            log = LogOnBox(JobId("train"), caretaker, copy)
            seen = await window(log, start=len(held), limit=700_000)
            assert (seen.from_, seen.size, seen.source) == (len(held), len(raw), "box")
            part = await stretch(LogOnBox(JobId("train"), caretaker, copy), seen.from_, 1 << 20)
            held += part.raw[: seen.to - seen.from_]
        log = LogOnBox(JobId("train"), caretaker, copy)
        return held, await search(log, q="needle", start=0, case="no", budget_s=30)

    held, found = asyncio.run(everything())

    assert held == raw
    assert len(found.hits) == 1
    assert found.scanned_to == len(raw) > 2_000_000
    seams = caretaker.asked * 64
    assert caretaker.came <= len(raw) + seams


def test_the_end_of_a_log_is_seen_without_fetching_the_rest(leased: OnBox, tmp_path: Path) -> None:
    caretaker = leased.counting()
    log = LogOnBox(JobId("train"), caretaker, LogCopy(tmp_path / "logs" / "lease" / "train.log"))

    seen = see(log, -100_000, 100_000)

    assert seen.text.endswith("last words")
    assert caretaker.asked == 1
    assert caretaker.came < 200_000


def test_a_log_that_was_replaced_on_the_box_is_read_anew(leased: OnBox, tmp_path: Path) -> None:
    raw = leased.log.read_bytes()
    copy = LogCopy(tmp_path / "logs" / "lease" / "train.log")
    caretaker = leased.counting()
    try:
        for other in (raw, raw[::-1], b"short\n"):
            leased.log.write_bytes(other)
            log = LogOnBox(JobId("train"), caretaker, copy)
            assert asyncio.run(stretch(log, 0, len(raw))).raw == other
            assert copy.read(0, len(raw)) == other
    finally:
        leased.log.write_bytes(raw)


def test_a_log_is_read_on_the_box_and_then_from_what_is_here_of_it(leased: OnBox) -> None:
    """Through the life of one lease: it answers, it is silent, it is collected, it has ended."""
    raw = leased.log.read_bytes()
    tail = leased.ask(
        lambda tenancy: log_window(tenancy.context, leased.id, None, start=-9, limit=1)
    )
    assert tail.source == "box"

    seen, found = leased.ask(lambda tenancy: _whole(tenancy, leased.id))
    assert {one.source for one in seen} == {"box"}
    assert "".join(one.text for one in seen).startswith("step 0 \x1b[32mloss\x1b[0m 0.0000 汉字\n")
    assert len(found.hits) == 1

    box = leased.state / "boxes" / leased.id
    box.rename(box.with_name("away"))
    blind, found = leased.ask(lambda tenancy: _whole(tenancy, leased.id))
    box.with_name("away").rename(box)
    assert [(one.from_, one.to, one.text) for one in blind] == [
        (one.from_, one.to, one.text) for one in seen
    ]
    assert {one.source for one in blind} == {found.source} == {"seen"}

    async def ended(tenancy: Tenancy) -> None:
        await tenancy.collect(leased.id)
        await tenancy.verify_and_teardown(leased.id)

    leased.ask(ended)
    kept, found = leased.ask(lambda tenancy: _whole(tenancy, leased.id))
    assert {one.source for one in kept} == {found.source} == {"kept"}
    assert [one.text for one in kept] == [one.text for one in seen]
    assert (leased.kept / "log" / "train.log").read_bytes() == raw
    assert not (leased.state / "logs" / leased.id).exists(), "the copy went when it was of no use"


@pytest.mark.parametrize(
    "said",
    [
        "../../kept/other/log/train",
        "/etc/passwd",
        "train",
        "train.",
        "train.0",
        "train.1/../x",
        "train.1\n",
        "other.1",
        "train.\u0661",
        "train.1234567890",
        "TRAIN.1",
        "",
    ],
)
def test_a_box_s_word_for_a_run_names_no_other_file(said: str) -> None:
    assert not is_run(said, of="train")
    assert is_run("train.2", of="train")


def test_a_log_that_nobody_has_is_said_to_be_gone(leased: OnBox) -> None:
    """Last: its lease has ended."""
    (leased.kept / "log" / "train.log").unlink()

    with pytest.raises(BadRequest, match="is not on this computer"):
        leased.ask(
            lambda tenancy: log_window(tenancy.context, leased.id, "train", start=0, limit=1)
        )
    with pytest.raises(BadRequest, match="no job other"):
        leased.ask(
            lambda tenancy: log_window(tenancy.context, leased.id, "other", start=0, limit=1)
        )
