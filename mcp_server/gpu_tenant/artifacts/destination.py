"""Chooses the directory on this computer for a lease's files. It must belong to the lease, and must last."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from gpu_tenant.artifacts.stores.locality import store_doubt, whereabouts_of
from gpu_tenant.box.session import Session
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest, LocalTrouble
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.ports import OnThisComputer
from gpu_tenant.files.artifact_directory import MARKER, PARTIAL, make_place, outside_the_box
from gpu_tenant.ledger import Ledger


async def claim_directory(directory: Path, lease: Lease, ledger: Ledger) -> Path:
    """Make the directory if needed, and mark it as ours. It must not hold anything else. Returns its real path.

    A new or empty directory is accepted, and so is one into which a lease's files were collected before.

    Raises:
        BadRequest: the directory is somebody else's, contains other files too, or would not outlive the
            box.
        LocalTrouble: the directory cannot be made or marked.
    """
    if "\0" in str(directory):
        raise BadRequest(
            "a directory's name cannot contain a NUL",
            remedy=str(Command("collect", lease.id, to="DIR")),
        )
    try:
        real = outside_the_box(directory, lease)
    except (OSError, RuntimeError) as error:
        raise BadRequest(
            f"{str(directory)[:200]} is no place on this computer: {error}",
            remedy=str(Command("collect", lease.id, to="DIR")),
        ) from error
    _require_nobodys(real, lease, ledger)
    doubt = await store_doubt(await asyncio.to_thread(whereabouts_of, real), lease)
    if doubt is not None:
        raise BadRequest(
            f"files in {real} may not outlive the box or this computer: {doubt.words}",
            remedy=f"choose a disk of this computer: {_better(lease, ledger)}",
        )
    is_new = await asyncio.to_thread(_is_free, real, lease, ledger)
    if not is_new:
        _require_ours(real, lease, ledger)
    make_place(real, lease)
    _mark(real, lease, ledger)
    return real


def require_its_own(session: Session, patterns: Sequence[str]) -> None:
    """For a box that is a directory of this computer, check that every absolute pattern stays inside that directory.

    Such boxes are those of `local`, and those of a rehearsal without sshd.

    Raises:
        BadRequest: a pattern leads outside. It would take other files of this computer for the box's work.
    """
    if not isinstance(session.transport, OnThisComputer):
        return
    home = os.path.normpath(session.transport.home)
    # Beside the home are the directories that stand for a rehearsed box's other disks.
    box = Path(home).parent
    for pattern in patterns:
        if pattern.startswith("/") and not os.path.normpath(pattern).startswith(f"{box}/"):
            raise BadRequest(
                f"{pattern!r} is outside the box of {session.lease.id}, which is a directory of this computer",
                remedy=f"write the pattern relative to the work directory, or below {home}",
            )


def _require_nobodys(real: Path, lease: Lease, ledger: Ledger) -> None:
    """Check that the directory is not this user's home or this program's own, and contains neither.

    Raises:
        BadRequest: it is, or does.
    """
    state, home = ledger.directory.resolve(), Path.home().resolve()
    if real.is_relative_to(state) and not real.is_relative_to(state / "kept"):
        raise BadRequest(
            f"{real} is in the state directory, where the ledger is",
            remedy=f"leave {Option('to')} out, or {_better(lease, ledger)}",
        )
    for what, place in (("your home", home), ("the state directory", state)):
        if place.is_relative_to(real):
            raise BadRequest(
                f"{real} is {what}, or contains it: a box's files are not put among your own",
                remedy=_better(lease, ledger),
            )


def _is_free(real: Path, lease: Lease, ledger: Ledger) -> bool:
    """Whether `real` is empty or new, or is the default directory of this lease."""
    if real == (ledger.directory / "kept" / lease.id).resolve():
        return True
    try:
        # A collect that died before it marked its new directory may have left these two behind.
        return set(os.listdir(real)) <= {".gitignore", PARTIAL}  # noqa: PTH208 - names are enough
    except FileNotFoundError:
        return True
    except OSError as error:
        raise LocalTrouble(
            f"nothing can be kept in {str(real)[:200]}: {error.strerror}",
            remedy=f"choose another place: {Command('collect', lease.id, to='DIR')}",
        ) from error


def _require_ours(real: Path, lease: Lease, ledger: Ledger) -> None:
    if _marks(real, ledger) or any(
        other.kept_in and Path(other.kept_in).resolve() == real for other in ledger.leases()
    ):
        return
    if os.path.lexists(real / ".git"):
        raise BadRequest(
            f"{real} is a repository: a box's files would be mixed with yours, and could overwrite them",
            remedy=_better(lease, ledger, real),
        )
    raise BadRequest(
        f"{real} contains other files, and a box's files are not mixed with them",
        remedy=_better(lease, ledger, real),
    )


def _better(lease: Lease, ledger: Ledger, beside: Path | None = None) -> str:
    place = beside / "results" / lease.id if beside else ledger.directory / "kept" / lease.id
    return f"a new or empty directory: {Command('collect', lease.id, to=place)}"


def _mark_of(lease: Lease, ledger: Ledger) -> str:
    return f"gpu-tenant:{ledger.deployment}:{lease.id}"


def _marks(real: Path, ledger: Ledger) -> list[str]:
    """Read the marks of this ledger's leases from the marker file in the directory. Empty if the directory has none."""
    try:
        opened = os.open(real / MARKER, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(opened, "rb") as file:
            lines = file.read(1 << 20).decode("ascii", errors="replace").splitlines()
    except OSError:
        return []
    ours = f"gpu-tenant:{ledger.deployment}:"
    return [line for line in lines if line.startswith(ours)]


def _mark(real: Path, lease: Lease, ledger: Ledger) -> None:
    """Write the lease's mark into the directory's marker file, unless it is there."""
    mark = _mark_of(lease, ledger)
    if mark in _marks(real, ledger):
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    try:
        opened = os.open(real / MARKER, flags, 0o600)
        with os.fdopen(opened, "ab") as file:
            file.write(f"{mark}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise LocalTrouble(
            f"nothing can be kept in {str(real)[:200]}: {error.strerror}",
            remedy=f"choose another place: {Command('collect', lease.id, to='DIR')}",
        ) from error
