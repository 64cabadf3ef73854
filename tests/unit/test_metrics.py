"""The course of a job's metrics, out of every line of its log."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_tenant.jobs.metrics import MOST_POINTS, MetricCurve, Metrics, Series, measured_by


def courses(*pieces: str) -> dict[str, Series]:
    metrics = Metrics()
    for piece in pieces:
        metrics.feed(piece)
    metrics.end()
    return metrics.series()


def points(series: Series) -> list[tuple[float, float | None]]:
    return list(zip(series.steps, series.values, strict=True))


@pytest.mark.parametrize(
    ("log", "loss"),
    [
        ("step 1 loss=3\nstep 2 loss=2\nstep 3 loss=1\n", [(1, 3), (2, 2), (3, 1)]),
        ('{"step": 10, "loss": 0.5}\n{"step": 20, "loss": 0.25}', [(10, 0.5), (20, 0.25)]),
        ("step 5/9\nloss: 3\nstep 6/9\nloss: 2", [(5, 3), (6, 2)]),
        ("epoch 1/3 loss=3\nepoch 2/3 loss=2", [(1, 3), (2, 2)]),
        ("loss=3\nloss=2\nloss=1", [(0, 3), (1, 2), (2, 1)]),
        (
            "epoch 1 step 1 loss=4\nepoch 1 step 2 loss=3\nepoch 2 step 1 loss=2\nepoch 2 step 2 loss=1",
            [(1, 4), (2, 3), (3, 2), (4, 1)],
        ),
        (
            "Epoch 1/2\nstep 1/2 loss=4\nstep 2/2 loss=3\nEpoch 2/2\nstep 1/2 loss=2",
            [(1, 4), (2, 3), (3, 2)],
        ),
        (
            " 50%|█ | 1/2 [00:01<00:01, loss=3]\r100%|██| 2/2 [00:02<00:00, loss=2]",
            [(1, 3), (2, 2)],
        ),
        ("\x1b[32mstep 7\x1b[0m loss=\x1b[1m2\x1b[0m\n", [(7, 2)]),
    ],
)
def test_each_line_s_value_is_at_its_step(log: str, loss: list[tuple[float, float]]) -> None:
    assert points(courses(log)["loss"]) == loss


def test_work_that_is_done_again_after_a_resume_replaces_what_was_there() -> None:
    log = "".join(f"step {n} loss={n}\n" for n in range(1, 8))
    log += "resumed from step 4\n" + "".join(f"step {n} loss={n + 100}\n" for n in (5, 6))

    assert points(courses(log)["loss"])[-3:] == [(4, 4), (5, 105), (6, 106)]


def test_a_tail_gives_each_value_at_its_own_step_and_none_twice() -> None:
    """What is evaluated now and then has a value there, and none at the steps between."""
    found = measured_by("step 50 loss=3 val_loss=9\nstep 51 loss=2\nstep 52 loss=1\n")

    assert points(found["loss"]) == [(50, 3), (51, 2), (52, 1)]
    assert points(found["val_loss"]) == [(50, 9)]


def test_a_tail_without_a_step_measures_nothing_that_has_a_place() -> None:
    assert measured_by("loss=3\nepoch 2 loss=4\nval_loss=1\n") == {}


def test_what_is_no_number_is_a_gap_and_is_told() -> None:
    told = courses("step 1 loss=2\nstep 2 loss=nan\nstep 3 loss=inf\nstep 4 loss=1")["loss"]

    assert points(told) == [(1, 2), (2, None), (3, None), (4, 1)]
    assert told.not_finite == 2


def test_it_does_not_matter_where_a_log_is_cut_into_pieces() -> None:
    log = "".join(f"step {n}/99 loss={100 - n}.5 lr=1e-0{n % 5}\r\n" for n in range(99))

    for size in (1, 7, 64, 1000):
        assert courses(*(log[i : i + size] for i in range(0, len(log), size))) == courses(log)


def test_a_long_course_keeps_its_extremes_and_its_ends_in_few_points() -> None:
    course = MetricCurve()
    for n in range(100_000):
        course.add(n, {70_001: -5.0, 30_003: 9.0, 50_005: math.nan}.get(n, math.sin(n)))
    told = course.series()

    assert len(told.steps) <= MOST_POINTS
    assert len(told.steps) > MOST_POINTS / 4
    assert (min(v for v in told.values if v is not None), 9.0) == (
        -5.0,
        max(v for v in told.values if v is not None),
    )
    assert (70_001, -5.0) in points(told)
    assert (50_005, None) in points(told)
    assert list(told.steps) == sorted(told.steps)
    assert (told.steps[0], told.steps[-1]) == (
        pytest.approx(0, abs=200),
        pytest.approx(1e5, abs=200),
    )


def test_a_log_of_many_names_and_of_endless_lines_is_held_in_little() -> None:
    many = courses(" ".join(f"loss_{n}={n}" for n in range(500)) + "\n" + "loss=1 " * 100_000)

    assert len(many) == 32
    assert all(len(series.steps) <= MOST_POINTS for series in many.values())


@pytest.mark.parametrize(
    "stuff", ["a" * 300_000, "loss " * 60_000, "[" * 150_000, "\r" * 300_000, "1/" * 150_000]
)
def test_a_hostile_log_costs_no_time(stuff: str) -> None:
    began = time.process_time()

    courses(stuff, stuff)

    assert time.process_time() - began < 1


@given(st.lists(st.text()))
def test_no_log_is_too_odd_to_be_read(pieces: list[str]) -> None:
    for series in courses(*pieces, " step ", *pieces, " loss=1\n").values():
        assert list(series.steps) == sorted(series.steps)
        assert len(series.steps) == len(series.values)


def test_a_log_is_read_at_megabytes_in_a_second() -> None:
    log = "".join(f"epoch 3/10 step {n}/9999 loss=2.{n:04d} lr=1.0e-04\n" for n in range(10_000))
    began = time.process_time()

    courses(log)

    assert time.process_time() - began < 3, "half a megabyte; a shared computer may be slow"
