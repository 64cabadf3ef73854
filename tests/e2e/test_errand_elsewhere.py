"""The whole errand on a machine of one's own over ssh, and at the next box where the first was taken."""

import asyncio
import json
import os
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from e2e.people import Person
from e2e.renting import Tenant, tenant_at
from e2e.taken import checkpointed
from errands import MODEL, Asker, a_tree, an_errand, goes_on
from sshd import Sshd, wait_until

from gpu_tenant.domain.errors import BoxUnreachable
from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.domain.ports import Parking
from gpu_tenant.errands.drive import what_stands
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.leases.cards import Leases
from gpu_tenant.leases.read_in_notice import needs_no_start
from gpu_tenant.leases.work_done import RELAUNCH_S
from gpu_tenant.watchdog.loop import Watchdog

RESUMES = """\
[ -n "$SMOKE" ] && exit 0
mkdir -p out
if [ -e out/state.json ]; then
  echo '{"resumed": true}' > out/done.json
else
  echo '{"step": 7}' > out/new && mv out/new out/state.json
  sleep 600
fi
"""


async def test_on_a_machine_of_ones_own_it_is_the_same_call_and_the_machine_stays(
    person: Person, box: Sshd, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree")

    ran = person.gpu_tenant(
        "run",
        "--dir",
        str(tree),
        "--on",
        "own",
        "--target",
        box.target,
        "--artifact",
        "out/",
        "--smoke",
        "none",
        "--to",
        str(tmp_path / "home"),
        "--json",
        "--",
        "sh",
        "train.sh",
    )

    assert ran.status == 0, ran.err
    ended = json.loads(ran.out)["ended"]
    assert ended["receipt"]["ground"] == "verified"
    assert (tmp_path / "home/work/out/model.json").read_text().strip() == MODEL
    assert (tmp_path / "ran").read_text().split() == ["ran"]
    async with person.tenancy() as tenancy:
        assert [x.state for x in tenancy.ledger.leases()] == [LeaseState.GONE]


class Outbid(Asker):
    """Somebody whose first box is taken as soon as its first checkpoint is at home."""

    def __init__(self, tenant: Tenant) -> None:
        super().__init__()
        self._tenant, self._taken = tenant, False

    async def follow(self, lease: str, job: str) -> Watched:
        if not self._taken:
            self._taken = True
            found = self.tenancy.ledger.lease(lease)
            state = (
                self._tenant.home_of(str(found.box_id)) / found.work_directory / "out/state.json"
            )
            await asyncio.to_thread(wait_until, state.exists)
            await checkpointed(self.tenancy, found)
            await self._takes(found)
        return await super().follow(lease, job)

    async def _takes(self, lease: Lease) -> None:
        self._tenant.fault("host_lost", box=lease.box_id)
        raise BoxUnreachable("a box that was taken answers nobody", remedy="look again")


class KilledFirst(Outbid):
    """Somebody whose job is killed a while before the provider says that it has taken the box."""

    async def _takes(self, lease: Lease) -> None:
        home = self._tenant.home_of(str(lease.box_id)) / lease.caretaker_home
        (started,) = home.glob("jobs/*/started.json")
        os.killpg(json.loads(started.read_bytes())["pid"], signal.SIGKILL)
        real, looks = self.tenancy.list_leases, count()

        async def says_it_later(*told: Any) -> Leases:
            if next(looks) == 1:
                self._tenant.fault("host_lost", box=lease.box_id)
            return await real(*told)

        self.tenancy.list_leases = says_it_later  # type: ignore[method-assign]


class OutbidForGood(Outbid):
    """Somebody whose first box is outbid, and is still stopped when the work is done elsewhere."""

    async def _takes(self, lease: Lease) -> None:
        self._tenant.fault("outbid", box=lease.box_id)
        raise BoxUnreachable("a box that was outbid answers nobody", remedy="look again")


@pytest.mark.parametrize("asker", [Outbid, KilledFirst, OutbidForGood])
async def test_a_box_that_is_taken_goes_on_at_the_next_by_itself_when_the_order_says_so(
    tmp_path: Path, asker: type[Outbid]
) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "train.sh").write_text(RESUMES, encoding="utf-8")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        errand = an_errand(
            tenant.tenancy,
            tree,
            recover=("same",),
            interruptible="yes",
            max_price_usd_h="2",
            max_usd="5",
        )

        standing = await goes_on(tenant.tenancy, errand, asker(tenant))

        assert standing.outcome == "done", standing
        assert standing.ended is not None
        kept = Path(standing.ended.receipt.kept_in or "") / "work/out"
        assert (kept / "done.json").read_text().strip() == '{"resumed": true}'
        assert len(tenant.tenancy.ledger.leases()) == tenant.creates() == 2
        tenant.assert_nothing_bills()


class ParkedSince(Outbid):
    """Somebody whose first box is outbid, and is on record as parked before the work is done elsewhere."""

    def __init__(self, tenant: Tenant) -> None:
        super().__init__(tenant)
        self._first: str | None = None

    async def follow(self, lease: str, job: str) -> Watched:
        self._first = self._first or lease
        first = self.tenancy.ledger.lease(LeaseId(self._first))
        if lease != first.id and first.parked_at is None:
            await self.tenancy.change_lease(first.id, "park")
        return await super().follow(lease, job)

    async def _takes(self, lease: Lease) -> None:
        self._tenant.fault("outbid", box=lease.box_id)
        raise BoxUnreachable("a box that was outbid answers nobody", remedy="look again")


async def test_the_box_that_did_the_work_is_ended_though_the_one_before_cannot_be(
    tmp_path: Path,
) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "train.sh").write_text(RESUMES, encoding="utf-8")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        errand = an_errand(
            tenant.tenancy,
            tree,
            recover=("same",),
            interruptible="yes",
            max_price_usd_h="2",
            max_usd="5",
        )

        standing = await goes_on(tenant.tenancy, errand, ParkedSince(tenant))

        old, new = tenant.tenancy.ledger.leases()
        assert (old.state, new.state) == (LeaseState.ACTIVE, LeaseState.GONE)
        assert (standing.outcome, standing.lease, standing.job_state) == (
            "asks",
            old.id,
            "finished",
        )
        assert f"one earlier box is left: {old.id} could not be ended" in standing.words
        receipt = tenant.tenancy.ledger.receipt(new.id)
        assert receipt is not None
        assert receipt.kept_in is not None
        assert receipt.kept_in in standing.words
        again = await goes_on(tenant.tenancy, errand, Asker())
        assert (again.outcome, again.lease) == ("asks", old.id)
        assert tenant.creates() == 2


class OutbidByOneWhoStays(OutbidForGood):
    """Somebody whose first box is outbid, and whose GPU is not free again when the work is done elsewhere."""

    async def _takes(self, lease: Lease) -> None:
        self._tenant.fault("gpu_taken", box=lease.box_id)
        await super()._takes(lease)


async def test_the_end_of_a_run_names_what_ends_the_box_before_that_its_provider_keeps_stopped(
    tmp_path: Path,
) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "train.sh").write_text(RESUMES, encoding="utf-8")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        tenancy = tenant.tenancy
        errand = an_errand(
            tenancy,
            tree,
            recover=("same",),
            interruptible="yes",
            max_price_usd_h="2",
            max_usd="5",
        )

        standing = await goes_on(tenancy, errand, OutbidByOneWhoStays(tenant))

        old, new = tenancy.ledger.leases()
        assert (old.state, new.state) == (LeaseState.ACTIVE, LeaseState.GONE)
        assert standing.asks is not None
        (way,) = standing.asks.ways
        again = f"`gpu-tenant run --resume {standing.run}`"
        assert way.startswith(f"`gpu-tenant resume {old.id}"), way
        assert way.endswith(f" starts it, then {again} collects its files, and ends it")
        assert standing.next == way
        assert f"one earlier box is left: {old.id}" in standing.words
        assert standing.ended is not None, "the finished job's receipt is shown at once"
        assert standing.ended.lease == new.id

        tenant.fault("gpu_taken", box=old.box_id, amount=0)
        await tenancy.change_lease(old.id, "resume")
        tenant.wait(600)
        over = await goes_on(tenancy, errand, Asker())
        assert over.outcome == "done", over
        tenant.assert_nothing_bills()


class OldBoxAnswersLate(Outbid):
    """Somebody whose first box is outbid for a while and runs again, but answers only once it was asked in vain."""

    def __init__(self, tenant: Tenant) -> None:
        super().__init__(tenant)
        self._first: Lease | None = None
        self._home = self._dark = Path()

    async def follow(self, lease: str, job: str) -> Watched:
        if self._first is not None and lease != self._first.id and not self._dark.exists():
            self._tenant.wait(900)
            self._home.rename(self._dark)
        return await super().follow(lease, job)

    def hear(self, words: str) -> None:
        super().hear(words)
        if words.endswith("; trying again"):
            self._dark.rename(self._home)

    async def _takes(self, lease: Lease) -> None:
        self._first, self._home = lease, self._tenant.home_of(str(lease.box_id))
        self._dark = self._home.with_name("dark")
        self._tenant.fault("outbid", box=lease.box_id, seconds=600)
        raise BoxUnreachable("a box that was outbid answers nobody", remedy="look again")


async def test_the_box_before_is_ended_by_a_later_try_where_the_first_one_fails(
    tmp_path: Path,
) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "train.sh").write_text(RESUMES, encoding="utf-8")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        tenancy = tenant.tenancy
        errand = an_errand(
            tenancy,
            tree,
            recover=("same",),
            interruptible="yes",
            max_price_usd_h="2",
            max_usd="5",
        )
        person = OldBoxAnswersLate(tenant)

        standing = await goes_on(tenancy, errand, person)

        old, new = tenancy.ledger.leases()
        assert (old.state, new.state) == (LeaseState.GONE, LeaseState.GONE), standing
        assert standing.outcome == "done"
        assert any(words.endswith("; trying again") for words in person.heard), "\n".join(
            person.heard
        )
        tenant.assert_nothing_bills()


class OutbidOnce(OutbidForGood):
    """Somebody whose box is outbid while the job runs, and whose order names no other place."""


class RentalEnds(Outbid):
    """Somebody whose box's rental ends while the job runs, sooner than its offer said."""

    async def _takes(self, lease: Lease) -> None:
        self._tenant.fault("end_date", box=lease.box_id)
        raise BoxUnreachable("a box whose rental is over answers nobody", remedy="look again")


async def test_a_run_whose_rental_ended_has_failed_and_never_sends_anybody_to_start_its_box(
    tmp_path: Path,
) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "train.sh").write_text(RESUMES, encoding="utf-8")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        errand = an_errand(tenant.tenancy, tree, max_usd="5")

        told = [await goes_on(tenant.tenancy, errand, RentalEnds(tenant))]
        (lease,) = tenant.tenancy.ledger.leases()
        await tenant.tenancy.change_lease(lease.id, "park")
        told.append(await goes_on(tenant.tenancy, errand, Asker()))

        for standing in told:
            assert standing.outcome == "failed", standing
            assert "the rental of its box ended" in standing.words
            assert f"gpu-tenant waive {lease.id}" in standing.next
            assert f"gpu-tenant resume {lease.id}" not in standing.next


class HostLost(Outbid):
    """Somebody whose box's host goes offline while the job runs, and never comes back."""

    async def _takes(self, lease: Lease) -> None:
        self._tenant.fault("host_lost", box=lease.box_id)
        raise BoxUnreachable("a box without a host answers nobody", remedy="look again")


async def test_a_run_whose_host_is_lost_has_failed_and_names_the_way_on(tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "train.sh").write_text(RESUMES, encoding="utf-8")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        errand = an_errand(tenant.tenancy, tree, max_usd="5")

        standing = await goes_on(tenant.tenancy, errand, HostLost(tenant))

        (lease,) = tenant.tenancy.ledger.leases()
        assert standing.outcome == "failed", standing
        assert "the host of its box is lost" in standing.words
        assert f"gpu-tenant recover {lease.id}" in standing.next
        assert f"gpu-tenant resume {lease.id}" not in standing.next


class AsleepUntilItsGuardStopsIt(Outbid):
    """Somebody whose computer sleeps until the guard has stopped the job, and the box, at the deadline."""

    async def _takes(self, lease: Lease) -> None:
        home = self._tenant.home_of(str(lease.box_id)) / lease.caretaker_home
        (started,) = home.glob("jobs/*/started.json")
        self._tenant.wait((lease.terms.deadline_at - self.tenancy.clock.now()).total_seconds())
        os.killpg(json.loads(started.read_bytes())["pid"], signal.SIGKILL)
        connector = self.tenancy.context.connectors[self._tenant.slug]
        assert isinstance(connector, Parking)
        await connector.park(lease)
        self._tenant.wait(600)
        raise BoxUnreachable("a box that is stopped answers nobody", remedy="look again")


async def test_a_run_whose_box_was_stopped_at_its_deadline_starts_it_once_more_and_ends_it(
    tmp_path: Path,
) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "train.sh").write_text(RESUMES, encoding="utf-8")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        errand = an_errand(tenant.tenancy, tree, max_usd="5")

        standing = await goes_on(tenant.tenancy, errand, AsleepUntilItsGuardStopsIt(tenant))

        assert (standing.outcome, standing.job_state) == ("failed", "killed"), standing
        assert "its deadline was" in standing.words
        assert standing.ended is not None
        assert standing.ended.receipt.ground == "verified"
        tenant.assert_nothing_bills()


async def test_after_an_outbid_and_a_resume_the_same_line_launches_the_job_again(
    tmp_path: Path,
) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "train.sh").write_text(RESUMES, encoding="utf-8")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        tenancy = tenant.tenancy
        errand = an_errand(tenancy, tree, interruptible="yes", max_price_usd_h="2", max_usd="5")

        asked = await goes_on(tenancy, errand, OutbidOnce(tenant))

        (first,) = tenancy.ledger.leases()
        assert (asked.outcome, asked.job_state) == ("asks", None)
        assert (
            "the job is not over: its box does not run: its provider has stopped it (outbid)"
            in asked.words
        )
        assert f"`gpu-tenant resume {first.id}`, then `gpu-tenant run --resume" in asked.next
        assert f"`gpu-tenant recover {first.id}`, then `gpu-tenant run --resume" in asked.next
        assert f": its job may run on under {first.id}, " in what_stands(
            tenancy, asked.run, its_box="is silent"
        )

        await tenancy.change_lease(first.id, "resume")
        tenant.wait(600)
        await Watchdog(tenancy, tell=lambda _: None).once()
        assert tenant.lease(first.id).state is LeaseState.ACTIVE, "it waits for the launch"
        person = Asker()
        standing = await goes_on(tenancy, errand, person)

        assert (standing.outcome, standing.job_state) == ("done", "finished"), standing
        assert standing.ended is not None
        kept = Path(standing.ended.receipt.kept_in or "") / "work/out"
        assert (kept / "done.json").read_text().strip() == '{"resumed": true}'
        assert [job.id for job in tenancy.ledger.jobs(first.id)] == [
            standing.run,
            f"{standing.run}-2",
        ]
        assert any("the job is launched again as" in words for words in person.heard)
        assert tenant.creates() == 1
        tenant.assert_nothing_bills()


async def test_a_box_that_nobody_launches_on_after_its_resume_is_ended_a_while_later(
    tmp_path: Path,
) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "train.sh").write_text(RESUMES, encoding="utf-8")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        tenancy = tenant.tenancy
        errand = an_errand(tenancy, tree, interruptible="yes", max_price_usd_h="2", max_usd="5")
        await goes_on(tenancy, errand, OutbidOnce(tenant))
        (first,) = tenancy.ledger.leases()
        await tenancy.change_lease(first.id, "resume")
        tenant.wait(120)
        watchdog = Watchdog(tenancy, tell=lambda _: None)

        await watchdog.once()
        waits = tenancy.ledger.open_alarms_of(first.id)
        tenant.wait(RELAUNCH_S)
        await watchdog.once()

        (words,) = [alarm.words for alarm in waits if alarm.key == "done"]
        assert "its box runs again, and will be ended at " in words
        assert "unless something is launched" in words
        assert (
            f"`gpu-tenant run --resume {tenancy.ledger.jobs(first.id)[0].id}` again continues"
            in words
        )
        assert tenant.lease(first.id).state is LeaseState.GONE
        tenant.assert_nothing_bills()


SPOT_RATES = """\
[rates.gcp]
"n1-standard-4+1xnvidia-tesla-t4 spot" = 0.2
"n1-standard-8+1xnvidia-tesla-t4 spot" = 0.2
"pd-balanced" = 0.1
"""
NEVER_SAVES = """\
[ -n "$SMOKE" ] && exit 0
mkdir -p out
[ -e out/state.json ] && echo '{"resumed": true}' > out/done.json && exit 0
echo '{"step": 7}' > out/state.json
exec sleep 600
"""


class Preempted(Asker):
    """Somebody whose Spot box gets notice of its end once the job has saved."""

    def __init__(self, tenant: Tenant) -> None:
        super().__init__()
        self._tenant, self._told = tenant, False

    async def follow(self, lease: str, job: str) -> Watched:
        if not self._told:
            self._told = True
            found = self.tenancy.ledger.lease(LeaseId(lease))
            work = self._tenant.home_of(str(found.box_id)) / found.work_directory
            await asyncio.to_thread(wait_until, (work / "out/state.json").exists)
            self._tenant.fault("preempted", box=found.box_id)
        return await super().follow(lease, job)


async def test_a_run_whose_box_has_notice_does_not_end_it_and_goes_on_there_after_a_resume(
    tmp_path: Path,
) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "train.sh").write_text(NEVER_SAVES, encoding="utf-8")
    async with tenant_at("gcp", tmp_path, time="runs") as tenant:
        tenant.home.root.mkdir(exist_ok=True, parents=True)
        tenant.home.configuration.write_text(SPOT_RATES, encoding="utf-8")
        errand = an_errand(
            tenant.tenancy, tree, on="gcp", gpu="T4", interruptible="yes", max_usd="5"
        )

        person = Preempted(tenant)
        standing = await goes_on(tenant.tenancy, errand, person)

        (lease,) = tenant.tenancy.ledger.leases()
        assert (standing.outcome, lease.state) == ("asks", LeaseState.ACTIVE), standing
        assert (
            "the job is not over: its box does not run: its provider has stopped it (preempted)"
            in standing.words
        )
        assert standing.asks is not None
        assert "resume" in standing.asks.ways[0]
        assert f"recover {lease.id}" in standing.asks.ways[1]
        assert needs_no_start(tenant.tenancy.context, lease), "all of it is here, and was read"
        later = Asker()
        await goes_on(tenant.tenancy, errand, later)
        assert not any("the job runs" in words for words in later.heard), later.heard
        resumed = await tenant.tenancy.change_lease(lease.id, "resume", hours=1)
        assert resumed.next.startswith(f"`gpu-tenant run --resume {standing.run}`")
        again = await goes_on(tenant.tenancy, errand, Asker())
        assert again.outcome == "done", again
        assert again.ended is not None
        kept = Path(again.ended.receipt.kept_in or "") / "work/out"
        assert (kept / "done.json").read_text().strip() == '{"resumed": true}'
        assert tenant.creates() == 1
        tenant.assert_nothing_bills()
