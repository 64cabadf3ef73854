"""A fact past its life is unknown where a stop or a destroy would rest on it, until a person has read it again."""

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from arranged import NOON, TERMS, HandClock, context_of, lease
from contract.staged import PROFILES
from tiny import TinyParking

from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.fact_life import LIVES_DAYS, as_believed
from gpu_tenant.domain.model import Lease, LeaseId, SshAddress
from gpu_tenant.domain.policy import ends_unseen, may_keep
from gpu_tenant.domain.protection import protection, way_out
from gpu_tenant.domain.survival import accounted_paths, stop_keeps
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.park import park
from gpu_tenant.ledger import Ledger

YEARS_S = 2 * 366 * 86_400
LATER = (NOON + timedelta(seconds=YEARS_S)).date()
LEASE = LeaseId("vastai-abcd")
VASTAI = PROFILES["vastai"].model_copy(update={"credential": None})


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def ledger(tmp_path: Path, clock: HandClock) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "ledger.sqlite3", clock)) as opened:
        yield opened


@pytest.fixture
def context(ledger: Ledger, clock: HandClock) -> Context:
    return context_of(ledger, PROFILES["vastai"], TinyParking(clock))


async def used_box(ledger: Ledger, tiny: TinyParking) -> Lease:
    intent = ledger.intend(
        lease_id=LEASE, provider="vastai", terms=TERMS, address=None, price_usd_h=None, at=NOON
    )
    ledger.bind(LEASE, await tiny.create(intent), at=NOON)
    ledger.touch(LEASE, at=NOON)
    return ledger.ready(LEASE, at=NOON)


async def test_a_used_box_is_not_stopped_on_an_old_belief_and_a_person_is_asked_to_read_again(
    ledger: Ledger, clock: HandClock
) -> None:
    tiny = TinyParking(clock)
    context = context_of(ledger, VASTAI, tiny)
    held = await used_box(ledger, tiny)
    clock.advance(YEARS_S)

    with pytest.raises(Refused, match=r"paths\[/workspace\]\.survives\.") as told:
        await park(context, held, unsealed="skip")

    assert "below `[read_again]` in config.toml" in told.value.remedy
    assert f"gpu-tenant teardown {LEASE}" in told.value.remedy
    assert "park" not in tiny.asked
    assert ledger.lease(LEASE).parked_at is None


async def test_what_a_person_read_again_is_believed_from_then_on(
    ledger: Ledger, clock: HandClock
) -> None:
    tiny = TinyParking(clock)
    context = context_of(ledger, VASTAI, tiny)
    held = await used_box(ledger, tiny)
    clock.advance(YEARS_S)
    assert context.profile("vastai").outlived
    context.home.configuration.write_text(f"[read_again]\nvastai = {LATER}\n")

    parked = await park(context, held, unsealed="skip")

    assert parked.parked_at is not None
    assert context.profile("vastai").outlived == ()


@pytest.mark.parametrize("said", ["vastai = 2199-01-01", 'vastai = "soon"', "other = 2028-11-21"])
def test_a_day_to_come_or_of_another_platform_confirms_nothing(
    context: Context, clock: HandClock, said: str
) -> None:
    clock.advance(YEARS_S)
    context.home.configuration.write_text(f"[read_again]\n{said}\n")

    assert context.profile("vastai").outlived


def test_what_was_said_to_outlive_an_end_is_accounted_for_once_nobody_knows() -> None:
    old = as_believed(PROFILES["autodl"], LATER)
    of = lease(provider="autodl")

    assert "/root/autodl-fs" not in accounted_paths(PROFILES["autodl"], of)
    assert "/root/autodl-fs" in accounted_paths(old, of)


@pytest.mark.parametrize("provider", ["vastai", "gcp", "autodl", "runpod"])
def test_no_guard_and_no_timer_is_trusted_with_a_stop_that_nobody_looked_up_for_years(
    provider: str,
) -> None:
    far = SshAddress(target="root@203.0.113.7:40022")
    of = lease(provider=provider).model_copy(update={"address": far, "quote": None})
    new, old = PROFILES[provider], as_believed(PROFILES[provider], LATER)

    assert stop_keeps(new, of) != "nothing"
    assert stop_keeps(old, of) == "nothing"
    assert (may_keep(old), ends_unseen(old), way_out(old, of)) == (False, False, None)
    told = protection(old, of, None)
    assert told.kind == "nothing"
    assert "[read_again]" in told.words


def test_an_old_belief_about_the_list_makes_the_proof_slower() -> None:
    old = as_believed(PROFILES["slurm"], LATER)

    assert PROFILES["slurm"].confirm_s < old.confirm_s
    assert PROFILES["slurm"].list_lag_s < old.list_lag_s


def test_a_fact_is_believed_to_its_last_day_and_our_own_computers_do_not_age() -> None:
    newest = max(fact.checked_on for fact in PROFILES["vastai"].facts)
    last = newest + timedelta(days=min(LIVES_DAYS.values()))

    assert as_believed(PROFILES["vastai"], newest + timedelta(days=90)) is PROFILES["vastai"]
    assert as_believed(PROFILES["vastai"], last + timedelta(days=1)).outlived
    assert as_believed(PROFILES["own"], LATER) is PROFILES["own"]
    assert as_believed(PROFILES["local"], LATER) is PROFILES["local"]


def test_every_stated_life_is_that_of_a_fact_which_some_platform_has() -> None:
    places = {fact.place for profile in PROFILES.values() for fact in profile.facts}

    for kind in LIVES_DAYS:
        assert any(re.fullmatch(kind, place) for place in places), kind
