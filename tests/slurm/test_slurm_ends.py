"""How Slurm ends an allocation, and how the work goes on: preempted and requeued, or at its walltime."""

import asyncio
import time

from arranged import PATIENCE_S
from slurm.cluster import Cluster
from slurm.conftest import Site, allocated

from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.interruption import notice_on_record, recorded_fate
from gpu_tenant.leases.recover import recover
from gpu_tenant.leases.watch_actions import pull
from gpu_tenant.service import Tenancy
from gpu_tenant.watchdog.loop import Watchdog


def fates(tenancy: Tenancy, lease: str) -> list[object]:
    return [x.fate for _, x in tenancy.ledger.events(lease) if isinstance(x, timeline.Taken)]


async def begun(tenancy: Tenancy, lease: str) -> None:
    """The job works, and would save if it were asked to."""
    give_up = time.monotonic() + PATIENCE_S
    while "begins at" not in (await tenancy.monitor(lease, "train", wait_s=2)).log:
        assert time.monotonic() < give_up


async def test_a_preempted_job_is_requeued_and_goes_on_from_what_it_saved(
    here: Site, cluster: Cluster, tenancy: Tenancy
) -> None:
    card = await allocated(tenancy)
    lease, box = card.lease, str(card.box)
    await tenancy.push(lease, str(here.tree))
    await tenancy.launch_detached(lease, here.command, ["out/"], name="train")
    await begun(tenancy, lease)

    cluster.told(
        "sbatch",
        "--partition=high",
        "--gres=gpu:2",
        "--time=1",
        "--output=/dev/null",
        "--wrap",
        "sleep 1",
    )
    cluster.until(box, "PENDING")
    told = await tenancy.list_leases()
    assert "waits to start again" in (told.leases[0].alarm or "")
    assert told.leases[0].price_usd_h == 0
    assert fates(tenancy, lease) == ["preempted"]
    # Slurm would wait two minutes.
    cluster.told("scontrol", "update", f"JobId={box}", "StartTime=now")
    cluster.until(box, "RUNNING")
    here.enough()
    while (seen := await tenancy.monitor(lease, "train", wait_s=20)).state != "finished":
        assert seen.state in ("running", "starting"), seen

    await tenancy.list_leases()
    await tenancy.collect(lease)
    logs = [
        path.read_text(encoding="utf-8") for path in (here.state / "kept" / lease).rglob("*.log")
    ]
    assert recorded_fate(tenancy.ledger.events(lease)) is None
    assert any("saved at" in log for log in logs), logs
    assert all("begins at 0 " not in log for log in logs if "done" in log), logs
    assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"


async def test_what_the_walltime_ended_was_asked_to_save_and_goes_on_under_a_new_lease(
    here: Site, cluster: Cluster, tenancy: Tenancy
) -> None:
    card = await allocated(tenancy, recover=["same"])
    lease, box = card.lease, str(card.box)
    await tenancy.push(lease, str(here.tree))
    await tenancy.launch_detached(lease, here.command, ["out/"], name="train")
    await begun(tenancy, lease)

    cluster.told("scontrol", "update", f"JobId={box}", "EndTime=now+1seconds")
    cluster.until(box, "TIMEOUT")
    told = await tenancy.list_leases()
    assert fates(tenancy, lease) == ["walltime"]
    assert told.leases[0].price_usd_h == 0
    assert "TIMEOUT" in (told.leases[0].alarm or "")

    # The home outlives the allocation: what was saved is brought home from there.
    await pull(tenancy.context, lease)
    new = (await recover(tenancy.context, lease)).lease
    assert new != lease
    here.enough()
    while (seen := await tenancy.monitor(new, "train", wait_s=20)).state != "finished":
        assert seen.state == "running", seen
    assert "begins at 0 " not in seen.log
    await tenancy.stop_job(lease, "train", grace_s=0)
    for each in (lease, new):
        await tenancy.collect(each)
        assert (await tenancy.verify_and_teardown(each)).receipt.ground == "verified"


async def test_before_the_walltime_the_work_goes_on_while_the_allocation_still_stands(
    here: Site, cluster: Cluster, tenancy: Tenancy
) -> None:
    here.configured(grace_s=600)
    card = await allocated(tenancy, recover=["same"])
    lease, box, ledger = card.lease, str(card.box), tenancy.ledger
    await tenancy.push(lease, str(here.tree))
    await tenancy.launch_detached(lease, here.command, ["out/"], name="train")
    await begun(tenancy, lease)
    watch = Watchdog(tenancy, tell=lambda _: None)
    await watch.once()
    assert notice_on_record(ledger.events(lease)) is None

    cluster.told("scontrol", "update", f"JobId={box}", "EndTime=now+540seconds")
    noted = here.last_of(lease) / "caretaker" / "notice.json"
    give_up = time.monotonic() + PATIENCE_S
    while not noted.exists():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.1)
    for _ in range(30):
        await watch.once()
        if any(isinstance(x, timeline.Recovered) for _, x in ledger.events(lease)):
            break
        await asyncio.sleep(1)

    heard = notice_on_record(ledger.events(lease))
    assert heard is not None
    assert (heard.source, heard.jobs) == ("signal", ("train",))
    told = {a.key: a.level for a in ledger.open_alarms() if a.lease_id == lease}
    assert told["preemption"] is Level.NOTICE
    cluster.until(box, "RUNNING")
    assert [line.kind for line in ledger.events(lease)].count(timeline.Guarded.kind) == 1
    here.enough()
    (new,) = [x.id for x in ledger.leases("live") if x.recovers == lease]
    while (seen := await tenancy.monitor(new, "train", wait_s=20)).state != "finished":
        assert seen.state in ("running", "starting"), seen
    assert "begins at 0 " not in seen.log
    await tenancy.stop_job(lease, "train", grace_s=0)
    for each in (lease, new):
        await tenancy.collect(each)
        assert (await tenancy.verify_and_teardown(each)).receipt.ground == "verified"
