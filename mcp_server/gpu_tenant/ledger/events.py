"""The timeline of each lease, one event a line, and every look at a provider's list."""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Literal

from gpu_tenant.domain.model import LeaseId, LeaseState
from gpu_tenant.ledger.database import Connection, moment
from gpu_tenant.ledger.holds import Holds


class Event(StrEnum):
    """The kinds of line in a lease's timeline, as they are stored. No other kind is written there."""

    INTENDED = "intended"
    BOUND = "bound"
    READY = "ready"
    MARKING = "marking"
    MARKED = "marked"
    LOOKED = "looked"
    TAKES_OVER = "takes over"
    BROKERED = "brokered"
    """Another tool rents the box, and ends its bill."""
    PARKING = "parking"
    RUNS_ON = "runs on"
    PARKED = "parked"
    RESUMING = "resuming"
    RESUMED = "resumed"
    TERMS = "terms"
    PRICE = "price"
    BILLED = "billed"
    NOTICE = "notice"
    TAKEN = "taken"
    RECOVERED = "recovered"
    ABSENT = "absent"
    PUSHED = "pushed"
    OVERWRITTEN = "overwritten"
    PREPARING = "preparing"
    PREPARED = "prepared"
    GUARDED = "guarded"
    LAUNCHED = "launched"
    GANG = "gang"
    """One job was declared on several leases at once."""
    PROGRESS = "progress"
    STOPPED = "stopped"
    JOB_ENDED = "job ended"
    """A look saw for the first time that a job has ended."""
    LINGERS = "lingers"
    """A look saw for the first time that a job's command has ended and left processes running."""
    HOLD = "hold"
    """More work is coming: until then the lease is not ended for being done."""
    ACCEPTED = "accepted"
    """A person accepted what is wrong with a sweep."""
    DONE = "done"
    """Its work is done, and it is being ended for that; or why that did not come about."""
    SNAPSHOT = "snapshot"
    CLAIMED = "claimed"
    SEALED = "sealed"
    COLLECTED = "collected"
    STORED = "stored"
    VERIFIED = "verified"
    REFUSED = "refused"
    WAIVED = "waived"
    WAIVED_AHEAD = "waived ahead"
    ENDING = "ending"
    PERMITTED = "permitted"
    UNSEEN = "unseen"
    DESTROY = "destroy"
    ATTESTED = "attested"
    RECEIPT = "receipt"
    ENDED = "ended"
    CAME_BACK = "came back"


WANTED = frozenset(
    {Event.HOLD, Event.LAUNCHED, Event.PUSHED, Event.PREPARING, Event.PREPARED, Event.RESUMED}
)
"""Lines that say that the box is wanted for more work."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The times at which an interruptible box ran."""

    state: LeaseState
    ended_at: datetime | None
    turns: tuple[tuple[datetime, str, str | None], ...]
    """Each time it became ready, was parked, or was taken: when, which of these, and its fate. Oldest first."""


class Timeline(Holds):
    """The append-only part of the ledger."""

    def note(
        self, lease_id: LeaseId, kind: Event, detail: dict[str, object], *, at: datetime
    ) -> None:
        """The lease's timeline has one more line."""
        with self._transaction() as db:
            self._note(db, lease_id, kind, detail, at)

    @staticmethod
    def _note(
        db: Connection, lease_id: str, kind: Event, detail: dict[str, object], at: datetime
    ) -> None:
        db.execute(
            "INSERT INTO events(lease_id, kind, detail, at) VALUES (?,?,?,?)",
            (lease_id, kind, json.dumps(detail), at.isoformat()),
        )

    def events(self, lease_id: str) -> list[tuple[datetime, str, dict[str, object]]]:
        """The lease's timeline, oldest first."""
        return self._read(
            lambda row: (moment(row["at"]), row["kind"], json.loads(row["detail"])),
            "SELECT at, kind, detail FROM events WHERE lease_id=? ORDER BY seq",
            lease_id,
        )

    def interruptible(self, provider: str, *, most: int) -> list[Ran]:
        """How the newest `most` interruptible boxes of a provider ran. Only those count that let us in."""
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
            Event.READY,
            Event.PARKED,
            Event.TAKEN,
        )
        return [
            Ran(state, ended_at, tuple(turn for _, turn in lines))
            for (_, state, ended_at), lines in groupby(rows, key=lambda row: row[0])
        ]

    def newest_event(self) -> int:
        """The number of the newest line in the ledger. It grows with every line, whoever writes it."""
        return self._read(
            lambda row: int(row["newest"]), "SELECT coalesce(max(seq), 0) AS newest FROM events"
        )[0]

    def attested(self, lease_id: str) -> bool:
        """Whether a person has said that the box is gone."""
        return any(kind == Event.ATTESTED for _, kind, _ in self.events(lease_id))

    def saw(self, lease_id: LeaseId, *, listed: Literal["listed", "omitted"], at: datetime) -> None:
        """One look at the provider's list is on record."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO sightings(lease_id, listed, at) VALUES (?,?,?)",
                (lease_id, listed, at.isoformat()),
            )

    def absences(self, lease_id: str) -> list[datetime]:
        """When the provider's list has omitted the box since it last showed it, oldest first."""
        return self._read(
            lambda row: moment(row["at"]),
            "SELECT at FROM sightings WHERE lease_id=?1 AND listed='omitted' AND seq >"
            " (SELECT coalesce(max(seq), 0) FROM sightings WHERE lease_id=?1 AND listed='listed')"
            " ORDER BY seq",
            lease_id,
        )

    def last_listed(self, lease_id: str) -> datetime | None:
        """When the box was last recorded as listed. None if it never was."""
        looks = self._read(
            lambda row: moment(row["at"]),
            "SELECT at FROM sightings WHERE lease_id=? AND listed='listed' ORDER BY seq DESC LIMIT 1",
            lease_id,
        )
        return looks[0] if looks else None
