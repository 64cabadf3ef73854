"""What a lease asks of a cluster: the owner's `[kubernetes]`, and the Job that is made from it."""

import re
import tomllib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, ProviderTrouble
from gpu_tenant.domain.model import MARK_PREFIX
from gpu_tenant.domain.offers import Attachable
from gpu_tenant.domain.record import Record
from gpu_tenant.providers.gpu_catalog import described_gpus
from gpu_tenant.providers.kubernetes.client import Shown

MARK = "gpu-tenant/mark"
"""The label and annotation on each of our Jobs, and on its pod. The label is on each claim that we made, too."""
FIRST_POD = "gpu-tenant/first-pod"
"""An annotation: the uid of the one pod that is the lease's box. Any other pod of the Job is not that box."""
CONTAINER = "box"

_INIT = """\
trap 'over=1; [ $$ != 1 ] || kill -TERM -1' TERM INT
while [ -z "$over" ]; do sleep 86400 & wait $!; done
busy() {
  for status in /proc/[0-9]*/status; do
    [ "$status" != /proc/1/status ] || continue
    while read -r key mask; do
      [ "$key" = SigIgn: ] || continue
      case $mask in *[4-7c-f]???) ;; *) return 0 ;; esac
    done 2>/dev/null <"$status"
  done
  return 1
}
while busy; do sleep 1; done
"""
"""The first process of the container: a shell that waits, and thereby reaps orphaned processes.

When it is told to end, it asks all other processes to save, and stays until they have ended or the grace period is
over. It does not wait for processes that ignore the request, such as the guard.
"""
_GRACE_S = 120
_SCRATCH = "/scratch"
_SHM = "/dev/shm"  # noqa: S108 - in the container


class Cluster(Record):
    """`[kubernetes]` of the configuration: where boxes may be rented, and of what kind."""

    context: str = Field(
        description="in the kubeconfig; never the current context, which may change"
    )
    namespace: str = Field(default="default", pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    image: str = Field(description="with sh and python3; no ssh server is needed")
    gpus: tuple[str, ...] = Field(
        min_length=1, description="such as `A100 SXM 80GB:8`: at most that many of a kind"
    )
    rate_usd_h: Decimal | None = Field(
        default=None, ge=0, description="what an hour of one GPU costs; absent: unknown"
    )
    claim: str | None = Field(
        default=None, description="a PersistentVolumeClaim, for what must survive"
    )
    claim_path: str = Field(default="/data", pattern=r"^/[^\s:]+$")
    storage_class: str | None = Field(
        default=None, description="of the volumes that are made; absent: the cluster's default"
    )
    access_mode: Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"] = Field(
        default="ReadWriteOnce", description="of the volumes that are made"
    )
    rate_usd_gb_month: Decimal | None = Field(
        default=None, ge=0, description="what a GB of a volume costs a month; absent: unknown"
    )
    queue: str | None = Field(default=None, description="a LocalQueue of Kueue")
    node_selector: dict[str, str] = Field(default={}, description="labels of the node")
    limits: dict[str, str] = Field(default={}, description="cpu, memory, ephemeral-storage")
    kubeconfig: str | None = Field(
        default=None, description="absent: KUBECONFIG, or ~/.kube/config"
    )

    @property
    def taken_paths(self) -> tuple[str, ...]:
        """The paths where a pod already has something mounted. No volume can be mounted there."""
        return (_SCRATCH, *((self.claim_path,) if self.claim else ()))


def is_named(configuration: Path) -> bool:
    """Whether the configuration has a `[kubernetes]` table, even a wrong one. Also true if it cannot be read."""
    try:
        return "kubernetes" in tomllib.loads(configuration.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def cluster(configuration: Path) -> Cluster:
    """Return the owner's settings for the cluster.

    Raises:
        ProviderTrouble: the settings cannot be understood, so nothing may be concluded about what runs there.
    """
    try:
        # Money is Decimal, so TOML's decimal numbers are not read as floats.
        said = tomllib.loads(configuration.read_text(encoding="utf-8"), parse_float=Decimal)
        found = Cluster.model_validate(said.get("kubernetes", {}))
        for gpus in found.gpus:
            described_gpus(gpus)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        problem = f"`{where}`: {error.errors()[0]['msg'].lower()}"
    except BadRequest as error:
        problem = f"`gpus`: {error.message}; {error.remedy}"
    except (OSError, ValueError) as error:
        problem = str(error)
    else:
        return found
    raise ProviderTrouble(
        f"{configuration.name} does not say which cluster is meant: {problem}",
        remedy='write `[kubernetes]` with `context = "..."`, `image = "..."` and `gpus = ["A100 SXM 80GB:1"]`',
    )


def label(mark: str) -> str:
    """Write the mark with the characters that labels allow. `mark_of` turns the label back into the same mark.

    Raises:
        BadRequest: the mark cannot be written in that way.
    """
    text = mark.removeprefix(MARK_PREFIX).replace(":", "_", 1)
    if not mark or mark_of(text) != mark:
        raise BadRequest(f"{mark!r} is not a mark that fits a label", remedy=str(Command("doctor")))
    return text


def mark_of(text: str) -> str | None:
    """Return the mark that such a label contains. None if it contains none of ours."""
    fits = re.fullmatch(r"[a-z0-9]([-a-z0-9_]{0,61}[a-z0-9])?", text)
    return MARK_PREFIX + text.replace("_", ":", 1) if fits else None


def job_name(mark: str) -> str:
    """Return the name of that mark's Job. It is always the same for one mark, and different for every other."""
    return f"gt-{label(mark).replace('_', '-')}"


def mark_on(shown: Shown) -> str | None:
    """Return the mark that we gave that Job.

    None if the Job has no mark of ours, or is a copy. A copy of our Job has everything but its name.
    """
    metadata = shown["metadata"]
    told = metadata.get("annotations", {}).get(MARK)
    if not told or mark_of(metadata.get("labels", {}).get(MARK, "")) != told:
        return None
    return str(told) if metadata["name"] == job_name(told) else None


def job(
    mark: str,
    where: Cluster,
    *,
    gpu_count: int,
    image: str | None = None,
    pull_secret: str | None = None,
    disk_gb: int | None = None,
    attached: Sequence[Attachable] = (),
) -> dict[str, object]:
    """Return the Job for that mark: one pod, and never a second.

    The image is the order's, or else the owner's. `pull_secret` is the secret of the cluster by which the image is
    pulled. If the order names a disk size, the pod gets that limit, and is evicted if it writes more. The `attached`
    volumes are claims, which the cluster mounts where the order wants them.

    The Job has no `activeDeadlineSeconds`, which would end unsaved work without a permit. It has no
    `ttlSecondsAfterFinished`, so that its outcome can be read until it is torn down.
    """
    labels = {MARK: label(mark)}
    annotations = {MARK: mark}
    queue = {"kueue.x-k8s.io/queue-name": where.queue} if where.queue else {}
    disk = {} if disk_gb is None else {"ephemeral-storage": f"{disk_gb}G"}
    mounts = [
        {"name": "scratch", "mountPath": _SCRATCH},
        {"name": "shm", "mountPath": _SHM},
    ]
    volumes: list[dict[str, Any]] = [
        {"name": "scratch", "emptyDir": {}},
        # Without this volume, /dev/shm has 64 MB, too little for a data loader's workers.
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    if where.claim:
        mounts.append({"name": "claim", "mountPath": where.claim_path})
        volumes.append({"name": "claim", "persistentVolumeClaim": {"claimName": where.claim}})
    for each in attached:
        name = f"volume-{each.name}"
        mounts.append({"name": name, "mountPath": each.path})
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": each.mark}})
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_S,
        "automountServiceAccountToken": False,
        "nodeSelector": dict(where.node_selector),
        **({"imagePullSecrets": [{"name": pull_secret}]} if pull_secret else {}),
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [
            {
                "name": CONTAINER,
                "image": image or where.image,
                "command": ["sh", "-c", _INIT],
                "resources": {"limits": {"nvidia.com/gpu": str(gpu_count), **where.limits, **disk}},
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(mark),
            "namespace": where.namespace,
            "labels": {**labels, **queue},
            "annotations": annotations,
        },
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
        },
    }
