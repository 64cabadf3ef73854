"""Google Compute Engine: VMs with GPUs, which Google's own timer stops. Their disks continue to bill."""

import asyncio
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from gpu_tenant.domain.address import ssh_address
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    LocalTrouble,
    NoCapacity,
    NoQuota,
    ProviderSilent,
    ProviderTrouble,
    Rejected,
)
from gpu_tenant.domain.model import MARK_PREFIX, Box, BoxId, BoxState, Lease
from gpu_tenant.domain.offers import USD_STEP, Attachable, Leftover, Offer, Price, Wish
from gpu_tenant.domain.order import AtProvider, Order
from gpu_tenant.domain.permit import (
    TeardownPermit,
    VolumePermit,
    genuine,
    genuine_for_volume,
)
from gpu_tenant.domain.ports import Asking, Setting, Turns
from gpu_tenant.domain.timestamps import instant
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.volumes import ListedVolume, Volume
from gpu_tenant.providers.drift import Drift
from gpu_tenant.providers.gcp import run_timer, way_in
from gpu_tenant.providers.gcp.catalog import (
    ADDRESS_USD_H,
    AS_OF,
    MONTH_H,
    VOLUME_TYPE,
    WITH_GPUS,
    MachineOnSale,
    disk_usd_gb_month,
    fits,
    in_thirty_days,
    is_zone,
    last,
    list_usd_h,
    quotas_of,
    region_of,
    room,
    sales,
    shows_quota,
    sold_as,
    unused_address_usd_month,
)
from gpu_tenant.providers.gcp.client import GcpClient, Message, failure
from gpu_tenant.providers.gcp.disks import (
    AttachedVolume,
    attached_disks,
    goes_with_box,
    is_made_raw,
    new_disk,
    startup_script,
    volume_of,
)
from gpu_tenant.providers.gpu_catalog import known_gpu
from gpu_tenant.providers.http_client import key_hash, place, words
from gpu_tenant.providers.list_rows import Subject, read_each

_LABEL = "gpu-tenant"
_USER = "tenant"
_IMAGES = "deeplearning-platform-release"
_FAMILIES = (
    "common-cu129-ubuntu-2404-nvidia-580",
    "common-cu129-ubuntu-2204-nvidia-580",
    "common-cu128-ubuntu-2204-nvidia-570",
)
"""Image families with drivers and CUDA. The first that has not been retired is used."""

_CREATED_S, _STARTED_S, _DELETED_S = 300, 180, 60
_DISK_CREATED_S, _DISK_GROWN_S, _DISK_DELETED_S = 120, 60, 60
_NOTICE_S = 120
"""Google gives notice this many seconds before it shuts a Spot box down. The notice must be requested, and is free."""
_NOTICE_REFUSED = re.compile(r"preemption.?notice", re.IGNORECASE)
_UNSEEN = "the quota of this GPU is kept in Cloud Quotas, and was not checked"


_ENDPOINT = "https://compute.googleapis.com"


_ONE_IMAGE = re.compile(r"projects/(?P<project>[^/]+)/global/images/(?P<image>[^/]+)")
_NO_CONTAINER = (
    "a box is a virtual machine: name an image family, PROJECT/FAMILY, or one image, as `template` "
    "in [provider.gcp]"
)


class _Image(NamedTuple):
    """A machine image, and the smallest disk that it fits on."""

    project: str
    name: str
    disk_size_gb: int


class GcpConnector:
    """Rents, stops and deletes VMs with GPUs in one project.

    It does not implement `Billing`: what one VM has cost is found only in an export of the whole bill to BigQuery.
    """

    has_registry_logins = False

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._clock = setting.clock
        self._zones = setting.environ.get("GPU_TENANT_GCP_ZONES", "").replace(",", " ").split()
        self._calls = GcpClient(
            endpoint=setting.api("", variable="GPU_TENANT_GCP_ENDPOINT"),
            credential=setting.credential,
            clock=setting.clock,
        )

    # --- boxes

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`. The request has an id of its own, so that Google recognizes a repeat."""
        label = _label(lease.mark)
        for instance in await self._calls.pages(
            "Instances", "instances", f"labels.{_LABEL}={label}"
        ):
            return self._box(instance)
        sold = sold_as(lease.quote.offer.id) if lease.quote else None
        if lease.quote is None or sold is None:
            raise BadRequest(f"{lease.id} has no offer of Google's", remedy=str(Command("offers")))
        image = await self._image(lease.quote.wish.order)
        volumes = [await self._attached(v) for v in lease.quote.wish.volumes_at("gcp")]
        body = self._body(lease, sold, image, lease.quote.offer.disk_gb, volumes)
        refused = await self._insert_with_notice(lease, sold.zone, body)
        try:
            instance = await self._calls.ask(
                "Instances", "get", {"zone": sold.zone, "instance": body["name"]}
            )
        except Rejected as error:
            if error.status == 404 and refused is not None:
                raise refused from error
            raise ProviderSilent(error.message, remedy=error.remedy) from error
        if instance.labels.get(_LABEL) != label:
            raise ProviderTrouble(
                f"a box called {body['name']} exists, and is not this lease's",
                remedy=f"{Command('leases')} shows what runs",
            )
        return self._box(instance)

    async def _insert_with_notice(
        self, lease: Lease, zone: str, body: dict[str, Any]
    ) -> ProviderTrouble | None:
        """Do what `_insert` does. If Google refuses to give notice before a preemption, request the box without it."""
        try:
            return await self._insert(zone, body, str(uuid5(NAMESPACE_URL, lease.mark)))
        except Rejected as error:
            if error.status != 400 or not _NOTICE_REFUSED.search(error.body):
                raise
            del body["scheduling"]["preemption_notice_duration"]
            # This is another request and needs another id, because Google would answer the same id like the first
            # request.
            again = str(uuid5(NAMESPACE_URL, f"{lease.mark} without notice"))
            return await self._insert(zone, body, again)

    async def _insert(
        self, zone: str, body: dict[str, Any], request_id: str
    ) -> ProviderTrouble | None:
        """Request the box. Return Google's error if the box may exist nevertheless. None if nothing went wrong.

        Raises:
            NoCapacity: no box was made.
            NoQuota: no box was made.
            ProviderTrouble: any other error of the call.
        """
        try:
            operation = await self._calls.ask(
                "Instances",
                "insert_unary",
                {"zone": zone, "instance_resource": body, "request_id": request_id},
                often="once",
            )
        except Rejected as error:
            if error.status == 409:
                return error
            raise
        refused = failure(await self._calls.wait_for(zone, operation, within_s=_CREATED_S))
        if isinstance(refused, NoCapacity | NoQuota):
            raise refused
        return refused

    def _body(
        self,
        lease: Lease,
        sold: MachineOnSale,
        image: _Image,
        disk_gb: int,
        volumes: Sequence[AttachedVolume],
    ) -> dict[str, Any]:
        zone, labels = f"zones/{sold.zone}", {_LABEL: _label(lease.mark)}
        scheduling: dict[str, Any] = {
            "provisioning_model": sold.model.upper(),
            "automatic_restart": False,
            "on_host_maintenance": "TERMINATE",
        }
        if sold.model == "spot" or not sold.ssd:
            # Never DELETE, which might delete the only copy.
            scheduling["instance_termination_action"] = "STOP"
        if sold.model == "spot":
            scheduling["preemption_notice_duration"] = {"seconds": _NOTICE_S}
        if not sold.ssd:
            left_s = (lease.terms.deadline_at - self._clock.now()).total_seconds()
            scheduling["max_run_duration"] = {"seconds": run_timer.run_s(left_s)}
        metadata = {
            "ssh-keys": f"{_USER}:{self._setting.public_key()}",
            "block-project-ssh-keys": "TRUE",
            # If OS Login is on in the project, the key above would be ignored.
            "enable-oslogin": "FALSE",
            **startup_script(volumes),
        }
        body: dict[str, Any] = {
            "name": f"gt-{labels[_LABEL].replace('_', '-')}",
            "labels": labels,
            "scheduling": scheduling,
            "machine_type": f"{zone}/machineTypes/{sold.machine}",
            "disks": [
                {
                    "boot": True,
                    "auto_delete": True,
                    "initialize_params": {
                        "source_image": f"projects/{image.project}/global/images/{image.name}",
                        "labels": labels,
                        "disk_size_gb": max(disk_gb, image.disk_size_gb),
                        "disk_type": f"{zone}/diskTypes/{sold.disk_type}",
                    },
                },
                *attached_disks(self._calls.project, volumes),
            ],
            "network_interfaces": [
                {
                    "network": "global/networks/default",
                    "access_configs": [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}],
                }
            ],
            "metadata": {"items": [{"key": k, "value": v} for k, v in metadata.items()]},
        }
        if sold.attached:
            kind = f"projects/{self._calls.project}/{zone}/acceleratorTypes/{sold.gpu}"
            body["guest_accelerators"] = [
                {"accelerator_type": kind, "accelerator_count": sold.count}
            ]
        return body

    def refused_image(self, source: AtProvider) -> str | None:
        """Implement `Imaging.refused_image`: a box is a virtual machine, made from a machine image."""
        return _NO_CONTAINER if source.image else None

    async def _image(self, order: Order) -> _Image:
        """Return the machine image that is ordered, or else the newest one with drivers.

        Raises:
            BadRequest: there is no such image, or this account may not use it.
        """
        named = order.image_at("gcp").template
        if named is not None:
            project, _, name = named.rpartition("/")
            single = _ONE_IMAGE.fullmatch(named)
            try:
                if single:
                    where = {"project": single["project"], "image": single["image"]}
                    found = await self._calls.ask("Images", "get", where)
                else:
                    where = {"project": project or _IMAGES, "family": name}
                    found = await self._calls.ask("Images", "get_from_family", where)
            except Rejected as error:
                if error.status not in (400, 403, 404):
                    raise
                raise BadRequest(
                    f"Google shows no image {named!r} to this account: {error.message}",
                    remedy="name a family, PROJECT/FAMILY, or projects/PROJECT/global/images/IMAGE",
                ) from error
            return _Image(where["project"], found.name, found.disk_size_gb)
        for family in _FAMILIES:
            try:
                found = await self._calls.ask(
                    "Images", "get_from_family", {"project": _IMAGES, "family": family}
                )
                return _Image(_IMAGES, found.name, found.disk_size_gb)
            except Rejected as error:
                if error.status != 404:
                    raise
        raise ProviderTrouble(
            f"none of the image families is left at {_IMAGES}: {', '.join(_FAMILIES)}",
            remedy=f"this needs a newer gpu-tenant; rent elsewhere: {Command('offers')}",
        )

    async def list_boxes(self) -> Sequence[Box]:
        """Implement `Connector.list_boxes`, for every zone of the project. ProviderSilent if a zone is missing."""
        shown = await self._calls.pages("Instances", "instances")
        return read_each("gcp", shown, self._box, _subject, Drift(self._setting))

    @property
    def ahead(self) -> timedelta | None:
        """Implement `Timekeeping.ahead`."""
        return self._calls.ahead

    def asked_with(self, salt: str) -> Asking:
        """Implement `Accounted.asked_with`. The boxes belong to the project, whichever account asks for them."""
        endpoint = self._setting.api(_ENDPOINT, variable="GPU_TENANT_GCP_ENDPOINT")
        return Asking(where=place(endpoint), key=key_hash(self._calls.project, salt))

    async def account(self) -> str | None:
        """Implement `Accounted.account`."""
        return f"project {self._calls.project}"

    async def obstacles(self) -> Sequence[str]:
        """Implement `Prechecking.obstacles`."""
        return await way_in.obstacles(self._calls)

    async def find_box(self, lease: Lease) -> Box | None:
        """Implement `Findable.find_box`."""
        where = _where(lease.box_id)
        try:
            return self._box(await self._calls.ask("Instances", "get", where))
        except Rejected as error:
            if error.status == 404 and f"instances/{where['instance']}" in error.body:
                return None
            raise

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`, by the box's number, which no later box of the same name has."""
        permit = genuine(permit, provider="gcp")
        where = _where(permit.box_id)
        try:
            operation = await self._calls.ask("Instances", "delete_unary", where)
        except Rejected as error:
            # A missing project is a 404, too, and says nothing about the box.
            if error.status == 404 and f"instances/{where['instance']}" in error.body:
                return
            raise
        done = await self._calls.wait_for(where["zone"], operation, within_s=_DELETED_S)
        _unless_failed(done)

    async def park(self, lease: Lease) -> None:
        """Implement `Parking.park`. A box with a local SSD is not stopped, because that would empty the SSD."""
        where = _where(lease.box_id)
        instance = await self._calls.ask("Instances", "get", where)
        if any(disk.type_ == "SCRATCH" for disk in instance.disks):
            raise ProviderTrouble(
                f"{instance.name} has a local SSD, and a stop loses what is on it",
                remedy=f"{Command('collect', lease.id)}, then {Command('teardown', lease.id)}",
            )
        _unless_failed(await self._calls.ask("Instances", "stop_unary", where))

    async def resume(self, lease: Lease) -> None:
        """Implement `Parking.resume`. Whether the zone has such a GPU is known only when the operation ends."""
        where = _where(lease.box_id)
        operation = await self._calls.ask("Instances", "start_unary", where)
        done = await self._calls.wait_for(where["zone"], operation, within_s=_STARTED_S)
        _unless_failed(done)

    async def timer_at(self, lease: Lease) -> datetime | None:
        """Implement `Timed.timer_at`."""
        return run_timer.fires_at(await self._calls.ask("Instances", "get", _where(lease.box_id)))

    async def turns(self, lease: Lease) -> Turns | None:
        """Implement `Dating.turns`. A resume from a suspension counts as a start."""
        seen = await self._calls.ask("Instances", "get", _where(lease.box_id))
        if not seen.last_start_timestamp:
            return None
        return Turns(
            started=f"started {seen.last_start_timestamp}, suspended {seen.last_suspended_timestamp or 'never'}",
            stopped_at=instant(seen.last_stop_timestamp),
        )

    async def last_change(self, lease: Lease) -> str | None:
        """Implement `Chronicling.last_change`."""
        turns = await self.turns(lease)
        if turns is None or turns.stopped_at is None:
            return None
        return f"{turns.started}, stopped {turns.stopped_at.isoformat()}"

    def _box(self, instance: Message) -> Box:
        if not (instance.id and instance.zone):
            raise ProviderSilent(
                "an instance does not tell its number", remedy=str(Command("leases"))
            )
        mark = _mark(instance.labels.get(_LABEL, ""))
        state = self._setting.profile.states.get(instance.status, BoxState.UNKNOWN)
        addresses = [c.nat_i_p for nic in instance.network_interfaces for c in nic.access_configs]
        at = next((f"{_USER}@{address}" for address in addresses if address), None)
        spot = instance.scheduling.provisioning_model == "SPOT"
        return Box(
            provider="gcp",
            id=BoxId(_identity(instance)),
            mark=mark,
            state=state,
            address=ssh_address(at) if at and state is BoxState.READY else None,
            price_usd_h=self._price_now(instance, state) if mark else None,
            interruptible=spot,
            name=instance.name or None,
            gpus=", ".join(
                f"{a.accelerator_count} x {last(a.accelerator_type)}"
                for a in instance.guest_accelerators
            )
            or None,
            words=f"Google says {words(instance.status)}" if state is BoxState.UNKNOWN else None,
            created_at=instant(instance.creation_timestamp),
        )

    def _price_now(self, instance: Message, state: BoxState) -> Decimal | None:
        """Return what a box of ours costs now. Its disk is of the kind that we gave it."""
        gpus = [
            (last(a.accelerator_type), a.accelerator_count) for a in instance.guest_accelerators
        ]
        gpu, count = gpus[0] if gpus else ("", 0)
        sold = MachineOnSale(
            last(instance.zone),
            last(instance.machine_type),
            gpu,
            count,
            instance.scheduling.provisioning_model.lower(),
        )
        size_gb = sum(disk.disk_size_gb for disk in instance.disks if goes_with_box(disk))
        price = self._price(sold, size_gb)
        return price.parked_usd_h if state is BoxState.PARKED else price.running_usd_h

    # --- volumes, which are zonal disks

    def refused_volumes(self, volumes: Sequence[Attachable]) -> str | None:
        """Implement `Storing.refused_volumes`."""
        several = len({volume.region for volume in volumes}) > 1
        return "its volumes are in several zones, and a VM is in one" if several else None

    def volume_usd_month(self, size_gb: int, region: str) -> Decimal | None:
        """Implement `Storing.volume_usd_month`, by the owner's rates, or else by the price list."""
        return _disk_usd_month(VOLUME_TYPE, region, size_gb, self._owner_rates())

    async def create_volume(self, volume: Volume) -> ListedVolume:
        """Implement `Storing.create_volume`. The disk is blank: the first box that has it gives it a file system."""
        zone = volume.region
        if not is_zone(zone):
            raise BadRequest(
                f"{plain(zone)[:40]!r} is not a zone, and a volume at Google is in one",
                remedy=f"take a zone, such as us-central1-a, in which {Command('offers')} shows boxes",
            )
        if ours := next((v for v in await self.list_volumes() if v.name == volume.mark), None):
            return ours
        request: dict[str, object] = {
            "zone": zone,
            "disk_resource": new_disk(volume, _LABEL),
            "request_id": str(uuid5(NAMESPACE_URL, volume.mark)),
        }
        try:
            operation = await self._calls.ask("Disks", "insert_unary", request, often="once")
        except Rejected as error:
            if error.status == 409:
                raise ProviderSilent(
                    f"{error.message}; a volume may exist", remedy=error.remedy
                ) from error
            raise
        _unless_failed(await self._calls.wait_for(zone, operation, within_s=_DISK_CREATED_S))
        try:
            made = await self._calls.ask("Disks", "get", {"zone": zone, "disk": volume.mark})
        except Rejected as error:
            raise ProviderSilent(error.message, remedy=error.remedy) from error
        return _volume(made, self._owner_rates())

    async def list_volumes(self) -> Sequence[ListedVolume]:
        """Implement `Storing.list_volumes`. A disk that is in several zones is left out: no box of ours can have it."""
        disks, rates = await self._calls.pages("Disks", "disks"), self._owner_rates()
        return [_volume(disk, rates) for disk in disks if disk.zone]

    async def grow_volume(self, volume: Volume, size_gb: int) -> None:
        """Implement `Growing.grow_volume`. The script of the next box enlarges the file system."""
        request: dict[str, object] = {
            "zone": volume.region,
            "disk": volume.volume_id or "",
            "disks_resize_request_resource": {"size_gb": size_gb},
        }
        # Sent only once, because Google refuses a size that the disk already has.
        operation = await self._calls.ask("Disks", "resize_unary", request, often="once")
        _unless_failed(await self._calls.wait_for(volume.region, operation, within_s=_DISK_GROWN_S))

    async def destroy_volume(self, permit: VolumePermit) -> None:
        """Implement `Storing.destroy_volume`, by the disk's number. Google itself refuses it while a box has the disk."""
        permit = genuine_for_volume(permit, provider="gcp")
        where = {"zone": permit.region, "disk": permit.volume_id}
        try:
            operation = await self._calls.ask("Disks", "delete_unary", where)
        except Rejected as error:
            # A missing project is a 404, too, and says nothing about the disk.
            if error.status == 404 and f"disks/{permit.volume_id}" in error.body:
                return
            raise
        done = await self._calls.wait_for(permit.region, operation, within_s=_DISK_DELETED_S)
        _unless_failed(done)

    async def _attached(self, volume: Attachable) -> AttachedVolume:
        """Check the volume's disk, and return what a box needs to mount it. A box refers to a disk only by its name.

        Raises:
            ProviderTrouble: the disk of that name is missing, or is another one.
        """
        where = {"zone": volume.region, "disk": volume.mark}
        try:
            disk = await self._calls.ask("Disks", "get", where)
        except Rejected as error:
            if error.status != 404:
                raise
            disk = None
        if disk is None or str(disk.id) != volume.id:
            raise ProviderTrouble(
                f"the disk of the volume {volume.name} is not at Google any more; nothing was rented",
                remedy=f"{Command('volumes')} looks again",
            )
        return AttachedVolume(volume, made_raw=is_made_raw(disk, _LABEL))

    async def _disk_kinds(self, wish: Wish) -> list[str]:
        """Return the disk kinds of the ordered volumes. If none is ordered, Google is not asked."""
        ordered = {volume.id for volume in wish.volumes_at("gcp")}
        if not ordered:
            return []
        disks = await self._calls.pages("Disks", "disks")
        return [last(disk.type_) for disk in disks if str(disk.id) in ordered]

    # --- offers

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """Implement `Market.offers`: return what the zones sell, as far as the project's quotas leave room for it.

        Raises:
            NoQuota: the quotas leave room for none of it; the error names the tightest quota.
        """
        machines, gpus, regions, project, image, volumes = await asyncio.gather(
            self._calls.pages("MachineTypes", "machine_types", WITH_GPUS),
            self._calls.pages("AcceleratorTypes", "accelerator_types"),
            self._calls.pages("Regions"),
            self._calls.ask("Projects", "get", {}),
            self._image(wish.order),
            self._disk_kinds(wish),
        )
        by_region = {region.name: quotas_of(region) for region in regions}
        disk_gb = max(wish.disk_gb, image.disk_size_gb)
        found: list[Offer] = []
        full: Counter[str] = Counter()
        for sold in sales(machines, gpus):
            if not wish.reaches_volumes("gcp", sold.zone) or any(map(sold.refuses, volumes)):
                continue
            if fits(sold, wish) and (not self._zones or sold.zone in self._zones):
                quotas = {**by_region.get(sold.region, {}), **quotas_of(project)}
                left = room(sold, quotas, disk_gb=disk_gb, hours=wish.hours)
                if left.boxes == 0:
                    full[left.tightest] += 1
                    continue
                unseen = () if shows_quota(sold, quotas) else (_UNSEEN,)
                found.append(self._offer(sold, disk_gb, (f"quota: {left.tightest}", *unseen)))
        if full and not found:
            raise NoQuota(
                f"the quotas leave no room for such a box: {full.most_common(1)[0][0]}",
                remedy=f"ask Google for more (IAM & Admin, Quotas), or rent elsewhere: {Command('offers')}",
            )
        return found

    def _offer(self, sold: MachineOnSale, disk_gb: int, quotas: tuple[str, ...]) -> Offer:
        price, model = self._price(sold, disk_gb), known_gpu(sold.gpu_name)
        notes = list(quotas)
        missing = {
            f'"{sold.rate_key}" = USD per hour': price.gpu_usd_h,
            f'"{sold.disk_type}" = USD per GB and month': price.disk_usd_h,
        }
        unknown = ", ".join(key for key, usd_h in missing.items() if usd_h is None)
        if unknown:
            notes.append(
                f"the table has no rate for it; give one in config.toml [rates.gcp]: {unknown}"
            )
        if sold.ssd:
            notes.append(
                "a stop empties its local SSD: it cannot be parked, and Google's timer is not set"
            )
        if sold.model == "spot":
            notes.append(
                f"Google may stop it at {_NOTICE_S} seconds' notice, which is asked for at renting; its boot disk is "
                "kept"
            )
        return Offer(
            provider="gcp",
            id=sold.id,
            gpu=model.name if model else sold.gpu,
            gpu_count=sold.count,
            vram_gib=model.vram_gib if model else None,
            region=sold.zone,
            price=price,
            disk_gb=disk_gb,
            interruptible=sold.model == "spot",
            trust="datacenter",
            reliability=None,
            max_hours=None,
            download_mbps=None,
            upload_mbps=None,
            cpus=sold.cpus or None,
            ram_gib=sold.ram_gib or None,
            setup_s=120,
            notes=tuple(notes),
        )

    def _price(self, sold: MachineOnSale, disk_gb: int) -> Price:
        """Return the price by the owner's rates, or else by the price list."""
        owner = self._owner_rates()
        machine = owner.get(sold.rate_key, list_usd_h(sold))
        disk = owner.get(sold.disk_type, disk_usd_gb_month(sold.region, sold.disk_type))
        disk_usd_h = (disk * disk_gb / MONTH_H).quantize(USD_STEP) if disk is not None else None
        return Price(
            gpu_usd_h=machine + ADDRESS_USD_H if machine is not None else None,
            disk_usd_h=disk_usd_h,
            parked_usd_h=disk_usd_h if not sold.ssd else None,
            upload_usd_gb=Decimal(0),
            download_usd_gb=None,
            source="owner" if sold.rate_key in owner else "table",
            as_of=None if sold.rate_key in owner else AS_OF,
        )

    def _owner_rates(self) -> Mapping[str, Decimal]:
        file = self._setting.state / "config.toml"
        try:
            said = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)
            return {key: Decimal(usd) for key, usd in said.get("rates", {}).get("gcp", {}).items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, ArithmeticError, TypeError, AttributeError) as error:
            raise LocalTrouble(
                f"{file} cannot be read: {error}", remedy="correct that file"
            ) from error

    # --- leftovers

    async def leftovers(self) -> Sequence[Leftover]:
        """Implement `Residue.leftovers`: disks that no box uses, addresses that nothing uses, and snapshots."""
        disks, addresses, snapshots = await asyncio.gather(
            self._calls.pages("Disks", "disks"),
            self._calls.pages("Addresses", "addresses"),
            self._calls.pages("Snapshots"),
        )
        rates = self._owner_rates()
        return [
            *(_disk(disk, rates) for disk in disks if not disk.users),
            *(
                _leftover("address", address, None, unused_address_usd_month(last(address.region)))
                for address in addresses
                if address.status == "RESERVED" and address.address_type == "EXTERNAL"
            ),
            # What a snapshot costs depends on where and how it is kept.
            *(_leftover("snapshot", shot, shot.storage_bytes / 1e9, None) for shot in snapshots),
        ]


def _disk(disk: Message, rates: Mapping[str, Decimal]) -> Leftover:
    usd_month = _disk_usd_month(last(disk.type_), last(disk.zone), disk.size_gb, rates)
    return _leftover("disk", disk, disk.size_gb, usd_month)


def _volume(disk: Message, rates: Mapping[str, Decimal]) -> ListedVolume:
    if not (disk.id and disk.name):
        raise ProviderSilent("a disk does not tell its number", remedy=str(Command("volumes")))
    usd_month = _disk_usd_month(last(disk.type_), last(disk.zone), disk.size_gb, rates)
    return volume_of(disk, usd_month)


def _disk_usd_month(
    kind: str, zone: str, size_gb: int, rates: Mapping[str, Decimal]
) -> Decimal | None:
    """Return what such a disk costs in thirty days. None if neither the owner nor the price list says so."""
    usd = rates.get(kind, disk_usd_gb_month(region_of(zone), kind))
    return None if usd is None else in_thirty_days(usd * size_gb)


def _leftover(
    kind: Literal["disk", "address", "snapshot"],
    thing: Message,
    size_gb: float | None,
    usd_month: Decimal | None,
) -> Leftover:
    return Leftover(
        provider="gcp",
        kind=kind,
        id=str(thing.id),
        name=thing.name,
        mark=_mark(thing.labels.get(_LABEL, "")),
        size_gb=size_gb,
        usd_month=usd_month,
    )


def _label(mark: str) -> str:
    """Write the mark with the characters that labels allow. `_mark` turns the label back into the same mark.

    Raises:
        BadRequest: the mark cannot be written in that way.
    """
    label = mark.removeprefix(MARK_PREFIX).replace(":", "_", 1)
    if not mark or _mark(label) != mark:
        raise BadRequest(f"{mark!r} is not a mark that fits a label", remedy=str(Command("doctor")))
    return label


def _mark(label: str) -> str | None:
    fits_alphabet = re.fullmatch(r"[a-z0-9][-_a-z0-9]{0,62}", label)
    return MARK_PREFIX + label.replace("_", ":", 1) if fits_alphabet else None


def _identity(instance: Message) -> str:
    return f"{last(instance.zone)}/instances/{instance.id}"


def _subject(instance: Message) -> Subject:
    identity = _identity(instance) if instance.id and instance.zone else None
    return Subject(identity, _mark(instance.labels.get(_LABEL, "")), mark_is_told=True)


def _where(box_id: str | None) -> dict[str, str]:
    """Return the zone and the number of the instance from our id of a box."""
    zone, _, number = (box_id or "").partition("/instances/")
    return {"zone": zone, "instance": number}


def _unless_failed(operation: Message) -> None:
    """Require that nothing has gone wrong in the operation so far.

    Raises:
        ProviderTrouble: something has. The error is NoCapacity or NoQuota if that is the reason.
    """
    trouble = failure(operation)
    if trouble is not None:
        raise trouble


def connect(setting: Setting) -> GcpConnector:
    """Return the connector for the project that the credential's place names."""
    return GcpConnector(setting)
