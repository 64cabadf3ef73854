"""A box that was taken and wakes by itself goes on with its job, though nobody is there but a watchdog."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from errands import Asker, a_tree, an_errand, goes_on
from sshd import wait_until
from waited import over

from gpu_tenant.domain.errand import ErrandRequest
from gpu_tenant.domain.interruption import recorded_fate
from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.errands.drive import start_again
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.leases.recover import recover
from gpu_tenant.leases.woken_box import launch_cut_off_again
from gpu_tenant.service import Tenancy
from gpu_tenant.watchdog.loop import Watchdog

RESUMES = """\
[ -n "$SMOKE" ] && exit 0
mkdir -p out
echo run >> out/runs.txt
if [ -e out/state.json ]; then
  echo '{"resumed": true}' > out/done.json
else
  echo '{"step": 7}' > out/new && mv out/new out/state.json
  sleep 600
fi
"""


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path, time="runs") as made:
        yield made


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = a_tree(tmp_path / "tree")
    (made / "train.sh").write_text(RESUMES, encoding="utf-8")
    return made


class ProcessDiedError(Exception):
    """The process that ran the errand is no more."""


class DiesAsItsBoxIsTaken(Asker):
    """Somebody whose box is outbid for a while once the job has saved, and whose computer stops at that moment."""

    def __init__(self, tenant: Tenant) -> None:
        super().__init__()
        self._tenant = tenant

    async def follow(self, lease: str, job: str) -> Watched:
        found = self.tenancy.ledger.lease(LeaseId(lease))
        await taken_for_a_while(self._tenant, found)
        raise ProcessDiedError


async def taken_for_a_while(tenant: Tenant, lease: Lease) -> None:
    """The box is outbid once its job has saved; somebody sees that; and then it runs again."""
    saved = tenant.home_of(str(lease.box_id)) / lease.work_directory / "out/state.json"
    await asyncio.to_thread(wait_until, saved.exists)
    tenant.fault("outbid", box=lease.box_id, seconds=60)
    await tenant.tenancy.list_leases()
    assert recorded_fate(tenant.tenancy.ledger.events(lease.id)) == "outbid"
    tenant.wait(600)


async def left_alone(tenant: Tenant, tree: Path) -> tuple[ErrandRequest, Lease]:
    """A run whose process died, and its lease, whose box was outbid and runs again."""
    errand = an_errand(
        tenant.tenancy,
        tree,
        recover=("same",),
        interruptible="yes",
        max_price_usd_h="2",
        max_usd="5",
    )
    with pytest.raises(ProcessDiedError):
        await goes_on(tenant.tenancy, errand, DiesAsItsBoxIsTaken(tenant))
    (lease,) = tenant.tenancy.ledger.leases()
    return errand, lease


async def looked_at(tenancy: Tenancy) -> list[str]:
    said = list[str]()
    await Watchdog(tenancy, tell=said.append).once()
    return said


def runs(kept_in: str | None) -> int:
    return (Path(kept_in or "") / "work/out/runs.txt").read_text(encoding="utf-8").count("run")


async def test_the_job_of_a_dead_run_goes_on_at_its_box_that_woke_between_two_looks(
    tenant: Tenant, tree: Path
) -> None:
    errand, lease = await left_alone(tenant, tree)
    tenancy = tenant.tenancy

    said = await looked_at(tenancy)

    run = tenancy.ledger.open_errand_of(lease.id)
    assert [job.id for job in tenancy.ledger.jobs(lease.id)] == [run, f"{run}-2"]
    assert any(
        f"launched again as {run}-2, and continues from what its disk kept" in x for x in said
    )
    assert (await over(tenancy, lease.id, f"{run}-2")).state == "finished"
    standing = await goes_on(tenancy, errand)
    assert (standing.outcome, standing.job_state) == ("done", "finished"), standing
    assert standing.ended is not None
    assert runs(standing.ended.receipt.kept_in) == 2
    assert tenant.creates() == 1
    tenant.assert_nothing_bills()


async def test_a_watchdog_and_a_run_that_comes_back_at_that_moment_start_the_job_once(
    tenant: Tenant, tree: Path
) -> None:
    errand, lease = await left_alone(tenant, tree)
    other = tenant.anew_tenancy()

    _, standing = await asyncio.gather(looked_at(other), goes_on(tenant.tenancy, errand))

    assert (standing.outcome, standing.job_state) == ("done", "finished"), standing
    assert standing.ended is not None
    assert len(tenant.tenancy.ledger.jobs(lease.id)) == 2
    assert runs(standing.ended.receipt.kept_in) == 2
    assert tenant.creates() == 1


async def test_two_that_take_the_step_of_a_run_at_once_start_the_job_once(
    tenant: Tenant, tree: Path
) -> None:
    errand, lease = await left_alone(tenant, tree)
    tenancy, other = tenant.tenancy, tenant.anew_tenancy()
    await tenancy.list_leases()
    run = tenancy.ledger.open_errand_of(lease.id)
    assert run is not None
    await tenancy.monitor(lease.id, wait_s=0)

    said = await asyncio.gather(
        *(start_again(x, run, lease.id) for x in (tenancy, other)), return_exceptions=True
    )

    assert [x for x in said if isinstance(x, tuple)] == [(run, f"{run}-2")], said
    standing = await goes_on(tenancy, errand)
    assert standing.ended is not None
    assert runs(standing.ended.receipt.kept_in) == 2


async def by_hand(tenant: Tenant, tree: Path, **asked: object) -> Lease:
    """A lease whose job was launched by hand, and whose box was outbid and runs again."""
    tenancy = tenant.tenancy
    quotes = await tenant.quotes(hours=2, interruptible="yes")
    card = await tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600, **asked)  # type: ignore[arg-type]
    await tenancy.push(card.lease, str(tree))
    await tenancy.launch_detached(card.lease, "sh train.sh", ["out/"], name="train")
    lease = tenant.lease(card.lease)
    await taken_for_a_while(tenant, lease)
    return lease


async def test_two_watchdogs_launch_a_job_that_was_launched_by_hand_again_once(
    tenant: Tenant, tree: Path
) -> None:
    lease = await by_hand(tenant, tree, recover=["same"])
    tenancy, other = tenant.tenancy, tenant.anew_tenancy()

    await asyncio.gather(looked_at(tenancy), looked_at(other))

    assert [job.id for job in tenancy.ledger.jobs(lease.id)] == ["train", "train-2"]
    assert (await over(tenancy, lease.id, "train-2")).state == "finished"
    await looked_at(other)
    assert len(tenancy.ledger.jobs(lease.id)) == 2, "it is over, and nothing was cut off since"
    await tenancy.collect(lease.id)
    ended = await tenancy.verify_and_teardown(lease.id)
    assert runs(ended.receipt.kept_in) == 2


async def test_what_somebody_has_launched_since_is_not_joined_by_a_second_copy(
    tenant: Tenant, tree: Path
) -> None:
    lease = await by_hand(tenant, tree, recover=["same"])
    tenancy = tenant.tenancy
    await tenancy.list_leases()
    await tenancy.monitor(lease.id, wait_s=0)
    await tenancy.launch_detached(lease.id, "sleep 600", ["out/"], name="another")

    assert await launch_cut_off_again(tenancy.context, lease.id) == []
    await looked_at(tenancy)

    assert [job.id for job in tenancy.ledger.jobs(lease.id)] == ["train", "another"]


async def test_nothing_is_launched_unasked_where_the_terms_do_not_let_the_work_go_on(
    tenant: Tenant, tree: Path
) -> None:
    lease = await by_hand(tenant, tree)

    await looked_at(tenant.tenancy)

    assert len(tenant.tenancy.ledger.jobs(lease.id)) == 1
    assert tenant.lease(lease.id).state is LeaseState.ACTIVE


async def test_a_recovery_that_finds_the_box_awake_writes_that_down(
    tenant: Tenant, tree: Path
) -> None:
    lease = await by_hand(tenant, tree, recover=["same"])
    tenancy = tenant.tenancy

    with pytest.raises(Exception, match="was taken, and runs again"):
        await recover(tenancy.context, lease.id)

    assert recorded_fate(tenancy.ledger.events(lease.id)) is None
