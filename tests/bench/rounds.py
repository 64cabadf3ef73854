"""Rounds over many boxes, timed in a process of their own: `rounds.py WHAT ROUNDS [PLAIN.json]`.

WHAT is `monitor`, `audit` or `leases`: the verb on every live lease of this environment; or `plain`:
the same commands and input by asyncssh alone. The first round makes the connections.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncssh

from gpu_tenant.app import open_tenancy
from gpu_tenant.concurrency import each
from gpu_tenant.transports import ssh as _imported  # noqa: F401 - importing is not what is timed

AT_ONCE = 8
"""Fewer than the product's own: the boxes share this computer, and a look has its 15 s there, too."""

Round = Callable[[], Awaitable[None]]


async def timed(what: str, rounds: int, once: Round) -> dict[str, object]:
    """Wall and CPU of each round, by this process and its children, and the memory at its peak."""
    walls, cpus = [], []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), _cpu_s()
        await once()
        walls.append(time.perf_counter() - wall)
        cpus.append(_cpu_s() - cpu)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {"what": what, "wall_s": walls, "cpu_s": cpus, "peak_mb": peak_mb}


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


async def ours(what: str, rounds: int) -> dict[str, object]:
    """The product's verb, as its command line calls it on many leases."""
    tenancy = open_tenancy()
    leases = [lease.id for lease in tenancy.ledger.leases("live")]
    verbs: dict[str, Callable[[str], Awaitable[object]]] = {
        "monitor": lambda lease: tenancy.monitor(lease, wait_s=0),
        "audit": lambda lease: tenancy.audit(lease),
    }

    async def once() -> None:
        if what == "leases":
            assert len((await tenancy.list_leases()).leases) == len(leases)
            return
        for came in await each(leases, verbs[what], at_once=AT_ONCE):
            if isinstance(came, Exception):
                raise came

    try:
        return await timed(what, rounds, once)
    finally:
        await tenancy.aclose()


async def plain(spec: Path, rounds: int) -> dict[str, object]:
    """What asyncssh takes for it: a gather with as many at a time, and nothing around."""
    said = json.loads(spec.read_text(encoding="utf-8"))
    stdin = Path(said["stdin"]).read_bytes() if said["stdin"] else None
    key, kept, turns = asyncssh.read_private_key(said["key"]), {}, asyncio.Semaphore(AT_ONCE)

    async def one(number: int, box: dict[str, str]) -> None:
        async with turns:
            if number not in kept:
                kept[number] = await asyncssh.connect(
                    box["host"],
                    int(box["port"]),
                    username=box["user"],
                    client_keys=[key],
                    known_hosts=box["pins"],
                    config=None,
                    agent_path=None,
                    encryption_algs="^aes128-gcm@openssh.com,aes256-gcm@openssh.com",
                )
            given = stdin if stdin is not None else box["request"].encode()
            ran = await kept[number].run(box["command"], input=given, encoding=None)
            assert ran.exit_status == 0, ran.stderr

    async def once() -> None:
        await asyncio.gather(*(one(n, box) for n, box in enumerate(said["boxes"])))

    try:
        return await timed("plain", rounds, once)
    finally:
        for connection in kept.values():
            connection.close()


if __name__ == "__main__":
    what, rounds = sys.argv[1], int(sys.argv[2])
    work = plain(Path(sys.argv[3]), rounds) if what == "plain" else ours(what, rounds)
    print(json.dumps(asyncio.run(work)))
