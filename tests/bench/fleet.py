"""Polling and auditing 1, 10 and 100 boxes, against asyncssh alone, in one run: `make bench-fleet`.

Every box is a real sshd on loopback with a lease and a running job. What the boxes themselves take
(a python3 started for every look, on this same computer) bounds the wall: the machine's own limit is
the same commands by a plain gather of asyncssh, `cold` with new connections and `kept` over those.
"""

import argparse
import asyncio
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from links import ROOT, make_key
from rounds import AT_ONCE
from sshds import Sshds

from gpu_tenant.app import open_tenancy
from gpu_tenant.box.audit.run import REACHED_FOR
from gpu_tenant.concurrency import each
from gpu_tenant.files.skill_files import script
from gpu_tenant.transports.shell import command_line

RESULTS = Path(__file__).parent / "results"
COUNTS = (1, 10, 100)
ROUNDS = {"monitor": 3, "audit": 2, "leases": 4}
"""Of which the first makes the connections."""


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--only", type=int, nargs="*", default=list(COUNTS), help="so many boxes")
    words.add_argument("--results", type=Path, default=RESULTS)
    words.add_argument("--through", default="", help="a command that what is timed is given to")
    said = words.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no box outlives it
    file = said.results / "fleet.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"rows": {}}
    known["machine"] = f"{os.cpu_count()} processors, Python {platform.python_version()}"
    for count in said.only:
        with tempfile.TemporaryDirectory(prefix="gt-fleet-", ignore_cleanup_errors=True) as scratch:
            known["rows"][str(count)] = _measured(Path(scratch), count, said.through)
        file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    page = "\n".join(_page(known)) + "\n"
    (said.results / "fleet.md").write_text(page, encoding="utf-8")
    print(page)


def _measured(scratch: Path, count: int, through: str) -> dict[str, Any]:
    state = scratch / "state"
    (state / "ssh").mkdir(parents=True)
    key = make_key(state / "ssh" / "id_ed25519")
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(scratch),
        "GPU_TENANT_HOME": str(state),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "mcp_server"), str(Path(__file__).parent)]),
    }
    with Sshds(scratch, count=count, authorized=Path(f"{key}.pub")) as boxes:
        plain = asyncio.run(_leased(environ, boxes, scratch, key))
        row: dict[str, Any] = {"load": os.getloadavg()[0]}
        for verb, rounds in ROUNDS.items():
            row[verb] = _rounds(environ, through, verb, rounds)
            if verb in plain:
                row[f"plain {verb}"] = _rounds(environ, through, "plain", rounds, str(plain[verb]))
    return row


async def _leased(
    environ: Mapping[str, str], boxes: Sshds, scratch: Path, key: Path
) -> dict[str, Path]:
    """Every box has a lease with a job that runs; what a plain client would send to them, by verb."""
    tenancy = open_tenancy(environ)

    async def begin(target: str) -> dict[str, str]:
        lease = (await tenancy.provision("own", target)).lease
        await tenancy.launch_detached(lease, "echo up; exec sleep 3000", ["out/"], name="idle")
        user, _, place = target.partition("@")
        host, _, port = place.partition(":")
        standing = tenancy.ledger.lease(lease)
        asked = {"job": "idle", "offset": -6000, "limit": 6000, "sample": True, "tenant": True}
        argv = tenancy.context.caretaker(standing)._argv("status")
        return {
            "user": user,
            "host": host,
            "port": port,
            "monitor": command_line(argv),
            "request": json.dumps(asked),
            "pins": str(tenancy.home.known_hosts(standing.id)),
        }

    try:
        begun = await each(boxes.targets, begin, at_once=8)
    finally:
        await tenancy.aclose()
    told = []
    for came in begun:
        if isinstance(came, Exception):
            raise came
        told.append(came)
    probe = command_line(["python3", "-I", "-S", "-", "--reach", *REACHED_FOR])
    plain = {}
    for verb, stdin in (("monitor", None), ("audit", str(script("probe.py")))):
        rows = [{**box, "command": box["monitor"] if stdin is None else probe} for box in told]
        plain[verb] = scratch / f"{verb}.json"
        plain[verb].write_text(
            json.dumps({"key": str(key), "stdin": stdin, "boxes": rows}), encoding="utf-8"
        )
    return plain


def _rounds(environ: Mapping[str, str], through: str, *words: object) -> dict[str, Any]:
    argv = [
        *shlex.split(through),
        sys.executable,
        str(Path(__file__).with_name("rounds.py")),
        *map(str, words),
    ]
    ran = subprocess.run(argv, env=dict(environ), capture_output=True, check=False)
    if ran.returncode:
        raise RuntimeError(ran.stderr.decode()[-2000:])
    told = json.loads(ran.stdout)
    return {
        "cold_s": told["wall_s"][0],
        "kept_s": statistics.median(told["wall_s"][1:]),
        "cold_cpu_s": told["cpu_s"][0],
        "kept_cpu_s": statistics.median(told["cpu_s"][1:]),
        "peak_mb": told["peak_mb"],
    }


def _page(known: Mapping[str, Any]) -> list[str]:
    rows = {int(count): row for count, row in known["rows"].items()}
    how = (
        f"Written by `make bench-fleet`: {known['machine']}, the boxes on the same computer, at most "
        f"{AT_ONCE} spoken to at a time. `cold`: the connections are made; `kept`: the median of the "
        "rounds after. `plain` is asyncssh alone with the same commands and input, and does none of "
        "our reading, judging and writing down. CPU is the client's, of its children too. A look at a box reads "
        "its processes, and here every box sees those of all: the wall grows by that, plain's too."
    )
    lines = [
        "# A fleet: how looking at it grows",
        "",
        how,
        "",
        "| boxes | what | cold s | kept s | CPU ms a box, cold | kept | peak MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for count, row in sorted(rows.items()):
        for what in ("monitor", "plain monitor", "audit", "plain audit", "leases"):
            it = row[what]
            lines.append(
                f"| {count} | {what} | {it['cold_s']:.2f} | {it['kept_s']:.2f} | "
                f"{it['cold_cpu_s'] / count * 1000:.1f} | {it['kept_cpu_s'] / count * 1000:.1f} | "
                f"{it['peak_mb']:.0f} |"
            )
    few, many = sorted(rows)[-2:] if len(rows) > 1 else (0, 0)
    if few:
        lines += ["", f"From {few} to {many} boxes, {many // few} times as many:", ""]
    for what in ("monitor", "audit", "leases") if few else ():
        less, more = rows[few][what], rows[many][what]
        mb = (more["peak_mb"] - less["peak_mb"]) / (many - few)
        lines.append(
            f"- {what}: wall, kept, {more['kept_s'] / less['kept_s']:.1f} times; CPU, kept, "
            f"{more['kept_cpu_s'] / less['kept_cpu_s']:.1f} times; cold "
            f"{more['cold_cpu_s'] / less['cold_cpu_s']:.1f} times; {mb:.2f} MB for each further box"
        )
        if f"plain {what}" in rows[many]:
            plain = rows[many][f"plain {what}"]
            lines[-1] += (
                f"; of {many} the wall is {more['kept_s'] / plain['kept_s']:.2f} of plain's kept and "
                f"{more['cold_s'] / plain['cold_s']:.2f} cold"
            )
    return lines


if __name__ == "__main__":
    main()
