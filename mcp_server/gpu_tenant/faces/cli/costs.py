"""The command that says what is paid."""

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.wording import usd_words
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import as_json, verb, verbose
from gpu_tenant.faces.report.costs import Costs, LeaseCost, costs_of


@verb("costs")
@verbose
@as_json
async def costs(as_json: bool) -> None:
    """Now, today and this month (UTC), by project and platform, and what bills without a box. Every provider is asked.

    An expense claim for any period is `gpu-tenant report --all --since DAY`.
    """
    async with output.tenancy(purpose="look") as tenancy:
        told = costs_of(tenancy.context, await tenancy.list_leases())
    output.answer(told, as_json, _print)


def _print(told: Costs) -> None:
    foreign = (
        f"; besides, {told.foreign_usd_h} USD/h of boxes that are not ours"
        if told.foreign_usd_h
        else ""
    )
    month = usd_words(told.month_usd)
    if (
        told.leases
        and told.promised_month_usd is not None
        and told.promised_month_usd > told.month_usd
    ):
        month += f"; {usd_words(told.promised_month_usd)} if each lease runs to its deadline"
    every = output.is_verbose()
    places = told.by_platform if every or len(told.by_platform) > 1 else {}
    projects = told.by_project if every or len(told.by_project) > 1 else {}
    rows: list[tuple[str, object]] = [
        *((one.lease, _burning(one)) for one in told.leases),
        ("today", usd_words(told.today_usd)),
        ("this month", month),
        *((f"  {name}", usd_words(usd)) for name, usd in places.items()),
        *((f"  {name}", usd_words(usd)) for name, usd in projects.items()),
        *(
            ("limit", words)
            for name, words in told.limits.items()
            if every or name in told.near_limits
        ),
        *(("no box", words) for words in told.without_a_box),
        *(("not counted", words) for words in told.not_counted),
    ]
    if told.leaking_usd_month:
        leaks = f"{usd_words(told.leaking_usd_month)} a month, of boxes on which no job runs"
        rows.append(("idle", f"{leaks}; {Command('leases')}"))
    output.print_list(f"now {told.usd_h} USD/h{foreign}", rows)
    if not told.leases and not told.month_usd:
        click.echo("nothing of ours bills, and this month nothing has", err=True)


def _burning(one: LeaseCost) -> str:
    rate = "at an unknown rate" if one.usd_h is None else f"{one.usd_h} USD/h"
    end = (
        f", {usd_words(one.by_deadline_usd)} by its deadline"
        if one.by_deadline_usd is not None
        else ""
    )
    named = f" ({one.name})" if one.name else ""
    return f"{rate}; {usd_words(one.cost_usd)} so far{end}{named}"
