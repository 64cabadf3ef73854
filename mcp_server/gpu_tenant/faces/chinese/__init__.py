"""Translates the server's English sentences into Chinese, for every face.

The files in `sentences/` map English sentences to Chinese ones. A sentence may have numbered holes, such as `{1}`. A
hole `{#1}` takes only a figure. The text in a hole is translated, too, if it is a sentence. Text in backticks or double
quotes (commands, and words from a box) and every line after the first stay as they are. `translate.js` does the same
for the page, with the same files.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

_HERE = Path(__file__).parent
TRANSLATOR = _HERE / "translate.js"

_HOLE = re.compile(r'(\{#?\d+\}|`[^`]*`|"[^"]*")')
_ANYTHING, _FIGURE = "(.*?)", r"(-?[\d.,]+(?: (?:USD|s|min|h|B|KB|MB|GB|TB))?)"
_KEPT_ONE = "(\ue000\\d+\ue001)"
_NOTED = re.compile(r"([^()]+) \(([^()]+)\)")
"""A clause with a note in brackets at its end."""
_WORD = re.compile("[A-Za-z]+")
_LONE = re.compile("(?<![A-Za-z\ue000])[A-Za-z]+(?![A-Za-z\ue000])")
_QUOTED = re.compile(r'`[^`]*`|"(?:[^"\\]|\\.)*"')
_KEPT = re.compile("\ue000(\\d+)\ue001")
_EDGES = re.compile(r"(\s*[;:,]?\s*)(.*?)([;:,]?\s*)", re.DOTALL)
_BLANK = re.compile("(?<=[\u3001-\u9fff\uff00-\uffef]) +(?=[\u3001-\u9fff\uff00-\uffef])")
"""A blank between two Chinese characters, where Chinese text has none."""
_SIGNS = {";": "；", ":": "：", ",": "，"}


@cache
def sentences() -> Mapping[str, str]:
    """Return every English sentence that has a translation, and its translation."""
    found: dict[str, str] = {}
    for path in sorted((_HERE / "sentences").glob("*.json")):
        found.update(json.loads(path.read_text("utf-8")))
    return found


def is_wanted() -> bool:
    """Whether the person at this terminal reads Chinese, by the terminal's locale."""
    named = (os.environ.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return next(filter(None, named), "").lower().startswith("zh")


def for_terminal(text: str) -> str:
    """Return the sentence in the language of the person at this terminal."""
    return in_chinese(text) if is_wanted() else text


def in_chinese(text: str) -> str:
    """Return the sentence in Chinese, or unchanged if it has no translation."""
    first, newline, rest = text.partition("\n")
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\ue000{len(kept) - 1}\ue001"

    said = _KEPT.sub(lambda found: kept[int(found[1])], _part(_QUOTED.sub(keep, first)))
    return _BLANK.sub("", said) + newline + rest


@dataclass(frozen=True)
class _Template:
    """One English sentence, split at its holes. A command or quotation in the sentence counts as a hole."""

    chinese: str
    holes: tuple[str, ...]
    literals: tuple[str, ...]

    @classmethod
    def of(cls, english: str, chinese: str) -> "_Template":
        parts = _HOLE.split(english)
        return cls(chinese, tuple(parts[1::2]), tuple(parts[::2]))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words that do not touch a hole. A word that touches one may be longer in a filled sentence."""
        bare = "\ue000".join(self.literals)
        return tuple(_LONE.findall(bare))

    @cached_property
    def longest(self) -> str:
        return max(self.literals, key=len)

    @cached_property
    def joins(self) -> bool:
        return any("; " in literal for literal in self.literals)

    def may_hold(self, values: Sequence[str]) -> bool:
        """Whether several clauses are only in the first or the last hole, and only where the sentence allows this."""
        last = len(values) - 1
        return not any(
            "; " in value
            and not (n == 0 and not self.literals[0] and self.literals[1][:1] in tuple(";:,"))
            and not (n == last and not self.literals[-1])
            and len(list(_split(value, "; "))) > 1
            for n, value in enumerate(values)
        )

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        pattern = re.escape(self.literals[0])
        for hole, literal in zip(self.holes, self.literals[1:], strict=True):
            kind = _KEPT_ONE if hole[0] in '`"' else _FIGURE if hole[1] == "#" else _ANYTHING
            pattern += kind + re.escape(literal)
        return re.compile(pattern, re.DOTALL)


@cache
def _templates() -> Mapping[str, Sequence[tuple[int, _Template]]]:
    """Return all sentences by their rarest word, each with its rank. Sentences with more fixed text rank first."""
    known = [_Template.of(english, chinese) for english, chinese in sentences().items()]
    known.sort(key=lambda each: -sum(map(len, each.literals)))
    counted = Counter(word for each in known for word in each.words)
    found: dict[str, list[tuple[int, _Template]]] = {}
    for rank, each in enumerate(known):
        rarest = min(each.words, key=lambda word: counted[word], default="")
        found.setdefault(rarest, []).append((rank, each))
    return found


def _candidates(text: str) -> Iterator[_Template]:
    """Return the sentences whose rarest word is in the text, in the order of their ranks."""
    known = _templates()
    words = {"", *_WORD.findall(text)}
    found = (ranked for word in words for ranked in known.get(word, ()))
    return (each for _, each in sorted(found, key=lambda ranked: ranked[0]))


def _whole(text: str, *, joins: bool) -> str | None:
    """Translate the text as one sentence. None if no sentence matches it."""
    for known in _candidates(text):
        if known.joins != joins or known.longest not in text:
            continue
        found = known.pattern.fullmatch(text)
        if found is None or not known.may_hold(found.groups()):
            continue
        said = known.chinese
        for hole, value in zip(known.holes, found.groups(), strict=True):
            said = said.replace(hole, _part(value))
        return said
    return None


def _part(text: str) -> str:
    """Translate the text of a hole: perhaps a sentence, with the punctuation that joins it to the rest."""
    found = _EDGES.fullmatch(text)
    if found is None or not found[2]:
        return text
    before, core, after = found.groups()
    said = _sentence(core)
    if said == core and core.startswith("(") and core.endswith(")"):
        inner = _part(core[1:-1])
        said = core if inner == core[1:-1] else f"（{inner}）"
    return text if said == core else _sign(before) + said + _sign(after)


def _sign(edge: str) -> str:
    return "".join(_SIGNS.get(one, one) for one in edge.strip())


def _sentence(text: str) -> str:
    """Translate the clauses. If several clauses together are one known sentence, translate them together."""
    clauses = list(_split(text, "; "))
    said: list[str] = []
    while clauses:
        for count in range(len(clauses), 0, -1):
            run = "; ".join(clauses[:count])
            told = _whole(run, joins=True) if count > 1 else _clause(run)
            if told is not None:
                said.append(told)
                del clauses[:count]
                break
    return "；".join(said) if said != list(_split(text, "; ")) else text


def _clause(text: str) -> str:
    said = _whole(text, joins=False)
    if said is not None:
        return said
    if (noted := _NOTED.fullmatch(text)) is not None:
        head, note = _part(noted[1]), _part(noted[2])
        if (head, note) != noted.groups():
            return f"{head}（{note}）"
    for separator in (": ", ", "):
        parts = list(_split(text, separator))
        if len(parts) == 1:
            continue
        told = [_part(part) for part in parts]
        if told != parts:
            return _SIGNS[separator.strip()].join(told)
    return text


def _split(text: str, separator: str) -> Iterator[str]:
    """Split the text at the separator, but not within brackets."""
    depth = begin = at = 0
    while at < len(text):
        if text[at] == "(":
            depth += 1
        elif text[at] == ")":
            depth -= 1
        elif depth <= 0 and text.startswith(separator, at):
            yield text[begin:at]
            begin = at = at + len(separator)
            continue
        at += 1
    yield text[begin:]
