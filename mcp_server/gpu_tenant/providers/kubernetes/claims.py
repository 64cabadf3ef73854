"""Claims on disks that outlive a pod: how a volume is claimed, how large a claim is, and which claims a pod mounts."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.volumes import Volume
from gpu_tenant.providers.http_client import figure
from gpu_tenant.providers.kubernetes.client import Shown
from gpu_tenant.providers.kubernetes.job_manifest import MARK, Cluster

_PROVISIONED = (
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
"""The annotations of a claim whose disk a storage class makes. The first is the name from Kubernetes 1.23 on."""
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(?:([eE]\d+)|([KMGTPE]i|[mkMGTPE]))?")
_BYTES: Mapping[str | None, float] = {
    None: 1.0,
    "m": 1e-3,
    **{unit: 1e3 ** (n + 1) for n, unit in enumerate("kMGTPE")},
    **{f"{unit}i": 2.0 ** (10 * (n + 1)) for n, unit in enumerate("KMGTPE")},
}


def volume_claim(volume: Volume, where: Cluster) -> dict[str, object]:
    """Return the claim for that volume. It has no owner, so that it outlives every Job and every pod."""
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
    """Return the size in GiB that the claim has or asks for, whichever is larger. None if both are unknown."""
    has = gib(claim.get("status", {}).get("capacity", {}).get("storage"))
    asks = gib(claim.get("spec", {}).get("resources", {}).get("requests", {}).get("storage"))
    return max((size for size in (has, asks) if size is not None), default=None)


def gib(quantity: object) -> float | None:
    """Return the size in GiB. None if Kubernetes writes no sizes in that form, or if it is absurdly large."""
    parts = _QUANTITY.fullmatch(quantity) if isinstance(quantity, str) else None
    if parts is None:
        return None
    amount, exponent, unit = parts.groups()
    return figure(float(f"{amount}{exponent or ''}") * _BYTES[unit] / 2**30)


def may_stay_words(disk: str, claim: str, policy: str | None) -> str:
    """Say that the claim's disk may outlive it, and who can see that. `policy` is that of the claim's storage class."""
    why = (
        "this login may not read the disk, and no storage class tells what becomes of it"
        if policy is None
        else f"this login may not read the disk, and the reclaim policy of its storage class is {quote_text(policy)}"
    )
    return (
        f"the disk {quote_text(disk)} of the claim {quote_text(claim)} may outlive it, and bill: {why}; an administrator sees it with "
        f"`kubectl get pv {quote_text(disk)}`"
    )


def class_of(claim: Shown) -> str | None:
    """Return the storage class that made the claim's disk. None if a person made the disk, or if that is unknown.

    A disk that a person made has a policy of its own, even if it names a class.
    """
    annotations = claim["metadata"].get("annotations") or {}
    name = claim.get("spec", {}).get("storageClassName")
    return name if name and any(each in annotations for each in _PROVISIONED) else None


def reclaim_command(disk: str | None, policy: Literal["Retain", "Delete"]) -> str:
    """Return the command that sets what becomes of the disk when its claim is gone."""
    spec = json.dumps({"spec": {"persistentVolumeReclaimPolicy": policy}}, separators=(",", ":"))
    return f"`kubectl patch pv {disk or 'PV'} -p '{spec}'`"
