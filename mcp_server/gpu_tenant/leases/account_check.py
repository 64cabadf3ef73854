"""Checks that a provider's list comes from the account and the server where our box was rented.

No other list proves anything about the box.
"""

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import ProviderTrouble
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.ports import Accounted, Asking
from gpu_tenant.leases.context import Context
from gpu_tenant.ledger import Ledger


async def remember(context: Context, lease: Lease) -> None:
    """Record which server is asked about the lease's box, with which key, and the account of that key."""
    connector, ledger = context.connector(lease), context.ledger
    asking = _asking_of(context, lease)
    if asking is None or not isinstance(connector, Accounted):
        return
    known = ledger.askings_at(lease.provider)
    ours = [each for lease_id, each in known if lease_id == lease.id and each.is_like(asking)]
    if any(each.account for each in ours):
        return
    # A key always belongs to the same account, so an account that was once found for it is still correct.
    account = next(
        (each.account for _, each in known if each.account and each.is_like(asking)), None
    )
    if account is None:
        try:
            account = await connector.account()
        except ProviderTrouble:
            account = None  # We can ask for the account later, as long as the key is the same.
    if account is not None or not ours:
        ledger.note_asking(lease.id, asking.of(account), at=ledger.now())


async def note_asking(context: Context, lease: Lease) -> None:
    """Like `remember`, for a lease whose box is listed now. If another server was asked, record nothing.

    The list of another server proves nothing.
    """
    asking = _asking_of(context, lease)
    if asking is None or is_asking_noted(context, lease):
        return
    known = context.ledger.askings_of(lease.id)
    if not known or any(each.where == asking.where for each in known):
        await remember(context, lease)


def is_asking_noted(context: Context, lease: Lease) -> bool:
    """Whether the ledger knows the server and the key that are used now for the lease's box.

    True if no key is used to find the box.
    """
    asking = _asking_of(context, lease)
    return asking is None or any(
        each.is_like(asking) for each in context.ledger.askings_of(lease.id)
    )


async def stranger(context: Context, lease: Lease) -> str | None:
    """Say why it proves nothing that the list omits the box. None if the list is of the account that rented the box.

    The provider is asked only if the key or the server has changed since the box was rented.
    """
    connector, ledger = context.connector(lease), context.ledger
    asking = _asking_of(context, lease)
    known = ledger.askings_of(lease.id)
    if asking is None or not isinstance(connector, Accounted) or not known:
        return None
    here = [each for each in known if each.where == asking.where]
    way_out = f"if it is the same account nevertheless, say so at a terminal: {Command('reconcile', same_account=lease.provider)}"
    if not here:
        return (
            f"its box was rented at {known[-1].where}, but {asking.where} is asked now, and its list proves nothing "
            f"about that box: set the first address again, or {way_out}"
        )
    if any(each.key == asking.key for each in here):
        return None
    if _went_over(here, asking, ledger, lease.provider):
        ledger.note_asking(lease.id, asking, at=ledger.now())
        return None
    try:
        account = await connector.account()
    except ProviderTrouble:
        account = None
    accounts = {each.account for each in here if each.account}
    if account is not None and account in accounts:
        ledger.note_asking(lease.id, asking.of(account), at=ledger.now())
        return None
    if account is not None and accounts:
        return (
            f"the key belongs to another account than the one its box was rented with, so its list proves nothing about the box: "
            f"use a key of the account that rented the box; {way_out}"
        )
    return (
        "the key is not the one its box was rented with, and whose account it belongs to is unknown, so its "
        f"list proves nothing about the box: use the former key; {way_out}"
    )


def same_account(context: Context, provider: str) -> int:
    """Record the current key and server for every live lease of that provider, because a person confirms both.

    Returns the number of leases for which this is new.
    """
    changed, ledger = 0, context.ledger
    for lease in ledger.leases("live"):
        asking = _asking_of(context, lease) if lease.provider == provider else None
        if asking is None or any(each.is_like(asking) for each in ledger.askings_of(lease.id)):
            continue
        ledger.note_asking(lease.id, asking, at=ledger.now())
        changed += 1
    return changed


def _asking_of(context: Context, lease: Lease) -> Asking | None:
    connector = context.connectors[lease.provider]
    if lease.goes_by_address or not isinstance(connector, Accounted):
        return None
    return connector.asked_with(context.ledger.deployment)


def _went_over(here: list[Asking], asking: Asking, ledger: Ledger, provider: str) -> bool:
    """Whether a box was listed under both a former key and the new one. If so, both belong to one account."""
    former = {each.key for each in here}
    by_lease: dict[str, set[str]] = {}
    for lease_id, each in ledger.askings_at(provider):
        if each.where == asking.where:
            by_lease.setdefault(lease_id, set()).add(each.key)
    return any(asking.key in keys and keys & former for keys in by_lease.values())
