"""A job that a term of its lease has cut off: every face says which, when, and how its work goes on."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from e2e.watching import SAVES, Scene
from errands import Asker, a_tree, an_errand, goes_on
from sshd import wait_until

from gpu_tenant.domain import timeline
from gpu_tenant.domain.end_reserve import QuotedBudget
from gpu_tenant.domain.errors import BoxStopped, BoxUnreachable
from gpu_tenant.domain.ports import Parking
from gpu_tenant.faces.report import as_markdown, report_of
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.readiness import made_ready, silence_explained, why_silent
from gpu_tenant.leases.term_checks import Outrun
from gpu_tenant.watchdog.end_of_lease import LeaseAlarms, LeaseEnder
from gpu_tenant.watchdog.loop import Watchdog

MINUTE = 60


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with tenant_at("runpod", tmp_path, time="runs") as tenant:
        scene = Scene(tenant)
        await scene.look()  # somebody looks after the leases from here on
        yield scene


def price(tenant: Tenant, quote: str) -> Decimal:
    found = tenant.tenancy.ledger.quote(quote)
    assert found is not None
    assert found.offer.price.running_usd_h is not None
    return found.offer.price.running_usd_h


async def with_minutes(tenant: Tenant, minutes: int) -> Decimal:
    """A budget that pays for the cheapest box for that long."""
    quotes = await tenant.quotes(hours=0.1)
    return (price(tenant, quotes[0]) * minutes / 60).quantize(Decimal("0.0001"))


async def rent(scene: Scene, minutes: int) -> Card:
    """A lease whose budget pays for so long. Its deadline is no earlier than that."""
    tenant = scene.tenant
    card = await tenant.tenancy.provision(
        smoke="none",
        quotes=(await tenant.quotes(hours=0.1))[:1],
        wait_s=3600,
        budget_usd=await with_minutes(tenant, minutes),
        when_done="keep",
    )
    scene.lease = card.lease
    return card


async def test_every_face_says_when_the_budget_ends_it_and_who_does_that(scene: Scene) -> None:
    tenancy, budget = scene.tenant.tenancy, await with_minutes(scene.tenant, 30)
    card = await rent(scene, 30)

    launched = await tenancy.launch_detached(scene.lease, SAVES, ["out/"], name="train")
    seen = await tenancy.monitor(scene.lease, "train", wait_s=0)

    for told in (card.budget_end, launched.budget_end, seen.budget_end):
        assert told is not None
        assert f"the budget of {budget:.4f} USD ends it at" in told
        assert " UTC, in 2" in told, "less than half an hour: its end is paid from it, too"
        assert "the watchdog acts then" in told


async def test_a_budget_that_outlasts_the_deadline_is_not_said_to_end_it(scene: Scene) -> None:
    card = await scene.rent(hours=0.2, budget_usd=Decimal(5))

    assert card.budget_end is None


async def test_nobody_is_promised_to_end_it_where_nobody_looks(tmp_path: Path) -> None:
    async with tenant_at("runpod", tmp_path, time="runs") as tenant:
        scene = Scene(tenant)
        card = await rent(scene, 30)

    assert card.budget_end is not None
    assert (
        "its guard stops its box then, and nothing is watching that would prove its files and end it: `gpu-tenant watchdog`"
        in card.budget_end
    )


async def test_a_job_cut_by_the_budget_is_not_told_as_stopped_on_request(scene: Scene) -> None:
    tenancy = scene.tenant.tenancy
    await rent(scene, 12)
    await scene.work()
    said: list[Watched] = []
    stop_run = tenancy.stop_run

    async def looked_at(lease: str, run: str, **more: object) -> None:
        await stop_run(lease, run, **more)  # type: ignore[arg-type]
        said.append(await tenancy.monitor(lease, run, wait_s=0))

    tenancy.stop_run = looked_at  # type: ignore[method-assign, assignment]
    await scene.later(minutes=7)

    (seen,) = said
    assert seen.state == "stopped"
    assert seen.why is not None
    assert seen.why.startswith("budget: the lease's budget ended it: ")
    assert "on request" not in seen.why
    assert f"`gpu-tenant terms {scene.lease} --budget-usd N`" in seen.next
    told = await report_of(tenancy.context, scene.lease)
    assert "its budget" in (told.jobs[0].last_seen or "")
    assert "was stopped with its lease" in as_markdown(told)


async def test_a_job_that_a_person_stopped_is_told_so(scene: Scene) -> None:
    await scene.rent(hours=0.9)
    await scene.work()

    seen = await scene.tenant.tenancy.stop_job(scene.lease, "train", grace_s=10)

    assert (seen.why or "").startswith("stopped: ")
    assert "it was stopped on request" in (seen.why or "")


class Impatient(Asker):
    """Somebody whose time passes while they watch, and whose watchdog looks."""

    def __init__(self, tenant: Tenant, minutes: float) -> None:
        super().__init__()
        self.tenant, self.minutes = tenant, minutes

    async def follow(self, lease: str, job: str) -> Watched:
        seen = await super().follow(lease, job)
        if seen.state == "running" and self.minutes:
            await self.tenant.clock.sleep(self.minutes * MINUTE)
            self.minutes = 0
            await Watchdog(self.tenant.anew_tenancy(), tell=lambda _: None).once()
        return seen


async def test_the_time_of_a_stop_is_by_the_clock_of_the_rehearsal(scene: Scene) -> None:
    await scene.rent(hours=5)
    await scene.work()
    await scene.tenant.clock.sleep(3 * 60 * MINUTE)

    before = scene.tenant.clock.now()
    seen = await scene.tenant.tenancy.stop_job(scene.lease, "train", grace_s=10)

    told = re.search(r"asked for at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", seen.why or "")
    assert told, seen.why
    at = datetime.fromisoformat(told[1]).replace(tzinfo=UTC)
    assert before.replace(microsecond=0) <= at <= scene.tenant.clock.now()


class Watching(Asker):
    """Somebody who looks at the job again after each of these minutes, and whose watchdog looks after the last."""

    def __init__(self, tenant: Tenant, *minutes: float) -> None:
        super().__init__()
        self.tenant, self.minutes = tenant, list(minutes)

    async def follow(self, lease: str, job: str) -> Watched:
        seen = await super().follow(lease, job)
        if seen.state == "running" and self.minutes:
            await self.tenant.clock.sleep(self.minutes.pop(0) * MINUTE)
            if not self.minutes:
                await Watchdog(self.tenant.anew_tenancy(), tell=lambda _: None).once()
        return seen


async def test_a_run_cut_by_its_budget_says_so_and_how_its_work_goes_on(
    scene: Scene, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree", SAVES)
    errand = an_errand(
        scene.tenant.tenancy,
        tree,
        max_usd=await with_minutes(scene.tenant, 10),
        hours=0.1,
    )

    asker = Impatient(scene.tenant, 8)

    told = await goes_on(scene.tenant.tenancy, errand, asker)

    assert asker.plans[0].lines[0].startswith("`--max-usd` is too small for 0.1 h: ")
    assert re.search(
        r"before 0\.0\d+ USD are spent, that is [1-9] min after", asker.plans[0].lines[3]
    )

    assert told.outcome == "failed"
    assert "the job was stopped: the lease's budget ended it: " in told.words
    assert "a larger `--max-usd`" in told.next
    assert told.lease is not None
    kept = scene.tenant.home.artifacts_of(told.lease) / "work" / "out"
    assert f"copy {kept} to {tree / 'out'}, and add `--include out/`" in told.next
    assert kept.is_dir()
    scene.tenant.assert_nothing_bills()


COUNTS = """\
trap 'exit 0' TERM
n=0; while :; do n=$((n+1)); echo "step $n/400"; echo $n > out/step.txt; sleep 0.05; done
"""
"""A job whose log says how far it is, and which saves nothing more when it is asked to go."""


class Counting(Watching):
    """The same, of a job that counts: each look comes when it has counted further than at the last."""

    counted = 0

    async def follow(self, lease: str, job: str) -> Watched:
        found = self.tenant.lease(lease)
        step = self.tenant.home_of(str(found.box_id)) / found.work_directory / "out/step.txt"
        last = self.counted

        def is_further() -> bool:
            self.counted = int((step.read_text() if step.exists() else "") or 0)
            return self.counted >= last + 20

        await asyncio.to_thread(wait_until, is_further)
        return await super().follow(lease, job)


async def test_a_run_cut_by_its_budget_names_the_sum_and_the_hours_that_its_pace_asks_for(
    scene: Scene, tmp_path: Path
) -> None:
    most = await with_minutes(scene.tenant, 12)
    errand = an_errand(
        scene.tenant.tenancy, a_tree(tmp_path / "tree", COUNTS), max_usd=most, hours=0.1
    )

    told = await goes_on(scene.tenant.tenancy, errand, Counting(scene.tenant, 2, 8))

    found = re.search(r"the same line with `--max-usd ([\d.]+)`, `--hours ([\d.]+)`", told.next)
    assert found, told.next
    assert told.lease is not None
    quote = scene.tenant.lease(told.lease).quote
    assert quote is not None
    assert QuotedBudget(quote, Decimal(found[1]), hours=float(found[2])).is_enough
    assert Decimal(found[1]) > most
    assert "for all of the work, start and end included, at the pace that the job had" in told.next


async def test_the_line_that_it_names_goes_on_from_what_was_kept(
    scene: Scene, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree", "")
    (tree / ".gitignore").write_text("out/\n", encoding="utf-8")
    (tree / "out").mkdir()
    (tree / "out" / "step.txt").write_text("41\n", encoding="utf-8")
    (tree / "train.sh").write_text("cat out/step.txt > out/goes-on-from.txt\n", encoding="utf-8")
    errand = an_errand(
        scene.tenant.tenancy, tree, to=str(tmp_path / "home"), include=("out/",), smoke="none"
    )

    told = await goes_on(scene.tenant.tenancy, errand)

    assert told.outcome == "done", told
    assert (tmp_path / "home/work/out/goes-on-from.txt").read_text() == "41\n"


async def test_an_unused_box_that_stopped_at_its_deadline_is_started_looked_at_and_ended(
    scene: Scene,
) -> None:
    await scene.rent(hours=0.2)
    lease, context = scene.tenant.lease(scene.lease), scene.tenant.tenancy.context
    await scene.tenant.clock.sleep(13 * MINUTE)
    connector = context.connector(lease)
    assert isinstance(connector, Parking)
    await connector.park(lease)  # as its guard, or its platform's timer, does

    told = LeaseAlarms(context.ledger, lease.id, lambda _: None)
    ender = LeaseEnder(scene.tenant.tenancy, told, look_s=60)
    await ender.end(lease, Outrun("deadline", "its deadline has passed"))

    said = " ".join(words for _, words in scene.alarms().values())
    assert "its box was ended (ground: never_used)" in said
    assert "cannot be" not in said
    assert timeline.Looked.kind in scene.kinds


HOLDS = """\
import sys
from pathlib import Path
from gpu_tenant.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]))
with ledger.hold(sys.argv[2], "end", at=ledger.now()):
    print("held", flush=True)
    sys.stdin.read()
"""


async def test_a_box_that_does_not_answer_is_said_to_boot_to_be_in_use_or_to_be_parked(
    scene: Scene,
) -> None:
    tenant = scene.tenant
    quotes = (await tenant.quotes(hours=1))[:1]
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes, wait_s=0, hours=3)
    lease, context = tenant.lease(card), tenant.tenancy.context
    silent = BoxUnreachable("nobody answers", remedy="look")

    booting = await why_silent(context, lease, silent)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLDS, str(tenant.home.ledger), lease.id),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"held\n"
        in_use = await why_silent(context, lease, silent)
    finally:
        process.kill()
        await process.wait()
    await made_ready(context, lease, wait_s=3600)
    await tenant.tenancy.change_lease(lease.id, "park")
    with pytest.raises(BoxStopped) as parked:
        async with silence_explained(context, lease):
            raise silent

    assert card.next == f"`gpu-tenant audit {lease.id}`, and again as long as the box still boots"
    assert "still boots" in booting.message
    assert f"`gpu-tenant audit {lease.id}`, and again as long as it still boots" in booting.remedy
    assert f"end (process {process.pid}) has held it for " in in_use.message
    assert "wait until that is done" in in_use.remedy
    assert f"{lease.id} is parked" in parked.value.message
    assert "gpu-tenant resume" in parked.value.remedy
