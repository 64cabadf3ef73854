"""What a life came to: the provider's meter and requests against permits, receipts and kept files."""

from __future__ import annotations

import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storm.stages import PLACES, same

if TYPE_CHECKING:
    from storm.lives import Life

COUNTERS = (
    "unproved_destroys",
    "boxes_twice",
    "lost_while_listed",
    "unknown_boxes",
    "receipts_off",
    "kept_not_as_written",
    "stuck_silently",
    "tracebacks",
    "hung",
    "under_an_alias",
    "rates_wrong",
    "over_the_most",
    "stuck",
)


def counted(life: Life) -> dict[str, Any]:
    """How often each thing happened that must not, and the words for each."""
    told: list[tuple[str, object]] = []
    meter, requests = life.stage.ask("meter"), life.stage.ask("requests")
    leases = {row["id"]: row for row in life.rows("SELECT * FROM leases WHERE provider <> 'own'")}
    permits = life.rows("SELECT lease_id, box_id, ground FROM permits")
    receipts = [json.loads(row["record"]) for row in life.rows("SELECT record FROM receipts")]
    alarms = life.rows("SELECT lease_id, words FROM alarms WHERE ended_at IS NULL")
    told += [(kind, words) for kind, words in _flags(life)]
    told += life.endings.found
    told += _destroys(life, requests, permits)
    standing = meter["running"] + meter["parked"]
    for row in leases.values():
        on = [box for box in standing if same(box["id"], row["box_id"])]
        if on and row["state"] in ("lost", "void", "gone"):
            told.append(("lost_while_listed", {"lease": row["id"], "state": row["state"]}))
        if row["state"] in ("intended", "active", "terminating") and not any(
            alarm["lease_id"] == row["id"] for alarm in alarms
        ):
            told.append(("stuck_silently", {"lease": row["id"], "state": row["state"]}))
    words = json.dumps([alarms, life.told])
    for box in standing:
        known = any(same(box["id"], row["box_id"]) for row in leases.values())
        marked = "gpu-tenant" in box["name"] or any(name in box["name"] for name in leases)
        if marked and not known and box["id"].rpartition("/")[2] not in words:
            told.append(("unknown_boxes", box))
    told += _twice(leases)
    for receipt in receipts:
        told += _money(receipt, meter["by_thing"])
    told += _kept(life, permits, leases)
    return {
        "leases": len(leases),
        "counts": {name: n for name in COUNTERS if (n := sum(kind == name for kind, _ in told))},
        "found": [[kind, what] for kind, what in told],
        "verbs": life.client.calls,
        "permits": dict(Counter(permit["ground"] for permit in permits)),
        "states": dict(Counter(row["state"] for row in leases.values())),
    }


def _flags(life: Life) -> list[tuple[str, object]]:
    names = {
        "traceback": "tracebacks",
        "hung": "hung",
        "destroyed under an alias": "under_an_alias",
    }
    return [(names[kind], what) for kind, what in life.client.flags]


def _twice(leases: dict[str, dict[str, Any]]) -> list[tuple[str, object]]:
    """What one quote rented while it had a box already."""
    rented = sorted(
        (row for row in leases.values() if row["quote"] and row["box_id"]),
        key=lambda row: str(row["created_at"]),
    )
    until: dict[str, str] = {}
    found: list[tuple[str, object]] = []
    for row in rented:
        quote = json.loads(row["quote"])["id"]
        if row["created_at"] < until.get(quote, ""):
            found.append(("boxes_twice", {"lease": row["id"], "quote": quote}))
        until[quote] = max(until.get(quote, ""), row["ended_at"] or "9999")
    return found


def _destroys(
    life: Life, requests: list[dict[str, Any]], permits: list[dict[str, Any]]
) -> list[tuple[str, object]]:
    """Every destroy that was answered well stands on a permit, and none on a box that was used unseen."""
    method, path = PLACES[life.stage.provider]["delete"]
    found: list[tuple[str, object]] = []
    for line in requests:
        if line["method"] != method or not re.search(path, line["path"]):
            continue
        if not line["status"] or line["status"] >= 300:
            continue
        body = line["body"] if isinstance(line["body"], dict) else {}
        named = [body["instance_uuid"]] if "instance_uuid" in body else body.get("instance_ids")
        for box in named or [line["path"].rstrip("/").rpartition("/")[2]]:
            over = [permit for permit in permits if same(permit["box_id"], box)]
            if not over:
                found.append(("unproved_destroys", {"box": box, "permit": None}))
            for permit in over:
                used = permit["lease_id"] in life.launched and _ran(life, permit["lease_id"])
                by_hand = any(same(clone, box) for clone in life.clones)
                if permit["ground"] == "never_used" and (used or by_hand):
                    found.append(("unproved_destroys", permit))
    return found


def _ran(life: Life, lease: str) -> bool:
    """Whether the ledger, or any earlier one, saw a job of that lease begin."""
    seen = life.rows(f"SELECT kind FROM events WHERE lease_id='{lease}'")
    return any(row["kind"] == "launched" for row in seen)


def _money(receipt: dict[str, Any], by_thing: dict[str, str]) -> list[tuple[str, object]]:
    billed = next(
        (Decimal(usd) for box, usd in by_thing.items() if same(box, receipt["box_id"])), None
    )
    if billed is None or receipt["cost_usd"] is None:
        return []
    cost = Decimal(str(receipt["cost_usd"]))
    least, most = (Decimal(str(receipt[f"cost_{end}_usd"] or cost)) for end in ("least", "most"))
    off = Decimal("0.02") + billed * Decimal("0.05")
    if least - off <= billed <= most + off:
        return []
    what = {"lease": receipt["lease_id"], "receipt": str(cost), "meter": str(billed)}
    return [("receipts_off", what)]


def _kept(
    life: Life, permits: list[dict[str, Any]], leases: dict[str, dict[str, Any]]
) -> list[tuple[str, object]]:
    """What was destroyed as verified lies here, as the job wrote it."""
    found: list[tuple[str, object]] = []
    for permit in permits:
        lease = leases.get(permit["lease_id"])
        if lease is None or permit["ground"] != "verified" or not _ran(life, lease["id"]):
            continue
        where = Path(lease["kept_in"] or life.state / "kept" / lease["id"])
        kept = [path.read_bytes() for path in where.glob("**/out/b.bin")]
        if life.content() not in kept:
            found.append(("kept_not_as_written", permit))
    return found
