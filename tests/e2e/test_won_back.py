"""A box that was outbid and boots again by itself has one state and one next step, whoever is asked about it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from errands import a_tree
from waited import over

from gpu_tenant.domain.errors import BoxUnreachable, NotReady
from gpu_tenant.domain.interruption import recorded_fate
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.readiness import why_silent
from gpu_tenant.leases.recover import recover
from gpu_tenant.leases.won_back import not_yet
from gpu_tenant.watchdog.loop import Watchdog

WON = "it won its GPU back and boots; it bills "


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path, time="runs") as made:
        yield made


async def boots_again(tenant: Tenant, tree: Path, **asked: object) -> str:
    """A lease whose box was outbid while its job ran, and that boots again by itself."""
    quotes = await tenant.quotes(hours=2, interruptible="yes")
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600, **asked)  # type: ignore[arg-type]
    await tenant.tenancy.push(card.lease, str(a_tree(tree)))
    await tenant.tenancy.launch_detached(
        card.lease, "mkdir -p out; [ -e out/1 ] && exit; touch out/1; sleep 600", ["out/"], name="train"
    )  # fmt: skip
    tenant.fault("outbid", box=card.box, seconds=60)
    await tenant.tenancy.list_leases()
    assert recorded_fate(tenant.tenancy.ledger.events(card.lease)) == "outbid"
    tenant.wait(61)
    return card.lease


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
