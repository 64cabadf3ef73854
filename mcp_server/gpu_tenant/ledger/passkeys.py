"""The owner's passkeys: which are valid, and which have been ended."""

from datetime import datetime, timedelta

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.signature import PASSKEY, Form, Passkey, Signature, SignatureRequest
from gpu_tenant.ledger.database import Row, moment
from gpu_tenant.ledger.signatures import Signatures, use

GRACE = timedelta(hours=24)
"""After this time, a person who has lost a passkey can sign without it.

Until then, a person who has the passkey can prevent that.
"""

_IN_FORCE = (
    "SELECT p.*, (SELECT min(e.ends_at) FROM passkey_ends e WHERE e.passkey=p.id"
    "   AND NOT EXISTS (SELECT 1 FROM passkey_ends_withdrawn WHERE ending=e.seq)) AS ends_at"
    " FROM passkeys p"
)


class PasskeyTable(Signatures):
    """The part of the ledger that knows with which passkeys the owner signs."""

    def sign(
        self,
        asked: SignatureRequest,
        *,
        by: str,
        form: Form,
        at: datetime,
        proof: str | None = None,
    ) -> Signature:
        """Do what `Signatures.sign` does.

        Raises:
            Refused: a passkey is set up, so no other form of signature is accepted any more.
        """
        if form != PASSKEY and asked.kind != "lost_passkey" and self.passkeys(at):
            raise Refused(
                "a passkey is set up, and nothing else can sign here; nothing was signed",
                remedy=f"sign {asked.code} on the page of {Command('dashboard')}; if the passkey is lost, run "
                f"{Command('sign', lost_passkey=True)}",
            )
        return super().sign(asked, by=by, form=form, at=at, proof=proof)

    def passkeys(self, at: datetime) -> list[Passkey]:
        """Return the valid passkeys, oldest first. If there is one, nothing else can sign."""
        known = self._read(_passkey, f"{_IN_FORCE} ORDER BY p.at, p.id")
        return [key for key in known if key.ends_at is None or key.ends_at > at]

    def set_up_passkey(
        self, passkey_id: str, public_key: str, signature: Signature, *, at: datetime
    ) -> None:
        """Let the passkey sign from now on. `signature` authorizes it.

        If there already is a passkey, it has made this signature.
        """
        with self._transaction() as db:
            use(db, signature.code, at=at)
            db.execute(
                "INSERT INTO passkeys(id, public_key, by, signature, at) VALUES (?,?,?,?,?)",
                (passkey_id, public_key, signature.signed_by, signature.code, at.isoformat()),
            )

    def end_passkeys(self, signature: Signature, *, at: datetime) -> datetime:
        """End all passkeys, and return when they end: now if one of them signed for it, otherwise in a day."""
        ends_at = at if signature.form == "passkey" else at + GRACE
        with self._transaction() as db:
            use(db, signature.code, at=at)
            db.execute(
                "INSERT INTO passkey_ends(passkey, signature, asked_at, ends_at)"
                " SELECT id, ?1, ?2, ?3 FROM passkeys",
                (signature.code, at.isoformat(), ends_at.isoformat()),
            )
        return ends_at

    def keep_passkeys(self, signature: Signature, *, at: datetime) -> None:
        """Withdraw the end of all passkeys, because somebody who still has one has signed for that."""
        with self._transaction() as db:
            use(db, signature.code, at=at)
            db.execute(
                "INSERT INTO passkey_ends_withdrawn(ending, signature, at)"
                " SELECT seq, ?1, ?2 FROM passkey_ends WHERE ends_at > ?2"
                " AND seq NOT IN (SELECT ending FROM passkey_ends_withdrawn)",
                (signature.code, at.isoformat()),
            )


def _passkey(row: Row) -> Passkey:
    return Passkey(
        id=row["id"],
        public_key=row["public_key"],
        by=row["by"],
        at=moment(row["at"]),
        ends_at=row["ends_at"] and moment(row["ends_at"]),
    )
