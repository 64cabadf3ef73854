"""Keeps what a provider answers and its connector does not know, in a form that a person can send to a maintainer.

Of an answer only its form is kept: the names of its fields, its prices, and its words for a state. Every other text and
number is replaced by what it is, so no key, name, address or id is in it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import AwareDatetime, Field, JsonValue, ValidationError

from gpu_tenant.domain.model import Box, BoxState
from gpu_tenant.domain.ports import Setting
from gpu_tenant.domain.record import Record
from gpu_tenant.files.replace_file import replace_file

Kind = Literal["field", "form", "state", "page", "price", "row"]
Forms: TypeAlias = Mapping[str, str]

_MOST = 40
"""So many things are kept of one provider. What comes after them is dropped."""
_MOST_BYTES = 16 << 10
"""A kept answer is at most so large."""
_DEPTH = 8
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,59}")
_STATE = re.compile(r"(^|_)(status|state)$", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z][A-Za-z_ -]{0,39}")
_PRICE = re.compile(
    r"price|cost|usd|dph|hourly|_bid$|totalhour|perhour|amount|balance", re.IGNORECASE
)
_PART = re.compile(r"[a-z][a-z-]*|v\d")
_WORDS = {
    "field": "a field that is not known: {}",
    "form": "{} in another form",
    "state": "a state that is not known: {}",
    "page": "a list that goes on in a way that is not known: {}",
    "price": "no price for what runs: {}",
    "row": "a row that cannot be read: {}",
}


class Drifted(Record):
    """One thing that a provider answered and that its connector does not know."""

    kind: Kind
    what: str = Field(description="the field or the state")
    where: str = Field(description="the call, without ids")
    first_seen_at: AwareDatetime
    answer: JsonValue = Field(description="the form of the answer, without texts and ids")

    @property
    def words(self) -> str:
        """Say in a few words what is not known."""
        return _WORDS[self.kind].format(self.what)


class DriftFile(Record):
    """What one provider answered and its connector does not know, as it is on disk."""

    provider: str
    seen: tuple[Drifted, ...] = ()


def drift_directory(state: Path) -> Path:
    """Return the directory with one file for each provider."""
    return state / "drift"


def read_drift(state: Path) -> tuple[DriftFile, ...]:
    """Return what was kept of every provider. A file that cannot be read is left out."""
    found: list[DriftFile] = []
    for file in sorted(drift_directory(state).glob("*.json")):
        with suppress(OSError, ValidationError):
            found.append(DriftFile.model_validate_json(file.read_bytes()))
    return tuple(found)


class Drift:
    """Looks at the answers of one provider, and keeps the form of those that its connector does not know."""

    def __init__(self, setting: Setting) -> None:
        self._profile = setting.profile
        self._provider = setting.profile.id
        self._file = drift_directory(setting.state) / f"{self._provider}.json"
        self._clock = setting.clock
        self._known = known_fields(self._provider)
        self._told: set[tuple[Kind, str]] = set()

    def look(self, method: str, path: str, text: str) -> None:
        """Keep the fields of an answer that are not known, or that have another form than documented."""
        if not self._known:
            return
        try:
            answer: JsonValue = json.loads(text)
        except (ValueError, RecursionError):
            return
        for kind, name in _unknown(answer, self._known, _DEPTH):
            self.note(kind, name, answer, where=f"{method} {without_ids(path)}")

    def look_at_box(self, box: Box, row: object) -> None:
        """Keep the form of a row whose state is not known, or of a running box of ours without a price."""
        if box.state is BoxState.UNKNOWN:
            said = _state_words(row)
            # Of some words the profile itself says that they tell nothing.
            if not any(word in self._profile.states for word in said.values()):
                self.note("state", ", ".join(f"{k} {v}" for k, v in said.items()) or "none", row)
        elif (
            box.state is BoxState.READY
            and box.price_usd_h is None
            and box.mark is not None
            and self._profile.price_source == "api"
        ):
            self.note("price", "a running box", row)

    def note(self, kind: Kind, what: str, answer: object, *, where: str = "the list") -> None:
        """Keep the form of that answer, unless the same thing was kept before. This never fails."""
        if (kind, what) in self._told or len(self._told) >= _MOST:
            return
        self._told.add((kind, what))
        # What cannot be kept must not keep anybody from the answer itself.
        with suppress(OSError, ValueError, TypeError, RecursionError):
            seen = self._kept()
            if len(seen) >= _MOST or any((x.kind, x.what) == (kind, what) for x in seen):
                return
            drifted = Drifted(
                kind=kind,
                what=what,
                where=where,
                first_seen_at=self._clock.now(),
                answer=_within(form_of(json.loads(json.dumps(answer, default=str)))),
            )
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            whole = DriftFile(provider=self._provider, seen=(*seen, drifted))
            replace_file(self._file, whole.model_dump_json(indent=1), durable="none")

    def _kept(self) -> tuple[Drifted, ...]:
        try:
            return DriftFile.model_validate_json(self._file.read_bytes()).seen
        except (OSError, ValidationError):
            return ()


@cache
def known_fields(provider: str) -> Forms:
    """Return the fields that the provider's documents and its connector name, with their forms.

    A form is one letter for each kind of value: `n`umber, `t`ext, `b`oolean, `l`ist, `o`bject; empty if any will do; and
    `*` for an object whose fields have names of the account's own. Empty if the fields of that provider are not known.
    """
    file = Path(__file__).parent / provider / "fields.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def _unknown(value: JsonValue, known: Forms, depth: int) -> Iterator[tuple[Kind, str]]:
    if depth == 0:
        return
    if isinstance(value, list):
        for item in value:
            yield from _unknown(item, known, depth - 1)
    if not isinstance(value, dict):
        return
    for name, inner in value.items():
        forms = known.get(name)
        if forms is None:
            # Its own fields are not looked at: their names could be a person's words.
            yield "field", _safe_name(name)
        elif forms and inner is not None and "*" not in forms and _letter(inner) not in forms:
            yield "form", f"{name} ({form_words(inner)})"
        elif "*" not in (forms or ""):
            yield from _unknown(inner, known, depth - 1)
        elif isinstance(inner, dict | list):
            for each in inner.values() if isinstance(inner, dict) else inner:
                yield from _unknown(each, known, depth - 1)


def _letter(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "b"
    if isinstance(value, int | float):
        return "n"
    if isinstance(value, str):
        return "t"
    if isinstance(value, list):
        return "l"
    return "o" if isinstance(value, dict) else ""


def form_words(value: JsonValue) -> str:
    """Say what kind of value that is."""
    return {"b": "a boolean", "n": "a number", "t": "a text", "l": "a list", "o": "an object"}.get(
        _letter(value), "nothing"
    )


def form_of(value: JsonValue, name: str = "") -> JsonValue:
    """Return the same structure without what it says: only prices, and words for a state, stay. Of a list, one row."""
    match value:
        case dict():
            if name and not _NAME.fullmatch(name):
                return "an object"
            return {_safe_name(key): form_of(inner, key) for key, inner in value.items()}
        case list():
            return [form_of(value[0], name)] if value else []
        case str() if _STATE.search(name) and _WORD.fullmatch(value):
            return value
        case int() | float() if not isinstance(value, bool) and _PRICE.search(name):
            return value
        case None | bool():
            return value
        case _:
            return form_words(value)


_PERSONAL = re.compile(
    r"[\w.+-]+@[\w-]+(\.[\w-]+)*"  # an address for mail, or user@host
    r"|\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b"
    r"|(?<![\w/])(/[\w.~-]+){2,}"  # a path
    r"|\b(?=\w*\d)(?=\w*[A-Za-z])[\w-]{10,}\b"  # an id or a key
    r"|\b\d{6,}\b"
)


def without_names(text: str) -> str:
    """Return that sentence without what could name an account, a person or a box."""
    return _PERSONAL.sub("(left out)", text)


def without_ids(path: str) -> str:
    """Return the path of a call without ids and names."""
    parts = path.split("?")[0].strip("/").split("/")
    return "/" + "/".join(part if _PART.fullmatch(part) else "ID" for part in parts)


def _state_words(row: object) -> dict[str, str]:
    """Return the row's own words for its state."""
    fields = row if isinstance(row, Mapping) else {"state": getattr(row, "state", None)}
    return {
        str(name): value
        for name, value in fields.items()
        if _STATE.search(str(name)) and isinstance(value, str) and _WORD.fullmatch(value)
    }


def _safe_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else f"a name of {len(name)} characters"


def _within(form: JsonValue) -> JsonValue:
    if len(json.dumps(form)) <= _MOST_BYTES:
        return form
    return (
        {key: form_words(inner) for key, inner in list(form.items())[:200]}
        if isinstance(form, dict)
        else form_words(form)
    )
