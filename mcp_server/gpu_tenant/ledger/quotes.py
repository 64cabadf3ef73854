"""The quotes that were given: what may be rented, until when, and at what maximum price."""

from datetime import datetime, timedelta

from gpu_tenant.domain.offers import Quote
from gpu_tenant.ledger.database import Database, record

_KEPT = timedelta(days=7)
"""Expired quotes are kept this long, for later questions. A quote that was rented is also recorded in its lease."""


class Quotes(Database):
    """The part of the ledger that remembers quotes."""

    def file_quotes(self, quotes: list[Quote], *, at: datetime) -> None:
        """Record quotes, which may be rented until they expire. Old quotes are removed."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM quotes WHERE expires_at < ? AND id NOT IN"
                " (SELECT json_extract(quote, '$.id') FROM leases WHERE quote IS NOT NULL)",
                ((at - _KEPT).isoformat(),),
            )
            db.executemany(
                "INSERT INTO quotes(id, record, expires_at) VALUES (?,?,?)",
                [(q.id, q.model_dump_json(), q.expires_at.isoformat()) for q in quotes],
            )

    def quote(self, quote_id: str) -> Quote | None:
        """Return the quote with that id, even if it has expired. None if there is none."""
        filed = self._read(record, "SELECT record FROM quotes WHERE id=?", quote_id)
        return Quote.model_validate_json(filed[0]) if filed else None

    def valid_quotes(self, at: datetime) -> list[Quote]:
        """Return the quotes that have not expired, the newest list first, each list in its order."""
        filed = self._read(
            record,
            "SELECT record FROM quotes WHERE expires_at > ? ORDER BY expires_at DESC, rowid",
            at.isoformat(),
        )
        return [Quote.model_validate_json(one) for one in filed]
