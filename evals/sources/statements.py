"""A page of documentation as plain statements, and how far two statements say the same."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MARKS = re.compile(r"[*_`\\]|&#x20;|^\s*(?:[-+>]|#+|\d+\.)\s+|✅|⚠️")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|(?<=[。！？])\s*")
_HEADING = re.compile(r"#+\s+(.*)")

_MATTERS = re.compile(
    r"\$?\d[\d.,]*\s?(?:%|gb|tb|h|hours?|minutes?|seconds?|days?)?"
    r"|\b(?:no|not|never|only|cannot|can't|won't|don't|doesn't|isn't|without|unless|until|after|before|eventually|immediately)\b"
    r"|\b(?:delet|terminat|eras|destroy|los[et]|clear|reset|wip|preserv|persist|retain|keep|kept|surviv|stop|charg|bill|pric|free|detach"
    r"|attach|chang|resum|expir|outbid|pause|retir|deprecat|mount|refund|suspend|releas|shut|interrupt)"
    r"|不|没|仅|只|除|后|前|免费|收费|扣|元|销毁|丢失|收回|退|释放|保留|关机|欠|清空|删除|超"
)
"""Figures, negations and verbs: the words that decide what a statement means for data or money."""

_STORAGE_PRICE = re.compile(r"\$\d[\d.]*\s*(?:/|per )\s*gb|\d[\d.]*\s*元/g", re.IGNORECASE)

_WORD = re.compile(r"[一-鿿]|[^\s一-鿿]+")
"""A word to compare: Chinese has no spaces, so there each character is one."""

_LABEL_WORDS = 4
_DATA = re.compile(r'\s*"[@\w]+":|\s*[{}\[\]]')
"""A line of JSON, which repeats for search engines what the page says."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence, list item or table row, and the heading it stands under."""

    section: str
    text: str


def statements(page: str) -> list[Statement]:
    """Return what a page in Markdown or MDX says, in its order."""
    section, found = "", []
    for line in _lines(_FRONT.sub("", page)):
        heading = _HEADING.match(line.lstrip())
        if heading:
            section = plain(heading[1])
            continue
        found += [
            Statement(section, text) for part in _SENTENCE.split(line) if (text := plain(part))
        ]
    return found


def plain(text: str) -> str:
    """Return the words alone: without markup, addresses, and differences of case or spacing."""
    text = _LINK.sub(r"\1", _TAG.sub(" ", text))
    text = _MARKS.sub("", text).replace("|", " ").replace("’", "'")
    text = re.sub(r"\bzero\b", "0", text.lower())
    return " ".join(text.split()).strip(" .,:;-–—。，：；")


def matters(text: str) -> frozenset[str]:
    """Return the words of a statement that decide what it means for data or money."""
    return frozenset(word.strip(" .,") for word in _MATTERS.findall(text))


def prices_storage(text: str) -> bool:
    """Whether a statement says what a gigabyte costs. That matters wherever on a page it stands."""
    return _STORAGE_PRICE.search(text) is not None


def likeness(one: str, other: str) -> float:
    """Return how much of two statements is the same, from 0 to 1. A label that both begin with makes them two wordings of one."""
    label = one.partition(": ")[0]
    if ": " in one and len(label.split()) <= _LABEL_WORDS and other.startswith(f"{label}: "):
        return 1.0 if one == other else 0.9
    words = _WORD.findall(one), _WORD.findall(other)
    return difflib.SequenceMatcher(None, *words, autojunk=False).ratio()


def _lines(page: str) -> Iterator[str]:
    """Yield the page's lines without code and imports."""
    is_code = False
    for line in page.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        elif not (is_code or line.startswith(("import ", "export ")) or _DATA.match(line)):
            yield line
