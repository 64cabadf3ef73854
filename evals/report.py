"""What one part of the evaluation found, and whether it is good enough."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a report; with a `bar`, it must be at least or at most that."""

    name: str
    value: float
    bar: float | None = None
    side: Literal["least", "most"] = "least"

    @property
    def met(self) -> bool:
        """Whether the bar is met; True where there is none."""
        if self.bar is None:
            return True
        return self.value >= self.bar if self.side == "least" else self.value <= self.bar


@dataclass(frozen=True, slots=True)
class Report:
    """One part's figures, what is wrong (each of these fails the part), and what is worth reading."""

    part: str
    figures: Sequence[Figure]
    problems: Sequence[str] = ()
    remarks: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong and every bar is met."""
        return not self.problems and all(figure.met for figure in self.figures)


def shown(value: float) -> str:
    """The number as a person reads it: counts whole, shares with three digits."""
    return str(int(value)) if value == int(value) and abs(value) != 1 else f"{value:.3f}"
