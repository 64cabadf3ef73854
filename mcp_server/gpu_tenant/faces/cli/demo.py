"""The demo: runs a whole lease on this computer and shows each step. The job is interrupted once and resumes."""

import asyncio
import os
import signal
import tempfile
from decimal import Decimal
from pathlib import Path

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.domain.errors import Unverified
from gpu_tenant.emulators.server import Stage
from gpu_tenant.faces.cli import bars, offers_table, output
from gpu_tenant.faces.demo import JOB
from gpu_tenant.files.mounts import lasting_scratch
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.service import Tenancy

EPOCHS = 10
_KILL_AFTER = 0.45
"""The run is killed at this progress, when it has a checkpoint from which it can resume."""

_MARK = f"demo-{os.getpid()}"
"""The first run has this text in its environment, so that the demo kills no other process."""

_JOB = (
    "The job trains a small network to tell Python, Markdown\nand JSON apart by 64 characters of this "
    "project's own files, in plain Python."
)

_PRETENDED_PRICE = Decimal("2.00")
"""An invented price, so that the demo can show a cost. A local box costs only electricity."""


async def tour(keep: str | None, provider: str) -> None:
    """Lease a box, use it, interrupt its job, verify, tear it down, and show the receipt."""
    kept = Path(keep or tempfile.mkdtemp(prefix="gpu-tenant-demo-", dir=lasting_scratch()))
    if provider == "local":
        click.echo(
            "A whole lease on this computer. The box is a private directory with real processes; the\n"
            f"price of {_PRETENDED_PRICE} USD/h is pretended, so that the meter shows. {_JOB}"
        )
        await _lease(kept, None)
        return
    with Stage(
        provider, Path(tempfile.mkdtemp(prefix="gpu-tenant-stage-", dir=lasting_scratch()))
    ) as stage:
        click.echo(
            f"A whole lease at a rehearsal of {provider}, on this computer: its API with its billing\n"
            f"rules, boxes that are real behind their own sshd, and a clock that skips the waiting.\n{_JOB}"
        )
        await _lease(kept, stage)
        meter = stage.world.meter()
        parts = ", ".join(
            f"{name} {usd:.6f}" for name, usd in stage.world.billed_by_component().items()
        )
        click.echo(
            f"\n{provider}'s own meter: {meter['billed_usd']} USD ({parts}); now {meter['usd_h']} USD/h"
        )


async def _lease(kept: Path, stage: Stage | None) -> None:
    """Run one lease from the smoke test to the receipt. If there is a `stage`, use its emulated provider."""
    async with output.tenancy({**os.environ, **stage.environment} if stage else None) as tenancy:
        _step(1, "smoke: the job's own command, here, before anything is rented")
        smoked = await tenancy.run_smoke(os.fspath(JOB), "python3 train.py --smoke", 60)
        output.smoke(smoked)

        if stage is None:
            _step(2, "provision: written down before the box exists")
            card = await tenancy.provision(
                "local",
                hours=1,
                price_usd_h=_PRETENDED_PRICE,
                max_price_usd_h=Decimal(3),
                budget_usd=Decimal(1),
                smoke=smoked.id,
            )
        else:
            _step(2, "offers, ranked by the cost of the finished work; then rent the first")
            found = await tenancy.find_offers(hours=1, provider=stage.provider, limit=4)
            offers_table.print_found(found)
            quotes = [offer.quote for offer in found.offers if offer.quote]
            card = await tenancy.provision(smoke=smoked.id, quotes=quotes, wait_s=3600)
        output.card_in(tenancy)(card)
        lease = card.lease

        _step(3, "audit: is the box what it should be?")
        output.audit(await tenancy.audit(lease))

        _step(4, "push, then a detached launch with its outputs declared")
        output.print_pushed(await tenancy.push(lease, os.fspath(JOB)))
        command = f"python3 train.py --epochs {EPOCHS}"
        output.print_launched(
            await tenancy.launch_detached(
                lease, command, ["out/"], env=[f"GPU_TENANT_DEMO=text:{_MARK}"], name="train"
            )
        )

        _step(5, "monitor; and in the middle, the job is killed")
        seen, _ = await _watch(tenancy, lease, "train", kill_after=_KILL_AFTER)
        click.echo(f"  {seen.job}: {seen.state} ({seen.why})")
        click.echo("  the same command again; it resumes from its checkpoint")
        await tenancy.launch_detached(lease, command, ["out/"], name="train-again")
        seen, log = await _watch(tenancy, lease, "train-again", kill_after=None)
        first, *_, last = log.strip().splitlines()
        click.echo(f"  {seen.job}: {seen.state}\n    {first}\n    {last}")

        _step(6, "teardown before collect: the law says no")
        try:
            await tenancy.verify_and_teardown(lease)
        except Unverified as refusal:
            click.echo(f"  refused: {refusal.message}\n  hint: {refusal.remedy}")

        _step(7, "seal and collect, then verify and tear down")
        with bars.bytes_bar("collect"):
            collected = await tenancy.collect(lease, os.fspath(kept))
        output.print_collected(collected)
        output.receipt(await tenancy.verify_and_teardown(lease))


def _step(number: int, words: str) -> None:
    click.echo(click.style(f"\n[step {number}] {words}", fg="cyan", bold=True))


async def _watch(
    tenancy: Tenancy, lease: str, job: str, *, kill_after: float | None
) -> tuple[Watched, str]:
    """Watch the job until it ends, or kill it at the given progress. Returns its last state and the whole log."""
    cursor: int | None = None
    log = ""
    with Progress(
        TextColumn("  {task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[words]}"),
        TimeElapsedColumn(),
        console=bars.errors,
    ) as bar:
        shown = bar.add_task(job, total=1.0, words="")
        while True:
            seen = await tenancy.follow(lease, job, cursor=cursor, wait_s=0.5, limit_bytes=65_536)
            cursor = seen.cursor
            log += seen.log
            if seen.progress is not None and seen.progress.fraction is not None:
                loss = seen.progress.metrics.get("loss")
                words = f"loss {loss:.4f}  " if loss is not None else ""
                cost = output.cost_of(seen)
                bar.update(shown, completed=seen.progress.fraction, words=f"{words}{cost}")
                if kill_after is not None and seen.progress.fraction >= kill_after:
                    kill_after = None
                    _kill()
            if seen.state in ENDED:
                if seen.state == "finished":
                    bar.update(shown, completed=1.0)
                return seen, log
            await asyncio.sleep(0)


def _kill() -> None:
    """Kill the demo's training process, as if its machine had failed."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            ours = _MARK.encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        if ours and b"train.py" in words:
            os.kill(int(entry.name), signal.SIGKILL)
