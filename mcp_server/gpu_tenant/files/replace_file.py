"""Replaces the content of a file as a whole. Even after a crash, the file has the old or the new content."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

Durable = Literal["none", "file", "directory"]
"""How much of a replacement survives a power cut.

`none`: nothing is sure, not even the content; this costs only work. `file`: the new content is complete, but
the file may be the old one again. `directory`: everything.
"""


def replace_file(
    path: Path,
    content: str | bytes,
    *,
    durable: Durable,
    mode: int = 0o600,
    draft: str | None = None,
) -> None:
    """Write `content` to the file at `path`. If that fails, the file stays as it was. See `replacing`."""
    with replacing(path, durable=durable, mode=mode, draft=draft) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(
    path: Path, *, durable: Durable, mode: int = 0o600, draft: str | None = None
) -> Iterator[BinaryIO]:
    """Replace the content of `path` by what the block writes, when the block has ended without an error.

    After an error, `path` is as it was. The new content is first written to another file in the same directory.
    `draft` is its name; only a caller that is the sole writer of `path` may choose it.
    """
    written = path.with_name(draft or f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if draft else os.O_EXCL)
    safe = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    opened = os.open(written, flags | safe, 0o600)
    try:
        with os.fdopen(opened, "wb") as file:
            yield file
            file.flush()
            if durable != "none":
                os.fsync(file.fileno())
        if mode != 0o600:
            written.chmod(mode)
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    if durable == "directory":
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Flush the names in `directory` to the disk."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
