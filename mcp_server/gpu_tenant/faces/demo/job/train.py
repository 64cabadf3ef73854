"""Tell Python, Markdown and JSON apart by their letters, in a run that may be killed anywhere.

    python3 train.py                 train, or go on from where the last run came to
    python3 train.py --smoke         two minibatches and a checkpoint's round trip, in a second

What makes a run resumable is worth copying:

- The checkpoint holds everything the next step depends on: weights, momentum, place, sums.
- It is one file, replaced in one step, so that no reader and no crash finds half of it.
- The order of the windows depends on the seed and the epoch alone, never on what ran before.
- Loading it is not an option one must remember to give.
- The metrics are cut back to the checkpoint, so that nothing is told twice.
"""

# ruff: noqa: B905, S311 (Python 3.9 has no zip(strict=); these random numbers are no keys)

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import struct
import sys
import tempfile
from dataclasses import dataclass, field
from operator import mul
from pathlib import Path

INPUTS, HIDDEN, CLASSES = 64, 64, 3
SHAPES = {
    "hidden.weight": (HIDDEN, INPUTS),
    "hidden.bias": (1, HIDDEN),
    "output.weight": (CLASSES, HIDDEN),
    "output.bias": (1, CLASSES),
}
TRAIN_WINDOWS = 1440
BATCH = 32
LEARNING_RATE = 0.01
MOMENTUM = 0.9
STEPS = TRAIN_WINDOWS // BATCH
STEPS_BETWEEN_LINES = 5

Matrix = list[list[float]]
Tensors = dict[str, Matrix]
Window = tuple[list[float], int]


@dataclass
class Run:
    """All that the next step depends on: a Run that was saved and loaded goes on bit for bit."""

    seed: int
    weights: Tensors
    momentum: Tensors
    epoch: int = 1
    step: int = 0
    loss_sum: float = 0.0
    resumed: int = 0
    metrics: list[dict[str, float]] = field(default_factory=list)


def begin(seed: int) -> Run:
    """A run at its first step, with small random weights."""
    draw = random.Random(f"{seed} weights")
    weights = {
        name: [
            [draw.gauss(0, columns**-0.5) if rows > 1 else 0.0 for _ in range(columns)]
            for _ in range(rows)
        ]
        for name, (rows, columns) in SHAPES.items()
    }
    return Run(seed, weights, zeros())


def zeros() -> Tensors:
    """One zero for every weight."""
    return {
        name: [[0.0] * width for _ in range(height)] for name, (height, width) in SHAPES.items()
    }


# The network


def forward(weights: Tensors, counts: list[float]) -> tuple[list[float], list[float]]:
    """The hidden activations, and the probability of each kind."""
    sums = [sum(map(mul, row, counts)) for row in weights["hidden.weight"]]
    hidden = list(map(math.tanh, map(sum, zip(sums, weights["hidden.bias"][0]))))
    sums = [sum(map(mul, row, hidden)) for row in weights["output.weight"]]
    logits = list(map(sum, zip(sums, weights["output.bias"][0])))
    highest = max(logits)
    powers = [math.exp(logit - highest) for logit in logits]
    total = sum(powers)
    return hidden, [power / total for power in powers]


def backward(weights: Tensors, windows: list[Window]) -> tuple[Tensors, float]:
    """The gradient of the mean loss over the windows, and that loss."""
    gradient, loss = zeros(), 0.0
    output_columns = [list(column) for column in zip(*weights["output.weight"])]
    for counts, kind in windows:
        hidden, odds = forward(weights, counts)
        loss -= math.log(max(odds[kind], 1e-12)) / len(windows)
        at_output = [odd / len(windows) for odd in odds]
        at_output[kind] -= 1 / len(windows)
        at_hidden = [
            sum(map(mul, column, at_output)) * (1 - level * level)
            for column, level in zip(output_columns, hidden)
        ]
        add_outer(gradient["hidden.weight"], at_hidden, counts)
        add_outer(gradient["hidden.bias"], [1.0], at_hidden)
        add_outer(gradient["output.weight"], at_output, hidden)
        add_outer(gradient["output.bias"], [1.0], at_output)
    return gradient, loss


def add_outer(matrix: Matrix, left: list[float], right: list[float]) -> None:
    """matrix += left x right."""
    for row, factor in enumerate(left):
        matrix[row] = [x + factor * y for x, y in zip(matrix[row], right)]


def learn(run: Run, windows: list[Window]) -> None:
    """Move the run on by one step of stochastic gradient descent with momentum."""
    gradient, loss = backward(run.weights, windows)
    for name, matrix in run.weights.items():
        for row, slope in enumerate(gradient[name]):
            push = [
                MOMENTUM * p - LEARNING_RATE * g for p, g in zip(run.momentum[name][row], slope)
            ]
            run.momentum[name][row] = push
            matrix[row] = list(map(sum, zip(matrix[row], push)))
    run.loss_sum += loss
    run.step += 1


def accuracy(weights: Tensors, windows: list[Window]) -> float:
    """Return the share of the windows whose kind is recognized correctly."""
    right = 0
    for counts, kind in windows:
        odds = forward(weights, counts)[1]
        right += odds[kind] == max(odds)
    return right / len(windows)


# Files


def load_windows(path: Path) -> list[Window]:
    """Each line's 64 counts, scaled to [0, 2], and its kind: 0 Python, 1 Markdown, 2 JSON."""
    windows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        *counts, kind = map(int, line.split(","))
        windows.append(([count / 8 for count in counts], kind))
    return windows


def write_whole(path: Path, content: bytes) -> None:
    """Write the content to the disk. Until this has ended, the file has its old content."""
    draft = path.with_name(path.name + ".tmp")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)  # noqa: PTH105 (the call this pattern is known by)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # or a power cut may undo the rename
    finally:
        os.close(directory)


def safetensors(tensors: Tensors, letter: str, notes: dict[str, str]) -> bytes:
    """The tensors as a safetensors file: a length, a JSON header, the numbers."""
    header: dict[str, object] = {"__metadata__": notes}
    numbers = b""
    for name, matrix in tensors.items():
        flat = [x for row in matrix for x in row]
        start = len(numbers)
        numbers += struct.pack(f"<{len(flat)}{letter}", *flat)
        header[name] = {
            "dtype": {"f": "F32", "d": "F64"}[letter],
            "shape": [len(matrix), len(matrix[0])],
            "data_offsets": [start, len(numbers)],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + numbers


def save(run: Run, out: Path) -> None:
    """Save the run in `out`, so that it can continue after any crash and its weights can be used.

    The metrics are written first. So a checkpoint never lacks the lines of its past, and lines from its future are
    cut when it is loaded.
    """
    lines = "".join(json.dumps(line) + "\n" for line in run.metrics)
    write_whole(out / "metrics.jsonl", lines.encode())
    place = {
        "seed": run.seed,
        "epoch": run.epoch,
        "step": run.step,
        "loss_sum": run.loss_sum,
        "resumed": run.resumed,
    }
    tensors = {**run.weights, **{f"momentum.{name}": m for name, m in run.momentum.items()}}
    # F64, because that is what Python counts in: F32 would round, and the run would drift.
    write_whole(out / "resume.safetensors", safetensors(tensors, "d", {"run": json.dumps(place)}))
    write_whole(out / "model.safetensors", safetensors(run.weights, "f", {"format": "pt"}))


def load(out: Path) -> Run:
    """Load the run as `save` left it in `out`."""
    content = (out / "resume.safetensors").read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:start])
    tensors: Tensors = {}
    for name in header.keys() - {"__metadata__"}:
        (rows, columns), (first, last) = header[name]["shape"], header[name]["data_offsets"]
        flat = struct.unpack(f"<{rows * columns}d", content[start + first : start + last])
        tensors[name] = [list(flat[row * columns : (row + 1) * columns]) for row in range(rows)]
    weights = {name: tensors[name] for name in SHAPES}
    momentum = {name: tensors[f"momentum.{name}"] for name in SHAPES}
    run = Run(weights=weights, momentum=momentum, **json.loads(header["__metadata__"]["run"]))
    lines = map(json.loads, (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    run.metrics = [line for line in lines if line["epoch"] < run.epoch]
    return run


# The two ways to run


def train(out: Path, windows: list[Window], epochs: int, seed: int) -> None:
    """`out` holds a model trained for the given epochs, and a report."""
    stop_asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop_asked.append(number))

    out.mkdir(parents=True, exist_ok=True)
    if (out / "resume.safetensors").exists():
        run = load(out)
        if run.seed != seed:
            sys.exit(f"error: {out} holds a run with seed {run.seed}; give --seed {run.seed}")
        run.resumed += 1
        place = f", at step {run.step}/{STEPS} of the next" if run.step else ""
        print(f"resumed from epoch {run.epoch - 1}{place}", flush=True)
    else:
        run = begin(seed)
    save(run, out)  # first, so that a full disk or a read-only one is known before the work

    train_set, test_set = windows[:TRAIN_WINDOWS], windows[TRAIN_WINDOWS:]
    while run.epoch <= epochs:
        order = random.Random(f"{seed} epoch {run.epoch}").sample(train_set, TRAIN_WINDOWS)
        while run.step < STEPS:
            learn(run, order[run.step * BATCH : (run.step + 1) * BATCH])
            if run.step % STEPS_BETWEEN_LINES == 0:
                print(progress(run, epochs), flush=True)
            if stop_asked:
                save(run, out)
                print(f"stopped at epoch {run.epoch} step {run.step}/{STEPS}, saved", flush=True)
                sys.exit(128 + signal.SIGTERM)
        loss, val_acc = run.loss_sum / STEPS, accuracy(run.weights, test_set)
        run.metrics.append({"epoch": run.epoch, "loss": loss, "val_acc": val_acc})
        run.epoch, run.step, run.loss_sum = run.epoch + 1, 0, 0.0
        save(run, out)

    reached = accuracy(run.weights, test_set)
    report = {"accuracy": reached, "epochs": run.epoch - 1, "resumed": run.resumed, "seed": seed}
    write_whole(out / "report.json", json.dumps(report, indent=2).encode() + b"\n")
    print(f"done: accuracy {reached:.4f} on {len(test_set)} windows never trained on", flush=True)


def progress(run: Run, epochs: int) -> str:
    """Where the run is, and the last accuracy it measured, on one line."""
    line = f"epoch {run.epoch}/{epochs} step {run.step}/{STEPS} loss={run.loss_sum / run.step:.4f}"
    return line + (f" val_acc={run.metrics[-1]['val_acc']:.4f}" if run.metrics else "")


def smoke(windows: list[Window], seed: int) -> None:
    """Learn two minibatches, and check that a checkpoint loads as it was saved."""
    run = begin(seed)
    with tempfile.TemporaryDirectory() as directory:
        for start in (0, BATCH):
            learn(run, windows[start : start + BATCH])
        save(run, Path(directory))
        if load(Path(directory)) != run:
            sys.exit("error: the checkpoint did not come back as it was saved")
    print(f"smoke passed: 2 steps, loss={run.loss_sum / 2:.4f}", flush=True)


def main() -> None:
    """Do the run that the command line asks for."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--windows", type=Path, default=here / "letters.csv")
    parser.add_argument("--smoke", action="store_true")
    asked = parser.parse_args()
    windows = load_windows(asked.windows)
    if asked.smoke:
        smoke(windows, asked.seed)
    else:
        train(asked.out, windows, asked.epochs, asked.seed)


if __name__ == "__main__":
    main()
