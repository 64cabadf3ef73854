"""Whether the skill holds what a right answer needs, in a file that is two links away at most."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import cast

from evals.book import ROOT, Text, agrees, at, mappings, profiles
from evals.pages import everything, hops, sections
from evals.report import Figure, Report
from gpu_tenant.providers.profile_facts import Facts

_MOST_HOPS = 2
_LEAST_SCENARIOS = 80


@dataclass(frozen=True, slots=True)
class Said:
    """Patterns that one section of one of these files must hold."""

    files: tuple[str, ...]
    says: tuple[str, ...]

    def missing(self, profiles_now: Mapping[str, Facts]) -> str:
        """What is not there, or nothing."""
        del profiles_now
        there = [file for file in self.files if (ROOT / file).is_file()]
        if not there:
            return f"{self.files[0]} does not exist"
        if any(_holds(section, self.says) for file in there for section in _sections(file)):
            return ""
        return f"{there[0]} has no section that says {' + '.join(self.says)}"


@dataclass(frozen=True, slots=True)
class Stated:
    """One fact of a profile, and what it must be."""

    slug: str
    pointer: str
    value: Text

    @property
    def files(self) -> tuple[str, ...]:
        """The profile that holds it."""
        return (f"profiles/{self.slug}.md",)

    def missing(self, profiles_now: Mapping[str, Facts]) -> str:
        """What is not so, or nothing."""
        if self.slug not in profiles_now:
            return f"profiles/{self.slug}.md does not exist"
        found = at(profiles_now[self.slug], self.pointer)
        if agrees(self.value, found):
            return ""
        return f"profiles/{self.slug}.md: {self.pointer} is {found!r}, not {self.value!r}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A question in trouble, and the facts that a right answer rests on."""

    id: str
    ask: str
    facts: tuple[Said | Stated, ...]


@cache
def scenarios() -> tuple[Scenario, ...]:
    """Every scenario, as written.

    Raises:
        ValueError: one of them is not a scenario, with its name.
    """
    found = [
        _scenario(entry)
        for path in sorted((ROOT / "evals" / "answers").glob("*.yaml"))
        for entry in mappings(path)
    ]
    ids = [scenario.id for scenario in found]
    for id_ in ids:
        if ids.count(id_) > 1:
            raise ValueError(f"two scenarios are called {id_}")
    return tuple(found)


def run() -> Report:
    """The scenarios graded, and the links walked."""
    now, far = profiles(), hops()
    asked = scenarios()
    missing = {s.id: [m for fact in s.facts if (m := fact.missing(now))] for s in asked}
    answered = sum(not gaps for gaps in missing.values())
    facts = sum(len(s.facts) for s in asked)
    present = facts - sum(map(len, missing.values()))
    wanted = {file for s in asked for fact in s.facts for file in fact.files}
    hidden = sorted(
        file for file in wanted if (ROOT / file).is_file() and far.get(file, 9) > _MOST_HOPS
    )
    orphans = sorted(
        name for path in everything() if (name := path.relative_to(ROOT).as_posix()) not in far
    )
    return Report(
        "answers",
        (
            Figure("scenarios", len(asked), _LEAST_SCENARIOS),
            Figure("facts a right answer rests on", facts),
            Figure("facts present", present / facts, 1),
            Figure("scenarios answered in full", answered / len(asked), 1),
            Figure("pages a right answer needs, not within two links", len(hidden), 0, "most"),
            Figure("pages and scripts that no link reaches", len(orphans), 0, "most"),
        ),
        problems=[
            *(f"{id_}: {gap}" for id_, gaps in missing.items() for gap in gaps),
            *(f"{file} is more than two links from SKILL.md" for file in hidden),
            *(f"{file} is reached by no link" for file in orphans),
        ],
    )


def _scenario(entry: dict[str, Text]) -> Scenario:
    name = str(entry.get("id", entry))
    if set(entry) != {"id", "ask", "facts"} or not entry["facts"]:
        raise ValueError(f"{name}: a scenario has id, ask and facts")
    return Scenario(
        name,
        str(entry["ask"]),
        tuple(_fact(name, fact) for fact in cast("list[dict[str, Text]]", entry["facts"])),
    )


def _fact(name: str, fact: dict[str, Text]) -> Said | Stated:
    if set(fact) == {"file", "says"}:
        files = fact["file"] if isinstance(fact["file"], list) else [fact["file"]]
        return Said(tuple(map(str, files)), tuple(map(str, fact["says"])))
    if set(fact) == {"fact", "is"}:
        slug, _, pointer = str(fact["fact"]).partition(": ")
        return Stated(slug, pointer, fact["is"])
    raise ValueError(f"{name}: a fact is either file and says, or fact and is")


@cache
def _sections(file: str) -> tuple[str, ...]:
    return tuple(sections((ROOT / file).read_text(encoding="utf-8")))


def _holds(section: str, patterns: tuple[str, ...]) -> bool:
    return all(re.search(pattern, section, re.IGNORECASE) for pattern in patterns)
