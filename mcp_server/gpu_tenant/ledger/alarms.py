"""Alarms, from when they are raised until they end. Each is reported by the first process that finds it due."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from gpu_tenant.domain.alarm import Alarm, Level, is_due, loudness
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.ledger.database import Database, Row, moment

_WORDS = 1000
_OPEN = "SELECT * FROM alarms WHERE ended_at IS NULL ORDER BY since, seq"


class AlarmTable(Database):
    """The part of the ledger that knows what a person must be told, and what was reported."""

    def raise_alarm(
        self,
        key: str,
        words: str,
        *,
        level: Level,
        lease_id: LeaseId | None,
        at: datetime,
        patience: timedelta = timedelta(0),
    ) -> Alarm:
        """Open an alarm about `key` that says `words`, or update the open one.

        An open alarm gets a higher level if `level` is higher, and is then reported again at once. Its level never
        falls. If an alarm has ended and is raised again, it is reported no sooner than if it had stayed open. What often
        passes by itself is a notice until the alarm has been open for as long as `patience`.
        """
        if patience:
            open_ones = self.open_alarms() if lease_id is None else self.open_alarms_of(lease_id)
            since = next((alarm.since for alarm in open_ones if alarm.key == key), at)
            level = level if at - since >= patience else min(level, Level.NOTICE)
        # The text often comes from outside. So it is made one line, without control sequences for a terminal.
        words, when = " ".join(plain(words).split())[:_WORDS], at.isoformat()
        with self._transaction() as db:
            known = db.execute(
                "UPDATE alarms SET words=?1, last_seen_at=?2, level=max(level, ?3),"
                " told=iif(level < ?3, 0, told), told_at=iif(level < ?3, NULL, told_at)"
                " WHERE key=?4 AND lease_id IS ?5 AND ended_at IS NULL",
                (words, when, level, key, lease_id),
            )
            if not known.rowcount:
                db.execute(
                    "INSERT INTO alarms(words, since, last_seen_at, level, key, lease_id, told_at)"
                    " SELECT ?1, ?2, ?2, ?3, ?4, ?5, max(told_at) FROM alarms"
                    " WHERE key=?4 AND lease_id IS ?5 AND level >= ?3",
                    (words, when, level, key, lease_id),
                )
        return self._read(
            _alarm,
            "SELECT * FROM alarms WHERE key=? AND lease_id IS ? AND ended_at IS NULL",
            key,
            lease_id,
        )[0]

    def end_alarm(self, key: str, *, lease_id: LeaseId | None, at: datetime) -> None:
        """End the open alarm about `key`, if there is one."""
        with self._transaction() as db:
            db.execute(
                "UPDATE alarms SET ended_at=? WHERE key=? AND lease_id IS ? AND ended_at IS NULL",
                (at.isoformat(), key, lease_id),
            )

    def open_alarms(self) -> list[Alarm]:
        """Return every alarm that has not ended, oldest first."""
        return self._read(_alarm, _OPEN)

    def was_raised(self, key: str) -> bool:
        """Whether an alarm with that key was ever raised, not about a single lease. It may have ended."""
        one = "SELECT 1 AS one FROM alarms WHERE key=? AND lease_id IS NULL LIMIT 1"
        return bool(self._read(lambda row: row["one"], one, key))

    def open_alarms_of(self, lease_id: LeaseId) -> list[Alarm]:
        """Return the open alarms about that lease, oldest first."""
        one = "SELECT * FROM alarms WHERE lease_id=? AND ended_at IS NULL ORDER BY since, seq"
        return self._read(_alarm, one, lease_id)

    def claim_due(self, now: datetime, *, least: Level = Level.NOTICE) -> list[Alarm]:
        """Return the alarms that are due and have at least the level `least`, and count them as reported.

        Each due alarm is returned to one caller only, even if several processes ask.
        """
        with self._transaction() as db:
            due = [
                alarm.model_copy(update={"told": alarm.told + 1, "told_at": now})
                for alarm in self._read(_alarm, _OPEN)
                if is_due(alarm, now) and loudness(alarm, now) >= least
            ]
            db.executemany(
                "UPDATE alarms SET told=?, told_at=? WHERE seq=?",
                [(alarm.told, now.isoformat(), alarm.seq) for alarm in due],
            )
        return due

    def note_reached_nobody(self, claimed: Iterable[Alarm]) -> None:
        """Record that those alarms reached nobody. Each is due again after the first waiting time of its level."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE alarms SET told=0 WHERE seq=? AND told_at=? AND ended_at IS NULL",
                [(alarm.seq, alarm.told_at and alarm.told_at.isoformat()) for alarm in claimed],
            )


def _alarm(row: Row) -> Alarm:
    return Alarm(
        seq=row["seq"],
        lease_id=row["lease_id"] and LeaseId(row["lease_id"]),
        key=row["key"],
        words=row["words"],
        level=Level(row["level"]),
        since=moment(row["since"]),
        last_seen_at=moment(row["last_seen_at"]),
        told=row["told"],
        told_at=row["told_at"] and moment(row["told_at"]),
        ended_at=row["ended_at"] and moment(row["ended_at"]),
    )
