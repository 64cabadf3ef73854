"""Everybody in a rehearsal has the same time, and hardly anybody has to ask for it."""

from datetime import timedelta
from pathlib import Path

import pytest

from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.emulators.box_time import BoxTime
from gpu_tenant.emulators.rehearsal_client import RehearsalClock
from gpu_tenant.emulators.server import Stage


async def test_a_leap_that_one_program_makes_is_seen_by_all(tmp_path: Path) -> None:
    with Stage("vastai", tmp_path, way="local", time="frozen") as stage:
        one, other = RehearsalClock(stage.url, really_s=0), RehearsalClock(stage.url, really_s=0)
        begin = one.now()
        assert other.now() == begin

        await one.sleep(3600)

        assert one.now() == other.now() == begin + timedelta(hours=1)


async def test_a_clock_that_runs_goes_on_from_where_it_leapt_to(tmp_path: Path) -> None:
    with Stage("vastai", tmp_path, way="local") as stage:
        clock = RehearsalClock(stage.url, really_s=0)
        times = [clock.now(), clock.now()]
        await clock.sleep(3600)
        times += [clock.now(), clock.now(), RehearsalClock(stage.url).now(), clock.now()]

    assert times == sorted(times)
    assert times[2] - times[1] >= timedelta(hours=1)


def test_when_the_rehearsal_is_over_its_time_is_over_too(tmp_path: Path) -> None:
    with Stage("vastai", tmp_path, way="local") as stage:
        clock = RehearsalClock(stage.url, really_s=0)
        clock.now()

    with pytest.raises(LocalTrouble, match="it is over"):
        clock.now()


def test_the_time_is_asked_for_once_and_then_read(tmp_path: Path) -> None:
    with Stage("vastai", tmp_path, way="local", time="frozen") as stage:
        clock = RehearsalClock(stage.url, really_s=0)
        begin = clock.now()
        told = stage.world.clock_file
        assert told is not None

        told.write_text('{"at": 1795003600.0, "since": null}', encoding="utf-8")

        assert clock.now() == begin + timedelta(hours=1)


async def test_it_jumps_over_a_wait_for_the_platform_and_never_over_one_for_work(
    tmp_path: Path,
) -> None:
    with Stage("vastai", tmp_path, way="local") as stage:
        leaps: list[float] = []
        stage.world.on_leap = leaps.append
        clock = RehearsalClock(stage.url)

        await clock.follow(0.05)
        assert leaps == []
        await clock.sleep(60)

    assert [round(leap) for leap in leaps] == [60]


def test_boxes_of_a_rehearsal_that_is_started_again_keep_the_time_that_they_had(
    tmp_path: Path,
) -> None:
    BoxTime(tmp_path).leap(3600)

    again = BoxTime(tmp_path)
    again.leap(60)

    assert float(again.leaps.read_text("utf-8")) == 3660
