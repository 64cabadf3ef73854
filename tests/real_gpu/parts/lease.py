"""A whole lease of this computer's GPU, verb by verb, and then all of it in one line."""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from real_gpu.parts.load import judge_finding
from real_gpu.record import BESIDE, ROOT, Ran, Record, bare

SECONDS, AGAIN_S = 24, 8
LOAD_S = 30
"""Of `audit --burn`. With 20, the least, nothing is left for the load after the look."""
LOOKS_APART_S = 5.5


def part(record: Record) -> None:
    pretended = os.environ.get("REAL_GPU_PRETEND") == "1"
    with tempfile.TemporaryDirectory(prefix="real-gpu-", dir=on_a_disk()) as directory:
        top = Path(directory)
        for name in ("home", "tree"):
            (top / name).mkdir()
        shutil.copy(BESIDE / "job/train.py", top / "tree")
        tenant = Tenant(record, top)
        for tool in ("git", "rsync", "ssh", "sshd"):
            record.told(f"{tool} is here", shutil.which(tool) or "no: this box needs none")
        words = ["--pretend"] if pretended else []
        _verbs(record, tenant, [*words, "--seconds", str(SECONDS)], words)
        _one_line(record, tenant, [*words, "--seconds", str(AGAIN_S)], words)


def on_a_disk() -> str | None:
    """A directory that is not in memory: from a tmpfs nothing is collected, because it is gone with the power."""
    lines = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    mounts = {line.split()[1]: line.split()[2] for line in lines}
    for place in (Path("~").expanduser(), Path("/var/tmp"), ROOT):
        at = next(p for p in (place.resolve(), *place.resolve().parents) if str(p) in mounts)
        if mounts[str(at)] not in ("tmpfs", "ramfs") and os.access(place, os.W_OK):
            return str(place)
    return None


class Tenant:
    """`gpu-tenant` of this checkout, with a home and a state of its own."""

    def __init__(self, record: Record, top: Path) -> None:
        self._record, self.top, self.tree = record, top, top / "tree"
        self.state = top / "home/.gpu-tenant"
        path = os.pathsep.join((str(Path(record.python).parent), os.environ.get("PATH", "")))
        packages = [str(ROOT / "mcp_server"), os.environ.get("PYTHONPATH", "")]
        self.environ = bare() | {
            "HOME": str(top / "home"),
            "GPU_TENANT_HOME": str(self.state),
            "PYTHONPATH": os.pathsep.join(filter(None, packages)),
            "PATH": path,
        }

    def __call__(self, *words: str, timeout_s: float = 60) -> Ran:
        argv = [sys.executable, "-m", "gpu_tenant", *words]
        return self._record.run(argv, timeout_s=timeout_s, environ=self.environ, cwd=self.tree)

    def verb(self, name: str, *words: str, timeout_s: float = 60) -> dict[str, Any]:
        """The answer of a verb; empty if it gave none. That it gave one is a check of its own."""
        split = words.index("--") if "--" in words else len(words)
        ran = self(name, *words[:split], "--json", *words[split:], timeout_s=timeout_s)
        answer = ran.answer()
        seen = f"status {ran.status} in {ran.took_s} s"
        right = ran.status == 0 and isinstance(answer, dict)
        self._record.right(f"gpu-tenant {name}", seen + f": {ran.words()}" * (not right), right)
        return answer if isinstance(answer, dict) else {}


def _verbs(record: Record, tenant: Tenant, words: Sequence[str], how: Sequence[str]) -> None:
    smoked = tenant.verb("smoke", ".", "--", "python3", "train.py", "--smoke", *how)
    record.right("the smoke test passed", smoked.get("log_tail", ""), smoked.get("passed"))
    smoke = smoked["id"] if smoked.get("passed") else "none"
    made = tenant.verb("provision", "--on", "local", "--smoke", smoke, "--hours", "0.25")
    if not (lease := made.get("lease")):
        return
    audited = tenant.verb("audit", lease, "--gpus", "1", "--burn", str(LOAD_S))
    record.keep("audit.json", audited)
    for finding in audited.get("findings", ()):
        judge_finding(record, "gpu-tenant audit", finding)
    tenant.verb("push", ".", lease)
    launched = tenant.verb(
        "launch", "--lease", lease, "--artifact", "out/", "--", "python3", "train.py", *words
    )
    if launched:
        _watched(record, tenant, lease)
    idle = asyncio.run(_standing(tenant, lease))
    record.right("afterwards the box is judged idle", idle["words"], idle["phase"] == "idle")
    kept = tenant.top / "kept"
    collected = tenant.verb("collect", lease, "--to", str(kept), timeout_s=90)
    record.keep("collected.json", collected)
    left = [collected.get("unclaimed_files"), collected.get("unclaimed_largest")]
    record.right("nothing is unclaimed", left, collected.get("unclaimed_files") == 0)
    ended = tenant.verb("teardown", lease, timeout_s=60)
    _judge_receipt(record, ended, kept)


def _watched(record: Record, tenant: Tenant, lease: str) -> None:
    """Look at the job until it has ended. The judge is asked in the middle of its work."""
    looks: list[dict[str, Any]] = []
    standing: dict[str, Any] | None = None
    until = time.monotonic() + SECONDS + 45
    while time.monotonic() < until:
        ran = tenant("monitor", lease, "--json")
        seen = ran.answer() or {"error": ran.words()}
        looks.append(seen)
        if seen.get("state") not in ("running", "starting", "pending"):
            break
        if standing is None and seen.get("progress"):
            standing = asyncio.run(_standing(tenant, lease))
            record.keep("standing.json", standing)
            words, busy = standing["words"], standing["busy"]
            record.right("while it trains the box is judged busy", words, busy)
        time.sleep(2)
    record.keep("looks.json", looks)
    last = looks[-1]
    record.right(
        "the job ended well",
        [last.get("state"), last.get("exit_code"), last.get("why"), last.get("log", "")[-300:]],
        last.get("state") == "finished" and last.get("exit_code") == 0,
    )
    gpus = [gpu for look in looks for gpu in look.get("gpus", ())]
    most = {key: max((g[key] or 0 for g in gpus), default=0) for key in ("util_pct", "temp_c")}
    record.right("monitor saw the GPU at work", most, most["util_pct"] > 50)
    memory = max((g["mem_used_mib"] or 0 for g in gpus), default=0)
    record.right("monitor saw its memory in use", memory, memory > 1024)
    losses = [
        look["progress"]["metrics"].get("loss")
        for look in looks
        if look.get("progress") and look["progress"].get("metrics")
    ]
    record.right("monitor saw the loss", losses, len(losses) >= 2)
    record.told("how often it should save, by monitor", last.get("cadence"))
    if standing is None:
        record.right("while it trains the box is judged busy", "it was not asked", right=False)
    _cadence(record, looks)


def _cadence(record: Record, looks: list[dict[str, Any]]) -> None:
    import re

    log = "".join(look.get("log", "") for look in looks)
    saves = [float(told) for told in re.findall(r"saved step \d+ in ([\d.]+) s", log)]
    save_s = max(max(saves, default=0.0), 0.01)
    ran = record.script(
        "cadence.py", "--save-s", str(save_s), "--mtbf-h", "6", "--step-s", "0.1", timeout_s=20
    )
    told = ran.reply() or {}
    record.right("cadence.py, by its slowest save", told.get("words", ran.words()), told.get("ok"))


async def _standing(tenant: Tenant, lease: str) -> dict[str, Any]:
    """How the watchdog would find the box: by two looks, and the judge on the box."""
    from gpu_tenant.faces.python import open_tenancy
    from gpu_tenant.leases.watch_actions import activity

    async with open_tenancy(tenant.environ) as tenancy:
        await activity(tenancy.context, lease)
        await asyncio.sleep(LOOKS_APART_S)
        said = await activity(tenancy.context, lease)
    return said.model_dump(mode="json")


def _judge_receipt(record: Record, ended: dict[str, Any], kept: Path) -> None:
    receipt: dict[str, Any] = ended.get("receipt") or {}
    record.keep("ended.json", ended)
    record.right("the receipt's ground", receipt.get("ground"), receipt.get("ground") == "verified")
    out = kept / "work/out"
    checkpoints = [p for p in out.glob("*") if p.suffix in (".safetensors", ".pt")]
    sizes = {p.name: p.stat().st_size for p in checkpoints}
    record.right("checkpoints were kept", sizes, checkpoints)
    formats = receipt.get("formats", {})
    opened = sum(formats.get(name, 0) for name in formats if name != "json")
    record.right("each of them was opened", [formats, len(sizes)], opened >= len(sizes) > 0)
    record.told("what the receipt could not prove", receipt.get("not_proved"))
    warned = receipt.get("warnings")
    record.right("the receipt warns of nothing", warned, warned == [])


def _one_line(record: Record, tenant: Tenant, words: Sequence[str], how: Sequence[str]) -> None:
    kept = tenant.top / "kept-by-run"
    smoke = " ".join(("python3 train.py --smoke", *how))
    ran = tenant(
        *("run", "--on", "local", "--artifact", "out/", "--to", str(kept), "--smoke", smoke),
        *("-y", "--json", "--", "python3", "train.py", *words),
        timeout_s=AGAIN_S + 75,
    )
    answer = ran.answer() or {}
    record.keep("run.json", answer or ran.words())
    seen = [ran.status, ran.took_s, answer.get("outcome"), answer.get("words", ran.words())]
    record.right("gpu-tenant run", seen, answer.get("outcome") == "done")
    _judge_receipt(record, answer.get("ended") or {}, kept)
