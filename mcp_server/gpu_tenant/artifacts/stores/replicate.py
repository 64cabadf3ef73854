"""Copies the collected files to the durable store, and re-reads them there as proof."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpu_tenant.artifacts.stores.locality import store_doubt
from gpu_tenant.artifacts.stores.protocol import (
    DurableStore,
    reread_held,
    seal_stored_as,
    stored_as,
    superseded_as,
)
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, DiskFull, LocalTrouble, StoreTrouble
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.seal import Manifest, SealedFile
from gpu_tenant.domain.wording import some
from gpu_tenant.files.artifact_directory import is_here, is_on_the_box
from gpu_tenant.files.paths import below
from gpu_tenant.files.state_dir import Reread, reread
from gpu_tenant.ledger import Ledger

_DOWN = 3
"""After this many failures in a row, the store counts as down, and no further file is tried."""


class StoreCopy(Record):
    """What the durable store holds now. Each file was re-read from it."""

    lease: str
    seal: str
    store: str
    files: int
    size_bytes: int
    sent_files: int
    sent_bytes: int
    not_here: tuple[str, ...]
    """Files that are missing on this computer, or differ from the box, and so could not be copied to the store."""


async def keep_safe(
    lease: Lease,
    seal: Manifest,
    *,
    directory: Path,
    store: DurableStore,
    ledger: Ledger,
    progress: Callable[[int, int], None],
) -> StoreCopy:
    """Copy every entry of `seal` that is here unchanged into the store, and check it there by its hash.

    `seal` is the newest one of the lease, and `directory` is where collect put the files. A file that the store
    already holds with the right hash is not sent again. `progress` is called with the number of bytes proved in
    the store, and the total.

    Raises:
        BadRequest: the store is on the box, or is `directory` itself.
        StoreTrouble: a file that is here could not be proved in the store. The files that could are on
            record.
        LocalTrouble: `directory` does not exist, or cannot be written to.
    """
    await _require_elsewhere(lease, seal, directory, store)
    here: list[SealedFile] = []
    not_here: list[SealedFile] = []
    for entry in seal.entries:
        is_kept = await asyncio.to_thread(is_here, directory, entry)
        (here if is_kept else not_here).append(entry)
    # A link has no bytes. The seal records its target, and the seal is stored next to the files.
    files = [entry for entry in here if entry.kind == "file"]
    stamp = f"{ledger.now():%Y%m%dT%H%M%S.%f}"
    total = _bytes(files)
    proved: list[SealedFile] = []
    sent: list[SealedFile] = []
    failed: list[str] = []
    last: StoreTrouble | DiskFull | None = None
    in_a_row = 0
    with _scratch(directory, lease) as scratch:
        there = await store.names(lease.id)
        await _keep_seal(lease, seal, stamp=stamp, store=store, scratch=scratch)
        progress(0, total)
        for entry in files:
            try:
                if await _keep(
                    entry,
                    lease,
                    below(directory, entry.name),
                    there=there,
                    stamp=stamp,
                    store=store,
                    scratch=scratch,
                ):
                    sent.append(entry)
            except (StoreTrouble, DiskFull) as trouble:
                failed.append(entry.name)
                last, in_a_row = trouble, in_a_row + 1
                if in_a_row == _DOWN:
                    break
                continue
            in_a_row = 0
            proved.append(entry)
            progress(_bytes(proved), total)
    missing = len(files) - len(proved)
    ledger.note(
        lease.id,
        timeline.Stored(
            store=store.words,
            seal=seal.digest,
            files=len(proved),
            bytes=_bytes(proved),
            missing=missing + len(not_here),
        ),
        at=ledger.now(),
    )
    if last is not None:
        raise StoreTrouble(
            f"{missing} of {some(len(files), 'file')} could not be proved in {store.words}, for example {failed[0]}: {last.message}",
            remedy=last.remedy,
        )
    return StoreCopy(
        lease=lease.id,
        seal=seal.digest,
        store=store.words,
        files=len(proved),
        size_bytes=_bytes(proved),
        sent_files=len(sent),
        sent_bytes=_bytes(sent),
        not_here=tuple(entry.name for entry in not_here),
    )


@contextmanager
def _scratch(directory: Path, lease: Lease) -> Iterator[Path]:
    """Make a temporary directory on the disk of the collected files. It is deleted when the block ends."""
    try:
        made = tempfile.mkdtemp(dir=directory, prefix=".keeping-")
    except OSError as error:
        raise LocalTrouble(
            f"what was collected in {directory} cannot be copied: {error.strerror}",
            remedy=f"{Command('collect', lease.id)}, then run the same command again",
        ) from error
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


async def _keep(
    entry: SealedFile,
    lease: Lease,
    source: Path,
    *,
    there: frozenset[str],
    stamp: str,
    store: DurableStore,
    scratch: Path,
) -> bool:
    """Put the entry into the store, and read it back. Returns whether it had to be sent."""
    name = stored_as(lease.id, entry.name)
    wanted = Reread(entry.size_bytes, entry.sha256 or "")
    if name in there and await reread_held(store, name, like=wanted, scratch=scratch) == wanted:
        return False
    await store.put(source, name, superseded=superseded_as(lease.id, stamp, entry.name))
    if await reread_held(store, name, like=wanted, scratch=scratch) != wanted:
        raise _other_bytes(store, entry.name)
    return True


async def _keep_seal(
    lease: Lease, seal: Manifest, *, stamp: str, store: DurableStore, scratch: Path
) -> None:
    """Store the seal next to the files. It lists them, and it alone records the links."""
    paper = scratch / "seal.json"
    paper.write_text(seal.model_dump_json(by_alias=True), encoding="utf-8")
    name, wanted = seal_stored_as(lease.id, seal.digest), reread(paper)
    if wanted is None or await reread_held(store, name, like=wanted, scratch=scratch) == wanted:
        return
    aside = superseded_as(lease.id, stamp, f".seals/{seal.digest}.json")
    await store.put(paper, name, superseded=aside)
    if await reread_held(store, name, like=wanted, scratch=scratch) != wanted:
        raise _other_bytes(store, "the seal")


def _other_bytes(store: DurableStore, name: str) -> StoreTrouble:
    return StoreTrouble(
        f"{store.words} took {name}, but does not return the same bytes",
        remedy="run the same command again; if it fails again, that store or the way to it is broken",
    )


def _bytes(entries: Sequence[SealedFile]) -> int:
    return sum(entry.size_bytes for entry in entries)


async def _require_elsewhere(
    lease: Lease, seal: Manifest, directory: Path, store: DurableStore
) -> None:
    where = await store.where()
    doubt = await store_doubt(where, lease)
    on_the_box = BadRequest(
        f"the store {store.words} is on the box itself and would be lost with it",
        remedy="name a store that outlives the box",
    )
    if doubt is not None and doubt.is_the_box:
        raise on_the_box
    for entry in seal.entries:
        if where.directory is None:
            return
        place = below(where.directory, stored_as(lease.id, entry.name))
        if is_on_the_box(place.parent, lease):
            raise on_the_box
        if place.parent.resolve() == below(directory, entry.name).parent.resolve():
            raise BadRequest(
                f"the store {store.words} is the directory that collect fills, so it would hold no second copy",
                remedy="name a store elsewhere: another disk, a remote, a bucket",
            )
