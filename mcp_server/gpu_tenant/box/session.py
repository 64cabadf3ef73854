"""A box that lets us in, with everything that is needed to work on it."""

from dataclasses import dataclass

from gpu_tenant.box.caretaker import Caretaker
from gpu_tenant.domain.model import Lease, Profile
from gpu_tenant.domain.ports import Transport


@dataclass(frozen=True, slots=True)
class Session:
    """The box of one lease. To make one asks nobody: that the box answers shows when it is used."""

    lease: Lease
    profile: Profile
    transport: Transport
    """The way to it."""
    caretaker: Caretaker
    """What acts on it for us."""
