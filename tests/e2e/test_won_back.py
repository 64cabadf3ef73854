"""A box that was outbid and boots again by itself has one state and one next step, whoever is asked about it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from e2e.taken import outbid
from errands import a_tree
from sshd import wait_until
from waited import over

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BoxUnreachable, LeaseHeld, NotReady
from gpu_tenant.domain.interruption import recorded_fate
from gpu_tenant.domain.model import LeaseId, LeaseState
from gpu_tenant.domain.policy import brief_of
from gpu_tenant.faces.cli import lease_table
from gpu_tenant.faces.report import as_markdown, report_of
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.readiness import why_silent
from gpu_tenant.leases.recover import begins_words, recover
from gpu_tenant.leases.watchdog_heartbeat import put_heartbeat
from gpu_tenant.leases.won_back import not_yet
from gpu_tenant.service import Tenancy
from gpu_tenant.watchdog.lease_check import Attendant
from gpu_tenant.watchdog.loop import Watchdog

SAVES = "mkdir out; echo 1 > out/1; sleep 600"
WON = "it won its GPU back and boots; it bills "


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path, time="runs") as made:
        yield made


async def boots_again(tenant: Tenant, tree: Path, **asked: object) -> str:
    """A lease whose box was outbid while its job ran, and that boots again by itself."""
    job = "mkdir -p out; [ -e out/1 ] && exit; touch out/1; sleep 600"
    lease = await outbid(tenant, tree, job, wakes_in_s=60, **asked)
    assert recorded_fate(tenant.tenancy.ledger.events(tenant.lease(lease).id)) == "outbid"
    tenant.wait(61)
    return lease


async def shown(tenant: Tenant) -> Card:
    told = await tenant.tenancy.list_leases()
    assert told.alarms == ()
    (only,) = told.leases
    return only


async def test_until_it_answers_every_verb_says_that_it_boots_and_what_comes_then(
    tenant: Tenant, tmp_path: Path
) -> None:
    lease = await boots_again(tenant, tmp_path / "tree")
    context = tenant.tenancy.context

    card = await shown(tenant)
    collected = await why_silent(
        context, tenant.lease(lease), BoxUnreachable("it does not answer", remedy="look again")
    )
    with pytest.raises(NotReady) as resumed:
        await tenant.tenancy.change_lease(lease, "resume")
    with pytest.raises(NotReady) as recovered:
        await recover(context, lease)

    assert (card.phase, card.condition.to_do) == ("booting", None)
    assert card.next.startswith(WON)
    again = f"wait a minute or two, then `gpu-tenant launch --lease {lease} --artifact 'out/' -- "
    assert again in card.next
    for told in (collected, resumed.value, recovered.value):
        assert told.message.startswith(f"{lease}: {WON}")
        assert told.remedy.startswith(again)
    assert tenant.creates() == 1


async def test_where_the_terms_let_its_work_go_on_a_watchdog_waits_and_says_that_it_launches_again(
    tenant: Tenant, tmp_path: Path
) -> None:
    lease = await boots_again(tenant, tmp_path / "tree", recover=["same"])
    tenancy = tenant.tenancy
    watchdog = Watchdog(tenancy, tell=lambda _: None)

    await watchdog.once()
    card = await shown(tenant)
    raised = [alarm.key for alarm in tenancy.ledger.open_alarms_of(lease)]
    tenant.wait(600)
    await tenancy.list_leases()
    runs = (await tenancy.list_leases()).leases[0]
    await watchdog.once()

    launches = "the watchdog launches its job again"
    assert card.next.startswith(WON)
    assert card.next.endswith(f"; nothing: once it answers, {launches}")
    assert raised == ["boots"]
    assert (
        runs.next
        == f"nothing: {launches}, which was killed when its provider took the box (outbid)"
    )
    assert runs.condition.to_do is None
    assert (await over(tenancy, lease, "train-2")).state == "finished"
    assert tenant.creates() == 1


async def test_once_it_runs_with_a_dead_job_the_launch_again_is_what_to_do(
    tenant: Tenant, tmp_path: Path
) -> None:
    lease = await boots_again(tenant, tmp_path / "tree")
    tenant.wait(600)

    card = (await tenant.tenancy.list_leases()).leases[0]

    assert card.condition.word == "job killed"
    assert card.condition.to_do is not None
    assert card.condition.to_do.matter == "job over"
    assert card.next.startswith(f"`gpu-tenant launch --lease {lease} --artifact 'out/' -- ")
    assert await not_yet(tenant.tenancy.context, tenant.lease(lease)) is None


async def test_what_a_watchdog_recovers_by_itself_is_nothing_to_do_and_a_second_recovery_says_whose_it_is(
    tenant: Tenant, tmp_path: Path
) -> None:
    lease = await outbid(tenant, tmp_path / "tree", SAVES, wrote="out/1", recover=["same"])
    tenancy = tenant.tenancy
    put_heartbeat(tenant.home.watchdog, at=tenancy.clock.now(), every_s=60, unasked={})

    told = await tenancy.list_leases()
    other = tenant.anew_tenancy()
    with tenancy.context.hold_lease(lease, "recover"):
        refused = list[str]()
        for ask in (begins_words, recover):
            with pytest.raises(LeaseHeld) as held:
                await ask(other.context, lease)
            refused.append(held.value.message)

    nothing = "nothing to do: the watchdog continues its work at another box, as its terms say"
    (card,) = told.leases
    assert (card.next, card.condition.to_do) == (nothing, None)
    assert [nothing in words for words in told.alarms] == [True]
    assert refused == [f"the watchdog is recovering {lease} now: nothing to do"] * 2


async def test_what_became_of_an_outbid_box_is_said_once_and_short(
    tenant: Tenant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = Decimal(2)
    lease = await outbid(tenant, tmp_path / "tree", SAVES, wrote="out/1", max_price_usd_h=named)
    tenancy = tenant.tenancy
    new = (await recover(tenancy.context, lease, wait_s=3600)).lease

    told = await tenancy.list_leases()
    lease_table.leases(told)

    printed = capsys.readouterr()
    shown = printed.out + printed.err
    home = f"`gpu-tenant collect {lease}`, with `--artifact 'FILE'` for what it names as unclaimed"
    ends = f"`gpu-tenant resume {lease}`, then {home}, then `gpu-tenant teardown {lease}`"
    assert shown.count(ends) == 1
    assert shown.count("it may start again by itself, and bill") == 1
    assert "waive" not in shown
    lent, now = tenant.lease(new), tenancy.clock.now()
    profile = tenancy.context.profile("vastai")
    terms = brief_of(lent, profile, looked_after="watched", now=now).agreed
    (cap,) = [words for words in terms if "becomes dearer" in words]
    assert cap.endswith(f", the most agreed for {lease}, whose work it continues")


async def test_a_new_job_on_an_interruptible_box_is_looked_at_soon_until_something_of_it_is_here(
    tenant: Tenant, tmp_path: Path
) -> None:
    tenancy = tenant.tenancy
    quotes = await tenant.quotes(hours=2, interruptible="yes")
    card = await tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
    await tenancy.push(card.lease, str(a_tree(tmp_path / "tree")))
    job = "while [ ! -e go ]; do sleep 0.1; done; mkdir out; echo 1 > out/1; sleep 600"
    await tenancy.launch_detached(card.lease, job, ["out/"])
    lease = tenant.lease(card.lease)
    work = tenant.home_of(str(lease.box_id)) / lease.work_directory

    before = await attended(tenancy, lease.id)
    (work / "go").touch()
    await asyncio.to_thread(wait_until, (work / "out/1").exists)
    while not tenancy.ledger.events(lease.id, timeline.Snapped):
        await attended(tenancy, lease.id)
    after = await attended(tenancy, lease.id)

    assert (before.is_busy, before.again_at is not None) == (False, True)
    assert (after.is_busy, after.again_at) == (True, None)


async def attended(tenancy: Tenancy, lease: LeaseId) -> Attendant:
    attendant = Attendant(tenancy, lease, None, look_s=60, done=lambda _: None)
    await attendant.attend()
    return attendant


async def test_what_a_later_collect_moved_away_is_found_by_the_report_and_told_by_the_watchdog(
    tenant: Tenant, tmp_path: Path
) -> None:
    tenancy, to = tenant.tenancy, tmp_path / "results"
    said = list[str]()
    leases = list[str]()
    for words in ("one", "other"):
        card = await tenant.rented()
        job = f"mkdir out; echo {words} > out/x"
        await tenancy.launch_detached(card.lease, job, ["out/"], name="train")
        await over(tenancy, card.lease)
        if not leases:
            await tenancy.collect(card.lease, str(to))
            await tenancy.verify_and_teardown(card.lease)
        else:
            tenancy.ledger.keep_in(tenant.lease(card.lease).id, to)
        leases.append(card.lease)
    await Watchdog(tenancy, tell=said.append).once()

    (aside,) = (to / ".superseded").iterdir()
    assert any(f"older versions of what came are kept in {aside}" in words for words in said), said
    report = await report_of(tenancy.context, leases[0])
    assert report.kept is not None
    x = f"work/out/x lies in {aside} now: a later collect brought another file of that name"
    assert x in report.kept.moved
    assert f"{aside.name} now: a later collect" in as_markdown(report)


async def test_a_woken_box_whose_work_went_on_elsewhere_is_ended_by_the_watchdog_alone(
    tenant: Tenant, tmp_path: Path
) -> None:
    old = await outbid(
        tenant,
        tmp_path / "tree",
        SAVES,
        wrote="out/1",
        wakes_in_s=3600,
        recover=["same"],
        on_failure="end after 0s",
    )
    tenancy = tenant.tenancy
    wakes_at = tenancy.clock.now() + timedelta(seconds=3601)
    new = (await recover(tenancy.context, old, wait_s=3600)).lease
    tenant.wait((wakes_at - tenancy.clock.now()).total_seconds())
    put_heartbeat(tenant.home.watchdog, at=tenancy.clock.now(), every_s=60, unasked={})

    boots = next(x for x in (await tenancy.list_leases()).leases if x.lease == old)
    tenant.wait(600)
    watchdog = Watchdog(tenancy, tell=lambda _: None)
    for _ in range(3):
        await watchdog.once()
        tenant.wait(60)

    assert boots.next.startswith(WON)
    assert boots.next.endswith("the watchdog collects what its jobs wrote, and ends it")
    why = [alarm.words for alarm in tenancy.ledger.open_alarms_of(tenant.lease(old).id)]
    assert tenant.lease(old).state is LeaseState.GONE, why
    assert tenant.lease(new).state.live
