"""A signature is asked for by its words, given once, used once, and never changed."""

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
from arranged import NOON

from gpu_tenant.domain.errors import BadRequest, Refused, SignatureWanted
from gpu_tenant.domain.signature import STANDS, SignatureRequest, digest_of
from gpu_tenant.ledger import Ledger

FILES = tuple(f"out/{n}.bin (1,000 bytes)" for n in range(8))


def ask(
    ledger: Ledger, *words: str, subject: str = "local-abcd", minutes: float = 0
) -> SignatureRequest:
    return ledger.ask_signature(
        kind="waive",
        subject=subject,
        digest=digest_of(words),
        would="destroying it",
        words=words,
        at=NOON + timedelta(minutes=minutes),
    )


def must(ledger: Ledger, *words: str) -> str:
    return ledger.must_be_signed(
        kind="limits", subject="local-abcd", would="a budget of 5000 USD", words=words, at=NOON
    )


def test_who_asks_for_the_same_again_gets_the_same_code_and_for_anything_else_another(
    ledger: Ledger,
) -> None:
    first = ask(ledger, "a", "b")

    assert ask(ledger, "a", "b", minutes=5).code == first.code
    others = {ask(ledger, "a").code, ask(ledger, "a", "b", subject="local-efgh").code}
    assert len(others | {first.code}) == 3
    assert len(first.code) == 6
    assert not set(first.code) & set("IL1O0")


def test_a_verb_that_wants_a_signature_gets_it_once_a_person_has_signed(ledger: Ledger) -> None:
    with pytest.raises(SignatureWanted) as wanted:
        must(ledger, *FILES)
    asked = ledger.asked(wanted.value.asked)
    ledger.sign(asked, by="ada", form="terminal", at=NOON)

    code = must(ledger, *FILES)
    ledger.use_signature(code, at=NOON)

    assert code == asked.code
    assert asked.words == FILES
    assert f"`gpu-tenant sign {code}`" in wanted.value.remedy
    assert FILES[0] in wanted.value.message
    assert "and 3 more" in wanted.value.message
    with pytest.raises(SignatureWanted) as again:
        must(ledger, *FILES)
    assert again.value.asked != code, "what was used is asked for anew"
    with pytest.raises(Refused, match="no unused signature"):
        ledger.use_signature(code, at=NOON)


def test_a_signature_for_other_words_is_none(ledger: Ledger) -> None:
    ledger.sign(ask(ledger, "a"), by="ada", form="terminal", at=NOON)

    assert ledger.signed("waive", "local-abcd", digest_of(("a",)), at=NOON) is not None
    assert ledger.signed("waive", "local-abcd", digest_of(("a", "b")), at=NOON) is None
    assert ledger.signed("waive", "local-efgh", digest_of(("a",)), at=NOON) is None
    assert ledger.signed("attest", "local-abcd", digest_of(("a",)), at=NOON) is None


def test_nobody_signs_twice_or_late_or_under_words_that_have_changed(ledger: Ledger) -> None:
    asked = ask(ledger, "a")
    late = NOON + STANDS
    ledger.ask_signature(
        kind="waive",
        subject="local-abcd",
        digest=asked.digest,
        would="destroying it",
        words=("a", "b"),
        at=NOON,
    )

    with pytest.raises(Refused, match="has changed since it was shown"):
        ledger.sign(asked, by="ada", form="terminal", at=NOON)
    with pytest.raises(Refused, match="waited for its signature until"):
        ledger.sign(ledger.asked(asked.code), by="ada", form="terminal", at=late)
    ledger.sign(ledger.asked(asked.code), by="ada", form="terminal", at=NOON)
    with pytest.raises(Refused, match="is already signed"):
        ledger.sign(ledger.asked(asked.code), by="ada", form="terminal", at=NOON)


def test_what_was_not_used_in_its_time_is_asked_for_anew(ledger: Ledger) -> None:
    asked, late = ask(ledger, "a"), NOON + STANDS
    ledger.sign(asked, by="ada", form="terminal", at=NOON)

    assert ledger.signed("waive", "local-abcd", asked.digest, at=late) is None
    with pytest.raises(Refused, match="no unused signature"):
        ledger.use_signature(asked.code, at=late)
    assert ask(ledger, "a", minutes=24 * 60).code != asked.code


def test_what_waits_is_listed_until_it_is_signed(ledger: Ledger) -> None:
    first, second = ask(ledger, "a"), ask(ledger, "b", minutes=1)
    assert [asked.code for asked in ledger.all_asked(NOON)] == [first.code, second.code]

    ledger.sign(first, by="ada", form="terminal", at=NOON)

    assert [asked.code for asked in ledger.all_asked(NOON)] == [second.code]
    assert ledger.all_asked(NOON + 2 * STANDS) == []


def test_a_code_is_known_however_it_is_typed(ledger: Ledger) -> None:
    code = ask(ledger, "a").code

    assert ledger.asked(f" {code[:3].lower()}-{code[3:]} ").code == code
    with pytest.raises(BadRequest, match="there is nothing to sign"):
        ledger.asked("ZZZZZZ")


def test_what_a_box_has_named_does_nothing_to_a_terminal(ledger: Ledger) -> None:
    asked = ask(ledger, "out/\x1b[2J\x1b]52;c;aGk=\x07evil\u202ename\r\nand more.bin")

    assert asked.words == ("out/evilname and more.bin",)


@pytest.mark.parametrize(
    ("statement", "law"),
    [
        ("UPDATE signature_requests SET digest='x'", "signature_requests are never changed"),
        ("UPDATE signature_words SET words='[]'", "signature_words are never changed"),
        ("UPDATE signatures SET by='x'", "signatures are never changed"),
        ("DELETE FROM signatures", "signatures are never deleted"),
        ("DELETE FROM signature_uses", "signature_uses are never deleted"),
        ("INSERT OR REPLACE INTO signatures SELECT * FROM signatures", "never replaced"),
        (
            "INSERT INTO signatures SELECT 9, 'x', shown, by, form, proof, at FROM signatures",
            "that waits for no signature",
        ),
        ("INSERT INTO signature_uses VALUES ('x', 't')", "FOREIGN KEY"),
    ],
)
def test_the_file_itself_holds_what_was_signed(
    ledger_file: Path, ledger: Ledger, statement: str, law: str
) -> None:
    asked = ask(ledger, "a")
    ledger.sign(asked, by="ada", form="terminal", at=NOON)
    ledger.use_signature(asked.code, at=NOON)

    raw = sqlite3.connect(ledger_file)
    raw.execute("PRAGMA foreign_keys=ON")
    with pytest.raises(sqlite3.IntegrityError, match=law):
        raw.execute(statement)
    raw.close()
