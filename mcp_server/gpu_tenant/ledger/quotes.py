"""The quotes that were given: what may be rented, until when, at no more than which price."""

from gpu_tenant.ledger.database import Database, record
from gpu_tenant.market import Quote


class Quotes(Database):
    """The part of the ledger that remembers quotes."""

    def file_quotes(self, quotes: list[Quote]) -> None:
        """The quotes are on record, and may be rented until they expire."""
        with self._transaction() as db:
            db.executemany(
                "INSERT INTO quotes(id, record, expires_at) VALUES (?,?,?)",
                [(q.id, q.model_dump_json(), q.expires_at.isoformat()) for q in quotes],
            )

    def quote(self, quote_id: str) -> Quote | None:
        """The quote of that id, also one that has expired."""
        filed = self._read(record, "SELECT record FROM quotes WHERE id=?", quote_id)
        return Quote.model_validate_json(filed[0]) if filed else None
