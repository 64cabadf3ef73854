"""What the verbs answer, for a face that makes schemas of it.

When a program runs, `service.py` does not import these types: each would bring its whole workflow with it, and a
command calls one verb only. So the signatures there only name the types, and this module looks the names up.
"""

import inspect
from collections.abc import Callable

from gpu_tenant.artifacts.collect import Collected as Collected
from gpu_tenant.artifacts.push import Pushed as Pushed
from gpu_tenant.box.audit.run import Audited as Audited
from gpu_tenant.box.environment.prepare import Prepared as Prepared
from gpu_tenant.doctor import Checkup as Checkup
from gpu_tenant.errands.answers import RunTold as RunTold
from gpu_tenant.jobs.launch import Launched as Launched
from gpu_tenant.jobs.monitor import Watched as Watched
from gpu_tenant.jobs.smoke import SmokeReceipt as SmokeReceipt
from gpu_tenant.leases.cards import Card as Card
from gpu_tenant.leases.cards import Leases as Leases
from gpu_tenant.leases.cards import TornDown as TornDown
from gpu_tenant.leases.offers import Found as Found
from gpu_tenant.leases.quick_look import QuickLook as QuickLook


def signature_of(verb: Callable[..., object]) -> inspect.Signature:
    """Return the verb's signature, with types in place of their names."""
    return inspect.signature(verb, locals=globals(), eval_str=True)
