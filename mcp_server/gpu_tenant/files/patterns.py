"""The glob patterns with which an owner says which files are kept and which may be lost."""

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.files.glob import ANY, CharClass, NameGlob, PathGlob, Position
from gpu_tenant.files.paths import escape

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
_BYTE = re.compile("%([0-9A-F]{2})")
"""A byte that cannot be shown, in the form in which the box writes it in a name."""
_BYTES = [chr(0xDC00 + byte) for byte in range(256)]
"""Characters that stand for these bytes here. No name that the box lists has them."""
_LONGEST = 1 << 14
_NO_FILES = frozenset({"proc", "sys", "dev"})
_TOKEN = re.compile(
    r"(?P<run>(?:%[0-9A-Fa-f]{2})+)|\\(?P<quoted>.)|(?P<star>\*+)|(?P<one>\?)"
    r"|\[(?P<not>[!^]?)(?P<set>\]?[^]]*)\]|(?P<plain>[^%\\*?[]+|.)",
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


def patterns_alike(names: Iterable[str]) -> list[str]:
    """Return patterns that keep these files, and those like them that a longer run writes under other names.

    Alike is what has the same ending in the same directory, whatever numbers are in the names.
    """
    found = [_pattern_alike(name) for name in names]
    return list(dict.fromkeys(found))


def _pattern_alike(path: str) -> str:
    directory, _, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    file = f"*.{literal_pattern(ending)}" if stem and dot else _any_number(name)
    alike = f"{_any_number(directory)}/{file}" if directory else file
    try:
        require_narrow([alike])
    except BadRequest:
        return literal_pattern(path)  # it would match nearly everything
    return alike


def _any_number(path: str) -> str:
    return re.sub(r"[0-9]+", "*", literal_pattern(path))


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
        if len(pattern) > _LONGEST:
            raise no_pattern(f"{pattern[:60]}...", f"it is longer than {_LONGEST} characters")
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


def is_readable(pattern: str) -> bool:
    """Whether the pattern can be read. An old ledger may hold one that cannot."""
    try:
        require_patterns([pattern])
    except BadRequest:
        return False
    return True


def _require_segment(pattern: str, part: str) -> None:
    """Check that the box can use this part of the pattern.

    The box reads patterns in the same way (`scripts/caretaker.py`).
    """
    try:
        glob = _segment(part)
    except ValueError as error:
        raise no_pattern(pattern, str(error)) from None
    if glob is not None and glob.literal in ("..", _BYTES[0]):
        raise no_pattern(pattern, "it leads to the directory above")


def covers(pattern: str, path: str) -> bool:
    """Whether the pattern matches `path`, or a directory above it.

    Both must begin with `/`, or both with `~/`. Patterns that are relative to the work directory never match
    here.
    """
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    names = [part for part in path.split("/") if part]
    return pattern[:1] == path[:1] and _covers(parts, names, 0)


def matches_kept_name(pattern: str, name: str) -> bool:
    """Whether the pattern matches the file that is kept under that name. The box uses the same rules."""
    top, _, inner = name.partition("/")
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    path = [part for part in inner.split("/") if part]
    # A pattern that ends with a slash or with `**` matches a directory. The file must be in it or below it.
    below = bool(parts and pattern.endswith("/")) + bool(parts and parts[-1] == "**")
    if pattern.startswith("~"):
        # Only the box knows where its home is, so the pattern matches at any depth.
        return top == "root" and _covers(["**", *parts[1:]], path, below)
    if pattern.startswith("/"):
        return top == "root" and _covers(parts, path, below)
    is_anywhere = "/" not in pattern.rstrip("/")
    return top == "work" and _covers(["**", *parts] if is_anywhere else parts, path, below)


def _covers(pattern: Sequence[str], path: Sequence[str], below: int) -> bool:
    """Whether the pattern matches the path, or a directory that is at least `below` names above it."""
    glob = PathGlob(tuple(map(_segment, pattern)), is_open=True, below=below)
    return glob.matches([_units(part) for part in path])


def _units(escaped: str) -> str:
    """Return the name, as the box lists it, with one character for each byte that cannot be shown."""
    return _BYTE.sub(lambda m: _BYTES[int(m[1], 16)], escaped) if "%" in escaped else escaped


@lru_cache(maxsize=1024)
def _segment(part: str) -> NameGlob | None:
    """Return the glob of one component of a pattern, which matches names in the form of `_units`. None for `**`.

    Raises:
        ValueError: the part is not valid. The message says why.
    """
    if part == "**":
        return None
    chunks: list[list[Position]] = [[]]
    for token in _TOKEN.finditer(part):
        match token.lastgroup:
            case "star":
                chunks.append([])
            case "one":
                chunks[-1].append(ANY)
            case "set":
                chunks[-1].append(_class_of(token))
            case "run":
                raw = bytes.fromhex(token.group().replace("%", ""))
                chunks[-1] += _units(escape(os.fsdecode(raw)))
            case _ if token.group() == "%":
                raise ValueError(
                    "a % must be followed by two hexadecimal digits; write %25 for a % itself"
                )
            case _:
                chunks[-1] += _units(escape(token.group("quoted") or token.group("plain")))
    return NameGlob(chunks)


def _class_of(token: re.Match[str]) -> CharClass:
    chars, ranges = token.group("set"), []
    while chars:
        is_range = chars[1:2] == "-" and chars[2:] != ""
        first, last = chars[0], chars[2] if is_range else chars[0]
        if first > last:
            raise ValueError(f"{token.group()} is bad character range {chars[:3]}")
        ranges.append((first, last))
        chars = chars[3:] if is_range else chars[1:]
    if not ranges:
        raise ValueError(f"{token.group()} names no character")
    return CharClass(tuple(ranges), is_negated=bool(token.group("not")))
