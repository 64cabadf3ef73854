"""The transfers of one user agree on the link, in whatever processes, and nothing there ever stops one."""

import heapq
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from gpu_tenant.domain.errors import BadRequest, LocalTrouble
from gpu_tenant.files.state_dir import Home
from gpu_tenant.transfer.bandwidth_share import (
    LOOK_S,
    SILENT_S,
    CallLimits,
    TransferShare,
    bytes_a_second,
    limit_of,
    limits_of_call,
)

MB = 10**6


class Moments:
    """A clock that is moved by hand, and begins where this computer's own one stands."""

    def __init__(self) -> None:
        self.now_s = time.monotonic()

    def __call__(self) -> float:
        return self.now_s

    def look(self) -> None:
        self.now_s += LOOK_S


@pytest.fixture
def moments() -> Moments:
    return Moments()


@contextmanager
def elsewhere(place: Path, price: str, wants: int) -> Iterator[subprocess.Popen[bytes]]:
    """Another process has a transfer under way."""
    program = (
        "import sys; from pathlib import Path; from gpu_tenant.transfer.bandwidth_share import CallLimits\n"
        f"with CallLimits(Path({os.fspath(place)!r}), None).join('there', {price}) as turn:\n"
        f"    turn.connections({wants}); turn._look_at_s = 0; turn.connections({wants})\n"
        "    print('in', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"in\n"
            yield process
        finally:
            process.kill()


def test_alone_a_transfer_has_what_it_wants_and_waits_for_nothing(tmp_path: Path) -> None:
    with CallLimits(tmp_path, None).join("a", 1.0) as turn:
        assert turn.connections(64) == 64
        assert turn.connections(0) == 1
        assert turn.pause_s(100 * MB) == 0.0


def test_a_dearer_one_in_another_process_goes_first_until_that_process_is_dead(
    tmp_path: Path, moments: Moments
) -> None:
    with CallLimits(tmp_path, None, monotonic=moments).join("here", 1.0) as turn:
        assert turn.connections(64) == 64

        with elsewhere(tmp_path, "2.0", 16) as process:
            moments.look()
            assert turn.connections(64) == 16
            process.kill()
            process.wait()
            moments.look()

            assert turn.connections(64) == 64
    assert list(tmp_path.iterdir()) == []


def test_who_has_ended_is_forgotten_at_the_next_look(tmp_path: Path, moments: Moments) -> None:
    limits = CallLimits(tmp_path, None, monotonic=moments)
    with limits.join("cheap", 1.0) as cheap:
        with limits.join("dear", 2.0) as dear:
            dear.connections(64)
            moments.look()
            assert dear.connections(64) == 63
            assert cheap.connections(64) == 1

        moments.look()
        assert cheap.connections(64) == 64


def test_who_is_suspended_holds_nobody_back_for_long(tmp_path: Path, moments: Moments) -> None:
    limits = CallLimits(tmp_path, None, monotonic=moments)
    with limits.join("suspended", 2.0), limits.join("here", 1.0) as turn:
        assert turn.connections(64) == 8

        moments.now_s += SILENT_S

        assert turn.connections(64) == 64


@pytest.mark.parametrize("words", ["", "{", '{"wants": 5}', "\0" * 600])
def test_an_entry_that_cannot_be_read_stops_nobody(
    words: str, tmp_path: Path, moments: Moments
) -> None:
    limits = CallLimits(tmp_path, 10 * MB, monotonic=moments)
    with limits.join("other", 2.0), limits.join("here", 1.0) as turn:
        for path in tmp_path.iterdir():
            path.write_text(words, encoding="utf-8")
        moments.look()

        assert turn.connections(64) == 64


def test_a_place_that_cannot_be_had_means_alone(tmp_path: Path) -> None:
    in_the_way = tmp_path / "transfers"
    in_the_way.write_text("no directory", encoding="utf-8")

    with CallLimits(in_the_way, None).join("a", None) as turn:
        assert turn.connections(20) == 20


def test_a_place_that_vanishes_meanwhile_means_alone(tmp_path: Path, moments: Moments) -> None:
    with CallLimits(tmp_path / "t", 10 * MB, monotonic=moments).join("a", None) as turn:
        for path in (tmp_path / "t").iterdir():
            path.unlink()
        (tmp_path / "t").rmdir()
        moments.look()

        assert turn.connections(20) == 20
        assert turn.pause_s(1) == 0.0


def test_after_its_end_a_turn_writes_into_nobodys_file(tmp_path: Path, moments: Moments) -> None:
    """The number of the closed file is soon another's, such as that of an artifact that arrives."""
    with CallLimits(tmp_path / "t", 10 * MB, monotonic=moments).join("a", 1.0) as turn:
        pass
    with ExitStack() as files:
        arriving = [
            files.enter_context((tmp_path / str(i)).open("w+b", buffering=0)) for i in range(8)
        ]
        moments.look()

        turn.connections(9)
        turn.pause_s(1)

        assert all(os.fstat(file.fileno()).st_size == 0 for file in arriving)


# A limit


def moved(
    turns: dict[str, TransferShare], could_bytes_s: dict[str, float], moments: Moments, for_s: float
) -> dict[str, float]:
    """Bytes a second of each in the last half of that time, in pieces, as its box gives them."""
    piece, began_s = MB // 4, moments.now_s
    counted = dict.fromkeys(turns, 0)
    coming = [(moments.now_s, name) for name in turns]
    while coming[0][0] < began_s + for_s:
        moments.now_s, name = heapq.heappop(coming)
        pause_s = turns[name].pause_s(piece)
        counted[name] += piece * (moments.now_s > began_s + for_s / 2)
        takes_s = piece / could_bytes_s[name]
        heapq.heappush(coming, (moments.now_s + max(pause_s, takes_s), name))
    return {name: count / (for_s / 2) for name, count in counted.items()}


def test_together_they_keep_the_limit_by_price_and_what_a_slow_box_leaves_is_used(
    tmp_path: Path, moments: Moments
) -> None:
    limits = CallLimits(tmp_path, 20 * MB, monotonic=moments)
    could = {"dear": 100e6, "cheap": 100e6, "dearest, slow": 1e6}
    with ExitStack() as joined:
        turns = {
            name: joined.enter_context(limits.join(name, usd_h))
            for name, usd_h in zip(could, (3.0, 1.0, 6.0), strict=True)
        }

        rate = moved(turns, could, moments, 40)

    assert sum(rate.values()) == pytest.approx(20e6, rel=0.1)
    assert rate["dearest, slow"] == pytest.approx(1e6, rel=0.1)
    assert 1.8 < rate["dear"] / rate["cheap"] < 3.2


def test_a_calls_own_limit_is_its_own_and_the_rest_is_the_others(
    tmp_path: Path, moments: Moments
) -> None:
    all_of_them = CallLimits(tmp_path, 20 * MB, monotonic=moments)
    this_call = CallLimits(tmp_path, 20 * MB, call_bytes_s=2 * MB, monotonic=moments)
    with all_of_them.join("a", 1.0) as a, this_call.join("b", 9.0) as b:
        rate = moved({"a": a, "b": b}, {"a": 100e6, "b": 100e6}, moments, 20)

    assert rate["b"] == pytest.approx(2e6, rel=0.1)
    assert rate["a"] == pytest.approx(18e6, rel=0.1)


def test_a_calls_own_limit_may_be_beyond_the_usual_one(tmp_path: Path, moments: Moments) -> None:
    with CallLimits(tmp_path, 2 * MB, call_bytes_s=8 * MB, monotonic=moments).join(
        "a", None
    ) as turn:
        rate = moved({"a": turn}, {"a": 100e6}, moments, 10)

    assert rate["a"] == pytest.approx(8e6, rel=0.1)


def test_threads_of_one_transfer_share_its_bucket(tmp_path: Path, moments: Moments) -> None:
    waits: list[float] = []
    with CallLimits(tmp_path, MB, monotonic=moments).join("a", 1.0) as turn:
        threads = [
            Thread(target=lambda: waits.extend(turn.pause_s(1000) for _ in range(50)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(waits) == pytest.approx([n / 1000 for n in range(400)])


# What the owner says


@pytest.mark.parametrize(
    ("words", "bytes_s"),
    [
        ("20M", 20 * MB),
        ("500K", 500_000),
        ("1.5G", 1_500_000_000),
        ("20 MB/s", None),
        ("8MB", 8 * MB),
    ],
)
def test_a_rate_is_said_in_bytes_a_second(words: str, bytes_s: int | None) -> None:
    if bytes_s is None:
        with pytest.raises(BadRequest, match="is not a rate"):
            bytes_a_second(words)
    else:
        assert bytes_a_second(words) == bytes_s


@pytest.mark.parametrize(
    "words", ["20", "fast", "-1M", "0M", "20Mbit", "20Mb", "M", "1e3K", "²M", ""]
)
def test_what_could_be_meant_otherwise_is_no_rate(words: str) -> None:
    with pytest.raises(BadRequest) as told:
        bytes_a_second(words)

    assert "--limit 20M" in told.value.remedy


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        ("", None),
        ("[transfers]\n", None),
        ("[transfers]\nlimit_mb_s = 20\n", 20 * MB),
        ("[transfers]\nlimit_mb_s = 0.5\n", MB // 2),
        ("[transfers]\nlimit_mb_s = inf\n", None),
    ],
)
def test_the_limit_is_what_the_configuration_says(
    said: str, limit: int | None, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text(said, encoding="utf-8")

    assert limit_of(tmp_path / "config.toml") == limit


def test_without_a_configuration_there_is_no_limit(tmp_path: Path) -> None:
    assert limit_of(tmp_path / "config.toml") is None


@pytest.mark.parametrize(
    "line",
    [
        "limit_mb_s = 0",
        "limit_mb_s = -2",
        'limit_mb_s = "20M"',
        "limit_mb_s = true",
        "limit_mb_s = nan",
        "limit = 20",
    ],
)
def test_a_limit_that_is_none_is_refused_before_a_byte_moves(line: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f"[transfers]\n{line}\n", encoding="utf-8")

    with pytest.raises(BadRequest) as told:
        limits_of_call(Home(tmp_path), None)

    assert "limit_mb_s = 20" in told.value.remedy


def test_a_table_that_is_none_is_this_computers_trouble(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("transfers = 20\n", encoding="utf-8")

    with pytest.raises(LocalTrouble, match="is not a table"):
        limits_of_call(Home(tmp_path), None)
