"""Removes checkpoints that an owner's policy does not keep: the copies that snapshots brought, and those on the box."""

import asyncio
import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from posixpath import basename

from pydantic import BaseModel, ConfigDict, JsonValue

from gpu_tenant.artifacts.checkpoints import LISTS, CheckpointList, put_list, read_list
from gpu_tenant.artifacts.formats import inspect
from gpu_tenant.artifacts.half_checkpoints import files_of_half_checkpoints
from gpu_tenant.artifacts.retention import Checkpoint, Retention, checkpoint_of, surplus
from gpu_tenant.box.manifest_entries import Entries
from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LeaseHeld, LocalTrouble
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.files.artifact_directory import PARTIAL, SUPERSEDED, is_here, is_ours
from gpu_tenant.files.paths import below
from gpu_tenant.ledger import Ledger

ARRIVES = f"{PARTIAL}/live"
"""The directory in which snapshots receive files. It also has the lock that snapshots and pruning take.

Collect uses another directory, so a collect never waits for a snapshot.
"""
QUIET_S = 5
SHARE = 0.25
"""A snapshot uses at most this share of one core, of the box's disk and of the link, unless the owner sets another."""
_LOCK = "lock"
_SUPERSEDED_KEPT = 2
_WITHIN_S = 1800
_STATE_BYTES = 64 << 20


class Complete(BaseModel):
    """The caretaker's answer about the files that are complete: nobody on the box is writing them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    files: Entries
    inodes: dict[str, int] = {}
    left_out: int = 0
    unfinished: tuple[str, ...] = ()
    all_bytes: int | None = None
    """The size of every declared artifact, including those still being written."""
    running: tuple[str, ...] = ()
    pace: str = ""
    now: float
    login: str


class PrunedThere(BaseModel):
    """The caretaker's answer: what it removed, and what it refused to remove."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    class Kept(BaseModel):
        """A checkpoint that stays, and why."""

        at: str
        why: str

    pruned: tuple[str, ...] = ()
    refused: tuple[Kept, ...] = ()


class Pruned(Record):
    """The checkpoints that were removed by the owner's policy, and those that had to stay, with the reason."""

    here: tuple[str, ...] = ()
    on_the_box: tuple[str, ...] = ()
    stayed: tuple[str, ...] = ()


@contextmanager
def alone(directory: Path, lease: Lease) -> Iterator[None]:
    """Hold the lock of `directory` while the block runs, so that no other snapshot or pruning works in it.

    Raises:
        LeaseHeld: another snapshot or pruning is running.
    """
    (directory / ARRIVES).mkdir(parents=True, exist_ok=True)
    with (directory / ARRIVES / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LeaseHeld(
                f"a snapshot of {lease.id} is under way",
                remedy="wait for the snapshot to end, or collect",
            ) from None
        yield


async def look(
    session: Session,
    ledger: Ledger,
    *,
    limit_bytes: int,
    limit_s: float,
    quiet_s: float,
    done: Sequence[str],
) -> Complete:
    """Ask the box which files are complete now. The jobs' naming conventions, such as `done`, decide that."""
    kept, given_up = ledger.declarations(session.lease.id)
    request: dict[str, JsonValue] = {
        "work": session.lease.work_directory,
        "artifacts": list(kept),
        "discard": list(given_up),
        "limit_bytes": limit_bytes,
        "limit_s": limit_s,
        "quiet_s": quiet_s,
        "share": SHARE,
        "done": list(done),
    }
    return await session.caretaker.ask_ours("complete", request, Complete, timeout_s=_WITHIN_S)


def last_list(lease: Lease, directory: Path, ledger: Ledger) -> CheckpointList | None:
    """Read the list that the last snapshot left. None if there is none, or it cannot be read.

    If a collect came after the snapshot, none of the files counts as brought by a snapshot any more.
    """
    is_collects = False
    for _, event in reversed(ledger.events(lease.id)):
        if isinstance(event, timeline.Snapped):
            listed = read_list(directory, event)
            if listed is not None and is_collects:
                return listed.model_copy(update={"brought": (), "left": ()})
            return listed
        is_collects = is_collects or isinstance(event, timeline.Collected)
    return None


async def prune_here(lease: Lease, policy: Retention, *, directory: Path, ledger: Ledger) -> Pruned:
    """Remove from this computer the checkpoints that the policy does not keep, if snapshots brought all their files.

    A file that a collect or a person brought stays. So does a file that was removed from the box, because the
    copy here is the only one. The change is recorded before anything is removed.

    Raises:
        LeaseHeld: a snapshot is under way.
    """
    with alone(directory, lease):
        listed = last_list(lease, directory, ledger)
        if listed is None:
            return Pruned()
        brought = {e.name: e for e in listed.entries if e.name in listed.brought}
        brought |= {entry.name: entry for entry in listed.left}
        half = _half(directory, listed.entries, lease, ledger)
        gone = [
            one
            for one in surplus(
                (*listed.entries, *listed.left),
                policy,
                unsound=half,
                spared=_best(directory, listed.entries),
            )
            if all(entry.name in brought for entry in one.entries)
        ]
        if not gone:
            return Pruned()
        names = {entry.name for one in gone for entry in one.entries}
        updated = listed.model_copy(
            update={
                "entries": tuple(e for e in listed.entries if e.name not in names),
                "brought": tuple(name for name in listed.brought if name not in names),
                "left": tuple(entry for name, entry in brought.items() if name in names),
            }
        )
        there = tuple(one.at for one in gone)
        _note(lease, directory, updated, ledger, pruned_here=there)
        await asyncio.to_thread(_remove, directory, gone, lease)
        return Pruned(here=there)


async def prune_box(
    session: Session,
    policy: Retention,
    *,
    directory: Path,
    ledger: Ledger,
    quiet_s: float = QUIET_S,
    done: Sequence[str] = (),
) -> Pruned:
    """Remove from the box the checkpoints that the policy does not keep, if their exact bytes are on this computer.

    Each of their files is first re-read here: it must equal the file on the box, and must not be broken. From
    then on, the copy here is never pruned. If the caretaker refuses to remove a checkpoint, the answer names it
    with the reason.

    Raises:
        LeaseHeld: a snapshot is under way.
    """
    lease = session.lease
    with alone(directory, lease):
        listed = last_list(lease, directory, ledger)
        # Let the box read as many bytes as the known files have: if its disk was full, it could not store their
        # hashes, and must read the files again.
        known_bytes = sum(entry.size_bytes for entry in listed.entries) if listed else 0
        seen = await look(
            session,
            ledger,
            limit_bytes=known_bytes,
            limit_s=_WITHIN_S / 2,
            quiet_s=quiet_s,
            done=done,
        )
        known = {entry.name: entry.sha256 for entry in listed.entries} if listed else {}
        # A file counts as present only if a snapshot brought and proved it, with the rest of its checkpoint.
        # Only such files count towards the number that the policy keeps.
        absent = {e.name for e in seen.files if known.get(e.name) != e.sha256}
        absent |= _half(directory, seen.files, lease, ledger)
        unwanted = surplus(seen.files, policy, unsound=absent, spared=_best(directory, seen.files))
        proved: list[Checkpoint] = []
        stayed: list[str] = []
        for one in unwanted:
            is_proved = all(
                [await asyncio.to_thread(_is_proved, directory, entry) for entry in one.entries]
            )
            proved += [one] if is_proved else []
            stayed += (
                [] if is_proved else [f"{one.at}: the checkpoint is not complete on this computer"]
            )
        if listed is None or not unwanted:
            return Pruned(
                stayed=(
                    f"all: each checkpoint with a proved copy here is one that the policy keeps: {policy.words}",
                )
            )
        if not proved:
            return Pruned(stayed=tuple(stayed))
        files = [entry for one in proved for entry in one.entries]
        names = {entry.name for entry in files}
        alone_here = {entry.name: entry for entry in (*listed.only_here, *files)}
        updated = listed.model_copy(
            update={
                "entries": tuple(e for e in listed.entries if e.name not in names),
                "brought": tuple(name for name in listed.brought if name not in names),
                "only_here": tuple(alone_here.values()),
            }
        )
        # Record this first: a file that may be gone from the box must never be pruned here.
        _note(lease, directory, updated, ledger, prunes_box=tuple(one.at for one in proved))
        declared, given_up = ledger.declarations(lease.id)
        asked: dict[str, JsonValue] = {
            "work": lease.work_directory,
            "artifacts": list(declared),
            "discard": list(given_up),
            "checkpoints": [_name_of(one, seen) for one in proved],
        }
        there = await session.caretaker.ask_ours("prune", asked, PrunedThere, timeout_s=_WITHIN_S)
        named = {_at(one): one.at for one in proved}
        gone = tuple(named[at] for at in there.pruned if at in named)
        stayed += [f"{named[kept.at]}: {kept.why}" for kept in there.refused if kept.at in named]
        back = {e.name: e for one in proved if one.at not in gone for e in one.entries}
        final = updated.model_copy(
            update={
                "entries": (*updated.entries, *back.values()),
                "brought": (*updated.brought, *(n for n in listed.brought if n in back)),
                "only_here": tuple(e for e in updated.only_here if e.name not in back),
            }
        )
        _note(lease, directory, final, ledger, pruned_on_box=gone)
        return Pruned(on_the_box=gone, stayed=tuple(stayed))


def _half(directory: Path, entries: Iterable[SealedFile], lease: Lease, ledger: Ledger) -> set[str]:
    """Find the files of checkpoints of which a part is not on this computer."""
    paths = {entry.name: below(directory, entry.name) for entry in entries}
    here = {name: path for name, path in paths.items() if os.path.lexists(path)}
    half = files_of_half_checkpoints(here, discard=ledger.declarations(lease.id)[1])
    units = {checkpoint_of(name) for name in half} - {None}
    return {*half, *(name for name in paths if checkpoint_of(name) in units)}


def _name_of(one: Checkpoint, seen: Complete) -> JsonValue:
    return {
        "at": _at(one),
        "files": [
            {
                "at": entry.at,
                "size": entry.size_bytes,
                "sha256": entry.sha256,
                "mtime_ns": entry.mtime_ns,
                "ino": seen.inodes.get(entry.name, 0),
            }
            for entry in one.entries
        ],
    }


def _at(one: Checkpoint) -> str:
    """The checkpoint's path on the box: the path of its first file, up to the checkpoint's own name."""
    entry = one.entries[0]
    return entry.at.removesuffix(entry.name[len(one.at) :])


def _is_proved(directory: Path, entry: SealedFile) -> bool:
    if not is_here(directory, entry):
        return False
    return inspect(below(directory, entry.name), name=entry.name).outcome != "broken"


def _best(directory: Path, entries: Iterable[SealedFile]) -> set[str]:
    """The names of the checkpoints that transformers recorded as the best so far. They are kept as well."""
    found = set()
    for entry in entries:
        if basename(entry.name) == "trainer_state.json" and entry.size_bytes < _STATE_BYTES:
            with suppress(OSError, ValueError, RecursionError):
                state = json.loads(below(directory, entry.name).read_bytes())
                if isinstance(state, dict) and isinstance(state.get("best_model_checkpoint"), str):
                    found.add(basename(state["best_model_checkpoint"].rstrip("/")))
    return found


def _note(
    lease: Lease,
    directory: Path,
    listed: CheckpointList,
    ledger: Ledger,
    **what: tuple[str, ...],
) -> None:
    told = timeline.Snapped(
        files=0,
        bytes=0,
        names=(),
        saves=(),
        listed=put_list(directory, listed, lease),
        **what,
    )
    ledger.note(lease.id, told, at=ledger.now())


def _remove(directory: Path, gone: Iterable[Checkpoint], lease: Lease) -> None:
    """Delete the files of those checkpoints here.

    A file is deleted only if its bytes are those that a snapshot brought. An equal name is not enough.
    """
    try:
        for one in gone:
            for entry in one.entries:
                if is_here(directory, entry):
                    below(directory, entry.name).unlink()
            for folder, _, _ in os.walk(below(directory, one.at), topdown=False):
                with suppress(OSError):
                    Path(folder).rmdir()
    except OSError as error:
        raise LocalTrouble(
            f"an older checkpoint cannot be removed here: {error.strerror}",
            remedy=f"look at {directory}, or {Command('collect', lease.id, to='DIR')}",
        ) from error


# What earlier snapshots left


def tidy(directory: Path, partials: set[str]) -> None:
    """Delete partial files that are not in `partials`, and most of what earlier snapshots left.

    Of the replaced versions and the lists, only the newest are kept.
    """
    held: Counter[Path] = Counter()
    for place in sorted((directory / SUPERSEDED).glob("snapshot-*"), reverse=True):
        for path in _files_below(place):
            held[path.relative_to(place)] += 1
            if held[path.relative_to(place)] > _SUPERSEDED_KEPT:
                path.unlink()
        for folder, _, _ in os.walk(place, topdown=False):
            if not os.listdir(folder):  # noqa: PTH208 - and nothing is made of the names
                Path(folder).rmdir()
    lists = sorted((directory / LISTS).glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    for path in lists[: -_SUPERSEDED_KEPT - 1]:
        path.unlink()
    for path in (directory / ARRIVES).iterdir():
        if is_ours(path.name) and path.name not in partials:
            path.unlink()


def _files_below(place: Path) -> Iterator[Path]:
    for folder, inner, names in os.walk(place):
        yield from (Path(folder, name) for name in names)
        yield from (path for name in inner if (path := Path(folder, name)).is_symlink())
