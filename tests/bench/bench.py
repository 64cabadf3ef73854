"""How light the program is, as ratios within one run: `make bench`.

Absolute times are this machine's, shared and noisy; the ratios are what to quote. The floor for the
server is an empty `mcp` server, for the command line an idle Python.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from mcp import Client, StdioServerParameters

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from sshd import Relay, Sshd, make_key  # noqa: E402 - found from the line above

from gpu_tenant.app import open_tenancy  # noqa: E402

RUNS = 15
POLLS = 60
EMPTY = "from mcp.server import MCPServer; MCPServer('empty').run()"
PYTHON = sys.executable
VERBS = ("leases", "profiles", "offers --help", "monitor --help", "terms --help")


def timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def command(*argv: str) -> Callable[[], object]:
    return lambda: subprocess.run(argv, check=True, capture_output=True, env=environment())


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **STATE}


def ready(*argv: str) -> Callable[[], object]:
    """From spawn to the answer of tools/list, as a host waits for it."""

    async def once() -> None:
        server = StdioServerParameters(command=argv[0], args=list(argv[1:]), env=environment())
        async with Client(server, mode="auto") as client:
            await client.list_tools()

    return lambda: asyncio.run(once())


def in_turn(*runs: Callable[[], object]) -> list[float]:
    """The median of each, run alternately, so that a slow minute hits all alike."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(RUNS):
        for number, run in enumerate(runs):
            times[number].append(timed(run))
    return [statistics.median(t) for t in times]


async def polls(directory: Path) -> dict[str, float]:
    """A steady-state poll of an idle job over a kept ssh connection, against a bare `true` on it."""
    tenancy = open_tenancy({**STATE})
    key = make_key(directory / "id")
    client_key = Path(STATE["GPU_TENANT_HOME"]) / "ssh" / "id_ed25519"
    client_key.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("", ".pub"):
        Path(f"{key}{suffix}").replace(f"{client_key}{suffix}")
    authorized = directory / "authorized_keys"
    authorized.write_bytes(Path(f"{client_key}.pub").read_bytes())
    with Sshd(directory / "box", authorized=authorized) as box, Relay(box.port) as relay:
        card = await tenancy.provision("own", relay.target)
        tree = directory / "tree"
        tree.mkdir()
        (tree / "job.sh").write_text("echo up; exec sleep 300\n", encoding="utf-8")
        await tenancy.push(card.lease, str(tree))
        await tenancy.launch_detached(card.lease, "sh job.sh", ["out/"], name="idle")
        seen = await tenancy.monitor(card.lease, wait_s=0)
        transport = tenancy.context.transport(tenancy.ledger.lease(card.lease))
        before = (relay.sent_by_client, relay.sent_by_server)

        async def median_ms(call: Callable[[], Awaitable[object]]) -> float:
            times = []
            for _ in range(POLLS):
                began = time.perf_counter()
                await call()
                times.append(time.perf_counter() - began)
            return statistics.median(times) * 1000

        poll = await median_ms(
            lambda: tenancy.follow(
                card.lease, "idle", cursor=seen.cursor, wait_s=0, limit_bytes=6000
            )
        )
        up, down = (
            (relay.sent_by_client - before[0]) / POLLS,
            (relay.sent_by_server - before[1]) / POLLS,
        )
        bare = await median_ms(lambda: transport.run(["true"], timeout_s=10))
        python = await median_ms(
            lambda: transport.run(["python3", "-I", "-S", "-c", "0"], timeout_s=10)
        )
        answer = await tenancy.monitor(card.lease, cursor=seen.cursor, wait_s=0)
        await tenancy.stop_job(card.lease, grace_s=1)
        await tenancy.aclose()
    return {
        "poll_ms": poll,
        "true_ms": bare,
        "python_ms": python,
        "sent_bytes": up,
        "received_bytes": down,
        "answer_bytes": len(answer.model_dump_json()),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        STATE["GPU_TENANT_HOME"] = f"{scratch}/state"
        module = (PYTHON, "-m", "gpu_tenant")
        idle, helped, *verbs = in_turn(
            command(PYTHON, "-c", "pass"),
            command(*module, "--help"),
            *(command(*module, *verb.split()) for verb in VERBS),
        )
        empty, ours = in_turn(ready(PYTHON, "-c", EMPTY), ready(*module, "serve"))
        p = asyncio.run(polls(Path(scratch)))
    table = [
        ("command line --help / an idle Python", helped, idle, "s"),
        *(
            (f"command line {verb} / an idle Python", took, idle, "s")
            for verb, took in zip(VERBS, verbs, strict=True)
        ),
        ("command line --help / an empty mcp server ready", helped, empty, "s"),
        ("MCP ready for tools / an empty mcp server", ours, empty, "s"),
        ("monitor poll, kept ssh connection / `true` on it", p["poll_ms"], p["true_ms"], "ms"),
        (
            "monitor poll, kept ssh connection / an idle Python on the box",
            p["poll_ms"],
            p["python_ms"],
            "ms",
        ),
    ]
    for name, this, that, unit in table:
        print(f"{name:<66} {this / that:6.2f}   ({this:.3f} / {that:.3f} {unit})")
    print(
        f"{'bytes on the wire per steady-state poll, sent + received':<66} {p['sent_bytes']:.0f} + {p['received_bytes']:.0f}"
    )
    print(f"{'bytes of a steady-state answer to an agent':<66} {p['answer_bytes']:.0f}")
    print(json.dumps({"runs": RUNS, "polls": POLLS, **{k: round(v, 3) for k, v in p.items()}}))


STATE: dict[str, str] = {}

if __name__ == "__main__":
    main()
