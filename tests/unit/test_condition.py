"""One projection says how a lease stands: its box, its job, what bills, and whether the box answers decide together."""

from datetime import timedelta
from itertools import product

import pytest
from arranged import NOON, job

from gpu_tenant.domain import timeline
from gpu_tenant.leases.condition import (
    STOPPED,
    TAKEN,
    Bills,
    Condition,
    condition_of,
    recorded_end,
    recorded_jobs,
)


def stands(
    phase: str,
    state: str | None = None,
    *,
    bills: Bills = "box",
    alarm: str | None = None,
    left_s: float = 36_000,
    others: int = 0,
    blind: str | None = None,
) -> Condition:
    return condition_of(
        phase, bills, alarm=alarm, left_s=left_s, job=state, others_running=others, blind=blind
    )


@pytest.mark.parametrize(
    ("told", "word", "tone", "group", "is_wasted"),
    [
        (stands("ready"), "ready", "good", "running", False),
        (stands("ready", "running"), "ready", "good", "running", False),
        (stands("ready", "finished"), "job finished", "warn", "attention", True),
        (stands("ready", "failed"), "job failed", "bad", "attention", True),
        (stands("ready", "killed"), "job killed", "bad", "attention", True),
        (stands("ready", "stopped"), "job stopped", "warn", "attention", True),
        (stands("ready", "finished", bills="nobody"), "job finished", "accent", "free", False),
        (stands("ready", "failed", bills="nobody"), "job failed", "bad", "free", False),
        (stands("ready", "finished", bills="unknown"), "job finished", "warn", "attention", True),
        (stands("ready", "finished", others=2), "job finished", "accent", "idle", False),
        (stands("ready", "running", blind="silent"), "ready", "warn", "attention", False),
        (stands("ready", "failed", blind="silent"), "job failed", "warn", "attention", True),
        (stands("ready", "running", alarm="dear"), "ready", "bad", "attention", False),
        (stands("ready", "running", left_s=600), "ready", "good", "attention", False),
        (stands("parked", "running", bills="disk"), "parked", "still", "still", False),
        (stands("parked", "failed", bills="disk", left_s=9), "parked", "still", "still", False),
        (stands("booting"), "booting", "wait", "starting", False),
        (stands("terminating"), "terminating", "wait", "ending", False),
        (stands("lost", "running", alarm="gone"), "lost", "bad", "over", False),
        (stands("defrosting"), "defrosting", "soft", "running", False),
    ],
)
def test_how_a_lease_stands(
    told: Condition, word: str, tone: str, group: str, is_wasted: bool
) -> None:
    assert (told.word, told.tone, told.group, told.is_wasted) == (word, tone, group, is_wasted)


def test_what_its_provider_stopped_needs_attention_whatever_its_job_was() -> None:
    for state in (None, "running", "finished"):
        told = stands("stopped by its provider", state, bills="disk")
        assert (told.word, told.group) == ("stopped by its provider", "attention")


def test_what_is_on_record_of_jobs_is_what_was_seen_last() -> None:
    launched = [
        job(name).model_copy(update={"launched_at": NOON + timedelta(minutes=n)})
        for n, name in enumerate(("first", "second"))
    ]
    told = [
        timeline.Launched(job="first"),
        timeline.Progressed(job="first", state="finished"),
        timeline.Launched(job="second"),
        timeline.Progressed(job="second", state="running", fraction=0.5),
        timeline.JobEnded(job="second", state="failed"),
        timeline.Stopped(job="second"),
    ]
    lines = [timeline.Line(NOON, event) for event in told]

    assert recorded_jobs([], ()) == (None, 0)
    assert recorded_jobs([job("declared")], ()) == (None, 0)
    assert recorded_jobs(launched, lines[:1]) == (None, 1)
    assert recorded_jobs(launched, lines[:4]) == ("running", 0)
    assert recorded_jobs(launched, lines) == ("failed", 0)
    assert recorded_jobs(launched, [*lines[:3], lines[5]]) == ("stopped", 0)
    again = timeline.Line(NOON, timeline.Launched(job="first"))
    assert recorded_jobs(launched, [*lines, again]) == (None, 0)


JOBS = (None, "running", "finished", "failed", "killed", "stopped")
BILLS: tuple[Bills, ...] = ("box", "disk", "nobody", "unknown")


@pytest.mark.parametrize("phase", ["booting", "ready", "parked", TAKEN, STOPPED, "terminating"])
def test_every_combination_is_for_a_person_or_is_fine_or_is_free(phase: str) -> None:
    for job_state, bills, blind, alarm in product(JOBS, BILLS, (None, "silent"), (None, "dear")):
        told = stands(phase, job_state, bills=bills, blind=blind, alarm=alarm)
        case = (phase, job_state, bills, blind, alarm)

        is_over = phase == "ready" and job_state in ("finished", "failed", "killed", "stopped")
        is_wasted = is_over and bills in ("box", "unknown")
        is_called_for = bool(blind or alarm or is_wasted or phase in (TAKEN, STOPPED))
        assert (told.to_do is not None) == is_called_for, case
        assert (told.group == "attention") == is_called_for, case
        # Only what is seen, runs and has no alarm is green.
        is_green = phase == "ready" and not (is_over or blind or alarm)
        assert (told.tone == "good") == is_green, case
        if is_wasted:
            assert told.tone in ("warn", "bad"), case
        if told.group == "free":
            assert bills == "nobody", case


@pytest.mark.parametrize(
    ("told", "matter"),
    [
        (stands("ready", "failed"), "job over"),
        (stands("ready", "failed", alarm="dear"), "job over"),
        (stands("ready", "failed", blind="silent"), "silent"),
        (stands(TAKEN, "running", bills="disk"), "taken"),
        (stands("ready", "running", alarm="dear", left_s=60), "alarm"),
        (stands("ready", "running", left_s=60), "ends soon"),
        (stands("ready", "running"), None),
    ],
)
def test_one_matter_is_named_and_it_is_what_costs_most_to_overlook(
    told: Condition, matter: str | None
) -> None:
    assert (told.to_do.matter if told.to_do else None) == matter


def test_a_job_has_ended_when_it_ended_and_not_when_somebody_looked() -> None:
    lines = [
        timeline.Line(NOON, timeline.Launched(job="a")),
        timeline.Line(NOON + timedelta(minutes=9), timeline.Progressed(job="a", state="failed")),
        timeline.Line(
            NOON + timedelta(minutes=10), timeline.JobEnded(job="a", state="failed", ago_s=300)
        ),
    ]

    assert recorded_end(lines[:1]) is None
    assert recorded_end(lines[:2]) == NOON + timedelta(minutes=9)
    assert recorded_end(lines) == NOON + timedelta(minutes=5)
    again = timeline.Line(NOON + timedelta(minutes=20), timeline.Launched(job="a"))
    assert recorded_end([*lines, again]) is None
