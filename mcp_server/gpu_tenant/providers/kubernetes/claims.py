"""Claims on disks that outlive a pod: how a volume is claimed, how large a claim is, and which claims a pod mounts."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from gpu_tenant.domain.volumes import Volume
from gpu_tenant.providers.http_client import figure
from gpu_tenant.providers.kubernetes.client import Shown
from gpu_tenant.providers.kubernetes.job_manifest import MARK, Cluster

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(?:([eE]\d+)|([KMGTPE]i|[mkMGTPE]))?")
_BYTES: Mapping[str | None, float] = {
    None: 1.0,
    "m": 1e-3,
    **{unit: 1e3 ** (n + 1) for n, unit in enumerate("kMGTPE")},
    **{f"{unit}i": 2.0 ** (10 * (n + 1)) for n, unit in enumerate("KMGTPE")},
}


def volume_claim(volume: Volume, where: Cluster) -> dict[str, object]:
    """Return the claim for that volume. It has no owner, so that the end of no Job and of no pod takes it along."""
    chosen = {} if where.storage_class is None else {"storageClassName": where.storage_class}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": volume.mark,
            "namespace": where.namespace,
            "labels": {MARK: volume.mark},
        },
        "spec": {
            "accessModes": [where.access_mode],
            "resources": {"requests": {"storage": f"{volume.size_gb}Gi"}},
            **chosen,
        },
    }


def claims_of(pod: Shown) -> Iterable[str]:
    """Yield the names of the claims that a pod, or the template of one, mounts."""
    for volume in pod.get("spec", {}).get("volumes", []) or []:
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"]


def claimed_gib(claim: Shown) -> float | None:
    """Return the size that the claim has, or asks for: a disk is enlarged before its file system is."""
    has = gib(claim.get("status", {}).get("capacity", {}).get("storage"))
    asks = gib(claim.get("spec", {}).get("resources", {}).get("requests", {}).get("storage"))
    return max((size for size in (has, asks) if size is not None), default=None)


def gib(quantity: object) -> float | None:
    """Return the size in GiB. None if it is in no form that Kubernetes writes, or absurdly large."""
    parts = _QUANTITY.fullmatch(quantity) if isinstance(quantity, str) else None
    if parts is None:
        return None
    amount, exponent, unit = parts.groups()
    return figure(float(f"{amount}{exponent or ''}") * _BYTES[unit] / 2**30)


def reclaim_command(disk: str | None, policy: Literal["Retain", "Delete"]) -> str:
    """Return the command that sets what becomes of the disk when its claim is gone."""
    spec = json.dumps({"spec": {"persistentVolumeReclaimPolicy": policy}}, separators=(",", ":"))
    return f"`kubectl patch pv {disk or 'PV'} -p '{spec}'`"
