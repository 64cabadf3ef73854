"""What Compute Engine sells with GPUs, what that costs by the price list, and how many boxes the quotas allow."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from gpu_tenant.domain.offers import USD_STEP, Wish
from gpu_tenant.domain.volumes import MONTH_H as THIRTY_DAYS_H
from gpu_tenant.providers.gcp.client import Message
from gpu_tenant.providers.gpu_catalog import known_gpu

AS_OF = "2026-10-04"
"""The day on which cloud.google.com/products/compute/pricing showed these prices. All are in USD."""
_IOWA = ("us-central1", "us-east1", "us-west1")
"""The regions with Iowa's prices. There is no table for Spot, because Spot prices change daily."""
MONTH_H = Decimal(730)
"""The hours of Google's month. The price list and the owner's rates have the price of a disk for this month."""
ADDRESS_USD_H = Decimal("0.005")
_UNUSED_ADDRESS_USD_H = Decimal("0.01")
_DISK_USD_GB_MONTH = {
    "pd-standard": Decimal("0.04"),
    "pd-balanced": Decimal("0.10"),
    "pd-ssd": Decimal("0.17"),
}
VOLUME_TYPE = "pd-balanced"
"""The kind of disk that a new volume is.

The boot disks of N1, G2, A2 and most A3 machines are of this kind. So it fits every machine with a T4, V100, L4, A100
or H100, and its price is in the table. A machine that boots from a Hyperdisk takes no such disk.
"""
_ATTACHED_USD_H = {
    "nvidia-tesla-t4": Decimal("0.35"),
    "nvidia-tesla-p100": Decimal("1.46"),
    "nvidia-tesla-v100": Decimal("2.48"),
}
_L4_USD_H, _G2_CPU_USD_H = Decimal("0.56004"), Decimal("0.036698069")
"""Every g2 has 4 GB of memory per CPU, so this one rate per CPU includes the memory."""
_MACHINE_USD_H = {
    "n1-standard-8": Decimal("0.38"),
    "n1-standard-16": Decimal("0.76"),
    "n1-standard-32": Decimal("1.52"),
    "n1-standard-64": Decimal("3.04"),
    "a2-highgpu-1g": Decimal("3.673385"),
    "a2-highgpu-2g": Decimal("7.34677"),
    "a2-highgpu-4g": Decimal("14.69354"),
    "a2-highgpu-8g": Decimal("29.38708"),
    "a2-ultragpu-1g": Decimal("5.06879789"),
    "a2-ultragpu-2g": Decimal("10.137595781"),
    "a2-ultragpu-4g": Decimal("20.275191562"),
    "a2-ultragpu-8g": Decimal("40.550383123"),
    "a3-highgpu-8g": Decimal("88.490000119"),
}

_GPUS = {
    "nvidia-tesla-t4": "T4",
    "nvidia-tesla-p100": "P100",
    "nvidia-tesla-v100": "V100 SXM 16GB",
    "nvidia-l4": "L4",
    "nvidia-tesla-a100": "A100 SXM 40GB",
    "nvidia-a100-80gb": "A100 SXM 80GB",
    "nvidia-h100-80gb": "H100 SXM",
    "nvidia-h100-mega-80gb": "H100 SXM",
    "nvidia-h200-141gb": "H200",
    "nvidia-b200": "B200",
    "nvidia-gb200": "GB200",
    "nvidia-rtx-pro-6000": "RTX PRO 6000 Server",
}
_METRICS = {
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
    "nvidia-tesla-p100": "NVIDIA_P100_GPUS",
    "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
}
"""The quota of each GPU. Newer GPUs, and the CPUs of most families, have Cloud Quotas, which this API does not show."""

WITH_GPUS = "name eq '(a2|a3|a4|g2|g4)-.+|n1-standard-(8|16|32|64)'"
_ATTACHED_TO = {1: "n1-standard-8", 2: "n1-standard-16", 4: "n1-standard-32", 8: "n1-standard-64"}
_NOT_ON_DEMAND = re.compile(r"a3-highgpu-[124]g|(a3-ultragpu|a4)-.*")
_ON_HYPERDISK = re.compile(r"(a3-ultragpu|a4|g4)-.*")
_MODELS: dict[str, tuple[Literal["standard", "spot"], ...]] = {
    "no": ("standard",),
    "yes": ("spot",),
    "either": ("standard", "spot"),
}
_REGION = re.compile(r"[a-z]+-[a-z]+\d+")
_WEEK_H = 7 * 24
_ID = re.compile(
    r"(?P<zone>[a-z0-9-]+)/(?P<machine>[a-z0-9-]+)/(?P<count>\d+)x(?P<gpu>[a-z0-9-]+)"
    r"/(?P<model>standard|spot)(?P<ssd>\+ssd)?"
)


@dataclass(frozen=True, slots=True)
class MachineOnSale:
    """One machine with its GPUs in one zone, at the full price or as Spot."""

    zone: str
    machine: str
    gpu: str
    count: int
    model: str
    """Google's provisioning model: `standard` or `spot`."""
    ssd: str = ""
    """`+ssd` if the machine comes with local SSDs, which any stop empties."""
    cpus: int = 0
    ram_gib: float = 0

    @property
    def id(self) -> str:
        """The id of the offer."""
        return f"{self.zone}/{self.machine}/{self.count}x{self.gpu}/{self.model}{self.ssd}"

    @property
    def region(self) -> str:
        """The region of the zone. Quotas and prices are by region."""
        return self.zone.rpartition("-")[0]

    @property
    def attached(self) -> bool:
        """Whether the GPUs must be requested in addition to the machine."""
        return self.gpu in _ATTACHED_USD_H

    @property
    def gpu_name(self) -> str:
        """The canonical name of the GPU, or Google's own name if our table does not have it."""
        return _GPUS.get(self.gpu, self.gpu)

    @property
    def rate_key(self) -> str:
        """The key of the machine's rate in the owner's `[rates.gcp]`."""
        besides = f"+{self.count}x{self.gpu}" if self.attached else ""
        return self.machine + besides + (" spot" if self.model == "spot" else "")

    @property
    def disk_type(self) -> str:
        """The kind of boot disk that the machine takes."""
        return "hyperdisk-balanced" if _ON_HYPERDISK.fullmatch(self.machine) else VOLUME_TYPE

    def refuses(self, disk_type: str) -> bool:
        """Whether no disk of that kind can be attached to the machine. Google itself may refuse others."""
        return disk_type.startswith("pd-") and not self.disk_type.startswith("pd-")


def sold_as(offer_id: str) -> MachineOnSale | None:
    """Return what the offer with that id sells. None if it is not one of Google's offers."""
    asked = _ID.fullmatch(offer_id)
    if asked is None:
        return None
    return MachineOnSale(
        asked["zone"],
        asked["machine"],
        asked["gpu"],
        int(asked["count"]),
        asked["model"],
        asked["ssd"] or "",
    )


def list_usd_h(sold: MachineOnSale) -> Decimal | None:
    """Return what the machine with its GPUs costs by the price list. None if the list does not have it."""
    if sold.region not in _IOWA or sold.model != "standard":
        return None
    if sold.machine.startswith("g2-standard-"):
        cpus = int(sold.machine.rpartition("-")[2])
        return _L4_USD_H * sold.count + _G2_CPU_USD_H * cpus
    machine = _MACHINE_USD_H.get(sold.machine)
    if machine is None or not sold.attached:
        return machine
    return machine + _ATTACHED_USD_H[sold.gpu] * sold.count


def disk_usd_gb_month(region: str, kind: str) -> Decimal | None:
    """Return what a GB of such a disk costs in Google's month, by the price list. None if the list does not have it."""
    return _DISK_USD_GB_MONTH.get(kind) if region in _IOWA else None


def in_thirty_days(usd_month: Decimal) -> Decimal:
    """Convert a price for Google's month into one for thirty days, which are a month in the rest of this program."""
    return (usd_month * THIRTY_DAYS_H / MONTH_H).quantize(USD_STEP)


def unused_address_usd_month(region: str) -> Decimal | None:
    """Return what a reserved address costs in thirty days if nothing uses it. None if the price list does not have it."""
    return in_thirty_days(_UNUSED_ADDRESS_USD_H * MONTH_H) if region in _IOWA else None


def sales(machines: Iterable[Message], gpus: Iterable[Message]) -> Iterator[MachineOnSale]:
    """Yield everything with GPUs that the zones sell, from their lists of machine and accelerator types."""
    attachable = {(last(gpu.zone), gpu.name) for gpu in gpus if gpu.name in _ATTACHED_USD_H}
    for machine in machines:
        zone, cpus, ram_gib = last(machine.zone), machine.guest_cpus, machine.memory_mb / 1024
        if machine.architecture == "ARM64":
            continue  # the image is for x86
        ssd = "+ssd" if machine.bundled_local_ssds.partition_count else ""
        with_it = [
            (a.guest_accelerator_type, a.guest_accelerator_count) for a in machine.accelerators
        ]
        besides = [
            (gpu, count)
            for where, gpu in sorted(attachable)
            for count, name in _ATTACHED_TO.items()
            if where == zone and name == machine.name
        ]
        for gpu, count in with_it or besides:
            for model in _MODELS["either"]:
                if model == "spot" or not _NOT_ON_DEMAND.fullmatch(machine.name):
                    yield MachineOnSale(zone, machine.name, gpu, count, model, ssd, cpus, ram_gib)


def fits(sold: MachineOnSale, wish: Wish) -> bool:
    """Whether the machine meets the wish, judged by the catalog alone."""
    if wish.offer is not None:
        return sold.id == wish.offer
    model = known_gpu(sold.gpu_name)
    vram_gib = model.vram_gib if model else None
    return (
        wish.preference(sold.gpu_name) is not None
        and wish.gpu_count == sold.count
        and (wish.vram_gib is None or vram_gib is None or vram_gib >= wish.vram_gib)
        and (wish.region or "") in sold.zone
        and sold.model in _MODELS[wish.interruptible]
    )


@dataclass(frozen=True, slots=True)
class Room:
    """How many boxes of a kind the quotas allow, and which quota is the tightest."""

    boxes: int | None
    """None if none of the quotas could be seen."""
    tightest: str


def quotas_of(holder: Message) -> dict[str, tuple[float, float]]:
    """Return the limit and the usage of every quota of a region or a project."""
    return {quota.metric: (quota.limit, quota.usage) for quota in holder.quotas}


def room(
    sold: MachineOnSale, quotas: Mapping[str, tuple[float, float]], *, disk_gb: int, hours: float
) -> Room:
    """Return how many such boxes may be made: the minimum over every quota that a box counts against."""
    family = sold.machine.partition("-")[0]
    cpus = "CPUS" if family == "n1" else f"{family.upper()}_CPUS"
    # A box that is interruptible, or that ends by itself within a week, may use the preemptible quota
    # too.
    timed = not sold.ssd and hours + 1 <= _WEEK_H
    besides = ["PREEMPTIBLE_"] if sold.model == "spot" or timed else []
    gpu = _METRICS.get(sold.gpu, "")
    takes: list[tuple[list[str], float]] = [
        ([gpu, *(f"{word}{gpu}" for word in besides)], sold.count),
        (["GPUS_ALL_REGIONS"], sold.count),
        (
            [cpus, *(["PREEMPTIBLE_CPUS"] if sold.model == "spot" and cpus in quotas else [])],
            sold.cpus,
        ),
        (["HDB_TOTAL_GB" if sold.disk_type.startswith("hyper") else "SSD_TOTAL_GB"], disk_gb),
        (["INSTANCES"], 1),
        (["IN_USE_ADDRESSES"], 1),
    ]
    found: list[tuple[int, str]] = []
    for metrics, need in takes:
        shown = [(metric, *quotas[metric]) for metric in metrics if metric in quotas]
        if shown and need:
            metric, limit, usage = max(shown, key=lambda quota: quota[1] - quota[2])
            where = "" if metric == "GPUS_ALL_REGIONS" else f" in {sold.region}"
            said = f"{metric}{where} is {limit:g}, {usage:g} of it used, and a box takes {need:g}"
            found.append((max(0, math.floor((limit - usage) / need)), said))
    boxes, tightest = min(found, default=(None, "no quota could be seen"))
    return Room(boxes, tightest)


def shows_quota(sold: MachineOnSale, quotas: Mapping[str, object]) -> bool:
    """Whether this API shows the quota for exactly this GPU."""
    return _METRICS.get(sold.gpu) in quotas


def region_of(zone: str) -> str:
    """Return the region of the zone. A region is returned as it is."""
    told = _REGION.match(zone)
    return told[0] if told else zone


def is_zone(name: str) -> bool:
    """Whether that is the name of a zone, such as `us-central1-a`, and not that of a region."""
    region = region_of(name)
    return name.startswith(f"{region}-") and name != region


def last(link: str) -> str:
    """Return the name at the end of one of Google's links."""
    return link.rpartition("/")[2]
