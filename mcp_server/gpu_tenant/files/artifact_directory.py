"""Files of a box land here: each proved by its hash, and nothing that was here is lost to it."""

import asyncio
import ctypes
import errno
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path

from gpu_tenant.domain.errors import BadRequest, DiskFull, LocalTrouble
from gpu_tenant.domain.model import Lease, LocalAddress, SealedFile
from gpu_tenant.files.paths import below, parts_of, to_bytes, to_remote
from gpu_tenant.files.state_dir import is_reached, link_target, placing, reread

SUPERSEDED = ".superseded"
PARTIAL = ".partial"
MARKER = ".gpu-tenant-kept"
"""Says in a directory that it is ours, and for which leases; nobody else can have made it."""
_OWN = (MARKER, PARTIAL, f"{PARTIAL}/live", SUPERSEDED, ".snapshots", ".known.json")
_OWN_NAME = re.compile(r"[0-9a-f]{64}(\.spans(\.new)?)?")
_SYNCED_AT_ONCE = 16
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
_SYNC = getattr(os, "fdatasync", os.fsync)
_START_WRITING = getattr(ctypes.CDLL(None), "sync_file_range", None)
"""Linux only. A hint, whose failure costs nothing but time: `_SYNC` waits, and tells."""
_WRITE = 2
if _START_WRITING is not None:
    _START_WRITING.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def outside_the_box(directory: Path, lease: Lease) -> Path:
    """The directory itself, wherever its links lead.

    Raises:
        BadRequest: it would go with the box.
    """
    directory = directory.expanduser().resolve()
    if is_on_the_box(directory, lease):
        raise BadRequest(
            f"{directory} is on the box itself and would go with it",
            remedy=f"choose a place that outlives the box: `gpu-tenant collect {lease.id} --to DIR`",
        )
    return directory


def is_on_the_box(path: Path, lease: Lease) -> bool:
    """Whether `path`, wherever its links lead, would go with the box."""
    return isinstance(lease.address, LocalAddress) and path.resolve().is_relative_to(
        Path(lease.address.directory).resolve().parent
    )


def make_place(directory: Path, lease: Lease) -> None:
    """`directory` is there; made for this, it is ignored by git and so by every push around it.

    Raises:
        LocalTrouble: it cannot be, or what should be ours in it is a link to somewhere else.
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
            remedy=f"choose another place: `gpu-tenant collect {lease.id} --to DIR`",
        ) from error


def is_ours(name: str) -> bool:
    """Whether a file in `.partial` has a name that only we give."""
    return _OWN_NAME.fullmatch(name) is not None


def _require_plain(directory: Path, lease: Lease) -> None:
    """What is ours in `directory` lies there itself: through a link we would write, and clear, elsewhere.

    Raises:
        LocalTrouble: it does not.
    """
    for name in _OWN:
        if (directory / name).is_symlink():
            raise LocalTrouble(
                f"{directory / name} is a link, and nothing is done through it",
                remedy=f"remove that link, or choose another place: `gpu-tenant collect {lease.id} --to DIR`",
            )


def is_at(path: Path, entry: SealedFile) -> bool:
    """Whether what lies at `path`, read from its storage, is what the entry says."""
    if entry.kind == "link":
        return link_target(path) == to_bytes(entry.target or "")
    held = reread(path)
    return held is not None and (held.size_bytes, held.sha256) == (entry.size_bytes, entry.sha256)


def is_here(directory: Path, entry: SealedFile) -> bool:
    """Whether the entry lies where it is kept below `directory`, as it is, and not elsewhere behind a link."""
    path = below(directory, entry.name)
    return is_reached(directory, path) and is_at(path, entry)


def partial_of(directory: Path, entry: SealedFile, within: str = PARTIAL) -> Path:
    """Where the bytes of `entry` arrive.

    Not beside its final name, because a name of 255 bytes leaves no room for a suffix. A newer version
    has another time, or another size; where it has neither, its hash tells in the end.
    """
    told = f"{entry.size_bytes} {entry.mtime_ns} {entry.name}"
    return directory / within / sha256(told.encode()).hexdigest()


Arrived = tuple[SealedFile, Path | None]
"""What is to land, and where its bytes are, which are on their storage; a link has none."""


async def land(
    entry: SealedFile, partial: Path | None, directory: Path, lease: Lease, *, superseded: Path
) -> None:
    """As `land_all`, for one."""
    await asyncio.to_thread(land_all, [(entry, partial)], directory, lease, superseded=superseded)


def land_all(
    arrived: Sequence[Arrived], directory: Path, lease: Lease, *, superseded: Path
) -> None:
    """Each entry lies durably below `directory`, with the time it had on the box.

    What was there is in `superseded`, which is below it, too.

    Raises:
        LocalTrouble: one cannot be kept here; those before it are in place, as said.
    """
    aside = superseded.relative_to(directory).parts
    entry = None
    try:
        with placing(directory) as places:
            for entry, partial in arrived:
                final = parts_of(entry.name)
                if partial is None:
                    target = to_remote(entry.target or "")
                    places.link(target, final, superseded=aside + final)
                    continue
                # Whoever asks which checkpoint is the newest may ask by time, also after it was restored.
                with suppress(OverflowError, OSError):
                    os.utime(partial, ns=(entry.mtime_ns, entry.mtime_ns))
                places.file(partial, final, superseded=aside + final)
    except OSError as error:
        raise unkept(entry.name if entry else "what came", lease, error) from error


def durable(paths: Sequence[Path]) -> None:
    """What was written to each of those small files is on its storage.

    All are started before any is waited for: half the time of one after the other. To flush the whole
    file system would halve it again, and would wait for whatever else is being written there.

    Raises:
        OSError: one cannot be opened, or its storage did not take it.
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


def unkept(what: str, lease: Lease, error: OSError) -> LocalTrouble:
    """The error of what this computer does not take."""
    if error.errno in _NO_ROOM:
        return DiskFull(
            f"no room for {what}: {error.strerror}; what was fetched stays",
            remedy=f"free some space, then `gpu-tenant collect {lease.id}` goes on",
        )
    return LocalTrouble(
        f"{what} cannot be kept here: {error.strerror}",
        remedy=f"choose a file system that takes it: `gpu-tenant collect {lease.id} --to DIR`",
    )
