"""One collect, timed: `once.py LEASE TO [--kept] [--listing DIR]`, in the environment of the lease.

A program of its own, so that its memory is what the product takes and nothing of the bench.
"""

import argparse
import asyncio
import importlib
import json
import pkgutil
import time
from pathlib import Path

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import TenantError


def _high_water_mb() -> float:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1000
    return 0.0


def _import_everything() -> None:
    """What is imported at first use is in memory, because Python's imports are not what is timed."""
    importlib.import_module("gpu_tenant.providers.own.connector")
    for name in ("transports", "transfer"):
        try:
            package = importlib.import_module(f"gpu_tenant.{name}")
        except ModuleNotFoundError:
            continue
        for part in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
            importlib.import_module(part.name)


async def _collect(lease: str, to: str, *, kept: bool, listing: str | None) -> dict[str, object]:
    told: dict[str, object] = {}
    began = time.perf_counter()
    tenancy = open_tenancy()
    try:
        if kept or listing:
            await tenancy.monitor(lease, wait_s=0)
        if listing:
            argv = ["find", listing, "-type", "f", "-printf", "%p %s %T@\\n"]
            transport = tenancy.context.transport(tenancy.ledger.lease(lease))
            began = time.perf_counter()
            listed = await transport.run(argv, timeout_s=60)
            told["listing_s"] = time.perf_counter() - began
            told["listing_bytes"] = len(listed.stdout)
        if kept or listing:
            began = time.perf_counter()
        collected = await tenancy.collect(lease, to=to)
        told["seconds"] = time.perf_counter() - began
        told |= {
            "files": collected.files,
            "size_bytes": collected.size_bytes,
            "fetched_bytes": collected.fetched_bytes,
        }
    except TenantError as trouble:
        told |= {
            "error": f"{type(trouble).__name__}: {trouble}",
            "seconds": time.perf_counter() - began,
        }
    finally:
        await tenancy.aclose()
    told["high_water_mb"] = _high_water_mb()
    return told


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("lease")
    words.add_argument("to")
    words.add_argument("--kept", action="store_true")
    words.add_argument("--listing")
    said = words.parse_args()
    _import_everything()
    told = asyncio.run(_collect(said.lease, said.to, kept=said.kept, listing=said.listing))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
