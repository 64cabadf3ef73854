"""The globs by which an owner says what is kept and what may be lost."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from gpu_tenant.errors import BadRequest

_ALL = {"", "~", "**", "*"}
"""What is left of a pattern that covers a whole tree, once its slashes and dots are gone."""


def require_narrow(discard: Iterable[str]) -> None:
    """Every one of `discard` gives up something by name, and not whatever there is.

    Raises:
        BadRequest: one covers everything, also what nobody has thought of and what comes later.
    """
    for pattern in discard:
        if {part for part in pattern.split("/") if part != "."} <= _ALL:
            raise BadRequest(
                f"the pattern {pattern!r} gives up everything, unseen",
                remedy="name what may be lost; to lose a whole box, its owner runs `gpu-tenant waive LEASE`",
            )


def require_patterns(patterns: Iterable[str]) -> None:
    """Every one of `patterns` names something in the work directory, below `~/` or at an absolute path.

    Raises:
        BadRequest: one is empty, climbs out by `..`, or negates.
    """
    for pattern in patterns:
        if ".." in pattern.split("/") or not pattern.strip() or "\0" in pattern:
            raise BadRequest(
                f"the pattern {pattern!r} leaves the work directory",
                remedy="write it relative to the work directory, absolute, or from `~/`",
            )
        if pattern.startswith("!"):
            raise BadRequest(
                f"the pattern {pattern!r} negates, and what it means to keep would be unclear",
                remedy="name what is kept, and what may be lost, without `!`",
            )


def covers(pattern: str, path: str) -> bool:
    """Whether the pattern means what lies at `path`, or a directory that it lies in.

    Both begin with `/`, or both with `~/`: what a pattern means below the work directory is no matter here.
    """
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return pattern[:1] == path[:1] and _covers(parts, [part for part in path.split("/") if part])


def means(pattern: str, name: str) -> bool:
    """Whether the pattern means the file that is kept under that name, as the box matches it."""
    top, _, inner = name.partition("/")
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    path = [part for part in inner.split("/") if part]
    if pattern.startswith("~"):
        # Which home it was is the box's affair.
        return top == "root" and _covers(["**", *parts[1:]], path)
    if pattern.startswith("/"):
        return top == "root" and _covers(parts, path)
    is_anywhere = "/" not in pattern.rstrip("/")
    return top == "work" and _covers(["**", *parts] if is_anywhere else parts, path)


def _covers(pattern: Sequence[str], path: Sequence[str]) -> bool:
    if not pattern:
        return True
    if pattern[0] == "**":
        return _covers(pattern[1:], path) or (bool(path) and _covers(pattern, path[1:]))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _covers(pattern[1:], path[1:])
