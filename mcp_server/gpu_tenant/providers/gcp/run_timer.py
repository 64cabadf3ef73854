"""Google's own timer on a box: how long it is set for, and when it stops the box."""

from datetime import datetime, timedelta

from gpu_tenant.providers.gcp.client import Message

_AFTER_S, _LEAST_S, _LONGEST_S = 60, 30, 120 * 86400
"""How much longer than the lease the timer is set for, and the range that it can be set to.

The timer starts with the box, which is later than the order, and may fire half a minute late. Together that is at
most two minutes after the deadline. The timer can be set to between 30 seconds and 120 days.
"""


def run_s(left_s: float) -> int:
    """Return how many seconds a box may run if its lease ends in `left_s` seconds."""
    return min(max(_LEAST_S, int(left_s) + _AFTER_S), _LONGEST_S)


def fires_at(instance: Message) -> datetime | None:
    """Return when Google stops that box by itself. None if the box does not run or has no timer."""
    seconds = int(instance.scheduling.max_run_duration.seconds)
    started = instance.last_start_timestamp
    if not seconds or not started or instance.status not in ("RUNNING", "STAGING", "PROVISIONING"):
        return None
    return datetime.fromisoformat(started) + timedelta(seconds=seconds)
