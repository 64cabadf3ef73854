"""Selects the parts of a script that one request (verb) needs, and compresses them for sending to a box."""

import re
import zlib
from functools import lru_cache
from pathlib import Path

_HEADING = re.compile(r"^(?=# --- \w+ -+$)", re.MULTILINE)
_NAME = re.compile(r"# --- (\w+) ")
_IMPORTED = re.compile(r"\bfrom box_scripts\.caretaker\.(\w+) import\b")
_BY_HAND = "by_hand"
"""The part that reads command-line flags. Our requests have none, so this part is never sent."""


def pack_script(script: Path, verb: str) -> bytes:
    """Return the script, compressed, with only the parts that the verb needs: a half or a quarter of all."""
    seen = script.stat()
    return _pack(script, verb, seen.st_mtime_ns, seen.st_ino, seen.st_size)


@lru_cache(maxsize=64)
def _pack(script: Path, verb: str, *_version: int) -> bytes:
    return zlib.compress(only_for(verb, script.read_text(encoding="utf-8")).encode(), 9)


def only_for(verb: str, whole: str) -> str:
    """Return the script without the parts that the verb does not import. A script that has no parts stays whole."""
    head, *chunks = _HEADING.split(whole)
    parts = {_NAME.match(chunk)[1]: chunk for chunk in chunks}  # type: ignore[index]
    named = re.search(rf'"{re.escape(verb)}": "(\w+)"', parts.get("verbs", ""))
    if named is None:
        return whole
    needed, asked = set[str](), ["__main__", named[1]]
    while asked:
        part = asked.pop()
        if part not in needed:
            needed.add(part)
            asked += set(_IMPORTED.findall(parts[part])) - {_BY_HAND}
    return head + "".join(chunk for name, chunk in parts.items() if name in needed)
