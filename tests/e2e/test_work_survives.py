"""Work lies where it outlives a stop: a used pod is parked, and stops itself, and its files are there afterwards."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest
from arranged import eventually
from e2e.renting import USD_STEP, Tenant, tenant_at
from waited import over

from gpu_tenant.box.guard import arm_again
from gpu_tenant.domain.errors import Refused
from gpu_tenant.leases.cards import Card

JOB = "mkdir -p out && echo weights > out/model.bin"


def disk(tenant: Tenant, box: str | None, name: str = "disk-workspace") -> Path:
    """A disk of that box, by the name of the directory that stands for it."""
    return tenant.stage.directory / "boxes" / str(box) / name


def model_on(tenant: Tenant, box: str | None, lease: str) -> Path:
    return disk(tenant, box) / "gpu-tenant" / lease / "work/out/model.bin"


async def worked(tenant: Tenant, lease: str) -> None:
    job = (await tenant.tenancy.launch_detached(lease, JOB, ["out/"])).job
    await over(tenant.tenancy, lease, job)


async def test_a_used_pod_is_parked_and_its_work_is_there_when_it_resumes(tmp_path: Path) -> None:
    async with tenant_at("runpod", tmp_path, time="runs") as tenant:
        card = await tenant.rented()
        await worked(tenant, card.lease)
        running = tenant.billing_usd_h

        await tenant.tenancy.change_lease(card.lease, "park")

        assert tenant.billing_usd_h < running / 10
        assert list(disk(tenant, card.box, "home").iterdir()) == []
        assert model_on(tenant, card.box, card.lease).exists()

        await tenant.tenancy.change_lease(card.lease, "resume")
        tenant.wait(300)
        collected = await tenant.tenancy.collect(card.lease)
        ended = await tenant.tenancy.verify_and_teardown(card.lease)

        assert (Path(collected.directory) / "work/out/model.bin").read_text() == "weights\n"
        assert ended.receipt.ground == "verified"
        emptied = (
            "what was written outside /workspace and ~ before 1 stop, which may have emptied it"
        )
        assert any(emptied in words for words in ended.receipt.not_proved), ended.receipt
        tenant.assert_nothing_bills()


async def test_work_outside_of_the_volume_is_an_objection_by_name(tmp_path: Path) -> None:
    async with tenant_at("runpod", tmp_path, time="runs") as tenant:
        card = await tenant.rented()
        await worked(tenant, card.lease)
        notes = disk(tenant, card.box, "home") / "notes.txt"
        notes.write_text("by hand", encoding="utf-8")

        with pytest.raises(Refused, match=r"keeps only /workspace.*notes.txt"):
            await tenant.tenancy.change_lease(card.lease, "park")

        assert notes.read_text(encoding="utf-8") == "by hand"
        assert tenant.thing(card.box).phase == "running"
        notes.unlink()
        await tenant.tenancy.change_lease(card.lease, "park")
        assert tenant.thing(card.box).phase == "parked"


async def test_an_audit_looks_at_the_disk_that_the_work_is_on(tmp_path: Path) -> None:
    async with tenant_at("runpod", tmp_path, time="runs") as tenant:
        card = await tenant.rented()

        audited = await tenant.tenancy.audit(card.lease, disk_gib=1e6)

        too_small = [
            found.subject for found in audited.findings if "the job needs 1e" in found.reason
        ]
        assert ["disk-workspace" in subject for subject in too_small] == [True]
        assert not [x for x in audited.findings if x.subject.startswith("platform's")], (
            "it is there"
        )


def eventually_parked(tenant: Tenant, box: str | None) -> bool:
    return eventually(lambda: tenant.thing(box).phase == "parked")


async def dies_at_its_deadline(
    tenant: Tenant, *, taken_over: Literal["taken over", "rented"] = "rented"
) -> Card:
    """A box has a job and a deadline some seconds away, and then nobody looks any more."""
    card = await tenant.rented()
    if taken_over == "taken over":
        (disk(tenant, card.box, "home") / "older.txt").write_text("theirs", encoding="utf-8")
    await worked(tenant, card.lease)
    lease = tenant.lease(card)
    if taken_over == "taken over":
        lease = lease.model_copy(update={"touched_at": lease.created_at})
    soon = tenant.tenancy.ledger.now() + timedelta(seconds=3)
    lease = lease.model_copy(update={"terms": lease.terms.model_copy(update={"deadline_at": soon})})
    armed = await arm_again(tenant.tenancy.context.session(lease), ledger=tenant.tenancy.ledger)
    assert armed.ends_the_meter
    assert "the box stops itself with its own key (proved)" in armed.words
    return card


async def test_when_its_client_is_dead_a_pod_stops_itself_and_a_day_costs_its_volume(
    tmp_path: Path,
) -> None:
    async with tenant_at("runpod", tmp_path, time="runs") as tenant:
        card = await dies_at_its_deadline(tenant)
        died_at, before_usd = tenant.stage.world.now, tenant.metered(card.box)
        offer = tenant.lease(card).quote.offer  # type: ignore[union-attr]

        assert eventually_parked(tenant, card.box)
        tenant.wait(24 * 3600)

        gpu_s = sum(
            max(0.0, (span.until or tenant.stage.world.now) - max(span.since, died_at))
            for span in tenant.thing(card.box).spans
            if span.component == "gpu"
        )
        assert gpu_s < 120
        price = offer.price
        assert price.parked_usd_h is not None
        assert price.running_usd_h is not None
        volume_usd, gpu_usd = 24 * price.parked_usd_h, price.running_usd_h * 120 / 3600
        assert tenant.metered(card.box) - before_usd <= gpu_usd + volume_usd + USD_STEP

        await tenant.tenancy.change_lease(card.lease, "resume", hours=1)
        tenant.wait(300)
        assert model_on(tenant, card.box, card.lease).read_text() == "weights\n"
        await tenant.tenancy.collect(card.lease)
        assert (await tenant.tenancy.verify_and_teardown(card.lease)).receipt.ground == "verified"


async def test_a_pod_with_work_outside_of_its_volume_does_not_stop_itself_and_says_why(
    tmp_path: Path,
) -> None:
    async with tenant_at("runpod", tmp_path, time="runs") as tenant:
        card = await dies_at_its_deadline(tenant)
        notes = disk(tenant, card.box, "home") / "notes.txt"
        notes.write_text("by hand", encoding="utf-8")
        record = model_on(tenant, card.box, card.lease).parents[2] / "caretaker/guard.json"

        def refused() -> bool:
            return "would lose 1 file," in str(json.loads(record.read_bytes()).get("meter"))

        assert eventually(refused)
        assert tenant.thing(card.box).phase == "running"

        notes.unlink()
        assert eventually_parked(tenant, card.box)


async def test_a_pod_that_was_taken_over_does_not_stop_itself_on_older_files(
    tmp_path: Path,
) -> None:
    """What somebody wrote before the lease is nowhere else, either, and a stop would empty it."""
    async with tenant_at("runpod", tmp_path, time="runs") as tenant:
        card = await dies_at_its_deadline(tenant, taken_over="taken over")
        record = model_on(tenant, card.box, card.lease).parents[2] / "caretaker/guard.json"

        def refused() -> bool:
            return "would lose 1 file," in str(json.loads(record.read_bytes()).get("meter"))

        assert eventually(refused)
        assert tenant.thing(card.box).phase == "running"
        assert (disk(tenant, card.box, "home") / "older.txt").exists()
