"""The command that shows which hosts (machines of a marketplace) failed before, and can forget this."""

from __future__ import annotations

import click
from pydantic import AwareDatetime

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.host_reports import RULE, HostReport
from gpu_tenant.domain.record import Record
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import as_json, verb


class RememberedHost(Record):
    """One host that failed before, and what it did."""

    host: str
    left_out_until: AwareDatetime | None
    words: str
    reports: tuple[HostReport, ...]


class Hosts(Record):
    """All hosts that failed before, and the rule by which they are left out."""

    rule: str
    hosts: tuple[RememberedHost, ...]


@verb("hosts")
@click.option("--forget", metavar="HOST", help="count nothing against it, as in vastai:41")
@as_json
async def hosts(forget: str | None, as_json: bool) -> None:
    """A host that never let us in, or failed an audit, is not rented again for two weeks.

    Only a platform that says which machine an offer is on has hosts here: Vast.ai does.
    """
    async with output.tenancy(purpose="look" if forget is None else "work") as tenancy:
        now = tenancy.clock.now()
        if forget is not None:
            tenancy.context.must_record()
            tenancy.ledger.forget_host(forget, at=now)
        records = tenancy.ledger.host_records(at=now)
        shown = Hosts(
            rule=RULE,
            hosts=tuple(
                RememberedHost(
                    host=name,
                    left_out_until=record.left_out_until,
                    words=record.words,
                    reports=record.reports,
                )
                for name, record in records.items()
            ),
        )
        output.answer(shown, as_json, _print)


def _print(shown: Hosts) -> None:
    for host in shown.hosts:
        click.echo(host.words)
        for report in host.reports:
            click.echo(f"  {report.at:%Y-%m-%d %H:%M} UTC  {report.what}: {report.words}")
    if not shown.hosts:
        click.echo("nothing is held against any host")
        return
    first = shown.hosts[0].host
    click.echo(f"rule: {shown.rule}")
    click.echo(
        f"next: {output.step(str(Command('hosts', forget=first)))} forgets what the host did"
    )
