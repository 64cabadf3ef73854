"""What is next is one value: the buttons of the page, the sentence of an answer and the alarm come from it."""

from datetime import timedelta
from decimal import Decimal

import pytest
from arranged import NOON, box, job, lease, profile, quote

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Box, BoxState, LeaseId, LeaseState
from gpu_tenant.domain.next_step import (
    Await,
    BringHome,
    End,
    GoElsewhere,
    NothingToDo,
    Over,
    StartAgain,
    Watcher,
    watcher,
)
from gpu_tenant.domain.policy import LookedAfter
from gpu_tenant.domain.protection import protection
from gpu_tenant.domain.terms import OnFailure
from gpu_tenant.domain.timeline import Event, Line
from gpu_tenant.faces.dashboard.lease_rows import LeaseRow, row_of
from gpu_tenant.leases.cards import Card, card

TINY = profile("tiny").model_copy(update={"park": "keeps"})
STOPPED = box(provider="tiny").model_copy(update={"state": BoxState.PARKED})
LAUNCHED = timeline.Launched(job="train")
PREEMPTED = timeline.Taken(fate="preempted", words="its provider says so")


def spot(*recover: str) -> dict[str, object]:
    terms = lease().terms.model_copy(update={"recover": recover})
    return {
        "ready_at": NOON,
        "touched_at": NOON,
        "quote": quote(),
        "price_usd_h": Decimal("0.50"),
        "terms": terms,
    }


def shown(
    *events: Event, of: dict[str, object], looked_after: LookedAfter, at: Box | None = None
) -> Card:
    standing = lease(provider="tiny").model_copy(update=of)
    return card(
        standing,
        TINY,
        jobs=[job("train").model_copy(update={"launched_at": NOON})],
        alarm=None,
        now=NOON + timedelta(hours=1),
        protection=protection(TINY, standing, None),
        events=[Line(NOON + timedelta(minutes=n), each) for n, each in enumerate(events)],
        box=at,
        looked_after=looked_after,
    )


def row(told: Card, of: dict[str, object]) -> LeaseRow:
    return row_of(told, lease(provider="tiny").model_copy(update=of), TINY, blind=None, job=None)


def test_the_page_does_not_offer_to_start_the_old_box_while_the_watchdog_rents_another() -> None:
    taken = shown(LAUNCHED, PREEMPTED, of=spot("same"), looked_after="watched", at=STOPPED)

    told = row(taken, spot("same"))

    assert isinstance(taken.step, NothingToDo)
    assert taken.step.does == "recover"
    assert taken.next.startswith("nothing to do: the watchdog continues its work at another box")
    assert told.by_itself
    assert told.verbs[:2] == ("recover", "teardown")
    assert not {"resume", "resume_and_end"} & {*told.verbs}, "two boxes would bill"


def test_without_a_watchdog_the_first_button_is_what_the_sentence_says() -> None:
    taken = shown(LAUNCHED, PREEMPTED, of=spot("same"), looked_after="unwatched", at=STOPPED)

    told = row(taken, spot("same"))

    assert isinstance(taken.step, GoElsewhere)
    assert taken.next.startswith(f"`gpu-tenant recover {taken.lease}`")
    assert not told.by_itself
    assert told.verbs[:3] == ("recover", "resume", "teardown")


@pytest.mark.parametrize("looked_after", ["watched", "unwatched"])
def test_a_stopped_box_whose_work_may_not_go_elsewhere_is_started_again(
    looked_after: LookedAfter,
) -> None:
    taken = shown(LAUNCHED, PREEMPTED, of=spot(), looked_after=looked_after, at=STOPPED)

    assert taken.step == StartAgain(LeaseId(taken.lease), "work")
    assert row(taken, spot()).verbs[0] == "resume"


def test_a_job_that_runs_is_awaited_and_one_that_has_ended_is_brought_home() -> None:
    runs = shown(LAUNCHED, of=spot(), looked_after="unwatched")
    over = timeline.JobEnded(job="train", state="finished")
    ended = shown(LAUNCHED, over, of=spot(), looked_after="unwatched")

    assert isinstance(runs.step, Await)
    assert isinstance(ended.step, BringHome)
    assert isinstance(runs.with_job("finished").step, BringHome), "a newer look decides anew"


@pytest.mark.parametrize(("state", "does"), [("finished", "end"), ("failed", "park")])
def test_what_a_watchdog_does_by_itself_is_no_task_for_a_person(state: str, does: str) -> None:
    of = spot()
    terms = lease().terms.model_copy(
        update={"when_done": "end", "on_failure": OnFailure.parse("park")}
    )
    over = timeline.JobEnded(job="train", state=state)

    ended = shown(LAUNCHED, over, of=of | {"terms": terms}, looked_after="watched")

    assert isinstance(ended.step, NothingToDo)
    assert ended.step.does == does
    assert ended.condition.to_do is None


def test_nothing_is_to_be_done_only_if_somebody_watches() -> None:
    assert watcher("unwatched") is None
    with pytest.raises(TypeError, match="watcher"):
        NothingToDo(Watcher(None), "end")
    with pytest.raises(TypeError, match="by"):
        NothingToDo(does="end")  # type: ignore[call-arg]


def test_a_teardown_that_was_cut_short_goes_on_and_an_ended_lease_needs_nothing() -> None:
    going = shown(LAUNCHED, of=spot() | {"state": LeaseState.TERMINATING}, looked_after="unwatched")
    gone = shown(LAUNCHED, of=spot() | {"state": LeaseState.GONE}, looked_after="unwatched")

    assert isinstance(going.step, End)
    assert isinstance(gone.step, Over)
