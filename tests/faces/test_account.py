"""All leases on a terminal: what burns, what leaks, what is spent, and what is not known."""

from decimal import Decimal

import pytest
from arranged import HandClock, lease, profile

from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, LeaseId
from gpu_tenant.domain.offers import Leftover
from gpu_tenant.domain.protection import protection
from gpu_tenant.faces.cli import lease_table, sweep
from gpu_tenant.leases.cards import Card, Leases, card, in_all
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


def test_a_box_that_its_provider_has_stopped_is_not_called_ready() -> None:
    taken = shown(rented("tiny-aaaa", "0.02"), state=BoxState.PARKED)

    assert (taken.phase, taken.leaking_usd_month) == ("stopped by its provider", Decimal("14.40"))
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
        == "2 boxes burn 3.12 USD/h; parked and left over: 9.38 USD a month; spent 0.0000 USD"
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
        "1 box burns 0.0000 USD/h; parked and left over: 0.0000 USD a month; spent 0.0000 USD; not counted: "
        "the rate of tiny-a, what tiny-a has cost, the volume v1, and 1 more"
    )
    assert one.not_counted[-1] == "what bills at gcp besides boxes"
    assert lease_table.sum_line(told(left=(VOLUME,))).startswith(
        "no box burns; parked and left over: 7.00"
    )
