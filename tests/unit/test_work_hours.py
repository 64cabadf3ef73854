"""The same work takes other hours on another GPU: as measured, by DLPerf, by the datasheets, or unknown."""

import os
import random
from datetime import timedelta
from decimal import Decimal

import pytest
from arranged import NOON, TERMS, job, offer, price, quote

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.offers import Offer, Wish
from gpu_tenant.jobs.measured_speed import measured_paces
from gpu_tenant.leases.offers import find_offers, rank
from gpu_tenant.leases.recovery_plan import wish_again
from gpu_tenant.leases.work_hours import work_hours
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.gpu_catalog import known_gpu
from gpu_tenant.providers.gpu_speeds import SPEEDS

MARKETS = int(os.environ.get("MARKETS", "100"))
ON_3090 = Wish(hours=10, hours_on="RTX 3090")


def on(gpu: str, usd_h: str = "1", **more: object) -> Offer:
    return offer(id=f"{gpu} {usd_h}", gpu=gpu, price=price(usd_h), **more)


def hours(wish: Wish, of: Offer, *others: Offer, ledger: Ledger | None = None) -> float:
    return work_hours(wish, others or [of], ledger).on(of)[0].hours


def words(wish: Wish, of: Offer, *others: Offer, ledger: Ledger | None = None) -> str | None:
    return work_hours(wish, others or [of], ledger).on(of)[1]


def ran(ledger: Ledger, name: str, gpu: str, share_h: float, command: str = "train") -> None:
    """A lease on that GPU whose job did that share of its work in each hour."""
    lease = LeaseId(name)
    ledger.intend(
        lease_id=lease,
        provider="tiny",
        terms=TERMS,
        address=None,
        price_usd_h=None,
        quote=quote(id=f"q-{name}", offer=on(gpu)),
        at=NOON,
    )
    ledger.declare(job().model_copy(update={"lease_id": lease, "command": command}))
    for hour in (1, 2, 3):
        seen = timeline.Progressed(job="job1", state="running", fraction=0.01 + share_h * hour)
        ledger.note(lease, seen, at=NOON + timedelta(hours=hour))


def test_every_row_is_a_gpu_of_the_catalogue_with_a_source_and_figures_that_can_be() -> None:
    for name, speed in SPEEDS.items():
        model = known_gpu(name)
        assert model is not None, name
        assert model.name == name
        assert speed.source
        for figure in (speed.memory, speed.fp32, speed.tf32, speed.bf16, speed.fp16):
            assert figure is None or figure > 0


def test_an_h100_is_not_given_the_hours_of_a_3090() -> None:
    fast = on("H100 SXM")

    assert hours(ON_3090, fast) == pytest.approx(10 * 936 / 3350)
    assert words(ON_3090, fast) == (
        "10 h on RTX 3090 count as 2.79 h on this one, by memory bandwidth, datasheets"
    )
    assert hours(ON_3090, on("RTX 3090")) == 10


def test_the_hours_are_for_the_gpu_that_is_named_first() -> None:
    wish = Wish(gpu="H100 SXM | RTX 4090", hours=3)

    assert hours(wish, on("H100 SXM")) == 3
    assert hours(wish, on("RTX 4090")) == pytest.approx(3 * 3350 / 1008)
    assert hours(Wish(hours=3), on("RTX 4090")) == 3, "none was named: they hold for each"


def test_a_gpu_without_a_sourced_figure_is_called_unknown() -> None:
    odd = on("Imaginary 9000")

    assert hours(ON_3090, odd) == 10
    assert words(ON_3090, odd) == "speed unknown: your 10 h are used unchanged"
    limited = ON_3090.model_copy(update={"limited_by": "bf16"})
    assert words(limited, on("V100 SXM 16GB")) == words(ON_3090, odd)


def test_what_the_work_is_limited_by_decides_which_figure_counts() -> None:
    wish = Wish(hours=10, hours_on="RTX 4090", limited_by="bf16")

    assert hours(wish, on("H100 SXM")) == pytest.approx(10 * 165.2 / 989.4)


def test_dlperf_goes_before_the_datasheets() -> None:
    slow, usual, fast = (on("RTX 3090", dlperf=score) for score in (20, 40, 41))
    new = on("RTX 4090", dlperf=80)
    everything = (slow, usual, fast, new)

    assert hours(ON_3090, new, *everything) == pytest.approx(5)
    assert hours(ON_3090, slow, *everything) == pytest.approx(20)
    assert "count as 5 h on this one, by DLPerf" in str(words(ON_3090, new, *everything))


def test_what_this_person_measured_goes_before_everything(ledger: Ledger) -> None:
    ran(ledger, "tiny-aaaa", "RTX 3090", 0.1)
    ran(ledger, "tiny-bbbb", "H100 SXM", 0.2)
    ran(ledger, "tiny-cccc", "H100 SXM", 0.3, command="another")
    wish = Wish(hours=10, like="tiny-aaaa")
    fast = on("H100 SXM", dlperf=400)

    assert hours(wish, fast, fast, on("RTX 3090", dlperf=40), ledger=ledger) == pytest.approx(5)
    assert "measured by you on tiny-bbbb" in str(words(wish, fast, ledger=ledger))
    assert hours(wish, on("RTX 4090"), ledger=ledger) == pytest.approx(10 * 936 / 1008)


def test_too_little_progress_is_no_measurement(ledger: Ledger) -> None:
    ran(ledger, "tiny-aaaa", "RTX 3090", 0.005)

    assert measured_paces(ledger, LeaseId("tiny-aaaa")) == {}


async def test_a_quote_is_for_the_hours_on_its_own_gpu(ledger: Ledger) -> None:
    class Shelf:
        async def offers(self, wish: Wish) -> list[Offer]:
            return [on("RTX 3090", "0.30"), on("H100 SXM", "0.90")]

    answer = await find_offers(ON_3090, {"tiny": Shelf()}, ledger=ledger)

    first, second = (ledger.quote(str(each.quote)) for each in answer.offers)
    assert first is not None
    assert second is not None
    assert (first.offer.gpu, second.offer.gpu) == ("H100 SXM", "RTX 3090")
    assert first.wish.hours == pytest.approx(10 * 936 / 3350)
    assert first.wish.hours_on == "H100 SXM"
    assert "count as 2.79 h on this one" in answer.offers[0].notes[-1]


async def test_work_that_ends_in_time_only_on_a_faster_gpu_is_offered_there(
    ledger: Ledger,
) -> None:
    class Shelf:
        async def offers(self, wish: Wish) -> list[Offer]:
            return [on("RTX 3090", max_hours=5), on("H100 SXM", max_hours=5)]

    answer = await find_offers(ON_3090, {"tiny": Shelf()}, ledger=ledger)

    assert [each.gpu for each in answer.offers] == ["H100 SXM"]
    assert answer.unfit == {"ends before the work is done and moved": 1}


def test_the_rest_of_a_lost_lease_is_counted_from_its_own_gpu(ledger: Ledger) -> None:
    ran(ledger, "tiny-aaaa", "H100 SXM", 0.1)

    again = wish_again(ledger.lease("tiny-aaaa"), None)

    assert (again.hours_on, again.like) == ("H100 SXM", "tiny-aaaa")


def test_the_choice_in_drawn_markets_costs_no_more_than_the_best_that_could_be_found() -> None:
    """Against every offer's cost, worked out anew in floats. `MARKETS=1000` tries a thousand."""
    dice = random.Random("speeds")
    names = list(SPEEDS)
    spent = best = 0.0
    worst = 0.0
    for _ in range(MARKETS):
        reference = dice.choice(names)
        wish = Wish(hours=round(dice.uniform(0.5, 60), 2), hours_on=reference)
        shelf = []
        for number in range(dice.randint(5, 60)):
            gpu = dice.choice(names)
            usd_h = 0.3 * (SPEEDS[gpu].memory / 936) ** 1.3 * dice.lognormvariate(0, 0.4)
            shelf.append(on(gpu, f"{usd_h:.4f}", setup_s=dice.uniform(30, 600)))
            shelf[-1] = shelf[-1].model_copy(update={"id": str(number)})

        chosen = rank(shelf, wish)[0][0]

        costs = {each.id: _by_hand(each, wish, reference) for each in shelf}
        least = min(costs.values())
        spent, best = spent + costs[chosen.id], best + least
        worst = max(worst, costs[chosen.id] / least - 1)
    print(f"markets {MARKETS}: regret {spent / best - 1:.3%} in all, {worst:.3%} at worst")
    assert spent <= 1.02 * best
    assert worst <= 0.02


def _by_hand(each: Offer, wish: Wish, reference: str) -> float:
    """What the finished work costs: hours by bandwidth, the start, and a host that fails in the middle."""
    hours = wish.hours * SPEEDS[reference].memory / SPEEDS[each.gpu].memory
    rate, start = float(each.price.running_usd_h or 0), each.setup_s / 3600
    failures = (1 - float(each.reliability or 0)) * hours / 24
    return hours * rate + start * rate + failures * (hours / 2 + start) * rate


def test_a_dearer_gpu_wins_where_it_is_faster_by_more() -> None:
    slow, fast = on("RTX 3090", "0.30"), on("H100 SXM", "0.90")

    by_speed = [one.gpu for one, _ in rank([slow, fast], ON_3090)]
    without = [one.gpu for one, _ in rank([slow, fast], Wish(hours=10))]

    assert by_speed == ["H100 SXM", "RTX 3090"]
    assert without == ["RTX 3090", "H100 SXM"]
    assert Decimal(0) < (rank([fast], ON_3090)[0][1].total_usd or 0) < Decimal(3)
