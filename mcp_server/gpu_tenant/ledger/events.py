"""The timeline of each lease, with one event in each line, and every look at a provider's list."""

import json
from collections import OrderedDict
from datetime import datetime
from itertools import groupby
from typing import Literal, NamedTuple, overload

from gpu_tenant.domain.alarm import END_NEWS
from gpu_tenant.domain.model import LeaseId, LeaseState
from gpu_tenant.domain.story import WholeTimeline
from gpu_tenant.domain.timeline import (
    Attested,
    Event,
    Line,
    Parked,
    Ready,
    Taken,
    event_of,
    kind_of,
)
from gpu_tenant.ledger.database import Connection, moment
from gpu_tenant.ledger.holds import Holds

_OUTLIVES = (END_NEWS, "recovery")
"""The keys of the alarms about the end of a lease and its recovery. They stay open when the lease ends."""


_KNOWN_AT_MOST = 64
"""The timelines of at most so many leases are kept in memory."""


def _line(at: str, kind: str, detail: str) -> Line:
    return Line(moment(at), event_of(kind, json.loads(detail)))


def end_alarms(db: Connection, lease_id: LeaseId, *, at: datetime) -> None:
    """End the alarms about the box of a lease that has just ended, because they are no longer true."""
    db.execute(
        f"UPDATE alarms SET ended_at=? WHERE lease_id=? AND ended_at IS NULL AND key NOT IN {_OUTLIVES}",  # noqa: S608 - constants
        (at.isoformat(), lease_id),
    )


class Ran(NamedTuple):
    """The times at which an interruptible box ran."""

    state: LeaseState
    ended_at: datetime | None
    turns: tuple[tuple[datetime, str, str | None], ...]
    """Each time the box became ready, was parked or was taken: the time, the kind of event, and the fate. Oldest first.
    """


class _Known:
    """The timeline of one lease as it was last read from the file, and what this process has written since."""

    def __init__(self) -> None:
        self.changes = -1
        """How many changes of other connections the file had then."""
        self.upto = 0
        """The number of its newest line that was read from the file."""
        self._read: tuple[Line, ...] = ()
        self.now = WholeTimeline()

    def take(self, changes: int, newer: list[tuple[int, Line]]) -> None:
        """Take in what the file has after the line `upto`. What this process wrote is among it."""
        self.changes = changes
        if not newer:
            return
        self.upto = newer[-1][0]
        self._read = (*self._read, *(line for _, line in newer))
        if len(self._read) != len(self.now):
            self.now = WholeTimeline(self._read)

    def add(self, line: Line) -> None:
        """Take in a line that this process has just written."""
        self.now = WholeTimeline((*self.now, line))


class Timeline(Holds):
    """The append-only part of the ledger."""

    _known: OrderedDict[str, _Known] | None = None
    """The timelines that this process has read, the one that was used last at the end."""

    def note(self, lease_id: LeaseId, event: Event, *, at: datetime) -> None:
        """Add a line to the lease's timeline."""
        with self._transaction() as db:
            self._note(db, lease_id, event, at)

    def _note(self, db: Connection, lease_id: str, event: Event, at: datetime) -> None:
        kind, detail, when = kind_of(event), json.dumps(event.as_stored()), at.isoformat()
        db.execute(
            "INSERT INTO events(lease_id, kind, detail, at) VALUES (?,?,?,?)",
            (lease_id, kind, detail, when),
        )
        known = self._known and self._known.get(lease_id)
        if known:
            known.add(_line(when, kind, detail))

    def _undone(self) -> None:
        """The lines of this transaction were not written after all."""
        self._known = None

    @overload
    def events(self, lease_id: str) -> WholeTimeline: ...
    @overload
    def events(self, lease_id: str, *kinds: type[Event]) -> list[Line]: ...

    def events(self, lease_id: str, *kinds: type[Event]) -> WholeTimeline | list[Line]:
        """Return the lease's timeline, oldest first. If kinds are named, only the lines of these kinds.

        The lines are read from the file once. After that, they are read only if another connection has written to the
        file since, and then only the newer ones.
        """
        known = self._known = OrderedDict() if self._known is None else self._known
        changes = self._changes()
        had = known.pop(lease_id, None) or _Known()
        if had.changes != changes:
            had.take(
                changes,
                self._read(
                    lambda row: (int(row["seq"]), _line(row["at"], row["kind"], row["detail"])),
                    "SELECT seq, at, kind, detail FROM events WHERE lease_id=? AND seq>? ORDER BY seq",
                    lease_id,
                    had.upto,
                ),
            )
        known[lease_id] = had
        if len(known) > _KNOWN_AT_MOST:
            known.popitem(last=False)
        if not kinds:
            return had.now
        named = {each.kind for each in kinds}
        return [line for line in had.now if line.kind in named]

    def lines_by_lease(self, *kinds: type[Event]) -> dict[LeaseId, list[Line]]:
        """Return the lines of these kinds in the timelines of all leases, oldest first."""
        found: dict[LeaseId, list[Line]] = {}
        for lease_id, line in self._read(
            lambda row: (LeaseId(row["lease_id"]), _line(row["at"], row["kind"], row["detail"])),
            "SELECT lease_id, at, kind, detail FROM events"
            " WHERE kind IN (SELECT value FROM json_each(?)) ORDER BY seq",
            json.dumps([each.kind for each in kinds]),
        ):
            found.setdefault(lease_id, []).append(line)
        return found

    def interruptible(self, provider: str, *, most: int) -> list[Ran]:
        """Return when a provider's newest `most` interruptible boxes ran. Boxes that never let us in are left out."""
        rows = self._read(
            lambda row: (
                (row["id"], LeaseState(row["state"]), row["ended_at"] and moment(row["ended_at"])),
                (moment(row["at"]), row["kind"], row["fate"]),
            ),
            "SELECT l.*, e.kind, e.at, json_extract(e.detail, '$.fate') AS fate FROM"
            " (SELECT id, state, ended_at FROM leases WHERE provider=? AND ready_at IS NOT NULL"
            " AND json_extract(quote, '$.offer.interruptible') ORDER BY created_at DESC, id LIMIT ?) l"
            " JOIN events e ON e.lease_id=l.id AND e.kind IN (?,?,?) ORDER BY l.id, e.seq",
            provider,
            most,
            Ready.kind,
            Parked.kind,
            Taken.kind,
        )
        return [
            Ran(state, ended_at, tuple(turn for _, turn in lines))
            for (_, state, ended_at), lines in groupby(rows, key=lambda row: row[0])
        ]

    def newest_event(self) -> int:
        """Return the number of the newest line in the ledger. It grows with every line that any process writes."""
        return self._read(
            lambda row: int(row["newest"]), "SELECT coalesce(max(seq), 0) AS newest FROM events"
        )[0]

    def kinds_since(self, since: int) -> dict[LeaseId, set[str]]:
        """Return which kinds of lines each lease's timeline got after the line `since` of the ledger."""
        found: dict[LeaseId, set[str]] = {}
        for lease_id, kind in self._read(
            lambda row: (LeaseId(row["lease_id"]), str(row["kind"])),
            "SELECT lease_id, kind FROM events WHERE seq>? AND lease_id IS NOT NULL",
            since,
        ):
            found.setdefault(lease_id, set()).add(kind)
        return found

    def is_attested(self, lease_id: str) -> bool:
        """Whether a person has said that the box is gone."""
        return any(isinstance(event, Attested) for _, event in self.events(lease_id, Attested))

    def saw(self, lease_id: LeaseId, *, listed: Literal["listed", "omitted"], at: datetime) -> None:
        """Record whether the provider's list showed the box at one look."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO sightings(lease_id, listed, at) VALUES (?,?,?)",
                (lease_id, listed, at.isoformat()),
            )

    def absences(self, lease_id: str) -> list[datetime]:
        """Return when the provider's list has omitted the box since it last showed the box, oldest first."""
        return self._read(
            lambda row: moment(row["at"]),
            "SELECT at FROM sightings WHERE lease_id=?1 AND listed='omitted' AND seq >"
            " (SELECT coalesce(max(seq), 0) FROM sightings WHERE lease_id=?1 AND listed='listed')"
            " ORDER BY seq",
            lease_id,
        )

    def last_listed(self, lease_id: str) -> datetime | None:
        """Return when the box was last recorded as listed. None if it never was."""
        looks = self._read(
            lambda row: moment(row["at"]),
            "SELECT at FROM sightings WHERE lease_id=? AND listed='listed' ORDER BY seq DESC LIMIT 1",
            lease_id,
        )
        return looks[0] if looks else None
