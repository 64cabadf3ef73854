"""The directory that keeps files of a box. Each is verified by its hash, and a file that it replaces is kept."""

import asyncio
import ctypes
import errno
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, DiskFull, LocalTrouble
from gpu_tenant.domain.model import Lease, LocalAddress
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.files.paths import below, parts_of, to_bytes, to_remote
from gpu_tenant.files.state_dir import is_reached, link_target, open_placing, reread

SUPERSEDED = ".superseded"
PARTIAL = ".partial"
MARKER = ".gpu-tenant-kept"
"""The file that marks a directory as ours, and names its leases. No file of a box can have this name."""
_OWN = (MARKER, PARTIAL, f"{PARTIAL}/live", SUPERSEDED, ".snapshots", ".known.json")
_OWN_NAME = re.compile(r"[0-9a-f]{64}(\.spans(\.new)?)?")
_SYNCED_AT_ONCE = 16
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
_SYNC = getattr(os, "fdatasync", os.fsync)
_START_WRITING = getattr(ctypes.CDLL(None), "sync_file_range", None)
"""Only on Linux. The call is a hint: if it fails, only time is lost, because `_SYNC` waits and reports errors."""
_WRITE = 2
if _START_WRITING is not None:
    _START_WRITING.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def outside_the_box(directory: Path, lease: Lease) -> Path:
    """Return the real path of the directory, with all links resolved.

    Raises:
        BadRequest: the directory is on the box, and would vanish with it.
    """
    directory = directory.expanduser().resolve()
    if is_on_the_box(directory, lease):
        raise BadRequest(
            f"{directory} is on the box itself, and would be lost with it",
            remedy=f"choose a place that outlives the box: {Command('collect', lease.id, to='DIR')}",
        )
    return directory


def is_on_the_box(path: Path, lease: Lease) -> bool:
    """Whether `path`, with all links resolved, would vanish with the box."""
    return isinstance(lease.address, LocalAddress) and path.resolve().is_relative_to(
        Path(lease.address.directory).resolve().parent
    )


def make_place(directory: Path, lease: Lease) -> None:
    """Make `directory` if it does not exist. Git ignores a new one, and so does every push of a directory around it.

    Raises:
        LocalTrouble: the directory cannot be made, or one of our own names in it is a link.
    """
    try:
        if not directory.exists():
            directory.mkdir(parents=True, mode=0o700)
            (directory / ".gitignore").write_text("*\n", encoding="utf-8")
        _require_plain(directory, lease)
        (directory / PARTIAL).mkdir(exist_ok=True)
    except OSError as error:
        raise LocalTrouble(
            f"nothing can be kept in {directory}: {error.strerror}",
            remedy=f"choose another place: {Command('collect', lease.id, to='DIR')}",
        ) from error


def is_ours(name: str) -> bool:
    """Whether the name of a file in `.partial` has a form that only we use."""
    return _OWN_NAME.fullmatch(name) is not None


def _require_plain(directory: Path, lease: Lease) -> None:
    """Check that none of our own names in `directory` is a link.

    Through a link, we would write and delete in another place.

    Raises:
        LocalTrouble: one of these names is a link.
    """
    for name in _OWN:
        if (directory / name).is_symlink():
            raise LocalTrouble(
                f"{directory / name} is a link, and gpu-tenant writes through no link",
                remedy=f"remove that link, or choose another place: {Command('collect', lease.id, to='DIR')}",
            )


def is_at(path: Path, entry: SealedFile) -> bool:
    """Whether the content at `path`, read from the disk, equals that of the entry."""
    if entry.kind == "link":
        return link_target(path) == to_bytes(entry.target or "")
    held = reread(path)
    return held is not None and (held.size_bytes, held.sha256) == (entry.size_bytes, entry.sha256)


def is_here(directory: Path, entry: SealedFile) -> bool:
    """Whether the entry is in its place below `directory`, unchanged, and not behind a link."""
    path = below(directory, entry.name)
    return is_reached(directory, path) and is_at(path, entry)


def partial_of(directory: Path, entry: SealedFile, within: str = PARTIAL) -> Path:
    """Return the path of the partial file in which the bytes of `entry` are gathered.

    The partial file is not beside the final file, because a name of 255 bytes leaves no room for a suffix. A
    newer version of the file usually has another time or size, and so another partial file. If both are the
    same, the hash shows the difference at the end.
    """
    told = f"{entry.size_bytes} {entry.mtime_ns} {entry.name}"
    return directory / within / sha256(told.encode()).hexdigest()


Arrived = tuple[SealedFile, Path | None]
"""An entry, and the path of its bytes, which are flushed to the disk. The path is None for a link."""


async def land(
    entry: SealedFile, partial: Path | None, directory: Path, lease: Lease, *, superseded: Path
) -> None:
    """Do the same as `land_all`, for one entry."""
    await asyncio.to_thread(land_all, [(entry, partial)], directory, lease, superseded=superseded)


def land_all(
    arrived: Sequence[Arrived], directory: Path, lease: Lease, *, superseded: Path
) -> None:
    """Move each entry to its place below `directory`, and flush the move. A file gets the time that it had on the box.

    Whatever was in its place before is moved to `superseded`, which is also below `directory`.

    Raises:
        LocalTrouble: an entry cannot be kept here; the entries before it are in place, and flushed.
    """
    aside = superseded.relative_to(directory).parts
    entry = None
    try:
        with open_placing(directory) as places:
            for entry, partial in arrived:
                final = parts_of(entry.name)
                if partial is None:
                    target = to_remote(entry.target or "")
                    places.link(target, final, superseded=aside + final)
                    continue
                # Keep the time, because tools may use it to find the newest checkpoint, even after a restore.
                with suppress(OverflowError, OSError):
                    os.utime(partial, ns=(entry.mtime_ns, entry.mtime_ns))
                places.file(partial, final, superseded=aside + final)
    except OSError as error:
        raise cannot_keep(entry.name if entry else "what came", lease, error) from error


def durable(paths: Sequence[Path]) -> None:
    """Flush the content of these small files to the disk.

    All flushes are started before the first is waited for. This takes half as long as one after the other.
    Flushing the whole file system would take half of that again, but would also wait for the writes of other
    programs.

    Raises:
        OSError: a file cannot be opened, or flushing it failed.
    """
    for first in range(0, len(paths), _SYNCED_AT_ONCE):
        with ExitStack() as closing:
            opened = []
            for path in paths[first : first + _SYNCED_AT_ONCE]:
                opened.append(os.open(path, _READ))
                closing.callback(os.close, opened[-1])
                if _START_WRITING is not None:
                    _START_WRITING(opened[-1], 0, 0, _WRITE)
            for file in opened:
                _SYNC(file)


def cannot_keep(what: str, lease: Lease, error: OSError) -> LocalTrouble:
    """Make the error for something that cannot be kept on this computer."""
    if error.errno in _NO_ROOM:
        return DiskFull(
            f"no room for {what}: {error.strerror}; what was fetched stays",
            remedy=f"free some space, then {Command('collect', lease.id)} continues",
        )
    return LocalTrouble(
        f"{what} cannot be kept here: {error.strerror}",
        remedy=f"choose a file system that accepts it: {Command('collect', lease.id, to='DIR')}",
    )
