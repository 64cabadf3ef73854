"""Each next step that a card names has its Chinese on the page."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from arranged import NOON, job, lease, profile

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.protection import protection
from gpu_tenant.domain.timeline import Event
from gpu_tenant.leases.cards import card

PAGE = Path(__file__).parents[2] / "mcp_server/gpu_tenant/faces/dashboard/page"
CHINESE = re.findall(
    r'"((?:[^"\\\\]|\\\\.)+)":\s+"', (PAGE / "chinese" / "steps.js").read_text("utf-8")
)
LAUNCHED = job().model_copy(update={"launched_at": NOON})
READY = lease(provider="tiny").model_copy(update={"ready_at": NOON})


def step_of(standing: Lease, *events: Event, is_launched: bool = False, late_s: float = 0) -> str:
    """Return the next step, each command as the number that it has."""
    tiny = profile("tiny")
    shown = card(
        standing,
        tiny,
        jobs=[LAUNCHED] if is_launched else [],
        alarm=None,
        now=NOON + timedelta(seconds=late_s),
        events=[timeline.Line(NOON, event) for event in events],
        protection=protection(tiny, standing, None),
    )
    numbers = iter(range(1, 9))
    return re.sub("`[^`]*`", lambda _: f"{{{next(numbers)}}}", shown.next)


NEAR_S = (READY.terms.deadline_at - NOON).total_seconds() - 60
STEPS = {
    "intended": step_of(lease(LeaseState.INTENDED, provider="tiny")),
    "booting": step_of(READY.model_copy(update={"ready_at": None})),
    "fresh": step_of(READY.model_copy(update={"touched_at": None})),
    "parked": step_of(READY.model_copy(update={"parked_at": NOON})),
    "set up": step_of(READY, timeline.SettingUp(job="setup", digest="d", commands=("true",))),
    "running": step_of(READY, is_launched=True),
    "near": step_of(READY, is_launched=True, late_s=NEAR_S),
    "over": step_of(
        READY,
        timeline.Launched(job=LAUNCHED.id),
        timeline.JobEnded(job=LAUNCHED.id, state="failed"),
        is_launched=True,
    ),
    "terminating": step_of(lease(LeaseState.TERMINATING, provider="tiny")),
    "gone": step_of(lease(LeaseState.GONE, provider="tiny")),
}


@pytest.mark.parametrize("named", STEPS)
def test_the_next_step_has_its_chinese(named: str) -> None:
    assert STEPS[named] in CHINESE


def test_no_chinese_is_of_a_step_that_nobody_names() -> None:
    assert set(CHINESE) == set(STEPS.values())
