"""Exclusive work on one lease, between all processes that share the ledger."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from gpu_tenant.errors import LeaseHeld
from gpu_tenant.ledger.database import Database, Row
from gpu_tenant.ledger.holders import Holder, this_process

_HOLD_S = 120
"""A hold whose process cannot be asked about (another computer's) is void after this long."""


class Holds(Database):
    """The part of the ledger that says who is acting on a lease right now."""

    @contextmanager
    def hold(self, lease_id: str, purpose: str, *, at: datetime) -> Iterator[None]:
        """Nobody else acts on this lease, or on this fleet, until the block is left.

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


def _still_held(row: Row, at: datetime) -> bool:
    holder = Holder(host=row["host"], pid=row["pid"], started=row["started"])
    alive = holder.alive()
    if alive is None:
        return datetime.fromisoformat(row["expires_at"]) > at
    return alive
