"""Stop a box's GPU meter and keep its disk, where the platform can; and start it again."""

from datetime import timedelta

from gpu_tenant.caretaker import Caretaker
from gpu_tenant.errors import ProviderSilent, Refused
from gpu_tenant.ledger import Ledger
from gpu_tenant.model import BoxState, Lease, Profile
from gpu_tenant.ports import Clock, Connector, Parking
from gpu_tenant.reconcile import Listed, rate_words
from gpu_tenant.settle import settle
from gpu_tenant.sightings import look
from gpu_tenant.verify import reseal

_WITHIN_S = 600
_POLL_S = 5


async def park(
    lease: Lease,
    profile: Profile,
    *,
    connector: Connector,
    caretaker: Caretaker,
    ledger: Ledger,
    clock: Clock,
) -> Lease:
    """The box is stopped, its disk is kept, and the lease costs what a parked box costs.

    Raises:
        Refused: the platform has no stop that saves anything, or it would empty a disk that was used.
        JobRunning: a job would be killed by it.
        BoxTrouble: the box could not be asked.
        ProviderTrouble: the provider refused, or does not show it as stopped; the meter may run.
    """
    if profile.park == "none" or not isinstance(connector, Parking):
        raise Refused(
            f"{profile.title} has no stop that saves money: a box there bills until it is destroyed",
            remedy=f"`gpu-tenant collect {lease.id}`, then `gpu-tenant teardown {lease.id}`",
        )
    if lease.touched_at is not None and profile.park == "wipes":
        # Also the box's own record of what was written there would be gone, and with it every proof.
        raise Refused(
            f"{profile.title} empties the box's own disk when it stops, with all that was pushed or written",
            remedy=f"`gpu-tenant collect {lease.id}`, then `gpu-tenant teardown {lease.id}`, and rent anew",
        )
    if lease.touched_at is not None:
        await reseal(lease, profile, caretaker=caretaker, ledger=ledger)
    await connector.park(lease)
    give_up_at = clock.now() + timedelta(seconds=_WITHIN_S)
    while clock.now() < give_up_at:
        seen = await look(lease, connector=connector, ledger=ledger, clock=clock)
        if isinstance(seen, Listed) and seen.box.state is BoxState.PARKED:
            quoted = lease.quote.offer.price.parked_usd_h if lease.quote else None
            rate = quoted if seen.box.price_usd_h is None else seen.box.price_usd_h
            return ledger.parked(lease.id, rate, at=clock.now())
        await clock.sleep(_POLL_S)
    raise ProviderSilent(
        f"{profile.title} does not show {lease.box_id} as stopped; it may be billing {rate_words(lease)}",
        remedy="`gpu-tenant leases` looks again",
    )


async def resume(
    lease: Lease, profile: Profile, *, connector: Connector, ledger: Ledger, clock: Clock
) -> Lease:
    """The parked box was started again, and costs what a running one costs; it need not answer yet.

    Raises:
        NoCapacity: its GPU is somebody else's now; the disk is kept, and bills.
        ProviderTrouble: the provider refused; the box is parked as it was.
    """
    if lease.parked_at is None or not isinstance(connector, Parking):
        raise Refused(f"{lease.id} is not parked", remedy="`gpu-tenant leases`")
    await connector.resume(lease)
    running = next((r.usd_h for r in reversed(lease.rates) if r.at < lease.parked_at), None)
    lease = ledger.resumed(lease.id, running, at=clock.now())
    lease, _ = await settle(lease, profile, connector=connector, ledger=ledger, clock=clock)
    return lease
