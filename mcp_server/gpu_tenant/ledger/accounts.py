"""With which key, of which account and where each lease's box was asked for."""

from datetime import datetime

from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.ports import Asking
from gpu_tenant.ledger.database import Database, Row


class Askings(Database):
    """The part of the ledger that remembers whose account a box was rented under."""

    def note_asking(self, lease_id: LeaseId, asking: Asking, *, at: datetime) -> None:
        """The lease's box is that account's, asked for so; what was on record stays."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO askings(lease_id, place, key, account, at) VALUES (?,?,?,?,?)",
                (lease_id, asking.where, asking.key, asking.account, at.isoformat()),
            )

    def askings_of(self, lease_id: str) -> list[Asking]:
        """How that lease's box was ever asked for, oldest first."""
        return self._read(_asking, "SELECT * FROM askings WHERE lease_id=? ORDER BY seq", lease_id)

    def askings_at(self, provider: str) -> list[tuple[str, Asking]]:
        """The same of every lease of a provider, with its id, newest first."""
        return self._read(
            lambda row: (str(row["lease_id"]), _asking(row)),
            "SELECT askings.* FROM askings JOIN leases ON leases.id = lease_id WHERE provider=?"
            " ORDER BY askings.seq DESC",
            provider,
        )


def _asking(row: Row) -> Asking:
    return Asking(where=row["place"], key=row["key"], account=row["account"])
