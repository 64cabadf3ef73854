"""What models need of the GPU's memory, beside the rule that our runbook gives, and whose our script says it is."""

import json
from typing import Any

from real_gpu.record import BESIDE, Record

BYTES_A_PARAMETER = {"amp": 20, "bf16": 10, "fp32": 20}
"""The rule of `references/debug/memory.md` for AdamW's step, before activations."""
BAR = 0.25
CONTEXT_MIB = (200, 2048)
"""What the driver counts beyond torch's own memory: the rule says 0.8 GB of context."""


def part(record: Record) -> None:
    argv = [record.python, str(BESIDE / "torch_side/models.py")]
    # Its lines come as they are made: what hangs takes no earlier one with it.
    ran = record.run(argv, timeout_s=85)
    rows = []
    for line in ran.out.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    record.keep("memory.json", rows)
    record.right("models were measured", len(rows) or ran.words(), len(rows) >= 8)
    for row in rows:
        _judge(record, row)


def _judge(record: Record, row: dict[str, Any]) -> None:
    name = row["model"]
    if not record.right(
        f"{name}: it learns", row.get("error", row.get("loss")), "error" not in row
    ):
        return
    rule = BYTES_A_PARAMETER[row["precision"]] * row["parameters"]
    ratio = row["least_peak_bytes"] / rule
    seen = (
        f"{ratio:.3f} ({row['least_peak_bytes'] / 2**30:.2f} / {rule / 2**30:.2f} GiB); "
        f"held between steps {row['held_bytes'] / row['parameters']:.1f} bytes a parameter; "
        f"with its batch {row['peak_bytes'] / 2**30:.2f} GiB"
    )
    record.right(f"{name}: peak of a short sample / the rule", seen, abs(ratio - 1) <= BAR)
    reserved_mib = row["reserved_bytes"] / 2**20
    mine = sum(int(mib) for mib in row["smi"]["mine_mib"] if mib.isdigit())
    context = mine - reserved_mib
    record.right(
        f"{name}: what the driver counts beyond torch's",
        f"{context:.0f} MiB of {mine}",
        CONTEXT_MIB[0] <= context <= CONTEXT_MIB[1],
    )
    ours = sum(mib or 0 for mib in row["vram"]["mine_mib"])
    seen = f"{ours} MiB by vram.py, {mine} by the driver, {row['vram']['used_mib']} used in all"
    record.right(f"{name}: vram.py knows whose it is", seen, mine and abs(ours / mine - 1) <= 0.05)
