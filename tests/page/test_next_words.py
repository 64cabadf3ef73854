"""Each next step that a card names has its Chinese on the page."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from arranged import NOON, job, lease, profile

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.protection import protection
from gpu_tenant.domain.timeline import Event
from gpu_tenant.faces.chinese import in_chinese
from gpu_tenant.leases.cards import card

LAUNCHED = job().model_copy(update={"launched_at": NOON})
READY = lease(provider="tiny").model_copy(update={"ready_at": NOON})


def step_of(
    standing: Lease,
    *events: Event,
    is_launched: bool = False,
    late_s: float = 0,
    parked_for_h: float | None = None,
) -> str:
    """Return the next step of a lease like that."""
    tiny = profile("tiny").model_copy(update={"parked_for_h": parked_for_h})
    shown = card(
        standing,
        tiny,
        jobs=[LAUNCHED] if is_launched else [],
        alarm=None,
        now=NOON + timedelta(seconds=late_s),
        events=[timeline.Line(NOON, event) for event in events],
        protection=protection(tiny, standing, None),
    )
    return shown.next


PARKED = READY.model_copy(update={"parked_at": NOON})
FREE = {"price_usd_h": Decimal(0)}
NEAR_S = (READY.terms.deadline_at - NOON).total_seconds() - 60
STEPS = {
    "intended": step_of(lease(LeaseState.INTENDED, provider="tiny")),
    "booting": step_of(READY.model_copy(update={"ready_at": None})),
    "fresh": step_of(READY.model_copy(update={"touched_at": None})),
    "parked": step_of(PARKED),
    "parked for a time": step_of(PARKED, parked_for_h=360),
    "parked and free": step_of(PARKED.model_copy(update=FREE)),
    "parked and free for a time": step_of(PARKED.model_copy(update=FREE), parked_for_h=360),
    "parked, and over": step_of(
        PARKED,
        timeline.Launched(job=LAUNCHED.id),
        timeline.JobEnded(job=LAUNCHED.id, state="finished"),
        is_launched=True,
    ),
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
    step = STEPS[named]
    commands = re.findall("`[^`]*`", step)
    said = in_chinese(step)

    assert re.findall("`[^`]*`", said) == commands
    assert not re.search("[a-z]{2,}", re.sub("`[^`]*`", "", said))
