"""The hosts: what went wrong with each, and which of these reports a person has withdrawn."""

from datetime import datetime

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, HostLeftOut
from gpu_tenant.domain.host_reports import (
    HELD,
    HostRecords,
    HostReport,
    Misdeed,
    host_name,
    records_of,
)
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.offers import Quote
from gpu_tenant.ledger.database import Row
from gpu_tenant.ledger.signatures import Signatures

# If a lost lease has come back, its host did not vanish. So that report does not count.
_COUNTS = (
    " FROM host_reports r WHERE at > ?1"
    " AND NOT EXISTS (SELECT 1 FROM hosts_forgotten f WHERE f.provider=r.provider AND f.host=r.host AND f.at >= r.at)"
    " AND NOT (what='vanished' AND 'lost' <> (SELECT state FROM leases WHERE id=r.lease_id))"
)


class HostTable(Signatures):
    """The part of the ledger that records what went wrong with rented machines."""

    def report_host(
        self,
        lease_id: LeaseId,
        what: Misdeed,
        words: str,
        *,
        provider: str,
        host: str,
        at: datetime,
    ) -> None:
        """Record what went wrong with the host of that lease's box.

        If the same is reported again for the same lease, it counts once.
        """
        said = HostReport(
            provider=provider, host=host, what=what, words=words, lease_id=lease_id, at=at
        )
        with self._transaction() as db:
            known = db.execute(
                f"SELECT 1{_COUNTS} AND provider=?2 AND host=?3 AND what=?4 AND lease_id=?5",
                (_since(at), provider, said.host, what, lease_id),
            ).fetchone()
            if known is None:
                db.execute(
                    "INSERT INTO host_reports(provider, host, what, words, lease_id, at) VALUES (?,?,?,?,?,?)",
                    (provider, said.host, what, said.words, lease_id, at.isoformat()),
                )

    def host_reports(self, *, at: datetime) -> list[HostReport]:
        """Return everything that counts against a host at that time, oldest first."""
        return self._read(_report, f"SELECT *{_COUNTS} ORDER BY seq", _since(at))

    def host_records(self, *, at: datetime) -> HostRecords:
        """Return what counts against each host at that time, by the host's name."""
        return records_of(self.host_reports(at=at))

    def forget_host(self, name: str, *, at: datetime) -> None:
        """Stop counting what was reported against the host until now. The reports stay on record.

        Raises:
            BadRequest: nothing counts against a host of that name.
        """
        record = self.host_records(at=at).get(name)
        if record is None:
            raise BadRequest(
                f"nothing is on record against a host {name!r}",
                remedy=f"{Command('hosts')} lists the hosts by name",
            )
        last = record.reports[-1]
        with self._transaction() as db:
            db.execute(
                "INSERT INTO hosts_forgotten(provider, host, at) VALUES (?,?,?)",
                (last.provider, last.host, at.isoformat()),
            )

    def must_not_leave_out(self, quote: Quote, *, at: datetime) -> None:
        """Require that the quote's host may be rented.

        Raises:
            HostLeftOut: a report against the host still counts, and nobody asked for this host by name.
        """
        offer = quote.offer
        if offer.host is None or quote.wish.host is not None:
            return
        record = self.host_records(at=at).get(host_name(offer.provider, offer.host))
        if record is not None and record.left_out_until is not None:
            raise HostLeftOut(
                f"{quote.id} is on a {record.words}",
                remedy=f"{Command('offers')} shows other offers; "
                f"{Command('hosts', forget=record.reports[-1].name)} forgets what the host did",
            )


def _since(at: datetime) -> str:
    return (at - HELD).isoformat()


def _report(row: Row) -> HostReport:
    return HostReport(
        provider=row["provider"],
        host=row["host"],
        what=row["what"],
        words=row["words"],
        lease_id=row["lease_id"],
        at=row["at"],
    )
