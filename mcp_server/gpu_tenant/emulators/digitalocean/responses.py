"""What DigitalOcean's API shows: its sizes, and each thing in the API's form."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from pydantic import JsonValue
from starlette.responses import JSONResponse, Response

from gpu_tenant.emulators.world import Thing

Json = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Size:
    """A size. Its regions are made up, because the real ones change daily."""

    gpu: str
    count: int
    vram: int
    usd_h: Decimal
    vcpus: int
    memory: int
    disk: int
    scratch: int
    regions: tuple[str, ...]


SIZES: Mapping[str, Size] = {
    "gpu-4000adax1-20gb": Size(
        "nvidia_rtx4000_ada", 1, 20, Decimal("0.76"), 8, 32768, 500, 0, ("tor1",)
    ),
    "gpu-6000adax1-48gb": Size("nvidia_rtx6000_ada", 1, 48, Decimal("1.89"), 8, 65536, 500, 0, ()),
    "gpu-h100x1-80gb": Size(
        "nvidia_h100", 1, 80, Decimal("3.39"), 20, 245760, 720, 5120, ("nyc2", "tor1")
    ),
    "gpu-h100x8-640gb": Size(
        "nvidia_h100", 8, 640, Decimal("23.92"), 160, 1966080, 2046, 40960, ("nyc2",)
    ),
    "gpu-l40sx1-48gb": Size("nvidia_l40s", 1, 48, Decimal("1.57"), 8, 65536, 500, 0, ("tor1",)),
    "gpu-mi300x1-192gb": Size(
        "amd_mi300x", 1, 192, Decimal("1.99"), 20, 245760, 720, 5120, ("atl1",)
    ),
    "s-1vcpu-1gb": Size("", 0, 0, Decimal("0.00893"), 1, 1024, 25, 0, ("nyc2", "tor1")),
}


def uuid_of(what: str) -> str:
    """Return an id in the form of the provider's ids. The same thing always gets the same id."""
    digest = hashlib.sha256(what.encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def instant(when: float) -> str:
    """That moment in the API's format."""
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _region(slug: str) -> Json:
    sizes: list[JsonValue] = [name for name, size in SIZES.items() if slug in size.regions]
    return {
        "name": slug.upper(),
        "slug": slug,
        "features": ["metadata"],
        "available": True,
        "sizes": sizes,
    }


def _disks(size: Size) -> list[JsonValue]:
    amounts = {"local": size.disk, "scratch": size.scratch}
    return [
        {"type": kind, "size": {"amount": amount, "unit": "gib"}}
        for kind, amount in amounts.items()
        if amount
    ]


def _gpu(size: Size) -> Json:
    vram: Json = {"amount": size.vram, "unit": "gib"}
    return (
        {"gpu_info": {"count": size.count, "vram": vram, "model": size.gpu}} if size.count else {}
    )


def shown_size(name: str, usd_h: Decimal) -> Json:
    """A size at that price, as the API shows it."""
    size = SIZES[name]
    return {
        "slug": name,
        "memory": size.memory,
        "vcpus": size.vcpus,
        "disk": size.disk,
        "transfer": 15.0,
        "price_monthly": float(usd_h * 672),
        "price_hourly": float(usd_h),
        "regions": list(size.regions),
        "available": bool(size.regions),
        "description": f"{size.gpu} - {size.count}X",
        "disk_info": _disks(size),
        **_gpu(size),
    }


def shown_droplet(box: Thing) -> Json:
    """A Droplet as the API shows it. Its addresses appear when it has booted."""
    facts, name = box.facts, str(box.facts["size"])
    size = SIZES[name]
    networks: list[JsonValue] = [
        {"ip_address": ip, "netmask": "255.255.240.0", "gateway": "", "type": kind}
        for ip, kind in (("10.128.192.124", "private"), (facts.get("ip"), "public"))
        if "ip" in facts
    ]
    image: Json = {"id": 166407044, "name": "AI/ML Ready", "slug": facts["image"], "type": "base"}
    if isinstance(facts["image"], int):
        image = {"id": facts["image"], "name": "mine", "slug": None, "type": "snapshot"}
    return {
        "id": int(box.id),
        "name": box.name,
        "memory": size.memory,
        "vcpus": size.vcpus,
        "disk": size.disk,
        "disk_info": _disks(size),
        "locked": box.status == "new",
        "status": box.status,
        "created_at": instant(box.created_at),
        "features": ["private_networking"],
        "backup_ids": [],
        "next_backup_window": None,
        "snapshot_ids": [],
        "image": image,
        "volume_ids": facts.get("volumes") or [],
        "size": shown_size(name, Decimal(str(facts["usd_h"]))),
        "size_slug": name,
        "networks": {"v4": networks, "v6": []},
        "region": _region(str(facts["region"])),
        "tags": facts["tags"],
        **_gpu(size),
    }


def shown_key(key: Thing) -> Json:
    """An ssh key of the team, as the API shows it."""
    return {"id": int(key.id), "name": key.name, **key.facts}


def shown_volume(volume: Thing) -> Json:
    """A volume, with the Droplet that it is attached to."""
    attached = str(volume.facts["attached_to"])
    return {
        "id": volume.id,
        "name": volume.name,
        "size_gigabytes": volume.facts["size_gigabytes"],
        "droplet_ids": [int(attached)] if attached else [],
        "created_at": instant(volume.created_at),
        "description": "",
        "tags": [],
        "region": _region(str(volume.facts["region"])),
        "filesystem_type": "ext4",
    }


def shown_snapshot(each: Thing) -> Json:
    """A snapshot of a Droplet that is gone."""
    return {
        "id": each.id,
        "name": each.name,
        "created_at": instant(each.created_at),
        "regions": ["tor1"],
        "min_disk_size": 25,
        "size_gigabytes": each.facts["size_gigabytes"],
        "tags": [],
        "resource_id": "448543001",
        "resource_type": "droplet",
    }


def error(status: int, code: str, message: str) -> Response:
    """An error in the form that all errors of the API have."""
    return JSONResponse({"id": code, "message": message, "request_id": uuid_of(message)}, status)


def refusal(message: str) -> Response:
    """The answer to a request that is understood but not carried out."""
    return error(422, "unprocessable_entity", message)


def not_found() -> Response:
    """The answer that there is no such thing, at least in this team."""
    return error(404, "not_found", "The resource you requested could not be found.")
