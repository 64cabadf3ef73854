"""Whether an absence from a list means anything: another account's or server's list proves nothing about our box."""

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import ProviderTrouble
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.ports import Accounted, Asking
from gpu_tenant.leases.context import Context
from gpu_tenant.ledger import Ledger


async def remember(context: Context, lease: Lease) -> None:
    """The ledger records where the lease's box is asked for, with which key, and whose account that key belongs to."""
    connector, ledger = context.connector(lease), context.ledger
    asking = _asking_of(context, lease)
    if asking is None or not isinstance(connector, Accounted):
        return
    known = ledger.askings_at(lease.provider)
    ours = [each for lease_id, each in known if lease_id == lease.id and each.is_like(asking)]
    if any(each.account for each in ours):
        return
    # A key belongs to one account for good, so an account that was found for it once still holds.
    account = next(
        (each.account for _, each in known if each.account and each.is_like(asking)), None
    )
    if account is None:
        try:
            account = await connector.account()
        except ProviderTrouble:
            account = None  # its key can still tell it later, as long as the key is not changed
    if account is not None or not ours:
        ledger.note_asking(lease.id, asking.of(account), at=ledger.now())


async def note_asking(context: Context, lease: Lease) -> None:
    """As `remember`, for a lease whose box is listed now. If another server was asked, nothing is recorded.

    Another server's list may show anything.
    """
    asking = _asking_of(context, lease)
    if asking is None or is_asking_noted(context, lease):
        return
    known = context.ledger.askings_of(lease.id)
    if not known or any(each.where == asking.where for each in known):
        await remember(context, lease)


def is_asking_noted(context: Context, lease: Lease) -> bool:
    """Whether the ledger knows where the lease's box is asked for now, and with which key, as far as that matters."""
    asking = _asking_of(context, lease)
    return asking is None or any(
        each.is_like(asking) for each in context.ledger.askings_of(lease.id)
    )


async def stranger(context: Context, lease: Lease) -> str | None:
    """Why the lease's absence from the list proves nothing. None if the list is read as when the box was rented.

    If neither the key nor the server has changed since then, nobody is asked.
    """
    connector, ledger = context.connector(lease), context.ledger
    asking = _asking_of(context, lease)
    known = ledger.askings_of(lease.id)
    if asking is None or not isinstance(connector, Accounted) or not known:
        return None
    here = [each for each in known if each.where == asking.where]
    way_out = (
        f"if it is the same account all the same, {Command('reconcile', same_account=lease.provider)} "
        "at a terminal says so"
    )
    if not here:
        return (
            f"its box was rented at {known[-1].where}, and {asking.where} is asked now, whose list proves nothing "
            f"about it: take the other address back, or {way_out}"
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
            f"the key is another account's than its box was rented with, whose list proves nothing about it: "
            f"take the key of that account; {way_out}"
        )
    return (
        "the key is another than its box was rented with, and whose account it is cannot be told, so that its "
        f"list proves nothing about it: take the former key; {way_out}"
    )


def same_account(context: Context, provider: str) -> int:
    """The current key and server count for every live lease of that provider, because a person says so.

    Returns how many leases that changed.
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
    """Whether a box known under a former key was listed under the new one. If so, both belong to one account."""
    former = {each.key for each in here}
    by_lease: dict[str, set[str]] = {}
    for lease_id, each in ledger.askings_at(provider):
        if each.where == asking.where:
            by_lease.setdefault(lease_id, set()).add(each.key)
    return any(asking.key in keys and keys & former for keys in by_lease.values())
