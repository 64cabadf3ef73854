"""The owner's own machines, lent to a lease and handed back. Nothing is ever deleted on them."""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from pydantic import Field, ValidationError

from gpu_tenant.domain.errors import BadRequest, LocalTrouble
from gpu_tenant.domain.model import Box, Lease
from gpu_tenant.domain.offers import Offer, Price, Wish
from gpu_tenant.domain.permit import TeardownPermit, genuine
from gpu_tenant.domain.ports import Setting
from gpu_tenant.domain.record import Record
from gpu_tenant.providers.console.registry import Lent
from gpu_tenant.providers.gpu_catalog import described_gpus, known_gpu

_SETUP_S = 10.0
"""The machine is on already, so this is only the time of the first contact."""


class OwnMachine(Record):
    """One `[[own]]` entry of the configuration: a machine that its owner lends."""

    address: str = Field(pattern=r"^[^-\s]\S*$", description="`user@host[:port]`, or an ssh alias")
    gpus: str = Field(description="as in `RTX 4090:2`")
    rate_usd_h: Decimal | None = Field(
        default=None, ge=0, description="what an hour costs its owner; absent: unknown"
    )
    drained: bool = Field(default=False, description="true: not to be lent for now")
    region: str | None = None
    disk_gb: int | None = Field(default=None, gt=0, description="absent: not looked at")
    notes: str | None = None


class OwnConnector:
    """Lends the machines that the owner's configuration names, and keeps the list of those that are lent.

    Each lent machine is one small file below one directory of this computer.
    """

    def __init__(self, lent: Path, configuration: Path) -> None:
        self._lent = Lent("own", lent)
        self._configuration = configuration

    async def offers(self, wish: Wish) -> list[Offer]:
        """Implement `Market.offers`: return the machines that are neither drained nor lent.

        Raises:
            LocalTrouble: the configuration does not say which machines there are.
        """
        lent = {box.id for box in await self.list_boxes()}
        return [
            _offer(machine, wish)
            for machine in _machines(self._configuration)
            if not machine.drained and machine.address not in lent
            if wish.offer in (None, machine.address)
        ]

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`: put the named machine on the list of lent ones, under this lease."""
        return self._lent.lend(lease)

    async def list_boxes(self) -> list[Box]:
        """Implement `Connector.list_boxes`."""
        return self._lent.boxes()

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`: take the machine off the list. Nothing on it is touched."""
        self._lent.remove(genuine(permit, provider="own").box_id)

    def let_go(self, lease: Lease) -> None:
        """Implement `Lending.let_go`."""
        if lease.box_id is not None:
            self._lent.remove(lease.box_id)


def connect(setting: Setting) -> OwnConnector:
    """Return the connector for machines that are recorded below the user's state directory."""
    return OwnConnector(setting.state / "lent", setting.state / "config.toml")


def _machines(configuration: Path) -> list[OwnMachine]:
    import tomllib  # only a search looks there

    try:
        # Money is Decimal, so TOML's decimal numbers are not read as floats.
        said = tomllib.loads(configuration.read_text(encoding="utf-8"), parse_float=Decimal)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise LocalTrouble(
            f"{configuration} cannot be read: {error}", remedy="correct that file"
        ) from error
    entries = said.get("own", [])
    if not isinstance(entries, list):
        raise LocalTrouble(
            f"{configuration}: `own` is not a list of machines",
            remedy="begin each machine with a line `[[own]]`",
        )
    machines = [_machine(entry, number) for number, entry in enumerate(entries, 1)]
    for address, count in Counter(machine.address for machine in machines).items():
        if count > 1:
            raise _bad(address, f"it is listed {count} times")
    return machines


def _machine(entry: object, number: int) -> OwnMachine:
    address = entry.get("address") if isinstance(entry, dict) else None
    name = address if isinstance(address, str) else f"machine number {number}"
    try:
        machine = OwnMachine.model_validate(entry)
        described_gpus(machine.gpus)
    except ValidationError as error:
        raise _bad(name, "; ".join(_complaints(error))) from error
    except BadRequest as error:
        raise _bad(name, f"`gpus`: {error.message}; {error.remedy}") from error
    return machine


def _complaints(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        where = ".".join(str(part) for part in problem["loc"])
        yield f"`{where}`: {problem['msg'].lower()}"


def _bad(name: str, why: str) -> LocalTrouble:
    return LocalTrouble(
        f"{name} in config.toml cannot be lent: {why}", remedy="correct its [[own]] entry"
    )


def _offer(machine: OwnMachine, wish: Wish) -> Offer:
    gpu, gpu_count = described_gpus(machine.gpus)
    model = known_gpu(gpu)
    # The owner's rate covers everything, so if the rate is known, nothing else is billed.
    rest = None if machine.rate_usd_h is None else Decimal(0)
    notes = [f"your own, at {machine.address}: trusted as far as you trust it"]
    if machine.disk_gb is None:
        notes.append("its owner has not stated its free disk: the audit measures it")
    if machine.notes:
        notes.append(machine.notes)
    return Offer(
        provider="own",
        id=machine.address,
        gpu=gpu,
        gpu_count=gpu_count,
        vram_gib=model.vram_gib if model else None,
        region=machine.region,
        price=Price(
            gpu_usd_h=machine.rate_usd_h,
            disk_usd_h=rest,
            parked_usd_h=None,
            upload_usd_gb=rest,
            download_usd_gb=rest,
            source="owner",
        ),
        disk_gb=machine.disk_gb or wish.disk_gb,
        interruptible=False,
        trust="verified",
        reliability=None,
        max_hours=None,
        download_mbps=None,
        upload_mbps=None,
        setup_s=_SETUP_S,
        notes=tuple(notes),
    )
