"""Sets or removes a table in an owner's TOML file. Everything else stays as it was, byte for byte.

`tomlkit` makes the change. Before the result is written, another parser reads it, and must find exactly what
was intended.
"""

import re
import tomllib
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array, InlineTable, Table, Whitespace

_UNSAFE = "it is written in a form that this program cannot change safely"
_PLACE = "\0"
"""Marks the place of a table that was removed. No TOML file can contain this character."""
_REMARKS = re.compile(r"(?:^[ \t]*(?:#[^\n]*)?\r?(?:\n|\Z))+\Z", re.MULTILINE)
"""Empty lines and comments at the end of a table. They belong to what comes after the table."""


class TomlError(ValueError):
    """The text is not valid TOML, or cannot be changed safely.

    `line` is the number of the line with the mistake. It is a guess if that line is unknown.
    """

    def __init__(self, words: str, line: int) -> None:
        super().__init__(words)
        self.line = line


def read(text: str) -> dict[str, object]:
    """Parse `text`.

    Raises:
        TomlError: the text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise TomlError(re.sub(r" \(at .*\)", "", str(error)).lower(), line) from None


def with_table(text: str, path: Sequence[str], values: Mapping[str, object]) -> str:
    """Return `text` with `values` set in the table at `path`. All other entries of the table stay.

    Raises:
        TomlError: `text` is not TOML, `path` leads to something that is not a table, or the change is not safe.
    """
    meant = read(text)
    table = meant
    for key in path:
        below = table.setdefault(key, {})
        if not isinstance(below, dict):
            raise TomlError(f"{key} is not a table", 1)
        table = below
    changed = {key: value for key, value in values.items() if table.get(key) != value}
    table.update(values)

    newline = "\r\n" if "\r\n" in text else "\n"
    document = _parse(text)
    found: MutableMapping[str, Any] = document
    missing = list(path)
    while missing and missing[0] in found:
        found = found[missing.pop(0)]
    try:
        if not missing:
            _set(found, changed, newline)
        elif isinstance(found, InlineTable):
            for key in missing:
                found[key] = tomlkit.inline_table()
                found = found[key]
            found.update(values)
        else:
            return _prove(text + _append(text, path, values, newline), meant)
        return _prove(tomlkit.dumps(document), meant)
    except (TOMLKitError, TypeError, ValueError) as error:
        raise TomlError(_UNSAFE, 1) from error


def without_table(text: str, path: tuple[str, str]) -> str:
    """Return `text` without the table at `path` and everything below it. If there is none, return `text` unchanged.

    Raises:
        TomlError: `text` is not TOML, or has the table in a form that cannot be changed safely.
    """
    outer, inner = path
    meant = read(text)
    holder = meant.get(outer)
    if not isinstance(holder, dict) or inner not in holder:
        return text
    del holder[inner]

    document = _parse(text)
    # A table may be written in several parts, with other tables between them.
    for name, item in document.body:
        if name is None or name.key != outer:
            continue
        if isinstance(item, InlineTable):
            del item[inner]
        elif isinstance(item, Table):
            body = item.value.body
            for at, (key, found) in enumerate(body):
                if key is not None and key.key == inner:
                    body[at] = (None, Whitespace(_left_of(found, dotted=key.is_dotted())))
    after = tomlkit.dumps(document)
    # The empty line before the table was added together with the table.
    after = re.sub(rf"(\n|\A)\r?\n{_PLACE}", r"\1", after).replace(_PLACE, "")
    if not holder and outer not in read(after):
        del meant[outer]
    return _prove(after, meant)


def _parse(text: str) -> tomlkit.TOMLDocument:
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise TomlError(_UNSAFE, 1) from error
    if tomlkit.dumps(document) != text:
        raise TomlError(_UNSAFE, 1)
    return document


def _append(text: str, path: Sequence[str], values: Mapping[str, object], newline: str) -> str:
    """Return the table as text to append to `text`. Nothing comes after it that would become part of it."""
    table: Mapping[str, object] = values
    for key in reversed(path):
        table = {key: table}
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    return gap + tomlkit.dumps(table).replace("\n", newline)


def _set(found: MutableMapping[str, Any], values: Mapping[str, object], newline: str) -> None:
    # A new line goes below the table's last line, but above the final comments: they belong to what
    # comes after the table.
    body = found.value.body if isinstance(found, Table) else []
    remarks = []
    while body and body[-1][0] is None:
        remarks.append(body.pop())
    for key, value in values.items():
        old = found.get(key)
        if isinstance(old, Array) and isinstance(value, list):
            _set_items(old, value)
            continue
        new = tomlkit.item(value)
        if old is None:
            new.trivia.trail = newline
        found[key] = new
    body.extend(reversed(remarks))


def _set_items(array: Array, values: Sequence[object]) -> None:
    """Set the items of the array. The comments of the items that stay are kept in their places."""
    for at, value in enumerate(values[: len(array)]):
        if array[at] != value:
            array[at] = value
    del array[len(values) :]
    array.extend(values[len(array) :])


def _left_of(found: object, *, dotted: bool) -> str:
    if dotted or not isinstance(found, Table | AoT):
        return ""
    remarks = _REMARKS.search(found.as_string())
    return _PLACE + (remarks[0] if remarks else "")


def _prove(after: str, meant: dict[str, object]) -> str:
    if read(after) != meant:
        raise TomlError(_UNSAFE, 1)
    return after
