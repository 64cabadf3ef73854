"""The ssh configuration that lists the boxes of leases, kept up to date with the leases."""

from contextlib import suppress
from pathlib import Path

from gpu_tenant.domain.errors import TenantError
from gpu_tenant.domain.model import Lease, LeaseState, SshAddress
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.ssh_config import Reachable, refresh


def refresh_hosts(context: Context) -> None:
    """Write the ssh configuration with which plain `ssh LEASE` finds every box that lets us in now."""
    # This is a convenience. If it fails, the verb has still done its work, and the next change of a
    # lease writes the file again.
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
    """Return where a person's ssh finds the box of the lease. None if the box is not reached by ssh."""
    address = context.locate(lease)
    return Reachable(lease.id, address) if isinstance(address, SshAddress) else None


def owner_ssh() -> Path:
    """Where the owner's own ssh has its configuration."""
    return Path.home() / ".ssh"
