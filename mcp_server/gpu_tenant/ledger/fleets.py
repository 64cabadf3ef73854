"""The fleets: which leases belong to one request, so that a repeated request rents no box twice."""

from datetime import datetime

from gpu_tenant.domain.fleet_budget import known_again
from gpu_tenant.ledger.leases import LeaseTable

_HAD = "(state IN ('intended','active','terminating') OR ready_at IS NOT NULL OR touched_at IS NOT NULL)"
_LIVE = "state IN ('intended','active','terminating')"


class Fleets(LeaseTable):
    """The part of the ledger that knows which request made which fleet."""

    def fleet_for(self, request: str, *, at: datetime) -> str:
        """Return the name of the request's newest fleet. If there is none, begin a fleet under a new name.

        `request` is in the form that `known_again` gives. A fleet whose boxes have all ended is over. The same
        request then makes another fleet.
        """
        with self._transaction() as db:
            # Requests are compared by meaning, because an earlier version wrote them in another form.
            fleets = db.execute("SELECT id, request FROM fleets ORDER BY seq DESC")
            known = next((row for row in fleets if known_again(row["request"]) == request), None)
            if known is not None:
                had, live = db.execute(
                    f"SELECT coalesce(sum({_HAD}), 0), coalesce(sum({_LIVE}), 0) FROM leases WHERE fleet=?",  # noqa: S608 - both are above
                    (known["id"],),
                ).fetchone()
                if live or not had:
                    name: str = known["id"]
                    return name
            count = db.execute("SELECT count(*) FROM fleets").fetchone()[0]
            name = f"fl-{count + 1}"
            db.execute(
                "INSERT INTO fleets(id, request, at) VALUES (?,?,?)",
                (name, request, at.isoformat()),
            )
            return name

    def fleets(self) -> list[str]:
        """Return every fleet's name, oldest first."""
        return self._read(lambda row: str(row["id"]), "SELECT id FROM fleets ORDER BY seq")
