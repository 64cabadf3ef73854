"""Records for each lease at which address its box was requested, with which key, and for which account."""

from datetime import datetime

from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.ports import Asking
from gpu_tenant.ledger.database import Database, Row


class Askings(Database):
    """The part of the ledger that remembers under which account each box was rented."""

    def note_asking(self, lease_id: LeaseId, asking: Asking, *, at: datetime) -> None:
        """Record at which address, with which key and for which account the lease's box was requested."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO askings(lease_id, place, key, account, at) VALUES (?,?,?,?,?)",
                (lease_id, asking.where, asking.key, asking.account, at.isoformat()),
            )

    def askings_of(self, lease_id: str) -> list[Asking]:
        """Return every way in which that lease's box was ever requested, oldest first."""
        return self._read(
            _asking_of, "SELECT * FROM askings WHERE lease_id=? ORDER BY seq", lease_id
        )

    def askings_at(self, provider: str) -> list[tuple[str, Asking]]:
        """Return every way in which a box of this provider was requested, with the lease's id, newest first."""
        return self._read(
            lambda row: (str(row["lease_id"]), _asking_of(row)),
            "SELECT askings.* FROM askings JOIN leases ON leases.id = lease_id WHERE provider=?"
            " ORDER BY askings.seq DESC",
            provider,
        )


def _asking_of(row: Row) -> Asking:
    return Asking(where=row["place"], key=row["key"], account=row["account"])
