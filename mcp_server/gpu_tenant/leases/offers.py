"""Finds what could be rented now, at all providers at once, and puts the cheapest way to finish the work first."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from pydantic import Field

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.end_reserve import QuotedBudget
from gpu_tenant.domain.errors import TenantError
from gpu_tenant.domain.expected_cost import (
    Expected,
    Term,
    estimated_usd,
    expected_cost,
    needed_h,
)
from gpu_tenant.domain.gpu_memory import Fit, MemoryTest
from gpu_tenant.domain.host_reports import NO_RECORDS, HostRecord, HostRecords, host_name
from gpu_tenant.domain.ids import new_id
from gpu_tenant.domain.offers import TESTED_RELIABILITY, Offer, Price, Quote, Wish
from gpu_tenant.domain.order import AtProvider
from gpu_tenant.domain.ports import Imaging, Market, Marketplace, Publishing, Storing
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.rental import HOME_S
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.leases.work_hours import WorkHours, work_hours
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.gpu_catalog import known_gpu, nearest_names

_PATIENCE_S = 15.0
"""A market may take this many seconds to answer.

These are real seconds, even in a rehearsal, because somebody is waiting.
"""
_QUOTED_FOR = timedelta(minutes=10)
_OWN_QUOTED_FOR = timedelta(days=1)
"""A quote for an own machine is valid for this long. It can be long, because nobody else rents the owner's machines."""

_TRIED = 3
"""The answer names this many offers, to be tried one after the other, because offers are soon out of date."""
_WITHOUT_A_KEY = {"own", "slurm"}
"""The markets that need no key: the owner's machines, and a cluster whose queues are reached from here."""
_TRUST = ("any", "unverified", "verified", "datacenter")
_COUNTED_OTHERWISE = 0.08
"""Figures for a GPU's memory that differ by at most this share of the catalog's figure count as the same.

Some platforms subtract the memory for ECC (22.5 GiB of an L4's 24). Some count in GB (288 for a B300).
"""


class Ranked(Record):
    """One offer, with the quote that rents it."""

    quote: str | None = Field(
        description="the id for `provision`; None: its price is unknown, so it cannot be rented"
    )
    provider: str
    gpu: str
    gpu_count: int
    vram_gib: float | None
    cpus: float | None = None
    ram_gib: float | None = None
    download_mbps: float | None = None
    region: str | None
    host: str | None = Field(
        default=None, description="the machine's number; None: its provider does not say"
    )
    running_usd_h: Decimal | None
    price: Price
    interruptible: bool
    trust: Literal["unverified", "verified", "datacenter"] = Field(
        description="unverified: a stranger's machine, untested by its platform"
    )
    reliability: float | None
    max_hours: float | None
    expected_usd: Decimal | None = Field(description="paid for the finished work; None: unknown")
    terms: tuple[Term, ...] = Field(description="its parts and its risks, if asked for")
    notes: tuple[str, ...]
    memory: Fit | None = Field(
        default=None, description="its GPU's memory, by a smoke test's estimate; None: unknown"
    )


class Found(Record):
    """What could be rented, best first, and what was left out with the reason."""

    offers: tuple[Ranked, ...]
    cheapest: str | None = Field(description="the quote with the lowest price by the hour")
    untested: str | None = Field(default=None, description="what is cheaper at untested hosts")
    unfit: dict[str, int] = Field(description="how many offers were left out, by reason")
    troubles: dict[str, str] = Field(description="providers that did not answer, and what to do")
    order: tuple[str, ...] = Field(default=(), description="what `gpu-tenant.toml` asks for")
    wish: str | None = Field(default=None, description="what `provision` waits for")
    next: str


_WHOSE = {
    "unverified": "a stranger's machine that its platform has not tested; its owner can read what is on it",
    "verified": "a stranger's machine that passed its platform's tests; its owner can read what is on it",
    "datacenter": "a machine of a data centre",
}


async def find_offers(
    wish: Wish,
    markets: Mapping[str, Market],
    *,
    ledger: Ledger,
    limit: int = 10,
    explain: Literal["", "explain"] = "",
    patience_s: float = _PATIENCE_S,
    wish_id: str | None = None,
    tested: MemoryTest | None = None,
    smoke: str | None = None,
) -> Found:
    """Ask every market. The best offers and the cheapest offer get quotes, by which they can be rented.

    `troubles` names a market that fails, or that has not answered after `patience_s`. `wish_id` is the id under
    which the wish is on record. `tested` says how much GPU memory the job needs: an offer with less gets a note, but is
    not left out. `smoke` is the smoke test that the next step names.
    """
    async with asyncio.TaskGroup() as group:
        asked = {
            provider: group.create_task(_ask(provider, market, wish, patience_s))
            for provider, market in markets.items()
        }
        beside = [
            group.create_task(_untested(provider, market, wish, patience_s))
            for provider, market in markets.items()
            if wish.trust != "any" and isinstance(market, Marketplace) and market.has_strangers
        ]
    answers = {provider: task.result() for provider, task in asked.items()}
    troubles = {who: said for who, said in answers.items() if isinstance(said, str)}
    offered = [offer for said in answers.values() if not isinstance(said, str) for offer in said]
    records = ledger.host_records(at=ledger.now())
    hours = work_hours(wish, offered, ledger)
    reasons = [
        (offer, unfit(offer, hours.on(offer)[0]) or why_left_out(offer, wish, records))
        for offer in offered
    ]
    fitting = [offer for offer, reason in reasons if reason is None]
    ranked = best_first(fitting, hours, records)
    cheapest = min(
        (offer for offer in ranked if offer.price.running_usd_h is not None),
        key=lambda offer: offer.price.running_usd_h or 0,
        default=None,
    )
    chosen = ranked[:limit] + [offer for offer in ranked[limit:] if offer is cheapest]
    shown = [(offer, _cost(offer, hours, records)) for offer in chosen]

    quotes: list[Quote | None] = []
    for offer, _ in shown:
        taken = {quote.id for quote in quotes if quote}
        quotes.append(_quote(offer, hours.on(offer)[0], taken, wish_id, ledger=ledger))
    ledger.file_quotes([quote for quote in quotes if quote], at=ledger.now())
    counts = _counted(reasons, wish)
    strangers = [price for task in beside if (price := task.result()) is not None]
    untested = _untested_words(strangers, cheapest)
    return Found(
        offers=tuple(
            _show_offer(
                offer, wish, total, quote, records, hours.on(offer)[1], tested, explain=explain
            )
            for (offer, total), quote in zip(shown, quotes, strict=True)
        ),
        cheapest=next((quote.id for quote in quotes if quote and quote.offer is cheapest), None),
        untested=untested,
        unfit=dict(counts.most_common()),
        troubles=troubles,
        order=wish.order.words(),
        wish=wish_id,
        next=_next(
            wish,
            [quote for quote in quotes if quote],
            shown,
            counts,
            troubles,
            markets,
            wish_id,
            smoke,
            untested,
        ),
    )


async def _untested(provider: str, market: Market, wish: Wish, patience_s: float) -> Decimal | None:
    """Return the lowest price at hosts that `wish` leaves out as untested. None if there is none, or no answer."""
    anybody = wish.model_copy(update={"trust": "any"})
    offered = await _ask(provider, market, anybody, patience_s)
    prices = [
        price
        for offer in (() if isinstance(offered, str) else offered)
        if (price := offer.price.running_usd_h) is not None
        and unfit(offer, anybody) is None
        and not _is_trusted(offer, wish)
    ]
    return min(prices, default=None)


def _untested_words(prices: Sequence[Decimal], tested: Offer | None) -> str | None:
    """Say what untested hosts cost. None if no offer there is cheaper than the cheapest that was found."""
    lowest = min(prices, default=None)
    shown = None if tested is None else tested.price.running_usd_h
    if lowest is None or (shown is not None and shown <= lowest):
        return None
    return f"{lowest} USD/h at untested hosts: {Option('trust', 'any')}"


async def _ask(
    provider: str, market: Market, wish: Wish, patience_s: float
) -> Sequence[Offer] | str:
    """Ask one market what it offers. Returns the reason in words if it offers nothing."""
    source = wish.order.image_at(provider)
    why = refused_image(market, source)
    if why is not None:
        part = "template" if source.template else "image"
        return f"it cannot carry out the order's `{part}`: {why}"
    unseen = unseen_volumes(provider, market, wish)
    if unseen is not None:
        return unseen
    closed = closed_ports(market, wish.order.public_ports)
    if closed is not None:
        return f"it cannot carry out the order's `public_ports`: {closed}"
    try:
        async with asyncio.timeout(patience_s):
            return await market.offers(wish)
    except TimeoutError:
        return (
            f"no answer within {patience_s:g} s; ask again, or look at the provider's status page"
        )
    except TenantError as error:
        return plain(str(error), max_line=400)
    except Exception as error:  # noqa: BLE001 - reported, and one odd answer hides no other market's offers
        return f"its answer could not be read ({type(error).__name__}); this is a bug: report it"


def refused_image(market: Market, source: AtProvider) -> str | None:
    """Say why that market cannot start a box from the ordered image. None if it can, or if no image is ordered."""
    if source == AtProvider():
        return None
    if not isinstance(market, Imaging):
        return "its boxes start as they are: an order cannot name an image"
    if source.registry is not None and not market.has_registry_logins:
        return "no stored login for a registry can be named there; at Vast.ai a template of your own can hold one"
    return market.refused_image(source)


def closed_ports(market: Market, public_ports: Sequence[str]) -> str | None:
    """Say why no box of that market can have these ports open. None if it can, or if none is ordered."""
    if not public_ports:
        return None
    if isinstance(market, Publishing):
        return market.refused_ports(public_ports)
    return "no port of its boxes is opened to the internet; `ports` reaches them from this computer"


def unseen_volumes(provider: str, market: Market, wish: Wish) -> str | None:
    """Say why no box of that market can have the ordered volumes. None if its boxes can, or if none is ordered."""
    here = wish.volumes_at(provider)
    for name in wish.order.volumes:
        if name not in {volume.name for volume in here}:
            at = ", ".join(f"{v.provider} ({v.region})" for v in wish.volumes if v.name == name)
            return f"it cannot see the volume {name}, which is at {at or 'no provider'}"
    if here and isinstance(market, Storing):
        return market.refused_volumes(here)
    return f"it cannot mount the volume {here[0].name}" if here else None


# What fits


def unfit(offer: Offer, wish: Wish) -> str | None:
    """Say why this offer does not fit this wish. None if it fits.

    The connectors leave out unfit offers too; this is a second check.
    """
    price, cap = offer.price.running_usd_h, wish.max_price_usd_h
    memory_gib = _memory_gib(offer)
    lasts_h = None if offer.max_hours is None else offer.max_hours - HOME_S / 3600
    ends_early = lasts_h is not None and lasts_h < needed_h(offer, wish)
    reasons = {
        "another host": wish.host not in (None, _host(offer)),
        "another GPU": wish.preference(_model_name(offer.gpu)) is None,
        "fewer GPUs": offer.gpu_count < wish.gpu_count,
        "memory unknown": wish.vram_gib is not None and memory_gib is None,
        "less memory": memory_gib is not None and memory_gib < (wish.vram_gib or 0),
        "less disk": offer.disk_gb < wish.disk_gb,
        "another region": (wish.region or "").casefold() not in (offer.region or "").casefold(),
        f"trust below {wish.trust}": not _is_trusted(offer, wish),
        "interruptible": wish.interruptible == "no" and offer.interruptible,
        "not interruptible": wish.interruptible == "yes" and not offer.interruptible,
        "ends before the work is done and moved": ends_early,
        "price unknown, so the cap cannot be checked": cap is not None and price is None,
        _above(cap): cap is not None and price is not None and price > cap,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _is_trusted(offer: Offer, wish: Wish) -> bool:
    """Whether the wish accepts whose machine it is. Nobody else uses the owner's own, so it meets any demand."""
    if wish.trust == "any" or offer.provider == "own":
        return True
    is_reliable = offer.reliability is None or offer.reliability >= TESTED_RELIABILITY
    return is_reliable and _TRUST.index(offer.trust) >= _TRUST.index(wish.trust)


def _above(cap: Decimal | None) -> str:
    return f"above the cap of {cap} USD/h"


def _counted(reasons: Sequence[tuple[Offer, str | None]], wish: Wish) -> Counter[str]:
    """Count the offers that were left out, by reason. Of those above the cap, the reason names the lowest price.

    Such an offer fits except for its price, because `unfit` checks the cap last.
    """
    above = _above(wish.max_price_usd_h)
    prices = [x.price.running_usd_h for x, why in reasons if why == above and x.price.running_usd_h]
    words = f"{above} (the lowest price: {min(prices)} USD/h)" if prices else above
    return Counter(words if reason == above else reason for _, reason in reasons if reason)


def why_left_out(offer: Offer, wish: Wish, records: HostRecords) -> str | None:
    """Say why this offer's host is not rented now, and until when.

    None if it may be rented, or if the wish names this host.
    """
    record = _record(offer, records)
    if record is None or record.left_out_until is None or wish.host is not None:
        return None
    return record.words


def _record(offer: Offer, records: HostRecords) -> HostRecord | None:
    return records.get(_host(offer)) if offer.host is not None else None


def _host(offer: Offer) -> str:
    return host_name(offer.provider, offer.host or "")


def _model_name(gpu: str) -> str:
    model = known_gpu(gpu)
    return model.name if model else gpu


def _memory_gib(offer: Offer) -> float | None:
    """Return the memory of one GPU: the catalog's figure if the offer's is close to it, else the offer's."""
    model = known_gpu(offer.gpu)
    if model is None or offer.vram_gib is None:
        return offer.vram_gib
    same = abs(offer.vram_gib - model.vram_gib) <= model.vram_gib * _COUNTED_OTHERWISE
    return model.vram_gib if same else offer.vram_gib


def rank(
    offers: Sequence[Offer], wish: Wish, records: HostRecords = NO_RECORDS
) -> list[tuple[Offer, Expected]]:
    """Return the offers, best first, with what each would cost. `records` are the reports about each host."""
    hours = work_hours(wish, offers)
    return [(offer, _cost(offer, hours, records)) for offer in best_first(offers, hours, records)]


def best_first(
    offers: Sequence[Offer], hours: WorkHours, records: HostRecords = NO_RECORDS
) -> list[Offer]:
    """Return the offers: preferred GPUs, then the cheapest work, then unknown prices."""
    wish = hours.wish
    preferences = {offer.gpu: 0 for offer in offers}
    for gpu in preferences:
        preferences[gpu] = wish.preference(_model_name(gpu)) or 0

    def place(offer: Offer) -> tuple[bool, int, float, Decimal, str, str]:
        usd = estimated_usd(offer, wish, hours.hours_on(offer), _record(offer, records))
        return (
            usd is None,
            preferences[offer.gpu],
            usd or 0,
            offer.price.running_usd_h or Decimal(0),
            offer.provider,
            offer.id,
        )

    return sorted(offers, key=place)


def _cost(offer: Offer, hours: WorkHours, records: HostRecords) -> Expected:
    return expected_cost(offer, hours.on(offer)[0], _record(offer, records))


# What is answered


def trust_words(offer: Ranked) -> str:
    """Say whose machine is offered."""
    return "your own machine" if offer.provider == "own" else _WHOSE[offer.trust]


def _quote(
    offer: Offer, wish: Wish, taken: set[str], wish_id: str | None, *, ledger: Ledger
) -> Quote | None:
    """Make a quote to rent exactly this offer. None if the price is unknown, unless the machine is the owner's own."""
    own = offer.provider == "own"
    price, cap = offer.price.running_usd_h, wish.max_price_usd_h
    if price is None and not own:
        return None
    quote_id = new_id("q", taken)
    while ledger.quote(quote_id) is not None:
        quote_id = new_id("q", taken)
    return Quote(
        id=quote_id,
        offer=offer,
        wish=wish,
        # An own machine without a rate is not billed, so any price for it is too high.
        cap_usd_h=cap if cap is not None else price if price is not None else Decimal(0),
        expires_at=ledger.now() + (_OWN_QUOTED_FOR if own else _QUOTED_FOR),
        wish_id=wish_id,
    )


def _show_offer(
    offer: Offer,
    wish: Wish,
    cost: Expected,
    quote: Quote | None,
    records: HostRecords,
    speed: str | None,
    tested: MemoryTest | None,
    *,
    explain: Literal["", "explain"],
) -> Ranked:
    notes = [_line(note) for note in offer.notes]
    notes += [volume.words for volume in wish.volumes_at(offer.provider)]
    if (record := _record(offer, records)) is not None:
        notes.append(record.words)
    if speed is not None:
        notes.append(speed)
    if known_gpu(offer.gpu) is None:
        notes.append("no table here knows this GPU: its memory is what the provider states")
    if tested and (warning := tested.memory.warning(offer.vram_gib, tested.smoke)):
        notes.insert(0, warning)
    if quote is None:
        notes.append("its price is unknown, which is not zero, so it gets no quote")
    elif cost.total_usd is None:
        notes.append("its owner states no rate: it can be leased, and its cost is not counted")
    return Ranked(
        quote=quote.id if quote else None,
        provider=offer.provider,
        gpu=_line(offer.gpu),
        gpu_count=offer.gpu_count,
        vram_gib=offer.vram_gib,
        cpus=offer.cpus,
        ram_gib=offer.ram_gib,
        download_mbps=offer.download_mbps,
        region=None if offer.region is None else _line(offer.region),
        host=None if offer.host is None else _line(offer.host),
        running_usd_h=offer.price.running_usd_h,
        price=offer.price,
        interruptible=offer.interruptible,
        trust=offer.trust,
        reliability=offer.reliability,
        max_hours=offer.max_hours,
        expected_usd=cost.total_usd,
        terms=cost.terms if explain else (),
        notes=tuple(notes),
        memory=tested.memory.fit(offer.vram_gib) if tested else None,
    )


def _line(text: str) -> str:
    """Return the words as one short line. On a marketplace, hosts write some of these words themselves."""
    return plain(" ".join(text.split()), max_line=160)


def _next(
    wish: Wish,
    quotes: Sequence[Quote],
    shown: Sequence[tuple[Offer, Expected]],
    counts: Counter[str],
    troubles: Mapping[str, str],
    markets: Mapping[str, Market],
    wish_id: str | None,
    smoke: str | None,
    untested: str | None,
) -> str:
    if quotes:
        rents = Command("provision", quote=[quote.id for quote in quotes[:_TRIED]], smoke=smoke)
        first = f"{rents}: rents the first of these that is still available"
        first = first if len(quotes) > 1 else str(rents)
        return "; ".join(filter(None, (first, _budget_words(quotes[0]))))
    if shown:
        return "no price is known: read the provider's profile, and rent by its runbook"
    if untested:
        return f"no tested host has such a box now; {untested}"
    if unknown := [gpu for gpu in wish.gpus if known_gpu(gpu) is None]:
        near = " or ".join(nearest_names(unknown[0])[:2])
        return f"nobody offers {unknown[0]!r} now, and no table here knows a GPU of that name: " + (
            f"did you mean {near}?"
            if near
            else f"{Command('offers')} without this name shows what there is"
        )
    if counts:
        (reason, count), *_ = counts.most_common(1)
        wider = f"{Command('offers')} with a wider wish: {count} left out, reason: {reason!r}"
        return f"{wider}; {_wait(wish_id)}" if wish_id else wider
    if troubles:
        return f"see what each trouble says, then {Command('offers')} again"
    if lacks_every_key(markets):
        return (
            f"no provider was asked, because no key was found: {Command('doctor')} names the variables; "
            f"{Command('rehearse', 'vastai')} shows it all without an account"
        )
    later = f"{Command('offers')} with a wider wish: nobody offers such a box now"
    return f"{later}; {_wait(wish_id)}" if wish_id else later


def lacks_every_key(markets: Collection[str]) -> bool:
    """Whether none of these markets is one that needs a key: no key was found."""
    return set(markets) <= _WITHOUT_A_KEY


def _budget_words(first: Quote) -> str | None:
    """Say which budget the first of them needs: its expected cost leaves out what the end may take. None if it is free."""
    if not first.offer.price.running_usd_h:
        return None
    paid = QuotedBudget(first, Decimal(0))
    return (
        f"{Option('budget-usd', paid.enough)} is the least that pays for {paid.hours:g} h of work"
    )


def _wait(wish_id: str) -> str:
    return (
        f"or {Command('provision', quote=[wish_id], wait='6')} rents such a box as soon as one comes under "
        "the cap"
    )
