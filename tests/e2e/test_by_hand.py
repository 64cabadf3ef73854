"""Boxes that a person rents and ends in a console: proved first, then asked for, then believed."""

import asyncio
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import asyncssh
import pytest
from arranged import NOON, TERMS
from e2e.people import NewBox, Person, Told, World
from signed import with_signature
from sshd import LOOPBACK, Relay, Sshd
from terminal import SOON, typed_at
from waited import over

from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.errors import (
    BadRequest,
    BoxTrouble,
    CredentialRefused,
    OwnerMustAct,
    Refused,
    SignatureWanted,
    Unverified,
)
from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, LeaseId, LeaseState, SshAddress
from gpu_tenant.leases.adopt import adopt
from gpu_tenant.leases.cards import Card, TornDown
from gpu_tenant.leases.end import attest
from gpu_tenant.providers.console.connector import Both, ByHand
from gpu_tenant.service import Tenancy


class Ends(ByHand):
    """A platform that ends each box at noon by a timer of its own."""

    async def timer_at(self, lease: Lease) -> datetime | None:
        """As `Timed.timer_at`."""
        return NOON


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a box to stop looks again soon."""
    monkeypatch.setattr("gpu_tenant.leases.park._POLL_S", 0.2)


class Leaping(WallClock):
    """A clock that jumps over each wait."""

    def __init__(self, at_a_wait: Callable[[int], object]) -> None:
        self._ahead = timedelta()
        self._waits = 0
        self._at_a_wait = at_a_wait

    def now(self) -> datetime:
        return super().now() + self._ahead

    async def sleep(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)
        self._waits += 1
        await asyncio.to_thread(self._at_a_wait, self._waits)


async def attested(
    tenancy: Tenancy, lease: str, *, at_a_wait: Callable[[int], object] = lambda number: None
) -> TornDown:
    """What becomes of a lease whose box, by a person's signature, is gone; its looks take no time."""
    tenancy.context.clock = tenancy.ledger.clock = Leaping(at_a_wait)
    return await with_signature(tenancy, lambda: attest(tenancy.context, lease))


def at_a_terminal(person: Person, typed: str, *words: str) -> Told:
    """`gpu-tenant` with these words, where a person types that; it soon believes that a box is silent."""
    return Told(*typed_at(words, typed, env=person.environment, program=SOON))


async def ran_at(tenancy: Tenancy, provider: str, pasted: str, world: World) -> str:
    """A lease there, whose job has ended."""
    card = await tenancy.provision(provider, pasted, price_usd_h=Decimal("0.40"))
    await tenancy.push(card.lease, str(world.tree))
    await tenancy.launch_detached(card.lease, world.command, ["out/"], name="train")
    world.let_it_end()
    assert (await over(tenancy, card.lease)).state == "finished"
    return card.lease


async def test_a_box_of_a_console_is_verified_then_ended_by_its_owner_who_says_so(
    person: Person, box: Sshd, world: World
) -> None:
    user = box.target.partition("@")[0]
    async with person.tenancy() as tenancy:
        pasted = f"ssh -p {box.port} {user}@{LOOPBACK}"
        lease = await ran_at(tenancy, "featurize", pasted, world)
    assert lease.startswith("featurize-")

    early = person.gpu_tenant("teardown")
    assert (early.status, "UNVERIFIED" in early.err) == (3, True), early
    hasty = at_a_terminal(person, lease, "teardown", "--ended")
    assert (hasty.status, "first verifies" in hasty.err) == (3, True), hasty
    assert person.gpu_tenant("collect").status == 0

    asked = person.gpu_tenant("teardown")
    assert asked.status == 5, asked
    assert "OWNER_MUST_ACT" in asked.err
    assert "归还" in asked.err, "the console's own words"
    assert f"gpu-tenant teardown {lease} --ended" in asked.err
    shown = person.gpu_tenant("leases")
    assert "until a person ends it" in shown.out + shown.err

    unsigned = person.gpu_tenant("teardown", "--ended")
    assert (unsigned.status, "at a terminal" in unsigned.err) == (3, True), unsigned
    untrue = at_a_terminal(person, lease, "teardown", "--ended")
    assert (untrue.status, "still answers" in untrue.err) == (3, True), untrue
    box.kill_sessions()
    box.stop()
    mistyped = at_a_terminal(person, "featurize", "teardown", "--ended")
    assert (mistyped.status, "nothing was signed" in mistyped.err) == (3, True), mistyped

    over = at_a_terminal(person, lease, "teardown", "--ended", "--json")
    assert over.status == 0, over
    receipt = TornDown.model_validate_json(over.out).receipt
    assert (receipt.ground, receipt.kept_files) == ("verified", 8)
    assert any("the platform's own bill proves it" in words for words in receipt.not_proved)


def test_what_lay_on_a_box_before_it_was_adopted_counts_and_then_its_owner_ends_it(
    person: Person, box: Sshd
) -> None:
    before = box.home / "a-week-of-work.bin"
    before.write_bytes(b"only copy")
    adopted = person.gpu_tenant("adopt", box.target, "--on", "matpool", "--json")
    lease = Card.model_validate_json(adopted.out).lease

    kept = person.gpu_tenant("teardown")
    assert (kept.status, "a-week-of-work.bin" in kept.err) == (3, True), kept
    assert person.gpu_tenant("collect", "--artifact", "~/a-week-of-work.bin").status == 0
    asked = person.gpu_tenant("teardown")
    assert (asked.status, "OWNER_MUST_ACT" in asked.err) == (5, True), asked
    box.kill_sessions()
    box.stop()
    over = at_a_terminal(person, lease, "teardown", "--ended")

    assert over.status == 0, over
    assert "verified" in over.out


async def test_a_stop_by_the_box_itself_parks_it_and_its_owner_finds_it_again_elsewhere(
    person: Person, box: Sshd, world: World
) -> None:
    async with person.tenancy() as tenancy:
        # The platform's own command would stop this computer: this one stops the box's way in.
        stop = f"pkill -KILL -P {box.pid}; kill -KILL {box.pid}"
        known = tenancy.profiles["autodl"]
        tenancy.context.shipped = {
            **tenancy.profiles,
            "autodl": known.model_copy(update={"park_command": stop}),
        }
        lease = await ran_at(tenancy, "autodl", box.target, world)

        parked = await tenancy.change_lease(lease, "park")
        assert (parked.phase, parked.price_usd_h) == ("parked", None), "what it costs is unknown"
        with pytest.raises(Unverified, match="it is parked"):
            await tenancy.verify_and_teardown(lease)
        # Our own list may be lost; that is no proof that the box is gone.
        for file in (person.state / "by_hand" / "autodl").iterdir():
            file.unlink()
        assert (await tenancy.list_leases()).leases[0].phase == "parked"
        with pytest.raises(OwnerMustAct, match="开机") as asked:
            await tenancy.change_lease(lease, "resume")
        assert "--at" in asked.value.remedy
        assert (await tenancy.list_leases()).leases[0].phase == "parked"

        box.restart()
        with Relay(box.port) as elsewhere:
            back = await tenancy.change_lease(lease, "resume", None, elsewhere.target)
            assert (back.phase, back.address) == ("ready", elsewhere.target)
            await tenancy.collect(lease)
            with pytest.raises(OwnerMustAct, match=r"goes on billing at 0\.40 USD/h.*释放"):
                await tenancy.verify_and_teardown(lease)
        box.kill_sessions()
        box.stop()
        over = await attested(tenancy, lease)

    assert (over.state, over.receipt.ground) == (LeaseState.GONE, "verified")


async def test_a_box_that_answers_again_after_its_end_was_attested_is_leased_again_and_told(
    person: Person, box: Sshd, world: World
) -> None:
    """A job can keep its sshd still; a person may have ended another box. So nobody's word is the last one."""
    async with person.tenancy() as tenancy:
        lease = await ran_at(tenancy, "autodl", box.target, world)
        await tenancy.collect(lease)
        with pytest.raises(OwnerMustAct):
            await tenancy.verify_and_teardown(lease)
        box.kill_sessions()
        box.stop()
        over = await attested(tenancy, lease)
        assert over.state is LeaseState.GONE
        assert (await tenancy.list_leases()).leases == (), "silent, so all is as it was told"

        box.restart()
        found = await tenancy.list_leases()
        (again,) = found.leases
        seen_twice = await tenancy.list_leases()

        assert again.lease != lease
        assert (again.box, again.state) == (box.target, LeaseState.ACTIVE)
        assert any(f"{lease} was attested to be gone" in words for words in found.alarms)
        assert [card.lease for card in seen_twice.leases] == [again.lease]
        assert any(f"{lease} was attested to be gone" in words for words in seen_twice.alarms)
        old, new = tenancy.ledger.lease(lease), tenancy.ledger.lease(again.lease)
        assert new.terms.deadline_at == old.terms.deadline_at
        (alarm,) = tenancy.ledger.open_alarms()
        assert alarm.level is Level.URGENT
        # What lies there now counts as used: nothing ends it but a proof, or a person.
        (box.home / "new.bin").write_bytes(b"only copy")
        with pytest.raises(Unverified):
            await tenancy.verify_and_teardown(again.lease)


async def test_a_box_that_was_only_silent_is_not_called_parked_for_long(
    person: Person, box: Sshd, world: World
) -> None:
    """A job can keep its sshd still for as long as somebody asks whether the box is parked."""
    async with person.tenancy() as tenancy:
        lease = await ran_at(tenancy, "paperspace", box.target, world)
        with pytest.raises(OwnerMustAct):
            await tenancy.change_lease(lease, "park")
        box.kill_sessions()
        box.stop()
        assert (await tenancy.change_lease(lease, "park")).phase == "parked"
        (still,) = (await tenancy.list_leases()).leases
        assert still.phase == "parked", "silent, so all is as it was told"

        box.restart()
        found = await tenancy.list_leases()
        seen_twice = await tenancy.list_leases()

        for shown in (found, seen_twice):
            (card,) = shown.leases
            assert (card.lease, card.phase, card.price_usd_h) == (lease, "booting", Decimal("0.40"))
            assert any(f"{lease} was parked, because" in words for words in shown.alarms)
        (alarm,) = tenancy.ledger.open_alarms()
        assert alarm.level is Level.URGENT
        with pytest.raises(Unverified):
            await tenancy.verify_and_teardown(lease)

        with pytest.raises(OwnerMustAct):
            await tenancy.change_lease(lease, "park")
        box.kill_sessions()
        box.stop()
        await tenancy.change_lease(lease, "park")
        (told,) = (await tenancy.list_leases()).alarms
        assert "nothing on the box was collected" in told, "nobody is told of the silence any more"
        assert tenancy.ledger.open_alarms() == []


async def test_an_attestation_that_the_box_contradicts_is_spent(
    person: Person, box: Sshd, world: World
) -> None:
    async with person.tenancy() as tenancy:
        lease = await ran_at(tenancy, "autodl", box.target, world)
        await tenancy.collect(lease)
        with pytest.raises(OwnerMustAct):
            await tenancy.verify_and_teardown(lease)
        with pytest.raises(Refused, match="still answers"):
            await attested(tenancy, lease)

        with pytest.raises(SignatureWanted):
            await attest(tenancy.context, lease)


async def test_a_box_whose_sshd_stands_still_for_a_while_is_not_ended(
    person: Person, box: Sshd, world: World
) -> None:
    async with person.tenancy() as tenancy:
        lease = await ran_at(tenancy, "autodl", box.target, world)
        await tenancy.collect(lease)
        with pytest.raises(OwnerMustAct):
            await tenancy.verify_and_teardown(lease)
        box.kill_sessions()
        box.stop()
        with pytest.raises(Refused, match="still answers"):
            await attested(tenancy, lease, at_a_wait=lambda number: number == 3 and box.restart())
        assert tenancy.ledger.lease(lease).state is LeaseState.TERMINATING


async def test_another_box_is_not_taken_for_the_one_that_was_parked(
    person: Person, new_box: NewBox, world: World
) -> None:
    box, other = new_box("box"), new_box("other")
    async with person.tenancy() as tenancy:
        known = tenancy.profiles["autodl"]
        stop = f"pkill -KILL -P {box.pid}; kill -KILL {box.pid}"
        tenancy.context.shipped = {
            **tenancy.profiles,
            "autodl": known.model_copy(update={"park_command": stop}),
        }
        lease = await ran_at(tenancy, "autodl", box.target, world)

        with pytest.raises(Refused, match="is not parked"):
            await tenancy.change_lease(lease, "resume", None, other.target)
        assert (await tenancy.list_leases()).leases[0].address == box.target
        await tenancy.change_lease(lease, "park")
        with pytest.raises(BoxTrouble, match="is not the one of"):
            await tenancy.change_lease(lease, "resume", None, other.target)

        shown = (await tenancy.list_leases()).leases[0]
        assert (shown.phase, shown.address) == ("parked", box.target)


async def test_a_box_that_never_said_it_took_the_stop_is_not_parked(
    person: Person, box: Sshd
) -> None:
    async with person.tenancy() as tenancy:
        known = tenancy.profiles["autodl"]
        tenancy.context.shipped = {
            **tenancy.profiles,
            "autodl": known.model_copy(update={"park_command": "true"}),
        }
        lease = (await tenancy.provision("autodl", box.target)).lease
        box.kill_sessions()
        box.stop()

        for _ in range(2):
            with pytest.raises(BoxTrouble):
                await tenancy.change_lease(lease, "park")
        assert (await tenancy.list_leases()).leases[0].phase == "ready"


async def test_what_was_signed_for_is_not_called_nothing(
    person: Person, box: Sshd, world: World
) -> None:
    async with person.tenancy() as tenancy:
        lease = await ran_at(tenancy, "featurize", box.target, world)

    waived = at_a_terminal(person, lease, "waive", lease)

    assert waived.status == 5, waived
    assert "a person has signed for what would be lost, and only a person can end it" in waived.err
    assert "nothing on it would be lost" not in waived.err


async def test_a_box_that_shuts_us_out_under_its_own_name_is_not_gone(
    person: Person, new_box: NewBox, tmp_path: Path
) -> None:
    authorized = tmp_path / "authorized"
    authorized.write_bytes(person.public_key.read_bytes())
    box = new_box(authorized=authorized)
    async with person.tenancy() as tenancy:
        lease = (await tenancy.provision("matpool", box.target)).lease
        with pytest.raises(OwnerMustAct):
            await tenancy.verify_and_teardown(lease)
    authorized.write_text("", encoding="utf-8")
    async with person.tenancy() as tenancy:
        with pytest.raises(Refused, match="still answers"):
            await attested(tenancy, lease)


async def test_a_box_that_goes_on_answering_is_not_called_parked(
    person: Person, box: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_tenant.leases.park._QUIET_WITHIN_S", 0)
    async with person.tenancy() as tenancy:
        known = tenancy.profiles["autodl"]
        tenancy.context.shipped = {
            **tenancy.profiles,
            "autodl": known.model_copy(update={"park_command": "true"}),
        }
        lease = (await tenancy.provision("autodl", box.target)).lease

        with pytest.raises(BoxTrouble, match="still answers after"):
            await tenancy.change_lease(lease, "park")
        assert (await tenancy.list_leases()).leases[0].phase == "ready"
        with pytest.raises(OwnerMustAct, match="关机"):
            await tenancy.change_lease(lease, "park")
        box.kill_sessions()
        box.stop()
        with pytest.raises(BoxTrouble):
            await tenancy.audit(lease)


async def test_a_disk_whose_fate_nobody_knows_is_not_parked(
    person: Person, box: Sshd, world: World
) -> None:
    async with person.tenancy() as tenancy:
        known = tenancy.profiles["autodl"]
        unsure = tuple(p.model_copy(update={"survives": {"park": "unknown"}}) for p in known.places)
        tenancy.context.shipped = {
            **tenancy.profiles,
            "autodl": known.model_copy(update={"places": unsure}),
        }
        lease = (await tenancy.provision("autodl", box.target)).lease
        await tenancy.push(lease, str(world.tree))

        with pytest.raises(Refused, match="it is unknown whether ~"):
            await tenancy.change_lease(lease, "park")


async def test_a_platform_with_an_api_keeps_the_boxes_of_its_console_apart(
    person: Person, tmp_path: Path, box: Sshd
) -> None:
    async with person.tenancy() as tenancy:
        profile = tenancy.profiles["autodl"]
        by_hand, api = (ByHand(profile, tmp_path / name) for name in ("console", "api"))
        both = Both(api, by_hand)
        tenancy.context.connectors = {**tenancy.context.connectors, "autodl": both}
        lease = (await tenancy.provision("autodl", box.target)).lease
        held = tenancy.ledger.lease(lease)

        assert [b.id for b in await by_hand.list_boxes()] == [box.target]
        assert both.tends(held.box_id)
        await both.park(held)
        assert [b.state for b in await both.list_boxes()] == [BoxState.PARKED]
        both.note_ended(held)
        assert not both.tends(held.box_id)


async def test_a_box_rented_by_the_api_is_unseen_without_its_key_and_not_gone(
    person: Person, box: Sshd
) -> None:
    async with person.tenancy() as tenancy:
        named = (await tenancy.provision("autodl", box.target)).lease
        now = tenancy.ledger.lease(named).created_at
        rented = tenancy.ledger.intend(
            lease_id=LeaseId("autodl-api0"),
            provider="autodl",
            terms=tenancy.ledger.lease(named).terms,
            address=None,
            price_usd_h=Decimal("0.22"),
            at=now,
        )
        made = Box(
            provider="autodl",
            id=BoxId("pro-1"),
            mark=rented.mark,
            state=BoxState.READY,
            address=None,
            price_usd_h=None,
        )
        tenancy.ledger.bind(rented.id, made, at=now)
        for _ in range(3):
            told = await tenancy.list_leases()

        assert [card.state for card in told.leases] == [LeaseState.ACTIVE, LeaseState.ACTIVE]
        assert any("AUTODL_TOKEN" in alarm or "no key" in alarm for alarm in told.alarms)
        with pytest.raises(CredentialRefused, match="may be billing"):
            await tenancy.verify_and_teardown(rented.id)
        with pytest.raises(CredentialRefused, match="no key was found"):
            await tenancy.find_offers(provider="autodl")
        blocked = {
            f.subject: f.words for f in (await tenancy.doctor()).findings if f.level == "blocker"
        }
        assert rented.id in blocked["autodl"]


async def test_what_stands_under_settings_that_are_gone_is_told_by_their_section(
    person: Person, tmp_path: Path
) -> None:
    async with person.tenancy() as tenancy:
        by_hand = ByHand(tenancy.profiles["slurm"], tmp_path / "console")
        tenancy.context.connectors = {**tenancy.context.connectors, "slurm": by_hand}
        rented, named = (
            tenancy.ledger.intend(
                lease_id=LeaseId(name),
                provider="slurm",
                address=SshAddress(target="dev"),
                terms=TERMS,
                price_usd_h=None,
                at=NOON,
            )
            for name in ("slurm-api0", "slurm-dev0")
        )
        job = (await by_hand.create(named)).model_copy(update={"id": BoxId("77")})
        tenancy.ledger.bind(rented.id, job, at=NOON)
        tenancy.ledger.bind(named.id, (await by_hand.list_boxes())[0], at=NOON)

        with pytest.raises(CredentialRefused, match=r"there is no section \[slurm\] in") as told:
            tenancy.context.connector(tenancy.ledger.lease(rented.id))
        assert "`gpu-tenant profiles slurm`" in told.value.remedy
        # An alias of the owner's own, in which no provider's id can be told from it.
        assert tenancy.context.connector(tenancy.ledger.lease(named.id)) is by_hand


async def test_a_timer_of_the_api_is_told_of_its_own_boxes_alone(
    person: Person, tmp_path: Path
) -> None:
    async with person.tenancy() as tenancy:
        profile = tenancy.profiles["autodl"]
        by_hand, api = (ByHand(profile, tmp_path / name) for name in ("console", "api"))
        lease = tenancy.ledger.intend(
            lease_id=LeaseId("autodl-dev0"),
            provider="autodl",
            address=SshAddress(target="dev"),
            terms=TERMS,
            price_usd_h=None,
            at=NOON,
        )
        rented = lease.model_copy(update={"box_id": BoxId("77")})

        assert await Both(Ends(profile, tmp_path / "timed"), by_hand).timer_at(rented) == NOON
        assert await Both(api, by_hand).timer_at(rented) is None
        box = await by_hand.create(lease)
        here = lease.model_copy(update={"box_id": box.id})
        assert await Both(Ends(profile, tmp_path / "timed"), by_hand).timer_at(here) is None


def test_a_notebook_that_lets_nobody_in_is_told_what_to_paste(person: Person) -> None:
    cell = person.gpu_tenant("adopt", "--on", "colab")

    assert cell.status == 0, cell
    assert person.public_key.read_text(encoding="utf-8").split()[1] in cell.out
    assert "PUBLIC_KEY" not in cell.out
    compile(cell.out, "cell", "exec")


def test_a_platform_without_boxes_says_how_its_runs_are_kept(person: Person) -> None:
    refused = person.gpu_tenant("adopt", "root@host", "--on", "kaggle")

    assert refused.status == 2, refused
    assert "gpu-tenant profiles kaggle" in refused.err


# A password, once


class Doorkeeper(asyncssh.SSHServer):
    """Lets in one password, and the keys of a file that a session may have written."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return password == "Tr0ub4dor &3"

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        authorized = self.home / ".ssh" / "authorized_keys"
        known = authorized.read_text(encoding="utf-8") if authorized.exists() else ""
        return key.export_public_key().decode().split()[1] in known


async def _shell(process: "asyncssh.SSHServerProcess[bytes]", home: Path) -> None:
    ran = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        process.command or "true",
        env={**os.environ, "HOME": str(home)},
        cwd=home,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await ran.communicate()
    process.stdout.write(out)
    process.stderr.write(err)
    process.exit(ran.returncode or 0)


async def test_a_password_lets_our_key_in_once_and_is_written_nowhere(
    person: Person, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    theirs = "ssh-ed25519 AAAA somebody"
    (home / ".ssh" / "authorized_keys").write_text(theirs, encoding="utf-8")  # no line end

    async def shell(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        await _shell(process, home)

    server = await asyncssh.listen(
        LOOPBACK,
        0,
        server_factory=lambda: Doorkeeper(home),
        encoding=None,
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        process_factory=shell,
    )
    target = f"root@{LOOPBACK}:{server.get_port()}"
    try:
        async with person.tenancy() as tenancy:
            with pytest.raises(BoxTrouble, match="none of our keys") as closed:
                await adopt(tenancy.context, "gpushare", target)
            assert "--password-stdin" in closed.value.remedy
            with pytest.raises(BoxTrouble, match="does not accept that password"):
                await adopt(tenancy.context, "gpushare", target, password="wrong")
            card = await adopt(tenancy.context, "gpushare", target, password="Tr0ub4dor &3")
            again = await adopt(tenancy.context, "matpool", target, password="Tr0ub4dor &3")
    finally:
        server.close()

    assert (card.phase, again.phase) == ("ready", "ready")
    lines = (home / ".ssh" / "authorized_keys").read_text(encoding="utf-8").splitlines()
    assert lines == [theirs, person.public_key.read_text(encoding="utf-8").strip()], "once"
    written = [path for path in person.home.rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if b"Tr0ub4dor" in path.read_bytes()]


async def test_a_password_is_never_shown_to_a_box_whose_host_key_changed(
    person: Person, new_box: NewBox
) -> None:
    box = new_box(authorized=Path(os.devnull))
    async with person.tenancy() as tenancy:
        with pytest.raises(BadRequest, match="names no machine"):
            await adopt(tenancy.context, "gpushare", "root@host two words", password="secret")
        with pytest.raises(BoxTrouble):
            await adopt(tenancy.context, "gpushare", box.target, password="secret")
    assert "secret" not in box.log
