"""Whoever looks for a standing wish is killed at each moment of it; the next one goes on, and one box is had."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path

import pytest
from contract.test_providers import CREATE
from crash.mortal import Fate
from crash.rented import Scene

from gpu_tenant.domain.model import LeaseState
from gpu_tenant.leases.wait import look_for_all
from gpu_tenant.service import Tenancy

pytestmark = pytest.mark.timeout(600)
TORTURE = bool(os.environ.get("GPU_TENANT_TORTURE"))
EVERY, NEAR = (1, 0) if TORTURE else (25, 2)
"""Far from the create every so many moments one is tried; so near to it, each."""
CASES = [("vastai", None), ("runpod", "drop_after")]
if TORTURE:
    CASES = [
        (slug, fault) for slug in ("vastai", "runpod") for fault in (None, "drop_after", "late")
    ]


@pytest.mark.parametrize(("provider", "fault"), CASES)
def test_one_box_is_had_whoever_is_killed_at_whichever_moment(
    provider: str, fault: str | None, tmp_path: Path
) -> None:
    scene = Scene(provider, tmp_path / "scene")
    try:
        told = tmp_path / "told"
        assert _begun(scene, "whole", fault) == 0, _error(scene, "whole")
        assert _lives(scene, "whole", None, told, _looks) == 0, _error(scene, "whole")
        moments = told.read_text(encoding="utf-8").splitlines()
        create = next(int(line.split()[0]) for line in moments if line.endswith("before create"))
        for moment in range(len(moments)):
            if abs(moment - create) > NEAR and moment % EVERY:
                continue
            case = f"dies-{moment}"
            assert _begun(scene, case, fault) == 0, _error(scene, case)
            assert _lives(scene, case, moment, tmp_path / case, _looks) != 0
            assert _lives(scene, case, None, tmp_path / f"{case}-on", _looks) == 0, (
                moments[moment],
                _error(scene, case),
            )
            _one_box(scene, case, moments[moment])
    finally:
        scene.close()


def _one_box(scene: Scene, case: str, moment: str) -> None:
    for _ in range(2):  # what comes late, and then its place in a list that lags
        scene.ask("clock", {"advance_s": 1200})
    tenancy = scene.tenancy(case, Fate(None, scene.directory / "last"))
    try:
        (wish,) = {row["wish"] for row in _rows(tenancy) if row["wish"]}
        states = [lease.state for lease in tenancy.ledger.leases()]
        assert tenancy.ledger.wish(str(wish)).outcome == "had", moment
        assert states.count(LeaseState.ACTIVE) == 1, (moment, states)
        assert len(scene.ask("meter")["running"]) == 1, moment
    finally:
        tenancy.ledger.close()


def _rows(tenancy: Tenancy) -> list[dict[str, object]]:
    return tenancy.ledger._read(dict, "SELECT wish FROM leases")


def _begun(scene: Scene, case: str, fault: str | None) -> int:
    """A wish stands there, and from now on there is an offer for it, at a provider with that fault."""
    scene.ask("reset", {})

    async def stands(tenancy: Tenancy) -> None:
        found = await tenancy.find_offers()
        lowest = min(x.running_usd_h for x in found.offers if x.running_usd_h)
        scene.ask("faults", [{"do": "price_moved", "amount": 2}])
        found = await tenancy.find_offers(max_price_usd_h=lowest * Decimal("1.2"))
        assert not found.offers, found
        card = await tenancy.provision(
            quotes=[str(found.wish)], smoke="none", unguarded="accept", wait_h=100, wait_s=0
        )
        assert card.phase == "waiting", card

    status = _lives(scene, case, None, scene.directory / f"{case}-begun", stands)
    scene.ask("faults", [{"do": "price_moved", "amount": 0.5}])
    if fault is not None:
        method, path = CREATE[scene.provider]
        match = {"method": method, "path_regex": path}
        scene.ask("faults", [{"do": fault, "seconds": 60, "match": match}])
    return status


async def _looks(tenancy: Tenancy) -> None:
    """As a watchdog does, until the wish has ended."""
    for _ in range(60):
        await tenancy.clock.sleep(60)
        await look_for_all(tenancy.context)
        if not tenancy.ledger.standing_wishes():
            return
    raise AssertionError([wish.seen for wish in tenancy.ledger.standing_wishes()])


def _lives(
    scene: Scene,
    case: str,
    dies_at: int | None,
    told: Path,
    does: Callable[[Tenancy], Awaitable[None]],
) -> int:
    """How a process of its own ended that did that, or died at that moment of it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:

        async def once() -> None:
            tenancy = scene.tenancy(case, Fate(dies_at, told))
            try:
                await does(tenancy)
            finally:
                await tenancy.aclose()

        asyncio.run(once())
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        (scene.directory / f"{case}-error").write_text(repr(error), encoding="utf-8")
        os._exit(1)
    os._exit(0)


def _error(scene: Scene, case: str) -> str:
    return (scene.directory / f"{case}-error").read_text(encoding="utf-8")
