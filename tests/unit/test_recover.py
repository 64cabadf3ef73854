"""Whether, where and for how much work goes on whose box was taken: by the ledger, before any box is asked."""

import shlex
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import NOON, HandClock, intended, job, lease, offer, profile, quote
from e2e.leased import end_processes
from signed import with_signature
from tiny import TinyMarket, no_answer, nothing_free

from gpu_tenant.artifacts.checkpoints import Restorable
from gpu_tenant.artifacts.push import PushedTree, is_unchanged, pushed_trees
from gpu_tenant.artifacts.restore import left_out, may_go_back, restore
from gpu_tenant.box.caretaker import Caretaker
from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errand import EndShown, ErrandRequest
from gpu_tenant.domain.errors import (
    BoxStopped,
    BoxUnreachable,
    NoCapacity,
    NotReady,
    ProviderSilent,
    Refused,
)
from gpu_tenant.domain.model import BoxState, Fate, Lease, LeaseId, LeaseState
from gpu_tenant.domain.offers import Wish
from gpu_tenant.domain.policy import owners_cap
from gpu_tenant.domain.ports import Transport
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.domain.terms import Terms
from gpu_tenant.files.skill_files import script
from gpu_tenant.files.state_dir import Home, reread
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.end import assess_loss
from gpu_tenant.leases.launch_again import again_step
from gpu_tenant.leases.overview import card_of
from gpu_tenant.leases.read_logs import log_window
from gpu_tenant.leases.recover import begins_words, may_recover, recover
from gpu_tenant.leases.recovery_plan import (
    budget_left,
    keep_one_budget,
    successor,
    unfinished_jobs,
    wish_again,
    work_of,
)
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.credentials import references
from gpu_tenant.service import Tenancy
from gpu_tenant.transports.local import LocalTransport
from gpu_tenant.watchdog.loop import Watchdog

LOST = LeaseId("tiny-lost")
HOUR = timedelta(hours=1)
TERMS = Terms(
    deadline_at=NOON + 24 * HOUR,
    max_price_usd_h=Decimal("0.60"),
    budget_usd=Decimal(5),
    recover=("same", "other"),
)


class Desk:
    """A tenancy with two providers, and a lease whose job ran for an hour; its boxes are never reached."""

    def __init__(self, root: Path) -> None:
        self.clock = HandClock()
        self.is_silent = False
        self.tiny, self.other = TinyMarket(self.clock), TinyMarket(self.clock, "other")
        self.ledger = Ledger(root / "ledger", self.clock)
        self.tenancy = Tenancy(
            Context(
                home=Home(root),
                ledger=self.ledger,
                profiles={slug: profile(slug, list_lag_s=30) for slug in ("tiny", "other")},
                connectors={"tiny": self.tiny, "other": self.other},
                open_transport=self._nobody_there,
                introduce=self._nobody_asks,
                public_key=str,
                environ={"TOKEN_HERE": "t"},
            )
        )
        wish = Wish(hours=8, interruptible="yes")
        bid = quote(offer=offer(interruptible=True), wish=wish)
        self.ledger.intend(
            lease_id=LOST,
            provider="tiny",
            terms=TERMS,
            address=None,
            price_usd_h=Decimal("0.50"),
            quote=bid,
            at=NOON,
        )
        box = self.tiny.rent(self.lost.mark, interruptible=True)
        self.ledger.bind(LOST, box, at=NOON)
        self.ledger.ready(LOST, at=NOON)
        self.ledger.touch(LOST, at=NOON)
        self.launched()
        for market in (self.tiny, self.other):
            market.shelf = [offer(provider=market.slug, id=f"{market.slug}-1")]
        self.clock.advance(3600)

    @property
    def lost(self) -> Lease:
        return self.ledger.lease(LOST)

    def launched(self, name: str = "train", *env_from: str) -> None:
        declared = job(name).model_copy(update={"lease_id": LOST, "env_from": env_from})
        self.ledger.note_launched(self.ledger.declare(declared), at=self.clock.now())

    def outbid(self) -> None:
        self.tiny.change(self.lost.box_id, state=BoxState.PARKED, price_usd_h=Decimal("0.01"))

    async def refusal(self) -> str:
        """Why it is not gone on with; nothing was rented."""
        with pytest.raises(Refused) as told:
            await recover(self.tenancy.context, LOST)
        assert "create" not in self.tiny.asked + self.other.asked
        return str(told.value)

    def _nobody_there(self, lease: Lease) -> Transport:
        if self.is_silent:
            raise BoxUnreachable("nobody answers", remedy="look again")
        raise AssertionError("no box is reached")

    async def _nobody_asks(self, lease: Lease, password: str) -> None:
        raise AssertionError("no box takes a password")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    for market in (made.tiny, made.other):
        real = market.rent
        # What is rented from here on boots for ever.
        market.rent = lambda mark, real=real, **more: real(  # type: ignore[method-assign, misc]
            mark, state=BoxState.BOOTING, address=None, **more
        )
    yield made
    made.ledger.close()


def test_both_leases_together_stay_inside_of_the_first_budget(desk: Desk) -> None:
    left = budget_left(desk.ledger, desk.lost, desk.clock.now())
    desk.ledger.intend(
        lease_id=LeaseId("tiny-next"),
        provider="tiny",
        terms=TERMS.model_copy(update={"budget_usd": left}),
        address=None,
        price_usd_h=Decimal("0.50"),
        quote=None,
        at=desk.clock.now(),
        recovers=LOST,
    )
    desk.clock.advance(3600)

    new = desk.ledger.lease(LeaseId("tiny-next"))
    keep_one_budget(desk.ledger, desk.lost, new, desk.clock.now())

    assert left == Decimal("4.50")
    # A start of six minutes, to fetch what the old box alone holds, stays with the old lease.
    assert desk.lost.terms.budget_usd == Decimal("1.09")
    assert desk.ledger.lease(new.id).terms.budget_usd == Decimal("3.91")


# Whether


async def test_what_was_not_taken_is_left_alone(desk: Desk) -> None:
    assert "was not taken" in await desk.refusal()
    desk.tiny.change(desk.lost.box_id, state=BoxState.UNKNOWN)
    assert "was not taken" in await desk.refusal()
    desk.tiny.refuses("list", no_answer())
    assert "what became of tiny-lost is unknown" in await desk.refusal()
    desk.tiny.unlisted.add(desk.lost.box_id)  # type: ignore[arg-type]
    assert "was not taken" in await desk.refusal(), "one look proves nothing"
    assert not may_recover(desk.tenancy.context, desk.lost)


async def test_a_box_that_was_taken_and_runs_again_is_not_called_untaken(desk: Desk) -> None:
    desk.outbid()
    await desk.tenancy.list_leases()
    desk.tiny.change(desk.lost.box_id, state=BoxState.READY)

    with pytest.raises(Refused) as told:
        await recover(desk.tenancy.context, LOST)

    assert told.value.message == "the box of tiny-lost was taken, and runs again"
    assert told.value.remedy.startswith("`gpu-tenant monitor tiny-lost` looks at its job")
    assert "create" not in desk.tiny.asked


def test_the_same_launch_is_named_in_full_and_for_a_run_the_run(desk: Desk) -> None:
    line = "cd a && python train.py --name 'x y'"
    declared = job("odd").model_copy(
        update={
            "lease_id": LOST,
            "command": line,
            "artifacts": ("out/", "log.txt"),
            "discard": ("tmp/",),
            "env_from": ("KEY=env:KEY",),
            "max_runtime_s": 5400,
        }
    )
    desk.ledger.note_launched(desk.ledger.declare(declared), at=NOON)

    step = again_step(desk.ledger, desk.lost, "odd")

    assert shlex.split(step.line)[-1] == line, "sh gets the very command"
    assert step.line.startswith(
        "gpu-tenant launch --lease tiny-lost --artifact 'out/' --artifact 'log.txt' --discard 'tmp/' "
        "--env KEY=env:KEY --max-runtime-h 1.5 -- "
    )
    assert f"command={line!r}" in step.calls[0]
    errand = ErrandRequest(directory="/w", command=line, artifacts=("out/",))
    run = desk.ledger.begin_errand(errand, at=NOON)
    rented = {"provider": "tiny", "terms": TERMS, "address": None, "at": NOON}
    of_it = desk.ledger.intend(
        lease_id=LeaseId("tiny-run"), price_usd_h=Decimal(1), quote=None, errand=run, **rented
    )
    assert again_step(desk.ledger, of_it, f"{run}-2") == Command("run", resume=run)
    assert again_step(desk.ledger, of_it, "by-hand").verb == "launch"
    desk.ledger.note_errand(run, EndShown(outcome="receipt"), at=NOON)
    assert again_step(desk.ledger, of_it, f"{run}-2").verb == "launch", "that run is over"


async def test_whoever_fetches_from_a_stopped_box_is_told_so_with_the_ways_on(desk: Desk) -> None:
    desk.outbid()
    await desk.tenancy.list_leases()
    desk.is_silent = True

    with pytest.raises(BoxStopped) as collected:
        await desk.tenancy.collect(LOST)
    with pytest.raises(BoxStopped) as logs:
        await log_window(desk.tenancy.context, LOST, "train", start=-100, limit=100)

    for told in (collected.value, logs.value):
        assert "the box of tiny-lost does not run" in told.message
        assert "`gpu-tenant recover tiny-lost`" in told.remedy


async def test_the_loss_of_a_box_whose_snapshots_are_here_is_not_called_all(desk: Desk) -> None:
    desk.is_silent = True
    never = await assess_loss(desk.tenancy.context, LOST)
    desk.ledger.note(LOST, timeline.Snapped(files=2), at=NOON)
    some = await assess_loss(desk.tenancy.context, LOST)

    assert "nothing was ever collected" in never.losses[0]
    assert "it may hold more than was collected" in some.losses[0]


async def test_work_that_begins_anew_though_somebody_watched_was_taken_before_a_snapshot(
    desk: Desk,
) -> None:
    desk.outbid()
    await desk.tenancy.list_leases()
    alone = await begins_words(desk.tenancy.context, LOST)
    desk.tenancy.context.watches = True
    watched = await begins_words(desk.tenancy.context, LOST)

    assert "because no watchdog brought a checkpoint home" in alone
    assert "goes on from the start: its box was taken before the first snapshot" in watched


async def test_a_stop_that_a_person_may_have_meant_is_no_loss(desk: Desk) -> None:
    desk.tiny.change(desk.lost.box_id, state=BoxState.PARKED, interruptible=False)

    assert "`gpu-tenant resume tiny-lost`" in await desk.refusal()


async def test_its_terms_its_deadline_and_its_jobs_say_whether_it_may(desk: Desk) -> None:
    desk.outbid()
    await desk.tenancy.list_leases()
    assert may_recover(desk.tenancy.context, desk.lost)

    desk.ledger.note(LOST, timeline.Stopped(job="train"), at=desk.clock.now())
    assert not may_recover(desk.tenancy.context, desk.lost)
    assert "no job of tiny-lost was running" in await desk.refusal()
    desk.launched("again")
    assert may_recover(desk.tenancy.context, desk.lost)
    desk.ledger.change_terms(LOST, TERMS.model_copy(update={"recover": ()}), at=NOON)
    assert not may_recover(desk.tenancy.context, desk.lost), "only somebody who says so by hand"
    desk.ledger.change_terms(LOST, TERMS, at=NOON)
    desk.clock.advance(24 * 3600)
    assert not may_recover(desk.tenancy.context, desk.lost)
    assert "the deadline of tiny-lost has passed" in await desk.refusal()


def test_a_job_that_was_seen_to_end_is_not_launched_again(desk: Desk) -> None:
    for name in ("sealed", "crashed", "setup", "runs"):
        desk.launched(name)
        if name == "sealed":
            desk.ledger.note(LOST, timeline.Sealed(digest="d"), at=NOON)
    desk.ledger.note(LOST, timeline.Progressed(job="crashed", state="failed"), at=NOON)
    desk.ledger.note(LOST, timeline.Preparing(job="setup"), at=NOON)

    assert [each.id for each in unfinished_jobs(desk.ledger, LOST)] == ["runs"]


@pytest.mark.parametrize(
    ("state", "minutes", "fate", "unfinished"),
    [
        ("killed", 2, "preempted", True),
        ("killed", -2, "outbid", True),
        ("killed", 60, "preempted", False),
        ("killed", 2, "stopped_by_provider", True),
        ("killed", 2, None, False),
        ("failed", 2, "preempted", False),
        ("finished", 2, "preempted", False),
    ],
)
def test_a_job_that_was_killed_with_its_box_is_unfinished_whoever_said_it_first(
    desk: Desk, state: str, minutes: int, fate: Fate | None, unfinished: bool
) -> None:
    ended = (NOON, timeline.Progressed(job="train", state=state))
    taken = (NOON + timedelta(minutes=minutes), timeline.Taken(fate=fate, words="so"))
    for at, event in sorted((ended, taken), key=lambda line: line[0]):
        desk.ledger.note(LOST, event, at=at)

    assert bool(unfinished_jobs(desk.ledger, LOST)) == unfinished


async def test_a_job_whose_end_only_the_watchdog_recorded_is_not_run_again_elsewhere(
    desk: Desk,
) -> None:
    """The watchdog may record an end although its second question to the box failed, as a box that goes away does."""
    desk.ledger.job_ended(
        LOST, timeline.JobEnded(job="train", state="finished"), at=desk.clock.now()
    )
    desk.outbid()
    await desk.tenancy.list_leases()

    assert not may_recover(desk.tenancy.context, desk.lost)
    assert "no job of tiny-lost was running" in await desk.refusal()


def test_a_job_that_we_stopped_before_its_box_was_taken_is_not_launched_again(desk: Desk) -> None:
    desk.ledger.note(LOST, timeline.Stopped(job="train"), at=NOON)
    desk.ledger.note(LOST, timeline.Progressed(job="train", state="killed"), at=NOON)
    desk.ledger.note(LOST, timeline.Taken(fate="preempted", words="so"), at=NOON)

    assert unfinished_jobs(desk.ledger, LOST) == ()


async def test_what_is_not_on_record_or_not_as_it_was_is_refused_before_anything_is_rented(
    desk: Desk, tmp_path: Path
) -> None:
    desk.outbid()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").write_text("pass", encoding="utf-8")
    pushed = PushedTree(directory=str(tree), digest="as it was", include_secrets=())
    desk.ledger.note(LOST, timeline.Pushed(tree=pushed.model_dump(mode="json")), at=NOON)

    assert f"{tree} has changed since it was pushed" in await desk.refusal()
    gone = PushedTree(directory=str(tree), digest="x", include_secrets=(), include=("data",))
    assert not await is_unchanged(gone)
    desk.launched("other", "MODE=text:", "TOKEN=env:TOKEN_HERE")
    assert "MODE was given as plain text" in await desk.refusal()


async def test_a_secret_that_leads_nowhere_now_is_told_before_anything_is_rented(
    desk: Desk,
) -> None:
    desk.outbid()
    desk.launched("other", "TOKEN=env:ELSEWHERE")

    with pytest.raises(Exception, match="no variable ELSEWHERE"):
        await recover(desk.tenancy.context, LOST)

    assert "create" not in desk.tiny.asked


def test_of_several_pushes_the_last_of_each_tree_counts(desk: Desk) -> None:
    for directory, digest in (("/a", "1"), ("/b", "1"), ("/a", "2")):
        pushed = PushedTree(directory=directory, digest=digest, include_secrets=("key",))
        desk.ledger.note(LOST, timeline.Pushed(tree=pushed.model_dump(mode="json")), at=NOON)

    assert [(t.directory, t.digest) for t in pushed_trees(desk.ledger, LOST)] == [
        ("/b", "1"),
        ("/a", "2"),
    ]


def test_where_a_value_was_found_is_recorded_and_a_value_never_is() -> None:
    token = "hf_" + "QkzXwVbNm7pOiUyTrEw3aSdFgHjKlZxCvB"

    assert references(
        [
            "A=env:A",
            "B=file:~/b",
            "C=keyring:s/u",
            "D=cmd:pass show d",
            "E=text:x",
            f"F=cmd:echo {token}",
        ]
    ) == ("A=env:A", "B=file:~/b", "C=keyring:s/u", "D=cmd:pass show d", "E=text:", "F=text:")


# Where, and for how much


async def test_it_is_rented_once_at_its_own_place_first_with_its_terms_and_what_is_left_of_the_budget(
    desk: Desk,
) -> None:
    desk.outbid()

    card = await recover(desk.tenancy.context, LOST, wait_s=5)
    again = await recover(desk.tenancy.context, LOST, wait_s=5)

    new = desk.ledger.lease(card.lease)
    assert (card.provider, again.lease, new.recovers) == ("tiny", card.lease, LOST)
    assert "`gpu-tenant recover tiny-lost` again" in (card.alarm or "")
    assert desk.tiny.asked.count("create") == 1
    assert new.terms.deadline_at == TERMS.deadline_at
    assert new.terms.recover == TERMS.recover
    assert new.terms.budget_usd is not None
    assert abs(new.terms.budget_usd - Decimal("4.50")) < Decimal("0.01")
    (wish, *_) = [w for w in desk.tiny.wishes if w.offer is None]
    assert (wish.max_price_usd_h, wish.interruptible) == (Decimal("0.60"), "either")
    assert desk.lost.state is LeaseState.ACTIVE, "its disk bills, and nobody has verified it"


async def test_a_price_that_was_only_quoted_bounds_what_is_rented_again_and_ends_no_work(
    desk: Desk,
) -> None:
    assert desk.lost.quote is not None
    agreed = desk.lost.quote.cap_usd_h
    terms = TERMS.model_copy(update={"max_price_usd_h": agreed, "recover": ("same",)})
    desk.ledger.change_terms(LOST, terms, at=NOON)
    dear = offer(
        provider="tiny",
        price=offer().price.model_copy(update={"gpu_usd_h": agreed + Decimal("0.01")}),
    )
    cheap = offer(
        provider="tiny",
        id="tiny-2",
        price=offer().price.model_copy(update={"gpu_usd_h": agreed - Decimal("0.1")}),
    )
    desk.tiny.shelf = [dear]
    desk.outbid()
    with pytest.raises(NoCapacity):
        await recover(desk.tenancy.context, LOST, wait_s=5)

    desk.tiny.shelf = [dear, cheap]
    card = await recover(desk.tenancy.context, LOST, wait_s=5)

    new = desk.ledger.lease(card.lease)
    assert new.quote is not None
    assert new.quote.offer.id == "tiny-2"
    assert owners_cap(new) is None, "nobody named one"
    assert (new.terms.max_price_usd_h, new.quote.cap_usd_h) == (agreed, agreed), "for a third box"
    assert wish_again(new, None).max_price_usd_h == agreed


async def test_a_cap_that_a_person_named_goes_on_to_the_new_box(desk: Desk) -> None:
    named = Decimal("0.55")
    desk.ledger.change_terms(LOST, TERMS.model_copy(update={"max_price_usd_h": named}), at=NOON)
    desk.outbid()
    card = await recover(desk.tenancy.context, LOST, wait_s=5)

    assert owners_cap(desk.lost) == owners_cap(desk.ledger.lease(card.lease)) == named


async def test_a_watchdog_says_that_it_goes_on_with_a_recovery_by_itself_and_when(
    desk: Desk,
) -> None:
    desk.outbid()
    await desk.tenancy.list_leases()

    await Watchdog(desk.tenancy, tell=lambda _: None, every_s=90).once()

    (told,) = [x for x in desk.ledger.open_alarms_of(LOST) if x.key == "recovery"]
    assert told.words == (
        "the new box has not let us in yet: nothing to do: the watchdog goes on with it at its next look, in about 90 s"
    )
    assert told.level is Level.NOTICE


async def test_a_watchdog_that_finds_no_box_says_that_it_tries_again_and_when(desk: Desk) -> None:
    desk.outbid()
    await desk.tenancy.list_leases()
    desk.tiny.shelf = desk.other.shelf = []

    await Watchdog(desk.tenancy, tell=lambda _: None, every_s=90).once()

    (told,) = [x for x in desk.ledger.open_alarms_of(LOST) if x.key == "recovery"]
    assert "the watchdog tries again at its next look, in about 90 s" in told.words
    assert "the next call" not in told.words


async def test_what_took_the_box_is_why_its_job_ended_although_the_box_still_answers(
    desk: Desk, tmp_path: Path
) -> None:
    box = tmp_path / "box"
    box.mkdir()
    desk.tenancy.context._open_transport = lambda lease: LocalTransport(box)
    await desk.tenancy.launch_detached(LOST, "sleep 300", ["out/"], name="again")
    end_processes(box)
    desk.outbid()

    seen = await desk.tenancy.monitor(LOST, wait_s=0)

    assert seen.state == "killed"
    assert (seen.why or "").startswith("preempted: ")


async def test_a_new_box_without_its_work_is_not_offered_another_job(desk: Desk) -> None:
    desk.outbid()
    new = desk.ledger.lease(LeaseId((await recover(desk.tenancy.context, LOST, wait_s=5)).lease))

    with pytest.raises(NotReady) as told:
        await desk.tenancy.monitor(new.id, wait_s=0)

    boots = (
        f"{new.id} has no job yet: it is to continue the work of tiny-lost, and its box still boots"
    )
    assert (told.value.message, told.value.remedy) == (
        boots,
        "`gpu-tenant recover tiny-lost` again goes on with it",
    )
    shown = card_of(desk.tenancy.context, new, None)
    assert (shown.recovered, shown.next) == (boots, told.value.remedy)

    desk.ledger.ready(new.id, at=desk.clock.now())
    desk.tenancy.context.watches = "watchdog"
    with pytest.raises(NotReady) as told:
        await desk.tenancy.monitor(new.id, wait_s=0)
    assert "the work of tiny-lost is on its way to it" in told.value.message
    assert told.value.remedy.startswith("nothing to do: the watchdog goes on with it")


async def test_what_is_lost_for_good_goes_on_above_its_cap_once_its_owner_has_signed_for_that(
    desk: Desk,
) -> None:
    desk.tiny.unlisted.add(desk.lost.box_id)  # type: ignore[arg-type]
    bills = {"level": Level.URGENT, "lease_id": LOST, "at": desk.clock.now()}
    desk.ledger.raise_alarm("end", "its box goes on billing", **bills)
    for _ in range(3):
        await desk.tenancy.list_leases()
        desk.clock.advance(600)
    assert desk.lost.state is LeaseState.LOST
    assert desk.ledger.open_alarms_of(LOST) == [], "what it said of the box is over"
    named = {"recover": (), "budget_usd": Decimal(9)}
    desk.ledger.change_terms(LOST, TERMS.model_copy(update=named), at=NOON)
    dear = offer(
        provider="tiny", price=offer().price.model_copy(update={"gpu_usd_h": Decimal("0.7")})
    )
    desk.tiny.shelf = [dear]
    context, cap = desk.tenancy.context, dear.price.running_usd_h

    with pytest.raises(NoCapacity) as refused:
        await recover(context, LOST, wait_s=5)
    assert f"`gpu-tenant recover tiny-lost --max-price-usd-h {cap}`" in refused.value.remedy
    card = await with_signature(
        desk.tenancy, lambda: recover(context, LOST, max_price_usd_h=cap, wait_s=5)
    )

    assert desk.ledger.lease(card.lease).recovers == LOST
    assert desk.ledger.lease(card.lease).terms.max_price_usd_h == cap


async def test_the_next_in_the_list_is_asked_where_the_first_has_nothing(desk: Desk) -> None:
    desk.outbid()
    desk.tiny.refuses("create", nothing_free())

    card = await recover(desk.tenancy.context, LOST, wait_s=5)

    assert card.provider == "other"
    assert desk.ledger.lease(card.lease).recovers == LOST


async def test_nothing_above_the_cap_or_beyond_the_budget_is_rented(desk: Desk) -> None:
    desk.outbid()
    dear = offer(provider="tiny", price=offer().price.model_copy(update={"gpu_usd_h": Decimal(2)}))
    desk.tiny.shelf, desk.other.shelf = [dear], []
    with pytest.raises(NoCapacity, match=r"above the cap of 0\.60"):
        await recover(desk.tenancy.context, LOST)

    desk.tiny.shelf = [offer(provider="tiny")]
    desk.ledger.change_terms(LOST, TERMS.model_copy(update={"budget_usd": Decimal(2)}), at=NOON)
    with pytest.raises(NoCapacity, match=r"8 hours cost 4\.00 USD, and 1\.50 USD are left"):
        await recover(desk.tenancy.context, LOST)
    desk.ledger.change_terms(LOST, TERMS.model_copy(update={"budget_usd": Decimal("0.4")}), at=NOON)
    assert "the budget of 0.4 USD is spent" in await desk.refusal()


async def test_while_a_box_may_exist_no_other_is_rented(desk: Desk) -> None:
    desk.outbid()
    desk.tiny.loses("create", no_answer())
    hidden = desk.tiny.rent

    def unseen(mark: str | None, **more: object):  # type: ignore[no-untyped-def]
        box = hidden(mark, **more)
        desk.tiny.unlisted.add(box.id)
        desk.tiny.later(400, lambda: desk.tiny.unlisted.discard(box.id))
        return box

    desk.tiny.rent = unseen  # type: ignore[method-assign]
    with pytest.raises(ProviderSilent):
        await recover(desk.tenancy.context, LOST, wait_s=5)
    assert desk.tiny.asked.count("create") + desk.other.asked.count("create") == 1


async def test_a_box_that_woke_after_its_work_began_to_go_on_does_not_take_it_back(
    desk: Desk,
) -> None:
    desk.outbid()
    first = await recover(desk.tenancy.context, LOST, wait_s=5)
    desk.tiny.change(desk.lost.box_id, state=BoxState.READY, price_usd_h=Decimal("0.50"))
    await desk.tenancy.list_leases()

    assert (await recover(desk.tenancy.context, LOST, wait_s=5)).lease == first.lease
    assert desk.tiny.asked.count("create") == 1


async def test_a_new_box_that_never_gets_ready_is_given_back_before_another_is_had(
    desk: Desk,
) -> None:
    desk.outbid()

    first = await recover(desk.tenancy.context, LOST, wait_s=5)
    desk.clock.advance(600)
    second = await recover(desk.tenancy.context, LOST, wait_s=5)

    given_back = desk.ledger.receipt(LeaseId(first.lease))
    assert given_back is not None
    assert given_back.ground == "never_used"
    assert second.lease != first.lease
    assert successor(desk.ledger, desk.lost) == desk.ledger.lease(second.lease)


async def test_a_new_box_that_is_lost_too_before_anything_ran_is_replaced_and_later_its_own_concern(
    desk: Desk,
) -> None:
    desk.outbid()
    first = LeaseId((await recover(desk.tenancy.context, LOST, wait_s=5)).lease)
    desk.ledger.touch(first, at=NOON)
    desk.ledger.end(first, "lost", at=NOON)

    second = LeaseId((await recover(desk.tenancy.context, LOST, wait_s=5)).lease)
    ran = job().model_copy(update={"lease_id": second})
    desk.ledger.note_launched(desk.ledger.declare(ran), at=NOON)
    desk.ledger.end(second, "lost", at=NOON)

    assert second != first
    assert (await recover(desk.tenancy.context, LOST, wait_s=5)).lease == second
    assert not may_recover(desk.tenancy.context, desk.lost)
    assert may_recover(desk.tenancy.context, desk.ledger.lease(second))


def test_the_budget_of_a_chain_counts_what_went_on_billing_behind_it(desk: Desk) -> None:
    at = desk.clock.now()
    desk.ledger.intend(
        lease_id=LeaseId("tiny-next"),
        provider="tiny",
        address=None,
        price_usd_h=None,
        at=at,
        terms=TERMS.model_copy(update={"budget_usd": Decimal("4.50")}),
        recovers=LOST,
    )

    left = budget_left(desk.ledger, desk.ledger.lease("tiny-next"), at + 2 * HOUR)

    assert left == Decimal("3.50"), "the lost box has cost another dollar since"


async def test_the_rest_of_the_work_is_wished_for_and_never_more_than_all_of_it(desk: Desk) -> None:
    assert wish_again(desk.lost, NOON + 5 * HOUR).hours == 3
    assert wish_again(desk.lost, NOON - 5 * HOUR).hours == 8
    assert wish_again(desk.lost, NOON + 50 * HOUR).hours == 0.25
    assert wish_again(desk.lost, None).hours == 8
    assert (await work_of(desk.lost, ledger=desk.ledger)).jobs[0].command == "python train.py"


# What it goes on from


async def test_files_go_back_to_where_the_job_had_them_also_outside_of_its_work_directory(
    tmp_path: Path,
) -> None:
    old = lease().model_copy(update={"id": LeaseId("tiny-old")})
    new = lease().model_copy(update={"id": LeaseId("tiny-new")})
    kept, box, far = tmp_path / "kept", tmp_path / "box", tmp_path / "far" / "w.json"
    kept.mkdir()
    box.mkdir()
    files: dict[str, tuple[SealedFile, Path]] = {}

    def was(name: str, at: str, target: str | None = None) -> None:
        path = kept / str(len(files))
        path.write_text(f'"{name}"', encoding="utf-8")
        held = reread(path)
        assert held is not None
        entry = SealedFile(
            name=name,
            at=at,
            kind="link" if target else "file",
            role="artifact",
            mtime_ns=0,
            size_bytes=held.size_bytes,
            sha256=held.sha256,
            target=target,
        )
        files[name] = entry, path

    work = f"/old/home/{old.work_directory}"
    was("work/out/1.json", f"{work}/out/1.json")
    was("work/out/latest", f"{work}/out/latest", target="1.json")
    was("root/old/home/runs/a b.json", "/old/home/runs/a b.json")
    was(f"root{far}", str(far))
    from_there = Restorable(old, NOON, "/old/home", files)
    transport = LocalTransport(box)
    caretaker = Caretaker(new, transport, script("caretaker.py"))

    artifacts = ["out/", "~/runs/", f"{far.parent}/**"]
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        intended(ledger, new.id)
        await restore(
            from_there,
            Session(new, profile(), transport, caretaker),
            artifacts=artifacts,
            ledger=ledger,
        )

    there = box / new.work_directory / "out"
    assert (there / "1.json").read_text("utf-8") == '"work/out/1.json"'
    assert (there / "latest").readlink() == Path("1.json")
    assert (box / "runs" / "a b.json").exists(), "below the home, which is another one here"
    assert far.exists()
    assert may_go_back(from_there, artifacts) == (files, ())


@pytest.mark.parametrize(
    ("login", "at", "pattern", "goes_back"),
    [
        ("/root", "/root/runs/1.json", "~/runs/", True),
        ("/root", "/root/runs/1.json", "/root/runs/*.json", True),
        ("/root", "/root/runs/.metadata", "~/runs/**", True),
        ("/root", "/data/run/.metadata", "/data/run", True),
        ("/root", "/data/run/1.json", "/data/other/", False),
        ("/root", "/root/runs/1.json", "out/", False),
        ("/root", "/root/.ssh/authorized_keys", "~/**", False),
        ("/root", "/root/.bashrc", "/root/**", False),
        ("/root", "/root/gpu-tenant/caretaker-1.py", "~/", False),
        ("/data", "/data/.bashrc", "/data/**", False),
        ("/", "/.bashrc", "~/**", False),
        ("/nowhere", "/home/me/.profile", "/home/**", False),
        ("/nowhere", "/proc/self/root/root/x", "/**", False),
        ("/data/run", "/data/run/bin/python", "/data/run/**", True),
    ],
)
def test_outside_of_its_work_directory_only_what_the_owner_named_goes_back(
    login: str, at: str, pattern: str, goes_back: bool
) -> None:
    entry = SealedFile(
        name=f"root{at}",
        at="~/.bashrc",
        kind="file",
        role="artifact",
        mtime_ns=0,
        size_bytes=0,
        sha256="",
    )
    kept = Restorable(lease(), NOON, login, {entry.name: (entry, Path())})

    back, left = may_go_back(kept, [pattern])

    assert (list(back), list(left)) == (([entry.name], []) if goes_back else ([], [entry.name]))
    assert (entry.name in left_out(left)) is not goes_back
