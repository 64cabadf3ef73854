"""The SQLite file that is trusted after a crash.

Every method is one transaction, which is durable when the method returns. Triggers enforce the laws of DESIGN.md even
if the code has a fault. For example, a lease with a box becomes `terminating` or `gone` only if a permit to destroy the
box was recorded.
"""

from gpu_tenant.ledger.accounts import Askings
from gpu_tenant.ledger.alarms import AlarmTable
from gpu_tenant.ledger.answers import AnswerTable
from gpu_tenant.ledger.database import has_smoke
from gpu_tenant.ledger.errands import ErrandTable
from gpu_tenant.ledger.events import Ran
from gpu_tenant.ledger.fleets import Fleets
from gpu_tenant.ledger.holds import Hold, Renewal
from gpu_tenant.ledger.jobs import JobTable
from gpu_tenant.ledger.leases import Allowed, anything
from gpu_tenant.ledger.passkeys import PasskeyTable
from gpu_tenant.ledger.proofs import ProofTable
from gpu_tenant.ledger.pushed_files import Sent
from gpu_tenant.ledger.quotes import Quotes
from gpu_tenant.ledger.sweeps import Sweeps
from gpu_tenant.ledger.volumes import VolumeTable
from gpu_tenant.ledger.wishes import WishTable

__all__ = ["Allowed", "Hold", "Ledger", "Ran", "Renewal", "anything", "has_smoke"]


class Ledger(
    ProofTable,
    JobTable,
    Fleets,
    WishTable,
    ErrandTable,
    Sweeps,
    Quotes,
    AlarmTable,
    Askings,
    PasskeyTable,
    AnswerTable,
    Sent,
    VolumeTable,
):
    """The leases of one user, and everything that was done about them."""
