"""The image's torch stays: what a work tree asks for is installed on top of it, and the job still sees the GPU."""

import os
import tempfile
from pathlib import Path

from real_gpu.parts.lease import Tenant, on_a_disk
from real_gpu.record import Record

SEES = """
import torch
seen = f"torch {torch.__version__} cuda {torch.cuda.is_available()}"
"""
TELLS = """
import os
os.makedirs("out")
open("out/seen.txt", "w").write(seen)
print(seen)
"""


def part(record: Record) -> None:
    pretended = os.environ.get("REAL_GPU_PRETEND") == "1"
    with tempfile.TemporaryDirectory(prefix="real-gpu-", dir=on_a_disk()) as directory:
        top = Path(directory)
        for name in ("home", "tree"):
            (top / name).mkdir()
        wanted = "pip\n" if pretended else "torch\nnumpy\nsafetensors\n"
        (top / "tree/requirements.txt").write_text(wanted, encoding="utf-8")
        sees = "seen = 'pretended cuda True'" if pretended else SEES
        (top / "tree/sees.py").write_text(sees + TELLS, encoding="utf-8")
        tenant = Tenant(record, top)
        lease = tenant.verb("provision", "--on", "local", "--smoke", "none").get("lease")
        if not lease:
            return
        tenant.verb("push", ".", lease)
        record.keep("prepared.json", tenant.verb("prepare", lease, timeout_s=45))
        words = ("--lease", lease, "--artifact", "out/")
        tenant.verb("launch", *words, "--", "python3", "sees.py")
        seen = tenant("monitor", lease, "--follow", timeout_s=30)
        record.right("the job sees torch and the GPU", seen.words()[-300:], "cuda True" in seen.out)
        tenant.verb("collect", lease, "--to", str(top / "kept"))
        ended = tenant.verb("teardown", lease)
        record.right("the lease is over", ended.get("state"), ended.get("state") == "gone")
