"""The Compute Engine data of a rehearsal: what is sold, what it costs, what a body asks for, what is shown."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias
from zlib import crc32

from gpu_tenant.emulators.world import Thing

PROJECT = "rehearsal"
"""The one project. A caller without a credential is recognised by the project that it names."""

IMAGES = "deeplearning-platform-release"
"""The project of the images, which are public and not the tenant's."""

ZONES = ("us-central1-a", "us-central1-b", "us-east1-c", "europe-west4-a")
MONTH_H = Decimal(730)
DISK_USD_GB_MONTH = {
    "pd-standard": Decimal("0.04"),
    "pd-balanced": Decimal("0.10"),
    "pd-ssd": Decimal("0.17"),
}
ADDRESS_USD_H = Decimal("0.005")
IMAGE_GB = 50
_SPOT = Decimal("0.4")
"""The share of the full price that a Spot box costs here. The real share changes daily."""

Body: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class MachineType:
    """One machine type."""

    cpus: int
    memory_mb: int
    usd_h: Decimal
    gpu: str = ""
    gpus: int = 0
    local_ssds: int = 0


MACHINES = {
    "n1-standard-8": MachineType(8, 30720, Decimal("0.38")),
    "n1-standard-16": MachineType(16, 61440, Decimal("0.76")),
    "g2-standard-4": MachineType(4, 16384, Decimal("0.706832276"), "nvidia-l4", 1),
    "g2-standard-8": MachineType(8, 32768, Decimal("0.853624552"), "nvidia-l4", 1),
    "g2-standard-24": MachineType(24, 98304, Decimal("2.000833656"), "nvidia-l4", 2),
    "a2-highgpu-1g": MachineType(12, 87040, Decimal("3.673385"), "nvidia-tesla-a100", 1),
    "a2-ultragpu-1g": MachineType(12, 174080, Decimal("5.06879789"), "nvidia-a100-80gb", 1, 1),
    "a3-highgpu-1g": MachineType(26, 239616, Decimal("11.0612"), "nvidia-h100-80gb", 1, 2),
    "a3-highgpu-8g": MachineType(208, 1916928, Decimal("88.490000119"), "nvidia-h100-80gb", 8, 16),
}
ATTACHED_USD_H = {"nvidia-tesla-t4": Decimal("0.35"), "nvidia-tesla-v100": Decimal("2.48")}
LIMITS = {
    "CPUS": 200,
    "A2_CPUS": 48,
    "SSD_TOTAL_GB": 2000,
    "DISKS_TOTAL_GB": 4096,
    "GPUS_ALL_REGIONS": 16,
    "NVIDIA_T4_GPUS": 4,
    "PREEMPTIBLE_NVIDIA_T4_GPUS": 4,
    "NVIDIA_V100_GPUS": 0,
    "NVIDIA_L4_GPUS": 4,
    "PREEMPTIBLE_NVIDIA_L4_GPUS": 0,
    "NVIDIA_A100_GPUS": 4,
    "PREEMPTIBLE_NVIDIA_A100_GPUS": 0,
    "NVIDIA_A100_80GB_GPUS": 1,
}
LEFT_DISK: Body = {"sizeGb": "100", "type": "zones/us-central1-a/diskTypes/pd-balanced"}
REMAINS: dict[str, tuple[Literal["address", "snapshot"], Decimal, Body]] = {
    "leftover_address": (
        "address",
        Decimal("0.01"),
        {
            "region": "us-central1",
            "body": {"address": "198.51.100.9", "addressType": "EXTERNAL", "status": "RESERVED"},
        },
    ),
    "leftover_snapshot": (
        "snapshot",
        Decimal("0.05") * 20 / MONTH_H,
        {"body": {"diskSizeGb": "100", "storageBytes": "21474836480"}},
    ),
}
SOMEBODYS: Body = {
    "name": "somebody-elses",
    "machineType": "zones/us-central1-a/machineTypes/n1-standard-8",
    "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"diskSizeGb": "50"}}],
}
_METRICS = {
    "nvidia-tesla-t4": "NVIDIA_T4",
    "nvidia-tesla-v100": "NVIDIA_V100",
    "nvidia-l4": "NVIDIA_L4",
    "nvidia-tesla-a100": "NVIDIA_A100",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB",
}
_DISK_FIELDS = {"name", "description", "sizeGb", "type", "labels"}
_MOST_DISK_GB, _LEAST_DISK_GB = 65_536, 10
_INSTANCE_FIELDS = {
    "name",
    "description",
    "machineType",
    "labels",
    "metadata",
    "disks",
    "networkInterfaces",
    "scheduling",
    "guestAccelerators",
    "serviceAccounts",
    "tags",
    "deletionProtection",
    "minCpuPlatform",
    "hostname",
    "shieldedInstanceConfig",
    "params",
}


class Refusal(Exception):
    """The API's refusal, in its own words and form."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        entry = {"message": message, "domain": "global", "reason": reason}
        self.status = status
        self.body = {"error": {"code": status, "message": message, "errors": [entry]}}


# --- what a body asks for


def last(url: str) -> str:
    """The name at the end of a link or a partial link."""
    return url.rpartition("/")[2]


def region_of(zone: str) -> str:
    """The region that a zone is in."""
    return zone.rpartition("-")[0]


def link(path: str, project: str = PROJECT) -> str:
    """The full link to a resource in a project."""
    return f"https://www.googleapis.com/compute/v1/projects/{project}/{path}"


def path(zone: str, name: str, kind: Literal["instances", "disks"] = "instances") -> str:
    """The name that the API gives a box or a disk in its complaints."""
    return f"projects/{PROJECT}/zones/{zone}/{kind}/{name}"


def over_quota(metric: str, limit: float, scope: str) -> Refusal:
    """The refusal of a box that would exceed the project's quota."""
    said = f"Quota '{metric}' exceeded.  Limit: {float(limit)} {scope}."
    return Refusal(403, "quotaExceeded", said)


def scheduling_body(box: Thing) -> Body:
    """How the box was asked to end."""
    return dict(body_of(box).get("scheduling", {}))


def ssh_keys(box: Thing) -> list[str]:
    """The lines `user:key` of the keys that the box lets in."""
    items = body_of(box).get("metadata", {}).get("items", [])
    return [
        line for item in items if item["key"] == "ssh-keys" for line in item["value"].split("\n")
    ]


def body_of(thing: Thing) -> Body:
    """The body with which the thing was created."""
    body: Any = thing.facts["body"]
    return dict(body)


def gpus_of(body: Body) -> tuple[str, int]:
    """The kind and number of the box's GPUs: part of its machine type, or attached to it."""
    machine = MACHINES[last(body["machineType"])]
    for attached in body.get("guestAccelerators", []):
        return last(attached["acceleratorType"]), int(attached["acceleratorCount"])
    return machine.gpu, machine.gpus


def spot(body: Body) -> bool:
    """Whether Google may take the box back."""
    return bool(body.get("scheduling", {}).get("provisioningModel") == "SPOT")


def needs(body: Body) -> Iterator[tuple[str, float]]:
    """How much of each quota the box takes while it runs."""
    name = last(body["machineType"])
    gpu, count = gpus_of(body)
    if name.startswith(("n1-", "a2-")):
        yield "CPUS" if name.startswith("n1-") else "A2_CPUS", MACHINES[name].cpus
    if count:
        yield "GPUS_ALL_REGIONS", count
        if gpu in _METRICS:
            yield f"{_METRICS[gpu]}_GPUS", count
    kind, size_gb = _disk(body)
    yield quota_of(kind), size_gb


def machine_usd_h(body: Body) -> Decimal:
    """What the machine with its GPUs costs per hour while it runs."""
    gpu, count = gpus_of(body)
    machine = MACHINES[last(body["machineType"])]
    usd_h = machine.usd_h + (0 if machine.gpu or not count else ATTACHED_USD_H[gpu] * count)
    return usd_h * _SPOT if spot(body) else usd_h


def spot_rates() -> str:
    """Return what Spot machines and disks cost here, as an owner writes it down: no price list has it."""
    rates = {f"{name} spot": machine.usd_h for name, machine in MACHINES.items() if machine.gpu}
    for gpu, usd_h in ATTACHED_USD_H.items():
        for count, name in ((1, "n1-standard-8"), (2, "n1-standard-16")):
            rates[f"{name}+{count}x{gpu} spot"] = MACHINES[name].usd_h + usd_h * count
    lines = [f'"{key}" = {usd_h * _SPOT:.6f}' for key, usd_h in rates.items()]
    lines += [f'"{kind}" = {usd}' for kind, usd in DISK_USD_GB_MONTH.items()]
    return "\n".join(("[rates.gcp]", *lines, ""))


def disk_usd_h(body: Body) -> Decimal:
    """What its boot disk costs per hour, running or stopped."""
    kind, size_gb = _disk(body)
    return DISK_USD_GB_MONTH[kind] * size_gb / MONTH_H


def attached(body: Body) -> list[Body]:
    """The disks besides the boot disk that the box is to have."""
    return list(body["disks"][1:])


def kind_and_size(disk: Thing) -> tuple[str, int]:
    """The kind of a disk, and its size in GB."""
    body = body_of(disk)
    return last(body["type"]), int(body["sizeGb"])


def disk_thing_usd_h(disk: Thing) -> Decimal:
    """What a disk that is not a box's own costs per hour, whether or not a box has it."""
    kind, size_gb = kind_and_size(disk)
    return DISK_USD_GB_MONTH[kind] * size_gb / MONTH_H


def quota_of(kind: str) -> str:
    """The quota that a disk of that kind counts against."""
    return "DISKS_TOTAL_GB" if kind == "pd-standard" else "SSD_TOTAL_GB"


def mounts(body: Body) -> tuple[dict[str, str], set[str]]:
    """What the box's own script mounts: the path of each device by its name, and the devices that it may format."""
    items = body.get("metadata", {}).get("items", [])
    script = "\n".join(item["value"] for item in items if item["key"] == "startup-script")
    device = "/dev/disk/by-id/google-"
    wanted = re.findall(rf"^mount_volume {device}(\S+) (\S+)$", script, re.MULTILINE)
    raw = re.findall(rf"^format_if_blank {device}(\S+)$", script, re.MULTILINE)
    return dict(wanted), set(raw)


def _disk(body: Body) -> tuple[str, int]:
    made_of = body["disks"][0]["initializeParams"]
    return last(made_of.get("diskType", "pd-standard")), int(made_of.get("diskSizeGb", IMAGE_GB))


def check(zone: str, body: Body) -> None:
    """Check that the API accepts the body.

    Raises:
        Refusal: the API does not accept the body.
    """
    _check_thing(zone, body, _INSTANCE_FIELDS)
    if last(body.get("machineType", "")) not in MACHINES:
        raise _invalid("resource.machineType", body.get("machineType"))
    ends = body.get("scheduling", {})
    if gpus_of(body)[1] and ends.get("onHostMaintenance") != "TERMINATE":
        raise Refusal(
            400, "badRequest", "Instances with guest accelerators do not support live migration."
        )
    if spot(body) and ends.get("automaticRestart", True):
        raise Refusal(
            400, "badRequest", "Scheduling must have automatic restart be false when Spot is used."
        )
    limit = ends.get("maxRunDuration")
    if limit and not 30 <= int(limit["seconds"]) <= 120 * 86400:
        raise _invalid("resource.scheduling.maxRunDuration", limit["seconds"])
    if notice_s(body) not in (0, 120) or (notice_s(body) and not spot(body)):
        raise _invalid("resource.scheduling.preemptionNoticeDuration", notice_s(body))
    if _disk(body)[1] < IMAGE_GB and "sourceImage" in body["disks"][0]["initializeParams"]:
        raise Refusal(
            400,
            "badRequest",
            f"Requested disk size cannot be smaller than the image size ({IMAGE_GB} GB)",
        )


def check_disk(zone: str, body: Body) -> None:
    """Check that the API accepts the body of a new disk, which is blank here.

    Raises:
        Refusal: the API does not accept the body.
    """
    _check_thing(zone, body, _DISK_FIELDS)
    if last(body.get("type", "")) not in DISK_USD_GB_MONTH:
        raise _invalid("resource.type", body.get("type"))
    if not _LEAST_DISK_GB <= int(body.get("sizeGb", 0)) <= _MOST_DISK_GB:
        raise _invalid("resource.sizeGb", body.get("sizeGb"))


def _check_thing(zone: str, body: Body, fields: set[str]) -> None:
    unknown = sorted(set(body) - fields)
    if unknown:
        raise Refusal(
            400,
            "badRequest",
            f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.',
        )
    if zone not in ZONES:
        raise Refusal(
            404, "notFound", f"The resource 'projects/{PROJECT}/zones/{zone}' was not found"
        )
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", body.get("name", "")):
        raise _invalid("resource.name", body.get("name"))
    for key, value in body.get("labels", {}).items():
        if not re.fullmatch(r"[a-z][-_a-z0-9]{0,62}", key) or not re.fullmatch(
            r"[-_a-z0-9]{0,63}", value
        ):
            raise _invalid("resource.labels", f"{key}={value}")


def in_use(zone: str, disk: str, box: str) -> Refusal:
    """The refusal of what cannot be done with a disk that a box has."""
    said = f"The disk resource '{path(zone, disk, 'disks')}' is already being used by '{path(zone, box)}'"
    return Refusal(400, "resourceInUseByAnotherResource", said)


def not_larger(size_gb: int, has_gb: int) -> Refusal:
    """The refusal of a resize to a size that is not larger."""
    said = f"New disk size '{size_gb}' GiB must be larger than existing size '{has_gb}' GiB."
    return Refusal(400, "invalid", f"Invalid value for field 'sizeGb': '{size_gb}'. {said}")


def notice_s(body: Body) -> int:
    """How many seconds of notice Google gives at a Spot box's metadata server before it shuts the box down."""
    said = body.get("scheduling", {}).get("preemptionNoticeDuration") or {}
    return int(said.get("seconds", 0))


def no_notice() -> Refusal:
    """The answer to a project that may not ask for a notice."""
    return Refusal(
        400,
        "badRequest",
        "Required 'preemption notice duration' feature is not enabled: resource.scheduling.preemptionNoticeDuration",
    )


def _invalid(field: str, value: object) -> Refusal:
    return Refusal(400, "invalid", f"Invalid value for field '{field}': '{value}'.")


# --- what is shown


def instance(box: Thing, sizes: Mapping[str, int]) -> Body:
    """The box as the API shows it. `sizes` are those of the disks of its zone, by their names."""
    body, zone = body_of(box), str(box.facts["zone"])
    gpu, count = gpus_of(body)
    address = {
        "kind": "compute#accessConfig",
        "type": "ONE_TO_ONE_NAT",
        "name": "External NAT",
        "networkTier": "PREMIUM",
    }
    if box.facts.get("ip"):
        address["natIP"] = str(box.facts["ip"])
    shown: Body = {
        **shared_fields(box),
        "kind": "compute#instance",
        "id": box.facts["number"],
        "status": box.status,
        "zone": link(f"zones/{zone}"),
        "selfLink": link(f"zones/{zone}/instances/{box.name}"),
        "machineType": link(f"zones/{zone}/machineTypes/{last(body['machineType'])}"),
        "labels": body.get("labels", {}),
        "labelFingerprint": "42WmSpB8rSM=",
        "metadata": {"kind": "compute#metadata", **body.get("metadata", {})},
        "scheduling": {
            "provisioningModel": "STANDARD",
            "automaticRestart": True,
            **body.get("scheduling", {}),
        },
        "disks": [
            {
                "kind": "compute#attachedDisk",
                "type": "PERSISTENT",
                "mode": "READ_WRITE",
                "boot": True,
                "autoDelete": body["disks"][0].get("autoDelete", False),
                "deviceName": "persistent-disk-0",
                "source": link(f"zones/{zone}/disks/{box.name}"),
                "diskSizeGb": str(_disk(body)[1]),
            },
            *(
                {
                    "kind": "compute#attachedDisk",
                    "type": "PERSISTENT",
                    "mode": each.get("mode", "READ_WRITE"),
                    "boot": False,
                    "autoDelete": each.get("autoDelete", False),
                    "deviceName": each.get("deviceName") or f"persistent-disk-{number}",
                    "source": link(f"zones/{zone}/disks/{last(each['source'])}"),
                    "diskSizeGb": str(sizes.get(last(each["source"]), 0)),
                }
                for number, each in enumerate(attached(body), 1)
            ),
            *(
                {
                    "kind": "compute#attachedDisk",
                    "type": "SCRATCH",
                    "mode": "READ_WRITE",
                    "diskSizeGb": "375",
                }
                for _ in range(MACHINES[last(body["machineType"])].local_ssds)
            ),
        ],
        "networkInterfaces": [
            {
                "kind": "compute#networkInterface",
                "name": "nic0",
                "networkIP": "10.128.0.2",
                "network": link("global/networks/default"),
                "accessConfigs": [address],
            }
        ],
    }
    if box.facts.get("started_at"):
        shown["lastStartTimestamp"] = _moment(float(str(box.facts["started_at"])))
    if box.facts.get("stopped_at"):
        shown["lastStopTimestamp"] = _moment(float(str(box.facts["stopped_at"])))
    if count:
        kind = link(f"zones/{zone}/acceleratorTypes/{gpu}")
        shown["guestAccelerators"] = [{"acceleratorType": kind, "acceleratorCount": count}]
    return shown


def boot_disk(box: Thing) -> Body:
    """The disk that was made with the box."""
    body, zone = body_of(box), str(box.facts["zone"])
    kind, size_gb = _disk(body)
    made_of = body["disks"][0]["initializeParams"]
    return {
        **shared_fields(box),
        "kind": "compute#disk",
        "sizeGb": str(size_gb),
        "status": "READY",
        "type": link(f"zones/{zone}/diskTypes/{kind}"),
        "labels": made_of.get("labels", {}),
        "zone": link(f"zones/{zone}"),
        "users": [link(f"zones/{zone}/instances/{box.name}")],
    }


def disk(it: Thing) -> Body:
    """A disk that is not a box's own, with the box that has it."""
    zone, user = str(it.facts["zone"]), str(it.facts.get("user") or "")
    body = body_of(it)
    shown: Body = {
        **shared_fields(it),
        "kind": "compute#disk",
        "sizeGb": str(body["sizeGb"]),
        "status": it.status,
        "type": link(f"zones/{zone}/diskTypes/{last(body['type'])}"),
        "zone": link(f"zones/{zone}"),
        "selfLink": link(f"zones/{zone}/disks/{it.name}"),
        "labels": body.get("labels", {}),
        "labelFingerprint": "42WmSpB8rSM=",
        "physicalBlockSizeBytes": "4096",
    }
    for field in ("lastAttachTimestamp", "lastDetachTimestamp"):
        if field in it.facts:
            shown[field] = _moment(float(str(it.facts[field])))
    if user:
        shown["users"] = [link(f"zones/{zone}/instances/{user}")]
    return shown


def machine_type(name: str, zone: str) -> Body:
    """The machine type as that zone offers it."""
    machine = MACHINES[name]
    shown: Body = {
        "kind": "compute#machineType",
        "id": str(3000 + machine.cpus),
        "name": name,
        "guestCpus": machine.cpus,
        "memoryMb": machine.memory_mb,
        "zone": zone,
    }
    if machine.gpu:
        shown["accelerators"] = [
            {"guestAcceleratorType": machine.gpu, "guestAcceleratorCount": machine.gpus}
        ]
    if machine.local_ssds:
        shown["bundledLocalSsds"] = {
            "defaultInterface": "NVME",
            "partitionCount": machine.local_ssds,
        }
    return shown


def operation(name: str, begun: Body, now: float) -> Body:
    """The operation as it stands. A failed one is answered with 200, and has its error inside."""
    zone, target = begun["zone"], begun["target"]
    done = now >= begun["done_at"]
    shown: Body = {
        "kind": "compute#operation",
        "id": name.removeprefix("operation-"),
        "name": name,
        "operationType": begun["kind"],
        "status": "DONE" if done else "RUNNING",
        "progress": 100 if done else 0,
        "zone": link(f"zones/{zone}"),
        "targetLink": link(f"zones/{zone}/{begun['of']}/{target}"),
    }
    if done and begun["error"]:
        said = f"The zone 'projects/{PROJECT}/zones/{zone}' does not have enough resources available to fulfill the request.  Try a different zone, or try again later."
        stockout = begun["error"].startswith("ZONE_")
        entry = {"code": begun["error"], "message": said if stockout else f"{target} is in use"}
        shown |= {
            "error": {"errors": [entry]},
            "httpErrorStatusCode": 503 if stockout else 400,
            "httpErrorMessage": "SERVICE UNAVAILABLE" if stockout else "BAD REQUEST",
        }
    return shown


def image(family: str, project: str = IMAGES) -> Body:
    """The newest image of a family: of the deep learning images, or of the tenant's own.

    Raises:
        Refusal: there is no such family, or its images have been retired.
    """
    if project != IMAGES and family == "training":
        return one_image("training-v3", project)
    if project != IMAGES or not re.fullmatch(r"common-cu129-ubuntu-2[24]04-nvidia-580", family):
        raise Refusal(404, "notFound", f"The resource 'family/{family}' was not found")
    name = f"{family}-v20260626"
    return {
        "kind": "compute#image",
        "name": name,
        "family": family,
        "status": "READY",
        "diskSizeGb": str(IMAGE_GB),
        "selfLink": link(f"global/images/{name}", IMAGES),
    }


def one_image(name: str, project: str) -> Body:
    """One image of the tenant's own, which is larger than the deep learning images.

    Raises:
        Refusal: there is no such image.
    """
    if project == IMAGES or name != "training-v3":
        raise Refusal(404, "notFound", f"The resource 'images/{name}' was not found")
    return {
        "kind": "compute#image",
        "name": name,
        "family": "training",
        "status": "READY",
        "diskSizeGb": str(2 * IMAGE_GB),
        "selfLink": link(f"global/images/{name}", project),
    }


def catalog(kind: str) -> Iterator[tuple[str, Body]]:
    """Every machine type, or every kind of GPU that can be attached to one, each with its scope."""
    for zone in ZONES:
        names = MACHINES if kind == "machineTypes" else (*ATTACHED_USD_H, "nvidia-l4")
        for name in names:
            yield (
                f"zones/{zone}",
                machine_type(name, zone)
                if kind == "machineTypes"
                else {
                    "kind": "compute#acceleratorType",
                    "name": name,
                    "zone": link(f"zones/{zone}"),
                    "maximumCardsPerInstance": 4,
                },
            )


def nothing(scope: str) -> Body:
    """The entry for a zone that has nothing on this page of an aggregated list."""
    said = f"There are no results for scope '{scope}' on this page."
    told_of = [{"key": "scope", "value": scope}]
    return {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": said, "data": told_of}}


def thing_body(thing: Thing) -> Body:
    """An address or a snapshot as the API shows it."""
    scopes = {f"{kind}s": thing.facts[kind] for kind in ("zone", "region") if kind in thing.facts}
    at = {kind[:-1]: link(f"{kind}/{name}") for kind, name in scopes.items()}
    return {**shared_fields(thing), **at, **body_of(thing)}


def shared_fields(thing: Thing) -> Body:
    """The fields that come first in everything that the API shows."""
    number = thing.id if thing.id.isdigit() else str(crc32(thing.id.encode()))
    return {"id": number, "name": thing.name, "creationTimestamp": _moment(thing.created_at)}


def _moment(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")


def passes(filtered: str, item: Body) -> bool:
    """Whether the item passes the filter.

    Raises:
        Refusal: the filter is of a form that this rehearsal does not know.
    """
    if not filtered:
        return True
    if match := re.fullmatch(r"labels\.([-_a-z0-9]+)=([-_a-z0-9]+)", filtered):
        return bool(item.get("labels", {}).get(match[1]) == match[2])
    if match := re.fullmatch(r"name eq '?([^']+)'?", filtered):
        return re.fullmatch(match[1], item["name"]) is not None
    raise Refusal(400, "invalid", f"Invalid value for field 'filter': '{filtered}'.")
