"""The timeline of each lease, with one event in each line, and every look at a provider's list."""

import json
from datetime import datetime
from itertools import groupby
from typing import Literal, NamedTuple

from gpu_tenant.domain.model import LeaseId, LeaseState
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

_OUTLIVES = ("ended", "recovery")
"""The keys of the alarms about the end of a lease and its recovery. They stay open when the lease ends."""


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


class Timeline(Holds):
    """The append-only part of the ledger."""

    def note(self, lease_id: LeaseId, event: Event, *, at: datetime) -> None:
        """Add a line to the lease's timeline."""
        with self._transaction() as db:
            self._note(db, lease_id, event, at)

    @staticmethod
    def _note(db: Connection, lease_id: str, event: Event, at: datetime) -> None:
        db.execute(
            "INSERT INTO events(lease_id, kind, detail, at) VALUES (?,?,?,?)",
            (lease_id, kind_of(event), json.dumps(event.as_stored()), at.isoformat()),
        )

    def events(self, lease_id: str, *kinds: type[Event]) -> list[Line]:
        """Return the lease's timeline, oldest first. If kinds are named, only the lines of these kinds."""
        named = json.dumps([each.kind for each in kinds]) if kinds else None
        return self._read(
            lambda row: Line(moment(row["at"]), event_of(row["kind"], json.loads(row["detail"]))),
            "SELECT at, kind, detail FROM events WHERE lease_id=?1"
            " AND (?2 IS NULL OR kind IN (SELECT value FROM json_each(?2))) ORDER BY seq",
            lease_id,
            named,
        )

    def lines_by_lease(self, *kinds: type[Event]) -> dict[LeaseId, list[Line]]:
        """Return the lines of these kinds in the timelines of all leases, oldest first."""
        found: dict[LeaseId, list[Line]] = {}
        for lease_id, line in self._read(
            lambda row: (
                LeaseId(row["lease_id"]),
                Line(moment(row["at"]), event_of(row["kind"], json.loads(row["detail"]))),
            ),
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
