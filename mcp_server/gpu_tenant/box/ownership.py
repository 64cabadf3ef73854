"""Finds out whether a box belongs to the lease, and whether anybody has used the box.

A file on the box, the mark, says to which lease the box belongs. The files, jobs and logins on the box show whether it
was used.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from gpu_tenant.box.caretaker import QUIET, Caretaker, script_hashes
from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import AnotherBox, BoxTaken, BoxUnreachable
from gpu_tenant.domain.model import Lease, MountedVolume, Profile, WorkPlace
from gpu_tenant.domain.survival import (
    HOME,
    accounted_paths,
    mounted_volumes,
    possible_places,
    stop_keeps,
)
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.wording import some
from gpu_tenant.files.skill_files import script
from gpu_tenant.ledger import Ledger

LAPSES_S = 72 * 3600
"""If a mark is not removed, it keeps other leases off the box for this long after the deadline of its lease."""

_WITHIN_S = 600
_BEFORE_IT_WAS_MADE = timedelta(hours=1)
"""Files count if they were written up to this long before the box was made: the clocks of provider and box differ."""
_PROMPT = timedelta(hours=1)
"""A first contact is prompt if it comes within this time after the box was requested.

Before a prompt first contact, nobody else was on the box.
"""
_USES = {
    each.kind
    for each in (timeline.Pushed, timeline.Launched, timeline.SettingUp, timeline.Preparing)
}


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Other(_Reply):
    """Another lease whose mark is on the box."""

    lease: str
    deployment: str = ""
    until: float = 0

    @property
    def words(self) -> str:
        """Which lease it is, to which installation of gpu-tenant it belongs, and until when its mark is valid."""
        until = datetime.fromtimestamp(min(max(self.until, 0) + LAPSES_S, 4e9), UTC)
        return f"{plain(self.lease)[:80]} of the gpu-tenant {plain(self.deployment)[:40]} (until {until:%Y-%m-%d %H:%M} UTC)"


class OccupancyReport(_Reply):
    """The traces of use on a box since it first let us in, as the box itself reports them."""

    files: int = 0
    bytes: int = 0
    largest: tuple[str, ...] = ()
    unreadable: int = 0
    leases: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    at_work: tuple[str, ...] = ()


class Marked(_Reply):
    """The box's answer about the lease's mark: for example, that the mark is missing, or was put there now."""

    state: Literal["put", "ours", "copied", "lacks", "other", "taken"]
    nonce: str = ""
    identity: str = ""
    since_ns: int = 0
    others: tuple[Other, ...] = ()
    look: OccupancyReport | None = None


@dataclass(frozen=True, slots=True)
class NeverIn:
    """The box has never let us in, and does not now. So nobody has ever used it with our keys."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """The box has let us in before, but cannot be examined now."""

    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class StoppedUnused:
    """The box is stopped. A look for its permit showed no use, and its provider says that nobody started it since."""


Seen = NeverIn | Unseen | Marked | StoppedUnused
"""What the box shows about whether it was used."""


def use(seen: Seen) -> str | None:
    """Say why the box counts as used. None if it was never used."""
    match seen:
        case NeverIn() | StoppedUnused():
            return None
        case Unseen():
            return seen.why
        case Marked():
            if seen.state == "copied":
                return "another copy of this ledger has used it"
            if seen.look is None:
                return "nobody has looked at it"
            return _what_was_done(seen.look, seen.look.leases, seen.others)


def _what_was_done(
    look: OccupancyReport, leases: Sequence[str], others: Sequence[Other]
) -> str | None:
    if others:
        return f"another lease is on it: {others[0].words}"
    if look.files:
        named = ", ".join(plain(name) for name in look.largest[:3])
        return f"files were written on it ({look.files}, {some(look.bytes, 'byte')}): {named}"
    if look.jobs:
        return (
            f"it holds jobs that this ledger never launched: {', '.join(map(plain, look.jobs[:3]))}"
        )
    if look.at_work or look.people:
        return f"it is being used: {', '.join(map(plain, (*look.at_work, *look.people)[:3]))}"
    if leases:
        return f"the directories of other leases are on it: {', '.join(map(plain, leases[:3]))}"
    if look.unreadable:
        return f"it has {some(look.unreadable, 'place')} that we may not look into"
    return None


def was_let_in(events: Lines) -> bool:
    """Whether the lease's timeline shows that the box has ever let us in."""
    # Check only the kind of each event. It is known even if the rest of the event cannot be read.
    return any(line.kind in (timeline.Ready.kind, timeline.Marked.kind) for line in events)


def is_another_s(lease: Lease) -> bool:
    """Whether the lease's box carries the mark of another lease at its provider.

    Then the box is a twin, an accidental second box of that lease. Nobody waited for it to become ready.
    """
    return lease.mark is not None and lease.mark.rpartition(":")[2] != lease.id


def was_rented_empty(lease: Lease, profile: Profile) -> bool:
    """Whether the box was created empty for this lease. If so, all files on it were written under the lease."""
    is_whole = profile.destroy == "deletes" and profile.kind != "scheduler"
    return is_whole and not lease.goes_by_address and not lease.was_taken_over


def since_ns(session: Session, ledger: Ledger) -> int | None:
    """Return the time from which on written files count, on a box that was rented empty. It is by the box's clock.

    None if that time is unknown, or if the box was not rented empty.
    """
    if not was_rented_empty(session.lease, session.profile):
        return None
    said = [
        event.since_ns
        for _, event in ledger.events(session.lease.id)
        if isinstance(event, timeline.Marked)
    ]
    found = [ns for ns in said if isinstance(ns, int) and ns > 0]
    return found[-1] if found else None


class _Place(_Reply):
    """Which of the platform's work directories the box really has, where it is, and which volumes are mounted."""

    path: str = ""
    at: str = ""
    why: str = ""
    volumes: dict[str, str] = {}


def loses_its_mark(profile: Profile, lease: Lease) -> bool:
    """Whether a stop empties the disk that has the lease's mark."""
    return profile.park == "wipes" and stop_keeps(profile, lease) == "nothing"


async def settle_place(session: Session, *, ledger: Ledger) -> Lease:
    """Decide where on the box the lease's directory is, and return the lease with this place.

    The box is asked which of its platform's work directories it really has. The place is recorded once, and never
    changes. Call this before anything of ours is put on the box.

    Raises:
        CaretakerFailed: the box has no Python.
        BoxUnreachable: a volume that was ordered is not mounted (yet).
        BoxTrouble: the box cannot be asked.
    """
    lease, places = session.lease, possible_places(session.profile, session.lease)
    ordered = lease.terms.order.volumes
    if lease.place is not None or not (places or ordered):
        return lease
    found = await _where(session, places, ledger=ledger)
    volumes = _as_ordered(lease, found, is_rehearsed=ledger.is_rehearsed)
    if missing := ordered.keys() - {volume.name for volume in volumes}:
        name = min(missing)
        raise BoxUnreachable(
            f"the box of {lease.id} answers, and its volume {name} is not mounted at {ordered[name].path} (yet)",
            remedy="the same call checks again; a box whose volume never appears is given back",
        )
    # In a rehearsal, another directory may stand for the place. Whether this is a rehearsal is never asked of the box.
    if found.path in places and found.at and (ledger.is_rehearsed or found.at == found.path):
        place = WorkPlace(path=found.path, at=plain(found.at), volumes=volumes)
    else:
        why = plain(found.why)[:300] or "the box does not say why"
        place = WorkPlace(path=HOME, why=why if places else None, volumes=volumes)
    return ledger.note_place(lease.id, place, at=ledger.now())


async def unmounted_volumes(session: Session, *, ledger: Ledger) -> tuple[MountedVolume, ...]:
    """Return the lease's volumes that were mounted at the first contact, and are not mounted now.

    Raises:
        BoxTrouble: the box cannot be asked.
    """
    known = mounted_volumes(session.lease)
    if not known:
        return ()
    found = await _where(session, (), ledger=ledger)
    now = {*_as_ordered(session.lease, found, is_rehearsed=ledger.is_rehearsed)}
    return tuple(volume for volume in known if volume not in now)


async def _where(session: Session, places: Sequence[str], *, ledger: Ledger) -> _Place:
    lease = session.lease
    asked: dict[str, JsonValue] = {
        "places": [*places],
        "volumes": [mount.path for mount in lease.terms.order.volumes.values()],
        "rehearsed": ledger.is_rehearsed,
    }
    ask = Caretaker(lease, session.transport, script("occupancy.py")).ask_ours
    return await ask("where", asked, _Place, timeout_s=60)


def _as_ordered(lease: Lease, found: _Place, *, is_rehearsed: bool) -> tuple[MountedVolume, ...]:
    """Return the ordered volumes that the box shows. In a rehearsal, another directory may stand for a volume."""
    return tuple(
        MountedVolume(name=name, path=mount.path, at=plain(found.volumes[mount.path]))
        for name, mount in lease.terms.order.volumes.items()
        if mount.path in found.volumes and (is_rehearsed or found.volumes[mount.path] == mount.path)
    )


def home_was_emptied(session: Session, ledger: Ledger) -> bool:
    """Whether a stop has emptied the box's home directory since the box was rented."""
    if session.profile.park != "wipes":
        return False
    return any(line.kind == timeline.Resumed.kind for line in ledger.events(session.lease.id))


class Occupancy:
    """Puts and checks the mark of one lease on its box, and finds out what was done on the box."""

    def __init__(
        self,
        session: Session,
        *,
        ledger: Ledger,
        known_hosts: Path,
        since: datetime | None = None,
    ) -> None:
        """`since` is when the box was created, according to its provider. None means unknown."""
        self._made_at = since
        self._session = session
        self._lease = session.lease
        self._profile = session.profile
        self._ledger = ledger
        self._known_hosts = known_hosts
        self._ask = Caretaker(session.lease, session.transport, script("occupancy.py")).ask_ours

    async def stand(self) -> Marked:
        """Put the lease's mark on the box at the first contact, and check it at every later one.

        Raises:
            BoxTaken: the box belongs to another lease, and never belonged to this one.
            AnotherBox: the box is not the one on which this lease's mark was put.
            BoxTrouble: the box cannot be asked.
        """
        return await self._look_at_marked(None, "others")

    async def look(self, of: Literal["everything", "others"]) -> Marked:
        """Check the mark like `stand`, and also return what anybody has done on the box since it let us in.

        With "others", ask only which other leases are on the box, and what runs there. With "everything", if there is
        no trace of use, this is recorded. If the box has ever let us in, it is given back as unused only after such a
        record.
        """
        scheduled = self._profile.kind == "scheduler"
        scope = "none" if scheduled else "home" if self._profile.kind == "own" else "door"
        look: dict[str, JsonValue] = {
            # An allocation's node has other people's files, and its home directory outlives the allocation.
            "roots": [*accounted_paths(self._profile, self._lease)]
            if of == "everything" and not scheduled
            else [],
            "quiet": [*QUIET],
            "scope": scope,
            "since_ns": since_ns(self._session, self._ledger),
            "ours": [*{*self._ledger.scripts(), *script_hashes(script("occupancy.py").parent)}],
        }
        said = await self._look_at_marked(look, of)
        if of == "everything" and use(said) is None:
            self._ledger.note(self._lease.id, timeline.Looked(), at=self._ledger.now())
        return said

    async def leave(self) -> None:
        """Write on the box that the lease has left it."""
        await self._ask("leave", {}, _Reply, timeout_s=30)

    def _times(self, of: Literal["everything", "others"]) -> dict[str, JsonValue] | None:
        """Return the time from which on files on the box count, and the present time, both by this computer's clock.

        None if the box's own clock decides, which it does if the first contact was as soon as the box existed.
        If the first contact was later, others may have worked on the box before. Then files count from the time when
        the provider created the box.
        """
        lease, now = self._lease, self._ledger.now()
        if self._marks():
            return None  # The time was recorded at the first contact.
        at, margin = self._made_at or lease.active_at, _BEFORE_IT_WAS_MADE
        if not is_another_s(lease):
            if of == "others" and (lease.ready_at or now - (at or now) <= _PROMPT):
                return None
            if lease.ready_at is not None:
                # An earlier version of this program waited for this box, and put no mark on it.
                at, margin = lease.ready_at, timedelta(minutes=5)
        made_ns = 0 if at is None else int((at - margin).timestamp() * 1e9)
        return {"made_ns": made_ns, "now_ns": int(now.timestamp() * 1e9)}

    def _marks(self) -> list[timeline.Marked]:
        events = self._ledger.events(self._lease.id)
        return [event for _, event in events if isinstance(event, timeline.Marked)]

    async def _look_at_marked(
        self, look: dict[str, JsonValue] | None, of: Literal["everything", "others"]
    ) -> Marked:
        lease, ledger = self._lease, self._ledger
        events = ledger.events(lease.id)
        resumed = [n for n, (_, x) in enumerate(events) if isinstance(x, timeline.Resumed)]
        marks = [event for _, event in events if isinstance(event, timeline.Marked)]
        if resumed and loses_its_mark(self._profile, lease):
            # The stop emptied the disk with the mark, so only marks since then count.
            marks = [
                event
                for _, event in events[resumed[-1] + 1 :]
                if isinstance(event, timeline.Marked)
            ]
        nonces = [event.nonce for _, event in events if isinstance(event, timeline.Marking)]
        nonce = nonces[-1] if nonces else secrets.token_hex(16)
        if not nonces:
            # Record the mark before it is put on the box. So a mark that this ledger does not know
            # is from a copy of this ledger.
            ledger.note(lease.id, timeline.Marking(nonce=nonce), at=self._ledger.now())
        first = not marks and lease.ready_at is None
        lapsed = self._ledger.now() - timedelta(seconds=LAPSES_S)
        request: dict[str, JsonValue] = {
            "lease": lease.id,
            "deployment": ledger.deployment,
            "nonce": nonce,
            "known": bool(marks),
            "first": first and self._profile.kind != "scheduler",
            "directory": not marks and any(line.kind in _USES for line in events),
            "until": lease.terms.deadline_at.timestamp(),
            "lapse_s": LAPSES_S,
            "roots": [*accounted_paths(self._profile, self._lease)]
            if was_rented_empty(lease, self._profile)
            else [],
            "ended": [*ledger.ended_early(deadline_since=lapsed)],
            "over": [x.over for _, x in events if isinstance(x, timeline.TakesOver)],
            # The directories of other leases may be in any of these places.
            "beside": ["~/gpu-tenant", *(f"{at}/gpu-tenant" for at in self._profile.work_places)],
        }
        made = self._times(of)
        if made is not None:
            request["made"] = made
        if look is not None:
            request["look"] = look
        said = await self._ask("mark", request, Marked, timeout_s=_WITHIN_S)
        if self._profile.kind == "scheduler":
            # All allocations of one user share a home directory. So other leases with a mark there
            # are on other nodes.
            alone = said.look and said.look.model_copy(update={"leases": ()})
            said = said.model_copy(update={"others": (), "look": alone})
        match said.state:
            case "taken":
                raise _box_taken(lease, said.others)
            case "lacks" | "other":
                raise self._another("it does not carry the mark that this lease put on its box")
            case "copied":
                self._note_copy(said)
            case "put" | "ours":
                self._note_mark(said, marks, nonce, first="yes" if first else "no")
        return said

    def _note_mark(
        self, said: Marked, marks: Sequence[timeline.Marked], nonce: str, *, first: str
    ) -> None:
        """Record the mark, the host key of its box, and the identity (inode) of the mark's file.

        Another box could have a copy of the mark. The host key and the identity show whether this is the same box. One
        of the two may change, because a container may come back with new keys, and a restored disk with new inodes.
        If both differ, this is another box.

        Raises:
            AnotherBox: both differ.
        """
        key = _host_keys(self._known_hosts)
        last = marks[-1] if marks else None
        moved = last is not None and last.identity != said.identity
        rekeyed = last is not None and bool(key) and bool(last.key) and last.key != key
        if moved and rekeyed:
            raise self._another(
                "it carries a copy of this lease's mark, and shows another host key than its box"
            )
        if last is None or moved or rekeyed:
            told = timeline.Marked(
                nonce=nonce,
                box=self._lease.box_id,
                since_ns=said.since_ns,
                identity=said.identity,
                key=key,
                first=first == "yes",
            )
            if last is not None:
                has_since = "since_ns" in last.model_fields_set
                since = last.since_ns if has_since else said.since_ns
                told = told.model_copy(update={"since_ns": since, "first": last.first})
            self._ledger.note(self._lease.id, told, at=self._ledger.now())

    def _note_copy(self, said: Marked) -> None:
        """Record that the box was used from the beginning, because another copy of this ledger made the first contact.

        The nonce in that copy's mark is recorded as ours.
        """
        lease, now = self._lease, self._ledger.now()
        self._ledger.touch(lease.id, at=lease.created_at)
        self._ledger.note(lease.id, timeline.Marking(nonce=said.nonce), at=now)
        self._note_mark(said, [], said.nonce, first="no")

    def _another(self, why: str) -> AnotherBox:
        lease = self._lease
        return AnotherBox(
            f"the box that answers is not the one of {lease.id}: {why}",
            remedy="nothing was done to either box: look for the lease's box in the provider's console"
            + (f", then {Command('resume', lease.id, at='...')}" if lease.goes_by_address else "")
            + f"; the lease's owner may end the lease nevertheless with {Command('waive', lease.id)}",
        )


def _box_taken(lease: Lease, others: Sequence[Other]) -> BoxTaken:
    other = others[0] if others else Other(lease="another lease")
    return BoxTaken(
        f"another lease is on that box: {other.words}",
        remedy=f"use that lease, or first end it where its ledger is: {Command('teardown', plain(other.lease)[:80])}; "
        "if no ledger knows that lease any more, a person at a terminal takes its place: "
        f"{Command('adopt', '...', take_over=plain(other.lease)[:80])}",
    )


def _host_keys(known_hosts: Path) -> str:
    """Return the pinned host keys, without their addresses. Empty if none is pinned."""
    try:
        lines = known_hosts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return " ".join(sorted({" ".join(line.split()[1:3]) for line in lines if line.strip()}))


def refusals(seen: Marked, jobs: Collection[str]) -> list[tuple[str, str]]:
    """List what belongs to somebody else on a box that would be destroyed, each with what to do about it."""
    found = [
        (
            f"the files of {other.words}, a lease on the same box",
            f"first end that lease where its ledger is: {Command('teardown', plain(other.lease)[:80])}",
        )
        for other in seen.others
    ]
    look = seen.look or OccupancyReport()
    for words in look.at_work:
        # If jobs were launched on the box, the seal reports what still runs.
        if not jobs or words.endswith("a job of another lease"):
            found.append(
                (
                    f"the work of {plain(words)}, which this ledger did not start",
                    "wait for it to end, or end it on the box; then run the same command again",
                )
            )
    return found
