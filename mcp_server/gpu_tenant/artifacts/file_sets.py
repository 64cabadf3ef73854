"""Finds sets of files that lack a part, such as a checkpoint without one of its shards.

What makes a set is data: to know another kind, add a line to one of the tables.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.wording import some

_MOST_INDEX_BYTES = 64 << 20
_NAMED = 3

NUMBERED = (re.compile(r"(?P<head>.+)-(?P<at>\d{5})-of-(?P<of>\d{5})(?P<tail>(?:\.\w+)*)"),)
"""Names that say how many parts there are. The parts are counted from 0 or from 1."""
_MOST_PARTS = 10_000

INDEXES = {"*.index.json": "weight_map"}
"""Files that list the other files of their directory, and the key of a mapping whose values are their names."""


class Companion(NamedTuple):
    """If a directory has the file `seen`, it must have a file that matches one of `due`."""

    seen: str
    due: tuple[str, ...]
    directory: str = "*"


_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "adapter_model*", "*.distcp", "*.pt", "*.pth")

COMPANIONS = (
    Companion("adapter_config.json", ("adapter_model.safetensors", "adapter_model.bin")),
    Companion(
        "trainer_state.json", (*_WEIGHTS, "global_step*", "pytorch_model_fsdp_0"), "checkpoint-*"
    ),
    Companion(".metadata", ("*.distcp",)),
)


def incomplete_sets(names: Collection[str], directory: Path) -> Iterator[str]:
    """Say for each set of kept files that lacks a part, which part that is. The files are below `directory`."""
    by_place: dict[PurePosixPath, set[str]] = defaultdict(set)
    for name in names:
        path = PurePosixPath(name)
        by_place[path.parent].add(path.name)
        # A directory counts as a file of the one that holds it.
        if len(path.parts) > 2:
            by_place[path.parent.parent].add(path.parent.name)
    for place, there in sorted(by_place.items()):
        lacks = {
            *_by_number(there),
            *_by_index(there, directory / place),
        }
        if lacks:
            yield _words(place, sorted(lacks))
        for companion in COMPANIONS:
            seen = companion.seen in there and PurePosixPath(place.name).match(companion.directory)
            if seen and not any(
                PurePosixPath(x).match(due) for x in there for due in companion.due
            ):
                yield (
                    f"{_shown(place)} has {companion.seen}, and is incomplete: "
                    f"no file like {companion.due[0]} is there"
                )


def _by_number(there: Collection[str]) -> Iterator[str]:
    sets: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for name in there:
        for form in NUMBERED:
            if found := form.fullmatch(name):
                sets[found["head"], found["of"], found["tail"]].add(int(found["at"]))
    for (head, of, tail), seen in sets.items():
        first = 0 if 0 in seen else 1
        if int(of) > _MOST_PARTS:
            continue
        for at in range(first, first + int(of)):
            if at not in seen:
                yield f"{head}-{at:05}-of-{of}{tail}"


def _by_index(there: Collection[str], place: Path) -> Iterator[str]:
    for name in there:
        for form, key in INDEXES.items():
            if PurePosixPath(name).match(form):
                yield from (part for part in _listed(place / name, key) if part not in there)


def _listed(index: Path, key: str) -> set[str]:
    """Return the file names in the index. Empty if it cannot be read: whether it loads is judged elsewhere."""
    try:
        if index.is_symlink() or index.stat().st_size > _MOST_INDEX_BYTES:
            return set()
        told = json.loads(index.read_bytes())
    except (OSError, ValueError, RecursionError):
        return set()
    listed = told.get(key) if isinstance(told, Mapping) else None
    if not isinstance(listed, Mapping):
        return set()
    return {part for part in listed.values() if isinstance(part, str) and "/" not in part}


def _words(place: PurePosixPath, lacks: list[str]) -> str:
    named = ", ".join(quote_text(name) for name in lacks[:_NAMED])
    more = f", and {some(len(lacks) - _NAMED, 'more file')}" if len(lacks) > _NAMED else ""
    return (
        f"{_shown(place)} is incomplete: {named}{more} {'is' if len(lacks) == 1 else 'are'} missing"
    )


def _shown(place: PurePosixPath) -> str:
    parts = place.parts[1:] if place.parts[:1] == ("work",) else place.parts
    return quote_text("/".join(parts) or ".")
