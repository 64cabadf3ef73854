"""Finds a job that ended because its box was taken, and the command that launches it again on the same box."""

from gpu_tenant.domain.command import Command, quoted
from gpu_tenant.domain.model import Fate, Lease
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.terms import duration_words
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.ledger import Ledger


def again_step(ledger: Ledger, lease: Lease, job: str) -> Command:
    """Return the command that launches that job again on its box.

    If the job belongs to a run, the command continues the run. Otherwise it is the same launch command.
    """
    run = open_run_of(ledger, lease)
    if run is not None and job.startswith(run):
        return Command("run", resume=run)
    told = next((x for x in ledger.jobs(lease.id) if x.id == job), None)
    if told is None:
        return Command("launch", lease=lease.id, artifact="PATTERN", then="COMMAND")
    return Command(
        "launch",
        lease=lease.id,
        artifact=told.artifacts,
        discard=told.discard,
        env=told.env_from,
        max_runtime_h=told.max_runtime_s and f"{told.max_runtime_s / 3600:g}",
        stalled_after=told.stalled_after_s and duration_words(told.stalled_after_s),
        then=quoted(told.command),
    )


def open_run_of(ledger: Ledger, lease: Lease) -> str | None:
    """Return the open run (`run` command) that uses that lease. None if there is none."""
    runs = (ledger.open_errand_of(each.id) for each in ledger.lineage(lease))
    return next((run for run in runs if run is not None), None)


def cut_off_job(events: Lines) -> str | None:
    """Return the newest job if it ended because its box was taken. None if not, or if its work went on elsewhere."""
    cut_off = story_of(events).cut_off_job
    return None if cut_off is None else cut_off.id


def newest_launched(events: Lines) -> str | None:
    """Return the job that was launched last. None if none was."""
    return story_of(events).newest


def died_unseen(events: Lines) -> Fate | None:
    """If the box was taken while its newest job ran, and runs again, return how it was taken. Otherwise None.

    The job ended when the box was taken, even if nobody has looked at the job since.
    """
    return story_of(events).died_unseen
