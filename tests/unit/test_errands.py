"""What the dashboard's page began: once for the same words, told to its end, and not cut where it changes the world."""

import asyncio
import logging
from functools import partial

import pytest
from arranged import HandClock

from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.record import Record
from gpu_tenant.faces.dashboard.background_tasks import Errand, Errands


class Said(Record):
    next: str = "`gpu-tenant teardown own-ab12`"


def errands() -> tuple[Errands, list[Errand]]:
    told: list[Errand] = []
    return Errands(HandClock(), changed=told.append, ended=lambda: None), told


async def test_the_same_asked_twice_is_done_once_and_other_words_are_refused() -> None:
    made, told = errands()
    enough, begun = asyncio.Event(), []

    async def act() -> Record:
        begun.append(1)
        await enough.wait()
        return Said()

    first = made.begin("extend", "L", act, asked="4")
    assert made.begin("extend", "L", act, asked="4").id == first.id
    with pytest.raises(Refused, match="under way"):
        made.begin("extend", "L", act, asked="24")
    made.begin("extend", "M", act, asked="24")
    enough.set()
    await made.aclose()

    assert len(begun) == 2
    assert [e.state for e in made.newest_first] == ["done", "done"]
    assert told[-1].result == {"next": "`gpu-tenant teardown own-ab12`"}


async def test_what_nobody_foresaw_is_told_without_a_claim_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made, _ = errands()

    async def act() -> Record:
        raise ZeroDivisionError

    made.begin("teardown", "L", act, asked="")
    await made.aclose()

    (errand,) = made.newest_first
    assert errand.error is not None
    assert "ZeroDivisionError" in errand.error.message
    assert "destroyed" not in errand.error.message
    assert caplog.record_tuples[0][1] == logging.ERROR


async def test_at_the_end_a_collect_is_cut_and_a_teardown_is_waited_for() -> None:
    made, _ = errands()
    ended: list[str] = []

    async def long(verb: str) -> Record:
        await asyncio.sleep(0.05 if verb == "teardown" else 60)
        ended.append(verb)
        return Said()

    for verb in ("collect", "teardown"):
        made.begin(verb, "L", partial(long, verb), asked="")
    assert made.under_way == ["teardown of L"]
    await made.aclose()

    assert ended == ["teardown"]
