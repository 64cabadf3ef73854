"""Finds out whether a log misses a file that stayed on this computer because a push leaves such files out.

A log is not to be trusted. So only names that we have listed ourselves are ever returned.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpu_tenant.domain.untrusted_text import plain

_LINES, _LINE_CHARS = 60, 1000
"""How much of the log's end is read."""
_MOST = 5
"""How many names are returned."""

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
    """Return those names in `left_out` that the end of the log says are missing, in the order of the log.

    The command ran in `root`, and `here` is the work tree: what is not in it either is a fault of the command. A
    folder in `left_out` ends with a slash, and stands for all that is in it. If the log misses a folder above such
    names, that folder is returned.
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
    """The words of the line that may be paths, relative to `root`. None of them leads upward."""
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
    """Whether the name is that of a secret. A hostile log must not have anybody asked to send one."""
    # Its patterns take long to compile, and most logs miss nothing.
    from gpu_tenant.files.secret_scan import find_secrets

    return bool(find_secrets(path, b""))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
