"""What AutoDL rents as instances Pro, at the prices that the owner states, because its API gives none."""

import re
import tomllib
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, ValidationError

from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.domain.offers import Offer, Price, Wish
from gpu_tenant.domain.record import Record
from gpu_tenant.providers.gpu_catalog import known_gpu

_SPECS = {
    "4090D": ("RTX 4090D", 24),
    "v-48g": ("4090-48G", 48),
    "v-48g-350w": ("3090-48G", 48),
    "v-32g-p": ("4080(S)-32G", 32),
    "5090-p": ("RTX 5090", 32),
    "pro6000-p": ("RTX PRO 6000", 96),
    "h800": ("H800", 80),
}
"""The console's name of each kind of GPU, and its GB, by the API's name. From its API documentation, 2026-08."""
_NEEDS_CUDA_12_8 = ("5090-p", "pro6000-p")
_REGIONS = ("westDC3", "beijingDC2")
"""The regions that accept a create. The other regions are for another product."""
ANYWHERE = "any"
_MOST_GPUS = 4
_DISK_GB = 80
"""30 GB at `/` and 50 GB at /root/autodl-tmp. More is sold, but the API does not give its price."""
_IMAGE, _CUDA_FROM = "base-image-l2t43iu6uk", 118
"""The platform's own image, with PyTorch 2.0, CUDA 11.8 and Python 3.8."""
_SETUP_S = 180
_RATE_COUNTS_FOR = timedelta(days=30)


class AutodlSettings(Record):
    """What config.toml says about AutoDL: `[rates]` and `[autodl]`."""

    cny_usd: Decimal | None = Field(default=None, gt=0, description="USD for one CNY")
    cny_usd_on: date | None = Field(default=None, description="the day of that rate")
    image: str = Field(default=_IMAGE, description="a public or a private image")
    cuda_v_from: int = Field(
        default=_CUDA_FROM, ge=80, description="the oldest driver: 118 is 11.8"
    )
    cny_h: dict[str, Decimal] = Field(default={}, description="an hour of one GPU, by kind")

    def usd(self, cny: Decimal | None) -> Decimal | None:
        """Return the amount in USD. None if the amount or the rate is unknown."""
        return None if cny is None or self.cny_usd is None else cny * self.cny_usd

    def conversion_words(self, cny: Decimal, today: date) -> str | None:
        """Return in words the sum that is really billed, and the exchange rate with its day.

        None if there is no rate.
        """
        if self.cny_usd is None:
            return None
        on = self.cny_usd_on
        if on is None:
            day = "an undated rate: write its day as `cny_usd_on` below `[rates]`"
        elif today - on > _RATE_COUNTS_FOR:
            day = f"the rate of {on}, {(today - on).days} days old: look it up again"
        else:
            day = f"the rate of {on}"
        return f"{cny} CNY/h at {self.cny_usd} USD for 1 CNY, {day}"


def owners_word(configuration: Path, environ: Mapping[str, str]) -> AutodlSettings:
    """Read what the owner states. AUTODL_CNY_USD, AUTODL_CNY_USD_ON and AUTODL_CNY_H (`v-48g=3`) override the file.

    Raises:
        LocalTrouble: the settings cannot be read as prices.
    """
    try:
        # Money is Decimal, so TOML's decimal numbers are not read as floats.
        text = configuration.read_text(encoding="utf-8") if configuration.exists() else ""
        said = tomllib.loads(text, parse_float=Decimal)
        own = {**said.get("autodl", {})}
        rates = said.get("rates", {})
        own["cny_usd"], own["cny_usd_on"] = rates.get("cny_usd"), rates.get("cny_usd_on")
        if environ.get("AUTODL_CNY_USD"):
            # A rate is used with its own day, never with the day of another rate.
            own["cny_usd"] = environ["AUTODL_CNY_USD"]
            own["cny_usd_on"] = environ.get("AUTODL_CNY_USD_ON") or None
        if environ.get("AUTODL_CNY_H"):
            pairs = (pair.partition("=") for pair in environ["AUTODL_CNY_H"].split())
            own["cny_h"] = {spec: price for spec, _, price in pairs}
        return AutodlSettings.model_validate(own)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        problem = f"`{where}`: {error.errors()[0]['msg'].lower()}"
    except (OSError, ValueError, TypeError, AttributeError) as error:
        problem = str(error)
    raise LocalTrouble(
        f"{configuration.name} does not say what AutoDL costs: {problem}",
        remedy="write `[rates]` with `cny_usd = 0.14` and `cny_usd_on = 2026-11-20`, and `[autodl.cny_h]` "
        'with `"v-48g" = 3.0`',
    )


class Ordered(NamedTuple):
    """What an offer's id says should be rented."""

    spec: str
    gpu_count: int
    where: str
    """Regions with `+` between them, or ANYWHERE."""


def order_of(offer_id: str) -> Ordered | None:
    """Parse the id of an offer. None if AutoDL's offers have no such id."""
    told = re.fullmatch(r"(.+):([1-4])@(.+)", offer_id)
    return Ordered(told[1], int(told[2]), told[3]) if told and told[1] in _SPECS else None


def offers(
    wish: Wish, owner: AutodlSettings, held_cny: Decimal | None, *, today: date
) -> list[Offer]:
    """Return an offer for each kind of GPU. Whether a kind is in stock is certain only when a box is created."""
    if wish.offer is not None:
        again = order_of(wish.offer)
        return [] if again is None else [_offer(again, owner, held_cny, today)]
    meant = (wish.region or "").casefold()
    regions = [region for region in _REGIONS if meant in region.casefold()]
    if not regions or wish.gpu_count > _MOST_GPUS:
        return []
    # An order that names no region finds a GPU most often.
    where = "+".join(regions) if meant else ANYWHERE
    found = [
        _offer(Ordered(spec, wish.gpu_count, where), owner, held_cny, today) for spec in _SPECS
    ]
    return [offer for offer in found if offer.suits(wish)]


def _offer(order: Ordered, owner: AutodlSettings, held_cny: Decimal | None, today: date) -> Offer:
    called, vram_gib = _SPECS[order.spec]
    model = known_gpu(called)
    each_cny = owner.cny_h.get(order.spec)
    cny = None if each_cny is None else each_cny * order.gpu_count
    return Offer(
        provider="autodl",
        id=f"{order.spec}:{order.gpu_count}@{order.where}",
        gpu=model.name if model else called,
        gpu_count=order.gpu_count,
        vram_gib=vram_gib,
        region=None if order.where == ANYWHERE else order.where,
        disk_gb=_DISK_GB,
        price=Price(
            gpu_usd_h=owner.usd(cny),
            disk_usd_h=Decimal(0),
            parked_usd_h=Decimal(0),
            upload_usd_gb=Decimal(0),
            download_usd_gb=Decimal(0),
            source="owner",
            converted=None if cny is None else owner.conversion_words(cny, today),
        ),
        interruptible=False,
        trust="datacenter",
        reliability=None,
        max_hours=None,
        download_mbps=None,
        upload_mbps=None,
        setup_s=_SETUP_S,
        notes=tuple(_notes(order, owner, cny, held_cny, today)),
    )


def _notes(
    order: Ordered,
    owner: AutodlSettings,
    cny: Decimal | None,
    held_cny: Decimal | None,
    today: date,
) -> list[str]:
    notes = []
    if cny is None:
        notes.append(
            f'no call tells its price: write the console\'s price as `"{order.spec}" = ...` below `[autodl.cny_h]`'
        )
    elif owner.cny_usd is None:
        notes.append(f"{cny} CNY/h; for the price in USD, state `cny_usd` below `[rates]`")
    if cny is not None and (converted := owner.conversion_words(cny, today)):
        notes.append(converted)
    if cny is not None and owner.cny_usd is not None and held_cny is not None and held_cny < cny:
        notes.append(f"the account holds {held_cny} CNY, and an hour costs {cny}")
    if order.gpu_count > 1:
        notes.append(
            "the price of several GPUs rests on your word alone: its API does not say how many GPUs a price is for"
        )
    if order.spec in _NEEDS_CUDA_12_8 and owner.image == _IMAGE:
        notes.append(
            "the image's PyTorch 2.0 cannot use this GPU: name a newer image below `[autodl]`"
        )
    notes += [
        "whether one is in stock is certain only when a box is created; a stopped box may find no GPU when it starts",
        "30 GB at / and about 50 at /root/autodl-tmp; a box that was stopped for 15 days is released",
    ]
    return notes
