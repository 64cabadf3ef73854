"""Seals a box (lists and hashes its files), and fetches every file to be kept. Each is checked against the seal."""

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field

from gpu_tenant.artifacts.destination import claim_directory, require_its_own
from gpu_tenant.artifacts.download import Gathering
from gpu_tenant.artifacts.given_up import OnlyCopy, given_up_by
from gpu_tenant.artifacts.losses import vanished_names
from gpu_tenant.artifacts.unbegun_jobs import unbegun_jobs
from gpu_tenant.artifacts.unclaimed import NAMED, claim_words
from gpu_tenant.box.manifest import reseal, unread_bytes
from gpu_tenant.box.seal_request import as_refusal
from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.seal import Manifest, SealedFile
from gpu_tenant.domain.waiting import wait_for
from gpu_tenant.domain.wording import some
from gpu_tenant.files.artifact_directory import SUPERSEDED
from gpu_tenant.files.patterns import (
    literal_pattern,
    matches_kept_name,
    require_narrow,
    require_patterns,
    told_apart,
)
from gpu_tenant.ledger import Ledger
from gpu_tenant.transfer.bandwidth_share import CallLimits
from gpu_tenant.transfer.download import Arrival


class Collected(Record):
    """What a collect has brought from the box to this computer."""

    lease: str
    seal: str
    directory: str
    files: int
    size_bytes: int
    fetched_files: int
    fetched_bytes: int
    came_at: AwareDatetime | None = Field(
        default=None, description="if nothing new came now: when the last files came"
    )
    came_before: str | None = Field(
        default=None, description="the same in words, and what brought them"
    )
    unasked_files: int = Field(
        default=0, description="of these, what nobody declared: it came home all the same"
    )
    unasked_bytes: int = 0
    unasked: tuple[str, ...] = Field(default=(), description="the largest of them, by name")
    unclaimed_files: int
    unclaimed_bytes: int
    unclaimed_largest: tuple[str, ...]
    unclaimed_takes: str | None = Field(
        default=None, description="what it would take and cost to fetch them"
    )
    discarded_bytes: int
    discarded_by: tuple[str, ...]
    cannot_be_kept: tuple[str, ...]
    not_files: tuple[str, ...] = Field(
        default=(), description="pipes, and links that lead to nothing kept: they hold no bytes"
    )
    never_appeared: tuple[str, ...]
    work: str | None = Field(
        default=None,
        description="the verdict on the work so far, as the receipt will give it; None: no job ran, or "
        "there is too much to read it twice",
    )
    only_here: tuple[str, ...] = Field(
        default=(), description="collected before, and no longer on the box"
    )
    superseded: str | None = Field(
        default=None, description="where older versions of what came now lie"
    )
    stored: str | None = Field(
        default=None, description="how many files the lease's store holds as well"
    )
    not_stored: str | None = Field(default=None, description="why that store does not hold it all")
    next: str


async def collect(
    session: Session,
    *,
    directory: Path,
    artifacts: Sequence[str],
    discard: Sequence[str],
    ledger: Ledger,
    limits: CallLimits,
    news: Literal["some", "unknown"],
    elsewhere: Sequence[Path],
    gives_up: Callable[[Sequence[str], Sequence[OnlyCopy]], Sequence[str]],
    progress: Callable[[int, int], None],
    bring_bytes: int,
) -> Collected:
    """Seal the box, and fetch every file of the seal into `directory`. A file lands there only if it equals the seal.

    `artifacts` and `discard` are patterns for files that nobody has claimed yet: the first are kept from now
    on, the second are given up. Both are recorded. Of the other files, the smallest are fetched, too, up to
    `bring_bytes` in all, and more if more of them was fetched before. A file that is already in one of the kept directories
    `elsewhere` is copied from there instead of being fetched. With `news="some"`, the channels are opened at
    once, because it is known that there is something to fetch. `gives_up` gets the new discards and the files
    that would be lost by them, and returns the patterns to record, or raises. `progress` is called with the number of bytes
    that are here, and the total. A file that a newer version replaces is moved to `.superseded/`, and is never
    overwritten.

    Raises:
        JobRunning: something on the box is still being written.
        DiskFull: there is no room on this computer; what was fetched stays, and the next collect continues
            from it.
        BoxTrouble: a file changed or vanished while it was fetched.

        After any exception, every file in `directory` is whole, and nothing on the box has changed.
    """
    lease = session.lease
    before = ledger.seal(lease.id)
    directory = await claim_directory(directory, lease, ledger)
    artifacts, discard = told_apart(artifacts, discard)
    require_patterns((*artifacts, *discard))
    require_narrow(discard)
    require_its_own(session, artifacts)
    brought = [e.size_bytes for e in before.entries if e.role == "unasked"] if before else []
    seal_now = partial(
        reseal,
        session,
        ledger=ledger,
        artifacts=artifacts,
        discard=discard,
        bring_bytes=max(bring_bytes, sum(brought)),
    )
    tally = _Tally(progress)
    began_at = ledger.now()
    with limits.join(lease.id, lease.price_usd_h) as turn:
        async with Arrival(session.transport, turn, on_bytes=tally.came, news=news) as arrival:
            wait_for("the box lists its files", usd_h=lease.price_usd_h)
            draft = await seal_now(hashes="recalled")
            _require_taken(draft, (*artifacts, *discard))
            known = ledger.declarations(lease.id)
            _require_matched(draft, [p for p in artifacts if p not in known[0]], lease)
            _require_given_up(draft, [p for p in discard if p not in known[1]], known[0], lease)
            only = await given_up_by(session, discard, ledger=ledger, artifacts=artifacts)
            if only and (named := tuple(gives_up(discard, only))) != discard:
                discard = named
                seal_now = partial(seal_now, discard=discard)
                draft = await seal_now(hashes="recalled")
            # Record the patterns only now: one that the box refuses would spoil every later seal.
            ledger.claim(lease.id, artifacts=artifacts, discard=discard, at=ledger.now())
            aside = directory / SUPERSEDED / f"{ledger.now():%Y%m%dT%H%M%S.%f}"
            gathering = Gathering(
                lease,
                directory,
                arrival=arrival,
                elsewhere=elsewhere,
                superseded=aside,
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
    took_s = (ledger.now() - began_at).total_seconds()
    earlier = [
        (at, event)
        for at, event in ledger.events(lease.id, timeline.Snapped, timeline.Collected)
        if isinstance(event, timeline.Snapped | timeline.Collected) and event.files
    ]
    came = timeline.Collected(seal=seal.digest, files=len(landed), bytes=size, took_s=took_s)
    ledger.note(lease.id, came, at=ledger.now())
    given_up = {*ledger.declarations(lease.id)[1], *unbegun_jobs(seal, lease.id, ledger).patterns}
    told = answer_of(lease, seal, directory, landed, given_up)
    newest = earlier[-1] if earlier and seal.entries and not landed else None
    return told.model_copy(
        update={
            "only_here": vanished_names(seal, before)[:20],
            "came_at": newest and newest[0],
            "came_before": newest and came_before_words(*newest, files=len(seal.entries)),
            "superseded": await asyncio.to_thread(superseded_words, aside),
        }
    )


def came_before_words(
    at: datetime, brought: timeline.Snapped | timeline.Collected, *, files: int
) -> str:
    """Say that every file of the seal was here before this collect, since when, and what brought the last of them."""
    by = (
        "brought by a copy that was made while a job ran"
        if isinstance(brought, timeline.Snapped)
        else "brought by an earlier collect, yours or that of a watch"
    )
    return f"nothing had to be fetched: all that is kept ({some(files, 'file')}) is here, the last since {at:%Y-%m-%d %H:%M} UTC, {by}"


def superseded_words(aside: Path) -> str | None:
    """Say how many older files this collect has replaced, and where they are now. None if it has replaced none."""
    count = sum(len(files) for _, _, files in os.walk(aside))
    if not count:
        return None
    return f"older versions of what came are kept in {aside} ({some(count, 'file')})"


def _require_taken(draft: Manifest, patterns: Sequence[str]) -> None:
    """Check that the box accepts each of the `patterns`, and that none of them discards too much.

    Raises:
        BadRequest: the box refuses one of them. Patterns from earlier calls are not checked here; the seal
            lists them among its problems.
    """
    for problem in draft.problems:
        if problem.why in ("bad_pattern", "wide_pattern") and problem.at in patterns:
            raise as_refusal(problem)


def _require_matched(draft: Manifest, artifacts: Sequence[str], lease: Lease) -> None:
    """Check that each of the new `artifacts` matches something on the box.

    Raises:
        BadRequest: one matches nothing. It is not recorded: otherwise it would count as a missing artifact at teardown.
    """
    for pattern in artifacts:
        if pattern not in draft.unmatched:
            continue
        like = [at for at in _unclaimed_patterns(draft, lease) if pattern.strip("./*") in at]
        remedy = (
            f"keep what nobody has claimed: {Command('collect', lease.id, artifact=literal_pattern(like[0]))}"
            if like
            else f"{Command('collect', lease.id)} shows what nobody has claimed, with the line that keeps it"
        )
        raise BadRequest(
            f"nothing on the box matches {pattern!r}; nothing was recorded", remedy=remedy
        )


def _require_given_up(
    draft: Manifest, discard: Sequence[str], kept: Sequence[str], lease: Lease
) -> None:
    """Check that each of the new `discard` patterns gives up a file, or an artifact that never appeared.

    Raises:
        BadRequest: one gives up nothing: no file matches it, or an artifact pattern keeps the files that it
            matches.
    """
    effective = {tally.pattern for tally in draft.discarded.patterns} | {*draft.unmatched}
    for pattern in discard:
        if pattern in effective:
            continue
        names = [entry.name for entry in draft.entries if matches_kept_name(pattern, entry.name)]
        by = [artifact for artifact in kept if names and matches_kept_name(artifact, names[0])]
        if not by:
            raise BadRequest(
                f"nothing on the box that could be lost matches {pattern!r}; nothing was recorded",
                remedy=f"{Command('collect', lease.id)} shows what nobody has claimed, with the line that gives it up",
            )
        narrow = literal_pattern(names[0].removeprefix("work/"))
        home, end = Command("collect", lease.id), Command("teardown", lease.id)
        raise BadRequest(
            f"the pattern {by[0]!r} keeps {names[0].removeprefix('work/')}, so {pattern!r} cannot give it up; nothing was fetched",
            remedy=f"it is declared, and nothing has to be given up: {home} brings it, then {end}"
            if narrow in (pattern, *kept)
            else f"name it more narrowly than {by[0]!r} does: {Command('collect', lease.id, discard=narrow)}",
        )


def _unclaimed_patterns(seal: Manifest, lease: Lease) -> list[str]:
    """The largest files that nobody has claimed, each written as a pattern that matches it."""
    return [lease.from_work(heap.at) for heap in seal.unclaimed.largest]


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
    """Fetch the files of the draft while the box makes the seal, then what the seal adds. Returns the seal.

    Raises:
        BoxTrouble: the box could not send a file, or the file changed again while it was fetched.
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
        # While the box still makes the seal, fetch the files that are wanted in any case. Then
        # fetch what the seal lists and is still missing here.
        await gathering.fetch(way.sure, seal_so_far)
        wait_for("the box hashes its files", usd_h=lease.price_usd_h)
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
    """Return the draft, which is already a complete seal."""
    return seal


class _Tally:
    """Counts how many bytes of the total are here."""

    def __init__(self, progress: Callable[[int, int], None]) -> None:
        self._total = self._here = 0
        self._progress = progress

    def begin(
        self, entries: Sequence[SealedFile], here: Sequence[SealedFile], held_bytes: int
    ) -> None:
        """Set the total from `entries`. The files in `here` and another `held_bytes` bytes count as here already."""
        self._total = sum(entry.size_bytes for entry in entries)
        self.came(sum(entry.size_bytes for entry in here) + held_bytes)

    def came(self, size_bytes: int) -> None:
        """Count another `size_bytes` as here."""
        self._here = min(self._total, self._here + size_bytes)
        self._progress(self._here, self._total)


def answer_of(
    lease: Lease,
    seal: Manifest,
    directory: Path | str,
    fetched: Sequence[SealedFile],
    given_up: Collection[str],
) -> Collected:
    """Return the answer of a collect that brought `fetched`. Patterns in `given_up` do not count as missing."""
    cannot, not_files = (
        tuple(f"{lease.from_work(p.at)}: {p.why} ({p.detail})" for p in problems)
        for problems in (seal.unsealed, seal.not_files)
    )
    clean = not (cannot or seal.unclaimed.count)
    unasked = sorted(
        (entry for entry in seal.entries if entry.role == "unasked"), key=lambda e: -e.size_bytes
    )
    return Collected(
        lease=lease.id,
        seal=seal.digest,
        directory=str(directory),
        files=len(seal.entries),
        size_bytes=sum(entry.size_bytes for entry in seal.entries),
        fetched_files=len(fetched),
        fetched_bytes=sum(entry.size_bytes for entry in fetched),
        unasked_files=len(unasked),
        unasked_bytes=sum(entry.size_bytes for entry in unasked),
        unasked=tuple(entry.name.removeprefix("work/") for entry in unasked[:NAMED]),
        unclaimed_files=seal.unclaimed.count,
        unclaimed_bytes=seal.unclaimed.size_bytes,
        unclaimed_largest=tuple(lease.from_work(x.at) for x in seal.unclaimed.largest[:NAMED]),
        discarded_bytes=seal.discarded.size_bytes,
        discarded_by=tuple(p.pattern for p in seal.discarded.patterns),
        cannot_be_kept=cannot,
        not_files=not_files,
        never_appeared=tuple(p for p in seal.unmatched if p not in given_up),
        next=str(Command("teardown", lease.id)) if clean else _keep_or_lose(lease, seal),
    )


def _keep_or_lose(lease: Lease, seal: Manifest) -> str:
    """Return the commands that settle what prevents a teardown: by keeping the files, or by giving them up."""
    if seal.unclaimed.count:
        return claim_words(lease, seal.unclaimed)
    return f"for what is named above: {Command('collect', lease.id, discard='PATTERN')} gives it up"
