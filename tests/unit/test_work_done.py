"""Whether a lease's work is done, and what follows: every row of the table."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import LEASE, NOON, active, never_used
from pydantic import ValidationError

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import StillWanted
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.terms import OnFailure, RentRequest, Terms, duration_words, seconds_of
from gpu_tenant.leases.work_done import (
    JobEnd,
    Work,
    ends_of,
    failures,
    held_until,
    next_step,
    relaunch_until,
    tries_of,
)
from gpu_tenant.ledger import Ledger

BEFORE = NOON - timedelta(hours=1)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def lease(when_done: str = "end", on_failure: str = "end after 15m") -> Lease:
    return Lease.model_construct(  # type: ignore[call-arg]  # what nobody asks for here
        price_usd_h=Decimal("0.5"),
        terms=Terms.model_validate(
            {
                "deadline_at": NOON + timedelta(hours=8),
                "when_done": when_done,
                "on_failure": OnFailure.parse(on_failure).model_dump(),
            }
        ),
    )


def line(seconds: float, event: timeline.Event) -> timeline.Line:
    return timeline.Line(after(seconds), event)


LAUNCHED = timeline.Line(BEFORE, timeline.Launched(job="train"))
DONE = Work(launched=True, ended_at=NOON)
FAILED = Work(launched=True, ended_at=NOON, failed=("the job train is failed",))
SEEN = replace(FAILED, seen_at=NOON - timedelta(minutes=5))
LEFT = replace(FAILED, seen_at=NOON - timedelta(minutes=6))
REFUSED = line(60, timeline.Done(outcome="refused", words="other.bin is nobody's"))
BROKE = line(60, timeline.Done(outcome="failed", words="the link broke"))


@pytest.mark.parametrize(
    ("work", "terms", "events", "seconds", "expected"),
    [
        # the terms say keep, nothing was launched, something runs
        (DONE, ("keep",), [LAUNCHED], 3600, ("nothing", "keep")),
        (Work(launched=False), (), [], 3600, ("nothing", "unused")),
        (Work(launched=True, busy=("train",)), (), [LAUNCHED], 3600, ("nothing", "busy")),
        # a grace after the last job's end
        (DONE, (), [LAUNCHED], 0, ("wait", "grace")),
        (DONE, (), [LAUNCHED], 29, ("wait", "grace")),
        (DONE, (), [LAUNCHED], 30, ("end", "done")),
        (DONE, ("park",), [LAUNCHED], 30, ("park", "done")),
        (Work(launched=True), (), [LAUNCHED], 0, ("wait", "grace")),
        # a clock that was set back behind the end holds nothing
        (DONE, (), [LAUNCHED], -7200, ("end", "done")),
        (FAILED, (), [LAUNCHED], -7200, ("end", "done")),
        # somebody said hold, until then, or took it back
        (
            DONE,
            (),
            [line(5, timeline.AwaitsWork(until=after(1800), by="said"))],
            1799,
            ("wait", "held"),
        ),
        (
            DONE,
            (),
            [line(5, timeline.AwaitsWork(until=after(1800), by="said"))],
            1800,
            ("end", "done"),
        ),
        (
            DONE,
            (),
            [
                line(5, timeline.AwaitsWork(until=after(1800), by="said")),
                line(40, timeline.AwaitsWork(until=after(40), by="said")),
            ],
            41,
            ("end", "done"),
        ),
        # a push and a launch that had to wait announce work, too; a launch answers what announced it
        (DONE, (), [line(5, timeline.Pushed())], 304, ("wait", "held")),
        (DONE, (), [line(5, timeline.Pushed())], 305, ("end", "done")),
        (DONE, (), [line(5, timeline.Prepared(state="ready"))], 304, ("wait", "held")),
        (
            DONE,
            (),
            [line(-50, timeline.Pushed()), line(-40, timeline.Launched())],
            40,
            ("end", "done"),
        ),
        (
            DONE,
            (),
            [line(5, timeline.AwaitsWork(until=after(125), by="launch"))],
            124,
            ("wait", "held"),
        ),
        # what failed waits for whoever is there, and for nobody else
        (FAILED, ("end", "end"), [LAUNCHED], 59, ("wait", "failed")),
        (FAILED, ("end", "end"), [LAUNCHED], 60, ("end", "done")),
        (SEEN, ("end", "end"), [LAUNCHED], 599, ("wait", "failed")),
        (SEEN, ("end", "end"), [LAUNCHED], 600, ("end", "done")),
        (SEEN, ("end", "park"), [LAUNCHED], 600, ("park", "done")),
        (LEFT, ("end", "end"), [LAUNCHED], 60, ("end", "done")),
        # or it gets the time that its terms say, and is then treated as said
        (FAILED, (), [LAUNCHED], 31, ("wait", "failed")),
        (FAILED, (), [LAUNCHED], 899, ("wait", "failed")),
        (FAILED, (), [LAUNCHED], 900, ("end", "done")),
        (FAILED, ("end", "park after 1h"), [LAUNCHED], 3599, ("wait", "failed")),
        (FAILED, ("end", "park after 1h"), [LAUNCHED], 3600, ("park", "done")),
        (FAILED, ("end", "hold"), [LAUNCHED], 1e6, ("nothing", "failed")),
        (FAILED, ("end", "end after 0s"), [LAUNCHED], 29, ("wait", "failed")),
        (FAILED, ("end", "end after 0s"), [LAUNCHED], 30, ("end", "done")),
        # refused once is refused until something changes
        (DONE, (), [LAUNCHED, REFUSED], 1e6, ("nothing", "refused")),
        (DONE, (), [LAUNCHED, REFUSED, line(90, timeline.Claimed())], 120, ("end", "done")),
        (
            DONE,
            (),
            [LAUNCHED, REFUSED, line(90, timeline.Collected(seal="s"))],
            120,
            ("end", "done"),
        ),
        (
            DONE,
            (),
            [LAUNCHED, REFUSED, line(90, timeline.Accepted(sweep="sw-1"))],
            120,
            ("end", "done"),
        ),
        (
            DONE,
            (),
            [LAUNCHED, REFUSED, line(90, timeline.Sealed(digest="d"))],
            120,
            ("nothing", "refused"),
        ),
        # what may pass is tried again, less and less often
        (DONE, (), [LAUNCHED, BROKE], 119, ("wait", "again")),
        (DONE, (), [LAUNCHED, BROKE], 120, ("end", "done")),
        (
            DONE,
            (),
            [LAUNCHED, BROKE, line(120, timeline.Done(outcome="failed"))],
            239,
            ("wait", "again"),
        ),
        (
            DONE,
            (),
            [LAUNCHED, BROKE, line(120, timeline.Done(outcome="failed"))],
            240,
            ("end", "done"),
        ),
    ],
)
def test_what_follows(
    work: Work,
    terms: tuple[str, ...],
    events: list[tuple[datetime, str, dict[str, object]]],
    seconds: float,
    expected: tuple[str, str],
) -> None:
    step = next_step(lease(*terms), work, events, after(seconds))

    assert (step.does, step.because) == expected


def test_what_an_attempt_collects_itself_is_no_reason_for_another() -> None:
    begun, collected = (
        line(30, timeline.Done(outcome="begun")),
        line(31, timeline.Collected(seal="s")),
    )

    assert tries_of([LAUNCHED, begun, collected, REFUSED]).refused
    again = [
        BROKE,
        line(120, timeline.Done(outcome="begun")),
        line(121, timeline.Collected(seal="s")),
    ]
    assert len(tries_of([LAUNCHED, *again, line(122, timeline.Done(outcome="failed"))]).failed) == 2


def test_a_launch_during_an_attempt_counts_although_the_attempt_was_cut_short() -> None:
    events = [REFUSED, line(70, timeline.Done(outcome="begun")), line(71, timeline.Launched())]

    assert tries_of([*events, line(72, timeline.Collected(seal="s"))]).refused is None


def test_a_failure_is_answered_by_a_launch_after_it_and_not_by_one_beside_it() -> None:
    ends = [JobEnd("a", "failed", after(0), "out of memory"), JobEnd("b", "finished", after(5))]

    assert failures(ends, after(-60)) == ("the job a is failed (out of memory)",)
    assert failures(ends, after(0)) == ("the job a is failed (out of memory)",)
    assert failures(ends, after(1)) == ()


def test_an_end_that_was_seen_late_counts_from_when_it_was() -> None:
    ends = ends_of([line(50, timeline.JobEnded(job="train", state="finished", ago_s=45.0))])

    assert ends == [JobEnd("train", "finished", after(5))]


def test_nobody_holds_what_nobody_spoke_of() -> None:
    assert held_until([LAUNCHED, line(1, timeline.Collected(seal="s"))]) is None


@pytest.mark.parametrize(
    ("said", "seconds", "again"),
    [
        ("30m", 1800, "30m"),
        ("1.5h", 5400, "90m"),
        ("90s", 90, "90s"),
        ("0s", 0, "0s"),
        ("2d", 172800, "48h"),
    ],
)
def test_a_duration_is_read_and_told(said: str, seconds: float, again: str) -> None:
    assert (seconds_of(said), duration_words(seconds_of(said))) == (seconds, again)


@pytest.mark.parametrize("said", ["", "30", "m", "-5m", "1e9h", "soon", "nan m", "999999999d"])
def test_what_is_no_duration_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        seconds_of(said)


@pytest.mark.parametrize("said", ["end", "park", "end after 15m", "park after 1h", "keep", "hold"])
def test_what_becomes_of_a_failure_is_read_and_told(said: str) -> None:
    assert OnFailure.parse(OnFailure.parse(said).words) == OnFailure.parse(said)


@pytest.mark.parametrize(
    "said", ["destroy", "hold after 5m", "keep after 5m", "end after soon", "end 15m"]
)
def test_what_cannot_become_of_a_failure_is_refused_where_it_comes_in(said: str) -> None:
    with pytest.raises(ValidationError):
        RentRequest(on_failure=said)


def test_terms_of_before_are_kept_and_a_rented_box_ends_unless_said() -> None:
    old = Terms.model_validate({"deadline_at": NOON})
    usual = {"deadline_at": NOON, "max_price_usd_h": None, "meter": "billed"}

    assert old.when_done == "keep"
    assert RentRequest().terms(**usual).when_done == "end"  # type: ignore[arg-type]
    assert RentRequest().terms(**usual, machine="own").when_done == "keep"  # type: ignore[arg-type]
    assert RentRequest(when_done="keep").terms(**usual).when_done == "keep"  # type: ignore[arg-type]


# --- what the ledger holds


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(tmp_path / "ledger.sqlite3")
    yield opened
    opened.close()


def test_who_announces_work_before_the_permit_keeps_the_box_and_after_it_is_told(
    ledger: Ledger,
) -> None:
    permit, decided = never_used(active(ledger)), ledger.newest_event()
    assert ledger.hold_until(LEASE, after(120), by="launch", at=NOON)

    with pytest.raises(StillWanted):
        ledger.file_permit(permit, at=NOON, unless_wanted_after_line=decided)
    assert ledger.lease(LEASE).state is LeaseState.ACTIVE
    ledger.file_permit(permit, at=NOON, unless_wanted_after_line=ledger.newest_event())

    assert not ledger.hold_until(LEASE, after(120), by="launch", at=NOON)


def test_what_changes_nothing_of_the_work_keeps_no_box(ledger: Ledger) -> None:
    permit, decided = never_used(active(ledger)), ledger.newest_event()
    ledger.note(LEASE, timeline.Collected(seal="s"), at=NOON)

    assert ledger.file_permit(permit, at=NOON, unless_wanted_after_line=decided).state is (
        LeaseState.TERMINATING
    )


def test_a_lease_that_agreed_to_nothing_is_ended_for_nothing(ledger: Ledger) -> None:
    active(ledger)

    with pytest.raises(sqlite3.IntegrityError, match="nobody agreed"):
        ledger.note(LEASE, timeline.Done(outcome="begun"), at=NOON)


def test_the_end_of_a_job_is_on_record_once_whoever_looks(ledger: Ledger) -> None:
    active(ledger)
    for ago_s in (1.0, 99.0):
        seen = timeline.JobEnded(job="train", state="finished", ago_s=ago_s)
        ledger.job_ended(LEASE, seen, at=NOON)

    assert ends_of(ledger.events(LEASE)) == [JobEnd("train", "finished", after(-1))]


def test_a_job_that_went_with_its_box_is_answered_by_a_launch_since_however_late_its_end_is_seen() -> (
    None
):
    events = [
        LAUNCHED,
        line(0, timeline.Taken(fate="outbid")),
        line(100, timeline.Resumed()),
        line(110, timeline.Ready()),
        line(120, timeline.Launched(job="again")),
        line(200, timeline.JobEnded(job="train", state="killed")),
        line(200, timeline.JobEnded(job="again", state="finished")),
    ]

    assert failures(ends_of(events), after(120), events) == ()
    assert relaunch_until(ends_of(events), after(120), events) is None
    crashed = [x for x in events if not isinstance(x.event, timeline.Taken)]
    assert failures(ends_of(crashed), after(120), crashed) == ("the job train is killed",)


def test_a_job_whose_work_went_on_elsewhere_is_no_failure_of_the_box_that_wakes() -> None:
    events = [
        LAUNCHED,
        line(0, timeline.Taken(fate="outbid")),
        line(60, timeline.Recovered(fate="outbid", to="other-1")),
        line(100, timeline.Taken(fate=None)),
        line(200, timeline.JobEnded(job="train", state="killed")),
    ]

    assert failures(ends_of(events), BEFORE, events) == ()


def test_a_box_that_runs_again_waits_for_a_launch_whatever_the_rule_for_failures() -> None:
    events = [
        LAUNCHED,
        line(0, timeline.Taken(fate="outbid")),
        line(60, timeline.Taken(fate=None)),
        line(70, timeline.JobEnded(job="train", state="killed")),
    ]
    ends = ends_of(events)
    work = Work(
        launched=True,
        ended_at=after(70),
        failed=failures(ends, BEFORE, events),
        relaunch_until=relaunch_until(ends, BEFORE, events),
    )
    of = lease("end", "end after 0s")

    assert next_step(of, work, events, after(959)).because == "failed"
    assert next_step(of, work, events, after(960)).does == "end"
