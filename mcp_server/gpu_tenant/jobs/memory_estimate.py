"""Estimates from what `memory_probe.py` noted on the CPU how much of a GPU's memory the same training will want.

On the CPU and on a GPU a training holds the same tensors: parameters, gradients, the optimizer's state, and what
the forward pass keeps for the backward pass. What differs is added here, by figures that were measured.
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

# Each of these is a median of fifteen models on an H100 with driver 580. Fifteen others are its test.
CONTEXT_BYTES = 760 << 20
"""What the driver counts for a process beyond torch's own memory."""
WORKSPACE_BYTES = 90 << 20
"""How much more torch's tensors take on a GPU than here, most of it a workspace of cuBLAS."""
UNUSED = 0.12
"""How much more memory torch has of the driver than its tensors take at their peak."""
ERROR = 0.25
"""How far the estimate may be wrong to either side. The farthest of the thirty was wrong by 17 %."""

_MOST_BYTES = 1 << 20
_MOST_FILES = 64
_ONE_COPY = frozenset(
    ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta", "ASGD", "Rprop")
)
"""The optimizers whose step makes a copy of the parameters on a GPU, where it computes all of them together."""


Bytes = Annotated[int, Field(ge=0, le=1 << 50)]
"""A figure that the probe can have noted. The command could write there, too."""


class _Noted(Record):
    model_config = ConfigDict(extra="ignore")


class Window(_Noted):
    """One step: from the end of the one before it."""

    most: tuple[Bytes, Bytes] = Field(description="the highest level before the optimizer's step")
    level: tuple[Bytes, Bytes] = Field(description="the level when the optimizer's step began")
    left: Bytes
    gradients: Bytes
    state: Bytes
    step_most: tuple[Bytes, Bytes]
    state_after: Bytes
    attention: tuple[Bytes, Bytes] = Field(
        default=(0, 0),
        description="what attention with dropout kept, and most of one that is computed again",
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
    windows: tuple[Window, ...]
    optimizers: tuple[Optimizer, ...]
    parameters: Mapping[str, Bytes] = {}
    buffers: Bytes = 0
    gradients: Bytes = 0
    malloc: bool = False


def seen_in(directory: Path) -> list[dict[str, JsonValue]]:
    """Return what the probe wrote, of each process that trained. The command could write there, too: it is only data."""
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
    """Return the largest estimate of those processes. None if none of them took a step."""
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
    if off := _is_off_here(seen):
        low -= round(parts["batch"] / 2)
    told = GpuMemory(estimate_bytes=wanted, low_bytes=low, high_bytes=high, parts=parts, words="")
    words = (
        f"about {told.figures} of a GPU's memory, for the batch that the smoke test used; a larger batch wants more "
        f"than its {parts['batch'] / GIB:.1f} GiB, and the model with its optimizer has "
        f"{(held + gradients + state) / GIB:.1f} GiB at any batch"
    )
    if off:
        words += "; its autocast is for CUDA alone, so the batch was counted in full precision"
    return told.model_copy(update={"words": words})


def _is_off_here(seen: Seen) -> bool:
    """Whether the job asks for half precision on a GPU alone. Then its batch may be half as large there."""
    return any(device == "cuda" for device, _, _ in seen.autocast) and not any(
        enabled for _, _, enabled in seen.autocast
    )


def _beyond_held(window: Window, seen: Seen) -> int:
    """The most that lived at once in this step beside the parameters and the optimizer's state.

    At its end only that is left which could be counted. So whatever else the process has cancels out.
    """
    which = 0 if seen.malloc and window.level[0] > sum(seen.parameters.values()) else 1
    rise = window.most[which] - window.level[which]
    # What a GPU's kernels for attention do not keep. Half of the rise is certainly something else.
    rise -= min(sum(window.attention), rise // 2)
    return rise + window.gradients + window.left


def _left(seen: Seen) -> int:
    return max(window.left for window in seen.windows)


def _temporary(seen: Seen) -> int:
    """What the optimizer's step needs for itself."""
    measured = 0
    for window in seen.windows:
        rise = window.step_most[0] - window.level[0] if seen.malloc else 0
        measured = max(measured, rise - (window.state_after - window.state))
    return max([measured, *(_together(optimizer) for optimizer in seen.optimizers)])


def _together(optimizer: Optimizer) -> int:
    """What a step for all parameters of a group at once needs. On a GPU torch computes so, unless told otherwise."""
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
