"""The verdict on the work of a lease. It is about what a job made, and keeps no box: see `leases/verify.py` for loss."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from gpu_tenant.domain.record import Record

Grade = Literal["done", "suspect", "incomplete", "failed"]
"""`incomplete`: something that should be there is not. `suspect`: something that is there is probably not right."""

_WORST_FIRST: tuple[Grade, ...] = ("failed", "incomplete", "suspect")


class Doubt(NamedTuple):
    """One reason why the work is not simply done."""

    grade: Literal["suspect", "incomplete", "failed"]
    words: str


class Outcome(Record):
    """Whether the work is done, and if it is not, why. The worst reason comes first, and decides."""

    grade: Grade
    reasons: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The verdict and its reasons, in one line."""
        return f"{self.grade}: {'; '.join(self.reasons)}" if self.reasons else self.grade


def outcome_from(doubts: Iterable[Doubt]) -> Outcome:
    """Return the outcome of work about which there are these doubts."""
    ranked = sorted(dict.fromkeys(doubts), key=lambda doubt: _WORST_FIRST.index(doubt.grade))
    return Outcome(
        grade=ranked[0].grade if ranked else "done", reasons=tuple(doubt.words for doubt in ranked)
    )
