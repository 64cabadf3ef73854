"""Every reader of a timeline gives the same answer: how each job ended, whether the box was taken, what is left to do.

`GPU_TENANT_TIMELINES=100000 pytest tests/unit/test_story_agreement.py` tries that many timelines.
"""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from arranged import NOON, context_of, job, profile
from hypothesis import given, settings
from hypothesis import strategies as st
from possible_timelines import World, possible

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errand import ErrandRequest
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.interruption import cut_off_at, fate_met, recorded_fate
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.model import Job, JobId, Lease, LeaseId
from gpu_tenant.domain.reconcile import GOES_ON
from gpu_tenant.domain.story import WholeTimeline, fold
from gpu_tenant.domain.terms import Terms
from gpu_tenant.errands.steps import Known, next_step
from gpu_tenant.jobs.cost_forecast import course_of
from gpu_tenant.leases.cards import _killed_by
from gpu_tenant.leases.condition import open_jobs, recorded_end, recorded_jobs
from gpu_tenant.leases.launch_again import cut_off_job, died_unseen, newest_launched
from gpu_tenant.leases.readiness import must_be_idle
from gpu_tenant.leases.recover import may_recover
from gpu_tenant.leases.recovery_plan import taken_at, unfinished_jobs
from gpu_tenant.leases.watch_actions import unseen_ends
from gpu_tenant.leases.woken_box import cut_off_jobs
from gpu_tenant.leases.work_done import ends_of, failures
from gpu_tenant.ledger import Ledger

MANY = int(os.environ.get("GPU_TENANT_TIMELINES", "1500"))
WHEN = NOON + timedelta(days=9)
ERRAND = ErrandRequest(directory="/tree", command="x", artifacts=())
TERMS = Terms(deadline_at=NOON + timedelta(days=30), recover=("same",))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(tmp_path / "ledger")
    opened._db.execute("PRAGMA synchronous=OFF")  # this ledger need not outlast the test
    yield opened
    opened.close()


def on_record(ledger: Ledger, world: World, seed: int) -> Lease:
    """Write what the world's lookers wrote into the ledger, as a lease whose box was let in and used."""
    lease = LeaseId(f"tiny-{seed}")
    ledger.intend(
        lease_id=lease, provider="tiny", terms=TERMS, address=None, price_usd_h=None, at=NOON
    )
    box = timeline.Bound(box=f"box-{seed}")
    with ledger._transaction() as db:
        db.execute(
            "UPDATE leases SET state='active', box_id=?, active_at=?, ready_at=?, touched_at=? WHERE id=?",
            (f"box-{seed}", *[NOON.isoformat()] * 3, lease),
        )
        ledger._note(db, lease, box, NOON)
        for at, event in world.lines:
            ledger._note(db, lease, event, at)
            if isinstance(event, timeline.Launched) and event.job is not None:
                record = a_job(lease, event.job, world).model_dump_json()
                db.execute(
                    "INSERT INTO jobs(lease_id, id, record) VALUES (?,?,?)",
                    (lease, event.job, record),
                )
    return ledger.lease(lease)


def a_job(lease: LeaseId, name: str, world: World) -> Job:
    launched = next(
        (at, x.command)
        for at, x in world.lines
        if isinstance(x, timeline.Launched) and x.job == name
    )
    return job(name).model_copy(
        update={"lease_id": lease, "launched_at": launched[0], "command": launched[1]}
    )


def disagreements(ledger: Ledger, world: World, seed: int) -> Iterator[str]:
    """Name each two readers that answer one question differently, and each that says what is not true."""
    lease = on_record(ledger, world, seed)
    lines, jobs = ledger.events(lease.id), ledger.jobs(lease.id)
    context = context_of(ledger, profile("tiny"))
    known = {
        each.id: Known(
            errand=ERRAND,
            lease=lease,
            lines=lines,
            job=each,
            may_relaunch=True,
        )
        for each in jobs
    }
    open_now, unseen = set(open_jobs(ledger, lease.id)), unseen_ends(ledger, lease.id)
    left = {each.id for each in unfinished_jobs(ledger, lease.id)}
    newest, (state, others) = newest_launched(lines), recorded_jobs(jobs, lines)
    fate = recorded_fate(lines)

    # How each job ended.
    if newest is not None and state != known[JobId(newest)].job_state:
        yield "the newest job's state: condition, errand"
    if others != len(open_now - {newest}):
        yield "how many others run: condition, readiness"
    try:
        must_be_idle(context, lease)
        refused = False
    except BadRequest:
        refused = True
    if refused != bool(open_now):
        yield "whether a job may run: a load test, condition"
    for end in ends_of(lines):
        if end.state != known[JobId(end.job)].job_state:
            yield "how a job ended: work that is done, errand"
    if newest is not None and (recorded_end(lines) is None) != (state not in ENDED):
        yield "whether the newest job has ended: its time, its state"
    for each in jobs:
        name, has_end = each.id, known[each.id].job_state in ENDED
        true = next(x for x in world.jobs if x.name == name)
        cut = cut_off_at(lines, name)
        if has_end and name in open_now:
            yield "whether a job may run: errand, a load test"
        if name == newest and has_end and course_of(lines):
            yield "whether the newest job has ended: errand, forecast"
        if has_end == (name in unseen):
            yield "whether an end was seen: errand, collect"
        # What is unfinished.
        if name in open_now and name not in left:
            yield "a job may run, and counts as finished"
        if has_end and name in left and cut is None and not is_ended_by_its_rental(lines, name):
            yield "a job has ended by itself, and counts as unfinished"
        if cut is not None and known[name].was_cut_off != (cut is not None):
            yield "whether a job was cut off: errand, interruption"
        failed = failures([end for end in ends_of(lines) if end.job == name], None, lines)
        if failed and known[name].job_state == "finished":
            yield "a job has finished, and counts as failed"
        # And what is true.
        if true.runs and (has_end or name not in left):
            yield "TRUTH: a job runs, and counts as over"
        if has_end and known[name].job_state != true.state:
            yield "TRUTH: a job ended otherwise"
        if (
            has_end
            and true.state in ("finished", "failed")
            and not true.by_its_box
            and name in left
        ):
            yield "TRUTH: a job that ended by itself would be run again"

    # Whether the box was taken.
    if fate != world.told:
        yield "TRUTH: what took the box"
    if newest is not None:
        alone = known[JobId(newest)]
        if lease.parked_at is None and alone.was_taken != (fate is not None):
            yield "whether the box was taken: errand, interruption"
        if (_killed_by(lines) is None) != (cut_off_at(lines, newest) is None):
            yield "whether its box ended the newest job: card, interruption"
        if (cut_off_job(lines) == newest) != (cut_off_at(lines, newest) is not None):
            yield "whether the newest job was cut off: launch, interruption"
        died = died_unseen(lines)
        if died is not None and (fate is not None or fate_met(lines, newest) is None):
            yield "whether the newest job died with its box: card, interruption"
    if fate is not None and taken_at(ledger, lease, WHEN) == WHEN:
        yield "when the box was taken: recovery, interruption"
    again = {each.id for each, _ in cut_off_jobs(ledger, lease)}
    if not again <= left:
        yield "what is launched again here, and is left to do elsewhere"

    # What is next.
    for each in jobs[-1:]:
        recovers = may_recover(context, lease)
        step = next_step(
            Known(
                errand=ERRAND,
                lease=lease,
                lines=lines,
                job=each,
                may_recover=recovers,
                may_relaunch=True,
            )
        )
        if recovers and step != "recover":
            yield "next: recovery, errand"
        if recovers and fate not in GOES_ON and fold(lines).box.notice is None:
            yield "next: recovery, interruption"
        if (
            step == "end"
            and each.id in left
            and fate is None
            and not is_ended_by_its_rental(lines, each.id)
        ):
            yield "next: the errand ends what is unfinished"
        if step == "launch" and cut_off_at(lines, each.id) is None:
            yield "next: the errand launches again what was not cut off"


def is_ended_by_its_rental(lines: WholeTimeline, name: str) -> bool:
    """Whether the end of its rental ended the job. It is unfinished, but on its box it is not launched again."""
    cut = lines.story.job(name).cut_off
    return cut is not None and cut.fate == "walltime"


def test_readers_agree_on_every_timeline_that_can_happen(ledger: Ledger) -> None:
    found = {
        (seed, words)
        for seed in range(MANY)
        for words in disagreements(ledger, possible(seed), seed)
    }

    assert not sorted(found)[:20], f"{len(found)} disagreements in {MANY} timelines"


@given(st.integers(min_value=10**9), st.integers(min_value=2, max_value=40))
@settings(max_examples=60, deadline=None)
def test_readers_agree_on_longer_timelines_too(seed: int, steps: int) -> None:
    world = possible(seed, steps=steps)
    story, again = fold(world.lines), WholeTimeline(world.lines).story

    assert story == again
    for each in world.jobs:
        told = story.job(each.name)
        assert not (each.runs and told.has_ended), world.lines
        assert told.state not in ENDED or told.state == each.state, world.lines
        assert told.may_run <= told.is_unfinished
