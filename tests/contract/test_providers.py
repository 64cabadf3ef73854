"""What every provider with an API promises, faults included, against its own rehearsal."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import never_used
from contract.staged import CLUSTERS, RENTED, SOURCES, Staged, on_stage

from gpu_tenant.domain.errors import (
    CredentialRefused,
    NoCapacity,
    NoFunds,
    NoQuota,
    PermitForged,
    ProviderSilent,
    ProviderTrouble,
    RateLimited,
)
from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, LeaseState, SshAddress
from gpu_tenant.domain.offers import Wish
from gpu_tenant.domain.permit import NeverUsed, TeardownPermit
from gpu_tenant.domain.ports import Market, Parking, Residue
from gpu_tenant.emulators.server import rehearsable_providers
from gpu_tenant.emulators.world import KEY
from gpu_tenant.providers.gpu_catalog import known_gpu

LIST = {
    "runpod": ("GET", r"/pods$"),
    "vastai": ("GET", r"/instances/$"),
    "lambda_cloud": ("GET", r"/instances$"),
    "digitalocean": ("GET", r"/droplets$"),
    "gcp": ("GET", r"/aggregated/instances$"),
    "autodl": ("POST", r"/pro/list$"),
}
CREATE = {
    "runpod": ("POST", r"/pods$"),
    "vastai": ("PUT", r"/asks/"),
    "lambda_cloud": ("POST", r"/launch$"),
    "digitalocean": ("POST", r"/droplets$"),
    "gcp": ("POST", r"/instances$"),
    "autodl": ("POST", r"/create$"),
}
DESTROY = {
    "runpod": ("DELETE", r"/pods/"),
    "vastai": ("DELETE", r"/instances/"),
    "lambda_cloud": ("POST", r"/terminate$"),
    "digitalocean": ("DELETE", r"/droplets/"),
    "gcp": ("DELETE", r"/instances/"),
    "autodl": ("POST", r"/release$"),
}
RESUME = {"autodl": r"/power_on$"}
"""Where the box is not named in the path."""
ALWAYS = 10_000
"""So many times that every try of one call fails."""


@pytest.fixture(params=RENTED)
def staged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Staged]:
    with on_stage(request.param, tmp_path) as stage:
        yield stage


def permit_for(box: Box, intent: Lease) -> TeardownPermit:
    return never_used(intent.model_copy(update={"box_id": box.id, "state": LeaseState.ACTIVE}))


def able(staged: Staged, fault: str) -> bool:
    return fault in staged.own_faults


async def caught(work: Awaitable[object]) -> Exception | None:
    try:
        await work
    except Exception as error:  # noqa: BLE001 - what it is, is the question
        return error
    return None


# The three files


def test_every_provider_with_a_key_has_its_three_files() -> None:
    connectors = {f.parent.name for f in (SOURCES / "providers").glob("*/connector.py")} - {
        "console",
        "local",
        "own",
        *CLUSTERS,
    }

    assert connectors == set(RENTED), "a connector and a profile with a credential go together"
    assert set(rehearsable_providers()) == set(RENTED), (
        "emulators/<slug>/app.py is missing, or one too many"
    )
    assert set(LIST) == set(CREATE) == set(DESTROY) == set(RENTED), "say above where its calls are"


# Offers


async def test_offers_are_priced_whole_and_named_canonically(staged: Staged) -> None:
    assert isinstance(staged.connector, Market)

    offers = await staged.connector.offers(Wish())

    assert offers
    assert len({offer.id for offer in offers}) == len(offers)
    for offer in offers:
        assert offer.provider == staged.stage.provider
        model = known_gpu(offer.gpu)
        assert model is None or model.name == offer.gpu, "a known GPU goes by its canonical name"
        price = offer.price.running_usd_h
        assert price is None or price > 0, "unknown is None, and nothing is free"


async def test_offers_are_had_in_one_request_or_few(staged: Staged) -> None:
    assert isinstance(staged.connector, Market)

    await staged.connector.offers(Wish(gpu_count=1))

    assert len(staged.ask("requests")) <= 6


async def test_what_was_asked_for_is_what_is_offered(staged: Staged) -> None:
    assert isinstance(staged.connector, Market)
    offered = {o.gpu for o in await staged.connector.offers(Wish())}

    for gpu in sorted(offered)[:3]:
        found = await staged.connector.offers(Wish(gpu=gpu))
        assert {offer.gpu for offer in found} == {gpu}
        assert {offer.gpu_count for offer in found} == {1}


async def test_one_offer_can_be_asked_for_again(staged: Staged) -> None:
    assert isinstance(staged.connector, Market)
    offer = await staged.offer()

    again = await staged.connector.offers(Wish(offer=offer.id))

    assert [(o.id, o.price) for o in again] == [(offer.id, offer.price)]


async def test_a_price_that_moved_is_seen_when_the_offer_is_asked_for_again(staged: Staged) -> None:
    if not able(staged, "price_moved"):
        assert staged.stage.provider in ("gcp", "autodl"), "its prices come from no API"
        return
    assert isinstance(staged.connector, Market)
    offer = await staged.offer()

    staged.fault("price_moved", amount=2)

    (again,) = await staged.connector.offers(Wish(offer=offer.id))
    assert offer.price.gpu_usd_h is not None
    assert again.price.gpu_usd_h is not None
    assert again.price.gpu_usd_h > offer.price.gpu_usd_h


# A box


async def test_a_rented_box_is_listed_under_its_mark_and_becomes_ready(staged: Staged) -> None:
    intent = await staged.intent()

    made = await staged.connector.create(intent)
    box = await staged.ready(intent)

    assert (box.id, box.provider, box.mark) == (made.id, staged.stage.provider, intent.mark)
    assert isinstance(box.address, SshAddress)
    assert box.address.target in staged.ask("routes"), "the box is where its provider says"
    assert staged.alive == [box.id]


async def test_a_box_says_when_it_was_made_also_hours_later(staged: Staged) -> None:
    begun_at = staged.clock.now()
    made = await staged.connector.create(await staged.intent())
    done_at = staged.clock.now()

    staged.wait(5 * 3600)
    (shown,) = await staged.connector.list_boxes()

    assert shown.id == made.id
    assert shown.created_at is not None
    # Some providers tell whole seconds.
    assert begun_at - timedelta(seconds=1) <= shown.created_at <= done_at


async def test_what_the_provider_says_it_costs_is_what_its_meter_bills(staged: Staged) -> None:
    intent = await staged.intent()

    await staged.connector.create(intent)
    box = await staged.ready(intent)

    assert box.price_usd_h is not None
    assert abs(box.price_usd_h - staged.billing_usd_h) < Decimal("0.001")
    assert intent.quote is not None
    assert box.price_usd_h <= intent.quote.cap_usd_h, "the quote was for all of it"


async def test_a_box_that_boots_is_not_called_ready_and_has_no_address(staged: Staged) -> None:
    intent = await staged.intent()

    await staged.connector.create(intent)

    (box,) = [b for b in await staged.connector.list_boxes() if b.mark == intent.mark]
    assert box.state is BoxState.BOOTING


async def test_one_lease_has_one_box_however_often_it_is_made(staged: Staged) -> None:
    intent = await staged.intent()
    first = await staged.connector.create(intent)

    again = await staged.connector.create(intent)

    assert again.id == first.id
    assert staged.alive == [first.id]


async def test_two_leases_have_two_boxes(staged: Staged) -> None:
    boxes = [await staged.connector.create(await staged.intent(name)) for name in ("aaaa", "bbbb")]

    assert len({box.id for box in boxes}) == 2
    assert sorted(staged.alive) == sorted(box.id for box in boxes)


async def test_an_empty_mark_is_refused(staged: Staged) -> None:
    intent = (await staged.intent()).model_copy(update={"mark": ""})

    assert isinstance(await caught(staged.connector.create(intent)), Exception)
    assert staged.alive == []


async def test_somebody_else_s_box_is_shown_without_a_mark_of_ours(staged: Staged) -> None:
    staged.fault("foreign_box")

    (box,) = await staged.connector.list_boxes()

    assert not (box.mark or "").startswith("gpu-tenant:")


async def test_a_status_that_nobody_knows_is_unknown_and_not_gone(staged: Staged) -> None:
    intent = await staged.intent()
    await staged.connector.create(intent)
    box = await staged.ready(intent)

    staged.fault("unknown_status")

    (seen,) = await staged.connector.list_boxes()
    assert (seen.id, seen.state) == (box.id, BoxState.UNKNOWN)


# A list that cannot be believed


BROKEN_LISTS: dict[str, dict[str, object]] = {
    "no answer": {"do": "drop_before"},
    "an answer that breaks off": {"do": "drop_after"},
    "an answer that is cut in the middle": {"do": "cut"},
    "500": {"do": "status", "status": 500},
    "502 in HTML": {"do": "status", "status": 502, "body": "<html>Bad gateway</html>"},
    "401": {"do": "status", "status": 401, "body": {"error": "bad key"}},
    "403": {"do": "status", "status": 403, "body": "error code: 1010"},
    "429 in plain text": {"do": "status", "status": 429, "body": "API requests too frequent"},
    "429 for a day": {"do": "status", "status": 429, "headers": {"Retry-After": "86400"}},
    "200 in HTML": {"do": "status", "status": 200, "body": "<html>In maintenance</html>"},
    "a redirect": {"do": "status", "status": 301},
    "not JSON": {"do": "status", "status": 200, "body": "welcome"},
    "an empty object": {"do": "status", "status": 200, "body": {}},
    "null": {"do": "status", "status": 200, "body": None},
    "a list where an object should be": {"do": "status", "status": 200, "body": [1, 2]},
}


@pytest.mark.parametrize("broken", BROKEN_LISTS)
async def test_a_list_that_cannot_be_believed_is_trouble_and_never_an_empty_list(
    staged: Staged, broken: str
) -> None:
    if staged.stage.provider == "gcp" and broken == "an empty object":
        return  # an aggregated list of a project in which nothing ever was
    intent = await staged.intent()
    await staged.connector.create(intent)
    fault = dict(BROKEN_LISTS[broken])
    staged.fault(str(fault.pop("do")), *LIST[staged.stage.provider], times=ALWAYS, **fault)

    error = await caught(staged.connector.list_boxes())

    assert isinstance(error, ProviderTrouble), error


async def test_a_page_that_is_lost_makes_the_whole_list_unknown(staged: Staged) -> None:
    if not able(staged, "page_boundary"):
        assert staged.stage.provider == "lambda_cloud", "it has no pages"
        return
    intent = await staged.intent()
    await staged.connector.create(intent)
    for _ in range(3):
        staged.fault("foreign_box")

    staged.fault("page_boundary", *LIST[staged.stage.provider], times=ALWAYS)

    assert isinstance(await caught(staged.connector.list_boxes()), ProviderTrouble)


async def test_many_boxes_are_all_listed(staged: Staged) -> None:
    for _ in range(60):
        staged.fault("foreign_box")

    assert len(await staged.connector.list_boxes()) == 60


async def test_one_bad_moment_does_not_spoil_a_list(staged: Staged) -> None:
    intent = await staged.intent()
    made = await staged.connector.create(intent)
    staged.fault("status", *LIST[staged.stage.provider], status=503)

    assert [box.id for box in await staged.connector.list_boxes()] == [made.id]


# A create that goes wrong


UNCLEAR: dict[str, dict[str, object]] = {
    "the request is lost": {"do": "drop_before"},
    "the answer is lost": {"do": "drop_after"},
    "the answer is cut in the middle": {"do": "cut"},
    "500": {"do": "status", "status": 500},
    "502 in HTML": {"do": "status", "status": 502, "body": "<html>Bad gateway</html>"},
    "200 in HTML": {"do": "status", "status": 200, "body": "<html>In maintenance</html>"},
    "a redirect": {"do": "status", "status": 302},
    "403 of a firewall": {"do": "status", "status": 403, "body": "error code: 1010"},
}


@pytest.mark.parametrize("unclear", UNCLEAR)
async def test_an_unclear_create_is_sent_once_and_told_as_unclear(
    staged: Staged, unclear: str
) -> None:
    intent = await staged.intent()
    fault = dict(UNCLEAR[unclear])
    method, path = CREATE[staged.stage.provider]
    staged.fault(str(fault.pop("do")), method, path, **fault)

    error = await caught(staged.connector.create(intent))

    assert isinstance(error, ProviderSilent) or error is None, error
    assert len(staged.alive) <= 1


async def test_a_box_made_in_spite_of_an_error_is_found_by_its_mark(staged: Staged) -> None:
    if not able(staged, "created_despite_error"):
        assert staged.stage.provider in ("lambda_cloud", "digitalocean", "gcp"), "nothing is known"
        return
    intent = await staged.intent()
    staged.fault("created_despite_error", *CREATE[staged.stage.provider])

    await caught(staged.connector.create(intent))

    assert [box.mark for box in await staged.connector.list_boxes()] == [intent.mark]
    again = await staged.connector.create(intent)
    assert staged.alive == [again.id]


@pytest.mark.parametrize(("fault", "error"), [("no_capacity", NoCapacity), ("no_quota", NoQuota)])
async def test_no_capacity_and_no_quota_are_told_apart_and_no_box_is_made(
    staged: Staged, fault: str, error: type[Exception]
) -> None:
    if not able(staged, fault):
        return
    intent = await staged.intent()
    staged.fault(fault, *CREATE[staged.stage.provider])

    assert isinstance(await caught(staged.connector.create(intent)), error)
    assert staged.alive == []
    assert staged.billing_usd_h == 0


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, CredentialRefused), (402, NoFunds), (429, RateLimited), (422, ProviderTrouble)],
)
async def test_a_refused_create_makes_no_box(
    staged: Staged, status: int, error: type[Exception]
) -> None:
    intent = await staged.intent()
    staged.fault(
        "status",
        *CREATE[staged.stage.provider],
        status=status,
        times=ALWAYS,
        headers={"Retry-After": "3600"} if status == 429 else {},
    )

    told = await caught(staged.connector.create(intent))

    assert isinstance(told, error), told
    assert not isinstance(told, ProviderSilent)
    assert staged.alive == []


async def test_twenty_at_once_through_a_narrow_door_are_twenty(staged: Staged) -> None:
    intents = [await staged.intent(f"{n:04d}") for n in range(20)]
    staged.fault(
        "status",
        *CREATE[staged.stage.provider],
        status=429,
        times=6,
        headers={"Retry-After": "2"},
        body="slow down",
    )

    errors = await asyncio.gather(*(caught(staged.connector.create(i)) for i in intents))

    made = [error for error in errors if error is None]
    unclear = [error for error in errors if isinstance(error, ProviderSilent)]
    assert len(made) <= len(staged.alive) <= len(made) + len(unclear)
    assert {type(e) for e in errors if e} <= {NoCapacity, RateLimited, NoQuota, ProviderSilent}


# The end of a box


async def test_the_permitted_box_is_gone_and_no_other(staged: Staged) -> None:
    intents = [await staged.intent(name) for name in ("aaaa", "bbbb")]
    boxes = [await staged.connector.create(intent) for intent in intents]
    for intent in intents:
        await staged.ready(intent)

    await staged.connector.destroy(permit_for(boxes[0], intents[0]))
    staged.wait(120)

    assert [box.id for box in await staged.connector.list_boxes()] == [boxes[1].id]
    assert staged.alive == [boxes[1].id]


async def test_what_is_gone_bills_no_more(staged: Staged) -> None:
    intent = await staged.intent()
    box = await staged.connector.create(intent)
    await staged.ready(intent)

    await staged.connector.destroy(permit_for(box, intent))
    staged.wait(120)

    assert staged.billing_usd_h == 0
    assert staged.meter["leaked"] == []


async def test_a_box_is_destroyed_twice_without_harm(staged: Staged) -> None:
    intent = await staged.intent()
    box = await staged.connector.create(intent)
    await staged.ready(intent)

    for _ in range(2):
        await staged.connector.destroy(permit_for(box, intent))
        staged.wait(120)

    assert staged.alive == []


async def test_nothing_but_a_genuine_permit_destroys(staged: Staged) -> None:
    intent = await staged.intent()
    box = await staged.connector.create(intent)
    for_another = permit_for(box, intent.model_copy(update={"provider": "elsewhere"}))
    changed = permit_for(box.model_copy(update={"id": BoxId("another")}), intent)
    object.__setattr__(changed, "box_id", box.id)

    for shown in (box.id, box, intent, None, NeverUsed(), for_another, changed):
        with pytest.raises(PermitForged):
            await staged.connector.destroy(shown)  # type: ignore[arg-type]

    assert staged.alive == [box.id]


REFUSALS: dict[str, tuple[dict[str, object], type[Exception]]] = {
    "a bad key": ({"do": "status", "status": 401}, CredentialRefused),
    "a second factor": ({"do": "two_factor"}, CredentialRefused),
    "too many calls": (
        {"do": "status", "status": 429, "headers": {"Retry-After": "3600"}},
        RateLimited,
    ),
    "500": ({"do": "status", "status": 500}, ProviderSilent),
    "502": ({"do": "status", "status": 502, "body": "<html>Bad gateway</html>"}, ProviderSilent),
    "no answer": ({"do": "drop_before"}, ProviderSilent),
    "a redirect": ({"do": "status", "status": 301}, ProviderSilent),
    "a page": ({"do": "status", "status": 200, "body": "<html>Soon</html>"}, ProviderSilent),
    "403 of a firewall": (
        {"do": "status", "status": 403, "body": "error code: 1010"},
        ProviderSilent,
    ),
    "a failure inside a 200": ({"do": "soft_failure"}, ProviderTrouble),
    "404 for a bad key": ({"do": "auth_404"}, ProviderTrouble),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_destroy_that_failed_is_told_for_what_it_is(staged: Staged, refusal: str) -> None:
    fault, expected = REFUSALS[refusal]
    if fault["do"] not in staged.own_faults:
        return
    intent = await staged.intent()
    box = await staged.connector.create(intent)
    await staged.ready(intent)
    more = {name: value for name, value in fault.items() if name != "do"}
    staged.fault(str(fault["do"]), *DESTROY[staged.stage.provider], times=ALWAYS, **more)

    error = await caught(staged.connector.destroy(permit_for(box, intent)))

    assert isinstance(error, expected), error
    assert staged.alive == [box.id]


async def test_a_destroyed_box_that_reads_as_null_is_gone_from_the_list(staged: Staged) -> None:
    if not able(staged, "null_after_destroy"):
        return
    intent = await staged.intent()
    box = await staged.connector.create(intent)
    await staged.ready(intent)
    staged.fault("null_after_destroy")

    await staged.connector.destroy(permit_for(box, intent))
    staged.wait(120)

    assert await staged.connector.list_boxes() == []


# Parking


async def test_a_parked_box_bills_what_its_provider_says_and_comes_back(staged: Staged) -> None:
    if staged.profile.park == "none":
        assert not isinstance(staged.connector, Parking)
        return
    assert isinstance(staged.connector, Parking)
    intent = await staged.intent()
    made = await staged.connector.create(intent)
    running = await staged.ready(intent)
    standing = intent.model_copy(
        update={"box_id": made.id, "state": LeaseState.ACTIVE, "address": running.address}
    )

    await staged.connector.park(standing)
    staged.wait(300)
    (parked,) = await staged.connector.list_boxes()
    assert parked.state is BoxState.PARKED
    assert parked.price_usd_h is not None
    assert parked.price_usd_h > 0 or staged.stage.provider == "autodl", "a parked disk is not free"
    assert abs(parked.price_usd_h - staged.billing_usd_h) < Decimal("0.001")
    assert intent.quote is not None
    assert parked.price_usd_h == intent.quote.offer.price.parked_usd_h, "as quoted"

    await staged.connector.resume(standing)
    back = await staged.ready(intent)
    assert back.id == made.id
    assert back.price_usd_h == running.price_usd_h


async def test_a_gpu_that_was_given_away_meanwhile_is_no_capacity(staged: Staged) -> None:
    if not isinstance(staged.connector, Parking):
        return
    intent = await staged.intent()
    made = await staged.connector.create(intent)
    await staged.ready(intent)
    standing = intent.model_copy(update={"box_id": made.id, "state": LeaseState.ACTIVE})
    await staged.connector.park(standing)
    staged.wait(300)
    staged.fault("no_capacity", "", RESUME.get(staged.stage.provider, made.id))

    assert isinstance(await caught(staged.connector.resume(standing)), NoCapacity)
    assert [b.state for b in await staged.connector.list_boxes()] == [BoxState.PARKED]


# What is left


async def test_what_bills_without_a_box_is_shown_with_its_price(staged: Staged) -> None:
    assert isinstance(staged.connector, Residue)
    assert list(await staged.connector.leftovers()) == []
    staged.fault("leftover")

    (left,) = await staged.connector.leftovers()

    (leaked,) = staged.meter["leaked"]
    assert left.provider == staged.stage.provider
    if left.usd_month is not None:
        assert left.usd_month > 0
        monthly = Decimal(leaked["usd_h"]) * 720
        assert abs(left.usd_month - monthly) / monthly < Decimal("0.05")


async def test_a_box_in_use_is_no_leftover(staged: Staged) -> None:
    assert isinstance(staged.connector, Residue)
    intent = await staged.intent()
    await staged.connector.create(intent)
    await staged.ready(intent)

    assert list(await staged.connector.leftovers()) == []


# Secrets


SPEAKS: dict[str, Callable[[Staged], Awaitable[object]]] = {
    "list": lambda s: s.connector.list_boxes(),
    "leftovers": lambda s: s.connector.leftovers(),  # type: ignore[attr-defined]
    "offers": lambda s: s.connector.offers(Wish()),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("call", SPEAKS)
async def test_an_error_never_repeats_the_key(staged: Staged, call: str) -> None:
    for status in (400, 401, 418):
        staged.fault(
            "status",
            "",
            r"^/(?!_rehearsal)",
            status=status,
            times=ALWAYS,
            body={"error": f"no such key {KEY}", "api_key": KEY, "env": {"A": KEY}},
        )
        error = await caught(SPEAKS[call](staged))
        assert error is not None
        assert KEY not in f"{error} {error!r}"
        assert error.__cause__ is None or KEY not in repr(error.__cause__)
        staged.stage.world.state.faults.clear()


async def test_no_secret_is_in_what_a_box_or_a_connector_shows(staged: Staged) -> None:
    intent = await staged.intent()
    await staged.connector.create(intent)
    box = await staged.ready(intent)

    shown = f"{box!r} {staged.connector!r} {vars(staged.connector)!r}"

    assert KEY not in shown
    assert "PRIVATE" not in shown


async def test_the_account_s_key_goes_to_no_box(staged: Staged) -> None:
    intent = await staged.intent()
    await staged.connector.create(intent)

    assert KEY not in str(staged.ask("requests"))
    assert KEY not in str([thing.facts for thing in staged.stage.world.things()])
