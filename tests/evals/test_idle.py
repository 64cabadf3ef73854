"""The judge on the box tells idleness better than both rules that others use, on every trace and on those held out."""

import pytest
from evals import idle
from evals.idle.traces import Trace, read
from evals.report import Report


@pytest.fixture(scope="module")
def judged() -> Report:
    return idle.run()


def value(report: Report, name: str) -> float:
    return next(figure.value for figure in report.figures if figure.name == name)


def trace(name: str) -> Trace:
    return read(idle.WHERE / f"{name}.jsonl")


def test_there_are_traces_enough_and_their_labels_are_as_they_were_written(judged: Report) -> None:
    assert judged.problems == []
    assert value(judged, "traces") >= 80
    assert value(judged, "of them recorded") >= 25
    assert len(idle.held_out()) * 3 >= value(judged, "traces")
    assert sum(p.stat().st_size for p in idle.WHERE.iterdir()) < 400_000


@pytest.mark.parametrize("which", ["all", "held out"])
def test_idleness_is_told_as_well_as_it_was_and_better_than_by_others(
    judged: Report, which: str
) -> None:
    ours = value(judged, f"F1 of idle, ours, {which}")

    assert ours >= idle.FLOORS[which]
    assert ours > value(judged, f"F1 of idle, job table, {which}") + 0.1
    assert ours > value(judged, f"F1 of idle, GPU below 5 %, {which}") + 0.1


def test_no_box_at_work_is_called_idle_for_long(judged: Report) -> None:
    assert value(judged, "longest idleness claimed of a box at work, s") <= idle.LONGEST_FALSE_S


@pytest.mark.parametrize(
    "name",
    ["synthetic_pip_40_minutes", "synthetic_orphan_kernel_from_start", "recorded_lock_blocked"],
)
def test_the_evaluations_own_traces_are_told_rightly(name: str) -> None:
    said = [verdict[1] for verdict in idle.judge().verdicts(trace(name).looks())[1:]]

    truths = [label.truth for label in trace(name).labels]
    told = [one if one in ("idle", "suspicious", "unknown") else "busy" for one in said]
    assert sum(a == b for a, b in zip(truths, told, strict=True)) >= len(truths) - 1


def test_a_verdict_rests_on_no_later_look() -> None:
    looks = trace("synthetic_hung_nccl_no_power").looks()

    whole = idle.judge().verdicts(looks)

    assert [idle.judge().verdicts(looks[:n])[-1] for n in range(1, len(looks) + 1)] == whole


def test_every_bar_is_met(judged: Report) -> None:
    assert [figure.name for figure in judged.figures if not figure.met] == []
