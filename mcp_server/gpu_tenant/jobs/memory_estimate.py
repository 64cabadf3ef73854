"""Estimates how much GPU memory a training needs, from what `memory_probe.py` measured in the same training on the CPU.

On the CPU and on a GPU a training holds the same tensors: parameters, gradients, the optimizer's state, and what
the forward pass keeps for the backward pass. A GPU needs more memory than that. This difference was measured on
some models, and is added here.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from gpu_tenant.domain.gpu_memory import GIB, GpuMemory
from gpu_tenant.domain.record import Record

# The first three are medians of fifteen models on an H100 with driver 580. They were tested with fifteen other models.
CONTEXT_BYTES = 760 << 20
"""A process takes this much GPU memory by the driver's count, besides the memory that torch takes."""
WORKSPACE_BYTES = 90 << 20
"""Torch's tensors take this much more memory on a GPU than on the CPU. Most of that is a workspace of cuBLAS."""
UNUSED = 0.12
"""Torch takes more memory from the driver than its tensors use at their peak: more by this share."""
ERROR = 0.25
"""The estimate may be too high or too low by this share. The worst error among the thirty models was 17 %."""

_MOST_BYTES = 1 << 20
_MOST_FILES = 64
_ONE_COPY = frozenset(
    ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta", "ASGD", "Rprop")
)
"""On a GPU, these optimizers update all parameters together, and copy them for that."""


Bytes = Annotated[int, Field(ge=0, le=1 << 50)]
"""A number of bytes in the range that the probe can write.

The range is checked, because the user's command can write into the probe's directory.
"""


class _Noted(Record):
    model_config = ConfigDict(extra="ignore")


class StepRecord(_Noted):
    """What was noted of one training step: from the end of the previous optimizer step to the end of this one."""

    most: tuple[Bytes, Bytes] = Field(
        description="the most memory in use before the optimizer's step, in two numbers: what malloc has given out, "
        "and what of the process is resident"
    )
    level: tuple[Bytes, Bytes] = Field(
        description="the same two numbers when the optimizer's step began"
    )
    left: Bytes
    gradients: Bytes
    state: Bytes
    step_most: tuple[Bytes, Bytes]
    state_after: Bytes
    attention: tuple[Bytes, Bytes] = Field(
        default=(0, 0),
        description="what attention with dropout kept for the backward pass, and the most that a single call of it "
        "keeps when it is computed again",
    )


class Group(_Noted):
    """Parameters that an optimizer treats alike."""

    bytes: Mapping[str, Bytes]
    options: Mapping[str, str]


class Optimizer(_Noted):
    """How one optimizer computes its step."""

    name: str
    groups: tuple[Group, ...]


class Seen(_Noted):
    """What the probe noted of one process."""

    steps: int
    autocast: tuple[tuple[str, str, bool], ...]
    windows: tuple[StepRecord, ...]
    optimizers: tuple[Optimizer, ...]
    parameters: Mapping[str, Bytes] = {}
    buffers: Bytes = 0
    gradients: Bytes = 0
    malloc: bool = False


def seen_in(directory: Path) -> list[dict[str, JsonValue]]:
    """Return what the probe wrote about each process that imported torch.

    Do not trust the result: the user's command can write into this directory, too.
    """
    return [seen for path in sorted(directory.glob("*.json"))[:_MOST_FILES] for seen in _read(path)]


def _read(path: Path) -> Iterator[dict[str, JsonValue]]:
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return
            seen = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(seen, dict):
        yield seen


def estimate(rows: list[dict[str, JsonValue]]) -> GpuMemory | None:
    """Return the largest of the estimates for those processes. None if no process took an optimizer step."""
    estimates = []
    for row in rows:
        try:
            seen = Seen.model_validate_json(json.dumps(row))
        except ValidationError:
            continue
        if seen.windows:
            estimates.append(_of_one(seen))
    return max(estimates, key=lambda each: each.estimate_bytes, default=None)


def _of_one(seen: Seen) -> GpuMemory:
    held = sum(seen.parameters.values()) + seen.buffers
    state = max(window.state_after for window in seen.windows)
    gradients = max(window.gradients for window in seen.windows)
    batch = max(held + state + _beyond_held(window, seen) for window in seen.windows)
    step = held + state + gradients + max(_left(seen), 0) + _temporary(seen)
    tensors = max(batch, step)
    wanted = round((tensors + WORKSPACE_BYTES) * (1 + UNUSED)) + CONTEXT_BYTES
    parts = {
        "parameters": held,
        "gradients": gradients,
        "optimizer_state": state,
        "optimizer_step": _temporary(seen),
        "batch": max(0, batch - held - state - gradients),
        "peak_of_tensors": tensors,
    }
    low, high = round(wanted * (1 - ERROR)), round(wanted * (1 + ERROR))
    if off := _has_half_precision_only_on_gpu(seen):
        low -= round(parts["batch"] / 2)
    told = GpuMemory(estimate_bytes=wanted, low_bytes=low, high_bytes=high, parts=parts, words="")
    words = (
        f"about {told.figures} of a GPU's memory, with the batch size of the smoke test; of that, "
        f"{parts['batch'] / GIB:.1f} GiB is for the batch and grows with it, and "
        f"{(held + gradients + state) / GIB:.1f} GiB is for the model and its optimizer at any batch size"
    )
    if off:
        words += "; its autocast is only for CUDA, so the batch was counted in full precision"
    return told.model_copy(update={"words": words})


def _has_half_precision_only_on_gpu(seen: Seen) -> bool:
    """Whether the job asks for half precision only on a GPU. Then its batch may need only half as much memory there."""
    return any(device == "cuda" for device, _, _ in seen.autocast) and not any(
        enabled for _, _, enabled in seen.autocast
    )


def _beyond_held(window: StepRecord, seen: Seen) -> int:
    """The most memory in use at one moment of this step, without the parameters and the optimizer's state.

    The memory in use when the optimizer's step begins was counted tensor by tensor. The peak before that is measured
    for the whole process. Only the difference of the two levels is used, so other memory of the process has no effect.
    """
    which = 0 if seen.malloc and window.level[0] > sum(seen.parameters.values()) else 1
    rise = window.most[which] - window.level[which]
    # On a GPU, attention does not keep this memory, so it is subtracted; but never more than half of the rise.
    rise -= min(sum(window.attention), rise // 2)
    return rise + window.gradients + window.left


def _left(seen: Seen) -> int:
    return max(window.left for window in seen.windows)


def _temporary(seen: Seen) -> int:
    """Return the memory that the optimizer's step needs only while it runs, in bytes."""
    measured = 0
    for window in seen.windows:
        rise = window.step_most[0] - window.level[0] if seen.malloc else 0
        measured = max(measured, rise - (window.state_after - window.state))
    return max([measured, *(_together(optimizer) for optimizer in seen.optimizers)])


def _together(optimizer: Optimizer) -> int:
    """Return the extra memory of a step that updates all parameters of a group at once: torch's default on a GPU."""
    package, _, name = optimizer.name.rpartition(".")
    if not package.startswith("torch.optim."):
        return 0
    most = 0
    for group in optimizer.groups:
        options = group.options
        if options.get("fused") == "True" or options.get("foreach", "False") == "False":
            continue
        copies = int(name in _ONE_COPY)
        decays = options.get("weight_decay", "0") not in ("0", "0.0")
        copies += decays and options.get("decoupled_weight_decay", "False") != "True"
        most = max(most, copies * max(group.bytes.values(), default=0))
    return most
