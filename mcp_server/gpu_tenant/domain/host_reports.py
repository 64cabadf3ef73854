"""What went wrong with a host, and how long that counts against the host."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal, NamedTuple

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.record import Line, Record

Misdeed = Literal["never ready", "failed audit", "host lost", "vanished", "stopped", "throttled"]
"""What can go wrong with a host. The words are stored in the ledger, so they must never change."""

_LEAVES_OUT: frozenset[Misdeed] = frozenset({"never ready", "failed audit", "host lost"})
"""After one of these, work on the host would most likely be lost, or never begin."""

HELD = timedelta(days=14)
DEARER = Decimal("0.25")
_MOST = 4
"""This many reports make a host count as twice as dear. More reports add nothing."""

RULE = (
    "a host that was never ready, failed an audit or was lost is left out for 14 days; each time that a host "
    "vanished, stopped or throttled, it counts as 25 % dearer for 14 days"
)


class HostReport(Record):
    """One thing that went wrong with a host, and the lease during which that was seen."""

    provider: str
    host: Line = Field(description="the machine's number at its provider")
    what: Misdeed
    words: Line
    lease_id: str
    at: AwareDatetime

    @property
    def name(self) -> str:
        """The machine's name in this program."""
        return host_name(self.provider, self.host)

    @property
    def held_until(self) -> datetime:
        """The moment until which this report counts."""
        return self.at + HELD

    @property
    def short(self) -> str:
        """What was seen, when, and by which lease."""
        return f"{self.what} on {self.at:%Y-%m-%d} ({self.lease_id})"


class HostRecord(NamedTuple):
    """Everything that counts against one host now, oldest first."""

    reports: tuple[HostReport, ...]

    @property
    def left_out_until(self) -> datetime | None:
        """Until when the host is left out, unless somebody asks for it by name. None if it is not left out."""
        until = (report.held_until for report in self.reports if report.what in _LEAVES_OUT)
        return max(until, default=None)

    @property
    def dearer(self) -> Decimal:
        """The share of the host's price that is added to it in comparisons."""
        return DEARER * min(len(self.reports), _MOST)

    @property
    def words(self) -> str:
        """What counts against the host, and until when."""
        last = self.reports[-1]
        until = self.left_out_until
        seen = ", ".join(dict.fromkeys(report.short for report in self.reports[-3:]))
        end = (
            f"counts as {self.dearer:.0%} dearer until {last.held_until:%Y-%m-%d}"
            if until is None
            else f"left out until {until:%Y-%m-%d}"
        )
        return f"host {last.name}: {seen}; {end}"


HostRecords = Mapping[str, HostRecord]
"""What counts against each host, by its name."""


NO_RECORDS: HostRecords = {}


def host_name(provider: str, host: str) -> str:
    """Return the name by which a person asks for a machine: `vastai:41`."""
    return f"{provider}:{host}"


def provider_of_host(name: str) -> str:
    """Return the provider in a host's name such as `vastai:41`.

    Raises:
        BadRequest: the name has another form.
    """
    provider, _, host = name.partition(":")
    if not provider.strip() or not host.strip():
        raise BadRequest(
            f"{name!r} does not name a host: a host is named by its provider and its number, as in vastai:41",
            remedy=f"{Command('hosts')} lists the hosts that have something on record against them",
        )
    return provider


def records_of(reports: Iterable[HostReport]) -> HostRecords:
    """Return what counts against each host that was reported."""
    found: dict[str, list[HostReport]] = {}
    for report in sorted(reports, key=lambda report: report.at):
        found.setdefault(report.name, []).append(report)
    return {name: HostRecord(tuple(each)) for name, each in found.items()}
