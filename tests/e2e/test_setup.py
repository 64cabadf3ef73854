"""A box that is set up as ordered: before its first job, told, bounded, and no work that would block an end."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from e2e.watching import Scene
from signed import with_signature
from waited import over

from gpu_tenant.box.setup import settle_setup
from gpu_tenant.box.setup_record import commands_of, setup_of
from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.errors import BadRequest, JobRunning, NotSaved, Refused, Unverified
from gpu_tenant.domain.model import JobId, Lease, LeaseId, LeaseState
from gpu_tenant.leases.presence import note_presence
from gpu_tenant.leases.setup import look, set_up
from gpu_tenant.service import Tenancy

MAKES = [
    "mkdir -p lib ~/.local/tool",
    "for n in $(seq 300); do echo $n >lib/part-$n; : >lib/an-empty-file-with-a-long-name-$n; done",
    "cat asked.txt >~/.local/tool/made",
]
JOB = "mkdir -p out; echo done >out/result"


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        yield tenant


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    made.mkdir()
    (made / "asked.txt").write_text("tinypkg\n", encoding="utf-8")
    return made


async def rented(tenant: Tenant, tmp_path: Path, *commands: str, more: str = "") -> Lease:
    """The lease of a box that is ordered with that setup."""
    order = tmp_path / "gpu-tenant.toml"
    quoted = ", ".join("'''" + command + "'''" for command in commands)
    order.write_text(f"setup = [{quoted}]\n{more}", encoding="utf-8")
    quotes = await with_signature(tenant.tenancy, lambda: tenant.quotes(order=str(order)))
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
    return tenant.lease(card)


async def ended(tenancy: Tenancy, lease: Lease) -> timeline.SetUp:
    """How the setup ended, as is on record."""
    for _ in range(600):
        told = await look(tenancy.context, lease)
        if told.state not in ("running", "to do"):
            break
        await asyncio.sleep(0.05)
    return [x for _, x in tenancy.ledger.events(lease.id) if isinstance(x, timeline.SetUp)][-1]


def on_box(tenant: Tenant, lease: Lease, name: str) -> Path:
    return tenant.home_of(str(lease.box_id)) / lease.work_directory / name


async def test_what_a_setup_made_stays_and_what_a_job_changed_of_it_comes_home(
    tenant: Tenant, tmp_path: Path, tree: Path
) -> None:
    tenancy = tenant.tenancy
    lease = await rented(tenant, tmp_path, *MAKES)

    pushed = await tenancy.push(lease.id, str(tree))
    done = await ended(tenancy, lease)

    assert pushed.setup == "setup1"
    assert "monitor" in pushed.next
    assert (done.state, done.filed, done.unfiled) == ("done", 601, None)
    assert on_box(tenant, lease, "lib/part-300").read_text("utf-8") == "300\n"
    assert tenancy.ledger.jobs(lease.id) == [], "it is no work"

    await tenancy.launch_detached(lease.id, JOB + "; echo tuned >lib/part-7", ["out/"])
    assert (await over(tenancy, lease.id)).state == "finished"
    collected = await tenancy.collect(lease.id)
    assert collected.unasked == ("lib/part-7",)
    receipt = (await tenancy.verify_and_teardown(lease.id)).receipt
    assert receipt.ground == "verified"
    made = "what the setup setup1 made, as far as nobody changed it (601 files)"
    assert made in receipt.given_up
    log = tenancy.home.artifacts_of(lease.id) / "log" / "setup1.log"
    assert "+ mkdir -p lib" in log.read_text("utf-8")


async def test_where_somebody_had_a_login_what_a_setup_made_counts_as_work(
    tenant: Tenant, tmp_path: Path, tree: Path
) -> None:
    tenancy = tenant.tenancy
    lease = await rented(tenant, tmp_path, *MAKES)
    await tenancy.change_lease(lease.id, "terms", unasked_gib=0)
    tenancy.ledger.note(lease.id, timeline.LoggedIn(), at=tenancy.ledger.now())

    await tenancy.push(lease.id, str(tree))
    done = await ended(tenancy, lease)
    await tenancy.collect(lease.id)

    assert (done.state, done.filed) == ("done", 0)
    assert "somebody was given a login" in str(done.unfiled)
    with pytest.raises(Unverified, match="301 files"):  # empty ones come home at any limit
        await tenancy.verify_and_teardown(lease.id)


async def test_a_box_that_was_only_set_up_is_given_back_verified(
    tenant: Tenant, tmp_path: Path, tree: Path
) -> None:
    lease = await rented(tenant, tmp_path, *MAKES)
    await tenant.tenancy.push(lease.id, str(tree))

    await ended(tenant.tenancy, lease)
    await tenant.tenancy.collect(lease.id)

    assert (await tenant.tenancy.verify_and_teardown(lease.id)).receipt.ground == "verified"


async def test_a_setup_that_fails_is_told_with_its_log_and_runs_anew_after_the_next_push(
    tenant: Tenant, tmp_path: Path, tree: Path
) -> None:
    tenancy = tenant.tenancy
    lease = await rented(
        tenant,
        tmp_path,
        "echo kept >made",
        "grep -q mended asked.txt || { echo no such thing; exit 3; }",
    )

    await tenancy.push(lease.id, str(tree))
    failed = await ended(tenancy, lease)
    with pytest.raises(
        Refused, match="could not be set up: a command of the setup ended with status 3"
    ) as no:
        await tenancy.launch_detached(lease.id, JOB, ["out/"])
    again = await tenancy.list_leases()

    assert (failed.state, failed.filed) == ("failed", 1), (
        "what it made until then is no work either"
    )
    assert re.search(r"(?s)<untrusted-.*no such thing", no.value.message)
    assert "push" in no.value.remedy
    assert "could not be set up" in again.leases[0].next

    (tree / "asked.txt").write_text("mended\n", encoding="utf-8")
    assert (await tenancy.push(lease.id, str(tree))).setup == "setup2"
    assert (await ended(tenancy, lease)).state == "done"
    assert (await tenancy.push(lease.id, str(tree))).setup is None, "it runs once"
    await tenancy.launch_detached(lease.id, JOB, ["out/"])


async def test_nothing_is_launched_while_the_setup_runs_and_a_launch_alone_begins_it(
    tenant: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_tenant.leases.setup.LAUNCH_WAITS_S", 0.0)
    tenancy, go = tenant.tenancy, tmp_path / "go"
    lease = await rented(
        tenant, tmp_path, f"while ! test -e {go}; do sleep 0.05; done", "echo made >made"
    )

    with pytest.raises(JobRunning, match="still being set up by setup1"):
        await tenancy.launch_detached(lease.id, JOB, ["out/"])
    with pytest.raises(JobRunning, match="still being set up"):
        await tenancy.prepare(lease.id, wait_s=0)
    with pytest.raises(BadRequest, match="names a setup"):
        await _launched_named(tenancy, lease, go)
    assert [x for _, x in tenancy.ledger.events(lease.id) if isinstance(x, timeline.SettingUp)]
    assert on_box(tenant, lease, "made").read_text("utf-8") == "made\n"


async def _launched_named(tenancy: Tenancy, lease: Lease, go: Path) -> None:
    go.touch()
    await ended(tenancy, lease)
    await tenancy.launch_detached(lease.id, JOB, ["out/"], name="setup1")


async def test_a_setup_that_is_stopped_is_failed_and_one_that_hangs_has_an_end(
    tenant: Tenant, tmp_path: Path, tree: Path
) -> None:
    tenancy = tenant.tenancy
    lease = await rented(tenant, tmp_path, "echo $$ >pid; sleep 600", more="setup_minutes = 7\n")
    await tenancy.push(lease.id, str(tree))
    await asyncio.to_thread(_appears, on_box(tenant, lease, "pid"))

    spec = on_box(tenant, lease, "../caretaker/jobs/setup1/spec.json").read_text("utf-8")
    await tenancy.stop_run(lease.id, "setup1", grace_s=0.1)
    told = await ended(tenancy, lease)

    assert '"max_runtime_s":420' in spec
    assert (told.state, told.filed) == ("failed", 1)
    assert (await tenancy.monitor(lease.id, "setup1", wait_s=0)).state == "stopped"
    assert setup_of(tenancy.ledger, lease, tenant.profile).state == "failed"


def _appears(path: Path) -> None:
    import time

    for _ in range(600):
        if path.is_file() and path.read_text("utf-8"):
            return
        time.sleep(0.05)  # noqa: TID251
    raise AssertionError(path)


async def test_a_setup_after_work_takes_nothing_of_it_for_its_own_and_overwrites_no_result(
    tenant: Tenant, tmp_path: Path, tree: Path
) -> None:
    tenancy = tenant.tenancy
    lease = await rented(tenant, tmp_path, "mkdir -p out; echo fresh >out/result; echo tool >tool")
    await tenancy.push(lease.id, str(tree))
    await ended(tenancy, lease)
    await tenancy.launch_detached(lease.id, JOB, ["out/"])
    await over(tenancy, lease.id)

    with pytest.raises(NotSaved, match="saved nowhere else"):
        await set_up(tenancy.context, lease, runs="anew", commands=None)
    assert on_box(tenant, lease, "out/result").read_text("utf-8") == "done\n"
    await tenancy.collect(lease.id)
    await set_up(tenancy.context, lease, runs="anew", commands=["echo other >tool", "echo x >more"])
    told = await ended(tenancy, lease)

    assert (told.state, told.filed) == ("done", 0)
    assert "counts as work" in str(told.unfiled)
    collected = await tenancy.collect(lease.id)
    assert collected.unasked_files == 2, "the file that it changed, and the file that it made"


async def test_what_a_box_says_of_its_setup_after_a_launch_excuses_nothing(
    tenant: Tenant, tmp_path: Path
) -> None:
    """A job that writes files with times within a setup's cannot pass them for the setup's."""
    tenancy = tenant.tenancy
    lease = await rented(tenant, tmp_path, "echo made >made")
    await set_up(tenancy.context, lease, runs="once", commands=None)
    await ended(tenancy, lease)
    await tenancy.launch_detached(lease.id, JOB + "; echo secret-result >hidden", ["out/"])
    await over(tenancy, lease.id)
    # The end of the setup was never seen here, as after a crash; and the box says that it ended far in the future.
    record = on_box(tenant, lease, "../caretaker/jobs/setup1/exit.json")
    said = json.loads(record.read_text("utf-8"))
    record.write_text(json.dumps({**said, "ended_at": 4e9}), "utf-8")
    tenancy.ledger.note(
        lease.id,
        timeline.SettingUp(job="setup1", commands=("echo made >made",)),
        at=tenancy.clock.now(),
    )

    told = await settle_setup(tenancy.context.session(lease), ledger=tenancy.ledger)

    assert told.unfiled is not None
    assert (await tenancy.collect(lease.id)).unasked_files == 1


async def test_a_service_that_a_setup_leaves_runs_on_beside_the_work_until_it_is_stopped(
    tenant: Tenant, tmp_path: Path, tree: Path
) -> None:
    tenancy = tenant.tenancy
    lease = await rented(tenant, tmp_path, "echo tool >tool", "sleep 600 & echo $! >service")
    await tenancy.push(lease.id, str(tree))

    told = await ended(tenancy, lease)
    await tenancy.launch_detached(lease.id, JOB, ["out/"])
    await over(tenancy, lease.id)
    with pytest.raises(JobRunning, match="setup1") as running:
        await tenancy.collect(lease.id)
    await tenancy.stop_run(lease.id, JobId("setup1"), grace_s=0.1)

    assert (told.state, told.filed) == ("done", 2)
    assert "--job setup1" in running.value.remedy
    assert (await tenancy.collect(lease.id)).unclaimed_files == 0


async def test_a_setup_gets_the_ordered_variables_and_nobody_sees_their_values(
    tenant: Tenant, tmp_path: Path, tree: Path
) -> None:
    (tmp_path / "token").write_text("of-this-setup-alone", encoding="utf-8")
    lease = await rented(
        tenant,
        tmp_path,
        'test "$TOKEN" = of-this-setup-alone',
        more=f'[env]\nTOKEN = "file:{tmp_path}/token"\n',
    )

    await tenant.tenancy.push(lease.id, str(tree))
    told = await ended(tenant.tenancy, lease)
    await tenant.tenancy.collect(lease.id)

    assert told.state == "done"
    assert b"of-this-setup-alone" not in tenant.home.ledger.read_bytes()
    kept = tenant.tenancy.home.artifacts_of(lease.id)
    assert (
        all(b"of-this-setup" not in x.read_bytes() for x in kept.rglob("*") if x.is_file())
        or (kept / "log" / "setup1.log").read_text("utf-8").count("of-this-setup-alone") == 1
    )


async def test_a_box_that_nobody_could_set_up_is_given_back_by_the_rule_for_failed_jobs(
    tmp_path: Path, tree: Path
) -> None:
    order = tmp_path / "gpu-tenant.toml"
    order.write_text('setup = ["echo made >made", "exit 3"]\n', encoding="utf-8")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        scene = Scene(tenant)
        quotes = await tenant.quotes(order=str(order))
        card = await tenant.tenancy.provision(
            smoke="none", quotes=quotes[:1], wait_s=3600, hours=2, idle_h=0, unguarded="accept"
        )
        scene.lease = card.lease
        await tenant.tenancy.push(scene.lease, str(tree))
        await asyncio.to_thread(
            _appears, on_box(tenant, tenant.lease(card), "../caretaker/jobs/setup1/exit.json")
        )
        note_presence(tenant.home, tenant.clock.now())

        await scene.look()
        level, words = scene.alarms()["setup"]
        assert level is Level.WARNING
        assert "could not be set up: a command of the setup ended with status 3" in words
        await scene.later(minutes=9)
        assert scene.state is LeaseState.ACTIVE, "whoever pushed may mend it"
        await scene.later(minutes=3)

        assert scene.state is LeaseState.GONE
        receipt = tenant.tenancy.ledger.receipt(scene.lease)
        assert receipt is not None
        assert receipt.ground == "verified"


async def test_a_box_that_was_set_up_is_not_ended_for_being_done(
    tmp_path: Path, tree: Path
) -> None:
    order = tmp_path / "gpu-tenant.toml"
    order.write_text('setup = ["echo made >made"]\n', encoding="utf-8")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        scene = Scene(tenant)
        quotes = await tenant.quotes(order=str(order))
        card = await tenant.tenancy.provision(
            smoke="none", quotes=quotes[:1], wait_s=3600, hours=4, idle_h=0, unguarded="accept"
        )
        scene.lease = card.lease
        await tenant.tenancy.push(scene.lease, str(tree))
        await ended(tenant.tenancy, tenant.lease(card))

        await scene.look()
        await scene.later(hours=1)

        assert (scene.state, scene.alarms()) == (LeaseState.ACTIVE, {})


async def test_a_stop_that_empties_the_box_undoes_its_setup_and_another_lease_replays_it(
    tenant: Tenant, tmp_path: Path
) -> None:
    ledger = tenant.tenancy.ledger
    lease = await rented(tenant, tmp_path, "echo made >made")
    await set_up(tenant.tenancy.context, lease, runs="once", commands=["echo other >made"])
    await ended(tenant.tenancy, lease)
    wipes, keeps = (tenant.profile.model_copy(update={"park": x}) for x in ("wipes", "keeps"))
    assert setup_of(ledger, lease, wipes).state == "done"

    ledger.note(lease.id, timeline.Resumed(), at=tenant.clock.now())

    assert setup_of(ledger, lease, keeps).state == "done"
    again = setup_of(ledger, lease, wipes)
    assert (again.state, again.commands) == ("to do", ("echo other >made",))
    continues = lease.model_copy(update={"id": LeaseId("vastai-next"), "recovers": lease.id})
    assert commands_of(ledger, continues) == ("echo other >made",)
