"""Finds the checkpoints that their owner's policy does not keep. Only the numbers in their names decide."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import basename, dirname, join, normpath

from pydantic import Field, ValidationError

from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.providers.credentials import read_table

_STEP = re.compile(
    r"(?i)(?<![a-z])(checkpoint|ckpt|step|iter|iteration|epoch)s?([-_.=]?)(\d+)(?![0-9a-z])"
)
"""The same pattern as in `scripts/caretaker.py`."""
_METRIC = re.compile(r"(?<==)\d+\.\d+")
"""A metric that Lightning writes into a name after the step. It differs between checkpoints of the same kind."""
WEIGHTS = re.compile(
    r"(?i).+\.(?:pth?|ckpt|safetensors|bin|h5|keras|msgpack|distcp|gguf)"
    r"|.+\.(?:index|meta|data-\d{5}-of-\d{5})|_CHECKPOINT_METADATA|manifest\.ocdbt"
)
"""A checkpoint has at least one such file. `samples/step-100.png` has a step in its name, but is only a result."""


class Retention(Record):
    """What an owner wants to keep of each kind of checkpoint. Older ones may be removed."""

    keep_last: int | None = Field(default=None, ge=1)
    keep_every: int | None = Field(
        default=None, ge=1, description="also those whose step is a multiple of this number"
    )

    @property
    def words(self) -> str:
        """The policy, as part of a sentence."""
        last = f"the last {self.keep_last or 1}"
        return last if self.keep_every is None else f"{last}, and every {self.keep_every}th step"


class Wishes(Record):
    """What an owner has set for snapshots, in `[snapshots]` of the configuration."""

    keep_last: int | None = Field(default=None, ge=1)
    keep_every: int | None = Field(default=None, ge=1)
    done: tuple[str, ...] = Field(
        default=(),
        description="the names of files that jobs write last, in a checkpoint or beside it, such as *.done",
    )
    mb_s: float | None = Field(
        default=None,
        gt=0,
        description="the highest rate for copying snapshots, in megabytes a second; None means that they use the "
        "link a quarter of the time",
    )

    @property
    def policy(self) -> Retention | None:
        """The policy: which checkpoints of each kind are kept. None means all of them."""
        if self.keep_last is None and self.keep_every is None:
            return None
        return Retention(keep_last=self.keep_last, keep_every=self.keep_every)


def wishes(configuration: Path) -> Wishes:
    """Read what the owner has set for snapshots.

    Raises:
        LocalTrouble: the configuration cannot be read, or its `[snapshots]` is not valid.
    """
    try:
        said = Wishes.model_validate(read_table(configuration, "snapshots"))
    except ValidationError as error:
        first = error.errors()[0]
        raise LocalTrouble(
            f"{configuration}: [snapshots] is wrong at {'.'.join(map(str, first['loc']))}: {first['msg']}",
            remedy="`keep_last = 3` there keeps the last three checkpoints of each kind",
        ) from None
    if any("/" in name or not name for name in said.done):
        raise LocalTrouble(
            f"{configuration}: `done` in [snapshots] has a name that is empty or contains a slash; give names of files, without directories",
            remedy='`done = ["*.done"]`',
        )
    return said


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file, or a directory of files, that holds the state of a job at one step."""

    at: str
    """The checkpoint's name in the kept directory."""
    kind: str
    """The name without its number. Only checkpoints of the same kind are compared."""
    step: tuple[int, ...]
    entries: tuple[SealedFile, ...]

    @property
    def written_ns(self) -> int:
        """When the newest file of the checkpoint was written."""
        return max(entry.mtime_ns for entry in self.entries)


def checkpoints(entries: Iterable[SealedFile]) -> list[Checkpoint]:
    """Find the checkpoints among the artifacts. A checkpoint has a step number in its name, and contains weights."""
    of: dict[str, list[SealedFile]] = defaultdict(list)
    for entry in entries:
        if entry.kind == "file" and entry.role == "artifact":
            top = checkpoint_of(entry.name)
            if top is not None:
                of[top].append(entry)
    return [
        Checkpoint(at, _kind(at), _step(at), tuple(files))
        for at, files in of.items()
        if any(WEIGHTS.fullmatch(basename(entry.name)) for entry in files)
    ]


def surplus(
    entries: Sequence[SealedFile],
    policy: Retention,
    *,
    unsound: Collection[str] = (),
    spared: Collection[str] = (),
) -> list[Checkpoint]:
    """Find the checkpoints that the policy does not keep, sorted by kind, the lowest step first.

    Of each kind, two groups stay: the N with the highest steps, and the N that were written last. N is
    `keep_last`. Checkpoints with an `unsound` file are not counted among the N: that file is missing on this
    computer, or does not load. So the newest checkpoint that loads always stays, and so does every newer one. A
    checkpoint also stays if a link points to it, or if `spared` names it.
    """
    linked = {
        normpath(join(dirname(entry.name), entry.target or ""))
        for entry in entries
        if entry.kind == "link"
    }
    kinds: dict[str, list[Checkpoint]] = defaultdict(list)
    for one in checkpoints(entries):
        kinds[one.kind].append(one)
    found: list[Checkpoint] = []
    for alike in kinds.values():
        sound = [one for one in alike if not any(e.name in unsound for e in one.entries)]
        count = policy.keep_last or 1
        if len(sound) <= count:
            continue
        newest = sorted(sound, key=lambda one: one.step)[-count:]
        latest = sorted(sound, key=lambda one: one.written_ns)[-count:]
        kept = {one.at for one in (*newest, *latest)}
        found += [
            one
            for one in alike
            if one.at not in kept
            and one.step < newest[0].step
            and one.written_ns <= max(other.written_ns for other in latest)
            and not (policy.keep_every and one.step[-1] % policy.keep_every == 0)
            and not any(at == one.at or at.startswith(f"{one.at}/") for at in linked)
            and basename(one.at) not in spared
        ]
    return sorted(found, key=lambda one: (one.kind, one.step))


def checkpoint_of(name: str) -> str | None:
    """The checkpoint to which the file belongs: the outermost directory named after its step, or the file itself."""
    found, step, directory = None, None, dirname(name)
    while "/" in directory:
        named = _STEP.findall(basename(directory))
        if named and step in (None, int(named[-1][2])):
            found, step = directory, int(named[-1][2])
        elif named:
            break
        directory = dirname(directory)
    if found is not None:
        return found
    is_file = _STEP.search(basename(name)) and WEIGHTS.fullmatch(basename(name))
    return name if is_file else None


def _step(at: str) -> tuple[int, ...]:
    return tuple(int(number) for _, _, number in _STEP.findall(basename(at)))


def _kind(at: str) -> str:
    named = _STEP.sub(lambda found: f"{found[1]}{found[2]}*", basename(at))
    return join(dirname(at), _METRIC.sub("*", named))
