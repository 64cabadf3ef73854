"""Finds out whether a job's log misses a file that the push left on this computer.

A log cannot be trusted. So only names from our own list of such files are returned.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpu_tenant.domain.untrusted_text import plain

_LINES, _LINE_CHARS = 60, 1000
"""How many lines at the end of the log are read, and how many characters of each."""
_MOST = 5
"""At most this many names are returned."""

_LACKS = re.compile(
    r"no such file|not found|does ?n[o']t exist|not exist|cannot (?:open|find|access|stat|read)|can't (?:open|find|read)"
    r"|(?:unable|failed) to (?:open|find|read|load)|FileNotFound|ENOENT|Errno 2\b|could(?: not|n't) (?:open|find|read)"
    r"|missing|is (?:empty|not a (?:file|directory))|no (?:files|data|images|samples)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"|`([^`]+)`")
_OF_A_SHELL = re.compile(r": [Nn]o such file or directory")
_BARE = re.compile(r"[^\s'\"`:,;()\[\]{}<>=|]+")


def missing_files(
    log_tail: str, left_out: Mapping[str, str], *, root: str, here: Path
) -> tuple[str, ...]:
    """Return the names in `left_out` that the end of the log reports as missing, in the order of the log.

    The command ran in `root` on the box. `here` is the work tree: a file that it lacks too is a fault of the
    command, and is not returned. A name in `left_out` that ends with a slash is a folder, and stands for
    everything in it. If the log misses a folder that contains such names, that folder is returned.
    """
    found: dict[str, None] = {}
    for line in plain(log_tail, max_line=_LINE_CHARS).split("\n")[-_LINES:]:
        if not _LACKS.search(line):
            continue
        for path in _paths(line, root):
            name = _listed(path, left_out)
            if name is not None and _exists(here / path) and not _is_secret(path):
                found[name] = None
    return tuple(found)[:_MOST]


def _paths(line: str, root: str) -> Iterator[str]:
    """Yield the words of the line that may be paths, relative to `root`. A path that leads upward is left out."""
    words = [next(filter(None, each.groups())) for each in _QUOTED.finditer(line)]
    is_shells = _OF_A_SHELL.search(line)
    words += [word for word in _BARE.findall(line) if is_shells or "/" in word or "." in word]
    for word in words:
        _, above, below = word.partition(f"{root.strip('/')}/")
        path = posixpath.normpath((below if above else word).rstrip(".") or ".")
        if path != "." and not path.startswith(("/", "~", "..")):
            yield path


def _listed(path: str, left_out: Mapping[str, str]) -> str | None:
    for name in left_out:
        whole = name.rstrip("/")
        if path == whole or (name != whole and path.startswith(name)):
            return name
        if whole.startswith(f"{path}/"):
            return whole[: len(path) + 1]
    return None


def _is_secret(path: str) -> bool:
    """Whether the name is that of a secret. A hostile log must not lead anybody to send one."""
    # Imported here, because its patterns take long to compile and most logs miss nothing.
    from gpu_tenant.files.secret_scan import find_secrets

    return bool(find_secrets(path, b""))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
