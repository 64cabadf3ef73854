"""Sweeps: what was declared, where each cell was placed and why it left, and what boxes reported about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, Refused
from gpu_tenant.domain.model import Job, JobId, LeaseId
from gpu_tenant.ledger.database import Connection, IntegrityError, Row, moment
from gpu_tenant.ledger.leases import LeaseTable
from gpu_tenant.ledger.signatures import use

if TYPE_CHECKING:
    from gpu_tenant.domain.sweep_placement import Placement, Released, Said, Settlement, Sweep

_PLACEMENTS = (
    "SELECT p.*, r.why, s.record AS said, w.at AS reread_at FROM placements p"
    " LEFT JOIN releases r ON r.placement = p.seq"
    " LEFT JOIN rereads w ON w.placement = p.seq"
    " LEFT JOIN reports s ON s.seq = (SELECT max(seq) FROM reports WHERE placement = p.seq)"
)
_LIKE = "SELECT id, record FROM sweeps WHERE digest=? ORDER BY rowid DESC LIMIT 1"


class Sweeps(LeaseTable):
    """The part of the ledger that knows sweeps. Its rows are only ever added."""

    def declare_sweep(self, sweep: Sweep, *, after: str | None = None) -> Sweep:
        """Record the sweep under the next free id, before any box hears of it.

        If there is already a sweep of exactly that grid, return that sweep instead, unless it is the sweep `after`.
        """
        with self._transaction() as db:
            known = db.execute(_LIKE, (sweep.grid.digest,)).fetchone()
            if known is not None and known["id"] != after:
                return _sweep(known)
            count = db.execute("SELECT count(*) FROM sweeps").fetchone()[0]
            found = sweep.model_copy(update={"id": f"sw-{count + 1}"})
            db.execute(
                "INSERT INTO sweeps(id, digest, record, at) VALUES (?,?,?,?)",
                (found.id, found.grid.digest, found.model_dump_json(), found.at.isoformat()),
            )
        return found

    def sweep(self, sweep_id: str) -> Sweep:
        """Return the sweep with that id.

        Raises:
            BadRequest: there is none.
        """
        for sweep in self._read(_sweep, "SELECT record FROM sweeps WHERE id=?", sweep_id):
            return sweep
        raise BadRequest(
            f"no sweep {sweep_id!r} is in the ledger", remedy=f"{Command('sweep')} lists them"
        )

    def sweeps(self) -> list[str]:
        """Return every sweep's id, oldest first."""
        return self._read(lambda row: str(row["id"]), "SELECT id FROM sweeps ORDER BY rowid")

    def sweep_like(self, digest: str) -> Sweep | None:
        """Return the newest sweep of exactly that grid. None if there is none."""
        found = self._read(_sweep, _LIKE, digest)
        return found[0] if found else None

    def join_sweep(self, sweep_id: str, leases: Iterable[LeaseId], *, at: datetime) -> None:
        """Allow cells of the sweep to be placed on those leases from now on."""
        with self._transaction() as db:
            for lease_id in leases:
                db.execute(
                    "INSERT INTO sweep_leases(sweep_id, lease_id, at) SELECT ?1, ?2, ?3 WHERE NOT EXISTS"
                    " (SELECT 1 FROM sweep_leases WHERE sweep_id=?1 AND lease_id=?2)",
                    (sweep_id, lease_id, at.isoformat()),
                )

    def leases_of_sweep(self, sweep_id: str) -> list[LeaseId]:
        """Return the leases that the sweep runs or ran on, in the order in which they joined."""
        return self._read(
            lambda row: LeaseId(row["lease_id"]),
            "SELECT lease_id FROM sweep_leases WHERE sweep_id=? ORDER BY seq",
            sweep_id,
        )

    def sweeps_on(self, lease_id: str) -> list[str]:
        """Return the sweeps that run or ran on that lease, oldest first."""
        return self._read(
            lambda row: str(row["sweep_id"]),
            "SELECT sweep_id FROM sweep_leases WHERE lease_id=? ORDER BY seq",
            lease_id,
        )

    # --- where cells are

    def place(self, sweep_id: str, cells: Mapping[str, Job], *, at: datetime) -> list[str]:
        """Record each cell as a job of its lease, before the box hears of it.

        Return the cells that were newly placed.

        A cell that is already placed stays where it is and is not returned. A cell that was given up is not placed
        either.

        Raises:
            Refused: a job on the lease already has one of the names; none of the cells was placed.
        """
        placed: list[str] = []
        with self._unless_it_changed() as db:
            for cell, job in cells.items():
                if self._is_placed(db, sweep_id, cell):
                    continue
                db.execute(
                    "INSERT INTO placements(sweep_id, cell, lease_id, job, at) VALUES (?,?,?,?,?)",
                    (sweep_id, cell, job.lease_id, job.id, at.isoformat()),
                )
                db.execute(
                    "INSERT INTO jobs(lease_id, id, record) VALUES (?,?,?)",
                    (job.lease_id, job.id, job.model_dump_json()),
                )
                # A lease that is about to be used counts as used from here on.
                db.execute(
                    "UPDATE leases SET touched_at=coalesce(touched_at, ?) WHERE id=?",
                    (at.isoformat(), job.lease_id),
                )
                placed.append(cell)
        return placed

    @staticmethod
    def _is_placed(db: Connection, sweep_id: str, cell: str) -> bool:
        row = db.execute(
            "SELECT 1 FROM placements p WHERE sweep_id=?1 AND cell=?2 AND NOT EXISTS"
            " (SELECT 1 FROM releases WHERE placement=p.seq)"
            " UNION ALL SELECT 1 FROM given_up WHERE sweep_id=?1 AND cell=?2",
            (sweep_id, cell),
        ).fetchone()
        return row is not None

    def placements(self, sweep_id: str) -> list[Placement]:
        """Return every placement there ever was of a cell of that sweep, oldest first."""
        return self._read(_placement, f"{_PLACEMENTS} WHERE p.sweep_id=? ORDER BY p.seq", sweep_id)

    def cell_jobs(self, lease_id: str) -> set[JobId]:
        """Return the jobs of that lease that are cells of sweeps."""
        return set(
            self._read(
                lambda row: JobId(row["job"]),
                "SELECT job FROM placements WHERE lease_id=?",
                lease_id,
            )
        )

    def ended_cells(self, lease_id: LeaseId) -> set[JobId]:
        """Return the jobs of that lease that are cells of sweeps and do not run, as their boxes have said."""
        from gpu_tenant.domain.sweep_placement import OVER

        return {
            placement.job
            for sweep in self.sweeps_on(lease_id)
            for placement in self.placements(sweep)
            if placement.lease_id == lease_id
            and (
                placement.released == "withdrawn"
                or (placement.said is not None and placement.said.word in OVER)
            )
        }

    def release(self, placements: Sequence[Placement], why: Released, *, at: datetime) -> None:
        """Record that the cells are no longer where they were placed. An earlier release of a cell stays as it was.

        A cell that has begun there is not withdrawn, whatever its box says now.

        Raises:
            Refused: the record does not allow one of these releases, so none was made.
        """
        with self._unless_it_changed() as db:
            for placement in placements:
                db.execute(
                    "INSERT INTO releases(placement, why, at) SELECT ?1, ?2, ?3 WHERE NOT EXISTS"
                    " (SELECT 1 FROM releases WHERE placement=?1) AND NOT (?2 = 'withdrawn' AND EXISTS"
                    " (SELECT 1 FROM reports WHERE placement=?1"
                    " AND word NOT IN ('queued','needs_env','withdrawn')))",
                    (placement.seq, why, at.isoformat()),
                )

    def reread(self, placements: Sequence[Placement], *, at: datetime) -> None:
        """Record that the cells' files were re-read here, and found unchanged, after their box was lost."""
        with self._transaction() as db:
            db.executemany(
                "INSERT INTO rereads(placement, at) SELECT ?1, ?2"
                " WHERE NOT EXISTS (SELECT 1 FROM rereads WHERE placement=?1)",
                [(placement.seq, at.isoformat()) for placement in placements],
            )

    def give_up(self, sweep_id: str, cells: Iterable[str], *, at: datetime) -> None:
        """Place those cells on no box from now on. A cell that is on a box stays until it is released."""
        with self._transaction() as db:
            db.executemany(
                "INSERT INTO given_up(sweep_id, cell, at) SELECT ?1, ?2, ?3"
                " WHERE NOT EXISTS (SELECT 1 FROM given_up WHERE sweep_id=?1 AND cell=?2)",
                [(sweep_id, cell, at.isoformat()) for cell in cells],
            )

    def given_up(self, sweep_id: str) -> frozenset[str]:
        """Return the cells of that sweep that its owner has given up."""
        return frozenset(
            self._read(
                lambda row: str(row["cell"]), "SELECT cell FROM given_up WHERE sweep_id=?", sweep_id
            )
        )

    @contextmanager
    def _unless_it_changed(self) -> Iterator[Connection]:
        """Open a transaction. Refuse it if the facts on which it rests have changed since they were read."""
        try:
            with self._transaction() as db:
                yield db
        except IntegrityError as broken:
            raise Refused(
                f"the sweep's record does not allow that now ({broken})",
                remedy=f"look again: {Command('sweep')}",
            ) from broken

    def cells_launched(
        self,
        sweep_id: str,
        jobs: Sequence[JobId],
        lease_id: LeaseId,
        *,
        at: datetime,
        box_time_s: float,
    ) -> None:
        """Record that the box queued those jobs, at `box_time_s` by the box's own clock."""
        with self._transaction() as db:
            for job in jobs:
                db.execute(
                    "UPDATE jobs SET record=json_set(record, '$.launched_at', ?)"
                    " WHERE lease_id=? AND id=? AND json_extract(record, '$.launched_at') IS NULL",
                    (at.isoformat(), lease_id, job),
                )
            launched = timeline.Launched(sweep=sweep_id, jobs=tuple(jobs), box_time_s=box_time_s)
            self._note(db, lease_id, launched, at)

    # --- what became of the cells

    def note_reports(self, said: Mapping[int, Said]) -> None:
        """Record what boxes reported about placements, by the placement's number.

        Reports with nothing new are skipped.
        """
        from gpu_tenant.domain.sweep_placement import Said

        with self._transaction() as db:
            for seq, each in said.items():
                row = db.execute(
                    "SELECT record FROM reports WHERE placement=? ORDER BY seq DESC LIMIT 1", (seq,)
                ).fetchone()
                last = row and Said.model_validate_json(row["record"])
                if last and last.model_copy(update={"heard_at": each.heard_at}) == each:
                    continue
                db.execute(
                    "INSERT INTO reports(placement, word, record, at) VALUES (?,?,?,?)",
                    (seq, each.word, each.model_dump_json(), each.heard_at.isoformat()),
                )

    def settle_sweep(self, sweep_id: str, settlement: Settlement, *, signature: str) -> None:
        """Record that somebody accepted exactly that list of problems, and signed."""
        with self._transaction() as db:
            use(db, signature, at=settlement.at)
            db.execute(
                "INSERT INTO settlements(sweep_id, digest, record, at) VALUES (?,?,?,?)",
                (
                    sweep_id,
                    settlement.digest,
                    settlement.model_dump_json(),
                    settlement.at.isoformat(),
                ),
            )

    def settlements(self, sweep_id: str) -> list[Settlement]:
        """Return the lists of problems that were accepted for that sweep, oldest first."""
        from gpu_tenant.domain.sweep_placement import Settlement

        return self._read(
            lambda row: Settlement.model_validate_json(row["record"]),
            "SELECT record FROM settlements WHERE sweep_id=? ORDER BY seq",
            sweep_id,
        )


def _sweep(row: Row) -> Sweep:
    from gpu_tenant.domain.sweep_placement import Sweep

    return Sweep.model_validate_json(row["record"])


def _placement(row: Row) -> Placement:
    from gpu_tenant.domain.sweep_placement import Placement, Said

    return Placement(
        seq=row["seq"],
        cell=row["cell"],
        lease_id=LeaseId(row["lease_id"]),
        job=JobId(row["job"]),
        at=moment(row["at"]),
        released=row["why"],
        said=row["said"] and Said.model_validate_json(row["said"]),
        reread_at=row["reread_at"] and moment(row["reread_at"]),
    )
