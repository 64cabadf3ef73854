"""Where a passkey is set up nothing else signs; who has lost it waits a day, and everybody hears of it."""

from datetime import datetime, timedelta

import pytest
from arranged import NOON

from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.errors import Refused, SignatureWanted
from gpu_tenant.domain.signature import Form, Signature, SignatureRequest
from gpu_tenant.leases.passkeys import alarm_on_changes, end_passkeys, keep_passkeys, ways_to_sign
from gpu_tenant.ledger import Ledger

DAY = timedelta(days=1)
TYPED: tuple[Form, ...] = ("terminal", "page")


def asked(ledger: Ledger, kind: str = "waive", *, at: datetime = NOON) -> SignatureRequest:
    return ledger.ask_signature(
        kind=kind, subject="passkey", digest="d", would="it would go", words=("w",), at=at
    )


def signed(
    ledger: Ledger, kind: str = "waive", *, form: Form = "terminal", at: datetime = NOON
) -> Signature:
    proof = "{}" if form == "passkey" else None
    return ledger.sign(asked(ledger, kind, at=at), by="ada", form=form, proof=proof, at=at)


@pytest.fixture
def keyed(ledger: Ledger) -> Ledger:
    """A ledger whose owner signs with a passkey."""
    ledger.set_up_passkey("k1", "pk", signed(ledger, "passkey"), at=NOON)
    return ledger


@pytest.mark.parametrize("form", TYPED)
def test_where_a_passkey_is_set_up_nothing_else_signs(keyed: Ledger, form: Form) -> None:
    with pytest.raises(Refused, match="a passkey is set up"):
        signed(keyed, form=form)

    assert signed(keyed, form="passkey").form == "passkey"


def test_another_passkey_takes_the_first_one_s_signature(keyed: Ledger) -> None:
    with pytest.raises(Refused, match="a passkey is set up"):
        signed(keyed, "passkey")
    keyed.set_up_passkey("k2", "pk", signed(keyed, "passkey", form="passkey"), at=NOON)

    assert [key.id for key in keyed.passkeys(NOON)] == ["k1", "k2"]


def test_who_has_lost_it_signs_at_a_terminal_a_day_later(keyed: Ledger) -> None:
    with pytest.raises(SignatureWanted) as wanted:
        end_passkeys(keyed, at=NOON)
    keyed.sign(keyed.request_of(wanted.value.asked), by="ada", form="terminal", at=NOON)

    assert end_passkeys(keyed, at=NOON) == NOON + DAY
    with pytest.raises(Refused, match="a passkey is set up"):
        signed(keyed, at=NOON + DAY - timedelta(minutes=1))
    assert signed(keyed, at=NOON + DAY).form == "terminal"


def test_who_still_has_it_keeps_it(keyed: Ledger) -> None:
    keyed.end_passkeys(signed(keyed, "lost_passkey"), at=NOON)
    with pytest.raises(SignatureWanted) as wanted:
        keep_passkeys(keyed, at=NOON)
    asked_for = keyed.request_of(wanted.value.asked)
    with pytest.raises(Refused, match="a passkey is set up"):
        keyed.sign(asked_for, by="thief", form="terminal", at=NOON)
    keyed.sign(asked_for, by="ada", form="passkey", proof="{}", at=NOON)
    keep_passkeys(keyed, at=NOON)

    assert [key.ends_at for key in keyed.passkeys(NOON + 2 * DAY)] == [None]


def test_a_new_one_and_one_that_ends_are_told(keyed: Ledger) -> None:
    alarm_on_changes(keyed, at=NOON)
    (new,) = keyed.open_alarms()
    keyed.end_passkeys(signed(keyed, "lost_passkey"), at=NOON)
    alarm_on_changes(keyed, at=NOON)
    levels = {alarm.key: alarm.level for alarm in keyed.open_alarms()}

    assert "if that was not you" in new.words
    assert levels == {"passkey: set up": Level.WARNING, "passkey: ends": Level.URGENT}
    assert "and ends at 2026-11-21 12:00" in ways_to_sign(keyed, at=NOON)[0]
    alarm_on_changes(keyed, at=NOON + 2 * DAY)
    assert keyed.open_alarms() == []
    assert "a person signs at a terminal" in ways_to_sign(keyed, at=NOON + 2 * DAY)[0]
