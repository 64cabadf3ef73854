"""The seams to the outside world: the clock, the transport to a box, the connector to a provider."""

from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from gpu_tenant.model import Box, Lease
from gpu_tenant.permit import TeardownPermit


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> datetime:
        """The current instant, aware, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when that much time has passed on this clock."""
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    """A command on the box that ran to its end."""

    exit_status: int
    """The command's own status; 128 + n where signal n ended it, as a shell says."""
    stdout: bytes
    stderr: bytes


class Transport(Protocol):
    """The way to one box, kept open between calls and re-opened as needed.

    Remote paths are relative to the login home unless absolute. Text that stands for a file name
    is in Python's surrogateescape form, so a name that is not UTF-8 survives the trip.
    """

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | AsyncIterable[bytes] = b"", timeout_s: float
    ) -> Finished:
        """The command has ended, whatever its status; its output is here whole.

        Raises:
            BoxUnreachable: the box did not answer, the link broke, or `timeout_s` passed.
            HostKeyChanged: another host key answered than the pinned one; nothing was sent.

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

    async def get(self, source: str, destination: Path, *, on_bytes: Callable[[int], None]) -> None:
        """`destination` has grown to hold the bytes of `source`, fsynced; what was there is kept.

        Resumes: bytes already in `destination` are taken for a prefix of `source` and not fetched
        again (the caller proves the whole by hash). `on_bytes` is told the length of each chunk.

        Raises:
            BoxUnreachable, HostKeyChanged: as for `run`.
            BoxTrouble: the box would not give it (no such file, no permission).
            DiskFull: no room here; what arrived stays and the next call goes on from it.

        After any other exception `destination` is a prefix of what `source` held.
        """
        ...

    async def aclose(self) -> None:
        """The connection is closed. Nothing on the box was stopped by it."""
        ...


class Connector(Protocol):
    """One provider's API, in our words. It knows its provider and nothing else."""

    async def create(self, lease: Lease) -> Box:
        """A box marked with `lease.mark` exists; exactly one, also when called again for one lease.

        Raises:
            ProviderTrouble: no box could be had.

        After any other exception a box may exist: list before you try again.
        """
        ...

    async def list_boxes(self) -> Sequence[Box]:
        """Every box of this account as the provider shows it now, ours and others'.

        Raises:
            ProviderTrouble: the provider did not answer; nothing may be concluded.
        """
        ...

    async def destroy(self, permit: TeardownPermit) -> None:
        """The provider was told to destroy the permitted box, or does not have it.

        Returning is not proof: the box is gone when `list_boxes` has omitted it, twice.

        Raises:
            PermitForged: `permit` was not minted by verification, or is for another provider.
            ProviderTrouble: the provider refused; the box is as it was.

        After any other exception the box may or may not exist.
        """
        ...
