"""The caretaker in a Slurm allocation.

Slurm ends all processes of a step with the step. So jobs are not started by our own step, but by a runner that the
allocation's batch script started.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from gpu_tenant.box.caretaker import Caretaker, JobStatus, Role, Started
from gpu_tenant.box.job_queue import QueuedJob, Runner, TurnStatus
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import CaretakerFailed
from gpu_tenant.domain.model import Job, JobId, Lease
from gpu_tenant.domain.ports import Transport

_STARTED_WITHIN_S = 30
_LOOK_AGAIN_S = 0.5
_INTERRUPTED = "interrupted"


class AllocatedCaretaker(Caretaker):
    """A caretaker that queues its jobs for the allocation's own runner.

    If a job is interrupted by a preemption or the walltime, it runs again the next time that the allocation starts. The
    job's name then stands for its latest run.
    """

    def __init__(
        self,
        lease: Lease,
        transport: Transport,
        script: Path,
        runner: Path,
        *,
        key: str | None = None,
    ) -> None:
        super().__init__(lease, transport, script, key=key)
        self._runner = Runner(lease, transport, runner, caretaker=self)

    async def start(self, job: Job, *, env: Mapping[str, str], role: Role = "work") -> Started:
        """Start the job like `Caretaker.start`, and wait until the allocation's runner has started it.

        Raises:
            CaretakerFailed: the job still waits in the queue. It stays there; call again to check.
        """
        roll = await self._runner.roll()
        waits = any(turn.state == "queued" for turn in roll.jobs)
        runs = sum(turn.state == "running" for turn in roll.jobs)
        # Add a slot, so that the job runs at once beside those that run now. But if other jobs wait
        # in the queue, leave the number of slots as it is.
        slots = None if waits else max(roll.slots, runs + 1)
        queued = await self._runner.queue(
            [QueuedJob(job=job, env=env)], slots=slots, runner="elsewhere"
        )
        give_up = asyncio.get_running_loop().time() + _STARTED_WITHIN_S
        while True:
            turn = await self._turn(job.id)
            if turn is not None and turn.started_at is not None:
                return Started(
                    job=job.id, pid=0, started_at=turn.started_at, already=bool(queued.already)
                )
            if asyncio.get_running_loop().time() > give_up:
                raise CaretakerFailed(
                    f"{job.id} is queued, but the allocation's runner has not started it yet",
                    remedy=(
                        f"run the same launch with its {Option('name')} to check again; {Command('leases')} "
                        "shows the box"
                    ),
                )
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def status(
        self, job: JobId, *, offset: int, limit: int, sample: Literal["sample", "plain"]
    ) -> JobStatus:
        """Return the status of the latest run, like `Caretaker.status`. A job that will run again is *starting*."""
        seen = await super().status(job, offset=offset, limit=limit, sample=sample)
        if seen.reason is None or seen.reason.code != _INTERRUPTED:
            return seen
        turn = await self._turn(job)
        if turn is None:
            return seen
        if turn.run not in (None, job):
            seen = await super().status(
                JobId(turn.run or job), offset=offset, limit=limit, sample=sample
            )
        again = {"state": "starting"} if turn.state in ("queued", "needs_env") else {}
        return seen.model_copy(update={"job": job, **again})

    async def stop(self, job: JobId, *, grace_s: float) -> JobStatus:
        """Stop the job like `Caretaker.stop`. If it waits to run again, withdraw it from the queue."""
        turn = await self._turn(job)
        if turn is not None:
            await self._runner.withdraw([job])
        run = turn.run if turn is not None and turn.run is not None else job
        ended = await super().stop(JobId(run), grace_s=grace_s)
        return ended.model_copy(update={"job": job})

    async def _turn(self, job: JobId) -> TurnStatus | None:
        roll = await self._runner.roll()
        return next((turn for turn in roll.jobs if turn.job == job), None)
