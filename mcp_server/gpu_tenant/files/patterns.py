"""The glob patterns with which an owner says which files are kept and which may be lost."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from warnings import catch_warnings, simplefilter

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest

_PROBES = (
    "a",
    "zz9.bin",
    "Q7",
    ".h/x",
    "d/e/f",
    "model.pt",
    "metrics.csv",
    "README",
    "7",
    "ckpt-100/w.safetensors",
    "x.y.z",
    "checkpoints/last",
    "results_final.json",
    "1/2",
)
"""Names as jobs give them to files, with nothing in common. A pattern that matches half of them is too wide."""
_BYTE = "%[0-9A-F]{2}"
"""A byte that cannot be shown, in the form in which the box writes it in a name."""
_NO_FILES = frozenset({"proc", "sys", "dev"})
_TOKEN = re.compile(
    r"(?P<run>(?:%[0-9A-Fa-f]{2})+)|\\(?P<quoted>.)|(?P<star>\*+)|(?P<one>\?)"
    r"|\[(?P<not>[!^]?)(?P<set>\]?[^]]*)\]|(?P<plain>.)",
    re.DOTALL,
)


def require_narrow(discard: Iterable[str]) -> None:
    """Check that every pattern of `discard` gives up something specific, and not everything.

    If a pattern begins with `~/` or `/`, the box also checks what it covers, because only the box knows where
    its home is.

    Raises:
        BadRequest: a pattern covers everything, even files that come later.
    """
    for pattern in discard:
        inner = pattern.removeprefix("~") if pattern.startswith("~/") else pattern
        hits = [
            probe
            for probe in _PROBES
            if matches_kept_name("./" + inner.strip("/"), f"work/{probe}")
        ]
        is_bare = not inner.strip("/.~*")
        if "/" not in inner.strip("/"):
            hits = [
                probe
                for probe in _PROBES
                if matches_kept_name(inner.strip("/") or "**", f"work/{probe}")
            ]
        in_directories = sum("/" in probe for probe in hits)
        if is_bare or 2 * len(hits) >= len(_PROBES) or in_directories >= 4:
            raise too_wide(pattern)


def too_wide(pattern: str, what: str = "everything") -> BadRequest:
    """Make the error for a pattern that gives up everything."""
    return BadRequest(
        f"the pattern {pattern!r} gives up {what}, even files that nobody has seen",
        remedy=f"name what may be lost; to lose a whole box, its owner runs {Command('waive', 'LEASE')}",
    )


def no_pattern(pattern: str, why: str) -> BadRequest:
    """Make the error for a pattern that the box could not use."""
    literal = pattern.replace("[", r"\[").replace("]", r"\]")
    brackets = (
        f"; `[abc]` matches one of these characters: if the name itself contains brackets, write {literal!r}"
        if "[" in pattern
        else ""
    )
    return BadRequest(
        f"{pattern!r} is not a valid pattern: {why}{brackets}",
        remedy="`*`, `**`, `?`, `[a-z]` and a backslash before one of them are understood; nothing was changed",
    )


def told_apart(
    artifacts: Sequence[str], discard: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the patterns of what is kept, and the patterns of what may be lost. None of them contains `!`.

    In `artifacts`, `!out/huge.bin` excludes that file from what the other patterns keep. If a name without a
    slash follows the `!`, it excludes the files of that name below each of the other patterns. In `discard`, a
    pattern with `!` is kept.

    Raises:
        BadRequest: all the artifacts are exclusions, so nothing would be kept.
    """
    kept = [pattern for pattern in artifacts if not pattern.startswith("!")]
    lost = [pattern for pattern in discard if not pattern.startswith("!")]
    not_kept = [pattern.removeprefix("!") for pattern in artifacts if pattern.startswith("!")]
    if not_kept and not kept:
        raise BadRequest(
            f"{', '.join(artifacts)} says what is not kept, but nothing says what is kept",
            remedy=f"add what is kept: {Option('artifact')} 'out/', or give it up: {Option('discard')} '{not_kept[0]}'",
        )
    for pattern in not_kept:
        is_bare = "/" not in pattern.rstrip("/")
        lost += [_below(place, pattern) for place in kept] if is_bare else [pattern]
    kept += [pattern.removeprefix("!") for pattern in discard if pattern.startswith("!")]
    return tuple(dict.fromkeys(kept)), tuple(dict.fromkeys(lost))


def _below(place: str, name: str) -> str:
    """Return the pattern for all files of that name below the paths that `place` matches."""
    is_anywhere = "/" not in place.rstrip("/") and not place.startswith("~")
    return f"{'**/' if is_anywhere else ''}{place.rstrip('/')}/**/{name}"


def literal_pattern(path: str) -> str:
    """Return the pattern that matches only the file at that path, even if its name contains special characters."""
    return re.sub(r"([][*?\\])", r"\\\1", path)


def require_patterns(patterns: Iterable[str]) -> None:
    """Check that every pattern names something in the work directory, below `~/`, or at an absolute path.

    Raises:
        BadRequest: a pattern is empty, contains `..`, begins with `!`, or is not valid.
    """
    for pattern in patterns:
        if ".." in pattern.split("/") or not pattern.strip() or "\0" in pattern:
            raise BadRequest(
                f"the pattern {pattern!r} leaves the work directory",
                remedy="write it relative to the work directory, absolute, or from `~/`",
            )
        if pattern.startswith("!"):
            raise BadRequest(
                f"the pattern {pattern!r} begins with `!`, which is not allowed here",
                remedy="name what is kept, and what may be lost, without `!`",
            )
        names = [name for name in pattern.split("/") if name not in ("", ".")]
        if pattern.startswith("/") and (not names or names[0] in _NO_FILES or "*" in names[0]):
            raise BadRequest(
                f"{pattern!r} covers the whole box, or files that its kernel only simulates (/proc, /sys, /dev)",
                remedy="name the directory that the job writes: relative to the work directory, as `out/`, or absolute",
            )
        if not names:
            raise no_pattern(pattern, "it names nothing")
        for part in pattern.split("/"):
            _require_segment(pattern, part)


def _require_segment(pattern: str, part: str) -> None:
    """Check that the box can use this part of the pattern.

    The box reads patterns in the same way (`scripts/caretaker.py`).
    """
    literal = ""
    for token in _TOKEN.finditer(part):
        if token.lastgroup == "set":
            chars = "".join(c if c == "-" else re.escape(c) for c in token.group("set"))
            try:
                with catch_warnings():
                    simplefilter("ignore", FutureWarning)
                    re.compile(f"[{chars}]")
            except re.error as error:
                raise no_pattern(pattern, f"{token.group()} is {error}") from None
        elif token.lastgroup == "run":
            literal += bytes.fromhex(token.group().replace("%", "")).decode(errors="replace")
        elif token.group() == "%":
            raise no_pattern(
                pattern, "a % must be followed by two hexadecimal digits; write %25 for a % itself"
            )
        else:
            literal += token.group("quoted") or token.group("plain") or "*"
    if literal in ("..", "\0"):
        raise no_pattern(pattern, "it leads to the directory above")


def covers(pattern: str, path: str) -> bool:
    """Whether the pattern matches `path`, or a directory above it.

    Both must begin with `/`, or both with `~/`. Patterns that are relative to the work directory never match
    here.
    """
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return pattern[:1] == path[:1] and _covers(parts, [part for part in path.split("/") if part])


def matches_kept_name(pattern: str, name: str) -> bool:
    """Whether the pattern matches the file that is kept under that name. The box uses the same rules."""
    top, _, inner = name.partition("/")
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    path = [part for part in inner.split("/") if part]
    if parts and pattern.endswith("/"):
        # A pattern that ends with a slash matches a directory. The file must be in it or below it.
        path = path[:-1]
        parts = [*parts, "*"] if parts[-1] == "**" else parts
    if pattern.startswith("~"):
        # Only the box knows where its home is, so the pattern matches at any depth.
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
    is_next = bool(path) and _segment(pattern[0])(path[0]) is not None
    return is_next and _covers(pattern[1:], path[1:])


@lru_cache(maxsize=1024)
def _segment(part: str) -> Callable[[str], re.Match[str] | None]:
    """Return a function that tells whether a name, as the box lists it, matches one part of a pattern.

    The box reads the part in the same way.
    """
    source = ""
    for token in _TOKEN.finditer(part):
        if token.lastgroup == "set":
            chars = "".join(c if c == "-" else re.escape(c) for c in token.group("set"))
            source += (f"(?:{_BYTE}|(?!%)[^{chars}])") if token.group("not") else f"(?!%)[{chars}]"
        elif token.lastgroup in ("star", "one"):
            source += f"(?:{_BYTE}|[^%])" + ("*" if token.lastgroup == "star" else "")
        elif token.lastgroup == "run":
            source += re.escape(token.group().upper())
        else:
            source += re.escape(token.group("quoted") or token.group("plain"))
    return re.compile(source, re.DOTALL).fullmatch
