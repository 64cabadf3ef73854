"""Seals, evidence, permits and receipts: the proofs for a teardown."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from gpu_tenant.domain import timeline
from gpu_tenant.domain.billing import counted_usd, newest_bill
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import StillWanted
from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.permit import NeverUsed, TeardownPermit, Verified, Waived
from gpu_tenant.domain.signature import Signature
from gpu_tenant.domain.timeline import WANTED
from gpu_tenant.ledger.database import Connection, Row, moment
from gpu_tenant.ledger.events import end_alarms
from gpu_tenant.ledger.leases import LeaseTable
from gpu_tenant.ledger.signatures import SIGNED, signature_of_row, use

if TYPE_CHECKING:
    from gpu_tenant.domain.evidence import Evidence, Verdict
    from gpu_tenant.domain.receipt import Receipt
    from gpu_tenant.domain.seal import Manifest, Unclaimed

_AT_ONCE = 10_000
"""How many rows are read at once. This limits how much text is in memory."""
_OBJECT: TypeAdapter[dict[str, object]] = TypeAdapter(dict[str, object])


class ProofTable(LeaseTable):
    """The part of the ledger that holds proofs."""

    def file_seal(self, lease_id: LeaseId, manifest: Manifest, *, at: datetime) -> None:
        """Record the manifest that a collect works from."""
        with self._transaction() as db:
            self._must_be_mine(db, lease_id)
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
                timeline.Sealed(digest=manifest.digest, files=len(manifest.entries)),
                at,
            )

    def seal(self, lease_id: LeaseId, *, digest: str | None = None) -> Manifest | None:
        """Return the newest recorded seal of that lease, or the one with that digest. None if there is none."""
        from gpu_tenant.domain.seal import Manifest

        newest = self._read(
            lambda row: Manifest.model_validate_json(row["manifest"]),
            "SELECT manifest FROM seals WHERE lease_id=?1 AND (?2 IS NULL OR digest=?2)"
            " ORDER BY seq DESC LIMIT 1",
            lease_id,
            digest,
        )
        return newest[0] if newest else None

    def unclaimed(self, lease_id: LeaseId) -> Unclaimed | None:
        """Return what nobody had claimed at the newest seal of that lease. None if there was nothing, or no seal.

        Only this part of the seal is read, because a seal may be long, and every look at a lease asks for this.
        """
        newest = self._read(
            lambda row: str(row["unclaimed"]),
            "SELECT json_extract(manifest, '$.unclaimed') AS unclaimed FROM seals WHERE seq ="
            " (SELECT max(seq) FROM seals WHERE lease_id=?)"
            " AND json_extract(manifest, '$.unclaimed.count') > 0",
            lease_id,
        )
        if not newest:
            return None
        from gpu_tenant.domain.seal import Unclaimed

        return Unclaimed.model_validate_json(newest[0])

    def bring_bytes(self, lease: Lease) -> int:
        """Return how much of what nobody had claimed the newest seal lists at most. Without a seal, by the terms."""
        newest = self._read(
            lambda row: row["bring_bytes"],
            "SELECT json_extract(manifest, '$.bring_bytes') AS bring_bytes FROM seals WHERE seq ="
            " (SELECT max(seq) FROM seals WHERE lease_id=?)",
            lease.id,
        )
        told = newest[0] if newest else None
        return lease.terms.unasked_bytes if told is None else int(told)

    def file_evidence(
        self, lease_id: LeaseId, digest: str, evidence: Iterable[Evidence], *, at: datetime
    ) -> None:
        """Record what re-reading the kept files has proved for the seal `digest`."""
        with self._transaction() as db:
            db.executemany(
                "INSERT INTO evidence(lease_id, digest, record, at) VALUES (?,?,?,?)",
                [(lease_id, digest, e.model_dump_json(), at.isoformat()) for e in evidence],
            )
            self._note(db, lease_id, timeline.Reread(digest=digest), at)

    def evidence(self, lease_id: LeaseId, digest: str) -> list[Evidence]:
        """Return the newest evidence for that seal, one record for each file."""
        return [evidence for _, evidence in self.evidence_filed(lease_id, digest)]

    def evidence_filed(self, lease_id: LeaseId, digest: str) -> list[tuple[datetime, Evidence]]:
        """Return the newest evidence for that seal, one record for each file, with the time of the record."""
        from gpu_tenant.domain.evidence import Evidence

        # Most files have one of a few verdicts, so equal verdicts share one record in memory.
        verdicts: dict[str, Verdict] = {}
        newest: dict[str, tuple[datetime, Evidence]] = {}

        def read(row: Row) -> int:
            record = _OBJECT.validate_json(row["record"])
            words = str(record.get("verdict"))
            if words in verdicts:
                record["verdict"] = verdicts[words]
            evidence = Evidence.model_validate(record)
            verdicts[words] = evidence.verdict
            newest[evidence.name] = moment(row["at"]), evidence
            return int(row["seq"])

        rows = [0]
        while rows:
            rows = self._read(
                read,
                "SELECT seq, record, at FROM evidence WHERE lease_id=? AND digest=? AND seq>?"
                " ORDER BY seq LIMIT ?",
                lease_id,
                digest,
                rows[-1],
                _AT_ONCE,
            )
        return list(newest.values())

    def file_permit(
        self, permit: TeardownPermit, *, at: datetime, unless_wanted_after_line: int | None = None
    ) -> Lease:
        """Record the permit's ground and make its lease `terminating`, in one transaction.

        Raises:
            StillWanted: more work came, or was announced, after the line `unless_wanted_after_line` of the ledger.
            LeaseHeld: this process's hold on the lease was broken; nothing was recorded.
        """
        match permit.ground:
            case Verified(seal_digest=digest):
                detail = {"seal": digest}
            case NeverUsed():
                detail = {}
            case Waived(signed_by=who, loss_digest=digest, signature=code):
                detail = {"signed_by": who, "loss": digest, "signature": code}
        with self._transaction() as db:
            self._must_be_mine(db, permit.lease_id)
            if unless_wanted_after_line is not None:
                self._must_be_unwanted(db, permit.lease_id, unless_wanted_after_line)
            if isinstance(permit.ground, Waived):
                self._use_waiver(db, permit.lease_id, permit.ground.signature, at)
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
                db, permit.lease_id, timeline.Permitted(ground=permit.ground.name, **detail), at
            )
        return self.lease(permit.lease_id)

    def parking(
        self,
        lease_id: LeaseId,
        *,
        how: str,
        at: datetime,
        unless_wanted_after_line: int | None = None,
    ) -> None:
        """Record that the lease's box is about to be stopped, after a check that nobody has brought new work.

        Both happen in one transaction. Without `unless_wanted_after_line`, there is no such check.

        Raises:
            StillWanted: more work came, or was announced, after the line `unless_wanted_after_line` of the ledger.
            LeaseHeld: this process's hold on the lease was broken; nothing was recorded.
        """
        with self._transaction() as db:
            self._must_be_mine(db, lease_id)
            if unless_wanted_after_line is not None:
                self._must_be_unwanted(db, lease_id, unless_wanted_after_line)
            self._note(db, lease_id, timeline.Parking(how=how), at)

    def must_be_unwanted(self, lease_id: str, since: int) -> None:
        """Require that nobody brought more work, or announced any, after the line `since` of the ledger.

        Raises:
            StillWanted: somebody did.
        """
        with self._transaction() as db:
            self._must_be_unwanted(db, lease_id, since)

    @staticmethod
    def _must_be_unwanted(db: Connection, lease_id: str, since: int) -> None:
        wanted = ", ".join("?" for _ in WANTED)
        row = db.execute(
            f"SELECT kind FROM events WHERE lease_id=? AND seq>? AND kind IN ({wanted})"  # noqa: S608 - only marks
            " ORDER BY seq DESC LIMIT 1",
            (lease_id, since, *sorted(WANTED)),
        ).fetchone()
        if row is not None:
            raise StillWanted(
                f"{lease_id} was given new work ({row['kind']}) after its end was decided; its box stays",
                remedy=f"{Command('monitor', lease_id)} shows the new work",
            )

    @staticmethod
    def _use_waiver(db: Connection, lease_id: LeaseId, code: str, at: datetime) -> None:
        """Use up the signature, unless this teardown has already begun with it and was cut short."""
        begun = db.execute(
            "SELECT 1 FROM permits WHERE lease_id=?1 AND json_extract(detail, '$.signature')=?2"
            " UNION SELECT 1 FROM events WHERE lease_id=?1 AND kind=?3"
            " AND coalesce(json_extract(detail, '$.signature'), 'waived ahead')=?2",
            (lease_id, code, timeline.WaivedAhead.kind),
        ).fetchone()
        if not begun:
            use(db, code, at=at)

    def waiver(self, lease_id: LeaseId, digest: str, *, at: datetime) -> Signature | None:
        """Return a person's signature for exactly that loss: an unused one, or the one this teardown began with."""
        begun = self._read(
            signature_of_row,
            f"{SIGNED} JOIN permits p ON p.lease_id=r.subject AND json_extract(p.detail, '$.signature')=s.code"
            " WHERE r.kind='waive' AND r.subject=? AND r.digest=?",
            lease_id,
            digest,
        )
        return begun[0] if begun else self.unused_signature("waive", lease_id, digest, at=at)

    def newest_permit(self, lease_id: LeaseId) -> tuple[str, datetime]:
        """Return the ground of the newest permit recorded for that lease, and when it was recorded."""
        newest = self._read(
            lambda row: (row["ground"], moment(row["at"])),
            "SELECT ground, at FROM permits WHERE lease_id=? ORDER BY seq DESC LIMIT 1",
            lease_id,
        )
        return newest[0]

    def file_receipt(self, receipt: Receipt, *, at: datetime) -> Lease:
        """Record the proof that the box is gone and make the lease `gone`, in one transaction."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO receipts(lease_id, record, at) VALUES (?,?,?)",
                (receipt.lease_id, receipt.model_dump_json(), at.isoformat()),
            )
            db.execute(
                "UPDATE leases SET state=?, ended_at=? WHERE id=?",
                (LeaseState.GONE, receipt.second_absent_at.isoformat(), receipt.lease_id),
            )
            self._note(db, receipt.lease_id, timeline.Receipted(ground=receipt.ground), at)
            end_alarms(db, receipt.lease_id, at=at)
        return self.lease(receipt.lease_id)

    def receipt(self, lease_id: LeaseId) -> Receipt | None:
        """Return the receipt of that lease. None if no teardown has ended it."""
        filed = self._read(
            _receipt,
            "SELECT record FROM receipts WHERE lease_id=?",
            lease_id,
        )
        return filed[0] if filed else None

    def cost_usd(self, lease: Lease, now: datetime) -> Decimal | None:
        """Return what that lease has cost, as every face shows it. None if a rate is unknown."""
        billed = newest_bill(self.events(lease.id, timeline.Billed))
        return counted_usd(lease, now, billed=billed, receipt=self.receipt(lease.id))

    def receipts_sum(self, *, free: Collection[str]) -> tuple[Decimal, int]:
        """Return the sum of the costs on all receipts, and how many receipts have an unknown cost.

        `free` are the providers that bill nothing. Their receipts do not count as unknown.
        """
        # The sum is counted in steps of `USD_STEP`, because SQLite has no exact decimals.
        told = self._read(
            lambda row: (Decimal(row["parts"] or 0) * USD_STEP, int(row["unknown"] or 0)),
            "SELECT sum(CAST(round(usd / ?) AS INTEGER)) AS parts,"
            " sum(usd IS NULL AND provider NOT IN (SELECT value FROM json_each(?))) AS unknown"
            " FROM (SELECT json_extract(record, '$.cost_usd') AS usd,"
            " json_extract(record, '$.provider') AS provider FROM receipts)",
            float(USD_STEP),
            json.dumps(sorted(free)),
        )
        return told[0]


def _receipt(row: Row) -> Receipt:
    from gpu_tenant.domain.receipt import Receipt

    return Receipt.model_validate_json(row["record"])
