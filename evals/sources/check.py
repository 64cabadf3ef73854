"""Compares the quotations with a copy of the documentation they were taken from."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

from evals.book import texts
from evals.sources.statements import Statement, likeness, matters, plain, prices_storage, statements

BOOK: Final = Path(__file__).with_name("quotations.yaml")
_SAME_STATEMENT = 0.5
"""From this likeness on, a statement is taken for another wording of the quotation."""

Verdict = Literal["stands", "reworded", "changed", "gone", "new"]


@dataclass(frozen=True, slots=True)
class Quotation:
    """A sentence of a vendor's documentation that a fact of ours rests on."""

    repository: str
    file: str
    facts: tuple[str, ...]
    says: str
    on: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one quotation, or a statement that is new beside it."""

    verdict: Verdict
    file: str
    facts: tuple[str, ...]
    was: str
    now: str

    @property
    def wants_a_person(self) -> bool:
        """Whether the fact has to be read again."""
        return self.verdict in {"changed", "gone", "new"}


def quotations() -> list[Quotation]:
    """Return all that the book holds."""
    book = cast("Mapping[str, Mapping[str, object]]", texts(BOOK))
    return [
        Quotation(
            repository=repository,
            file=file,
            facts=tuple(str(entry["facts"]).split()),
            says=str(entry["says"]),
            on=str(repo["on"]),
        )
        for repository, repo in book.items()
        for file, entries in cast("Mapping[str, list[Mapping[str, str]]]", repo["files"]).items()
        for entry in entries
    ]


def check_directory(
    root: Path, repository: str, seen: Mapping[str, frozenset[str]]
) -> list[Finding]:
    """Compare every quotation from a repository with its copy at `root`.

    `seen` has, by file, the statements that stood there when the quotations were taken.
    """
    found = []
    for file in dict.fromkeys(q.file for q in quotations() if q.repository == repository):
        mine = [q for q in quotations() if (q.repository, q.file) == (repository, file)]
        path = root / file
        page = path.read_text(encoding="utf-8") if path.is_file() else ""
        found += check_page(page, mine, seen.get(file))
    return found


def check_page(
    page: str, quoted: Iterable[Quotation], seen: frozenset[str] | None
) -> Iterator[Finding]:
    """Yield what became of the quotations from one page, and what is new in their sections.

    Nothing is new where `seen` is None: nobody knows what stood there.
    """
    now = statements(page)
    words = {statement.text for statement in now}
    sections, matched = set(), set()
    for quotation in quoted:
        was = plain(quotation.says)
        nearest = nearest_to(was, now)
        if nearest is not None:
            sections.add(nearest.section)
            matched.add(nearest.text)
        if was in words or (nearest is not None and was in nearest.text):
            verdict: Verdict = "stands"
        elif nearest is None:
            verdict = "gone"
        else:
            verdict = "reworded" if matters(was) == matters(nearest.text) else "changed"
        yield Finding(
            verdict, quotation.file, quotation.facts, was, nearest.text if nearest else ""
        )
    if seen is None:
        return
    beside = tuple(dict.fromkeys(fact for quotation in quoted for fact in quotation.facts))
    file = next(iter(quoted)).file
    for statement in now:
        is_new = statement.text not in seen and statement.text not in matched
        tells = statement.section in sections and len(matters(statement.text)) > 1
        if is_new and (tells or prices_storage(statement.text)):
            was = max(seen, key=lambda old: likeness(old, statement.text), default="")
            if likeness(was, statement.text) < _SAME_STATEMENT or matters(was) != matters(
                statement.text
            ):
                yield Finding("new", file, beside, "", statement.text)


def nearest_to(was: str, now: Iterable[Statement]) -> Statement | None:
    """Return the statement that is most like that one. None if none is another wording of it."""
    best = max(now, key=lambda statement: likeness(was, statement.text), default=None)
    return best if best is not None and likeness(was, best.text) >= _SAME_STATEMENT else None
