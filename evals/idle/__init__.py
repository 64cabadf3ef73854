"""Whether the judge on the box tells work from idleness, against the two rules that others go by."""

import importlib.util
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Final

from evals.book import ROOT
from evals.idle.traces import WHERE, Look, Trace, traces
from evals.report import Figure, Report

SPLIT: Final = Path(__file__).parent / "split.json"
FLOORS: Final = {"all": 0.96, "held out": 0.94}
"""Of our F1: what was measured, less two hundredths."""
LONGEST_FALSE_S: Final = 300.0
"""No box at work may be called idle for longer: what ends an idle lease waits several times as long."""
WINDOW_S: Final = 600.0
BELOW_PCT: Final = 5
CLASSES: Final = ("idle", "busy", "suspicious")

Rule = Callable[[Trace], list[str]]


@dataclass(frozen=True, slots=True)
class Rate:
    """Of one class: how much of what was called so was so, and how much of what was so was called so."""

    hits: int
    called: int
    were: int

    @property
    def f1(self) -> float:
        """Their harmonic mean; 0 where nothing was hit."""
        return 2 * self.hits / (self.called + self.were) if self.hits else 0.0


@cache
def judge() -> ModuleType:
    """The very file that is put on a box."""
    spec = importlib.util.spec_from_file_location("activity", ROOT / "scripts" / "activity.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ours(trace: Trace) -> list[str]:
    """The phase that the judge names at each look."""
    return [verdict[1] for verdict in judge().verdicts(trace.looks())[1:]]


def job_table(trace: Trace) -> list[str]:
    """Idle when no declared job is alive."""
    return ["busy" if label.alive else "idle" for label in trace.labels]


def gpu_below(trace: Trace) -> list[str]:
    """Idle when every GPU was below 5 % at every look of the last ten minutes, or of as many as there are."""
    looks = trace.looks()
    at = [0.0]
    for one, two in pairwise(looks):
        at.append(at[-1] + max(0.0, two["up"] - one["up"]))
    full = [_fullest(look) for look in looks]
    return [
        "idle"
        if all(full[m] < BELOW_PCT for m in range(1, n + 1) if at[m] > at[n] - WINDOW_S)
        else "busy"
        for n in range(1, len(looks))
    ]


def _fullest(look: Look) -> float:
    return max((card["util_pct"] or 0.0 for card in look["gpus"] or ()), default=0.0)


RULES: Final[dict[str, Rule]] = {
    "ours": ours,
    "job table": job_table,
    "GPU below 5 %": gpu_below,
}


def held_out() -> frozenset[str]:
    """The third that nothing was tuned on."""
    return frozenset(json.loads(SPLIT.read_text(encoding="utf-8"))["held_out"])


def digest() -> str:
    """Of every label, so that one which was changed after the rule was written is noticed."""
    lines = [
        json.dumps(
            [path.stem, json.loads(path.read_text(encoding="utf-8").partition("\n")[0])["spans"]]
        )
        for path in sorted(WHERE.glob("*.jsonl"))
    ]
    return sha256("\n".join(lines).encode()).hexdigest()


def coarse(phase: str) -> str:
    """One of three classes, or unknown."""
    return phase if phase in ("idle", "suspicious", "unknown") else "busy"


def rate(pairs: Iterable[tuple[str, str]], *positive: str) -> Rate:
    """How well those classes were told, over (what was, what was said)."""
    listed = [(was in positive, said in positive) for was, said in pairs]
    return Rate(
        sum(was and said for was, said in listed),
        sum(said for _, said in listed),
        sum(was for was, _ in listed),
    )


def pairs(rule: Rule, chosen: Sequence[Trace]) -> list[tuple[str, str]]:
    """What was and what the rule said, a pair for each look."""
    return [
        (label.truth, coarse(said))
        for trace in chosen
        for label, said in zip(trace.labels, rule(trace), strict=True)
    ]


def longest_false_s(trace: Trace) -> float:
    """The most idleness that the judge claims at a look at which the box worked."""
    told = judge().verdicts(trace.looks())[1:]
    return max(
        (v[2] for label, v in zip(trace.labels, told, strict=True) if label.truth == "busy"),
        default=0.0,
    )


def run() -> Report:
    """Every trace is replayed through the judge and through both other rules."""
    every = traces()
    apart = [trace for trace in every if trace.name in held_out()]
    figures = [
        Figure("traces", len(every), 48),
        Figure("of them recorded", sum(trace.how == "recorded" for trace in every), 16),
        Figure("looks", sum(len(trace.labels) for trace in every)),
    ]
    f1, problems, remarks = {}, [], []
    for name, rule in RULES.items():
        for which, chosen in (("all", every), ("held out", apart)):
            told = pairs(rule, chosen)
            idle = rate(told, "idle")
            f1[name, which] = idle.f1
            bar = FLOORS[which] if name == "ours" else None
            figures.append(Figure(f"F1 of idle, {name}, {which}", idle.f1, bar))
        told = pairs(rule, every)
        wasted = rate(told, "idle", "suspicious")
        figures.append(Figure(f"F1 of idle or suspicious, {name}", wasted.f1))
        counted = Counter(told)
        remarks += [
            f"{name}: of {sum(n for (was, _), n in counted.items() if was == one)} {one} looks "
            + ", ".join(
                f"{counted[one, said]} were called {said}" for said in (*CLASSES, "unknown")
            )
            for one in CLASSES
        ]
    problems += [
        f"ours is no better than {name} on {which}"
        for (name, which), value in f1.items()
        if name != "ours" and f1["ours", which] <= value
    ]
    suspicious = rate(pairs(ours, every), "suspicious")
    working = [
        (label.phase, said)
        for trace in every
        for label, said in zip(trace.labels, ours(trace), strict=True)
        if label.truth == "busy" and coarse(said) == "busy"
    ]
    false_s = {trace.name: longest_false_s(trace) for trace in every}
    worst = max(false_s, key=lambda name: false_s[name])
    remarks.append(
        f"the longest idleness claimed of a box at work: {false_s[worst]:.0f} s, {worst}"
    )
    figures += [
        Figure("F1 of suspicious", suspicious.f1, 0.9),
        Figure(
            "longest idleness claimed of a box at work, s", false_s[worst], LONGEST_FALSE_S, "most"
        ),
        Figure(
            "phases right, of looks at work", sum(a == b for a, b in working) / len(working), 0.9
        ),
    ]
    if digest() != json.loads(SPLIT.read_text(encoding="utf-8"))["labels_sha256"]:
        problems.append("a label was changed since the rule was written: say why in its header")
    return Report("idle", figures, problems, remarks)
