"""The offers of Vast.ai's hosts in a rehearsal, and the searches that find them."""

from collections.abc import Callable
from decimal import Decimal
from typing import Literal

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gpu_tenant.emulators.vastai.responses import (
    COMPARE,
    MONTH_H,
    Row,
    costs,
    ip,
    no,
)
from gpu_tenant.emulators.world import World

FIELDS = (
    "id",
    "gpu_name",
    "num_gpus",
    "of",
    "gpu_ram",
    "dph_base",
    "min_bid",
    "storage_cost",
    "inet_up_cost",
    "inet_down_cost",
    "inet_up",
    "inet_down",
    "reliability2",
    "verification",
    "datacenter",
    "geolocation",
    "days",
    "disk_space",
    "direct_port_count",
    "machine_id",
)
ASKS: tuple[dict[str, JsonValue], ...] = tuple(
    dict(zip(FIELDS, row, strict=True))
    for row in (
        (
            9001,
            "RTX 4090",
            1,
            8,
            24564,
            "0.40",
            "0.20",
            "0.15",
            "0.004",
            "0.003",
            800.0,
            900.0,
            0.995,
            "verified",
            False,
            "Oregon, US",
            30,
            900,
            200,
            41,
        ),
        (
            9002,
            "RTX 4090",
            1,
            4,
            24564,
            "0.28",
            "0.14",
            "0.20",
            "0.02",
            "0.02",
            90.0,
            250.0,
            0.91,
            "unverified",
            False,
            "Hanoi, VN",
            12,
            300,
            60,
            42,
        ),
        (
            9003,
            "RTX 4090",
            2,
            8,
            24564,
            "0.80",
            "0.40",
            "0.15",
            "0.004",
            "0.003",
            800.0,
            900.0,
            0.995,
            "verified",
            False,
            "Oregon, US",
            30,
            900,
            200,
            41,
        ),
        (
            9004,
            "RTX 3090",
            1,
            4,
            24576,
            "0.22",
            "0.10",
            "0.12",
            "0.005",
            "0.005",
            500.0,
            600.0,
            0.98,
            "verified",
            False,
            "Brno, CZ",
            60,
            500,
            100,
            43,
        ),
        (
            9005,
            "H100 SXM",
            1,
            8,
            81559,
            "2.20",
            "1.30",
            "0.18",
            "0.002",
            "0.002",
            5000.0,
            6000.0,
            0.999,
            "verified",
            True,
            "Virginia, US",
            90,
            4000,
            500,
            44,
        ),
        (
            9006,
            "H100 SXM",
            8,
            8,
            81559,
            "17.60",
            "10.40",
            "0.18",
            "0.002",
            "0.002",
            5000.0,
            6000.0,
            0.999,
            "verified",
            True,
            "Virginia, US",
            90,
            4000,
            500,
            45,
        ),
        (
            9007,
            "A100 SXM4",
            1,
            8,
            81920,
            "1.10",
            "0.60",
            "0.15",
            "0.003",
            "0.003",
            2000.0,
            3000.0,
            0.997,
            "verified",
            True,
            "Amsterdam, NL",
            45,
            2000,
            300,
            46,
        ),
        (
            9008,
            "A100 PCIE",
            1,
            2,
            40960,
            "0.70",
            "0.35",
            "0.15",
            "0.003",
            "0.003",
            900.0,
            900.0,
            0.99,
            "verified",
            False,
            "Lyon, FR",
            20,
            700,
            50,
            47,
        ),
        # The first is cheap, but its rental ends within the hour. The other cannot be reached
        # directly.
        (
            9009,
            "RTX 4090",
            1,
            1,
            24564,
            "0.19",
            "0.08",
            "0.15",
            "0.004",
            "0.003",
            700.0,
            700.0,
            0.97,
            "verified",
            False,
            "Texas, US",
            0.03,
            500,
            100,
            48,
        ),
        (
            9010,
            "RTX 4090",
            1,
            1,
            24564,
            "0.21",
            "0.09",
            "0.15",
            "0.004",
            "0.003",
            700.0,
            700.0,
            0.97,
            "verified",
            False,
            "Texas, US",
            30,
            500,
            0,
            49,
        ),
    )
)
_DLPERF = {
    "RTX 3090": 40.0,
    "RTX 4090": 90.0,
    "A100 PCIE": 100.0,
    "A100 SXM4": 110.0,
    "H100 SXM": 250.0,
}
"""A score for one GPU, made up, as the prices are. Only their order is meant."""

_MOST_SHOWN = 64
"""The most offers that one search shows, whatever its `limit`: seen on a real account on 2026-09-29, by
visgotti/asap-vps, VastAI.ts."""
CHEAP = {**ASKS[3], "gpu_name": "RTX 3060", "gpu_ram": 12288, "min_bid": "0.01", "of": 1}
_BOUNDS = ("gt", "gte", "lt", "lte")


def _crowd(world: World) -> list[Row]:
    """Cheap offers, each on a machine of its own. Every ten of them have the same price."""
    return [
        {
            **CHEAP,
            "id": 20_001 + n,
            "machine_id": 2_001 + n,
            "dph_base": f"0.0{50 + n // 10}",
            "geolocation": "Reykjavik, Iceland" if n == 299 else "Brno, CZ",
        }
        for n in range(int(str(world.state.facts.get("crowd", 0))))
    ]


def asks(world: World) -> list[Row]:
    """What the hosts ask now: the usual asks, or the asks of a market day.

    An ask of a market day stands from its `since` to its `until`.
    """
    day = world.state.facts.get("market_day")
    if not isinstance(day, list):
        return [*ASKS, *_crowd(world)]
    return [
        ask
        for ask in day
        if isinstance(ask, dict)
        and float(str(ask["since"])) <= world.now < float(str(ask["until"]))
    ]


class VastMarket:
    """Every host's asks, with the room that the account's own boxes leave."""

    def __init__(self, world: World) -> None:
        self._world = world

    def search(self, request: Request, body: Row) -> Response:
        """The offers that a search finds."""
        tests = dict(body)
        kind = str(tests.pop("type", "on-demand"))
        disk = Decimal(str(tests.pop("allocated_storage", 8)))
        order, limit = tests.pop("order", []), tests.pop("limit", None)
        rows = [
            _offer(ask, disk, self._world, kind=kind, free=self.free(ask))
            for ask in asks(self._world)
        ]
        loose = self._world.state.facts.get("loose_filters")
        found = matching(rows, tests, order, bounds="loose" if loose else "kept")
        if isinstance(found, Response):
            return found
        most = min(limit, _MOST_SHOWN) if isinstance(limit, int) else _MOST_SHOWN
        return JSONResponse({"offers": found[:most]})

    def free(self, ask: Row) -> int:
        """How many more boxes of this ask's kind its machine has room for. A stopped box holds no GPU."""
        taken = sum(
            int(str(box.facts["num_gpus"]))
            for box in self._world.things()
            if box.facts["machine_id"] == ask["machine_id"] and box.phase != "parked"
        )
        return (int(str(ask["of"])) - taken) // int(str(ask["num_gpus"]))


def _offer(ask: Row, disk: Decimal, world: World, *, kind: str, free: int) -> Row:
    """That ask as a search shows it, for a disk of that size."""
    factor, bid = world.state.price_factor, kind in ("bid", "interruptible")
    gpu = Decimal(str(ask["min_bid" if bid else "dph_base"])) * factor
    hourly = disk * Decimal(str(ask["storage_cost"])) / MONTH_H
    seconds = float(str(ask["days"])) * 86400
    dlperf = _DLPERF.get(str(ask["gpu_name"]), 50.0) * int(str(ask["num_gpus"]))
    return {
        **{
            name: float(value) if isinstance(value, str) and value[0].isdigit() else value
            for name, value in ask.items()
            if name not in ("of", "days", "since", "until")
        },
        "ask_contract_id": ask["id"],
        "bundle_id": ask["machine_id"],
        "host_id": ask["machine_id"],
        "dph_base": float(gpu),
        "dph_total": float(gpu + hourly),
        "storage_total_cost": float(hourly),
        "min_bid": float(Decimal(str(ask["min_bid"])) * factor),
        "is_bid": bid,
        "search": costs(gpu, hourly),
        "instance": costs(Decimal(0), hourly),
        "reliability": ask["reliability2"],
        "verified": ask["verification"] == "verified",
        "rentable": free > 0,
        "rented": False,
        "external": False,
        "hosting_type": 0,
        "duration": seconds,
        "start_date": world.now,
        "end_date": world.now + seconds,
        "gpu_frac": int(str(ask["num_gpus"])) / int(str(ask["of"])),
        "gpu_arch": "nvidia",
        "gpu_total_ram": int(str(ask["gpu_ram"])) * int(str(ask["num_gpus"])),
        "cpu_arch": "amd64",
        "cuda_max_good": 12.8,
        "compute_cap": 890,
        "driver_version": "570.124.04",
        "cpu_ram": 128000,
        "cpu_cores": 64,
        "cpu_cores_effective": 16.0,
        "dlperf": dlperf,
        "score": float(1000 / gpu),
        "dlperf_per_dphtotal": dlperf / float(gpu),
        "flops_per_dphtotal": 80.0,
        "static_ip": True,
        "vms_enabled": False,
        "public_ipaddr": ip(ask),
        "disk_bw": 2000.0,
    }


def matching(
    rows: list[Row], tests: Row, order: JsonValue, *, bounds: Literal["kept", "loose"] = "kept"
) -> list[Row] | Response:
    """The rows that pass every filter, in order, or a refusal.

    If `bounds` are loose, no bound of a number is applied: a client in production saw that on 2026-10-06.
    """
    shown = rows[0] if rows else {}
    for name, wanted in tests.items():
        known = name in shown or not rows
        if not known or not isinstance(wanted, dict) or not set(wanted) <= set(COMPARE):
            return no(400, "invalid_request", f"Error in query: {name} is not a valid search key")
    for name, wanted in tests.items():
        for op, value in wanted.items() if isinstance(wanted, dict) else ():
            if bounds == "loose" and op in _BOUNDS:
                continue
            if name == "id":
                rows = []  # It is no key of a search: clients note that it finds nothing. `ask_contract_id` is one.
            # `datacenter` and `external` are scopes and no fields. Without these scopes, community machines and
            # data centers are all shown.
            if value or name not in ("datacenter", "external"):
                rows = [row for row in rows if COMPARE[op](row[name], _like(value, row[name]))]
    for by in reversed(order if isinstance(order, list) else []):
        if isinstance(by, list):
            rows.sort(key=_sorter(str(by[0])), reverse=by[1:] == ["desc"])
    return rows


def _sorter(name: str) -> Callable[[Row], float]:
    return lambda row: float(str(row.get(name) or 0))


def _like(value: JsonValue, field: JsonValue) -> JsonValue:
    """A filter's value in the type of its field, because clients send numbers as text."""
    number = isinstance(field, int | float) and not isinstance(field, bool)
    return float(value) if number and isinstance(value, str) else value
