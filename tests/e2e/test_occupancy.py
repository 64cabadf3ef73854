"""A box is the lease's by its mark, stands under one lease, and counts as used where anybody used it."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest
from e2e.people import NewBox, Person, Told, World
from e2e.renting import Tenant
from parts import required
from sshd import Sshd
from terminal import typed_at

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain import timeline
from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.errors import (
    AnotherBox,
    BadRequest,
    BoxTaken,
    NotReady,
    OwnerMustAct,
    ProviderTrouble,
    Refused,
    SignatureWanted,
    Unverified,
)
from gpu_tenant.domain.model import LeaseState, SshAddress
from gpu_tenant.emulators.rehearsal_client import really_at
from gpu_tenant.emulators.server import Stage
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.end import assess_loss
from gpu_tenant.leases.inspection import look_surely
from gpu_tenant.leases.lifecycle import reconcile_all
from gpu_tenant.leases.login import login
from gpu_tenant.leases.ssh_config import ssh_config
from gpu_tenant.leases.verify import prove_unused
from gpu_tenant.leases.watch_actions import park_stray, standing_of
from gpu_tenant.service import Tenancy
from gpu_tenant.watchdog.loop import Watchdog

AT = pytest.mark.parametrize("tenant", ["runpod"], indirect=True)
AT_BOTH = pytest.mark.parametrize("tenant", ["runpod", "vastai"], indirect=True)


def written(path: Path, content: bytes = b"precious") -> Path:
    """That file was written on the box, by somebody's own hand."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


async def let_in(tenant: Tenant, card: Card) -> None:
    """The box has booted, and let us in."""
    while tenant.lease(card).ready_at is None:
        await tenant.clock.sleep(30)
        with suppress(NotReady):
            await standing_of(tenant.tenancy.context, card.lease)


def mark_of(home: Path, lease: str) -> Path:
    return home / "gpu-tenant" / lease / "caretaker" / "mark.json"


def stood_on(home: Path, lease: str, *, until: float, deployment: str = "ffffff") -> None:
    """Another lease stands on that box, by its mark, until then."""
    mark = mark_of(home, lease)
    written(mark, json.dumps({"lease": lease, "deployment": deployment, "nonce": "ab"}).encode())
    written(mark.with_name("until.json"), json.dumps({"until": until}).encode())


# Never used is what the box says, too


@AT_BOTH
async def test_a_box_that_nobody_used_is_given_back_without_a_question(tenant: Tenant) -> None:
    card = await tenant.rented()

    torn = await tenant.tenancy.verify_and_teardown(card.lease)

    assert torn.receipt.ground == "never_used"
    tenant.assert_nothing_bills()


@AT_BOTH
async def test_what_was_made_by_hand_keeps_a_box_that_its_ledger_never_used(tenant: Tenant) -> None:
    card = await tenant.rented()
    assert card.box is not None
    made = written(tenant.home_of(card.box) / "exp" / "model.bin")

    for _ in range(2):
        with pytest.raises(Unverified, match=r"exp/model\.bin"):
            await tenant.tenancy.verify_and_teardown(card.lease)

    assert made.exists()
    assert tenant.lease(card).touched_at is not None
    await tenant.tenancy.collect(card.lease, artifacts=["~/exp/"])
    torn = await tenant.tenancy.verify_and_teardown(card.lease)
    assert (torn.receipt.ground, torn.receipt.kept_files) == ("verified", 1)


@AT
async def test_an_agent_may_give_up_by_name_what_it_knows_to_be_nothing(tenant: Tenant) -> None:
    card = await tenant.rented()
    assert card.box is not None
    written(tenant.home_of(card.box) / "provider-agent.log")

    with pytest.raises(Unverified, match="provider-agent"):
        await tenant.tenancy.verify_and_teardown(card.lease)
    await tenant.tenancy.collect(card.lease, discard=["~/provider-agent.log"])

    torn = await tenant.tenancy.verify_and_teardown(card.lease)
    assert torn.receipt.ground == "verified"


@AT
async def test_what_an_image_s_own_services_write_while_they_come_up_is_nobody_s_work(
    tenant: Tenant,
) -> None:
    card = await tenant.rented()
    assert card.box is not None
    home = tenant.home_of(card.box)
    for name in (".bashrc", ".jupyter/migrated", ".local/share/jupyter/runtime/server.json"):
        written(home / name)

    torn = await tenant.tenancy.verify_and_teardown(card.lease)

    assert torn.receipt.ground == "never_used"


@AT
async def test_a_file_that_is_named_like_a_script_of_ours_is_somebody_s(tenant: Tenant) -> None:
    card = await tenant.rented()
    assert card.box is not None
    named = f"caretaker-{sha256(b'precious').hexdigest()[:16]}.py"
    written(tenant.home_of(card.box) / "gpu-tenant" / named)

    with pytest.raises(Unverified, match=named):
        await tenant.tenancy.verify_and_teardown(card.lease)


@AT
async def test_a_service_s_file_that_is_large_is_somebody_s(tenant: Tenant) -> None:
    card = await tenant.rented()
    assert card.box is not None
    written(tenant.home_of(card.box) / ".jupyter" / "model.bin", bytes(2 << 20))

    with pytest.raises(Unverified, match=r"model\.bin"):
        await tenant.tenancy.verify_and_teardown(card.lease)


@AT
async def test_a_watchdog_does_not_end_a_box_that_was_used_by_hand(tenant: Tenant) -> None:
    card = await tenant.rented(hours=1)
    await tenant.tenancy.change_lease(card.lease, "terms", unasked_gib=0)
    assert card.box is not None
    made = written(tenant.home_of(card.box) / "model.bin")
    await tenant.clock.sleep(5 * 3600)

    look = await Watchdog(tenant.tenancy, tell=lambda words: None).once()

    assert made.exists()
    assert tenant.lease(card).state is LeaseState.ACTIVE
    assert any("model.bin" in words for words in look.alarms), look


@AT
async def test_a_box_whose_disk_a_stop_empties_is_not_parked_when_it_was_used_by_hand(
    tenant: Tenant,
) -> None:
    card = await tenant.rented()
    assert card.box is not None
    made = written(tenant.home_of(card.box) / "model.bin")

    with pytest.raises(Refused, match=r"would lose 1 file: .*/model\.bin"):
        await tenant.tenancy.change_lease(card.lease, "park")

    assert made.exists()


@AT
async def test_an_unused_box_is_parked_resumed_and_given_back(tenant: Tenant) -> None:
    card = await tenant.rented()
    await tenant.tenancy.change_lease(card.lease, "park")
    await tenant.tenancy.change_lease(card.lease, "resume")
    await let_in(tenant, card)

    torn = await tenant.tenancy.verify_and_teardown(card.lease)

    assert torn.receipt.ground == "never_used"


@pytest.mark.parametrize("tenant", ["vastai"], indirect=True)  # whose disk outlives a stop
async def test_a_parked_box_is_not_given_back_as_unused_because_somebody_may_have_started_it(
    tenant: Tenant,
) -> None:
    card = await tenant.rented()
    assert card.box is not None
    home = tenant.home_of(card.box)
    await tenant.tenancy.change_lease(card.lease, "park")
    # Its owner starts it in the console, works on it, and stops it again; nobody here looks meanwhile.
    by_hand = written(home / "mine" / "model.pt")

    with pytest.raises(Unverified, match="it is parked"):
        await tenant.tenancy.verify_and_teardown(card.lease)

    await tenant.tenancy.change_lease(card.lease, "resume")
    await let_in(tenant, card)
    with pytest.raises(Unverified, match=r"model\.pt"):
        await tenant.tenancy.verify_and_teardown(card.lease)
    assert by_hand.exists()


@AT
async def test_a_box_that_let_us_in_and_cannot_be_looked_at_counts_as_used(tenant: Tenant) -> None:
    card = await tenant.rented()
    assert card.box is not None
    home = tenant.home_of(card.box)
    away = home.rename(home.with_name("away"))

    with pytest.raises(Unverified, match="cannot be looked at"):
        await tenant.tenancy.verify_and_teardown(card.lease)

    away.rename(home)
    assert (await tenant.tenancy.verify_and_teardown(card.lease)).receipt.ground == "never_used"


@AT
async def test_what_was_made_before_the_first_push_counts_on_a_box_that_was_rented_empty(
    tenant: Tenant, tmp_path: Path
) -> None:
    card = await tenant.rented()
    await tenant.tenancy.change_lease(card.lease, "terms", unasked_gib=0)
    assert card.box is not None
    made = written(tenant.home_of(card.box) / "before" / "model.bin")
    tree = tmp_path / "tree"
    written(tree / "train.py", b"print('hello')\n")
    await tenant.tenancy.push(card.lease, str(tree))
    await tenant.tenancy.collect(card.lease)

    with pytest.raises(Unverified, match=r"before/model\.bin"):
        await tenant.tenancy.verify_and_teardown(card.lease)

    assert made.exists()


# A return that was cut short


@AT_BOTH
async def test_work_after_a_destroy_that_was_refused_keeps_a_box_that_cannot_be_looked_at(
    tenant: Tenant,
) -> None:
    card = await tenant.rented()
    assert card.box is not None
    tenant.destroy_fails("status", status=403)
    with pytest.raises(ProviderTrouble):
        await tenant.tenancy.verify_and_teardown(card.lease)
    assert tenant.lease(card).state is LeaseState.TERMINATING
    tenant.all_is_well()
    home = tenant.home_of(card.box)
    written(home / "mine" / "model.pt")
    away = home.rename(home.with_name("away"))

    with pytest.raises(Unverified, match="cannot be looked at"):
        await tenant.tenancy.verify_and_teardown(card.lease)

    assert card.box in tenant.alive
    away.rename(home)
    with pytest.raises(Unverified, match=r"mine/model\.pt"):
        await tenant.tenancy.verify_and_teardown(card.lease)
    assert card.box in tenant.alive


@AT_BOTH
async def test_a_destroy_that_was_refused_is_sent_again_after_another_look(tenant: Tenant) -> None:
    card = await tenant.rented()
    tenant.destroy_fails("status", status=403)
    with pytest.raises(ProviderTrouble):
        await tenant.tenancy.verify_and_teardown(card.lease)
    tenant.all_is_well()

    torn = await tenant.tenancy.verify_and_teardown(card.lease)

    assert torn.receipt.ground == "never_used"
    tenant.assert_nothing_bills()


@AT_BOTH
async def test_a_destroy_of_which_only_the_answer_was_lost_is_finished_without_a_look(
    tenant: Tenant,
) -> None:
    card = await tenant.rented()
    tenant.destroy_fails("drop_after")
    tenant.list_fails()
    with pytest.raises(ProviderTrouble):
        await tenant.tenancy.verify_and_teardown(card.lease)
    tenant.all_is_well()

    torn = await tenant.tenancy.verify_and_teardown(card.lease)

    assert torn.receipt.ground == "never_used"
    tenant.assert_nothing_bills()


@pytest.mark.parametrize("tenant", ["lambda_cloud"], indirect=True)
async def test_a_box_that_its_provider_is_still_ending_is_waited_for_without_a_look(
    tenant: Tenant,
) -> None:
    card = await tenant.rented()
    ledger = tenant.tenancy.ledger
    lease, seen = await look_surely(tenant.tenancy.context, tenant.lease(card))
    permit = prove_unused(lease, seen)
    # All that a process has done which dies directly after it has sent the destroy.
    ledger.file_permit(permit, at=tenant.clock.now())
    ledger.note(lease.id, timeline.Destroyed(outcome="asked"), at=tenant.clock.now())
    await tenant.connector.destroy(permit)
    assert card.box in [box.id for box in await tenant.connector.list_boxes()]

    torn = await tenant.tenancy.verify_and_teardown(card.lease)

    assert torn.receipt.ground == "never_used"
    assert [line.kind for line in ledger.events(lease.id)].count(timeline.Permitted.kind) == 1
    tenant.assert_nothing_bills()


# An older copy of the ledger


def older(tenant: Tenant) -> Callable[[], Tenancy]:
    """A backup of the state directory as it is now; and a tenancy that goes on with it."""
    backup = tenant.root / "backup"
    shutil.copytree(tenant.home.root, backup)

    def put_back() -> Tenancy:
        tenant.home = Home(backup)
        return tenant.anew_tenancy()

    return put_back


@AT
async def test_an_older_copy_of_the_ledger_does_not_give_back_what_a_newer_one_used(
    tenant: Tenant, tmp_path: Path
) -> None:
    card = await tenant.rented()
    put_back = older(tenant)
    tree = tmp_path / "tree"
    written(tree / "train.py", b"print('hello')\n")
    await tenant.tenancy.push(card.lease, str(tree))
    assert card.box is not None
    written(tenant.top_of(card.box) / "gpu-tenant" / card.lease / "work" / "out" / "model.bin")

    restored = put_back()
    with pytest.raises(Unverified, match=r"out/model\.bin"):
        await restored.verify_and_teardown(card.lease)

    assert card.box in tenant.alive


@AT
async def test_a_copy_of_the_ledger_from_before_the_box_let_us_in_does_not_give_it_back(
    tenant: Tenant, tmp_path: Path
) -> None:
    quotes = await tenant.quotes()
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=0)
    put_back = older(tenant)
    await let_in(tenant, card)
    tree = tmp_path / "tree"
    written(tree / "train.py", b"print('hello')\n")
    await tenant.tenancy.push(card.lease, str(tree))
    assert card.box is not None
    written(tenant.top_of(card.box) / "gpu-tenant" / card.lease / "work" / "out" / "model.bin")

    restored = put_back()
    with pytest.raises(Unverified, match=r"out/model\.bin"):
        await restored.verify_and_teardown(card.lease)

    assert restored.ledger.lease(card.lease).touched_at is not None
    collected = await restored.collect(card.lease)
    assert collected.lease == card.lease, "its owner can go on with the copy"


# A second box under one mark


@pytest.fixture
async def twin(tenant: Tenant) -> Card:
    """The card of a box that one request of ours made besides the one that it asked for."""
    quotes = await tenant.quotes()
    tenant.create_fails("twice")
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
    shown = await tenant.tenancy.list_leases()
    (found,) = [each for each in shown.leases if each.lease != card.lease]
    return found


def written_on(tenant: Tenant, twin: Card) -> Path:
    assert twin.box is not None
    return written(tenant.home_of(twin.box) / "mine" / "model.pt")


@AT_BOTH
async def test_work_on_a_second_box_is_told_when_the_first_box_ends(
    tenant: Tenant, twin: Card
) -> None:
    made = written_on(tenant, twin)
    (first,) = [each for each in tenant.tenancy.ledger.leases("live") if each.id != twin.lease]

    ended = await tenant.tenancy.verify_and_teardown(first.id)

    assert tenant.alive == [twin.box]
    assert made.exists()
    assert ended.twin is not None
    assert twin.lease in ended.twin


@AT_BOTH
async def test_work_on_a_second_box_keeps_it_at_every_look(tenant: Tenant, twin: Card) -> None:
    made = written_on(tenant, twin)

    told = [await reconcile_all(tenant.tenancy.context) for _ in range(3)]

    assert made.exists()
    assert tenant.lease(twin).state is LeaseState.ACTIVE
    assert tenant.lease(twin).touched_at is not None
    assert any("mine/model.pt" in words for words in told[0].alarms), told[0]
    with pytest.raises(Unverified, match=r"mine/model\.pt"):
        await tenant.tenancy.verify_and_teardown(twin.lease)


@AT
async def test_work_from_before_anybody_of_this_ledger_came_in_keeps_a_second_box(
    tenant: Tenant, twin: Card
) -> None:
    written_on(tenant, twin)
    await standing_of(
        tenant.tenancy.context, twin.lease
    )  # as whoever wants something of it comes in

    with pytest.raises(Unverified, match=r"mine/model\.pt"):
        await tenant.tenancy.verify_and_teardown(twin.lease)

    assert twin.box in tenant.alive


@AT
async def test_work_on_a_box_that_was_rented_long_before_anybody_came_in_keeps_it(
    tenant: Tenant,
) -> None:
    quotes = await tenant.quotes(hours=48)
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=0)
    tenant.wait(4 * 3600)
    written_on(tenant, card)
    await let_in(tenant, card)

    with pytest.raises(Unverified, match=r"mine/model\.pt"):
        await tenant.tenancy.verify_and_teardown(card.lease)

    assert card.box in tenant.alive


@AT
async def test_where_a_box_s_clock_cannot_be_compared_everything_on_it_counts(
    tenant: Tenant,
) -> None:
    tenant.wait(60 * 24 * 3600)  # its provider's clock and ours run so far ahead of the box's
    quotes = await tenant.quotes()
    tenant.create_fails("twice")
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
    (box,) = set(tenant.alive) - {card.box}
    made = written(tenant.home_of(box) / "mine" / "model.pt")

    told = await reconcile_all(tenant.tenancy.context)

    assert made.exists()
    assert box in tenant.alive
    assert any("mine/model.pt" in words for words in told.alarms), told
    (twin,) = [each for each in told.leases if each.box == box]
    with pytest.raises(Unverified, match=r"mine/model\.pt"):
        await tenant.tenancy.verify_and_teardown(twin.lease)


@AT
async def test_a_second_box_that_does_not_answer_is_not_taken_for_unused(
    tenant: Tenant, twin: Card
) -> None:
    assert twin.box is not None
    home = tenant.home_of(twin.box)
    written_on(tenant, twin)
    away = home.rename(home.with_name("away"))

    with pytest.raises(Unverified, match="cannot be looked at"):
        await tenant.tenancy.verify_and_teardown(twin.lease)

    away.rename(home)
    assert twin.box in tenant.alive


# The box that is verified is the box that is destroyed


@AT
async def test_a_box_without_the_lease_s_mark_is_neither_collected_nor_destroyed(
    tenant: Tenant, tmp_path: Path
) -> None:
    card = await tenant.rented()
    assert card.box is not None
    tree = tmp_path / "tree"
    written(tree / "train.py", b"print('hello')\n")
    await tenant.tenancy.push(card.lease, str(tree))
    mark_of(tenant.top_of(card.box), card.lease).unlink()

    with pytest.raises(AnotherBox, match="does not carry the mark"):
        await tenant.tenancy.collect(card.lease)
    with pytest.raises(Unverified, match="does not carry the mark"):
        await tenant.tenancy.verify_and_teardown(card.lease)

    loss = await assess_loss(tenant.tenancy.context, card.lease)
    assert "does not carry the mark" in loss.losses[0], "a person may sign for it"
    with pytest.raises(SignatureWanted):
        await tenant.tenancy.waive(card.lease)


async def parked_by_its_owner(person: Person, world: World, box: Sshd) -> str:
    """A lease of a console's box that holds what nobody collected, and that fell silent."""
    async with person.tenancy() as tenancy:
        card = await tenancy.provision("paperspace", box.target)
        await tenancy.push(card.lease, str(world.tree))
        with pytest.raises(OwnerMustAct):
            await tenancy.change_lease(card.lease, "park")
        box.kill_sessions()
        box.stop()
        await tenancy.change_lease(card.lease, "park")
    return card.lease


async def test_a_box_that_only_has_the_lease_s_directory_is_not_taken_for_the_parked_one(
    person: Person, new_box: NewBox, world: World
) -> None:
    box, other = new_box("box"), new_box("other")
    lease = await parked_by_its_owner(person, world, box)
    (other.home / "gpu-tenant" / lease / "caretaker").mkdir(parents=True)
    (other.home / "gpu-tenant" / lease / "work").mkdir()

    async with person.tenancy() as tenancy:
        with pytest.raises(AnotherBox):
            await tenancy.change_lease(lease, "resume", None, other.target)
        assert tenancy.ledger.lease(lease).parked_at is not None


async def test_a_box_to_which_the_mark_was_copied_is_not_taken_for_the_parked_one(
    person: Person, new_box: NewBox, world: World
) -> None:
    box, other = new_box("box"), new_box("other")
    lease = await parked_by_its_owner(person, world, box)
    shutil.copytree(box.home, other.home, dirs_exist_ok=True)

    async with person.tenancy() as tenancy:
        with pytest.raises(AnotherBox, match="copy of this lease's mark"):
            await tenancy.change_lease(lease, "resume", None, other.target)
        box.restart()
        await tenancy.change_lease(lease, "resume")
        assert tenancy.ledger.lease(lease).parked_at is None


async def test_a_lease_from_before_there_were_marks_gets_one_where_its_directory_lies(
    person: Person, box: Sshd, world: World
) -> None:
    async with person.tenancy() as tenancy:
        card = await tenancy.provision("matpool", box.target)
        await tenancy.push(card.lease, str(world.tree))
    forget_marks(person.state / "ledger.sqlite3")
    mark_of(box.home, card.lease).unlink()

    async with person.tenancy() as tenancy:
        await tenancy.collect(card.lease)

    assert mark_of(box.home, card.lease).exists()


def forget_marks(ledger: Path) -> None:
    """The ledger is as one from before there were marks."""
    with sqlite3.connect(ledger) as db:
        db.execute("DROP TRIGGER events_are_never_deleted")
        db.execute("DELETE FROM events WHERE kind IN ('marking', 'marked')")


# One box, one lease


@pytest.mark.parametrize("name", ["localhost", "127.1", "[::ffff:127.0.0.1]"])
async def test_a_box_is_under_one_lease_by_whatever_name_it_is_called(
    person: Person, box: Sshd, name: str
) -> None:
    user = box.target.partition("@")[0]
    async with person.tenancy() as tenancy:
        first = await tenancy.provision("own", box.target)

        with pytest.raises(BoxTaken, match=first.lease):
            await tenancy.provision("own", f"{user}@{name}:{box.port}")

        assert [x.id for x in tenancy.ledger.leases("live")] == [first.lease]
        await tenancy.verify_and_teardown(first.lease)
        again = await tenancy.provision("own", f"{user}@{name}:{box.port}")
        assert again.lease != first.lease, "what was handed back is free"


async def test_another_gpu_tenant_s_box_is_taken_and_a_person_takes_its_place_by_name(
    person: Person, box: Sshd, tmp_path: Path
) -> None:
    async with person.tenancy() as tenancy:
        first = (await tenancy.provision("own", box.target)).lease
    other = Person(tmp_path / "other")
    shutil.copytree(person.state / "ssh", other.state / "ssh")

    taken = other.gpu_tenant("adopt", box.target)
    assert (taken.status, "BOX_TAKEN" in taken.err) == (3, True), taken
    assert f"--take-over {first}" in taken.err
    agent = other.gpu_tenant("adopt", box.target, "--take-over", first)
    assert (agent.status, "at a terminal" in agent.err) == (3, True), agent

    signed = at_a_terminal(other, first, "adopt", box.target, "--take-over", first)

    assert signed.status == 0, signed


def at_a_terminal(person: Person, typed: str, *words: str) -> Told:
    """`gpu-tenant` with these words, where a person types that."""
    return Told(*typed_at(words, typed, env=person.environment))


async def test_a_forgotten_mark_lapses_some_days_after_its_deadline(
    person: Person, new_box: NewBox
) -> None:
    fresh, stale = new_box("fresh"), new_box("stale")
    stood_on(fresh.home, "own-abcd", until=WallClock().now().timestamp() - 2 * 86400)
    stood_on(stale.home, "own-abcd", until=WallClock().now().timestamp() - 4 * 86400)
    async with person.tenancy() as tenancy:
        with pytest.raises(BoxTaken, match="own-abcd"):
            await tenancy.provision("own", fresh.target)

        await tenancy.provision("own", stale.target)


async def test_two_people_on_one_workstation_have_a_lease_each_in_their_own_homes(
    person: Person, new_box: NewBox, tmp_path: Path
) -> None:
    mine, theirs = new_box("mine"), new_box("theirs")
    async with person.tenancy() as tenancy:
        await tenancy.provision("own", mine.target)
        await tenancy.provision("own", theirs.target)
        assert len(tenancy.ledger.leases("live")) == 2


@AT
async def test_another_deployment_s_box_is_not_adopted_by_its_id(tenant: Tenant) -> None:
    card = await tenant.rented()
    assert card.box is not None
    mine = tenant.tenancy.ledger.deployment
    another = tenant.root / "another"
    shutil.copytree(tenant.home.root, another, ignore=shutil.ignore_patterns("ledger*"))
    tenant.home = Home(another)
    other = tenant.anew_tenancy()

    with pytest.raises(BoxTaken, match=mine):
        await other.provision(tenant.slug, card.box, hours=0.001)
    with pytest.raises(Refused):
        await park_stray(other.context, tenant.slug, card.box)

    assert other.ledger.leases() == []


@AT
async def test_a_box_is_not_destroyed_under_another_lease_whatever_was_given_up(
    tenant: Tenant, tmp_path: Path
) -> None:
    card = await tenant.rented()
    assert card.box is not None
    home = tenant.home_of(card.box)
    tree = tmp_path / "tree"
    written(tree / "train.py", b"print('hello')\n")
    await tenant.tenancy.push(card.lease, str(tree))
    stood_on(home, "own-abcd", until=WallClock().now().timestamp() + 3600)
    with pytest.raises(BadRequest, match="another lease"):
        await tenant.tenancy.collect(card.lease, discard=["~/gpu-tenant/own-abcd/"])
    await tenant.tenancy.collect(card.lease)

    with pytest.raises(Unverified, match="own-abcd"):
        await tenant.tenancy.verify_and_teardown(card.lease)

    assert card.box in tenant.alive


# By ssh, at a box behind a door of its own


@pytest.fixture
async def door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Stage, Tenancy]]:
    """A rehearsal whose boxes are reached by ssh, and somebody who rents there."""
    required("ssh", "sshd")
    owner = tmp_path / "owner"
    owner.mkdir()
    monkeypatch.setenv("HOME", str(owner))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with Stage("runpod", tmp_path / "stage", way="ssh") as stage:
        tenancy = open_tenancy({**os.environ, **stage.environment})
        try:
            yield stage, tenancy
        finally:
            await tenancy.aclose()


async def rented(tenancy: Tenancy) -> Card:
    found = await tenancy.find_offers(provider="runpod")
    quotes = [offer.quote for offer in found.offers if offer.quote]
    card = await tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=600)
    assert tenancy.ledger.lease(card.lease).ready_at is not None
    return card


def by_hand(tenancy: Tenancy, lease: str, command: str) -> subprocess.Popen[bytes]:
    """Plain ssh, of which no ledger knows."""
    config = ssh_config(tenancy.home)
    return subprocess.Popen(
        ["ssh", "-F", str(config), "-o", "BatchMode=yes", lease, command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


SLEEPER = "import time; time.sleep(60)"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("sleep 60", "sleep"),
        (f"python3 -c '{SLEEPER}' ~/gpu-tenant/keep-0123456789abcdef.py", "python3"),
        ("python3 ~/gpu-tenant/keep-0123456789abcdef.py", "python3"),
    ],
    ids=["plainly", "with-our-script-as-an-argument", "under-the-name-of-a-script-of-ours"],
)
async def test_whoever_is_logged_in_or_left_something_running_keeps_the_box(
    door: tuple[Stage, Tenancy], command: str, shown: str
) -> None:
    _, tenancy = door
    card = await rented(tenancy)
    named = f'mkdir -p ~/gpu-tenant; echo "{SLEEPER}" > ~/gpu-tenant/keep-0123456789abcdef.py; '
    left = by_hand(
        tenancy, card.lease, f"{named} nohup {command} >/dev/null 2>&1 </dev/null & echo $!"
    )
    out, err = await asyncio.to_thread(left.communicate)
    assert left.returncode == 0, err

    with pytest.raises(Unverified, match=rf"{shown} \(process {int(out)}\)"):
        await tenancy.verify_and_teardown(card.lease)

    os.kill(int(out), 9)
    left = by_hand(tenancy, card.lease, "rm ~/gpu-tenant/keep-0123456789abcdef.py")
    await asyncio.to_thread(left.communicate)
    torn = await tenancy.verify_and_teardown(card.lease)
    assert torn.receipt.ground == "verified", "it was used, and nothing of it is left"


async def test_a_login_of_the_program_s_own_marks_the_lease_as_used(
    door: tuple[Stage, Tenancy],
) -> None:
    _, tenancy = door
    card = await rented(tenancy)
    assert tenancy.ledger.lease(card.lease).touched_at is None

    await login(tenancy.context, card.lease)

    assert tenancy.ledger.lease(card.lease).touched_at is not None
    assert timeline.LoggedIn() in [event for _, event in tenancy.ledger.events(card.lease)]
    assert (await tenancy.verify_and_teardown(card.lease)).receipt.ground == "verified"


async def test_a_rented_box_is_not_adopted_by_its_address_as_well(
    door: tuple[Stage, Tenancy],
) -> None:
    stage, tenancy = door
    card = await rented(tenancy)
    (thing,) = stage.world.state.things.values()
    assert thing.target is not None
    at = really_at(stage.url, thing.target)
    assert isinstance(at, SshAddress)

    with pytest.raises(BoxTaken, match=card.lease):
        await tenancy.provision("own", at.target)

    torn = await tenancy.verify_and_teardown(card.lease)
    assert torn.receipt.ground == "never_used"
