"""The form of RunPod's REST API, version 2: its catalog, pods, pages, refusals and allowances."""

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gpu_tenant.emulators.world import Thing

Json = dict[str, Any]

CUDA = "12.8"
"""The CUDA version that every host of this rehearsal reports."""

ACTIONS = {
    "RUNNING": ["stop", "restart", "terminate"],
    "EXITED": ["start", "terminate"],
    "ERROR": ["start", "terminate"],
    "PROVISIONING": ["stop", "terminate"],
    "STARTING": ["stop", "terminate"],
}
NO_INSTANCE = (
    "There are no longer any instances available with the requested specifications."
    " Please refresh and try again."
)
HOST_FULL = "There are not enough free GPUs on the host machine to start this pod."

# --- the catalog


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU type: its price in each of the two clouds, and the data centers that have it."""

    id: str
    name: str
    maker: str
    memory: int
    secure_usd_h: str
    community_usd_h: str
    """The price in that cloud. Zero if that cloud has none."""
    most: int
    places: tuple[str, ...]

    def usd_h(self, cloud: str) -> Decimal:
        """What one GPU costs there per hour."""
        return Decimal(self.community_usd_h if cloud == "COMMUNITY" else self.secure_usd_h)

    def places_for(self, body: Json) -> list[str]:
        """The data centers that have what a create's `body` asks for."""
        wanted = body.get("gpu", {})
        floor = wanted.get("minCudaVersion", "0.0")
        if not self.usd_h(body.get("cloud", "SECURE")) or wanted.get("count", 1) > self.most:
            return []
        if floor != "0.0" and (self.maker != "NVIDIA" or _version(floor) > _version(CUDA)):
            return []
        within = body.get("dataCenterIds") or self.places
        return [place for place in self.places if place in within]

    def as_listed(self, query: Mapping[str, str], factor: Decimal) -> Json:
        """The type as the catalog lists it, with its stock if that was asked for."""
        entry: Json = {
            "id": self.id,
            "name": self.name,
            "pool": None,
            "manufacturer": self.maker,
            "memory": self.memory,
            "secure": self.secure_usd_h != "0",
            "community": self.community_usd_h != "0",
            "price": {
                "secure": float(self.usd_h("SECURE") * factor),
                "community": float(self.usd_h("COMMUNITY") * factor),
            },
            "maxCount": {
                "secure": self.most if self.secure_usd_h != "0" else 0,
                "community": self.most if self.community_usd_h != "0" else 0,
            },
        }
        if "include" in query:
            wanted = {"count": int(query.get("count", 1))}
            floor = {k: v for k, v in query.items() if k == "minCudaVersion"}
            places = self.places_for(
                {"cloud": query.get("cloud", "SECURE"), "gpu": {**wanted, **floor}}
            )
            entry["availability"] = "HIGH" if places else "NONE"
            if places:
                entry["dataCenters"] = [
                    {"id": place, "name": PLACES[place], "availability": "HIGH"} for place in places
                ]
            if self.maker == "NVIDIA":
                entry["cudaVersions"] = [{"version": CUDA, "available": bool(places)}]
        return entry


PLACES = {"US-KS-2": "US Kansas 2", "EU-RO-1": "EU Romania 1", "US-TX-3": "US Texas 3"}

TEMPLATES: Mapping[str, Json] = {
    "runpod-torch-v280": {"image": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"},
    "30zmvf89kd": {"image": "me/train:1", "args": "sh -c 'exec sshd -D'", "disk": 60},
}
"""The templates of this account, public ones and its own: what each says of a pod."""

GPUS = {
    gpu.id: gpu
    for gpu in (
        Gpu(
            "NVIDIA GeForce RTX 4090",
            "RTX 4090",
            "NVIDIA",
            24,
            "0.69",
            "0.34",
            8,
            ("EU-RO-1", "US-KS-2"),
        ),
        Gpu("NVIDIA RTX A5000", "RTX A5000", "NVIDIA", 24, "0.27", "0.16", 8, ("EU-RO-1",)),
        Gpu("NVIDIA L40S", "L40S", "NVIDIA", 48, "0.86", "0.79", 4, ("US-TX-3",)),
        Gpu(
            "NVIDIA A100-SXM4-80GB",
            "A100 SXM",
            "NVIDIA",
            80,
            "1.49",
            "1.39",
            8,
            ("US-KS-2", "US-TX-3"),
        ),
        Gpu("NVIDIA H100 80GB HBM3", "H100 SXM", "NVIDIA", 80, "3.49", "0", 8, ("US-KS-2",)),
        Gpu("NVIDIA H200", "H200 SXM", "NVIDIA", 141, "4.59", "0", 8, ("EU-RO-1",)),
        Gpu("AMD Instinct MI300X OAM", "MI300X", "AMD", 192, "2.99", "0", 8, ("EU-RO-1",)),
    )
}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


_WITH_ENTRYPOINT = ("vllm/vllm-openai",)
"""Images whose ENTRYPOINT is a server of their own."""

# --- what is shown


def _open_tcp(asked: Json) -> list[int]:
    """The ports of the container, besides sshd's, that the host opens. Nothing listens at them in a rehearsal."""
    named = [str(port).partition("/") for port in asked.get("ports", [])]
    return [int(number) for number, _, kind in named if kind == "tcp" and number != "22"]


def shown_pod(pod: Thing, now: float) -> Json:
    """The pod as a list or a get shows it."""
    facts = facts_of(pod)
    asked, started_at = facts["asked"], facts["started_at"]
    running = pod.status == "RUNNING"
    host, _, port = (pod.target or "").removeprefix("root@").partition(":")
    token = f"{pod.id}-64411eb2"
    direct = (
        {
            "host": host,
            "port": int(port),
            "username": "root",
            "command": f"ssh root@{host} -p {port}",
        }
        if running and port and not facts.get("no_port")
        else None
    )
    mapped = [
        {"private": number, "public": int(port) + place, "type": "tcp", "ip": host}
        for place, number in enumerate([22, *_open_tcp(asked)])
        if port and not facts.get("no_port")
    ]
    runtime = {"uptime": int(now - started_at), "ports": mapped} if running else None
    return {
        "id": pod.id,
        "name": pod.name,
        "status": pod.status,
        "actions": ACTIONS.get(pod.status, ["terminate"]),
        "image": asked["image"],
        "args": asked.get("args", ""),
        "disk": asked.get("disk", 20),
        "mounts": asked.get("mounts", {}),
        "ports": asked.get("ports", []),
        "env": asked.get("env", {}),
        "registry": asked.get("registry"),
        "template": None,
        "locked": False,
        "gpu": {
            "id": asked["gpu"]["id"],
            "count": 0 if facts.get("no_gpu") else asked["gpu"].get("count", 1),
        },
        "cloud": asked.get("cloud", "SECURE"),
        "dataCenterId": facts["place"],
        "cudaVersion": CUDA,
        "ssh": {
            "proxy": {
                "host": "ssh.runpod.io",
                "port": 22,
                "username": token,
                "command": f"ssh {token}@ssh.runpod.io",
            },
            "direct": direct,
        },
        "cost": 0.0 if pod.status == "EXITED" else float(facts["usd_h"]),
        "globalNetworking": {"enabled": False},
        "runtime": runtime,
        "createdAt": _moment(pod.created_at),
        "startedAt": None if started_at is None else _moment(started_at),
    }


def shown_volume(volume: Thing) -> Json:
    """The network volume as the list shows it."""
    facts = facts_of(volume)
    return {
        "id": volume.id,
        "name": volume.name,
        "size": facts["size"],
        "dataCenter": facts["place"],
        "type": facts["tier"],
    }


def facts_of(thing: Thing) -> Json:
    """The thing's facts as a mapping of known type."""
    return cast("Json", thing.facts)


def identifier(number: int) -> str:
    """An id that looks like theirs."""
    return hashlib.sha256(str(number).encode()).hexdigest()[:14]


def page(name: str, items: Sequence[Json], *, size: int, cursor: str | None) -> Response:
    """All items in the form of the older answer if `size` is 0. Otherwise a page with a cursor to the next."""
    if not size:
        return JSONResponse({name: list(items)})
    begin = int(base64.b64decode(cursor)) if cursor else 0
    more = begin + size < len(items)
    pagination = {"nextCursor": _cursor(begin + size) if more else None, "hasNextPage": more}
    return JSONResponse({name: list(items[begin : begin + size]), "pagination": pagination})


def torn_page(name: str, items: Sequence[Json], *, cursor: str | None) -> Response:
    """Return a page that says that there is more. The only way to the rest is `cursor`."""
    pagination = {"nextCursor": cursor, "hasNextPage": True}
    return JSONResponse({name: list(items[:1]), "pagination": pagination})


def _cursor(offset: int) -> str:
    return base64.b64encode(str(offset).encode()).decode()


FIRST_PAGE = _cursor(0)


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- refusals

_TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    410: "Gone",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
}


def problem(status: int, detail: str, errors: Sequence[str] = ()) -> Response:
    """A refusal in RunPod's form."""
    body: Json = {"title": _TITLES[status], "status": status, "detail": detail}
    if errors:
        body["errors"] = list(errors)
    return JSONResponse(body, status, media_type="application/problem+json")


_FIELDS: Mapping[str, type] = {
    "name": str,
    "image": str,
    "args": str,
    "disk": int,
    "env": dict,
    "ports": list,
    "gpu": dict,
    "cpu": dict,
    "cloud": str,
    "dataCenterIds": list,
    "globalNetworking": bool,
    "mounts": dict,
    "startJupyter": bool,
    "startSsh": bool,
    "templateId": str,
    "registry": str,
}
_NEWER_FIELDS: Mapping[str, type] = {"entrypoint": list, "cmd": list}
"""The schema of 2026-08-18 does not have them for pods. A client of late September sends `cmd`: visgotti/asap-vps."""
_INNER = {
    "gpu": {"id", "count", "allowedCudaVersions", "minCudaVersion"},
    "mounts": {"persistent", "network"},
}


def violations(body: Json, schema: Literal["2026-08", "newer"] = "2026-08") -> list[str]:
    """The places where a create's body violates the schema."""
    fields = {**_FIELDS, **(_NEWER_FIELDS if schema == "newer" else {})}
    wrong = [f"$: additional properties '{n}' not allowed" for n in body if n not in fields]
    wrong += [f"{n}: wrong type" for n, v in body.items() if type(v) is not fields.get(n, type(v))]
    needed = ("name",) if body.get("templateId") else ("name", "image")
    wrong += [f"$: missing property '{n}'" for n in needed if not body.get(n)]
    if wrong:
        return wrong
    for name, inner in _INNER.items():
        extra = sorted(set(body.get(name, {})) - inner)
        wrong += [f"{name}: additional properties '{e}' not allowed" for e in extra]
    kept = body.get("mounts", {}).get("persistent")
    if kept is not None and (set(kept) != {"size", "path"} or kept["size"] < 10):
        wrong.append("mounts.persistent: size of 10 or more, and path")
    return wrong


def volume_violations(body: Json) -> list[str]:
    """The places where the body of a network volume's create violates the schema."""
    known = ("name", "size", "dataCenter", "type")
    wrong = [f"$: additional properties '{n}' not allowed" for n in body if n not in known]
    wrong += [f"$: missing property '{n}'" for n in known[:3] if not body.get(n)]
    size = body.get("size")
    if not isinstance(size, int) or not 10 <= size <= 4096:
        wrong.append("size: 10 to 4096")
    if body.get("type", "STANDARD") not in ("STANDARD", "HIGH_PERFORMANCE"):
        wrong.append("type: not allowed")
    return wrong


def broken_rule(body: Json) -> str:
    """The rule that a create breaks although the schema allows it. Empty if it breaks none."""
    if ("gpu" in body) == ("cpu" in body):
        return "exactly one of gpu or cpu must be set"
    mounts = body.get("mounts", {})
    if mounts.get("persistent") and mounts.get("network"):
        return "mounts.persistent and mounts.network are mutually exclusive"
    return ""


def has_sshd(asked: Json) -> bool:
    """Whether anything in the container listens for logins: RunPod's own images do, and so does what `args` starts.

    By RunPod's schema `args` are the arguments of the image's ENTRYPOINT, which may be a program that starts no sshd.
    """
    if asked["image"].startswith("runpod/"):
        return True
    has_entrypoint = asked["image"].startswith(_WITH_ENTRYPOINT) and not asked.get("entrypoint")
    return "sshd" in asked.get("args", "") and not has_entrypoint


# --- keys and allowances


def pod_key(pod_id: str) -> str:
    """The key that a pod has in its own environment. It works only for that pod."""
    return f"rehearsal-pod-key-{pod_id}"


async def may(request: Request, key: str) -> bool:
    """Whether a pod's own key is enough for this request: the key may look at its pod, stop it and end it."""
    if key != pod_key(request.path_params.get("id", "")):
        return False
    if request.url.path.endswith("/action"):
        return (await request.json()).get("action") in ("stop", "terminate")
    return request.method == "GET"


_WINDOWS = {"minute": (60, 60), "hour": (3000, 3600), "day": (50_000, 86_400)}


def count_call(calls: dict[str, list[int]], now: float) -> tuple[dict[str, str], int]:
    """Count the call. Returns the allowance headers, and how many seconds to wait: 0 if the call is allowed."""
    left, wait_s = [], 0
    for name, (quota, length_s) in _WINDOWS.items():
        window = int(now // length_s)
        begun, count = calls.get(name, [window, 0])
        count = count + 1 if begun == window else 1
        ends_s = math.ceil((window + 1) * length_s - now)
        if count > quota:
            wait_s = max(wait_s, ends_s)
        calls[name] = [window, min(count, quota)]
        left.append(f'"{name}";r={max(0, quota - count)};t={ends_s}')
    policy = ", ".join(f'"{name}";q={q};w={w}' for name, (q, w) in _WINDOWS.items())
    return {"RateLimit": ", ".join(left), "RateLimit-Policy": policy}, wait_s
