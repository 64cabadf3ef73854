"""How far the counted cost of a box may be too high, because nobody looked while its price changed."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from gpu_tenant.domain.billing import Billed, counted_usd
from gpu_tenant.domain.model import Box, BoxState, Lease
from gpu_tenant.domain.offers import USD_STEP, Quote
from gpu_tenant.domain.terms import cost_usd
from gpu_tenant.domain.timeline import (
    ClockOffset,
    Collected,
    Destroyed,
    Guarded,
    JobEnded,
    Launched,
    Lines,
    Progressed,
    Pushed,
    Ready,
    Sealed,
    Unseen,
)

_NOT_WORTH_TELLING = Decimal("0.01")
_SHARE = Decimal("0.01")
_IT_RAN = (Collected, Guarded, JobEnded, Launched, Progressed, Pushed, Ready, Sealed)
"""After one of these, the box was running: it has answered."""


class Range(NamedTuple):
    """What a box has cost: the likely sum, and the bounds if they differ enough to matter."""

    usd: Decimal | None
    least_usd: Decimal | None = None
    most_usd: Decimal | None = None
    words: str | None = None


def unseen_start(lease: Lease, *, usd_h: Decimal, since: datetime, now: datetime) -> Unseen | None:
    """Return the doubt about the cost of a box that booted while nobody looked. None if it is too small to report.

    From `since` on, the higher rate `usd_h` is counted, so the sum may be too high. The higher rate probably began
    later, because the box took some time to boot.
    """
    if lease.price_usd_h is None or lease.quote is None or lease.active_at is None:
        return None
    dearer = usd_h - lease.price_usd_h
    booted_at = lease.active_at + timedelta(seconds=lease.quote.offer.setup_s)
    likely_s = (min(max(booted_at, since), now) - since).total_seconds()
    most = dearer * Decimal((now - since).total_seconds()) / 3600
    if most <= _NOT_WORTH_TELLING:
        return None
    return Unseen(
        likely_less_usd=(dearer * Decimal(likely_s) / 3600).quantize(USD_STEP),
        most_less_usd=most.quantize(USD_STEP),
        words=f"nobody looked from {since:%H:%M:%S} to {now:%H:%M:%S} UTC, while it booted",
    )


def unseen_boot(box: Box, quote: Quote | None, *, since: datetime, now: datetime) -> Unseen | None:
    """Return the doubt about the cost of a box that is found running. None if it is too small to report.

    The box was made at `since`, and cost less while it booted. Its cost is counted as if it ran from `since` on. It
    probably booted first, for as long as its quote says.
    """
    price, booting = box.price_usd_h, box.booting_usd_h
    if box.state is not BoxState.READY or price is None or booting is None or price <= booting:
        return None
    elapsed_s = max(0.0, (now - since).total_seconds())
    most = (price - booting) * Decimal(elapsed_s) / 3600
    if most <= _NOT_WORTH_TELLING:
        return None
    likely_s = 0.0 if quote is None else min(quote.offer.setup_s, elapsed_s)
    return Unseen(
        likely_less_usd=((price - booting) * Decimal(likely_s) / 3600).quantize(USD_STEP),
        most_less_usd=most.quantize(USD_STEP),
        words=f"it was found running at {now:%Y-%m-%d %H:%M} UTC, and when it finished booting is unknown",
    )


class UnseenStop(NamedTuple):
    """A box that is found stopped. It may have run until just now, so its cost is counted at `usd_h` until now."""

    usd_h: Decimal
    doubt: Unseen


def unseen_stop(lease: Lease, box: Box, *, since: datetime, now: datetime) -> UnseenStop | None:
    """Decide which cost is counted for a box that was made at `since`, and is found stopped.

    None if the time of the stop makes no difference to the cost.

    If the lease's deadline has passed, the provider's own timer probably stopped the box at the deadline.
    """
    price = lease.quote.offer.price.running_usd_h if lease.quote else None
    running = price if box.running_usd_h is None else box.running_usd_h
    if box.state is not BoxState.PARKED or running is None or running <= (box.price_usd_h or 0):
        return None
    dearer = running - (box.price_usd_h or Decimal(0))
    doubt = _stopped_between(since, now, dearer=dearer, likely_at=lease.terms.deadline_at)
    return None if doubt is None else UnseenStop(running, doubt)


def late_stop(
    lease: Lease,
    events: Lines,
    *,
    usd_h: Decimal | None,
    asked_at: datetime | None,
    listed_at: datetime | None,
    now: datetime,
) -> Unseen | None:
    """Return the doubt about the cost of a running box that is found stopped. None if it is too small to report.

    It bills `usd_h` now. Until now its former rate is counted, but it may have stopped as soon as it was last known to
    run. It probably stopped when we asked for that, or else at its deadline, if that has passed.
    """
    if usd_h is None or lease.price_usd_h is None or not lease.rates:
        return None
    ran_at = next((at for at, event in reversed(events) if isinstance(event, _IT_RAN)), None)
    known = [at for at in (lease.rates[-1].at, ran_at, listed_at) if at is not None and at <= now]
    likely_at = lease.terms.deadline_at if asked_at is None else asked_at
    return _stopped_between(
        max(known, default=now), now, dearer=lease.price_usd_h - usd_h, likely_at=likely_at
    )


def late_start(
    lease: Lease, *, usd_h: Decimal | None, since: datetime, now: datetime
) -> Unseen | None:
    """Return the doubt about the cost of a stopped box that is found running. None if it is too small to report.

    It is counted at `usd_h` from `since` on, when it was last known to be stopped, but somebody may have started it
    later.
    """
    if usd_h is None or lease.price_usd_h is None:
        return None
    most = (usd_h - lease.price_usd_h) * Decimal((now - since).total_seconds()) / 3600
    if most <= _NOT_WORTH_TELLING:
        return None
    return Unseen(
        likely_less_usd=Decimal(0),
        most_less_usd=most.quantize(USD_STEP),
        words=f"it was found running at {now:%Y-%m-%d %H:%M} UTC, and when it was started is unknown",
    )


def _stopped_between(
    since: datetime, now: datetime, *, dearer: Decimal, likely_at: datetime
) -> Unseen | None:
    most = dearer * Decimal((now - since).total_seconds()) / 3600
    if most <= _NOT_WORTH_TELLING:
        return None
    likely_s = max(0.0, (now - max(likely_at, since)).total_seconds())
    return Unseen(
        likely_less_usd=(dearer * Decimal(likely_s) / 3600).quantize(USD_STEP),
        most_less_usd=most.quantize(USD_STEP),
        words=f"it was found stopped at {now:%Y-%m-%d %H:%M} UTC, and when it stopped is unknown",
    )


class DestroyRequest(NamedTuple):
    """The last request to destroy a box. `refused_at` is when the provider refused it, or None."""

    asked_at: datetime
    refused_at: datetime | None = None


def destroy_request(events: Lines) -> DestroyRequest | None:
    """Return the last request to destroy the box. None if no request is recorded."""
    request = None
    for at, event in events:
        match event:
            case Destroyed(outcome="asked"):
                request = DestroyRequest(at)
            case Destroyed(outcome="refused") if request is not None:
                request = DestroyRequest(request.asked_at, refused_at=at)
            case _:
                pass
    return request


def destroy_asked_at(events: Lines) -> datetime | None:
    """Return when the destroy was last requested. None if it was refused, or if no request is recorded."""
    request = destroy_request(events)
    return None if request is None or request.refused_at else request.asked_at


def in_all(
    lease: Lease,
    events: Lines,
    *,
    absent_at: datetime,
    listed_at: datetime | None,
    billed: Billed | None = None,
) -> Range:
    """Return the cost of a box that was last seen at `listed_at`, and seen gone at `absent_at`.

    The box billed until its destroy was carried out. Probably that was when the destroy was requested, or when the box
    was last listed after the request. At the latest it was `absent_at`. A refused request counts, too, because a
    gateway may report an error although the server behind it did the work. It does not count if the box was listed
    after the refusal. The sum includes the bytes in `billed`.
    """
    most = counted_usd(lease, absent_at, billed=billed)
    if most is None:
        return Range(None)
    doubts = [event for _, event in events if isinstance(event, Unseen)]
    jumps = [x for _, x in events if isinstance(x, ClockOffset) and x.too_much_usd and x.words]
    for jump in jumps:
        too_much = jump.too_much_usd or Decimal(0)
        most += max(Decimal(0), -too_much)
        doubts.append(
            Unseen(
                likely_less_usd=max(Decimal(0), too_much),
                most_less_usd=abs(too_much),
                words=jump.words or "",
            )
        )
    request = destroy_request(events)
    outlived = (
        request is not None
        and request.refused_at is not None
        and listed_at is not None
        and listed_at >= request.refused_at
    )
    if request is not None and not outlived:
        asked_at = request.asked_at
        ended_at = min(max(asked_at, listed_at or asked_at), absent_at)
        by_the_hour = lease.cost_usd(absent_at) or Decimal(0)
        less = by_the_hour - (cost_usd(lease.rates, since=None, until=ended_at) or Decimal(0))
        words = (
            f"its destroy was requested at {asked_at:%H:%M:%S} UTC, and nobody looked until "
            f"{absent_at:%Y-%m-%d %H:%M:%S}"
        )
        doubts.append(Unseen(likely_less_usd=less, most_less_usd=less, words=words))
    told = [doubt for doubt in doubts if doubt.most_less_usd > 0]
    least = max(Decimal(0), most - sum((d.most_less_usd for d in told), Decimal(0)))
    if most - least <= max(_NOT_WORTH_TELLING, most * _SHARE):
        return Range(most)
    likely = max(least, most - sum((d.likely_less_usd for d in told), Decimal(0)))
    told.sort(key=lambda doubt: -doubt.most_less_usd)
    words = "; ".join(doubt.words for doubt in told[:2])
    least, most = least.quantize(USD_STEP), most.quantize(USD_STEP)
    return Range(likely.quantize(USD_STEP), least, most, f"between {least} and {most} USD: {words}")
