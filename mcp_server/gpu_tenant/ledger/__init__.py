"""The SQLite file that is believed after a crash.

Every method is one transaction, and is durable when it returns. Triggers enforce the law even if the code
forgets it: a lease with a box becomes `terminating` or `gone` only if a permit has been filed.
"""

from gpu_tenant.ledger.accounts import Askings
from gpu_tenant.ledger.alarms import Alarms
from gpu_tenant.ledger.events import Ran
from gpu_tenant.ledger.fleets import Fleets
from gpu_tenant.ledger.holds import Held, Renewal
from gpu_tenant.ledger.jobs import Work
from gpu_tenant.ledger.leases import Allowed, anything
from gpu_tenant.ledger.passkeys import Passkeys
from gpu_tenant.ledger.proofs import Proof
from gpu_tenant.ledger.pushed_files import Sent
from gpu_tenant.ledger.quotes import Quotes
from gpu_tenant.ledger.sweeps import Sweeps

__all__ = ["Allowed", "Held", "Ledger", "Ran", "Renewal", "anything"]


class Ledger(Proof, Work, Fleets, Sweeps, Quotes, Alarms, Askings, Passkeys, Sent):
    """The leases of one user, and everything that was done about them."""
