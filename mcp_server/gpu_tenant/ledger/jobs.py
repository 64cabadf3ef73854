"""What leases are used for: smoke tests beforehand, jobs declared and launched, and later claims."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Job, JobId, LeaseId
from gpu_tenant.ledger.database import Connection, moment, record
from gpu_tenant.ledger.events import Timeline

_STOPS = tuple(
    each.kind
    for each in (
        timeline.Parking,
        timeline.RunsOn,
        timeline.Parked,
        timeline.Resuming,
        timeline.Resumed,
    )
)
_STOPS_WITHIN = timedelta(minutes=10)
"""A request to stop a box counts as open for this long. After that, the next look shows whether the box stopped."""
_Claim = tuple[Sequence[str], Sequence[str]]
"""What one declaration keeps, and what it gives up."""
_WITHDRAWN = "SELECT job FROM placements JOIN releases ON placement = seq WHERE lease_id=? AND why='withdrawn'"


class JobTable(Timeline):
    """The part of the ledger that knows the jobs, and which of their files must be kept."""

    def declare(self, job: Job) -> Job:
        """Record the job before it runs. Declaring it again returns the first record."""
        with self._transaction() as db:
            self._must_be_mine(db, job.lease_id)
            db.execute(
                "INSERT INTO jobs(lease_id, id, record) VALUES (?,?,?) ON CONFLICT DO NOTHING",
                (job.lease_id, job.id, job.model_dump_json()),
            )
        return next(known for known in self.jobs(job.lease_id) if known.id == job.id)

    def withdraw(self, job: Job) -> None:
        """Forget a job of which nothing was sent to its box. A job whose start was confirmed stays."""
        with self._transaction() as db:
            self._must_be_mine(db, job.lease_id)
            db.execute(
                "DELETE FROM jobs WHERE lease_id=? AND id=?"
                " AND json_extract(record, '$.launched_at') IS NULL",
                (job.lease_id, job.id),
            )

    def declare_again(self, job: Job, *, at: datetime) -> Job:
        """Record that a job whose start was never confirmed is being started now."""
        known = job.model_copy(update={"declared_at": at})
        with self._transaction() as db:
            self._must_be_mine(db, job.lease_id)
            db.execute(
                "UPDATE jobs SET record=? WHERE lease_id=? AND id=?"
                " AND json_extract(record, '$.launched_at') IS NULL",
                (known.model_dump_json(), job.lease_id, job.id),
            )
        return known

    def note_launched(self, job: Job, *, at: datetime, box_time_s: float | None = None) -> Job:
        """Record that the box started the job, at `box_time_s` by the box's own clock."""
        known = job.model_copy(update={"launched_at": at})
        with self._transaction() as db:
            db.execute(
                "UPDATE jobs SET record=? WHERE lease_id=? AND id=?",
                (known.model_dump_json(), job.lease_id, job.id),
            )
            launched = timeline.Launched(job=job.id, command=job.command, box_time_s=box_time_s)
            self._note(db, job.lease_id, launched, at)
        return known

    def job_ended(
        self,
        lease_id: LeaseId,
        seen: timeline.JobEnded | timeline.Lingers,
        *,
        at: datetime,
    ) -> None:
        """Record that the job has ended, or has left processes running.

        This is recorded only once, even if several processes see it.
        """
        with self._transaction() as db:
            known = db.execute(
                "SELECT 1 FROM events WHERE lease_id=? AND kind=? AND json_extract(detail, '$.job')=?",
                (lease_id, seen.kind, seen.job),
            ).fetchone()
            if known is None:
                self._note(db, lease_id, seen, at)

    def hold_until(self, lease_id: LeaseId, until: datetime, *, by: str, at: datetime) -> bool:
        """Record that more work is coming. Return False, and record nothing, if the lease's end has begun.

        If an end is only being prepared, this record stops it: see `file_permit`.
        """
        with self._transaction() as db:
            row = db.execute("SELECT state FROM leases WHERE id=?", (lease_id,)).fetchone()
            is_open = row is not None and row["state"] in ("intended", "active")
            is_open = is_open and not self._is_being_parked(db, lease_id, at)
            if is_open:
                self._note(db, lease_id, timeline.AwaitsWork(until=until, by=by), at)
        return is_open

    @staticmethod
    def _is_being_parked(db: Connection, lease_id: str, at: datetime) -> bool:
        """Whether the provider was asked to stop the lease's box, and it is not known yet whether the box stopped."""
        marks = ", ".join("?" for _ in _STOPS)
        row = db.execute(
            f"SELECT kind, at FROM events WHERE lease_id=? AND kind IN ({marks}) ORDER BY seq DESC LIMIT 1",  # noqa: S608 - only marks
            (lease_id, *_STOPS),
        ).fetchone()
        parking = row is not None and row["kind"] == timeline.Parking.kind
        return parking and abs(at - moment(row["at"])) < _STOPS_WITHIN

    def began_s(self, lease_id: LeaseId) -> float | None:
        """Return when the first job began, in seconds by the box's own clock. None if the box never said."""
        told = [
            event.box_time_s
            for _, event in self.events(lease_id)
            if isinstance(event, timeline.Launched)
        ]
        return min((at for at in told if at is not None), default=None)

    def jobs(self, lease_id: LeaseId) -> list[Job]:
        """Return the jobs declared on that lease, oldest first."""
        return self._read(
            lambda row: Job.model_validate_json(row["record"]),
            "SELECT record FROM jobs WHERE lease_id=? ORDER BY rowid",
            lease_id,
        )

    def next_job_id(self, lease_id: LeaseId) -> JobId:
        """Return a job id that this lease has not used yet."""
        taken = {job.id for job in self.jobs(lease_id)}
        return next(job for n in count(1) if (job := JobId(f"job{n}")) not in taken)

    def claim(
        self, lease_id: LeaseId, *, artifacts: Sequence[str], discard: Sequence[str], at: datetime
    ) -> None:
        """Record which unclaimed files the owner wants to keep, and which may be lost."""
        if artifacts or discard:
            claim = timeline.Claimed(artifacts=tuple(artifacts), discard=tuple(discard))
            self.note(lease_id, claim, at=at)

    def never_ran(self, lease_id: LeaseId) -> set[str]:
        """Return the jobs that were withdrawn before they started."""
        return set(self._read(lambda row: str(row["job"]), _WITHDRAWN, lease_id))

    def declarations(self, lease_id: LeaseId) -> tuple[list[str], list[str]]:
        """Return what must be kept and what may be lost, by the declarations of all jobs and by later claims.

        A pattern may be in both lists. Then what it matches is kept, and it is no error if it matches nothing. If one
        declaration has a pattern in both of its lists, and another one demands it, only the demand counts. A job that
        was withdrawn before it started declares nothing.
        """
        claims = self._claims(lease_id)
        demanded = _demanded_patterns(claims)
        artifacts = {pattern: None for kept, _ in claims for pattern in kept}
        discard = {
            pattern: None
            for kept, given_up in claims
            for pattern in given_up
            if pattern not in kept or pattern not in demanded
        }
        return list(artifacts), list(discard)

    def demanded_patterns(self, lease_id: LeaseId) -> set[str]:
        """Return the patterns that a declaration keeps and does not give up as well: each must match something."""
        return _demanded_patterns(self._claims(lease_id))

    def _claims(self, lease_id: LeaseId) -> list[_Claim]:
        never_ran = self.never_ran(lease_id)
        jobs = [job for job in self.jobs(lease_id) if job.id not in never_ran]
        claims: list[_Claim] = [(job.artifacts, job.discard) for job in jobs]
        for _, event in self.events(lease_id, timeline.Claimed):
            if isinstance(event, timeline.Claimed):
                claims.append((event.artifacts, event.discard))
        return claims

    def file_smoke(self, smoke_id: str, record: str, *, at: datetime) -> None:
        """Record a smoke test's outcome."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO smokes(id, record, at) VALUES (?,?,?)",
                (smoke_id, record, at.isoformat()),
            )

    def newest_smoke(self, directory: str | None = None) -> str | None:
        """Return the outcome of the latest smoke test, of that work tree or of any. None if there was none."""
        filed = self._read(
            record,
            "SELECT record FROM smokes WHERE ?1 IS NULL OR json_extract(record, '$.directory') = ?1"
            " ORDER BY at DESC, rowid DESC LIMIT 1",
            directory,
        )
        return filed[0] if filed else None

    def smoke(self, smoke_id: str) -> str | None:
        """Return the outcome of that smoke test. None if there was none."""
        filed = self._read(record, "SELECT record FROM smokes WHERE id=?", smoke_id)
        return filed[0] if filed else None


def _demanded_patterns(claims: Sequence[_Claim]) -> set[str]:
    return {pattern for kept, given_up in claims for pattern in kept if pattern not in given_up}
