"""The verdict on the work: what a job's end, its log and its files say, whatever the exit status says."""

import json
from pathlib import Path

import pytest

from gpu_tenant.artifacts.file_sets import incomplete_sets
from gpu_tenant.domain.outcome import Doubt, outcome_from
from gpu_tenant.jobs.failure_patterns import last_crash

TRACEBACK = """Traceback (most recent call last):
  File "/root/gpu-tenant/l-1/work/train.py", line 3, in <module>
    import no_such_module
  File "/usr/lib/python3.11/importlib/__init__.py", line 126, in import_module
    return _bootstrap._gcd_import(name)
ModuleNotFoundError: No module named 'no_such_module'
"""


def test_the_worst_reason_decides_and_comes_first() -> None:
    seen = outcome_from(
        [
            Doubt("suspect", "a"),
            Doubt("failed", "b"),
            Doubt("incomplete", "c"),
            Doubt("suspect", "a"),
        ]
    )

    assert (seen.grade, seen.words) == ("failed", "failed: b; c; a")
    assert outcome_from([]).words == "done"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (TRACEBACK, "ModuleNotFoundError: No module named 'no_such_module' at train.py:3"),
        (
            f"{TRACEBACK}done\n",
            "ModuleNotFoundError: No module named 'no_such_module' at train.py:3",
        ),
        ("step 1\nsh: 1: pyhton: not found\n", "sh: 1: pyhton: not found"),
        ("run.sh: line 4:   77 Segmentation fault      ./train", None),
        ("Killed\n", "Killed"),
        (f"{TRACEBACK}retrying in 3 s\n", ""),
        (TRACEBACK + "step 2 loss 0.5\nstep 3 loss 0.4\nsaved\n", ""),
        ("step 1\nno error was found\n", ""),
        ("", ""),
    ],
)
def test_only_the_very_end_of_a_log_tells_a_crash(log: str, words: str | None) -> None:
    seen = last_crash(log)

    assert (seen.words if seen else "") == (log.strip() if words is None else words)


INDEX = {
    "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
}

SETS = {
    "a shard by its number": (
        ("c/model-00001-of-00002.safetensors",),
        "work/c is incomplete: model-00002-of-00002.safetensors is missing",
    ),
    "the first of parts from 0": (
        ("d/x-00001-of-00003.tfrecord", "d/x-00000-of-00003.tfrecord"),
        "x-00002-of-00003.tfrecord is missing",
    ),
    "what an index lists": (
        ("c/model.safetensors.index.json",),
        "model-00001-of-00002.safetensors, ",
    ),
    "the weights of an adapter": (
        ("lora/adapter_config.json",),
        "no file like adapter_model.safetensors",
    ),
    "the weights of a checkpoint": (
        ("checkpoint-5/trainer_state.json",),
        "no file like *.safetensors",
    ),
    "the parts of a distributed one": (("dcp/.metadata",), "no file like *.distcp"),
}

WHOLE_SETS = (
    ("c/model-00001-of-00002.safetensors", "c/model-00002-of-00002.safetensors"),
    ("c/model-00000-of-00002.safetensors", "c/model-00001-of-00002.safetensors"),
    ("data-00000-of-00001.arrow",),
    ("out/trainer_state.json", "out/metrics.json"),
    ("checkpoint-5/trainer_state.json", "checkpoint-5/global_step5/mp_rank_00_model_states.pt"),
    ("lora/adapter_config.json", "lora/adapter_model.bin"),
    ("dcp/.metadata", "dcp/__0_0.distcp"),
    ("epoch-1-of-10.pt",),
)


def kept(directory: Path, names: tuple[str, ...]) -> list[str]:
    for name in names:
        path = directory / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(INDEX), encoding="utf-8")
    return [f"work/{name}" for name in names]


@pytest.mark.parametrize("what", SETS)
def test_a_set_that_lacks_a_part_is_named_with_the_part(tmp_path: Path, what: str) -> None:
    names, words = SETS[what]

    (told,) = incomplete_sets(kept(tmp_path, names), tmp_path)

    assert words.removeprefix("work/") in told


@pytest.mark.parametrize("names", WHOLE_SETS)
def test_a_whole_set_is_not_called_incomplete(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert list(incomplete_sets(kept(tmp_path, names), tmp_path)) == []


@pytest.mark.parametrize(
    "content", ["[1, 2]", "{", '{"weight_map": 3}', '{"weight_map": {"a": 1}}']
)
def test_an_index_that_cannot_be_read_lists_nothing(tmp_path: Path, content: str) -> None:
    names = kept(tmp_path, ("model.safetensors.index.json",))
    (tmp_path / names[0]).write_text(content, encoding="utf-8")

    assert list(incomplete_sets(names, tmp_path)) == []
