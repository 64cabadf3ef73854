"""A rehearsed box has the GPUs that were rented, as data, and what can be wrong with them."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from contract.staged import RENTED, on_stage
from e2e.renting import tenant_at

from gpu_tenant.box.audit.findings import Needs
from gpu_tenant.box.audit.probe import GIB, REHEARSED, read_smi
from gpu_tenant.box.audit.rented_checks import card_name
from gpu_tenant.box.audit.run import Audited
from gpu_tenant.box.audit.run import audit as look
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import Job, JobId
from gpu_tenant.emulators.boxes import Sites
from gpu_tenant.emulators.gpus import FAULTS, GpuFault, rented_gpus
from gpu_tenant.files.skill_files import script
from gpu_tenant.providers.gpu_catalog import same_gpu
from gpu_tenant.transports.local import LocalTransport


def faults(audited: Audited, level: str = "blocker") -> dict[str, str]:
    found = [f for f in audited.findings if f.level == level]
    return {finding.subject: f"{finding.seen}: {finding.reason}" for finding in found}


@pytest.mark.parametrize("provider", RENTED)
async def test_the_audit_of_a_rehearsed_box_finds_the_gpu_that_was_rented(
    provider: str, tmp_path: Path
) -> None:
    async with tenant_at(provider, tmp_path) as tenant:
        card = await tenant.rented()
        audited = await tenant.tenancy.audit(card.lease, gpus=1)
        quote = tenant.lease(card).quote
        next_step = str(audited.next)

    assert quote is not None
    assert faults(audited) == {}
    assert len(audited.gpus) == quote.offer.gpu_count
    for gpu in audited.gpus:
        assert gpu.name.endswith(f"({REHEARSED})"), "no GPU is there, and every name says so"
        assert same_gpu(quote.offer.gpu, card_name(gpu))
        assert gpu.total_bytes
    assert "push" in next_step


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("gpu_wrong_card", "gpu 0 card"),
        ("gpu_half_memory", "gpu 0 size"),
        ("gpu_missing", "gpus"),
        ("gpu_ecc", "gpu 0 ecc"),
    ],
)
async def test_a_box_that_is_not_what_was_rented_is_blocked_and_can_be_given_back_unused(
    fault: str, told: str, tmp_path: Path
) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        card = await tenant.rented()
        tenant.fault(fault)
        audited = await tenant.tenancy.audit(card.lease)
        ended = await tenant.tenancy.verify_and_teardown(card.lease)

    assert told in faults(audited)
    assert "teardown" in audited.next
    assert ended.receipt is not None
    assert ended.receipt.ground == "never_used"


@pytest.mark.parametrize(
    ("fault", "told"), [("gpu_busy_neighbour", "gpu 0 memory"), ("gpu_throttled", "gpu 0 throttle")]
)
async def test_what_can_be_seen_without_load_is_a_warning(
    fault: str, told: str, tmp_path: Path
) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        card = await tenant.rented()
        tenant.fault(fault)
        audited = await tenant.tenancy.audit(card.lease)

    assert told in faults(audited, "warning")


async def test_a_fault_that_is_set_before_there_is_a_box_befalls_the_next_one_alone(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        tenant.fault("gpu_half_memory")
        lying, honest = await tenant.rented(), await tenant.rented()
        first = await tenant.tenancy.audit(lying.lease)
        second = await tenant.tenancy.audit(honest.lease)

    assert "gpu 0 size" in faults(first)
    assert faults(second) == {}


def test_a_fault_stays_with_its_box_when_that_is_stopped_and_starts_again(tmp_path: Path) -> None:
    sites, gpus = Sites(tmp_path, "local", ""), rented_gpus("L40S", 1)
    sites.open("box", [], gpus=gpus)
    sites.befall("box", GpuFault(do="gpu_ecc"))
    sites.close("box")
    sites.open("box", [], gpus=gpus)

    driver = read_smi(said(tmp_path / "box/bin", "-q", "-x").stdout)

    assert driver is not None
    assert driver.gpus[0].ecc_uncorrected == 3


def test_every_rehearsal_lists_the_faults_of_gpus(tmp_path: Path) -> None:
    with on_stage("lambda_cloud", tmp_path) as staged:
        assert set(FAULTS) <= staged.own_faults


def said(programs: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    program = [os.fspath(programs / "nvidia-smi"), *words]
    return subprocess.run(program, capture_output=True, encoding="utf-8", timeout=60, check=False)


def test_the_stand_in_answers_what_the_scripts_on_a_box_ask(tmp_path: Path) -> None:
    gpus = rented_gpus("H100 SXM", 2)
    Sites(tmp_path, "local", "http://127.0.0.1:1").open("box", [], gpus=gpus)
    programs = tmp_path / "box/bin"

    cells = said(
        programs,
        "--query-gpu=uuid,pci.bus_id,utilization.gpu,memory.used,utilization.memory,power.draw,power.limit",
        "--format=csv,noheader,nounits",
    )
    burn = subprocess.run(
        [sys.executable, script("burn.py"), "--seconds", "5"],
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    nobody = said(
        programs, "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader"
    )
    refused = said(programs, "--query-gpu=colour")
    other = said(programs, "dmon")

    assert [line.split(", ")[2:4] for line in cells.stdout.splitlines()] == [["0", "4"]] * 2
    assert json.loads(burn.stdout)["rehearsed"]
    assert (nobody.returncode, nobody.stdout) == (0, "")
    assert said(programs, "-L").stdout.count(REHEARSED) == 2
    assert refused.returncode == other.returncode == 2
    assert "rehearsal" in other.stdout


async def test_a_slice_of_a_gpu_is_a_gpu_with_its_own_memory(tmp_path: Path) -> None:
    at = Sites(tmp_path, "local", "").open("box", [], gpus=rented_gpus("H100 MIG 3g.40gb", 2))

    driver = read_smi(said(tmp_path / "box/bin", "-q", "-x").stdout)
    assert driver is not None
    assert [gpu.total_bytes for gpu in driver.gpus] == [40 * GIB, 40 * GIB]
    assert [gpu.index for gpu in driver.gpus] == [0, 1]
    assert same_gpu("H100 MIG 3g.40gb", card_name(driver.gpus[0]))
    assert at.kind == "local"


async def test_a_box_without_a_gpu_of_nvidia_has_no_stand_in_nor_has_one_that_is_real(
    tmp_path: Path,
) -> None:
    opened = Sites(tmp_path, "local", "").open("box", [], gpus=rented_gpus("MI300X", 1))
    assert opened.model_dump()["programs"] == str(tmp_path / "box" / "bin")

    home = tmp_path / "real"
    home.mkdir()
    told = await LocalTransport(home).run(["sh", "-c", "echo $PATH"], timeout_s=20)

    assert told.stdout.decode().strip() == os.environ["PATH"]
    assert not list(tmp_path.glob("**/nvidia-smi"))
    assert json.loads((tmp_path / "box/home/.rehearsal.json").read_text(encoding="utf-8"))


async def test_a_load_says_of_each_gpu_that_it_is_as_paid_for_and_is_no_use_of_the_box(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        card = await tenant.rented()
        audited = await tenant.tenancy.audit(card.lease, burn_s=60)
        ended = await tenant.tenancy.verify_and_teardown(card.lease)

    told = {finding.subject: finding for finding in audited.findings}
    assert faults(audited) == {}
    assert told["burn gpu 0"].seen.startswith("as paid for: fp32 30.3 of 35.6 TFLOPS")
    assert told["burn gpu 0"].seen.endswith(REHEARSED)
    assert {"link to the box", "link from the box"} <= set(told)
    assert ended.receipt is not None
    assert ended.receipt.ground == "never_used"


async def test_a_slow_gpu_is_seen_under_load_alone_and_the_next_step_gives_the_box_back(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        card = await tenant.rented()
        tenant.fault("gpu_slow_clock", amount=0.5)
        looked = await tenant.tenancy.audit(card.lease)
        burnt = await tenant.tenancy.audit(card.lease, burn_s=60)
        ledger = tenant.tenancy.ledger
        reports = ledger.host_reports(at=ledger.now())

    assert faults(looked) == {}
    assert {report.what for report in reports} == {"failed audit"}, "its host is remembered"
    assert {"burn gpu 0 clock", "burn gpu 0 fp32"} <= set(faults(burnt))
    assert "not what was paid for" in burnt.next
    assert "teardown" in burnt.next
    assert "unused" in burnt.next


async def test_no_load_takes_the_gpu_from_a_job(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        card = await tenant.rented()
        ledger, lease = tenant.tenancy.ledger, tenant.lease(card)
        job = Job(
            id=JobId("job1"),
            command="train",
            artifacts=("out/",),
            discard=(),
            env_names=(),
            declared_at=ledger.now(),
            launched_at=None,
            lease_id=lease.id,
            max_runtime_s=None,
        )
        ledger.note_launched(ledger.declare(job), at=ledger.now())
        with pytest.raises(BadRequest, match="job1 may still run"):
            await tenant.tenancy.audit(card.lease, burn_s=60)


class Jumping:
    """A clock that stands fifty seconds later at each look."""

    shared_with_boxes = False

    def __init__(self) -> None:
        self._at = datetime(2026, 11, 23, tzinfo=UTC)

    def now(self) -> datetime:
        self._at += timedelta(seconds=50)
        return self._at

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("an audit waits for nothing")

    async def follow(self, seconds: float) -> None:
        await self.sleep(seconds)


async def test_a_load_has_only_what_the_look_has_left_of_its_minute(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        card = await tenant.rented()
        session = tenant.tenancy.context.session(tenant.lease(card))
        audited = await look(session, Needs(), clock=Jumping(), burn_s=60, lease_is="rehearsed")

    (told,) = (f for f in audited.findings if f.subject == "burn")
    assert told.level == "warning"
    assert told.seen == "not measured: 10 s were left after the look"


async def test_a_job_that_needs_more_than_was_rented_is_not_the_box_s_lie(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        card = await tenant.rented()
        audited = await tenant.tenancy.audit(card.lease, gpus=8, vram_gib=80)

    assert {"gpus", "gpu 0 memory"} <= set(faults(audited))
    assert "not what was paid for" not in audited.next
