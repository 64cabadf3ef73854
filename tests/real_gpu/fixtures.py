"""Makes of what was recorded the files that `tests/unit/audit` reads, in the form that it has for other machines."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def make_fixtures(out: Path) -> list[str]:
    """`out/fixtures` can be copied over `tests/unit/audit`. Return the names of its files.

    Raises:
        OSError: a part that they are made of was not recorded.
    """
    from gpu_tenant.box.audit import Needs, audit

    observed: dict[str, Any] = json.loads((out / "load/probe.json").read_text(encoding="utf-8"))
    asked = observed.pop("asked")
    burnt = json.loads((out / "load/burn.json").read_text(encoding="utf-8"))
    name = (burnt.get("gpus") or [{"name": "unknown"}])[0]["name"]
    slug = "recorded-" + re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("nvidia ")).strip("-")
    told = audit(
        observed,
        needs=Needs(gpu_count=1),
        asked_at=datetime.fromtimestamp(asked["asked_at"], UTC),
        answered_at=datetime.fromtimestamp(asked["answered_at"], UTC),
    )
    machine = {
        "about": f"Recorded by `make real-gpu`: a real {name}.",
        # The clocks of the test are its own.
        "changes": {**observed, "smi": f"{slug}.xml", "clock": {}},
        "needs": {"gpu_count": 1},
        "expected": [
            {"level": f.level, "subject": f.subject, "says": f.seen[:60]}
            for f in told.findings
            if f.level != "ok"
        ],
    }
    files = {
        f"machines/{slug}.json": json.dumps(machine, indent=1) + "\n",
        f"smi/{slug}.xml": observed["smi"]["out"],
        f"recorded/{slug}/burn.json": json.dumps(burnt, indent=1) + "\n",
    }
    for kept, place in (
        ("driver/queries.json", "queries.json"),
        ("driver/smi-load.xml", "load.xml"),
        ("looks/activity.jsonl", "activity.jsonl"),
        ("memory/memory.json", "memory.json"),
    ):
        if (out / kept).exists():
            files[f"recorded/{slug}/{place}"] = (out / kept).read_text(encoding="utf-8")
    for place, text in files.items():
        path = out / "fixtures" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return sorted(files)
