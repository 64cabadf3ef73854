"""Estimates how long the work takes on the GPU of each offer, and says what the estimate is based on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from gpu_tenant.domain.offers import Offer, Wish
from gpu_tenant.jobs.measured_speed import MeasuredPace, gpus_of, measured_paces
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.gpu_catalog import known_gpu
from gpu_tenant.providers.gpu_speeds import speed_of

_MOST_H = 8760.0
_LEAST_H = 0.01
_MOST_APART = 1000.0
"""The speeds of two rented GPUs differ by less than this factor. A larger ratio is an error in the figures."""


@dataclass(frozen=True)
class WorkHours:
    """What is known about the speeds of GPUs, for one wish."""

    wish: Wish
    reference: str | None
    """The GPU on which the work takes the hours of the wish. None if none was named."""
    measured: Mapping[tuple[str, int], MeasuredPace] = field(default_factory=dict)
    dlperf: float | None = None
    """The median DLPerf score of the offers with the reference GPU. None if there is none."""

    def on(self, offer: Offer) -> tuple[Wish, str | None]:
        """Return the wish with the hours for that offer's GPU, and in words how they are known.

        The words are None if the hours are those of the wish.
        """
        if self.reference is None:
            return self.wish, None
        gpu = canonical(offer.gpu)
        longer, basis = self._longer(gpu, offer)
        if longer is None:
            return self.wish, f"speed unknown: your {self.wish.hours:g} h are used unchanged"
        if longer == 1:
            return self.wish, None
        hours = self._within(longer)
        words = (
            f"{self.wish.hours:g} h on {self.reference} count as {hours:.3g} h on this one, {basis}"
        )
        return self.wish.model_copy(update={"hours": hours, "hours_on": gpu}), words

    def hours_on(self, offer: Offer) -> float:
        """Return how many hours the work takes on that offer's GPU."""
        if self.reference is None:
            return self.wish.hours
        longer, _ = self._longer(canonical(offer.gpu), offer)
        return self.wish.hours if longer in (None, 1) else self._within(longer or 1)

    def _within(self, longer: float) -> float:
        return min(max(self.wish.hours * longer, _LEAST_H), _MOST_H)

    def _longer(self, gpu: str, offer: Offer) -> tuple[float | None, str]:
        """Return the factor by which the work takes longer than on the reference GPU, and how this is known.

        None if unknown.
        """
        assert self.reference is not None
        ours = self.measured.get((gpu, offer.gpu_count))
        theirs = self.measured.get((self.reference, offer.gpu_count))
        if ours is not None and theirs is not None:
            return theirs.share_h / ours.share_h, f"measured by you on {', '.join(ours.leases[:3])}"
        if self.dlperf and offer.dlperf:
            longer = self.dlperf / offer.dlperf
            if 1 / _MOST_APART < longer < _MOST_APART:
                return longer, "by DLPerf"
        if gpu == self.reference:
            return 1, ""
        here, there, what = speed_of(gpu), speed_of(self.reference), self.wish.limited_by
        figures = here and here.by(what), there and there.by(what)
        if figures[0] is None or figures[1] is None:
            return None, ""
        by = "memory bandwidth" if what == "memory" else f"{what} throughput"
        return figures[1] / figures[0], f"by {by}, datasheets"


def canonical(gpu: str) -> str:
    """Return the GPU's name in our catalog, or the name as it is."""
    model = known_gpu(gpu)
    return model.name if model else gpu


def work_hours(wish: Wish, offers: Sequence[Offer], ledger: Ledger | None = None) -> WorkHours:
    """Return what is known about speeds for that wish. Measurements come first, then DLPerf, then datasheets.

    The reference is the GPU for which the wish gives its hours (`hours_on`). If the wish names none, it is the GPU of
    the lease in `like`. Without such a lease, it is the first GPU that the wish names.
    """
    measured: Mapping[tuple[str, int], MeasuredPace] = {}
    like: str | None = None
    if ledger is not None and wish.like is not None:
        lease = ledger.lease(wish.like)
        measured = measured_paces(ledger, lease.id)
        like = gpus_of(lease)[0] if lease.quote is not None else None
    named = wish.hours_on or like or next(iter(wish.gpus), None)
    reference = canonical(named) if named else None
    scores = [
        offer.dlperf for offer in offers if offer.dlperf and canonical(offer.gpu) == reference
    ]
    return WorkHours(wish, reference, measured, median(scores) if scores else None)
