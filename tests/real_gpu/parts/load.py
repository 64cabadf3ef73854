"""The probe and the load, straight; the load's figures beside torch's; and what the audit says of both."""

import time
from datetime import UTC, datetime
from typing import Any

from real_gpu.record import BESIDE, SCRIPTS, Ran, Record

SECONDS = 45
REACHED = ("package-index", "huggingface.co")


def part(record: Record) -> None:
    figures = record.run([record.python, str(BESIDE / "torch_side/figures.py")], timeout_s=60)
    torch: dict[str, Any] = figures.reply() or {}
    record.keep("torch.json", torch)
    record.right("torch measures the GPU", torch or figures.words(), torch)

    asked_at = time.time()
    probed = piped(record, "probe.py", "--reach", *REACHED, timeout_s=60)
    answered_at = time.time()
    observed: dict[str, Any] = probed.reply() or {}
    observed["asked"] = {"asked_at": asked_at, "answered_at": answered_at}
    record.keep("probe.json", observed)
    _judge_probe(record, observed, torch, probed)

    burnt = piped(record, "burn.py", "--seconds", str(SECONDS), timeout_s=SECONDS + 10)
    answer: dict[str, Any] = burnt.reply() or {}
    record.keep("burn.json", answer)
    if record.right("burn.py gives figures", burnt.words()[-300:], answer.get("gpus")):
        record.right("burn.py missed nothing", answer["missed"], not answer["missed"])
        record.right("burn.py ends in its time", burnt.took_s, burnt.took_s <= SECONDS)
    _judge_by_audit(record, observed, answer)
    for gpu in answer.get("gpus", ())[:1]:
        _judge_figures(record, gpu, torch)


def piped(record: Record, name: str, *words: str, timeout_s: float) -> Ran:
    """A script as the audit runs it: through stdin, and isolated."""
    text = (SCRIPTS / name).read_text(encoding="utf-8")
    argv = [record.python, "-I", "-S", "-", *words]
    return record.run(argv, timeout_s=timeout_s, stdin=text)


def _judge_probe(
    record: Record, observed: dict[str, Any], torch: dict[str, Any], probed: Ran
) -> None:
    record.told("the probe took", f"{probed.took_s} s")
    errors = {
        name: part["error"]
        for name, part in observed.items()
        if isinstance(part, dict) and "error" in part
    }
    record.right("no part of the probe failed", errors, not errors and "smi" in observed)
    seen = observed.get("torch", {})
    record.right("the probe finds torch and CUDA", seen, seen.get("cuda_available"))
    nodes = observed.get("devices", {})
    record.right("the probe finds the device files", nodes, nodes.get("nodes"))


def _judge_figures(record: Record, gpu: dict[str, Any], torch: dict[str, Any]) -> None:
    runs, watch = gpu["runs"], gpu["watch"]
    record.right(
        "the GPU's name", [gpu["name"], torch.get("name")], gpu["name"] == torch.get("name")
    )
    total = gpu["total_mib"] / torch.get("total_mib", float("inf"))
    record.right("memory by the driver / by torch", f"{total:.3f}", 0.98 <= total <= 1.03)
    clock = watch["sm_mhz"] / gpu["sm_max_mhz"]
    words = f"{watch['sm_mhz']:.0f} of {gpu['sm_max_mhz']:.0f} MHz; held: {watch['held']}"
    record.right("clock under load", words, clock >= 0.8 or "sw_power_cap" in watch["held"])
    power, limit = watch.get("power_w") or 0, gpu.get("power_limit_w") or 1
    seen = f"{power} of {limit} W, {watch['temp_c']} °C"
    record.right("power under load", seen, power > 0.4 * limit)
    record.right("samples of the driver", watch["samples"], watch["samples"] >= 20)
    filled = runs.get("filled_bytes", 0) / 2**20
    free = gpu["total_mib"] - gpu["used_mib"]
    record.right("memory filled, of what is free", f"{filled / free:.3f}", filled >= 0.85 * free)
    wrong = {name: runs.get(name) for name in ("lost_words", "wrong", "wrong_tensor")}
    record.right("nothing read back or computed wrongly", wrong, not any(wrong.values()))
    for name, ours, theirs, least, most in (
        ("memory speed", "memory_gb_s", "copy_gb_s", 0.8, 1.2),
        ("copies to the GPU", "to_gpu_gb_s", "to_gpu_gb_s", 0.75, 1.25),
        ("copies to the host", "to_host_gb_s", "to_host_gb_s", 0.75, 1.25),
        # Torch takes Hopper's own product; the load takes the one that every card has.
        ("matrices in bf16", "tensor_tflops", "bf16_tflops", 0.4, 1.3),
        ("arithmetic in fp32", "fp32_tflops", "fp32_tflops", 0.8, 1.6),
    ):
        a, b = runs.get(ours), torch.get(theirs)
        if record.right(f"{name}: measured by both", [a, b], a and b):
            record.right(
                f"{name}: burn / torch", f"{a / b:.3f} ({a:.4g} / {b:.4g})", least <= a / b <= most
            )


def _judge_by_audit(record: Record, observed: dict[str, Any], answer: dict[str, Any]) -> None:
    """No false alarm: everything that the audit says of a sound machine is well."""
    from gpu_tenant.box.audit import Needs, audit
    from gpu_tenant.box.audit.burn_checks import judge_burnt, read_burnt
    from gpu_tenant.box.audit.expected_speed import expected_speed
    from gpu_tenant.box.audit.findings import Rented
    from gpu_tenant.providers.gpu_catalog import known_gpu

    name = answer["gpus"][0]["name"] if answer.get("gpus") else ""
    model = known_gpu(name)
    record.right("the catalog knows the GPU", [name, model and model.name], model)
    record.told("its figures by our tables", expected_speed(name))
    rented = Rented(gpu=model.name, count=1, vram_gib=model.vram_gib) if model else None
    asked = observed["asked"]
    told = audit(
        observed,
        needs=Needs(gpu_count=1),
        rented=rented,
        asked_at=datetime.fromtimestamp(asked["asked_at"], UTC),
        answered_at=datetime.fromtimestamp(asked["answered_at"], UTC),
    )
    for finding in (*told.findings, *judge_burnt(read_burnt(answer), rented, lease_is="real")):
        judge_finding(record, "audit", finding.model_dump())


def judge_finding(record: Record, who: str, finding: dict[str, Any]) -> None:
    """A finding that is not ok is a false alarm, but for a network that is really not there."""
    words = f"{finding['level']}: {finding['seen']}: {finding['reason']}"
    if finding["subject"].startswith("network") and finding["level"] == "warning":
        record.told(f"{who}: {finding['subject']}", words)
    elif finding["level"] == "ok":
        record.right(f"{who}: {finding['subject']}", finding["seen"], right=True)
    else:
        record.right(f"{who}: {finding['subject']}", words, right=False)
