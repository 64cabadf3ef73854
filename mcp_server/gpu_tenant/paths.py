"""File names as text that is safe to show, store and send, and that turns back into the same bytes.

The caretaker writes names in this form: control and direction characters, `%`, and bytes that are
not UTF-8 appear as `%XX`; everything else is itself.
"""

import os
from pathlib import Path
from urllib.parse import unquote_to_bytes


def to_bytes(name: str) -> bytes:
    """The bytes that `name` stands for on the box's file system."""
    return unquote_to_bytes(name)


def to_remote(name: str) -> str:
    """`name` as a transport takes it: surrogateescape text."""
    return os.fsdecode(to_bytes(name))


def escape(name: str) -> str:
    """A surrogateescape file name in the form that is safe to show, store and send."""
    return "".join(
        c
        if c != "%" and (c == " " or c.isprintable()) and not "\ud800" <= c <= "\udfff"
        else "".join(f"%{byte:02X}" for byte in os.fsencode(c))
        for c in name
    )


def below(root: Path, name: str) -> Path:
    """Where `name` lies below `root`; never outside of it.

    Raises:
        ValueError: `name` is absolute, empty, or has a `..`, `.` or empty part, or a NUL.
    """
    raw = to_bytes(name)
    parts = raw.split(b"/")
    if b"\0" in raw or any(part in (b"", b".", b"..") for part in parts):
        raise ValueError(f"not a relative name: {name}")
    return root.joinpath(*(os.fsdecode(part) for part in parts))
