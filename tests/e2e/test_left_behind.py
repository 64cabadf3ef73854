"""A box whose work went on elsewhere: it is told as what it was, and each command that is named for it works."""

import re
import shlex
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from e2e.taken import outbid
from waited import over

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BoxStopped, BoxUnreachable, Refused, SignatureWanted
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.faces.report import report_of
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.overview import on_card
from gpu_tenant.leases.readiness import why_silent
from gpu_tenant.leases.recover import begins_words, recover
from gpu_tenant.watchdog.lease_check import Attendant
from gpu_tenant.watchdog.loop import Watchdog

COMMAND = "mkdir -p out; echo 1 > out/kept.txt; sleep 600"


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path, time="runs") as made:
        yield made


def steps(words: str) -> list[list[str]]:
    """The commands that the words name, in order."""
    return [shlex.split(line) for line in re.findall(r"`gpu-tenant ([^`]+)`", words)]


async def carried_out(tenant: Tenant, step: list[str]) -> None:
    """Do what that command says."""
    verb, lease, *options = step
    said = dict(zip(options[::2], options[1::2], strict=True))
    tenancy = tenant.tenancy
    match verb:
        case "resume":
            budget, hours = said.pop("--budget-usd", None), said.pop("--hours", None)
            await tenancy.change_lease(
                lease,
                "resume",
                hours=float(hours) if hours else None,
                budget_usd=Decimal(budget) if budget else None,
            )
            tenant.wait(120)
        case "collect":
            discard = [x for x in (said.pop("--discard", None),) if x]
            await tenancy.collect(lease, None, [], discard)
        case "teardown":
            await tenancy.verify_and_teardown(lease)
        case "monitor":
            await tenancy.monitor(lease, wait_s=0)
        case "recover":
            await recover(tenancy.context, lease, wait_s=3600)
        case _:
            raise AssertionError(step)
    assert not said, step


async def told_of_silence(tenant: Tenant, lease: str) -> str:
    """What whoever asks the stopped box is told to do. Here a box is a directory, and would answer."""
    silent = BoxUnreachable("it does not answer", remedy="look again")
    told = await why_silent(tenant.tenancy.context, tenant.lease(lease), silent)
    assert isinstance(told, BoxStopped)
    return told.remedy


async def card_of(tenant: Tenant, lease: str) -> Card:
    shown = await tenant.tenancy.list_leases()
    return next(x for x in shown.leases if x.lease == lease)


async def test_what_is_named_for_the_box_that_was_left_ends_it_and_no_face_calls_that_a_budget(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND, budget_usd=Decimal(5))
    tenancy = tenant.tenancy
    new = (await recover(tenancy.context, lost, wait_s=3600)).lease

    card = await card_of(tenant, lost)
    remedy = await told_of_silence(tenant, lost)

    why = f"its provider took its box (outbid), and its work went on under {new}"
    assert why in card.next
    assert why in remedy
    resumes, collects, ends = steps(card.next)[:3]
    assert [x[0] for x in (resumes, collects, ends)] == ["resume", "collect", "teardown"]
    assert resumes == ["resume", lost], "the part of the budget that stayed pays for this"
    await carried_out(tenant, resumes)
    audited = await tenancy.audit(lost)
    assert audited.next.endswith(why)
    assert [x[0] for x in steps(audited.next)] == ["collect", "teardown"]
    for step in (collects, ends):
        await carried_out(tenant, step)
    told = await report_of(tenancy.context, lost)
    assert f"It was ended: {why}." in told.standing
    assert on_card(tenancy.context, lost).next == f"nothing: this lease was ended: {why}"


async def test_a_watchdog_that_ends_the_rest_of_it_tells_what_took_the_box_and_not_a_budget(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND, budget_usd=Decimal(5), hours=160.0)
    tenancy = tenant.tenancy
    new = (await recover(tenancy.context, lost, wait_s=3600)).lease
    part = tenant.lease(lost).terms.budget_usd
    while (tenant.lease(lost).cost_usd(tenancy.clock.now()) or 0) < (part or 0):
        tenant.wait(3600)
    await Watchdog(tenancy, tell=lambda _: None).once()

    told = f"its provider took its box (outbid), its work went on under {new}"
    events = tenancy.ledger.events(tenant.lease(lost).id)
    endings = [x.words or "" for _, x in events if isinstance(x, timeline.Ending)]
    assert [told in words for words in endings] == [True]
    assert "of its budget of" not in endings[0]
    report = await report_of(tenancy.context, lost)
    assert f"and its work went on under {new}" in report.standing
    assert "budget" not in report.standing
    card = on_card(tenancy.context, lost)
    assert card.next.endswith(f"and its work went on under {new}")


async def test_a_share_of_the_budget_that_is_spent_is_called_that(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND, budget_usd=Decimal(5), hours=160.0)
    tenancy = tenant.tenancy
    new = (await recover(tenancy.context, lost, wait_s=3600)).lease
    part = tenant.lease(lost).terms.budget_usd
    while (tenant.lease(lost).cost_usd(tenancy.clock.now()) or 0) < (part or 0):
        tenant.wait(3600)

    card = await card_of(tenant, lost)

    assert f"its work went on under {new}, and the part of the budget that this lease kept" in (
        card.alarm or ""
    )
    assert "USD is spent (" not in (card.alarm or "")
    assert "if the work is worth more" not in card.next
    (resumes, *_) = steps(card.next)
    assert resumes[:3] == ["resume", lost, "--budget-usd"], "it would be ended at once without"


async def test_the_budget_of_the_box_that_was_left_is_raised_unsigned_within_what_was_agreed(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND, budget_usd=Decimal(2))
    tenancy = tenant.tenancy
    new = (await recover(tenancy.context, lost, wait_s=3600)).lease
    with pytest.raises(SignatureWanted):
        await tenancy.change_lease(lost, "terms", budget_usd=Decimal(1))
    await tenancy.stop_job(new, grace_s=0)
    await over(tenancy, new)
    await tenancy.collect(new)
    spent = (await tenancy.verify_and_teardown(new)).receipt.cost_usd
    assert spent is not None

    with pytest.raises(SignatureWanted):
        await tenancy.change_lease(lost, "terms", budget_usd=Decimal(2) - spent + Decimal("0.01"))
    await tenancy.change_lease(lost, "resume", budget_usd=Decimal(2) - spent)

    budget = tenant.lease(lost).terms.budget_usd
    assert budget is not None
    assert budget + spent == Decimal(2)


async def test_a_budget_that_its_owner_has_lowered_since_is_raised_by_a_signature_alone(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND, budget_usd=Decimal(2))
    tenancy = tenant.tenancy
    new = (await recover(tenancy.context, lost, wait_s=3600)).lease
    await tenancy.change_lease(new, "terms", budget_usd=Decimal("0.9"))

    with pytest.raises(SignatureWanted):
        await tenancy.change_lease(lost, "terms", budget_usd=Decimal(1))


async def test_each_command_that_is_named_while_the_box_is_stopped_works(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND)
    tenancy = tenant.tenancy
    resumes, recovers = steps(await told_of_silence(tenant, lost))[:2]
    assert (resumes, recovers) == (["resume", lost], ["recover", lost])

    await carried_out(tenant, resumes)
    card = await card_of(tenant, lost)
    looked = await tenancy.monitor(lost, wait_s=0)
    after = await card_of(tenant, lost)

    assert card.next.startswith(f"`gpu-tenant monitor {lost}`")
    assert "continues from what its disk kept" in looked.next
    assert "its work has ended" not in after.next
    assert after.next.startswith("`gpu-tenant launch --lease")
    assert "killed when its provider took the box (outbid)" in after.next
    assert steps(after.next)[-2:] == [["collect", lost], ["teardown", lost]]
    for step in steps(after.next)[-2:]:
        await carried_out(tenant, step)
    assert tenant.lease(lost).state is LeaseState.GONE
    with pytest.raises(Refused) as refused:
        await recover(tenancy.context, lost)
    assert f"{lost} has ended at " in refused.value.message
    assert "its provider took its box (outbid), which was torn down since" in refused.value.message
    assert "puts there what was kept, and launch again" in refused.value.remedy


async def test_a_lease_that_has_ended_raises_no_alarm_that_its_box_was_not_taken(
    tenant: Tenant, tmp_path: Path
) -> None:
    card = await tenant.rented(hours=2)
    tenancy = tenant.tenancy
    await tenancy.verify_and_teardown(card.lease)
    lease = tenant.lease(card.lease)

    # A watchdog comes back to it once when its end was just heard of.
    await Attendant(tenancy, lease.id, None, look_s=60, done=lambda _: None).attend()

    assert lease.state is LeaseState.GONE
    assert tenancy.ledger.open_alarms_of(lease.id) == []
    with pytest.raises(Refused) as refused:
        await recover(tenancy.context, lease.id)
    assert "was not taken" not in refused.value.message
    assert f"{lease.id} has ended" in refused.value.message


async def test_before_it_begins_a_recovery_says_from_where_and_what_it_leaves(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND)
    context = tenant.tenancy.context

    before = await begins_words(context, lost)
    card = await recover(context, lost, wait_s=3600)

    begins = (
        f"the work of {lost} goes on from the start: nothing was snapshotted, because no watchdog brought a "
        "checkpoint home while it ran"
    )
    left = f"{lost} still has on its disk what its jobs wrote after that, and bills at "
    for words in (before, card.recovered):
        assert words.startswith(f"{begins}; ")
        assert left in words
        assert steps(words)[0] == ["resume", lost]
        assert "until it is ended" in words
    assert await begins_words(context, lost) == ""


async def test_a_recovery_from_a_checkpoint_names_when_it_was_taken(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid(tenant, tmp_path / "tree", COMMAND, wrote="out/kept.txt", is_saved=True)
    context = tenant.tenancy.context

    before = await begins_words(context, lost)
    card = await recover(context, lost, wait_s=3600)

    for words in (before, card.recovered):
        assert words.startswith(f"the work of {lost} goes on from the checkpoint of ")
        assert " UTC (1 file); only checkpoints are put back" in words
