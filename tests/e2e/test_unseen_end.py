"""What nobody saw is unknown: how long a job ran that ended with all that watched it."""

from pathlib import Path

from browser.states import Work, somebody
from e2e.leased import end_processes


async def test_how_long_a_job_ran_whose_end_nobody_saw_is_unknown(tmp_path: Path) -> None:
    """As after an outbid box has started again: its log stops, and the clock went on."""
    with somebody(tmp_path) as person:
        async with person.tenancy() as tenancy:
            lease = await Work(tmp_path / "work").launched(tenancy, command="sleep 1000")
            running = await tenancy.monitor(lease, wait_s=0)

            end_processes(person.state / "boxes")
            ended = await tenancy.monitor(lease, wait_s=0)

    assert (running.state, ended.state) == ("running", "killed")
    assert running.running_s is not None
    assert ended.running_s is None
