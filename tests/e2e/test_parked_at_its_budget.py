"""A lease whose budget has ended: it ends if nothing is lost, and else says why it is kept."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.watching import Scene, scene_at
from signed import with_signature

from gpu_tenant.domain.errors import BadRequest, Refused, Unverified
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.faces.cli import lease_table
from gpu_tenant.faces.cli.command import the_lease
from gpu_tenant.faces.report.gather import report_of
from gpu_tenant.leases.terms_in_force import policy_of
from gpu_tenant.leases.watchdog_heartbeat import is_watched, last_watch_words, put_heartbeat


@asynccontextmanager
async def over_budget(
    root: Path, command: str, *, budget: str = "0.03", unasked_gib: float | None = None
) -> AsyncIterator[Scene]:
    """A pod whose job failed at once, and whose budget was about to be passed when the watchdog looked."""
    async with scene_at("runpod", root) as scene:
        await scene.rent(budget_usd=Decimal(1))
        await scene.tenant.tenancy.change_lease(
            scene.lease, "terms", budget_usd=Decimal(budget), unasked_gib=unasked_gib
        )
        await scene.work(command)
        await scene.ends()
        for _ in range(30):
            await scene.later(minutes=1)
            if (
                scene.state is not LeaseState.ACTIVE
                or scene.tenant.lease(scene.lease).parked_at is not None
            ):
                break
        yield scene


@asynccontextmanager
async def parked(root: Path) -> AsyncIterator[Scene]:
    """A pod that was parked because of a file that nobody has claimed, and that its terms do not bring home."""
    async with over_budget(root, "echo precious > other.bin; exit 2", unasked_gib=0) as scene:
        assert scene.tenant.lease(scene.lease).parked_at is not None, scene.alarms()
        yield scene


async def test_a_job_that_wrote_nothing_ends_within_its_budget(tmp_path: Path) -> None:
    async with over_budget(tmp_path, "echo nothing here >&2; exit 2") as scene:
        assert scene.state is LeaseState.GONE, scene.alarms()
        receipt = scene.tenant.tenancy.ledger.receipt(scene.tenant.lease(scene.lease).id)
        assert receipt is not None
        assert (receipt.ground, receipt.kept_files) == ("verified", 1)
        assert "parking" not in scene.kinds
        scene.tenant.assert_nothing_bills()


async def test_every_face_says_why_it_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with parked(tmp_path) as scene:
        tenancy, lease = scene.tenant.tenancy, scene.lease

        listed = await tenancy.list_leases()
        (card,) = listed.leases
        lease_table.leases(listed)
        with pytest.raises(Refused) as looked:
            await tenancy.monitor(lease, wait_s=0)
        report = await report_of(tenancy.context, lease)

        refused = f"{looked.value.message}: {looked.value.remedy}"
        told = f"{report.standing} {report.to_do}"
        printed = capsys.readouterr().out
        for words in (scene.alarms()["parked"][1], card.next, refused, printed, told):
            assert "other.bin" in words, words
        assert "are spent" in refused
        assert "its job train was last seen as failed" in refused


async def test_with_unclaimed_files_on_it_it_has_to_be_started(tmp_path: Path) -> None:
    async with parked(tmp_path) as scene:
        tenancy, lease = scene.tenant.tenancy, scene.lease

        with pytest.raises(Refused, match=r"other\.bin"):
            await tenancy.collect(lease, discard=["out/"])
        with pytest.raises(Unverified, match="it is parked"):
            await tenancy.verify_and_teardown(lease)

        scene.tenant.assert_no_destroy_was_asked()


# The way on


async def test_one_command_moves_budget_and_deadline_and_the_lease_lives(tmp_path: Path) -> None:
    async with parked(tmp_path) as scene:
        tenancy, lease = scene.tenant.tenancy, scene.lease
        await scene.tenant.clock.sleep(timedelta(hours=30).total_seconds())

        with pytest.raises(Refused) as late:
            await tenancy.change_lease(lease, "resume")
        assert f"gpu-tenant resume {lease} --hours 1 --budget-usd 0." in late.value.remedy
        budget = Decimal(
            late.value.remedy.partition("--budget-usd ")[2].split("`")[0].split(",")[0]
        )
        with pytest.raises(Refused, match="would end the lease at once"):
            await tenancy.change_lease(lease, "resume", hours=1)
        await with_signature(
            tenancy,
            lambda: tenancy.change_lease(lease, "resume", hours=1, budget_usd=budget),
        )
        for _ in range(10):
            await scene.later(minutes=1)

        found = scene.tenant.lease(lease)
        assert (found.state, found.parked_at) == (LeaseState.ACTIVE, None), scene.alarms()
        assert found.terms.budget_usd == budget


async def test_a_budget_that_is_spent_is_refused_with_the_least_that_is_not(tmp_path: Path) -> None:
    async with scene_at("runpod", tmp_path) as scene:
        await scene.rent(budget_usd=Decimal(1))
        await scene.work()
        await scene.tenant.clock.sleep(600)
        tenancy, lease = scene.tenant.tenancy, scene.lease

        with pytest.raises(Refused, match="would end the lease at once") as refused:
            await tenancy.change_lease(lease, "terms", budget_usd=Decimal("0.01"))

        assert "the smallest that would not is 0." in refused.value.message
        assert f"gpu-tenant teardown {lease}" in refused.value.remedy
        least = Decimal(refused.value.message.partition("would not is ")[2].split()[0])
        await tenancy.change_lease(lease, "terms", budget_usd=least + Decimal("0.01"))
        assert (await scene.look()) is not None
        assert tenancy.ledger.lease(lease).parked_at is None


async def test_the_most_that_it_costs_is_never_below_what_is_spent(tmp_path: Path) -> None:
    async with parked(tmp_path) as scene:
        await scene.tenant.clock.sleep(timedelta(days=3).total_seconds())
        spent = scene.tenant.lease(scene.lease).cost_usd(scene.tenant.clock.now())

        (most,) = (
            line
            for line in policy_of(scene.tenant.tenancy.context, scene.lease).terms
            if line.startswith("the most that it costs")
        )

        assert spent is not None
        assert spent > Decimal("0.03")
        assert f"{spent:.4f} USD so far" in most or "nothing limits it" in most
        assert "0.03 USD" not in most


# What is said of an end


async def test_the_report_says_when_it_was_first_ready_and_what_ended_it_last(
    tmp_path: Path,
) -> None:
    async with parked(tmp_path) as scene:
        tenancy, lease = scene.tenant.tenancy, scene.lease
        first = tenancy.ledger.lease(lease).ready_at
        await with_signature(
            tenancy,
            lambda: tenancy.change_lease(lease, "resume", hours=1, budget_usd=Decimal(1)),
        )
        await scene.tenant.clock.sleep(300)
        await tenancy.collect(lease, discard=["other.bin"])
        await tenancy.verify_and_teardown(lease)

        report = await report_of(tenancy.context, lease)

        assert "It was ended" not in report.standing, "a person ended it, and no budget did"
        events = tenancy.ledger.events(lease)
        assert report.ready_at == next(line.at for line in events if line.kind == "ready")
        assert first is not None
        assert report.ready_at is not None
        assert report.ready_at <= first


async def test_what_is_asked_of_a_lease_that_has_just_ended_tells_when_why_and_where_its_files_are(
    tmp_path: Path,
) -> None:
    async with over_budget(tmp_path, "exit 2") as scene:
        tenancy, lease = scene.tenant.tenancy, scene.lease

        with pytest.raises(Refused) as named:
            await tenancy.collect(lease)
        with pytest.raises(BadRequest) as unnamed:
            the_lease(None, tenancy)

        for told in (named.value, unnamed.value):
            assert f"{lease} has ended at 2" in told.message
            assert "are spent" in told.message
            assert "its receipt says verified" in told.message
            assert "the work: failed: exit status 2; out/ never appeared" in told.message
            assert f"what was kept of it is in {scene.kept().parent}" in told.message
            assert f"gpu-tenant report {lease}" in told.remedy
        report = await report_of(tenancy.context, lease)
        assert "the work: failed: exit status 2" in report.result


def test_a_watchdog_that_has_ended_is_not_believed_to_look(tmp_path: Path) -> None:
    beat, now = tmp_path / "watchdog.json", datetime(2026, 11, 26, 12, tzinfo=UTC)
    put = (
        "import sys; from datetime import datetime; from pathlib import Path;"
        "from gpu_tenant.leases.watchdog_heartbeat import put_heartbeat;"
        "put_heartbeat(Path(sys.argv[1]), at=datetime.fromisoformat(sys.argv[2]), every_s=60, unasked={})"
    )
    subprocess.run([sys.executable, "-c", put, str(beat), now.isoformat()], check=True)

    assert not is_watched(beat, now + timedelta(seconds=5))
    assert last_watch_words(beat, now + timedelta(seconds=40)).startswith(
        "nobody: the watchdog that looked 40 s ago has ended"
    )


def test_a_look_that_is_overdue_is_said_to_be(tmp_path: Path) -> None:
    beat, now = tmp_path / "watchdog.json", datetime(2026, 11, 26, 12, tzinfo=UTC)
    put_heartbeat(beat, at=now, every_s=60, unasked={})

    assert last_watch_words(beat, now + timedelta(seconds=40)) == "a watchdog looked 40 s ago"
    assert "its next look is overdue" in last_watch_words(beat, now + timedelta(seconds=200))
