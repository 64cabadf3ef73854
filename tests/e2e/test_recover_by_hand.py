"""Whoever says `recover` by hand gets on, or is told the line that works; and what was rented is said."""

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from e2e.taken import outbid
from signed import with_signature
from waited import over

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import NoCapacity, Refused, SignatureWanted
from gpu_tenant.emulators.vastai.market import ASKS
from gpu_tenant.faces.report import as_markdown, report_of
from gpu_tenant.faces.timeline_text import describe
from gpu_tenant.leases.recover import begins_words, may_recover, recover, waits_in_vain
from gpu_tenant.leases.recovery_plan import must_not_be_moving
from gpu_tenant.leases.recovery_words import tree_words
from gpu_tenant.watchdog.loop import Watchdog

COMMAND = "mkdir -p out; echo 1 > out/kept.txt; sleep 600"


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path, time="runs") as made:
        yield made


async def test_a_person_goes_on_with_work_whose_terms_name_no_place(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND)
    context = tenant.tenancy.context
    assert not may_recover(context, tenant.lease(lost)), "nobody does it unasked"

    card = await recover(context, lost, wait_s=3600)

    new = tenant.lease(card.lease)
    assert (new.provider, new.recovers, new.terms.recover) == ("vastai", lost, ())
    assert (await tenant.tenancy.monitor(card.lease, wait_s=0)).state == "running"
    audited = [x for _, x in tenant.tenancy.ledger.events(new.id, timeline.Audited)]
    assert len(audited) == 1, "as an errand's box is"


async def test_the_box_before_is_left_alone_until_its_work_is_at_the_new_one(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND)
    tenancy = tenant.tenancy
    boots = await recover(tenancy.context, lost, wait_s=0)
    assert not tenancy.ledger.jobs(tenant.lease(boots.lease).id), "it has nothing yet"

    async def resume(lease: str) -> object:
        return await tenancy.change_lease(lease, "resume")

    for acts in (resume, tenancy.verify_and_teardown, tenancy.waive):
        with pytest.raises(Refused) as refused:
            await acts(lost)
        assert f"is about to go on at {boots.lease}" in refused.value.message
        assert f"`gpu-tenant recover {lost}`" in refused.value.remedy

    new = await recover(tenancy.context, lost, wait_s=3600)
    assert new.lease == boots.lease
    assert (await tenancy.monitor(new.lease, wait_s=0)).state == "running"
    await resume(lost)
    await tenancy.collect(lost)
    assert (await tenancy.verify_and_teardown(lost)).receipt.ground == "verified"


async def test_a_new_box_that_nobody_brings_its_work_to_is_told_of_until_it_has_it(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND)
    tenancy = tenant.tenancy
    boots = await recover(tenancy.context, lost, wait_s=0)
    watchdog = Watchdog(tenancy, tell=lambda _: None)

    def told() -> list[str]:
        alarms = tenancy.ledger.open_alarms_of(tenant.lease(boots.lease).id)
        return [alarm.words for alarm in alarms if alarm.key == "no work"]

    for _ in range(3):
        tenant.wait(300)
        await watchdog.once()
    assert len(told()) == 1
    assert f"`gpu-tenant recover {lost}` goes on with that" in told()[0]
    assert f"`gpu-tenant teardown {boots.lease}` gives it up" in told()[0]

    await recover(tenancy.context, lost, wait_s=3600)
    await watchdog.once()
    assert told() == []


async def test_a_new_box_that_is_parked_keeps_the_box_before_from_nothing_and_then_is_told_of_alone(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND)
    tenancy = tenant.tenancy
    new = (await recover(tenancy.context, lost, wait_s=0)).lease
    tenant.wait(300)
    await Watchdog(tenancy, tell=lambda _: None).once()

    await tenancy.change_lease(new, "park")
    await tenancy.change_lease(lost, "resume")
    await tenancy.collect(lost)
    await tenancy.verify_and_teardown(lost)
    await tenancy.change_lease(new, "resume")
    tenant.wait(300)
    await tenancy.audit(new)

    vain = waits_in_vain(tenancy.context, tenant.lease(new))
    assert vain is not None
    assert f"the work of {lost}, which has ended since" in vain
    assert f"recover {lost}" not in vain


async def test_after_the_deadline_no_box_is_kept_from_its_end_by_a_recovery(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND)
    ledger = tenant.tenancy.ledger
    await recover(tenant.tenancy.context, lost, wait_s=0)
    with pytest.raises(Refused):
        must_not_be_moving(ledger, tenant.lease(lost))

    left = tenant.lease(lost).terms.deadline_at - tenant.tenancy.clock.now()
    tenant.wait(left.total_seconds() + 1)

    must_not_be_moving(ledger, tenant.lease(lost))


async def test_a_new_box_that_is_given_up_lets_the_box_before_be_ended(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND)
    tenancy = tenant.tenancy
    boots = await recover(tenancy.context, lost, wait_s=0)

    assert (await tenancy.verify_and_teardown(boots.lease)).receipt.ground == "never_used"

    assert (await tenancy.change_lease(lost, "resume")).lease == lost


async def test_where_all_is_dearer_than_the_cap_the_line_that_is_named_gets_a_box(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND, recover=["same"])
    tenancy = tenant.tenancy
    tenant.fault("price_moved", amount=5)

    with pytest.raises(NoCapacity) as refused:
        await tenancy.change_lease(lost, "recover")
    (line,) = [x for x in refused.value.remedy.split("`") if x.startswith("gpu-tenant recover")]
    assert line.startswith(f"gpu-tenant recover {lost} --max-price-usd-h ")
    cap = Decimal(line.rpartition(" ")[2])
    assert cap > (tenant.lease(lost).terms.max_price_usd_h or 0)

    with pytest.raises(SignatureWanted, match="price cap goes from"):
        await tenancy.change_lease(lost, "recover", max_price_usd_h=cap)
    card = await with_signature(
        tenancy, lambda: recover(tenancy.context, lost, max_price_usd_h=cap, wait_s=3600)
    )

    assert tenant.lease(card.lease).recovers == lost
    assert card.price_usd_h == cap
    assert card.phase == "ready"


async def test_an_unverified_host_is_named_in_the_answer_and_on_record(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND, recover=["same"])
    for ask in ASKS:
        if ask["verification"] == "verified":
            tenant.fault("no_capacity", "PUT", f"/asks/{ask['id']}/", times=100)
    tenancy = tenant.tenancy
    cap = Decimal(9)

    card = await with_signature(
        tenancy, lambda: recover(tenancy.context, lost, max_price_usd_h=cap, wait_s=3600)
    )

    assert card.alarm == (
        f"its provider calls the host of this box unverified; the host of {lost} was called verified"
    )
    for lease in (lost, card.lease):
        (told,) = [x for _, x in tenancy.ledger.events(lease) if isinstance(x, timeline.Recovered)]
        assert "its provider calls the host unverified" in describe(told)


async def test_a_box_whose_host_fails_the_audit_is_given_back_unused_and_another_is_taken(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND, recover=["same"])
    tenancy = tenant.tenancy
    tenant.fault("gpu_wrong_card", box="the next one")

    card = await with_signature(
        tenancy, lambda: recover(tenancy.context, lost, max_price_usd_h=Decimal(9), wait_s=3600)
    )

    tried = [lease for lease in tenancy.ledger.leases() if lease.recovers == lost]
    assert [lease.state.live for lease in tried] == [False, True]
    receipt = tenancy.ledger.receipt(tried[0].id)
    assert receipt is not None
    assert receipt.ground == "never_used"
    assert card.lease == tried[1].id


async def test_both_reports_say_which_lease_goes_on_with_which_and_why_two_sums_differ(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND)
    context = tenant.tenancy.context
    new = (await recover(context, lost, wait_s=3600)).lease
    tenant.wait(3600)
    await tenant.tenancy.list_leases()
    tenant.wait(1800)

    before, after = await report_of(context, lost), await report_of(context, new)

    assert (before.recovers, before.goes_on_under) == (None, new)
    assert (after.recovers, after.goes_on_under) == (lost, None)
    assert f"| Its work goes on under | {new} |" in as_markdown(before)
    assert f"| Goes on with the work of | {lost} |" in as_markdown(after)
    assert "| Parked | never |" in as_markdown(after)
    assert (after.cost.spent_usd, after.cost.billed_usd) != (None, None)
    assert after.cost.spent_usd != after.cost.billed_usd
    assert after.cost.difference is not None
    assert "the bill is until" in after.cost.difference


async def test_what_ends_the_box_before_names_the_files_on_it_that_nobody_has_claimed(
    tenant: Tenant, tmp_path: Path
) -> None:
    tenancy = tenant.tenancy
    quotes = await tenant.quotes(hours=2, interruptible="yes")
    card = await tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600, unasked_gib=0)
    await tenancy.launch_detached(card.lease, "echo 1 > notes.txt; mkdir out", ["out/"], name="one")
    await over(tenancy, card.lease)
    await tenancy.collect(card.lease)
    await tenancy.launch_detached(card.lease, COMMAND, ["out/"], name="train")
    tenant.fault("outbid", box=card.box)
    await tenancy.list_leases()

    new = await recover(tenancy.context, card.lease, wait_s=3600)

    keeps = f"`gpu-tenant collect {card.lease} --artifact 'notes.txt'`, then `gpu-tenant teardown"
    assert keeps in new.recovered
    (old,) = [x for x in (await tenancy.list_leases()).leases if x.lease == card.lease]
    assert keeps in old.next


async def test_where_the_pushed_files_changed_nothing_is_said_to_go_on_and_the_launch_had_said_so(
    tenant: Tenant, tmp_path: Path
) -> None:
    tenancy = tenant.tenancy
    lost = await outbid(tenant, tmp_path / "tree", COMMAND, recover=["same"])
    assert (await begins_words(tenancy.context, lost)).startswith(f"the work of {lost} goes on")
    (tmp_path / "tree/train.sh").write_text("edited since", encoding="utf-8")

    before = await begins_words(tenancy.context, lost)

    assert before == ""
    with pytest.raises(Refused, match="has changed since it was pushed"):
        await recover(tenancy.context, lost, wait_s=3600)
    told = tree_words(tenancy.ledger, tenant.lease(lost))
    assert told is not None
    assert told.startswith(f"leave {tmp_path / 'tree'} as it is while the job runs")


async def test_a_launch_says_that_the_pushed_files_must_stay_where_its_work_may_go_on(
    tenant: Tenant, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "README").write_text("work", encoding="utf-8")
    quotes = await tenant.quotes(hours=2, interruptible="yes")
    card = await tenant.tenancy.provision(
        smoke="none", quotes=quotes[:1], wait_s=3600, recover=["same"]
    )
    await tenant.tenancy.push(card.lease, str(tree))

    launched = await tenant.tenancy.launch_detached(card.lease, "true", ["out/"], name="train")

    assert f"leave {tree} as it is while the job runs" in launched.next
