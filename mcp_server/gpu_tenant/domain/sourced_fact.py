"""One fact about a platform, with its source."""

from datetime import date
from typing import Literal

from pydantic import Field

from gpu_tenant.domain.record import Record

Confidence = Literal["live", "docs2", "docs1", "folklore", "unknown"]
"""The support for a fact: seen in practice, stated by two sources, stated by one source, hearsay, or none."""


class Fact(Record):
    """A fact in a profile, and who says so."""

    place: str = Field(description="dotted, as in `billing.rounding` or `paths[~].survives.park`")
    value: str
    source: str
    checked_on: date
    confidence: Confidence
