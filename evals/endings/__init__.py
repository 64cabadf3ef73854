"""Jobs that end in every way we know, really produced, and what the diagnosis makes of each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from evals.endings.cases import endings
from evals.endings.ending import Ending
from evals.endings.late import late_endings, second_endings
from evals.endings.programs import C_SOURCES
from evals.endings.stage import Broken, compiled, missing, produced
from evals.report import Figure, Report

_LEAST_ENDINGS: Final = 60
_LEAST_RIGHT: Final = 0.95


@dataclass(frozen=True, slots=True)
class Judged:
    """One ending, and the verdict on it."""

    ending: Ending
    verdict: str
    evidence: str

    @property
    def right(self) -> bool:
        return self.verdict == self.ending.truth

    @property
    def wrong(self) -> bool:
        """A verdict that is not so; `unknown` is none."""
        return not self.right and self.verdict != "unknown"


def run() -> Report:
    """Every ending that this machine can produce has been produced and judged."""
    lacks = missing()
    built: Mapping[str, str] = {} if "compiler" in lacks else C_SOURCES
    with compiled(built) as folder:
        every = [*endings(folder), *second_endings(), *late_endings()]
        able = [ending for ending in every if not ending.needs & set(lacks)]
        judged, broken = judge(able)
    left_out = [
        f"not produced here: {ending.name} ({', '.join(lacks[n] for n in ending.needs if n in lacks)})"
        for ending in every
        if ending not in able
    ]
    return reported(judged, left_out, broken)


def judge(chosen: Sequence[Ending]) -> tuple[list[Judged], list[str]]:
    """The verdict on each, and those that could not be produced though they should."""
    judged, broken = [], []
    for ending in chosen:
        try:
            _, found = produced(ending)
        except Broken as trouble:
            broken.append(f"{ending.name}: {trouble}")
            continue
        verdict, said = (found.verdict, found.evidence) if found else ("none", "")
        judged.append(Judged(ending, verdict, said))
    return judged, broken


def reported(
    judged: Sequence[Judged], left_out: Sequence[str], broken: Sequence[str] = ()
) -> Report:
    """The table, and the matrix of what was told for what was so."""
    right, wrong = sum(one.right for one in judged), [one for one in judged if one.wrong]
    shy = [one for one in judged if not one.right and not one.wrong]
    causes = Counter(one.ending.truth for one in judged)
    told = Counter(one.ending.truth for one in judged if one.right)
    return Report(
        "endings",
        [
            Figure("endings produced", len(judged), None if left_out else _LEAST_ENDINGS),
            Figure(
                "of them with a framework's words written by us",
                sum(o.ending.written for o in judged),
            ),
            Figure("endings not produced here", len(left_out)),
            Figure("told right", right / len(judged), _LEAST_RIGHT),
            Figure("told right, of those written after the rules", share(judged)),
            Figure("told as unknown though there was a cause", len(shy)),
            Figure("told wrong", len(wrong), 0.05 * len(judged), "most"),
            *(
                Figure(f"{cause}: told right, of {causes[cause]}", told[cause])
                for cause in sorted(causes)
            ),
        ],
        broken,
        [*matrix(judged), *(f"{_line(one)}" for one in (*wrong, *shy)), *left_out],
    )


def share(judged: Sequence[Judged]) -> float:
    """How many of the late ones were told right, as a share."""
    late = [one.right for one in judged if one.ending.late]
    return sum(late) / len(late) if late else 1.0


def matrix(judged: Sequence[Judged]) -> list[str]:
    """One line for each true cause: what was told for it, and how often."""
    seen = Counter((one.ending.truth, one.verdict) for one in judged)
    rows = []
    for cause in sorted({truth for truth, _ in seen}):
        told = sorted((v, n) for (truth, v), n in seen.items() if truth == cause)
        rows.append(f"{cause:13} -> " + ", ".join(f"{verdict} {n}" for verdict, n in told))
    return rows


def _line(one: Judged) -> str:
    return f"{one.ending.name} was {one.ending.truth}, told as {one.verdict}: {one.evidence}"
