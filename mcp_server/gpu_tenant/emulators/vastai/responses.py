"""The form of Vast.ai's answers: its offers, rows, pages and refusals, and its checks before any handler."""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal

from pydantic import JsonValue
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gpu_tenant.emulators.faults import Fault
from gpu_tenant.emulators.world import BEARERS, Thing, World

Row = dict[str, JsonValue]
Handler = Callable[[Request, Row], Response]

MONTH_H = 720
_PAGE = 25
_PENALTY_S = 12
COMPARE: Mapping[str, Callable[[object, object], bool]] = {
    "eq": lambda a, b: a == b,
    "neq": lambda a, b: a != b,
    "gt": lambda a, b: float(str(a)) > float(str(b)),
    "gte": lambda a, b: float(str(a)) >= float(str(b)),
    "lt": lambda a, b: float(str(a)) < float(str(b)),
    "lte": lambda a, b: float(str(a)) <= float(str(b)),
    "in": lambda a, b: isinstance(b, list) and a in b,
    "notin": lambda a, b: isinstance(b, list) and a not in b,
}


_OPEN = ("/api/v0/gpu_names/unique/", "/api/v0/gpu_types/", "/api/v0/bundles/")
_BILLING = ("/api/v0/charges/", "/api/v1/invoices/")
FAULTS: Mapping[str, str] = {
    "no_capacity": "this create finds its offer gone; this start is put off",
    "created_despite_error": "this create is answered with an error, and leaves a stopped instance",
    "price_moved": "every offer costs `amount` times as much; with `box`, that box as well",
    "stuck_termination": "deletes are accepted and nothing goes, until struck with amount 0",
    "soft_failure": "this delete answers 200, and says that it failed",
    "null_after_destroy": "a destroyed instance reads as null, as it always does here",
    "two_factor": "this request wants a second factor",
    "auth_404": "this request is answered 404, as a bad key is on billing endpoints",
    "unknown_status": "a box shows a status that nobody knows",
    "preempted": "a box loses its GPU to a dearer one, without notice",
    "outbid": "a bid box is stopped; it starts again by itself after `seconds`, when given",
    "host_lost": "a box's host goes offline, and never comes back",
    "exited": "a box's container ends by itself, and stays so",
    "end_date": "a box's rental ends: it is stopped, and 48 h later deleted",
    "gpu_taken": "a parked box's starts are put off, until struck with amount 0",
    "never_ready": "the next box never gets past loading",
    "image_not_found": "the next box's image cannot be pulled: it loads on, and its message says why",
    "cannot_start": "the next box's host cannot start its container: its message says why",
    "no_address": "the next box runs, and has no port for ssh",
    "crowded": "`amount` cheap offers crowd the market",
    "loose_filters": "searches apply no bound of a number, until struck with amount 0",
    "fee": "the bills have a charge of a kind that nobody knows",
    "page_boundary": "this list's cursor leads back to its start; amount 1: its last row is lost",
    "balance_zero": "the credit is gone: all is stopped, and after `seconds`, when given, destroyed",
    "list_lag": "new boxes are listed `seconds` late",
    "foreign_box": "somebody else's box is in the account",
    "leftover": "a volume of 30 GB is in the account, attached to nothing",
    "traffic": "`amount` GB go to a box, and as many come from it",
}


class Door:
    """The checks on a request before its handler sees it."""

    def __init__(self, world: World, settle: Callable[[], None]) -> None:
        self._world = world
        self._settle = settle

    def route(self, method: str, path: str, handler: Handler, apart_s: float = 0) -> Route:
        """The route of a handler, which gets the parsed body of every request that passes the checks."""

        async def answer(request: Request) -> Response:
            turned_away = self._turned_away(request, f"{method} {path}", apart_s)
            if turned_away is not None:
                return turned_away
            self._settle()
            try:
                body = json.loads(await request.body() or b"{}")
            except ValueError:
                body = None
            if not isinstance(body, dict):
                return no(400, "invalid_request", "Invalid json body")
            return handler(request, body)

        return Route(path, answer, methods=[method])

    def _turned_away(self, request: Request, endpoint: str, apart_s: float) -> Response | None:
        """Why this request is refused here. None if it passes."""
        path = request.url.path
        if self.fault_of(request, "two_factor"):
            return no(401, "auth_error", "This action requires Two Factor Authentication.")
        if self.fault_of(request, "auth_404"):
            return no(404, "auth_error", "Invalid user key")
        if path not in _OPEN:
            said = request.headers.get("Authorization")
            if said is None:
                return no(403, "auth_error", "This action requires login.")
            if said not in BEARERS and not self._may(said, request):
                return no(404 if path in _BILLING else 401, "auth_error", "Invalid user key")
        free_at, now = self.kept_state("free_at"), self._world.now
        fault = request.state.fault
        if request.headers.get("Authorization") not in (None, *BEARERS):
            endpoint += " of a box"  # as far as is known, each key has its own allowance
        too_soon = now < float(str(free_at.get(endpoint, 0)))
        if too_soon and not (fault and fault.do == "twice"):
            penalty = self.kept_state("penalty_until")
            if "asks" in path and now >= float(str(penalty.get(endpoint, 0))):
                free_at[endpoint] = penalty[endpoint] = now + _PENALTY_S
            said = f"API requests too frequent endpoint threshold={apart_s}"
            return PlainTextResponse(said, status_code=429)
        if apart_s:
            free_at[endpoint] = now + apart_s
        return None

    def fault_of(self, request: Request, name: str) -> Fault | None:
        """The fault of that name that strikes this request. None if none does."""
        fault = request.state.fault
        if isinstance(fault, Fault) and fault.do == name:
            return fault
        waiting = self.kept_state("waiting")
        if waiting.pop(name, None) is None:
            return None
        return Fault(do=name)

    def kept_state(self, name: str) -> Row:
        """Return the part of the emulator's own state that has that name."""
        kept = self._world.state.facts.setdefault(name, {})
        assert isinstance(kept, dict)
        return kept

    def _may(self, said: str, request: Request) -> bool:
        """Whether this is an instance's own key, which may only start, stop and destroy that instance."""
        own = re.fullmatch(r"/api/v0/instances/(\d+)/", request.url.path)
        thing = self._world.state.things.get(own[1]) if own else None
        key = thing.facts.get("api_key") if thing else None
        return key is not None and said == f"Bearer {key}" and request.method in ("PUT", "DELETE")


class VastAccount:
    """The account's keys and money."""

    def __init__(self, world: World, door: Door) -> None:
        self._world = world
        self._door = door

    def keys(self, request: Request, body: Row) -> Response:
        """The account's ssh keys."""
        kept = self._door.kept_state("keys").items()
        return JSONResponse([account_key(int(number), "key", key) for number, key in kept])

    def add_key(self, request: Request, body: Row) -> Response:
        """Add an ssh key to the account."""
        key = body.get("ssh_key")
        if not isinstance(key, str) or not key:
            return no(400, "no_ssh_key", "No ssh key provided")
        number = self._world.number()
        self._door.kept_state("keys")[str(number)] = key
        return yes(key=account_key(number, "public_key", key))

    def user(self, request: Request, body: Row) -> Response:
        """The account that asks, and its remaining credit."""
        return JSONResponse(
            {
                "id": int(self._world.state.account[:7], 16),
                "key_id": 11,
                "email": "rehearsal@example.com",
                "balance": 0.0,
                "ssh_key": "",
                "credit": float(self.credit_usd),
                "sid": "S7",
                "host_agreement_accepted": False,
            }
        )

    def charges(self, request: Request, body: Row) -> Response:
        """A page of what each contract has cost so far, by the meter."""
        asked = request.query_params
        try:
            filters = json.loads(asked.get("select_filters", "{}"))
            begin, until = float(filters["day"]["gte"]), float(filters["day"]["lte"])
        except (ValueError, KeyError, TypeError):
            said = "Must provide both 'day' gte and lte filters for instance charges"
            return JSONResponse({"success": False, "msg": said}, 400)
        kinds = filters.get("type", {}).get("in", ["instance", "volume"])
        rows = [charge_row(thing, self._world) for thing in self._world.state.things.values()]
        rows = [row for row in rows if row["type"] in kinds and float(str(row["end"])) >= begin]
        rows = [row for row in rows if float(str(row["start"])) <= until]
        rows.sort(key=lambda row: str(row["source"]), reverse=asked.get("latest_first") == "true")
        token = asked.get("after_token")
        first = json.loads(b64decode(token))["values"]["id"] if token else 0
        page = rows[first : first + int(asked.get("limit", 100))]
        more = first + len(page) < len(rows)
        return yes(
            count=len(page),
            total=len(rows),
            results=[*page],
            next_token=_token(first + len(page)) if more else None,
        )

    @property
    def credit_usd(self) -> Decimal:
        """What is left of the balance, by the meter."""
        return self._world.state.balance_usd - Decimal(str(self._world.meter()["billed_usd"]))


# --- instances


def page_of(rows: list[Row], asked: QueryParams, fault: Fault | None) -> Response:
    """One page of those rows, in the form of version 1's list."""
    try:
        filters = json.loads(asked.get("select_filters", "{}"))
        token = asked.get("after_token")
        after = json.loads(b64decode(token))["values"]["id"] if token else 0
    except (ValueError, KeyError, TypeError):
        return JSONResponse({"error": "invalid_token", "msg": "Invalid after_token"}, 400)
    for name, tests in filters.items():
        if name not in ("id", "label", "actual_status", "gpu_name", "verification"):
            said = f"Error in query parameters: {name} is not a valid search key"
            return JSONResponse({"error": "invalid_request", "msg": said}, 400)
        for op, value in tests.items():
            rows = [row for row in rows if COMPARE[op](row[name], value)]
    limit = min(int(asked.get("limit", _PAGE)), _PAGE)
    rest = [row for row in rows if int(str(row["id"])) > after]
    page = rest[: limit if limit > 0 else 5]
    token = _token(page[-1]["id"]) if len(page) < len(rest) else None
    if fault is not None:
        page, token = (page[:-1], None) if fault.amount == 1 else (page, _token(0))
    labels = [str(row["label"] or "") for row in rows]
    return JSONResponse(
        {
            "success": True,
            "instances_found": len(page),
            "total_instances": len(rows),
            "label_counts": {label: labels.count(label) for label in labels},
            "next_token": token,
            "instances": page,
        }
    )


def instance(thing: Thing, now: float) -> Row:
    """That instance as the API shows it."""
    facts, mounted = thing.facts, thing.facts["volumes"]
    disk, gpu = disk_usd_h(facts), Decimal(str(facts["gpu_usd_h"]))
    burns = gpu if thing.status == "running" else Decimal(0)
    env = facts["env"] if isinstance(facts["env"], dict) else {}
    flags = {
        f"-v V.{id}:{at}": "1" for at, id in (mounted if isinstance(mounted, dict) else {}).items()
    }
    ports: JsonValue = None
    is_direct = "ssh_direc" in str(facts["runtype"]) and not facts.get("no_address")
    if thing.target is not None and is_direct:
        opened = [name.rpartition(":")[2] for name in env if name.startswith("-p ")]
        ports = {
            f"{port}/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(int(str(facts["port"])) + place)}]  # noqa: S104
            for place, port in enumerate(["22", *opened])
        }
    number = int(thing.id)
    return {
        **{
            name: facts[name]
            for name in (
                "gpu_name",
                "num_gpus",
                "gpu_ram",
                "inet_up",
                "inet_down",
                "reliability2",
                "verification",
                "geolocation",
                "machine_id",
                "label",
            )
        },
        "id": number,
        "actual_status": facts.get("shown", None if thing.status == "created" else thing.status),
        "intended_status": facts["intended"],
        "cur_state": facts["state"],
        "next_state": facts["next"],
        "status_msg": facts.get("message"),
        "is_bid": facts["is_bid"],
        "host_id": facts["machine_id"],
        "min_bid": float(str(facts["min_bid"])),
        "dph_base": float(gpu),
        "dph_total": float(gpu + disk),
        "search": costs(gpu, disk),
        "instance": costs(burns, disk),
        "storage_cost": float(str(facts["storage_cost"])),
        "storage_total_cost": float(disk),
        "inet_up_cost": float(str(facts["inet_up_cost"])),
        "inet_down_cost": float(str(facts["inet_down_cost"])),
        "start_date": thing.created_at,
        "end_date": facts["end_date"],
        "duration": float(str(facts["end_date"])) - now,
        "ssh_host": "ssh7.vast.ai",
        "ssh_idx": "7",
        "ssh_port": 10000 + number % 20000,
        "public_ipaddr": ip(facts),
        "ports": ports,
        "direct_port_count": facts["direct_port_count"],
        "disk_space": float(str(facts["disk"])),
        "image_uuid": facts["image"],
        "template_id": None,
        "image_runtype": facts["runtype"] or "ssh_proxy",
        "onstart": facts["onstart"] or "",
        "static_ip": True,
        "extra_env": [[name, str(value)] for name, value in {**env, **flags}.items()],
        "jupyter_token": "0" * 64,
        "local_ipaddrs": "10.0.0.5 172.17.0.2 \n",
        "gpu_arch": "nvidia",
        "cuda_max_good": 12.8,
        "rentable": True,
        "external": False,
        "uptime_mins": None,
        "time_remaining": "",
        "time_remaining_isbid": "",
        "volume_info": [],
    }


def inside(thing: Thing) -> dict[str, str]:
    """The environment of that instance's first process."""
    return {
        "CONTAINER_ID": thing.id,
        "VAST_CONTAINERLABEL": f"C.{thing.id}",
        "CONTAINER_API_KEY": str(thing.facts["api_key"]),
    }


def charge_row(thing: Thing, world: World) -> Row:
    """What that contract has cost so far, in the form of the charges."""
    span: Row = {"start": int(thing.created_at), "end": int(thing.ended_at or world.now)}
    kind = "volume" if thing.kind == "volume" else "instance"
    # Bytes in and out are not counted separately here, so all count as one direction.
    theirs = {"gpu": "gpu", "disk": "disk", "volume": "disk", "bytes": "bwd"}
    items: list[JsonValue] = [
        {
            **span,
            "type": theirs[part],
            "source": None,
            "description": part,
            "metadata": {},
            "amount": float(round(usd, 3)),
            "items": [],
        }
        for part, usd in world.cost_of(thing).items()
    ]
    if world.state.facts.get("fee"):
        items.append({**span, "type": "platform_fee", "source": None, "amount": 0.01, "items": []})
    return {
        **span,
        "type": kind,
        "source": f"{kind}-{thing.id}",
        "items": items,
        "description": f"{kind.capitalize()} {thing.id} Charges",
        "metadata": {"label": thing.name},
        "amount": float(round(sum(world.cost_of(thing).values(), Decimal(0)), 3)),
    }


def account_key(number: int, name: str, key: JsonValue) -> Row:
    """A key of the account, in the answer to a list or to the making of a key.

    The field of the key's text has another name in each of the two answers.
    """
    return {
        "id": number,
        "user_id": 7,
        name: key,
        "created_at": "2026-11-18T17:46:40Z",
        "deleted_at": None,
    }


# --- refusals


TEMPLATES: Mapping[str, str] = {
    "4e17788f74f075dd9aab7d0d4427968f": "vastai/pytorch:2.8.0-cuda-12.8.1",
    "c0ffee00c0ffee00c0ffee00c0ffee00": "me/train:1",
}
"""The templates of this account, by the hash of each, with its image."""


def image_of(body: Row) -> JsonValue:
    """The image that a create asks for: its own, or its template's."""
    return body.get("image") or TEMPLATES.get(str(body.get("template_hash_id")))


def unfit(body: Row) -> Response | None:
    """Why that create is refused before anything is looked up. None if it is not."""
    price, disk = body.get("price"), body.get("disk", 8)
    if not body.get("image") and not body.get("template_hash_id"):
        return no(400, "invalid_args", "error 400: Invalid args: 'image' is required")
    if image_of(body) is None:
        return no(404, "not_found", "error 404: the template was not found")
    if not isinstance(disk, int | float) or disk < 8:
        return no(400, "invalid_args", "error 400: Invalid args: 'disk' must be at least 8 GB")
    if len(str(body.get("label") or "")) > 256 or len(str(body.get("onstart") or "")) > 4048:
        return no(400, "invalid_args", "error 400: Invalid args: 'label' or 'onstart' is too long")
    if price is not None and (not isinstance(price, int | float) or not 0.001 <= price <= 128):
        return no(400, "invalid_price", "Please set a bid price between 0.001 and 128.")
    return None


def no(status: int, error: str, said: str, **more: JsonValue) -> Response:
    """A refusal, in the form that all of the provider's refusals have."""
    return JSONResponse({"success": False, "error": error, "msg": said, **more}, status)


def costs(gpu: Decimal, disk: Decimal) -> Row:
    """A price, split as the provider splits it."""
    total = float(gpu + disk)
    return {
        "gpuCostPerHour": float(gpu),
        "diskHour": float(disk),
        "totalHour": total,
        "discountTotalHour": 0,
        "discountedTotalPerHour": total,
    }


def yes(**more: JsonValue) -> Response:
    """The answer to a request that was carried out."""
    return JSONResponse({"success": True, **more})


def disk_usd_h(facts: Row) -> Decimal:
    """What the disk of an instance costs per hour."""
    return Decimal(str(facts["disk"])) * Decimal(str(facts["storage_cost"])) / MONTH_H


def ip(facts: Row) -> str:
    """The address of an ask's or an instance's machine."""
    return f"203.0.113.{facts['machine_id']}"


def _token(number: JsonValue) -> str:
    return b64encode(json.dumps({"values": {"id": number}}).encode()).decode()
