"""How Vast.ai states money: a contract's charges by GPU, disk and bytes; a volume's price; the credit."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from gpu_tenant.domain.billing import BYTES, Balance, Billed
from gpu_tenant.domain.errors import ProviderSilent
from gpu_tenant.domain.model import MARK_PREFIX, Lease
from gpu_tenant.domain.offers import Leftover
from gpu_tenant.domain.timestamps import instant
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.providers.http_client import Json, figure

CHARGES, USER = "/api/v0/charges/", "/api/v0/users/current"
MONTH_H = 720
"""The hours of a month of storage, by the provider's own arithmetic."""
_DAY_S = 86_400
_PARTS = {"gpu": "gpu", "disk": "disk", "bwu": BYTES, "bwd": BYTES}
_EMPTY = (
    "at zero everything is stopped; a saved card continues to be charged, and without a card boxes and their "
    "data are destroyed"
)


def charges_query(lease: Lease, now: datetime) -> dict[str, str]:
    """Return the query for the charges of all contracts since the lease began, in the official client's form."""
    since = lease.active_at or lease.created_at
    day = {"gte": int(since.timestamp()) // _DAY_S * _DAY_S, "lte": int(now.timestamp())}
    return {
        "select_filters": json.dumps({"day": day, "type": {"in": ["instance"]}}),
        "latest_first": "true",
        "limit": "100",
        "format": "table",
    }


def charge(rows: Sequence[Mapping[str, Json]], box_id: str, now: datetime) -> Billed | None:
    """Return what those rows say about one instance. None if they say nothing about it."""
    row = next((row for row in rows if row.get("source") == f"instance-{box_id}"), None)
    if row is None:
        return None
    usd, end, items = money(row.get("amount")), instant(row.get("end")), row.get("items")
    if usd is None or end is None:
        raise _unreadable(f"the charges of instance {box_id}")
    by_part: dict[str, Decimal] = {}
    for item in items if isinstance(items, list) else []:
        part = _PARTS.get(str(item.get("type")), "other") if isinstance(item, dict) else None
        sum_usd = money(item.get("amount")) if isinstance(item, dict) else None
        if part is None or sum_usd is None:
            raise _unreadable(f"a part of the charges of instance {box_id}")
        by_part[part] = by_part.get(part, Decimal(0)) + sum_usd
    until = min(end, now)
    return Billed(usd=usd, until=until, by_part=by_part, words="Vast.ai's charges per instance")


def credit(user: Mapping[str, Json]) -> Balance | None:
    """Return what the account holds: its credit, as the official client shows it."""
    usd = money(user.get("credit"))
    return None if usd is None else Balance(amount_usd=usd, spends_usd_h=None, words=_EMPTY)


def leftover(row: Mapping[str, Json]) -> Leftover:
    """Describe a volume, with what it costs."""
    label, hourly = str(row.get("label") or ""), money(row.get("storage_total_cost"))
    return Leftover(
        provider="vastai",
        kind="volume",
        id=str(row.get("id")),
        name=plain(label) or f"V.{row.get('id')}",
        mark=label if label.startswith(MARK_PREFIX) else None,
        size_gb=figure(row.get("disk_space")),
        usd_month=None if hourly is None else (hourly * MONTH_H).quantize(Decimal("0.01")),
    )


def money(value: Json) -> Decimal | None:
    """Return the value as a sum of money. None if it is not one."""
    number = figure(value)
    return None if number is None else Decimal(str(number))


def _unreadable(what: str) -> ProviderSilent:
    return ProviderSilent(
        f"Vast.ai's answer about {what} has an unexpected form", remedy="look in its console"
    )
