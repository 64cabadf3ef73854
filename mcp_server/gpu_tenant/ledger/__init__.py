"""The SQLite file that is believed after a crash.

Every method is one transaction, durable when it returns. Triggers hold the law even against code
that forgets it: a lease with a box moves to `terminating` or `gone` only over a filed permit.
"""

from gpu_tenant.ledger.alarms import Alarms
from gpu_tenant.ledger.fleets import Fleets
from gpu_tenant.ledger.holds import Holds
from gpu_tenant.ledger.proof import Proof
from gpu_tenant.ledger.quotes import Quotes
from gpu_tenant.ledger.sweeps import Sweeps
from gpu_tenant.ledger.timeline import Event, Ran
from gpu_tenant.ledger.work import Work

__all__ = ["Event", "Ledger", "Ran"]


class Ledger(Proof, Work, Fleets, Sweeps, Holds, Quotes, Alarms):
    """The leases of one user, and everything that was done about them."""
