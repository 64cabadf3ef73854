"""Replaces the content of a file as a whole: readers and crashes find the old content or the new, never a part."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

Durable = Literal["none", "file", "directory"]
"""How durable a replacement is, which says what a power cut may undo.

`none`: everything, even the content, which only costs work. `file`: only the renaming, so that the old content is
back. `directory`: nothing.
"""


def replace_file(
    path: Path,
    content: str | bytes,
    *,
    durable: Durable,
    mode: int = 0o600,
    draft: str | None = None,
) -> None:
    """Write all of `content` to the file at `path`. If that fails, the file stays as it was. See `replacing`."""
    with replacing(path, durable=durable, mode=mode, draft=draft) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(
    path: Path, *, durable: Durable, mode: int = 0o600, draft: str | None = None
) -> Iterator[BinaryIO]:
    """Replace the content of `path` by what the block writes, when the block ends without an error.

    After an error, `path` is as it was. `draft` is the name of the file that is written first, in the same directory.
    Only a caller that is the one writer of `path` may choose this name.
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
    """Flush the names in `directory` to its storage."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
