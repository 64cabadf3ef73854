"""A checkpoint that lacks a part is not fetched while its job runs, not resumed from, and protects the whole ones."""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from unit.layouts import LAYOUTS, SAFE
from unit.test_snapshot import Running

from gpu_tenant.artifacts.checkpoints import newest
from gpu_tenant.artifacts.half_checkpoints import files_of_half_checkpoints, files_without_the_rest
from gpu_tenant.artifacts.prune import prune_here
from gpu_tenant.artifacts.retention import Retention

INDEX = {"weight_map": {"a": "m-00001-of-00002.safetensors", "b": "m-00002-of-00002.safetensors"}}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    with closing(made.ledger):
        yield made


def save(running: Running, step: int, shards: int) -> None:
    """Save as transformers does, an hour ago, with so many of two shards."""
    place = running.out / f"checkpoint-{step}"
    place.mkdir()
    (place / "m.safetensors.index.json").write_text(json.dumps(INDEX), encoding="utf-8")
    for shard in range(shards):
        (place / f"m-0000{shard + 1}-of-00002.safetensors").write_bytes(SAFE)
    (place / "trainer_state.json").write_text("{}", encoding="utf-8")


async def test_a_half_checkpoint_stays_on_the_box_while_its_job_runs_and_the_whole_one_comes(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(running, 100, 2)
    save(running, 200, 1)
    for path in running.out.rglob("*"):
        os.utime(path, (1, 1))

    seen = await running.look()

    assert sorted(path.name for path in running.here.iterdir()) == ["checkpoint-100"]
    assert seen.unfinished_files == 3


async def test_a_job_resumes_from_the_newest_whole_checkpoint_and_the_half_one_is_named(
    running: Running,
) -> None:
    save(running, 100, 2)
    save(running, 200, 2)
    await running.look()
    (running.out / "checkpoint-200" / "m-00002-of-00002.safetensors").unlink()
    running.saves("notes.txt", "x")
    await running.look()

    found = await newest(running.lease, ledger=running.ledger)

    assert found is not None
    assert {name.split("/")[2] for name in found.files} == {"checkpoint-100", "notes.txt"}
    assert found.half == (
        "out/checkpoint-200 is incomplete: m-00002-of-00002.safetensors is missing",
    )


async def test_where_only_an_older_snapshot_has_a_whole_checkpoint_that_one_is_resumed_from(
    running: Running,
) -> None:
    save(running, 100, 2)
    await running.look()
    for path in (running.out / "checkpoint-100").iterdir():
        path.unlink()
    save(running, 200, 2)
    (running.out / "checkpoint-200" / "m-00002-of-00002.safetensors").write_bytes(SAFE[:-1])
    (running.out / "notes.txt").write_text("x", encoding="utf-8")
    await running.look()

    found = await newest(running.lease, ledger=running.ledger)

    assert found is not None
    assert {name.split("/")[2] for name in found.files} == {"checkpoint-100"}
    assert len(found.half) == 1


async def test_an_older_pointer_goes_back_where_the_newest_names_a_half_checkpoint(
    running: Running,
) -> None:
    for step in (1, 2):
        place = running.out / f"global_step{step}"
        place.mkdir()
        (place / "mp_rank_00_model_states.pt").write_bytes(SAFE)
        (place / "zero_pp_rank_0_mp_rank_00_optim_states.pt").write_bytes(SAFE)
        running.saves("latest", f"global_step{step}")
        await running.look()
    (running.out / "global_step2" / "mp_rank_00_model_states.pt").unlink()
    running.saves("notes.txt", "x")
    await running.look()

    found = await newest(running.lease, ledger=running.ledger)

    assert found is not None
    assert sorted(found.files) == [
        "work/out/global_step1/mp_rank_00_model_states.pt",
        "work/out/global_step1/zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "work/out/latest",
        "work/out/notes.txt",
    ]
    entry, path = found.files["work/out/latest"]
    assert (path.read_text("utf-8"), entry.size_bytes) == ("global_step1", len("global_step1"))


async def test_a_half_checkpoint_does_not_count_among_those_that_are_kept(running: Running) -> None:
    save(running, 100, 2)
    save(running, 200, 2)
    await running.look()
    (running.here / "checkpoint-200" / "m-00002-of-00002.safetensors").unlink()

    pruned = await prune_here(
        running.lease, Retention(keep_last=1), directory=running.kept, ledger=running.ledger
    )

    assert pruned.here == ()
    assert (running.here / "checkpoint-100" / "m-00002-of-00002.safetensors").exists()


def test_what_is_no_part_of_a_state_spoils_no_checkpoint() -> None:
    files = dict.fromkeys(
        ("work/checkpoint-5/model.safetensors", "work/checkpoint-5/trainer_state.json")
    )

    assert files_of_half_checkpoints(files, ["work/checkpoint-5/loss.png"]) == {}
    assert set(files_of_half_checkpoints(files, ["work/checkpoint-5/optimizer.pt"])) == set(files)


def test_parts_of_a_result_are_fetched_before_the_last_of_them_is_there() -> None:
    rows = [f"work/epoch-1/rows-{i:05}-of-00100.jsonl" for i in range(3)]

    assert files_without_the_rest(rows, ()) == set()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_names_alone_never_hold_back_a_whole_set(layout: str) -> None:
    names = [f"work/out/step-7/{name}" for name in LAYOUTS[layout].files]

    assert files_without_the_rest(names, ()) == set()
