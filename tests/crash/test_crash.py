"""The program is killed before and after every single effect of a lease; the next one goes on.

The test writes itself: the story runs once to count its moments, then once for each, and is killed
there with SIGKILL in a process of its own. A fresh process takes over, and the invariants are asserted.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from crash.mortal import Fate, mortal_tenancy
from waited import over

from gpu_tenant.domain.errors import TenantError, UnknownLease
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.files.state_dir import Home
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy

AT_ONCE = max(2, os.cpu_count() or 2)
EVERY = 1 if os.environ.get("GPU_TENANT_TORTURE") else 7
"""Every so many moments; `make torture` visits them all."""
ALWAYS = ("before create", "after create", "before destroy", "after destroy")
"""These are visited by name: how many moments lie before them differs from run to run."""
MODEL = '{"weights": [1, 2, 3]}'
STATE_BYTES = 1_200_000
"""Enough to come in pieces."""


async def story(tenancy: Tenancy, world: Path) -> None:
    """One lease from wish to receipt, going on from wherever the ledger says it stands."""
    told = await tenancy.list_leases("all")
    live = [card.lease for card in told.leases if card.state.live]
    ended = [card.lease for card in told.leases if card.state is LeaseState.GONE]
    if ended and not live:
        return
    lease = live[0] if live else (await tenancy.provision(smoke="none")).lease
    try:
        await work(tenancy, lease, world)
    except TenantError:
        # A teardown that was cut short has no box to work on, and only the verb itself goes on.
        if tenancy.ledger.lease(lease).state is not LeaseState.TERMINATING:
            raise
    await tenancy.verify_and_teardown(lease)


async def work(tenancy: Tenancy, lease: str, world: Path) -> None:
    """The job's artifacts are here."""
    await tenancy.push(lease, str(world / "tree"))
    await tenancy.launch_detached(lease, f"sh train.sh {world}", ["out/"], name="train")
    seen = await over(tenancy, lease)
    assert seen.state == "finished", seen
    await tenancy.collect(lease)


def live_through(directory: Path, dies_at: int | str | None) -> int:
    """How a process of its own ended that lived through the story, or died at that moment of it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        told = directory / f"moments-{'all' if dies_at is None else 'cut'}"
        fate = Fate(dies_at, told)

        async def once() -> None:
            tenancy = mortal_tenancy(directory / "state", fate, directory / "world")
            try:
                await story(tenancy, directory / "world")
            finally:
                await tenancy.aclose()

        asyncio.run(once())
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        (directory / "error").write_text(repr(error), encoding="utf-8")
        os._exit(1)
    os._exit(0)


def a_world(directory: Path) -> Path:
    tree = directory / "world" / "tree"
    tree.mkdir(parents=True)
    (tree / "train.sh").write_text(
        f"echo ran >> $1/ran\nmkdir -p out\nhead -c {STATE_BYTES} /dev/urandom > out/state.bin\n"
        f"echo '{MODEL}' > out/model.tmp\nmv out/model.tmp out/model.json\n",
        encoding="utf-8",
    )
    return directory


def wrongs(directory: Path) -> list[str]:
    """Every invariant that does not hold in the world after the story was told to its end."""
    world, home = directory / "world", Home(directory / "state")
    ledger = Ledger(home.ledger)
    leases = ledger.leases()
    found: list[str] = []

    def holds(statement: object, words: str) -> None:
        if not statement:
            found.append(words)

    ledger.check()
    destroyed = (world / "destroyed").read_text(encoding="utf-8").splitlines()
    ran = (world / "ran").read_text(encoding="utf-8").split()
    gone = [lease for lease in leases if lease.state is LeaseState.GONE]
    holds(len(gone) == 1, f"one lease ends with a receipt, not {[lease.state for lease in leases]}")
    holds(not any(lease.state.live for lease in leases), "no lease is left live")
    holds(not [p for p in home.boxes.iterdir() if not p.name.startswith(".")], "no box is left")
    holds(len(ran) == 1, f"the job ran once, not {len(ran)} times")
    holds(
        all(line.endswith(f"verified {MODEL}") for line in destroyed),
        f"unsafe destroy: {destroyed}",
    )
    for lease in gone:
        receipt = ledger.receipt(lease.id)
        holds(receipt is not None and receipt.ground == "verified", "the receipt says verified")
        kinds = Counter(line.kind for line in ledger.events(lease.id))
        holds(kinds["launched"] == 1, f"one launch is on record, not {kinds['launched']}")
    ledger.close()
    return found


def sampled(moments: int, every: int) -> list[int | str]:
    """As many moments as every so many of them are, with those at which a box is made or destroyed."""
    most = len(range(0, moments, every))
    if most == moments:
        return list(range(moments))
    others = most - len(ALWAYS)
    return [*ALWAYS, *(moments * n // others for n in range(others))]


def die_and_go_on(root: Path, moment: int | str) -> list[str]:
    """What is wrong after a process died at that moment and another took over."""
    directory = a_world(root / f"at-{str(moment).replace(' ', '-')}")
    status = live_through(directory, moment)
    if moment in ALWAYS and status != -signal.SIGKILL:
        return ["it did not die there"]
    if live_through(directory, None) != 0:
        return [(directory / "error").read_text(encoding="utf-8")]
    return wrongs(directory)


@pytest.mark.timeout(900)
def test_a_kill_at_any_moment_loses_nothing_and_repeats_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    whole = a_world(tmp_path / "whole")
    assert live_through(whole, None) == 0, (whole / "error").read_text(encoding="utf-8")
    assert wrongs(whole) == []
    moments = (whole / "moments-all").read_text(encoding="utf-8").splitlines()

    # Forked before any thread is started, because the workers fork again.
    with get_context("fork").Pool(AT_ONCE) as pool:
        visited = sampled(len(moments), EVERY)
        found = pool.map(partial(die_and_go_on, tmp_path), visited, chunksize=1)
    results = [
        (at if isinstance(at, str) else moments[at], wrong)
        for at, wrong in zip(visited, found, strict=True)
    ]

    record_property("crash_cases", len(results))
    print(f"{len(results)} crash cases")
    assert len(results) > 80 // EVERY
    assert len(results) == len(range(0, len(moments), EVERY))
    assert [(at, name, wrong) for at, (name, wrong) in enumerate(results) if wrong] == []


@pytest.mark.parametrize(("moments", "every"), [(150, 7), (150, 1), (90, 7)])
def test_the_moments_around_a_box_are_always_among_those_that_are_tried(
    moments: int, every: int
) -> None:
    tried = sampled(moments, every)

    assert len({*tried}) == len(tried) == len(range(0, moments, every))
    assert every == 1 or {*ALWAYS} <= {*tried}
    assert all(0 <= at < moments for at in tried if isinstance(at, int))


def test_a_fresh_ledger_knows_nothing(tmp_path: Path) -> None:
    """The harness itself: a world nobody lived in has no lease to find."""
    with pytest.raises(UnknownLease):
        Ledger(tmp_path / "ledger.sqlite3").lease("local-none")
