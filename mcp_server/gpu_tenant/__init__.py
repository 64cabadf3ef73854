"""gpu-tenant: a careful short-term tenant on somebody else's GPU box.

The layers, each importing only downwards:

    __main__                                             the one console script
    cli | server                                         the faces: terminal (and its demo), MCP
    app                                                  the composition root
    watchdog attendant dead_man                          every lease, looked at on a schedule
    service                                              Tenancy: the verbs, sequenced
    ending attending ... office                          its parts, each a subject of its own
    smoke provision push launch watch collect ...        the workflows: one verb a file
    settle teardown verify reconcile                     the law, and what to do next
    connectors | transports | profiles                   the outside world
    ledger store caretaker facts loads ...               local state, pure readers
    ports permit model errors                            the domain

The import contract in pyproject.toml is the whole of it, and is checked by the suite.
"""

__version__ = "0.1.0"
