"""Lies of a platform, and a pilot that meets each.

    PYTHONPATH=tests python -m pilot_lies.lies [PROVIDER | PROVIDER:LIE ...]

prints a table: whether the pilot found the lie, whether something bills of which it did not say so, and the cost.
"""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from contract.test_providers import CREATE, DESTROY, LIST
from e2e.renting import tenant_at
from liar import Liar, Said, each

from gpu_tenant.domain.errors import TenantError
from gpu_tenant.emulators.world import KEY
from gpu_tenant.errands.answers import RentalPlan
from gpu_tenant.errands.pilot import Pilot, PilotReport

MOST_USD = Decimal("1.50")
STATE = {
    "autodl": "status",
    "digitalocean": "status",
    "gcp": "status",
    "lambda_cloud": "status",
    "runpod": "status",
    "vastai": "actual_status",
}
ROW = {
    "autodl": "charge_type",
    "digitalocean": "size_slug",
    "gcp": "machineType",
    "lambda_cloud": "instance_type",
    "runpod": "mounts",
    "vastai": "actual_status",
}
"""A field that a box's row has, and no other object."""
OFFERED = {
    "digitalocean": ("price_hourly",),
    "lambda_cloud": ("price_cents_per_hour",),
    "runpod": ("secure", "community"),
    "vastai": ("dph_base", "dph_total", "min_bid", "storage_cost"),
}
CHARGED = {
    "autodl": ("payg_price",),
    "digitalocean": ("price_hourly",),
    "lambda_cloud": ("price_cents_per_hour",),
    "runpod": ("cost",),
    "vastai": ("totalHour",),
}
ROWS = {
    "autodl": "list",
    "digitalocean": "droplets",
    "lambda_cloud": "data",
    "runpod": "pods",
    "vastai": "instances",
}
STOP = {
    "autodl": (r"/release$", "/api/v1/dev/instance/pro/power_off"),
    "digitalocean": (r"/droplets/(\d+)$", "/v2/droplets/{}/actions"),
    "runpod": (r"/pods/(\w+)$", "/v2/pods/{}/action"),
    "vastai": (r"/instances/(\d+)/$", "/api/v0/instances/{}/"),
}
"""The call that ends a box, and the call that stops it instead."""
STOPS_WITH = {
    "digitalocean": ("POST", {"type": "power_off"}),
    "runpod": ("POST", {"action": "stop"}),
    "vastai": ("PUT", {"state": "stopped"}),
}


@dataclass
class Stage:
    """What a lie knows of the rental."""

    slug: str
    url: str
    created: bool = False

    def is_call(self, calls: dict[str, tuple[str, str]], method: str, path: str) -> bool:
        wanted, regex = calls[self.slug]
        return method == wanted and bool(re.search(regex, path.partition("?")[0]))


Change = Callable[[Stage, Said], None]


def renamed_state(stage: Stage, said: Said) -> None:
    def change(row: dict[str, Any]) -> None:
        if ROW[stage.slug] in row and STATE[stage.slug] in row:
            row["phase"] = row.pop(STATE[stage.slug])

    each(said.body, change)


def unknown_state(stage: Stage, said: Said) -> None:
    def change(row: dict[str, Any]) -> None:
        if ROW[stage.slug] in row and STATE[stage.slug] in row:
            row[STATE[stage.slug]] = "HIBERNATING"

    if stage.created and not stage.is_call(CREATE, said.method, said.path):
        each(said.body, change)


def _prices(names: tuple[str, ...], to: Callable[[float], Any]) -> Callable[[Any], Any]:
    def change(row: dict[str, Any]) -> None:
        for name in names:
            value = row.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                row[name] = to(value)

    return lambda body: each(body, change)


def price_in_cents(stage: Stage, said: Said) -> None:
    _prices(OFFERED[stage.slug], lambda usd: usd * 100)(said.body)


def _in_rows(stage: Stage, said: Said, to: Callable[[float], Any]) -> None:
    def change(row: dict[str, Any]) -> None:
        if ROW[stage.slug] in row or "payg_price" in row:
            _prices(CHARGED[stage.slug], to)(row)

    is_offer = "instance-types" in said.path
    if stage.created and not is_offer and not stage.is_call(CREATE, said.method, said.path):
        each(said.body, change)


def price_as_text(stage: Stage, said: Said) -> None:
    _in_rows(stage, said, lambda usd: f"{usd} USD")


def price_triples(stage: Stage, said: Said) -> None:
    _in_rows(stage, said, lambda usd: usd * 3)


def list_null(stage: Stage, said: Said) -> None:
    if stage.created and stage.is_call(LIST, said.method, said.path):
        holder = said.body
        if stage.slug == "autodl":
            holder = said.body.get("data", {})
        holder[ROWS.get(stage.slug, "items")] = None


def unknown_pages(stage: Stage, said: Said) -> None:
    """The list shows nothing, and names a next page in a way of its own."""
    if stage.created and stage.is_call(LIST, said.method, said.path):
        if stage.slug == "autodl":
            said.body["data"] = {"list": [], "page_index": 1, "max_page": 1, "result_total": 3}
        elif stage.slug == "gcp":
            said.body["items"] = {}
            said.body["unreachables"] = ["zones/us-central1-a"]
        else:
            for name in ("meta", "pagination", "next_token", "total_instances", "links"):
                said.body.pop(name, None)
            said.body[ROWS[stage.slug]] = []
            said.body["paging"] = {"next_cursor": "abc"}


LIES: dict[str, Change] = {
    lie.__name__: lie
    for lie in (
        renamed_state,
        unknown_state,
        price_in_cents,
        price_as_text,
        price_triples,
        list_null,
        unknown_pages,
    )
}
FAULTS = {
    "list_lags_an_hour": {"do": "list_lag", "seconds": 3600},
    "create_500_and_makes_it": {"do": "created_despite_error"},
    "create_200_and_breaks": {"do": "drop_after"},
}
ALL = (*LIES, *FAULTS, "delete_only_stops")
NOT_SAID = {
    ("gcp", lie) for lie in ("price_in_cents", "price_as_text", "price_triples", "list_null")
} | {("autodl", "price_in_cents")}
"""Google tells no price and no list of rows, AutoDL no price of an offer: what an API does not say cannot be a lie."""


@dataclass
class Met:
    """What became of one pilot."""

    slug: str
    lie: str
    found: str
    ended: str
    left: list[str]
    usd: Decimal
    rented: bool

    @property
    def is_unseen(self) -> bool:
        """Whether something bills of which the pilot did not say so."""
        return bool(self.left) and self.ended == "gone"

    @property
    def is_over(self) -> bool:
        return self.usd > MOST_USD


async def meet(slug: str, lie: str, root: Path) -> Met:
    """Let a pilot meet that lie at that provider."""
    async with tenant_at(slug, root, time="runs") as tenant:
        stage = Stage(slug, tenant.stage.url)
        change = LIES.get(lie)

        def tell(said: Said) -> Said:
            if stage.is_call(CREATE, said.method, said.path):
                stage.created = True
            if change is not None and said.status < 300 and isinstance(said.body, dict):
                change(stage, said)
            return said

        def instead(method: str, path: str, asked: Any) -> tuple[int, Any] | None:
            if lie != "delete_only_stops" or not stage.is_call(DESTROY, method, path):
                return None
            if slug in STOPS_WITH:
                regex, there = STOP[slug]
                found = re.search(regex, path.partition("?")[0])
                verb, body = STOPS_WITH[slug]
                place = there.format(found.group(1)) if found else there
                _ask(stage.url + place, verb, body, KEY)
            if slug == "lambda_cloud":
                return 200, {"data": {"terminated_instances": []}}
            if slug == "autodl":
                return 200, {"code": "Success", "msg": "", "data": None}
            return (204, None) if slug in ("runpod", "digitalocean") else (200, {"success": True})

        if lie == "delete_only_stops" and slug in ("gcp", "autodl", "lambda_cloud"):
            tenant.fault("stuck_termination")
        elif (fault := FAULTS.get(lie)) is not None:
            method, path = CREATE[slug]
            at = {} if lie == "list_lags_an_hour" else {"method": method, "path": path}
            tenant.fault(**at, **fault)  # type: ignore[arg-type]
        uses = None if slug in ("gcp", "autodl", "lambda_cloud") else instead
        with Liar(tenant.stage.url, tell, uses) as liar:
            tenancy = tenant.anew_tenancy(api=liar.url)
            report, refused = await _pilot(tenancy, slug)
            meter = tenant.meter
        left = [*tenant.alive, *(thing["id"] for thing in meter["leaked"])]
        return Met(
            slug,
            lie,
            refused or _found(report),
            report.ended if report else "nothing was rented",
            left,
            Decimal(meter["billed_usd"]),
            stage.created,
        )


async def _pilot(tenancy: Any, slug: str) -> tuple[PilotReport | None, str]:
    async def agree(plan: RentalPlan) -> str:
        return "yes"

    pilot = Pilot(
        tenancy,
        slug,
        MOST_USD,
        hear=lambda words: None,
        agree=agree,
        agrees_ahead="yes",
        stage="rehearsed",
    )
    try:
        return await pilot.go(), ""
    except TenantError as error:
        return None, str(error)


def _found(report: PilotReport | None) -> str:
    if report is None:
        return ""
    told = [f"{check.name}: {check.seen}" for check in report.differs]
    told += [drifted.words for drifted in report.drift]
    if report.ended == "not proved gone":
        told.append("it is not proved gone")
    return "; ".join(told)


def _ask(url: str, method: str, body: object, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urlopen(Request(url, json.dumps(body).encode(), headers, method=method), timeout=60):
        pass


def main(slugs: list[str]) -> None:
    """Let a pilot meet every lie at these providers, and print what became of it."""
    met: list[Met] = []
    for one in slugs or sorted(STATE):
        slug, _, only = one.partition(":")
        for lie in ALL:
            if (slug, lie) in NOT_SAID or only not in ("", lie):
                continue
            with tempfile.TemporaryDirectory(prefix="pilot-lies-") as root:
                seen = asyncio.run(meet(slug, lie, Path(root)))
            met.append(seen)
            told = f"{seen.found[:100] or 'not found'} | {seen.ended} | left {len(seen.left)}"
            print(f"{slug:13} {lie:24} {told} | {seen.usd} USD", flush=True)
    unseen, over = [m for m in met if m.is_unseen], [m for m in met if m.is_over]
    found = sum(bool(m.found) for m in met)
    print(f"{found} of {len(met)} found; {len(unseen)} left unseen; {len(over)} above the sum")


if __name__ == "__main__":
    main(sys.argv[1:])
