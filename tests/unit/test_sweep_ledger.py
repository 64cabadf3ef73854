"""What the ledger holds of sweeps, and holds against any program that opens its file."""

import sqlite3
from pathlib import Path

import pytest
from arranged import LEASE, NOON, active, job

from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.model import Job, JobId, LeaseId
from gpu_tenant.domain.sweep_grid import grid_of
from gpu_tenant.domain.sweep_placement import Placement, Said, Sweep, Word
from gpu_tenant.ledger import Ledger

OTHER = LeaseId("local-efgh")
ONE, TWO = "x-1", "x-2"
SWEEP = Sweep(
    id="",
    grid=grid_of("t {x}", artifacts=["{cell}/"], matrix={"x": [1, 2]}),
    env_names=(),
    env_from=(),
    max_runtime_s=None,
    attempts=1,
    slots=None,
    python="image",
    at=NOON,
)


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """One with a sweep on two boxes, whose first cell is on the first of them."""
    active(ledger)
    active(ledger, OTHER)
    ledger.declare_sweep(SWEEP)
    ledger.join_sweep("sw-1", [LEASE, OTHER], at=NOON)
    ledger.place("sw-1", {ONE: cell_job(ONE)}, at=NOON)
    return ledger


def cell_job(name: str, lease: LeaseId = LEASE) -> Job:
    return job(name, artifacts=(f"{name}/",)).model_copy(update={"lease_id": lease})


def placed(ledger: Ledger) -> Placement:
    return ledger.placements("sw-1")[-1]


def told(ledger: Ledger, word: Word) -> None:
    """The box has said that of the newest placement."""
    ledger.note_reports({placed(ledger).seq: Said(word=word, heard_at=NOON)})


def let_go(path: Path, placement: Placement, why: str) -> str:
    """What another program is told that would let the cell go."""
    raw = sqlite3.connect(path, isolation_level=None)
    try:
        raw.execute("INSERT INTO releases VALUES (?, ?, 't')", (placement.seq, why))
    except sqlite3.IntegrityError as refused:
        return str(refused)
    finally:
        raw.close()
    return "done"


def test_a_cell_is_put_once_whoever_asks_and_its_lease_counts_as_used(ledger: Ledger) -> None:
    again = ledger.place("sw-1", {ONE: cell_job(ONE, OTHER), TWO: cell_job(TWO, OTHER)}, at=NOON)

    assert again == [TWO]
    assert [(p.cell, p.lease_id) for p in ledger.placements("sw-1")] == [(ONE, LEASE), (TWO, OTHER)]
    assert ledger.lease(LEASE).touched_at == NOON
    assert ledger.declarations(LEASE) == ([f"{ONE}/"], [])


def test_a_withdrawn_cell_declares_nothing_there_and_may_go_elsewhere(ledger: Ledger) -> None:
    told(ledger, "queued")
    ledger.release([placed(ledger)], "withdrawn", at=NOON)
    ledger.release([placed(ledger)], "withdrawn", at=NOON)

    assert ledger.declarations(LEASE) == ([], [])
    assert ledger.place("sw-1", {ONE: cell_job(ONE, OTHER)}, at=NOON) == [ONE]


@pytest.mark.parametrize("word", ["running", "finished", "failed"])
def test_what_has_begun_is_never_withdrawn_whatever_its_box_says_then(
    ledger: Ledger, ledger_file: Path, word: Word
) -> None:
    told(ledger, word)
    told(ledger, "queued")

    ledger.release([placed(ledger)], "withdrawn", at=NOON)

    assert placed(ledger).released is None
    assert "what has begun is not withdrawn" in let_go(ledger_file, placed(ledger), "withdrawn")


def test_only_a_box_that_is_no_more_loses_its_cells(ledger: Ledger, ledger_file: Path) -> None:
    assert "a box that may exist keeps its cells" in let_go(ledger_file, placed(ledger), "lost")

    ledger.end(LEASE, "lost", at=NOON)

    assert let_go(ledger_file, placed(ledger), "lost") == "done"


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (None, "may still run"),
        ("running", "may still run"),
        ("needs_env", "may still run"),
        ("failed", "done"),
        ("finished", "done"),
    ],
)
def test_only_what_has_ended_is_begun_again(
    ledger: Ledger, ledger_file: Path, word: Word | None, answer: str
) -> None:
    if word is not None:
        told(ledger, word)

    assert answer in let_go(ledger_file, placed(ledger), "again")


def test_only_what_is_new_is_put_down(ledger: Ledger, ledger_file: Path) -> None:
    for word in ("queued", "queued", "running", "running"):
        told(ledger, word)  # type: ignore[arg-type]

    raw = sqlite3.connect(ledger_file)
    assert raw.execute("SELECT word FROM reports").fetchall() == [("queued",), ("running",)]
    raw.close()


def test_cells_that_a_box_took_are_launched_once(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.cells_launched("sw-1", [JobId(ONE)], LEASE, at=NOON, box_time_s=7.5)

    assert ledger.jobs(LEASE)[0].launched_at == NOON
    assert ledger.began_s(LEASE) == 7.5


def test_of_two_launches_of_one_grid_at_once_there_is_one_sweep(ledger: Ledger) -> None:
    assert ledger.declare_sweep(SWEEP).id == "sw-1"
    assert ledger.declare_sweep(SWEEP, after="sw-1").id == "sw-2"
    assert ledger.declare_sweep(SWEEP, after="sw-1").id == "sw-2"


def test_a_name_that_another_job_has_got_is_refused_in_words_and_nothing_is_put(
    ledger: Ledger,
) -> None:
    ledger.declare(cell_job("other", OTHER))

    with pytest.raises(Refused, match="does not allow that now"):
        ledger.place("sw-1", {TWO: cell_job("other", OTHER)}, at=NOON)

    assert [p.cell for p in ledger.placements("sw-1")] == [ONE]


def test_what_may_still_run_is_not_let_go_and_that_is_told_in_words(ledger: Ledger) -> None:
    with pytest.raises(Refused, match="a box that may exist keeps its cells"):
        ledger.release([placed(ledger)], "lost", at=NOON)


def test_a_cell_that_was_given_up_is_put_nowhere(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.give_up("sw-1", [TWO], at=NOON)

    assert ledger.given_up("sw-1") == {TWO}
    assert ledger.place("sw-1", {TWO: cell_job(TWO)}, at=NOON) == []
