"""The leases: intended, bound to a box, and ended."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from gpu_tenant.errors import BoxTaken, LeaseHeld, UnknownLease
from gpu_tenant.ledger.database import Connection, IntegrityError, Row, moment
from gpu_tenant.ledger.timeline import Event, Timeline
from gpu_tenant.market import Quote
from gpu_tenant.model import MARK_PREFIX, Address, Box, BoxId, Lease, LeaseId, LeaseState
from gpu_tenant.terms import Rate, Terms

_ADDRESS: TypeAdapter[Address] = TypeAdapter(Address)
_RATES: TypeAdapter[list[tuple[datetime, Decimal | None]]] = TypeAdapter(
    list[tuple[datetime, Decimal | None]]
)
_SELECT = (
    "SELECT *, (SELECT json_group_array(json_array(at, usd_h)) FROM"
    " (SELECT at, usd_h FROM rates WHERE lease_id=leases.id ORDER BY seq)) AS rates,"
    " (SELECT json_extract(request, '$.count') FROM fleets WHERE id=leases.fleet) AS fleet_size"
    " FROM leases"
)
_LIVE = "('intended','active','terminating')"


class Leases(Timeline):
    """The part of the ledger that says which leases there are, and where they stand."""

    def intend(
        self,
        *,
        lease_id: LeaseId,
        provider: str,
        terms: Terms,
        address: Address | None,
        price_usd_h: Decimal | None,
        at: datetime,
        quote: Quote | None = None,
        recovers: LeaseId | None = None,
        fleet: str | None = None,
    ) -> Lease:
        """The intent to have a box is written down; no box exists for it yet.

        `recovers` is the lease whose work this one goes on with, in whose fleet it is, too.

        Raises:
            LeaseHeld: another box of that fleet is asked for, and its fate is not known yet.
        """
        with self._one_at_a_time(fleet), self._transaction() as db:
            self._intend(
                db, lease_id, provider, terms, address, price_usd_h, at,
                quote=quote, mark=None, touched_at=None, recovers=recovers, fleet=fleet,
            )  # fmt: skip
        return self.lease(lease_id)

    @contextmanager
    def _one_at_a_time(self, fleet: str | None) -> Iterator[None]:
        try:
            yield
        except IntegrityError as error:
            if "leases.fleet" not in str(error):
                raise
            raise LeaseHeld(
                f"a box of {fleet} was asked for, and whether it was made is not known yet",
                remedy="`gpu-tenant leases` looks at it; then the same command again",
            ) from error

    def take_up(
        self,
        box: Box,
        *,
        lease_id: LeaseId,
        terms: Terms,
        at: datetime,
        touched_at: datetime | None,
    ) -> Lease:
        """A box that exists already is under a lease, in one step; its mark stays as it is.

        `touched_at` is for one that may have been used, by whom it may be.

        Raises:
            BoxTaken: another live lease stands on it.
        """
        with self._bound_once(box), self._transaction() as db:
            self._intend(
                db, lease_id, box.provider, terms, box.address, box.price_usd_h, at,
                quote=None, mark=box.mark, touched_at=touched_at, recovers=None, fleet=None,
            )  # fmt: skip
            self._bind(db, lease_id, box, at)
        return self.lease(lease_id)

    def _intend(
        self,
        db: Connection,
        lease_id: LeaseId,
        provider: str,
        terms: Terms,
        address: Address | None,
        price_usd_h: Decimal | None,
        at: datetime,
        *,
        quote: Quote | None,
        mark: str | None,
        touched_at: datetime | None,
        recovers: LeaseId | None,
        fleet: str | None,
    ) -> None:
        db.execute(
            "INSERT INTO leases(id, mark, provider, state, terms, address, price_usd_h, created_at,"
            " quote, touched_at, recovers, fleet) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,"
            " coalesce(?12, (SELECT fleet FROM leases WHERE id=?11)))",
            (
                lease_id,
                mark or f"{MARK_PREFIX}{self.deployment}:{lease_id}",
                provider,
                LeaseState.INTENDED,
                terms.model_dump_json(),
                address and _ADDRESS.dump_json(address).decode(),
                None if price_usd_h is None else str(price_usd_h),
                at.isoformat(),
                quote and quote.model_dump_json(),
                touched_at and touched_at.isoformat(),
                recovers,
                fleet,
            ),
        )
        self._note(db, lease_id, Event.INTENDED, terms.model_dump(mode="json"), at)

    def bind(self, lease_id: LeaseId, box: Box, *, at: datetime) -> Lease:
        """The lease stands on `box`, and its meter counts from its first binding.

        Raises:
            BoxTaken: another live lease stands on that box.
        """
        with self._bound_once(box), self._transaction() as db:
            self._bind(db, lease_id, box, at)
        return self.lease(lease_id)

    @contextmanager
    def _bound_once(self, box: Box) -> Iterator[None]:
        try:
            yield
        except IntegrityError as error:
            if "UNIQUE" not in str(error):
                raise
            other = self.lease_on(box.provider, box.id)
            raise BoxTaken(
                f"the lease {other.id if other else '?'} already stands on {box.id}",
                remedy=f"use that lease, or end it first: `gpu-tenant teardown {other.id if other else ''}`",
            ) from error

    def _bind(self, db: Connection, lease_id: LeaseId, box: Box, at: datetime) -> None:
        db.execute(
            "UPDATE leases SET state=?, box_id=?, active_at=coalesce(active_at, ?),"
            " address=coalesce(?, address), price_usd_h=coalesce(?, price_usd_h) WHERE id=?",
            (
                LeaseState.ACTIVE,
                box.id,
                at.isoformat(),
                box.address and _ADDRESS.dump_json(box.address).decode(),
                None if box.price_usd_h is None else str(box.price_usd_h),
                lease_id,
            ),
        )
        # Its provider has just shown it: what was not listed before counts no more.
        db.execute(
            "INSERT INTO sightings(lease_id, listed, at) VALUES (?,'listed',?)",
            (lease_id, at.isoformat()),
        )
        db.execute(
            "INSERT INTO rates(lease_id, usd_h, at) SELECT id, price_usd_h, ? FROM leases WHERE id=?",
            (at.isoformat(), lease_id),
        )
        self._note(db, lease_id, Event.BOUND, {"box": box.id}, at)

    def lease(self, lease_id: str) -> Lease:
        """The lease of that id, as it stands.

        Raises:
            UnknownLease: there is none.
        """
        found = self.known(lease_id)
        if found is None:
            raise UnknownLease(
                f"no lease {lease_id!r} is in the ledger",
                remedy="`gpu-tenant leases --all` lists them",
            )
        return found

    def known(self, lease_id: str) -> Lease | None:
        """The lease of that id, if there is one."""
        return next(iter(self._read(_lease, f"{_SELECT} WHERE id=?", lease_id)), None)

    def lease_on(self, provider: str, box_id: str) -> Lease | None:
        """The live lease on that box, if there is one."""
        on_it = f"{_SELECT} WHERE provider=? AND box_id=? AND state IN {_LIVE}"
        return next(iter(self._read(_lease, on_it, provider, box_id)), None)

    def leases(self, which: Literal["all", "live"] = "all") -> list[Lease]:
        """Every lease there ever was, or that is live, oldest first."""
        where = f" WHERE state IN {_LIVE}" if which == "live" else ""
        return self._read(_lease, f"{_SELECT}{where} ORDER BY created_at, id")

    def leases_at(self, provider: str, *, ended_since: datetime) -> list[Lease]:
        """Those of a provider that are live, or ended at that moment or later; oldest first."""
        late = f"{_SELECT} WHERE provider=? AND (ended_at IS NULL OR ended_at >= ?) ORDER BY created_at, id"
        return self._read(_lease, late, provider, ended_since.isoformat())

    def leases_of(self, fleet: str) -> list[Lease]:
        """Every lease there ever was in that fleet, oldest first."""
        return self._read(_lease, f"{_SELECT} WHERE fleet=? ORDER BY created_at, id", fleet)

    def lease_ids(self) -> set[str]:
        """The id of every lease there ever was."""
        return set(self._read(lambda row: str(row["id"]), "SELECT id FROM leases"))

    @property
    def deployment(self) -> str:
        """The name of this ledger in the marks of its boxes, so that two tenants are told apart."""
        return self._read(lambda row: str(row["id"]), "SELECT id FROM deployment")[0]

    def ready(self, lease_id: LeaseId, *, at: datetime) -> Lease:
        """It is on record that the box has let us in."""
        with self._transaction() as db:
            db.execute(
                "UPDATE leases SET ready_at=coalesce(ready_at, ?) WHERE id=?",
                (at.isoformat(), lease_id),
            )
            self._note(db, lease_id, Event.READY, {}, at)
        return self.lease(lease_id)

    def moved(self, lease_id: LeaseId, address: Address) -> Lease:
        """The box is reached at `address` from now on."""
        with self._transaction() as db:
            db.execute(
                "UPDATE leases SET address=? WHERE id=?",
                (_ADDRESS.dump_json(address).decode(), lease_id),
            )
        return self.lease(lease_id)

    def rated(self, lease_id: LeaseId, usd_h: Decimal, *, at: datetime) -> Lease:
        """The lease costs so much from `at` on."""
        with self._transaction() as db:
            self._rated(db, lease_id, usd_h, at)
        return self.lease(lease_id)

    @staticmethod
    def _rated(db: Connection, lease_id: LeaseId, usd_h: Decimal | None, at: datetime) -> None:
        price = None if usd_h is None else str(usd_h)
        db.execute("UPDATE leases SET price_usd_h=? WHERE id=?", (price, lease_id))
        db.execute(
            "INSERT INTO rates(lease_id, usd_h, at) VALUES (?,?,?)",
            (lease_id, price, at.isoformat()),
        )

    def parked(self, lease_id: LeaseId, usd_h: Decimal | None, *, at: datetime) -> Lease:
        """The box is stopped, and costs `usd_h` while it is."""
        with self._transaction() as db:
            db.execute("UPDATE leases SET parked_at=? WHERE id=?", (at.isoformat(), lease_id))
            self._rated(db, lease_id, usd_h, at)
            self._note(db, lease_id, Event.PARKED, {}, at)
        return self.lease(lease_id)

    def resumed(self, lease_id: LeaseId, usd_h: Decimal | None, *, at: datetime) -> Lease:
        """The box was started again, costs `usd_h`, and has yet to let us in."""
        with self._transaction() as db:
            db.execute("UPDATE leases SET parked_at=NULL, ready_at=NULL WHERE id=?", (lease_id,))
            self._rated(db, lease_id, usd_h, at)
            db.execute(
                "INSERT INTO sightings(lease_id, listed, at) VALUES (?,'listed',?)",
                (lease_id, at.isoformat()),
            )
            self._note(db, lease_id, Event.RESUMED, {}, at)
        return self.lease(lease_id)

    def change_terms(self, lease_id: LeaseId, terms: Terms, *, at: datetime) -> Lease:
        """The lease has these terms from now on; the old ones stay in its timeline.

        What its owner signed ahead was for the old ones, and holds no longer.

        Raises:
            ValueError: they are none, such as a negative budget.
        """
        # A copy with other values was never checked, and what cannot be read back hides every lease.
        terms = Terms.model_validate({**terms.model_dump(), "on_deadline": "keep"})
        with self._transaction() as db:
            db.execute("UPDATE leases SET terms=? WHERE id=?", (terms.model_dump_json(), lease_id))
            self._note(db, lease_id, Event.TERMS, terms.model_dump(mode="json"), at)
        return self.lease(lease_id)

    def sign_ahead(self, lease_id: LeaseId, *, signed_by: str, at: datetime) -> Lease:
        """The lease's owner has signed for what cannot be saved by the time that its rescue is spent."""
        terms = self.lease(lease_id).terms.model_copy(update={"on_deadline": "waive"})
        with self._transaction() as db:
            self._note(db, lease_id, Event.WAIVED_AHEAD, {"by": signed_by}, at)
            db.execute("UPDATE leases SET terms=? WHERE id=?", (terms.model_dump_json(), lease_id))
        return self.lease(lease_id)

    def end(self, lease_id: LeaseId, state: Literal["void", "lost"], *, at: datetime) -> Lease:
        """The lease ended without a destroy of ours: its box never was, or is lost."""
        with self._transaction() as db:
            db.execute(
                "UPDATE leases SET state=?, ended_at=? WHERE id=?",
                (state, at.isoformat(), lease_id),
            )
            self._note(db, lease_id, Event.ENDED, {"state": state}, at)
        return self.lease(lease_id)

    def touch(self, lease_id: LeaseId, *, at: datetime) -> None:
        """It is on record that the box is about to be used: *never used* is no ground any more."""
        with self._transaction() as db:
            db.execute(
                "UPDATE leases SET touched_at=coalesce(touched_at, ?) WHERE id=?",
                (at.isoformat(), lease_id),
            )

    def keep_in(self, lease_id: LeaseId, directory: Path) -> None:
        """Collected files of this lease belong into `directory`."""
        with self._transaction() as db:
            db.execute("UPDATE leases SET kept_in=? WHERE id=?", (os.fspath(directory), lease_id))


def _lease(row: Row) -> Lease:
    return Lease(
        id=LeaseId(row["id"]),
        mark=row["mark"],
        provider=row["provider"],
        state=LeaseState(row["state"]),
        terms=Terms.model_validate_json(row["terms"]),
        quote=None if row["quote"] is None else Quote.model_validate_json(row["quote"]),
        rates=tuple(Rate(at=at, usd_h=usd) for at, usd in _RATES.validate_json(row["rates"])),
        ready_at=row["ready_at"] and moment(row["ready_at"]),
        parked_at=row["parked_at"] and moment(row["parked_at"]),
        box_id=None if row["box_id"] is None else BoxId(row["box_id"]),
        address=None if row["address"] is None else _ADDRESS.validate_json(row["address"]),
        price_usd_h=None if row["price_usd_h"] is None else Decimal(row["price_usd_h"]),
        created_at=moment(row["created_at"]),
        active_at=row["active_at"] and moment(row["active_at"]),
        ended_at=row["ended_at"] and moment(row["ended_at"]),
        touched_at=row["touched_at"] and moment(row["touched_at"]),
        kept_in=row["kept_in"],
        recovers=row["recovers"] and LeaseId(row["recovers"]),
        fleet=row["fleet"],
        fleet_size=row["fleet_size"],
    )
