"""What became of each cell: what boxes said and what came home, held against what was declared."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from arranged import NOON

from gpu_tenant.artifacts.inventory import Here
from gpu_tenant.domain.model import JobId, LeaseId
from gpu_tenant.domain.sweep_grid import grid_of
from gpu_tenant.domain.sweep_placement import Placement, Released, Said, Settlement, Sweep, Word
from gpu_tenant.sweeps.status import Reckoning, reckon, stands_in_the_way

A, B = LeaseId("box-a"), LeaseId("box-b")
SWEEP = Sweep(
    id="sw-1",
    grid=grid_of("t {x}", artifacts=["out/{cell}/", "{cell}.json"], matrix={"x": [1, 2, 10]}),
    env_names=(),
    env_from=(),
    max_runtime_s=None,
    attempts=1,
    slots=None,
    python="image",
    at=NOON,
)
ONE, TWO, TEN = "x-1", "x-2", "x-10"


def put(
    cell: str,
    lease: LeaseId,
    word: Word | None,
    *,
    released: Released | None = None,
    job: str | None = None,
    seq: int = 0,
) -> Placement:
    """That cell on that lease, of which the box said `word` at noon."""
    said = word and Said(word=word, attempts=1, reason="exit", heard_at=NOON)
    return Placement(
        seq=seq,
        cell=cell,
        lease_id=lease,
        job=JobId(job or cell),
        at=NOON,
        released=released,
        said=said or None,
    )


def files(*cells: str, same: str | None = None) -> dict[str, str]:
    """All that those cells declare, of bytes of their own or the `same`."""
    return {
        name: same or f"{name}'s"
        for cell in cells
        for name in (f"work/out/{cell}/model.pt", f"work/{cell}.json")
    }


def sealed(held: Mapping[str, str], *jobs: str) -> Here:
    """What a collect brought after those jobs had ended."""
    return Here(held, ended=frozenset(map(JobId, jobs)))


def table(
    *placements: Placement,
    settled: tuple[Settlement, ...] = (),
    given_up: tuple[str, ...] = (),
    **here: Here,
) -> Reckoning:
    held = {LeaseId(name.replace("_", "-")): one for name, one in here.items()}
    return reckon(SWEEP, placements, held, leases=[A, B], settlements=settled, given_up=given_up)


def states(found: Reckoning) -> dict[str, str]:
    return {row.cell: row.state for row in found.rows}


@pytest.mark.parametrize(
    ("word", "state"),
    [
        (None, "queued"),
        ("queued", "queued"),
        ("needs_env", "queued"),
        ("running", "running"),
        ("finished", "finished"),
        ("failed", "failed"),
        ("killed", "failed"),
        ("stopped", "failed"),
    ],
)
def test_a_cell_stands_as_its_box_last_said(word: Word | None, state: str) -> None:
    found = table(put(ONE, A, word))

    assert states(found) == {ONE: state, TWO: "waiting", TEN: "waiting"}
    assert found.counts["waiting"] == 2


def test_a_finished_cell_is_verified_when_all_that_it_declared_came_home() -> None:
    found = table(
        put(ONE, A, "finished"),
        put(TWO, A, "finished"),
        put(TEN, B, "finished"),
        box_a=sealed(files(ONE, TWO), ONE, TWO),
    )

    assert states(found) == {ONE: "verified", TWO: "verified", TEN: "finished"}
    assert (found.wrong, found.settled_by) == ((), None)


def test_what_declared_two_things_and_left_one_is_missing() -> None:
    held = files(ONE, TWO)
    del held[f"work/{ONE}.json"]

    found = table(put(ONE, A, "finished"), put(TWO, A, "finished"), box_a=sealed(held, ONE, TWO))

    assert (states(found)[ONE], states(found)[TWO]) == ("missing", "verified")
    assert found.wrong == (
        "x-1 finished on box-a, but not all the files that it declares were there",
    )


def test_the_files_of_a_cell_whose_name_goes_on_are_not_another_s() -> None:
    found = table(
        put(ONE, A, "finished"), put(TEN, A, "finished"), box_a=sealed(files(TEN), ONE, TEN)
    )

    assert (states(found)[ONE], states(found)[TEN]) == ("missing", "verified")


def test_a_cell_that_ran_after_the_seal_is_not_judged_by_it() -> None:
    assert states(table(put(ONE, A, "finished"), box_a=sealed({}, TWO)))[ONE] == "finished"


@pytest.mark.parametrize(
    ("after_s", "lacking", "state"),
    [
        (5, frozenset(), "verified"),
        (-5, frozenset(), "finished"),
        (5, frozenset({f"work/out/{ONE}/last.pt"}), "finished"),
        (5, frozenset({f"work/out/{TEN}/last.pt"}), "verified"),
    ],
)
def test_a_snapshot_proves_a_cell_that_had_ended_and_of_which_nothing_stayed(
    after_s: int, lacking: frozenset[str], state: str
) -> None:
    here = Here(files(ONE), lacking=lacking, as_of=NOON + timedelta(seconds=after_s))

    assert states(table(put(ONE, A, "finished"), box_a=here))[ONE] == state


def test_the_same_cell_on_two_boxes_is_a_duplicate_and_what_was_lost_is_not() -> None:
    twice = table(put(ONE, A, "finished", released="withdrawn"), put(ONE, B, "finished"))
    lost = table(put(ONE, A, "finished", released="lost"), put(ONE, B, "finished"))
    again = table(put(ONE, A, "finished", released="again"), put(ONE, B, "finished"))

    assert twice.wrong == ("x-1 finished on box-a and on box-b, so it has more than one result",)
    assert [states(found)[ONE] for found in (twice, lost, again)] == [
        "duplicate",
        "finished",
        "finished",
    ]


def test_cells_of_the_same_bytes_in_every_file_are_twins_and_of_some_are_not() -> None:
    nearly = files(ONE, TWO, TEN, same="alike") | {f"work/{TEN}.json": "its own"}

    found = table(
        put(ONE, A, "finished"),
        put(TWO, A, "finished"),
        put(TEN, A, "finished"),
        box_a=sealed(nearly, ONE, TWO, TEN),
    )

    assert found.twins == ((ONE, TWO),)
    assert found.wrong == ("the files of x-1, x-2 are identical, although their parameters differ",)
    assert not stands_in_the_way(found, A), "that is a verdict, and keeps no box"


def test_a_settlement_is_for_exactly_what_was_wrong_then() -> None:
    failed = [put(ONE, A, "failed")]
    seen = table(*failed)
    by = Settlement(digest=seen.digest, wrong=seen.wrong, by="ada", at=NOON)

    accepted = table(*failed, put(TWO, A, "running"), settled=(by,))
    worse = table(*failed, put(TWO, A, "failed"), settled=(by,))

    assert (accepted.settled_by, worse.settled_by) == ("ada", None)
    assert stands_in_the_way(accepted, A) == "x-2 of sw-1 is still to run there"
    assert not stands_in_the_way(worse, A), "nothing is still to run there"


def test_what_was_tried_again_is_not_accepted_by_the_word_about_the_first_time() -> None:
    seen = table(put(ONE, A, "failed"))
    by = Settlement(digest=seen.digest, wrong=seen.wrong, by="ada", at=NOON)

    again = table(
        put(ONE, A, "failed", released="again"), put(ONE, A, "failed", job="x-1.r2"), settled=(by,)
    )

    assert again.settled_by is None
    assert again.rows[0].attempts == 2


def test_a_cell_that_ended_by_itself_is_told_with_its_status() -> None:
    ended = Said(word="failed", attempts=1, reason="exit", exit_code=2, heard_at=NOON)
    found = table(put(ONE, A, "failed").model_copy(update={"said": ended}))

    assert found.rows[0].why == "exit 2"


def test_what_was_given_up_is_neither_open_nor_wrong_once_it_is_on_no_box() -> None:
    found = table(put(ONE, A, "queued"), given_up=(ONE, TWO, TEN))

    assert states(found) == {ONE: "queued", TWO: "given_up", TEN: "given_up"}
    assert (found.still_open, found.wrong) == (1, ())


def test_a_finished_cell_whose_box_is_no_more_is_missing_if_its_files_are_not_here() -> None:
    over = Here(files(TWO), ended=frozenset({JobId(TWO)}), more="never")

    found = table(put(ONE, A, "finished"), put(TWO, A, "finished"), box_a=over)

    assert (states(found)[ONE], states(found)[TWO]) == ("missing", "verified")
