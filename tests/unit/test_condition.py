"""One projection says how a lease stands: its box, its job, what bills, and whether the box answers decide together."""

from datetime import timedelta

import pytest
from arranged import NOON, job

from gpu_tenant.domain import timeline
from gpu_tenant.leases.condition import Bills, Condition, condition_of, recorded_jobs


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
        (stands("ready", "finished", bills="nobody"), "job finished", "accent", "idle", False),
        (stands("ready", "failed", bills="nobody"), "job failed", "bad", "idle", False),
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
