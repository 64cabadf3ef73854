"""Tells checkpoints that are whole from those that lack a part. A job that resumes from half a checkpoint dies of it."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from posixpath import basename

from gpu_tenant.artifacts.file_sets import HalfSet, half_sets
from gpu_tenant.artifacts.retention import WEIGHTS, checkpoint_of
from gpu_tenant.domain.untrusted_text import quote_text

_BESIDE_THE_POINT = re.compile(
    r"(?i).*\.(?:png|jpe?g|gif|webp|svg|csv|tsv|txt|log|jsonl|md|html|out|err)|events\.out\..*"
)
"""Files in a checkpoint from which no job resumes."""


def files_of_half_checkpoints(
    files: Mapping[str, Path | None], broken: Collection[str] = (), discard: Sequence[str] = ()
) -> dict[str, str]:
    """Find the files of checkpoints that lack a part or have a broken file, and say for each of them why.

    For each kept name, `files` has where its content is, or None if it is not here. The broken ones are not among
    them. A pointer to a checkpoint that is not whole belongs to it. What `discard` gives up does not lack.
    """
    left, found = dict(files), dict[str, str]()
    for name in broken:
        unit = checkpoint_of(name)
        if unit is not None and unit != name and not _BESIDE_THE_POINT.fullmatch(basename(name)):
            words = f"{quote_text(name.removeprefix('work/'))} does not load"
            found |= {x: words for x in left if checkpoint_of(x) == unit}
    while True:
        left = {name: path for name, path in left.items() if name not in found}
        before = len(found)
        for half in half_sets(left, discard):
            for name in _files_of(half, left):
                found.setdefault(name, half.words)
        if len(found) == before:
            return found


def _files_of(half: HalfSet, files: Collection[str]) -> Collection[str]:
    """All files of the checkpoint to which the set belongs. If it belongs to none, the files of the set itself."""
    unit = checkpoint_of(f"{half.place}/any")
    if unit is None:
        return [name for name in half.members if name in files]
    return [name for name in files if checkpoint_of(name) == unit]


def files_without_the_rest(names: Collection[str], discard: Sequence[str]) -> set[str]:
    """Find the files of checkpoints whose names say that weights of them are not there yet."""
    found = set()
    for half in half_sets(dict.fromkeys(names), discard):
        unit = checkpoint_of(f"{half.place}/any")
        if unit is not None and any(WEIGHTS.fullmatch(basename(part)) for part in half.lacks):
            found |= {name for name in names if checkpoint_of(name) == unit}
    return found
