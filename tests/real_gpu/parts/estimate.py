"""Thirty small models: the smoke test's estimate of the GPU memory that each wants, beside what the GPU says."""

import importlib.util
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from real_gpu.record import BESIDE, ROOT, Record, bare

BAR = 0.25
WHOLE_S, EACH_S = 400, 75
LANES = 2
"""How many models are tried at once on the CPU, and how many on the GPU."""


def part(record: Record) -> None:
    spec = importlib.util.spec_from_file_location("trains", BESIDE / "torch_side/trains.py")
    assert spec
    assert spec.loader
    trains = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(trains)
    until = time.monotonic() + WHOLE_S
    cores = max(1, len(os.sched_getaffinity(0)) // LANES)
    lock, rows = threading.Lock(), dict[str, dict[str, Any]]()

    def noted(case: str, side: str, said: dict[str, Any]) -> None:
        with lock:
            row = rows.setdefault(case, {"case": case})
            row[side] = said
            with (record.folder / "estimate.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"case": case, side: said}) + "\n")
            if len(row) == 3:
                print(f"{time.monotonic() - until + WHOLE_S:4.0f} s  {_line(row)}", flush=True)

    def run(case: str, side: str) -> None:
        left = min(EACH_S, until - time.monotonic())
        if left < 12:
            noted(case, side, {"error": "no time left"})
            return
        if side == "cpu":
            argv = [sys.executable, "-m", "real_gpu.smoked", case, record.python]
            environ, threads = dict(os.environ), cores
        else:
            argv = [record.python, str(BESIDE / "torch_side/trains.py"), case, "cuda"]
            environ, threads = bare(), 2
        environ |= {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        try:
            ran = record.run(argv, timeout_s=left, environ=environ, cwd=ROOT / "tests")
        except Exception as error:  # noqa: BLE001  (one that fails stops no other)
            noted(case, side, {"error": repr(error)})
            return
        reply = ran.reply()
        said = reply if isinstance(reply, dict) else {"error": ran.words()}
        noted(case, side, {**said, "whole_s": ran.took_s})

    with ThreadPoolExecutor(LANES) as smokes, ThreadPoolExecutor(LANES) as gpus:
        # Some CPUs are slow at bf16. If the time runs out, these are missing.
        for case in sorted(trains.CASES, key=lambda case: "bf16" in case):
            smokes.submit(run, case, "cpu")
            gpus.submit(run, case, "gpu")
    record.keep("estimate.json", list(rows.values()))
    fixture = [json.dumps(recorded(rows[case])) for case in trains.CASES if _ratio(rows[case])]
    record.keep("h100.jsonl", "".join(f"{line}\n" for line in fixture))
    for row in rows.values():
        ratio = _ratio(row)
        seen = _line(row)
        record.right(f"{row['case']}: estimate / GPU", seen, ratio and abs(ratio - 1) <= BAR)


def recorded(row: dict[str, Any]) -> dict[str, Any]:
    """What the tests of the estimate keep of one model: what the probe noted, and what the GPU had."""
    gpu, cpu = row["gpu"], row["cpu"]
    figures = ("gpu", "torch", "peak_bytes", "phases", "reserved_bytes", "smi_mib")
    return {
        "case": row["case"],
        "parameters": gpu["parameters"],
        "gpu": {name: gpu[name] for name in figures},
        "cpu": {name: cpu[name] for name in ("peak_bytes", "seconds")},
        "seen": cpu["seen"][0],
    }


def _used_mib(row: dict[str, Any]) -> float | None:
    """What the driver counts for the process. If it names no process: what torch has of it, and the context."""
    gpu = row.get("gpu", {})
    if gpu.get("smi_mib"):
        return float(gpu["smi_mib"][0])
    return gpu["reserved_bytes"] / 2**20 + 760 if "reserved_bytes" in gpu else None


def _ratio(row: dict[str, Any]) -> float | None:
    memory, used = row.get("cpu", {}).get("gpu_memory"), _used_mib(row)
    return memory["estimate_bytes"] / 2**20 / used if memory and used else None


def _line(row: dict[str, Any]) -> str:
    cpu, gpu, ratio = row.get("cpu", {}), row.get("gpu", {}), _ratio(row)
    if ratio is None:
        why = [
            f"{side}: {said.get('error') or said.get('log', '')}"
            for side, said in (("cpu", cpu), ("gpu", gpu))
            if side == "cpu" or "error" in said
        ]
        return f"{row['case']}: {'; '.join(why)[-700:]}"
    tensors = cpu["gpu_memory"]["parts"]["peak_of_tensors"] / gpu["peak_bytes"]
    return (
        f"{row['case']}: {ratio:.3f} of the driver's {_used_mib(row):.0f} MiB, tensors {tensors:.3f} of "
        f"{gpu['peak_bytes'] / 2**20:.0f} MiB; CPU {cpu['whole_s']:.0f} s, GPU {gpu['whole_s']:.0f} s"
    )
