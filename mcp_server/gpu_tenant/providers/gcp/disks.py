"""Volumes at Google: zonal disks, which are made blank, attached when a box is made, and never deleted with it."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from gpu_tenant.domain.offers import Attachable
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.volumes import ListedVolume, Volume
from gpu_tenant.providers.gcp.catalog import VOLUME_TYPE, last
from gpu_tenant.providers.gcp.client import Message
from gpu_tenant.providers.http_client import Json
from gpu_tenant.providers.mount_script import mount_script

_DEVICE = "gpu-tenant-"
"""The beginning of the device names of our volumes. No other disk of a box has such a name."""
_LINKED = "/dev/disk/by-id/google-"
"""On Linux, the path of a disk is this and its device name (`AttachedDisk.deviceName` in Google's API reference)."""
_MADE = re.compile(r"gpu-tenant-(?P<deployment>[0-9a-f]+)-(?P<key>vol-[a-z0-9-]+)")
_COPIED_FROM = (
    *("source_disk_id", "source_image_id", "source_snapshot_id", "source_instant_snapshot_id"),
    "source_storage_object",
)


class AttachedVolume(NamedTuple):
    """An ordered volume, and whether it was made without a file system."""

    volume: Attachable
    made_raw: bool

    @property
    def device(self) -> str:
        """The path of its device on the box. It uses the name in the order, which is unique on the box, and short."""
        return f"{_LINKED}{_device_name(self.volume)}"


def volume_label(name: str) -> str | None:
    """Return the label that a disk of that name has if this program made it. None if the name is not of our form.

    It is the label of the mark `gpu-tenant:DEPLOYMENT:KEY`.
    """
    made = _MADE.fullmatch(name)
    return f"{made['deployment']}_{made['key']}" if made else None


def new_disk(volume: Volume, label: str) -> Json:
    """Return the body of the request that makes the volume."""
    return {
        "name": volume.mark,
        "size_gb": volume.size_gb,
        "type_": f"zones/{volume.region}/diskTypes/{VOLUME_TYPE}",
        "labels": {label: volume_label(volume.mark) or ""},
    }


def is_made_raw(disk: Message, label: str) -> bool:
    """Whether this program made the disk, and made it blank. By now, anything may be on it."""
    ours = volume_label(disk.name)
    return (
        ours is not None
        and disk.labels.get(label) == ours
        and not any(getattr(disk, field) for field in _COPIED_FROM)
    )


def attached_disks(project: str, volumes: Sequence[AttachedVolume]) -> list[Json]:
    """Return the entries of a box's body for its volumes. Google deletes none of them with the box."""
    return [
        {
            "source": f"projects/{project}/zones/{volume.region}/disks/{volume.mark}",
            "device_name": _device_name(volume),
            "mode": "READ_WRITE",
            "boot": False,
            "auto_delete": False,
        }
        for volume, _ in volumes
    ]


def startup_script(volumes: Sequence[AttachedVolume]) -> Mapping[str, str]:
    """Return the metadata by which a box mounts its volumes at each boot. Empty if it has no volumes."""
    if not volumes:
        return {}
    script = mount_script(
        ((each.device, each.volume.path) for each in volumes),
        made_raw=[each.device for each in volumes if each.made_raw],
    )
    return {"startup-script": script}


def goes_with_box(disk: Message) -> bool:
    """Whether a disk of an instance is the box's own. A volume of ours is not, and bills by itself."""
    return disk.type_ != "SCRATCH" and not disk.device_name.startswith(_DEVICE)


def volume_of(disk: Message, usd_month: Decimal | None) -> ListedVolume:
    """Return the disk as a volume at that price. Its boxes are as Google names them: by zone and name."""
    return ListedVolume(
        id=str(disk.id),
        name=plain(disk.name),
        region=last(disk.zone),
        size_gb=disk.size_gb,
        usd_month=usd_month,
        boxes=tuple(plain(user.rpartition("/zones/")[2]) for user in disk.users),
        last_use=f"{disk.last_attach_timestamp} {disk.last_detach_timestamp}",
    )


def _device_name(volume: Attachable) -> str:
    return f"{_DEVICE}{volume.name}"
