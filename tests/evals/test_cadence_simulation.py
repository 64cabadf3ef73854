"""The advice on saving stands beside the best fixed habit of every trace, and its picture is small."""

from evals import cadence
from evals.cadence.picture import drawn


def test_the_advice_costs_about_as_little_as_the_best_habit_of_each_trace() -> None:
    report = cadence.run()

    assert report.passed, [f for f in report.figures if not f.met] + [*report.problems]
    assert len(drawn(cadence.costs(cadence.SAVE_S), "title")) < 30_000


def test_an_oracle_loses_one_save_and_one_restart_an_interruption() -> None:
    assert cadence.oracle_s([3600, 100], 30) == cadence.RESTART_S + 30 + 100
    assert cadence.lost_s([3600], cadence.every(30), 30) == 3600 - 1800
