"""Sets or removes a server in a host's JSON file. Only the text of this server is changed.

Comments and trailing commas, which some hosts allow, stay where they are. The new text is parsed before it is
written, and must have the intended value.
"""

import json
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from gpu_tenant.files.toml_edit import TomlError

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_REST_OF_THE_LINE = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\n]*?\*/[ \t]*)(?=\r?\n)")
_SCALAR = re.compile(r'"(?:[^"\\\n]|\\.)*"|-?\d[\d.eE+-]*|true|false|null')


class _Member(NamedTuple):
    key: str
    start: int
    value: "_Node"


@dataclass(slots=True)
class _Node:
    start: int
    end: int
    value: Json
    members: list[_Member] = field(default_factory=list)

    def of(self, key: str) -> _Member | None:
        return next((m for m in self.members if m.key == key), None)


def read(text: str) -> Json:
    """Return the JSON value of `text`.

    Raises:
        Broken: the text is not JSON, even with comments allowed.
    """
    return _whole(text).value


def with_member(text: str, path: tuple[str, str], value: Json) -> str:
    """Return `text` with `value` at the two keys `path`. Everything else is unchanged.

    Raises:
        Broken: `text` is not an object of objects along `path`.
    """
    outer, inner = path
    root = _object(text, _whole(text))
    holder = root.of(outer)
    if holder is None:
        after = _insert(text, root, outer, {inner: value}, depth=1)
    else:
        within = _object(text, holder.value)
        old = within.of(inner)
        if old is None:
            after = _insert(text, within, inner, value, depth=2)
        else:
            new = _write(value, _step(text, root), depth=2)
            after = text[: old.value.start] + new + text[old.value.end :]
    meant = _object_of(root.value)
    meant[outer] = {**_object_of(meant.get(outer)), inner: value}
    return _prove(after, meant)


def without_member(text: str, path: tuple[str, str], *, keep: tuple[str, ...] = ()) -> str:
    """Return `text` without the value at the two keys `path`.

    If the object that contained it is empty then, this object is removed, too, unless `keep` names it.

    Raises:
        Broken: `text` is not an object of objects along `path`.
    """
    outer, inner = path
    root = _object(text, _whole(text))
    holder = root.of(outer)
    if holder is None or (old := _object(text, holder.value).of(inner)) is None:
        return text
    meant = _object_of(root.value)
    rest = {k: v for k, v in _object_of(meant[outer]).items() if k != inner}
    if rest or outer in keep:
        meant[outer] = rest
        return _prove(_remove(text, holder.value, old), meant)
    del meant[outer]
    return _prove(_remove(text, root, holder), meant)


def _object_of(value: Json) -> dict[str, Json]:
    return dict(value) if isinstance(value, dict) else {}


def _prove(after: str, meant: dict[str, Json]) -> str:
    if read(after) != meant:
        raise TomlError("it is written in a form that this program cannot change safely", 1)
    return after


def _insert(text: str, holder: _Node, key: str, value: Json, *, depth: int) -> str:
    step = _step(text, holder)
    newline = "\r\n" if "\r\n" in text else "\n"
    flat = holder.members and "\n" not in text[holder.start : holder.end]
    new = f"{json.dumps(key)}: " + (
        json.dumps(value, ensure_ascii=False) if flat else _write(value, step, depth=depth)
    )
    new = new.replace("\n", newline)
    before = " " if flat else newline + step * depth
    if not holder.members:
        inside = text[holder.start + 1 : holder.end - 1]
        closing = newline + step * (depth - 1) if not inside.strip(" \t\r\n") else ""
        kept = inside if inside.strip(" \t\r\n") else ""
        opened = text[: holder.start + 1]
        return f"{opened}{before}{new}{kept}{closing}{text[holder.end - 1 :]}"
    last = holder.members[-1].value.end
    comma = _space(text, last)
    # If there was a trailing comma, there is one after the new member, too.
    trailing = text[comma] == ","
    last = comma + 1 if trailing else last
    remark = _REST_OF_THE_LINE.match(text, last)
    rest = remark.end() if remark else last
    between = text[last:rest] if trailing else f",{text[last:rest]}"
    return f"{text[:last]}{between}{before}{new}{',' if trailing else ''}{text[rest:]}"


def _remove(text: str, holder: _Node, old: _Member) -> str:
    at = holder.members.index(old)
    start, end = old.start, old.value.end
    comma = _space(text, end)
    if text[comma] == ",":
        end = comma + 1
    elif at:
        previous = _space(text, holder.members[at - 1].value.end)
        text = text[:previous] + text[previous + 1 :]
        start, end = start - 1, end - 1
    while text[start - 1] in " \t\r\n":
        start -= 1
    text = text[:start] + text[end:]
    if len(holder.members) == 1:
        close = _space(text, holder.start + 1)
        if text[close] == "}" and not text[holder.start + 1 : close].strip():
            text = text[: holder.start + 1] + text[close:]
    return text


def _step(text: str, holder: _Node) -> str:
    """Return the indentation that this text uses."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "


def _write(value: Json, step: str, *, depth: int) -> str:
    lines = json.dumps(value, indent=step, ensure_ascii=False).split("\n")
    return ("\n" + step * depth).join(lines)


def _object(text: str, node: _Node) -> _Node:
    if not isinstance(node.value, dict):
        raise TomlError("an object was expected here", _line(text, node.start))
    if len(node.members) != len(node.value):
        raise TomlError("one of its names is there twice", _line(text, node.start))
    return node


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _whole(text: str) -> _Node:
    start = _space(text, 0)
    node = _parse(text, start)
    end = _space(text, node.end)
    if end != len(text):
        raise TomlError("something follows its end", _line(text, end))
    return node


def _parse(text: str, at: int) -> _Node:
    opening = text[at : at + 1]
    if opening not in ("{", "["):
        scalar = _SCALAR.match(text, at)
        if scalar is None:
            raise TomlError("a value was expected here", _line(text, at))
        try:
            return _Node(at, scalar.end(), json.loads(scalar[0]))
        except ValueError as error:
            raise TomlError(str(error), _line(text, at)) from None
    closing = {"{": "}", "[": "]"}[opening]
    members: list[_Member] = []
    items: list[_Node] = []
    place = _space(text, at + 1)
    while text[place : place + 1] != closing:
        start, key = place, ""
        if opening == "{":
            name = _parse(text, place)
            if not isinstance(name.value, str):
                raise TomlError("a name in quotes was expected here", _line(text, place))
            key = name.value
            place = _space(text, name.end)
            if text[place : place + 1] != ":":
                raise TomlError("a colon was expected here", _line(text, place))
            place = _space(text, place + 1)
        item = _parse(text, place)
        items.append(item)
        members.append(_Member(key, start, item))
        place = _space(text, item.end)
        if text[place : place + 1] == ",":
            place = _space(text, place + 1)
        elif text[place : place + 1] != closing:
            raise TomlError(f"a comma or {closing} was expected here", _line(text, place))
    if opening == "[":
        return _Node(at, place + 1, [item.value for item in items])
    return _Node(at, place + 1, {m.key: m.value.value for m in members}, members)
