"""The files from which a job can resume: the newest of a lease on this computer that are complete and load."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from pydantic import AwareDatetime, ValidationError

from gpu_tenant.artifacts.formats import inspect
from gpu_tenant.artifacts.half_checkpoints import files_of_half_checkpoints
from gpu_tenant.artifacts.retention import checkpoints
from gpu_tenant.artifacts.set_table import POINTERS
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.files.artifact_directory import SUPERSEDED, is_here
from gpu_tenant.files.paths import below
from gpu_tenant.files.replace_file import replace_file
from gpu_tenant.ledger import Ledger

LISTS = ".snapshots"


class CheckpointList(Record):
    """The files from which a job could resume when a snapshot ended. The list is stored beside them."""

    taken_at: AwareDatetime
    login: str
    """The home directory of the login on the box. Artifacts outside the work directory may be below it."""
    entries: tuple[SealedFile, ...]
    brought: tuple[str, ...]
    """The names whose version on this computer came with a snapshot: no collect and no person brought it."""
    broken: dict[str, str]
    """The files that arrived but do not load: for each name, its hash. A file with that hash is not fetched again."""
    left: tuple[SealedFile, ...] = ()
    """Files from snapshots that are no longer used to resume, because a job deleted them or a policy dropped them."""
    only_here: tuple[SealedFile, ...] = ()
    """Files that were removed from the box at its owner's wish.

    The copy on this computer is the only one, so it is never pruned.
    """
    lacking: tuple[str, ...] | None = None
    """Other declared artifacts that were on the box, such as files that were still being written.

    None if that was not recorded.
    """


@dataclass(frozen=True, slots=True)
class Restorable:
    """Files from which a job can resume. Each was re-read on this computer, and loads."""

    lease: Lease
    taken_at: datetime
    login: str
    files: Mapping[str, tuple[SealedFile, Path]]
    """For each name, the entry of the file, and its path on this computer."""
    half: tuple[str, ...] = ()
    """What is newer, and lacks a part or does not load, so that no job resumes from it: why, in words."""


async def newest(lease: Lease, *, ledger: Ledger) -> Restorable | None:
    """Find the lease's newest snapshot or collect whose files are all here, and re-read them. None if there is none.

    A file that does not load is left out, and so are all files of a checkpoint that lacks a part. If a file is
    missing here, or no checkpoint is whole, the next older snapshot or collect is tried.
    """
    lease = ledger.lease(lease.id)
    if lease.kept_in is None:
        return None
    # If a collect to another directory was cut short, the earlier files are still where they were.
    places = dict.fromkeys((Path(lease.kept_in), ledger.directory / "kept" / lease.id))
    discard = ledger.declarations(lease.id)[1]
    best: Restorable | None = None
    half: tuple[str, ...] = ()
    for at, event in reversed(ledger.events(lease.id)):
        login, entries = "", None
        if isinstance(event, timeline.Snapped):
            listed = next(filter(None, (read_list(place, event) for place in places)), None)
            if listed is not None:
                login, entries = listed.login, listed.entries
        elif isinstance(event, timeline.Collected) and (
            seal := ledger.seal(lease.id, digest=event.seal)
        ):
            # Use the digest in this event, because a later seal may belong to a collect that was cut short.
            entries = tuple(entry for entry in seal.entries if entry.role == "artifact")
        for place in places:
            if entries is None:
                break
            found = await asyncio.to_thread(_find_kept, place, entries, discard)
            if found is None:
                continue
            files, why = found
            half = tuple(dict.fromkeys((*half, *why)))
            if files and (not why or checkpoints(entry for entry, _ in files.values())):
                return Restorable(lease, at, login, files, half)
            if files and best is None:
                best = Restorable(lease, at, login, files)
    return best and replace(best, half=half)


def _find_kept(
    directory: Path, entries: Sequence[SealedFile], discard: Sequence[str]
) -> tuple[dict[str, tuple[SealedFile, Path]], tuple[str, ...]] | None:
    """Find the files from which a job can resume, and say what is left out because it is not whole.

    None if one of the files is not here.
    """
    superseded = sorted((directory / SUPERSEDED).glob("*"), key=_stamp_of, reverse=True)
    found: dict[str, tuple[SealedFile, Path]] = {}
    broken: list[str] = []
    for entry in entries:
        place = next((place for place in (directory, *superseded) if is_here(place, entry)), None)
        if place is None:
            return None
        path = below(place, entry.name)
        if entry.kind == "link" or inspect(path, name=entry.name).outcome != "broken":
            found[entry.name] = (entry, path)
        else:
            broken.append(entry.name)
    paths = {name: path for name, (_, path) in found.items()}
    half = files_of_half_checkpoints(paths, broken, discard)
    left = {name: kept for name, kept in found.items() if name not in half}
    for name in half:
        # A job that saves in place replaces the pointer to its newest checkpoint. An older one may name a whole one.
        older = [below(place, name) for place in superseded if name.endswith(POINTERS)]
        for path in older:
            there = {**{x: kept[1] for x, kept in left.items()}, name: path}
            if path.is_file() and name not in files_of_half_checkpoints(there, (), discard):
                left[name] = (_as_found(found[name][0], path), path)
                break
    return left, tuple(dict.fromkeys(half.values()))


def _as_found(entry: SealedFile, path: Path) -> SealedFile:
    content = path.read_bytes()
    told = {"size_bytes": len(content), "sha256": sha256(content).hexdigest()}
    return entry.model_copy(update=told)


def _stamp_of(place: Path) -> str:
    return place.name.removeprefix("snapshot-")


def put_list(directory: Path, listed: CheckpointList, lease: Lease) -> str:
    """Store the list in a file of its own. Returns the file's name, which is the hash of its content."""
    content = listed.model_dump_json(by_alias=True).encode()
    name = sha256(content).hexdigest()
    try:
        place = directory / LISTS
        place.mkdir(exist_ok=True)
        replace_file(place / f"{name}.json", content, durable="directory")
    except OSError as error:
        raise LocalTrouble(
            f"the list of a snapshot cannot be written in {directory}: {error.strerror}",
            remedy=f"free some space there, or {Command('collect', lease.id, to='DIR')}",
        ) from error
    return name


def read_list(directory: Path, event: timeline.Snapped) -> CheckpointList | None:
    """Read the list to which a timeline entry refers. None if it is missing, or is not as it was written."""
    name = event.listed or ""
    try:
        content = (directory / LISTS / f"{name}.json").read_bytes()
    except OSError:
        return None
    if sha256(content).hexdigest() != name:
        return None
    try:
        return CheckpointList.model_validate_json(content)
    except ValidationError:
        return None
