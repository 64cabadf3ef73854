"""Thirty models were trained on a CPU and on a GPU: the smoke test's estimate, beside what the GPU's driver said."""

import json
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from gpu_tenant.domain.gpu_memory import GIB
from gpu_tenant.jobs.memory_estimate import (
    CONTEXT_BYTES,
    UNUSED,
    WORKSPACE_BYTES,
    estimate,
)

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


# On a real GPU

RECORDED = [
    json.loads(line)
    for line in Path(__file__)
    .with_name("memory")
    .joinpath("h100.jsonl")
    .read_text("utf-8")
    .splitlines()
]
"""What `make real-gpu ARGS='--only estimate'` noted on an H100 machine: of each model both sides, unchanged.

In turn, one was used to choose the constants of the estimate, and one was not.
"""
CHOSEN, HELD_OUT = RECORDED[::2], RECORDED[1::2]


def ratio(row: dict[str, Any]) -> float:
    """The estimate, as a part of what the driver counted for the process on the GPU."""
    found = estimate([row["seen"]])
    assert found is not None
    return found.estimate_bytes / (float(row["gpu"]["smi_mib"][0]) * MB)


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["case"])
def test_the_estimate_is_within_a_quarter_of_what_the_driver_counted(row: dict[str, Any]) -> None:
    assert 0.75 <= ratio(row) <= 1.25


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["case"])
def test_the_tensors_alone_are_within_a_quarter_of_what_torch_counted(row: dict[str, Any]) -> None:
    """The driver's figure contains the context, which is the same for all and would hide an error."""
    found = estimate([row["seen"]])
    assert found is not None

    tensors = found.parts["peak_of_tensors"] + WORKSPACE_BYTES

    assert 0.75 <= tensors / row["gpu"]["peak_bytes"] <= 1.25


def test_the_constants_are_the_medians_of_one_half_and_hold_for_the_other() -> None:
    context, more, unused = [], [], []
    for row in CHOSEN:
        gpu, found = row["gpu"], estimate([row["seen"]])
        assert found is not None
        context.append(float(gpu["smi_mib"][0]) * MB - gpu["reserved_bytes"])
        more.append(gpu["peak_bytes"] - found.parts["peak_of_tensors"])
        unused.append(gpu["reserved_bytes"] / gpu["peak_bytes"] - 1)

    assert median(context) == pytest.approx(CONTEXT_BYTES, abs=4 * MB)
    assert median(more) == pytest.approx(WORKSPACE_BYTES, abs=4 * MB)
    assert median(unused) == pytest.approx(UNUSED, abs=0.005)
    assert len(HELD_OUT) == 15
    assert max(abs(ratio(row) - 1) for row in HELD_OUT) < 0.18
    assert mean(ratio(row) for row in HELD_OUT) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["case"])
def test_the_optimizers_step_peaks_on_the_gpu_as_it_is_counted(row: dict[str, Any]) -> None:
    """Between the end of the backward pass and the end of the step, a GPU holds no batch."""
    found = estimate([row["seen"]])
    assert found is not None
    p = found.parts

    held = p["parameters"] + p["gradients"] + p["optimizer_state"] + p["optimizer_step"]

    assert (
        0.75
        <= (held + row["seen"]["windows"][-1]["left"] + WORKSPACE_BYTES) / row["gpu"]["phases"][-1]
        <= 1.25
    )


def test_a_job_whose_autocast_is_for_cuda_alone_may_want_less() -> None:
    usual = estimate([{**STEP, "autocast": [["cpu", "torch.bfloat16", True]]}])
    off = estimate([{**STEP, "autocast": [["cuda", "torch.bfloat16", False]]}])
    assert usual is not None
    assert off is not None

    assert off.low_bytes == usual.low_bytes - 205 * MB
    assert off.words.endswith("so the batch was counted in full precision")
