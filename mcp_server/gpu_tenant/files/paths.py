"""File names as text that is safe to show, store and send. The text converts back to the same bytes.

The caretaker writes names in this form: control and direction characters, invisible characters, `%`, and bytes
that are not UTF-8 appear as `%XX`. All other characters are unchanged.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote_to_bytes

from gpu_tenant.domain.errors import BadRequest

_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""The same characters as in the caretaker. If the two escaped names differently, the digests would not match."""
_NOWHERE = frozenset((b"", b".", b".."))
"""No part of a name may be one of these."""
_ROOTS = (b"work", b"root", b"log")
"""The directories for a box's files. Everything else in a kept directory is our own."""


def to_bytes(name: str) -> bytes:
    """Return the bytes that `name` stands for on the box's file system."""
    return unquote_to_bytes(name)


def to_remote(name: str) -> str:
    """Return `name` in the form that a transport takes: text with surrogate escapes."""
    return os.fsdecode(to_bytes(name))


def escape(name: str) -> str:
    """Return a file name with surrogate escapes in the form that is safe to show, store and send."""
    # Escape the percent sign first, because the other escapes contain it.
    return _UNSEEN.sub(
        lambda one: "".join(f"%{byte:02X}" for byte in os.fsencode(one[0])),
        name.replace("%", "%25"),
    )


def is_unseen(text: str) -> bool:
    """Whether the text contains a character that a name of this form never contains."""
    return _UNSEEN.search(text) is not None


def parts_of(name: str) -> tuple[str, ...]:
    """Return the parts of `name`, in the form that this computer's file system takes. No part leads upward.

    Raises:
        ValueError: `name` is absolute or empty, has a part that is `..`, `.` or empty, or contains a NUL.
    """
    return tuple(os.fsdecode(part) for part in _raw_of(name).split(b"/"))


def _raw_of(name: str) -> bytes:
    raw = to_bytes(name)
    if b"\0" in raw or not _NOWHERE.isdisjoint(raw.split(b"/")):
        raise ValueError(f"not a relative name: {name}")
    return raw


def below(root: Path, name: str) -> Path:
    """Return the path of `name` below `root`. It never leads outside of `root`.

    Raises:
        ValueError: `parts_of` refuses the name.
    """
    return root.joinpath(*parts_of(name))


def require_apart(names: Iterable[str]) -> None:
    """Check that all names can be kept below one directory, in `work/`, `root/` or `log/`, without a conflict.

    Raises:
        ValueError: `below` refuses a name, a name occurs twice, or a name is also a directory of another name.
    """
    seen: set[bytes] = set()
    for name in names:
        raw = _raw_of(name)
        if raw.partition(b"/")[0] not in _ROOTS or b"/" not in raw:
            raise ValueError(f"not below work/, root/ or log/: {name}")
        if raw in seen:
            raise ValueError(f"named twice: {name}")
        seen.add(raw)
    directories: set[bytes] = set()
    for raw in seen:
        parent = raw.rpartition(b"/")[0]
        while parent and parent not in directories:
            directories.add(parent)
            parent = parent.rpartition(b"/")[0]
    for both in sorted(directories & seen):
        raise ValueError(f"the same name is a file and a directory: {escape(os.fsdecode(both))}")


def leads_inside(name: str, target: str) -> bool:
    """Whether a link of that name leads to a place inside the first directory of its name.

    Only the text of the link decides this, and `..` is allowed only at its beginning. So a chain of such links
    stays inside as well.
    """
    raw = to_bytes(target)
    parts = [part for part in raw.split(b"/") if part != b"."]
    climbs = next((at for at, part in enumerate(parts) if part != b".."), len(parts))
    is_plain = raw and not raw.startswith(b"/") and b"\0" not in raw and b".." not in parts[climbs:]
    return bool(is_plain) and climbs <= to_bytes(name).count(b"/") - 1


def must_be_named(directory: str) -> str:
    """Return `directory` unchanged.

    Raises:
        BadRequest: it is empty, which would mean the current directory of the command.
    """
    if not directory.strip():
        raise BadRequest("no directory is named", remedy="`.` is the directory that you are in")
    return directory
