"""The types for what an audit finds, and for what a job needs."""

from typing import Literal

from pydantic import Field

from gpu_tenant.box.audit.probe import GIB, ProbePart
from gpu_tenant.domain.record import Line, Record
from gpu_tenant.domain.untrusted_text import quote_text

CARD_ROUNDING = 0.96
"""This share of the needed memory is enough: a card sold as 80 GB shows 79.6 GiB."""

Level = Literal["ok", "warning", "blocker"]


class Finding(Record):
    """One thing that the audit looked at: what was seen, and why that is good or bad.

    Each text is one plain line, even if names on the box are not. A name from the box is in quotation marks
    where it could be taken for a sentence of ours.
    """

    subject: Line
    level: Level
    seen: Line
    reason: Line


class Needs(Record):
    """What a job needs of a box. None means no demand."""

    gpu_count: int | None = Field(default=None, ge=0)
    vram_gib: float | None = Field(default=None, gt=0, description="free memory of each GPU")
    disk_gib: float | None = Field(default=None, gt=0, description="free where the job runs")
    ram_gib: float | None = Field(default=None, gt=0)
    shm_gib: float | None = Field(default=None, gt=0, description="shared memory")
    python: str | None = Field(
        default=None,
        pattern=r"^\d+\.\d+$",
        description="the lowest version of Python, such as 3.10",
    )
    cuda: str | None = Field(
        default=None,
        pattern=r"^\d+\.\d+$",
        description="the lowest CUDA version that the driver must run, such as 12.4",
    )


class Rented(Record):
    """The GPUs that were rented with the box, as the offer describes them."""

    gpu: str
    count: int
    vram_gib: float | None


def ok(subject: str, seen: str) -> Finding:
    """Make a finding that all is well."""
    return Finding(subject=subject, level="ok", seen=seen, reason="as it should be")


def warning(subject: str, seen: str, reason: str) -> Finding:
    """Make a finding about a problem that does not prevent a launch."""
    return Finding(subject=subject, level="warning", seen=seen, reason=reason)


def blocker(subject: str, seen: str, reason: str) -> Finding:
    """Make a finding about a problem so bad that the job should not be launched on this box."""
    return Finding(subject=subject, level="blocker", seen=seen, reason=reason)


def no_answer(subject: str, seen: ProbePart) -> Finding:
    """Make the finding for a part of the box about which the probe could learn nothing."""
    return warning(
        subject,
        f"not seen: {quote_text(seen.error) if seen.error else 'the probe said nothing'}",
        "unknown does not mean good: look yourself",
    )


def gib(size_bytes: int) -> float:
    """Return the size in GiB."""
    return size_bytes / GIB
