"""Puts a box that another tool rents under a lease, and follows the box when the tool moves it."""

from decimal import Decimal
from pathlib import Path

from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, BoxTaken, BoxTrouble, Refused, TenantError
from gpu_tenant.domain.model import Lease, LeaseId, SshAddress
from gpu_tenant.domain.ports import Lending
from gpu_tenant.domain.terms import USUAL, RentRequest
from gpu_tenant.files.replace_file import replace_file
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.external_tools import Brokered, broker_of, find_external
from gpu_tenant.leases.overview import card_of
from gpu_tenant.leases.provision import intend
from gpu_tenant.leases.readiness import (
    close_connections,
    fulfil_intent,
    made_ready,
    reach,
    settle_lease,
)

_PROVIDER = "own"
"""The provider of such a box. The box is handed back and never destroyed, because the other tool pays for it."""


async def adopt_from(
    context: Context,
    source: str,
    *,
    asked: RentRequest = USUAL,
    price_usd_h: Decimal | None = None,
    recovers: str | None = None,
) -> Card:
    """Put the box that another tool's configuration names now under a lease. A teardown hands the box back.

    With `recovers`, continue the work of that lease, whose box the tool has moved. If the disk was moved too, that
    lease itself continues at the new place. If not, that lease is lost, and the new box gets a new lease. Its host key
    is pinned when it is first seen.

    Raises:
        BadRequest: the tool's configuration shows no such box.
        BoxTaken: a lease has the box already.
        Refused: the tool has not moved the box.
        BoxUnreachable, BoxTrouble: the box does not let us in, or could not check its disk. Nothing was changed.
    """
    there, entries = find_external(source, Path.home())
    old = None if recovers is None else context.ledger.lease(recovers)
    standing = context.ledger.lease_on(_PROVIDER, there.name)
    if old is not None:
        _must_have_moved(context, old, there)
    if standing is not None and (old is None or standing.id != old.id):
        raise BoxTaken(
            f"the lease {standing.id} is already on {there.name}",
            remedy=f"if {there.title} has moved that box since: --recovers {standing.id}; else end that lease first: "
            f"{Command('teardown', standing.id)}",
        )
    lease = intend(
        context,
        _PROVIDER,
        asked=asked,
        price_usd_h=price_usd_h,
        address=SshAddress(target=there.name),
        allowed=context.owner.allows,
        recovers=None if old is None else old.id,
    )
    with context.hold_lease(lease.id, "adopt"):
        try:
            _follow(context, lease.id, there, entries)
            await reach(context, lease)
            if old is not None and old.state.live:
                with context.hold_lease(old.id, "adopt"):
                    if await _has_disk_of(context, old, lease):
                        return await _goes_on(context, old, lease, there, entries)
                    await _declare_lost(context, old, there)
        except TenantError:
            await settle_lease(context, lease)
            raise
        lease = await fulfil_intent(context, lease)
    words = (
        f"{there.title} rents this box: a teardown hands it back, and {there.ends} ends its bill"
    )
    if old is not None:
        words += f"; {Command('recover', old.id)} puts the newest checkpoint of {old.id} there and launches its job again"
    return card_of(context, lease, words)


def _must_have_moved(context: Context, old: Lease, there: Brokered) -> None:
    was = broker_of(context.ledger.events(old.id))
    if was is None or (was.broker, was.name) != (there.broker, there.name):
        raise BadRequest(
            f"{old.id} was not on {there.broker}:{there.name}",
            remedy=f"{Command('leases', all=True)} shows which lease was on that box",
        )
    if old.state.live and was.place == there.place:
        raise Refused(
            f"{there.title} has not moved {there.name}: its configuration names {there.place}, as it did when "
            f"{old.id} began",
            remedy=f"{Command('audit', old.id)} checks whether the box still answers",
        )


def _follow(context: Context, lease_id: LeaseId, there: Brokered, entries: str) -> None:
    """Record that place as the lease's box. It stays the same even if the tool names another place later."""
    config = context.home.broker_ssh_of(lease_id) / "config"
    config.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    context.ledger.note(lease_id, timeline.Brokered(**there.model_dump()), at=context.clock.now())
    replace_file(config, entries, durable="none")


async def _has_disk_of(context: Context, old: Lease, new: Lease) -> bool:
    """Whether the new box has the old box's disk. It does if the old caretaker's directory is there.

    Raises:
        BoxTrouble: the box could not check this.
    """
    held = await context.transport(new).run(["test", "-d", old.caretaker_home], timeout_s=30)
    if held.exit_status not in (0, 1):
        raise BoxTrouble(
            f"whether the disk of {old.id} moved along is unknown: the new box could not check "
            f"(exit status {held.exit_status})",
            remedy="run the same command again once the box's disks are mounted",
        )
    return held.exit_status == 0


async def _goes_on(context: Context, old: Lease, new: Lease, there: Brokered, entries: str) -> Card:
    """Continue the old lease at the new place, where its own directory is. The new lease becomes void."""
    pinned = context.home.known_hosts(new.id).read_bytes()
    await close_connections(context, new)
    await settle_lease(context, new)
    await close_connections(context, old)
    context.home.known_hosts(old.id).write_bytes(pinned)
    _follow(context, old.id, there, entries)
    return card_of(
        context,
        await made_ready(context, context.ledger.lease(old.id)),
        f"{there.title} moved the box with its disk: {old.id} continues at {there.place}",
    )


async def _declare_lost(context: Context, old: Lease, there: Brokered) -> None:
    """Record that the old lease's box is gone, as the tool that rented it shows."""
    was = broker_of(context.ledger.events(old.id))
    words = f"{there.title} moved {there.name} from {was.place if was else '?'} to {there.place}"
    context.ledger.note(
        old.id, timeline.Taken(fate="host_lost", words=words), at=context.clock.now()
    )
    connector = context.connector(old)
    assert isinstance(connector, Lending)
    connector.let_go(old)
    await close_connections(context, old)
    await settle_lease(context, old)
