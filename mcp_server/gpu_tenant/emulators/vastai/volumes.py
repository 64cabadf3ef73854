"""Volumes of Vast.ai in a rehearsal: each on one machine, in one instance at a time, billed by GB until it is deleted."""

import re
from collections.abc import Sequence
from decimal import Decimal

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gpu_tenant.emulators.boxes import Sites
from gpu_tenant.emulators.vastai.market import matching
from gpu_tenant.emulators.vastai.responses import MONTH_H, Row, no, yes
from gpu_tenant.emulators.world import Thing, World

_ROOM_GB, _DAYS = 900, 90
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
_HOSTS: dict[int, tuple[int, Decimal, str]] = {
    41: (77, Decimal("0.10"), "Oregon, US"),
    43: (78, Decimal("0.12"), "Brno, CZ"),
    44: (79, Decimal("0.18"), "Virginia, US"),
    46: (80, Decimal("0.15"), "Amsterdam, NL"),
}
"""By machine: the number of its host's offer of volumes, the price of a GB for a month, and where the machine is."""


class VastVolumes:
    """The account's volumes, and what the hosts offer."""

    def __init__(self, world: World, sites: Sites) -> None:
        self._world = world
        self._sites = sites

    def search(self, request: Request, body: Row) -> Response:
        """The offers of volumes that a search finds."""
        tests = dict(body)
        size = Decimal(str(tests.pop("allocated_storage", 1)))
        order, limit = tests.pop("order", []), tests.pop("limit", None)
        rows = [self._offer(machine, size) for machine in _HOSTS]
        found = matching(rows, tests, order)
        if isinstance(found, Response):
            return found
        return JSONResponse({"offers": found[: limit if isinstance(limit, int) else len(found)]})

    def listed(self, request: Request, body: Row) -> Response:
        """Every volume of the account."""
        return JSONResponse(
            {"volumes": [self._row(v) for v in self._world.listed_things("volume")]}
        )

    def make(self, request: Request, body: Row) -> Response:
        """Rent a volume that is attached to no instance."""
        size, name = body.get("size", 15), body.get("name")
        machine = next((m for m, (ask, _, _) in _HOSTS.items() if ask == body.get("id")), None)
        if machine is None:
            return no(400, "invalid_args", "Please provide a valid volume ID.")
        if not isinstance(size, int) or not 1 <= size <= self._room_gb(machine):
            return no(400, "invalid_args", "The size of the volume does not fit the offer.")
        if name is not None and not _NAME.fullmatch(str(name)):
            return no(400, "invalid_args", "A name has letters, digits and underscores.")
        return yes(volume_name=f"V.{self.add(size, name, machine).id}")

    def drop(self, request: Request, body: Row) -> Response:
        """Delete the volume, unless an instance has it."""
        thing = self._world.state.things.get(str(request.query_params.get("id", body.get("id"))))
        if thing is None or thing.kind != "volume" or thing.phase == "ended":
            return no(404, "no_such_volume", "Volume with that ID does not exist.")
        if self._users(thing):
            return no(400, "invalid_args", "The volume is used by an instance.")
        self._sites.delete_volume(thing.id)
        self._world.end(thing, status="deleted")
        return yes()

    def add(self, gb: int, label: JsonValue, machine: int = 41) -> Thing:
        """Add a volume, which bills from now on."""
        thing = self._world.rent(
            str(31_000_000 + self._world.number()),
            "volume",
            str(label or ""),
            status="created",
            size=gb,
            label=label,
            machine_id=machine,
            end_date=self._world.now + _DAYS * 86_400,
        )
        self._world.bill(thing, volume=gb * _HOSTS[machine][1] / MONTH_H)
        return thing

    def refused(self, asked: JsonValue, machine: JsonValue) -> Response | None:
        """Why no instance on that machine can have what its order says of a volume. None if it can."""
        if not isinstance(asked, dict):
            return None
        number, is_new = asked.get("volume_id"), asked.get("create_new") is True
        if is_new:
            offered = _HOSTS.get(int(str(machine)))
            fits = offered is not None and offered[0] == number
        else:
            thing = self._world.state.things.get(str(number))
            is_there = thing is not None and thing.kind == "volume" and thing.phase != "ended"
            fits = (
                thing is not None
                and is_there
                and thing.facts["machine_id"] == machine
                and not self._users(thing)
            )
        return None if fits else no(400, "invalid_args", "error 400: Invalid args: volume_info")

    def mount(self, asked: JsonValue, machine: JsonValue) -> dict[str, JsonValue]:
        """The volumes of a new instance, by the paths at which they are mounted. An ordered one is made now."""
        if not isinstance(asked, dict):
            return {}
        number = str(asked.get("volume_id"))
        if asked.get("create_new") is True:
            size = int(str(asked.get("size", 15)))
            number = self.add(size, asked.get("name"), int(str(machine))).id
        return {str(asked.get("mount_path", "/data")): number}

    def _users(self, volume: Thing) -> Sequence[Thing]:
        return [box for box in self._world.things() if volume.id in mounts_of(box).values()]

    def _room_gb(self, machine: int) -> int:
        held = [v for v in self._world.things("volume") if v.facts["machine_id"] == machine]
        return _ROOM_GB - sum(int(str(v.facts["size"])) for v in held)

    def _offer(self, machine: int, size_gb: Decimal) -> Row:
        ask, usd_month, place = _HOSTS[machine]
        return {
            "id": ask,
            "ask_contract_id": ask,
            "machine_id": machine,
            "host_id": machine,
            "disk_space": self._room_gb(machine),
            "storage_cost": float(usd_month),
            "storage_total_cost": float(usd_month * size_gb / MONTH_H),
            "duration": _DAYS * 86_400,
            "end_date": self._world.now + _DAYS * 86_400,
            "verification": "verified",
            "verified": True,
            "external": False,
            "inet_up": 800.0,
            "inet_down": 900.0,
            "geolocation": place,
            "reliability2": 0.995,
            "static_ip": True,
        }

    def _row(self, thing: Thing) -> Row:
        """That volume as the API shows it."""
        return {
            "id": int(thing.id),
            "label": thing.facts["label"],
            "type": "machine",
            "disk_space": thing.facts["size"],
            "storage_total_cost": float(self._world.rate(thing)),
            "status": thing.status,
            "start_date": thing.created_at,
            "end_date": thing.facts["end_date"],
            "machine_id": thing.facts["machine_id"],
            "host_id": thing.facts["machine_id"],
            "public_ipaddr": f"203.0.113.{thing.facts['machine_id']}",
            "reliability2": 0.995,
            "verification": "verified",
            "disk_name": "NVME 4TB",
            "inet_up": 800.0,
            "inet_down": 900.0,
            "geolocation": _HOSTS[int(str(thing.facts["machine_id"]))][2],
            "driver_version": "570.124.04",
            "cluster_id": None,
            "instances": [{"id": int(box.id)} for box in self._users(thing)],
        }


def mounts_of(box: Thing) -> dict[str, str]:
    """The volumes of that instance, by the paths at which they are mounted."""
    volumes = box.facts.get("volumes")
    return {at: str(number) for at, number in volumes.items()} if isinstance(volumes, dict) else {}
