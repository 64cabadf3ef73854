"""Leases in a real Slurm: submitted, entered, queued for, swept over, ended, and told when somebody else ended them."""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import eventually
from slurm.cluster import Cluster
from slurm.conftest import Site, allocated
from sshd import Sshd, make_key, wait_until

from gpu_tenant.app import connect, known_platforms, open_tenancy
from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.errors import (
    BoxUnreachable,
    HostKeyChanged,
    JobRunning,
    ProviderTrouble,
    Unverified,
)
from gpu_tenant.domain.model import LeaseId, LeaseState, SlurmAddress
from gpu_tenant.domain.ports import Market
from gpu_tenant.files.state_dir import Home
from gpu_tenant.service import Tenancy
from gpu_tenant.transports.local import LocalTransport
from gpu_tenant.transports.slurm import SIGNED, SlurmTransport
from gpu_tenant.transports.ssh import ensure_key

KILLED = """
import asyncio, os, signal, sys
from slurm.conftest import allocated
from gpu_tenant.app import open_tenancy

async def begun():
    tenancy = open_tenancy(os.environ)
    lease = (await allocated(tenancy)).lease
    await tenancy.push(lease, sys.argv[1])
    await tenancy.launch_detached(lease, sys.argv[2], ["out/"], name="train")
    print(lease, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(begun())
"""


async def test_a_job_by_way_of_a_login_node_outlives_its_client_and_is_torn_down_when_proved(
    here: Site, cluster: Cluster, tmp_path: Path
) -> None:
    key = ensure_key(here.state / "ssh" / "id_ed25519")
    options = f"SetEnv SLURM_CONF={cluster.configuration}"
    with Sshd(
        tmp_path / "login", authorized=key.with_name(f"{key.name}.pub"), options=options
    ) as login:
        before = f'["env", "SLURM_CONF={cluster.configuration}"]'
        here.configured(login=login.target)
        with (here.state / "config.toml").open("a", encoding="utf-8") as more:
            more.write(f"before = {before}\n")
        child = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", KILLED, str(here.tree), here.command],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        assert child.returncode == -signal.SIGKILL, child.stderr
        lease = child.stdout.strip()
        tenancy = open_tenancy(os.environ)
        try:
            card = next(iter((await tenancy.list_leases()).leases))
            assert card.stops_the_meter.startswith("the wall time")
            with pytest.raises(Unverified):
                await tenancy.verify_and_teardown(lease)
            with pytest.raises(JobRunning):
                await tenancy.collect(lease)
            assert cluster.state(str(card.box)) == "RUNNING"

            here.enough()
            while (seen := await tenancy.monitor(lease, "train", wait_s=20)).state == "running":
                pass
            assert seen.state == "finished", seen
            await tenancy.collect(lease)
            torn = await tenancy.verify_and_teardown(lease)
        finally:
            await tenancy.aclose()
        assert (torn.state, torn.receipt.ground) == (LeaseState.GONE, "verified")
        assert torn.receipt.first_absent_at < torn.receipt.second_absent_at
        assert cluster.state(str(card.box)) == "CANCELLED"
        assert (here.state / "kept" / lease / "work" / "out" / "checkpoint.json").exists()
        # What lies in a home that both nodes share is nobody's to delete.
        assert (login.home / "gpu-tenant" / lease / "work" / "out").is_dir()


async def test_a_launch_that_met_a_stranger_stays_on_record_and_is_started_once_when_it_is_repeated(
    here: Site, cluster: Cluster, tmp_path: Path
) -> None:
    """A start at Slurm is several requests, and the stranger may have answered only the last of them."""
    key = ensure_key(here.state / "ssh" / "id_ed25519")
    options = f"SetEnv SLURM_CONF={cluster.configuration}"
    with Sshd(
        tmp_path / "login", authorized=key.with_name(f"{key.name}.pub"), options=options
    ) as login:
        here.configured(login=login.target)
        with (here.state / "config.toml").open("a", encoding="utf-8") as more:
            more.write(f'before = ["env", "SLURM_CONF={cluster.configuration}"]\n')
        true_key = tmp_path / "login" / "host_key"
        async with asyncio.timeout(120):
            tenancy = open_tenancy(os.environ)
            lease = (await allocated(tenancy)).lease
            await tenancy.push(lease, str(here.tree))
            await tenancy.aclose()

            login.restart(new_host_key=make_key(tmp_path / "strange"))
            tenancy = open_tenancy(os.environ)
            with pytest.raises(HostKeyChanged):
                await tenancy.launch_detached(lease, here.command, ["out/"], name="train")
            on_record = [(job.id, job.launched_at) for job in tenancy.ledger.jobs(LeaseId(lease))]
            await tenancy.aclose()
            login.restart(new_host_key=true_key)

            tenancy = open_tenancy(os.environ)
            try:
                here.enough()
                await tenancy.launch_detached(lease, here.command, ["out/"], name="train")
                while (seen := await tenancy.monitor(lease, "train", wait_s=20)).state == "running":
                    pass
                await tenancy.collect(lease)
                torn = await tenancy.verify_and_teardown(lease)
            finally:
                await tenancy.aclose()
    assert on_record == [("train", None)], "its files would count as nobody's, had it begun"
    assert seen.state == "finished"
    log = (here.state / "kept" / lease / "log" / "train.log").read_text(encoding="utf-8")
    assert log.count("begins at") == 1
    assert torn.receipt.ground == "verified"


async def test_what_somebody_else_cancelled_is_told_and_never_called_torn_down(
    here: Site, cluster: Cluster, tenancy: Tenancy
) -> None:
    card = await allocated(tenancy)

    cluster.told("scancel", str(card.box))
    cluster.until(str(card.box), "CANCELLED")
    while (told := await tenancy.list_leases("all")).leases[0].state is LeaseState.ACTIVE:
        await tenancy.clock.sleep(1)

    (after,) = told.leases
    assert after.state is LeaseState.LOST
    assert any(
        "gone, and this program did not end it" in alarm
        for alarm in (*told.alarms, after.alarm or "")
    )


async def test_where_no_cluster_is_named_there_are_no_boxes_and_one_that_was_named_is_never_empty(
    here: Site, tmp_path: Path
) -> None:
    (here.state / "config.toml").unlink()
    profile = known_platforms()["slurm"]
    by_hand = connect(profile, Home(here.state), os.environ, WallClock())
    assert by_hand is None or not isinstance(by_hand, Market)

    (here.state / "slurm" / "begun").mkdir(parents=True)
    connector = connect(profile, Home(here.state), os.environ, WallClock())
    assert isinstance(connector, Market)
    with pytest.raises(ProviderTrouble, match="no cluster is named"):
        await connector.list_boxes()


async def test_an_ordered_image_is_refused_before_anything_is_queued_with_the_way_into_it(
    here: Site, tenancy: Tenancy, tmp_path: Path
) -> None:
    order = tmp_path / "gpu-tenant.toml"
    order.write_text('image = "ghcr.io/me/train:1"\n', encoding="utf-8")
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text('[provider.vastai]\nimage = "ghcr.io/me/train:1"\n', encoding="utf-8")

    refused, offered = [
        await tenancy.find_offers(
            provider="slurm", order=str(path), hours=0.5, interruptible="either"
        )
        for path in (order, elsewhere)
    ]

    assert refused.offers == ()
    assert "cannot carry out the order's `image`" in refused.troubles["slurm"]
    assert "apptainer exec --nv docker://ghcr.io/me/train:1 COMMAND" in refused.troubles["slurm"]
    assert offered.offers
    assert (await tenancy.list_leases()).leases == ()


async def test_a_fleet_is_one_array_whose_tasks_are_leases_of_their_own(
    here: Site, cluster: Cluster, tenancy: Tenancy
) -> None:
    here.configured(max_running=2)
    card = await allocated(tenancy, count=3, wait_s=10)
    assert card.together
    leases = card.together.leases

    ids = {str(tenancy.ledger.lease(lease).box_id) for lease in leases}
    arrays = {box.partition("_")[0] for box in ids}
    assert (len(ids), len(arrays)) == (3, 1)
    assert card.together.not_ready, "the third waits for one of the first two"

    here.enough()
    (last,) = card.together.not_ready
    first, second = (lease for lease in leases if lease != last)
    await tenancy.verify_and_teardown(first)
    # The last task has its array's own id.
    (array,) = arrays
    wait_until(lambda: array in cluster.told("squeue", "-h", "-t", "RUNNING", "-o", "%A").split())
    pair = [second, last]
    for lease in pair:
        await tenancy.push(lease, str(here.tree))
    await tenancy.launch_detached(
        pair[0],
        f"SEED={{seed}} {here.command} out/{{cell}}",
        ["out/{cell}/"],
        matrix={"seed": [1, 2]},
        leases=pair[1:],
    )
    for lease in pair:
        (job,) = tenancy.ledger.jobs(lease)
        while (seen := await tenancy.monitor(lease, job.id, wait_s=20)).state == "running":
            pass
        assert seen.state == "finished", seen
        await tenancy.collect(lease)
    for lease in pair:
        assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"
    assert not cluster.jobs(), "tasks that no lease claimed do not wait on"


async def test_a_job_that_was_submitted_is_found_by_its_mark_and_never_submitted_twice(
    here: Site, cluster: Cluster, tenancy: Tenancy
) -> None:
    lease = tenancy.ledger.lease((await allocated(tenancy)).lease)
    profile = known_platforms()["slurm"]
    connector = connect(profile, tenancy.home, os.environ, tenancy.clock)
    assert connector

    again = await connector.create(lease)

    (listed,) = await connector.list_boxes()
    assert (again.id, listed.id, again.address) == (lease.box_id, lease.box_id, lease.address)
    assert cluster.jobs() == [lease.box_id]


class _Later(WallClock):
    """The same clock, when the evening has come."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=2)


async def test_a_task_that_no_lease_claimed_is_a_box_when_it_runs_and_does_not_wait_for_ever(
    here: Site, cluster: Cluster
) -> None:
    begun = here.state / "slurm" / "begun"
    begun.mkdir(parents=True)
    (begun / "gpu-tenant:0a1b2c:slurm-aaaa").touch()
    name = "gpu-tenant/0a1b2c/fleet"
    array = cluster.told(
        "sbatch",
        "--parsable",
        "--partition=low",
        "--gres=gpu:1",
        "--time=1",
        "--output=/dev/null",
        "--hold",
        "--array=1-3",
        f"--job-name={name}",
        f"--comment={name}",
        "--wrap",
        "sleep 60",
    )
    cluster.told("scontrol", "release", f"{array}_1")
    wait_until(lambda: cluster.told("squeue", "-h", "-t", "RUNNING", "-o", "%i") == f"{array}_1")
    profile, home = known_platforms()["slurm"], Home(here.state)
    today, later = (connect(profile, home, os.environ, clock()) for clock in (WallClock, _Later))
    assert today
    assert later

    (running,) = await today.list_boxes()
    assert (running.id, running.mark, running.price_usd_h) == (f"{array}_1", None, Decimal("0.5"))
    assert len(cluster.told("squeue", "-h", "--array", "-o", "%i").split()) == 3

    assert [box.id for box in await later.list_boxes()] == [running.id]
    wait_until(lambda: cluster.told("squeue", "-h", "--array", "-o", "%i") == running.id)


async def test_another_job_under_a_lease_s_old_id_and_another_cluster_are_left_alone(
    here: Site, cluster: Cluster, tenancy: Tenancy
) -> None:
    card = await allocated(tenancy)
    box = str(card.box)

    cluster.told("scontrol", "update", f"JobId={box}", "Comment=the thesis", "JobName=thesis")
    with pytest.raises(ProviderTrouble, match="does not carry the mark"):
        await tenancy.verify_and_teardown(card.lease)
    assert cluster.state(box) == "RUNNING"

    noted = here.state / "slurm" / "cluster"
    (noted / "lab").rename(noted / "elsewhere")
    connector = connect(known_platforms()["slurm"], tenancy.home, os.environ, tenancy.clock)
    assert connector
    with pytest.raises(ProviderTrouble, match="leases were begun in elsewhere"):
        await connector.list_boxes()


async def test_while_a_job_of_an_allocation_may_still_save_nothing_is_read_in_its_stead(
    here: Site, cluster: Cluster
) -> None:
    signed = here.last_of("slurm-aaaa") / SIGNED
    signed.parent.mkdir(parents=True)
    job = cluster.told(
        "sbatch",
        "--parsable",
        "--partition=low",
        "--gres=gpu:1",
        "--time=1",
        "--output=/dev/null",
        "--wrap",
        f"trap '' TERM; echo $SLURM_JOB_ID > {signed}; sleep 60",
    )
    wait_until(lambda: signed.exists() and signed.read_text() == f"{job}\n")
    before = ("env", f"SLURM_CONF={cluster.configuration}")
    address = SlurmAddress(login=None, before=before, job=job, directory="gpu-tenant/slurm-aaaa")
    ended = SlurmTransport(address, LocalTransport(here.home))

    cluster.told("scancel", job)
    with pytest.raises(BoxUnreachable, match="may still be saving"):
        await ended.run(["true"], timeout_s=20)
    cluster.until(job, "CANCELLED")
    assert (await ended.run(["true"], timeout_s=20)).exit_status == 0


async def test_bytes_come_and_go_whole_by_a_step_where_the_login_node_shares_no_home(
    here: Site, tenancy: Tenancy, tmp_path: Path
) -> None:
    card = await allocated(tenancy)
    lease = tenancy.ledger.lease(card.lease)
    assert isinstance(lease.address, SlurmAddress)
    (here.last_of(card.lease) / SIGNED).unlink()
    inside = SlurmTransport(lease.address, LocalTransport(here.home))
    much = bytes(range(256)) * 4096
    source = tmp_path / "source"
    source.write_bytes(much)

    await inside.put(source, "gpu-tenant/it's here", mode=0o640)
    ended = await inside.run(["sh", "-c", "cat; echo no >&2; exit 3"], stdin=much, timeout_s=20)
    killed = await inside.run(["sh", "-c", "kill -TERM $$"], timeout_s=20)
    channel = await inside.open(["cat", "gpu-tenant/it's here", "-"], way="own")
    came = bytearray()
    while len(came) < len(much):
        came += channel.reader.recv(65536)
    channel.writer.sendall(b"no end of a line")
    assert channel.reader.recv(100) == b"no end of a line"
    channel.hang_up()

    assert (ended.exit_status, ended.stdout, ended.stderr) == (3, much, b"no\n")
    assert killed.exit_status == 128 + signal.SIGTERM
    assert (bytes(came), (here.home / "gpu-tenant/it's here").stat().st_mode & 0o777) == (
        much,
        0o640,
    )
    for end in (channel.reader, channel.writer):
        end.close()
    assert eventually(lambda: "cat" not in here.cluster.told("scontrol", "show", "steps"))
