"""One fact about a platform, with what it is based on."""

from datetime import date
from typing import Literal

from pydantic import Field

from gpu_tenant.domain.record import Record

Confidence = Literal["live", "docs2", "docs1", "folklore", "unknown"]
"""Seen to be so, stated by two sources, stated by one, hearsay, or unsupported."""


class Fact(Record):
    """What a profile states in one place, and by whose word."""

    place: str = Field(description="dotted, as in `billing.rounding` or `paths[~].survives.park`")
    value: str
    source: str
    checked_on: date
    confidence: Confidence
