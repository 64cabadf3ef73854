"""What can be rented and what it costs, as frozen records: wish, price, offer, quote, leftover."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import AwareDatetime, BeforeValidator, Field

from gpu_tenant.domain.choices import Trust
from gpu_tenant.domain.order import NOTHING_ORDERED, Order
from gpu_tenant.domain.record import Line, Name, Record, Usd
from gpu_tenant.domain.untrusted_text import quote_text

USD_STEP = Decimal("0.0001")
"""Money is rounded to 0.0001 USD before it is shown or compared."""

_MOST_USD_H = Decimal(100_000)
"""Nothing that can be rented costs more an hour. A larger figure is a mistake."""


def sane(usd_h: Decimal | None) -> Decimal | None:
    """Return the hourly price. None (unknown) if the figure is infinite, NaN, negative or absurdly high."""
    if usd_h is None or not usd_h.is_finite() or not 0 <= usd_h <= _MOST_USD_H:
        return None
    return usd_h


UsdH = Annotated[
    Decimal | None, BeforeValidator(lambda told: sane(told) if isinstance(told, Decimal) else told)
]
"""A provider's price. An absurd figure is stored as unknown.

If it were an error instead, this offer and the others in the list would be lost.
"""


DISK_GB = 40
"""The disk of a box if nobody names a size."""
ALTERNATIVE_SEPARATOR = " | "
VARIANT_SEPARATOR = " / "


class Attachable(Record):
    """One volume that a box is to have, as its connector needs it."""

    name: str
    provider: str
    id: str = Field(description="the provider's own")
    mark: str = Field(description="its name at the provider")
    region: str
    size_gb: int
    path: str = Field(description="where it is mounted")
    usd_month: Usd = Field(description="with or without a box; None: unknown")

    @property
    def words(self) -> str:
        """What the volume is and what it costs, in words to be shown with an offer."""
        rate = "at an unknown rate" if self.usd_month is None else f"{self.usd_month} USD a month"
        return (
            f"with the volume {self.name} at {self.path} ({self.size_gb} GB in {self.region}), which bills "
            f"{rate} by itself, with or without a box"
        )


TESTED_RELIABILITY = 0.97
"""A host whose provider scores it below this does not count as tested: such hosts fail too often as they start."""


class Wish(Record):
    """What somebody wants to rent, for how long, and what will be moved."""

    gpu: str | None = Field(
        default=None,
        description="names as in gpu_catalog. `A | B`: A is preferred to B. `A / B`: variants of one"
        " model, equally good. None: any GPU",
    )
    gpu_count: int = Field(default=1, ge=1)
    vram_gib: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="memory that each GPU must have"
    )
    disk_gb: int = Field(default=DISK_GB, ge=8, le=100_000)
    hours: float = Field(default=1, gt=0, le=8760, description="how long the work takes")
    max_price_usd_h: Decimal | None = Field(default=None, ge=0)
    region: str | None = Field(default=None, description="part of the provider's own region name")
    trust: Trust = "any"
    interruptible: Literal["no", "yes", "either"] = "no"
    upload_gb: float = Field(default=0, ge=0, le=1e6, description="what will be moved to the box")
    download_gb: float = Field(
        default=0, ge=0, le=1e6, description="what will be moved off the box"
    )
    offer: str | None = Field(default=None, description="the id of the one offer to ask for again")
    hours_on: str | None = Field(
        default=None,
        description="the GPU for which `hours` is meant; None: that of the lease in `like`, else the first of `gpu`",
    )
    limited_by: Literal["memory", "fp32", "tf32", "bf16", "fp16"] = Field(
        default="memory",
        description="what limits the speed of the work; GPUs are compared by their datasheet figure for it",
    )
    like: str | None = Field(
        default=None, description="the lease that has run the same command, for its measured speed"
    )
    host: str | None = Field(
        default=None,
        description="the only machine to accept, even if it is left out elsewhere because it failed before",
    )
    order: Order = Field(
        default=NOTHING_ORDERED, description="what the box must have besides its GPU"
    )
    volumes: tuple[Attachable, ...] = Field(
        default=(), description="the ordered volumes, at every provider that has them"
    )

    @property
    def gpus(self) -> tuple[str, ...]:
        """Every GPU that would do, best first. Empty if any GPU would do."""
        alternatives = self.gpu.split(ALTERNATIVE_SEPARATOR) if self.gpu else ()
        return tuple(name for each in alternatives for name in each.split(VARIANT_SEPARATOR))

    def volumes_at(self, provider: str) -> tuple[Attachable, ...]:
        """Return the ordered volumes that are at that provider."""
        return tuple(volume for volume in self.volumes if volume.provider == provider)

    def reaches_volumes(self, provider: str, region: str) -> bool:
        """Whether a box in that region can have all the ordered volumes that are at that provider."""
        return all(volume.region == region for volume in self.volumes_at(provider))

    def preference(self, gpu: str) -> int | None:
        """Return the rank of the alternative that has this GPU. 0 is the best.

        If the wish accepts any GPU, the rank is always 0. None if no alternative has this GPU.
        """
        if not self.gpu:
            return 0
        alternatives = self.gpu.casefold().split(ALTERNATIVE_SEPARATOR)
        places = (
            n
            for n, each in enumerate(alternatives)
            if gpu.casefold() in each.split(VARIANT_SEPARATOR)
        )
        return next(places, None)


class Price(Record):
    """What one box costs, split by what is charged. None means unknown, never 0."""

    gpu_usd_h: Usd = Field(description="all its GPUs together, while it runs")
    disk_usd_h: Usd = Field(description="the disk of the wish, while it runs")
    parked_usd_h: Usd = Field(
        description="all that it costs while parked; None: it cannot be parked"
    )
    upload_usd_gb: Usd
    download_usd_gb: Usd
    source: Literal["api", "table", "owner"]
    as_of: str | None = Field(default=None, description="the date of a table's rate")
    converted: str | None = Field(
        default=None, description="the sum in the currency that is billed, and its dated rate"
    )

    @property
    def running_usd_h(self) -> Decimal | None:
        """Everything that is billed by the hour while the box runs. None if a part is unknown."""
        if self.gpu_usd_h is None or self.disk_usd_h is None:
            return None
        return (self.gpu_usd_h + self.disk_usd_h).quantize(USD_STEP)

    @property
    def has_free_bytes(self) -> bool:
        """Whether it is known that nothing is charged for bytes, in either direction."""
        return self.upload_usd_gb == 0 and self.download_usd_gb == 0


class Offer(Record):
    """One box that its provider would rent now. It is soon out of date: rent it by its quote."""

    provider: str
    id: str = Field(
        description="what its connector needs to rent exactly this box; it stays the same while the box is offered"
    )
    host: Name | None = Field(
        default=None, description="the machine's number; None: its provider does not say"
    )
    gpu: Name = Field(description="canonical name, or the provider's own name if no table knows it")
    gpu_count: int
    vram_gib: float | None = Field(description="of each GPU")
    region: Name | None
    price: Price
    disk_gb: int
    interruptible: bool
    trust: Literal["unverified", "verified", "datacenter"]
    reliability: float | None = Field(
        description="0 to 1, by the provider's own measure of the host"
    )
    max_hours: float | None = Field(description="how long it can be rented; None: no end is known")
    download_mbps: float | None = Field(description="the box's own link, megabits per second")
    upload_mbps: float | None
    dlperf: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Vast.ai's own score of all its GPUs"
    )
    cpus: float | None = Field(
        default=None, description="CPUs of the box; None: its provider does not say"
    )
    ram_gib: float | None = None
    setup_s: float = Field(description="usual time from the order until the box answers")
    notes: tuple[Line, ...] = Field(default=(), description="what a tenant should know, in words")

    def suits(self, wish: Wish) -> bool:
        """Whether this is the kind of box that the wish asks for. This does not judge the price."""
        return (
            wish.interruptible != ("no" if self.interruptible else "yes")
            and wish.preference(self.gpu) is not None
            and self.gpu_count == wish.gpu_count
            and (self.vram_gib or 0) >= (wish.vram_gib or 0)
            and (wish.region or "").casefold() in (self.region or "").casefold()
            and self.disk_gb >= wish.disk_gb
        )


class Quote(Record):
    """Permission to rent an offer, until `expires_at`, for the hours of the wish, at a price up to the cap."""

    id: str
    offer: Offer
    wish: Wish
    cap_usd_h: Decimal = Field(description="no box above this price is rented or kept")
    expires_at: AwareDatetime
    wish_id: str | None = Field(default=None, description="the id of the recorded wish")


class Leftover(Record):
    """Something that bills although no box of ours uses it, such as a volume, a disk, an address or a snapshot."""

    provider: str
    kind: Literal["volume", "filesystem", "disk", "address", "snapshot"]
    id: Line
    name: Line
    mark: str | None = Field(description="our mark, if it carries one")
    size_gb: float | None
    usd_month: Decimal | None

    @property
    def words(self) -> str:
        """What the leftover is and what it costs, in one sentence."""
        size = "" if self.size_gb is None else f", {self.size_gb:g} GB"
        cost = (
            "at an unknown rate" if self.usd_month is None else f"at {self.usd_month} USD a month"
        )
        thing, name = quote_text(self.id), quote_text(self.name)
        named = thing if self.name in (self.id, "") else f"{name} ({thing})"
        return f"the {self.kind} {named}{size} at {self.provider} continues to bill {cost}"
