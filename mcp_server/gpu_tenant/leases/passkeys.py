"""Changes the owner's passkeys, if there is a signature for it, and reports changes that the owner must know."""

from datetime import datetime, timedelta

from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.signature import PASSKEY, Passkey, Signature
from gpu_tenant.ledger import Ledger

_NEW = timedelta(days=1)
_SET_UP, _ENDS = "passkey: set up", "passkey: ends"


def end_passkeys(ledger: Ledger, *, at: datetime) -> datetime:
    """End every passkey. Return when they end: now if one of them signed for this, otherwise after a day.

    Raises:
        SignatureWanted: nobody has signed for this.
    """
    signature = _signature_for(
        ledger,
        "lost_passkey",
        "ending the passkeys: a day from now, a terminal can sign again",
        at=at,
    )
    return ledger.end_passkeys(signature, at=at)


def keep_passkeys(ledger: Ledger, *, at: datetime) -> None:
    """Keep the passkeys that are about to end, because somebody has signed for this with one of them.

    Raises:
        SignatureWanted: nobody has signed for this.
    """
    would = "keeping the passkeys that somebody has asked to end"
    ledger.keep_passkeys(_signature_for(ledger, "keep_passkey", would, at=at), at=at)


def _signature_for(ledger: Ledger, kind: str, would: str, *, at: datetime) -> Signature:
    words = [_words(key) for key in ledger.passkeys(at)]
    code = ledger.must_be_signed(kind=kind, subject=PASSKEY, would=would, words=words, at=at)
    signature = ledger.signature(code)
    assert signature is not None
    return signature


def ways_to_sign(ledger: Ledger, *, at: datetime) -> tuple[str, ...]:
    """Say how the owner can sign, one sentence for each way."""
    known = ledger.passkeys(at)
    if not known:
        return (f"no passkey is set up: a person signs at a terminal ({Command('sign')})",)
    return tuple(_words(key) for key in known)


def alarm_on_changes(ledger: Ledger, *, at: datetime) -> None:
    """Raise an alarm for each passkey that was set up in the last day or is about to end.

    Somebody other than the owner may have set it up, or may have asked to end it.
    """
    known = ledger.passkeys(at)
    new = [key for key in known if at - key.at < _NEW]
    ending = [key for key in known if key.ends_at is not None]
    for key, keys, level, way in (
        (_SET_UP, new, Level.WARNING, f"if that was not you, {Command('sign', lost_passkey=True)}"),
        (
            _ENDS,
            ending,
            Level.URGENT,
            f"if that was not you, keep it on the page of {Command('dashboard')}",
        ),
    ):
        if keys:
            words = f"{'; '.join(_words(each) for each in keys)}: {way}"
            ledger.raise_alarm(key, words, level=level, lease_id=None, at=at)
        else:
            ledger.end_alarm(key, lease_id=None, at=at)


def _words(key: Passkey) -> str:
    ends = f", and ends at {key.ends_at:%Y-%m-%d %H:%M} UTC" if key.ends_at else ""
    return f"the passkey {key.id[:12]} was set up at {key.at:%Y-%m-%d %H:%M} UTC by {key.by}{ends}"
