"""One script for each kind of request: what a right agent does. They prove that each task can be done."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from pydantic import JsonValue

from evals.episodes.careful import Careful, GaveUp
from evals.episodes.desk import Answer, Desk
from evals.episodes.task import Task
from evals.tasks.states import World

_PAUSE_S: Final = 60.0
_HOURS: Final = 3


async def carry_out(world: World, desk: Desk) -> str:
    """Do what the person asked for. Returns the last word to them."""
    try:
        return await _SCRIPTS[world.request.kind](world, desk)
    except GaveUp as why:
        return f"gave up: {why}"


async def _errand(world: World, desk: Desk) -> str:
    budget = world.request.budget_usd
    more: dict[str, JsonValue] = {} if budget is None else {"budget_usd": str(budget)}
    return await Careful(desk, _task(world), more).run()


async def _look(world: World, desk: Desk) -> str:
    card = await _card(desk)
    seen = await desk.call("monitor", lease=str(card["lease"]), wait_s=0)
    price = f"{card['price_usd_h']} USD an hour"
    if seen.code is not None:
        return f"The box does not answer: {seen.words}. It bills {price}. I changed nothing."
    return f"The job is {seen.text('state')}; the box bills {price}. I changed nothing."


async def _home(world: World, desk: Desk) -> str:
    card = await _card(desk)
    return await Careful(desk, _task(world)).brought_home(str(card["lease"]))


async def _again(world: World, desk: Desk) -> str:
    card = await _card(desk)
    return await Careful(desk, _task(world)).run_again(str(card["lease"]))


async def _price(world: World, desk: Desk) -> str:
    found = await desk.call(
        "find_offers", gpu=world.request.gpu, provider=world.request.provider, hours=1
    )
    cheapest = min(float(str(row["running_usd_h"])) for row in found.rows("offers"))
    return f"The cheapest is {cheapest} USD an hour. Nothing is rented."


async def _cap(world: World, desk: Desk) -> str:
    cap = world.request.cap_usd_h
    found = await desk.call(
        "find_offers",
        gpu=world.request.gpu,
        provider=world.request.provider,
        hours=_HOURS,
        max_price_usd_h=cap,
    )
    if found.rows("offers"):
        raise GaveUp("something fits the cap")
    return f"Nothing is offered for at most {cap} USD an hour. Nothing is rented."


async def _park(world: World, desk: Desk) -> str:
    card = await _card(desk)
    parked = await _until_done(desk, "change_lease", lease=card["lease"], action="park")
    if parked.code is not None:
        return f"It cannot be parked: {parked.words}"
    return f"It is parked, at {parked.text('price_usd_h')} USD an hour. {parked.text('next')}"


async def _extend(world: World, desk: Desk) -> str:
    card = await _card(desk)
    changed = await _until_done(
        desk, "change_lease", lease=card["lease"], action="extend", hours=_HOURS
    )
    return changed.words if changed.code else f"It ends in {_HOURS} hours now."


async def _why(world: World, desk: Desk) -> str:
    card = await _card(desk)
    seen = await desk.call("monitor", lease=str(card["lease"]), wait_s=0)
    return f"The job is {seen.text('state')}: {seen.body.get('why')} {seen.text('log')}"


async def _account(world: World, desk: Desk) -> str:
    said = await _home(world, desk)
    told = await desk.call("list_leases")
    theirs = ", ".join(str(row["box"]) for row in told.rows("foreign"))
    return f"{said}. Not mine, and left as it is: {theirs}"


async def _ask(world: World, desk: Desk) -> str:
    card = await _card(desk)
    seen = await desk.call("monitor", lease=str(card["lease"]), wait_s=0, cursor=0)
    losses = re.findall(r"loss ([0-9.]+)", seen.text("log"))
    return f"If this computer sleeps: {card['stops_the_meter']}. Last loss: {losses[-1:]}"


_SCRIPTS: Final[Mapping[str, Callable[[World, Desk], Awaitable[str]]]] = {
    "errand": _errand,
    "look": _look,
    "home": _home,
    "again": _again,
    "price": _price,
    "cap": _cap,
    "park": _park,
    "no park": _park,
    "extend": _extend,
    "why": _why,
    "account": _account,
    "ask": _ask,
}


async def _card(desk: Desk) -> dict[str, JsonValue]:
    told = await desk.call("list_leases")
    if told.code is not None or not told.rows("leases"):
        raise GaveUp(f"there is no lease: {told.words}")
    return told.rows("leases")[0]


async def _until_done(desk: Desk, tool: str, **arguments: JsonValue) -> Answer:
    """Call again while another process works on the lease."""
    for _ in range(5):
        answer = await desk.call(tool, **arguments)
        if answer.code != "LEASE_HELD":
            break
        desk.wait(_PAUSE_S)
    return answer


def _task(world: World) -> Task:
    return Task(world.tree, world.request.provider, 2)
