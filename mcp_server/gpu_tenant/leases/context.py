"""What every operation on a lease needs: the ledger, the clock, the platforms, the connections and the holds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from datetime import date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from gpu_tenant.box.guard_record import armed_in
from gpu_tenant.domain.billing import Balance
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    CredentialRefused,
    LeaseHeld,
    LocalTrouble,
)
from gpu_tenant.domain.fact_life import READ_AGAIN, as_believed
from gpu_tenant.domain.interruption import recorded_fate
from gpu_tenant.domain.model import (
    Address,
    Lease,
    LeaseState,
    LocalAddress,
    Profile,
    SlurmAddress,
)
from gpu_tenant.domain.policy import LookedAfter
from gpu_tenant.domain.ports import Connector, Market, Tended, Transport
from gpu_tenant.domain.protection import WATCHED_S, Protection, protection
from gpu_tenant.domain.reconcile import rate_words
from gpu_tenant.files.disk_reserve import give_up_reserve
from gpu_tenant.files.skill_files import script
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.watchdog_heartbeat import Watcher, by_this, is_watched, last_watch_words
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.credentials import KeyPlaces, read_table

if TYPE_CHECKING:
    from pydantic import JsonValue

    from gpu_tenant.artifacts.stores.protocol import DurableStore
    from gpu_tenant.box.caretaker import Caretaker
    from gpu_tenant.box.job_queue import Runner
    from gpu_tenant.box.session import Session
    from gpu_tenant.leases.owner_approval import Owner

progress_to: ContextVar[Callable[[int, int], None]] = ContextVar(
    "progress_to", default=lambda done, total: None
)
"""A callback that gets the bytes done and the total bytes while a call moves files.

The user interface (a face) sets it.
"""

call_bytes_s: ContextVar[int | None] = ContextVar("call_bytes_s", default=None)
"""Each transfer of this call may move this many bytes a second. None if the caller set no limit."""

_LOOKS = frozenset({"look", "wait"})
_ENDS = frozenset({"teardown", "waive", "attest", "stop"})
"""A process that holds a lease for one of these purposes may use the disk space that is reserved for ending leases."""
_TURN_WAITS_S, _TURN_AGAIN_S = 20.0, 0.2
"""A call waits up to the first number of seconds for its turn at a lease. The second number is the pause between tries.

An agent's host gives up on a call after a minute.
"""
SHOWS_UP_S, _LEAVES_WITHIN_S = 30.0, 5.0
"""While somebody works on a lease, its box is told so again and again. The first number is the pause, in real seconds.

This matters if the box's guard stops a box whose work is done and that nobody looks after. When the work on the lease
ends, a message that is being sent may take at most the second number of seconds.
"""

WAIT_S = 40
"""A call waits at most this many seconds for a box to boot. An agent's host gives up on a call after a minute."""


PAGE = 50
"""At most this many ended leases are reported at a time. The number is small, because an agent reads every word."""

LeaseName = Annotated[str, Field(description="id, from list_leases")]


def as_recorded(lease: Lease) -> Address | None:
    """Return the address that the lease records. In a rehearsal, another function finds the real address."""
    return lease.address


class Context:
    """One user's ledger, and the open connections to its boxes. It is the first argument of every operation."""

    def __init__(
        self,
        *,
        home: Home,
        ledger: Ledger,
        profiles: Mapping[str, Profile],
        connectors: Mapping[str, Connector],
        open_transport: Callable[[Lease], Transport],
        locate: Callable[[Lease], Address | None] = as_recorded,
        introduce: Callable[[Lease, str], Awaitable[None]],
        public_key: Callable[[], str],
        environ: Mapping[str, str],
        tending: Literal["on", "off"] = "on",
        unrecorded: LocalTrouble | None = None,
    ) -> None:
        self.home = home
        self.ledger = ledger
        self.shipped = profiles
        """The platforms' facts as their files state them. `profiles` has those that are still believed today."""
        self._believed: tuple[tuple[object, ...], Mapping[str, Profile]] | None = None
        self.clock = ledger.clock
        self.connectors = connectors
        self.locate = locate
        self._open_transport = open_transport
        self.introduce = introduce
        self.public_key = public_key
        self.environ = environ
        self.tending = tending
        self.unrecorded = unrecorded
        """Why nothing can be recorded; None if the ledger can be written.

        If nothing can be recorded, only operations that read can run.
        """
        self.watches: Watcher | None = None
        """The role in which this process looks after every lease while it runs. None if it does not look after them."""
        self.key_places = KeyPlaces.of(profiles.values(), home.root)
        self._transports: dict[tuple[str, str], Transport] = {}
        self.balances: dict[str, tuple[datetime, Balance | None]] = {}
        """For each account, when it was last asked, and its balance then. None stands for an unknown balance."""

    @cached_property
    def owner(self) -> Owner:
        """The owner's limits, and what needs the owner's signature."""
        from gpu_tenant.leases.owner_approval import Owner

        return Owner(self.home.configuration, self.profiles, ledger=self.ledger)

    @property
    def connected(self) -> frozenset[str]:
        """The providers whose boxes can be listed now."""
        return frozenset(self.connectors)

    async def aclose(self) -> None:
        """Close every connection. Boxes, jobs and leases continue unchanged."""
        for transport in self._transports.values():
            await transport.aclose()
        self._transports.clear()
        self.ledger.close()

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Every platform's facts, as far as they are believed today. A fact that is too old counts as unknown."""
        today = self.ledger.now().date()
        key = today, _changed_ns(self.home.configuration), id(self.shipped)
        if self._believed is None or self._believed[0] != key:
            now = {slug: as_believed(of, today) for slug, of in self.shipped.items()}
            if any(of.outlived for of in now.values()):
                read = _read_again(self.home.configuration)
                now |= {x: as_believed(self.shipped[x], today, read[x]) for x in now if x in read}
            self._believed = key, now
        return self._believed[1]

    def profile(self, provider: str) -> Profile:
        """Return the platform's facts, whether or not a key for it was found.

        Raises:
            BadRequest: there is no such platform.
        """
        profile = self.profiles.get(provider)
        if profile is None:
            from difflib import get_close_matches

            near = get_close_matches(provider, self.profiles, n=1, cutoff=0.6)
            raise BadRequest(
                f"no provider {provider!r} (known: {', '.join(sorted(self.profiles))})",
                remedy=f"{f'did you mean {near[0]}? ' if near else ''}{Command('profiles')} lists them",
            )
        return profile

    def set_up(self, provider: str) -> Profile:
        """Return the platform's facts, like `profile`, and check that the platform can be asked now.

        Raises:
            CredentialRefused: no key for the platform was found.
            BadRequest: it has no API, or its section in the configuration is missing.
        """
        profile = self.profile(provider)
        if provider not in self.connectors or self._lacks_key(profile):
            words, remedy = self._not_set_up(profile)
            kind = BadRequest if profile.credential is None else CredentialRefused
            raise kind(words, remedy=remedy)
        return profile

    def _not_set_up(self, profile: Profile) -> tuple[str, str]:
        """Say why a platform cannot be asked, and how to set it up."""
        place, shown = profile.credential, f"{Command('profiles', profile.id)} says"
        settings = self.home.configuration
        if place is not None:
            place_of_key = f"set {' or '.join(place.env)}, or name another place under [credentials] in {settings}"
            return (
                f"{profile.title} is not set up: no key was found",
                f"{place_of_key}; then {Command('doctor')} tries it",
            )
        if profile.lease == "either":
            return (
                f"{profile.title} is not set up: there is no section [{profile.id}] in {settings}",
                f"{shown} what to write in that section",
            )
        return (
            f"{profile.title} has no box that one could log in to",
            f"{shown} how its runs are kept and ended",
        )

    def _lacks_key(self, profile: Profile) -> bool:
        """Whether no key for the platform's API was found, so that only boxes from its console can be seen."""
        needs_one = profile.credential is not None or profile.lease == "either"
        return needs_one and not isinstance(self.connectors.get(profile.id), Market)

    def connector(self, lease: Lease) -> Connector:
        """Return the connector of the lease's provider.

        Raises:
            CredentialRefused: the key or the settings with which the box was rented cannot be found now.
        """
        connector = self.connectors.get(lease.provider)
        profile = self.profile(lease.provider)
        # Without a key, the connector knows only the boxes from the console. A box that is missing there may still
        # exist.
        rented = lease.quote is not None or (lease.box_id and not lease.goes_by_address)
        if connector is not None and isinstance(connector, Tended):
            rented = rented and not connector.tends(lease.box_id)
        if connector is None or (rented and self._lacks_key(profile)):
            words, remedy = self._not_set_up(profile)
            raise CredentialRefused(
                f"{lease.id}: {words}; its box may be billing {rate_words(lease)}",
                remedy=f"{remedy}; then run the same command again",
            )
        return connector

    def transport(self, lease: Lease) -> Transport:
        """Return the transport to the lease's box. It is opened once and then kept."""
        # A box that was stopped and started again may have another address.
        place = (lease.id, str(lease.address))
        if place not in self._transports:
            self._transports[place] = self._open_transport(lease)
        return self._transports[place]

    def caretaker(self, lease: Lease) -> Caretaker:
        """Return the caretaker on the lease's box."""
        from gpu_tenant.box.caretaker import Caretaker, script_hashes

        transport, ours = self.transport(lease), script("caretaker.py")
        self.ledger.know_scripts(script_hashes(ours.parent))
        if isinstance(lease.address, SlurmAddress):
            from gpu_tenant.box.slurm_caretaker import AllocatedCaretaker

            return AllocatedCaretaker(
                lease, transport, ours, script("runner.py"), key=self.ledger.seal_key(lease.id)
            )
        profile = self.profile(lease.provider)
        is_alone = profile.destroy == "deletes"
        # The files of a local box, or of a rehearsal's box, are on the owner's own disks.
        is_apart = not isinstance(lease.address, LocalAddress) and not self.ledger.is_rehearsed
        return Caretaker(
            lease,
            transport,
            ours,
            key=self.ledger.seal_key(lease.id),
            elsewhere="counted" if is_alone and is_apart else "passed over",
        )

    def session(self, lease: Lease) -> Session:
        """Return the lease's box with everything that is needed to work on it."""
        from gpu_tenant.box.session import Session

        return Session(
            lease, self.profile(lease.provider), self.transport(lease), self.caretaker(lease)
        )

    def runner(self, lease: Lease) -> Runner:
        """Return the job queue on the lease's box."""
        from gpu_tenant.box.job_queue import Runner

        return Runner(
            lease, self.transport(lease), script("runner.py"), caretaker=self.caretaker(lease)
        )

    async def disconnect(self, lease: Lease) -> None:
        """Close every connection to the lease's box."""
        for place in [place for place in self._transports if place[0] == lease.id]:
            await self._transports.pop(place).aclose()

    @contextmanager
    def hold_lease(self, lease_id: str, purpose: str) -> Iterator[None]:
        """Hold the lease: until the `with` block ends, no other process acts on it.

        Raises:
            LeaseHeld: another process is acting on the lease now.
            LocalTrouble: the purpose is more than a look, and nothing can be recorded.
        """
        if purpose != "look":
            self.must_record()
        if purpose in _ENDS:
            give_up_reserve(self.home.root, "end")
        with self.ledger.hold(lease_id, purpose, at=self.clock.now()):
            yield

    def must_record(self) -> None:
        """Require that what is done now can be recorded.

        Raises:
            LocalTrouble: the ledger takes no writes.
        """
        if self.unrecorded is not None:
            raise self.unrecorded

    @asynccontextmanager
    async def held_in_turn(
        self, lease_id: str, purpose: str, *, waits_for: Collection[str] = ()
    ) -> AsyncIterator[None]:
        """Hold the lease like `hold_lease`, but if another task of this process holds it, wait a short time first.

        Also wait if another process holds it that only looks, or that acts for a purpose in `waits_for`. The wait is in
        real time.

        While the lease is held, its box is told so. Otherwise its guard could stop the box as one that nobody looks
        after, because reading the kept files may take long.

        Raises:
            LeaseHeld: another process is acting on the lease now.
        """
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + _TURN_WAITS_S
        while True:
            hold = self.hold_lease(lease_id, purpose)
            try:
                hold.__enter__()
                break
            except LeaseHeld:
                by = self.ledger.holder_of(lease_id)
                waits = by is None or by.pid == os.getpid() or by.purpose in {*_LOOKS, *waits_for}
                if not waits or loop.time() >= give_up_s:
                    raise
            await asyncio.sleep(_TURN_AGAIN_S)
        showing_up = asyncio.create_task(self._show_up(lease_id))
        try:
            yield
        finally:
            showing_up.cancel()
            try:
                await asyncio.wait({showing_up}, timeout=_LEAVES_WITHIN_S)
            finally:
                hold.__exit__(None, None, None)

    async def _show_up(self, lease_id: str) -> None:
        """Regularly ask the box for its jobs. This shows its guard that somebody looks after the box.

        The guard would otherwise stop the box when the work is done, or at the deadline.
        """
        while True:
            await asyncio.sleep(SHOWS_UP_S)
            # The holder of the lease meets the same error, and reports it.
            with suppress(Exception):
                lease = self.ledger.lease(lease_id)
                armed = armed_in(self.ledger.events(lease.id))
                if lease.state is not LeaseState.ACTIVE or armed is None:
                    continue
                is_near = lease.terms.deadline_at - self.clock.now() < timedelta(seconds=WATCHED_S)
                if armed.when_done or is_near:
                    await self.caretaker(lease).standing(back_in_s=WATCHED_S)

    def box_store(self, lease: Lease) -> dict[str, JsonValue] | None:
        """Return the store to which the box itself may copy its files, with the key that the owner made for boxes.

        None if there is no such store.
        """
        if lease.terms.store is None:
            return None
        from gpu_tenant.artifacts.stores.configuration import box_store

        with suppress(BadRequest, LocalTrouble):
            return box_store(
                lease.terms.store,
                lease.id,
                configuration=self.home.configuration,
                environ=self.environ,
            )
        return None

    def protection(self, lease: Lease) -> Protection:
        """Return what ends the lease's bill if this computer fails. Only what has been proved counts."""
        events = self.ledger.events(lease.id)
        return protection(
            self.profile(lease.provider), lease, armed_in(events), fate=recorded_fate(events)
        )

    def watch_words(self) -> str:
        """Say who looks after the leases now, in words for a person."""
        said = last_watch_words(self.home.watchdog, self.clock.now())
        if self.watches is not None:
            ours = by_this(self.watches)
            if said.startswith(("nobody", ours)):
                return ours
        return said

    @property
    def looked_after(self) -> LookedAfter:
        """Whether somebody looks after the leases now."""
        looks = self.watches is not None or is_watched(self.home.watchdog, self.clock.now())
        return "watched" if looks else "unwatched"

    def kept_in(self, lease: Lease) -> Path:
        """Return where the lease's files are kept on this computer."""
        return Path(lease.kept_in or self.home.artifacts_of(lease.id))

    def known_store(self, said: str | None) -> str | None:
        """Check that `said` names a store that we can use, and return it unchanged. None is returned as None.

        Raises:
            BadRequest, LocalTrouble: `said` names no such store.
        """
        if said is not None:
            from gpu_tenant.artifacts.stores.configuration import open_store

            open_store(said, configuration=self.home.configuration, environ=self.environ)
        return said

    def store(self, lease: Lease) -> DurableStore | None:
        """Return the store for a second copy of the lease's artifacts. None if its terms name none."""
        said = lease.terms.store
        if said is None:
            return None
        from gpu_tenant.artifacts.stores.configuration import open_store

        return open_store(said, configuration=self.home.configuration, environ=self.environ)


def _changed_ns(configuration: Path) -> int:
    """Return when the file was last changed. 0 if there is none."""
    try:
        return configuration.stat().st_mtime_ns
    except OSError:
        return 0


def _read_again(configuration: Path) -> dict[str, date]:
    """Return the day on which a person last read each platform's pages.

    A day that cannot be read is left out. Then the old facts count as unknown, which is safe. `doctor` says what is
    wrong with the file.
    """
    with suppress(LocalTrouble):
        said: Mapping[str, object] = read_table(configuration, READ_AGAIN)
        return {
            slug: day
            for slug, day in said.items()
            if isinstance(day, date) and not isinstance(day, datetime)
        }
    return {}
