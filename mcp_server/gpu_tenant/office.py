"""What every verb needs of the world: the parts, the connections, a hold, the lease as it stands."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from gpu_tenant.cards import Card, TornDown, card
from gpu_tenant.caretaker import Caretaker
from gpu_tenant.errors import BadRequest, BoxTrouble, LeaseHeld, LocalTrouble, Refused
from gpu_tenant.ledger import Ledger
from gpu_tenant.model import Lease, LeaseId, LeaseState, Profile, Receipt
from gpu_tenant.ports import Clock, Connector, Transport
from gpu_tenant.settle import settle
from gpu_tenant.skill import script
from gpu_tenant.store import Home
from gpu_tenant.verify import Assessment, assess


class Office:
    """One user's ledger, and open ways to the boxes in it."""

    def __init__(
        self,
        *,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        profiles: Mapping[str, Profile],
        connectors: Mapping[str, Connector],
        open_transport: Callable[[Lease], Transport],
        environ: Mapping[str, str],
    ) -> None:
        self.home = home
        self.ledger = ledger
        self.profiles = profiles
        self._clock = clock
        self._connectors = connectors
        self._open_transport = open_transport
        self._environ = environ
        self._transports: dict[str, Transport] = {}

    async def aclose(self) -> None:
        """Every connection is closed; boxes, jobs and leases go on as they are."""
        for transport in self._transports.values():
            await transport.aclose()
        self._transports.clear()
        self.ledger.close()

    def _profile(self, provider: str) -> Profile:
        profile = self.profiles.get(provider)
        if profile is None or provider not in self._connectors:
            known = ", ".join(sorted(self._connectors))
            raise BadRequest(
                f"no provider {provider!r} (known: {known})",
                remedy="rent the box in its console, then `gpu-tenant adopt user@host` with its price",
            )
        return profile

    def _transport(self, lease: Lease) -> Transport:
        if lease.id not in self._transports:
            self._transports[lease.id] = self._open_transport(lease)
        return self._transports[lease.id]

    def _caretaker(self, lease: Lease) -> Caretaker:
        return Caretaker(lease, self._transport(lease), script("caretaker.py"))

    async def _close(self, lease: Lease) -> None:
        transport = self._transports.pop(lease.id, None)
        if transport is not None:
            await transport.aclose()

    @contextmanager
    def _held(self, lease_id: LeaseId, purpose: str) -> Iterator[None]:
        with self.ledger.hold(lease_id, purpose, at=self._clock.now()):
            yield

    async def _active(self, lease: str) -> Lease:
        """The lease, with a box that takes new work.

        Raises:
            Refused: it has none (any more), or its teardown has begun.
        """
        found = await self._with_box(lease)
        if found.state is not LeaseState.ACTIVE:
            raise Refused(
                f"{found.id} is {found.state}: its box takes no new work",
                remedy=f"`gpu-tenant teardown {found.id}` goes on with it",
            )
        return found

    async def _with_box(self, lease: str) -> Lease:
        """The lease, whose box may still exist: also a teardown that was cut short may need a collect.

        Raises:
            Refused: it has none (any more).
        """
        found = self.ledger.lease(lease)
        if found.state is LeaseState.INTENDED:
            found, _ = await self._settled_if_free(found)
        if found.state not in (LeaseState.ACTIVE, LeaseState.TERMINATING):
            raise Refused(
                f"{found.id} is {found.state}: it has no box",
                remedy="`gpu-tenant provision` makes a new one; `gpu-tenant leases --all` lists all",
            )
        return found

    async def _settled(self, lease: Lease) -> tuple[Lease, str | None]:
        return await settle(
            lease, self._profile(lease.provider), connector=self._connectors[lease.provider],
            ledger=self.ledger, clock=self._clock,
        )  # fmt: skip

    async def _settled_if_free(self, lease: Lease) -> tuple[Lease, str | None]:
        """The lease moved forward, unless another process is acting on it right now."""
        try:
            with self._held(lease.id, "look"):
                return await self._settled(self.ledger.lease(lease.id))
        except LeaseHeld:
            return lease, None

    async def _assess(self, lease: Lease) -> Assessment:
        return await assess(
            lease, self._profile(lease.provider), caretaker=self._caretaker(lease),
            ledger=self.ledger, clock=self._clock,
        )  # fmt: skip

    async def _leave(self, lease: Lease) -> None:
        """Nothing of ours runs on a machine that is handed back, if it can be reached at all."""
        profile = self._profile(lease.provider)
        if profile.destroy == "hands_back" and lease.touched_at is not None:
            # Unreached, the guard ends by itself at its deadline.
            with suppress(BoxTrouble):
                await self._caretaker(lease).disarm()

    def _receipt(self, lease: Lease) -> Receipt:
        receipt = self.ledger.receipt(lease.id)
        if receipt is None:
            raise LocalTrouble(f"{lease.id} has no receipt", remedy="`gpu-tenant doctor`")
        return receipt

    def _torn_down(self, lease: Lease, receipt: Receipt) -> TornDown:
        return TornDown(lease=lease.id, state=lease.state, receipt=receipt)

    def _card(self, lease: Lease, alarm: str | None) -> Card:
        return card(
            lease, self._profile(lease.provider), jobs=self.ledger.jobs(lease.id), alarm=alarm,
            now=self._clock.now(),
        )  # fmt: skip
