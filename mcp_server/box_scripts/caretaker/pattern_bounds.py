"""How much a pattern may give up; the verb `patterns`."""

from __future__ import annotations

import os

from box_scripts.caretaker.paths import escape_path, is_below, utf8_bytes
from box_scripts.caretaker.patterns import Pattern
from box_scripts.caretaker.refusal import Refusal


def good_patterns(texts: list[str], bounds: Bounds | None, problems: list[dict]) -> list[Pattern]:
    """Return the texts that are patterns.

    A text that is no pattern, or that gives up too much, is left out and added to `problems`.
    """
    found = []
    for text in dict.fromkeys(texts):
        try:
            pattern = Pattern(text)
        except Refusal as refusal:
            why, detail = "bad_pattern", refusal.reply["message"]
        else:
            wide = bounds.passed_by(pattern) if bounds else None
            if wide is None:
                found.append(pattern)
                continue
            why, detail = "wide_pattern", "it gives up %s, unseen" % wide
        problems.append({"at": _plain(text), "why": why, "detail": str(detail)})
    return found


class Narrowing:
    """Which artifacts are given up after all, because a discard is narrower than each pattern that keeps them.

    The discard `out/huge.bin` lies in the artifact `out/`, so this file is given up. The discard `*.tmp` does
    not lie in `out/`, so `out/` keeps its temporary files.
    """

    def __init__(self, artifacts: list[Pattern], discards: list[Pattern]) -> None:
        within = [(d, [a for a in artifacts if _lies_in(d, a)]) for d in discards]
        self._narrower = [(discard, inner) for discard, inner in within if inner]
        self._artifacts = artifacts

    def takes(self, at: str, inner: str | None) -> bool:
        """Whether the artifact at that path is given up."""
        if not self._narrower:
            return False

        def means(pattern: Pattern) -> bool:
            text = inner if pattern.relative else at
            return text is not None and bool(pattern.matches(text))

        keeping = [artifact for artifact in self._artifacts if means(artifact)]
        return any(
            means(discard) and all(artifact in within for artifact in keeping)
            for discard, within in self._narrower
        )


def _lies_in(discard: Pattern, artifact: Pattern) -> bool:
    """Whether the discard names a part, and not all, of what the artifact names."""
    if discard.relative != artifact.relative or discard.place == artifact.place:
        return False
    if not artifact.matches(discard.place):
        return False
    all_of_it = [p for p in PROBES if discard.matches(artifact.place + "/" + p)]
    return not _is_wide(all_of_it)


def _plain(text: str) -> str:
    """The pattern as a path that can be shown, whatever it holds."""
    return escape_path(utf8_bytes(text))


TEMPORARY = (b"/tmp", b"/var/tmp", b"/dev/shm")
PROBES = (  # names that jobs write, with nothing else in common
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


def _is_wide(matched: list[str]) -> bool:
    """Whether a pattern that matches those probes matches everything, or everything in directories."""
    return 2 * len(matched) >= len(PROBES) or sum("/" in probe for probe in matched) >= 4


class Bounds:
    """How much a pattern may give up: what it names, but no whole place, and nothing of another lease."""

    def __init__(self, home: str, work: bytes, tops: list[bytes]) -> None:
        login = os.path.realpath(os.path.expanduser(b"~"))
        self._own = os.path.dirname(work)
        beside, plain = os.path.dirname(self._own), os.path.join(login, b"gpu-tenant")
        is_ours = os.path.basename(beside) == b"gpu-tenant"
        # Another lease may have its directory on another of the box's disks.
        self._leases = {plain, beside} if is_ours else set()
        # A place whose very name says that it is temporary may be given up as a whole.
        kept = [top for top in tops if top not in TEMPORARY]
        self._work, self._tops = work, list(dict.fromkeys([*kept, login]))
        self._home = os.fsencode(home)

    def passed_by(self, pattern: Pattern) -> str | None:
        """Return what the pattern would give up although it may not. None if the pattern keeps its bounds."""
        if pattern.relative:
            matched = [probe for probe in PROBES if pattern.matches(probe)]
            return "all that is written" if _is_wide(matched) else None
        for top in self._tops:
            at = escape_path(top).rstrip("/") + "/"
            if _is_wide([probe for probe in PROBES if pattern.matches(at + probe)]):
                return "all of " + escape_path(top)
        for leases in self._leases:
            others = escape_path(os.path.join(leases, b"own-zzzz/work/out/a"))
            is_there = is_below(pattern.prefix, leases) and not is_below(pattern.prefix, self._own)
            if pattern.matches(others) or is_there:
                return "what belongs to another lease"
        return None


def patterns(home: str, request: dict) -> dict:
    """Tell which of these patterns are no patterns, or give up too much. Do nothing else."""
    problems: list[dict] = []
    tops = [request["work"], *sorted(request.get("roots", []))]
    good_patterns(request.get("artifacts", []), None, problems)
    good_patterns(request.get("discard", []), Bounds(home, request["work"], tops), problems)
    return {"problems": problems}
