"""The volumes: what each is, what was done about it, and when its provider last listed it."""

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.permit import VolumePermit
from gpu_tenant.domain.ports import Asking
from gpu_tenant.domain.signature import Signature
from gpu_tenant.domain.volumes import ListedVolume, Volume, VolumeKey, VolumeState
from gpu_tenant.ledger.database import Connection, IntegrityError, Row, moment
from gpu_tenant.ledger.signatures import SIGNED, Signatures, signature_of_row, use

_LIVE = (
    "SELECT * FROM volumes WHERE state IN ('intended','active','ending') ORDER BY created_at, id"
)
_ALL = "SELECT * FROM volumes ORDER BY created_at, id"

VolumeNews = Literal[
    "intended",
    "made",
    "not made",
    "adopted",
    "growth asked",
    "growth refused",
    "permitted",
    "asked",
    "may stay",
    "disk gone",
    "refused",
    "gone",
    "lost",
    "found again",
]
"""The kinds of lines in a volume's timeline. Never rename one: users' ledgers contain these names."""


class VolumeLine(NamedTuple):
    """One line of a volume's timeline."""

    kind: str
    words: str
    at: datetime


class VolumeUse(NamedTuple):
    """A lease that had the volume."""

    lease: LeaseId
    state: str
    begun_at: datetime
    ended_at: datetime | None
    ground: str | None
    """The ground on which its box was destroyed. None if we did not destroy it."""


class VolumeTable(Signatures):
    """The part of the ledger that knows the volumes."""

    def intend_volume(
        self,
        key: VolumeKey,
        *,
        provider: str,
        name: str,
        mark: str,
        region: str,
        size_gb: int,
        usd_month: Decimal | None,
        at: datetime,
        allowed: Callable[[Sequence[Volume]], None],
        signed: Sequence[str] = (),
    ) -> Volume:
        """Record that a volume is wanted. The provider has not made it yet.

        `allowed` gets the live volumes, and raises if the owner's limits leave no room for another. It is called inside
        the transaction, so that two simultaneous calls see each other. `signed` are the codes of the signatures that
        this uses up.

        Raises:
            Refused: a volume of that name may exist there, or a signature was used before.
        """
        try:
            with self._transaction() as db:
                allowed([_volume(row) for row in db.execute(_LIVE)])
                for code in signed:
                    use(db, code, at=at)
                db.execute(
                    "INSERT INTO volumes(id, provider, name, mark, region, size_gb, state, usd_month,"
                    " created_at) VALUES (?,?,?,?,?,?,'intended',?,?)",
                    (key, provider, name, mark, region, size_gb, _text(usd_month), at.isoformat()),
                )
                _note(db, key, "intended", f"{size_gb} GB in {region}", at)
        except IntegrityError as error:
            if "volumes.provider" not in str(error):
                raise
            raise Refused(
                f"{provider} already has a volume named {name}, or may have one",
                remedy=f"{Command('volumes')} lists it; to create a second volume, choose a different name",
            ) from error
        return self.volume(key)

    def volume(self, key: str) -> Volume:
        """Return the recorded volume with that key."""
        return self._read(_volume, "SELECT * FROM volumes WHERE id=?", key)[0]

    def volumes(self, which: Literal["live", "all"] = "live") -> list[Volume]:
        """Return the recorded volumes, oldest first."""
        return self._read(_volume, _LIVE if which == "live" else _ALL)

    def note_volume(self, key: VolumeKey, kind: VolumeNews, words: str, *, at: datetime) -> None:
        """Add a line to the volume's timeline."""
        with self._transaction() as db:
            _note(db, key, kind, words, at)

    def volume_events(self, key: str) -> list[VolumeLine]:
        """Return the volume's timeline, oldest first."""
        return self._read(
            lambda row: VolumeLine(row["kind"], row["words"], moment(row["at"])),
            "SELECT * FROM volume_events WHERE volume=? ORDER BY seq",
            key,
        )

    def bind_volume(
        self, key: VolumeKey, volume_id: str, asking: Asking | None, *, at: datetime
    ) -> Volume:
        """Record the volume that the provider made, and under which account it was made."""
        place, secret, account = asking if asking is not None else (None, None, None)
        with self._transaction() as db:
            db.execute(
                "UPDATE volumes SET state='active', volume_id=?, place=?, key=?, account=? WHERE id=?",
                (volume_id, place, secret, account, key),
            )
            _note(db, key, "made", volume_id, at)
        return self.volume(key)

    def adopt_volume(
        self,
        key: VolumeKey,
        name: str,
        listed: ListedVolume,
        asking: Asking | None,
        *,
        provider: str,
        signature: str,
        at: datetime,
    ) -> Volume:
        """Record a volume that was not made by this program, under the name `name`. It exists, and bills.

        `signature` is the code of the signature that this uses up. A volume that counts as lost or gone, but is listed
        nevertheless, is adopted like any other.

        Raises:
            Refused: a volume of that name, or the same volume, is on record there, or the signature was used before.
        """
        place, secret, account = asking if asking is not None else (None, None, None)
        size_gb = 0 if listed.size_gb is None else round(listed.size_gb)
        try:
            with self._transaction() as db:
                use(db, signature, at=at)
                db.execute(
                    "INSERT INTO volumes(id, provider, name, mark, called, region, size_gb, state, usd_month,"
                    " created_at) VALUES (?,?,?,?,?,?,?,'intended',?,?)",
                    (
                        *(key, provider, name, f"taken up as {key}", listed.name, listed.region),
                        *(size_gb, _text(listed.usd_month), at.isoformat()),
                    ),
                )
                db.execute(
                    "UPDATE volumes SET state='active', volume_id=?, place=?, key=?, account=? WHERE id=?",
                    (listed.id, place, secret, account, key),
                )
                _note(db, key, "adopted", f"{listed.id}, called {listed.name} there", at)
        except IntegrityError as error:
            if "volumes.provider" not in str(error):
                raise
            by_id = "volumes.volume_id" in str(error)
            raise _on_record(provider, listed.id if by_id else name) from error
        return self.volume(key)

    def intend_growth(
        self,
        key: VolumeKey,
        size_gb: int,
        usd_month: Decimal | None,
        *,
        at: datetime,
        allowed: Callable[[Sequence[Volume]], None],
        signed: Sequence[str] = (),
    ) -> Volume:
        """Record that the volume is to grow to `size_gb`. Its new rate counts from now on, even if it does not grow.

        `allowed` and `signed` are as for `intend_volume`. `allowed` is given all the other volumes.
        """
        with self._transaction() as db:
            allowed([v for v in map(_volume, db.execute(_LIVE)) if v.key != key])
            for code in signed:
                use(db, code, at=at)
            db.execute(
                "UPDATE volumes SET usd_month=?, size_gb=? WHERE id=?",
                (_text(usd_month), size_gb, key),
            )
            _note(db, key, "growth asked", f"to {size_gb} GB", at)
        return self.volume(key)

    def rate_volume(self, key: VolumeKey, usd_month: Decimal | None, size_gb: int) -> Volume:
        """Record what the volume costs a month and how large it is, as its provider lists it now."""
        with self._transaction() as db:
            db.execute(
                "UPDATE volumes SET usd_month=?, size_gb=? WHERE id=?",
                (_text(usd_month), size_gb, key),
            )
        return self.volume(key)

    def see_volume(
        self, key: VolumeKey, *, listed: Literal["listed", "omitted"], at: datetime
    ) -> None:
        """Record one look at the provider's list."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO volume_sightings(volume, listed, at) VALUES (?,?,?)",
                (key, listed, at.isoformat()),
            )

    def volume_absences(self, key: str) -> list[datetime]:
        """Return the times at which the provider's list omitted the volume, oldest first, since it last showed it."""
        return self._read(
            lambda row: moment(row["at"]),
            "SELECT at FROM volume_sightings WHERE volume=?1 AND listed='omitted' AND seq >"
            " (SELECT coalesce(max(seq), 0) FROM volume_sightings WHERE volume=?1 AND listed='listed')"
            " ORDER BY seq",
            key,
        )

    def end_volume(
        self, key: VolumeKey, state: Literal["gone", "void", "lost"], words: str, *, at: datetime
    ) -> Volume:
        """Record that the volume has ended."""
        kind: VolumeNews = "not made" if state == "void" else state
        with self._transaction() as db:
            db.execute(
                "UPDATE volumes SET state=?, ended_at=? WHERE id=?", (state, at.isoformat(), key)
            )
            _note(db, key, kind, words, at)
        return self.volume(key)

    def confirm_disk_gone(self, key: VolumeKey, signature: str, *, at: datetime) -> Volume:
        """Record that the volume is gone, and its disk as well, because a person has signed for that.

        Raises:
            Refused: the signature was used before, has expired, or does not exist.
        """
        with self._transaction() as db:
            use(db, signature, at=at)
            _note(db, key, "disk gone", signature, at)
            db.execute(
                "UPDATE volumes SET state='gone', ended_at=? WHERE id=?", (at.isoformat(), key)
            )
            _note(db, key, "gone", "a person has seen that no disk is left of it", at)
        return self.volume(key)

    def find_volume_again(self, key: VolumeKey, *, at: datetime) -> Volume | None:
        """Record that a lost volume is listed again. None if another volume has its name, or it was adopted again."""
        try:
            with self._transaction() as db:
                db.execute("UPDATE volumes SET state='active', ended_at=NULL WHERE id=?", (key,))
                _note(db, key, "found again", "its provider lists it again", at)
        except IntegrityError as error:
            if "volumes.provider" not in str(error):
                raise
            return None
        return self.volume(key)

    def file_volume_permit(self, permit: VolumePermit, *, at: datetime) -> Volume:
        """Record the permit, use up its signature, and begin the end of the volume. From then on, no lease can use it.

        If this end has already begun with the same signature, the permit is on record, and nothing changes.

        Raises:
            Refused: the signature was used before or has expired, or a live lease uses the volume.
        """
        try:
            with self._transaction() as db:
                begun = db.execute(
                    "SELECT 1 FROM volume_permits WHERE volume=? AND signature=?",
                    (permit.volume, permit.signature),
                ).fetchone()
                if begun is not None:
                    return self.volume(permit.volume)
                use(db, permit.signature, at=at)
                db.execute(
                    "INSERT INTO volume_permits(volume, volume_id, signature, at) VALUES (?,?,?,?)",
                    (permit.volume, permit.volume_id, permit.signature, at.isoformat()),
                )
                db.execute("UPDATE volumes SET state='ending' WHERE id=?", (permit.volume,))
                _note(db, permit.volume, "permitted", f"signed for under {permit.signature}", at)
        except IntegrityError as error:
            if "a lease uses this volume" not in str(error):
                raise
            raise Refused(
                "a lease has begun to use the volume meanwhile; nothing was destroyed",
                remedy=f"end that lease first; {Command('leases')} shows it",
            ) from error
        return self.volume(permit.volume)

    def volume_signature(self, key: str, digest: str, *, at: datetime) -> Signature | None:
        """Return a person's signature for exactly this digest: an unused one, or the one with which this end began."""
        begun = self._read(
            signature_of_row,
            f"{SIGNED} JOIN volume_permits p ON p.volume=r.subject AND p.signature=s.code"
            " WHERE r.kind='volume' AND r.subject=? AND r.digest=?",
            key,
            digest,
        )
        return begun[0] if begun else self.unused_signature("volume", key, digest, at=at)

    def uses_of(self, volume: Volume) -> list[VolumeUse]:
        """Return every lease that had the volume, oldest first. An intent that never had a box is left out.

        A volume that was lost and adopted again has two records. The leases of both are returned.
        """
        return self._read(
            _use_of,
            "SELECT DISTINCT l.id, l.state, coalesce(l.active_at, l.created_at) AS begun_at, l.ended_at,"
            " (SELECT ground FROM permits WHERE lease_id=l.id ORDER BY seq DESC LIMIT 1) AS ground"
            " FROM volumes v, leases l, json_each(l.terms, '$.order.volumes') AS mount"
            " WHERE v.provider=?1 AND (v.id=?2 OR v.volume_id=?3) AND l.provider=v.provider"
            " AND mount.key=v.name AND l.created_at>=v.created_at AND l.state<>'void'"
            " AND (v.ended_at IS NULL OR l.created_at<=v.ended_at) ORDER BY l.created_at, l.id",
            volume.provider,
            volume.key,
            volume.volume_id,
        )


def _on_record(provider: str, named: str) -> Refused:
    return Refused(
        f"the volume {named} at {provider} is already on record here, or another volume with its name is",
        remedy=f"{Command('volumes')} lists those on record; to add a second volume, choose a different name",
    )


def _note(db: Connection, key: str, kind: VolumeNews, words: str, at: datetime) -> None:
    db.execute(
        "INSERT INTO volume_events(volume, kind, words, at) VALUES (?,?,?,?)",
        (key, kind, words, at.isoformat()),
    )


def _text(usd: Decimal | None) -> str | None:
    return None if usd is None else str(usd)


def _use_of(row: Row) -> VolumeUse:
    return VolumeUse(
        LeaseId(row["id"]),
        row["state"],
        moment(row["begun_at"]),
        row["ended_at"] and moment(row["ended_at"]),
        row["ground"],
    )


def _volume(row: Row) -> Volume:
    return Volume(
        key=VolumeKey(row["id"]),
        provider=row["provider"],
        name=row["name"],
        mark=row["called"] or row["mark"],
        region=row["region"],
        size_gb=row["size_gb"],
        state=VolumeState(row["state"]),
        volume_id=row["volume_id"],
        usd_month=None if row["usd_month"] is None else Decimal(row["usd_month"]),
        created_at=moment(row["created_at"]),
        ended_at=row["ended_at"] and moment(row["ended_at"]),
        asked_at_place=row["place"],
        asked_with_key=row["key"],
        account=row["account"],
    )
