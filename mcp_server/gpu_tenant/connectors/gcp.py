"""Google Compute Engine: VMs with GPUs that a timer of Google's own stops, and disks that bill on."""

import asyncio
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

from gpu_tenant.errors import (
    BadRequest,
    LocalTrouble,
    NoCapacity,
    NoQuota,
    ProviderSilent,
    ProviderTrouble,
)
from gpu_tenant.gce.calls import Calls, Message, failure
from gpu_tenant.gce.sold import (
    ADDRESS_USD_H,
    AS_OF,
    MONTH_H,
    WITH_GPUS,
    Sold,
    disk_usd_gb_month,
    fits,
    last,
    list_usd_h,
    quotas_of,
    room,
    sales,
    seen,
    sold_as,
    unused_address_usd_month,
)
from gpu_tenant.gpu_catalog import known
from gpu_tenant.market import CENT, Leftover, Offer, Price, Wish
from gpu_tenant.model import MARK_PREFIX, Box, BoxId, BoxState, Lease, SshAddress
from gpu_tenant.permit import TeardownPermit, genuine
from gpu_tenant.ports import Setting
from gpu_tenant.wire import Rejected, words

_LABEL = "gpu-tenant"
_USER = "tenant"
_IMAGES = "deeplearning-platform-release"
_FAMILIES = (
    "common-cu129-ubuntu-2404-nvidia-580", "common-cu129-ubuntu-2204-nvidia-580",
    "common-cu128-ubuntu-2204-nvidia-570",
)  # fmt: skip
"""Drivers and CUDA; the first that has not aged out."""

_CREATED_S, _STARTED_S, _DELETED_S = 300, 180, 60
_FENCE_S, _LONGEST_S = 3600, 120 * 86400
"""Google's own timer comes an hour after the deadline, and can be set for 120 days at most."""


class GcpConnector:
    """Rents, stops and deletes VMs with GPUs in one project."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._clock = setting.clock
        self._endpoint = setting.environ.get("GPU_TENANT_GCP_ENDPOINT", "")

    # --- boxes

    async def create(self, lease: Lease) -> Box:
        """As `Connector.create`. A repeat of the insert is the same request, by its id."""
        label = _label(lease.mark)
        for instance in await self._instances(f"labels.{_LABEL}={label}"):
            return self._box(instance)
        quote = lease.quote
        asked = _OFFER.fullmatch(quote.offer.id) if quote else None
        if quote is None or asked is None:
            raise BadRequest(f"{lease.id} has no offer of Google's", remedy="`gpu-tenant offers`")
        sold = _sold(asked)
        image = await self._image()
        body = self._body(lease, sold, image, max(quote.offer.disk_gb, image.disk_size_gb))
        where = {"project": self._calls.project, "zone": sold.zone}
        refused: ProviderTrouble | None = None
        try:
            operation = await self._calls.ask(
                "Instances", "insert_unary", "once", **where, instance_resource=body,
                request_id=str(uuid5(NAMESPACE_URL, lease.mark)),
            )  # fmt: skip
            refused = failure(await self._calls.finished(sold.zone, operation, _CREATED_S))
        except Rejected as error:
            if error.status != 409:
                raise
            refused = error
        if isinstance(refused, NoCapacity | NoQuota):
            raise refused
        try:
            instance = await self._calls.ask("Instances", "get", **where, instance=body["name"])
        except Rejected as error:
            if error.status != 404 or refused is None:
                raise ProviderSilent(error.message, remedy=error.remedy) from error
            raise refused from error
        if instance.labels.get(_LABEL) != label:
            raise ProviderTrouble(
                f"a box called {body['name']} exists, and is not this lease's",
                remedy="`gpu-tenant leases` shows what runs",
            )
        return self._box(instance)

    def _body(self, lease: Lease, sold: Sold, image: Any, disk_gb: int) -> dict[str, Any]:
        zone, labels = f"zones/{sold.zone}", {_LABEL: _label(lease.mark)}
        left_s = (lease.terms.deadline_at - self._clock.now()).total_seconds()
        scheduling: dict[str, Any] = {
            "provisioning_model": sold.model.upper(), "automatic_restart": False,
            "on_host_maintenance": "TERMINATE",
        }  # fmt: skip
        if sold.model == "spot" or not sold.ssd:
            scheduling["instance_termination_action"] = "STOP"
        if not sold.ssd:
            # Never DELETE, which might take the only copy; a stop takes what is on a local SSD.
            seconds = min(max(30, int(left_s) + _FENCE_S), _LONGEST_S)
            scheduling["max_run_duration"] = {"seconds": seconds}
        metadata = {
            "ssh-keys": f"{_USER}:{self._setting.public_key()}", "block-project-ssh-keys": "TRUE",
            # Where the project has OS Login on, the key above would not be looked at.
            "enable-oslogin": "FALSE",
        }  # fmt: skip
        body: dict[str, Any] = {
            "name": f"gt-{labels[_LABEL].replace('_', '-')}", "labels": labels, "scheduling": scheduling,
            "machine_type": f"{zone}/machineTypes/{sold.machine}",
            "disks": [{"boot": True, "auto_delete": True, "initialize_params": {
                "source_image": f"projects/{_IMAGES}/global/images/{image.name}", "labels": labels,
                "disk_size_gb": disk_gb, "disk_type": f"{zone}/diskTypes/{sold.disk_type}"}}],
            "network_interfaces": [{"network": "global/networks/default", "access_configs": [
                {"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}]}],
            "metadata": {"items": [{"key": k, "value": v} for k, v in metadata.items()]},
        }  # fmt: skip
        if sold.gpu in _ATTACHED_USD_H:
            kind = f"projects/{self._calls.project}/{zone}/acceleratorTypes/{sold.gpu}"
            body["guest_accelerators"] = [
                {"accelerator_type": kind, "accelerator_count": sold.count}
            ]
        return body

    async def list_boxes(self) -> Sequence[Box]:
        """As `Connector.list_boxes`: every zone of the project, or ProviderSilent."""
        return [self._box(instance) for instance in await self._instances()]

    async def destroy(self, permit: TeardownPermit) -> None:
        """As `Connector.destroy`; by the box's number, which no later box of its name has."""
        permit = genuine(permit, provider="gcp")
        where = _where(permit.box_id)
        try:
            operation = await self._calls.ask(
                "Instances", "delete_unary", project=self._calls.project, **where
            )
        except Rejected as error:
            # A project that is not there is a 404, too, and says nothing about the box.
            if error.status == 404 and f"instances/{where['instance']}" in error.text:
                return
            raise
        failure = failure(await self._calls.finished(where["zone"], operation, _DELETED_S))
        if failure is not None:
            raise failure

    async def park(self, lease: Lease) -> None:
        """As `Parking.park`. A box with a local SSD is not stopped: that would empty it."""
        where = {"project": self._calls.project, **_where(lease.box_id or "")}
        instance = await self._calls.ask("Instances", "get", **where)
        if any(disk.type_ == "SCRATCH" for disk in instance.disks):
            raise ProviderTrouble(
                f"{instance.name} has a local SSD, and a stop loses what is on it",
                remedy=f"`gpu-tenant collect {lease.id}`, then `gpu-tenant teardown {lease.id}`",
            )
        failure = failure(await self._calls.ask("Instances", "stop_unary", **where))
        if failure is not None:
            raise failure

    async def resume(self, lease: Lease) -> None:
        """As `Parking.resume`; whether the zone has such a GPU is told by the operation's end."""
        where = _where(lease.box_id or "")
        operation = await self._calls.ask("Instances", "start_unary", project=self._calls.project, **where)
        failure = failure(await self._calls.finished(where["zone"], operation, _STARTED_S))
        if failure is not None:
            raise failure

    async def _instances(self, filtered: str = "") -> list[Any]:
        return await self._listed("Instances", "instances", **({"filter": filtered} if filtered else {}))

    def _box(self, instance: Any) -> Box:
        zone, mark = last(instance.zone), _mark(instance.labels.get(_LABEL, ""))
        state = self._setting.profile.states.get(instance.status, BoxState.UNKNOWN)
        addresses = [c.nat_i_p for nic in instance.network_interfaces for c in nic.access_configs]
        spot = instance.scheduling.provisioning_model == "SPOT"
        gpus = [(last(a.accelerator_type), a.accelerator_count) for a in instance.guest_accelerators]
        gpu, count = gpus[0] if gpus else ("", 0)
        disks = [disk.disk_size_gb for disk in instance.disks if disk.type_ != "SCRATCH"]
        sold = Sold(zone, last(instance.machine_type), gpu, count, "spot" if spot else "standard")
        price = self._price(sold, sum(disks))
        usd_h = price.parked_usd_h if state is BoxState.PARKED else price.running_usd_h
        at = f"{_USER}@{addresses[0]}" if addresses and addresses[0] else None
        return Box(
            provider="gcp", id=BoxId(f"{zone}.{instance.id}"), mark=mark, state=state,
            address=SshAddress(target=at) if at and state is BoxState.READY else None,
            # Of another disk than ours the kind is not shown here, and with it the price.
            price_usd_h=usd_h if mark and len(disks) == 1 else None, interruptible=spot,
            words=f"Google says {words(instance.status)}" if state is BoxState.UNKNOWN else None,
        )  # fmt: skip

    # --- offers

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """As `Market.offers`: what the zones sell and the project's quotas leave room for.

        Raises:
            NoQuota: the quotas leave room for none of it; with the tightest of them.
        """
        machines, gpus, regions, project, image = await asyncio.gather(
            self._listed("MachineTypes", "machine_types", filter=_WITH_GPUS),
            self._listed("AcceleratorTypes", "accelerator_types"),
            self._listed("Regions", ""),
            self._calls.ask("Projects", "get", project=self._calls.project),
            self._image(),
        )
        quotas = {region.name: _quotas(region) for region in regions}
        disk_gb = max(wish.disk_gb, image.disk_size_gb)
        found: list[Offer] = []
        tight: Counter[str] = Counter()
        for sold in _fitting(wish, self._zones, _sales(machines, gpus)):
            room, told = _room(sold, disk_gb, wish, quotas.get(sold.region, {}) | _quotas(project))
            if room >= 1:
                found.append(self._offer(sold, disk_gb, told))
            else:
                tight[told] += 1
        if tight and not found:
            raise NoQuota(
                f"no box of this kind may be made: {tight.most_common(1)[0][0]}",
                remedy="ask Google for more (IAM & Admin, Quotas), or rent elsewhere: `gpu-tenant offers`",
            )
        return found

    def _offer(self, sold: Sold, disk_gb: int, quota: str) -> Offer:
        price, model = self._price(sold, disk_gb), known(_GPUS.get(sold.gpu, sold.gpu))
        notes = [quota]
        if price.running_usd_h is None:
            notes.append(
                f'no rate in the table; give one in config.toml [rates.gcp]: "{sold.rate_key}" = USD per'
                f' hour, "{sold.disk_type}" = USD per GB and month'
            )
        if sold.ssd:
            notes.append(
                "a stop empties its local SSD: no park, and no timer of the provider's is set"
            )
        if sold.model == "spot":
            notes.append("Google may stop it at 30 seconds' notice; its boot disk is kept")
        return Offer(
            provider="gcp", id=sold.id, gpu=model.name if model else sold.gpu, gpu_count=sold.count,
            vram_gib=model.vram_gib if model else None, region=sold.zone, price=price, disk_gb=disk_gb,
            interruptible=sold.model == "spot", trust="datacenter", reliability=None, max_hours=None,
            download_mbps=None, upload_mbps=None, setup_s=120, notes=tuple(notes),
        )  # fmt: skip

    def _price(self, sold: Sold, disk_gb: int) -> Price:
        """What the owner says it costs, or else the table."""
        owner, iowa = self._owner_rates, sold.region in _IOWA
        machine = owner.get(sold.rate_key)
        if machine is None and iowa and sold.model == "standard":
            machine = _MACHINE_USD_H.get(sold.machine)
            if machine is not None and sold.gpu in _ATTACHED_USD_H:
                machine += _ATTACHED_USD_H[sold.gpu] * sold.count
        disk = owner.get(sold.disk_type, _DISK_USD_GB_MONTH.get(sold.disk_type) if iowa else None)
        disk_usd_h = disk * disk_gb / _MONTH_H if disk is not None else None
        return Price(
            gpu_usd_h=machine + _ADDRESS_USD_H if machine is not None else None, disk_usd_h=disk_usd_h,
            parked_usd_h=None if sold.ssd else disk_usd_h, upload_usd_gb=Decimal(0), download_usd_gb=None,
            source="owner" if sold.rate_key in owner else "table", as_of=_AS_OF,
        )  # fmt: skip

    @property
    def _owner_rates(self) -> Mapping[str, Decimal]:
        file = self._setting.state / "config.toml"
        try:
            said = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)
            return {str(k): Decimal(v) for k, v in said.get("rates", {}).get("gcp", {}).items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, ArithmeticError, TypeError, AttributeError) as error:
            raise LocalTrouble(f"{file} cannot be read: {error}", remedy="mend that file") from error

    # --- leftovers

    async def leftovers(self) -> Sequence[Leftover]:
        """As `Residue.leftovers`: disks, addresses and snapshots."""
        disks, addresses, snapshots = await asyncio.gather(
            self._listed("Disks", "disks"),
            self._listed("Addresses", "addresses"),
            self._listed("Snapshots", ""),
        )
        found = [_leftover("disk", d, d.size_gb, _disk_usd_month(d)) for d in disks if not d.users]
        for a in addresses:
            if a.status == "RESERVED" and a.address_type == "EXTERNAL":
                found.append(_leftover("address", a, None, 2 * _ADDRESS_USD_H * _MONTH_H))
        # The rate depends on where it is kept and how: unknown.
        return found + [_leftover("snapshot", s, s.storage_bytes / 1e9, None) for s in snapshots]
