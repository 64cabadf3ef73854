"""A lease begins within its owner's terms, over a smoke test or a plain word against one."""

import os
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import NOON, HandClock, context_of, profile, setting

from gpu_tenant.domain.errors import BadRequest, Refused
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.terms import RentRequest
from gpu_tenant.files.protected_files import Guarded
from gpu_tenant.jobs.smoke import SmokeReceipt, smoke
from gpu_tenant.leases.provision import fulfil, intend, new_lease_id, require_smoke
from gpu_tenant.ledger import Ledger, anything
from gpu_tenant.providers.local.connector import connect


def intent(
    ledger: Ledger,
    *,
    hours: float = 8,
    price: str | None = None,
    cap: str | None = None,
    budget: str | None = None,
) -> Lease:
    return intend(
        context_of(ledger, profile()),
        "local",
        allowed=anything,
        asked=RentRequest(
            hours=hours,
            max_price_usd_h=None if cap is None else Decimal(cap),
            budget_usd=None if budget is None else Decimal(budget),
        ),
        price_usd_h=None if price is None else Decimal(price),
        address=None,
    )


# Terms


def test_the_terms_are_on_record_before_there_is_a_box(ledger: Ledger) -> None:
    lease = intent(ledger, hours=2, price="1.10", cap="1.20", budget="5")

    assert ledger.lease(lease.id) == lease
    assert (lease.state, lease.box_id) == (LeaseState.INTENDED, None)
    assert lease.terms.deadline_at == NOON + timedelta(hours=2)
    assert (lease.terms.max_price_usd_h, lease.terms.budget_usd) == (Decimal("1.20"), Decimal(5))


@pytest.mark.parametrize(
    ("price", "cap"), [("1.00", "1.00"), ("0", "0"), ("0.99", "1"), (None, None), ("99", None)]
)
def test_a_price_within_the_cap_passes(ledger: Ledger, price: str | None, cap: str | None) -> None:
    assert intent(ledger, price=price, cap=cap).state is LeaseState.INTENDED


def test_a_price_above_the_cap_is_refused(ledger: Ledger) -> None:
    with pytest.raises(Refused, match=r"1\.01 USD/h is above the cap of 1\.00 USD/h"):
        intent(ledger, price="1.01", cap="1.00")
    assert ledger.leases() == []


def test_an_unknown_price_passes_no_cap_because_it_is_not_zero(ledger: Ledger) -> None:
    with pytest.raises(Refused, match="the price is unknown, so no cap") as told:
        intent(ledger, price=None, cap="100")

    assert "--price-usd-h" in told.value.remedy
    assert ledger.leases() == []


@pytest.mark.parametrize("hours", [0, -1, 24 * 365 + 1, float("inf"), float("nan")])
def test_hours_that_are_no_time_to_come_are_refused(ledger: Ledger, hours: float) -> None:
    with pytest.raises(BadRequest, match="a lease cannot last"):
        intent(ledger, hours=hours)
    assert ledger.leases() == []


def test_a_lease_s_name_is_its_provider_and_four_letters_that_are_not_mistaken(
    ledger: Ledger,
) -> None:
    names = {new_lease_id(ledger, "own") for _ in range(200)}

    letters = {letter for name in names for letter in name.removeprefix("own-")}
    assert all(name.startswith("own-") and len(name) == 8 for name in names)
    assert not letters & set("ilo01")


async def test_an_intent_that_is_fulfilled_stands_on_a_box_with_its_mark(
    ledger: Ledger, tmp_path: Path, clock: HandClock
) -> None:
    lease = intent(ledger)
    connector = connect(setting(tmp_path))

    active = await fulfil(context_of(ledger, profile(), connector), lease)

    boxes = await connector.list_boxes()
    assert (active.state, active.active_at) == (LeaseState.ACTIVE, NOON)
    assert [(box.id, box.mark) for box in boxes] == [(active.box_id, lease.mark)]


# The smoke test


async def smoked(ledger: Ledger, clock: HandClock, tmp_path: Path, command: str) -> SmokeReceipt:
    tree = tmp_path / "tree"
    tree.mkdir(parents=True)
    return await smoke(
        tree,
        command,
        time_limit_s=30,
        environ=os.environ,
        ledger=ledger,
        guarded=Guarded((), tmp_path),
    )


async def test_a_passed_smoke_test_counts_for_a_week(
    ledger: Ledger, clock: HandClock, tmp_path: Path
) -> None:
    receipt = await smoked(ledger, clock, tmp_path, "echo works > out.txt")
    clock.advance(7 * 24 * 3600)

    assert receipt.wrote == ("out.txt",)
    assert require_smoke(receipt.id, ledger=ledger) == receipt

    clock.advance(1)
    with pytest.raises(Refused, match="older than a week"):
        require_smoke(receipt.id, ledger=ledger)


async def test_a_smoke_test_that_failed_does_not_count(
    ledger: Ledger, clock: HandClock, tmp_path: Path
) -> None:
    receipt = await smoked(ledger, clock, tmp_path, "exit 3")

    with pytest.raises(Refused, match="did not pass"):
        require_smoke(receipt.id, ledger=ledger)


async def test_the_refusal_names_the_smoke_test_that_has_just_passed(
    ledger: Ledger, clock: HandClock, tmp_path: Path
) -> None:
    await smoked(ledger, clock, tmp_path / "first", "exit 3")
    with pytest.raises(Refused) as failed:
        require_smoke(None, ledger=ledger)
    receipt = await smoked(ledger, clock, tmp_path / "second", "echo works > out.txt")
    clock.advance(90)

    with pytest.raises(Refused) as told:
        require_smoke(None, ledger=ledger)

    assert f"--smoke {receipt.id}` shows the one that passed 90 s ago" in told.value.remedy
    assert "echo works" in told.value.remedy
    assert "--smoke smoke-" not in failed.value.remedy
    clock.advance(7 * 24 * 3600)
    with pytest.raises(Refused) as later:
        require_smoke(None, ledger=ledger)
    assert receipt.id not in later.value.remedy


def test_to_go_without_is_said_by_name(ledger: Ledger, clock: HandClock) -> None:
    assert require_smoke("none", ledger=ledger) is None


@pytest.mark.parametrize(
    ("shown", "words"), [(None, "no smoke test was named"), ("smoke-0", "no smoke receipt smoke-0")]
)
def test_without_a_smoke_test_nothing_is_rented_and_the_next_command_is_named(
    ledger: Ledger, clock: HandClock, shown: str | None, words: str
) -> None:
    with pytest.raises(Refused, match=words) as told:
        require_smoke(shown, ledger=ledger)

    assert "gpu-tenant smoke" in told.value.remedy
    assert "--smoke none" in told.value.remedy


async def test_a_smoke_test_in_the_usual_state_directory_is_found_from_another_one(
    ledger: Ledger, clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    usual = tmp_path / ".gpu-tenant" / "ledger.sqlite3"
    with closing(Ledger(usual)) as other:
        tested = await smoked(other, clock, tmp_path / "tree", "exit 0")
        with pytest.raises(Refused, match="a rehearsal has a state directory of its own"):
            require_smoke("smoke-0", ledger=other)

    with pytest.raises(Refused) as told:
        require_smoke(tested.id, ledger=ledger)

    assert f"it is in {usual.parent}, and this terminal has a state directory" in told.value.message
