"""The next step that an error names can be taken."""

import json
import re
import shlex
import socket
from pathlib import Path

import pytest
from e2e.leased import command
from e2e.owner import Owner
from e2e.renting import tenant_at
from e2e.watching import scene_at
from errands import a_tree
from sshd import Sshd
from waited import over

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import BadRequest, BoxUnreachable
from gpu_tenant.faces.cli.lease_table import leases as print_leases
from gpu_tenant.faces.cli.output import card as print_card
from gpu_tenant.faces.cli.output import print_collected
from gpu_tenant.transports.ssh import ensure_key


async def test_where_nobody_answers_an_adopt_made_no_lease_and_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        target = f"me@127.0.0.1:{taken.getsockname()[1]}"
        tenancy = open_tenancy()
        with pytest.raises(BoxUnreachable) as told:
            await tenancy.provision("own", target=target)

    assert tenancy.ledger.leases("live") == []
    assert f"`gpu-tenant adopt {target} --on own`" in told.value.remedy
    assert "audit" not in told.value.remedy
    await tenancy.aclose()


async def test_a_live_lease_is_listed_with_the_terms_that_were_agreed(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        card = await tenant.rented(hours=2)

        (shown,) = (await tenant.tenancy.list_leases()).leases

        assert shown.terms
        assert shown.terms == card.terms


def test_a_look_at_a_job_where_none_was_launched_names_a_launch_that_is_taken(owner: Owner) -> None:
    lease = owner.has_box()

    told = owner.is_told(2, "BAD_REQUEST", "monitor", lease)

    (line,) = re.findall(r"`gpu-tenant ([^`]+)`", told)
    words = line.replace("PATTERN", "out/").replace("COMMAND", "true")
    owner.does(*shlex.split(words))


def test_the_list_of_leases_names_an_unclaimed_file_with_the_step_until_somebody_has_said(
    owner: Owner,
) -> None:
    lease = owner.has_run("mkdir -p out; echo 1 > out/m.json; echo odd > notes.txt")
    owner.does("terms", lease, "--unasked-gib", "0")
    assert "unclaimed" not in owner.does("leases"), "nobody has looked at the box's files yet"
    owner.does("collect", lease)

    listed = owner.does("leases")

    assert f"{lease}: 1 file is unclaimed, so the box is not torn down: notes.txt; " in listed
    (step,) = re.findall(rf"`gpu-tenant (collect {lease} --discard [^`]+)`", listed)
    owner.does_signed(*shlex.split(step))
    assert "unclaimed" not in owner.does("leases")


def test_a_job_of_another_name_leads_to_one_that_there_is(owner: Owner) -> None:
    lease = owner.has_run()

    told = owner.is_told(2, "BAD_REQUEST", "monitor", lease, "--job", "jbo1")

    (line,) = re.findall(r"`gpu-tenant ([^`]+)`", told)
    assert "finished" in owner.does(*shlex.split(line))


def test_a_teardown_of_a_machine_that_is_gone_for_good_names_the_waiver(
    owner: Owner, tmp_path: Path
) -> None:
    key = ensure_key(owner.state / "ssh" / "id_ed25519")
    with Sshd(tmp_path / "machine", authorized=key.with_name("id_ed25519.pub")) as machine:
        lease = json.loads(owner.does("adopt", machine.target, "--json"))["lease"]
        owner.does("push", str(owner.tree), lease)
        machine.kill_sessions()

    _, _, told = command("teardown", lease)

    assert f"`gpu-tenant waive {lease}`" in told


@pytest.mark.parametrize("slug", ["aws", "nowhere", "azure"])
def test_a_platform_that_is_like_none_is_taken_for_none(owner: Owner, slug: str) -> None:
    told = owner.is_told(2, "BAD_REQUEST", "offers", "--on", slug)

    assert "did you mean" not in told
    assert "`gpu-tenant profiles` lists them" in told


def test_how_a_look_at_a_failed_job_ends_is_what_its_help_says(owner: Owner) -> None:
    lease = owner.has_box()
    command("launch", "--lease", lease, "--artifact", "out/", "--", "exit 3")

    assert command("monitor", lease)[0] == 0
    assert command("monitor", lease, "--follow")[0] == 1
    said = " ".join(owner.does("monitor", "--help").split())
    assert "Without --follow, the status is 0, however the job ended" in said


async def test_while_a_watchdog_lives_what_it_is_about_to_do_is_told_as_its_own(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await tenant.rented(hours=2)
        tenancy = tenant.tenancy
        await tenancy.push(card.lease, str(a_tree(tmp_path / "tree")))
        await tenancy.launch_detached(card.lease, "sh train.sh", ["out/"], name="train")
        unwatched = await over(tenancy, card.lease)
        alone = (await tenancy.list_leases()).leases[0]
        tenancy.context.watches = True  # as in the server, which looks itself

        looked = await tenancy.monitor(card.lease, wait_s=0)
        shown = (await tenancy.list_leases()).leases[0]

        assert "no watchdog runs that would end the lease" in unwatched.next
        assert alone.next.startswith(
            f"`gpu-tenant collect {card.lease}`, then `gpu-tenant teardown"
        )
        looks = f"`gpu-tenant collect {card.lease}` shows what nobody has declared"
        assert shown.next.startswith(
            f"{looks}; if all is declared, the watchdog collects its work, "
        )
        await tenancy.collect(card.lease)
        sure = (await tenancy.list_leases()).leases[0]
        for words in (looked.next, sure.next):
            assert words.startswith("nothing: the watchdog collects its work, and ")
            assert f"`gpu-tenant hold {card.lease} 30m`" in words
        assert shown.condition.to_do is None


async def test_a_box_is_not_said_to_end_by_itself_while_nobody_has_claimed_what_its_job_wrote(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await tenant.rented(hours=2)
        tenancy = tenant.tenancy
        await tenancy.change_lease(card.lease, "terms", unasked_gib=0)
        await tenancy.push(card.lease, str(a_tree(tmp_path / "tree", "echo odd > notes.txt")))
        await tenancy.launch_detached(card.lease, "sh train.sh", ["out/"], name="train")
        tenancy.context.watches = True

        looked = await over(tenancy, card.lease)

        assert tenancy.ledger.seal(card.lease) is None, "a look is no seal"
        assert looked.next.startswith(
            "1 file is unclaimed, so the box is not torn down: notes.txt; "
        )
        assert looked.next.endswith(f"; then `gpu-tenant teardown {card.lease}`")


async def test_what_a_later_job_declares_is_no_longer_called_unclaimed(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await tenant.rented(hours=2)
        tenancy = tenant.tenancy
        await tenancy.change_lease(card.lease, "terms", unasked_gib=0)
        wrote = "mkdir -p plots; echo odd > notes.txt; echo 1 > plots/a.txt; echo 2 > plots/b.txt"
        await tenancy.push(card.lease, str(a_tree(tmp_path / "tree", wrote)))
        await tenancy.launch_detached(card.lease, "sh train.sh", ["out/"], name="first")
        await over(tenancy, card.lease)
        collected = await tenancy.collect(card.lease)
        assert collected.unclaimed_files == 3
        assert " keeps them; " in collected.next
        (before,) = (await tenancy.list_leases()).leases
        assert before.unclaimed.startswith("3 files are unclaimed")

        await tenancy.launch_detached(card.lease, "sh train.sh", ["out/", "plots/"], name="second")
        await over(tenancy, card.lease)
        (plots,) = (await tenancy.list_leases()).leases
        claims = ["out/", "plots/", "notes.txt"]
        await tenancy.launch_detached(card.lease, "sh train.sh", claims, name="third")
        looked = await over(tenancy, card.lease)
        (after,) = (await tenancy.list_leases()).leases

        assert plots.unclaimed.startswith(
            "1 file is unclaimed, so the box is not torn down: notes.txt; "
        )
        assert " keeps it; " in plots.unclaimed
        assert (after.unclaimed, "unclaimed" in looked.next) == ("", False)
        with pytest.raises(BadRequest) as refused:
            await tenancy.collect(card.lease, None, [], ["notes.txt"])
        home, end = f"`gpu-tenant collect {card.lease}`", f"`gpu-tenant teardown {card.lease}`"
        assert refused.value.remedy == (
            f"it is declared, and nothing has to be given up: {home} brings it, then {end}"
        )
        await tenancy.collect(card.lease)
        await tenancy.verify_and_teardown(card.lease)


async def test_what_nobody_has_claimed_comes_before_the_teardown_and_is_not_called_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await tenant.rented(hours=2)
        tenancy = tenant.tenancy
        await tenancy.change_lease(card.lease, "terms", unasked_gib=0)
        await tenancy.push(card.lease, str(a_tree(tmp_path / "tree", "echo odd > notes.txt")))
        await tenancy.launch_detached(card.lease, "sh train.sh", ["out/"], name="train")
        await over(tenancy, card.lease)

        print_collected(await tenancy.collect(card.lease))
        tenancy.context.watches = True
        looked = await tenancy.monitor(card.lease, wait_s=0)
        assert looked.next.startswith("1 file is unclaimed, so the box is not torn down: notes.txt")
        assert looked.next.endswith(f"; then `gpu-tenant teardown {card.lease}`")
        tenancy.context.watches = None
        twice = await tenancy.collect(card.lease)
        assert (twice.fetched_files, twice.came_at is not None) == (0, True)
        assert (twice.came_before or "").startswith(
            f"nothing had to be fetched: all that is kept ({twice.files} files) is here, the last since "
        )
        assert (twice.came_before or "").endswith(
            "UTC, brought by an earlier collect, yours or that of a watch"
        )
        told = await tenancy.list_leases()
        print_leases(told)

        collected, listed = re.split(r"(?=do this: )", capsys.readouterr().out, maxsplit=1)
        assert "may be lost" not in collected
        (shown,) = told.leases
        assert "its work has ended" not in shown.next
        assert listed.count("1 file is unclaimed, so the box is not torn down: notes.txt") == 1
        print_card(shown)
        assert (
            capsys.readouterr().out.count("1 file is unclaimed, so the box is not torn down") == 1
        )
        lines = [shlex.split(x) for x in re.findall(r"`gpu-tenant ([^`]+)`", shown.next)]
        assert [x[0] for x in lines] == ["collect", "collect", "teardown"]
        await tenancy.collect(card.lease, None, [], [lines[1][-1]])
        await tenancy.verify_and_teardown(card.lease)


async def test_a_rental_that_ends_sooner_than_its_offer_said_sends_nobody_to_start_its_box(
    tmp_path: Path,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        card = await scene.rent()
        await scene.work()
        scene.tenant.fault("end_date", box=card.box)

        report = await scene.later(minutes=10)
        shown = (await scene.tenant.tenancy.list_leases()).leases[0]

        told = "\n".join((*report.alarms, shown.alarm or "", shown.next))
        assert f"gpu-tenant resume {card.lease}" not in told
        assert f"gpu-tenant waive {card.lease}" in told
        assert "the rental of its box ended" in told
