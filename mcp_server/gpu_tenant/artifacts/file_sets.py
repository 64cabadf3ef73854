"""Finds sets of files that lack a part, such as a checkpoint without one of its shards.

What makes a set is data, in `set_table.py`. A set is judged by the names of its files and by its own lists.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from posixpath import basename, dirname, join, normpath
from typing import NamedTuple

from gpu_tenant.artifacts.set_table import (
    COMPANIONS,
    COUNTED,
    CUT_OFF,
    LISTINGS,
    NO_PARTS,
    NO_WEIGHTS,
    NUMBERED,
    WEIGHTS,
    Companion,
)
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.wording import some
from gpu_tenant.files.patterns import is_readable, matches_kept_name

_NAMED = 3
_MOST_PARTS = 10_000
_MOST_ON_ONE_BOX = 8
"""A box of several that work together may hold only its own ranks. So many come before them at least."""


class HalfSet(NamedTuple):
    """A set of files in the directory `place` that lacks a part."""

    place: str
    lacks: tuple[str, ...]
    """What lacks, by its path below the place."""
    members: frozenset[str]
    """The kept names of the files of the set, as far as they lie in its own directory."""
    words: str


class _Lack(NamedTuple):
    part: str
    seen: str
    """The name, in the same directory, that says so."""
    members: frozenset[str]
    """The names, in the same directory, that are of the same set."""
    like: bool = False
    """Whether `part` is one of several names that would do."""


def half_sets(files: Mapping[str, Path | None], discard: Sequence[str] = ()) -> list[HalfSet]:
    """Find the sets that lack a part. For each kept name, `files` has where its content is, or None if it is not here.

    A part that a pattern in `discard` matches does not lack: its owner did not want it kept.
    """
    tree = _Tree(files)
    given_up = [pattern for pattern in discard if is_readable(pattern)]

    def is_given_up(name: str) -> bool:
        return any(matches_kept_name(p, x) for p in given_up for x in (name, f"{name}/any"))

    found = []
    for place in sorted(tree.there):
        lacks = [
            lack
            for lack in dict.fromkeys(_lacks_of(tree, place))
            if not is_given_up(join(place, lack.part))
        ]
        exact = sorted({lack.part for lack in lacks if not lack.like})
        members = frozenset(join(place, name) for lack in lacks for name in lack.members)
        if exact:
            parts = (*exact, *(x.part for x in lacks if x.like))
            found.append(HalfSet(place, parts, members, _words(place, exact)))
            continue
        found += [
            HalfSet(
                place,
                (lack.part,),
                members,
                f"{_shown(place)} has {quote_text(lack.seen)}, and is incomplete: "
                f"no file like {quote_text(lack.part)} is there",
            )
            for lack in lacks[:1]
        ]
    return found


def cut_off_saves(names: Collection[str]) -> list[str]:
    """Return the names, files or whole directories, that a save has only until it is whole."""
    found = set()
    for name in names:
        parts = name.split("/")
        for at, part in enumerate(parts[1:], 2):
            if CUT_OFF.fullmatch(part):
                found.add("/".join(parts[:at]))
                break
    return sorted(found)


class _Tree:
    """The kept files by directory. A directory counts as a name of the one that holds it."""

    def __init__(self, files: Mapping[str, Path | None]) -> None:
        self.files = files
        self.there: dict[str, set[str]] = defaultdict(set)
        for name in files:
            at = name
            while (place := dirname(at)) and basename(at) not in self.there[place]:
                self.there[place].add(basename(at))
                at = place

    def has(self, place: str, part: str) -> bool:
        """Whether a file or a directory is below the place. `part` may be `a|b`, and have a `*` in its last name."""
        for one in part.split("|"):
            at = normpath(join(place, one))
            there = self.there.get(dirname(at), ())
            if basename(at) in there or any(_glob(basename(at)).fullmatch(x) for x in there):
                return True
        return False

    def below(self, place: str) -> Iterator[str]:
        """Yield the names in the place and in all directories below it."""
        for name in self.there.get(place, ()):
            yield name
            yield from self.below(join(place, name))


def _lacks_of(tree: _Tree, place: str) -> Iterator[_Lack]:
    there = tree.there[place]
    yield from _by_number(there)
    yield from _by_count(there)
    telling = sorted(name for name in there if _TELLS.fullmatch(name))
    for name in telling:
        yield from _by_list(tree, place, name)
    for companion in COMPANIONS:
        names = telling if companion.seen != _ANY else sorted(there)[:1]
        yield from _by_companion(tree, place, companion, names)


_ANY = ".+"
_TELLS = re.compile(
    "|".join(
        re.sub(r"\?P<\w+>", "?:", row.seen) for row in (*LISTINGS, *COMPANIONS) if row.seen != _ANY
    )
)
"""Whether a name can matter at all: most directories have many files, and few that tell anything."""


def _by_number(there: Collection[str]) -> Iterator[_Lack]:
    sets: dict[tuple[str, ...], dict[int, str]] = defaultdict(dict)
    for name in there:
        for form in NUMBERED:
            found = _compiled(form.name).fullmatch(name)
            if found and not NO_PARTS.fullmatch(found["head"].rstrip("-_.")):
                width = str(len(found["at"]))
                key = (found["head"], found["by"], found["of"], found["tail"], width)
                sets[key][int(found["at"])] = name
                break
    for (head, by, of, tail, width), seen in sets.items():
        first = 0 if 0 in seen else 1
        if int(of) > _MOST_PARTS:
            continue
        for at in range(first, first + int(of)):
            if at not in seen:
                part = f"{head}{at:0{width}}{by}{of}{tail}"
                yield _Lack(part, seen[min(seen)], frozenset(seen.values()))


def _by_count(there: Collection[str]) -> Iterator[_Lack]:
    sets: dict[tuple[str, ...], dict[int, str]] = defaultdict(dict)
    for name in there:
        for form in COUNTED:
            if found := _compiled(form.name).fullmatch(name):
                sets[form.name, found["head"], found["tail"]][int(found["at"])] = name
    for (form_name, _, _), seen in sets.items():
        first = 0 if min(seen) < _MOST_ON_ONE_BOX else min(seen)
        if max(seen) > _MOST_PARTS:
            continue
        for at in range(first, max(seen)):
            if at not in seen:
                name = seen[max(seen)]
                found = _compiled(form_name).fullmatch(name)
                assert found is not None
                width = len(found["at"]) if found["at"].startswith("0") else 0
                part = f"{found['head']}{at:0{width}}{found['tail']}"
                yield _Lack(part, name, frozenset(seen.values()))


def _by_list(tree: _Tree, place: str, name: str) -> Iterator[_Lack]:
    path = tree.files.get(join(place, name))
    if path is None or path.is_symlink() or not path.is_file():
        return
    for listing in LISTINGS:
        if (
            not _compiled(listing.seen).fullmatch(name)
            or not _compiled(listing.directory).search(place)
            or not _is_beside(tree.there[place], name, listing.beside)
        ):
            continue
        try:
            listed = sorted(set(listing.parts(path)))
        except (OSError, ValueError, RecursionError):
            continue  # Whether it loads is judged elsewhere.
        for part in listed:
            at = normpath(part)
            if at.startswith(("..", "/")) or at == "." or tree.has(place, part):
                continue
            yield _Lack(at, name, frozenset((name, *(x for x in listed if x in tree.there[place]))))


def _by_companion(
    tree: _Tree, place: str, companion: Companion, names: Sequence[str]
) -> Iterator[_Lack]:
    if companion.directory and not _compiled(companion.directory).search(place):
        return
    there = tree.there[place]
    for name in names:
        seen = _compiled(companion.seen).fullmatch(name)
        if not seen or not _is_beside(there, name, companion.beside):
            continue
        stem = seen.groupdict().get("stem") or ""
        due = [x.replace("{stem}", stem) for x in companion.due]
        if any(x in there for x in due):
            continue
        forms = [x for x in due if companion.deep or "*" in x]
        around = tree.below(place) if companion.deep else there
        if not any(_does(x, form) for x in around if forms for form in forms):
            is_one_of = len(due) > 1 or "*" in due[0]
            yield _Lack(due[0], name, frozenset((name,)), like=is_one_of)
        if not stem:
            return


def _does(name: str, form: str) -> bool:
    """Whether the name is of the form. What only looks like weights is not."""
    if form in WEIGHTS and NO_WEIGHTS.fullmatch(name):
        return False
    return name == form or _glob(form).fullmatch(name) is not None


def _is_beside(there: Collection[str], name: str, form: str) -> bool:
    return not form or any(_compiled(form).fullmatch(x) for x in there if x != name)


@lru_cache(maxsize=4096)
def _glob(form: str) -> re.Pattern[str]:
    """Compile a name in which only `*` is special."""
    return re.compile(".*".join(map(re.escape, form.split("*"))), re.DOTALL)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _words(place: str, lacks: list[str]) -> str:
    named = ", ".join(quote_text(name) for name in lacks[:_NAMED])
    more = f", and {some(len(lacks) - _NAMED, 'more file')}" if len(lacks) > _NAMED else ""
    return (
        f"{_shown(place)} is incomplete: {named}{more} {'is' if len(lacks) == 1 else 'are'} missing"
    )


def _shown(place: str) -> str:
    parts = place.split("/")
    return quote_text("/".join(parts[1:] if parts[0] == "work" else parts) or ".")
