"""Reads a provider's list row by row, so that one unreadable row does not hide the others."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from pydantic import ValidationError

from gpu_tenant.domain.errors import PartlyListed, ProviderTrouble
from gpu_tenant.domain.model import MARK_PREFIX, Box, BoxId, BoxState
from gpu_tenant.domain.untrusted_text import quote_text

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
    provider: str, rows: Iterable[R], read: Callable[[R], Box], subject: Callable[[R], Subject]
) -> Sequence[Box]:
    """Return the box of every row. An unreadable row whose id can be read becomes a box of unknown state and price.

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
            continue
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


def _unknown(provider: str, box_id: str, mark: str | None, error: Exception) -> Box:
    why = ""
    if isinstance(error, ProviderTrouble):
        why = quote_text(error.message)
    elif isinstance(error, ValidationError):
        # Names the field that is wrong, and never its value, because a row may hold a secret.
        first = error.errors(include_input=False, include_context=False)[0]
        why = quote_text(".".join(str(part) for part in first["loc"]))
    return Box(
        provider=provider,
        id=BoxId(box_id),
        mark=mark,
        state=BoxState.UNKNOWN,
        address=None,
        price_usd_h=None,
        words=f"the box's row in the provider's list cannot be read{(f': {why}' if why else '')}",
    )
