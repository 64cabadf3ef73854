"""A training run in small: checkpoints, a resume, and the same bytes each time; stdlib alone."""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

STEPS = 5
SIZE_BYTES = 50_000


def weights(step: int) -> bytes:
    """A checkpoint as safetensors: a header, then bytes that the step alone decides."""
    body = hashlib.shake_256(b"step %d" % step).digest(SIZE_BYTES)
    entry = {"dtype": "U8", "shape": [len(body)], "data_offsets": [0, len(body)]}
    header = json.dumps({"weight": entry}).encode()
    return len(header).to_bytes(8, "little") + header + body


def important(trap: str) -> dict[str, bytes]:
    """Every file that the run is for, by its path in the work directory."""
    files = {f"out/step-{step}.safetensors": weights(step) for step in range(1, STEPS + 1)}
    files["out/metrics.json"] = json.dumps({"steps": STEPS, "loss": 0.25}).encode()
    if trap == "late":
        files["out/final.safetensors"] = weights(STEPS + 1)
    if trap == "unclaimed":
        files["notes/eval.json"] = json.dumps({"accuracy": 0.9}).encode()
    return files


def main() -> int:
    """The exit status of the run."""
    files = important(trap := Path("trap.txt").read_text(encoding="utf-8").strip())
    if sys.argv[1:] == ["late"]:
        time.sleep(2)  # noqa: TID251 - it runs on a box
        return write("out/final.safetensors", files["out/final.safetensors"])
    if sys.argv[1:] == ["--smoke"]:
        return say("smoke: one step, nothing is kept")
    crash = trap == "crash" and not Path("out/step-1.safetensors").exists()
    spoiled = trap == "broken" and not Path("out/metrics.json").exists()
    for step in range(1, STEPS + 1):
        name = f"out/step-{step}.safetensors"
        if Path(name).exists() and Path(name).read_bytes() == files[name]:
            say(f"step {step}/{STEPS} is there already")
            continue
        time.sleep(0.2)  # noqa: TID251 - it runs on a box
        # The last one is cut off in its first life, as by a disk that was full for a moment.
        write(name, files[name][:1000] if spoiled and step == STEPS else files[name])
        say(f"step {step}/{STEPS} loss {1 / step:.3f}")
        if crash and step == STEPS - 2:
            raise MemoryError("a batch too large")
    for name in ("out/metrics.json", "notes/eval.json"):
        if name in files:
            write(name, files[name])
    if trap == "late":
        subprocess.Popen([sys.executable, __file__, "late"], start_new_session=True)
    return say("training done")


def write(name: str, content: bytes) -> int:
    """The file is there, whole."""
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.with_suffix(".new").write_bytes(content)
    os.replace(path.with_suffix(".new"), path)  # noqa: PTH105 - one call for all Pythons
    return 0


def say(words: str) -> int:
    """The words are in the log."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
