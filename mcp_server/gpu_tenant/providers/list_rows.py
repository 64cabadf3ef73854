"""Reads a provider's list row by row, so that one unreadable row does not hide the others."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from pydantic import ValidationError

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import PartlyListed, ProviderSilent, ProviderTrouble
from gpu_tenant.domain.model import MARK_PREFIX, Box, BoxId, BoxState
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.providers.drift import Drift

_NONSENSE = (ProviderTrouble, ValueError, TypeError, KeyError, AttributeError, ArithmeticError)
"""The errors that reading a malformed row can raise. pydantic's error is a ValueError."""

R = TypeVar("R")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Subject:
    """What an unreadable row still says about which box it describes."""

    id: str | None
    mark: str | None
    mark_is_told: bool
    """Whether `mark` is certain. If not, the row may describe a box with any mark."""

    @classmethod
    def of_row(cls, identity: object, texts: Sequence[object]) -> Self:
        """Find the subject from the field that holds the row's id and all the fields that may hold its mark."""
        has_id = isinstance(identity, str | int) and not isinstance(identity, bool)
        marks = [text for text in texts if isinstance(text, str) and text.startswith(MARK_PREFIX)]
        are_texts = all(text is None or isinstance(text, str) for text in texts)
        return cls(
            str(identity) if has_id and identity != "" else None,
            marks[0] if marks else None,
            mark_is_told=bool(marks) or are_texts,
        )


_MORE = re.compile(r"next|cursor|more|token|contin|has_?rest|last_?key", re.IGNORECASE)
_TOTAL = re.compile(
    r"total(_?(count|results?|items?|rows?))?|count|num_?(results|items)", re.IGNORECASE
)
_DEPTH = 3


def must_be_whole(
    whose: str,
    answer: Mapping[str, object],
    shown: int,
    *,
    known: Collection[str],
    drift: Drift | None = None,
) -> None:
    """Require that nothing beside the rows says that there are more than `shown`. `known` fields are read elsewhere.

    A provider may begin to send its list in pages, in a form that is not known here. Then what this page lacks may be on
    another.

    Raises:
        ProviderSilent: something says that there are more.
    """
    for name, value in _beside(answer, known, _DEPTH):
        counted = isinstance(value, int) and not isinstance(value, bool) and _TOTAL.fullmatch(name)
        if (counted and isinstance(value, int) and value > shown) or (
            not counted and _MORE.search(name) and value not in (None, False, "", 0)
        ):
            if drift is not None:
                drift.note("page", name, answer)
            raise ProviderSilent(
                f"{whose} has more pages than this program can read: it says {quote_text(name)}; nothing can be "
                "concluded from what it lacks",
                remedy=f"look in the provider's console; {Command('leases')} looks again",
            )


def _beside(
    answer: Mapping[str, object], known: Collection[str], depth: int
) -> Iterator[tuple[str, object]]:
    for name, value in answer.items():
        if name in known or isinstance(value, list):
            continue
        if not isinstance(value, dict):
            yield name, value
        elif depth:
            yield from _beside(value, known, depth - 1)


def in_fields(identity: str, mark: str) -> Callable[[Mapping[str, object]], Subject]:
    """Return a function that reads a row's subject from the fields of those names."""
    return lambda row: Subject.of_row(row.get(identity), [row.get(mark)])


def try_read(read: Callable[[R], A], row: R) -> A | Exception:
    """Return the result of reading that row, or the error if it cannot be read."""
    try:
        return read(row)
    except _NONSENSE as error:
        return error


def read_each(
    provider: str,
    rows: Iterable[R],
    read: Callable[[R], Box],
    subject: Callable[[R], Subject],
    drift: Drift,
) -> Sequence[Box]:
    """Return the box of every row. An unreadable row whose id can be read becomes a box of unknown state and price.

    The form of a row that is not understood as a whole is kept as `drift`.

    Raises:
        PartlyListed: an unreadable row does not say for certain which box, or which mark, it is about. The error
            carries every box that could be read.
    """
    boxes: list[Box] = []
    nameless = 0
    for row in rows:
        box = try_read(read, row)
        if isinstance(box, Box):
            boxes.append(box)
            drift.look_at_box(box, row)
            continue
        drift.note("row", _why(box) or type(box).__name__, row)
        about = try_read(subject, row)
        if isinstance(about, Exception):
            about = Subject(None, None, mark_is_told=False)
        if about.id:
            boxes.append(_unknown(provider, about.id, about.mark, box))
        # Counted although its box is listed: if its mark is unknown, it may be any lease's box.
        nameless += not (about.id and about.mark_is_told)
    if nameless:
        raise PartlyListed(
            f"{provider}'s list has {nameless} of {nameless + len(boxes)} rows that cannot be read; "
            "a box that the rest of the list lacks may be in one of them",
            remedy="look in the provider's console, and try again in a minute",
            shown=boxes,
        )
    return boxes


def _why(error: Exception) -> str:
    if isinstance(error, ProviderTrouble):
        return quote_text(error.message)
    if isinstance(error, ValidationError):
        # Names the field that is wrong, and never its value, because a row may hold a secret.
        first = error.errors(include_input=False, include_context=False)[0]
        return quote_text(".".join(str(part) for part in first["loc"]))
    return ""


def _unknown(provider: str, box_id: str, mark: str | None, error: Exception) -> Box:
    why = _why(error)
    return Box(
        provider=provider,
        id=BoxId(box_id),
        mark=mark,
        state=BoxState.UNKNOWN,
        address=None,
        price_usd_h=None,
        words=f"the box's row in the provider's list cannot be read{(f': {why}' if why else '')}",
    )
