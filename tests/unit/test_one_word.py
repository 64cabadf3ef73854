"""However a lease stands, the list, the alarms and the page say the same of it, and all take it from one step."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from arranged import NOON, HandClock, context_of, job, profile, seal
from tiny import TinyParking

from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import UNREACHABLE, Level
from gpu_tenant.domain.model import BoxState, Fate, Lease, LeaseId
from gpu_tenant.domain.next_step import (
    AskForFiles,
    Await,
    BringHome,
    End,
    Furnish,
    GiveMore,
    GiveTime,
    NextStep,
    Over,
    StartAgain,
)
from gpu_tenant.domain.seal import Unclaimed
from gpu_tenant.domain.terms import Terms
from gpu_tenant.faces.cli import lease_table
from gpu_tenant.faces.cli.alarms import seen_now
from gpu_tenant.faces.dashboard.lease_rows import Verb, rows_of
from gpu_tenant.leases.verify import Assessment, prove
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy

LEASE = LeaseId("tiny-aaaa")
TINY = profile("tiny", list_lag_s=120).model_copy(update={"park": "keeps"})
NOW = NOON + timedelta(hours=1)


@dataclass
class Bench:
    """One lease at a tiny provider, in the ledger and in the provider's list."""

    ledger: Ledger
    tiny: TinyParking

    def lease(
        self, *, budget_usd: str | None = None, hours: float = 8, at: datetime = NOON
    ) -> Lease:
        budget = None if budget_usd is None else Decimal(budget_usd)
        terms = Terms(deadline_at=NOON + timedelta(hours=hours), budget_usd=budget)
        return self.ledger.intend(
            lease_id=LEASE, provider="tiny", terms=terms, address=None, price_usd_h=None, at=at
        )

    def ready(self, **terms: object) -> Lease:
        intent = self.lease(**terms)  # type: ignore[arg-type]
        self.ledger.bind(LEASE, self.tiny.rent(intent.mark, price_usd_h=Decimal("0.50")), at=NOON)
        self.ledger.ready(LEASE, at=NOON)
        return self.ledger.lease(LEASE)

    def at_work(self, **terms: object) -> Lease:
        lease = self.ready(**terms)
        self.ledger.touch(LEASE, at=NOON)
        train = job("train").model_copy(update={"lease_id": LEASE})
        self.ledger.declare(train)
        self.ledger.note_launched(train, at=NOON)
        return lease

    def stopped(self, fate: Fate) -> None:
        lease = self.at_work()
        self.tiny.change(
            lease.box_id, state=BoxState.PARKED, interruptible=fate != "stopped_by_provider"
        )

    def over(self, state: str) -> None:
        self.at_work()
        ended = timeline.JobEnded(job="train", state=state, why="it ended")
        self.ledger.job_ended(LEASE, ended, at=NOON)


def unclaimed(bench: Bench) -> None:
    bench.over("finished")
    left = Unclaimed.model_validate(
        {"count": 1, "bytes": 9, "largest": [{"at": "model.bin", "size": 9}]}
    )
    bench.ledger.file_seal(LEASE, seal().model_copy(update={"unclaimed": left}), at=NOON)


def silent(bench: Bench) -> None:
    bench.at_work()
    words = "the box does not answer; its box may be running"
    bench.ledger.raise_alarm(UNREACHABLE, words, level=Level.WARNING, lease_id=LEASE, at=NOW)


def parked(bench: Bench) -> None:
    lease = bench.at_work()
    bench.tiny.change(lease.box_id, state=BoxState.PARKED, price_usd_h=Decimal("0.02"))
    bench.ledger.note_parked(LEASE, Decimal("0.02"), at=NOON)


def refused(bench: Bench) -> None:
    """Its teardown was permitted, and its provider has not ended the box."""
    standing = bench.ready()
    bench.ledger.note(LEASE, timeline.Looked(), at=NOON)
    unused = Assessment(untouched=True, seal=None, evidence=(), losses=())
    bench.ledger.file_permit(prove(standing, unused), at=NOON)


def gone(bench: Bench) -> None:
    lease = bench.at_work()
    assert lease.box_id is not None
    del bench.tiny.boxes[lease.box_id]
    bench.ledger.end(LEASE, "lost", at=NOON)


@dataclass(frozen=True)
class Said:
    """What is to be said of a lease that stands so."""

    stands: Callable[[Bench], object]
    step: type[NextStep]
    matter: str | None
    verb: Verb | None
    is_alarm: bool = False


STANDINGS = {
    "it runs": Said(lambda b: b.at_work(), Await, None, None),
    "it is new": Said(lambda b: b.ready(), Furnish, None, None),
    "it is queued": Said(lambda b: b.lease(at=NOW), Await, "alarm", None, is_alarm=True),
    "it is silent": Said(silent, Await, "silent", "look", is_alarm=True),
    "its job has failed": Said(lambda b: b.over("failed"), BringHome, "job over", "end"),
    "its job has finished": Said(lambda b: b.over("finished"), BringHome, "job over", "end"),
    "a file is unclaimed": Said(unclaimed, AskForFiles, "job over", "end"),
    "it was outbid": Said(lambda b: b.stopped("outbid"), StartAgain, "taken", "resume", True),
    "it was stopped": Said(
        lambda b: b.stopped("stopped_by_provider"), StartAgain, "taken", "resume", True
    ),
    "it is parked with the only copy": Said(parked, StartAgain, "alarm", "resume", True),
    "its deadline has passed": Said(lambda b: b.at_work(hours=0.5), GiveTime, "alarm", None, True),
    "its budget is spent": Said(
        lambda b: b.at_work(budget_usd="0.10"), GiveMore, "alarm", None, True
    ),
    "its teardown goes on": Said(refused, End, "alarm", "teardown", True),
    "it is gone": Said(gone, Over, None, "recover"),
}


@pytest.mark.parametrize("said", STANDINGS.values(), ids=STANDINGS)
async def test_the_list_the_alarms_and_the_page_say_one_thing_of_each_lease(
    ledger: Ledger, clock: HandClock, said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(ledger, TinyParking(clock))
    said.stands(bench)
    clock.advance(3600)
    tenancy = Tenancy(context_of(ledger, TINY, bench.tiny))

    told = await tenancy.list_leases("all")
    lease_table.leases(told)

    (card,) = told.leases
    (row,) = rows_of(told, tenancy, blind={}, silent_since={}, working={})
    printed, alarms = capsys.readouterr(), seen_now(told, ledger.open_alarms())
    to_do = card.condition.to_do
    assert (type(card.step), to_do and to_do.matter) == (said.step, said.matter), card
    assert (row.card.step, row.card.condition) == (card.step, card.condition)
    assert (row.verbs[:1] or (None,))[0] == said.verb or said.verb is None, row.verbs
    asks = f"do this: {LEASE}: " in printed.out
    assert asks == (to_do is not None)
    # The line says already that the job has ended.
    assert not asks or card.next.removesuffix(": its work has ended") in printed.out
    assert (card.alarm is not None) == said.is_alarm, card.alarm
    assert any(words.startswith(f"{LEASE}: ") for words in told.alarms) == said.is_alarm
    assert any(words.startswith(f"{LEASE}: ") for words in alarms) == (to_do is not None)
    assert card.condition.tone != "good" or to_do is None
    if not card.state.live:
        assert (card.bills, card.price_usd_h, told.burning_usd_h) == ("no more", 0, 0)
