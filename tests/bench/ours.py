"""The product as it is used: a lease on a box over ssh, whose ended job left artifacts; and its collects."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from gauge import Reading, measured
from links import Box

from gpu_tenant.app import open_tenancy

ONCE = Path(__file__).with_name("once.py")
MAKE = """\
import os, sys
count, size = map(int, sys.argv[1:])
for number in range(count):
    path = "out/weights.bin" if count == 1 else "out/%02d/%05d.bin" % (number // 500, number)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        for at in range(0, size, 1 << 20):
            file.write(os.urandom(min(1 << 20, size - at)))
        file.flush()
        os.fsync(file.fileno()) if count == 1 else None
"""


class Tenant:
    """Somebody with a state directory of their own, and a lease on that box."""

    def __init__(self, directory: Path, key: Path, environ: Mapping[str, str]) -> None:
        self._directory = directory
        state = directory / "state"
        (state / "ssh").mkdir(parents=True)
        for suffix in ("", ".pub"):
            mine = state / "ssh" / f"id_ed25519{suffix}"
            mine.write_bytes(Path(f"{key}{suffix}").read_bytes())
            mine.chmod(0o600)
        self.environment = {**environ, "GPU_TENANT_HOME": str(state)}
        self.lease = ""

    def lease_with(self, box: Box, target: str, *, count: int, size_bytes: int) -> Path:
        """A job on the box has ended; the directory there with `count` artifacts of that size."""
        tree = self._directory / "tree"
        tree.mkdir()
        (tree / "make.py").write_text(MAKE, encoding="utf-8")

        async def work() -> None:
            tenancy = open_tenancy(self.environment)
            try:
                self.lease = (await tenancy.provision("own", target)).lease
                await tenancy.push(self.lease, str(tree))
                making = f"python3 make.py {count} {size_bytes}"
                await tenancy.launch_detached(self.lease, making, ["out/"])
                seen = await tenancy.monitor(self.lease, wait_s=45)
                while seen.state == "running":
                    seen = await tenancy.monitor(self.lease, wait_s=45)
                assert seen.state == "finished", seen
            finally:
                await tenancy.aclose()

        asyncio.run(work())
        return box.home / "gpu-tenant" / self.lease / "work" / "out"

    def collect(
        self, to: Path, *words: str, limit_s: float
    ) -> tuple[Reading, Mapping[str, float | str]]:
        """A process of its own has collected into `to`, and what it told; `error` where it failed."""
        argv = [sys.executable, str(ONCE), self.lease, str(to), *words]
        went = measured(argv, env=self.environment, limit_s=limit_s)
        if went.status != 0:
            return went, {"error": "limit" if went.status is None else went.err.strip()[-300:]}
        return went, json.loads(went.out.splitlines()[-1])
