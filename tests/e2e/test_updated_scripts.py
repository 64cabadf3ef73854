"""The skill is updated while a program that uses it goes on, such as an agent's server: its scripts on a box stay known."""

import shutil
from pathlib import Path

import pytest
from e2e.renting import tenant_at
from e2e.watching import Scene

from gpu_tenant.box import guard as guarding
from gpu_tenant.files.skill_files import script
from gpu_tenant.leases import context as leasing


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of our scripts, from which they are put on boxes."""
    copy = tmp_path / "scripts"
    shutil.copytree(script("caretaker.py").parent, copy)
    for user in (guarding, leasing):
        monkeypatch.setattr(user, "script", lambda name: copy / name)
    return copy


async def test_a_script_that_an_update_has_replaced_is_no_work_of_the_tenant(
    tmp_path: Path, scripts: Path
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        scene = Scene(tenant)
        await scene.rent()
        await scene.work("mkdir -p out; echo 1 > out/a.txt")
        await scene.ends()
        leave = scripts / "leave.py"
        leave.write_text(leave.read_text("utf-8") + "\n# a later version\n", encoding="utf-8")
        await tenant.tenancy.change_lease(scene.lease, "extend", hours=20)

        await tenant.tenancy.collect(scene.lease)

        torn = await tenant.tenancy.verify_and_teardown(scene.lease)
        assert torn.receipt.ground == "verified"
