"""Limits how much a discard pattern may cover. Also the verb `patterns`."""

from __future__ import annotations

import os

from box_scripts.caretaker.paths import escape_path, is_below, utf8_bytes
from box_scripts.caretaker.patterns import Pattern
from box_scripts.caretaker.refusal import Refusal


def good_patterns(texts: list[str], bounds: Bounds | None, problems: list[dict]) -> list[Pattern]:
    """Return those of the texts that are valid patterns.

    A text that is not valid, or covers too much, is left out and added to `problems`.
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
    """Decides which artifacts are discarded, because a discard is narrower than each pattern that keeps them.

    The discard `out/huge.bin` is a part of the artifact `out/`, so this file is discarded. The discard `*.tmp` is
    not a part of `out/`, so the temporary files in `out/` are kept.
    """

    def __init__(self, artifacts: list[Pattern], discards: list[Pattern]) -> None:
        within = [(d, [a for a in artifacts if _lies_in(d, a)]) for d in discards]
        self._narrower = [(discard, inner) for discard, inner in within if inner]
        self._artifacts = artifacts

    def takes(self, at: str, inner: str | None) -> bool:
        """Whether the artifact at that path is discarded."""
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
    """Whether the discard covers a part of the artifact pattern, but not all of it."""
    if discard.relative != artifact.relative or discard.place == artifact.place:
        return False
    if not artifact.matches(discard.place):
        return False
    all_of_it = [p for p in PROBES if discard.matches(artifact.place + "/" + p)]
    return not _is_wide(all_of_it)


def _plain(text: str) -> str:
    """Return the pattern with all unprintable characters escaped."""
    return escape_path(utf8_bytes(text))


TEMPORARY = (b"/tmp", b"/var/tmp", b"/dev/shm")
PROBES = (  # examples of names that jobs write, as different as possible
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
    """Whether a pattern that matches these probes probably matches everything, or everything in subdirectories."""
    return 2 * len(matched) >= len(PROBES) or sum("/" in probe for probe in matched) >= 4


class Bounds:
    """The limits of a discard pattern: it may cover no whole place, and nothing of another lease.

    A place is a directory that must be accounted for, such as the work or the home directory.
    """

    def __init__(self, home: str, work: bytes, tops: list[bytes]) -> None:
        login = os.path.realpath(os.path.expanduser(b"~"))
        self._own = os.path.dirname(work)
        beside, plain = os.path.dirname(self._own), os.path.join(login, b"gpu-tenant")
        is_ours = os.path.basename(beside) == b"gpu-tenant"
        # The directory of another lease may be on another disk of the box.
        self._leases = {plain, beside} if is_ours else set()
        # A place whose name says that it is temporary may be discarded as a whole.
        kept = [top for top in tops if top not in TEMPORARY]
        self._work, self._tops = work, list(dict.fromkeys([*kept, login]))
        self._home = os.fsencode(home)

    def passed_by(self, pattern: Pattern) -> str | None:
        """Return what the pattern covers although it may not, in words. None if it keeps the limits."""
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
    """Report which of these patterns are not valid, or cover too much. Nothing is changed."""
    problems: list[dict] = []
    tops = [request["work"], *sorted(request.get("roots", []))]
    good_patterns(request.get("artifacts", []), None, problems)
    good_patterns(request.get("discard", []), Bounds(home, request["work"], tops), problems)
    return {"problems": problems}
