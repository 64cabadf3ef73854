"""Repeats a request that a provider refuses only for now."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from gpu_tenant.domain.ports import Clock
from gpu_tenant.domain.waiting import wait_for
from gpu_tenant.providers.http_client import Reply, Wire

ASK_AGAIN_S = 10
NOT_NOW = (409, 422, 423)
"""The refusals of a delete. It has no body that could be wrong, so all of them are about the state of what it ends."""
_DELETE_WITHIN_S = 300


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


async def insist_on_delete(wire: Wire, path: str, *, clock: Clock, words: str) -> Reply:
    """Ask for the end of what is at that path until it is not refused for now, for five minutes at most."""
    return await insist(
        lambda: wire.call(
            "DELETE",
            path,
            expect=(204, 404, *NOT_NOW),
            repeatable="repeatable",
            urgent="teardown",
        ),
        is_passing=lambda reply: reply.status in NOT_NOW,
        within_s=_DELETE_WITHIN_S,
        clock=clock,
        words=words,
    )
