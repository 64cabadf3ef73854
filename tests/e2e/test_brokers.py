"""Boxes that SkyPilot or dstack rent and move: leased by their own entries, and their work gone on with."""

import asyncio
import getpass
from pathlib import Path

import pytest
from e2e.people import NewBox, Person, World, until
from e2e.writers import written
from sshd import LOOPBACK, Sshd, make_key
from waited import over

from gpu_tenant.domain.errors import BadRequest, BoxTaken, BoxTrouble, HostKeyChanged, Refused
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.leases.adopt_external import adopt_from
from gpu_tenant.leases.end import assess_loss
from gpu_tenant.leases.recover import recover
from gpu_tenant.leases.watch_actions import pull
from gpu_tenant.service import Tenancy

STEP = """\
n=$(cat out/step.json 2>/dev/null || echo 0)
echo "began at $n"
mkdir -p out
echo "$((n + 7))" >out/step.json
until [ -e "$1" ]; do sleep 0.05; done
"""


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The key that the other tool made, and put on every box of its own."""
    return make_key(tmp_path / "their-key")


def shows(tool: str, person: Person, key: Path, box: Sshd, through: Sshd | None = None) -> None:
    """The tool's configuration leads to that box, by way of its host where there is one."""
    first = through or box
    written(
        tool,
        person.home,
        HOST=LOOPBACK,
        PORT=str(first.port),
        INNER=str(box.port),
        USER=getpass.getuser(),
        KEY=str(key),
    )


async def began(tenancy: Tenancy, lease: str, tmp_path: Path) -> str:
    """A job with a checkpoint runs there, and a snapshot of it is here."""
    tree = tmp_path / "work"
    tree.mkdir()
    (tree / "step.sh").write_text(STEP, encoding="utf-8")
    await tenancy.push(lease, str(tree))
    await tenancy.launch_detached(
        lease, f"sh step.sh {tmp_path / 'enough'}", ["out/"], name="train"
    )
    return lease


async def settled(tenancy: Tenancy, lease: str) -> int:
    """So many files of the running job are here."""
    async with asyncio.timeout(60):
        while not (files := (await pull(tenancy.context, lease)).files):  # noqa: ASYNC110 - the box is another process
            await asyncio.sleep(0.1)
    return files


async def test_a_cluster_is_leased_by_skypilots_entry_and_handed_back_with_its_word(
    person: Person, new_box: NewBox, key: Path, world: World
) -> None:
    box = new_box(authorized=key.with_suffix(".pub"))
    shows("skypilot", person, key, box)

    told = person.gpu_tenant("adopt", "--from", "skypilot:dev", "--json")
    assert told.status == 0, told
    async with person.tenancy() as tenancy:
        (lease,) = tenancy.ledger.leases("live")
        assert (box.host_key.split()[1]) in person.state.joinpath(
            "ssh", "known_hosts", lease.id
        ).read_text(encoding="utf-8")
        with pytest.raises(BoxTaken, match="is already on dev"):
            await adopt_from(tenancy.context, "skypilot:dev")
        ended = await tenancy.verify_and_teardown(lease.id)

    assert "`sky down dev`" in (ended.receipt.left_behind or "")
    assert box.logins


async def test_what_skypilot_moved_goes_on_from_our_newest_checkpoint(
    person: Person, new_box: NewBox, key: Path, tmp_path: Path
) -> None:
    public = key.with_suffix(".pub")
    before, after = new_box("before", authorized=public), new_box("after", authorized=public)
    shows("skypilot", person, key, before)
    async with person.tenancy() as tenancy:
        old = await began(
            tenancy, (await adopt_from(tenancy.context, "skypilot:dev")).lease, tmp_path
        )
        step = before.home / "gpu-tenant" / old / "work" / "out" / "step.json"
        await until(step.exists)
        # No file is complete before it has been quiet for a while.
        assert await settled(tenancy, old)

        with pytest.raises(Refused, match="SkyPilot has not moved dev"):
            await adopt_from(tenancy.context, "skypilot:dev", recovers=old)

        before.kill_sessions()
        before.stop()
        shows("skypilot", person, key, after)
        card = await adopt_from(tenancy.context, "skypilot:dev", recovers=old)
        assert f"`gpu-tenant recover {old}`" in (card.alarm or "")
        assert tenancy.ledger.lease(old).state is LeaseState.LOST
        assert tenancy.ledger.lease(card.lease).recovers == old

        assert (await recover(tenancy.context, old)).lease == card.lease
        (tmp_path / "enough").touch()
        seen = await over(tenancy, card.lease, "train")
        assert (seen.state, "began at 7" in seen.log) == ("finished", True), seen
        await tenancy.collect(card.lease)
        assert (await tenancy.verify_and_teardown(card.lease)).receipt.ground == "verified"


async def test_where_the_disk_moved_along_the_lease_itself_goes_on(
    person: Person, new_box: NewBox, key: Path, world: World
) -> None:
    public = key.with_suffix(".pub")
    before, after = new_box("before", authorized=public), new_box("after", authorized=public)
    shows("skypilot", person, key, before)
    async with person.tenancy() as tenancy:
        old = (await adopt_from(tenancy.context, "skypilot:dev")).lease
        await tenancy.push(old, str(world.tree))
        after.home.rmdir()
        before.kill_sessions()
        before.stop()
        before.home.rename(after.home)
        shows("skypilot", person, key, after)

        card = await adopt_from(tenancy.context, "skypilot:dev", recovers=old)

        assert (card.lease, card.state) == (old, LeaseState.ACTIVE)
        assert [x.id for x in tenancy.ledger.leases("live")] == [old]
        await tenancy.push(old, str(world.tree))


async def test_a_box_that_cannot_look_at_its_disk_proves_nothing_lost(
    person: Person, new_box: NewBox, key: Path, tmp_path: Path
) -> None:
    public = key.with_suffix(".pub")
    cannot = 'case "$SSH_ORIGINAL_COMMAND" in *test*-d*) exit 126;; esac; exec sh -c "$SSH_ORIGINAL_COMMAND"'
    before = new_box("before", authorized=public)
    after = new_box("after", authorized=public, options=f"ForceCommand {cannot}")
    shows("skypilot", person, key, before)
    async with person.tenancy() as tenancy:
        old = (await adopt_from(tenancy.context, "skypilot:dev")).lease
        shows("skypilot", person, key, after)

        with pytest.raises(BoxTrouble, match="moved along is unknown") as told:
            await adopt_from(tenancy.context, "skypilot:dev", recovers=old)

        assert "same command again" in told.value.remedy
        assert [lease.id for lease in tenancy.ledger.leases("live")] == [old]


async def test_a_run_is_leased_by_dstacks_entries_through_its_host(
    person: Person, new_box: NewBox, key: Path, world: World
) -> None:
    public = key.with_suffix(".pub")
    host, container = new_box("host", authorized=public), new_box("container", authorized=public)
    shows("dstack", person, key, container, through=host)
    async with person.tenancy() as tenancy:
        lease = (await adopt_from(tenancy.context, "dstack:dev")).lease
        assert host.logins
        # It takes its entries out again when nobody is attached; a lease stays where it is.
        (person.home / ".dstack" / "ssh" / "config").write_text("", encoding="utf-8")
        await tenancy.push(lease, str(world.tree))
        with pytest.raises(BadRequest, match="dstack shows no dev"):
            await adopt_from(tenancy.context, "dstack:dev")
        ended = await assess_loss(tenancy.context, lease)
        assert not ended.losses
    listed = person.gpu_tenant("ssh", lease, "--", "true")
    assert listed.status == 0, listed


async def test_another_host_key_at_the_same_place_is_not_a_move(
    person: Person, new_box: NewBox, key: Path, tmp_path: Path
) -> None:
    box = new_box(authorized=key.with_suffix(".pub"))
    shows("skypilot", person, key, box)
    async with person.tenancy() as tenancy:
        lease = (await adopt_from(tenancy.context, "skypilot:dev")).lease
    box.restart(new_host_key=make_key(tmp_path / "another"))

    async with person.tenancy() as tenancy:
        with pytest.raises(HostKeyChanged):
            await tenancy.audit(lease)
        with pytest.raises(Refused, match="has not moved"):
            await adopt_from(tenancy.context, "skypilot:dev", recovers=lease)
