"""Sets or removes our lines in a person's crontab, and leaves every other byte as it is."""

import os
import re
import shutil
import subprocess

from gpu_tenant.domain.errors import Refused

_NONE = re.compile(rb"no crontab for|can't open '[^']*': No such file", re.IGNORECASE)
"""The messages of crontab programs if there is no crontab yet. Any other message is an error."""


def program() -> str | None:
    """Return the path of the program that reads and writes crontabs on this computer. None if there is none."""
    return shutil.which("crontab")


def read() -> bytes | None:
    """Read the user's crontab. None if this user has none.

    Raises:
        Refused: the crontab cannot be read.
    """
    ran = _crontab("-l")
    if ran.returncode == 0:
        return ran.stdout
    if _NONE.search(ran.stderr):
        return None
    raise _refusal("read", ran.stderr)


def write(table: bytes | None) -> None:
    """Make `table` this user's crontab. If it is None, remove the user's crontab.

    Raises:
        Refused: the crontab program did not accept it.
    """
    ran = _crontab("-r") if table is None else _crontab("-", table)
    if ran.returncode:
        raise _refusal("written", ran.stderr)


def with_lines(table: bytes, name: str, lines: str) -> bytes:
    """Return the table with our lines in their old place. If they are new, they are put at the top.

    Variables that a person sets further down do not affect lines at the top.

    Raises:
        Refused: the marks around our lines are no longer as they were written.
    """
    begins, ends = _marks(name)
    ours = b"%s\n%s\n%s\n" % (begins, lines.encode(), ends)
    start, end = _span(table, name)
    return table[:start] + ours + table[end:]


def without_lines(table: bytes, name: str) -> bytes:
    """Return the table without our lines.

    Raises:
        Refused: the marks around our lines are no longer as they were written.
    """
    start, end = _span(table, name)
    return table[:start] + table[end:]


def _marks(name: str) -> tuple[bytes, bytes]:
    begins = f"# >>> {name}: `gpu-tenant install watchdog --remove` takes these lines back >>>"
    return begins.encode(), f"# <<< {name} <<<".encode()


def _span(table: bytes, name: str) -> tuple[int, int]:
    """Return the start and the end of our lines in the table. Both are 0 if there are no such lines."""
    begins, ends = _marks(name)
    starts = [found.start() for found in re.finditer(rb"(?m)^%s$" % re.escape(begins), table)]
    stops = [found.end() for found in re.finditer(rb"(?m)^%s(\n|\Z)" % re.escape(ends), table)]
    if not starts and not stops:
        return 0, 0
    if len(starts) != 1 or len(stops) != 1 or stops[0] < starts[0]:
        raise Refused(
            "the marks around our lines in your crontab are no longer as they were written",
            remedy=f"remove the lines of {name} by hand (`crontab -e`), then run the same command again",
        )
    return starts[0], stops[0]


def _crontab(way: str, table: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["crontab", way],
            input=table,
            capture_output=True,
            check=False,
            timeout=60,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refusal("read or written", str(error).encode()) from None


def _refusal(done: str, words: bytes) -> Refused:
    said = " ".join(words.decode(errors="replace").split())[:200] or "nothing"
    return Refused(
        f"your crontab cannot be {done}; `crontab` says: {said}",
        remedy="correct that, or run `gpu-tenant watchdog` yourself, in tmux for instance",
    )
