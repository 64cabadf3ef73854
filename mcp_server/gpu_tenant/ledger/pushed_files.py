"""What was sent to each box, and from which moment on the files on the box must be accounted for.

This is kept here, because jobs can rewrite the records on the box.
"""

import hmac
from collections.abc import Iterable
from hashlib import sha256

from gpu_tenant.domain.model import LeaseId
from gpu_tenant.ledger.events import Timeline


class Sent(Timeline):
    """The part of the ledger that a seal is checked against."""

    def seal_key(self, lease_id: LeaseId) -> str:
        """Return the key for the hashes that the box remembers. Each request carries it; the box never stores it."""
        drawn = self._read(lambda row: str(row["key"]), "SELECT key FROM seal_key")[0]
        return hmac.new(drawn.encode(), lease_id.encode(), sha256).hexdigest()

    def send(self, lease_id: LeaseId, files: Iterable[tuple[str, int, str]]) -> None:
        """Record which files are about to go to the lease's work directory, by name, size and hash."""
        with self._transaction() as db:
            db.executemany(
                "INSERT INTO sent(lease_id, name, size_bytes, sha256) VALUES (?,?,?,?)"
                " ON CONFLICT DO NOTHING",
                [(lease_id, name, size_bytes, digest) for name, size_bytes, digest in files],
            )

    def sent_versions(self, lease_id: LeaseId) -> dict[str, list[tuple[int, str]]]:
        """Return every version of every file that was ever sent to the box: by its name, its sizes and hashes."""
        found: dict[str, list[tuple[int, str]]] = {}
        for name, version in self._read(
            lambda row: (str(row["name"]), (int(row["size_bytes"]), str(row["sha256"]))),
            "SELECT name, size_bytes, sha256 FROM sent WHERE lease_id=?",
            lease_id,
        ):
            found.setdefault(name, []).append(version)
        return found

    def sent_before(self, lease_id: LeaseId) -> bool:
        """Whether files were sent to the box before the ledger recorded them. If so, only the box can say which."""
        known = self._read(
            lambda row: str(row["lease_id"]),
            "SELECT lease_id FROM sent_before WHERE lease_id=?",
            lease_id,
        )
        return bool(known)

    def know_scripts(self, hashes: Iterable[str]) -> None:
        """Record that boxes may have scripts with those hashes, so that a newer program recognizes its older ones."""
        new = set(hashes) - set(self.scripts())
        if new:
            with self._transaction() as db:
                db.executemany(
                    "INSERT INTO scripts(sha256) VALUES (?) ON CONFLICT DO NOTHING",
                    [(digest,) for digest in new],
                )

    def scripts(self) -> list[str]:
        """Return the hash of every script that a program using this ledger ever put on a box."""
        return self._read(lambda row: str(row["sha256"]), "SELECT sha256 FROM scripts")

    def counts_since(self, lease_id: LeaseId, since_ns: int | None) -> None:
        """Record that the box counts what is written from `since_ns` on, by its own clock."""
        if since_ns is None or since_ns in self._sinces(lease_id):
            return
        with self._transaction() as db:
            db.execute("INSERT INTO since(lease_id, since_ns) VALUES (?,?)", (lease_id, since_ns))

    def since_ns(self, lease_id: LeaseId) -> int | None:
        """Return the earliest moment that `counts_since` recorded, in ns by the box's clock. None if there is none."""
        return min(self._sinces(lease_id), default=None)

    def _sinces(self, lease_id: LeaseId) -> list[int]:
        return self._read(
            lambda row: int(row["since_ns"]),
            "SELECT since_ns FROM since WHERE lease_id=?",
            lease_id,
        )
