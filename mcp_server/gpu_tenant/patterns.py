"""The globs by which an owner says what is kept and what may be lost."""

from collections.abc import Iterable

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
