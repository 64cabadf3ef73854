"""RunPod's REST API, version 2: pods that boot late, change ports, and bill double for their volume when stopped."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from gpu_tenant.emulators.boxes import Sites
from gpu_tenant.emulators.faults import Fault, Tariff
from gpu_tenant.emulators.gpus import rented_gpus
from gpu_tenant.emulators.runpod.account import RunpodAccount
from gpu_tenant.emulators.runpod.responses import (
    ACTIONS,
    FIRST_PAGE,
    GPUS,
    HOST_FULL,
    NO_INSTANCE,
    PLACES,
    TEMPLATES,
    Json,
    broken_rule,
    count_call,
    facts_of,
    has_sshd,
    identifier,
    may,
    page,
    pod_key,
    problem,
    shown_pod,
    shown_volume,
    torn_page,
    violations,
    volume_violations,
)
from gpu_tenant.emulators.world import KEY, NEW_KEY, Thing, World

TARIFF = Tariff(rounding_s=1, model="prepaid")

_MONTH_H = 720
_DISK_USD_MONTH = Decimal("0.10")
_STOPPED_USD_MONTH = Decimal("0.20")
_VOLUME_USD_MONTH = Decimal("0.07")
_STARTING_S, _RUNNING_S, _SSHD_S = 15.0, 60.0, 30.0

Answer = Callable[[Request], Awaitable[Response]]


class RunpodEmulator:
    """One account at RunPod."""

    faults: Mapping[str, str] = {
        "no_capacity": "the create, or the start, is refused: nothing is free there",
        "no_pool": "the create is refused: this account may not use that pool",
        "price_moved": "everything, or only `box`, costs `amount` times as much from now on",
        "stuck_termination": "deletes are accepted and change nothing, until struck with amount=0",
        "unknown_status": "the box shows a status that nobody knows",
        "host_lost": "the box's host is gone: status ERROR, nothing answers, nothing is billed",
        "container_exits": "the container ends and is started again, empty; the meter never stops",
        "never_ready": "the next box never gets beyond STARTING",
        "no_public_port": "the next box's host has no public port, so the box never shows one for ssh",
        "no_gpu": "the next start resumes its pod without a GPU",
        "busy": "the next delete is refused: the pod is being changed",
        "takes_entrypoint": "creates take `entrypoint` and `cmd`, as a newer schema may",
        "no_graphql": "the key may not use the older API",
        "firewall": "the next create, list or delete is refused by the firewall before the API",
        "paged": "lists come in pages of `amount`, with a pagination object; 0: whole, without one",
        "page_boundary": "the list names no next cursor though there is more; amount=1: the cursor"
        " it was asked with again; amount=2: 500",
        "balance_zero": "the money is gone: pods with a network volume stop, all others end",
        "list_lag": "new boxes are listed `seconds` later",
        "created_despite_error": "the create is carried out and answered with 500",
        "foreign_box": "somebody else's pod appears in the account",
        "leftover": "a network volume appears that no pod uses",
    }

    def __init__(self, world: World, sites: Sites) -> None:
        self._world = world
        self._sites = sites
        self._account = RunpodAccount(world)

    def environment(self, base_url: str) -> dict[str, str]:
        """As `Emulator.environment`."""
        return {"RUNPOD_API_BASE_URL": base_url, "RUNPOD_API_KEY": KEY}

    def routes(self) -> Sequence[BaseRoute]:
        """As `Emulator.routes`."""
        everything = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        table: list[tuple[str, str, Answer]] = [
            ("GET", "/v2/catalog/gpus", self._catalog),
            ("GET", "/v2/pods", self._list_pods),
            ("POST", "/v2/pods", self._create_pod),
            ("GET", "/v2/pods/{id}", self._get_pod),
            ("DELETE", "/v2/pods/{id}", self._delete_pod),
            ("POST", "/v2/pods/{id}/action", self._act),
            ("GET", "/v2/network-volumes", self._list_volumes),
            ("POST", "/v2/network-volumes", self._create_volume),
            ("PATCH", "/v2/network-volumes/{id}", self._update_volume),
            ("DELETE", "/v2/network-volumes/{id}", self._delete_volume),
            ("GET", "/v2/billing/pods", self._account.pods),
            ("POST", "/graphql", self._account.graphql),
        ]
        return [
            *(Route(path, self._admit(do), methods=[method]) for method, path, do in table),
            Route("/v1/{rest:path}", _retire, methods=everything),
            Route("/v2/{rest:path}", self._admit(_unknown_path), methods=everything),
        ]

    def strike(self, fault: Fault) -> None:
        """As `Emulator.strike`.

        A fault of a request waits for the next request of its kind, unless the fault is matched to a request.
        """
        facts, world, amount = self._world.state.facts, self._world, fault.amount
        box = world.newest(fault)
        match fault.do:
            case "price_moved" if fault.box and box:
                facts_of(box)["usd_h"] = str(Decimal(facts_of(box)["usd_h"]) * _decimal(amount))
                self._bill(box)
            case "price_moved":
                world.state.price_factor = _decimal(amount)
            case "stuck_termination":
                facts["stuck"] = amount != 0
            case "unknown_status" if box:
                box.status = "MIGRATING"
            case "host_lost" if box:
                self._unreachable(box)
                self._sites.close(box.id)
                box.status, box.phase = "ERROR", "parked"
                world.bill(box)
            case "container_exits" if box:
                self._unreachable(box)
                self._sites.wipe(box.id)
                world.later(_SSHD_S, "sshd", box.id)
            case "never_ready" | "no_public_port" | "takes_entrypoint" | "no_graphql":
                facts[fault.do] = amount != 0
            case "paged":
                facts["page_size"] = int(amount or 0)
            case "balance_zero":
                self._run_dry()
            case "list_lag":
                world.state.list_lag_s = fault.seconds
            case "foreign_box":
                body: Json = {
                    "name": "somebody-elses",
                    "image": "runpod/base:1.0.2",
                    "disk": 20,
                    "gpu": {"id": "NVIDIA RTX A5000", "count": 1},
                }
                self._rent(body)
            case "leftover":
                self._keep_volume({"name": "old-dataset", "size": 100, "dataCenter": "EU-RO-1"})
            case _:
                if fault.match is None:
                    facts["next"] = {"do": fault.do, "amount": amount}

    def happen(self, event: str, thing: Thing) -> None:
        """As `Emulator.happen`."""
        match event:
            case "starting":
                thing.status = "STARTING"
            case "running":
                thing.status, thing.phase = "RUNNING", "running"
                facts_of(thing)["started_at"] = self._world.now
                self._world.later(_SSHD_S, "sshd", thing.id)
            case _:
                self._reachable(thing)

    def rent_by_hand(self, volume: Thing) -> Thing:
        """As `KeepsVolumes.rent_by_hand`."""
        place = str(volume.facts["place"])
        gpu = next(name for name, gpu in GPUS.items() if place in gpu.places_for({}))
        body: Json = {
            "name": "by-hand",
            "image": "runpod/base:1.0.2",
            "gpu": {"id": gpu, "count": 1},
            "dataCenterIds": [place],
            "mounts": {"network": [{"volumeId": volume.id, "path": "/data"}]},
        }
        return self._rent(body)

    def end_by_hand(self, box: Thing) -> None:
        """As `KeepsVolumes.end_by_hand`."""
        self._terminate(box)

    # --- pods

    async def _create_pod(self, request: Request) -> Response:
        body: Json = await request.json()
        struck, _ = self._matching_fault(request, "no_capacity", "no_pool", "created_despite_error")
        wrong = violations(
            body, "newer" if self._world.state.facts.get("takes_entrypoint") else "2026-08"
        )
        if wrong:
            return problem(422, "Request validation failed.", wrong)
        if struck == "no_pool":
            return problem(403, "access denied")
        if body.get("templateId") is not None:
            if body["templateId"] not in TEMPLATES:
                return problem(404, "template not found")
            # What the body says goes before what the template says.
            body = {**TEMPLATES[body["templateId"]], **body}
        refusal = broken_rule(body) or (NO_INSTANCE if struck == "no_capacity" else "")
        gpu = GPUS.get(body.get("gpu", {}).get("id", ""))
        if refusal or gpu is None or not gpu.places_for(body):
            return problem(400, refusal or NO_INSTANCE)
        mounted = [m["volumeId"] for m in body.get("mounts", {}).get("network", [])]
        volumes = {volume.id: volume for volume in self._world.things("volume")}
        if not set(mounted) <= set(volumes):
            return problem(404, "network volume not found")
        at = {str(volumes[one].facts["place"]) for one in mounted}
        if at and (body.get("cloud") == "COMMUNITY" or not at & set(gpu.places_for(body))):
            return problem(400, NO_INSTANCE)
        if at:
            body = {**body, "dataCenterIds": [*at]}
        if self._account.credit_usd < self._gpu_usd_h(body):
            return problem(402, "insufficient balance")
        pod = self._rent(body)
        if struck == "created_despite_error":
            return problem(500, "internal server error")
        return JSONResponse(shown_pod(pod, self._world.now), 201)

    def _rent(self, body: Json) -> Thing:
        number = self._world.number()
        pod = self._world.rent(
            identifier(number),
            "box",
            body["name"],
            status="PROVISIONING",
            asked=body,
            usd_h=str(self._gpu_usd_h(body)),
            place=GPUS[body["gpu"]["id"]].places_for(body)[0],
            host=f"203.0.113.{number % 200 + 1}",
            started_at=None,
            no_port=self._world.state.facts.pop("no_public_port", False),
        )
        self._changed(pod, "Rented by User")
        pod.phase = "booting"
        for mount in body.get("mounts", {}).get("network", []):
            self._world.state.things[mount["volumeId"]].facts["attached_to"] = pod.id
        self._bill(pod)
        self._world.later(_STARTING_S, "starting", pod.id)
        if not self._world.state.facts.pop("never_ready", False):
            self._world.later(_RUNNING_S, "running", pod.id)
        return pod

    async def _list_pods(self, request: Request) -> Response:
        return self._page(
            request,
            "pods",
            [shown_pod(pod, self._world.now) for pod in self._world.listed_things()],
        )

    async def _get_pod(self, request: Request) -> Response:
        pod = self._existing(request, "box")
        return (
            JSONResponse(shown_pod(pod, self._world.now)) if pod else problem(404, "pod not found")
        )

    async def _delete_pod(self, request: Request) -> Response:
        struck, _ = self._matching_fault(request, "busy")
        pod = self._existing(request, "box")
        if pod is None:
            return problem(404, "pod not found")
        if struck:
            return problem(409, "the pod is being changed")
        if not self._world.state.facts.get("stuck"):
            self._terminate(pod)
        return Response(status_code=204)

    async def _act(self, request: Request) -> Response:
        body: Json = await request.json()
        struck, _ = self._matching_fault(request, "no_capacity", "no_gpu")
        pod = self._existing(request, "box")
        if pod is None:
            return problem(404, "pod not found")
        extra = [f"$: additional properties '{n}' not allowed" for n in body if n != "action"]
        if extra or body.get("action") not in ("start", "stop", "restart", "terminate"):
            return problem(422, "Request validation failed.", extra or ["action: not allowed"])
        action = body["action"]
        if action not in ACTIONS.get(pod.status, ["terminate"]):
            return problem(409, f"action {action} is not valid for a pod that is {pod.status}")
        if action == "terminate":
            return await self._delete_pod(request)
        if action == "start" and struck == "no_capacity":
            return problem(400, HOST_FULL)
        if action == "start":
            # A host that has rented its GPU out meanwhile may start the pod without one: runpod/docs,
            # pods/manage-pods.
            pod.facts["no_gpu"] = struck == "no_gpu"
        if action == "stop":
            self._stop(pod)
        else:
            self._unreachable(pod)
            self._sites.wipe(pod.id)
            self._changed(pod, "Resumed by user")
            pod.status, pod.phase = "STARTING", "booting"
            self._bill(pod)
            self._world.later(_RUNNING_S, "running", pod.id)
        return JSONResponse(shown_pod(pod, self._world.now))

    def _changed(self, pod: Thing, what: str) -> None:
        """Record that it was rented, started or stopped, as the older API tells it."""
        at = datetime.fromtimestamp(self._world.now, UTC)
        pod.facts["last_change"] = f"{what}: {at:%a %b %d %Y %H:%M:%S} GMT+0000"

    def _stop(self, pod: Thing) -> None:
        self._changed(pod, "Exited by user")
        self._unreachable(pod)
        # The container's disk is wiped. The volume is separate, and stays.
        self._sites.wipe(pod.id)
        pod.status, pod.phase = "EXITED", "parked"
        self._bill(pod)

    def _terminate(self, pod: Thing) -> None:
        self._unreachable(pod)
        self._sites.delete(pod.id)
        for volume in self._world.things("volume"):
            if volume.facts.get("attached_to") == pod.id:
                volume.facts["attached_to"] = None
        self._world.end(pod, status="TERMINATED")

    def _reachable(self, pod: Thing) -> None:
        asked, facts = facts_of(pod)["asked"], facts_of(pod)
        if "22/tcp" not in asked.get("ports", []) or not has_sshd(asked):
            return
        keys = [line for line in asked.get("env", {}).get("PUBLIC_KEY", "").splitlines() if line]
        own = {"RUNPOD_POD_ID": pod.id, "RUNPOD_API_KEY": pod_key(pod.id)}
        kept = asked.get("mounts", {}).get("persistent")
        mounts = [kept["path"]] if kept else []
        volumes = {m["path"]: m["volumeId"] for m in asked.get("mounts", {}).get("network", [])}
        gpu = asked.get("gpu", {})
        gpus = rented_gpus(
            str(gpu.get("id", "")),
            int(gpu.get("count", 1)) if gpu and not facts.get("no_gpu") else 0,
        )
        at = self._sites.open(pod.id, keys, environ=own, mounts=mounts, volumes=volumes, gpus=gpus)
        pod.target = f"root@{facts['host']}:{40_000 + self._world.number()}"
        self._world.state.routes[pod.target] = at

    def _unreachable(self, pod: Thing) -> None:
        """Drop the pod's pending events and its address."""
        state = self._world.state
        state.due = [due for due in state.due if due.thing != pod.id]
        state.routes.pop(pod.target or "", None)
        pod.target = None

    # --- money

    def _gpu_usd_h(self, body: Json) -> Decimal:
        each = GPUS[body["gpu"]["id"]].usd_h(body.get("cloud", "SECURE"))
        return each * int(body["gpu"].get("count", 1)) * self._world.state.price_factor

    def _bill(self, pod: Thing) -> None:
        asked = facts_of(pod)["asked"]
        kept_gb = asked.get("mounts", {}).get("persistent", {}).get("size", 0)
        if pod.status == "EXITED":
            self._world.bill(pod, disk=_STOPPED_USD_MONTH * kept_gb / _MONTH_H)
            return
        disk = _DISK_USD_MONTH * (kept_gb + asked.get("disk", 20)) / _MONTH_H
        self._world.bill(pod, gpu=Decimal(facts_of(pod)["usd_h"]), disk=disk)

    def _run_dry(self) -> None:
        self._world.state.balance_usd -= self._account.credit_usd
        for pod in self._world.things():
            if not facts_of(pod)["asked"].get("mounts", {}).get("network"):
                self._terminate(pod)
            elif pod.phase != "parked":
                self._stop(pod)

    # --- network volumes, the catalog

    async def _list_volumes(self, request: Request) -> Response:
        volumes = [shown_volume(volume) for volume in self._world.things("volume")]
        return self._page(request, "networkVolumes", volumes)

    async def _create_volume(self, request: Request) -> Response:
        body: Json = await request.json()
        wrong = volume_violations(body)
        if wrong:
            return problem(422, "Request validation failed.", wrong)
        if body["dataCenter"] not in PLACES:
            return problem(400, "data center not found")
        return JSONResponse(shown_volume(self._keep_volume(body)), 201)

    async def _update_volume(self, request: Request) -> Response:
        body: Json = await request.json()
        volume = self._existing(request, "volume")
        if volume is None:
            return problem(404, "network volume not found")
        facts = facts_of(volume)
        size = body.get("size", facts["size"])
        extra = [name for name in body if name not in ("name", "size")]
        if extra or not isinstance(size, int) or not 10 <= size <= 4096:
            return problem(422, "Request validation failed.", extra or ["size: 10 to 4096"])
        if size < int(facts["size"]):
            return problem(400, "network volume size can not be reduced")
        facts["size"], volume.name = size, str(body.get("name", volume.name))
        self._world.bill(volume, volume=_VOLUME_USD_MONTH * size / _MONTH_H)
        return JSONResponse(shown_volume(volume))

    async def _delete_volume(self, request: Request) -> Response:
        volume = self._existing(request, "volume")
        if volume is None:
            return problem(404, "network volume not found")
        self._sites.delete_volume(volume.id)
        self._world.end(volume, status="deleted")
        return Response(status_code=204)

    def _keep_volume(self, body: Json) -> Thing:
        volume = self._world.rent(
            identifier(self._world.number()),
            "volume",
            body["name"],
            status="kept",
            size=body["size"],
            place=body["dataCenter"],
            tier=body.get("type", "STANDARD"),
            attached_to=None,
        )
        self._world.bill(volume, volume=_VOLUME_USD_MONTH * body["size"] / _MONTH_H)
        return volume

    async def _catalog(self, request: Request) -> Response:
        asked = request.query_params
        if ("include" in asked) != ("product" in asked):
            return problem(400, "include=AVAILABILITY and product are valid only together")
        factor = self._world.state.price_factor
        return JSONResponse({"gpus": [gpu.as_listed(asked, factor) for gpu in GPUS.values()]})

    def _page(self, request: Request, name: str, items: list[Json]) -> Response:
        size = int(cast("int", self._world.state.facts.get("page_size", 0)))
        cursor = request.query_params.get("cursor")
        struck, amount = self._matching_fault(request, "page_boundary")
        if not struck:
            return page(name, items, size=size, cursor=cursor)
        if amount == 2:
            return problem(500, "internal server error")
        if amount == 1 and cursor is None:
            # Only a second page can repeat a cursor, so the fault waits for the second page.
            self._world.state.facts["next"] = {"do": "page_boundary", "amount": 1}
        return torn_page(name, items, cursor=(cursor or FIRST_PAGE) if amount == 1 else None)

    # --- checks before every answer

    def _admit(self, answer: Answer) -> Answer:
        """Return `answer` behind checks: of the key, of the user agent, and of the calls that are left."""

        async def answer_if_admitted(request: Request) -> Response:
            if request.headers.get("user-agent", "").startswith("Python-urllib"):
                return PlainTextResponse("error code: 1010", 403)
            if self._matching_fault(request, "firewall")[0]:
                return PlainTextResponse("error code: 1010", 403)
            if self._world.state.facts.get("no_graphql") and request.url.path == "/graphql":
                return problem(403, "this API key may not use GraphQL")
            kind, _, key = request.headers.get("authorization", "").partition(" ")
            if kind != "Bearer" or not key:
                return problem(401, "missing bearer token")
            if key not in (KEY, NEW_KEY) and key not in {
                pod_key(pod.id) for pod in self._world.things()
            }:
                return problem(401, "invalid bearer token")
            calls = self._world.state.facts.setdefault("calls", {})
            headers, wait_s = count_call(cast("dict[str, list[int]]", calls), self._world.now)
            if wait_s:
                refusal = problem(429, "rate limit exceeded")
                refusal.headers.update({**headers, "Retry-After": str(wait_s)})
                return refusal
            if key in (KEY, NEW_KEY) or await may(request, key):
                response = await answer(request)
            else:
                response = problem(403, "access denied")
            response.headers.update(headers)
            return response

        return answer_if_admitted

    def _matching_fault(self, request: Request, *kinds: str) -> tuple[str, float | None]:
        """Return which of `kinds` strikes this request, and the fault's amount.

        The fault was matched to this request, or waited for the next request of its kind.
        """
        fault: Fault | None = request.state.fault
        if fault is not None and fault.do in kinds:
            return fault.do, fault.amount
        waiting = cast("Json", self._world.state.facts.get("next", {}))
        if waiting.get("do") in kinds:
            del self._world.state.facts["next"]
            return waiting["do"], waiting["amount"]
        return "", None

    def _existing(self, request: Request, kind: str) -> Thing | None:
        thing = self._world.state.things.get(request.path_params["id"])
        return thing if thing and thing.kind == kind and thing.phase != "ended" else None


def emulate(world: World, sites: Sites) -> RunpodEmulator:
    """The emulator on that world, with those boxes."""
    return RunpodEmulator(world, sites)


async def _retire(request: Request) -> Response:
    return problem(410, "REST v1 was retired; use /v2")


async def _unknown_path(request: Request) -> Response:
    return problem(404, "resource not found")


def _decimal(amount: float | None) -> Decimal:
    return Decimal(str(1 if amount is None else amount))
