"""Finds the order for a search or for a lease. An order says what a box must have besides its GPU."""

from collections.abc import Sequence
from pathlib import Path

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.order import AtProvider, Order
from gpu_tenant.files.order_file import read_order
from gpu_tenant.leases.allowed_references import allowed_in_tree
from gpu_tenant.leases.context import Context
from gpu_tenant.providers.credentials import must_be_references, resolve_all

NONE = "none"
"""The word that a caller gives instead of a file if no order is wanted."""


def order_of(context: Context, named: str | Order) -> Order:
    """Return the order in the named file, or in the file of the named directory. Without a name, the order is empty.

    `named` may also be an order that was read already.

    Raises:
        BadRequest: there is no such file, or it has an unknown field.
        SecretRefused: a variable has a secret as its value instead of a reference, or its file is not in the tree.
        SignatureWanted: the file names a variable that the owner has not allowed yet.
    """
    if isinstance(named, Order):
        must_be_references(named.env_from)
        return named
    if named in ("", NONE):
        return Order()
    file = Path(named).expanduser()
    order = read_order(file, sorted(context.profiles))
    must_be_references(order.env_from)
    if not order.env:
        return order
    tree = file if file.is_dir() else file.parent
    return order.model_copy(update={"env": allowed_in_tree(context, order.env_from, tree)})


def order_for(context: Context, provider: str, quotes: Sequence[str], named: str | Order) -> Order:
    """Return the order for a box that is about to be rented.

    With quotes, the order is empty: each quote has its own order, and the box is rented by that.

    Raises:
        BadRequest: a quote is for another order, or the platform cannot provide what is ordered. Nothing was rented.
    """
    order = order_of(context, named)
    if quotes:
        if isinstance(named, str) and named not in ("", NONE):
            _must_be_quoted(context, quotes, order, named)
        for quote in filter(None, map(context.ledger.quote, quotes)):
            _must_lead_somewhere(context, quote.wish.order)
        return Order()
    _must_lead_somewhere(context, order)
    if order.volumes:
        raise BadRequest(
            f"a box at {context.profile(provider).title} without a quote is taken as it is, but the order "
            f"names the volume {min(order.volumes)}",
            remedy=f"{Option('order', NONE)} ignores the order; {Command('offers')} rents a box by the order",
        )
    source = order.image_at(provider)
    if source != AtProvider():
        part = "template" if source.template else "image"
        raise BadRequest(
            f"a box at {context.profile(provider).title} without a quote is taken as it is, but the order "
            f"names {('a' if source.template else 'an')} {part}",
            remedy=f"{Option('order', NONE)} ignores the order; {Command('offers')} rents a box by the order",
        )
    return order


def _must_lead_somewhere(context: Context, order: Order) -> None:
    """Check that the value of each variable can be found now.

    Otherwise a box would bill although nobody could work on it. The values are not kept.
    """
    resolve_all(order.env_from, context.environ, key_places=context.key_places)


def with_ordered(lease: Lease, env: Sequence[str]) -> list[str]:
    """Return the variables of a job, as `NAME=reference`.

    If both the call and the order name a variable, the call's value is used.
    """
    named = {entry.partition("=")[0] for entry in env}
    ordered = lease.terms.order.env
    return [*(f"{k}={v}" for k, v in ordered.items() if k not in named), *env]


def _must_be_quoted(context: Context, quotes: Sequence[str], order: Order, named: str) -> None:
    for quote in filter(None, map(context.ledger.quote, quotes)):
        if not quote.wish.order.is_same_box(order):
            said = "; ".join(quote.wish.order.words(quote.offer.provider)) or "no order"
            raise BadRequest(
                f"{quote.id} was quoted for another order than {named} has now ({said}); nothing was rented",
                remedy=f"{Command('offers', order=named)} makes quotes for it; {Option('order', NONE)} rents what was quoted",
            )
