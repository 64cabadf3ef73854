"""The rules of a `.gitignore`, matched as git matches them, in a time that no rule can make long.

Git compares bytes. So does this module: each character of its texts stands for one byte.
"""

import codecs
import os
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gpu_tenant.files.glob import ANY, CharClass, NameGlob, PathGlob, Position

_CLASSES = {
    # These are git's own, whatever the locale is.
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": " \t",
    "cntrl": "".join(map(chr, [*range(32), 127])),
    "digit": string.digits,
    "graph": string.ascii_letters + string.digits + string.punctuation,
    "lower": string.ascii_lowercase,
    "print": string.ascii_letters + string.digits + string.punctuation + " ",
    "punct": string.punctuation,
    "space": " \t\n\r",
    "upper": string.ascii_uppercase,
    "xdigit": string.hexdigits,
}
_SPECIAL = "*?[\\"

EntryKind = Literal["file", "directory"]
"""What a rule tells apart. A link is a file for it, as for git."""


class _Star(str):
    """A run of stars in a rule."""

    __slots__ = ()


class _Slash(str):
    """A slash between two components. It is `\\/` if it was escaped."""

    __slots__ = ()


Token = Position | _Star | _Slash


def bytes_of(name: str) -> str:
    """Return the name with one character for each of its bytes."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


@dataclass(frozen=True)
class Rule:
    """One rule. If it matches, the entry is ignored, or kept if the rule is negated."""

    text: str
    """What it matches, without the mark of a negation and without the slash that means directories."""
    is_negated: bool
    is_for_directories: bool

    def matches(self, parts: Sequence[str], kind: EntryKind) -> bool:
        """Whether the rule matches the entry itself. `parts` is its path from the directory of the rules."""
        if self.is_for_directories and kind != "directory":
            return False
        if "/" not in self.text:
            return self._name is not None and self._name.matches(parts[-1])
        return any(glob.matches(parts) for glob in self._paths)

    @cached_property
    def _name(self) -> NameGlob | None:
        """The glob of a rule without a slash. None if the rule is not valid, so that it matches nothing."""
        try:
            return _name_glob(list(_tokens(self.text)))
        except ValueError:
            return None

    @cached_property
    def _paths(self) -> list[PathGlob]:
        """The globs of a rule with a slash. The rule matches what one of them matches."""
        text = self.text.removeprefix("/")
        plain = next((at for at, char in enumerate(text) if char in _SPECIAL), len(text))
        try:
            return list(_path_globs(list(_tokens(text)), plain))
        except ValueError:
            return []


def parse_rules(content: bytes) -> list[Rule]:
    """Return the rules in the content of a `.gitignore`.

    As for git, a byte order mark is skipped, only a newline ends a line, and an invalid rule matches nothing.
    """
    text = content.removeprefix(codecs.BOM_UTF8).decode("latin-1")
    return [
        rule
        for line in text.split("\n")
        if not line.startswith("#")
        and (rule := _rule(_trimmed(line.removesuffix("\r").partition("\0")[0]))) is not None
    ]


def _trimmed(line: str) -> str:
    """Return the line without the spaces at its end. A backslash keeps the space after it."""
    kept = line.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return line[: len(kept) + backslashes % 2] if backslashes else kept


def _rule(line: str) -> Rule | None:
    text = line.removeprefix("!")
    rule = Rule(text.removesuffix("/"), text != line, text.endswith("/"))
    return rule if rule.text else None


def _tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a rule.

    Raises:
        ValueError: the rule is not valid: it ends in a backslash, or within a set of characters.
    """
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "*":
            end = at
            while text[end : end + 1] == "*":
                end += 1
            yield _Star(text[at - 1 : end])
            at = end
        elif char == "/":
            yield _Slash(char)
        elif char == "?":
            yield ANY
        elif char == "[":
            chosen, at = _class_at(text, at)
            yield chosen
        elif char == "\\":
            if at == len(text):
                raise ValueError(text)
            yield _Slash("\\/") if text[at] == "/" else text[at]
            at += 1
        else:
            yield char


def _class_at(text: str, at: int) -> tuple[CharClass, int]:
    """Return the set of characters that begins before `at`, and where it ends.

    Raises:
        ValueError: it has no end, or names an unknown class as in `[:alpha:]`.
    """
    is_negated = text[at : at + 1] in ("!", "^")
    at += is_negated
    ranges: list[tuple[str, str]] = []
    before, is_first = "", True
    while is_first or text[at : at + 1] != "]":
        is_first = False
        char = text[at : at + 1]
        if not char:
            raise ValueError(text)
        if char == "-" and before and text[at + 1 : at + 2] not in ("", "]"):
            at += 1 + (text[at + 1] == "\\")
            last = text[at : at + 1]
            if not last:
                raise ValueError(text)
            ranges.append((before, last))
            before = ""
        elif char == "[" and text[at + 1 : at + 2] == ":":
            end = text.find("]", at + 2)
            if end < 0:
                raise ValueError(text)
            if end > at + 2 and text[end - 1] == ":":
                name = text[at + 2 : end - 1]
                if name not in _CLASSES:
                    raise ValueError(text)
                ranges += [(one, one) for one in _CLASSES[name]]
                at, before = end, ""
            else:
                ranges.append((char, char))
                before = char
        else:
            if char == "\\":
                at += 1
                char = text[at : at + 1]
                if not char:
                    raise ValueError(text)
            ranges.append((char, char))
            before = char
        at += 1
    return CharClass(tuple(ranges), is_negated=is_negated), at + 1


def _name_glob(tokens: Sequence[Token]) -> NameGlob:
    chunks: list[list[Position]] = [[]]
    for token in tokens:
        if isinstance(token, _Star):
            chunks.append([])
        else:
            chunks[-1].append(token)
    return NameGlob(chunks)


def _path_globs(tokens: list[Token], plain: int) -> Iterator[PathGlob]:
    """Yield the globs that together match what the tokens match. The first `plain` characters are ordinary ones.

    Git compares the ordinary characters first, and matches the rest as a pattern of its own. So two stars right after
    them count as `**`, even in the middle of a name: `a**/b` matches `ab`, and what is called b in any depth below
    names that begin with a.
    """
    head, rest = tokens[:plain], tokens[plain:]
    is_inside = bool(head) and not isinstance(head[-1], _Slash)
    is_last = len(rest) == 1 or (len(rest) > 1 and isinstance(rest[1], _Slash))
    if not (is_inside and is_last and _is_deep(rest[0])):
        yield _path_glob(tokens)
        return
    star, slash = _Star("*"), _Slash("/")
    yield _path_glob([*head, star, slash, rest[0], *([slash, *rest[2:]] if rest[1:] else [])])
    after = rest[2:]
    while rest[1:2] == ["/"] and len(after) > 1 and _is_deep(after[0]) and after[1] == "/":
        after = after[2:]
    if not rest[1:]:
        yield _path_glob([*head, star])
    elif rest[1] == "/":
        yield _path_glob([*head, *after])


def _is_deep(token: Token) -> bool:
    return isinstance(token, _Star) and len(token) > 1


def _path_glob(tokens: Sequence[Token]) -> PathGlob:
    components: list[NameGlob | None] = []
    begun: list[Token] = []
    for token in [*tokens, _Slash("/")]:
        if not isinstance(token, _Slash):
            begun.append(token)
            continue
        is_deep = len(begun) == 1 and _is_deep(begun[0])
        if is_deep and len(token) > 1:  # then git does not let `**` match nothing
            components.append(_name_glob([_Star("*")]))
        components.append(None if is_deep else _name_glob(begun))
        begun = []
    is_open = components[-1] is None
    return PathGlob(tuple(components), is_open=is_open, below=int(is_open))
