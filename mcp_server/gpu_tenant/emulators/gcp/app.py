"""Google Compute Engine in a rehearsal: operations that fail inside a 200, quota, a stop whose disk still bills."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from gpu_tenant.emulators.boxes import Sites
from gpu_tenant.emulators.faults import Fault, Tariff
from gpu_tenant.emulators.gcp import responses as gce
from gpu_tenant.emulators.gcp.responses import PROJECT, ZONES, Body, Refusal, spot_rates
from gpu_tenant.emulators.gpus import rented_gpus
from gpu_tenant.emulators.world import KEY, Thing, World

TARIFF = Tariff(minimum_s=60)
NEEDS = ("google.cloud.compute_v1", "gcp")
"""The module that a client of this API needs besides, and the extra of this program that has it."""
OWNERS_RATES = spot_rates()
"""What the owner of a rehearsal has to know of prices, for their `config.toml`."""

_BOOT_S, _STOP_S, _DELETE_S, _PREEMPT_S, _LATE_S = 20, 10, 8, 30, 17
_DISK_S = 3
_STOCKOUT, _IN_USE = "ZONE_RESOURCE_POOL_EXHAUSTED", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"
_PAGE = 2
"""How many boxes are on a page. The API may always return fewer than were asked for."""


class GcpEmulator:
    """The part of the Compute Engine API, version 1, that a tenant needs."""

    faults: Mapping[str, str] = {
        "no_capacity": "the zone has no such machine: told in the operation, after a 200",
        "no_quota": "the insert is refused with quotaExceeded",
        "quota": "GPUS_ALL_REGIONS of the project is `amount` from now on",
        "rate_limit": "the request is refused with rateLimitExceeded",
        "stuck_termination": "a delete is accepted and the box stays, until struck with amount 0",
        "soft_failure": "the delete answers 200, and its operation ends in an error",
        "preempted": "Google takes a Spot box back: the notice of 120 seconds that a box of ours asks for, up to 30 more to shut down, then it is stopped",
        "no_notice": "the insert is refused for the notice that it asks for, as where the project may not have it",
        "host_lost": "the host fails, and the box is stopped",
        "never_ready": "the next box never leaves STAGING",
        "unknown_status": "a box shows a status that nobody knows",
        "no_network": "the project has no network `default`, as where an organisation forbids it",
        "no_ssh_rule": "no rule of the project's network lets ssh in",
        "no_external_ip": "inserts are refused: the organisation allows no external address",
        "page_boundary": "the next list repeats its cursor",
        "partial_list": "the next list leaves a zone out, and says so in a warning",
        "list_lag": "new boxes are listed `seconds` later",
        "foreign_box": "somebody else's box is in the project",
        "leftover": "a disk that no box uses",
        "leftover_address": "an address that nothing uses",
        "leftover_snapshot": "a snapshot",
    }

    def __init__(self, world: World, sites: Sites) -> None:
        self._world = world
        self._sites = sites

    def environment(self, base_url: str) -> dict[str, str]:
        """As `Emulator.environment`."""
        return {"GPU_TENANT_GCP_ENDPOINT": base_url, "GPU_TENANT_GCP_PROJECT": PROJECT}

    def routes(self) -> Sequence[BaseRoute]:
        """As `Emulator.routes`."""
        zone = "/zones/{zone}"
        table: list[tuple[str, str, Callable[[Request], Awaitable[Body]]]] = [
            ("GET", "", self._project),
            ("GET", "/global/networks/{network}", self._network),
            ("GET", "/global/firewalls", self._firewalls),
            ("GET", "/regions", self._regions),
            ("GET", "/regions/{region}", self._region_get),
            ("GET", "/global/images/family/{family}", self._family),
            ("GET", "/global/images/{image}", self._image),
            ("GET", "/global/snapshots", self._snapshots),
            ("GET", "/aggregated/{kind}", self._aggregate),
            ("POST", f"{zone}/instances", self._insert),
            ("GET", f"{zone}/instances/{{name}}", self._get),
            ("DELETE", f"{zone}/instances/{{name}}", self._delete),
            ("POST", f"{zone}/instances/{{name}}/stop", self._stop),
            ("POST", f"{zone}/instances/{{name}}/start", self._start),
            ("POST", f"{zone}/disks", self._make_disk),
            ("GET", f"{zone}/disks/{{name}}", self._disk_get),
            ("DELETE", f"{zone}/disks/{{name}}", self._disk_delete),
            ("POST", f"{zone}/disks/{{name}}/resize", self._disk_resize),
            ("GET", f"{zone}/operations/{{operation}}", self._operation_get),
            ("POST", f"{zone}/operations/{{operation}}/wait", self._operation_wait),
        ]
        return [
            Route("/compute/v1/projects/{project}" + path, self._guard(handle), methods=[method])
            for method, path, handle in table
        ]

    def _guard(
        self, handle: Callable[[Request], Awaitable[Body]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                _admit(request)
                return JSONResponse(await handle(request))
            except Refusal as refusal:
                return JSONResponse(refusal.body, refusal.status)

        return answer

    # --- what can be had

    async def _project(self, request: Request) -> Body:
        return {
            "kind": "compute#project",
            "name": PROJECT,
            "id": "424242424242",
            "quotas": [self._quota("GPUS_ALL_REGIONS", None)],
        }

    async def _network(self, request: Request) -> Body:
        name = request.path_params["network"]
        if name != "default" or self._world.state.facts.get("no_network"):
            said = f"The resource 'projects/{PROJECT}/global/networks/{name}' was not found"
            raise Refusal(404, "notFound", said)
        return {
            "kind": "compute#network",
            "id": "4242424242",
            "name": "default",
            "selfLink": gce.link("global/networks/default"),
            "autoCreateSubnetworks": True,
        }

    async def _firewalls(self, request: Request) -> Body:
        """The rules that a default network comes with: internal traffic, ICMP and ssh."""
        ports = {"internal": ["0-65535"], "ssh": ["22"]}
        if self._world.state.facts.get("no_ssh_rule"):
            del ports["ssh"]
        rules = [
            {
                "kind": "compute#firewall",
                "id": str(4_242_424_300 + place),
                "name": f"default-allow-{name}",
                "network": gce.link("global/networks/default"),
                "direction": "INGRESS",
                "priority": 65534,
                "disabled": False,
                "sourceRanges": ["0.0.0.0/0" if name == "ssh" else "10.128.0.0/9"],
                "allowed": [{"IPProtocol": "tcp", "ports": [*of]}],
            }
            for place, (name, of) in enumerate(ports.items())
        ]
        return {"kind": "compute#firewallList", "items": rules}

    async def _regions(self, request: Request) -> Body:
        regions = sorted({gce.region_of(zone) for zone in ZONES})
        return {"kind": "compute#regionList", "items": [self._region(name) for name in regions]}

    async def _region_get(self, request: Request) -> Body:
        return self._region(request.path_params["region"])

    def _region(self, region: str) -> Body:
        metrics = [metric for metric in gce.LIMITS if metric != "GPUS_ALL_REGIONS"]
        return {
            "kind": "compute#region",
            "name": region,
            "status": "UP",
            "quotas": [self._quota(metric, region) for metric in metrics],
        }

    def _quota(self, metric: str, region: str | None) -> Body:
        limits: Any = self._world.state.facts.get("quotas") or {}
        usage = sum(
            used
            for box in self._world.things()
            if region in (None, gce.region_of(str(box.facts["zone"])))
            for name, used in _uses(box)
            if name == metric
        )
        for disk in self._world.things("disk"):
            kind, size_gb = gce.kind_and_size(disk)
            if region in (None, gce.region_of(str(disk.facts["zone"]))):
                usage += size_gb if gce.quota_of(kind) == metric else 0
        return {
            "metric": metric,
            "limit": float(limits.get(metric, gce.LIMITS[metric])),
            "usage": float(usage),
        }

    async def _family(self, request: Request) -> Body:
        return gce.image(request.path_params["family"], request.path_params["project"])

    async def _image(self, request: Request) -> Body:
        return gce.one_image(request.path_params["image"], request.path_params["project"])

    async def _aggregate(self, request: Request) -> Body:
        kind = request.path_params["kind"]
        filtered = request.query_params.get("filter", "")
        found = [
            (scope, item) for scope, item in self._list_kind(kind) if gce.passes(filtered, item)
        ]
        most = int(request.query_params.get("maxResults", 500))
        size = min(most, _PAGE) if kind == "instances" else most
        token = request.query_params.get("pageToken", "")
        start = int(token.removeprefix("cursor-") or 0) if token else 0
        scopes: dict[str, Body] = {f"zones/{zone}": gce.nothing(f"zones/{zone}") for zone in ZONES}
        for scope, item in found[start : start + size]:
            scopes[scope] = {kind: [*scopes.get(scope, {}).get(kind, []), item]}
        answer: Body = {"kind": f"compute#{kind[:-1]}AggregatedList", "items": scopes}
        if start + size < len(found):
            answer["nextPageToken"] = f"cursor-{start + size}"
        if self._once("page_boundary", request):
            answer["nextPageToken"] = token or "cursor-0"
            self._world.state.facts["page_boundary"] = not token
        if self._once("partial_list", request):
            scopes["zones/us-central1-b"] = {
                "warning": {"code": "UNREACHABLE", "message": "The zone did not answer."}
            }
            answer["unreachables"] = ["zones/us-central1-b"]
        return answer

    def _list_kind(self, kind: str) -> Iterator[tuple[str, Body]]:
        things = self._world
        match kind:
            case "instances":
                for box in things.listed_things():
                    yield f"zones/{box.facts['zone']}", self._shown(box)
            case "machineTypes" | "acceleratorTypes":
                yield from gce.catalog(kind)
            case "disks":
                for box in things.listed_things():
                    yield f"zones/{box.facts['zone']}", gce.boot_disk(box)
                for disk in things.listed_things("disk"):
                    yield f"zones/{disk.facts['zone']}", gce.disk(disk)
            case "addresses":
                for address in things.listed_things("address"):
                    yield f"regions/{address.facts['region']}", gce.thing_body(address)
            case _:
                raise Refusal(404, "notFound", f"no aggregated list of {kind}")

    async def _snapshots(self, request: Request) -> Body:
        shown = [gce.thing_body(thing) for thing in self._world.listed_things("snapshot")]
        return {"kind": "compute#snapshotList", **({"items": shown} if shown else {})}

    # --- boxes

    async def _insert(self, request: Request) -> Body:
        zone, body = request.path_params["zone"], await request.json()
        key = f"{zone}/{request.query_params.get('requestId', '')}"
        asked: Any = self._world.state.facts.setdefault("request_ids", {})
        if key in asked and not key.endswith("/"):
            return self._operation(asked[key])
        gce.check(zone, body)
        if gce.notice_s(body) and self._once("no_notice", request):
            raise gce.no_notice()
        fault = self._next("insert", request)
        if body["name"] in {box.name for box in self._world.things() if box.facts["zone"] == zone}:
            raise Refusal(
                409,
                "alreadyExists",
                f"The resource '{gce.path(zone, body['name'])}' already exists",
            )
        disks = self._must_be_attachable(zone, body)
        self._within_quota(zone, body, fault)
        if fault == "no_capacity":
            operation = self._begin("insert", zone, body["name"], after_s=6, error=_STOCKOUT)
        else:
            box = self._rent_box(zone, body)
            box.phase = "booting"
            for disk in disks:
                self._attach(disk, box)
            self._world.bill(box, disk=gce.disk_usd_h(body))
            if not self._once("never_ready"):
                self._world.later(_BOOT_S, "boot", box.id)
            operation = self._begin("insert", zone, box.name, after_s=_BOOT_S // 2)
        asked[key] = operation
        return self._operation(operation)

    def _rent_box(self, zone: str, body: Body) -> Thing:
        number = str(7_000_000_000_000_000_000 + self._world.number())
        return self._world.rent(
            f"{zone}/instances/{number}",
            "box",
            body["name"],
            status="PROVISIONING",
            zone=zone,
            number=number,
            body=body,
            starts=0,
        )

    def _within_quota(self, zone: str, body: Body, fault: str) -> None:
        if self._world.state.facts.get("no_external_ip"):
            # gardener-extension-provider-gcp#415, and others.
            said = "Constraint constraints/compute.vmExternalIpAccess violated for project."
            raise Refusal(412, "conditionNotMet", said)
        if fault == "no_quota":
            raise gce.over_quota("GPUS_ALL_REGIONS", 0, "globally")
        for metric, need in gce.needs(body):
            where = None if metric == "GPUS_ALL_REGIONS" else gce.region_of(zone)
            # A box that is interruptible, or ends by itself, may use either of the two quotas.
            either = [m for m in (metric, f"PREEMPTIBLE_{metric}") if m in gce.LIMITS]
            quotas = [self._quota(m, where) for m in either]
            if all(quota["usage"] + need > quota["limit"] for quota in quotas):
                scope = f"in region {where}" if where else "globally"
                raise gce.over_quota(metric, quotas[0]["limit"], scope)

    def _must_be_attachable(self, zone: str, body: Body) -> list[Thing]:
        """The disks besides the boot disk that the body names.

        Raises:
            Refusal: one is not in that zone, or a box has it.
        """
        found: list[Thing] = []
        for each in gce.attached(body):
            disk = self._disk(zone, gce.last(each.get("source", "")))
            if disk.facts.get("user"):
                raise gce.in_use(zone, disk.name, str(disk.facts["user"]))
            found.append(disk)
        return found

    async def _get(self, request: Request) -> Body:
        return self._shown(self._box(request))

    def _shown(self, box: Thing) -> Body:
        disks = [d for d in self._world.things("disk") if d.facts["zone"] == box.facts["zone"]]
        return gce.instance(box, {disk.name: gce.kind_and_size(disk)[1] for disk in disks})

    async def _delete(self, request: Request) -> Body:
        box = self._box(request)
        zone = str(box.facts["zone"])
        if self._next("delete", request) == "soft_failure":
            return self._operation(self._begin("delete", zone, box.name, after_s=0, error=_IN_USE))
        box.status, box.facts["going"] = "STOPPING", "delete"
        if self._world.state.facts.get("stuck"):
            return self._operation(self._begin("delete", zone, box.name, after_s=1e9))
        self._world.later(_DELETE_S, "deleted", box.id)
        return self._operation(self._begin("delete", zone, box.name, after_s=_DELETE_S))

    async def _stop(self, request: Request) -> Body:
        box = self._box(request)
        if box.phase == "running":
            self._stopping(box, _STOP_S)
        return self._operation(
            self._begin("stop", str(box.facts["zone"]), box.name, after_s=_STOP_S)
        )

    async def _start(self, request: Request) -> Body:
        box = self._box(request)
        zone = str(box.facts["zone"])
        if self._next("insert", request) == "no_capacity":
            return self._operation(self._begin("start", zone, box.name, after_s=6, error=_STOCKOUT))
        if box.phase == "parked":
            box.status, box.phase = "STAGING", "booting"
            self._world.later(_BOOT_S, "boot", box.id)
        return self._operation(self._begin("start", zone, box.name, after_s=_BOOT_S // 2))

    def _box(self, request: Request) -> Thing:
        zone, name = request.path_params["zone"], request.path_params["name"]
        for box in self._world.things():
            if box.facts["zone"] == zone and name in (box.name, box.facts["number"]):
                return box
        raise Refusal(404, "notFound", f"The resource '{gce.path(zone, name)}' was not found")

    # --- disks that are no box's own

    async def _make_disk(self, request: Request) -> Body:
        zone, body = request.path_params["zone"], await request.json()
        key = f"{zone}/{request.query_params.get('requestId', '')}"
        asked: Any = self._world.state.facts.setdefault("request_ids", {})
        if key in asked and not key.endswith("/"):
            return self._operation(asked[key])
        gce.check_disk(zone, body)
        if body["name"] in {disk.name for disk in self._disks(zone)}:
            said = f"The resource '{gce.path(zone, body['name'], 'disks')}' already exists"
            raise Refusal(409, "alreadyExists", said)
        kind, size_gb = gce.last(body["type"]), int(body["sizeGb"])
        self._must_have_room(gce.quota_of(kind), size_gb, zone)
        disk = self._keep_disk(zone, body)
        disk.status = "CREATING"
        self._world.later(_DISK_S, "disk made", disk.id)
        asked[key] = self._begin("insert", zone, disk.name, after_s=_DISK_S, of="disks")
        return self._operation(asked[key])

    async def _disk_get(self, request: Request) -> Body:
        return gce.disk(self._disk(request.path_params["zone"], request.path_params["name"]))

    async def _disk_delete(self, request: Request) -> Body:
        zone = request.path_params["zone"]
        disk = self._disk(zone, request.path_params["name"])
        if disk.facts.get("user"):
            raise gce.in_use(zone, disk.name, str(disk.facts["user"]))
        disk.status = "DELETING"
        self._world.later(_DISK_S, "disk deleted", disk.id)
        return self._operation(self._begin("delete", zone, disk.name, after_s=_DISK_S, of="disks"))

    async def _disk_resize(self, request: Request) -> Body:
        zone, size_gb = request.path_params["zone"], int((await request.json())["sizeGb"])
        disk = self._disk(zone, request.path_params["name"])
        kind, has_gb = gce.kind_and_size(disk)
        if size_gb <= has_gb:
            raise gce.not_larger(size_gb, has_gb)
        self._must_have_room(gce.quota_of(kind), size_gb - has_gb, zone)
        disk.facts["body"] = {**gce.body_of(disk), "sizeGb": str(size_gb)}
        self._world.bill(disk, disk=gce.disk_thing_usd_h(disk))
        return self._operation(self._begin("resize", zone, disk.name, after_s=_DISK_S, of="disks"))

    def _must_have_room(self, metric: str, need_gb: int, zone: str) -> None:
        quota = self._quota(metric, gce.region_of(zone))
        if quota["usage"] + need_gb > quota["limit"]:
            raise gce.over_quota(metric, quota["limit"], f"in region {gce.region_of(zone)}")

    def _keep_disk(self, zone: str, body: Body) -> Thing:
        """Make a disk, which bills from now on."""
        number = str(6_000_000_000_000_000_000 + self._world.number())
        disk = self._world.rent(
            number, "disk", body["name"], status="READY", zone=zone, body=body, formatted=False
        )
        self._world.bill(disk, disk=gce.disk_thing_usd_h(disk))
        return disk

    def _disks(self, zone: str) -> list[Thing]:
        return [disk for disk in self._world.things("disk") if disk.facts["zone"] == zone]

    def _disk(self, zone: str, name: str) -> Thing:
        """The disk with that name or number in that zone.

        Raises:
            Refusal: there is none.
        """
        for disk in self._disks(zone):
            if name in (disk.name, disk.id):
                return disk
        raise Refusal(
            404, "notFound", f"The resource '{gce.path(zone, name, 'disks')}' was not found"
        )

    def _disks_of(self, box: Thing) -> list[tuple[Body, Thing]]:
        """The disks besides the boot disk that the box has, each with what the body says of it."""
        disks = {disk.name: disk for disk in self._disks(str(box.facts["zone"]))}
        named = [(each, gce.last(each["source"])) for each in gce.attached(gce.body_of(box))]
        return [(each, disks[name]) for each, name in named if name in disks]

    def _mount_points(self, box: Thing) -> dict[str, str]:
        """What the box's own script mounts of its disks. A blank one is mounted nowhere, unless the script formats it."""
        paths, raw = gce.mounts(gce.body_of(box))
        found: dict[str, str] = {}
        for each, disk in self._disks_of(box):
            device = str(each.get("deviceName"))
            if device in paths and device in raw:
                disk.facts["formatted"] = True
            if device in paths and disk.facts["formatted"]:
                found[paths[device]] = disk.id
        return found

    def _attach(self, disk: Thing, box: Thing) -> None:
        disk.facts |= {"user": box.name, "lastAttachTimestamp": self._world.now}

    def _delete_disk(self, disk: Thing) -> None:
        self._sites.delete_volume(disk.id)
        self._world.end(disk, status="DELETED")

    def rent_by_hand(self, volume: Thing) -> Thing:
        """As `KeepsVolumes.rent_by_hand`."""
        zone, body = str(volume.facts["zone"]), gce.SOMEBODYS
        source = {"source": gce.link(f"zones/{zone}/disks/{volume.name}"), "autoDelete": False}
        box = self._rent_box(zone, {**body, "disks": [*body["disks"], source]})
        self._attach(volume, box)
        self._running(box)
        return box

    def end_by_hand(self, box: Thing) -> None:
        """As `KeepsVolumes.end_by_hand`."""
        self._world.later(0, "deleted", box.id)

    # --- what happens by itself

    def happen(self, event: str, thing: Thing) -> None:
        """As `Emulator.happen`."""
        match event:
            case "disk made":
                thing.status = "READY"
            case "disk deleted":
                self._delete_disk(thing)
            case "boot" if thing.phase == "booting":
                self._running(thing)
            case "stopped" if thing.facts.get("going") == "stop":
                self._sites.close(_site(thing))
                self._unreachable(thing)
                thing.status, thing.phase, thing.facts["going"] = "TERMINATED", "parked", None
                thing.facts["stopped_at"] = self._world.now
                self._world.bill(thing, disk=gce.disk_usd_h(gce.body_of(thing)))
            # The preemption of a run that has already ended must not stop a later run.
            case _ if event == f"preempt-{thing.facts['starts']}" and thing.status == "RUNNING":
                self._stopping(thing, _PREEMPT_S)
            case "deleted":
                self._sites.delete(_site(thing))
                self._unreachable(thing)
                for each, disk in self._disks_of(thing):
                    disk.facts |= {"user": None, "lastDetachTimestamp": self._world.now}
                    if each.get("autoDelete"):
                        self._delete_disk(disk)
                self._world.end(thing, status="DELETED")
            # The limit of a run that has already ended must not stop a later run.
            case _ if event == f"fence-{thing.facts['starts']}" and thing.status == "RUNNING":
                if gce.scheduling_body(thing).get("instanceTerminationAction") == "DELETE":
                    self._world.later(0, "deleted", thing.id)
                else:
                    self._stopping(thing, 0)
            case _:
                pass

    def _running(self, box: Thing) -> None:
        run = int(str(box.facts["starts"])) + 1
        box.status, box.phase, box.facts["starts"] = "RUNNING", "running", run
        box.facts["started_at"] = self._world.now
        box.facts["preempted"] = False
        box.facts["ip"] = f"203.0.113.{1 + self._world.number() % 250}"
        keys = [line.partition(":") for line in gce.ssh_keys(box)]
        if keys:
            if run == 1:
                # Remove what a box with this number left before a reset.
                self._sites.delete(_site(box))
            gpus = rented_gpus(*gce.gpus_of(gce.body_of(box)))
            at = self._sites.open(
                _site(box),
                [key for _, _, key in keys],
                volumes=self._mount_points(box),
                gpus=gpus,
            )
            box.target = f"{keys[0][0]}@{box.facts['ip']}"
            self._world.state.routes[box.target] = at
        body = gce.body_of(box)
        rates = {"gpu": gce.machine_usd_h(body), "disk": gce.disk_usd_h(body)}
        self._world.bill(box, address=gce.ADDRESS_USD_H, **rates)
        limit = gce.scheduling_body(box).get("maxRunDuration")
        if limit:
            self._world.later(int(limit["seconds"]) + _LATE_S, f"fence-{run}", box.id)

    def _stopping(self, box: Thing, after_s: float) -> None:
        box.status, box.facts["going"] = "STOPPING", "stop"
        self._world.later(after_s, "stopped", box.id)

    def switched_off(self, thing: Thing) -> None:
        """As `SwitchedOff.switched_off`."""
        if thing.status == "RUNNING":
            self._stopping(thing, _STOP_S)

    def metadata(self, thing: Thing, path: str, request: Request) -> Response:
        """As `HasMetadata.metadata`.

        A request without the header `Metadata-Flavor` is refused, because it may be a forwarded one.
        """
        if request.headers.get("metadata-flavor") != "Google":
            return PlainTextResponse("Missing Metadata-Flavor:Google header.", 403)
        named = {"Metadata-Flavor": "Google"}
        if path != "computeMetadata/v1/instance/preempted":
            return PlainTextResponse("", 404, named)
        return PlainTextResponse("TRUE" if thing.facts.get("preempted") else "FALSE", 200, named)

    def _unreachable(self, box: Thing) -> None:
        self._world.state.routes.pop(box.target or "", None)
        box.target, box.facts["ip"] = None, None

    # --- operations

    def _begin(
        self,
        kind: str,
        zone: str,
        name: str,
        *,
        after_s: float,
        error: str = "",
        of: str = "instances",
    ) -> str:
        operation = f"operation-{self._world.number()}"
        operations: Any = self._world.state.facts.setdefault("operations", {})
        operations[operation] = {
            "kind": kind,
            "zone": zone,
            "of": of,
            "target": name,
            "error": error,
            "done_at": self._world.now + after_s,
        }
        return operation

    def _operation(self, name: str) -> Body:
        operations: Any = self._world.state.facts.get("operations", {})
        if name not in operations:
            raise Refusal(404, "notFound", f"The resource 'operations/{name}' was not found")
        return gce.operation(name, operations[name], self._world.now)

    async def _operation_get(self, request: Request) -> Body:
        return self._operation(request.path_params["operation"])

    async def _operation_wait(self, request: Request) -> Body:
        """As the real call: it answers when the operation is done, or after two minutes."""
        operations: Any = self._world.state.facts.get("operations", {})
        it = operations.get(request.path_params["operation"])
        if it:
            self._world.advance(min(120.0, max(0.0, it["done_at"] - self._world.now)))
        return self._operation(request.path_params["operation"])

    # --- faults

    def strike(self, fault: Fault) -> None:
        """As `Emulator.strike`. A fault that is matched to a request is left to that request's handler."""
        world, facts = self._world, self._world.state.facts
        box = world.newest(fault)
        match fault.do:
            case "stuck_termination":
                facts["stuck"] = fault.amount != 0
            case "quota":
                facts["quotas"] = {"GPUS_ALL_REGIONS": fault.amount or 0}
            case "list_lag":
                world.state.list_lag_s = fault.seconds
            case "preempted" if box is not None:
                box.facts["preempted"] = True
                notice_s = gce.notice_s(gce.body_of(box))
                world.later(notice_s, f"preempt-{box.facts['starts']}", box.id)
            case "host_lost" if box is not None:
                self._stopping(box, 0)
            case "unknown_status" if box is not None:
                box.status = "CONVALESCING"
            case "foreign_box":
                self._running(self._rent_box("us-central1-a", gce.SOMEBODYS))
            case "leftover":
                name = f"disk-{world.number()}"
                disk = self._keep_disk("us-central1-a", {"name": name, **gce.LEFT_DISK})
                disk.facts["formatted"] = True
            case "leftover_address" | "leftover_snapshot":
                self._leftover(fault.do)
            case do if fault.match is None or do == "never_ready":
                facts[do] = True
            case _:
                pass

    def _next(self, what: str, request: Request) -> str:
        """The fault for this insert or delete, either matched to the request or waiting for the next one."""
        own = ("no_capacity", "no_quota") if what == "insert" else ("soft_failure",)
        return next((do for do in own if self._once(do, request)), "")

    def _once(self, do: str, request: Request | None = None) -> bool:
        """Whether that fault strikes here. A fault that waited for the next request is then used up."""
        return bool(self._world.state.facts.pop(do, None)) or (
            request is not None and _fault(request) == do
        )

    def _leftover(self, do: str) -> None:
        kind, usd_h, facts = gce.REMAINS[do]
        name = f"{kind}-{self._world.number()}"
        thing = self._world.rent(name, kind, name, status="READY", **facts)
        self._world.bill(thing, **{kind: usd_h})


def _admit(request: Request) -> None:
    """Refuse a caller with a wrong credential, or for another project. A caller without a credential is let in.

    Raises:
        Refusal: the caller is refused, or the fault `rate_limit` strikes.
    """
    named = request.path_params["project"]
    if request.headers.get("authorization", f"Bearer {KEY}") != f"Bearer {KEY}":
        raise Refusal(401, "authError", "Request had invalid authentication credentials.")
    if named not in ((gce.IMAGES, PROJECT) if "/images/" in request.url.path else (PROJECT,)):
        raise Refusal(403, "forbidden", f"Required permission for 'projects/{named}'")
    if _fault(request) == "rate_limit":
        raise Refusal(403, "rateLimitExceeded", "Rate Limit Exceeded")


def _site(box: Thing) -> str:
    """The name of the box's home directory: the box's number, because the id is a path."""
    return str(box.facts["number"])


def _uses(box: Thing) -> Iterator[tuple[str, float]]:
    """The quotas that the box uses. A stopped box has given back its GPUs and CPUs, and keeps its disk."""
    for metric, amount in gce.needs(gce.body_of(box)):
        if box.phase != "parked" or metric.endswith("_GB"):
            yield metric, amount


def _fault(request: Request) -> str:
    fault: Fault | None = request.state.fault
    return fault.do if fault else ""


def emulate(world: World, sites: Sites) -> GcpEmulator:
    """The emulator of that world."""
    return GcpEmulator(world, sites)
