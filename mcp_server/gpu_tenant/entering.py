"""How a person's own ssh reaches the boxes of leases, and what it must know for that."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Literal

from gpu_tenant.cards import Leases
from gpu_tenant.errors import BadRequest, TenantError
from gpu_tenant.model import Lease, LeaseState, LocalAddress, PodAddress, SshAddress
from gpu_tenant.office import WAIT_S
from gpu_tenant.overview import PAGE
from gpu_tenant.record import Record
from gpu_tenant.renting import Renting
from gpu_tenant.settle import PATIENCE_S
from gpu_tenant.ssh_hosts import Inclusion, Reachable, entry, inclusion, refresh, ssh_config


class Login(Record):
    """How to log in to a box with the ssh client of this computer."""

    lease: str
    config: str
    entry: str
    directory: str


class Entering(Renting):
    """The part of a tenancy that lets a person in; `ssh_config` follows every change of a lease."""

    async def login(self, lease: str) -> Login:
        """The configuration with which `ssh LEASE` reaches the box is in place, its host key pinned.

        The box counts as used from now on: what a person does there is no line of the ledger.

        Raises:
            BadRequest: the box is this computer.
            Refused: it has none (any more), or it is parked.
            HostKeyChanged, BoxUnreachable: as for every verb.
        """
        found = await self._running(lease)
        if isinstance(found.address, LocalAddress):
            home = Path(found.address.directory)
            raise BadRequest(
                f"the box of {found.id} is this computer: there is nothing to log in to",
                remedy=f"`cd {home / found.work_directory}`",
            )
        if isinstance(found.address, PodAddress):
            at = found.address
            raise BadRequest(
                f"the box of {found.id} is a pod, which is entered by its cluster's own door",
                remedy=f"`kubectl --context {at.context} -n {at.namespace} exec -it {at.pod} -- sh`",
            )
        if not self.home.known_hosts(found.id).exists():
            await self._reach(found)
        box = self._reachable(found)
        if box is None:
            raise BadRequest(
                f"the box of {found.id} has no address", remedy="`gpu-tenant leases` looks again"
            )
        self.ledger.touch(found.id, at=self._clock.now())
        self._refresh_hosts()
        return Login(
            lease=found.id,
            config=str(ssh_config(self.home)),
            entry=entry(box, self.home, _owner_ssh()),
            directory=found.work_directory,
        )

    def inclusion(self) -> Inclusion:
        """What plain `ssh LEASE` needs in the owner's own configuration, which is not changed by asking.

        The boxes that can be reached so count as used from now on. Of one that is rented later a look tells.
        """
        self._refresh_hosts()
        for lease in self._enterable():
            self.ledger.touch(lease.id, at=self._clock.now())
        return inclusion(self.home, _owner_ssh())

    async def _made_ready(self, lease: Lease, wait_s: float = WAIT_S) -> Lease:
        made = await super()._made_ready(lease, wait_s)
        self._refresh_hosts()
        return made

    async def _close(self, lease: Lease) -> None:
        await super()._close(lease)
        self._refresh_hosts()

    async def _overview(
        self,
        which: Literal["live", "all"],
        *,
        twins: Literal["give_back", "tell"] = "tell",
        at: Collection[str] | None = None,
        patience_s: float = PATIENCE_S,
        limit: int = PAGE,
    ) -> Leases:
        shown = await super()._overview(
            which, twins=twins, at=at, patience_s=patience_s, limit=limit
        )
        self._refresh_hosts()
        return shown

    def _refresh_hosts(self) -> None:
        # A convenience: a verb that did its work has not failed for it, and `ssh` writes it again.
        with suppress(OSError, TenantError):
            boxes = [
                box for lease in self._enterable() if (box := self._reachable(lease)) is not None
            ]
            refresh(boxes, self.home, _owner_ssh())

    def _enterable(self) -> list[Lease]:
        """The leases whose boxes let us in by ssh now."""
        return [
            lease
            for lease in self.ledger.leases("live")
            if lease.state in (LeaseState.ACTIVE, LeaseState.TERMINATING)
            if lease.lets_us_in and isinstance(lease.address, SshAddress)
        ]

    def _reachable(self, lease: Lease) -> Reachable | None:
        address = self._locate(lease)
        return Reachable(lease.id, address) if isinstance(address, SshAddress) else None


def _owner_ssh() -> Path:
    return Path.home() / ".ssh"
