"""What every verb needs of the world: the parts, the connections, a hold, the lease as it stands."""

import difflib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Literal

from pydantic import JsonValue

from gpu_tenant.allocated import AllocatedCaretaker
from gpu_tenant.cards import TornDown
from gpu_tenant.caretaker import Caretaker, script_hashes
from gpu_tenant.credentials import Account
from gpu_tenant.durable import DurableStore
from gpu_tenant.errors import (
    BadRequest,
    BoxTrouble,
    CredentialRefused,
    LeaseHeld,
    LocalTrouble,
    NotReady,
    Refused,
    TenantError,
)
from gpu_tenant.gang import gangs
from gpu_tenant.guard import arm, last_armed
from gpu_tenant.inspection import Inspection
from gpu_tenant.ledger import Ledger
from gpu_tenant.model import (
    Address,
    Lease,
    LeaseState,
    LocalAddress,
    Profile,
    Receipt,
    SlurmAddress,
)
from gpu_tenant.owner import Owner
from gpu_tenant.ports import Clock, Connector, Market, Tended, Transport
from gpu_tenant.protection import Armed, Protection, protection, way_out
from gpu_tenant.provision import make_ready
from gpu_tenant.purse import Purse
from gpu_tenant.reconcile import overdue, rate_words
from gpu_tenant.settle import settle
from gpu_tenant.sightings import Listing
from gpu_tenant.skill import script
from gpu_tenant.store import Home
from gpu_tenant.stores import box_store, open_store
from gpu_tenant.verify import Assessment, assess, unseen

progress_to: ContextVar[Callable[[int, int], None]] = ContextVar(
    "progress_to", default=lambda done, total: None
)
"""Who hears of bytes done and bytes in all while a call moves files; a face sets it."""

call_bytes_s: ContextVar[int | None] = ContextVar("call_bytes_s", default=None)
"""What each transfer of this call may move in a second, as its caller said; None: nothing was said."""

WAIT_S = 40
"""So long a call waits for a box to boot: an agent's host gives up on a call after a minute."""


def as_recorded(lease: Lease) -> Address | None:
    """The address that the lease has, which in a rehearsal is only its provider's word."""
    return lease.address


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
        locate: Callable[[Lease], Address | None] = as_recorded,
        introduce: Callable[[Lease, str], Awaitable[None]],
        public_key: Callable[[], str],
        environ: Mapping[str, str],
        tending: Literal["on", "off"] = "on",
    ) -> None:
        self.home = home
        self.ledger = ledger
        self.profiles = profiles
        self._clock = clock
        self._connectors = connectors
        self._open_transport = open_transport
        self._locate = locate
        self._introduce = introduce
        self._public_key = public_key
        self._environ = environ
        self._tending = tending
        self._account = Account.of(profiles.values(), home.root)
        self._transports: dict[tuple[str, str], Transport] = {}
        self._purse = Purse(connectors, profiles, clock)
        self.inspection = Inspection(
            home, profiles, ledger=ledger, clock=clock, transport=self._transport
        )
        self.owner = Owner(home.configuration, profiles, ledger=ledger, clock=clock)

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment in which references are read."""
        return self._environ

    @property
    def clock(self) -> Clock:
        """The clock that this tenancy goes by."""
        return self._clock

    @property
    def connected(self) -> frozenset[str]:
        """The providers whose boxes can be listed now."""
        return frozenset(self._connectors)

    async def aclose(self) -> None:
        """Every connection is closed; boxes, jobs and leases go on as they are."""
        for transport in self._transports.values():
            await transport.aclose()
        self._transports.clear()
        self.ledger.close()

    def _profile(self, provider: str) -> Profile:
        """The platform's facts, whether or not a key for it is found.

        Raises:
            BadRequest: there is no such platform.
        """
        profile = self.profiles.get(provider)
        if profile is None:
            near = difflib.get_close_matches(provider, self.profiles, n=1, cutoff=0.4)
            raise BadRequest(
                f"no provider {provider!r} (known: {', '.join(sorted(self.profiles))})",
                remedy=f"did you mean {near[0]}?" if near else "`gpu-tenant profiles` lists them",
            )
        return profile

    def _set_up(self, provider: str) -> Profile:
        """As `_profile`, of a platform that can be asked now.

        Raises:
            BadRequest: no key for it was found, or it has no API.
        """
        profile = self._profile(provider)
        if provider not in self._connectors or self._lacks_key(profile):
            words, remedy = self._not_set_up(profile)
            raise BadRequest(words, remedy=remedy)
        return profile

    def _not_set_up(self, profile: Profile) -> tuple[str, str]:
        """What keeps a platform from being asked, and what mends that."""
        place, shown = profile.credential, f"`gpu-tenant profiles {profile.id}` says"
        settings = self.home.configuration
        if place is not None:
            return (
                f"{profile.title} is not set up: no key was found",
                f"set {' or '.join(place.env)}, or name another place under [credentials] in {settings}",
            )
        if profile.lease == "either":
            return (
                f"{profile.title} is not set up: no [{profile.id}] is in {settings}",
                f"{shown} what stands there",
            )
        return (
            f"{profile.title} has no box that one could log in to",
            f"{shown} how its runs are kept and ended",
        )

    def _lacks_key(self, profile: Profile) -> bool:
        """Whether only the boxes of its console can be seen, because no key for its API was found."""
        needs_one = profile.credential is not None or profile.lease == "either"
        return needs_one and not isinstance(self._connectors.get(profile.id), Market)

    def _connector(self, lease: Lease) -> Connector:
        """The connector of the lease's provider.

        Raises:
            CredentialRefused: its key or its settings, with which the box was rented, are not to be found now.
        """
        connector = self._connectors.get(lease.provider)
        profile = self._profile(lease.provider)
        # Not on our own list of a console's boxes is not the same as gone.
        rented = lease.quote is not None or (lease.box_id and not lease.goes_by_address)
        if connector is not None and isinstance(connector, Tended):
            rented = rented and not connector.tends(lease.box_id)
        if connector is None or (rented and self._lacks_key(profile)):
            words, remedy = self._not_set_up(profile)
            raise CredentialRefused(
                f"{lease.id}: {words}; its box may be billing {rate_words(lease)}",
                remedy=f"{remedy}; then the same command again",
            )
        return connector

    def _transport(self, lease: Lease) -> Transport:
        # A box that was stopped and started again may be elsewhere.
        place = (lease.id, str(lease.address))
        if place not in self._transports:
            self._transports[place] = self._open_transport(lease)
        return self._transports[place]

    def _caretaker(self, lease: Lease) -> Caretaker:
        transport, ours = self._transport(lease), script("caretaker.py")
        self.ledger.know_scripts(script_hashes(ours.parent))
        if isinstance(lease.address, SlurmAddress):
            return AllocatedCaretaker(
                lease, transport, ours, script("runner.py"), key=self.ledger.seal_key(lease.id)
            )
        profile = self._profile(lease.provider)
        is_alone = profile.destroy == "deletes"
        # A local box, and one of a rehearsal, is on the owner's own disks.
        is_apart = not isinstance(lease.address, LocalAddress) and not self.ledger.is_rehearsed
        return Caretaker(
            lease, transport, ours, key=self.ledger.seal_key(lease.id),
            elsewhere="counted" if is_alone and is_apart else "passed over",
        )  # fmt: skip

    async def _close(self, lease: Lease) -> None:
        for place in [place for place in self._transports if place[0] == lease.id]:
            await self._transports.pop(place).aclose()

    @contextmanager
    def _held(self, lease_id: str, purpose: str) -> Iterator[None]:
        with self.ledger.hold(lease_id, purpose, at=self._clock.now()):
            yield

    async def _active(self, lease: str) -> Lease:
        """The lease, with a box that takes new work: one that had yet to let us in has done so.

        Raises:
            Refused: it has none (any more), it is parked, or its teardown has begun.
            NotReady: it has not let us in yet.
        """
        found = await self._running(lease)
        if found.state is not LeaseState.ACTIVE:
            raise Refused(
                f"{found.id} is {found.state}: its box takes no new work",
                remedy=f"`gpu-tenant teardown {found.id}` goes on with it",
            )
        return found

    async def _running(self, lease: str) -> Lease:
        """The lease, whose box runs: one that had yet to let us in has done so.

        Raises:
            Refused: it has none (any more), or it is parked.
            NotReady: it has not let us in yet.
        """
        found = await self._with_box(lease)
        if found.parked_at is not None:
            raise Refused(
                f"{found.id} is parked: its box does not run",
                remedy=f"`gpu-tenant resume {found.id}`, then the same command again",
            )
        if found.state is LeaseState.ACTIVE and found.ready_at is None:
            with self._held(found.id, "wait"):
                found = await self._let_in(found)
        return found

    async def _let_in(self, lease: Lease) -> Lease:
        """The box has let us in.

        Raises:
            NotReady: it has not yet, or never will.
        """
        lease = await self._made_ready(lease)
        if lease.ready_at is None:
            raise NotReady(
                f"the box of {lease.id} is still booting",
                remedy="the same call again in a minute; `gpu-tenant leases` shows what it costs",
            )
        return lease

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

    async def _made_ready(self, lease: Lease, wait_s: float = WAIT_S) -> Lease:
        profile = self._profile(lease.provider)
        ready = await make_ready(
            lease, profile, connector=self._connector(lease), reach=self.inspection.come_in, wait_s=wait_s,
            ledger=self.ledger, clock=self._clock,
        )  # fmt: skip
        if ready.ready_at is not None and way_out(profile, ready) is not None:
            # Before anybody's work is on it: this computer may die in the next second.
            await self._armed(ready)
        return ready

    async def _armed(self, lease: Lease) -> Armed:
        """The box holds the deadline by itself, or it is said why it does not."""
        return await arm(
            lease, self._profile(lease.provider), caretaker=self._caretaker(lease),
            transport=self._transport(lease), ledger=self.ledger, clock=self._clock,
            store=self._box_store(lease),
        )  # fmt: skip

    def _box_store(self, lease: Lease) -> dict[str, JsonValue] | None:
        """Where the box itself may copy to, with the key that its owner made for boxes."""
        if lease.terms.store is None:
            return None
        with suppress(BadRequest, LocalTrouble):
            return box_store(
                lease.terms.store, lease.id, configuration=self.home.configuration,
                environ=self._environ,
            )  # fmt: skip
        return None

    def _protection(self, lease: Lease) -> Protection:
        """What ends the lease's bill if this computer dies, as far as that was proved."""
        profile = self._profile(lease.provider)
        return protection(profile, lease, last_armed(lease, self.ledger))

    async def _reach(self, lease: Lease) -> None:
        """The box has let us in and answered.

        Raises:
            BoxTrouble: it has not.
        """
        await self._transport(lease).run(["true"], timeout_s=30)

    async def _settled(
        self, lease: Lease, listing: Listing | None = None
    ) -> tuple[Lease, str | None]:
        return await settle(
            lease, self._profile(lease.provider), connector=self._connector(lease),
            ledger=self.ledger, clock=self._clock, listing=listing,
        )  # fmt: skip

    async def _settled_if_free(
        self, lease: Lease, listing: Listing | None = None
    ) -> tuple[Lease, str | None]:
        """The lease moved forward, unless another process is acting on it right now."""
        try:
            with self._held(lease.id, "look"):
                return await self._settled(self.ledger.lease(lease.id), listing)
        except LeaseHeld:
            return lease, self._kept_waiting(lease)
        except CredentialRefused as error:
            return lease, error.message

    def _kept_waiting(self, lease: Lease) -> str | None:
        """Who keeps a lease that is past its terms from its end, and since when; None where nobody does."""
        late, held = overdue(lease, self._clock.now()), self.ledger.held(lease.id)
        return f"{late}, and {held.words}" if late and held else None

    async def _assess(self, lease: Lease) -> Assessment:
        lease, found = await self.inspection.before_the_seal(lease)
        if isinstance(found, Assessment):
            return found
        if lease.parked_at is not None:
            return unseen(
                "it is parked", f"`gpu-tenant resume {lease.id}`, then the same command again"
            )
        if lease.state is LeaseState.ACTIVE and lease.ready_at is None:
            try:
                lease = await self._let_in(lease)
            except BoxTrouble as error:
                # No ground, and no dead end: a person may still sign for what nobody can look at.
                return unseen(f"the box has not let us in: {error.message}", error.remedy)
        try:
            store = self._store(lease)
        except TenantError:
            store = None  # it proves nothing then; what is here may
        return await assess(
            lease, self._profile(lease.provider), caretaker=self._caretaker(lease),
            ledger=self.ledger, clock=self._clock, store=store, others=found,
        )  # fmt: skip

    def known_store(self, said: str | None) -> str | None:
        """The same words, which name a store that can be spoken to; None where none was named.

        Raises:
            BadRequest, LocalTrouble: they name none.
        """
        if said is not None:
            open_store(said, configuration=self.home.configuration, environ=self._environ)
        return said

    def _store(self, lease: Lease) -> DurableStore | None:
        """The second place of the lease's artifacts, where its terms name one."""
        said = lease.terms.store
        if said is None:
            return None
        return open_store(said, configuration=self.home.configuration, environ=self._environ)

    async def _leave(self, lease: Lease) -> None:
        """Nothing of ours runs on a machine that is handed back, if it can be reached at all."""
        profile = self._profile(lease.provider)
        if profile.destroy != "hands_back":
            return
        # Unreached, the guard ends by itself at its deadline, and the mark lapses after it.
        with suppress(BoxTrouble):
            if lease.touched_at is not None:
                await self._caretaker(lease).disarm()
            if lease.ready_at is not None:
                await self.inspection.of(lease).leave()

    def _receipt(self, lease: Lease) -> Receipt:
        receipt = self.ledger.receipt(lease.id)
        if receipt is None:
            raise LocalTrouble(f"{lease.id} has no receipt", remedy="`gpu-tenant doctor`")
        return receipt

    def _torn_down(self, lease: Lease, receipt: Receipt) -> TornDown:
        live = {other.id for other in self.ledger.leases("live")}
        words = [
            f"{gang.job} ran over {', '.join(left)}, too, which bill until they are torn down as well"
            for gang in gangs(self.ledger.events(lease.id))
            if (left := [name for name in gang.others(lease.id) if name in live])
        ]
        return TornDown(
            lease=lease.id, state=lease.state, receipt=receipt, gang="; ".join(words) or None
        )
