"""The leases: intended, bound to a box, and ended."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxTaken, LeaseHeld, QuoteUsed, Refused, UnknownLease
from gpu_tenant.domain.labels import UNNAMED, Labels
from gpu_tenant.domain.model import (
    MARK_PREFIX,
    Address,
    Box,
    BoxId,
    Lease,
    LeaseId,
    LeaseState,
    WorkPlace,
)
from gpu_tenant.domain.offers import Quote
from gpu_tenant.domain.signature import Signature
from gpu_tenant.domain.terms import Rate, Terms
from gpu_tenant.ledger.database import Connection, IntegrityError, Row, moment
from gpu_tenant.ledger.events import end_alarms
from gpu_tenant.ledger.hosts import HostTable
from gpu_tenant.ledger.signatures import use

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
_RENTED_BY = (
    "SELECT leases.id, named.value FROM leases, json_each(?1) AS named WHERE quote IS NOT NULL"
    " AND state IN ('intended','active','terminating') AND json_extract(quote, '$.id') = named.value"
)

Allowed = Callable[[str, Terms, Decimal | None], None]
"""A check that raises if a lease at that provider, on those terms and at that price, exceeds what the owner allows."""


def anything(provider: str, terms: Terms, usd_h: Decimal | None) -> None:
    """Allow anything. This is for calls that cost no more than before."""


class LeaseTable(HostTable):
    """The part of the ledger that says which leases there are, and in which state each one is."""

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
        wish: str | None = None,
        errand: str | None = None,
        labels: Labels = UNNAMED,
        smoke: str | None = None,
        instead_of: Sequence[str] = (),
        allowed: Allowed = anything,
        signed: Sequence[str] = (),
    ) -> Lease:
        """Record that a box is wanted. No box exists for the lease yet.

        `recovers` is the lease whose work this one continues. The new lease joins the fleet of that lease. `wish` is
        the standing wish that the new lease fulfils. A trigger allows one box for each wish. `errand` is the errand
        that the new lease is for. Another trigger allows an errand one box at a time. `smoke` is the smoke test that
        the lease is rented with.

        If the caller wants a single box by any of several quotes, `instead_of` lists these quotes.

        `allowed` raises if the owner's limits leave no room. It is called inside the transaction, so that two
        simultaneous calls see each other. `signed` are the codes of the signatures that this uses up.

        Raises:
            LeaseHeld: another box of that fleet has been requested, and it is not known yet whether it exists.
            Refused: the wish or the errand has ended, or has a box.
            QuoteUsed: the quote, or one of `instead_of`, has rented a box that may still exist.
            HostLeftOut: a report against the quote's host still counts.
        """
        with self._one_at_a_time(fleet), self._one_for(wish, errand), self._transaction() as db:
            if quote is not None:
                self._must_be_unused(db, quote.id, instead_of, fleet)
                self.must_not_leave_out(quote, at=at)
            allowed(provider, terms, price_usd_h)
            for code in signed:
                use(db, code, at=at)
            self._intend(
                db,
                lease_id,
                provider,
                terms,
                address,
                price_usd_h,
                at,
                quote=quote,
                mark=None,
                touched_at=None,
                recovers=recovers,
                fleet=fleet,
                wish=wish,
                errand=errand,
            )
            if labels != UNNAMED:
                self._note(db, lease_id, timeline.Labelled(**labels.model_dump()), at)
            if smoke is not None:
                self._note(db, lease_id, timeline.Tested(smoke=smoke), at)
        return self.lease(lease_id)

    @staticmethod
    def _must_be_unused(
        db: Connection, quote_id: str, others: Sequence[str], fleet: str | None
    ) -> None:
        """Require that the quote is unused, except in the same fleet.

        For a single box, also require that no live lease outside of fleets was rented by one of the `others`.
        """
        used = db.execute(
            f"{_RENTED_BY} AND ((named.value=?2 AND (fleet IS NULL OR ?3 IS NULL OR fleet <> ?3))"
            " OR (fleet IS NULL AND ?3 IS NULL)) ORDER BY created_at LIMIT 1",
            (json.dumps([quote_id, *others]), quote_id, fleet),
        ).fetchone()
        if used is not None:
            taken = QuoteUsed(
                f"{used['value']} has already rented {used['id']}",
                remedy=f"continue with {used['id']}; for another box {Command('offers')} makes a new quote, and "
                "`--count` rents several boxes by one quote",
            )
            taken.lease_id = used["id"]
            raise taken

    def rented_by(self, quotes: Sequence[str]) -> list[Lease]:
        """Return the live leases outside of fleets that were rented by one of these quotes, oldest first."""
        found = f"{_RENTED_BY} AND fleet IS NULL ORDER BY created_at"
        ids = self._read(lambda row: str(row["id"]), found, json.dumps(list(quotes)))
        return [self.lease(name) for name in dict.fromkeys(ids)]

    @contextmanager
    def _one_at_a_time(self, fleet: str | None) -> Iterator[None]:
        try:
            yield
        except IntegrityError as error:
            if "leases.fleet" not in str(error):
                raise
            raise LeaseHeld(
                f"a box of {fleet} was requested, and it is not known yet whether it was made",
                remedy=f"{Command('leases')} looks at it; then run the same command again",
            ) from error

    @contextmanager
    def _one_for(self, wish: str | None, errand: str | None) -> Iterator[None]:
        try:
            yield
        except IntegrityError as error:
            broken = {"a wish rents one box": wish, "an errand has one box": errand}
            name = next((name for law, name in broken.items() if law in str(error)), None)
            if name is None:
                raise
            raise Refused(
                f"{name} has ended, or has a box: nothing else is rented for it",
                remedy=f"{Command('leases', all=True)} shows what it has",
            ) from error

    def take_up(
        self,
        box: Box,
        *,
        lease_id: LeaseId,
        terms: Terms,
        at: datetime,
        touched_at: datetime | None,
        since: datetime | None = None,
        errand: str | None = None,
        allowed: Allowed = anything,
    ) -> Lease:
        """Make a lease for a box that already exists, in one step. The lease takes over the mark of the box.

        `touched_at` is set if somebody may already have used the box. The lease's cost counts from `since`, or from
        now.

        Raises:
            BoxTaken: another live lease has the box.
        """
        with self._one_for(None, errand), self._bound_once(box), self._transaction() as db:
            allowed(box.provider, terms, box.price_usd_h)
            self._intend(
                db,
                lease_id,
                box.provider,
                terms,
                box.address,
                box.price_usd_h,
                at,
                quote=None,
                mark=box.mark,
                touched_at=touched_at,
                recovers=None,
                fleet=None,
                wish=None,
                errand=errand,
            )
            self._bind(db, lease_id, box, at, since or at)
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
        wish: str | None,
        errand: str | None,
    ) -> None:
        db.execute(
            "INSERT INTO leases(id, mark, provider, state, terms, address, price_usd_h, created_at,"
            " quote, touched_at, recovers, fleet, wish, errand) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,"
            " coalesce(?12, (SELECT fleet FROM leases WHERE id=?11)), ?13,"
            " coalesce(?14, (SELECT errand FROM leases WHERE id=?11)))",
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
                wish,
                errand,
            ),
        )
        self._note(db, lease_id, timeline.Intended(**terms.model_dump()), at)

    def bind(
        self, lease_id: LeaseId, box: Box, *, at: datetime, since: datetime | None = None
    ) -> Lease:
        """Bind the lease to `box`. Its cost counts from the first binding, or from `since` if that is given.

        Raises:
            BoxTaken: another live lease has the box.
        """
        with self._bound_once(box), self._transaction() as db:
            self._bind(db, lease_id, box, at, since or at)
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
                f"the lease {other.id if other else '?'} already has {box.id}",
                remedy=f"use that lease, or end it first: {Command('teardown', other.id if other else '')}",
            ) from error

    def _bind(
        self, db: Connection, lease_id: LeaseId, box: Box, at: datetime, since: datetime
    ) -> None:
        db.execute(
            "UPDATE leases SET state=?, box_id=?, active_at=coalesce(active_at, ?),"
            " address=coalesce(?, address), price_usd_h=coalesce(?, price_usd_h) WHERE id=?",
            (
                LeaseState.ACTIVE,
                box.id,
                since.isoformat(),
                box.address and _ADDRESS.dump_json(box.address).decode(),
                None if box.price_usd_h is None else str(box.price_usd_h),
                lease_id,
            ),
        )
        # The provider has just shown the box, so earlier looks that missed it no longer count.
        db.execute(
            "INSERT INTO sightings(lease_id, listed, at) VALUES (?,'listed',?)",
            (lease_id, at.isoformat()),
        )
        db.execute(
            "INSERT INTO rates(lease_id, usd_h, at) SELECT id, price_usd_h, ? FROM leases WHERE id=?",
            (since.isoformat(), lease_id),
        )
        self._note(db, lease_id, timeline.Bound(box=box.id, since=since.isoformat()), at)

    def lease(self, lease_id: str) -> Lease:
        """Return the lease with that id, as it is now.

        Raises:
            UnknownLease: there is none.
        """
        found = self.find_lease(lease_id)
        if found is None and (several := self.leases_of(lease_id)):
            raise UnknownLease(
                f"{lease_id} is a fleet of several leases",
                remedy=f"the same call for each of them: {', '.join(x.id for x in several)}",
            )
        if found is None:
            raise UnknownLease(
                f"no lease {lease_id!r} is in the ledger",
                remedy=f"{Command('leases', all=True)} lists them",
            )
        return found

    def find_lease(self, lease_id: str) -> Lease | None:
        """Return the lease with that id. None if there is none."""
        return next(iter(self._read(_lease, f"{_SELECT} WHERE id=?", lease_id)), None)

    def lease_on(self, provider: str, box_id: str) -> Lease | None:
        """Return the live lease on that box. None if there is none."""
        on_it = f"{_SELECT} WHERE provider=? AND box_id=? AND state IN {_LIVE}"
        return next(iter(self._read(_lease, on_it, provider, box_id)), None)

    def lost_on(self, provider: str, box_id: str) -> Lease | None:
        """Return the newest lease on that box that was declared lost. None if there is none."""
        on_it = f"{_SELECT} WHERE provider=? AND box_id=? AND state='lost' ORDER BY ended_at DESC LIMIT 1"
        return next(iter(self._read(_lease, on_it, provider, box_id)), None)

    def leases(self, which: Literal["all", "live", "lost"] = "all") -> list[Lease]:
        """Return all leases, oldest first. Optionally only the live ones, or only the lost ones."""
        where = {"live": f" WHERE state IN {_LIVE}", "lost": " WHERE state='lost'"}.get(which, "")
        return self._read(_lease, f"{_SELECT}{where} ORDER BY created_at, id")

    def lineage(self, lease: Lease) -> list[Lease]:
        """Return the lease and the leases whose work it continues, newest first."""
        found = [lease]
        while found[-1].recovers is not None:
            found.append(self.lease(found[-1].recovers))
        return found

    def newest_ended(self, *, limit: int, before: str | None = None) -> list[Lease]:
        """Return the newest `limit` leases that have ended and are older than the lease `before`, oldest first.

        Raises:
            UnknownLease: there is no lease `before`.
        """
        at = None if before is None else self.lease(before).created_at.isoformat()
        newest = (
            f"{_SELECT} WHERE state NOT IN {_LIVE} AND (?1 IS NULL OR (created_at, id) < (?1, ?2))"
            " ORDER BY created_at DESC, id DESC LIMIT ?3"
        )
        return self._read(_lease, newest, at, before, limit)[::-1]

    def ended_before(self, lease_id: str) -> int:
        """Return how many ended leases are older than that one."""
        older = (
            "SELECT count(*) AS n FROM leases WHERE state IN ('gone','void','lost')"
            " AND (created_at, id) < (SELECT created_at, id FROM leases WHERE id=?)"
        )
        return self._read(lambda row: int(row["n"]), older, lease_id)[0]

    def leases_at(self, provider: str, *, ended_since: datetime) -> list[Lease]:
        """Return the leases of a provider that are live, or ended at that moment or later. Oldest first."""
        late = f"{_SELECT} WHERE provider=? AND (ended_at IS NULL OR ended_at >= ?) ORDER BY created_at, id"
        return self._read(_lease, late, provider, ended_since.isoformat())

    def leases_since(self, at: datetime) -> list[Lease]:
        """Return the leases that are live, or ended at that moment or later. Oldest first."""
        late = f"{_SELECT} WHERE ended_at IS NULL OR ended_at >= ? ORDER BY created_at, id"
        return self._read(_lease, late, at.isoformat())

    def ended_since(self, at: datetime) -> list[Lease]:
        """Return the leases that ended at that moment or later, oldest first."""
        late = f"{_SELECT} WHERE ended_at >= ? ORDER BY created_at, id"
        return self._read(_lease, late, at.isoformat())

    def ended_early(self, *, deadline_since: datetime) -> list[str]:
        """Return the ids of the leases that have ended, and whose deadline is at that moment or later."""
        early = (
            "SELECT id FROM leases WHERE state IN ('gone','void','lost')"
            " AND json_extract(terms, '$.deadline_at') >= ?"
        )
        return self._read(lambda row: str(row["id"]), early, deadline_since.isoformat())

    def stood_on(self, provider: str, box_id: str) -> list[Lease]:
        """Return every lease that has ever had that box, oldest first."""
        on_it = f"{_SELECT} WHERE provider=? AND box_id=? ORDER BY created_at, id"
        return self._read(_lease, on_it, provider, box_id)

    def leases_of(self, fleet: str) -> list[Lease]:
        """Return every lease that there ever was in that fleet, oldest first."""
        return self._read(_lease, f"{_SELECT} WHERE fleet=? ORDER BY created_at, id", fleet)

    def count(self) -> int:
        """Return how many leases there ever were."""
        return self._read(lambda row: int(row["n"]), "SELECT count(*) AS n FROM leases")[0]

    def is_marked(self, mark: str | None) -> bool:
        """Whether some lease has that mark."""
        return bool(self._read(lambda row: row["id"], "SELECT id FROM leases WHERE mark=?", mark))

    def lease_ids(self) -> set[str]:
        """Return the id of every lease there ever was."""
        return set(self._read(lambda row: str(row["id"]), "SELECT id FROM leases"))

    @property
    def is_rehearsed(self) -> bool:
        """Whether this ledger belongs to a rehearsal. If so, nothing in it was ever real."""
        return bool(self._read(lambda row: row["seq"], "SELECT seq FROM rehearsals"))

    def be_rehearsed(self) -> bool:
        """Make this ledger a rehearsal's. This is possible only before its first lease.

        Returns False if the ledger already has real leases.
        """
        try:
            with self._transaction() as db:
                if not self.is_rehearsed:
                    db.execute("INSERT INTO rehearsals VALUES (1)")
        except IntegrityError:
            return False
        return True

    @property
    def deployment(self) -> str:
        """The name of this ledger in the marks of its boxes. It distinguishes them from the boxes of other ledgers."""
        return self._read(lambda row: str(row["id"]), "SELECT id FROM deployment")[0]

    def ready(self, lease_id: LeaseId, *, at: datetime) -> Lease:
        """Record that the box has let us in."""
        with self._transaction() as db:
            db.execute(
                "UPDATE leases SET ready_at=coalesce(ready_at, ?) WHERE id=?",
                (at.isoformat(), lease_id),
            )
            self._note(db, lease_id, timeline.Ready(), at)
        return self.lease(lease_id)

    def note_place(self, lease_id: LeaseId, place: WorkPlace, *, at: datetime) -> Lease:
        """Record where the lease's directory is on its box, unless that is on record already."""
        with self._transaction() as db:
            changed = db.execute(
                "UPDATE leases SET place=? WHERE id=? AND place IS NULL",
                (place.model_dump_json(exclude_none=True), lease_id),
            ).rowcount
            if changed:
                told = timeline.Placed(path=place.path, at=place.at, why=place.why)
                self._note(db, lease_id, told, at)
        return self.lease(lease_id)

    def note_address(self, lease_id: LeaseId, address: Address) -> Lease:
        """Record that the box is reached at `address` from now on."""
        with self._transaction() as db:
            db.execute(
                "UPDATE leases SET address=? WHERE id=?",
                (_ADDRESS.dump_json(address).decode(), lease_id),
            )
        return self.lease(lease_id)

    def note_rental_end(self, lease_id: LeaseId, ends_at: datetime) -> Lease:
        """Record when the rental of the lease's box ends, as its provider says."""
        with self._transaction() as db:
            db.execute(
                "UPDATE leases SET rental_ends_at=? WHERE id=?", (ends_at.isoformat(), lease_id)
            )
        return self.lease(lease_id)

    def note_rate(self, lease_id: LeaseId, usd_h: Decimal, *, at: datetime) -> Lease:
        """Record that the lease costs `usd_h` an hour from `at` on."""
        with self._transaction() as db:
            self._note_rate(db, lease_id, usd_h, at)
        return self.lease(lease_id)

    @staticmethod
    def _note_rate(db: Connection, lease_id: LeaseId, usd_h: Decimal | None, at: datetime) -> None:
        price = None if usd_h is None else str(usd_h)
        db.execute("UPDATE leases SET price_usd_h=? WHERE id=?", (price, lease_id))
        db.execute(
            "INSERT INTO rates(lease_id, usd_h, at) VALUES (?,?,?)",
            (lease_id, price, at.isoformat()),
        )

    def note_parked(self, lease_id: LeaseId, usd_h: Decimal | None, *, at: datetime) -> Lease:
        """Record that the box is stopped, and costs `usd_h` an hour while it is."""
        with self._transaction() as db:
            db.execute("UPDATE leases SET parked_at=? WHERE id=?", (at.isoformat(), lease_id))
            self._note_rate(db, lease_id, usd_h, at)
            self._note(db, lease_id, timeline.Parked(), at)
        return self.lease(lease_id)

    def resuming(
        self,
        lease_id: LeaseId,
        usd_h: Decimal | None,
        *,
        at: datetime,
        allowed: Allowed = anything,
    ) -> Lease:
        """Record that the parked box is about to be started. From now on it counts as running.

        `allowed` is as for `intend`. It is called in the same transaction, so that a box that is being rented at
        the same time is counted with this one. If this process dies before the provider answers, the rate `usd_h` stays
        recorded. If `usd_h` is None, the cost is unknown from then on: the price of the stopped box would be too low.
        """
        with self._transaction() as db:
            lease = self.lease(lease_id)
            allowed(lease.provider, lease.terms, usd_h)
            self._note_rate(db, lease_id, usd_h, at)
            self._note(db, lease_id, timeline.Resuming(), at)
        return self.lease(lease_id)

    def stays_parked(self, lease_id: LeaseId, usd_h: Decimal | None, *, at: datetime) -> Lease:
        """Record that the box was not started after all, and costs `usd_h` an hour as before."""
        with self._transaction() as db:
            self._note_rate(db, lease_id, usd_h, at)
        return self.lease(lease_id)

    def note_resumed(self, lease_id: LeaseId, usd_h: Decimal | None, *, at: datetime) -> Lease:
        """Record that the box was started again, costs `usd_h` an hour, and has yet to let us in."""
        with self._transaction() as db:
            db.execute("UPDATE leases SET parked_at=NULL, ready_at=NULL WHERE id=?", (lease_id,))
            if self.lease(lease_id).price_usd_h != usd_h:  # if equal, `resuming` has recorded it
                self._note_rate(db, lease_id, usd_h, at)
            db.execute(
                "INSERT INTO sightings(lease_id, listed, at) VALUES (?,'listed',?)",
                (lease_id, at.isoformat()),
            )
            self._note(db, lease_id, timeline.Resumed(), at)
        return self.lease(lease_id)

    def change_terms(
        self,
        lease_id: LeaseId,
        terms: Terms,
        *,
        at: datetime,
        allowed: Allowed = anything,
        signed: str | None = None,
    ) -> Lease:
        """Give the lease these terms from now on. The old terms stay in its timeline.

        For `allowed` see `intend`. `signed` is the code of a person's signature, which this uses up.

        A waiver that the owner signed ahead was for the old terms, and no longer counts.

        Raises:
            ValueError: the terms are invalid, such as a negative budget.
        """
        # `model_copy` validates nothing. If invalid terms were written, no list of leases could be
        # read any more.
        terms = Terms.model_validate({**terms.model_dump(), "on_deadline": "keep"})
        with self._transaction() as db:
            lease = self.lease(lease_id)
            allowed(lease.provider, terms, lease.price_usd_h)
            if signed is not None:
                use(db, signed, at=at)
            db.execute("UPDATE leases SET terms=? WHERE id=?", (terms.model_dump_json(), lease_id))
            self._note(db, lease_id, timeline.NewTerms(**terms.model_dump()), at)
        return self.lease(lease_id)

    def sign_ahead(self, lease_id: LeaseId, signature: Signature, *, at: datetime) -> Lease:
        """Record that the owner has signed ahead for a loss.

        The signature allows the loss of whatever is not saved when the rescue sum is spent.
        """
        terms = self.lease(lease_id).terms.model_copy(update={"on_deadline": "waive"})
        signed = timeline.WaivedAhead(by=signature.signed_by, signature=signature.code)
        with self._transaction() as db:
            use(db, signature.code, at=at)
            self._note(db, lease_id, signed, at)
            db.execute("UPDATE leases SET terms=? WHERE id=?", (terms.model_dump_json(), lease_id))
        return self.lease(lease_id)

    def attest(self, lease_id: LeaseId, signature: Signature, *, at: datetime) -> None:
        """Record that a person has said that the box was ended in its console."""
        attested = timeline.Attested(by=signature.signed_by, signature=signature.code)
        with self._transaction() as db:
            use(db, signature.code, at=at)
            self._note(db, lease_id, attested, at)

    def end(self, lease_id: LeaseId, state: Literal["void", "lost"], *, at: datetime) -> Lease:
        """End the lease without a destroy of ours: there never was a box, or the box is lost."""
        with self._transaction() as db:
            db.execute(
                "UPDATE leases SET state=?, ended_at=? WHERE id=?",
                (state, at.isoformat(), lease_id),
            )
            self._note(db, lease_id, timeline.Ended(state=state), at)
            end_alarms(db, lease_id, at=at)
        return self.lease(lease_id)

    def come_back(self, lease_id: LeaseId, *, at: datetime) -> Lease:
        """Make a lost lease live again. Its box is listed, so it existed all the time.

        Raises:
            BoxTaken: another live lease has that box by now.
        """
        lease = self.lease(lease_id)
        try:
            with self._transaction() as db:
                db.execute(
                    "INSERT INTO sightings(lease_id, listed, at) VALUES (?,'listed',?)",
                    (lease_id, at.isoformat()),
                )
                db.execute(
                    "UPDATE leases SET state='active', ended_at=NULL WHERE id=?", (lease_id,)
                )
                self._note(db, lease_id, timeline.CameBack(), at)
        except IntegrityError as error:
            if "UNIQUE" not in str(error):
                raise
            raise BoxTaken(
                f"another lease already has {lease.box_id}",
                remedy=f"{Command('leases')} shows it",
            ) from error
        return self.lease(lease_id)

    def touch(self, lease_id: LeaseId, *, at: datetime) -> None:
        """Record that the box is about to be used. From then on, *never used* is no ground to destroy it."""
        with self._transaction() as db:
            db.execute(
                "UPDATE leases SET touched_at=coalesce(touched_at, ?) WHERE id=?",
                (at.isoformat(), lease_id),
            )

    def keep_in(self, lease_id: LeaseId, directory: Path) -> None:
        """Record that the collected files of this lease belong in `directory`."""
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
        rental_ends_at=row["rental_ends_at"] and moment(row["rental_ends_at"]),
        box_id=None if row["box_id"] is None else BoxId(row["box_id"]),
        address=None if row["address"] is None else _ADDRESS.validate_json(row["address"]),
        price_usd_h=None if row["price_usd_h"] is None else Decimal(row["price_usd_h"]),
        created_at=moment(row["created_at"]),
        active_at=row["active_at"] and moment(row["active_at"]),
        ended_at=row["ended_at"] and moment(row["ended_at"]),
        touched_at=row["touched_at"] and moment(row["touched_at"]),
        kept_in=row["kept_in"],
        place=None if row["place"] is None else WorkPlace.model_validate_json(row["place"]),
        recovers=row["recovers"] and LeaseId(row["recovers"]),
        fleet=row["fleet"],
        fleet_size=row["fleet_size"],
    )
