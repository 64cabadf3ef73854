"""The wishes: what somebody searched for, and which of these wishes wait for a box."""

import json
from datetime import datetime, timedelta

from pydantic import TypeAdapter

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, Refused
from gpu_tenant.domain.ids import new_id
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.offers import Wish
from gpu_tenant.domain.standing_wish import WISH, Outcome, ProviderRest, StandingTerms, StandingWish
from gpu_tenant.ledger.database import Row
from gpu_tenant.ledger.leases import LeaseTable

_KEPT = timedelta(days=7)
_RESTS: TypeAdapter[dict[str, ProviderRest]] = TypeAdapter(dict[str, ProviderRest])
_STANDS = "until IS NOT NULL AND ended_at IS NULL"


class WishTable(LeaseTable):
    """The part of the ledger that remembers what somebody waits for."""

    def file_wish(self, wish: Wish, provider: str | None, *, at: datetime) -> str:
        """Record the wish, and return its id. Nobody waits for it yet. Old wishes are removed.

        The same search keeps its id, so that a search which is repeated every minute does not fill the ledger.
        """
        said = wish.model_dump_json()
        with self._transaction() as db:
            known = db.execute(
                "SELECT id FROM wishes WHERE wish=? AND provider IS ? AND until IS NULL",
                (said, provider),
            ).fetchone()
            if known is not None:
                db.execute("UPDATE wishes SET filed_at=? WHERE id=?", (at.isoformat(), known["id"]))
                return str(known["id"])
            db.execute(
                "DELETE FROM wishes WHERE until IS NULL AND filed_at < ?",
                ((at - _KEPT).isoformat(),),
            )
            taken = {row["id"] for row in db.execute("SELECT id FROM wishes")}
            wish_id = new_id(WISH, taken)
            db.execute(
                "INSERT INTO wishes(id, wish, provider, filed_at) VALUES (?,?,?,?)",
                (wish_id, said, provider, at.isoformat()),
            )
        return wish_id

    def wish(self, wish_id: str) -> StandingWish:
        """Return the wish with that id, as it is now.

        Raises:
            BadRequest: there is no such wish.
        """
        found = self._read(_wish, "SELECT * FROM wishes WHERE id=?", wish_id)
        if not found:
            raise BadRequest(
                f"no wish {wish_id!r} is on record",
                remedy=f"{Command('leases')} lists the open wishes, and {Command('offers')} makes one",
            )
        return found[0]

    def standing_wishes(self) -> list[StandingWish]:
        """Return the wishes for which a box should be rented, oldest first."""
        return self._read(_wish, f"SELECT * FROM wishes WHERE {_STANDS} ORDER BY asked_at, id")  # noqa: S608 - it is above

    def let_stand(
        self, wish_id: str, order: StandingTerms, *, until: datetime, at: datetime
    ) -> StandingWish:
        """Make the wish a standing wish until `until`. The same order again changes nothing.

        Raises:
            BadRequest: it is already a standing wish on other terms.
        """
        with self._transaction() as db:
            db.execute(
                "UPDATE wishes SET ordered=?, asked_at=?, until=? WHERE id=? AND until IS NULL",
                (order.model_dump_json(), at.isoformat(), until.isoformat(), wish_id),
            )
        standing = self.wish(wish_id)
        known = standing.order
        if known is not None and _same(known) != _same(order):
            raise BadRequest(
                f"{wish_id} was asked for on other terms",
                remedy=f"{Command('call-off', wish_id)}, then {Command('offers')} for a new one",
            )
        return standing

    def note_look(
        self, wish_id: str, seen: str, rests: dict[str, ProviderRest], *, at: datetime
    ) -> StandingWish:
        """Record that the market was just asked for that wish."""
        with self._transaction() as db:
            db.execute(
                f"UPDATE wishes SET looked_at=?, seen=?, rests=? WHERE id=? AND {_STANDS}",  # noqa: S608 - it is above
                (at.isoformat(), seen, _RESTS.dump_json(rests).decode(), wish_id),
            )
        return self.wish(wish_id)

    def end_wish(self, wish_id: str, outcome: Outcome, seen: str, *, at: datetime) -> bool:
        """End the wish, so that no box is rented for it any more. Return whether this call has ended it."""
        with self._transaction() as db:
            done = db.execute(
                f"UPDATE wishes SET ended_at=?, outcome=?, seen=? WHERE id=? AND {_STANDS}",  # noqa: S608 - it is above
                (at.isoformat(), outcome, seen, wish_id),
            )
            return done.rowcount == 1

    def leases_of_wish(self, wish_id: str) -> list[Lease]:
        """Return the leases that were made for that wish, oldest first."""
        of_it = "SELECT id FROM leases WHERE wish=? ORDER BY created_at, id"
        return [self.lease(name) for name in self._read(lambda row: row["id"], of_it, wish_id)]

    def must_not_stand(self, wish_id: str | None) -> None:
        """Require that nobody waits for that wish, so that its quotes may be rented one by one.

        Raises:
            Refused: somebody waits for it, so another box would be a second one.
        """
        if wish_id is None:
            return
        found = self._read(_wish, "SELECT * FROM wishes WHERE id=?", wish_id)
        if found and found[0].stands:
            raise Refused(
                f"{wish_id} waits for this already, and another box would be a second one",
                remedy=f"{Command('leases')} shows it; {Command('call-off', wish_id)}, then the same "
                "command again",
            )


def _same(order: StandingTerms) -> str:
    """Return what must be equal in two orders: everything but the quotes that are tried first."""
    said = order.asked.model_dump(mode="json") | {
        "cap": f"{order.cap_usd_h.normalize():f}",
        "unguarded": order.unguarded,
        "smoke": order.smoke,
    }
    return json.dumps(said, sort_keys=True)


def _wish(row: Row) -> StandingWish:
    return StandingWish(
        id=row["id"],
        wish=Wish.model_validate_json(row["wish"]),
        provider=row["provider"],
        filed_at=row["filed_at"],
        order=StandingTerms.model_validate_json(row["ordered"]) if row["ordered"] else None,
        asked_at=row["asked_at"],
        until=row["until"],
        looked_at=row["looked_at"],
        seen=row["seen"],
        rests=_RESTS.validate_json(row["rests"]),
        ended_at=row["ended_at"],
        outcome=row["outcome"],
    )
