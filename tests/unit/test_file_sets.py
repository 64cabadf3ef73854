"""Sets of files that belong together: of each kind, the whole one is whole, and without a part the part is named."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from unit.layouts import LAYOUTS, NO_SETS, SAFE

from gpu_tenant.artifacts.file_sets import HalfSet, cut_off_saves, half_sets

HALVES = [(layout, lost) for layout, made in LAYOUTS.items() for lost in made.needed]


def judged(directory: Path, files: Mapping[str, bytes], *discard: str) -> list[HalfSet]:
    kept: dict[str, Path | None] = {}
    for name, content in files.items():
        path = kept[f"work/out/{name}"] = directory / "work/out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return half_sets(kept, discard)


@pytest.mark.parametrize("files", [x.files for x in LAYOUTS.values()], ids=LAYOUTS)
def test_a_whole_set_is_whole(tmp_path: Path, files: Mapping[str, bytes]) -> None:
    assert judged(tmp_path, files) == []


@pytest.mark.parametrize("what", NO_SETS)
def test_what_only_looks_like_a_set_is_none(tmp_path: Path, what: str) -> None:
    assert judged(tmp_path, NO_SETS[what]) == []


@pytest.mark.parametrize(("layout", "lost"), HALVES)
def test_a_set_without_a_part_is_half_and_the_part_is_named(
    tmp_path: Path, layout: str, lost: str
) -> None:
    files = {
        name: content
        for name, content in LAYOUTS[layout].files.items()
        if name != lost and not (lost.endswith("/") and name.startswith(lost))
    }

    halves = judged(tmp_path, files)

    assert any(LAYOUTS[layout].needed[lost] in half.words for half in halves), halves


def test_the_words_name_the_place_and_some_of_what_lacks(tmp_path: Path) -> None:
    (half,) = judged(tmp_path, {"c/m-00001-of-00006.safetensors": SAFE})

    assert half.words == (
        "out/c is incomplete: m-00002-of-00006.safetensors, m-00003-of-00006.safetensors, "
        "m-00004-of-00006.safetensors, and 2 more files are missing"
    )
    assert half.members == {"work/out/c/m-00001-of-00006.safetensors"}


def test_what_its_owner_gave_up_does_not_lack(tmp_path: Path) -> None:
    files = {"checkpoint-5/latest": b"global_step5", "checkpoint-5/model.safetensors": SAFE}

    assert judged(tmp_path, files, "global_step*/") == []
    assert judged(tmp_path, files, "*.log") != []


def test_a_name_that_a_save_has_until_it_is_whole_is_found() -> None:
    names = [
        "work/out/tmp-checkpoint-500/model.safetensors",
        "work/out/tmp-checkpoint-500/optimizer.pt",
        "work/out/7.orbax-checkpoint-tmp-123/state/d/a",
        "work/out/model.safetensors.tmp",
        "work/out/last-unfinished",
        "work/out/temperature.csv",
        "work/out/tmp/a.pt",
    ]

    assert cut_off_saves(names) == [
        "work/out/7.orbax-checkpoint-tmp-123",
        "work/out/last-unfinished",
        "work/out/model.safetensors.tmp",
        "work/out/tmp-checkpoint-500",
    ]
