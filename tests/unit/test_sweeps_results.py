"""A sweep's table tells each cell's metric, time and cost, and the best comes first."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from arranged import lease
from unit.test_sweeps_status import ONE, SWEEP, TEN, TWO, A, put

from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.sweep_placement import Placement
from gpu_tenant.sweeps.results import link_by_cell, with_results
from gpu_tenant.sweeps.status import Reckoning, reckon


def ran(cell: str, began_at: float, ended_at: float, runs: int = 1) -> Placement:
    placed = put(cell, A, "finished")
    assert placed.said is not None
    said = placed.said.model_copy(
        update={"began_at": began_at, "ended_at": ended_at, "attempts": runs}
    )
    return placed.model_copy(update={"said": said})


def box(directory: Path | None, **more: object) -> Lease:
    kept = None if directory is None else str(directory)
    update = {"id": A, "kept_in": kept, "quote": None, "price_usd_h": Decimal("1.8"), **more}
    return lease().model_copy(update=update)


def log(directory: Path, name: str, *lines: str) -> None:
    (directory / "log").mkdir(exist_ok=True)
    (directory / "log" / f"{name}.log").write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(
    placements: list[Placement], leases: Mapping[str, Lease], by: str | None = None
) -> Reckoning:
    found = reckon(SWEEP, placements, {}, leases=[A])
    return with_results(found, SWEEP, placements, leases, by=by)


def test_the_lowest_loss_comes_first_with_its_time_and_its_cost(tmp_path: Path) -> None:
    log(tmp_path, ONE, "step 1 loss 0.9", "step 2 loss 0.5 acc 0.7")
    log(tmp_path, TWO, "step 2 loss 0.2 acc 0.6")

    found = table([ran(ONE, 100, 460), ran(TWO, 460, 1180)], {A: box(tmp_path)})

    assert found.by == "loss, the lowest first"
    assert [row.cell for row in found.rows] == [TWO, ONE, TEN]
    best = found.rows[0]
    assert (best.took_s, best.cost_usd, best.metrics) == (
        720,
        Decimal("0.3600"),
        {"loss": 0.2, "acc": 0.6},
    )
    assert found.best == f"{TWO}, loss 0.2"
    assert (found.rows[2].took_s, found.rows[2].cost_usd, found.rows[2].metrics) == (None, None, {})


def test_what_grows_as_it_gets_better_is_sorted_from_above_where_it_is_asked_for(
    tmp_path: Path,
) -> None:
    log(tmp_path, ONE, "step 2 loss 0.5 acc 0.7")
    log(tmp_path, TWO, "step 2 loss 0.2 acc 0.6")

    found = table([ran(ONE, 0, 1), ran(TWO, 0, 1)], {A: box(tmp_path)}, by="acc")

    assert found.by == "acc, the highest first"
    assert [row.cell for row in found.rows][:2] == [ONE, TWO]


def test_slots_share_what_their_box_costs_and_a_free_box_costs_nothing(tmp_path: Path) -> None:
    shared = SWEEP.model_copy(update={"slots": 2})
    placements = [ran(ONE, 0, 3600)]

    def cost(of: Lease) -> Decimal | None:
        found = reckon(shared, placements, {}, leases=[A])
        return with_results(found, shared, placements, {A: of}).rows[0].cost_usd

    assert cost(box(tmp_path)) == Decimal("0.9000")
    assert cost(box(tmp_path, price_usd_h=None)) is None


def test_a_second_run_has_a_log_of_its_own(tmp_path: Path) -> None:
    log(tmp_path, ONE, "loss 0.9")
    log(tmp_path, f"{ONE}.2", "loss 0.1")

    found = table([ran(ONE, 0, 1, runs=2)], {A: box(tmp_path)})

    assert found.rows[0].metrics == {"loss": 0.1}


def test_without_a_metric_the_order_of_the_grid_stays_and_nan_is_never_the_best(
    tmp_path: Path,
) -> None:
    log(tmp_path, ONE, "loss nan")
    log(tmp_path, TWO, "loss 0.3")

    bare = table([ran(ONE, 0, 1)], {A: box(None)})
    found = table([ran(ONE, 0, 1), ran(TWO, 0, 1)], {A: box(tmp_path)})

    assert (bare.by, [row.cell for row in bare.rows]) == (None, [ONE, TWO, TEN])
    assert bare.best is None
    assert found.rows[0].cell == TWO
    assert found.doubtful == (f"{ONE}: loss is nan",)


def test_a_cell_that_failed_is_not_the_best_however_low_its_loss(tmp_path: Path) -> None:
    log(tmp_path, ONE, "loss 0.1")
    log(tmp_path, TWO, "loss 0.3")
    failed = ran(ONE, 0, 1)
    assert failed.said is not None
    said = failed.said.model_copy(update={"word": "failed"})

    found = table([failed.model_copy(update={"said": said}), ran(TWO, 0, 1)], {A: box(tmp_path)})

    assert found.rows[0].cell == ONE
    assert found.best == f"{TWO}, loss 0.3"


def test_each_cell_that_ended_well_has_a_link_to_its_files(tmp_path: Path) -> None:
    files, folder = tmp_path / "kept", tmp_path / "sweeps" / "sw-1"
    files.mkdir()
    (files / "r").write_text("1", encoding="utf-8")
    rows = [
        row.model_copy(update={"files": str(files)})
        for row in table([ran(ONE, 0, 1)], {A: box(tmp_path)}).rows
    ]

    made = link_by_cell(folder, rows)
    again = link_by_cell(folder, rows)

    assert made
    assert again
    assert [link.name for link in folder.iterdir()] == [ONE]
    assert (folder / ONE / "r").read_text(encoding="utf-8") == "1"
