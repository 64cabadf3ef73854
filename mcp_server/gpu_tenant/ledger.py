"""The SQLite file that is believed after a crash.

Every method is one transaction, durable when it returns. Triggers hold the law even against code
that forgets it: a lease with a box moves to `terminating` or `gone` only over a filed permit.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import TypeAdapter

from gpu_tenant.errors import (
    BoxTaken,
    LeaseHeld,
    LedgerBusy,
    LedgerCorrupt,
    LedgerTooNew,
    UnknownLease,
)
from gpu_tenant.holders import Holder, this_process
from gpu_tenant.model import (
    Address,
    Box,
    BoxId,
    Evidence,
    Job,
    JobId,
    Lease,
    LeaseId,
    LeaseState,
    Manifest,
    Receipt,
    Terms,
)
from gpu_tenant.permit import NeverUsed, TeardownPermit, Verified, Waived
from gpu_tenant.schema import MIGRATIONS

T = TypeVar("T")

_ADDRESS: TypeAdapter[Address] = TypeAdapter(Address)
_CLAIM: TypeAdapter[dict[str, tuple[str, ...]]] = TypeAdapter(dict[str, tuple[str, ...]])
_HOLD_S = 120
"""A hold whose process cannot be asked about (another computer's) is void after this long."""


class Event:
    """The kinds of line in a lease's timeline."""

    INTENDED = "intended"
    BOUND = "bound"
    NOTICE = "notice"
    ABSENT = "absent"
    PUSHED = "pushed"
    LAUNCHED = "launched"
    STOPPED = "stopped"
    CLAIMED = "claimed"
    SEALED = "sealed"
    COLLECTED = "collected"
    VERIFIED = "verified"
    REFUSED = "refused"
    WAIVED = "waived"
    PERMITTED = "permitted"
    RECEIPT = "receipt"
    ENDED = "ended"


class Ledger:
    """The leases of one user, and everything that was done about them."""

    def __init__(self, path: Path, *, busy_timeout_s: float = 5) -> None:
        """The ledger at `path` is open, and is made where there is none.

        Raises:
            LedgerBusy: another process held it for longer than `busy_timeout_s`.
            LedgerTooNew, LedgerCorrupt: it cannot be believed; it was left as it is.
        """
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            # The mode is right from the first moment, and SQLite gives its companions the same.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise self._unreadable(error) from error
        self._db = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)
        try:
            with self._told():
                self._db.row_factory = sqlite3.Row
                # A file that is no ledger, or a newer one, must not be changed by the next pragma.
                self._version()
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")
                self._db.execute("PRAGMA foreign_keys=ON")
            if self._version() < len(MIGRATIONS):
                self._migrate()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """The file is closed; what was written stays."""
        self._db.close()

    def _version(self) -> int:
        version: int = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise LedgerTooNew(
                f"the ledger {self._path} has version {version}, this program knows {len(MIGRATIONS)}",
                remedy="upgrade gpu-tenant; the ledger was left as it is",
            )
        return version

    def _migrate(self) -> None:
        with self._transaction() as db:
            # Asked again under the lock: another process may have been quicker.
            for script in MIGRATIONS[self._version() :]:
                for statement in _statements(script):
                    db.execute(statement)
            db.execute(f"PRAGMA user_version={len(MIGRATIONS)}")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise LedgerBusy(
                    f"another program holds {self._path} for writing",
                    remedy="try again; if it stays, `fuser` on that file names the process",
                ) from error
            raise self._unreadable(error) from error
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> LedgerCorrupt:
        return LedgerCorrupt(
            f"{self._path} does not read as a ledger ({error}); it was left as it is",
            remedy="boxes may still be billing: look at each provider's own list, keep a copy of the "
            "file, and put a backup in its place",
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._told():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                # SQLite rolls back by itself when the disk is full.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _read(self, read: Callable[[sqlite3.Row], T], sql: str, *values: object) -> list[T]:
        """What `read` makes of every row; a row that it cannot read is a corrupt ledger's."""
        with self._told():
            rows = self._db.execute(sql, values).fetchall()
        try:
            return [read(row) for row in rows]
        except ValueError as error:
            raise self._unreadable(error) from error

    def check(self) -> None:
        """Every page of the file reads back and fits.

        Raises:
            LedgerCorrupt: it does not.
        """
        with self._told():
            found = self._db.execute("PRAGMA integrity_check").fetchone()[0]
        if found != "ok":
            raise self._unreadable(sqlite3.DatabaseError(found))

    # Leases

    def intend(
        self,
        *,
        lease_id: LeaseId,
        provider: str,
        terms: Terms,
        address: Address | None,
        price_usd_h: Decimal | None,
        at: datetime,
        touched_at: datetime | None = None,
    ) -> Lease:
        """The intent to have a box is written down; no box exists for it yet.

        `touched_at` is for a box that exists already and may have been used, by whom it may be.
        """
        with self._transaction() as db:
            db.execute(
                "INSERT INTO leases(id, provider, state, terms, address, price_usd_h, created_at,"
                " touched_at) VALUES (?,?,?,?,?,?,?,?)",
                (
                    lease_id,
                    provider,
                    LeaseState.INTENDED,
                    terms.model_dump_json(),
                    address and _ADDRESS.dump_json(address).decode(),
                    None if price_usd_h is None else str(price_usd_h),
                    at.isoformat(),
                    touched_at and touched_at.isoformat(),
                ),
            )
            self._note(db, lease_id, Event.INTENDED, terms.model_dump(mode="json"), at)
        return self.lease(lease_id)

    def bind(self, lease_id: LeaseId, box: Box, *, at: datetime) -> Lease:
        """The lease stands on `box`, and its meter counts from its first binding.

        Raises:
            BoxTaken: another live lease stands on that box.
        """
        try:
            with self._transaction() as db:
                db.execute(
                    "UPDATE leases SET state=?, box_id=?, active_at=coalesce(active_at, ?),"
                    " address=coalesce(?, address), price_usd_h=coalesce(?, price_usd_h) WHERE id=?",
                    (
                        LeaseState.ACTIVE,
                        box.id,
                        at.isoformat(),
                        box.address and _ADDRESS.dump_json(box.address).decode(),
                        None if box.price_usd_h is None else str(box.price_usd_h),
                        lease_id,
                    ),
                )
                # Its provider has just shown it: what was not listed before counts no more.
                db.execute(
                    "INSERT INTO sightings(lease_id, listed, at) VALUES (?,'listed',?)",
                    (lease_id, at.isoformat()),
                )
                self._note(db, lease_id, Event.BOUND, {"box": box.id}, at)
        except sqlite3.IntegrityError as error:
            if "UNIQUE" not in str(error):
                raise
            other = self.lease_on(box.provider, box.id)
            raise BoxTaken(
                f"the lease {other.id if other else '?'} already stands on {box.id}",
                remedy=f"use that lease, or end it first: `gpu-tenant teardown {other.id if other else ''}`",
            ) from error
        return self.lease(lease_id)

    def lease(self, lease_id: str) -> Lease:
        """The lease of that id, as it stands.

        Raises:
            UnknownLease: there is none.
        """
        for lease in self._read(_lease, "SELECT * FROM leases WHERE id=?", lease_id):
            return lease
        raise UnknownLease(
            f"no lease {lease_id!r} is in the ledger", remedy="`gpu-tenant leases --all` lists them"
        )

    def lease_on(self, provider: str, box_id: str) -> Lease | None:
        """The live lease on that box, if there is one."""
        live = [lease for lease in self.leases() if lease.state.live]
        return next((x for x in live if x.provider == provider and x.box_id == box_id), None)

    def leases(self) -> list[Lease]:
        """Every lease there ever was, oldest first."""
        return self._read(_lease, "SELECT * FROM leases ORDER BY created_at, id")

    def end(self, lease_id: LeaseId, state: Literal["void", "lost"], *, at: datetime) -> Lease:
        """The lease ended without a destroy of ours: its box never was, or is lost."""
        with self._transaction() as db:
            db.execute(
                "UPDATE leases SET state=?, ended_at=? WHERE id=?",
                (state, at.isoformat(), lease_id),
            )
            self._note(db, lease_id, Event.ENDED, {"state": state}, at)
        return self.lease(lease_id)

    def touch(self, lease_id: LeaseId, *, at: datetime) -> None:
        """It is on record that the box is about to be used: *never used* is no ground any more."""
        with self._transaction() as db:
            db.execute(
                "UPDATE leases SET touched_at=coalesce(touched_at, ?) WHERE id=?",
                (at.isoformat(), lease_id),
            )

    def keep_in(self, lease_id: LeaseId, directory: Path) -> None:
        """Collected files of this lease belong into `directory`."""
        with self._transaction() as db:
            db.execute("UPDATE leases SET kept_in=? WHERE id=?", (os.fspath(directory), lease_id))

    # The timeline

    def note(
        self, lease_id: LeaseId, kind: str, detail: dict[str, object], *, at: datetime
    ) -> None:
        """One more line in the lease's timeline."""
        with self._transaction() as db:
            self._note(db, lease_id, kind, detail, at)

    @staticmethod
    def _note(
        db: sqlite3.Connection, lease_id: str, kind: str, detail: dict[str, object], at: datetime
    ) -> None:
        db.execute(
            "INSERT INTO events(lease_id, kind, detail, at) VALUES (?,?,?,?)",
            (lease_id, kind, json.dumps(detail), at.isoformat()),
        )

    def events(self, lease_id: str) -> list[tuple[datetime, str, dict[str, object]]]:
        """The lease's timeline, oldest first."""
        return self._read(
            lambda row: (_moment(row["at"]), row["kind"], json.loads(row["detail"])),
            "SELECT at, kind, detail FROM events WHERE lease_id=? ORDER BY seq",
            lease_id,
        )

    # Absence

    def saw(self, lease_id: LeaseId, *, listed: Literal["listed", "omitted"], at: datetime) -> None:
        """One look at the provider's list is on record."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO sightings(lease_id, listed, at) VALUES (?,?,?)",
                (lease_id, listed, at.isoformat()),
            )

    def absences(self, lease_id: str) -> list[datetime]:
        """When the provider's list has omitted the box, since it last showed it; oldest first."""
        return self._read(
            lambda row: _moment(row["at"]),
            "SELECT at FROM sightings WHERE lease_id=?1 AND listed='omitted' AND seq >"
            " (SELECT coalesce(max(seq), 0) FROM sightings WHERE lease_id=?1 AND listed='listed')"
            " ORDER BY seq",
            lease_id,
        )

    # Jobs

    def declare(self, job: Job) -> Job:
        """The job is on record before it runs; declaring it again returns the first record."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO jobs(lease_id, id, record) VALUES (?,?,?) ON CONFLICT DO NOTHING",
                (job.lease_id, job.id, job.model_dump_json()),
            )
        return next(known for known in self.jobs(job.lease_id) if known.id == job.id)

    def launched(self, job: Job, *, at: datetime) -> Job:
        """It is on record that the box has started the job."""
        known = job.model_copy(update={"launched_at": at})
        with self._transaction() as db:
            db.execute(
                "UPDATE jobs SET record=? WHERE lease_id=? AND id=?",
                (known.model_dump_json(), job.lease_id, job.id),
            )
            self._note(
                db, job.lease_id, Event.LAUNCHED, {"job": job.id, "command": job.command}, at
            )
        return known

    def jobs(self, lease_id: LeaseId) -> list[Job]:
        """The jobs declared on that lease, oldest first."""
        return self._read(
            lambda row: Job.model_validate_json(row["record"]),
            "SELECT record FROM jobs WHERE lease_id=? ORDER BY rowid",
            lease_id,
        )

    def next_job_id(self, lease_id: LeaseId) -> JobId:
        """A job id this lease has not used."""
        taken = {job.id for job in self.jobs(lease_id)}
        return next(job for n in count(1) if (job := JobId(f"job{n}")) not in taken)

    def claim(
        self, lease_id: LeaseId, *, artifacts: Sequence[str], discard: Sequence[str], at: datetime
    ) -> None:
        """What the owner said after launch about files nobody had claimed is on record."""
        if artifacts or discard:
            detail: dict[str, object] = {"artifacts": list(artifacts), "discard": list(discard)}
            self.note(lease_id, Event.CLAIMED, detail, at=at)

    def declared(self, lease_id: LeaseId) -> tuple[list[str], list[str]]:
        """What is to be kept and what may be lost, by every job's declaration and later claims.

        What was discarded later is no longer expected as an artifact, and the other way round.
        """
        artifacts: dict[str, None] = {}
        discard: dict[str, None] = {}
        claims = [(job.artifacts, job.discard) for job in self.jobs(lease_id)]
        for _, kind, detail in self.events(lease_id):
            if kind == Event.CLAIMED:
                claim = _CLAIM.validate_python(detail)
                claims.append((claim["artifacts"], claim["discard"]))
        for kept, given_up in claims:
            for pattern in kept:
                artifacts[pattern] = None
                discard.pop(pattern, None)
            for pattern in given_up:
                discard[pattern] = None
                artifacts.pop(pattern, None)
        return list(artifacts), list(discard)

    # Seals and evidence

    def file_seal(self, lease_id: LeaseId, manifest: Manifest, *, at: datetime) -> None:
        """The manifest that a collect fetches by is on record."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO seals(lease_id, digest, manifest, at) VALUES (?,?,?,?)",
                (
                    lease_id,
                    manifest.digest,
                    manifest.model_dump_json(by_alias=True),
                    at.isoformat(),
                ),
            )
            self._note(
                db,
                lease_id,
                Event.SEALED,
                {"digest": manifest.digest, "files": len(manifest.entries)},
                at,
            )

    def seal(self, lease_id: LeaseId) -> Manifest | None:
        """The newest seal on record for that lease."""
        newest = self._read(
            lambda row: Manifest.model_validate_json(row["manifest"]),
            "SELECT manifest FROM seals WHERE lease_id=? ORDER BY seq DESC LIMIT 1",
            lease_id,
        )
        return newest[0] if newest else None

    def file_evidence(
        self, lease_id: LeaseId, digest: str, evidence: Iterable[Evidence], *, at: datetime
    ) -> None:
        """What re-reading the kept files has proved, for the seal `digest`, is on record."""
        with self._transaction() as db:
            db.executemany(
                "INSERT INTO evidence(lease_id, digest, record, at) VALUES (?,?,?,?)",
                [(lease_id, digest, e.model_dump_json(), at.isoformat()) for e in evidence],
            )
            self._note(db, lease_id, Event.VERIFIED, {"digest": digest}, at)

    def evidence(self, lease_id: LeaseId, digest: str) -> list[Evidence]:
        """The newest evidence for that seal, one record a file."""
        filed = self._read(
            lambda row: Evidence.model_validate_json(row["record"]),
            "SELECT record FROM evidence WHERE lease_id=? AND digest=? ORDER BY seq",
            lease_id,
            digest,
        )
        return list({evidence.name: evidence for evidence in filed}.values())

    # Teardown

    def file_permit(self, permit: TeardownPermit, *, at: datetime) -> Lease:
        """The permit's ground is filed and its lease is `terminating`, in one transaction."""
        match permit.ground:
            case Verified(seal_digest=digest):
                detail: dict[str, object] = {"seal": digest}
            case NeverUsed():
                detail = {}
            case Waived(signed_by=who, loss_digest=digest):
                detail = {"signed_by": who, "loss": digest}
        with self._transaction() as db:
            db.execute(
                "INSERT INTO permits(lease_id, box_id, ground, detail, at) VALUES (?,?,?,?,?)",
                (
                    permit.lease_id,
                    permit.box_id,
                    permit.ground.name,
                    json.dumps(detail),
                    at.isoformat(),
                ),
            )
            db.execute(
                "UPDATE leases SET state=? WHERE id=?", (LeaseState.TERMINATING, permit.lease_id)
            )
            self._note(
                db, permit.lease_id, Event.PERMITTED, {"ground": permit.ground.name, **detail}, at
            )
        return self.lease(permit.lease_id)

    def permitted(self, lease_id: LeaseId) -> tuple[str, datetime]:
        """The ground and the time of the newest permit filed for that lease."""
        newest = self._read(
            lambda row: (row["ground"], _moment(row["at"])),
            "SELECT ground, at FROM permits WHERE lease_id=? ORDER BY seq DESC LIMIT 1",
            lease_id,
        )
        return newest[0]

    def file_receipt(self, receipt: Receipt, *, at: datetime) -> Lease:
        """The proof of the end is filed and the lease is `gone`, in one transaction."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO receipts(lease_id, record, at) VALUES (?,?,?)",
                (receipt.lease_id, receipt.model_dump_json(), at.isoformat()),
            )
            db.execute(
                "UPDATE leases SET state=?, ended_at=? WHERE id=?",
                (LeaseState.GONE, receipt.second_absent_at.isoformat(), receipt.lease_id),
            )
            self._note(db, receipt.lease_id, Event.RECEIPT, {"ground": receipt.ground}, at)
        return self.lease(receipt.lease_id)

    def receipt(self, lease_id: LeaseId) -> Receipt | None:
        """The receipt of that lease, when it has ended by a teardown."""
        filed = self._read(
            lambda row: Receipt.model_validate_json(row["record"]),
            "SELECT record FROM receipts WHERE lease_id=?",
            lease_id,
        )
        return filed[0] if filed else None

    # Smoke tests

    def file_smoke(self, smoke_id: str, record: str, *, at: datetime) -> None:
        """A smoke test's outcome is on record."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO smokes(id, record, at) VALUES (?,?,?)",
                (smoke_id, record, at.isoformat()),
            )

    def smoke(self, smoke_id: str) -> str | None:
        """The outcome of that smoke test, if there was one."""
        filed = self._read(_record, "SELECT record FROM smokes WHERE id=?", smoke_id)
        return filed[0] if filed else None

    # Holds

    @contextmanager
    def hold(self, lease_id: LeaseId, purpose: str, *, at: datetime) -> Iterator[None]:
        """Nobody else acts on this lease until the block is left.

        A hold of a process of this computer ends with that process, however it died.

        Raises:
            LeaseHeld: another process is acting on it now.
        """
        me = this_process()
        with self._transaction() as db:
            row = db.execute("SELECT * FROM holds WHERE lease_id=?", (lease_id,)).fetchone()
            if row is not None and _still_held(row, at):
                raise LeaseHeld(
                    f"{row['purpose']} is under way on {lease_id} (process {row['pid']})",
                    remedy=f"wait for it, and look with `gpu-tenant monitor {lease_id}`",
                )
            db.execute(
                "INSERT OR REPLACE INTO holds(lease_id, purpose, host, pid, started, expires_at)"
                " VALUES (?,?,?,?,?,?)",
                (
                    lease_id,
                    purpose,
                    me.host,
                    me.pid,
                    me.started,
                    (at + timedelta(seconds=_HOLD_S)).isoformat(),
                ),
            )
        try:
            yield
        finally:
            with self._transaction() as db:
                db.execute(
                    "DELETE FROM holds WHERE lease_id=? AND pid=? AND host=?",
                    (lease_id, me.pid, me.host),
                )


def _still_held(row: sqlite3.Row, at: datetime) -> bool:
    holder = Holder(host=row["host"], pid=row["pid"], started=row["started"])
    alive = holder.alive()
    if alive is None:
        return datetime.fromisoformat(row["expires_at"]) > at
    return alive


def _lease(row: sqlite3.Row) -> Lease:
    return Lease(
        id=LeaseId(row["id"]),
        provider=row["provider"],
        state=LeaseState(row["state"]),
        terms=Terms.model_validate_json(row["terms"]),
        box_id=None if row["box_id"] is None else BoxId(row["box_id"]),
        address=None if row["address"] is None else _ADDRESS.validate_json(row["address"]),
        price_usd_h=None if row["price_usd_h"] is None else Decimal(row["price_usd_h"]),
        created_at=_moment(row["created_at"]),
        active_at=row["active_at"] and _moment(row["active_at"]),
        ended_at=row["ended_at"] and _moment(row["ended_at"]),
        touched_at=row["touched_at"] and _moment(row["touched_at"]),
        kept_in=row["kept_in"],
    )


def _record(row: sqlite3.Row) -> str:
    record: str = row["record"]
    return record


def _statements(script: str) -> Iterator[str]:
    """The statements of `script`; `executescript` would commit the transaction it runs in."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
