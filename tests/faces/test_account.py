"""All leases on a terminal: what burns, what leaks, what is spent, and what is not known."""

from decimal import Decimal

import pytest
from arranged import HandClock, job, lease, profile

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, LeaseId, LeaseState
from gpu_tenant.domain.offers import Leftover
from gpu_tenant.domain.protection import protection
from gpu_tenant.faces.cli import lease_table, sweep
from gpu_tenant.leases.cards import Card, Leases, Spent, card, in_all
from gpu_tenant.sweeps.commands import SweepReport
from gpu_tenant.sweeps.status import STATES, CellRow, Reckoning

NOW = HandClock().now()
VOLUME = Leftover(
    provider="tiny", kind="volume", id="v1", name="v1", mark=None, size_gb=10, usd_month=Decimal(7)
)


def rented(name: str, usd_h: str | None = "0.50") -> Lease:
    return lease(
        lease_id=LeaseId(name),
        provider="tiny",
        price_usd_h=None if usd_h is None else Decimal(usd_h),
    )


def shown(standing: Lease, *, state: BoxState = BoxState.READY) -> Card:
    box = Box(
        provider="tiny",
        id=BoxId(standing.id),
        mark=standing.mark,
        state=state,
        address=None,
        price_usd_h=standing.price_usd_h,
    )
    tiny = profile("tiny")
    return card(
        standing,
        tiny,
        jobs=(),
        alarm=None,
        now=NOW,
        box=box,
        protection=protection(tiny, standing, None),
    )


def told(*cards: Card, unseen: tuple[str, ...] = (), left: tuple[Leftover, ...] = ()) -> Leases:
    return in_all(cards, alarms=(), foreign=(), leftovers=left, unseen=unseen, free={"own"})


def test_a_box_that_was_stopped_unasked_is_not_called_ready() -> None:
    taken = shown(rented("tiny-aaaa", "0.02"), state=BoxState.PARKED)

    assert (taken.phase, taken.leaking_usd_month) == ("stopped", Decimal("14.40"))
    assert taken.next.startswith("`gpu-tenant resume ")
    assert shown(rented("tiny-bbbb")).leaking_usd_month is None


def test_the_last_line_is_what_burns_what_leaks_and_what_is_spent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parked = rented("tiny-cccc", "0.0033").model_copy(update={"parked_at": NOW})

    lease_table.leases(
        told(
            shown(rented("tiny-a")), shown(rented("tiny-b", "2.62")), shown(parked), left=(VOLUME,)
        )
    )

    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[-1]
        == "2 boxes burn 3.12 USD/h with the disks of 1 stopped box; parked and left over: 9.38 USD a month; "
        "spent in all 0.0000 USD"
    )
    assert "the volume v1, 10 GB at tiny continues to bill at 7 USD a month" in lines[-2]


def test_what_came_from_elsewhere_is_shown_as_it_stands_and_is_no_markup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    odd = shown(rented("tiny-a")).model_copy(update={"box": "[/]", "jobs": ("[red]x",)})
    row = CellRow(
        cell="n-1", state="failed", lease="tiny-a", job="n-1", attempts=1, why="[/b]", parameters={}
    )
    cells = Reckoning(
        sweep="sw-1",
        command="true",
        leases=("tiny-a",),
        rows=(row,),
        counts=dict.fromkeys(STATES, 0) | {"failed": 1},
        twins=(),
        wrong=(),
        digest="",
        settled_by=None,
    )

    lease_table.leases(told(odd))
    sweep.table(SweepReport(table=cells, troubles=()))

    said = capsys.readouterr().out
    assert [word for word in ("[/]", "[red]x", "[/b]") if word not in said] == []


def test_what_is_unknown_is_named_and_never_counted_as_nothing() -> None:
    unknown = VOLUME.model_copy(update={"usd_month": None})
    one = told(shown(rented("tiny-a", None)), unseen=("gcp",), left=(unknown,))

    assert lease_table.sum_line(one) == (
        "1 box burns 0.0000 USD/h; spent in all 0.0000 USD; not counted: "
        "the rate of tiny-a, what tiny-a has cost, the volume v1, and 1 more"
    )
    assert one.not_counted[-1] == "what bills at gcp besides boxes"
    assert lease_table.sum_line(told(left=(VOLUME,))).startswith(
        "no box burns; parked and left over: 7.00"
    )


def test_the_disk_of_a_stopped_box_burns_too() -> None:
    taken = shown(rented("tiny-aaaa", "0.02"), state=BoxState.PARKED)

    assert taken.bills == "disk"
    assert told(taken).burning_usd_h == Decimal("0.02")
    assert lease_table.sum_line(told(taken)).startswith(
        "no box burns, 0.0200 USD/h with the disks of 1 stopped box;"
    )


def test_a_lease_that_has_ended_has_no_deadline_no_rate_and_nothing_armed() -> None:
    over = shown(rented("tiny-over").model_copy(update={"state": LeaseState.GONE, "ended_at": NOW}))

    assert (over.deadline_in_s, over.price_usd_h, over.bills) == (None, 0, "no more")
    assert over.stops_the_meter == "nothing has to end the bill: the lease has ended"


def test_one_s_own_boxes_burn_nothing_and_every_column_calls_that_the_same() -> None:
    own = profile("own")
    free = card(
        lease(provider="own"),
        own,
        jobs=(),
        alarm=None,
        now=NOW,
        protection=protection(own, lease(provider="own"), None),
    )

    assert free.bills == "nobody"
    assert (lease_table.rate_words(free), lease_table.spent_words(free)) == ("nobody bills",) * 2
    assert free.price_words == "nobody bills"
    assert lease_table.sum_line(told(free, shown(rented("tiny-a")))).startswith(
        "1 box burns 0.5000"
    )


@pytest.mark.parametrize("state", [LeaseState.ACTIVE, LeaseState.GONE])
def test_where_nobody_bills_no_cost_is_called_unknown(state: LeaseState) -> None:
    own = profile("own")
    free = lease(state, provider="own")
    told_free = card(
        free, own, jobs=(), alarm=None, now=NOW, protection=protection(own, free, None)
    )

    assert told_free.counts == "nobody bills"
    assert lease_table.spent_words(told_free) == "nobody bills"


@pytest.mark.parametrize("billed", ["0.50", None])
@pytest.mark.parametrize(
    ("recorded", "seen", "others", "says"),
    [
        ("finished", "running", 0, "monitor"),
        (None, "finished", 0, "its work has ended"),
        ("finished", "finished", 2, "monitor"),
        (None, "failed", 0, "its work has ended"),
    ],
)
def test_a_newer_look_at_the_job_decides_what_is_next(
    recorded: str | None, seen: str, others: int, says: str, billed: str | None
) -> None:
    at = profile("tiny" if billed else "own")
    box = rented("tiny-aaaa", billed) if billed else lease(provider="own")
    launched = job("job1").model_copy(update={"launched_at": NOW})
    ended = timeline.Progressed(job="job1", state=recorded)
    events = [
        timeline.Line(NOW, timeline.Launched(job="job1")),
        *([timeline.Line(NOW, ended)] if recorded else []),
    ]
    told_card = card(
        box.model_copy(update={"ready_at": NOW}),
        at,
        jobs=(launched,),
        alarm=None,
        now=NOW,
        protection=protection(at, box, None),
        events=events,
    )

    newer = told_card.with_job(seen, others_running=others)

    assert says in newer.next
    assert ("when the job has ended" in newer.next) == (says == "monitor")


def test_what_ended_leases_cost_is_in_the_sum() -> None:
    whole = in_all(
        [shown(rented("tiny-a"))],
        alarms=(),
        foreign=(),
        leftovers=(),
        unseen=(),
        free={"own"},
        before=Spent(Decimal("2.50"), 3),
    )

    assert whole.spent_usd == Decimal("2.50")
    assert "what 3 ended leases cost" in whole.not_counted


def test_what_needs_a_person_is_said_first_with_what_it_costs_and_the_next_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    taken = shown(rented("tiny-aaaa", "0.02"), state=BoxState.PARKED)

    lease_table.leases(told(shown(rented("tiny-fine")), taken))

    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first.startswith("do this: tiny-aaaa: stopped, its disk bills on, 0.02 USD/h")
    assert "gpu-tenant resume tiny-aaaa" in first
    assert second.startswith("LEASE")


def test_the_next_step_of_a_lease_whose_work_has_ended_is_to_bring_it_home() -> None:
    tiny, standing = profile("tiny"), rented("tiny-a")
    lines = [
        timeline.Line(NOW, timeline.Launched(job="job1")),
        timeline.Line(NOW, timeline.Progressed(job="job1", state="failed")),
    ]
    over = card(
        standing,
        tiny,
        jobs=[job()],
        alarm=None,
        now=NOW,
        events=lines,
        protection=protection(tiny, standing, None),
    )

    assert over.condition.word == "job failed"
    assert over.next.startswith("`gpu-tenant collect tiny-a`, then `gpu-tenant teardown tiny-a`")
    assert next(iter(lease_table.to_do([over]))).startswith(
        "tiny-a: job failed 0 s ago, its box bills on, "
    )
