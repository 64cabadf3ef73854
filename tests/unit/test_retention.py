"""Which checkpoints are the last of their kind is told by their names, and what is unsure is never given up."""

from hashlib import sha256
from pathlib import Path

import pytest

from gpu_tenant.artifacts.retention import Retention, Wishes, checkpoints, surplus, wishes
from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.domain.seal import SealedFile

LAST_TWO = Retention(keep_last=2)


def file(name: str, at_s: int = 0, target: str | None = None) -> SealedFile:
    return SealedFile(
        name=f"work/{name}",
        at=f"/box/{name}",
        kind="link" if target else "file",
        role="artifact",
        size_bytes=1,
        sha256=sha256(name.encode()).hexdigest(),
        mtime_ns=at_s * 10**9,
        target=target,
    )


def gone(*names: str, policy: Retention = LAST_TWO, unsound: tuple[str, ...] = ()) -> list[str]:
    """What is not wanted of files that were written one after the other."""
    entries = [file(name, at_s) for at_s, name in enumerate(names)]
    found = surplus(entries, policy, unsound={f"work/{name}" for name in unsound})
    return [one.at.removeprefix("work/") for one in found]


@pytest.mark.parametrize(
    "names",
    [
        ["ckpt-1.pt", "ckpt-9.pt", "ckpt-10.pt"],
        ["out/step_0001.safetensors", "out/step_0009.safetensors", "out/step_0010.safetensors"],
        [
            "e/epoch=1-step=10-loss=0.51.ckpt",
            "e/epoch=1-step=20-loss=0.4.ckpt",
            "e/epoch=2-step=5-loss=0.3.ckpt",
        ],
        ["llama-7b-step-1.bin", "llama-7b-step-2.bin", "llama-7b-step-3.bin"],
    ],
)
def test_the_oldest_by_its_number_is_not_wanted(names: list[str]) -> None:
    assert gone(*names) == names[:1]


def test_a_directory_goes_whole_with_all_that_is_in_it() -> None:
    names = [
        f"c/checkpoint-{step}/{name}"
        for step in (100, 200, 300)
        for name in ("model.safetensors", "trainer_state.json", f"global_step{step}/mp_rank_00.pt")
    ]
    (one,) = surplus([file(name) for name in names], LAST_TWO)

    assert one.at == "work/c/checkpoint-100"
    assert len(one.entries) == 3


@pytest.mark.parametrize(
    "names",
    [
        ["rng_state_0.pth", "rng_state_1.pth", "rng_state_2.pth"],
        [
            "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
        ],
        ["samples/step-1.png", "samples/step-2.png", "samples/step-3.png"],
        ["epoch_1/plot.png", "epoch_2/plot.png", "epoch_3/plot.png"],
        ["run-1/model.pt", "run-2/model.pt", "run-3/model.pt"],
        ["v1-step-1.pt", "v2-step-2.pt", "v3-step-3.pt"],
        ["a/ckpt-1.pt", "b/ckpt-2.pt", "c/ckpt-3.pt"],
        ["best.pt", "last.pt", "final.pt"],
    ],
)
def test_what_is_no_checkpoint_or_not_of_one_kind_all_stays(names: list[str]) -> None:
    assert gone(*names) == []


def test_the_newest_that_load_are_counted_and_nothing_newer_than_them_goes() -> None:
    names = [f"ckpt-{step}.pt" for step in range(1, 6)]

    assert gone(*names) == names[:3]
    assert gone(*names, unsound=("ckpt-5.pt", "ckpt-3.pt")) == names[:1]
    assert gone(*names, unsound=tuple(names[1:])) == []


def test_a_run_that_began_again_keeps_what_it_wrote_last_too() -> None:
    assert gone("ckpt-7.pt", "ckpt-8.pt", "ckpt-9.pt", "ckpt-1.pt", "ckpt-2.pt") == ["ckpt-7.pt"]


def test_every_kth_step_stays_as_well_what_a_link_leads_to_and_what_is_spared() -> None:
    names = [f"ckpt-{step}.pt" for step in (500, 1000, 1500, 2000, 2500)]
    entries = [*map(file, names), file("best", target="ckpt-1500.pt")]

    found = surplus(entries, Retention(keep_every=1000), spared={"ckpt-500.pt"})

    assert found == []
    assert gone(*names, policy=Retention(keep_last=1, keep_every=1000)) == [
        "ckpt-500.pt",
        "ckpt-1500.pt",
    ]


def test_logs_and_links_are_no_checkpoints() -> None:
    assert checkpoints([file("step-1.pt", target="x"), file("train.log")]) == []


def test_what_the_owner_says_of_snapshots_is_read_and_what_makes_no_sense_is_refused(
    tmp_path: Path,
) -> None:
    said = tmp_path / "config.toml"

    assert wishes(said) == Wishes()
    said.write_text('[snapshots]\nkeep_last = 3\ndone = ["*.ok"]\nmb_s = 5\n', encoding="utf-8")
    assert wishes(said) == Wishes(keep_last=3, done=("*.ok",), mb_s=5)
    assert wishes(said).policy == Retention(keep_last=3)
    for wrong in ("keep_last = 0", "keep = 3", 'done = ["a/b"]'):
        said.write_text(f"[snapshots]\n{wrong}\n", encoding="utf-8")
        with pytest.raises(LocalTrouble, match=r"\[snapshots\]"):
            wishes(said)
