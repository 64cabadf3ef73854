"""A server in a host's TOML file, set or removed by changing the server's lines and no others.

The table is added at the end, where nothing can follow that would become part of it. The new text
is read back before it is written, and must mean what was intended.
"""

import json
import re
import tomllib

from gpu_tenant.faces.install.hosts.jsonc_edit import Broken, Json


def read(text: str) -> dict[str, Json]:
    """The value that `text` holds.

    Raises:
        Broken: it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise Broken(re.sub(r" \(at .*\)", "", str(error)).lower(), line) from None


def with_table(text: str, path: tuple[str, str], value: dict[str, Json]) -> str:
    """`text` with `value` as the table at `path`; everything else is as it was.

    Raises:
        Broken: `text` is not TOML, or has the table in a form that is not changed safely.
    """
    outer, inner = path
    meant = read(text)
    holder = meant.setdefault(outer, {})
    if not isinstance(holder, dict):
        raise Broken(f"{outer} is not a table", 1)
    old = holder.get(inner)
    newline = "\r\n" if "\r\n" in text else "\n"
    if isinstance(old, dict):
        after = text
        for key, item in value.items():
            if old.get(key) != item:
                after = _with_line(after, path, f"{key} = {_written(item)}", newline)
        holder[inner] = {**old, **value}
    else:
        lines = [f"[{outer}.{inner}]", *(f"{k} = {_written(v)}" for k, v in value.items())]
        gap = "" if not text else newline if text.endswith("\n") else newline * 2
        after = text + gap + newline.join(lines) + newline
        holder[inner] = value
    return _proved(after, meant)


def without_table(text: str, path: tuple[str, str]) -> str:
    """`text` without the table at `path` and the tables below it.

    Raises:
        Broken: `text` is not TOML, or has the table in a form that is not changed safely.
    """
    outer, inner = path
    meant = read(text)
    holder = meant.get(outer)
    if not isinstance(holder, dict) or inner not in holder:
        return text
    del holder[inner]
    if not holder:
        del meant[outer]
    after = text
    while (block := _block(after, path)) is not None:
        start, end = block
        # The empty line before the table was added with it, so it goes too.
        before = re.sub(r"(\n|^)\r?\n$", r"\1", after[:start])
        after = before + after[end:]
    return _proved(after, meant)


def _block(text: str, path: tuple[str, str]) -> tuple[int, int] | None:
    """The span from the header of the table, or of one below it, to the next header or the end."""
    outer, inner = path
    header = rf"^[ \t]*\[\s*{outer}\s*\.\s*\"?{inner}\"?\s*(?:\.[^\]]*)?\][^\n]*\n?"
    found = re.search(header, text, re.MULTILINE)
    if found is None:
        return None
    following = re.search(r"^[ \t]*\[", text[found.end() :], re.MULTILINE)
    until = found.end() + following.start() if following else len(text)
    # Comments at the end of the block belong to what follows.
    own = re.sub(
        r"(?:^[ \t]*(?:#[^\n]*)?(?:\n|\Z))+\Z", "", text[found.end() : until], flags=re.MULTILINE
    )
    return found.start(), found.end() + len(own)


def _with_line(text: str, path: tuple[str, str], line: str, newline: str) -> str:
    block = _block(text, path)
    if block is None:
        raise Broken(f"{'.'.join(path)} is not written as a table of its own", 1)
    start, end = block
    key = line.split(" = ", maxsplit=1)[0]
    table = text[start:end]
    changed, times = re.subn(
        rf"^[ \t]*{key}[ \t]*=[^\n]*?(\r?)$",
        lambda found: line + found[1],
        table,
        count=1,
        flags=re.MULTILINE,
    )
    if not times:
        header, _, rest = table.partition("\n")
        changed = f"{header.rstrip()}{newline}{line}{newline}{rest}"
    return text[:start] + changed + text[end:]


def _proved(after: str, meant: dict[str, Json]) -> str:
    if read(after) != meant:
        raise Broken("it is written in a way that this program does not change safely", 1)
    return after


def _written(value: Json) -> str:
    # Strings, numbers and lists of them are written alike in JSON and TOML.
    return json.dumps(value, ensure_ascii=False)
