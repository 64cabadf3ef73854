"""Waiting for what a busy machine takes its time over."""

from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.service import Tenancy


async def over(
    tenancy: Tenancy, lease: str, job: str | None = None, *, wait_s: float = 45
) -> Watched:
    """The last look at a job, which has ended.

    With `wait_s` 0 no time passes on a clock that runs ahead of the world.
    """
    while (seen := await tenancy.monitor(lease, job, wait_s=wait_s)).state not in ENDED:
        assert seen.state != "absent", seen
    return seen
