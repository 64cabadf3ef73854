"""The law is held by the ledger's file itself, against any program that opens it."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from arranged import (
    LEASE,
    NOON,
    TERMS,
    active,
    gone,
    intended,
    job,
    never_used,
    quote,
    seal,
    terminating,
)

from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.evidence import Evidence, Verdict
from gpu_tenant.domain.model import LeaseId, LeaseState, WorkPlace
from gpu_tenant.domain.order import Order, VolumeMount
from gpu_tenant.domain.ports import Asking
from gpu_tenant.domain.signature import Signature
from gpu_tenant.domain.sweep_grid import grid_of
from gpu_tenant.domain.sweep_placement import Said, Settlement, Sweep
from gpu_tenant.domain.volumes import VolumeKey
from gpu_tenant.files.skill_files import skill_directory
from gpu_tenant.leases.verify import sign_volume
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.profiles import load_profiles

OTHER = LeaseId("local-efgh")


def used(ledger: Ledger) -> None:
    active(ledger)
    ledger.touch(LEASE, at=NOON)


def permitted_for_another_box(ledger: Ledger) -> None:
    other = active(ledger, OTHER)
    active(ledger)
    ledger.file_permit(never_used(other), at=NOON)


def omitted_once(ledger: Ledger) -> None:
    terminating(ledger)
    ledger.saw(LEASE, listed="omitted", at=NOON)


def omitted_listed_omitted(ledger: Ledger) -> None:
    terminating(ledger)
    for listed in ("omitted", "listed", "omitted"):
        ledger.saw(LEASE, listed=listed, at=NOON)


def lost(ledger: Ledger) -> None:
    active(ledger)
    for _ in range(2):
        ledger.saw(LEASE, listed="omitted", at=NOON)
    ledger.end(LEASE, "lost", at=NOON)


def let_in(ledger: Ledger) -> None:
    """A box that has let us in, and that nobody has looked at since."""
    active(ledger)
    ledger.note(LEASE, timeline.Looked(), at=NOON)
    ledger.ready(LEASE, at=NOON)


def marked(ledger: Ledger) -> None:
    """One that let us in for its mark alone."""
    active(ledger)
    ledger.note(LEASE, timeline.Marked(nonce="ab"), at=NOON)


def parked_after_a_look(ledger: Ledger) -> None:
    """A box that was looked at and then stopped: a person may have started it and worked on it since."""
    let_in(ledger)
    ledger.note(LEASE, timeline.Looked(), at=NOON)
    ledger.note_parked(LEASE, None, at=NOON)


def parked_unread(ledger: Ledger) -> None:
    """A used box that was stopped, and that nobody read in full before that."""
    used(ledger)
    ledger.note_parked(LEASE, None, at=NOON)


def parked_and_read(ledger: Ledger) -> None:
    """One that was read in full right before its stop."""
    parked_unread(ledger)
    read = timeline.ReadAtStop(seal="a", last_change="Exited by user")
    ledger.note(LEASE, read, at=NOON)


def parked_read_and_started(ledger: Ledger) -> None:
    """One that was started again since, and stopped once more."""
    parked_and_read(ledger)
    ledger.note(LEASE, timeline.Resuming(), at=NOON)


def permitted_after_a_look(ledger: Ledger) -> None:
    """A box that was looked at before its first permit, whose destroy did not go through."""
    let_in(ledger)
    ledger.note(LEASE, timeline.Looked(), at=NOON)
    ledger.file_permit(never_used(ledger.lease(LEASE)), at=NOON)


def proved(ledger: Ledger) -> None:
    """A lease with a row in every table of proof."""
    gone(ledger)
    ledger.file_seal(LEASE, seal("a"), at=NOON)
    verdict = Verdict(format="json", outcome="loads")
    evidence = Evidence(name="work/a.json", size_bytes=1, sha256="0", verdict=verdict)
    ledger.file_evidence(LEASE, "a", [evidence], at=NOON)


def rented(ledger: Ledger) -> None:
    """A lease whose box was asked for with a key that is on record."""
    active(ledger)
    ledger.note_asking(LEASE, Asking(where="https://a", key="k"), at=NOON)


VOLUME = VolumeKey("vol-abcd")


def volume_intended(ledger: Ledger) -> None:
    ledger.intend_volume(
        VOLUME,
        provider="local",
        name="data",
        mark="gpu-tenant-ab-vol-abcd",
        region="here",
        size_gb=10,
        usd_month=None,
        at=NOON,
        allowed=lambda others: None,
    )


def with_volume(ledger: Ledger) -> None:
    volume_intended(ledger)
    ledger.bind_volume(VOLUME, "v1", None, at=NOON)


def volume_permitted(ledger: Ledger) -> None:
    """A volume for whose end a person has signed."""
    with_volume(ledger)
    asked = ledger.ask_signature(
        kind="volume", subject=VOLUME, digest="d", would="w", words=(), at=NOON
    )
    signature = ledger.sign(asked, by="a person", form="terminal", at=NOON)
    permit = sign_volume(ledger.volume(VOLUME), signature, digest="d")
    ledger.see_volume(VOLUME, listed="omitted", at=NOON)
    ledger.file_volume_permit(permit, at=NOON)


def volume_with_an_unseen_disk(ledger: Ledger) -> None:
    volume_permitted(ledger)
    ledger.note_volume(VOLUME, "may stay", "its disk is not shown", at=NOON)
    for _ in range(2):
        ledger.see_volume(VOLUME, listed="omitted", at=NOON)


def disk_gone_by_another_signature(ledger: Ledger) -> None:
    volume_with_an_unseen_disk(ledger)
    (begun,) = [e for e in ledger.volume_events(VOLUME) if e.kind == "permitted"]
    ledger.note_volume(VOLUME, "disk gone", begun.words.split()[-1], at=NOON)


def volume_in_use(ledger: Ledger) -> None:
    """A volume that was permitted to end once, and that a lease uses now."""
    with_volume(ledger)
    terms = TERMS.model_copy(update={"order": Order(volumes={"data": VolumeMount(path="/data")})})
    ledger.intend(
        lease_id=LEASE, provider="local", terms=terms, address=None, price_usd_h=None, at=NOON
    )
    asked = ledger.ask_signature(
        kind="volume", subject=VOLUME, digest="d", would="w", words=(), at=NOON
    )
    ledger.sign(asked, by="a person", form="terminal", at=NOON)
    ledger.use_signature(asked.code, at=NOON)
    with sqlite3.connect(ledger.directory / "ledger.sqlite3") as raw:
        raw.execute(
            "INSERT INTO volume_permits(volume, volume_id, signature, at) VALUES (?,'v1',?,'t')",
            (VOLUME, asked.code),
        )
    raw.close()


def signed_for_something_else(ledger: Ledger) -> None:
    with_volume(ledger)
    asked = ledger.ask_signature(
        kind="waive", subject=VOLUME, digest="d", would="w", words=(), at=NOON
    )
    ledger.sign(asked, by="a person", form="terminal", at=NOON)
    ledger.use_signature(asked.code, at=NOON)


def going_on(ledger: Ledger) -> None:
    """A lease that goes on with the work of another."""
    active(ledger, OTHER)
    ledger.intend(
        lease_id=LEASE,
        provider="local",
        terms=TERMS,
        address=None,
        price_usd_h=None,
        at=NOON,
        recovers=OTHER,
    )


def alarmed(ledger: Ledger) -> None:
    """A lease with an urgent alarm that is open, and one that has ended."""
    active(ledger)
    for key in ("open", "ended"):
        ledger.raise_alarm(key, "words", level=Level.URGENT, lease_id=LEASE, at=NOON)
    ledger.end_alarm("ended", lease_id=LEASE, at=NOON)


def swept(ledger: Ledger) -> None:
    """A sweep whose first cell was given up, whose second runs, and whose table somebody accepted."""
    active(ledger)
    grid = grid_of("t {x}", artifacts=["{cell}/"], matrix={"x": [1, 2]})
    ledger.declare_sweep(
        Sweep(
            id="",
            grid=grid,
            env_names=(),
            env_from=(),
            max_runtime_s=None,
            attempts=1,
            slots=None,
            python="image",
            at=NOON,
        )
    )
    ledger.join_sweep("sw-1", [LEASE], at=NOON)
    ledger.place("sw-1", {"x-1": job("x-1"), "x-2": job("x-2")}, at=NOON)
    first, second = ledger.placements("sw-1")
    ledger.note_reports({second.seq: Said(word="running", heard_at=NOON)})
    ledger.release([first], "withdrawn", at=NOON)
    ledger.give_up("sw-1", ["x-1"], at=NOON)
    ledger.reread([second], at=NOON)
    settlement = Settlement(digest="d", wrong=("w",), by="ada", at=NOON)
    ledger.settle_sweep("sw-1", settlement, signature=signed(ledger, "settle", "sw-1").code)


def signed(ledger: Ledger, kind: str = "waive", subject: str = LEASE) -> Signature:
    """What a person has signed, and nobody has used yet."""
    asked = ledger.ask_signature(
        kind=kind, subject=subject, digest="d", would="it would go", words=("w",), at=NOON
    )
    return ledger.sign(asked, by="ada", form="terminal", at=NOON)


def all_signed(ledger: Ledger) -> None:
    """A used box, with an unused signature for its loss, and a used one for something else."""
    used(ledger)
    signed(ledger)
    ledger.use_signature(signed(ledger, "settle", "sw-1").code, at=NOON)


def declined(ledger: Ledger) -> None:
    """A person has said no to a quote."""
    with ledger._transaction() as db:
        db.execute(
            "INSERT INTO answers(kind, said, subjects, would, at) VALUES ('rent','no','[\"q-no\"]','rent','t')"
        )


def by_a_quote(ledger: Ledger) -> None:
    ledger.intend(
        lease_id=LEASE,
        provider="local",
        terms=TERMS,
        address=None,
        price_usd_h=None,
        at=NOON,
        quote=quote(id="q-once"),
    )


def with_a_passkey(ledger: Ledger) -> None:
    """A passkey is in force, which somebody told to end, and somebody else has kept."""
    active(ledger)
    ledger.set_up_passkey("k", "pk", signed(ledger, "passkey", "passkey"), at=NOON)
    ledger.end_passkeys(signed(ledger, "lost_passkey", "passkey"), at=NOON)
    asked = ledger.ask_signature(
        kind="keep_passkey", subject="passkey", digest="d", would="it would stay", words=(), at=NOON
    )
    kept = ledger.sign(asked, by="ada", form="passkey", proof="{}", at=NOON)
    ledger.keep_passkeys(kept, at=NOON)
    ledger.ask_signature(
        kind="waive", subject=LEASE, digest="d", would="it would go", words=("w",), at=NOON
    )


def of_a_fleet(ledger: Ledger) -> None:
    active(ledger)
    ledger.fleet_for("two boxes", at=NOON)


def rehearsed(ledger: Ledger) -> None:
    assert ledger.be_rehearsed()


TO = "UPDATE leases SET state='{}', box_id=coalesce(box_id, 'b')".format
BEGIN = (
    "INSERT {} INTO leases(id, mark, provider, state, box_id, terms, created_at)"
    " VALUES ('{}','m','local',{},'{{}}','t')"
)
LET_GO = "INSERT INTO releases SELECT seq, '{}', 't' FROM placements WHERE cell='x-2'"
PROVED = ("events", "permits", "receipts", "seals", "evidence", "sightings", "rates")
SWEPT = (
    "sweeps",
    "sweep_leases",
    "placements",
    "releases",
    "reports",
    "settlements",
    "rereads",
    "given_up",
)
SIGNED = ("signature_words", "signatures", "signature_uses")
INTENT = "law: a lease begins as an intent"
TWICE = "law: gone is believed when the list has omitted the box twice"
NO_PERMIT, NO_RECEIPT = "law: no permit is filed for this box", "law: no receipt is filed"
MOVES_ON = "law: a lease only moves on"


def counting(ledger: Ledger) -> None:
    """What is written on its box counts from a moment on."""
    used(ledger)
    ledger.counts_since(LEASE, 5)


PERMIT = (
    "INSERT INTO permits(lease_id, box_id, ground, detail, at) VALUES ('{}','{}','{}','{{}}','t')"
)
NEVER_USED = PERMIT.format(LEASE, LEASE, "never_used")
VERIFIED = PERMIT.format(LEASE, LEASE, "verified").replace("{}", '{"seal":"a"}')
OTHERWISE = PERMIT.format(LEASE, LEASE, "verified").replace("{}", '{"seal":"b"}')
UNREAD = "law: nobody has read this box since it last ran"
UNSEEN = "law: nobody has looked whether this box was used"
RECEIPT = f"INSERT INTO receipts(lease_id, record, at) VALUES ('{LEASE}','{{}}','t')"

WISH = "INSERT INTO wishes(id, wish, filed_at, ordered, until) VALUES ('w-a','{}','t','{}','t')"


def wished(ledger: Ledger) -> None:
    """A wish stands, and a lease has been intended."""
    intended(ledger)
    ledger._db.execute(WISH)


def wish_ended(ledger: Ledger) -> None:
    """A wish stood, and was called off."""
    wished(ledger)
    ledger._db.execute("UPDATE wishes SET ended_at='t', outcome='called off'")


def remembered(ledger: Ledger) -> None:
    """A host failed, and its owner forgot that."""
    active(ledger)
    ledger.report_host(
        LEASE, "never ready", "it never let us in", provider="vastai", host="41", at=NOON
    )
    ledger.forget_host("vastai:41", at=NOON)


def placed(ledger: Ledger) -> None:
    active(ledger)
    ledger.note_place(LEASE, WorkPlace(path="~"), at=NOON)


def on_an_errand(ledger: Ledger) -> None:
    """A lease is the box of an errand."""
    ledger._db.execute(ERRAND)
    ledger._db.execute(ERRAND_EVENT)
    ledger.intend(
        lease_id=LEASE,
        provider="local",
        terms=TERMS,
        address=None,
        price_usd_h=None,
        at=NOON,
        errand="run-a",
    )


ERRAND = "INSERT INTO errands(id, digest, record, at) VALUES ('run-a','{}','{}','t')"
ERRAND_EVENT = (
    "INSERT INTO errand_events(seq, errand_id, kind, detail, at)"
    " VALUES (1,'run-a','smoked','{}','t')"
)


BREACHES: dict[str, tuple[Callable[[Ledger], object], str, str]] = {
    "a second box for an errand": (
        on_an_errand,
        BEGIN.format("", OTHER, "'intended',NULL")
        .replace("(id,", "(errand,id,", 1)
        .replace("VALUES (", "VALUES ('run-a',", 1)
        .replace("VALUES('", "VALUES('run-a','", 1),
        "law: an errand has one box",
    ),
    "another errand's": (
        on_an_errand,
        "UPDATE leases SET errand=NULL",
        "law: a lease keeps its errand",
    ),
    "another request": (
        on_an_errand,
        "UPDATE errands SET record='[]'",
        "law: errands are never changed",
    ),
    "an errand deleted": (
        on_an_errand,
        "DELETE FROM errands",
        "law: errands are never deleted",
    ),
    "an errand replaced": (
        on_an_errand,
        ERRAND.replace("INSERT", "INSERT OR REPLACE"),
        "law: errands are never replaced",
    ),
    "an agreement changed": (
        on_an_errand,
        "UPDATE errand_events SET kind='agreed'",
        "law: errand_events are never changed",
    ),
    "an agreement deleted": (
        on_an_errand,
        "DELETE FROM errand_events",
        "law: errand_events are never deleted",
    ),
    "an agreement replaced": (
        on_an_errand,
        ERRAND_EVENT.replace("INSERT", "INSERT OR REPLACE"),
        "law: errand_events are never replaced",
    ),
    "rented for a wish that was called off": (
        wish_ended,
        BEGIN.format("", OTHER, "'intended',NULL")
        .replace("(id,", "(wish,id,", 1)
        .replace("VALUES (", "VALUES ('w-a',", 1)
        .replace("VALUES('", "VALUES('w-a','", 1),
        "law: a wish rents one box, while it stands",
    ),
    "another wish's": (wished, "UPDATE leases SET wish='w-a'", "law: a lease keeps its wish"),
    "another order": (wished, "UPDATE wishes SET until='u'", "law: a wish keeps its order"),
    "a wish again": (
        wish_ended,
        "UPDATE wishes SET ended_at=NULL, outcome=NULL",
        "law: a wish that has ended stays ended",
    ),
    "a wish deleted": (
        wished,
        "DELETE FROM wishes",
        "law: a wish that stood is never deleted",
    ),
    "a wish replaced": (
        wished,
        "INSERT OR REPLACE INTO wishes SELECT * FROM wishes",
        "law: wishes are never replaced",
    ),
    "ends when done, which nobody agreed to": (
        active,
        f"INSERT INTO events(lease_id, kind, detail, at) VALUES ('{LEASE}','done','{{}}','t')",
        "law: nobody agreed that this lease ends when its work is done",
    ),
    "begins active": (intended, BEGIN.format("", OTHER, "'active','b'"), INTENT),
    "begins gone": (intended, BEGIN.format("", OTHER, "'gone','b'"), INTENT),
    "begins with a box": (intended, BEGIN.format("", OTHER, "'intended','b'"), INTENT),
    "replaced": (
        used,
        BEGIN.format("OR REPLACE", LEASE, "'intended',NULL"),
        "law: leases are never replaced",
    ),
    "begins without a mark": (
        intended,
        BEGIN.format("", OTHER, "'intended',NULL").replace("'m'", "''"),
        "law: a lease has a mark",
    ),
    "begins with a mark of nothing": (
        intended,
        BEGIN.format("", OTHER, "'intended',NULL").replace("'m'", "NULL"),
        "NOT NULL",
    ),
    "another mark": (active, "UPDATE leases SET mark='m'", "law: a lease keeps its mark"),
    "no mark any more": (active, "UPDATE leases SET mark=''", "law: a lease keeps its mark"),
    "destroyed without a permit": (active, TO("terminating"), NO_PERMIT),
    "destroyed, used, without a permit": (used, TO("terminating"), NO_PERMIT),
    "destroyed on another's permit": (
        permitted_for_another_box,
        f"{TO('terminating')} WHERE id='{LEASE}'",
        NO_PERMIT,
    ),
    "gone without a permit": (active, TO("gone"), "law"),
    "an intent gone without a permit": (intended, TO("gone"), "law"),
    "gone without a receipt": (terminating, TO("gone"), NO_RECEIPT),
    "a receipt without a look": (terminating, RECEIPT, TWICE),
    "a receipt after one look": (
        omitted_once,
        RECEIPT,
        TWICE,
    ),
    "a receipt over looks that do not follow": (
        omitted_listed_omitted,
        RECEIPT,
        TWICE,
    ),
    "never used, and used": (
        used,
        PERMIT.format(LEASE, LEASE, "never_used"),
        "law: this box was used",
    ),
    "never used, and never looked at": (let_in, NEVER_USED, UNSEEN),
    "never used, and not looked at since it was stopped": (parked_after_a_look, NEVER_USED, UNSEEN),
    "verified while parked, and not read before": (parked_unread, VERIFIED, UNREAD),
    "verified while parked, by another seal": (parked_and_read, OTHERWISE, UNREAD),
    "verified while parked, and started since": (parked_read_and_started, VERIFIED, UNREAD),
    "never used, and only marked": (marked, NEVER_USED, UNSEEN),
    "never used again, by an old look": (permitted_after_a_look, NEVER_USED, UNSEEN),
    "a fourth ground": (active, PERMIT.format(LEASE, LEASE, "convenient"), "CHECK"),
    "intended to lost": (intended, TO("lost"), MOVES_ON),
    "active to void": (active, TO("void"), MOVES_ON),
    "active to intended": (active, TO("intended"), MOVES_ON),
    "terminating to active": (terminating, TO("active"), MOVES_ON),
    "terminating to lost": (terminating, TO("lost"), MOVES_ON),
    "gone to active": (gone, TO("active"), MOVES_ON),
    "gone to terminating": (gone, TO("terminating"), MOVES_ON),
    "lost to terminating": (lost, TO("terminating"), "law"),
    "lost to gone": (lost, TO("gone"), "law"),
    "lost, and back without its box": (
        lost,
        TO("active"),
        "law: only a box that is listed was not lost",
    ),
    "a state of no lease": (active, TO("parked"), "CHECK|law"),
    "active without a box": (intended, "UPDATE leases SET state='active'", "CHECK"),
    "another box": (active, "UPDATE leases SET box_id='another'", "law: a lease keeps its box"),
    "no box any more": (active, "UPDATE leases SET box_id=NULL", "law: a lease keeps its box"),
    "unused again": (used, "UPDATE leases SET touched_at=NULL", "law: used stays used"),
    "used at another time": (used, "UPDATE leases SET touched_at='t'", "law: used stays used"),
    "waived by nobody": (
        active,
        """UPDATE leases SET terms='{"on_deadline": "waive"}'""",
        "law: nobody has signed for that",
    ),
    "begins waived": (
        intended,
        BEGIN.format("", OTHER, "'intended',NULL").replace(
            "'{}'", """'{"on_deadline": "waive"}'"""
        ),
        "law: nobody has signed for that",
    ),
    "a box by a declined quote": (
        declined,
        BEGIN.format("", OTHER, "'intended',NULL")
        .replace(" terms,", " quote, terms,")
        .replace("'{}'", """'{"id": "q-no"}','{}'"""),
        "law: a person has declined this",
    ),
    "another answer": (declined, "UPDATE answers SET said='yes'", "law: answers are never changed"),
    "no answer any more": (declined, "DELETE FROM answers", "law: answers are never deleted"),
    "an answer replaced": (
        declined,
        "INSERT OR REPLACE INTO answers SELECT * FROM answers",
        "law: answers are never replaced",
    ),
    "a second box by one quote": (
        by_a_quote,
        BEGIN.format("", OTHER, "'intended',NULL")
        .replace(" terms,", " quote, terms,")
        .replace("'{}'", """'{"id": "q-once"}','{}'"""),
        "law: a quote rents one box",
    ),
    "a volume without an intent": (
        active,
        "INSERT INTO volumes VALUES ('v','local','n','m','r',1,'active','x',NULL,'t',NULL,NULL,NULL,NULL,NULL)",
        "law: a volume begins as an intent",
    ),
    "a volume given up over another signature": (
        signed_for_something_else,
        (
            "INSERT INTO volume_permits(volume, volume_id, signature, at)"
            f" SELECT '{VOLUME}', 'v1', code, 't' FROM signature_uses"
        ),
        "law: nobody has signed for that",
    ),
    "another volume given up over the signature": (
        volume_in_use,
        (
            "INSERT INTO volume_permits(volume, volume_id, signature, at)"
            f" SELECT '{VOLUME}', 'v2', code, 't' FROM signature_uses"
        ),
        "law: nobody has signed for that",
    ),
    "a volume ended without a permit": (
        with_volume,
        "UPDATE volumes SET state='ending'",
        "law: no permit is filed for this volume",
    ),
    "a volume ended that a lease uses": (
        volume_in_use,
        "UPDATE volumes SET state='ending'",
        "law: a lease uses this volume",
    ),
    "a volume gone that was omitted once": (
        volume_permitted,
        "UPDATE volumes SET state='gone'",
        "law: gone is believed when the list has omitted the volume twice",
    ),
    "a volume gone whose disk nobody has seen gone": (
        volume_with_an_unseen_disk,
        "UPDATE volumes SET state='gone'",
        "law: nobody has seen that its disk is gone",
    ),
    "a disk gone by the signature for its volume": (
        disk_gone_by_another_signature,
        "UPDATE volumes SET state='gone'",
        "law: nobody has seen that its disk is gone",
    ),
    "a volume lost that was never omitted": (
        with_volume,
        "UPDATE volumes SET state='lost'",
        "law: gone is believed when the list has omitted the volume twice",
    ),
    "a volume that comes back from its end": (
        volume_permitted,
        "UPDATE volumes SET state='active'",
        "law: a volume only moves on",
    ),
    "another disk as that volume": (
        with_volume,
        "UPDATE volumes SET volume_id='v2'",
        "law: a volume stays what it is",
    ),
    "a volume deleted": (
        with_volume,
        "DELETE FROM volumes",
        "law: volumes are never deleted",
    ),
    "a volume replaced": (
        with_volume,
        "INSERT OR REPLACE INTO volumes SELECT * FROM volumes",
        "law: volumes are never replaced",
    ),
    "a volume on two boxes": (
        volume_in_use,
        (
            "INSERT INTO leases(id, provider, state, terms, created_at, mark)"
            " SELECT 'local-two2', provider, state, terms, created_at, 'm' FROM leases"
        ),
        "law: a lease has volumes that exist and that no other lease uses",
    ),
    **{
        f"{table}, {word}": (
            volume_permitted,
            statement.format(table=table),
            f"law: {table} are never {word}",
        )
        for table in ("volume_events", "volume_sightings", "volume_permits")
        for word, statement in (
            ("changed", "UPDATE {table} SET at='t'"),
            ("deleted", "DELETE FROM {table}"),
            ("replaced", "INSERT OR REPLACE INTO {table} SELECT * FROM {table}"),
        )
    },
    "a lease deleted": (active, "DELETE FROM leases", "law: leases are never deleted"),
    "recovers another": (
        going_on,
        f"UPDATE leases SET recovers='{LEASE}' WHERE recovers IS NOT NULL",
        "law: a lease keeps what it recovers",
    ),
    "recovers none any more": (
        going_on,
        "UPDATE leases SET recovers=NULL",
        "law: a lease keeps what it recovers",
    ),
    "an alarm deleted": (alarmed, "DELETE FROM alarms", "law: alarms are never deleted"),
    "an alarm replaced": (
        alarmed,
        "INSERT OR REPLACE INTO alarms SELECT * FROM alarms",
        "law: alarms are never replaced",
    ),
    "an alarm quieter": (
        alarmed,
        "UPDATE alarms SET level=1 WHERE key='open'",
        "law: an open alarm only grows louder",
    ),
    "an alarm open again": (
        alarmed,
        "UPDATE alarms SET ended_at=NULL WHERE key='ended'",
        "law: an ended alarm stays ended",
    ),
    "two alarms open about one thing": (
        alarmed,
        f"INSERT INTO alarms VALUES (9, '{LEASE}', 'open', 'w', 1, 't', 't', 0, NULL, NULL)",
        "UNIQUE",
    ),
    "another provider": (
        active,
        "UPDATE leases SET provider='another'",
        "law: a lease keeps its provider",
    ),
    "a cell in two places": (
        swept,
        "INSERT INTO placements SELECT 9, sweep_id, cell, lease_id, 'j', at FROM placements WHERE seq=2",
        "law: a cell is in one place at a time",
    ),
    "a cell that was given up put on a box": (
        swept,
        "INSERT INTO placements SELECT 9, sweep_id, cell, lease_id, 'j', at FROM placements WHERE seq=1",
        "law: what was given up is put nowhere",
    ),
    "a blind box's cell lost": (
        swept,
        LET_GO.format("lost"),
        "law: a box that may exist keeps its cells",
    ),
    "a running cell withdrawn": (
        swept,
        LET_GO.format("withdrawn"),
        "law: what has begun is not withdrawn",
    ),
    "a running cell begun again": (
        swept,
        LET_GO.format("again"),
        "law: what may still run is not begun again",
    ),
    "waived by a signature that nobody has used": (
        all_signed,
        (
            "INSERT INTO permits(lease_id, box_id, ground, detail, at)"
            f" SELECT '{LEASE}', 'b', 'waived', json_object('signature', code), 't' FROM signatures"
        ),
        "law: nobody has signed for that",
    ),
    "waived by a signature for something else": (
        all_signed,
        (
            "INSERT INTO permits(lease_id, box_id, ground, detail, at)"
            f" SELECT '{LEASE}', 'b', 'waived', json_object('signature', code), 't' FROM signature_uses"
        ),
        "law: nobody has signed for that",
    ),
    "waived as if it had been signed ahead": (
        all_signed,
        PERMIT.format(LEASE, "b", "waived").replace("{}", '{"signature": "waived ahead"}'),
        "law: nobody has signed for that",
    ),
    "waived ahead by a line alone": (
        all_signed,
        f"INSERT INTO events VALUES (99, '{LEASE}', 'waived ahead', '{{\"by\": \"me\"}}', 't')",
        "law: nobody has signed for that",
    ),
    "attested by a line alone": (
        all_signed,
        f"INSERT INTO events VALUES (99, '{LEASE}', 'attested', '{{\"by\": \"me\"}}', 't')",
        "law: nobody has signed for that",
    ),
    "other words for a code that was given": (
        all_signed,
        "UPDATE signature_requests SET digest='x'",
        "law: signature_requests are never changed",
    ),
    "a request deleted": (
        all_signed,
        "DELETE FROM signature_requests",
        "law: signature_requests are never deleted",
    ),
    "a request replaced": (
        all_signed,
        "INSERT OR REPLACE INTO signature_requests SELECT * FROM signature_requests",
        "law: signature_requests are never replaced",
    ),
    "typed where a passkey signs": (
        with_a_passkey,
        (
            "INSERT INTO signatures(code, shown, by, form, at) SELECT code, 's', 'me', 'terminal',"
            " asked_at FROM signature_requests WHERE kind='waive'"
        ),
        "law: a passkey signs here",
    ),
    "a passkey that nobody signed for": (
        with_a_passkey,
        (
            "INSERT INTO passkeys SELECT 'mine', 'pk', 'me', code, 't' FROM signature_requests"
            " WHERE kind='waive'"
        ),
        "law: nobody has signed for that",
    ),
    "a passkey that ends at once": (
        with_a_passkey,
        "INSERT INTO passkey_ends SELECT 9, passkey, signature, asked_at, asked_at FROM passkey_ends",
        "law: a passkey that is lost ends after a day",
    ),
    "a passkey's end brought forward": (
        with_a_passkey,
        "UPDATE passkey_ends SET ends_at=asked_at",
        "law: passkey_ends are never changed",
    ),
    "a passkey's end replaced": (
        with_a_passkey,
        "INSERT OR REPLACE INTO passkey_ends SELECT * FROM passkey_ends",
        "law: passkey_ends are never replaced",
    ),
    "a passkey's end deleted": (
        with_a_passkey,
        "DELETE FROM passkey_ends",
        "law: passkey_ends are never deleted",
    ),
    "signed late": (
        all_signed,
        "INSERT INTO signatures SELECT 9, 'ZZZZZZ', shown, by, form, proof, at FROM signatures LIMIT 1",
        "law: that waits for no signature",
    ),
    "another fleet": (
        of_a_fleet,
        "UPDATE leases SET fleet='fl-1'",
        "law: a lease keeps its fleet",
    ),
    "a ledger with leases that is a rehearsal's": (
        proved,
        "INSERT INTO rehearsals VALUES (1)",
        "law: a ledger with leases never becomes a rehearsal",
    ),
    "a rehearsal's ledger that was another": (
        rehearsed,
        "UPDATE rehearsals SET seq = 1",
        "law: rehearsals are never changed",
    ),
    "a lease's directory somewhere else": (
        placed,
        """UPDATE leases SET place='{"path":"/workspace"}'""",
        "law: a lease keeps its place on its box",
    ),
    "a rehearsal's ledger that is real now": (
        rehearsed,
        "DELETE FROM rehearsals",
        "law: rehearsals are never deleted",
    ),
    "a rehearsal's ledger, again": (
        rehearsed,
        "INSERT OR REPLACE INTO rehearsals VALUES (1)",
        "law: rehearsals are never replaced",
    ),
    "counted from later on": (
        counting,
        "UPDATE since SET since_ns=9",
        "law: since are never changed",
    ),
    "counted from never": (counting, "DELETE FROM since", "law: since are never deleted"),
    **{
        f"{table} {done}": (arrange, statement, f"law: {table} are never {done}")
        for arrange, tables in (
            (proved, PROVED),
            (swept, SWEPT),
            (of_a_fleet, ("fleets",)),
            (all_signed, SIGNED),
            (with_a_passkey, ("passkeys", "passkey_ends_withdrawn")),
            (rented, ("askings",)),
            (remembered, ("host_reports", "hosts_forgotten")),
        )
        for table in tables
        for done, statement in (
            ("changed", f"UPDATE {table} SET at='t'"),
            ("deleted", f"DELETE FROM {table}"),
            ("replaced", f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}"),
        )
    },
}


@pytest.mark.parametrize(("arrange", "statement", "words"), BREACHES.values(), ids=BREACHES)
def test_the_file_refuses_a_breach_of_the_law(
    ledger: Ledger,
    ledger_file: Path,
    arrange: Callable[[Ledger], object],
    statement: str,
    words: str,
) -> None:
    arrange(ledger)
    before = ledger.leases()
    raw = sqlite3.connect(ledger_file, isolation_level=None)

    with pytest.raises(sqlite3.IntegrityError, match=words):
        raw.execute(statement)

    raw.close()
    assert ledger.leases() == before


def test_every_trigger_of_the_law_has_a_breach_here(ledger: Ledger, ledger_file: Path) -> None:
    with sqlite3.connect(ledger_file) as raw:
        laws = raw.execute("SELECT name, sql FROM sqlite_master WHERE type='trigger'").fetchall()
    raw.close()

    breached = {words for _, _, words in BREACHES.values()}
    silent = [name for name, sql in laws if not any(f"'{words}'" in sql for words in breached)]

    assert laws
    assert not silent


def test_a_box_that_never_let_us_in_needs_no_look(ledger: Ledger) -> None:
    assert terminating(ledger).state is LeaseState.TERMINATING


def test_each_permit_for_an_unused_box_follows_a_look_of_its_own(ledger: Ledger) -> None:
    permitted_after_a_look(ledger)
    ledger.note(LEASE, timeline.Looked(), at=NOON)

    again = ledger.file_permit(never_used(ledger.lease(LEASE)), at=NOON)

    assert again.state is LeaseState.TERMINATING


def test_a_machine_that_is_handed_back_is_not_looked_at(ledger: Ledger) -> None:
    active(ledger, provider="own")
    ledger.ready(LEASE, at=NOON)

    handed_back = ledger.file_permit(never_used(ledger.lease(LEASE)), at=NOON)

    assert handed_back.state is LeaseState.TERMINATING


def test_own_machines_alone_are_handed_back() -> None:
    given = [
        profile.id
        for profile in load_profiles(skill_directory() / "profiles").values()
        if profile.destroy == "hands_back"
    ]

    assert given == ["own"], "the law names it"


def test_the_law_holds_inside_the_program_too(ledger: Ledger) -> None:
    used(ledger)

    with pytest.raises(sqlite3.IntegrityError, match="law: this box was used"):
        ledger.file_permit(
            never_used(ledger.lease(LEASE).model_copy(update={"touched_at": None})), at=NOON
        )

    assert ledger.lease(LEASE).state is LeaseState.ACTIVE


def test_a_parked_box_that_was_read_at_its_stop_may_be_verified(
    ledger: Ledger, ledger_file: Path
) -> None:
    parked_and_read(ledger)

    with sqlite3.connect(ledger_file) as raw:
        raw.execute(VERIFIED)
        grounds = raw.execute("SELECT ground FROM permits").fetchall()
    raw.close()

    assert grounds == [("verified",)]
