"""The interfaces to the outside world: the clock, the transport to a box, the connector to a provider."""

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from socket import socket
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from gpu_tenant.domain.billing import Balance, Billed
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import Box, BoxId, Lease, Profile, SshAddress
from gpu_tenant.domain.offers import Attachable, Leftover, Offer, Quote, Wish
from gpu_tenant.domain.order import AtProvider
from gpu_tenant.domain.permit import TeardownPermit, VolumePermit
from gpu_tenant.domain.volumes import ListedVolume, Volume


class Clock(Protocol):
    """The only source of time."""

    @property
    def shared_with_boxes(self) -> bool:
        """Whether the clocks of the boxes should show the same time. If so, a difference raises an alarm."""
        ...

    def now(self) -> datetime:
        """Return the current instant, with its time zone, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` on this clock, for a platform. The clock of a rehearsal jumps over this time."""
        ...

    async def follow(self, seconds: float) -> None:
        """Wait `seconds` for work, or for people. They need real time, so a rehearsal's clock waits, too."""
        ...


class Finished(NamedTuple):
    """The result of a command that ran to its end on the box."""

    exit_status: int
    """The command's own status; 128 + n if signal n ended the command, as in a shell."""
    stdout: bytes
    stderr: bytes


class Channel(Protocol):
    """A command that runs on the box. Its input and output are sockets of this computer.

    The caller has to close both sockets. Reads and writes on them block. The output ends when the link ends.
    """

    @property
    def reader(self) -> socket:
        """The socket from which the command's output is read."""
        ...

    @property
    def writer(self) -> socket:
        """The socket to which the command's input is written."""
        ...

    def hang_up(self) -> None:
        """Send no more input, and tell the command to end.

        May be called from another thread, and repeatedly.
        """
        ...


class Listener(Protocol):
    """An observer of one command. It is called whenever bytes of the command's input or output go over the link."""

    def note_output(self, chunk: bytes) -> None:
        """Called when `chunk` of the command's output has come."""
        ...

    def note_input(self, size_bytes: int) -> None:
        """Called when another `size_bytes` of the command's input are on their way."""
        ...


class Transport(Protocol):
    """The link to one box, kept open between calls and re-opened as needed.

    Remote paths are relative to the login home unless they are absolute. File names are text in Python's
    surrogateescape form, so that a name that is not UTF-8 stays unchanged.
    """

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | AsyncIterable[bytes] = b"",
        timeout_s: float,
        listener: Listener | None = None,
    ) -> Finished:
        """Run a command to its end, and return its status and all of its output. A status other than 0 raises nothing.

        `listener` is told of each piece of input and output. If it cancels this call, the command ends.

        Raises:
            BoxUnreachable: the box did not answer, the link broke, or `timeout_s` passed.
            HostKeyChanged: the host key is not the pinned one; nothing was sent.

        After any exception the command may have run, may still be running, or may never have started.
        """
        ...

    async def put(self, source: Path, destination: str, *, mode: int = 0o600) -> None:
        """Copy `source` to `destination`. The complete file appears there at once, by a rename.

        Raises:
            BoxUnreachable: see `run`.
            HostKeyChanged: see `run`.
            BoxTrouble: the box does not accept the file (disk full, no such directory, no permission).

        After any exception `destination` is as it was before, or complete.
        """
        ...

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        """Start a command, over the kept connection or over a new one. Only the command's output shows that it runs.

        Raises:
            BoxUnreachable: see `run`.
            HostKeyChanged: see `run`.
            BoxTrouble: the box let us in, but would not run the command.
            LocalTrouble: this computer could not start it.
        """
        ...

    async def aclose(self) -> None:
        """Close the connection. This stops nothing on the box."""
        ...


@dataclass(frozen=True, slots=True)
class Credential:
    """Where a provider's key is kept. The value is read when a call needs it."""

    source: str
    """Where the key was found, for a person to read: `env:VAST_API_KEY`."""
    read: Callable[[], str] = field(repr=False)
    """Returns the value now.

    Raises:
        CredentialRefused: there is no key in that place.
    """


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that a connector gets from outside."""

    profile: Profile
    """The facts of the connector's own platform."""
    state: Path
    """The user's state directory."""
    environ: Mapping[str, str] = field(repr=False)
    """The environment of this process. A key, or the API's address, is never taken from it."""
    clock: Clock
    credential: Credential | None
    """None if the platform needs no key. A connector that needs one is never created without it."""
    public_key: Callable[[], str]
    """The ssh public key, one line, that a new box must accept."""
    shell_at: Callable[[str | None], Transport]
    """Opens a transport to the machine at that ssh address, where the provider's commands are run.

    For None it opens a transport to this machine, as its user. The caller has to close it.
    """
    rehearsed_at: str | None = None
    """The address of this provider's rehearsal. None outside of rehearsals."""
    named_at: str | None = None
    """The API address in the owner's configuration. None if the configuration names none."""

    def api(self, usual: str, *, variable: str) -> str:
        """Return the address of the provider's API. Only the configuration and rehearsals decide it.

        Raises:
            BadRequest: `variable` names another address. Following it would send the key to whoever set the variable.
        """
        if self.rehearsed_at is not None:
            return self.rehearsed_at
        place = self.named_at or usual
        said = self.environ.get(variable, "").rstrip("/")
        if said and said != place:
            raise BadRequest(
                f"{variable} names another address for the API of {self.profile.title}, and is not used",
                remedy=f"`unset {variable}`; to use another address, write it in config.toml: "
                f'`[api]`, `{self.profile.id} = "https://HOST"`',
            )
        return place


class Connector(Protocol):
    """One provider's API, in our words. A connector knows its provider and nothing else.

    `providers/<slug>/connector.py` has `connect(setting: Setting)`, which returns a connector without asking the
    provider. It returns None if the owner's configuration has to name a cluster and names none.
    """

    async def create(self, lease: Lease) -> Box:
        """Make sure that exactly one box has the mark `lease.mark`, even if this is called again for the lease.

        What to rent is in `lease.quote`. The box need not be ready yet.

        Raises:
            ProviderSilent: a box may exist; list the boxes before you try again.
            ProviderTrouble: any other subclass (NoCapacity, NoQuota, NoFunds, RateLimited, ...): the provider
                refused, and no box was made.

        After any other exception a box may exist as well.
        """
        ...

    async def list_boxes(self) -> Sequence[Box]:
        """Return every box of this account as the provider shows it now, to the last page: ours and all others.

        Raises:
            ProviderTrouble: the provider did not answer, or not completely; this proves nothing.
        """
        ...

    async def destroy(self, permit: TeardownPermit) -> None:
        """Tell the provider to destroy the permitted box, unless the provider does not have the box.

        A return without an error is no proof. The box is gone when `list_boxes` has omitted it twice.

        Raises:
            PermitForged: `permit` was not minted by verification, or is for another provider.
            CredentialRefused: the provider does not accept the key; the box is unchanged.
            RateLimited: the provider wants fewer calls; the box is unchanged.
            ProviderTrouble: the provider refused; the box is unchanged.

        After ProviderSilent or any other exception the box may or may not exist.
        """
        ...


def wanted_quote(lease: Lease) -> Quote:
    """Return the quote that is to be rented under the lease's mark.

    Raises:
        BadRequest: there is no quote, or the box would carry no mark and could not be found again.
    """
    if lease.quote is None or not lease.mark:
        raise BadRequest(
            "a lease without an offer or without a mark rents nothing",
            remedy=f"{Command('offers')} shows what can be rented",
        )
    return lease.quote


def find_marked(lease: Lease, boxes: Iterable[Box]) -> Box | None:
    """Return the box that carries the lease's mark.

    If there is one, an earlier create made it, and no other is needed.
    """
    return next((box for box in boxes if box.mark == lease.mark), None)


@runtime_checkable
class OnThisComputer(Protocol):
    """A transport to a box that is only a directory of this computer."""

    @property
    def home(self) -> Path:
        """The directory that is the box's home."""
        ...


@runtime_checkable
class Market(Protocol):
    """A connector whose provider has offers to choose from."""

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """Return what could be rented for `wish` now, in any order, with as few requests as possible.

        The connector leaves out what the provider itself shows to be unsuitable; `leases/offers.py` judges the rest.
        If `wish.offer` is set, the result is only that offer, with its current price, or nothing.

        Raises:
            ProviderTrouble: the provider did not answer.
        """
        ...


@runtime_checkable
class Marketplace(Protocol):
    """A connector whose provider also lets the machines of strangers, which it has not tested."""

    has_strangers: bool


@runtime_checkable
class Imaging(Protocol):
    """A connector whose provider can start a box from an image or template that the tenant names."""

    has_registry_logins: bool
    """Whether an order can name a login for a private image. The provider stores the login: we see no password."""

    def refused_image(self, source: AtProvider) -> str | None:
        """Return in words why a box cannot be started from that image or template.

        None if it can. The provider is not asked.
        """
        ...


@runtime_checkable
class Publishing(Protocol):
    """A connector whose provider can open ports of a box to the internet. Its `create` opens the ordered ports.

    `list_boxes` shows the address of each port, in `Box.published`. The address can change with each start.
    """

    def refused_ports(self, ports: Sequence[str]) -> str | None:
        """Return in words why a box there cannot have all these ports open. None if it can.

        A port is written as in the order, such as `8000/http`. The provider is not asked.
        """
        ...


@runtime_checkable
class Parking(Protocol):
    """A connector whose provider can stop a box and keep its disk."""

    async def park(self, lease: Lease) -> None:
        """Tell the provider to stop the lease's box. Once the box is stopped, `list_boxes` shows it as parked.

        Raises:
            ProviderTrouble: the provider refused; the box is unchanged.
        """
        ...

    async def resume(self, lease: Lease) -> None:
        """Tell the provider to start the lease's box again. The box may come back at another address.

        Raises:
            NoCapacity: the box's GPU is rented to somebody else now; the disk is kept, and bills.
            ProviderTrouble: the provider refused; the box is unchanged.
        """
        ...


@runtime_checkable
class Timed(Protocol):
    """A connector whose provider ends a box by a timer of its own, which was set when the box was made."""

    async def timer_at(self, lease: Lease) -> datetime | None:
        """Return when the provider itself will stop the lease's box. None if no timer runs for the box.

        Raises:
            ProviderTrouble: the provider did not say.
        """
        ...


@runtime_checkable
class Outlived(Protocol):
    """A connector whose boxes depend on something that is not part of them and stays when they are gone."""

    async def what_outlives(self, lease: Lease) -> str | None:
        """Return in one sentence what stays when the lease's box is destroyed, and what becomes of it.

        None if nothing stays.

        Raises:
            ProviderTrouble: the provider did not say.
        """
        ...


@runtime_checkable
class Residue(Protocol):
    """A connector whose provider bills for more than boxes."""

    async def leftovers(self) -> Sequence[Leftover]:
        """Return everything in this account that bills and is attached to no box.

        Raises:
            ProviderTrouble: the provider did not answer, or not completely.
        """
        ...


@runtime_checkable
class Storing(Protocol):
    """A connector whose provider keeps volumes that outlive boxes. Its `create` mounts the volumes of the wish."""

    def refused_volumes(self, volumes: Sequence[Attachable]) -> str | None:
        """Return in words why no box there can have all these volumes. None if a box can. The provider is not asked."""
        ...

    def volume_usd_month(self, size_gb: int, region: str) -> Decimal | None:
        """Return what a new volume of that size costs a month. None if that is unknown. The provider is not asked."""
        ...

    async def create_volume(self, volume: Volume) -> ListedVolume:
        """Make sure that exactly one volume has the name `volume.mark`, even if this is called again for it.

        Raises:
            ProviderSilent: a volume may exist; list them before you try again.
            ProviderTrouble: the provider refused, and no volume was made.
        """
        ...

    async def list_volumes(self) -> Sequence[ListedVolume]:
        """Return every volume of this account, to the last page: ours and all others, each with its boxes.

        Raises:
            ProviderTrouble: the provider did not answer, or not completely; this proves nothing.
        """
        ...

    async def destroy_volume(self, permit: VolumePermit) -> None:
        """Tell the provider to destroy the permitted volume, unless the provider does not have it.

        A return without an error is no proof. The volume is gone when `list_volumes` has omitted it twice.

        Raises:
            PermitForged: `permit` was not minted by verification, or is for another provider.
            ProviderTrouble: the provider refused; the volume is unchanged.

        After ProviderSilent or any other exception the volume may or may not exist.
        """
        ...


@runtime_checkable
class VolumeMarket(Protocol):
    """A connector whose provider must be asked for the price of a new volume."""

    async def ask_volume_usd_month(self, size_gb: int, region: str) -> Decimal | None:
        """Return what a new volume of that size would cost a month there now. None if that is unknown.

        Raises:
            NoCapacity: there is no room for such a volume.
            ProviderTrouble: the provider did not answer.
        """
        ...


@runtime_checkable
class Growing(Protocol):
    """A connector whose provider can make a volume larger, with all that is on it. No provider makes one smaller."""

    async def grow_volume(self, volume: Volume, size_gb: int) -> None:
        """Tell the provider to make the volume that large. `list_volumes` then shows how large it is.

        Raises:
            ProviderTrouble: the provider refused; the volume is unchanged.

        After ProviderSilent the volume may have grown.
        """
        ...


@runtime_checkable
class Reclaiming(Protocol):
    """A connector whose provider deletes a volume only once no box has it. Until then, the deletion waits."""

    async def reclaimed_with(self, lease: Lease) -> Mapping[str, str]:
        """Return which of the lease's volumes will be deleted when its box ends: the reason in words, by volume name.

        Raises:
            ProviderTrouble: the provider did not say.
        """
        ...


@runtime_checkable
class Outliving(Protocol):
    """A connector of a provider at which a volume's disk may stay, and bill, when the volume itself is deleted."""

    async def may_stay(self, volume: Volume) -> str | None:
        """Say that the volume's disk may stay, and how a person sees that. None if it goes, or its end is refused.

        The words are true before the volume's end and after it.

        Raises:
            ProviderTrouble: the provider did not answer.
        """
        ...


@runtime_checkable
class Billing(Protocol):
    """A connector whose provider says what it has charged for one box."""

    async def ask_bill(self, lease: Lease) -> Billed | None:
        """Return what the lease's box has cost by the provider's records. None if they say nothing about it yet.

        Raises:
            ProviderTrouble: the provider did not answer, or not completely.
        """
        ...


@runtime_checkable
class Funded(Protocol):
    """A connector whose provider says how much money is left on the account."""

    async def balance(self) -> Balance | None:
        """Return what the account holds now. None if the provider does not say.

        Raises:
            ProviderTrouble: the provider did not answer.
        """
        ...


@runtime_checkable
class Prechecking(Protocol):
    """A connector that can tell before a rental what would keep us from reaching a box."""

    async def obstacles(self) -> Sequence[str]:
        """Return in words what the account lacks. Empty if it lacks nothing that is known.

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
        """Return a copy with that account."""
        return self._replace(account=account)

    def is_like(self, other: "Asking") -> bool:
        """Whether both ask the same server with the same key."""
        return (self.where, self.key) == (other.where, other.key)


@runtime_checkable
class Timekeeping(Protocol):
    """A connector whose provider sends its own time with its answers."""

    @property
    def ahead(self) -> timedelta | None:
        """How far this computer's clock was ahead of the provider's at its newest answer. None if it sent no time."""
        ...


@runtime_checkable
class Accounted(Protocol):
    """A connector that can tell which account its calls use."""

    def asked_with(self, salt: str) -> Asking | None:
        """Return at which address and with which key the provider is asked, without a call.

        None if it is never asked.
        """
        ...

    async def account(self) -> str | None:
        """Return the provider's name for the account, the same for all its keys. None if it does not say.

        Raises:
            ProviderTrouble: the provider did not answer.
        """
        ...


@runtime_checkable
class Findable(Protocol):
    """A connector that can look up one box by its id, whatever the list says."""

    async def find_box(self, lease: Lease) -> Box | None:
        """Return the lease's box as its provider shows it now. None if the provider says that there is no such box.

        Raises:
            ProviderTrouble: the provider did not say.
        """
        ...


@runtime_checkable
class Chronicling(Protocol):
    """A connector whose provider records each start and stop of a box, whoever caused it."""

    async def last_change(self, lease: Lease) -> str | None:
        """Return what its provider says of the newest start or stop of the lease's box.

        Each further start or stop changes this text. None if the provider does not say.

        Raises:
            ProviderTrouble: the provider did not answer.
        """
        ...


class Turns(NamedTuple):
    """When a box was last started and stopped, as its provider says."""

    started: str
    """The newest start, in the provider's words. Each further start changes this text."""
    stopped_at: datetime | None
    """The newest stop. None if there was none."""


@runtime_checkable
class Dating(Protocol):
    """A connector whose provider says when a box was last started, and when it was last stopped, whoever caused it."""

    async def turns(self, lease: Lease) -> Turns | None:
        """Return when the lease's box was last started and stopped. None if its provider does not say.

        Raises:
            ProviderTrouble: the provider did not answer.
        """
        ...


@runtime_checkable
class Lending(Protocol):
    """A connector with our own list of machines. Somebody else rents these machines, and may move them."""

    def let_go(self, lease: Lease) -> None:
        """Remove the lease's machine from the list, because the person or tool that rents it says so."""
        ...


@runtime_checkable
class Tended(Protocol):
    """A connector with boxes that a person manages in a console, because there is no API for them."""

    def tends(self, box_id: BoxId | None) -> bool:
        """Whether a person manages the box in a console."""
        ...

    def note_moved(self, lease: Lease, address: SshAddress) -> None:
        """Set the address of the lease's box in the list to the one that its owner has given."""
        ...

    def note_ended(self, lease: Lease) -> None:
        """Remove the lease's box from the list, because its owner has said that it is gone."""
        ...
