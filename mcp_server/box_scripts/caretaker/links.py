"""Symbolic links among the artifacts."""

from __future__ import annotations

import os

from box_scripts.caretaker.paths import escape_path, is_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from box_scripts.caretaker.survey import Survey


def link_entries(survey: Survey, kept: set[bytes]) -> list[dict]:
    """Return an entry for each link that leads to a place in the work directory, or to nothing.

    A link that leads out of it gets none, and is told: it has no bytes, and what it leads to is listed by itself. So
    is one that leads to nothing, or to something that is not kept.

    The target in the entry is the link's own text. If this text is absolute, or has `..` in its middle, the target is
    a simpler path to the same place. The hash is that of the target's text.
    """
    entries, reached = [], _reached(kept)
    for name, path in survey.links:
        at, target = escape_path(path), os.path.realpath(path)
        try:
            seen, text = os.lstat(path), os.readlink(path)
        except OSError as error:
            survey.problem(at, "changing", error.strerror)
            continue
        is_dangling = not os.path.exists(path)
        if is_dangling:
            survey.problem(at, "dangling", "it leads to nothing: " + escape_path(text))
        if not is_below(target, survey.work) or not is_below(path, survey.work):
            if not is_dangling:
                words = "it leads out of the work directory, or into it: to "
                survey.problem(at, "escapes", words + escape_path(target))
            continue
        if not is_dangling and target not in reached:
            survey.problem(at, "link_target_not_kept", escape_path(target) + " is no artifact")
        survey.note_match(at)
        entries.append(_entry(name, path, _plain_way(path, text, survey.work), seen, "artifact"))
    return entries


def undeclared_link_entries(
    survey: Survey, kept: set[bytes], is_discarded: Callable[[str, str | None], bool], most: int
) -> list[dict]:
    """Return an entry for each new link in the work directory that nobody declared, if it leads to what is kept.

    So does one that leads to nothing. All others are left out without a word, because a link has no bytes.
    """
    entries: list[dict] = []
    reached = _reached(kept)
    for name, path in survey.new_links:
        at, target = escape_path(path), os.path.realpath(path)
        if len(entries) >= most or is_discarded(at, survey.inner(at)):
            continue
        if not is_below(target, survey.work) or (os.path.exists(path) and target not in reached):
            continue
        try:
            seen, text = os.lstat(path), os.readlink(path)
        except OSError:
            continue  # It is gone.
        entries.append(_entry(name, path, _plain_way(path, text, survey.work), seen, "unasked"))
    return entries


def _reached(kept: set[bytes]) -> set[bytes]:
    """Return the files that are kept, and all directories that lead to them."""
    reached = set(kept)
    for path in kept:
        parent = os.path.dirname(path)
        while parent not in reached:
            reached.add(parent)
            parent = os.path.dirname(parent)
    return reached


def _entry(name: str, path: bytes, text: bytes, seen: os.stat_result, role: str) -> dict:
    import hashlib

    return {
        "name": name,
        "at": escape_path(path),
        "kind": "link",
        "class": role,
        "size": len(text),
        "sha256": hashlib.sha256(text).hexdigest(),
        "mtime_ns": seen.st_mtime_ns,
        "target": escape_path(text),
    }


def _plain_way(path: bytes, text: bytes, work: bytes) -> bytes:
    """Return the link's text, if it is relative, and has `..` only at its beginning.

    Otherwise return a path of this form that leads to the same place.
    """
    parts = [part for part in text.split(b"/") if part != b"."]
    climbs = next((i for i, part in enumerate(parts) if part != b".."), len(parts))
    parent = os.path.dirname(path)
    depth = os.path.relpath(path, work).count(b"/")
    if not text.startswith(b"/") and b".." not in parts[climbs:] and climbs <= depth:
        return text
    head, tail = os.path.split(text.rstrip(b"/"))
    place = os.path.join(os.path.realpath(os.path.join(parent, head)), tail)
    if tail in (b"", b".", b"..") or not is_below(place, work):
        place = os.path.realpath(path)
    return os.path.relpath(place, parent)
