"""Puts the files from which a job resumes on another box, at the same paths as before."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_tenant.artifacts.checkpoints import Restorable
from gpu_tenant.artifacts.overwrite_check import may_replace
from gpu_tenant.box.session import Session
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxTrouble, NotSaved
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.ports import Transport
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.files.paths import escape, leads_inside, to_remote
from gpu_tenant.files.patterns import covers
from gpu_tenant.ledger import Ledger

_HOME = re.compile("root/|home/[^/]+/")
_WITHIN_S = 60


def may_go_back(
    kept: Restorable | None, artifacts: Sequence[str]
) -> tuple[Mapping[str, tuple[SealedFile, Path]], tuple[str, ...]]:
    """Choose the files that may be put on another box. Returns them, and the names of the others.

    The paths come from the lost box alone, and anybody may have controlled that box. So a file outside the work
    directory is put back only if one of the owner's own patterns matches it, and never if it is a file that a
    login reads.
    """
    if kept is None:
        return {}, ()
    files = {
        name: (entry, path)
        for name, (entry, path) in kept.files.items()
        if _place(name, kept, artifacts) is not None
        and (
            entry.kind == "file"
            or (name.startswith("work/") and leads_inside(name, entry.target or ""))
        )
    }
    return files, tuple(name for name in kept.files if name not in files)


def _place(name: str, kept: Restorable, artifacts: Sequence[str]) -> tuple[str, str] | None:
    """Return the root below which the file is put back, and its path there. None if it is not put back."""
    top, _, inner = to_remote(name).partition("/")
    if top == "work":
        return "", name.partition("/")[2]
    if top != "root":
        return None
    home = f"{to_remote(kept.login).strip('/')}/"
    if inner.startswith(home):
        below_home = inner.removeprefix(home)
        if _is_private(below_home.split("/")[:1]):
            return None
        # In a usual home, a pattern may give the full path of the file. That another directory is a
        # home is known only from the box, so patterns must begin with `~/` there.
        at = f"/{home}" if _HOME.fullmatch(home) else "~/"
        named = [f"~/{p.removeprefix(at)}" if p.startswith(at) else p for p in artifacts]
        if any(covers(pattern, f"~/{below_home}") for pattern in named):
            return "~", escape(below_home)
    parts = inner.split("/")
    # The home on the next box is not known, so hidden files are not written into any usual home.
    near = parts[: 3 if parts[0] in ("home", "Users") else 2]
    if parts[0] in ("proc", "sys", "dev") or _is_private(near):
        return None
    if any(covers(pattern, f"/{inner}") for pattern in artifacts):
        return "/", escape(inner)
    return None


def left_out(names: Sequence[str]) -> str:
    """Say which files of the lost box were not put on the next one. Empty if `names` is empty."""
    if not names:
        return ""
    more = f" and {len(names) - 1} more" if names[1:] else ""
    return (
        f"; {names[0]}{more} stayed on this computer: outside the work directory, only what an artifact's pattern "
        "names is put back, and no file that a login reads"
    )


def _is_private(parts: Sequence[str]) -> bool:
    """Whether one of the parts begins with a dot or is our own name. A login, or this program, may read such files."""
    return any(part.startswith(".") or part == "gpu-tenant" for part in parts)


async def restore(
    kept: Restorable, session: Session, *, artifacts: Sequence[str], ledger: Ledger
) -> None:
    """Put the files on the box, at the paths where the job had them. Files that `may_go_back` rejects are left out.

    Raises:
        BoxTrouble: the box refused a file, or received other bytes than are kept here.
        NotSaved: files that are saved nowhere else are in the way.
    """
    lease = session.lease
    inside: dict[str, tuple[SealedFile, Path]] = {}
    elsewhere: dict[str, dict[str, tuple[SealedFile, Path]]] = {"~": {}, "/": {}}
    links: list[tuple[str, str]] = []
    for name, (entry, path) in may_go_back(kept, artifacts)[0].items():
        place = _place(name, kept, artifacts)
        if place is None:
            continue
        root, inner = place
        if entry.kind == "link":
            links.append((inner, to_remote(entry.target or "")))
        else:
            (elsewhere[root] if root else inside)[inner] = entry, path
    there = await session.caretaker.index(list(inside), then="push")
    ledger.counts_since(lease.id, there.since_ns)
    missing = _those_that_differ(inside, there.files)
    if missing:
        over = await may_replace(
            lease,
            {n: there.files[n] for n in missing if n in there.files},
            there.placed,
            overwrite=(),
            ledger=ledger,
        )
        ledger.send(
            lease.id, ((n, e.size_bytes, e.sha256) for n, (e, _) in inside.items() if e.sha256)
        )
        going = {n: path for n, (_, path) in missing.items()}
        arrived = (await session.caretaker.receive(going, over=over)).files
        _must_have_arrived(missing, arrived, lease)
    for root, files in elsewhere.items():
        if files:
            await _put(
                root,
                files,
                session,
            )
    for name, target in links:
        at = f"{lease.work_directory}/{to_remote(name)}"
        await _must_succeed(session.transport, ["mkdir", "-p", "--", os.path.dirname(at)], lease)  # noqa: PTH120
        await _must_succeed(session.transport, ["ln", "-sfn", "--", target, at], lease)


async def _put(root: str, files: Mapping[str, tuple[SealedFile, Path]], session: Session) -> None:
    """Put the files below the directory `root` of the box, which is outside the work directory.

    Raises:
        BoxTrouble: the box refused a file, or received other bytes than are kept here.
        NotSaved: a file with other bytes is in the way.
    """
    lease = session.lease
    there = (await session.caretaker.index(list(files), below=root)).files
    missing = _those_that_differ(files, there)
    taken = sorted(name for name in missing if name in there)
    if taken:
        raise NotSaved(
            f"{lease.id} has another {taken[0]} in {root}, which is saved nowhere; no file was put in its place",
            remedy=f"look at that file with {Command('ssh', lease.id)}, move it aside, then recover again",
        )
    base = "/" if root == "/" else ""
    for name, (_, path) in missing.items():
        parent = os.path.dirname(base + to_remote(name))  # noqa: PTH120 - surrogates, and no path here
        if parent:
            await _must_succeed(session.transport, ["mkdir", "-p", "--", parent], lease)
        await session.transport.put(path, base + to_remote(name))
    if missing:
        _must_have_arrived(
            missing, (await session.caretaker.index(list(missing), below=root)).files, lease
        )


async def _must_succeed(transport: Transport, argv: list[str], lease: Lease) -> None:
    finished = await transport.run(argv, timeout_s=_WITHIN_S)
    if finished.exit_status:
        raise BoxTrouble(
            f"{argv[0]} for a restored file ended with status {finished.exit_status} on {lease.id}",
            remedy=f"{Command('audit', lease.id)} looks at the box; then recover again",
        )


def _those_that_differ(
    wanted: Mapping[str, tuple[SealedFile, Path]], there: Mapping[str, object]
) -> dict[str, tuple[SealedFile, Path]]:
    return {
        name: (entry, path)
        for name, (entry, path) in wanted.items()
        if getattr(there.get(name), "sha256", None) != entry.sha256
    }


def _must_have_arrived(
    sent: Mapping[str, tuple[SealedFile, Path]], there: Mapping[str, object], lease: Lease
) -> None:
    wrong = _those_that_differ(sent, there)
    if wrong:
        raise BoxTrouble(
            f"{next(iter(wrong))} did not arrive on {lease.id} as it is kept here",
            remedy="recover again",
        )
