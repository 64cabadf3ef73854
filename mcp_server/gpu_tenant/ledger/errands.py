"""The errands: what each call of `run` asked for, and what is recorded of it beside its lease's timeline."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.ids import new_id
from gpu_tenant.domain.model import Lease
from gpu_tenant.ledger.database import Row, moment
from gpu_tenant.ledger.leases import LeaseTable

if TYPE_CHECKING:
    from gpu_tenant.domain.errand import ErrandEvent, ErrandLine, ErrandRequest

_OPEN = "NOT EXISTS (SELECT 1 FROM errand_events WHERE errand_id=errands.id AND kind='shown')"


class ErrandTable(LeaseTable):
    """The part of the ledger that knows errands. Its rows are only ever added."""

    def begin_errand(self, errand: ErrandRequest, *, at: datetime) -> str:
        """Record the errand, and return its id. An equal errand has the same id until its end was shown."""
        from gpu_tenant.domain.errand import ERRAND

        with self._transaction() as db:
            known = db.execute(
                f"SELECT id FROM errands WHERE digest=? AND {_OPEN} ORDER BY rowid DESC LIMIT 1",  # noqa: S608 - it is above
                (errand.digest,),
            ).fetchone()
            if known is not None:
                return str(known["id"])
            name = new_id(ERRAND, {row["id"] for row in db.execute("SELECT id FROM errands")})
            db.execute(
                "INSERT INTO errands(id, digest, record, at) VALUES (?,?,?,?)",
                (name, errand.digest, errand.model_dump_json(exclude_unset=True), at.isoformat()),
            )
        return name

    def errand(self, errand_id: str) -> ErrandRequest:
        """Return the errand with that id.

        Raises:
            BadRequest: there is none.
        """
        found = self._read(_errand, "SELECT record FROM errands WHERE id=?", errand_id)
        if not found:
            raise BadRequest(
                f"no run {errand_id!r} is in the ledger",
                remedy=f"{Command('run')} begins one, and goes on with one that is open",
            )
        return found[0]

    def open_errands(self) -> list[str]:
        """Return the ids of the errands whose end was not shown to anybody yet, oldest first."""
        return self._read(
            lambda row: str(row["id"]),
            f"SELECT id FROM errands WHERE {_OPEN} ORDER BY rowid",  # noqa: S608 - it is above
        )

    def note_errand(self, errand_id: str, event: ErrandEvent, *, at: datetime) -> None:
        """Add a line to the errand's record. The end of an errand is recorded only once."""
        from gpu_tenant.domain.errand import EndShown

        with self._transaction() as db:
            if (
                isinstance(event, EndShown)
                and db.execute(
                    "SELECT 1 FROM errand_events WHERE errand_id=? AND kind='shown'", (errand_id,)
                ).fetchone()
            ):
                return
            db.execute(
                "INSERT INTO errand_events(errand_id, kind, detail, at) VALUES (?,?,?,?)",
                (errand_id, event.kind, event.model_dump_json(exclude_unset=True), at.isoformat()),
            )

    def errand_events(self, errand_id: str) -> list[ErrandLine]:
        """Return what is recorded of the errand, oldest first."""
        from gpu_tenant.domain.errand import ErrandLine, errand_event

        rows = self._read(
            lambda row: (moment(row["at"]), errand_event(row["kind"], json.loads(row["detail"]))),
            "SELECT at, kind, detail FROM errand_events WHERE errand_id=? ORDER BY seq",
            errand_id,
        )
        return [ErrandLine(at, event) for at, event in rows if event is not None]

    def leases_of_errand(self, errand_id: str) -> list[Lease]:
        """Return the leases that were made for that errand, oldest first."""
        of_it = "SELECT id FROM leases WHERE errand=? ORDER BY created_at, rowid"
        return [self.lease(name) for name in self._read(lambda row: row["id"], of_it, errand_id)]

    def errand_of(self, lease_id: str) -> ErrandRequest | None:
        """Return the errand that the lease was made for. None if it was made for none."""
        names = self._read(
            lambda row: row["errand"],
            "SELECT errand FROM leases WHERE id=? AND errand IS NOT NULL",
            lease_id,
        )
        return self.errand(str(names[0])) if names else None

    def made_for(self, lease_id: str) -> tuple[str, ...]:
        """Return the ids of the errand and of the wish that the lease was made for, if any."""
        names = self._read(
            lambda row: (row["errand"], row["wish"]),
            "SELECT errand, wish FROM leases WHERE id=?",
            lease_id,
        )
        return tuple(str(name) for name in names[0] if name is not None) if names else ()

    def open_errand_of(self, lease_id: str) -> str | None:
        """Return the id of the errand that the lease was made for. None if there is none, or if its end was shown."""
        names = self._read(
            lambda row: str(row["id"]),
            f"SELECT id FROM errands WHERE id=(SELECT errand FROM leases WHERE id=?) AND {_OPEN}",  # noqa: S608 - it is above
            lease_id,
        )
        return names[0] if names else None

    def leases_with_tree(self, directory: str) -> list[Lease]:
        """Return the leases to which that work tree was pushed, or whose errand has it, oldest first."""
        names = self._read(
            lambda row: str(row["id"]),
            "SELECT id FROM leases WHERE errand IN"
            " (SELECT id FROM errands WHERE json_extract(record, '$.directory') = ?1)"
            " OR EXISTS (SELECT 1 FROM events WHERE lease_id = leases.id AND kind = ?2"
            " AND json_extract(detail, '$.tree.directory') = ?1) ORDER BY created_at, rowid",
            directory,
            timeline.Pushed.kind,
        )
        return [self.lease(name) for name in names]


def _errand(row: Row) -> ErrandRequest:
    from gpu_tenant.domain.errand import ErrandRequest

    return ErrandRequest.model_validate_json(row["record"])
