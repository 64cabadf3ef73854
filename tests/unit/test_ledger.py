"""What is written in the ledger stays, and reads back as it was meant."""

import re
from contextlib import closing, suppress
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest
from arranged import (
    LEASE,
    NOON,
    TERMS,
    active,
    box,
    gone,
    intended,
    job,
    never_used,
    quote,
    receipt,
    seal,
)

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BoxTaken, UnknownLease
from gpu_tenant.domain.evidence import Evidence, Verdict
from gpu_tenant.domain.model import LeaseId, LeaseState, SshAddress
from gpu_tenant.domain.terms import Terms
from gpu_tenant.ledger import Ledger

OTHER = LeaseId("local-efgh")


def evidence(name: str, *, fmt: str = "json") -> Evidence:
    verdict = Verdict(format=fmt, outcome="loads")
    return Evidence(name=name, size_bytes=1, sha256="s", verdict=verdict)


# What is written stays


def test_a_lease_s_whole_life_reads_back_after_a_reopen(ledger_file: Path) -> None:
    terms = Terms(
        deadline_at=NOON + timedelta(hours=1),
        max_price_usd_h=Decimal("0.10"),
        budget_usd=Decimal(3),
    )
    ledger = Ledger(ledger_file)
    ledger.intend(
        lease_id=LEASE,
        provider="own",
        terms=terms,
        address=SshAddress(target="me@host:2222"),
        price_usd_h=Decimal("0.07"),
        at=NOON,
    )
    ledger.bind(LEASE, box().model_copy(update={"address": None}), at=NOON + timedelta(minutes=1))
    ledger.touch(LEASE, at=NOON + timedelta(minutes=2))
    ledger.keep_in(LEASE, Path("/kept/here"))
    ledger.close()

    lease = Ledger(ledger_file).lease(LEASE)

    assert lease.state is LeaseState.ACTIVE
    assert lease.terms == terms
    assert lease.address == SshAddress(target="me@host:2222")
    assert lease.price_usd_h == Decimal("0.07")
    assert lease.active_at == NOON + timedelta(minutes=1)
    assert lease.touched_at == NOON + timedelta(minutes=2)
    assert lease.kept_in == "/kept/here"


def test_everything_about_a_lease_reads_back_after_a_reopen(ledger_file: Path) -> None:
    first = Ledger(ledger_file)
    active(first)
    first.note_launched(first.declare(job()), at=NOON)
    first.claim(LEASE, artifacts=["more/"], discard=["tmp/"], at=NOON)
    first.file_seal(LEASE, seal(), at=NOON)
    first.file_evidence(LEASE, "d1", [evidence("a.json")], at=NOON)
    first.file_smoke("smoke-1", '{"passed": true}', at=NOON)
    first.saw(LEASE, listed="omitted", at=NOON)
    first.file_permit(never_used(first.lease(LEASE)), at=NOON)
    first.saw(LEASE, listed="omitted", at=NOON)
    first.file_receipt(receipt(), at=NOON)
    shown = _everything(first)
    first.close()

    again = Ledger(ledger_file)

    assert _everything(again) == shown
    assert again.lease(LEASE).state is LeaseState.GONE
    assert [known.launched_at for known in again.jobs(LEASE)] == [NOON]


def _everything(ledger: Ledger) -> list[object]:
    return [
        ledger.leases(),
        ledger.events(LEASE),
        ledger.jobs(LEASE),
        ledger.declarations(LEASE),
        ledger.seal(LEASE),
        ledger.evidence(LEASE, "d1"),
        ledger.smoke("smoke-1"),
        ledger.absences(LEASE),
        ledger.newest_permit(LEASE),
        ledger.receipt(LEASE),
    ]


# Leases


def test_two_live_leases_cannot_stand_on_one_box(ledger: Ledger) -> None:
    active(ledger)
    intended(ledger, OTHER)

    with pytest.raises(BoxTaken, match=f"{LEASE} already has") as told:
        ledger.bind(OTHER, box(OTHER, box_id=LEASE), at=NOON)

    assert f"gpu-tenant teardown {LEASE}" in told.value.remedy
    assert ledger.lease(OTHER).state is LeaseState.INTENDED


def test_a_box_can_be_leased_again_when_its_lease_has_ended(ledger: Ledger) -> None:
    gone(ledger)
    intended(ledger, OTHER)

    ledger.bind(OTHER, box(OTHER, box_id=LEASE), at=NOON)

    standing = ledger.lease_on("local", LEASE)
    assert standing is not None
    assert standing.id == OTHER


def test_a_lease_that_nobody_wrote_down_is_unknown_by_name(ledger: Ledger) -> None:
    with pytest.raises(UnknownLease, match="no lease 'local-zzzz'"):
        ledger.lease("local-zzzz")


def test_the_meter_counts_from_the_first_binding(ledger: Ledger) -> None:
    active(ledger)

    again = ledger.bind(LEASE, box(), at=NOON + timedelta(hours=1))

    assert again.active_at == NOON


def test_a_box_without_a_known_price_leaves_the_owner_s_price_alone(ledger: Ledger) -> None:
    ledger.intend(
        lease_id=LEASE,
        provider="local",
        terms=Terms(deadline_at=NOON),
        address=None,
        price_usd_h=Decimal("1.50"),
        at=NOON,
    )

    assert ledger.bind(LEASE, box(), at=NOON).price_usd_h == Decimal("1.50")


def test_a_box_that_exists_already_comes_under_a_lease_in_one_step_and_keeps_its_mark(
    ledger: Ledger,
) -> None:
    theirs = box().model_copy(update={"mark": "gpu-tenant:0a1b2c:local-zzzz"})

    lease = ledger.take_up(theirs, lease_id=LEASE, terms=TERMS, at=NOON, touched_at=NOON)

    assert (lease.state, lease.box_id, lease.mark) == (LeaseState.ACTIVE, theirs.id, theirs.mark)
    assert (lease.active_at, lease.touched_at, lease.quote) == (NOON, NOON, None)
    assert [line.kind for line in ledger.events(LEASE)] == [
        timeline.Intended.kind,
        timeline.Bound.kind,
    ]


def test_a_box_that_carries_no_mark_gets_one_of_this_deployment_on_record(ledger: Ledger) -> None:
    unmarked = box().model_copy(update={"mark": None})

    lease = ledger.take_up(unmarked, lease_id=LEASE, terms=TERMS, at=NOON, touched_at=None)

    assert lease.mark == f"gpu-tenant:{ledger.deployment}:{LEASE}"
    assert lease.touched_at is None


def test_a_box_under_a_live_lease_is_not_taken_up_and_leaves_no_line(ledger: Ledger) -> None:
    active(ledger)

    with pytest.raises(BoxTaken, match=f"{LEASE} already has"):
        ledger.take_up(
            box(OTHER, box_id=LEASE), lease_id=OTHER, terms=TERMS, at=NOON, touched_at=None
        )

    assert [lease.id for lease in ledger.leases()] == [LEASE]


# Whose boxes


def test_a_ledger_has_one_name_of_its_own_for_good(ledger_file: Path, tmp_path: Path) -> None:
    first, other = Ledger(ledger_file), Ledger(tmp_path / "other.sqlite3")
    name = first.deployment
    first.close()
    again = Ledger(ledger_file)

    assert re.fullmatch("[0-9a-f]{6}", name)
    assert again.deployment == name
    assert other.deployment != name
    assert intended(again).mark == f"gpu-tenant:{name}:{LEASE}"
    again.close()
    other.close()


# Quotes


def test_a_quote_reads_back_as_it_was_given_also_when_it_has_expired(ledger_file: Path) -> None:
    first = Ledger(ledger_file)
    given = [quote(id="q-aaaa"), quote(id="q-bbbb", cap_usd_h=Decimal("1.23456"))]
    first.file_quotes(given, at=NOON)
    first.close()

    again = Ledger(ledger_file)

    assert [again.quote(each.id) for each in given] == given
    assert again.quote("q-none") is None
    again.close()


def test_quotes_that_expired_a_week_ago_go_when_new_ones_come_unless_a_lease_has_one(
    ledger_file: Path,
) -> None:
    ledger = Ledger(ledger_file)
    ledger.file_quotes([quote(id="q-aaaa"), quote(id="q-bbbb")], at=NOON)
    ledger.intend(
        lease_id=LEASE,
        provider="tiny",
        terms=TERMS,
        address=None,
        price_usd_h=None,
        quote=quote(id="q-bbbb"),
        at=NOON,
    )

    ledger.file_quotes([quote(id="q-cccc")], at=NOON + timedelta(days=7))
    after_a_week = ledger.quote("q-aaaa")
    ledger.file_quotes([], at=NOON + timedelta(days=7, minutes=11))

    assert after_a_week is not None
    assert [ledger.quote(f"q-{x * 4}") is None for x in "abc"] == [True, False, True]
    ledger.close()


def test_a_lease_keeps_the_quote_it_was_rented_by(ledger_file: Path) -> None:
    first = Ledger(ledger_file)
    rented = first.intend(
        lease_id=LEASE,
        provider="tiny",
        terms=TERMS,
        address=None,
        price_usd_h=Decimal("0.50"),
        quote=quote(),
        at=NOON,
    )
    first.close()

    again = Ledger(ledger_file)

    assert again.lease(LEASE).quote == rented.quote == quote()
    again.close()


# Absence


def test_only_the_looks_since_the_box_was_last_listed_count(ledger: Ledger) -> None:
    active(ledger)
    looks = [NOON + timedelta(minutes=n) for n in range(4)]

    ledger.saw(LEASE, listed="omitted", at=looks[0])
    ledger.saw(LEASE, listed="listed", at=looks[1])
    ledger.saw(LEASE, listed="omitted", at=looks[2])
    ledger.saw(LEASE, listed="omitted", at=looks[3])

    assert ledger.absences(LEASE) == looks[2:]


def test_a_look_at_one_lease_says_nothing_of_another(ledger: Ledger) -> None:
    active(ledger)
    active(ledger, OTHER)

    ledger.saw(LEASE, listed="omitted", at=NOON)
    ledger.saw(OTHER, listed="listed", at=NOON)

    assert ledger.absences(LEASE) == [NOON]
    assert ledger.absences(OTHER) == []


def test_a_box_that_has_just_been_bound_was_never_absent(ledger: Ledger) -> None:
    intended(ledger)
    ledger.saw(LEASE, listed="omitted", at=NOON)

    ledger.bind(LEASE, box(), at=NOON)

    assert ledger.absences(LEASE) == []


# Jobs and what they declare


def test_a_job_is_declared_once(ledger: Ledger) -> None:
    active(ledger)
    first = ledger.declare(job())

    again = ledger.declare(job(artifacts=("another/",)))

    assert again == first
    assert ledger.jobs(LEASE) == [first]


def test_the_next_job_id_is_one_that_nobody_has_taken_by_name(ledger: Ledger) -> None:
    active(ledger)
    ledger.declare(job("job2"))
    ledger.declare(job("job1"))

    assert ledger.next_job_id(LEASE) == "job3"


def test_what_is_declared_is_what_every_job_said_and_what_was_said_later(ledger: Ledger) -> None:
    active(ledger)
    ledger.declare(job("one", artifacts=("out/",), discard=("cache/",)))
    ledger.declare(job("two", artifacts=("out/", "logs/")))

    ledger.claim(LEASE, artifacts=["found.bin"], discard=["tmp/"], at=NOON)

    assert ledger.declarations(LEASE) == (["out/", "logs/", "found.bin"], ["cache/", "tmp/"])


def test_a_job_that_may_write_nothing_frees_no_other_job_of_what_it_must_write(
    ledger: Ledger,
) -> None:
    active(ledger)
    ledger.declare(job("one", artifacts=("events.*",)))
    ledger.declare(job("two", artifacts=("events.*", "a*"), discard=("events.*", "a*")))

    assert ledger.declarations(LEASE) == (["events.*", "a*"], ["a*"])
    ledger.claim(LEASE, artifacts=[], discard=["events.*"], at=NOON)
    assert ledger.declarations(LEASE) == (["events.*", "a*"], ["a*", "events.*"])


def test_no_later_word_takes_a_pattern_away_from_what_is_to_be_kept(ledger: Ledger) -> None:
    active(ledger)
    ledger.declare(job(artifacts=("out/", "never/"), discard=("cache/",)))

    ledger.claim(LEASE, artifacts=["cache/"], discard=["never/"], at=NOON)

    assert ledger.declarations(LEASE) == (["out/", "never/", "cache/"], ["cache/", "never/"])


def test_a_claim_of_nothing_leaves_no_line(ledger: Ledger) -> None:
    active(ledger)
    before = ledger.events(LEASE)

    ledger.claim(LEASE, artifacts=[], discard=[], at=NOON)

    assert ledger.events(LEASE) == before


def test_the_newest_seal_and_the_newest_evidence_count(ledger: Ledger) -> None:
    active(ledger)
    ledger.file_seal(LEASE, seal("d1"), at=NOON)
    ledger.file_seal(LEASE, seal("d2"), at=NOON)
    ledger.file_evidence(LEASE, "d1", [evidence("old.json")], at=NOON)
    ledger.file_evidence(LEASE, "d2", [evidence("a", fmt="csv"), evidence("b")], at=NOON)
    ledger.file_evidence(LEASE, "d2", [evidence("a", fmt="json")], at=NOON)

    assert ledger.seal(LEASE) == seal("d2")
    assert [(e.name, e.verdict.format) for e in ledger.evidence(LEASE, "d2")] == [
        ("a", "json"),
        ("b", "json"),
    ]


def test_the_timeline_tells_a_life_in_order(ledger: Ledger) -> None:
    gone(ledger)

    kinds = [line.kind for line in ledger.events(LEASE)]

    assert kinds == [
        timeline.Intended.kind,
        timeline.Bound.kind,
        timeline.Permitted.kind,
        timeline.Receipted.kind,
    ]


def test_a_timeline_that_two_processes_write_is_read_whole_by_each(tmp_path: Path) -> None:
    """Each keeps the lines that it has read. A third, who has just come, says what is true."""
    random, path = Random(7), tmp_path / "ledger"
    with closing(Ledger(path)) as one, closing(Ledger(path)) as other:
        for name in ("tiny-a", "tiny-b"):
            intended(one, LeaseId(name))
        for number in range(120):
            writer, reader = random.sample((one, other), 2)
            lease = LeaseId(random.choice(("tiny-a", "tiny-b")))
            if random.random() < 0.3:
                writer.events(lease)
            if random.random() < 0.2:
                with suppress(ZeroDivisionError), writer._transaction() as db:
                    writer._note(db, lease, timeline.Noticed(words="undone"), NOON)
                    assert writer.events(lease)[-1].event == timeline.Noticed(words="undone")
                    raise ZeroDivisionError
            else:
                writer.note(lease, timeline.Noticed(words=str(number)), at=NOON)
            with closing(Ledger(path)) as fresh:
                true = fresh.events(lease)
            assert reader.events(lease) == true == writer.events(lease)
            assert writer.events(lease, timeline.Noticed) == [
                line for line in true if isinstance(line.event, timeline.Noticed)
            ]
    assert "undone" not in str(true)
