"""One lease's box, with everything that is needed to work on it."""

from dataclasses import dataclass

from gpu_tenant.box.caretaker import Caretaker
from gpu_tenant.domain.model import Lease, Profile
from gpu_tenant.domain.ports import Transport


@dataclass(frozen=True, slots=True)
class Session:
    """The box of one lease. Making a session does not contact the box; errors come when the session is used."""

    lease: Lease
    profile: Profile
    transport: Transport
    """Runs commands on the box, and copies files to and from it."""
    caretaker: Caretaker
    """Our script on the box, which starts jobs and lists files."""
