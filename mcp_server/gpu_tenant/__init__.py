"""gpu-tenant: a careful short-term tenant on somebody else's GPU box.

The layers, each importing only downwards:

    __main__                                             the one console script
    cli | server | demo                                  the faces: terminal, MCP, the guided tour
    app                                                  the composition root
    service                                              Tenancy: the verbs, sequenced
    provision push launch watch collect ... teardown     the workflows: one verb a file
    verify reconcile                                     the law, and what to do next
    connectors | transports | profiles                   the outside world
    ledger store caretaker facts loads ...               local state, pure readers
    ports permit model errors                            the domain
"""

__version__ = "0.1.0"
