"""What is said of a box that its provider stopped, and of the same box when it runs again, is so."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from waited import over

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.terms import GRACE_S
from gpu_tenant.faces.report import report_of
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.recover import recover
from gpu_tenant.watchdog.loop import Watchdog

BY_ITSELF = "the box stops itself with its own key (proved)"


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path, time="runs") as made:
        yield made


@pytest.fixture
async def card(tenant: Tenant, tmp_path: Path) -> Card:
    """A box under a bid, on which a job has been."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.sh").write_text("mkdir out; echo 1 > out/loss\n", encoding="utf-8")
    quotes = await tenant.quotes(hours=3, interruptible="yes")
    made = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
    assert BY_ITSELF in made.stops_the_meter
    await tenant.tenancy.push(made.lease, str(tree))
    await tenant.tenancy.launch_detached(made.lease, "sh train.sh", ["out/"], name="train")
    return made


async def shown(tenant: Tenant) -> Card:
    told = await tenant.tenancy.list_leases()
    (only,) = told.leases
    assert told.burning_usd_h == only.price_usd_h != 0
    assert only.terms
    return only


def guarded(tenant: Tenant, card: Card) -> int:
    events = tenant.tenancy.ledger.events(card.lease)
    return sum(isinstance(event, timeline.Guarded) for _, event in events)


async def test_while_its_provider_keeps_it_stopped_no_guard_is_promised(
    tenant: Tenant, card: Card
) -> None:
    tenant.fault("outbid", box=card.box)
    lines = list[str]()
    dog = Watchdog(tenant.tenancy, tell=lines.append, alarms="told")
    for _ in range(2):
        await dog.once()
    alarms = [line for line in lines if line.startswith(f"{card.lease}: warning: ")]
    assert [line for line in alarms if "its provider has stopped it" in line] == alarms[:1] != []

    told = await shown(tenant)

    assert told.phase == "stopped by its provider"
    assert "its disk bills until a teardown" in told.stops_the_meter
    assert "if the box starts by itself, only a watchdog would end its bill" in told.stops_the_meter


async def test_a_box_that_was_resumed_is_guarded_again_and_until_then_that_is_an_alarm(
    tenant: Tenant, card: Card
) -> None:
    tenant.fault("outbid", box=card.box)
    await shown(tenant)
    before = guarded(tenant, card)
    await tenant.tenancy.change_lease(card.lease, "resume")
    tenant.wait(600)

    waiting = await shown(tenant)
    await tenant.tenancy.monitor(card.lease, wait_s=0)
    after = await shown(tenant)

    assert "until the guard is armed, nothing ends the bill" in waiting.stops_the_meter
    assert waiting.price_usd_h == card.price_usd_h
    assert "no guard holds its deadline" in (waiting.alarm or "")
    assert f"gpu-tenant audit {card.lease}" in (waiting.alarm or "")
    assert guarded(tenant, card) == before + 1
    assert (BY_ITSELF in after.stops_the_meter, after.alarm) == (True, None)


async def test_a_job_that_an_outbid_killed_is_said_to_be_so_after_the_box_runs_again(
    tenant: Tenant, card: Card
) -> None:
    tenancy = tenant.tenancy
    await tenancy.launch_detached(card.lease, "sleep 600", ["out/"], name="long")
    tenant.fault("outbid", box=card.box)
    await shown(tenant)
    unseen = await report_of(tenancy.context, card.lease)
    await tenancy.change_lease(card.lease, "resume")
    tenant.wait(600)

    looked = await tenancy.monitor(card.lease, wait_s=0)
    await Watchdog(tenancy, tell=lambda _: None).once()
    again = await shown(tenant)
    told = await report_of(tenancy.context, card.lease)

    assert "its provider took the box (outbid) while it ran" in unseen.result
    assert looked.state == "killed"
    assert (looked.why or "").startswith("outbid: its provider took the box, as was seen at ")
    assert again.next.startswith("`gpu-tenant launch --lease")
    assert "killed when its provider took the box (outbid)" in again.next
    the_same = f"`gpu-tenant launch --lease {card.lease} --artifact 'out/' -- sleep 600`"
    assert the_same in again.next
    assert the_same in looked.next
    assert the_same in (looked.why or "")
    with pytest.raises(Refused, match="was taken, and runs again") as refused:
        await recover(tenancy.context, card.lease)
    assert the_same in refused.value.remedy
    assert "gpu-tenant recover" not in (looked.why or "")
    assert "killed: outbid: its provider took the box" in told.result

    await tenancy.launch_detached(card.lease, "kill -KILL $$", ["out/"], name="long2")
    assert not (await over(tenancy, card.lease)).why.startswith("outbid"), "that was another job"  # type: ignore[union-attr]


async def test_a_box_that_woke_by_itself_is_guarded_by_whoever_works_on_it_next(
    tenant: Tenant, card: Card
) -> None:
    tenant.fault("outbid", box=card.box, seconds=300)
    await shown(tenant)
    tenant.wait(900)

    woken = await shown(tenant)
    await tenant.tenancy.monitor(card.lease, wait_s=0)
    after = await shown(tenant)

    assert woken.price_usd_h == card.price_usd_h
    assert "until the guard is armed, nothing ends the bill" in woken.stops_the_meter
    assert "no guard holds its deadline" in (woken.alarm or "")
    assert (BY_ITSELF in after.stops_the_meter, after.alarm) == (True, None)


async def test_an_audit_of_a_box_whose_job_has_ended_leads_to_its_files(
    tenant: Tenant, card: Card
) -> None:
    tenant.fault("outbid", box=card.box)
    await shown(tenant)
    await tenant.tenancy.change_lease(card.lease, "resume")
    tenant.wait(600)

    audited = await tenant.tenancy.audit(card.lease)

    assert "gpu-tenant push" not in audited.next
    assert f"gpu-tenant monitor {card.lease}" in audited.next
    assert f"gpu-tenant monitor {card.lease}" in audited.next


async def test_a_box_is_ended_as_soon_as_the_work_that_its_taking_cut_off_is_done_after_all(
    tenant: Tenant, card: Card
) -> None:
    tenancy = tenant.tenancy
    await tenancy.launch_detached(card.lease, "sleep 600", ["out/"], name="long")
    tenant.fault("outbid", box=card.box)
    await shown(tenant)
    await tenancy.change_lease(card.lease, "resume")
    tenant.wait(600)
    await tenancy.launch_detached(card.lease, "true", ["out/"], name="long-2")
    await over(tenancy, card.lease)
    watchdog = Watchdog(tenancy, tell=lambda _: None)

    await watchdog.once()
    tenant.wait(GRACE_S)
    await watchdog.once()

    assert tenant.lease(card.lease).state is LeaseState.GONE
