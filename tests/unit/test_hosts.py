"""What a host did is remembered with its evidence, counts for two weeks, and can be forgotten."""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from arranged import (
    LEASE,
    NOON,
    TERMS,
    HandClock,
    active,
    box,
    context_of,
    offer,
    price,
    profile,
    quote,
)
from tiny import TinyProvider, no_answer

from gpu_tenant.box.audit.findings import Finding, blocker, warning
from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BadRequest, BoxUnreachable, HostLeftOut, NotReady
from gpu_tenant.domain.host_reports import HELD, Misdeed
from gpu_tenant.domain.interruption import Taken
from gpu_tenant.domain.model import BoxState, Fate, Lease, LeaseId
from gpu_tenant.domain.offers import Offer, Wish
from gpu_tenant.domain.order import Order
from gpu_tenant.leases.host_memory import remember_audit, remember_fate, remember_not_ready
from gpu_tenant.leases.offers import Found, find_offers
from gpu_tenant.leases.provision import make_ready
from gpu_tenant.leases.settle import settle
from gpu_tenant.ledger import Ledger

HOST = "tiny:41"
HUNTS = int(os.environ.get("HUNTS", "150"))
TINY = profile("tiny", list_lag_s=60).model_copy(update={"boot_timeout_s": 300, "confirm_s": 10})


@dataclass
class Shelf:
    """A market with these offers."""

    has: Sequence[Offer]

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        return self.has


def on(host: str, usd_h: str = "0.50", name: str | None = None) -> Offer:
    return offer(id=name or f"o{host}", host=host, price=price(usd_h))


async def found(ledger: Ledger, *has: Offer, wish: Wish | None = None) -> Found:
    return await find_offers(wish or Wish(), {"tiny": Shelf(has)}, ledger=ledger)


def hosts_of(answer: Found, ledger: Ledger) -> list[str | None]:
    quotes = [ledger.quote(each.quote) for each in answer.offers if each.quote]
    return [each.offer.host for each in quotes if each]


def rented(ledger: Ledger, host: str = "41", lease: str = "tiny-abcd") -> Lease:
    """A lease by a quote on that host, which stands on a box."""
    intent = ledger.intend(
        lease_id=LeaseId(lease),
        provider="tiny",
        terms=TERMS,
        address=None,
        price_usd_h=Decimal("0.50"),
        quote=quote(id=f"q-{lease}", offer=on(host)),
        at=ledger.now(),
    )
    standing = box(LeaseId(lease), provider="tiny").model_copy(update={"mark": intent.mark})
    return ledger.bind(intent.id, standing, at=ledger.now())


def did(ledger: Ledger, what: Misdeed, lease: Lease | None = None, host: str = "41") -> None:
    lease = lease or rented(ledger, host)
    ledger.report_host(lease.id, what, "it was seen", provider="tiny", host=host, at=ledger.now())


# The rule


@pytest.mark.parametrize("what", ["never ready", "failed audit", "host lost"])
async def test_a_host_that_failed_is_left_out_and_named_with_the_reason_and_until_when(
    ledger: Ledger, what: Misdeed
) -> None:
    did(ledger, what)

    answer = await found(ledger, on("41", "0.10"), on("42"))

    assert hosts_of(answer, ledger) == ["42"]
    (reason,) = answer.unfit
    assert reason == f"host tiny:41: {what} on 2026-11-20 (tiny-abcd); left out until 2026-12-04"


@pytest.mark.parametrize("what", ["stopped", "vanished", "throttled"])
async def test_a_lesser_thing_makes_a_host_dearer_and_is_told_with_its_offer(
    ledger: Ledger, what: Misdeed, clock: HandClock
) -> None:
    lease = rented(ledger)
    did(ledger, what, lease)
    if what == "vanished":
        ledger.end(lease.id, "lost", at=NOON)

    answer = await found(ledger, on("41", "0.41"), on("42", "0.50"))
    cheaper = await found(ledger, on("41", "0.39"), on("42", "0.50"))

    assert hosts_of(answer, ledger) == ["42", "41"]
    assert hosts_of(cheaper, ledger) == ["41", "42"]
    assert (
        f"host tiny:41: {what} on 2026-11-20 (tiny-abcd); counts as 25% dearer"
        in (answer.offers[1].notes[-1])
    )


async def test_it_counts_for_two_weeks_and_no_longer(ledger: Ledger, clock: HandClock) -> None:
    did(ledger, "never ready")
    clock.advance(HELD.total_seconds() - 1)
    before = await found(ledger, on("41"))
    clock.advance(2)
    after = await found(ledger, on("41"))

    assert (hosts_of(before, ledger), hosts_of(after, ledger)) == ([], ["41"])


async def test_who_asks_for_the_host_by_its_name_has_it_all_the_same(ledger: Ledger) -> None:
    did(ledger, "never ready")

    answer = await found(ledger, on("41"), on("42"), wish=Wish(host=HOST))

    assert hosts_of(answer, ledger) == ["41"]
    assert "never ready on 2026-11-20" in answer.offers[0].notes[-1]
    assert answer.unfit == {"another host": 1}
    bought = ledger.quote(str(answer.offers[0].quote))
    assert bought is not None
    ledger.intend(
        lease_id=LeaseId("tiny-wxyz"),
        provider="tiny",
        terms=TERMS,
        address=None,
        price_usd_h=None,
        quote=bought,
        at=NOON,
    )


async def test_an_offer_whose_provider_names_no_machine_is_held_against_nobody(
    ledger: Ledger,
) -> None:
    did(ledger, "never ready")
    nameless = offer(id="pool")
    elsewhere = on("41").model_copy(update={"provider": "other"})

    answer = await find_offers(
        Wish(), {"tiny": Shelf([nameless]), "other": Shelf([elsewhere])}, ledger=ledger
    )

    assert len(answer.offers) == 2


def test_a_quote_from_before_the_host_failed_rents_nothing(ledger: Ledger) -> None:
    did(ledger, "failed audit")

    with pytest.raises(HostLeftOut, match="failed audit on 2026-11-20") as told:
        rented(ledger, lease="tiny-wxyz")

    assert "`gpu-tenant hosts --forget tiny:41`" in told.value.remedy
    assert [lease.id for lease in ledger.leases()] == ["tiny-abcd"]


# The record


def test_the_same_of_the_same_lease_counts_once(ledger: Ledger) -> None:
    lease = rented(ledger)
    for _ in range(3):
        did(ledger, "throttled", lease)
    did(ledger, "throttled", rented(ledger, lease="tiny-wxyz"))

    (record,) = ledger.host_records(at=NOON).values()

    assert [report.lease_id for report in record.reports] == ["tiny-abcd", "tiny-wxyz"]
    assert record.dearer == Decimal("0.50")


def test_what_is_forgotten_counts_no_more_and_what_comes_later_does(
    ledger: Ledger, clock: HandClock
) -> None:
    lease = rented(ledger)
    did(ledger, "failed audit", lease)
    ledger.forget_host(HOST, at=NOON)
    forgotten = ledger.host_records(at=NOON)
    clock.advance(60)
    did(ledger, "failed audit", lease)

    assert forgotten == {}
    assert ledger.host_records(at=clock.now())[HOST].left_out_until == NOON + HELD + timedelta(
        minutes=1
    )
    with pytest.raises(BadRequest, match="nothing is on record against a host 'tiny:99'"):
        ledger.forget_host("tiny:99", at=NOON)


def test_a_host_whose_box_comes_back_has_not_vanished(ledger: Ledger) -> None:
    lease = rented(ledger)
    did(ledger, "vanished", lease)
    ledger.end(lease.id, "lost", at=NOON)
    lost = ledger.host_records(at=NOON)
    ledger.saw(lease.id, listed="listed", at=NOON)
    ledger.come_back(lease.id, at=NOON)

    assert list(lost) == [HOST]
    assert ledger.host_records(at=NOON) == {}


# Who reports


async def refuses(lease: Lease) -> None:
    raise BoxUnreachable("nobody answers", remedy="")


@pytest.mark.parametrize("state", [BoxState.BROKEN, BoxState.BOOTING, BoxState.READY])
async def test_a_box_that_never_lets_us_in_is_its_host_s_fault(
    ledger: Ledger, clock: HandClock, tiny: TinyProvider, state: BoxState
) -> None:
    lease = rented(ledger)
    tiny.rent(lease.mark, id=lease.box_id, state=state)

    with pytest.raises(NotReady):
        await make_ready(context_of(ledger, TINY, tiny), lease, reach=refuses, wait_s=3600)

    (record,) = ledger.host_records(at=clock.now()).values()
    assert [report.what for report in record.reports] == ["never ready"]


async def test_a_provider_that_does_not_answer_is_not_its_host_s_fault(
    ledger: Ledger, clock: HandClock, tiny: TinyProvider
) -> None:
    lease = rented(ledger)
    tiny.refuses("list", *[no_answer()] * 1000)

    with pytest.raises(NotReady):
        await make_ready(context_of(ledger, TINY, tiny), lease, reach=refuses, wait_s=3600)

    assert ledger.host_records(at=clock.now()) == {}


async def test_a_box_that_does_not_come_back_from_a_stop_was_ready_once(
    ledger: Ledger, clock: HandClock, tiny: TinyProvider
) -> None:
    lease = rented(ledger)
    ledger.note(lease.id, timeline.Resumed(), at=NOON)
    tiny.rent(lease.mark, id=lease.box_id, state=BoxState.BROKEN)

    with pytest.raises(NotReady):
        await make_ready(context_of(ledger, TINY, tiny), lease, reach=refuses, wait_s=3600)

    assert ledger.host_records(at=clock.now()) == {}


async def test_an_image_of_the_tenant_s_own_may_be_what_fails(
    ledger: Ledger, clock: HandClock
) -> None:
    own = TERMS.model_copy(update={"order": Order(image="ghcr.io/me/train:1.2")})
    lease = rented(ledger).model_copy(update={"terms": own})

    remember_not_ready(lease, "it is broken", ledger=ledger)

    assert ledger.host_records(at=clock.now()) == {}


@pytest.mark.parametrize(
    ("words", "is_hosts"),
    [
        ("OCI runtime create failed: nvidia-container-cli", True),
        ("it runs, and its provider shows no address for ssh", True),
        ("manifest unknown", False),
        ("pull access denied, repository does not exist", False),
        ("toomanyrequests: You have reached your pull rate limit", False),
    ],
)
async def test_a_host_is_blamed_for_what_another_host_would_not_do(
    ledger: Ledger, clock: HandClock, words: str, is_hosts: bool
) -> None:
    remember_not_ready(rented(ledger), words, ledger=ledger)

    assert bool(ledger.host_records(at=clock.now())) is is_hosts


@pytest.mark.parametrize(
    ("shown", "what"),
    [
        ({"taken": "host_lost"}, ["host lost"]),
        ({"state": BoxState.BROKEN}, ["host lost"]),
        ({"state": BoxState.PARKED}, ["stopped"]),
        ({"state": BoxState.PARKED, "interruptible": True}, []),
        ({"taken": "balance_zero"}, []),
        ({}, []),
    ],
)
async def test_what_the_provider_shows_is_remembered_where_it_is_the_host_s_doing(
    ledger: Ledger,
    clock: HandClock,
    tiny: TinyProvider,
    shown: dict[str, object],
    what: list[str],
) -> None:
    lease = ledger.ready(rented(ledger).id, at=NOON)
    tiny.rent(lease.mark, id=lease.box_id, **shown)

    for _ in range(2):
        lease, _ = await settle(context_of(ledger, TINY, tiny), lease)

    assert [report.what for report in ledger.host_reports(at=NOON)] == what


async def test_a_box_that_no_list_shows_any_more_has_vanished(
    ledger: Ledger, clock: HandClock, tiny: TinyProvider
) -> None:
    lease = ledger.ready(rented(ledger).id, at=NOON)
    for _ in range(4):
        clock.advance(120)
        lease, _ = await settle(context_of(ledger, TINY, tiny), lease)

    assert [report.what for report in ledger.host_reports(at=clock.now())] == ["vanished"]


@pytest.mark.parametrize("fate", ["preempted", "outbid", "walltime", "balance_zero"])
def test_what_was_agreed_is_not_held_against_a_host(ledger: Ledger, fate: Fate) -> None:
    remember_fate(rented(ledger), Taken(fate, "so it was"), ledger=ledger)

    assert ledger.host_reports(at=NOON) == []


@pytest.mark.parametrize(("when_done", "what"), [(True, []), (False, ["stopped"])])
async def test_a_stop_that_may_be_the_guard_s_is_not_held_against_a_host(
    ledger: Ledger, tiny: TinyProvider, when_done: bool, what: list[str]
) -> None:
    lease = ledger.ready(rented(ledger).id, at=NOON)
    armed = timeline.Guarded(armed=True, ends_the_meter=True, when_done=when_done, words="armed")
    ledger.note(lease.id, armed, at=NOON)
    tiny.rent(lease.mark, id=lease.box_id, state=BoxState.PARKED)

    await settle(context_of(ledger, TINY, tiny), lease)

    assert [report.what for report in ledger.host_reports(at=NOON)] == what


@dataclass
class Seen:
    """An audit's findings."""

    findings: tuple[Finding, ...]


@pytest.mark.parametrize(
    ("finding", "what"),
    [
        (blocker("gpu 0 ecc", "3 uncorrectable memory errors", "re-rent"), ["failed audit"]),
        (blocker("gpu 1 xid 79", "Xid 79", "it fell off the bus: re-rent"), ["failed audit"]),
        (
            blocker("burn gpu 0 bf16", "half of it", "slower than what was paid for"),
            ["failed audit"],
        ),
        (blocker("burn link 0-1", "3 GB/s", "a bad link"), ["failed audit"]),
        (warning("burn gpu 1", "unknown", "it did not pass"), []),
        (blocker("rented gpus", "3 of 4", "fewer than were rented"), ["failed audit"]),
        (blocker("gpu 0 card", "'RTX 3060'", "another card"), ["failed audit"]),
        (warning("gpu 0 card", "'odd'", "whether that is it is unknown"), []),
        (blocker("gpu 0 size", "12.0 GiB", "24 GiB were rented"), ["failed audit"]),
        (blocker("driver", "CUDA 12.0", "the order needs CUDA 12.8"), []),
        (blocker("clock", "300 s behind", "tokens will be refused"), ["failed audit"]),
        (warning("gpu 0 throttle", "hw_thermal_slowdown", "heat"), ["throttled"]),
        (blocker("gpu 0 memory", "20 of 24 GiB free", "the job needs 40 GiB"), []),
        (blocker("python", "no python3", "the caretaker needs it"), []),
        (blocker("disk '/root'", "10 of 40 GiB free", "the job needs 50 GiB"), []),
        (warning("gpu 0 ecc", "row remapping is pending", "faulty rows wait"), []),
    ],
)
def test_an_audit_is_held_against_the_host_for_what_no_order_brings_about(
    ledger: Ledger, finding: Finding, what: list[str]
) -> None:
    remember_audit(rented(ledger), Seen((finding,)), ledger=ledger)  # type: ignore[arg-type]

    assert [report.what for report in ledger.host_reports(at=NOON)] == what


def test_a_lease_without_a_quote_is_held_against_no_host(ledger: Ledger) -> None:
    remember_fate(active(ledger, LEASE), Taken("host_lost", "gone"), ledger=ledger)

    assert ledger.host_reports(at=NOON) == []


# Hunts


async def test_no_hunt_rents_a_host_again_that_failed(ledger: Ledger, clock: HandClock) -> None:
    """Drawn markets; the bad hosts are the cheapest. `HUNTS=1000` tries a thousand."""
    ledger._db.execute("PRAGMA synchronous=OFF")  # this ledger need not outlast the test
    dice = random.Random("hunts")
    bad = {str(number) for number in range(12)}
    failed_at: dict[str, datetime] = {}
    again = had = 0
    for hunt in range(HUNTS):
        clock.advance(dice.uniform(600, 7200))
        shelf = [
            on(host, f"{dice.uniform(0.1, 0.3) if host in bad else dice.uniform(0.25, 0.6):.4f}")
            for host in map(str, dice.sample(range(40), 15))
        ]
        answer = await found(ledger, *shelf)
        quotes = [ledger.quote(str(each.quote)) for each in answer.offers[:3]]
        late = dice.random() < 0.3  # a quote that an earlier search gave
        taken = quote(
            id=f"q-old{hunt}",
            offer=min(shelf, key=lambda each: each.price.gpu_usd_h or 0),
            expires_at=clock.now() + timedelta(minutes=5),
        )
        wishes = ([taken] if late else []) + [each for each in quotes if each]
        for turn, wanted in enumerate(wishes):
            host = str(wanted.offer.host)
            try:
                lease = ledger.intend(
                    lease_id=LeaseId(f"tiny-{hunt}x{turn}"),
                    provider="tiny",
                    terms=TERMS,
                    address=None,
                    price_usd_h=wanted.offer.price.running_usd_h,
                    quote=wanted,
                    at=clock.now(),
                )
            except HostLeftOut:
                continue
            if host in failed_at and clock.now() < failed_at[host] + HELD:
                again += 1
            ledger.end(lease.id, "void", at=clock.now())
            if host not in bad:
                had += 1
                break
            failed_at[host] = clock.now()
            what: Misdeed = dice.choice(["never ready", "failed audit", "host lost"])
            ledger.report_host(lease.id, what, "", provider="tiny", host=host, at=clock.now())

    print(f"hunts {HUNTS}, had {had}, bad hosts rented again while left out: {again}")
    assert again == 0
    assert len(failed_at) == len(bad), "every bad host was met"
