"""Seal the box and fetch everything that is to be kept. Each file is proved as it lands."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import Field

from gpu_tenant.artifacts.destination import claim_directory, require_its_own
from gpu_tenant.artifacts.download import Gathering
from gpu_tenant.artifacts.losses import vanished_names
from gpu_tenant.box.manifest import reseal, unread_bytes
from gpu_tenant.box.seal_request import as_refusal
from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.model import Lease, Manifest, SealedFile
from gpu_tenant.domain.record import Record
from gpu_tenant.files.artifact_directory import SUPERSEDED
from gpu_tenant.files.patterns import require_narrow, require_patterns
from gpu_tenant.ledger import Ledger
from gpu_tenant.transfer.bandwidth_share import Share
from gpu_tenant.transfer.download import Arrival


class Collected(Record):
    """What is here now of what the box holds."""

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
    only_here: tuple[str, ...] = Field(
        default=(), description="collected before, and no longer on the box"
    )
    stored: str | None = Field(default=None, description="what the lease's store holds, too")
    not_stored: str | None = Field(default=None, description="why that store does not hold it all")
    next: str


async def collect(
    session: Session,
    *,
    directory: Path,
    artifacts: Sequence[str],
    discard: Sequence[str],
    ledger: Ledger,
    share: Share,
    news: Literal["some", "unknown"],
    elsewhere: Sequence[Path],
    progress: Callable[[int, int], None],
) -> Collected:
    """Every file of a fresh seal is in `directory`, equal to the seal when it landed.

    `artifacts` and `discard` are what the owner said later about unclaimed files. From here on they are on record.
    What the kept directories `elsewhere` already hold is copied from there instead of being fetched. With
    `news="some"` channels are opened at once, because something is known to be coming. `progress` is called with
    the bytes that are here and the total. A file in the way of a newer version is moved to `.superseded/`, never
    overwritten.

    Raises:
        JobRunning: something on the box is still being written.
        DiskFull: there is no room here; what was fetched stays, and the next collect continues from it.
        BoxTrouble: a file changed or vanished while it was fetched.

    After any exception every file in `directory` is whole, and the box is as it was.
    """
    lease = session.lease
    before = ledger.seal(lease.id)
    directory = await claim_directory(directory, lease, ledger)
    require_patterns((*artifacts, *discard))
    require_narrow(discard)
    require_its_own(lease, artifacts)
    seal_now = partial(reseal, session, ledger=ledger, artifacts=artifacts, discard=discard)
    tally = _Tally(progress)
    with share.join(lease.id, lease.price_usd_h) as turn:
        async with Arrival(session.transport, turn, on_bytes=tally.came, news=news) as arrival:
            draft = await seal_now(hashes="recalled")
            _require_taken(draft, (*artifacts, *discard))
            # Recorded only now, because a pattern that the box refuses must not spoil every later
            # seal.
            ledger.claim(lease.id, artifacts=artifacts, discard=discard, at=ledger.now())
            gathering = Gathering(
                lease,
                directory,
                arrival=arrival,
                elsewhere=elsewhere,
                superseded=directory / SUPERSEDED / f"{ledger.now():%Y%m%dT%H%M%S.%f}",
            )
            seal = await _gather(
                gathering,
                draft,
                seal_now,
                tally=tally,
                lease=lease,
                ledger=ledger,
                directory=directory,
            )
    landed = gathering.landed
    size = sum(entry.size_bytes for entry in landed)
    came = timeline.Collected(seal=seal.digest, files=len(landed), bytes=size)
    ledger.note(lease.id, came, at=ledger.now())
    idle = _without_effect(discard, seal)
    told = _answer(lease, seal, directory, landed, ledger.declarations(lease.id)[1], idle)
    return told.model_copy(update={"only_here": vanished_names(seal, before)[:20]})


def _require_taken(draft: Manifest, patterns: Sequence[str]) -> None:
    """The box could match each of the `patterns`, and none of them discards a whole place.

    Raises:
        BadRequest: one of them is bad. Bad patterns from before only show in the seal, as problems.
    """
    for problem in draft.problems:
        if problem.why in ("bad_pattern", "wide_pattern") and problem.at in patterns:
            raise as_refusal(problem)


async def _gather(
    gathering: Gathering,
    draft: Manifest,
    seal_now: Callable[..., Coroutine[None, None, Manifest]],
    *,
    tally: "_Tally",
    lease: Lease,
    ledger: Ledger,
    directory: Path,
) -> Manifest:
    """The seal, which was made while the files of the draft were being fetched. Every file it names is here.

    Raises:
        BoxTrouble: a file changed twice.
    """
    way = await asyncio.to_thread(gathering.ways, draft.entries)
    gathering.require_room([*way.sure, *way.unsure])
    tally.begin(draft.entries, way.here, gathering.held_bytes(way.sure))
    ledger.keep_in(lease.id, directory)
    unread = unread_bytes(draft)
    sealing = asyncio.create_task(
        _seal_of(draft) if draft.digest else seal_now(unread_bytes=unread)
    )

    def seal_so_far() -> Manifest | None:
        return sealing.result() if sealing.done() else None

    try:
        # First what is surely wanted, while the box still seals. Then, by the seal, what is still
        # missing.
        await gathering.fetch(way.sure, seal_so_far)
        seal = await sealing
        ledger.file_seal(lease.id, seal, at=ledger.now())
        await gathering.fetch(await gathering.settle(seal.entries), seal_so_far)
        missing = await gathering.settle(seal.entries)
    finally:
        sealing.cancel()
        await asyncio.gather(sealing, return_exceptions=True)
        await asyncio.to_thread(gathering.save)
    if missing:
        raise gathering.trouble(missing[0])
    await asyncio.to_thread(gathering.clear)
    return seal


async def _seal_of(seal: Manifest) -> Manifest:
    """The draft itself, which is a complete seal already."""
    return seal


class _Tally:
    """How many of the bytes are here, out of the total."""

    def __init__(self, progress: Callable[[int, int], None]) -> None:
        self._total = self._here = 0
        self._progress = progress

    def begin(
        self, entries: Sequence[SealedFile], here: Sequence[SealedFile], held_bytes: int
    ) -> None:
        """Sets the total from `entries`. Those in `here`, and another `held_bytes`, have come already."""
        self._total = sum(entry.size_bytes for entry in entries)
        self.came(sum(entry.size_bytes for entry in here) + held_bytes)

    def came(self, size_bytes: int) -> None:
        """Another `size_bytes` are here."""
        self._here = min(self._total, self._here + size_bytes)
        self._progress(self._here, self._total)


def _without_effect(discard: Sequence[str], seal: Manifest) -> tuple[str, ...]:
    """Those of the new `discard` patterns that cover nothing: there is no such file, or an artifact keeps it."""
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
        next=str(Command("teardown", lease.id))
        if clean
        else f"for what is named above: {Command('collect', lease.id, artifact='PATTERN')} keeps it, "
        f"{Command('collect', lease.id, discard='PATTERN')} gives it up",
    )
