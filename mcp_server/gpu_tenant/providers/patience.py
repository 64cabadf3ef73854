"""Repeats a request that a provider refuses only for now."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from gpu_tenant.domain.ports import Clock
from gpu_tenant.domain.waiting import wait_for
from gpu_tenant.providers.http_client import Reply

ASK_AGAIN_S = 10


async def insist(
    send: Callable[[], Awaitable[Reply]],
    *,
    is_passing: Callable[[Reply], object],
    within_s: float,
    clock: Clock,
    words: str,
) -> Reply:
    """Send the request until its answer is no passing refusal, for `within_s` at most. Return the last answer.

    `words` say what is waited for. Only a request that the refusal leaves undone may be sent in this way.
    """
    give_up_at = clock.now() + timedelta(seconds=within_s)
    while is_passing(reply := await send()) and clock.now() < give_up_at:
        wait_for(words, ends=f"given up at {give_up_at:%H:%M:%S} UTC")
        await clock.sleep(ASK_AGAIN_S)
    return reply
