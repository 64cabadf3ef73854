"""Whether the description is chosen where the skill is wanted, and only there, among other skills."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from evals.book import ROOT, Text, mappings, texts
from evals.report import Figure, Report
from gpu_tenant.providers.profile_facts import read

if TYPE_CHECKING:
    from evals.embedding import Embedding

OURS: Final = "gpu-tenant"
_LISTS: Final = ("yes_en", "yes_zh", "no_en", "no_zh")
_LATE: Final = "late_"
"""Queries from after the description was written: they choose nothing, and have figures of their own."""

_LEAST_QUERIES, _LEAST_DECOYS, _LONGEST = 120, 30, 1024
_WEIGHTS: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
_THRESHOLDS: Final = tuple(step / 100 for step in range(300))


@dataclass(frozen=True, slots=True)
class Query:
    """What somebody types, and whether the skill is wanted."""

    text: str
    wanted: bool
    chinese: bool
    held_out: bool
    late: bool = False


@dataclass(frozen=True, slots=True)
class Scored:
    """A query and every skill's nearness to it, in meaning and in words; ours comes first."""

    query: Query
    meaning: Sequence[float]
    words: Sequence[float]

    def winner(self, weight: float) -> tuple[int, float]:
        """The skill that ranks first, and by what score."""
        scores = [m + weight * w for m, w in zip(self.meaning, self.words, strict=True)]
        best = max(range(len(scores)), key=scores.__getitem__)
        return best, scores[best]

    def triggers(self, weight: float, threshold: float) -> bool:
        """Whether ours ranks first, and near enough."""
        best, score = self.winner(weight)
        return best == 0 and score >= threshold


@dataclass(frozen=True, slots=True)
class Rate:
    """How well what triggered and what was wanted agree."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """The harmonic mean of the two."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def queries() -> list[Query]:
    """Every query; each third of a list is held out, to choose the weight and the threshold by."""
    lists = cast("dict[str, list[str]]", texts(ROOT / "evals" / "triggers" / "queries.yaml"))
    return [
        Query(text, name.startswith("yes"), name.endswith("zh"), not late and place % 3 == 0, late)
        for late in (False, True)
        for name in _LISTS
        for place, text in enumerate(lists[_LATE * late + name])
    ]


def skills() -> dict[str, str]:
    """Every skill's description by its name, ours first."""
    ours = str(read(ROOT / "SKILL.md")[0]["description"])
    decoys: list[dict[str, Text]] = mappings(ROOT / "evals" / "triggers" / "decoys.yaml")
    return {OURS: ours} | {str(decoy["name"]): str(decoy["description"]) for decoy in decoys}


def run() -> Report:
    """The sets counted and, where the model's package is installed, every query scored."""
    asked, described = queries(), skills()
    counts = [
        Figure("queries", len(asked), _LEAST_QUERIES),
        Figure("of them in Chinese", sum(query.chinese for query in asked) / len(asked), 1 / 3),
        Figure("of them near-misses", sum(not q.wanted for q in asked) / len(asked), 1 / 3),
        Figure("decoy skills", len(described) - 1, _LEAST_DECOYS),
        Figure("characters of our description", len(described[OURS]), _LONGEST, "most"),
    ]
    from evals.embedding import PACKAGE, Embedding, installed

    if not installed():
        return Report("triggers", counts, [f"{PACKAGE} is not installed: `make evals` does it"])
    scored = score(asked, described, Embedding())
    tuning = [one for one in scored if one.query.held_out]
    reported = [one for one in scored if not one.query.held_out and not one.query.late]
    late = [one for one in scored if one.query.late]
    weight, threshold = chosen(tuning)
    alone = rate(reported, 0.0, chosen(tuning, (0.0,))[1])
    whole = rate(reported, weight, threshold)
    english = rate([one for one in reported if not one.query.chinese], weight, threshold)
    chinese = rate([one for one in reported if one.query.chinese], weight, threshold)
    names = list(described)
    return Report(
        "triggers",
        [
            *counts,
            Figure("queries reported on", len(reported)),
            Figure("weight of the words, from the held-out third", weight),
            Figure("threshold, from the held-out third", threshold),
            Figure("precision", whole.precision, 0.95),
            Figure("recall", whole.recall, 0.85),
            Figure("F1", whole.f1, 0.9),
            Figure("F1 English", english.f1, 0.9),
            Figure("recall English", english.recall),
            Figure("F1 Chinese", chinese.f1, 0.85),
            Figure("recall Chinese", chinese.recall),
            Figure("F1 by the embedding alone", alone.f1),
            Figure("late queries", len(late)),
            Figure("F1 of late queries", rate(late, weight, threshold).f1),
        ],
        remarks=[
            f"{'missed' if one.query.wanted else 'false alarm'}: {one.query.text!r}"
            f" -> {names[one.winner(weight)[0]]}"
            for one in (*reported, *late)
            if one.triggers(weight, threshold) != one.query.wanted
        ],
    )


def score(
    asked: Sequence[Query], described: dict[str, str], embedding: "Embedding"
) -> list[Scored]:
    """Every query against every description: its nearest sentence, and the words in common.

    The model is English at heart; the words, and pairs of Chinese characters, make up for that.
    """
    whole = list(described.values())
    parts = [(owner, part) for owner, text in enumerate(whole) for part in _parts(text)]
    near = embedding.of([q.text for q in asked]) @ embedding.of([part for _, part in parts]).T
    rarity = _rarity(whole)
    return [
        Scored(
            query,
            [
                max(float(row[place]) for place, (owner, _) in enumerate(parts) if owner == skill)
                for skill in range(len(whole))
            ],
            [_named(query.text, text, rarity) for text in whole],
        )
        for query, row in zip(asked, near, strict=True)
    ]


def chosen(tuning: Sequence[Scored], weights: Sequence[float] = _WEIGHTS) -> tuple[float, float]:
    """The weight and the threshold with the best F1; of equally good thresholds, the middle one."""
    wanted = sum(one.query.wanted for one in tuning)
    best: list[tuple[float, float, float]] = []
    for weight in weights:
        ours = [(won[1], one.query.wanted) for one in tuning if not (won := one.winner(weight))[0]]
        for threshold in _THRESHOLDS:
            hits = [right for score_, right in ours if score_ >= threshold]
            best.append((2 * sum(hits) / (len(hits) + wanted), weight, threshold))
    top = max(f1 for f1, _, _ in best)
    weight = min(weight for f1, weight, _ in best if f1 == top)
    plateau = [threshold for f1, w, threshold in best if f1 == top and w == weight]
    return weight, plateau[len(plateau) // 2]


def rate(scored: Sequence[Scored], weight: float, threshold: float) -> Rate:
    """Precision and recall of what triggers."""
    hits = [one.query.wanted for one in scored if one.triggers(weight, threshold)]
    wanted = sum(one.query.wanted for one in scored)
    return Rate(sum(hits) / len(hits) if hits else 0.0, sum(hits) / wanted)


def _parts(text: str) -> list[str]:
    """The description as a whole, and each of its sentences."""
    return [text, *(part for part in re.split(r"(?<=[.;:。；：])\s*", text) if part.strip())]


def _tokens(text: str) -> set[str]:
    """Words without their endings, and pairs of Chinese characters."""
    low = text.lower()
    words = {
        re.sub(r"(ing|ed|es|s)$", "", w) if len(w) > 4 else w for w in re.findall(r"[a-z0-9]+", low)
    }
    runs = re.findall(r"[\u4e00-\u9fff]+", low)
    return words | {run[i : i + 2] for run in runs for i in range(len(run) - 1)}


def _rarity(descriptions: Sequence[str]) -> Counter[str]:
    return Counter(token for text in descriptions for token in _tokens(text))


def _named(query: str, description: str, rarity: Counter[str]) -> float:
    """Which share of the query's words the description has, the rare ones counting more."""
    skills_ = rarity.total() and max(rarity.values()) + 1

    def weight(token: str) -> float:
        return math.log(1 + (skills_ + 0.5) / (rarity[token] + 0.5))

    tokens = _tokens(query)
    whole = sum(map(weight, tokens))
    return sum(map(weight, tokens & _tokens(description))) / whole if whole else 0.0
