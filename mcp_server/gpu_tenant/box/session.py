"""A box that lets us in, with everything that is needed to work on it."""

from dataclasses import dataclass

from gpu_tenant.box.caretaker import Caretaker
from gpu_tenant.domain.model import Lease, Profile
from gpu_tenant.domain.ports import Transport


@dataclass(frozen=True, slots=True)
class Session:
    """The box of one lease. Making a session asks nobody; whether the box answers shows when the session is used."""

    lease: Lease
    profile: Profile
    transport: Transport
    """The way to the box."""
    caretaker: Caretaker
    """The caretaker, which acts for us on the box."""
