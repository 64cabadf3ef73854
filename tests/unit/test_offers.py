"""Every market is asked at once, nothing unfit passes, and what is cheapest to finish comes first."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

import pytest
from arranged import NOON
from hypothesis import given
from hypothesis import strategies as st

from gpu_tenant.domain.choices import Trust
from gpu_tenant.domain.end_reserve import QuotedBudget
from gpu_tenant.domain.errors import NoCapacity, NoQuota, ProviderSilent
from gpu_tenant.domain.expected_cost import estimated_usd, expected_cost, is_paid
from gpu_tenant.domain.gpu_memory import GIB, GpuMemory, MemoryTest
from gpu_tenant.domain.offers import Offer, Price, Wish
from gpu_tenant.domain.ports import Market
from gpu_tenant.leases.offers import Found, find_offers, rank, unfit
from gpu_tenant.ledger import Ledger


@dataclass
class Listing:
    """A market with these offers, which remembers what it was asked."""

    has: Sequence[Offer] = ()
    asked: list[Wish] = field(default_factory=list)

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        self.asked.append(wish)
        return self.has


class Mute:
    """A market that never answers."""

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        await asyncio.Event().wait()
        return ()


@dataclass
class Failing:
    """A market that fails so."""

    error: Exception

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        raise self.error


def price(gpu: str | None = "0.30", disk: str | None = "0.02", a_gb: str | None = "0") -> Price:
    def usd(text: str | None) -> Decimal | None:
        return None if text is None else Decimal(text)

    return Price(
        gpu_usd_h=usd(gpu),
        disk_usd_h=usd(disk),
        parked_usd_h=None,
        upload_usd_gb=usd(a_gb),
        download_usd_gb=usd(a_gb),
        source="api",
    )


def offer(name: str = "one", *, provider: str = "vastai", **changed: object) -> Offer:
    usual = Offer(
        provider=provider,
        id=name,
        gpu="RTX 4090",
        gpu_count=1,
        vram_gib=23.99,
        region="Sweden, SE",
        price=price(),
        disk_gb=40,
        interruptible=False,
        trust="datacenter",
        reliability=0.99,
        max_hours=None,
        download_mbps=800,
        upload_mbps=400,
        setup_s=180,
    )
    return Offer.model_validate({**dict(usual), **changed})


async def found(
    ledger: Ledger, *has: Offer, wish: Wish | None = None, limit: int = 10, **others: Market
) -> Found:
    """What is found in one market of these offers, and the others."""
    return await find_offers(
        wish or Wish(),
        {"vastai": Listing(has), **others},
        ledger=ledger,
        limit=limit,
        patience_s=0.05,
    )


def ids(answer: Found, ledger: Ledger) -> list[str]:
    quotes = [ledger.quote(shown.quote) for shown in answer.offers if shown.quote]
    return [quote.offer.id for quote in quotes if quote]


# The markets


async def test_every_market_is_asked_once_with_the_whole_wish(ledger: Ledger) -> None:
    markets = {"vastai": Listing([offer()]), "runpod": Listing([offer("b", provider="runpod")])}
    wish = Wish(gpu="RTX 4090", hours=3)

    answer = await find_offers(wish, markets, ledger=ledger)

    assert [market.asked for market in markets.values()] == [[wish], [wish]]
    assert {shown.provider for shown in answer.offers} == {"vastai", "runpod"}


async def test_a_market_that_does_not_answer_is_named_and_the_rest_are_answered(
    ledger: Ledger,
) -> None:
    answer = await found(ledger, offer(), runpod=Mute())

    assert ids(answer, ledger) == ["one"]
    assert answer.troubles == {
        "runpod": "no answer within 0.05 s; ask again, or look at the provider's status page"
    }


async def test_no_quota_and_no_capacity_are_told_apart_each_with_what_to_do(
    ledger: Ledger,
) -> None:
    answer = await found(
        ledger,
        offer(),
        gcp=Failing(NoQuota("the quota GPUS_ALL_REGIONS is 0", remedy="ask for a higher one")),
        lambda_cloud=Failing(NoCapacity("none is free", remedy="ask again later")),
        runpod=Failing(ProviderSilent("the line broke", remedy="try again")),
    )

    assert ids(answer, ledger) == ["one"]
    assert answer.troubles == {
        "gcp": "NO_QUOTA: the quota GPUS_ALL_REGIONS is 0; ask for a higher one",
        "lambda_cloud": "NO_CAPACITY: none is free; ask again later",
        "runpod": "PROVIDER_SILENT: the line broke; try again",
    }


async def test_an_answer_nobody_foresaw_hides_no_other_market_and_shows_nothing_of_itself(
    ledger: Ledger,
) -> None:
    answer = await found(ledger, offer(), runpod=Failing(KeyError("sk-secret")))

    assert ids(answer, ledger) == ["one"]
    assert "KeyError" in answer.troubles["runpod"]
    assert "sk-secret" not in answer.model_dump_json()


async def test_somebody_who_gives_up_waiting_is_not_held(ledger: Ledger) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await find_offers(Wish(), {"runpod": Mute()}, ledger=ledger, patience_s=60)


@pytest.mark.parametrize(
    ("markets", "words"),
    [
        ({}, "doctor"),
        ({"own": Listing(), "slurm": Listing()}, "no provider was asked, because no key was found"),
        ({"vastai": Listing()}, "nobody offers such a box now"),
        ({"vastai": Listing([offer(gpu="A40")])}, "1 left out, reason: 'another GPU'"),
        ({"vastai": Failing(NoCapacity("none", remedy="later"))}, "trouble"),
    ],
)
async def test_when_nothing_is_found_the_next_step_is_named(
    ledger: Ledger, markets: dict[str, Market], words: str
) -> None:
    answer = await find_offers(Wish(gpu="RTX 4090"), markets, ledger=ledger)

    assert (answer.offers, answer.cheapest) == ((), None)
    assert words in answer.next


# What fits


@pytest.mark.parametrize(
    ("wish", "changed", "reason"),
    [
        (Wish(gpu="H100 SXM"), {"gpu": "H100 PCIe"}, "another GPU"),
        (Wish(gpu_count=2), {}, "fewer GPUs"),
        (Wish(vram_gib=48), {}, "less memory"),
        (Wish(vram_gib=48), {"vram_gib": None}, "memory unknown"),
        (Wish(vram_gib=80), {"gpu": "A100 PCIe 80GB", "vram_gib": 40}, "less memory"),
        (Wish(vram_gib=96), {"gpu": "H100 NVL", "vram_gib": 93.6}, "less memory"),
        (Wish(vram_gib=280), {"gpu": "B300", "vram_gib": 288}, "less memory"),
        (Wish(disk_gb=100), {}, "less disk"),
        (Wish(region="US"), {"region": None}, "another region"),
        (Wish(region="US"), {}, "another region"),
        (Wish(trust="verified"), {"trust": "unverified"}, "trust below verified"),
        (Wish(trust="datacenter"), {"trust": "verified"}, "trust below datacenter"),
        (Wish(), {"interruptible": True}, "interruptible"),
        (Wish(interruptible="yes"), {}, "not interruptible"),
        (Wish(hours=5), {"max_hours": 5}, "ends before the work is done and moved"),
        (
            Wish(hours=5, download_gb=500),
            {"max_hours": 6},
            "ends before the work is done and moved",
        ),
        (Wish(max_price_usd_h=Decimal("0.3199")), {}, "above the cap of 0.3199 USD/h"),
        (
            Wish(max_price_usd_h=Decimal(99)),
            {"price": price(disk=None)},
            "price unknown, so the cap cannot be checked",
        ),
    ],
)
def test_what_does_not_fit_is_left_out_with_the_reason(
    wish: Wish, changed: dict[str, object], reason: str
) -> None:
    assert unfit(offer(**changed), wish) == reason


@pytest.mark.parametrize(
    ("wish", "changed"),
    [
        (Wish(), {}),
        (Wish(gpu="RTX 4090"), {"gpu": "NVIDIA GeForce RTX 4090"}),
        (Wish(vram_gib=24), {}),
        (Wish(vram_gib=24), {"gpu": "L4", "vram_gib": 22.5}),
        (Wish(vram_gib=48), {"vram_gib": 47.99, "gpu": "RTX A6000"}),
        (Wish(vram_gib=48), {"vram_gib": 48}),
        (Wish(region="se"), {}),
        (Wish(trust="verified"), {"trust": "datacenter"}),
        (Wish(trust="datacenter"), {"provider": "own", "trust": "verified"}),
        (Wish(interruptible="either"), {"interruptible": True}),
        (Wish(hours=5, download_gb=100), {"max_hours": 6}),
        (Wish(max_price_usd_h=Decimal("0.32")), {}),
    ],
)
def test_what_fits_is_left_in(wish: Wish, changed: dict[str, object]) -> None:
    assert unfit(offer(**changed), wish) is None


async def test_what_was_left_out_is_counted_by_reason(ledger: Ledger) -> None:
    dear = price("9")

    answer = await found(
        ledger,
        *(offer(), offer("b", price=dear), offer("c", price=price("1.20"))),
        offer("d", gpu_count=0, price=price("1.10")),
        wish=Wish(max_price_usd_h=Decimal(1)),
    )

    assert answer.unfit == {
        "above the cap of 1 USD/h (the lowest price: 1.2200 USD/h)": 2,
        "fewer GPUs": 1,
    }
    assert ids(answer, ledger) == ["one"]


# The quotes


async def test_every_offer_shown_can_be_rented_by_its_quote_for_ten_minutes(
    ledger: Ledger,
) -> None:
    wish = Wish(hours=2)

    answer = await found(ledger, offer(), offer("dearer", price=price("0.50")), wish=wish)

    assert [shown.running_usd_h for shown in answer.offers] == [Decimal("0.32"), Decimal("0.52")]
    for shown in answer.offers:
        assert shown.quote is not None
        assert re.fullmatch(r"q-[a-z2-9]{4}", shown.quote)
        quote = ledger.quote(shown.quote)
        assert quote is not None
        assert (quote.wish, quote.cap_usd_h) == (wish, shown.running_usd_h)
        assert quote.expires_at == NOON + timedelta(minutes=10)
    tried = " ".join(f"--quote {shown.quote}" for shown in answer.offers)
    assert answer.next.startswith(f"`gpu-tenant provision {tried}`")
    first = ledger.quote(str(answer.offers[0].quote))
    assert first is not None
    enough = QuotedBudget(first, Decimal(0)).enough_usd
    assert f"`--budget-usd {enough}` is the least that pays for 2 h of work" in answer.next
    assert QuotedBudget(first, enough).is_enough


async def test_the_cap_of_the_wish_is_the_cap_of_the_quote(ledger: Ledger) -> None:
    answer = await found(ledger, offer(), wish=Wish(max_price_usd_h=Decimal("0.40")))

    quote = ledger.quote(answer.offers[0].quote or "")
    assert quote is not None
    assert quote.cap_usd_h == Decimal("0.40")


async def test_the_cheapest_by_the_hour_is_always_in_the_answer_and_named(ledger: Ledger) -> None:
    flaky = offer("flaky", price=price("0.29"), reliability=0.2, trust="unverified")
    steady = [offer(f"steady{n}") for n in range(3)]

    answer = await found(ledger, flaky, *steady, wish=Wish(hours=24), limit=2)

    assert ids(answer, ledger) == ["steady0", "steady1", "flaky"]
    assert answer.cheapest == answer.offers[2].quote


async def test_the_cheapest_is_shown_once_where_it_is_among_the_best(ledger: Ledger) -> None:
    answer = await found(ledger, *(offer(f"same{n}") for n in range(3)), limit=2)

    assert ids(answer, ledger) == ["same0", "same1"]
    assert answer.cheapest == answer.offers[0].quote


async def test_the_alternative_that_was_named_first_is_first_though_it_costs_more(
    ledger: Ledger,
) -> None:
    cheap = offer("cheap", gpu="RTX 3090", price=price("0.10"))
    dear = offer("dear", gpu="RTX 4090", price=price("0.50"))
    dearer = offer("dearer", gpu="RTX 4090", price=price("0.60"))
    other = offer("other", gpu="H200", price=price("0.05"))
    market = {"vastai": Listing([cheap, dearer, other, dear])}

    answer = await find_offers(Wish(gpu="RTX 4090 | RTX 3090"), market, ledger=ledger)

    assert ids(answer, ledger) == ["dear", "dearer", "cheap"]
    assert answer.cheapest == answer.offers[-1].quote
    assert answer.unfit == {"another GPU": 1}


async def test_forms_of_one_gpu_are_ranked_by_cost_alone(ledger: Ledger) -> None:
    nvl = offer("nvl", gpu="H100 NVL", price=price("1.10"))
    sxm = offer("sxm", gpu="H100 SXM", price=price("1.20"))
    market = {"vastai": Listing([sxm, nvl])}

    answer = await find_offers(Wish(gpu="H100 SXM / H100 NVL"), market, ledger=ledger)

    assert ids(answer, ledger) == ["nvl", "sxm"]


async def test_a_gpu_that_no_table_knows_is_found_by_its_name_and_marked(ledger: Ledger) -> None:
    market = {"vastai": Listing([offer("new", gpu="Z900 Ultra")])}

    answer = await find_offers(Wish(gpu="z900 ultra"), market, ledger=ledger)

    assert ids(answer, ledger) == ["new"]
    assert any("no table here knows this GPU" in note for note in answer.offers[0].notes)


async def test_a_misspelt_gpu_that_nobody_offers_is_told_with_the_nearest(ledger: Ledger) -> None:
    market = {"vastai": Listing([offer("one", gpu="RTX 4090")])}

    answer = await find_offers(Wish(gpu="RTX 409O"), market, ledger=ledger)

    assert answer.offers == ()
    assert "no table here knows a GPU of that name: did you mean RTX 4090" in answer.next


async def test_an_unknown_price_comes_last_and_is_not_rented_by_a_quote(ledger: Ledger) -> None:
    unknown = offer("unknown", price=price(gpu=None))

    answer = await found(ledger, unknown, offer("dear", price=price("50")))

    last = answer.offers[-1]
    assert (last.quote, last.running_usd_h, last.expected_usd) == (None, None, None)
    assert any("which is not zero" in note for note in last.notes)
    assert answer.cheapest == answer.offers[0].quote
    assert (await found(ledger, unknown)).next.startswith("no price is known")


async def test_an_own_machine_without_a_rate_can_be_leased_for_a_day(ledger: Ledger) -> None:
    mine = offer("me@attic", provider="own", price=price(gpu=None))

    answer = await found(ledger, own=Listing([mine]))

    (shown,) = answer.offers
    quote = ledger.quote(shown.quote or "")
    assert quote is not None
    assert quote.cap_usd_h == 0, "any price that appears is one too many"
    assert quote.expires_at == NOON + timedelta(days=1)
    assert shown.expected_usd is None
    assert any("states no rate" in note for note in shown.notes)


async def test_the_terms_are_answered_only_where_they_were_asked_for(ledger: Ledger) -> None:
    market = {"vastai": Listing([offer()])}

    short = await find_offers(Wish(), market, ledger=ledger)
    long = await find_offers(Wish(), market, ledger=ledger, explain="explain")

    assert short.offers[0].terms == ()
    assert [term.name for term in long.offers[0].terms] == ["compute", "waiting", "host failure"]
    paid = [term.usd for term in long.offers[0].terms if term.name != "host failure"]
    assert sum(paid) == short.offers[0].expected_usd, "a risk is not money"


class Strangers(Listing):
    """A market that also has machines that nobody has tested, and leaves them out where they are not wanted."""

    has_strangers = True

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        listed = await super().offers(wish)
        return [o for o in listed if wish.trust == "any" or o.trust != "unverified"]


CHEAP = offer(id="cheap", price=price("0.10"), trust="unverified")


async def test_what_is_cheaper_at_untested_hosts_is_one_line_and_no_offer(ledger: Ledger) -> None:
    market = {"vastai": Strangers([CHEAP, offer(id="tested", price=price("0.50"))])}

    careful = await find_offers(Wish(trust="verified"), market, ledger=ledger)
    anybody = await find_offers(Wish(trust="any"), market, ledger=ledger)

    assert [row.trust for row in careful.offers] == ["datacenter"]
    lowest = CHEAP.price.running_usd_h
    assert careful.untested == f"{lowest} USD/h at untested hosts: `--trust any`"
    assert [row.trust for row in anybody.offers] == ["unverified", "datacenter"]
    assert anybody.untested is None


async def test_where_no_host_is_tested_this_is_said_and_no_stranger_is_offered(
    ledger: Ledger,
) -> None:
    answer = await find_offers(
        Wish(trust="verified"), {"vastai": Strangers([CHEAP])}, ledger=ledger
    )

    assert answer.offers == ()
    assert answer.next.startswith("no tested host has such a box now; ")
    assert "--trust any" in answer.next


async def test_untested_hosts_that_cost_as_much_are_not_worth_a_line(ledger: Ledger) -> None:
    dear = CHEAP.model_copy(update={"price": price("0.90")})
    market = {"vastai": Strangers([dear, offer(price=price("0.50"))])}

    assert (await find_offers(Wish(trust="verified"), market, ledger=ledger)).untested is None


@pytest.mark.parametrize("trust", ["verified", "datacenter"])
def test_a_host_that_often_fails_does_not_count_as_tested(trust: Trust) -> None:
    shaky = offer(trust="datacenter", reliability=0.96)

    assert unfit(shaky, Wish(trust=trust)) == f"trust below {trust}"
    assert unfit(shaky, Wish(trust="any")) is None
    assert unfit(offer(trust="datacenter", reliability=0.97), Wish(trust=trust)) is None
    assert unfit(offer(trust="datacenter", reliability=None), Wish(trust=trust)) is None


async def test_words_of_a_host_are_shown_as_one_plain_line(ledger: Ledger) -> None:
    answer = await found(ledger, offer(region="SE\x1b[31m\nnow", notes=("good\n\u202ehost",)))

    assert answer.offers[0].region == "SE now"
    assert answer.offers[0].notes == ("good host",)


# What the finished work would cost


def terms(one: Offer, wish: Wish) -> dict[str, Decimal]:
    return {term.name: term.usd for term in expected_cost(one, wish).terms}


def test_each_cost_is_what_its_sentence_says() -> None:
    one = offer(price=price("0.90", "0.10", "0.01"), trust="unverified", interruptible=True)
    wish = Wish(hours=12, upload_gb=90, download_gb=18, interruptible="yes")

    said = {term.name: term.words for term in expected_cost(one, wish).terms}

    assert terms(one, wish) == {
        "compute": Decimal("12.0000"),
        "waiting": Decimal("0.0500"),
        "moving": Decimal("0.3500"),  # 900 s at 800 Mbit/s, 360 s at 400
        "bytes": Decimal("1.0800"),
        "host failure": Decimal("0.0360"),  # 0.005 x (6 h + 0.05 h + 0.25 h at 1 USD/h, 0.90 USD)
        "interruptions": Decimal("0.2750"),  # 0.5 x (0.5 h + 0.05 h)
        "unverified host": Decimal("1.2000"),
    }
    assert said["compute"] == "12 h at 1.0000 USD/h (GPU 0.90, disk 0.10)"
    assert (
        "90 GB to the box at 800 Mbit/s, 18 GB off the box at 400 Mbit/s: 0.35 h" in said["moving"]
    )
    assert "0.005 failures in 12 h" in said["host failure"]


def test_what_nobody_knows_is_assumed_aloud_and_never_nought() -> None:
    one = offer(price=price(a_gb=None), reliability=None, download_mbps=None, upload_mbps=0)
    wish = Wish(hours=24, upload_gb=10, download_gb=10)

    said = {term.name: term.words for term in expected_cost(one, wish).terms}

    assert said["moving"].count("an assumed 100 Mbit/s") == 2
    assert said["bytes"].count("an assumed 0.12 USD/GB") == 2
    assert "that of datacenter hosts is assumed: 0.999" in said["host failure"]
    assert all(usd > 0 for usd in terms(one, wish).values())


def test_bytes_that_are_known_to_be_free_cost_nothing() -> None:
    assert terms(offer(price=price(a_gb="0")), Wish(upload_gb=10, download_gb=10))["bytes"] == 0


def test_a_host_without_a_score_is_taken_for_its_class() -> None:
    wish = Wish(hours=24)
    costs = [
        terms(offer(trust=trust, reliability=None), wish)["host failure"]
        for trust in ("datacenter", "verified", "unverified")
    ]

    assert costs == sorted(set(costs))


def test_what_is_cheap_by_the_hour_can_be_dear_to_finish() -> None:
    slow = offer("slow", price=price("0.25"), download_mbps=5, setup_s=3600)

    ranked = rank([slow, offer("fast")], Wish(hours=1, upload_gb=20))

    assert [one.id for one, _ in ranked] == ["fast", "slow"]


USD_H = st.decimals(min_value=0, max_value=100, places=4)
OFFERS = st.builds(
    lambda gpu, disk, up, down, **changed: offer(
        price=Price(
            gpu_usd_h=gpu,
            disk_usd_h=disk,
            parked_usd_h=None,
            upload_usd_gb=up,
            download_usd_gb=down,
            source="api",
        ),
        **changed,
    ),
    *(USD_H, USD_H, st.none() | USD_H, st.none() | USD_H),
    trust=st.sampled_from(["unverified", "verified", "datacenter"]),
    interruptible=st.booleans(),
    reliability=st.none() | st.floats(0, 1),
    download_mbps=st.none() | st.floats(0.1, 1e5),
    upload_mbps=st.none() | st.floats(0.1, 1e5),
    setup_s=st.floats(0, 7200),
)
WISHES = st.builds(
    Wish,
    hours=st.floats(0.01, 8760),
    upload_gb=st.floats(0, 1e4),
    download_gb=st.floats(0, 1e4),
    interruptible=st.just("either"),
    max_price_usd_h=st.none() | USD_H,
)


def dearer(one: Offer, by: Decimal) -> Offer:
    rate = (one.price.gpu_usd_h or Decimal(0)) + by
    return one.model_copy(
        update={"id": "a", "price": one.price.model_copy(update={"gpu_usd_h": rate})}
    )


@given(OFFERS, WISHES)
def test_the_terms_add_up_to_the_total(one: Offer, wish: Wish) -> None:
    cost = expected_cost(one, wish)

    assert cost.total_usd is not None
    assert cost.total_usd + cost.risk_usd == sum(term.usd for term in cost.terms)
    assert cost.total_usd == sum(term.usd for term in cost.terms if is_paid(term))
    assert all(term.usd >= 0 and term.words for term in cost.terms)


@given(OFFERS, WISHES)
def test_what_ranks_an_offer_is_what_its_terms_add_up_to(one: Offer, wish: Wish) -> None:
    told, ranked = expected_cost(one, wish), estimated_usd(one, wish, wish.hours)

    assert told.total_usd is not None
    whole = float(told.total_usd + told.risk_usd)
    assert ranked == pytest.approx(whole, rel=1e-9, abs=0.0005), "a rounding for each term"


@given(OFFERS, WISHES, st.decimals(min_value="0.0001", max_value=10, places=4))
def test_a_dearer_offer_with_all_else_equal_never_ranks_before(
    one: Offer, wish: Wish, by: Decimal
) -> None:
    more = dearer(one, by)

    for order in ([one, more], [more, one]):
        assert [ranked for ranked, _ in rank(order, wish)] == [one, more]


@given(OFFERS, WISHES, st.sampled_from(["gpu_usd_h", "disk_usd_h"]))
def test_an_unknown_price_never_passes_a_cap_and_never_ranks_before_a_known_one(
    one: Offer, wish: Wish, missing: str
) -> None:
    unknown = one.model_copy(
        update={"id": "a", "price": one.price.model_copy(update={missing: None})}
    )

    assert expected_cost(unknown, wish).total_usd is None
    assert [ranked for ranked, _ in rank([unknown, one], wish)] == [one, unknown]
    if wish.max_price_usd_h is not None:
        assert unfit(unknown, wish) == "price unknown, so the cap cannot be checked"


@given(OFFERS, WISHES)
def test_nothing_above_the_cap_passes(one: Offer, wish: Wish) -> None:
    running, cap = one.price.running_usd_h, wish.max_price_usd_h

    passes = unfit(one, wish) is None

    assert passes == (cap is None or (running is not None and running <= cap))


# What a smoke test has estimated


async def test_an_offer_that_is_too_small_for_what_was_tested_is_noted_and_stays(
    ledger: Ledger,
) -> None:
    memory = GpuMemory(
        estimate_bytes=24 * GIB, low_bytes=20 * GIB, high_bytes=30 * GIB, parts={}, words=""
    )
    has = [offer(f"{gib}", vram_gib=gib) for gib in (16, 24, 80, None)]

    answer = await find_offers(
        Wish(),
        {"vastai": Listing(has)},
        ledger=ledger,
        tested=MemoryTest(smoke="smoke-1", memory=memory),
    )

    said = {row.vram_gib: (row.memory, row.notes) for row in answer.offers}
    assert {gib: memory for gib, (memory, _) in said.items()} == {
        16: "too small",
        24: "tight",
        80: "fits",
        None: None,
    }
    assert (
        "16 GiB is too small, by the estimate of smoke-1: the job needs 24.0 GiB" in said[16][1][0]
    )
    assert "24 GiB is tight, by the estimate of smoke-1" in said[24][1][0]
    assert not [note for gib in (80, None) for note in said[gib][1] if "smoke-1" in note]
    assert all(row.quote for row in answer.offers)
