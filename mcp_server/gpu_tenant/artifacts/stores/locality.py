"""Where a durable store is, according to its settings, and whether it might vanish with a lease's box."""

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from gpu_tenant.domain.model import Lease, SshAddress
from gpu_tenant.files.mounts import mount_of

_Host = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a store is. If no field is set, the store is a service, which cannot be on a box."""

    directory: Path | None = None
    """The store's directory, if it is on this computer."""
    host: str | None = None
    """The computer that holds the store, if one is named."""
    unknown: str | None = None
    """The reason why the place of the store cannot be told. None if it can be told."""


ELSEWHERE = Whereabouts()


def whereabouts_of(directory: Path) -> Whereabouts:
    """Find where the bytes of a directory on this computer really are."""
    mount = mount_of(directory)
    if mount is None:
        return Whereabouts(directory=directory)
    if mount.is_memory:
        words = f"{mount.point} is {mount.kind}: that is in this computer's memory, and is lost when it restarts"
        return Whereabouts(directory=directory, unknown=words)
    return Whereabouts(directory=directory, host=mount.host)


@dataclass(frozen=True, slots=True)
class StoreDoubt:
    """The reason why a copy in this store alone is not enough proof."""

    words: str
    is_the_box: bool


async def store_doubt(where: Whereabouts, lease: Lease) -> StoreDoubt | None:
    """Say why a store may vanish with the lease's box. None if it cannot, or if it is a directory on this computer."""
    if where.unknown is not None:
        return StoreDoubt(where.unknown, is_the_box=False)
    if where.host is None:
        return None
    if where.host == lease.id:  # This is the name that `ssh LEASE` uses.
        return StoreDoubt("it is on the box itself", is_the_box=True)
    theirs = await _addresses(where.host)
    if not theirs:
        return StoreDoubt(
            f"its host {where.host} has no address known on this computer", is_the_box=False
        )
    if any(address.is_loopback or address.is_unspecified for address in theirs):
        # An address of this computer may still lead to the box: through a tunnel, or a server that
        # serves a directory of the box.
        return StoreDoubt(
            f"its host {where.host} is this computer, from which a tunnel may lead to the box",
            is_the_box=False,
        )
    if not isinstance(lease.address, SshAddress):
        return None
    box = host_of(lease.address)
    ours = await _addresses(box)
    if box == where.host or ours & theirs:
        return StoreDoubt("it is on the box itself", is_the_box=True)
    if not ours:
        return StoreDoubt(f"the address of {box} is unknown", is_the_box=False)
    return None


def host_of(address: SshAddress) -> str:
    """Return the host in `user@host:port`, `[host]:port` or an alias."""
    host = address.target.rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


async def _addresses(host: str) -> frozenset[_Host]:
    try:
        found = await asyncio.to_thread(socket.getaddrinfo, host, None)
        told = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    except (OSError, ValueError):
        return frozenset()
    return frozenset(getattr(each, "ipv4_mapped", None) or each for each in told)
