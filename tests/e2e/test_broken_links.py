"""Leases over real ssh whose links are cut, whose clients are killed, whose servers restart or are strangers."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from e2e.people import (
    HangingUp,
    NewBox,
    Person,
    World,
    assert_kept,
    ended,
    launched,
    log_on,
    steps_on,
    trained,
    until,
)
from e2e.story import PHASES
from sshd import Relay, Sshd, _free_port, make_key, wait_until
from waited import over

from gpu_tenant.artifacts.collect import Collected
from gpu_tenant.domain.errors import (
    BoxUnreachable,
    HostKeyChanged,
    TenantError,
    Unverified,
)
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.leases.cards import TornDown
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy
from gpu_tenant.transports.ssh import ensure_key

HANDSHAKE_BYTES = 8_000
"""A key exchange and a login take the client fewer bytes than this."""


async def test_a_cut_link_loses_and_repeats_no_byte_of_the_log(
    person: Person, box: Sshd, relay: Relay, world: World
) -> None:
    heard, cursor, failed = "", 0, 0

    async with person.tenancy() as tenancy:
        lease = await launched(tenancy, relay.target, world)

        async def listen() -> str:
            nonlocal heard, cursor, failed
            steps = steps_on(box, lease)
            wait_until(lambda: world.is_over or steps_on(box, lease) > steps)
            try:
                seen = await tenancy.follow(
                    lease, None, cursor=cursor, wait_s=0, limit_bytes=65_536
                )
            except BoxUnreachable:
                failed += 1
                return "unknown"
            assert seen.log or seen.state == "finished"
            heard, cursor = heard + seen.log, seen.cursor
            return seen.state

        for server_bytes in (1, 150, 400, 650, 900, 2_000, 3_000):
            links = relay.connections
            relay.cut_after(server_bytes=server_bytes)
            while relay.connections == links:
                await listen()
        for break_link in (relay.cut, relay.black_hole):
            break_link()
            assert await listen() == "running"
        assert failed >= 3
        relay.cut()
        relay.cut_after(server_bytes=1_000)
        assert await listen() == "unknown"

        box.stop()
        relay.cut()
        dark = person.gpu_tenant("monitor", lease)
        assert (dark.status, dark.err.partition(": no")[0]) == (4, "error: BOX_UNREACHABLE"), dark
        assert await listen() == "unknown"
        box.restart()
        assert await listen() == "running"

        world.let_it_end()
        while await listen() != "finished":
            pass
    assert heard == log_on(box, lease)
    assert heard.endswith("done\n")
    assert world.runs == 1


class Severed(HangingUp):
    """One that is dead from a cut on, until its target is set again: who dials anew does not get round it."""

    def cut(self) -> None:
        """Every connection has ended, and new ones are reset."""
        self.target_port = _free_port()
        super().cut()


def test_a_collect_that_is_cut_goes_on_from_the_last_byte(
    person: Person, box: Sshd, heavy: World
) -> None:
    cuts = (1_500, 300_000, 3_000_000, 7_000_000, 6_000_000)
    with Severed(box.port) as relay, closing(relay):
        lease = asyncio.run(trained(person, relay.target, heavy))
        before = relay.sent_by_server
        for server_bytes in cuts:
            relay.target_port = box.port
            relay.cut_after(server_bytes=server_bytes)
            cut = person.gpu_tenant("collect", "--json")
            assert cut.status == 4, cut
            assert '"code": "BOX_UNREACHABLE"' in cut.out
            assert "error: BOX_UNREACHABLE" in cut.err
        relay.target_port = box.port
        went = person.gpu_tenant("collect", "--json")
        sent = relay.sent_by_server - before

        size_bytes = Collected.model_validate_json(went.out).size_bytes
        assert size_bytes > 20_000_000
        print(f"{sent:,} bytes were sent to collect {size_bytes:,} over {len(cuts)} cuts")
        # What was under way at a cut comes again, which is more where the reader is slow. From the
        # beginning it would be 1.9 times.
        assert sent <= 1.35 * size_bytes + 40_000 * (len(cuts) + 1)
        assert_kept(person, box, lease)
        over = person.gpu_tenant("teardown", "--json")
    assert TornDown.model_validate_json(over.out).receipt.ground == "verified"


async def test_an_sshd_that_restarts_within_a_verb_costs_a_repetition_at_most(
    person: Person, box: Sshd, relay: Relay, heavy: World
) -> None:
    (heavy.tree / "corpus.bin").write_bytes(os.urandom(3_000_000))

    async with person.tenancy() as tenancy:
        lease = (await tenancy.provision("own", relay.target)).lease

        async def restarted_within(
            verb: Coroutine[object, object, object], *, after_bytes: int
        ) -> object:
            relay.stall_after(passed_bytes=after_bytes)
            acting = asyncio.create_task(verb)
            await until(lambda: relay.stalled)
            await asyncio.to_thread(box.restart)
            relay.flow()
            (outcome,) = await asyncio.gather(acting, return_exceptions=True)
            # A verb between two commands finds no connection; one within a command finds it broken.
            assert not isinstance(outcome, Exception) or any(
                words in str(outcome) for words in ("the link broke", "no ssh connection")
            ), outcome
            return outcome

        launch = partial(tenancy.launch_detached, lease, heavy.command, ["out/"], name="train")
        tree = str(heavy.tree)
        await restarted_within(tenancy.push(lease, tree), after_bytes=1_000_000)
        box.restart()
        await tenancy.push(lease, tree)
        await restarted_within(launch(), after_bytes=500)
        await launch()
        await restarted_within(tenancy.monitor(lease, wait_s=2), after_bytes=500)
        heavy.let_it_end()
        assert (await over(tenancy, lease)).state == "finished"
        await restarted_within(tenancy.collect(lease), after_bytes=1_000_000)
        await tenancy.collect(lease)
        # It may say what would be lost then: all that is on a box that does not answer.
        await restarted_within(tenancy.verify_and_teardown(lease), after_bytes=500)
        assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"
    assert heavy.runs == 1
    assert_kept(person, box, lease)


async def test_a_stranger_in_the_box_s_place_is_told_nothing(
    person: Person, box: Sshd, relay: Relay, world: World, tmp_path: Path
) -> None:
    true_key, strange_key = tmp_path / "box" / "host_key", make_key(tmp_path / "strange")
    lease = await trained(person, relay.target, world)
    (world.tree / "more.bin").write_bytes(os.urandom(100_000))

    async def met_by_a_stranger(verb: Callable[[Tenancy], Awaitable[object]]) -> TenantError:
        sent, logins = relay.sent_by_client, box.logins
        async with person.tenancy() as tenancy:
            with pytest.raises(TenantError) as met:
                await verb(tenancy)
        assert relay.sent_by_client - sent < HANDSHAKE_BYTES
        assert box.logins == logins
        return met.value

    verbs: list[Callable[[Tenancy], Awaitable[object]]] = [
        lambda t: t.audit(lease),
        lambda t: t.push(lease, str(world.tree)),
        lambda t: t.launch_detached(lease, "echo $TOKEN", ["out/"], env=["TOKEN=text:hush"]),
        lambda t: t.monitor(lease, "train"),
        lambda t: t.stop_job(lease, "train"),
        lambda t: t.collect(lease),
    ]
    box.restart(new_host_key=strange_key)
    for verb in verbs:
        assert isinstance(await met_by_a_stranger(verb), HostKeyChanged)
    refused = await met_by_a_stranger(lambda t: t.verify_and_teardown(lease))
    assert isinstance(refused, Unverified)
    assert "nothing was sent" in refused.remedy
    told = person.gpu_tenant("monitor", lease)
    assert (told.status, "error: HOST_KEY_CHANGED" in told.err) == (4, True), told
    assert "userauth-request" not in box.log.rpartition("Server listening")[2]

    box.restart(new_host_key=true_key)
    async with person.tenancy() as tenancy:
        assert (await tenancy.push(lease, str(world.tree))).sent_files == 1
        await tenancy.collect(lease)
        assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"
    assert_kept(person, box, lease)


def killed(person: Person, target: str, world: World, *, aim: str, after_s: float) -> str:
    """The phase in which a program that tells the story was killed, so long after `aim` had begun."""
    known = len(world.told)
    program = person.tell_story(target, world, until=aim)
    wait_until(lambda: program.poll() is not None or aim in dict(world.told[known:]))
    with suppress(subprocess.TimeoutExpired):
        program.wait(after_s)
    program.kill()
    end = ended(program)
    assert end.status == -signal.SIGKILL, end
    return world.told[-1][0]


def test_ten_kills_of_the_client_lose_nothing_and_repeat_nothing(
    tmp_path: Path, person: Person, new_box: NewBox
) -> None:
    seed = random.SystemRandom().getrandbits(32)
    chance = random.Random(seed)
    calm, world = (World(tmp_path / name, weights_bytes=8_000_000) for name in ("calm", "wild"))
    calm.let_it_end()
    undisturbed = Person(tmp_path / "undisturbed")
    ensure_key(undisturbed.public_key.with_suffix(""))
    elsewhere = new_box("elsewhere", authorized=undisturbed.public_key)
    told = ended(undisturbed.tell_story(elsewhere.target, calm, until="told"))
    assert told.status == 0, told
    lasted_s = {phase: end - begun for (phase, begun), (_, end) in pairwise(calm.told)}

    box, hits = new_box(), Counter[str]()
    aims = sorted((*PHASES, *chance.choices(PHASES[:-1], k=4)), key=PHASES.index)
    for aim in aims:
        if aim == "collect":
            world.let_it_end()
        after_s = chance.uniform(0, lasted_s[aim])
        hits[killed(person, box.target, world, aim=aim, after_s=after_s)] += 1
    print(f"seed {seed}: {dict(hits)}")
    last = ended(person.tell_story(box.target, world, until="told"))

    because = f"seed {seed}, aims {aims}, hits {dict(hits)}: {last}"
    assert last.status == 0, because
    assert len(set(hits) & set(PHASES)) >= 4, because
    assert world.runs == 1, because
    with closing(Ledger(person.state / "ledger.sqlite3")) as ledger:
        ledger.check()
        (lease,) = [lease for lease in ledger.leases() if lease.state is not LeaseState.VOID]
        receipt = ledger.receipt(lease.id)
    assert (lease.state, receipt and receipt.ground) == (LeaseState.GONE, "verified"), because
    assert list((person.state / "lent").iterdir()) == [], because
    with closing(sqlite3.connect(person.state / "ledger.sqlite3")) as db:
        assert db.execute("SELECT * FROM holds").fetchall() == [], because
    assert_kept(person, box, lease.id)
