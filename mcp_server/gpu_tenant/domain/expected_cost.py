"""Estimates what it would cost to finish the work on one offer, as a sum of terms, each with an explanation."""

from collections.abc import Iterator
from decimal import Decimal

from gpu_tenant.domain.host_reports import HostRecord
from gpu_tenant.domain.offers import USD_STEP, Offer, Wish
from gpu_tenant.domain.record import Record

# Assumptions, used if nobody has given a figure. Each is a judgment, and its term says so. They
# are meant to rank offers, and do not predict a bill.
_ASSUMED_MBPS = Decimal(100)
"""The assumed speed of a link that nobody has measured, in Mbit/s. It is at the low end of what hosts have shown."""
_ASSUMED_USD_GB = Decimal("0.12")
"""The assumed price of bytes: the list price of a large provider for internet traffic. Cheap providers ask less."""
_ASSUMED_RELIABILITY = {
    "unverified": Decimal("0.95"),
    "verified": Decimal("0.99"),
    "datacenter": Decimal("0.999"),
}
"""The reliability of a host without a score. Only the order of these three is certain."""
_LOST_BY_FAILURE = Decimal("0.5")
"""The share of the work that is lost if the host fails. Its disk is lost, too, and on average it fails halfway."""
INTERRUPTIONS_PER_DAY = Decimal(1)
"""The assumed interruptions a day of an interruptible box.

Google says that 5 to 15 % of preemptible machines are interrupted each day. GPUs, and boxes won by bids, are
interrupted more often.
"""
_CHECKPOINT_H = Decimal(1)
"""The assumed hours between two saves of a job on an interruptible box, to a disk that survives an interruption."""
_MONTH_H = 720
_UNDISTURBED = ("compute", "waiting", "moving", "bytes")
"""The terms that have to be paid even if nothing fails."""
_PAID = (*_UNDISTURBED, "volume")
"""The terms that are money. The others are risks: they only rank the offers."""
_UNVERIFIED_PREMIUM = Decimal("0.10")
"""A host that its provider has not verified counts as a tenth dearer. The risk that it reads your data is not counted."""


class Term(Record):
    """One part of an expected cost, with the sentence that explains it."""

    name: str
    usd: Decimal
    words: str


def is_paid(term: Term) -> bool:
    """Whether the term is money, and not a risk."""
    return term.name in _PAID


class Expected(Record):
    """What the finished work would cost. The terms add up to both sums. None means unknown."""

    total_usd: Decimal | None = None
    """What is paid if nothing fails."""
    risk_usd: Decimal = Decimal(0)
    """What the risks count for. Nobody pays this: it ranks the offers."""
    terms: tuple[Term, ...] = ()


def expected_cost(offer: Offer, wish: Wish, record: HostRecord | None = None) -> Expected:
    """Return what the wished work would cost on that offer: compute, waiting, bytes, and failures.

    `record` is what was reported against the offer's host. None if nothing was.
    """
    rate = offer.price.running_usd_h
    if rate is None:
        return Expected()
    terms = (*_terms(offer, wish, rate, record), *_volume_terms(offer, wish))
    paid = sum((term.usd for term in terms if is_paid(term)), Decimal(0))
    whole = sum((term.usd for term in terms), Decimal(0))
    return Expected(total_usd=paid, risk_usd=whole - paid, terms=terms)


def estimated_usd(
    offer: Offer, wish: Wish, hours: float, record: HostRecord | None = None
) -> float | None:
    """Return what `expected_cost` counts for so many hours of work, with risks and without volumes. None if unknown.

    It is fast, because it uses floats and no words: a search ranks thousands of offers, and explains only a few.
    """
    price = offer.price
    running = price.running_usd_h
    if running is None:
        return None
    rate, setup_h = float(running), offer.setup_s / 3600
    up_h = wish.upload_gb * 8000 / (offer.download_mbps or _MBPS) / 3600
    down_h = wish.download_gb * 8000 / (offer.upload_mbps or _MBPS) / 3600
    up_usd = wish.upload_gb * _usd_gb(price.upload_usd_gb)
    down_usd = wish.download_gb * _usd_gb(price.download_usd_gb)
    score = offer.reliability
    if score is None:
        score = float(_ASSUMED_RELIABILITY[offer.trust])
    failures = (1 - min(max(score, 0.0), 1.0)) * hours / 24
    total = (hours + setup_h + up_h + down_h) * rate + up_usd + down_usd
    total += failures * ((hours * float(_LOST_BY_FAILURE) + setup_h + up_h) * rate + up_usd)
    if offer.interruptible:
        lost_h = min(hours, float(_CHECKPOINT_H)) / 2
        total += hours / 24 * float(INTERRUPTIONS_PER_DAY) * (lost_h + setup_h) * rate
    if offer.trust == "unverified":
        total += hours * rate * float(_UNVERIFIED_PREMIUM)
    if record is not None:
        total += hours * rate * float(record.dearer)
    return total


_MBPS = float(_ASSUMED_MBPS)


def _usd_gb(usd_gb: Decimal | None) -> float:
    return float(_or_assumed(usd_gb))


def needed_h(offer: Offer, wish: Wish) -> float:
    """Return how many hours the box is needed: to start, to do the work, and to move the data."""
    return wish.hours + offer.setup_s / 3600 + float(sum(_moving_h(offer, wish)))


def undisturbed_usd(offer: Offer, wish: Wish) -> Decimal | None:
    """Return what the work costs if nothing fails: compute, waiting, moving, and bytes. None if unknown."""
    terms = {term.name: term.usd for term in expected_cost(offer, wish).terms}
    if not terms:
        return None
    return sum((terms.get(name, Decimal(0)) for name in _UNDISTURBED), Decimal(0))


def _terms(offer: Offer, wish: Wish, rate: Decimal, record: HostRecord | None) -> Iterator[Term]:
    hours = _exact(wish.hours)
    setup_h = _exact(offer.setup_s) / 3600
    up_h, down_h = _moving_h(offer, wish)
    up_usd = _exact(wish.upload_gb) * _or_assumed(offer.price.upload_usd_gb)
    down_usd = _exact(wish.download_gb) * _or_assumed(offer.price.download_usd_gb)
    price = offer.price
    yield _term(
        "compute",
        hours * rate,
        f"{wish.hours:g} h at {rate} USD/h (GPU {_short(price.gpu_usd_h)}, disk {_short(price.disk_usd_h)})",
    )
    yield _term(
        "waiting",
        setup_h * rate,
        f"{offer.setup_s:.0f} s until the box answers, which are counted as billed",
    )
    if wish.upload_gb or wish.download_gb:
        yield _term(
            "moving",
            (up_h + down_h) * rate,
            f"{wish.upload_gb:g} GB to the box {_speed(offer.download_mbps)}, {wish.download_gb:g} GB off the "
            f"box {_speed(offer.upload_mbps)}: {up_h + down_h:.2f} h, if your own link is no slower",
        )
        yield _term(
            "bytes",
            up_usd + down_usd,
            f"{wish.upload_gb:g} GB to the box {_per_gb(price.upload_usd_gb)}, {wish.download_gb:g} GB off the "
            f"box {_per_gb(price.download_usd_gb)}",
        )
    score, whose = _reliability(offer)
    failures = (1 - score) * hours / 24
    yield _term(
        "host failure",
        failures * ((hours * _LOST_BY_FAILURE + setup_h + up_h) * rate + up_usd),
        f"{whose} {score}, read as the chance of a day without a failure: {failures:.2g} failures "
        f"in {wish.hours:g} h, each losing half the work and starting over",
    )
    if offer.interruptible:
        interruptions = hours / 24 * INTERRUPTIONS_PER_DAY
        lost_h = min(hours, _CHECKPOINT_H) / 2
        yield _term(
            "interruptions",
            interruptions * (lost_h + setup_h) * rate,
            f"an assumed {INTERRUPTIONS_PER_DAY} a day: {interruptions:.2g} in {wish.hours:g} h, each "
            f"losing {lost_h:.2g} h, as with a checkpoint every {_CHECKPOINT_H} h, and starting again",
        )
    if offer.trust == "unverified":
        yield _term(
            "unverified host",
            hours * rate * _UNVERIFIED_PREMIUM,
            f"{_UNVERIFIED_PREMIUM:.0%} of compute, as its provider has not verified this host",
        )
    if record is not None:
        yield _term(
            "known host",
            hours * rate * record.dearer,
            f"{record.dearer:.0%} of compute, for what this host did: {record.words}",
        )


def _volume_terms(offer: Offer, wish: Wish) -> Iterator[Term]:
    """Yield what each ordered volume at the offer's provider bills during the work."""
    for volume in wish.volumes_at(offer.provider):
        if volume.usd_month is not None:
            yield _term(
                "volume",
                volume.usd_month / _MONTH_H * _exact(needed_h(offer, wish)),
                f"{volume.name} at {volume.usd_month} USD a month, for these hours; it bills before and after them, too",
            )


def _short(usd: Decimal | None) -> Decimal | None:
    """Return the rate with at most four decimal places, as many as anybody bills by."""
    return None if usd is None else min(usd, usd.quantize(USD_STEP), key=lambda one: len(str(one)))


def _term(name: str, usd: Decimal, words: str) -> Term:
    # Each term is rounded separately, so that the figures shown add up.
    return Term(name=name, usd=usd.quantize(USD_STEP), words=words)


def _exact(number: float) -> Decimal:
    return Decimal(str(number))


def _moving_h(offer: Offer, wish: Wish) -> tuple[Decimal, Decimal]:
    """Return the hours that it takes to move the wish's bytes to the box, and from the box.

    What we upload, the box downloads.
    """

    def hours(size_gb: float, speed_mbps: float | None) -> Decimal:
        speed = _exact(speed_mbps) if speed_mbps else _ASSUMED_MBPS
        return _exact(size_gb) * 8000 / speed / 3600

    return hours(wish.upload_gb, offer.download_mbps), hours(wish.download_gb, offer.upload_mbps)


def _or_assumed(usd_gb: Decimal | None) -> Decimal:
    return _ASSUMED_USD_GB if usd_gb is None else usd_gb


def _speed(mbps: float | None) -> str:
    return f"at {mbps:g} Mbit/s" if mbps else f"at an assumed {_ASSUMED_MBPS} Mbit/s"


def _per_gb(usd_gb: Decimal | None) -> str:
    return f"at {'an assumed ' if usd_gb is None else ''}{_or_assumed(usd_gb)} USD/GB"


def _reliability(offer: Offer) -> tuple[Decimal, str]:
    if offer.reliability is None:
        return _ASSUMED_RELIABILITY[
            offer.trust
        ], f"the score is unknown, and that of {offer.trust} hosts is assumed:"
    return min(max(_exact(offer.reliability), Decimal(0)), Decimal(1)), "its score:"
