"""How fast bytes come home, against what else moves bytes, as ratios within one run: `make bench-transfers`.

Each row brings the same bytes by a collect of the product and by the programs of others, in turn, and
shows what the machine or the link does alone. Rows may be run one by one (`--only NAME`): what is
in `results/transfers.json` of the others stays.
"""

import argparse
import json
import mmap
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import again
import page
import races
from gauge import measured
from links import ROOT, Loopback, NotHere, make_key
from peers import CIPHERS, Way
from races import Bench, Judged, Row

from gpu_tenant.domain.clock import WallClock

RESULTS = Path(__file__).parent / "results"
VERIFY = Path(__file__).with_name("verify.py")
_MEMORY_MB = 200
_WARM_BYTES = 10 * 10**9
_PROOF = "a 2 GB checkpoint proved, hashed and checked to load"


def main() -> None:
    said = _words()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that links and boxes are undone
    results = said.results or (None if said.small else RESULTS)
    known = _earlier(results)
    with tempfile.TemporaryDirectory(prefix="gt-bench-", ignore_cleanup_errors=True) as scratch:
        bench = _bench(Path(scratch), shrink=10 if said.small else 1, rounds=said.rounds)
        if not said.cold_memory:
            warm_memory(_WARM_BYTES // bench.shrink)
        ciphers = _best_cipher(bench)
        known |= {"machine": _machine(), "ciphers_mb_s": ciphers, "small": said.small}
        for name in said.only or ALL:
            known["rows"][name] = page.as_json(_run(name, bench))
            _settle(known, results)
    for line in page.summary(known):
        print(line)


def warm_memory(size_bytes: int) -> None:
    """So much memory was touched once: a hypervisor hands it out lazily, and that would be timed."""
    size_bytes = min(size_bytes, os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE // 2)
    block = bytes(1 << 24)
    with mmap.mmap(-1, size_bytes) as memory:
        for at in range(0, size_bytes - len(block), len(block)):
            memory[at : at + len(block)] = block


def _words() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--only", action="append", choices=ALL, help="a row; may be repeated")
    words.add_argument("--small", action="store_true", help="a tenth of the sizes; writes nothing")
    words.add_argument("--rounds", type=int, help="instead of each row's own number")
    words.add_argument("--results", type=Path, help=f"instead of {RESULTS.relative_to(ROOT)}")
    words.add_argument("--cold-memory", action="store_true", help="do not touch memory first")
    return words.parse_args()


def _bench(scratch: Path, *, shrink: int, rounds: int | None) -> Bench:
    home = scratch / "home"
    home.mkdir()
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GPU_TENANT", "SSH_", "RCLONE_", "RSYNC_"))
    }
    environ |= {"HOME": str(home), "GPU_TENANT_NO_POWEROFF": "1"}
    return Bench(
        scratch,
        make_key(scratch / "key"),
        environ,
        shrink,
        rounds,
        say=lambda words: print(words, flush=True),
    )


def _run(name: str, bench: Bench) -> Row:
    race = next((race for race in races.RACES if race.name == name), None)
    work = race.work if race else _PROOF if name == "verify" else again.AGAIN[name][0]
    print(f"{name}: {work}", flush=True)
    began, load = time.monotonic(), os.getloadavg()[0]
    try:
        if race:
            row = race.run(bench)
        elif name == "verify":
            row = _verify(Row(name, work), bench)
        else:
            row = Row(name, work)
            _, how, link, rounds = again.AGAIN[name]
            how(bench, link(bench), row, bench.rounds or rounds)
    except NotHere as why:
        row = Row(name, work, notes=[_not_run(why)])
    except Exception as why:  # noqa: BLE001 - the other rows are worth having all the same
        traceback.print_exc()
        row = Row(name, work, notes=[_not_run(why)])
    row.took_s, row.load = time.monotonic() - began, load
    row.date = f"{WallClock().now():%Y-%m-%d %H:%M} UTC"
    for line in page.of_row(page.as_json(row)):
        print(line, flush=True)
    return row


def _not_run(why: Exception) -> str:
    text = " ".join(str(why).split())[-300:]
    return f"not run: {text if isinstance(why, NotHere) else f'it failed: {text}'}"


def _best_cipher(bench: Bench) -> dict[str, float]:
    """MB/s of one `ssh cat` by cipher; the best is what every peer of OpenSSH uses."""
    rates: dict[str, float] = {}
    costs: dict[str, float] = {}
    with Loopback() as link, bench.box(link) as box:
        file = box.home / "zeros"
        with file.open("wb") as sparse:
            sparse.truncate(10**9 // bench.shrink)
        for cipher in CIPHERS * 2:
            line = Way(box, bench.key, cipher).ssh(f"exec cat {file}")
            went = measured(["bash", "-c", f"{line} > /dev/null"], env=bench.environ, limit_s=120)
            rates[cipher] = max(rates.get(cipher, 0), file.stat().st_size / went.seconds / 1e6)
            costs[cipher] = min(costs.get(cipher, went.cpu_s), went.cpu_s)
    # By what it costs the CPU, which is what bounds it, and which other load disturbs least.
    bench.cipher = min(costs, key=lambda cipher: costs[cipher])
    said = {cipher or "OpenSSH's default": round(rate, 1) for cipher, rate in rates.items()}
    print(f"one `ssh cat` to nowhere, MB/s by cipher: {said}; {bench.cipher} is used", flush=True)
    return said


def _verify(row: Row, bench: Bench) -> Row:
    """What tests/bench/verify.py says, each file's wall time against `sha256sum`'s."""
    if not VERIFY.is_file():
        raise NotHere("there is no tests/bench/verify.py")
    argv = [sys.executable, str(VERIFY), "--json", "--into", str(bench.place("verify"))]
    argv += ["--small"] if bench.shrink > 1 else []
    went = subprocess.run(argv, capture_output=True, encoding="utf-8", check=False)
    if went.returncode:
        raise NotHere(f"verify.py ended with {went.returncode}: {went.stderr.strip()[-200:]}")
    told = json.loads(went.stdout)
    row.link, row.detail = "this disk, cold", told
    for kind, figures in told.items():
        if isinstance(figures, dict) and "against_sha256sum" in figures:
            what = f"{kind}: wall time, of sha256sum's"
            row.judged.append(Judged(what, figures["against_sha256sum"], told["bar"], "at most"))
    return row


def _earlier(results: Path | None) -> dict[str, object]:
    file = results / "transfers.json" if results else None
    if file is None or not file.is_file():
        return {"rows": {}}
    return json.loads(file.read_text(encoding="utf-8"))


def _settle(known: dict[str, object], results: Path | None) -> None:
    """The memory of all rows is judged, and everything known so far is written down."""
    known["rows"] = {name: known["rows"][name] for name in ALL if name in known["rows"]}
    known["memory"] = _memory(known["rows"])
    if results:
        results.mkdir(parents=True, exist_ok=True)
        page.write(known, results)


def _memory(rows: dict[str, dict[str, list[dict[str, object]]]]) -> dict[str, object]:
    ours = [
        (float(figure["peak_mb"]), name, figure["who"], figure["high_water_mb"])
        for name, row in rows.items()
        for figure in row["figures"]
        if str(figure["who"]).startswith("ours")
    ]
    if not ours:
        return page.as_json(Row("memory", "peak memory of any of these"))
    peak, name, who, high = max(ours)
    row = Row("memory", "peak memory of any of these")
    row.judged.append(Judged(f"the most of all: {name}, {who}", peak, _MEMORY_MB, "at most", "MB"))
    row.notes.append(
        f"the sum of PSS over our process and its children, every 0.1 s; VmHWM of the main process {high:.0f} MB"
    )
    return page.as_json(row)


def _machine() -> dict[str, str]:
    def first(*argv: str) -> str:
        if not shutil.which(argv[0]):
            return "absent"
        went = subprocess.run(argv, capture_output=True, encoding="utf-8", check=False)
        return (went.stdout + went.stderr).partition("\n")[0].strip()

    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    commit = first("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10")
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return {
        "gpu-tenant": commit,
        "OpenSSH": first("ssh", "-V"),
        "rsync": first("rsync", "--version"),
        "rclone": first("rclone", "version"),
        "tar": first("tar", "--version"),
        "Python": platform.python_version(),
        "kernel": platform.release(),
        "CPU": f"{len(cpu)} x {cpu[0] if cpu else platform.machine()}",
        "TCP of this end": congestion.read_text(encoding="ascii").strip(),
        "date": f"{WallClock().now():%Y-%m-%d}",
    }


ALL = (*(race.name for race in races.RACES), *again.AGAIN, "verify")

if __name__ == "__main__":
    main()
