"""Exclusive work on one lease, across all processes that share the ledger."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LeaseHeld
from gpu_tenant.domain.ports import Clock
from gpu_tenant.domain.wording import span
from gpu_tenant.ledger.database import Connection, Database, Row, beside, moment
from gpu_tenant.ledger.hold_owner import Holder, this_process


class Renewal(NamedTuple):
    """How a hold is kept alive. All times are in seconds of real time, even in a rehearsal."""

    beat_s: float = 10
    """The holder renews its hold this often."""
    patience_s: float = 120
    """A hold that was not renewed for this long is doubted by the next process that needs the lease."""
    grace_s: float = 30
    """A doubted hold is taken away if it is still not renewed after this time.

    So a computer that has just woken from sleep can still renew its hold.
    """


class Hold(NamedTuple):
    """Who is acting on a lease, and for how long.

    Its times are durations, in seconds of real time. The leases of a rehearsal have another clock, so a time of day
    would be ambiguous.
    """

    purpose: str
    pid: int
    host: str
    held_s: float
    silent_s: float
    """How long ago the hold was last renewed."""
    patience_s: float

    @property
    def words(self) -> str:
        """The hold in words for a person."""
        where = "" if self.host == this_process().host else f" of {self.host.partition('/')[0]}"
        silence = (
            f", and has not renewed its hold for {self.silent_s:.0f} s"
            if self.silent_s > self.patience_s
            else ""
        )
        return f"{self.purpose} (process {self.pid}{where}) has held it for {span(self.held_s)}{silence}"


class Holds(Database):
    """The part of the ledger that says who is acting on a lease right now."""

    def __init__(
        self,
        path: Path,
        clock: Clock | None = None,
        *,
        busy_timeout_s: float = 5,
        renewal: Renewal | None = None,
    ) -> None:
        """Open the ledger as `Database` does. `renewal` says how holds are kept alive and when they are taken away."""
        super().__init__(path, clock, busy_timeout_s=busy_timeout_s)
        self._renewal = renewal or Renewal()
        self._mine: dict[str, str] = {}

    @contextmanager
    def hold(self, lease_id: str, purpose: str, *, at: datetime) -> Iterator[None]:
        """Let nobody else act on this lease until the block ends.

        `lease_id` may also name a sweep, a volume, a run or a wish: whatever only one process may act on.

        The hold is renewed while this process runs. If the holding process was on this computer and has ended, the
        hold ends with it. If that process no longer renews it, because it is stopped or unreachable, the next process
        that needs the lease takes the hold away. The old holder finds this out before it next changes anything outside
        of the ledger (`must_still_hold`).

        Raises:
            LeaseHeld: another process is acting on the lease now.
        """
        me, token = this_process(), token_hex(8)
        refused = self._take(lease_id, purpose, me, token)
        if refused is not None:
            raise refused
        self._mine[lease_id] = token
        over = threading.Event()
        renewing = threading.Thread(
            target=self._renew, args=(lease_id, token, over), name=f"hold {lease_id}", daemon=True
        )
        renewing.start()
        try:
            yield
        finally:
            over.set()
            self._mine.pop(lease_id, None)
            with self._transaction() as db:
                db.execute("DELETE FROM holds WHERE lease_id=? AND token=?", (lease_id, token))

    def _take(self, lease_id: str, purpose: str, me: Holder, token: str) -> LeaseHeld | None:
        """Take the hold. Return None if it is ours now. Otherwise return the error that says why it is not."""
        now, patience = _now(), self._renewal
        with self._transaction() as db:
            row = db.execute("SELECT * FROM holds WHERE lease_id=?", (lease_id,)).fetchone()
            if row is not None and self._stands(row, now):
                if not self._is_silent(row, now):
                    return _refusal(lease_id, _hold_of(row, now, patience))
                # There are two steps: the first caller that is refused notes its doubt. A later caller may
                # take the hold away after the grace period.
                doubted = row["doubted_at"] and now - moment(row["doubted_at"])
                grace = timedelta(seconds=patience.grace_s)
                if not doubted or doubted < grace:
                    if not doubted or doubted < timedelta():
                        db.execute(
                            "UPDATE holds SET doubted_at=? WHERE lease_id=?",
                            (now.isoformat(), lease_id),
                        )
                    return _refusal(
                        lease_id, _hold_of(row, now, patience), again_s=patience.grace_s
                    )
            db.execute(
                "INSERT OR REPLACE INTO holds(lease_id, purpose, host, pid, started, expires_at,"
                " token, since, renewed_at) VALUES (?,?,?,?,?,?,?,?,?)",
                (
                    lease_id,
                    purpose,
                    me.host,
                    me.pid,
                    me.started,
                    (now + timedelta(seconds=patience.patience_s)).isoformat(),
                    token,
                    now.isoformat(),
                    now.isoformat(),
                ),
            )
        return None

    def _stands(self, row: Row, now: datetime) -> bool:
        """Whether the process that took the hold may still be acting."""
        alive = Holder(host=row["host"], pid=row["pid"], started=row["started"]).alive()
        if row["renewed_at"] is None and alive is None:
            # A hold of an earlier version, which did not renew holds.
            return moment(row["expires_at"]) > now
        return alive is not False

    def _is_silent(self, row: Row, now: datetime) -> bool:
        if row["renewed_at"] is None:
            return False
        # A renewal that lies far in the future says nothing about now: the other computer's clock is ahead. So it is
        # doubted as well.
        return abs(now - moment(row["renewed_at"])) > timedelta(seconds=self._renewal.patience_s)

    def _renew(self, lease_id: str, token: str, over: threading.Event) -> None:
        """Renew the hold, in its own thread, until the work is over or the hold is no longer ours."""
        while not over.wait(self._renewal.beat_s):
            # If the renewal cannot be written now, the next try may succeed.
            with beside(self._path) as db:
                renewed = db.execute(
                    "UPDATE holds SET renewed_at=?, doubted_at=NULL WHERE lease_id=? AND token=?",
                    (_now().isoformat(), lease_id, token),
                )
                if not renewed.rowcount:
                    return

    def must_still_hold(self, lease_id: str) -> None:
        """Require that this process still holds the lease, if it took a hold on it.

        Call this right before you change anything outside of the ledger.

        Raises:
            LeaseHeld: the hold was broken, because it had not been renewed.
        """
        with self._transaction() as db:
            self._must_be_mine(db, lease_id)

    def _must_be_mine(self, db: Connection, lease_id: str) -> None:
        token = self._mine.get(lease_id)
        if token is None:
            return
        row = db.execute("SELECT token FROM holds WHERE lease_id=?", (lease_id,)).fetchone()
        if row is None or row["token"] != token:
            raise LeaseHeld(
                f"the hold of this process on {lease_id} was broken: it had not been renewed, for example because "
                "the process was stopped; nothing more was done",
                remedy=f"see what was done meanwhile: {Command('leases')}, {Command('monitor', lease_id)}",
            )

    def holder_of(self, lease_id: str) -> Hold | None:
        """Return who is acting on that lease now. None if nobody is."""
        now = _now()
        rows = self._read(
            lambda row: _hold_of(row, now, self._renewal) if self._stands(row, now) else None,
            "SELECT * FROM holds WHERE lease_id=?",
            lease_id,
        )
        return next(iter(rows), None)


def _hold_of(row: Row, now: datetime, renewal: Renewal) -> Hold:
    renewed_at = row["renewed_at"] and moment(row["renewed_at"])
    return Hold(
        purpose=row["purpose"],
        pid=row["pid"],
        host=row["host"],
        held_s=max(0.0, (now - moment(row["since"])).total_seconds()) if row["since"] else 0.0,
        silent_s=max(0.0, (now - renewed_at).total_seconds()) if renewed_at else 0.0,
        patience_s=renewal.patience_s,
    )


def _refusal(lease_id: str, held: Hold, *, again_s: float | None = None) -> LeaseHeld:
    if again_s is None:
        remedy = f"wait until it is done, and look with {Command('monitor', lease_id)}"
    else:
        remedy = (
            f"if that process is stopped (Ctrl-Z), let it continue (`fg`) or end it; or give your command again "
            f"after {again_s:.0f} s: it then takes over {lease_id}"
        )
    return LeaseHeld(
        f"{lease_id} is in use: {held.words}",
        remedy=remedy,
    )


def _now() -> datetime:
    return WallClock().now()
