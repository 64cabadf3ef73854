"""Whole leases over real ssh: a first one, through a gate, on loud and rough boxes, among several clients."""

import asyncio
import getpass
import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from e2e.people import (
    NewBox,
    Person,
    World,
    assert_kept,
    ended,
    launched,
    living_in,
    log_on,
    log_path,
    steps_on,
    trained,
    until,
)
from sshd import LOOPBACK, Sshd, wait_until
from waited import over

from gpu_tenant.domain.errors import (
    BoxUnreachable,
    LeaseHeld,
)
from gpu_tenant.leases.cards import Card


def test_a_first_lease_goes_from_a_refused_key_to_a_receipt(
    new_box: NewBox, world: World, tmp_path: Path
) -> None:
    person, authorized = Person(tmp_path / "newcomer"), tmp_path / "authorized_keys"
    authorized.touch()
    box = new_box(authorized=authorized)

    denied = person.gpu_tenant("adopt", box.target)
    assert denied.status == 4, denied
    (line,) = [x.partition(": ")[2] for x in denied.err.splitlines() if x.startswith("hint: ")]
    line = line[line.index("ssh-ed25519") :]
    assert line == person.public_key.read_text(encoding="utf-8").strip()
    assert line in person.gpu_tenant("doctor").out
    authorized.write_text(f"{line}\n", encoding="utf-8")

    adopted = person.gpu_tenant("adopt", box.target, "--json")
    assert adopted.status == 0, adopted
    assert f"note: pinned {fingerprint(box)} for [{LOOPBACK}]:{box.port}" in adopted.err
    lease = Card.model_validate_json(adopted.out).lease

    for words in (
        ("audit",),
        ("push", str(world.tree)),
        ("launch", "--artifact", "out/", "--name", "train", world.command),
    ):
        went = person.gpu_tenant(*words)
        assert went.status == 0, went
        assert "pinned" not in went.err
    follower = person.begin("monitor", "--follow")
    wait_until(lambda: "step 3" in log_on(box, lease))
    world.let_it_end()
    followed = ended(follower)
    assert (followed.status, followed.out) == (0, log_on(box, lease))

    early = person.gpu_tenant("teardown")
    assert (early.status, "hint: `gpu-tenant collect" in early.err) == (3, True), early
    assert person.gpu_tenant("collect").status == 0
    over = person.gpu_tenant("teardown")
    assert over.status == 0, over
    assert "handed back" in over.out
    assert "verified" in over.out
    assert_kept(person, box, lease)


def fingerprint(box: Sshd) -> str:
    told = subprocess.run(
        ["ssh-keygen", "-l", "-f", "-"],
        input=box.host_key,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return told.stdout.split()[1]


def test_an_alias_behind_a_jump_host_is_leased_like_any_other(
    person: Person, new_box: NewBox, world: World
) -> None:
    gate, box = new_box("gate"), new_box("box")
    (person.home / ".ssh").mkdir()
    (person.home / ".ssh" / "config").write_text(
        f"Host gate\n  HostName {LOOPBACK}\n  Port {gate.port}\n"
        f"Host rig\n  HostName {LOOPBACK}\n  Port {box.port}\n  ProxyJump gate\n"
        f"Host *\n  User {getpass.getuser()}\n",
        encoding="utf-8",
    )

    adopted = person.gpu_tenant("adopt", "rig", "--json")
    assert adopted.err.count("note: pinned") == 2, adopted
    lease = Card.model_validate_json(adopted.out).lease
    for words in (
        ("push", str(world.tree)),
        ("launch", "--artifact", "out/", "--name", "train", world.command),
    ):
        assert person.gpu_tenant(*words).status == 0
    world.let_it_end()
    assert person.gpu_tenant("monitor", "--follow").out.endswith("done\n")
    assert person.gpu_tenant("collect").status == 0
    assert person.gpu_tenant("teardown").status == 0

    assert_kept(person, box, lease)
    assert list(gate.home.iterdir()) == []
    # The gate also knows of a spare connection that was given up before the box heard of it.
    assert gate.logins >= box.logins > 4


async def test_a_login_that_talks_spoils_nothing(
    person: Person, new_box: NewBox, world: World, tmp_path: Path
) -> None:
    home = tmp_path / "box" / "home"
    login = f'cd {home} && HOME="$PWD" SHLVL=0 exec bash -c "$SSH_ORIGINAL_COMMAND"'
    box = new_box(options=f"ForceCommand {login}")
    (home / ".bashrc").write_text(
        "echo Welcome to the rig; echo 'quota: 93 %' >&2\n", encoding="utf-8"
    )
    lease = await trained(person, box.target, world)
    async with person.tenancy() as tenancy:
        await tenancy.audit(lease)
        await tenancy.collect(lease)
        assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"
    assert_kept(person, box, lease)


async def test_a_job_outlives_a_storm_of_hangups(person: Person, box: Sshd, world: World) -> None:
    def storm() -> None:
        for pid in living_in(box.home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGHUP)

    async with person.tenancy() as tenancy:
        lease = (await tenancy.provision("own", box.target)).lease
        await tenancy.push(lease, str(world.tree))
        launch = partial(tenancy.launch_detached, lease, world.command, ["out/"], name="train")
        launching = asyncio.create_task(launch())
        await until(lambda: log_path(box, lease).parent.exists() or launching.done())
        storm()
        with suppress(BoxUnreachable):
            await launching
        await launch()

        for _ in range(5):
            steps = steps_on(box, lease)
            looking = asyncio.create_task(tenancy.monitor(lease, wait_s=0))
            await until(looking.done, meanwhile=storm)
            with suppress(BoxUnreachable):
                await looking
            wait_until(lambda: steps_on(box, lease) > steps)  # noqa: B023
        assert (await tenancy.monitor(lease, wait_s=0)).state == "running"
        world.let_it_end()
        assert (await over(tenancy, lease)).state == "finished"
        await tenancy.collect(lease)
        assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"
    assert world.runs == 1
    assert_kept(person, box, lease)


async def test_lookers_never_wait_for_one_who_collects_and_who_acts_is_told_to(
    person: Person, box: Sshd, heavy: World
) -> None:
    async with person.tenancy() as tenancy:
        lease = await launched(tenancy, box.target, heavy)
        lookers = [person.begin("monitor", "--follow") for _ in range(2)]
        wait_until(lambda: box.logins == 3)
        heavy.let_it_end()
        assert (await over(tenancy, lease)).state == "finished"

        collector = person.begin("collect")
        partial_files = person.state / "kept" / lease / ".partial"
        wait_until(lambda: partial_files.exists() and any(partial_files.iterdir()))
        os.kill(collector.pid, signal.SIGSTOP)
        wait_until(lambda: stopped(collector.pid))
        assert (await tenancy.monitor(lease, wait_s=0)).state == "finished"
        assert [card.lease for card in (await tenancy.list_leases()).leases] == [lease]
        for verb in (
            tenancy.push(lease, str(heavy.tree)),
            tenancy.launch_detached(lease, "true", ["out/"]),
            tenancy.stop_job(lease),
            tenancy.collect(lease),
            tenancy.verify_and_teardown(lease),
        ):
            with pytest.raises(LeaseHeld, match="is in use: collect"):
                await verb
        held = person.gpu_tenant("teardown")
        assert (held.status, held.err.partition(": own-")[0]) == (7, "error: LEASE_HELD"), held
        os.kill(collector.pid, signal.SIGCONT)

        assert ended(collector).status == 0
        for looker in lookers:
            saw = ended(looker)
            assert (saw.status, saw.out) == (0, log_on(box, lease)), saw.err
        assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"
        tenancy.ledger.check()
    assert_kept(person, box, lease)


def stopped(pid: int) -> bool:
    return "State:\tT" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
