"""gpu-tenant: a careful short-term tenant on somebody else's GPU box.

Its packages, each importing only downwards:

    __main__                      the one console script
    faces                         cli, mcp, dashboard, report, install, demo
    app | watchdog                the composition root; who looks when nobody does
    emulators | service           a provider's side; Tenancy: the verbs of a lease
    answers                       what the verbs answer
    doctor | errands | sweeps     is this computer fit? the whole way of one command; many cells over many boxes
    leases                        offers, rent, provision, park, limits; verify, teardown, settle
    jobs                          launch, monitor, logs, several boxes
    artifacts                     push, collect, snapshot, prune; stores, formats
    box                           caretaker, guard, queue, audit, environment
    notifications | transfer      telling a person; moving bytes
    providers                     one folder a platform
    transports | ledger | files   the ways to a box; what is believed after a crash; bytes here
    domain                        what things are, and pure decisions

The full import contract is in pyproject.toml, and the suite checks it.
"""

from importlib import import_module

__version__ = "0.1.0"

_IN_PYTHON = {
    "gpu_tenant.faces.python": (
        "Answers",
        "Order",
        "RentalPlan",
        "ErrandStatus",
        "Tenancy",
        "Unanswered",
        "open_tenancy",
        "run",
        "run_async",
    ),
    "gpu_tenant.domain.errors": ("TenantError",),
}


def __getattr__(name: str) -> object:
    """Return a name of the interface for Python programs. Its types are in `__init__.pyi`.

    It is imported when it is asked for: a command imports this package, and needs none of it.
    """
    for module, names in _IN_PYTHON.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
