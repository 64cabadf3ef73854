"""Seal the box and fetch everything that is to be kept, each file proved as it lands."""

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from pathlib import Path

from gpu_tenant.caretaker import Caretaker
from gpu_tenant.errors import BadRequest, BoxTrouble, LocalTrouble, TenantError
from gpu_tenant.ledger import Event, Ledger
from gpu_tenant.model import Lease, Manifest, Profile, SealedFile
from gpu_tenant.paths import below, to_bytes, to_remote
from gpu_tenant.patterns import require_narrow, require_patterns
from gpu_tenant.ports import Clock, Transport
from gpu_tenant.record import Record
from gpu_tenant.store import link_target, place, require_space, reread, sync_directory
from gpu_tenant.verify import is_on_the_box, reseal

_AT_ONCE = 4


class Collected(Record):
    """What lies here now of what the box holds."""

    lease: str
    seal: str
    directory: str
    files: int
    size_bytes: int
    fetched_files: int
    fetched_bytes: int
    unclaimed_files: int
    unclaimed_bytes: int
    unclaimed_largest: tuple[str, ...]
    discarded_bytes: int
    discarded_by: tuple[str, ...]
    cannot_be_kept: tuple[str, ...]
    never_appeared: tuple[str, ...]
    discarded_nothing: tuple[str, ...]
    next: str


async def collect(
    lease: Lease,
    profile: Profile,
    *,
    directory: Path,
    artifacts: Sequence[str],
    discard: Sequence[str],
    caretaker: Caretaker,
    transport: Transport,
    ledger: Ledger,
    clock: Clock,
    progress: Callable[[int, int], None],
) -> Collected:
    """Every file of a fresh seal lies in `directory`, equal to the seal when it landed.

    `artifacts` and `discard` are the owner's later words about files that nobody had claimed; they are
    on record from here on. `progress` is told the bytes here and the bytes in all. What lay in the way of a newer version is
    moved to `.superseded/`, never overwritten.

    Raises:
        JobRunning: something on the box is still being written.
        DiskFull: no room here; what was fetched stays, and the next collect goes on from it.
        BoxTrouble: a file changed or vanished while it was fetched.

    After any exception every file in `directory` is whole, and the box is as it was.
    """
    directory = _outside_the_box(directory, lease)
    _make_place(directory, lease)
    require_patterns((*artifacts, *discard))
    require_narrow(discard)
    seal = await reseal(
        lease, profile, caretaker=caretaker, ledger=ledger, artifacts=artifacts, discard=discard
    )
    # On record only now: a pattern that the box refuses must not spoil every later seal.
    ledger.claim(lease.id, artifacts=artifacts, discard=discard, at=clock.now())
    missing = [
        entry for entry in seal.entries if not await asyncio.to_thread(_here, directory, entry)
    ]
    require_space(
        directory,
        sum(entry.size_bytes for entry in missing),
        remedy=f"free some, or choose another place: `gpu-tenant collect {lease.id} --to DIR`",
    )
    ledger.keep_in(lease.id, directory)
    ledger.file_seal(lease.id, seal, at=clock.now())
    total = sum(entry.size_bytes for entry in seal.entries)
    arrived = total - sum(entry.size_bytes for entry in missing)
    progress(arrived, total)

    def on_bytes(count: int) -> None:
        nonlocal arrived
        arrived = min(total, arrived + count)
        progress(arrived, total)

    gate = asyncio.Semaphore(_AT_ONCE)
    superseded = directory / ".superseded" / f"{clock.now():%Y%m%dT%H%M%S.%f}"

    async def fetch(entry: SealedFile) -> None:
        async with gate:
            await _fetch(
                entry, directory, superseded, lease, transport=transport, on_bytes=on_bytes
            )

    try:
        async with asyncio.TaskGroup() as fetching:
            for entry in missing:
                fetching.create_task(fetch(entry))
    except ExceptionGroup as troubles:
        raise _first(troubles) from None
    size = sum(entry.size_bytes for entry in missing)
    detail: dict[str, object] = {"seal": seal.digest, "files": len(missing), "bytes": size}
    ledger.note(lease.id, Event.COLLECTED, detail, at=clock.now())
    idle = _without_effect(discard, seal)
    return _answer(lease, seal, directory, missing, ledger.declared(lease.id)[1], idle)


def _make_place(directory: Path, lease: Lease) -> None:
    """`directory` is there; made for this, it is ignored by git and so by every push around it.

    Raises:
        LocalTrouble: it cannot be.
    """
    try:
        if not directory.exists():
            directory.mkdir(parents=True, mode=0o700)
            (directory / ".gitignore").write_text("*\n", encoding="utf-8")
        (directory / ".partial").mkdir(exist_ok=True)
    except OSError as error:
        raise LocalTrouble(
            f"nothing can be kept in {directory}: {error.strerror}",
            remedy=f"choose another place: `gpu-tenant collect {lease.id} --to DIR`",
        ) from error


def _first(troubles: ExceptionGroup[Exception]) -> Exception:
    """One exception to tell: ours rather than a stranger's."""
    ours = troubles.subgroup(TenantError) or troubles
    first = ours.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first


def _outside_the_box(directory: Path, lease: Lease) -> Path:
    directory = directory.expanduser().resolve()
    if is_on_the_box(directory, lease):
        raise BadRequest(
            f"{directory} is on the box itself and would go with it",
            remedy=f"choose a place that outlives the box: `gpu-tenant collect {lease.id} --to DIR`",
        )
    return directory


def _here(directory: Path, entry: SealedFile) -> bool:
    path = below(directory, entry.name)
    if entry.kind == "link":
        return link_target(path) == to_bytes(entry.target or "")
    held = reread(path)
    return held is not None and (held.size_bytes, held.sha256) == (entry.size_bytes, entry.sha256)


async def _fetch(
    entry: SealedFile,
    directory: Path,
    superseded: Path,
    lease: Lease,
    *,
    transport: Transport,
    on_bytes: Callable[[int], None],
) -> None:
    final = below(directory, entry.name)
    out_of_the_way = below(superseded, entry.name)
    # Not beside its final name, because a name of 255 bytes leaves no room for a suffix; and named by
    # content too, because a newer seal's bytes must never continue an older one's.
    partial = directory / ".partial" / sha256(f"{entry.sha256} {entry.name}".encode()).hexdigest()
    try:
        if entry.kind == "link":
            await asyncio.to_thread(_link, final, entry, out_of_the_way)
            return
        for _ in ("resumed", "from the start"):
            if partial.exists() and partial.stat().st_size > entry.size_bytes:
                partial.unlink()
            await transport.get(to_remote(entry.at), partial, on_bytes=on_bytes)
            held = await asyncio.to_thread(reread, partial)
            if held is not None and (held.size_bytes, held.sha256) == (
                entry.size_bytes,
                entry.sha256,
            ):
                await asyncio.to_thread(place, partial, final, superseded=out_of_the_way)
                return
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise LocalTrouble(
            f"{entry.name} cannot be kept here: {error.strerror}",
            remedy=f"choose a file system that takes it: `gpu-tenant collect {lease.id} --to DIR`",
        ) from error
    raise BoxTrouble(
        f"{entry.name} changed on the box while it was fetched",
        remedy=f"find out what writes there, then `gpu-tenant collect {lease.id}` again",
    )


def _link(final: Path, entry: SealedFile, superseded: Path) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(final):
        superseded.parent.mkdir(parents=True, exist_ok=True)
        final.replace(superseded)
    final.symlink_to(os.fsdecode(to_bytes(entry.target or "")))
    sync_directory(final.parent)


def _without_effect(discard: Sequence[str], seal: Manifest) -> tuple[str, ...]:
    """The patterns just given up that cover nothing: no such file, or an artifact keeps it."""
    effective = {p.pattern for p in seal.discarded.patterns} | set(seal.unmatched)
    return tuple(pattern for pattern in discard if pattern not in effective)


def _answer(
    lease: Lease,
    seal: Manifest,
    directory: Path,
    fetched: Sequence[SealedFile],
    given_up: Collection[str],
    idle: tuple[str, ...],
) -> Collected:
    cannot = tuple(f"{lease.from_work(p.at)}: {p.why} ({p.detail})" for p in seal.problems)
    never_appeared = tuple(p for p in seal.unmatched if p not in given_up)
    clean = not (cannot or never_appeared or seal.unclaimed.count)
    return Collected(
        lease=lease.id,
        seal=seal.digest,
        directory=str(directory),
        files=len(seal.entries),
        size_bytes=sum(entry.size_bytes for entry in seal.entries),
        fetched_files=len(fetched),
        fetched_bytes=sum(entry.size_bytes for entry in fetched),
        unclaimed_files=seal.unclaimed.count,
        unclaimed_bytes=seal.unclaimed.size_bytes,
        unclaimed_largest=tuple(lease.from_work(x.at) for x in seal.unclaimed.largest[:5]),
        discarded_bytes=seal.discarded.size_bytes,
        discarded_by=tuple(p.pattern for p in seal.discarded.patterns),
        cannot_be_kept=cannot,
        never_appeared=never_appeared,
        discarded_nothing=idle,
        next="verify_and_teardown"
        if clean
        else "collect again with artifacts=[...] or discard=[...] for what is named above",
    )
