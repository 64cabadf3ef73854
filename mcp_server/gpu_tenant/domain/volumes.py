"""A named volume: a disk of its own at a provider, which outlives every box that mounts it."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import NewType

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.offers import USD_STEP, Attachable
from gpu_tenant.domain.record import Line, Record, Usd
from gpu_tenant.domain.wording import span

VolumeKey = NewType("VolumeKey", str)
"""Our own id of a volume, such as `vol-abcd`. Its name may be given to another volume after its end."""

MONTH_H = 720
"""The hours of thirty days."""


class VolumeState(StrEnum):
    """The state of a volume. A volume moves down this list only."""

    INTENDED = "intended"
    """Recorded. The volume may or may not exist."""
    ACTIVE = "active"
    """The volume exists, and bills."""
    ENDING = "ending"
    """A person has signed for its end. The destroy was sent, or is about to be."""
    GONE = "gone"
    """We destroyed it, and the provider's list has omitted it twice."""
    VOID = "void"
    """The intent ended without a volume."""
    LOST = "lost"
    """The provider's list has omitted it twice, and we did not destroy it."""

    @property
    def live(self) -> bool:
        """Whether the volume may exist, and bill."""
        return self in (VolumeState.INTENDED, VolumeState.ACTIVE, VolumeState.ENDING)


class ListedVolume(Record):
    """A volume as its provider last showed it."""

    id: str
    name: Line = Field(description="as the provider lists it")
    region: Line
    size_gb: float | None
    usd_month: Usd = Field(description="None: unknown, which is not zero")
    boxes: tuple[str, ...] = Field(
        default=(), description="the ids of the boxes that have it mounted, as the provider says"
    )
    last_use: str | None = Field(
        default=None,
        description="what its provider says of when a box last had it; None: it does not say",
    )
    going: Line | None = Field(
        default=None,
        description="why it goes soon, or with its box, though nobody here ends it; None: it stays",
    )


class Volume(Record):
    """Our record of one volume, from intent to proof of end."""

    key: VolumeKey
    provider: str
    name: str = Field(description="the name by which an order asks for the volume")
    mark: str = Field(description="its name at the provider; no other volume has it")
    region: str = Field(description="the provider's own word for where it is")
    size_gb: int
    state: VolumeState
    volume_id: str | None = Field(description="its id at the provider")
    usd_month: Usd = Field(description="None: unknown, which is not zero")
    created_at: AwareDatetime
    ended_at: AwareDatetime | None
    asked_at_place: str | None = Field(description="at which address the provider was asked for it")
    asked_with_key: str | None = Field(description="a keyed hash of the key, never the key")
    account: str | None = Field(description="whose it is; None: the provider does not say")

    @property
    def words(self) -> str:
        """What it is, where, and what it costs, in a few words."""
        rate = "at an unknown rate" if self.usd_month is None else f"{self.usd_month} USD a month"
        return (
            f"the volume {self.name} ({self.size_gb} GB at {self.provider}, {self.region}), {rate}"
        )

    @property
    def usd_h(self) -> Decimal | None:
        """What it bills an hour. None if that is unknown."""
        return None if self.usd_month is None else (self.usd_month / MONTH_H).quantize(USD_STEP)

    def age(self, now: datetime) -> str:
        """How long it has existed, in words."""
        return span(((self.ended_at or now) - self.created_at).total_seconds())

    def attachable(self, path: str) -> Attachable:
        """Return what a connector has to know to mount it at that path."""
        assert self.volume_id is not None, "an intent is mounted nowhere"
        return Attachable(
            name=self.name,
            provider=self.provider,
            id=self.volume_id,
            mark=self.mark,
            region=self.region,
            size_gb=self.size_gb,
            path=path,
            usd_month=self.usd_month,
        )


def sum_usd_h(volumes: Sequence[Volume]) -> Decimal:
    """Return what these volumes bill an hour together. Volumes with an unknown rate are left out."""
    return sum((v.usd_h for v in volumes if v.usd_h is not None), Decimal(0))
