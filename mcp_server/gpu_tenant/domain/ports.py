"""The seams to the outside world: the clock, the transport to a box, the connector to a provider."""

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from socket import socket
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from gpu_tenant.domain.billing import Balance, Billed
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import Box, BoxId, Lease, Profile, SshAddress
from gpu_tenant.domain.offers import Leftover, Offer, Quote, Wish
from gpu_tenant.domain.permit import TeardownPermit


class Clock(Protocol):
    """The only source of time."""

    @property
    def shared_with_boxes(self) -> bool:
        """Whether the boxes should tell the same time. If so, a difference is worth an alarm."""
        ...

    def now(self) -> datetime:
        """The current instant, aware, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """`seconds` have passed on this clock."""
        ...


class Finished(NamedTuple):
    """A command on the box that ran to its end."""

    exit_status: int
    """The command's own status; 128 + n if signal n ended it, as in a shell."""
    stdout: bytes
    stderr: bytes


class Channel(Protocol):
    """A command that runs on the box. Its input and output are sockets of this computer.

    The caller has to close both sockets. Reads and writes on them block. Its output ends when the link ends.
    """

    @property
    def reader(self) -> socket:
        """The socket to read its output from."""
        ...

    @property
    def writer(self) -> socket:
        """The socket to write its input to."""
        ...

    def hang_up(self) -> None:
        """No more input comes, and the command is told to end.

        May be called from another thread, and repeatedly.
        """
        ...


class Listener(Protocol):
    """Hears what goes over the link while a command runs."""

    def note_output(self, chunk: bytes) -> None:
        """`chunk` of its output has come."""
        ...

    def note_input(self, size_bytes: int) -> None:
        """Another `size_bytes` of its input are on their way."""
        ...


class Transport(Protocol):
    """The link to one box, kept open between calls and re-opened as needed.

    Remote paths are relative to the login home unless absolute. Text that stands for a file name
    is in Python's surrogateescape form, so a name that is not UTF-8 survives the trip.
    """

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | AsyncIterable[bytes] = b"",
        timeout_s: float,
        listener: Listener | None = None,
    ) -> Finished:
        """The command has ended, whatever its status. All of its output is here.

        `listener` is told what comes and goes meanwhile. If it cancels this call, the command ends.

        Raises:
            BoxUnreachable: the box did not answer, the link broke, or `timeout_s` passed.
            HostKeyChanged: the host key is not the pinned one; nothing was sent.

        After any exception the command may have run, may be running still, or never started.
        """
        ...

    async def put(self, source: Path, destination: str, *, mode: int = 0o600) -> None:
        """`destination` holds the bytes of `source`, complete: it appeared by rename.

        Raises:
            BoxUnreachable, HostKeyChanged: as for `run`.
            BoxTrouble: the box would not take it (disk full, no such directory, no permission).

        After any exception `destination` is as it was before, or complete.
        """
        ...

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        """The command is on its way to the box, over the kept connection or one of its own.

        Only its output shows that it runs.

        Raises:
            BoxUnreachable, HostKeyChanged, BoxTrouble: as for `run`.
            LocalTrouble: this computer could not start it.
        """
        ...

    async def aclose(self) -> None:
        """The connection is closed. Nothing on the box was stopped by it."""
        ...


@dataclass(frozen=True, slots=True)
class Credential:
    """Where a provider's key is kept. The value is read when a call needs it."""

    source: str
    """Where it was found, for a person: `env:VAST_API_KEY`."""
    read: Callable[[], str] = field(repr=False)
    """The value now.

    Raises:
        CredentialRefused: the place is empty.
    """


@dataclass(frozen=True, slots=True)
class Setting:
    """All that a connector gets from outside."""

    profile: Profile
    """Its own platform's facts."""
    state: Path
    """The user's state directory."""
    environ: Mapping[str, str] = field(repr=False)
    """The environment of this process. Never a source for a key or for the API's address."""
    clock: Clock
    credential: Credential | None
    """None if the platform needs no key. A connector that needs one is never created without it."""
    public_key: Callable[[], str]
    """The ssh public key, one line, that a new box must accept."""
    shell_at: Callable[[str | None], Transport]
    """Opens a transport to the machine at that ssh address, where the provider's commands are run.

    With None it opens one to this machine, as its user. The caller has to close it.
    """
    rehearsed_at: str | None = None
    """The address of this provider's rehearsal. None outside of rehearsals."""
    named_at: str | None = None
    """The API address in the owner's configuration. None if it names none."""

    def api(self, usual: str, *, variable: str) -> str:
        """The address of the provider's API. Only the configuration and rehearsals decide it.

        Raises:
            BadRequest: `variable` names another address; following it would send the key to whoever set it.
        """
        if self.rehearsed_at is not None:
            return self.rehearsed_at
        place = self.named_at or usual
        said = self.environ.get(variable, "").rstrip("/")
        if said and said != place:
            raise BadRequest(
                f"{variable} names another place for the API of {self.profile.title}, and nothing goes by it",
                remedy=f"`unset {variable}`; an address that is meant stands in config.toml: "
                f'`[api]`, `{self.profile.id} = "https://HOST"`',
            )
        return place


class Connector(Protocol):
    """One provider's API, in our words. It knows its provider and nothing else.

    `providers/<slug>/connector.py` has `connect(setting: Setting)`, which returns one without asking the provider.
    It returns None if the owner's configuration has to name a cluster and names none.
    """

    async def create(self, lease: Lease) -> Box:
        """Exactly one box marked with `lease.mark` exists, even if this is called again for the same lease.

        What to rent is in `lease.quote`. The box need not be ready yet.

        Raises:
            ProviderSilent: a box may exist; list the boxes before you try again.
            ProviderTrouble: any other subclass (NoCapacity, NoQuota, NoFunds, RateLimited, ...): the provider
                refused, and no box was made.

        After any other exception a box may exist as well.
        """
        ...

    async def list_boxes(self) -> Sequence[Box]:
        """Every box of this account as the provider shows it now, to the last page: ours and all others.

        Raises:
            ProviderTrouble: the provider did not answer, or not completely; this proves nothing.
        """
        ...

    async def destroy(self, permit: TeardownPermit) -> None:
        """The provider was told to destroy the permitted box, or does not have it.

        Returning is not proof: the box is gone when `list_boxes` has omitted it, twice.

        Raises:
            PermitForged: `permit` was not minted by verification, or is for another provider.
            CredentialRefused, RateLimited: as their names say; the box is as it was.
            ProviderTrouble: the provider refused; the box is as it was.

        After ProviderSilent or any other exception the box may or may not exist.
        """
        ...


def wanted_quote(lease: Lease) -> Quote:
    """The quote that is to be rented under the lease's mark.

    Raises:
        BadRequest: there is no quote, or the box would carry no mark and could not be found again.
    """
    if lease.quote is None or not lease.mark:
        raise BadRequest(
            "a lease without an offer or without a mark rents nothing",
            remedy=f"{Command('offers')} shows what can be rented",
        )
    return lease.quote


def marked(lease: Lease, boxes: Iterable[Box]) -> Box | None:
    """The box that carries the lease's mark, if one of these does: an earlier create made it, and none is sent."""
    return next((box for box in boxes if box.mark == lease.mark), None)


@runtime_checkable
class Market(Protocol):
    """A connector whose provider has offers to choose from."""

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """What could be rented for `wish` now, in any order, with as few requests as possible.

        The connector leaves out what the provider itself can tell to be unsuitable; `leases/offers.py` judges the
        rest. If `wish.offer` is set, the answer is only that offer, with its current price, or nothing.

        Raises:
            ProviderTrouble: the provider did not answer.
        """
        ...


@runtime_checkable
class Parking(Protocol):
    """A connector whose provider can stop a box and keep its disk."""

    async def park(self, lease: Lease) -> None:
        """The provider was told to stop the lease's box. Once it is stopped, `list_boxes` shows it as parked.

        Raises:
            ProviderTrouble: it refused; the box is as it was.
        """
        ...

    async def resume(self, lease: Lease) -> None:
        """The provider was told to start the lease's box again. It may come back at another address.

        Raises:
            NoCapacity: its GPU is rented to somebody else now; the disk is kept, and bills.
            ProviderTrouble: it refused; the box is as it was.
        """
        ...


@runtime_checkable
class Timed(Protocol):
    """A connector whose provider ends a box by its own timer, which was set when the box was made."""

    async def timer_at(self, lease: Lease) -> datetime | None:
        """When the provider itself will stop the lease's box. None if no timer runs on it.

        Raises:
            ProviderTrouble: the provider did not say.
        """
        ...


@runtime_checkable
class Outlived(Protocol):
    """A connector whose boxes depend on something that is no part of them and stays when they go."""

    async def what_outlives(self, lease: Lease) -> str | None:
        """What stays when the lease's box is destroyed and what becomes of it, in one sentence. None if nothing stays.

        Raises:
            ProviderTrouble: the provider did not say.
        """
        ...


@runtime_checkable
class Residue(Protocol):
    """A connector whose provider bills for more than boxes."""

    async def leftovers(self) -> Sequence[Leftover]:
        """Everything in this account that bills and is attached to no box.

        Raises:
            ProviderTrouble: the provider did not answer, or not completely.
        """
        ...


@runtime_checkable
class Billing(Protocol):
    """A connector whose provider tells what it has charged for one box."""

    async def ask_bill(self, lease: Lease) -> Billed | None:
        """What the lease's box has cost by the provider's books. None if they say nothing about it yet.

        Raises:
            ProviderTrouble: the provider did not answer, or not completely.
        """
        ...


@runtime_checkable
class Funded(Protocol):
    """A connector whose provider tells what is left on the account."""

    async def balance(self) -> Balance | None:
        """What the account holds now. None if the provider does not say.

        Raises:
            ProviderTrouble: the provider did not answer.
        """
        ...


class Asking(NamedTuple):
    """How a provider is asked: at which address, with which key, for which account."""

    where: str
    key: str
    """A keyed hash, never the key."""
    account: str | None = None
    """The provider's own name for the account. None if unknown."""

    def of(self, account: str | None) -> "Asking":
        """The same, for that account."""
        return self._replace(account=account)

    def is_like(self, other: "Asking") -> bool:
        """Whether both ask the same server with the same key."""
        return (self.where, self.key) == (other.where, other.key)


@runtime_checkable
class Accounted(Protocol):
    """A connector that can tell which account it speaks for."""

    def asked_with(self, salt: str) -> Asking | None:
        """At which address and with which key the provider is asked. No call is made. None if it is never asked."""
        ...

    async def account(self) -> str | None:
        """The provider's name for the account, the same for all its keys. None if it does not say.

        Raises:
            ProviderTrouble: the provider did not answer.
        """
        ...


@runtime_checkable
class Findable(Protocol):
    """A connector that can look up one box by its id, whatever the list says."""

    async def find_box(self, lease: Lease) -> Box | None:
        """The lease's box as its provider shows it now. None if the provider says that there is no such box.

        Raises:
            ProviderTrouble: the provider did not say.
        """
        ...


@runtime_checkable
class Lending(Protocol):
    """A connector with a list of our own, of machines that somebody else rents and may move."""

    def let_go(self, lease: Lease) -> None:
        """From now on the list omits the lease's machine, because whoever rents it says so."""
        ...


@runtime_checkable
class Tended(Protocol):
    """A connector with boxes that a person manages in a console, because no API does."""

    def tends(self, box_id: BoxId | None) -> bool:
        """Whether the box is one of those."""
        ...

    def note_moved(self, lease: Lease, address: SshAddress) -> None:
        """The list shows the lease's box at the address that its owner has given."""
        ...

    def note_ended(self, lease: Lease) -> None:
        """The list omits the lease's box from now on, because its owner has said that it is gone."""
        ...
