"""Thirty models were trained on a CPU and on a GPU: the smoke test's estimate, beside what the GPU's driver said."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_tenant.domain.gpu_memory import GIB
from gpu_tenant.jobs.memory_estimate import estimate

MB = 1 << 20
STEP: dict[str, Any] = {
    "steps": 1,
    "autocast": [],
    "windows": [
        {
            "most": [900 * MB, 1000 * MB],
            "level": [500 * MB, 700 * MB],
            "left": 10 * MB,
            "gradients": 100 * MB,
            "state": 0,
            "attention": [0, 0],
            "step_most": [700 * MB, 900 * MB],
            "after": [700 * MB, 900 * MB],
            "state_after": 200 * MB,
        }
    ],
    "optimizers": [],
    "parameters": {"torch.float32": 100 * MB},
    "buffers": 0,
    "gradients": 100 * MB,
    "malloc": True,
}
"""What the probe notes of one step, with round figures."""


def adamw(**options: str) -> dict[str, Any]:
    usual = {"foreach": "None", "fused": "None", "weight_decay": "0.01"}
    usual |= {"decoupled_weight_decay": "True", **options}
    groups = [{"bytes": {"torch.float32": 100 * MB}, "options": usual}]
    return {"name": "torch.optim.adamw.AdamW", "groups": groups}


def parts(**changed: Any) -> dict[str, int]:
    found = estimate([{**STEP, **changed}])
    assert found is not None
    return {name: bytes_ // MB for name, bytes_ in found.parts.items()}


def test_what_was_there_before_the_step_and_is_no_tensor_of_it_cancels_out() -> None:
    found = parts()

    # 400 rose and fell within the step; of what then stood, gradients and outputs were of the step.
    assert found["batch"] == 400 + 10
    assert found["peak_of_tensors"] == 100 + 100 + 200 + 410


@pytest.mark.parametrize(
    ("options", "copies"),
    [
        ({}, 1),
        ({"fused": "True"}, 0),
        ({"foreach": "False"}, 0),
        ({"decoupled_weight_decay": "False"}, 2),
        ({"decoupled_weight_decay": "False", "weight_decay": "0"}, 1),
    ],
)
def test_the_optimizers_step_makes_copies_on_a_gpu_as_its_options_say(
    options: dict[str, str], copies: int
) -> None:
    assert parts(optimizers=[adamw(**options)])["optimizer_step"] == 100 * copies


def test_an_optimizer_of_the_jobs_own_is_taken_as_it_was_on_the_cpu() -> None:
    own = {**adamw(), "name": "train.AdamW"}

    assert parts(optimizers=[own])["optimizer_step"] == 0


def test_without_the_c_librarys_word_the_resident_memory_counts() -> None:
    assert parts(malloc=False)["batch"] == 300 + 10


def test_of_several_processes_the_largest_counts_and_none_means_no_estimate() -> None:
    small = {**STEP, "parameters": {"torch.float32": 1 * MB}}

    found = estimate([small, STEP, {"steps": "none"}])

    assert found is not None
    assert found.parts["parameters"] == 100 * MB
    assert estimate([]) is None


@pytest.mark.parametrize(
    ("gib", "fit", "words"),
    [(1, "too small", "1 GiB is too small"), (2.0, "tight", "2 GiB is tight"), (80, "fits", None)],
)
def test_a_gpu_is_too_small_below_the_low_end_and_tight_below_the_high_end(
    gib: float, fit: str, words: str | None
) -> None:
    found = estimate([STEP])
    assert found is not None
    found = found.model_copy(update={"low_bytes": int(1.5 * GIB), "high_bytes": int(2.5 * GIB)})

    warned = found.warning(gib, "smoke-1")

    assert found.fit(gib) == fit
    assert warned is None if words is None else (warned or "").startswith(words)
    assert found.fit(None) is None
    assert found.warning(None, "smoke-1") is None
