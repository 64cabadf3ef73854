"""Whoever drives an errand is killed at each moment of it; the same line again ends it, with one box and one receipt."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.mortal import Fate, mortal_tenancy
from crash.rented import Scene
from errands import MODEL, a_tree, an_errand, goes_on

from gpu_tenant.domain.model import LeaseState
from gpu_tenant.errands.answers import ErrandStatus
from gpu_tenant.files.state_dir import Home
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy

pytestmark = pytest.mark.timeout(7200 if os.environ.get("GPU_TENANT_TORTURE") else 900)
TORTURE = bool(os.environ.get("GPU_TENANT_TORTURE"))
CASES = 100_000 if TORTURE else 2
"""So many moments of each story, spread over it, besides those at the create and the destroy."""
AT = ["vastai", "runpod", "lambda_cloud"] if TORTURE else ["vastai"]

Opens = Callable[[Fate], Tenancy]


def lives(directory: Path, opens: Opens, dies_at: int | None, told: Path, **said: object) -> int:
    """How a process of its own ended that went on with the errand, or died at that moment of it."""
    return ended(starts(directory, opens, dies_at, told, **said))


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def starts(directory: Path, opens: Opens, dies_at: int | None, told: Path, **said: object) -> int:
    """The process that goes on with the errand."""
    child = os.fork()
    if child:
        return child
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)

        async def once() -> ErrandStatus:
            tenancy = opens(Fate(dies_at, told))
            try:
                return await goes_on(tenancy, an_errand(tenancy, directory / "tree", **said))
            finally:
                await tenancy.aclose()

        standing = asyncio.run(once())
        for name in ("standing", f"standing-{os.getpid()}"):
            (directory / name).write_text(standing.model_dump_json(), encoding="utf-8")
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        (directory / "error").write_text(repr(error), encoding="utf-8")
        os._exit(1)
    os._exit(0)


def wrongs(directory: Path, ledger_at: Path) -> list[str]:
    """Every promise that does not hold after the same line was given again."""
    standing = ErrandStatus.model_validate_json(
        (directory / "standing").read_text(encoding="utf-8")
    )
    ledger = Ledger(ledger_at)
    leases = ledger.leases()
    gone = [lease for lease in leases if lease.state is LeaseState.GONE]
    found = []
    if standing.outcome != "done" or standing.ended is None:
        found.append(f"it did not end well: {standing}")
    elif [ledger.receipt(lease.id) for lease in gone] != [standing.ended.receipt]:
        found.append(f"not the one receipt that is on record: {standing.ended}")
    elif (Path(standing.ended.receipt.kept_in or "") / "work/out/model.json").read_text(
        encoding="utf-8"
    ).strip() != MODEL:
        found.append("the model is not here")
    if any(lease.state.live for lease in leases) or len(gone) != 1:
        found.append(f"the leases: {[(lease.id, lease.state) for lease in leases]}")
    ran = (directory / "ran").read_text(encoding="utf-8").split()
    if ran != ["ran"]:
        found.append(f"the job ran {len(ran)} times")
    ledger.close()
    return found


def chosen(moments: list[str]) -> list[int]:
    """The moments at which somebody dies: some all over the story, and all that are around an effect that bills.

    The last moment is no death: the answer was shown, and that is on record. The same line is then a new errand.
    """
    assert moments[-1].endswith(" after ledger")
    moments = moments[:-1]
    every = max(1, len(moments) // CASES)
    near = {
        int(line.split()[0])
        for line in moments
        if line.endswith((" create", " destroy", "run start"))
    }
    return sorted({*range(every // 2, len(moments), every), *near})


def test_a_kill_at_any_moment_here_and_the_same_line_again(tmp_path: Path) -> None:
    def case(name: str, dies_at: int | None) -> tuple[Path, list[str]]:
        directory = tmp_path / name
        a_tree(directory / "tree")

        def opens(fate: Fate) -> Tenancy:
            return mortal_tenancy(directory / "state", fate, directory)

        if dies_at is not None:
            status = lives(directory, opens, dies_at, directory / "cut", on="local")
            assert status == -signal.SIGKILL
        if lives(directory, opens, None, directory / "told", on="local") != 0:
            return directory, [(directory / "error").read_text(encoding="utf-8")]
        return directory, wrongs(directory, Home(directory / "state").ledger)

    whole, wrong = case("whole", None)
    assert wrong == []
    moments = (whole / "told").read_text(encoding="utf-8").splitlines()
    for moment in chosen(moments):
        _, wrong = case(f"at-{moment}", moment)
        assert wrong == [], moments[moment]
    print(f"local: {len(chosen(moments))} moments, 0 wrong")


@pytest.mark.parametrize("provider", AT)
def test_a_kill_at_any_moment_of_a_rented_errand_rents_no_second_box(
    provider: str, tmp_path: Path
) -> None:
    scene = Scene(provider, tmp_path / "scene")

    def case(name: str, dies_at: int | None) -> tuple[Path, list[str]]:
        directory = tmp_path / name
        a_tree(directory / "tree")
        scene.ask("reset", {})

        def opens(fate: Fate) -> Tenancy:
            return scene.tenancy(name, fate)

        if dies_at is not None:
            status = lives(directory, opens, dies_at, directory / "cut", smoke="none")
            assert status == -signal.SIGKILL
        if lives(directory, opens, None, directory / "told", smoke="none") != 0:
            return directory, [(directory / "error").read_text(encoding="utf-8")]
        wrong = wrongs(directory, scene.home(name).ledger)
        meter = scene.ask("meter")
        if meter["running"] or meter["parked"] or meter["leaked"]:
            wrong.append(f"something bills: {meter}")
        return directory, wrong

    try:
        whole, wrong = case("whole", None)
        assert wrong == []
        moments = (whole / "told").read_text(encoding="utf-8").splitlines()
        for moment in chosen(moments):
            _, wrong = case(f"at-{moment}", moment)
            assert wrong == [], moments[moment]
        print(f"{provider}: {len(chosen(moments))} moments, 0 wrong")
    finally:
        scene.close()


@pytest.mark.parametrize("provider", AT)
def test_two_copies_of_the_same_line_at_once_rent_one_box(provider: str, tmp_path: Path) -> None:
    scene = Scene(provider, tmp_path / "scene")
    try:
        scene.ask("reset", {})
        a_tree(tmp_path / "tree")

        def opens(fate: Fate) -> Tenancy:
            return scene.tenancy("both", fate)

        copies = [
            starts(tmp_path, opens, None, tmp_path / f"told-{copy}", smoke="none")
            for copy in range(2)
        ]

        assert [ended(copy) for copy in copies] == [0, 0]
        assert wrongs(tmp_path, scene.home("both").ledger) == []
        one, other = (
            ErrandStatus.model_validate_json((tmp_path / f"standing-{copy}").read_text("utf-8"))
            for copy in copies
        )
        assert one.ended is not None
        assert other.ended is not None
        assert one.ended.receipt == other.ended.receipt
        meter = scene.ask("meter")
        assert [meter[kind] for kind in ("running", "parked", "leaked") if meter[kind]] == []
    finally:
        scene.close()
