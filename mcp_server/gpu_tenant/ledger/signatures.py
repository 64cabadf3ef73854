"""What people were asked to sign, what they signed, and what it was used for."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, Refused, SignatureWanted
from gpu_tenant.domain.signature import (
    STANDS,
    Form,
    Signature,
    SignatureRequest,
    as_one_line,
    digest_of,
    new_code,
    typed_code,
    way_to_sign,
)
from gpu_tenant.ledger.database import Connection, Row, moment
from gpu_tenant.ledger.events import Timeline

_ASKED = (
    "SELECT r.*, w.would, w.words, w.at AS as_of FROM signature_requests r JOIN signature_words w ON w.seq ="
    " (SELECT max(seq) FROM signature_words WHERE code=r.code)"
)
_OPEN = (
    "r.expires_at > ? AND NOT EXISTS (SELECT 1 FROM signatures WHERE code=r.code)"
    " ORDER BY r.asked_at, r.code"
)
SIGNED = "SELECT s.*, r.kind, r.subject, r.digest FROM signatures s JOIN signature_requests r USING (code)"
_UNUSED = (
    " r.expires_at > ? AND NOT EXISTS (SELECT 1 FROM signature_uses WHERE code=s.code)"
    " ORDER BY s.seq DESC"
)
_NAMED = 5
"""How many lines of the request a refusal quotes. The person sees all lines."""


class Signatures(Timeline):
    """The part of the ledger that knows what people have signed."""

    def must_be_signed(
        self,
        *,
        kind: str,
        subject: str,
        would: str,
        words: Sequence[str],
        at: datetime,
        digest: str | None = None,
        stands: timedelta = STANDS,
    ) -> str:
        """Return the code of a person's unused signature for exactly these words. `use` then uses it up.

        Raises:
            SignatureWanted: there is no such signature; it has now been requested.
        """
        name = digest or digest_of((would, *words))
        signature = self.unused_signature(kind, subject, name, at=at)
        if signature is not None:
            return signature.code
        raise signature_wanted(
            self.ask_signature(
                kind=kind,
                subject=subject,
                digest=name,
                would=would,
                words=words,
                at=at,
                stands=stands,
            )
        )

    def ask_signature(
        self,
        *,
        kind: str,
        subject: str,
        digest: str,
        would: str,
        words: Sequence[str],
        at: datetime,
        stands: timedelta = STANDS,
    ) -> SignatureRequest:
        """Ask a person for a signature. Asking for the same again gives the same code.

        The digest identifies what is signed for, and the words describe it. If the words have changed under the same
        digest, the newest words are shown.
        """
        told, record = as_one_line(would), json.dumps([as_one_line(line) for line in words])
        with self._transaction() as db:
            row = db.execute(
                f"{_ASKED} WHERE kind=? AND subject=? AND digest=? AND {_OPEN}",
                (kind, subject, digest, at.isoformat()),
            ).fetchone()
            code = row["code"] if row else self._unknown_code(db)
            if row is None:
                db.execute(
                    "INSERT INTO signature_requests(code, kind, subject, digest, asked_at, expires_at)"
                    " VALUES (?,?,?,?,?,?)",
                    (code, kind, subject, digest, at.isoformat(), (at + stands).isoformat()),
                )
            if row is None or (row["would"], row["words"]) != (told, record):
                db.execute(
                    "INSERT INTO signature_words(code, would, words, at) VALUES (?,?,?,?)",
                    (code, told, record, at.isoformat()),
                )
        return self.request_of(code)

    @staticmethod
    def _unknown_code(db: Connection) -> str:
        while True:
            code = new_code()
            if not db.execute("SELECT 1 FROM signature_requests WHERE code=?", (code,)).fetchone():
                return code

    def request_of(self, code: str) -> SignatureRequest:
        """Return what a person is asked to sign under that code.

        Raises:
            BadRequest: nothing was ever requested under that code.
        """
        found = self._read(_request_of, f"{_ASKED} WHERE r.code=?", typed_code(code))
        if not found:
            raise BadRequest(
                f"there is nothing to sign under {as_one_line(code)!r}",
                remedy=f"{Command('sign')} lists what is open",
            )
        return found[0]

    def all_asked(self, now: datetime) -> list[SignatureRequest]:
        """Return what people are asked to sign now, oldest first."""
        return self._read(_request_of, f"{_ASKED} WHERE {_OPEN}", now.isoformat())

    def sign(
        self,
        asked: SignatureRequest,
        *,
        by: str,
        form: Form,
        at: datetime,
        proof: str | None = None,
    ) -> Signature:
        """Record that the person has signed for what they were shown. The signature is good for one use.

        `proof` is what the person's authenticator said, if there was one.

        Raises:
            Refused: it was already signed, is no longer open, or its words have changed meanwhile.
        """
        with self._transaction() as db:
            row = db.execute(f"{_ASKED} WHERE r.code=?", (asked.code,)).fetchone()
            signed = db.execute("SELECT 1 FROM signatures WHERE code=?", (asked.code,)).fetchone()
            if signed:
                raise Refused(f"{asked.code} is already signed", remedy=AGAIN)
            if row is None or moment(row["expires_at"]) <= at:
                raise Refused(
                    f"{asked.code} waited for its signature until {asked.expires_at:%Y-%m-%d %H:%M} UTC",
                    remedy="repeat the call that asked for the signature; it requests a new one",
                )
            if _request_of(row).shown != asked.shown:
                raise Refused(
                    f"what the code {asked.code} stands for has changed since it was shown; nothing was signed",
                    remedy=f"look again: {Command('sign', asked.code)}",
                )
            db.execute(
                "INSERT INTO signatures(code, shown, by, form, proof, at) VALUES (?,?,?,?,?,?)",
                (asked.code, asked.shown, by, form, proof, at.isoformat()),
            )
        return self._read(signature_of_row, f"{SIGNED} WHERE s.code=?", asked.code)[0]

    def unused_signature(
        self, kind: str, subject: str, digest: str, *, at: datetime
    ) -> Signature | None:
        """Return an unused signature of that kind, for that subject and digest. None if there is none."""
        found = self._read(
            signature_of_row,
            f"{SIGNED} WHERE r.kind=? AND r.subject=? AND r.digest=? AND {_UNUSED}",
            kind,
            subject,
            digest,
            at.isoformat(),
        )
        return found[0] if found else None

    def signature(self, code: str) -> Signature | None:
        """Return the signature given under that code, used or not. None if there is none."""
        return next(iter(self._read(signature_of_row, f"{SIGNED} WHERE s.code=?", code)), None)

    def signed_for(self, kind: str, subject: str, *, at: datetime) -> list[Signature]:
        """Return every unused signature of that kind about that subject, newest first."""
        return self._read(
            signature_of_row,
            f"{SIGNED} WHERE r.kind=? AND r.subject=? AND {_UNUSED}",
            kind,
            subject,
            at.isoformat(),
        )

    def lines_signed(self, kind: str, subject: str, would: str) -> frozenset[str]:
        """Return every line that people have signed under that heading. These signatures are remembered, not used up."""
        signed = self._read(
            lambda row: (str(row["shown"]), tuple(json.loads(row["words"]))),
            "SELECT s.shown, w.words FROM signatures s JOIN signature_requests r USING (code)"
            " JOIN signature_words w ON w.code=s.code WHERE r.kind=? AND r.subject=? AND w.would=?",
            kind,
            subject,
            would,
        )
        # What was signed is exactly what was shown then.
        return frozenset(
            line for shown, lines in signed if shown == digest_of((would, *lines)) for line in lines
        )

    def use_signature(self, code: str, *, at: datetime) -> None:
        """Use up a signature whose purpose is recorded nowhere else in this ledger.

        Raises:
            Refused: it was used before, has expired, or does not exist.
        """
        with self._transaction() as db:
            use(db, code, at=at)


AGAIN = f"repeat the call that asked for the signature; {Command('sign')} lists what is open"


def use(db: Connection, code: str, *, at: datetime) -> None:
    """Use up the signature, in the same transaction that records what was signed for.

    Raises:
        Refused: it was used before, has expired, or does not exist.
    """
    signed = db.execute(
        "SELECT 1 FROM signatures s JOIN signature_requests r USING (code) WHERE code=?"
        " AND r.expires_at > ? AND NOT EXISTS (SELECT 1 FROM signature_uses WHERE code=s.code)",
        (code, at.isoformat()),
    ).fetchone()
    if not signed:
        raise Refused(f"there is no unused signature under {code}; nothing was done", remedy=AGAIN)
    db.execute("INSERT INTO signature_uses(code, at) VALUES (?,?)", (code, at.isoformat()))


def signature_wanted(asked: SignatureRequest, *, most: int = _NAMED) -> SignatureWanted:
    """Return the error that asks for that signature, with some of the words and their number."""
    named = "; ".join(asked.words[:most])
    more = f"; and {len(asked.words) - most} more" if len(asked.words) > most else ""
    error = SignatureWanted(
        f"a person has to sign for this first, by the code {asked.code}: {asked.would}"
        + (f": {named}{more}" if named else ""),
        remedy=way_to_sign(asked.code),
    )
    error.asked = asked.code
    return error


def _request_of(row: Row) -> SignatureRequest:
    return SignatureRequest(
        code=row["code"],
        kind=row["kind"],
        subject=row["subject"],
        digest=row["digest"],
        would=row["would"],
        words=tuple(json.loads(row["words"])),
        asked_at=moment(row["asked_at"]),
        as_of=moment(row["as_of"]),
        expires_at=moment(row["expires_at"]),
    )


def signature_of_row(row: Row) -> Signature:
    """Return the signature in a row of `SIGNED`."""
    return Signature(
        code=row["code"],
        kind=row["kind"],
        subject=row["subject"],
        digest=row["digest"],
        by=row["by"],
        form=row["form"],
        at=moment(row["at"]),
    )
