"""A whole lease of one file, where nobody but its owner looks: its timeline is read once, and every verb believes it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from errands import a_tree

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain import timeline
from gpu_tenant.service import Tenancy


@pytest.fixture
async def tenancy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tenancy]:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    opened = open_tenancy()
    yield opened
    await opened.aclose()


async def finished(tenancy: Tenancy, tmp_path: Path) -> str:
    """A lease whose only job has written one file and was seen to end by its owner. No watchdog ever looked."""
    lease = (await tenancy.provision("local", smoke="none")).lease
    await tenancy.push(lease, str(a_tree(tmp_path / "tree")))
    await tenancy.launch_detached(lease, "mkdir out && echo '{}' > out/told.json", ["out/"])
    seen = await tenancy.monitor(lease, wait_s=45)
    while seen.state not in ("finished", "failed", "killed", "stopped"):
        seen = await tenancy.monitor(lease, wait_s=45)
    assert seen.state == "finished"
    return lease


async def test_a_box_whose_job_has_ended_takes_a_load_test_though_no_watchdog_saw_the_end(
    tenancy: Tenancy, tmp_path: Path
) -> None:
    lease = await finished(tenancy, tmp_path)
    assert not tenancy.ledger.events(lease, timeline.JobEnded)

    audited = await tenancy.audit(lease, burn_s=1)

    assert audited.lease == lease


async def test_the_teardown_of_one_file_reads_its_timeline_four_times_at_most(
    tenancy: Tenancy, tmp_path: Path
) -> None:
    lease = await finished(tenancy, tmp_path)
    await tenancy.collect(lease)
    await tenancy.aclose()
    tenancy = open_tenancy()
    asked: list[str] = []
    tenancy.ledger.trace(asked.append)

    torn = await tenancy.verify_and_teardown(lease)

    tenancy.ledger.trace(None)
    await tenancy.aclose()
    reads = [x for x in asked if x.startswith("SELECT") and "FROM events" in x]
    assert torn.receipt.ground == "verified"
    assert 1 <= len(reads) <= 4, "\n".join(reads)
