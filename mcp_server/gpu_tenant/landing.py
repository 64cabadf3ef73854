"""Files of a box land here: each proved by its hash, and nothing that was here is lost to it."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from gpu_tenant.errors import BadRequest, BoxTrouble, LocalTrouble
from gpu_tenant.model import Lease, SealedFile
from gpu_tenant.paths import below, to_bytes, to_remote
from gpu_tenant.ports import Transport
from gpu_tenant.store import is_reached, link_target, place, place_link, reread
from gpu_tenant.verify import is_on_the_box

SUPERSEDED = ".superseded"
PARTIAL = ".partial"


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


def make_place(directory: Path, lease: Lease) -> None:
    """`directory` is there; made for this, it is ignored by git and so by every push around it.

    Raises:
        LocalTrouble: it cannot be.
    """
    try:
        if not directory.exists():
            directory.mkdir(parents=True, mode=0o700)
            (directory / ".gitignore").write_text("*\n", encoding="utf-8")
        (directory / PARTIAL).mkdir(exist_ok=True)
    except OSError as error:
        raise LocalTrouble(
            f"nothing can be kept in {directory}: {error.strerror}",
            remedy=f"choose another place: `gpu-tenant collect {lease.id} --to DIR`",
        ) from error


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

    Not beside its final name, because a name of 255 bytes leaves no room for a suffix; and named by
    content too, because a newer version's bytes must never continue an older one's.
    """
    return directory / within / sha256(f"{entry.sha256} {entry.name}".encode()).hexdigest()


async def arrive(
    entry: SealedFile,
    directory: Path,
    lease: Lease,
    *,
    transport: Transport,
    on_bytes: Callable[[int], None],
    within: str = PARTIAL,
) -> Path:
    """The bytes of `entry` are in its partial file, equal to it; going on from what had come before.

    Raises:
        BoxTrouble: it changed or vanished while it was fetched.
        LocalTrouble: it cannot be kept here.
    """
    partial = partial_of(directory, entry, within)
    try:
        for _ in ("resumed", "from the start"):
            if partial.exists() and partial.stat().st_size > entry.size_bytes:
                partial.unlink()
            await transport.get(to_remote(entry.at), partial, on_bytes=on_bytes)
            if await asyncio.to_thread(is_at, partial, entry):
                return partial
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise _unkept(entry, lease, error) from error
    raise BoxTrouble(
        f"{entry.name} changed on the box while it was fetched",
        remedy=f"find out what writes there, then `gpu-tenant collect {lease.id}` again",
    )


async def land(
    entry: SealedFile, partial: Path | None, directory: Path, lease: Lease, *, superseded: Path
) -> None:
    """The entry lies below `directory`, with the time it had on the box; what was there is in
    `superseded`, which is below it, too. A link needs no partial file.

    Raises:
        LocalTrouble: it cannot be kept here.
    """
    final, out_of_the_way = below(directory, entry.name), below(superseded, entry.name)
    try:
        if partial is None:
            await asyncio.to_thread(
                place_link, to_remote(entry.target or ""), final, root=directory, superseded=out_of_the_way
            )  # fmt: skip
            return
        # Whoever asks which checkpoint is the newest may ask by time, also after it was restored.
        with suppress(OverflowError, OSError):
            os.utime(partial, ns=(entry.mtime_ns, entry.mtime_ns))
        await asyncio.to_thread(place, partial, final, root=directory, superseded=out_of_the_way)
    except OSError as error:
        raise _unkept(entry, lease, error) from error


def _unkept(entry: SealedFile, lease: Lease, error: OSError) -> LocalTrouble:
    return LocalTrouble(
        f"{entry.name} cannot be kept here: {error.strerror}",
        remedy=f"choose a file system that takes it: `gpu-tenant collect {lease.id} --to DIR`",
    )
