"""One training script through the smoke test, on the CPU: what its probe noted, and what was made of that. JSON.

`python -m real_gpu.smoked CASE PYTHON`
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from real_gpu.record import BESIDE, bare

TIME_LIMIT_S = 60


async def main(case: str, python: str) -> None:
    from gpu_tenant.faces.python import open_tenancy
    from gpu_tenant.jobs import memory_estimate

    noted: list[object] = []
    read = memory_estimate.seen_in

    def keep(directory: Path) -> list[dict[str, object]]:
        noted.extend(read(directory))
        return read(directory)

    memory_estimate.seen_in = keep
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="smoked-") as top:
        tree = Path(top, "tree")
        tree.mkdir()
        shutil.copy(BESIDE / "torch_side/trains.py", tree)
        path = os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", "")))
        environ = bare() | {"GPU_TENANT_HOME": f"{top}/state", "PATH": path}
        async with open_tenancy(environ) as tenancy:
            receipt = await tenancy.run_smoke(
                str(tree), f"python3 trains.py {case} cpu", TIME_LIMIT_S
            )
    said = receipt.model_dump(mode="json")
    told = {
        "case": case,
        **{name: said[name] for name in ("passed", "seconds", "confined", "peak_bytes")},
        "log": said["log_tail"][-500 if said["passed"] else -1500 :],
        "gpu_memory": said["gpu_memory"],
        "seen": noted,
        "took_s": round(time.monotonic() - began, 1),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
