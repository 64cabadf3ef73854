"""Whether a wrong fact would be noticed: every one is made wrong, one at a time, and something must turn red."""

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import jsonschema

from evals.answers import Stated, scenarios
from evals.book import ROOT, Text, agrees, at, named, profiles, steps, texts
from evals.report import Figure, Report
from evals.rules import broken
from gpu_tenant.providers.profile_facts import Facts, Leaf

_SUBJECTS: Final = re.compile(
    r"lease|stops|billing\.(running|after_destroy|zero_balance|rounding)|verbs\.\S+|gone\.\S+|paths\S*|volume\S*"
    r"|clocks\S*|interrupt\S*|deadman\.\S+|detach\.survives\.\S+"
)
"""What data or money rests on."""

_NOT_SUBJECTS: Final = re.compile(r"\.(path|id|name|inode_cap|quota_gb)$")

_OPPOSITES: Final = (
    ("without", "with"),
    ("nothing", "everything"),
    ("cannot", "can"),
    ("never", "always"),
    ("not", ""),
    ("no", "a"),
    ("none", "all"),
    ("only", "not only"),
    ("kept", "deleted"),
    ("keeps", "deletes"),
    ("stays", "goes"),
    ("stopped", "started"),
    ("stops", "runs on"),
    ("stop", "run on"),
    ("deleted", "kept"),
    ("deletes", "keeps"),
    ("destroyed", "kept"),
    ("released", "kept"),
    ("wiped", "kept"),
    ("lost", "kept"),
    ("bills", "is free"),
    ("billed", "free"),
    ("charged", "free"),
    ("before", "after"),
    ("after", "before"),
    ("until", "after"),
    ("empty", "full"),
    ("every", "no"),
)
"""A word and what makes its sentence say something else."""

_JUDGES: Final = ("schema", "book", "answers", "rules")
_CHARGES: Final = ("gpu", "disk", "bytes", "volumes", "snapshots", "addresses", "electricity")
_ANSWERS: Final = ("yes", "no", "unknown", "n/a")
_WORDS: Final = {
    "effect": ("keeps", "wipes", "none"),
    "how": ("api", "directory", "owner", "console", "in_box"),
    "provider_timer": ("none", "stop", "delete"),
    "in_box": ("none", "api_key", "poweroff"),
    "lease": ("created", "adopted", "either", "none"),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One profile with one fact made wrong."""

    slug: str
    pointer: str
    change: str
    facts: Facts

    @property
    def name(self) -> str:
        """Which fact, and what became of it."""
        return f"{self.slug}: {self.pointer} {self.change}"


def run() -> Report:
    """Every mutant made, and what noticed it."""
    now, stated, by = profiles(), book(), Counter[str]()
    survivors: list[str] = []
    judges = _Judges(now, stated)
    count = facts = 0
    for slug, profile in now.items():
        mutants = list(mutants_of(slug, profile))
        facts += len({mutant.pointer for mutant in mutants})
        for mutant in mutants:
            count += 1
            noticed = judges.notice(mutant)
            by.update(noticed)
            if not noticed:
                survivors.append(mutant.name)
    differing = disagreements(now, stated)
    return Report(
        "mutation",
        (
            Figure("platforms", len(now)),
            Figure("facts made wrong", facts),
            Figure("mutants", count),
            Figure("noticed", (count - len(survivors)) / count, 1),
            *(Figure(f"noticed by the {judge}", by[judge] / count) for judge in _JUDGES),
            Figure("disagreements of the two books", len(differing), 0, "most"),
            Figure("rules that a profile breaks", len(judges.already), 0, "most"),
        ),
        problems=[*differing, *judges.already, *(f"nothing notices {name}" for name in survivors)],
    )


def book() -> dict[str, dict[str, Text]]:
    """The facts stated a second time: by slug, each pointer and what must be there."""
    stated = cast("dict[str, dict[str, Text]]", texts(ROOT / "evals" / "facts.yaml"))
    return {slug: dict(_flat(facts)) for slug, facts in stated.items()}


def disagreements(now: Mapping[str, Facts], stated: Mapping[str, Mapping[str, Text]]) -> list[str]:
    """Where a profile and the book differ, and what only one of them knows, in words."""
    return [
        *(f"profiles/{slug}.md does not exist" for slug in stated if slug not in now),
        *(f"evals/facts.yaml says nothing of {slug}" for slug in now if slug not in stated),
        *(
            f"profiles/{slug}.md: {pointer} is {found!r}, and evals/facts.yaml says {value!r}"
            for slug in now
            for pointer, value in stated.get(slug, {}).items()
            if not agrees(value, found := at(now[slug], pointer))
        ),
    ]


class _Judges:
    """What may notice a mutant; what is wrong before anything was made wrong does not count."""

    def __init__(self, now: Mapping[str, Facts], stated: Mapping[str, Mapping[str, Text]]) -> None:
        schema = json.loads((ROOT / "profiles" / "_schema.json").read_text(encoding="utf-8"))
        self._schema = jsonschema.Draft202012Validator(schema)
        self._before = {slug: broken(facts) for slug, facts in now.items()}
        self.already = [
            f"profiles/{slug}.md: {said}" for slug, rules in self._before.items() for said in rules
        ]
        answers = [f for s in scenarios() for f in s.facts if isinstance(f, Stated)]
        self._claims: dict[str, dict[str, list[tuple[str, Text]]]] = {}
        for slug, facts in now.items():
            by_judge = {
                "book": list(stated.get(slug, {}).items()),
                "answers": [(f.pointer, f.value) for f in answers if f.slug == slug],
            }
            self._claims[slug] = {
                judge: [(p, value) for p, value in claims if agrees(value, at(facts, p))]
                for judge, claims in by_judge.items()
            }

    def notice(self, mutant: Mutant) -> set[str]:
        """Who turns red."""
        noticed = {
            judge
            for judge, claims in self._claims[mutant.slug].items()
            if any(
                _touches(pointer, mutant.pointer) and not agrees(value, at(mutant.facts, pointer))
                for pointer, value in claims
            )
        }
        if not self._schema.is_valid(mutant.facts):
            noticed.add("schema")
        elif set(broken(mutant.facts)) - set(self._before[mutant.slug]):
            noticed.add("rules")
        return noticed


def mutants_of(slug: str, facts: Facts) -> Iterator[Mutant]:
    """Every way in which one fact of this profile is made wrong."""
    for pointer, leaf in _leaves(facts, ""):
        for change, value in _wrong(pointer, leaf):
            yield Mutant(slug, pointer, change, _with(facts, pointer, value))
    if "interrupt" in facts:
        yield Mutant(slug, "interrupt", "left out", _with(facts, "interrupt", None))
    else:
        invented: Leaf = {"how": "a box may be taken back", "notice_s": 120}
        yield Mutant(slug, "interrupt", "invented", _with(facts, "interrupt", invented))


def _flat(facts: Mapping[str, Text], under: str = "") -> Iterator[tuple[str, Text]]:
    for key, value in facts.items():
        if isinstance(value, dict) and "says" not in value:
            yield from _flat(value, f"{under}{key}.")
        else:
            yield under + key, value


def _touches(claimed: str, changed: str) -> bool:
    """Whether a claim at one pointer may be about a change at the other."""
    a, b = steps(claimed), steps(changed)
    short = min(len(a), len(b))
    return a[:short] == b[:short]


def _leaves(leaf: Leaf, pointer: str) -> Iterator[tuple[str, Leaf]]:
    """Every fact on which data or money rests, lists both as a whole and entry by entry."""
    if isinstance(leaf, Mapping):
        for key, value in leaf.items():
            yield from _leaves(value, f"{pointer}.{key}" if pointer else key)
        return
    if _SUBJECTS.fullmatch(pointer) and not _NOT_SUBJECTS.search(pointer):
        yield pointer, leaf
    if isinstance(leaf, list):
        for entry in leaf:
            if isinstance(entry, Mapping):
                yield from _leaves(entry, f"{pointer}[{named(entry)}]")


def _wrong(pointer: str, leaf: Leaf) -> Iterator[tuple[str, Leaf]]:
    """What the fact there could be instead, and how that is called."""
    key = steps(pointer)[-1]
    if isinstance(leaf, list):
        yield from _wrong_list(pointer, leaf)
    elif isinstance(leaf, int | float):
        yield from ((f"-> {n}", n) for n in dict.fromkeys((leaf * 2, 0, leaf + 1)) if n != leaf)
    elif leaf in _ANSWERS and key != "effect" and key not in _WORDS:
        yield from ((f"-> {word}", word) for word in _ANSWERS if word != leaf)
    elif leaf in _WORDS.get(key, ()) or leaf in ("deletes", "hands_back"):
        words = ("deletes", "hands_back") if leaf in ("deletes", "hands_back") else _WORDS[key]
        yield from ((f"-> {word}", word) for word in words if word != leaf)
    elif isinstance(leaf, str):
        yield from _wrong_sentence(leaf)


def _wrong_list(pointer: str, leaf: list[Leaf]) -> Iterator[tuple[str, Leaf]]:
    for entry in leaf:
        yield f"without {named(entry)}", [other for other in leaf if other is not entry]
    if pointer.startswith("billing."):
        yield from ((f"with {c}", [*leaf, c]) for c in _CHARGES if c not in leaf)
    elif pointer == "paths":
        safe: Leaf = dict.fromkeys(("reboot", "park", "destroy", "host_loss", "preempt"), "yes")
        yield "with a path that survives everything", [*leaf, {"path": "/keeps", "survives": safe}]
    elif pointer == "clocks":
        yield "with a clock", [*leaf, {"id": "invented", "effect": "the disk is wiped"}]


def _wrong_sentence(sentence: str) -> Iterator[tuple[str, Leaf]]:
    for number in re.finditer(r"\d+(\.\d+)?", sentence):
        for other in (f"{float(number[0]) * 2:g}", "0"):
            yield (
                f"{number[0]} -> {other}",
                sentence[: number.start()] + other + sentence[number.end() :],
            )
    for word, instead in _OPPOSITES:
        for found in re.finditer(rf"(?<![\w-]){word}(?![\w-])", sentence):
            changed = sentence[: found.start()] + instead + sentence[found.end() :]
            yield f"{word!r} at {found.start()} -> {instead!r}", changed
    yield "emptied", ""


def _with(facts: Facts, pointer: str, value: Leaf | None) -> Facts:
    """The same facts, but for this one."""
    changed = copy.deepcopy(cast("dict[str, Leaf]", facts))
    *way, last = steps(pointer)
    place: Leaf | None = changed
    for step in way:
        if isinstance(place, list):
            place = next(entry for entry in place if named(entry) == step)
        else:
            place = cast("dict[str, Leaf]", place)[step]
    target = cast("dict[str, Leaf]", place)
    if value is None:
        del target[last]
    else:
        target[last] = value
    return changed
