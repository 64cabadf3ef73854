"""Keeps the ssh configuration for the boxes of leases up to date."""

from contextlib import suppress
from pathlib import Path

from gpu_tenant.domain.errors import TenantError
from gpu_tenant.domain.model import Lease, LeaseState, SshAddress
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.ssh_config import Reachable, refresh


def refresh_hosts(context: Context) -> None:
    """Write the ssh configuration with which plain `ssh LEASE` finds every box that lets us in now."""
    # This is only a convenience. If it fails, go on: the next change of a lease writes the file again.
    with suppress(OSError, TenantError):
        boxes = [
            box for lease in enterable(context) if (box := reachable(context, lease)) is not None
        ]
        refresh(boxes, context.home, owner_ssh())


def enterable(context: Context) -> list[Lease]:
    """Return the leases whose boxes let us in by ssh now."""
    return [
        lease
        for lease in context.ledger.leases("live")
        if lease.state in (LeaseState.ACTIVE, LeaseState.TERMINATING)
        if lease.lets_us_in and isinstance(lease.address, SshAddress)
    ]


def reachable(context: Context, lease: Lease) -> Reachable | None:
    """Return the address at which a person's ssh finds the lease's box. None if the box is not reached by ssh."""
    address = context.locate(lease)
    return Reachable(lease.id, address) if isinstance(address, SshAddress) else None


def owner_ssh() -> Path:
    """Return the directory of the owner's own ssh configuration."""
    return Path.home() / ".ssh"


def forget_host_key(context: Context, lease: Lease) -> None:
    """Forget the pinned host key of a rented box that was started again, because a container comes back with another."""
    if lease.quote is not None:
        context.home.known_hosts(lease.id).unlink(missing_ok=True)
