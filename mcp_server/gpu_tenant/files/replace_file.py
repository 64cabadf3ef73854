"""A file gets new content as a whole: a reader, or a crash, meets the old content or the new, and no part of it."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

Durable = Literal["none", "file", "directory"]
"""What a power cut may undo: all of it, which only costs work; the new name, with the old content back; or nothing."""


def replace_file(
    path: Path,
    content: str | bytes,
    *,
    durable: Durable,
    mode: int = 0o600,
    draft: str | None = None,
) -> None:
    """The file at `path` holds `content`. See `replacing`."""
    with replacing(path, durable=durable, mode=mode, draft=draft) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(
    path: Path, *, durable: Durable, mode: int = 0o600, draft: str | None = None
) -> Iterator[BinaryIO]:
    """What is written to the file in the block becomes the content of `path` when the block ends well.

    After an error, `path` is as it was. `draft` is the name of the file that is written first, in the same
    directory. Only a caller who is the one writer of `path` may choose it.
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
    """The names in `directory` are on its storage."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
