"""Seal the box and fetch everything that is to be kept, each file proved as it lands."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from pydantic import Field

from gpu_tenant.caretaker import Caretaker
from gpu_tenant.errors import TenantError
from gpu_tenant.landing import SUPERSEDED, arrive, is_here, land, make_place, outside_the_box
from gpu_tenant.ledger import Event, Ledger
from gpu_tenant.model import Lease, Manifest, Profile, SealedFile
from gpu_tenant.patterns import require_narrow, require_patterns
from gpu_tenant.ports import Clock, Transport
from gpu_tenant.record import Record
from gpu_tenant.store import require_space
from gpu_tenant.verify import reseal

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
    stored: str | None = Field(default=None, description="what the lease's store holds, too")
    not_stored: str | None = Field(default=None, description="why that store does not hold it all")
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
    directory = outside_the_box(directory, lease)
    make_place(directory, lease)
    require_patterns((*artifacts, *discard))
    require_narrow(discard)
    seal = await reseal(
        lease, profile, caretaker=caretaker, ledger=ledger, artifacts=artifacts, discard=discard
    )
    # On record only now: a pattern that the box refuses must not spoil every later seal.
    ledger.claim(lease.id, artifacts=artifacts, discard=discard, at=clock.now())
    missing = [
        entry for entry in seal.entries if not await asyncio.to_thread(is_here, directory, entry)
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
    superseded = directory / SUPERSEDED / f"{clock.now():%Y%m%dT%H%M%S.%f}"

    async def fetch(entry: SealedFile) -> None:
        async with gate:
            partial = None
            if entry.kind == "file":
                partial = await arrive(
                    entry, directory, lease, transport=transport, on_bytes=on_bytes
                )
            await land(entry, partial, directory, lease, superseded=superseded)

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


def _first(troubles: ExceptionGroup[Exception]) -> Exception:
    """One exception to tell: ours rather than a stranger's."""
    ours = troubles.subgroup(TenantError) or troubles
    first = ours.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first


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
