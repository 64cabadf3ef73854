"""Chooses the network over which several boxes talk. All of them must have an address of their own in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_interface, ip_network
from typing import Annotated

from pydantic import Field

from gpu_tenant.domain.errors import BadRequest, Refused
from gpu_tenant.domain.record import Record

_OF_A_HOST_ALONE = ("lo", "docker", "br-", "veth", "virbr", "cni", "lxc", "podman", "kube-ipvs")
"""Names of bridges and other interfaces within one machine begin like this.

Different machines often use the same addresses on such interfaces.
"""

Network = IPv4Network | IPv6Network

Address = Annotated[str, Field(pattern=r"^[0-9A-Fa-f.:]{2,45}(/[0-9]{1,3})?$")]
"""An IP address without a scope (`%eth0`), because a scope means nothing on another box, and may be any text."""


class Interface(Record):
    """One interface of a box, as the box describes it."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.:@-]{1,15}$")
    addresses: tuple[Address, ...]
    mtu: int | None = Field(default=None, ge=0, lt=2**31)
    mbit_s: int | None = Field(
        default=None, ge=-1, lt=2**31, description="-1: unknown to its driver"
    )


@dataclass(frozen=True, slots=True)
class Foothold:
    """The address of a box in a network."""

    interface: str
    address: str
    network: Network
    mtu: int | None

    @property
    def is_public(self) -> bool:
        """Whether it is an address of the public internet, so that strangers may reach it."""
        return _ip(self.address).is_global

    @property
    def words(self) -> str:
        """The interface with its address, for a person."""
        return f"{self.interface} {self.address}"


def choose_interface(
    seen: Mapping[str, Sequence[Interface]], wanted: str | None
) -> tuple[str, Mapping[str, Foothold]]:
    """Choose a network. Returns its name, and each box's address in it.

    `wanted` is the name of an interface, or a network such as `10.0.0.0/16` if the interfaces have different
    names. If it is None, a private network to which all boxes belong is chosen, preferably the one with
    the largest frames (MTU).

    Raises:
        BadRequest: a box has no such interface, or has no address on it.
        Refused: the boxes have no network in common.
    """
    standing = {box: _footholds(interfaces) for box, interfaces in seen.items()}
    if wanted is not None:
        return wanted, {
            box: _wanted_foothold(box, there, wanted) for box, there in standing.items()
        }
    fits = []
    for first in next(iter(standing.values())):
        if _is_for_itself(first) or first.is_public:
            continue
        found = {box: _in(first.network, there) for box, there in standing.items()}
        met = {box: there for box, there in found.items() if there is not None}
        if len(met) == len(standing) and len({x.address for x in met.values()}) == len(met):
            fits.append((first, met))
    if not fits:
        listed = "; ".join(f"{box}: {_all(there)}" for box, there in standing.items())
        raise Refused(
            f"the boxes have no private network in common in which each has its own address ({listed})",
            remedy="name a network with --interface NAME or --interface 10.0.0.0/16; boxes of a marketplace often have no network in common: "
            "rent the boxes as a cluster, or train on one box",
        )
    best, met = max(fits, key=lambda fit: (fit[0].mtu or 0, fit[0].network.version == 4))
    return str(best.network), met


def shared_addresses(at: Mapping[str, Foothold]) -> Mapping[str, Sequence[str]]:
    """Return the addresses that more than one box claims as its own, and these boxes for each."""
    by_address: dict[str, list[str]] = {}
    for box, foothold in at.items():
        by_address.setdefault(foothold.address, []).append(box)
    return {address: boxes for address, boxes in by_address.items() if len(boxes) > 1}


def _footholds(interfaces: Sequence[Interface]) -> list[Foothold]:
    found = []
    for interface in interfaces:
        for said in interface.addresses:
            try:
                there = ip_interface(said)
            except ValueError:
                continue
            found.append(Foothold(interface.name, str(there.ip), there.network, interface.mtu))
    return found


def _wanted_foothold(box: str, there: Sequence[Foothold], wanted: str) -> Foothold:
    network = _network(wanted)
    found = (
        _in(network, there)
        if network is not None
        else next((x for x in sorted(there, key=_v4_first) if x.interface == wanted), None)
    )
    if found is None:
        raise BadRequest(
            f"{box} has no address on {wanted} (it has {_all(there)})",
            remedy="name an interface that all the boxes have, or their network: --interface 10.0.0.0/16",
        )
    return found


def _network(wanted: str) -> Network | None:
    try:
        return ip_network(wanted, strict=False) if "/" in wanted else None
    except ValueError as error:
        raise BadRequest(
            f"{wanted!r} is not a network: {error}", remedy="write it as 10.0.0.0/16"
        ) from None


def _in(network: Network, there: Sequence[Foothold]) -> Foothold | None:
    return next((x for x in there if _ip(x.address) in network), None)


def _is_for_itself(foothold: Foothold) -> bool:
    return _ip(foothold.address).is_loopback or foothold.interface.startswith(_OF_A_HOST_ALONE)


def _v4_first(foothold: Foothold) -> int:
    return foothold.network.version


def _ip(address: str) -> IPv4Address | IPv6Address:
    return ip_interface(address).ip


def _all(there: Sequence[Foothold]) -> str:
    return ", ".join(x.words for x in there) or "none"
