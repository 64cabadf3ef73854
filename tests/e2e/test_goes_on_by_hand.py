"""Work that was stopped goes on at another box, by the line that the ended lease itself shows."""

import asyncio
from pathlib import Path

import pytest
from waited import over

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.command import Command
from gpu_tenant.leases.overview import on_card

JOB = """\
mkdir -p out
if [ -f out/state ]; then cp out/state out/done; else echo 7 >out/state; sleep 600; fi
"""


async def test_what_was_kept_of_a_stopped_job_is_pushed_to_the_next_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "job.sh").write_text(JOB, encoding="utf-8")
    tenancy = open_tenancy()
    try:
        first = (await tenancy.provision(smoke="none")).lease
        await tenancy.push(first, str(tree))
        job = (await tenancy.launch_detached(first, "sh job.sh", ["out/"])).job
        state = Path(tenancy.ledger.lease(first).work_directory, "out/state")
        box = tenancy.home.root / "boxes" / first / "home"
        async with asyncio.timeout(60):
            while not (box / state).exists():  # noqa: ASYNC110 - the box is another process
                await asyncio.sleep(0.05)
        await tenancy.stop_job(first, job, grace_s=1)
        await tenancy.collect(first)
        await tenancy.verify_and_teardown(first)

        kept = str(tenancy.home.artifacts_of(first) / "work")
        assert f"{Command('push', kept, 'NEW')} puts there what was kept" in (
            on_card(tenancy.context, first).next
        )
        second = (await tenancy.provision(smoke="none")).lease
        await tenancy.push(second, str(tree))
        await tenancy.push(second, kept)
        await tenancy.launch_detached(second, "sh job.sh", ["out/"])
        assert (await over(tenancy, second)).state == "finished"
        await tenancy.collect(second)

        assert (tenancy.home.artifacts_of(second) / "work/out/done").read_text("utf-8") == "7\n"
        await tenancy.verify_and_teardown(second)
        assert on_card(tenancy.context, second).next == "nothing: this lease has ended"
    finally:
        await tenancy.aclose()
