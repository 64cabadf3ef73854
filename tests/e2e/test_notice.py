"""A preemption is heard before it comes: the job saves, its owner is told, and the work goes on elsewhere."""

import asyncio
import json
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from arranged import eventually
from e2e.watching import Scene, scene_at

from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.errors import Unverified
from gpu_tenant.domain.interruption import notice_on_record
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.parked import read_in_notice
from gpu_tenant.faces.cli import lease_table
from gpu_tenant.leases.read_in_notice import assess_taken, needs_no_start
from gpu_tenant.leases.recover import begins_words, recover
from gpu_tenant.watchdog.loop import Watchdog

RATE = """\
[rates.gcp]
"n1-standard-4+1xnvidia-tesla-t4 spot" = 0.2
"n1-standard-8+1xnvidia-tesla-t4 spot" = 0.2
"pd-balanced" = 0.1
"""
JOB = """\
import json, pathlib, signal, sys, time
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
state = out / "state.json"
step = json.loads(state.read_text())["step"] if state.exists() else 0
with open("out/runs.txt", "a") as runs:
    runs.write("from %d\\n" % step)
def save(*_):
    (out / ".new").write_text(json.dumps({"step": step}))
    (out / ".new").replace(state)
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
while step < 10**6 and not (step and pathlib.Path("enough").exists()):
    step += 1
    time.sleep(0.01)
"""
"""It saves only when it is asked to: what goes on from a step was saved for the notice."""


async def spot(scene: Scene, tree: Path, *, also: str = "", **terms: Any) -> str:
    """A Spot box on which the job has begun, after what it does `also`."""
    tenant = scene.tenant
    tenant.home.root.mkdir(exist_ok=True, parents=True)
    tenant.home.configuration.write_text(RATE, encoding="utf-8")
    quotes = await tenant.quotes(hours=1, gpu="T4", interruptible="yes")
    card = await tenant.tenancy.provision(
        smoke="none",
        quotes=quotes[:1],
        wait_s=3600,
        unguarded="accept",
        hours=4,
        budget_usd=Decimal(5),
        **{"on_failure": "end after 1h", **terms},
    )
    scene.lease = card.lease
    tree.mkdir()
    (tree / "train.py").write_text(JOB, encoding="utf-8")
    await tenant.tenancy.push(card.lease, str(tree))
    await tenant.tenancy.launch_detached(
        card.lease,
        f"{also}\nexec python3 train.py".strip(),
        ["out/state.json", "out/runs.txt"],
        name="train",
    )
    home = tenant.home_of(str(card.box))
    assert eventually(lambda: [*home.glob("gpu-tenant/*/**/runs.txt")])
    return card.lease


def notice_on(scene: Scene, box: str | None) -> dict[str, Any]:
    found = [*scene.tenant.home_of(str(box)).glob("gpu-tenant/*/caretaker/notice.json")]
    told: dict[str, Any] = json.loads(found[0].read_bytes()) if found else {}
    return told


async def seen(is_so: Callable[[], bool]) -> None:
    for _ in range(1200):
        if is_so():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it did not become so in time")


async def test_a_spot_box_that_has_notice_saves_and_its_work_goes_on_before_it_is_gone(
    tmp_path: Path,
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant, ledger = scene.tenant, scene.tenant.tenancy.ledger
        lease = await spot(scene, tmp_path / "tree", recover=["same"])
        box = tenant.lease(lease).box_id
        tenant.fault("preempted", box=box)
        assert eventually(lambda: "ended_at" in notice_on(scene, box))

        await scene.look()

        heard = notice_on_record(ledger.events(lease))
        assert heard is not None
        assert (heard.source, heard.jobs, heard.ended) == ("metadata", ("train",), True)
        level, words = scene.alarms()["preemption"]
        assert (level, "were asked to save, and have ended" in words) == (Level.NOTICE, True)
        assert tenant.creates() == 2, "the next box is on its way"
        assert tenant.thing(box).phase == "running", "and this one still stands"

        for _ in range(20):
            if timeline.Recovered.kind in scene.kinds:
                break
            await scene.later(seconds=5)
        (new,) = [x for x in ledger.leases("live") if x.recovers == lease]
        assert tenant.creates() == 2
        runs = [*tenant.home_of(str(new.box_id)).glob("gpu-tenant/*/**/out/runs.txt")]
        assert eventually(lambda: runs and len(runs[0].read_text().splitlines()) == 2)
        first, second = (int(line.split()[1]) for line in runs[0].read_text().splitlines())
        assert first == 0
        assert second > 0, "it goes on from what was saved for the notice"

        await scene.later(seconds=300)
        # Google has stopped it; or its lease was ended before, when all was proved and its budget had gone on.
        assert tenant.thing(box).phase in ("parked", "ended")
        assert "preemption" not in scene.alarms()
        assert tenant.creates() == 2
        await tenant.tenancy.stop_job(new.id, "train", grace_s=5)


async def test_nothing_is_launched_elsewhere_while_a_job_still_saves(tmp_path: Path) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant = scene.tenant
        lease = await spot(scene, tmp_path / "tree", recover=["same"])
        box = tenant.lease(lease).box_id
        deaf = "trap '' TERM; while :; do sleep 0.05; done"
        await tenant.tenancy.launch_detached(lease, deaf, ["x.txt"], name="deaf")
        tenant.fault("preempted", box=box)
        assert eventually(lambda: "deaf" in notice_on(scene, box).get("jobs", ()))
        await scene.look()

        card = await recover(tenant.tenancy.context, lease, wait_s=60)

        assert "is not gone yet, and its jobs may still save" in (card.alarm or "")
        assert not tenant.tenancy.ledger.jobs(card.lease)
        assert timeline.Recovered.kind not in scene.kinds


async def test_without_a_place_to_go_on_the_box_is_told_of_and_nothing_is_rented(
    tmp_path: Path,
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant = scene.tenant
        lease = await spot(scene, tmp_path / "tree", when_done="end")
        box = tenant.lease(lease).box_id
        await scene.look()
        assert "preemption" not in scene.alarms()
        tenant.fault("preempted", box=box)
        assert eventually(lambda: "ended_at" in notice_on(scene, box))

        await scene.look()

        assert f"gpu-tenant resume {lease}" in scene.alarms()["preemption"][1]
        assert tenant.creates() == 1
        assert tenant.lease(lease).state is LeaseState.ACTIVE
        ended = await tenant.tenancy.monitor(lease, "train", wait_s=0)
        assert (ended.state, (ended.why or "").partition(":")[0]) == ("killed", "preempted")
        assert (scene.kept() / "out" / "state.json").exists(), "what it saved is here"
        await tenant.tenancy.collect(lease)
        assert (await tenant.tenancy.verify_and_teardown(lease)).receipt.ground == "verified"


async def stopped_after_its_notice(scene: Scene, lease: str) -> str | None:
    """A watchdog looks while the box has notice of its end, until its platform has stopped it. Returns the box."""
    tenant = scene.tenant
    box = tenant.lease(lease).box_id
    tenant.fault("preempted", box=box)
    assert eventually(lambda: "ended_at" in notice_on(scene, box))
    for _ in range(20):
        if tenant.thing(box).phase != "running":
            break
        await scene.later(seconds=10)
    assert tenant.thing(box).phase == "parked"
    await scene.look()
    return box


async def test_what_was_read_in_full_in_its_notice_is_ended_without_a_start_once_it_is_stopped(
    tmp_path: Path,
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant, tenancy = scene.tenant, scene.tenant.tenancy
        lease = await spot(scene, tmp_path / "tree", when_done="end")
        box = await stopped_after_its_notice(scene, lease)
        assert tenant.lease(lease).state is LeaseState.ACTIVE, "its work goes on nowhere"
        assert timeline.ReadInNotice.kind in scene.kinds

        new = await recover(tenancy.context, lease, wait_s=3600)
        (old,) = [x for x in (await tenancy.list_leases()).leases if x.lease == lease]
        assert f"`gpu-tenant teardown {lease}` ends it without a start" in old.next
        await scene.later(seconds=60)

        assert tenant.lease(lease).state is LeaseState.GONE, scene.alarms()
        receipt = tenancy.ledger.receipt(tenant.lease(lease).id)
        assert receipt is not None
        assert receipt.ground == "verified"
        assert tenant.thing(box).phase == "ended"
        assert scene.asked("POST", "/start") == 0
        assert timeline.ReadAtStop.kind in scene.kinds
        await tenancy.stop_job(new.lease, "train", grace_s=5)


async def test_the_alarm_about_a_stopped_box_is_whole_beside_the_step_that_is_told_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        lease = await spot(scene, tmp_path / "tree", when_done="end")
        await stopped_after_its_notice(scene, lease)

        lease_table.leases(await scene.tenant.tenancy.list_leases())

        printed = capsys.readouterr()
        (alarm,) = [x for x in printed.err.splitlines() if x.startswith("alarm: ") and lease in x]
        assert f"do this: {lease}" in printed.out + printed.err
        assert "a parked box still bills starts it" not in alarm
        assert "a parked box still bills" in alarm


async def test_a_box_that_was_stopped_by_another_clock_than_ours_is_not_ended_by_what_was_read_before(
    tmp_path: Path,
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant, tenancy = scene.tenant, scene.tenant.tenancy
        lease = await spot(scene, tmp_path / "tree", when_done="end")
        await stopped_after_its_notice(scene, lease)
        read = read_in_notice(tenancy.ledger.events(tenant.lease(lease).id))
        assert read is not None
        for minutes in (-5, 5):
            noted = read[0] + timedelta(minutes=minutes)
            tenancy.ledger.note(tenant.lease(lease).id, read[1], at=noted)

            seen = await assess_taken(tenancy.context, tenant.lease(lease), store=None)

            assert seen is None, f"our clock was {minutes} minutes off when it was read"


async def test_a_box_that_somebody_started_after_its_notice_is_not_ended_by_what_was_read_before(
    tmp_path: Path,
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant, tenancy = scene.tenant, scene.tenant.tenancy
        lease = await spot(scene, tmp_path / "tree", when_done="end")
        await stopped_after_its_notice(scene, lease)
        connector = tenancy.context.connectors["gcp"]
        await connector.resume(tenant.lease(lease))  # type: ignore[attr-defined]  # as from the console
        await tenant.clock.sleep(60)
        await connector.park(tenant.lease(lease))  # type: ignore[attr-defined]
        await tenant.clock.sleep(60)
        assert needs_no_start(tenancy.context, tenant.lease(lease)), "as far as our own record says"

        seen = await assess_taken(tenancy.context, tenant.lease(lease), store=None)

        assert seen is None, "its provider says that it was started since"
        assert {timeline.ReadAtStop.kind, timeline.Parked.kind}.isdisjoint(scene.kinds)
        tenant.assert_no_destroy_was_asked()


async def test_a_teardown_is_refused_where_a_copy_of_what_was_read_in_the_notice_is_gone_since(
    tmp_path: Path,
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant, tenancy = scene.tenant, scene.tenant.tenancy
        lease = await spot(scene, tmp_path / "tree", when_done="end")
        await stopped_after_its_notice(scene, lease)
        (scene.kept() / "out/state.json").unlink()

        with pytest.raises(Unverified) as refused:
            await tenancy.verify_and_teardown(lease)

        assert "out/state.json" in f"{refused.value.message} {refused.value.remedy}"
        assert timeline.ReadAtStop.kind not in scene.kinds
        assert scene.asked("POST", "/start") == 0
        tenant.assert_no_destroy_was_asked()
        # Then the box is the only copy. It is started to fetch that again, and ends by what is proved then.
        await tenancy.change_lease(lease, "resume")
        await tenancy.collect(lease)
        assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"


async def test_a_file_that_nobody_claimed_is_named_while_the_box_answers_with_the_time_that_is_left(
    tmp_path: Path,
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant, tenancy = scene.tenant, scene.tenant.tenancy
        lease = await spot(scene, tmp_path / "tree", also="echo 1 > notes.txt", when_done="end")
        await tenancy.change_lease(lease, "terms", unasked_gib=0)
        box = tenant.lease(lease).box_id
        tenant.fault("preempted", box=box)
        assert eventually(lambda: "ended_at" in notice_on(scene, box))

        await scene.look()
        (card,) = (await tenancy.list_leases()).leases

        for words in (card.next, scene.alarms()["preemption"][1]):
            assert re.search(
                r"its box stops about \d\d:\d\d:\d\d UTC, in 1?\d\d s; after that", words
            )
            assert f"`gpu-tenant collect {lease} --artifact 'notes.txt'`" in words
        assert timeline.ReadInNotice.kind not in scene.kinds, "something is on it alone"
        await tenancy.collect(lease, artifacts=["notes.txt"])
        await scene.later(seconds=10)
        assert timeline.ReadInNotice.kind in scene.kinds


async def test_after_a_resume_the_next_step_launches_the_job_again_though_a_file_is_unclaimed(
    tmp_path: Path,
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenancy = scene.tenant.tenancy
        lease = await spot(scene, tmp_path / "tree", also="echo 1 > notes.txt", when_done="end")
        await tenancy.change_lease(lease, "terms", unasked_gib=0)
        await stopped_after_its_notice(scene, lease)
        (stopped,) = (await tenancy.list_leases()).leases
        assert len(set(re.findall(r"`gpu-tenant resume[^`]*`", f"{stopped}"))) == 1
        assert re.search(
            r"then `gpu-tenant collect \S+ --artifact 'notes.txt'` keeps it, or", stopped.unclaimed
        )

        resumed = await tenancy.change_lease(lease, "resume", hours=1)

        assert resumed.next.startswith(
            f"`gpu-tenant launch --lease {lease} --artifact 'out/state.json'"
        )
        assert "exec python3 train.py" in resumed.next
        assert "notes.txt" in resumed.unclaimed


async def test_a_watch_hears_of_a_notice_between_two_looks(tmp_path: Path) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant = scene.tenant
        lease = await spot(scene, tmp_path / "tree", when_done="keep")
        watch = Watchdog(
            tenant.tenancy, tell=lambda _: None, every_s=36_000, sleep=lambda _: asyncio.sleep(0.2)
        )
        watching = asyncio.create_task(watch.forever())
        try:
            await seen(tenant.tenancy.home.watchdog.exists)
            tenant.fault("preempted", box=tenant.lease(lease).box_id)
            await seen(lambda: "preemption" in scene.alarms())
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def test_each_checkpoint_of_an_interruptible_box_comes_home_between_two_looks(
    tmp_path: Path,
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant = scene.tenant
        save = "printf '{\"step\": %s}' $i > out/.n; mv out/.n out/state.json; sleep 12"
        step = f"for i in 1 2 3 4 5 6 7 8 9; do {save}; done"
        lease = await spot(scene, tmp_path / "tree", also=f"mkdir -p out; (sleep 3; {step}) &")
        watch = Watchdog(
            tenant.tenancy, tell=lambda _: None, every_s=36_000, sleep=lambda _: asyncio.sleep(0.2)
        )
        came = set[str]()

        def has_come() -> bool:
            came.update(x.read_text("utf-8") for x in scene.kept().glob("out/state.json"))
            return len(came) > 1

        watching = asyncio.create_task(watch.forever())
        try:
            await seen(has_come)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        assert tenant.lease(lease).state is LeaseState.ACTIVE


async def test_a_job_that_was_asked_to_save_leads_to_a_line_that_works_while_its_box_still_answers(
    tmp_path: Path,
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant, tenancy = scene.tenant, scene.tenant.tenancy
        lease = await spot(scene, tmp_path / "tree")
        box = tenant.lease(lease).box_id
        tenant.fault("preempted", box=box)
        assert eventually(lambda: "ended_at" in notice_on(scene, box))

        looked = await tenancy.monitor(lease, wait_s=0)

        assert looked.next.startswith(f"`gpu-tenant recover {lease}` goes on at another box")
        assert "its platform is taking this one back" in looked.next
        new = await recover(tenancy.context, lease, wait_s=3600)
        assert tenant.lease(new.lease).recovers == lease
        again = await tenancy.monitor(lease, wait_s=0)
        assert again.next.startswith(f"`gpu-tenant monitor {new.lease}`")


async def test_a_box_that_was_started_again_has_no_notice_of_its_earlier_start(
    tmp_path: Path,
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant, ledger = scene.tenant, scene.tenant.tenancy.ledger
        lease = await spot(scene, tmp_path / "tree", when_done="keep")
        box = tenant.lease(lease).box_id
        tenant.fault("preempted", box=box)
        assert eventually(lambda: "ended_at" in notice_on(scene, box))
        await scene.look()
        assert "preemption" in scene.alarms()
        await scene.later(seconds=300)
        assert tenant.thing(box).phase == "parked"
        stopped = scene.alarms()
        assert not any("may be running" in words for _, words in stopped.values()), stopped

        await tenant.tenancy.change_lease(lease, "resume")
        await scene.later(seconds=60)

        assert tenant.thing(box).phase == "running"
        assert notice_on(scene, box), "the record is still on its disk"
        assert "preemption" not in scene.alarms()
        assert notice_on_record(ledger.events(lease)) is None
        looked = await tenant.tenancy.monitor(lease, "train", wait_s=0)
        assert "is taking this one back" not in looked.next


async def test_a_notice_names_what_is_not_here_because_nobody_has_claimed_it(
    tmp_path: Path,
) -> None:
    async with scene_at("gcp", tmp_path) as scene:
        tenant = scene.tenant
        lease = await spot(scene, tmp_path / "tree", when_done="keep")
        await tenant.tenancy.change_lease(lease, "terms", unasked_gib=0)
        box = tenant.lease(lease).box_id
        (work,) = tenant.home_of(str(box)).glob("gpu-tenant/*/work")
        (work / "notes.txt").write_text("odd", encoding="utf-8")
        tenant.fault("preempted", box=box)
        assert eventually(lambda: "ended_at" in notice_on(scene, box))

        await scene.look()
        before = await begins_words(tenant.tenancy.context, lease)

        _, words = scene.alarms()["preemption"]
        assert "all that it had" not in words
        assert "all that is declared is here, as of " in words
        assert "1 file is not, because nobody has claimed it: notes.txt; " in words
        assert f"`gpu-tenant collect {lease} --artifact 'notes.txt'` keeps it" in words
        assert before.startswith(
            f"the work of {lease} goes on from its newest checkpoint, which is"
        )
