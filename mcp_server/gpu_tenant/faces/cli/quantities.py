"""The types of values for options: money, numbers and lengths of time, each within sensible bounds."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import click

_UNIT_H = {"": 1.0, "m": 1 / 60, "min": 1 / 60, "h": 1.0, "d": 24.0}
_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)")
_YEAR_H = 8760.0


class _Usd(click.ParamType[Decimal]):
    name = "usd"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Decimal:
        from gpu_tenant.domain.record import amount

        try:
            return amount(Decimal(str(value)))
        except InvalidOperation:
            self.fail(f"{value!r} is not an amount of money", param, ctx)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class Number(click.FloatRange):
    """A finite number in a range. Click's own type would accept `nan`."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class Hours(click.ParamType[float]):
    """A length of time in hours, at most a year: `2`, `2h`, `90m`, `1d`."""

    name = "hours"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        read = _TIME.fullmatch(str(value).strip().casefold())
        if read is None or read.group(2) not in _UNIT_H:
            self.fail(
                f"{value!r} is not a length of time: write `2h`, `90m`, `1d`, or a number of hours",
                param,
                ctx,
            )
        hours = float(read.group(1)) * _UNIT_H[read.group(2)]
        if hours > _YEAR_H:
            self.fail(f"{value!r} is more than a year", param, ctx)
        if hours == 0 and not self._zero:
            self.fail(f"{value!r}: it must be more than 0", param, ctx)
        return hours


class _OnFailure(click.ParamType[str]):
    name = "words"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        from gpu_tenant.domain.terms import OnFailure

        try:
            return OnFailure.parse(str(value)).words
        except ValueError as error:
            self.fail(str(error), param, ctx)


USD = _Usd()
ON_FAILURE = _OnFailure()
"""What happens to a box whose job failed, as in `end after 15m` or `keep`."""
HOURS = Hours()
HOURS_OR_NONE = Hours(zero=True)
"""Hours, of which 0 means never."""
GIB = Number(min=0, min_open=True, max=1e6)
"""GiB of memory or disk."""
GB_MOVED = Number(min=0, max=1e6)
