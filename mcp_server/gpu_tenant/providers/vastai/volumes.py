"""Volumes at Vast.ai: how they are named, offered and shown. A volume is on one machine, which is its region."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from gpu_tenant.domain.offers import USD_STEP, Attachable, sane
from gpu_tenant.domain.timestamps import instant
from gpu_tenant.domain.volumes import ListedVolume
from gpu_tenant.providers.http_client import Json, figure
from gpu_tenant.providers.response_limits import silent
from gpu_tenant.providers.vastai.billing import leftover, money

VOLUMES, SEARCH = "/api/v0/volumes", "/api/v0/volumes/search/"

_OURS = re.compile(r"gpu_tenant_[0-9a-z]+_vol_[0-9a-z]+")
_MADE = re.compile(r"V\.(\d+)")
_SOON = timedelta(days=7)
"""The end of a host's listing is reported this long before it comes."""


def name_of(mark: str) -> str:
    """Return the mark in the form that Vast.ai accepts as a volume's name: only letters, digits and underscores."""
    return mark.replace("-", "_")


def search(machine: str, size_gb: int) -> dict[str, Json]:
    """Return the query for the room that the machine has for volumes, the cheapest first."""
    return {
        "machine_id": {"eq": int(machine)},
        "disk_space": {"gte": size_gb},
        "external": {"eq": False},
        "order": [["storage_cost", "asc"]],
        "limit": 64,
        "allocated_storage": float(size_gb),
    }


def room(
    rows: Sequence[Mapping[str, Json]], machine: str, size_gb: int
) -> tuple[int, Decimal | None] | None:
    """Return the number of the first offer with enough room, and what the volume would cost a month.

    None if that machine offers no such room.
    """
    for row in rows:
        number, space = row.get("id"), figure(row.get("disk_space"))
        if (
            str(row.get("machine_id")) == machine
            and isinstance(number, int)
            and space is not None
            and space >= size_gb
        ):
            rate = sane(money(row.get("storage_cost")))
            return number, None if rate is None else (rate * size_gb).quantize(USD_STEP)
    return None


def made(answer: Mapping[str, Json]) -> str | None:
    """Return the number of the volume that was just made. None if the answer does not show it."""
    number, name = answer.get("volume_id"), answer.get("volume_name")
    if isinstance(number, int) and not isinstance(number, bool):
        return str(number)
    found = _MADE.fullmatch(name) if isinstance(name, str) else None
    return found[1] if found else None


def linked(volumes: Sequence[Attachable]) -> dict[str, Json]:
    """Return the field of an order that mounts an existing volume. It can name only one."""
    volume = next(iter(volumes), None)
    if volume is None:
        return {}
    number, at = int(volume.id), volume.path
    return {"volume_info": {"mount_path": at, "create_new": False, "volume_id": number}}


def listed_volume(row: Mapping[str, Json], now: datetime) -> ListedVolume:
    """Return the volume in that row of the list.

    Raises:
        ProviderSilent: the row does not show its number, or which instances have it.
    """
    number, users = row.get("id"), row.get("instances")
    if figure(number) is None or not isinstance(users, list | None):
        raise silent("Vast.ai's list: a volume without a number, or without its instances")
    told, machine, ends = leftover(row), row.get("machine_id"), instant(row.get("end_date"))
    return ListedVolume(
        id=told.id,
        name=told.name.replace("_", "-") if _OURS.fullmatch(told.name) else told.name,
        region=str(machine) if isinstance(machine, int) else "no machine",
        size_gb=told.size_gb,
        usd_month=told.usd_month,
        boxes=tuple(str(u.get("id") if isinstance(u, dict) else u) for u in users or ()),
        going=None if ends is None or ends - now > _SOON else _going(ends),
    )


def _going(ends: datetime) -> str:
    """Say that the volume goes with its host's listing."""
    at = f"{ends:%Y-%m-%d %H:%M} UTC"
    return f"its host's listing ends at {at}, and the volume may go with it; copy what counts"
