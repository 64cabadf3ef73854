"""What to do next is decided for every lease, whatever its provider shows, and never too much."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import get_args

import pytest
from arranged import NOON, box, lease
from hypothesis import given
from hypothesis import strategies as st

from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.reconcile import (
    BindBox,
    Blind,
    DeclareLost,
    FileReceipt,
    FinishTeardown,
    Listed,
    LookAgain,
    Omitted,
    Patience,
    RaiseAlarm,
    Rest,
    Seen,
    Step,
    VoidIntent,
    plan,
)
from gpu_tenant.domain.terms import Terms

PATIENCE = Patience(list_lag_s=60, confirm_s=10)
ENDS = (VoidIntent, DeclareLost, FileReceipt)
"""The steps after which the lease stands on no box."""


def after(*seconds: float) -> list[datetime]:
    return [NOON + timedelta(seconds=s) for s in seconds]


LISTED = Listed(box())
INTENDED, ACTIVE, TERMINATING = LeaseState.INTENDED, LeaseState.ACTIVE, LeaseState.TERMINATING
LATER = NOON + timedelta(seconds=200)

EXAMPLES: dict[str, tuple[LeaseState, Seen, Step]] = {
    "the box of an intent appears": (INTENDED, LISTED, BindBox(box())),
    "all is well": (ACTIVE, LISTED, Rest()),
    "a destroyed box is still there": (TERMINATING, LISTED, FinishTeardown()),
    "an intent came to nothing": (INTENDED, Omitted(after(100, 160)), VoidIntent()),
    "an intent, looks as far apart as would do for a listed box": (
        INTENDED,
        Omitted(after(100, 159)),
        LookAgain(LATER),
    ),
    "somebody else ended the box": (ACTIVE, Omitted(after(100, 110)), DeclareLost()),
    "a destroyed box is gone": (
        TERMINATING,
        Omitted(after(100, 110)),
        FileReceipt(after(100, 110)),
    ),
    "three looks, the outer two far enough apart": (
        TERMINATING,
        Omitted(after(100, 105, 110)),
        FileReceipt(after(100, 105, 110)),
    ),
    "one look": (ACTIVE, Omitted(after(195)), LookAgain(LATER + timedelta(seconds=10))),
    "one look at an intent": (
        INTENDED,
        Omitted(after(195)),
        LookAgain(LATER + timedelta(seconds=60)),
    ),
    "one old look": (ACTIVE, Omitted(after(100)), LookAgain(LATER + timedelta(seconds=10))),
    "no look on record": (ACTIVE, Omitted([]), LookAgain(LATER + timedelta(seconds=10))),
    "no look at an intent": (INTENDED, Omitted([]), LookAgain(LATER + timedelta(seconds=60))),
    "two looks too close": (
        TERMINATING,
        Omitted(after(195, 200)),
        LookAgain(NOON + timedelta(seconds=205)),
    ),
    "two old looks too close": (ACTIVE, Omitted(after(100, 109)), LookAgain(LATER)),
    "two looks at a newborn": (INTENDED, Omitted(after(-10, 59)), LookAgain(LATER)),
    "two looks at a box that was just made": (ACTIVE, Omitted(after(30, 59)), LookAgain(LATER)),
    "two looks at a box that counts from long before it was answered with": (
        ACTIVE,
        Omitted(after(100, 159), after(100)[0]),
        LookAgain(LATER),
    ),
    "an ended lease, a listed box": (LeaseState.GONE, LISTED, Rest()),
    "a lost lease, no box": (LeaseState.LOST, Omitted(after(100, 160)), Rest()),
}


@pytest.mark.parametrize(("state", "seen", "step"), EXAMPLES.values(), ids=EXAMPLES)
def test_the_next_step(state: LeaseState, seen: Seen, step: Step) -> None:
    assert plan(lease(state), seen, LATER, PATIENCE) == step


@pytest.mark.parametrize(
    ("terms", "price", "words"),
    [
        (Terms(deadline_at=LATER), None, "the deadline passed"),
        (Terms(deadline_at=LATER, budget_usd=Decimal(9)), Decimal(1), "the deadline passed"),
        (
            Terms(deadline_at=LATER + timedelta(hours=1), budget_usd=Decimal("0.05")),
            Decimal(1),
            "is spent",
        ),
        (
            Terms(deadline_at=LATER + timedelta(hours=1), budget_usd=Decimal(0)),
            Decimal(0),
            "is spent",
        ),
    ],
    ids=["deadline", "deadline before budget", "budget", "no budget at all"],
)
def test_a_passed_limit_alarms_and_does_nothing_else(
    terms: Terms, price: Decimal | None, words: str
) -> None:
    step = plan(lease(terms=terms, price_usd_h=price), LISTED, LATER, PATIENCE)

    assert isinstance(step, RaiseAlarm)
    assert words in step.words


def test_an_unknown_price_passes_no_budget() -> None:
    terms = Terms(deadline_at=LATER + timedelta(hours=1), budget_usd=Decimal("0.01"))

    assert plan(lease(terms=terms), LISTED, LATER, PATIENCE) == Rest()


# Whatever the world shows

moments = st.integers(-3600, 3600).map(lambda s: NOON + timedelta(seconds=s))
lags = st.sampled_from([0.0, 1.0, 60.0, 600.0])
patiences = st.builds(Patience, list_lag_s=lags, confirm_s=lags)
looks = st.lists(moments, max_size=5).map(sorted)
states = st.sampled_from(LeaseState)
sights: st.SearchStrategy[Seen] = st.one_of(
    st.just(LISTED), looks.map(Omitted), st.text(max_size=20).map(Blind)
)


@given(state=states, seen=sights, now=moments, lag=patiences)
def test_there_is_always_exactly_one_step_and_the_same_one(
    state: LeaseState, seen: Seen, now: datetime, lag: Patience
) -> None:
    step = plan(lease(state), seen, now, lag)

    assert type(step) in get_args(Step)
    assert plan(lease(state), seen, now, lag) == step


@given(state=states, now=moments, lag=patiences, reason=st.text(max_size=20))
def test_a_provider_that_does_not_answer_moves_nothing(
    state: LeaseState, now: datetime, lag: Patience, reason: str
) -> None:
    step = plan(lease(state), Blind(reason), now, lag)

    assert isinstance(step, RaiseAlarm if state.live else Rest)


@given(state=states, look=moments, now=moments, lag=patiences)
def test_one_absence_ends_no_lease(
    state: LeaseState, look: datetime, now: datetime, lag: Patience
) -> None:
    step = plan(lease(state), Omitted([look]), now, lag)

    assert isinstance(step, LookAgain if state.live else Rest)


@given(state=states, looks=looks, now=moments, lag=patiences)
def test_an_end_rests_on_two_absences_that_lie_apart_and_past_the_birth(
    state: LeaseState, looks: Sequence[datetime], now: datetime, lag: Patience
) -> None:
    step = plan(lease(state), Omitted(looks), now, lag)

    if isinstance(step, ENDS):
        apart = lag.list_lag_s if isinstance(step, VoidIntent) else lag.confirm_s
        assert len(looks) >= 2
        assert (looks[-1] - looks[0]).total_seconds() >= apart
        assert (looks[-1] - NOON).total_seconds() >= lag.list_lag_s


@given(looks=looks, made=moments, now=moments, lag=patiences)
def test_a_box_that_took_long_to_make_is_given_the_list_s_lag_from_when_it_was_made(
    looks: Sequence[datetime], made: datetime, now: datetime, lag: Patience
) -> None:
    late = lease(ACTIVE).model_copy(update={"active_at": made})

    if plan(late, Omitted(looks), now, lag) == DeclareLost():
        assert (looks[-1] - made).total_seconds() >= lag.list_lag_s


@given(state=states, looks=looks, now=moments, lag=patiences)
def test_whoever_looks_when_told_to_comes_to_an_end(
    state: LeaseState, looks: Sequence[datetime], now: datetime, lag: Patience
) -> None:
    seen = [look for look in looks if look <= now]
    for _ in range(3):
        step = plan(lease(state), Omitted(seen), now, lag)
        if not isinstance(step, LookAgain):
            break
        now = step.at
        seen.append(now)

    assert isinstance(step, ENDS if state.live else Rest)


@given(state=states, seen=sights, now=moments, lag=patiences)
def test_each_end_comes_from_its_own_state_only(
    state: LeaseState, seen: Seen, now: datetime, lag: Patience
) -> None:
    match plan(lease(state), seen, now, lag):
        case FileReceipt() | FinishTeardown():
            assert state is TERMINATING
        case DeclareLost():
            assert state is ACTIVE
        case VoidIntent() | BindBox():
            assert state is INTENDED
        case LookAgain(at=at):
            assert at >= now
        case Rest() | RaiseAlarm():
            pass


@given(state=states, now=moments, lag=patiences)
def test_a_listed_box_ends_no_lease(state: LeaseState, now: datetime, lag: Patience) -> None:
    assert not isinstance(plan(lease(state), LISTED, now, lag), ENDS)


@given(state=states.filter(lambda state: not state.live), seen=sights, now=moments, lag=patiences)
def test_an_ended_lease_is_left_in_peace(
    state: LeaseState, seen: Seen, now: datetime, lag: Patience
) -> None:
    assert plan(lease(state), seen, now, lag) == Rest()
