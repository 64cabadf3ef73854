"""Reads small files of a stranger's tree: only regular files, only up to a bound, and never through a link."""

import os
import stat
from pathlib import Path
from typing import Literal


class TooLarge(Exception):
    """The file is larger than its reader takes."""


def read_small(
    path: Path, most_bytes: int, *, links: Literal["refused", "followed"] = "refused"
) -> bytes | None:
    """Return the content of the file. None if there is no regular file, or if it cannot be read.

    A link is followed only if its reader says so. A pipe or a device never makes this wait.

    Raises:
        TooLarge: it has more than `most_bytes`.
    """
    flags = (
        os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links == "followed" else os.O_NOFOLLOW)
    )
    try:
        opened = os.open(path, flags)
    except (OSError, ValueError):
        return None
    with os.fdopen(opened, "rb") as file:
        try:
            seen = os.fstat(opened)
            if not stat.S_ISREG(seen.st_mode):
                return None
            content = file.read(most_bytes + 1) if seen.st_size <= most_bytes else b""
        except OSError:
            return None
    if seen.st_size > most_bytes or len(content) > most_bytes:
        raise TooLarge(path)
    return content
