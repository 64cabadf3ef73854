"""One look at a sweep, by what is on record and what lies here: what is let go, named, sent and refused."""

import os
from collections.abc import AsyncIterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from arranged import LEASE, NOON, TERMS, active, job, seal

from gpu_tenant.app import open_tenancy
from gpu_tenant.artifacts.inventory import files_here
from gpu_tenant.box.job_queue import Roll, RunnerStanding
from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.domain.sweep_grid import grid_of
from gpu_tenant.domain.sweep_placement import Placement, Said, Sweep, Word
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy
from gpu_tenant.sweeps.commands import begin_sweep, give_up_cells, tend
from gpu_tenant.sweeps.tend import Answered, _place, _resolve_values, _send, is_open

GRID = grid_of("t {x}", artifacts=["{cell}.txt"], matrix={"x": [1, 2]})
ONE, TWO = "x-1", "x-2"


@pytest.fixture
async def tenancy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tenancy]:
    """One with a sweep on one lease, whose first cell is there."""
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    opened = open_tenancy(os.environ)
    active(opened.ledger)
    far = TERMS.model_copy(update={"deadline_at": NOON + timedelta(days=36500)})
    opened.ledger.change_terms(LEASE, far, at=NOON)
    begun(opened.ledger)
    yield opened
    await opened.aclose()


def begun(ledger: Ledger, env_from: tuple[str, ...] = ()) -> Sweep:
    found = ledger.declare_sweep(
        Sweep(
            id="",
            grid=GRID,
            env_names=(),
            env_from=env_from,
            max_runtime_s=None,
            attempts=1,
            slots=None,
            python="prepared",
            at=NOON,
        )
    )
    ledger.join_sweep(found.id, [LEASE], at=NOON)
    ledger.place(found.id, {ONE: job(ONE, artifacts=(f"{ONE}.txt",))}, at=NOON)
    return found


def told(ledger: Ledger, word: Word) -> None:
    ledger.note_reports({placed(ledger)[0].seq: Said(word=word, attempts=1, heard_at=NOON)})


def placed(ledger: Ledger) -> list[Placement]:
    return ledger.placements("sw-1")


def came_home(ledger: Ledger, kept: Path, digest: str = "d1") -> Path:
    """The first cell's file and its log were collected, in a box that was sealed after it."""
    (kept / "work").mkdir(parents=True)
    (kept / "work" / f"{ONE}.txt").write_bytes(b"1")
    ledger.keep_in(LEASE, kept)
    entries = tuple(
        SealedFile(
            name=name,
            at=name,
            kind="file",
            role=role,
            size_bytes=1,
            sha256=sha256(b"1").hexdigest(),
            mtime_ns=1,
        )
        for name, role in ((f"work/{ONE}.txt", "artifact"), (f"log/{ONE}.log", "log"))
    )
    ledger.file_seal(LEASE, seal(digest).model_copy(update={"entries": entries}), at=NOON)
    ledger.note(LEASE, timeline.Collected(seal=digest), at=NOON)
    return kept / "work" / f"{ONE}.txt"


def answered(tenancy: Tenancy) -> Answered:
    """Its box, which knows of nothing and takes a cell at once."""
    roll = Roll(jobs=(), runner=RunnerStanding(state="none"), now=0.0)
    return Answered(tenancy.ledger.lease(LEASE), roll, slots=1, slot_gpus=None)


def test_a_collect_that_is_cut_short_hides_nothing_of_the_one_before(
    tenancy: Tenancy, tmp_path: Path
) -> None:
    came_home(tenancy.ledger, tmp_path / "kept")
    tenancy.ledger.file_seal(LEASE, seal("d2"), at=NOON)

    here = files_here(tenancy.ledger.lease(LEASE), ledger=tenancy.ledger)

    assert (list(here.files), list(here.ended)) == ([f"work/{ONE}.txt"], [ONE])


async def test_the_files_of_a_lost_box_are_read_once_and_that_is_on_record(
    tenancy: Tenancy, tmp_path: Path
) -> None:
    told(tenancy.ledger, "finished")
    file = came_home(tenancy.ledger, tmp_path / "kept")
    tenancy.ledger.end(LEASE, "lost", at=NOON)

    await tend(tenancy.context, "sw-1")
    file.rename(tmp_path / "elsewhere")
    again = await tend(tenancy.context, "sw-1")

    assert (placed(tenancy.ledger)[0].released, again.troubles) == (None, ())
    assert again.table.rows[0].state == "verified"


async def test_while_the_kept_directory_is_not_there_no_cell_of_a_lost_box_is_let_go(
    tenancy: Tenancy, tmp_path: Path
) -> None:
    told(tenancy.ledger, "finished")
    came_home(tenancy.ledger, tmp_path / "kept")
    tenancy.ledger.end(LEASE, "lost", at=NOON)
    (tmp_path / "kept").rename(tmp_path / "unmounted")

    (trouble,) = (await tend(tenancy.context, "sw-1")).troubles
    assert "kept, does not exist" in trouble
    assert placed(tenancy.ledger)[0].released is None

    (tmp_path / "unmounted").rename(tmp_path / "kept")
    assert (await tend(tenancy.context, "sw-1")).troubles == ()
    (tmp_path / "kept" / "work").rename(tmp_path / "elsewhere")
    assert placed(tenancy.ledger)[0].released is None


async def test_what_is_not_here_of_a_lost_box_runs_again(tenancy: Tenancy, tmp_path: Path) -> None:
    told(tenancy.ledger, "finished")
    came_home(tenancy.ledger, tmp_path / "kept").unlink()
    tenancy.ledger.end(LEASE, "lost", at=NOON)

    assert (await tend(tenancy.context, "sw-1")).table.rows[0].state == "waiting"


def test_a_cell_whose_name_another_job_has_got_meanwhile_is_put_under_the_next(
    tenancy: Tenancy,
) -> None:
    tenancy.ledger.declare(job(TWO))

    _place(tenancy.context, tenancy.ledger.sweep("sw-1"), [answered(tenancy)])

    assert [p.job for p in placed(tenancy.ledger)] == [ONE, f"{TWO}.r2"]


async def test_two_sweeps_whose_cells_have_the_same_names_never_share_a_box(
    tenancy: Tenancy,
) -> None:
    other = grid_of("other {x}", artifacts=["{cell}.txt"], matrix={"x": [2, 3]})

    with pytest.raises(
        BadRequest, match="has a job x-2 that does not belong to this sweep, or may get one"
    ):
        await begin_sweep(tenancy.context, [LEASE], other)

    assert tenancy.ledger.sweeps() == ["sw-1"]


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"attempts": 2}, "another `--attempts`"),
        ({"env": ["HOME=env:HOME"]}, "another `--env`"),
        ({"python": "image"}, "another `--python`"),
        ({"max_runtime_s": 60.0}, "another `--max-runtime-h`"),
        ({"slots": 2}, "another `--slots`"),
    ],
)
async def test_the_same_grid_on_other_terms_is_not_silently_the_old_sweep(
    tenancy: Tenancy, terms: dict[str, object], words: str
) -> None:
    allowed = '[references]\nHOME = "env:HOME"\n'
    tenancy.home.configuration.write_text(allowed, encoding="utf-8")
    with pytest.raises(BadRequest, match=words):
        await begin_sweep(tenancy.context, [LEASE], GRID, **terms)  # type: ignore[arg-type]


async def test_a_variable_that_would_not_be_on_record_is_refused_before_anything_begins(
    tenancy: Tenancy,
) -> None:
    with pytest.raises(BadRequest, match="MODE would not be on record"):
        await begin_sweep(tenancy.context, [LEASE], GRID, env=["MODE=text:full"])


async def test_no_cell_is_sent_without_the_variable_that_was_written_out(tenancy: Tenancy) -> None:
    sweep = tenancy.ledger.sweep("sw-1").model_copy(update={"env_from": ("MODE=text:",)})
    troubles: list[str] = []

    assert _resolve_values(tenancy.context, sweep, troubles) is None
    assert "MODE was given as plain text" in troubles[0]


async def test_nothing_is_launched_on_a_box_whose_end_began_since_it_was_asked(
    tenancy: Tenancy,
) -> None:
    box = answered(tenancy)
    tenancy.ledger.note(LEASE, timeline.Ending(), at=NOON)

    await _send(tenancy.context, tenancy.ledger.sweep("sw-1"), box, placed(tenancy.ledger), {})

    assert [line.kind for line in tenancy.ledger.events(LEASE)][-1] == timeline.Ending.kind


async def test_cells_that_wait_are_given_up_and_the_sweep_is_over(tenancy: Tenancy) -> None:
    told(tenancy.ledger, "finished")

    left = await give_up_cells(tenancy.context, "sw-1", "rest")

    assert [row.state for row in left.table.rows] == ["finished", "given_up"]
    assert not is_open(tenancy.context, tenancy.ledger.sweep("sw-1"))
    with pytest.raises(BadRequest, match="no cell 'x-9'"):
        await give_up_cells(tenancy.context, "sw-1", ["x-9"])
