"""Sends a work tree to the box: only files that changed, and no file that looks like a secret unless it is named."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from pydantic import Field

from gpu_tenant.artifacts.overwrite_check import may_replace, require_named
from gpu_tenant.artifacts.upload import FileHash, hash_file, ship
from gpu_tenant.artifacts.work_tree import read_work_tree
from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest, LocalTrouble, SecretRefused
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.files.git_commit import commit_of
from gpu_tenant.files.paths import escape
from gpu_tenant.files.protected_files import Guarded, is_key_by_content
from gpu_tenant.files.secret_scan import find_secrets
from gpu_tenant.files.state_dir import Home
from gpu_tenant.files.worktree import (
    LeftOut,
    left_out_lines,
    left_out_reasons,
)
from gpu_tenant.ledger import Ledger
from gpu_tenant.transfer.bandwidth_share import CallLimits

ASKS = {"uv.lock", "requirements.txt", "requirements.lock", "pyproject.toml"}
"""If a work tree has one of these files at its top, it needs packages to be installed."""
_HEAD_BYTES = 65_536
"""All patterns of secrets are searched for in this many bytes at the start of each file."""
_BODY_BYTES = 1 << 20
"""In this many further bytes of each file, only private keys and logins are searched for."""


_LARGE_HOLES_BYTES, _NAMED_HOLES = 64 << 20, 3


class Pushed(Record):
    """What is now on the box of the work tree."""

    lease: str
    directory: str
    files: int
    sent_files: int
    sent_bytes: int
    unchanged_files: int
    overwritten: tuple[str, ...] = ()
    left_out: tuple[str, ...] = Field(
        default=(), description="what stayed here, largest first; `include` sends it all the same"
    )
    lacks: str | None = Field(
        default=None, description="files of the smoke test that no push has sent"
    )
    holes: tuple[str, ...] = Field(
        default=(), description="files that are mostly holes here, and take their whole size there"
    )
    setup: str | None = Field(default=None, description="the job that sets the box up now")
    next: str


class PushedTree(Record):
    """A work tree as it was pushed, with all that is needed to push it again."""

    directory: str
    digest: str
    include_secrets: tuple[str, ...]
    include: tuple[str, ...] = ()
    commit: str | None = None
    """The git commit that the tree was at. None if none of its files is in a git repository's commit."""
    is_clean: bool | None = None
    """Whether the tree had no changes against that commit. None if that could not be told."""


async def push(
    session: Session,
    directory: Path,
    *,
    include_secrets: Sequence[str],
    include: Sequence[str] = (),
    guarded: Guarded,
    overwrite: Sequence[str] = (),
    ledger: Ledger,
    limits: CallLimits,
    records: Path,
    progress: Callable[[int, int], None],
) -> Pushed:
    """Send every file of `directory` that is not ignored to the box's work directory. Nothing on the box is removed.

    A file that is ignored, or a link, is sent only if `include` names it.

    If a file was written on the box and is saved nowhere else, it is replaced only if `overwrite` names it.

    A running job that has a file open keeps its old version, because the new one is put in place by a rename.
    If the connection breaks, the next push continues after the bytes that the box has acknowledged. They are
    recorded in the directory `records`. `progress` is called with the bytes sent so far, and the total.

    Raises:
        LocalTrouble: a file cannot be read.
        SecretRefused: a file looks like a secret and was not named in `include_secrets`.
        NotSaved: a file on the box would be lost; nothing was sent.
        BadRequest: `directory` is not a directory, or contains no file to send.
        BoxTrouble: the box did not take a file, or what arrived is not what was sent.
    """
    lease = session.lease
    files, left_out = await sendable(
        directory, include=include, include_secrets=include_secrets, guarded=guarded, ledger=ledger
    )
    require_named(overwrite, {escape(name) for name in files})
    ledger.touch(lease.id, at=ledger.now())
    here, commit, known = await asyncio.gather(
        asyncio.to_thread(_read, files),
        asyncio.to_thread(commit_of, directory, files),
        session.caretaker.index([escape(name) for name in files], then="push"),
    )
    there = known.files
    ledger.counts_since(lease.id, known.since_ns)
    changed = {
        name: held
        for name, held in here.items()
        if name not in there or there[name].sha256 != held.sha256
    }
    total = sum(held.size_bytes for held in changed.values())
    in_the_way = {name: there[name] for name in changed if name in there}
    over = await may_replace(lease, in_the_way, known.placed, overwrite=overwrite, ledger=ledger)
    lost = {name: there[name].size_bytes for name in overwrite if name in in_the_way}
    if lost:
        ledger.note(lease.id, timeline.Overwritten(files=lost), at=ledger.now())
    ledger.send(lease.id, ((n, held.size_bytes, held.sha256) for n, held in here.items()))
    if changed:
        with limits.join(lease.id, lease.price_usd_h) as turn:
            await ship(
                session, changed, known, turn=turn, records=records, progress=progress, over=over
            )
    progress(total, total)
    tree = PushedTree(
        directory=str(directory.resolve()),
        digest=_digest(here),
        include_secrets=tuple(include_secrets),
        include=tuple(include),
        commit=commit and commit.id,
        is_clean=commit and commit.is_clean,
    )
    event = timeline.Pushed(
        files=len(changed),
        bytes=total,
        tree=tree.model_dump(mode="json"),
        left_out=left_out_reasons(left_out),
    )
    ledger.note(lease.id, event, at=ledger.now())
    launch = str(Command("launch", lease=lease.id, artifact="PATTERN", then="COMMAND"))
    return Pushed(
        lease=lease.id,
        directory=lease.work_directory,
        files=len(here),
        sent_files=len(changed),
        sent_bytes=total,
        unchanged_files=len(here) - len(changed),
        overwritten=tuple(lost),
        left_out=left_out_lines(left_out),
        holes=_mostly_holes(
            {name: path for name, path in files.items() if escape(name) in changed}
        ),
        next=f"{Command('prepare', lease.id)}, then {launch}" if ASKS & set(here) else launch,
    )


async def sendable(
    directory: Path,
    *,
    include: Sequence[str],
    include_secrets: Sequence[str],
    guarded: Guarded,
    ledger: Ledger,
) -> tuple[dict[str, Path], list[LeftOut]]:
    """Return the files that a push of `directory` would send, and what it would leave out.

    Raises:
        BadRequest, SecretRefused, LocalTrouble: as in `push`.
    """
    if not os.path.isdir(directory):  # noqa: PTH112 - its Path cousin raises where no name is that long
        named = str(directory) in {known.id for known in ledger.leases()}
        raise BadRequest(
            f"{directory} is {'a lease, and ' if named else ''}no directory",
            remedy=f"give the work tree as the first argument: {Command('push', 'DIR', directory if named else 'LEASE')}",
        )
    work = await read_work_tree(directory, include)
    files, left_out = work.files, work.left_out
    if not files:
        stays = f"; left out: {'; '.join(left_out_lines(left_out))}" if left_out else ""
        raise BadRequest(
            f"{directory} holds no file that would be sent{stays}",
            remedy=f"name the work tree to push, or a file in it that is to be sent nevertheless: {Option('include', 'NAME')}",
        )
    _refuse_keys(directory, files, guarded)
    _refuse_secrets(files, include_secrets)
    return files, left_out


def _mostly_holes(files: Mapping[str, Path]) -> tuple[str, ...]:
    """Name the large files of which this disk holds only a small part, as databases with a fixed size have them."""
    told = []
    for name, path in files.items():
        with suppress(OSError):
            seen = path.stat()
            held = seen.st_blocks * 512
            if seen.st_size >= _LARGE_HOLES_BYTES and held < seen.st_size / 2:
                told.append(
                    f"{quote_text(name)} has {seen.st_size / 1e9:.1f} GB, of which {held / 1e9:.1f} GB are data: "
                    "the rest is holes here, and takes room on the box"
                )
    return tuple(told[:_NAMED_HOLES])


def pushed_trees(ledger: Ledger, lease_id: LeaseId) -> list[PushedTree]:
    """Every tree that was pushed to the lease's box, as of its last push. The tree that was pushed last comes last."""
    trees: dict[str, PushedTree] = {}
    for _, event in ledger.events(lease_id):
        if isinstance(event, timeline.Pushed) and event.tree:
            tree = PushedTree.model_validate(event.tree)
            trees.pop(tree.directory, None)
            trees[tree.directory] = tree
    return list(trees.values())


async def is_unchanged(tree: PushedTree) -> bool:
    """Whether a push now would send exactly the files that were sent when `tree` was recorded."""
    directory = Path(tree.directory)
    if not directory.is_dir():
        return False
    try:
        work = await read_work_tree(directory, tree.include)
    except BadRequest:
        return False  # A file that was included no longer exists.
    return _digest(await asyncio.to_thread(_read, work.files)) == tree.digest


def records_of(home: Home, lease_id: LeaseId) -> Path:
    """The directory where pushes to this box record how much of each file the box has acknowledged."""
    return home.root / "transfers" / "pushes" / lease_id


def _refuse_keys(directory: Path, files: Mapping[str, Path], guarded: Guarded) -> None:
    """Check that none of the files is one of the owner's keys to another place. No option allows sending such a key.

    Raises:
        SecretRefused: one of them is such a key.
    """
    for name in guarded.keys_among(directory, files):
        raise SecretRefused(
            f"{name} is one of your own keys, or is in a directory of your keys, and is never sent",
            remedy="leave that file out (.gitignore); for a job, make a key of its own with few rights",
        )


def _read(files: Mapping[str, Path]) -> dict[str, FileHash]:
    """Hash the files. The keys are the names under which they are sent. Files that have vanished are left out."""
    found = {escape(name): hash_file(path) for name, path in files.items()}
    return {name: held for name, held in found.items() if held is not None}


def _digest(here: Mapping[str, FileHash]) -> str:
    lines = sorted(f"{held.sha256} {held.size_bytes} {name}\n" for name, held in here.items())
    return sha256("".join(lines).encode()).hexdigest()


def _refuse_secrets(files: dict[str, Path], include_secrets: Sequence[str]) -> None:
    flagged: list[str] = []
    for name, path in files.items():
        if name in include_secrets:
            continue
        try:
            with path.open("rb") as file:
                head = file.read(_HEAD_BYTES)
                reasons = find_secrets(name, head)
                # This check is cheap, because it matches only a few patterns. So it covers much
                # more of the file.
                if not reasons and is_key_by_content(head + file.read(_BODY_BYTES)):
                    reasons = ("a private key, or a login to a cloud, a cluster or a registry",)
        except OSError as error:
            raise LocalTrouble(
                f"{escape(name)} cannot be read: {error.strerror}",
                remedy="make it readable, or add it to .gitignore; nothing was sent",
            ) from error
        if reasons:
            flagged.append(f"{escape(name)} ({reasons[0]})")
    if flagged:
        more = f", and {len(flagged) - 5} more" if len(flagged) > 5 else ""
        raise SecretRefused(
            f"nothing was sent, because these files look like secrets: {', '.join(flagged[:5])}{more}",
            remedy="add them to .gitignore, or name each file that must be sent: `--include-secret NAME`",
        )
