"""The driver's own words: `nvidia-smi` in every spelling that our code reads, at rest and under load, kept as fixtures."""

import re
import shutil
from dataclasses import asdict
from typing import Any

from real_gpu.record import SCRIPTS, Ran, Record, load_script, ran_of

CSV = "--format=csv,noheader,nounits"
ALSO = (["-q"], ["topo", "-m"], [])
"""Nothing of ours reads these. They say more of the machine than we ask for."""


def spellings() -> list[list[str]]:
    """The arguments of `nvidia-smi`, each as some script of ours gives them."""
    burn, activity = load_script("burn.py"), load_script("activity.py")
    caretaker = (SCRIPTS / "caretaker.py").read_text(encoding="utf-8")
    (sample,) = re.findall(r'"(--query-gpu=[^"]+)"', caretaker)
    return [
        ["-q", "-x"],
        ["-L"],
        ["--query-gpu=" + ",".join(burn.FIELDS), CSV],
        ["--query-gpu=" + ",".join(burn.FIELDS[:11]), CSV],
        ["--query-compute-apps=gpu_bus_id,process_name,used_memory", CSV],
        ["--query-gpu=" + ",".join(activity.ASKED), CSV],
        ["--query-gpu=" + ",".join(activity.ASKED[:4]), CSV],
        ["--query-compute-apps=gpu_uuid,pid,used_memory", CSV],
        [sample, CSV],
    ]


def queried(
    program: str, state: str, environ: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """Each spelling, and what the program answered to it."""
    asked = [*spellings(), *ALSO]
    return [
        {"state": state, **asdict(ran_of([program, *words], timeout_s=25, environ=environ))}
        for words in asked
    ]


def part(record: Record) -> None:
    program = shutil.which("nvidia-smi")
    if not record.right("nvidia-smi is here", program or "no", program):
        return
    idle = queried(program, "idle")
    record.keep("queries.json", idle)
    with record.busy(60) as pid:
        loaded = queried(program, "load") if pid else []
        record.keep("queries.json", [*idle, *loaded])
        for state, rows in (("idle", idle), ("load", loaded)):
            if rows:
                record.keep(f"smi-{state}.xml", found(rows, "-q", "-x").out)
        for ran in (*idle, *loaded):
            _judge(record, ran)
        if loaded:
            _judge_load(record, loaded, pid)


def _judge(record: Record, ran: dict[str, Any]) -> None:
    words = " ".join(ran["argv"][1:]) or "(no argument)"
    name = f"{ran['state']}: nvidia-smi {words[:60]}"
    failed = ran["status"] != 0
    unknown = sorted(set(re.findall(r"\[[^\],]{1,40}\]", ran["out"]))) if "csv" in words else []
    said = ran["err"] or ran["out"][:200] if failed else ", ".join(unknown)
    record.right(name, f"{ran['took_s']} s {said}".strip(), not failed and not unknown)


def _judge_load(record: Record, loaded: list[dict[str, Any]], pid: int) -> None:
    cells = [c.strip() for c in found(loaded, "uuid,pci.bus_id", "power.limit").out.split(",")]
    record.right("under load: its use in percent", cells[2], int(cells[2] or 0) >= 90)
    record.right(
        "under load: power, of its limit", f"{cells[5]} of {cells[6]} W", float(cells[5]) > 150
    )
    apps = found(loaded, "gpu_uuid,pid").out
    record.right("the driver lists our process by its number", apps, f" {pid}," in apps)
    xml = found(loaded, "-q", "-x").out
    record.right("and so does its XML", f"process {pid}", f"<pid>{pid}</pid>" in xml)


def found(rows: list[dict[str, Any]], *words: str) -> Ran:
    """The first of the rows whose arguments have all these words."""
    for row in rows:
        if all(word in " ".join(row["argv"][1:]) for word in words):
            return Ran(**{name: value for name, value in row.items() if name != "state"})
    return Ran([], None, "", "not asked", 0)
