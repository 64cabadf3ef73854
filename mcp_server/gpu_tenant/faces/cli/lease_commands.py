"""The commands that find a box, rent it, and change its terms."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from gpu_tenant.domain.choices import MOST_BOXES, USUAL_TRUST, Trust, WhenDone, WhenIdle
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, Refused
from gpu_tenant.faces.cli import completion, lease_table, output, prompts
from gpu_tenant.faces.cli.command import (
    P,
    T,
    as_json,
    command_argument,
    join_words,
    lease_argument,
    name_option,
    one_lease,
    the_lease,
    verb,
    verbose,
)
from gpu_tenant.faces.cli.quantities import (
    GB_MOVED,
    GIB,
    HOURS,
    HOURS_OR_NONE,
    ON_FAILURE,
    USD,
    Number,
)

if TYPE_CHECKING:
    from gpu_tenant.leases.cards import Card
    from gpu_tenant.leases.offers import Found
    from gpu_tenant.leases.spending_plan import SpendingPlan
    from gpu_tenant.service import Tenancy


@verb("smoke")
@click.argument("directory", type=click.Path())
@command_argument
@click.option(
    "--time-limit-s", type=Number(min=0, min_open=True, max=86_400), default=120, show_default=True
)
@click.option(
    "--include", multiple=True, help="a file, folder or link to copy although `push` leaves it out"
)
@verbose
@as_json
async def smoke(
    directory: str,
    command: tuple[str, ...],
    time_limit_s: float,
    include: tuple[str, ...],
    as_json: bool,
) -> None:
    """The command runs with CUDA hidden, in a copy of what `push` would send of DIRECTORY. `provision` needs its receipt."""
    async with output.tenancy() as tenancy:
        receipt = await tenancy.run_smoke(directory, join_words(command), time_limit_s, include)
        output.answer(receipt, as_json, output.smoke)
    if not receipt.passed:
        sys.exit(1)


@verb("init")
@click.argument("directory", type=click.Path(), default=".")
@click.option("--schema", is_flag=True, help="print the file's JSON schema, and write nothing")
async def init(directory: str, schema: bool) -> None:
    """It has every part of an order in a comment, and orders nothing yet. An existing file is left as it is."""
    from pathlib import Path

    from gpu_tenant.files.order_file import SCHEMA, write_first
    from gpu_tenant.files.paths import must_be_named

    if schema:
        click.echo(SCHEMA.read_text(encoding="utf-8"), nl=False)
        return
    path = write_first(Path(must_be_named(directory)))
    click.echo(f"{path}: take the comments off what the work needs, then `gpu-tenant offers` there")


def _in_force(_: click.Context, __: click.Parameter, named: str | None) -> str:
    """Return the named order file, or else the one of this directory."""
    if named is not None:
        if not named.strip():
            raise click.BadParameter("no file is named; `none` orders nothing")
        return named
    from pathlib import Path

    from gpu_tenant.files.order_file import NAME, find_order

    return NAME if find_order(Path()) else ""


_order = click.option(
    "--order",
    metavar="FILE",
    callback=_in_force,
    help="the file with the box's image, disk and variables, or `none`; default: gpu-tenant.toml here, if there is one",
)


@verb("offers")
@click.option("--gpu", help="as in 'H100:8' or 'RTX 4090 | RTX 3090', the best first; default: any")
@click.option(
    "--hours",
    type=HOURS,
    default=1,
    show_default=True,
    help="how long the work takes on the GPU that is named first",
)
@click.option("--hours-on", metavar="GPU", help="the GPU that the hours are for, if not the first")
@click.option(
    "--like",
    metavar="LEASE",
    help="the work is the same command as that lease's newest job: --hours is for its GPU, and speeds "
    "are as you measured them",
)
@click.option(
    "--limited-by",
    type=click.Choice(["memory", "fp32", "tf32", "bf16", "fp16"]),
    default="memory",
    show_default=True,
    help="what the work's speed depends on: GPUs are compared by this figure of their datasheets",
)
@click.option("--max-price-usd-h", type=USD, help="for the whole box, disk included")
@click.option("--vram-gib", type=GIB, help="memory each GPU must have")
@click.option(
    "--disk-gb", type=click.IntRange(8, 100_000), help="default: what the order says, or else 40"
)
@click.option("--region", help="part of a region's name")
@click.option(
    "--trust",
    type=click.Choice(get_args(Trust)),
    default=USUAL_TRUST,
    show_default=True,
    help="whose machine is good enough",
)
@click.option(
    "--interruptible",
    type=click.Choice(["no", "yes", "either"]),
    default="no",
    show_default=True,
    help="a cheaper box, which the provider may take away",
)
@click.option("--upload-gb", type=GB_MOVED, default=0, help="what will be moved to the box")
@click.option("--download-gb", type=GB_MOVED, default=0, help="what will be moved off the box")
@click.option(
    "--on",
    "provider",
    metavar="PROVIDER",
    shell_complete=completion.platforms,
    help="only this provider",
)
@click.option("--provider", "named_before", hidden=True)
@click.option(
    "--host", help="only this host, as in vastai:41, even if it failed before (`gpu-tenant hosts`)"
)
@click.option("--limit", type=click.IntRange(1, 50), default=8, show_default=True)
@click.option("--explain", is_flag=True, help="why each is ranked where it is")
@click.option(
    "--wait",
    "wait_h",
    type=HOURS,
    metavar="DURATION",
    help="wait so long for an offer; nothing is rented (`provision --wait` rents)",
)
@_order
@verbose
@as_json
async def offers(
    gpu: str | None,
    hours: float,
    hours_on: str | None,
    like: str | None,
    limited_by: str,
    max_price_usd_h: Decimal | None,
    vram_gib: float | None,
    disk_gb: int | None,
    region: str | None,
    trust: Trust,
    interruptible: Literal["no", "yes", "either"],
    upload_gb: float,
    download_gb: float,
    provider: str | None,
    named_before: str | None,
    host: str | None,
    limit: int,
    explain: bool,
    wait_h: float | None,
    order: str,
    as_json: bool,
) -> None:
    """All providers whose key is found, and your own machines, are asked at the same time; nothing is rented."""
    from gpu_tenant.faces.cli import offers_table
    from gpu_tenant.faces.cli.limits import as_owner
    from gpu_tenant.faces.cli.standing import search_offers

    async with output.tenancy() as tenancy:

        async def find() -> Found:
            return await tenancy.search_offers(
                gpu,
                provider=provider or named_before,
                explain="explain" if explain else "",
                limit=limit,
                hours=hours,
                hours_on=hours_on,
                like=like,
                limited_by=limited_by,
                max_price_usd_h=max_price_usd_h,
                vram_gib=vram_gib,
                disk_gb=disk_gb,
                region=region,
                trust=trust,
                interruptible=interruptible,
                upload_gb=upload_gb,
                download_gb=download_gb,
                host=host,
                order=order,
                smoke=_tested_here(tenancy) or "none",
            )

        found = await search_offers(tenancy, wait_h, lambda: as_owner(tenancy, find))
        output.answer(
            found, as_json, offers_table.print_explained if explain else offers_table.print_found
        )
    if not found.offers:
        sys.exit(1)


_DONE = (
    click.option(
        "--when-done",
        type=click.Choice(get_args(WhenDone)),
        help="once all its jobs have ended: `end` tears the box down if its files are proved "
        "(default where you rent), `keep` waits for you (default on a machine of your own)",
    ),
    click.option(
        "--on-failure",
        type=ON_FAILURE,
        metavar="WORDS",
        help="if a job failed: `end` after 1 min, or 10 min if you are there (default), `end after 15m`, `park` or `keep`",
    ),
    click.option(
        "--unasked-gib",
        type=click.FloatRange(min=0),
        help="what nobody declared comes home too, up to so much; default: 2, or what comes in ten minutes; 0: none",
    ),
)


def _terms(function: Callable[P, T]) -> Callable[P, T]:
    """Add the options for the terms of a new lease."""
    for option in (
        click.option(
            "--hours",
            type=HOURS,
            help="hours until the deadline, when its jobs are stopped; default: by the quote, or else 24",
        ),
        click.option("--price-usd-h", type=USD, help="what the box costs, if you know"),
        click.option(
            "--max-price-usd-h", type=USD, help="price cap; a box with an unknown price is refused"
        ),
        click.option(
            "--budget-usd",
            type=USD,
            help="cap for the whole lease, with the cost of ending it; a watchdog enforces it",
        ),
        click.option(
            "--idle-h",
            type=HOURS_OR_NONE,
            help="how long the box may be idle; default: 2 where it bills; 0: no limit",
        ),
        click.option(
            "--when-idle",
            type=click.Choice(get_args(WhenIdle)),
            default="end",
            help="if it is idle for longer: end the lease (default), or only raise an alarm",
        ),
        *_DONE,
        click.option(
            "--rescue-usd",
            type=USD,
            help="what may be spent after the end to save files, if you have signed `waive --at-deadline`; "
            "default: a day's cost",
        ),
        click.option(
            "--store",
            help="a second place for artifacts: a directory, rclone:REMOTE:PATH, or a name",
        ),
        click.option(
            "--recover",
            multiple=True,
            help="where the work goes on if the box is lost: `same` (provider), or another provider; may be "
            "repeated, in order",
        ),
        name_option,
    ):
        function = option(function)
    return function


@verb("provision")
@click.option(
    "--quote",
    "quotes",
    multiple=True,
    shell_complete=completion.quotes,
    help="from `offers`; may be repeated, in order",
)
@click.option(
    "--on", "provider", default="local", help="without a quote: `local`, this computer (default)"
)
@_terms
@click.option(
    "--unguarded",
    type=click.Choice(["refuse", "accept"]),
    default="refuse",
    help="`accept` rents although a day costs over 100 USD and nothing ends the bill if this computer "
    "dies: a person signs",
)
@click.option(
    "--smoke",
    help="id of a passed smoke test, or `none` to go without; default: the newest of this directory",
)
@click.option(
    "--count",
    type=click.IntRange(1, MOST_BOXES),
    default=1,
    help="rent so many boxes, by the offers that the search has shown: --max-price-usd-h and --budget-usd are for all together; the same call "
    "again continues with these boxes",
)
@click.option(
    "--at-least",
    type=click.IntRange(1, MOST_BOXES),
    default=None,
    help="with --count: keep so many boxes if there are not more; default: all of them or none",
)
@click.option(
    "--wait",
    "wait_h",
    type=HOURS,
    metavar="DURATION",
    help="wait so long until any provider has such a box under the price cap: a box like the quotes, "
    "or like the wish of a search that found none; after this command, the watchdog waits on",
)
@click.option("--yes", is_flag=True, help="at a terminal, do not ask before renting")
@_order
@verbose
@as_json
async def provision(
    quotes: tuple[str, ...],
    provider: str,
    unguarded: Literal["refuse", "accept"],
    smoke: str | None,
    wait_h: float | None,
    yes: bool,
    at_least: int | None,
    as_json: bool,
    recover: tuple[str, ...],
    **terms: Any,
) -> None:
    """The meter may run from here: always end with `gpu-tenant teardown`. At a terminal you are asked first."""
    import asyncio

    from gpu_tenant.faces.cli import bars
    from gpu_tenant.faces.cli.limits import as_owner
    from gpu_tenant.faces.cli.standing import wait_for_box

    async with output.tenancy() as tenancy:
        before = tenancy.ledger.lease_ids()
        if quotes and not yes and not as_json and prompts.is_at_terminal():
            plan = await tenancy.plan_provision(
                provider, quotes=quotes, wait_h=wait_h or 0, recover=list(recover), **terms
            )
            if plan is not None and not await _is_agreed(plan):
                click.echo("nothing is rented", err=True)
                sys.exit(1)

        async def provision_waiting(wait_s: float) -> Card:
            with bars.waits("provision"):
                return await tenancy.provision(
                    provider,
                    quotes=list(quotes),
                    smoke=smoke or _tested_here(tenancy),
                    wait_h=wait_h or 0,
                    wait_s=wait_s,
                    unguarded=unguarded,
                    at_least=at_least or 0,
                    recover=list(recover),
                    **terms,
                )

        try:
            card = await as_owner(
                tenancy,
                lambda: wait_for_box(
                    tenancy, quotes, provision_waiting, is_wait=wait_h is not None
                ),
            )
        except asyncio.CancelledError:
            for line in _what_stands(tenancy, before):
                click.echo(line, err=True)
            raise
        output.answer(card, as_json, lease_table.provisioned_in(tenancy))
    if card.together is not None and card.together.missing:
        sys.exit(1)


async def _is_agreed(plan: SpendingPlan) -> bool:
    """Show the plan to the person at the terminal, and ask. Return whether they agree."""
    for line in plan.lines:
        click.echo(f"  {line}", err=True)
    click.echo(f"  {plan.cost}", err=True)
    return await prompts.choice("Rent it?", ("yes", "no"), default="no") == "yes"


def _tested_here(tenancy: Tenancy) -> str | None:
    """Return the id of the newest smoke test of this directory, if it passed. Another project's never counts."""
    from gpu_tenant.jobs.smoke import newest_test_of

    with suppress(OSError):
        receipt = newest_test_of(str(Path.cwd()), ledger=tenancy.ledger)
        return receipt.id if receipt is not None else None
    return None


def _what_stands(tenancy: Tenancy, before: set[str]) -> Iterator[str]:
    """Say what an interrupted `provision` has begun: each lease that is not in `before`, and what ends its bill."""
    for lease in tenancy.ledger.leases("live"):
        if lease.id in before:
            continue
        how = (
            "its box may be being made" if lease.box_id is None else f"its box {lease.box_id} boots"
        )
        if lease.ready_at is not None:
            how = f"its box {lease.box_id} runs"
        price = "at a price that is not known yet"
        if lease.price_usd_h is not None:
            price = f"at {lease.price_usd_h} USD/h"
        yield (
            f"{lease.id} stands: {how}, and bills {price} until {lease.terms.deadline_at:%Y-%m-%d %H:%M} UTC; "
            f"{Command('leases')} continues with it, {Command('teardown', lease.id)} gives it back"
        )


@verb("call-off")
@click.argument("wish")
@as_json
async def call_off(wish: str, as_json: bool) -> None:
    """If a box was already rented for the wish, it stays under its lease, and the answer says so."""
    async with output.tenancy() as tenancy:
        output.answer(
            await tenancy.change_lease(wish, "call_off"), as_json, output.card_in(tenancy)
        )


@verb("adopt")
@click.argument("target", required=False)
@click.option(
    "--on",
    "provider",
    default="own",
    shell_complete=completion.platforms,
    help="the platform at which the box is rented; default: your own machine",
)
@_terms
@click.option(
    "--password-stdin",
    "by_password",
    is_flag=True,
    help="read the console's password from stdin, once, to install our key",
)
@click.option(
    "--from",
    "source",
    metavar="TOOL:NAME",
    help="instead of TARGET: skypilot:CLUSTER or dstack:RUN; that tool goes on renting the box",
)
@click.option(
    "--recovers",
    help="with --from: the earlier lease, if the tool has moved the work to another box",
)
@click.option(
    "--take-over",
    "over",
    metavar="NAME",
    help="take the box over from this lease or gpu-tenant, whose mark is on the box but which no longer exists; a person signs",
)
@verbose
@as_json
async def adopt(
    target: str | None,
    provider: str,
    price_usd_h: Decimal | None,
    by_password: bool,
    source: str | None,
    recovers: str | None,
    over: str | None,
    as_json: bool,
    store: str | None,
    name: str,
    **terms: Any,
) -> None:
    """TARGET is user@host[:port], an ssh alias, or the console's own ssh command in quotes. Where the
    platform has an API, the box's id there will do, too: the box is looked for in the platform's list. For a notebook
    that nobody can log in to, this prints what to paste into it."""
    from gpu_tenant.domain.terms import RentRequest
    from gpu_tenant.faces.cli.limits import as_owner

    if source is not None and (target is not None or by_password or provider != "own"):
        raise BadRequest(
            "--from says where the box is and who may come in",
            remedy=f"{Command('adopt', from_=source)}, without TARGET, --on and --password-stdin",
        )
    if recovers is not None and source is None:
        raise BadRequest(
            "--recovers is for a box that another tool moved",
            remedy=f"with --from skypilot:CLUSTER or dstack:RUN; else {Command('recover', recovers)}",
        )
    from gpu_tenant.leases import adopt as adopting
    from gpu_tenant.leases.adopt_external import adopt_from
    from gpu_tenant.leases.names import must_be_labels

    terms["labels"] = must_be_labels(name)
    async with output.tenancy() as tenancy:
        if source is not None:
            asked = RentRequest(store=tenancy.context.known_store(store), **terms)
            taken = await as_owner(
                tenancy,
                lambda: adopt_from(
                    tenancy.context, source, asked=asked, price_usd_h=price_usd_h, recovers=recovers
                ),
            )
            output.answer(taken, as_json, output.card_in(tenancy))
            return
        cell = adopting.bootstrap(tenancy.context, provider) if target is None else None
        if cell is not None:
            click.echo(cell)
            return
        if over is not None:
            question = f"Nobody is at work there for {over} any more: type {over} to take its place"
            typed = prompts.signature(
                question, instead="its owner runs the same command in a terminal"
            )
            if typed.strip() != over:
                raise Refused(
                    f"what was typed is not {over}: the box is as it was",
                    remedy="use the lease that stands on it, or the same command again",
                )
        password = prompts.password() if by_password else None
        card = await as_owner(
            tenancy,
            lambda: adopting.adopt(
                tenancy.context,
                provider,
                target,
                asked=RentRequest(store=tenancy.context.known_store(store), **terms),
                price_usd_h=price_usd_h,
                password=password,
                over=over,
            ),
        )
        output.answer(card, as_json, output.card_in(tenancy))


@verb("extend")
@lease_argument
@click.option(
    "--hours",
    type=HOURS,
    required=True,
    help="hours from now to the new deadline",
)
@click.option("--budget-usd", type=USD, help="total cap from now on; default: as it was")
@verbose
@as_json
async def extend(
    lease: str | None, hours: float, budget_usd: Decimal | None, as_json: bool
) -> None:
    """The guard on the box learns the new deadline first."""
    await _change(lease, "extend", hours=hours, budget_usd=budget_usd, as_json=as_json)


@verb("terms")
@lease_argument
@click.option("--max-price-usd-h", type=USD, help="price cap")
@click.option("--budget-usd", type=USD, help="total cap")
@click.option("--idle-h", type=HOURS_OR_NONE, help="how long the box may be idle; 0: no limit")
@click.option(
    "--rescue-usd",
    type=USD,
    help="what may be spent after the end to save files, if you have signed `waive --at-deadline`",
)
@_DONE[0]
@_DONE[1]
@_DONE[2]
@name_option
@as_json
async def terms(lease: str | None, as_json: bool, **given: Any) -> None:
    """Options change the terms, up or down; `extend` moves the deadline."""
    from gpu_tenant.faces.cli.limits import as_owner
    from gpu_tenant.leases.terms_in_force import policy_of

    changes = any(value not in (None, "") for value in given.values())
    async with output.tenancy(purpose="work" if changes else "look") as tenancy:
        name = the_lease(lease, tenancy)
        if changes:
            await as_owner(tenancy, lambda: tenancy.change_lease(name, "terms", **given))
        output.answer(policy_of(tenancy.context, name), as_json, output.policy)


@verb("hold")
@click.argument("words", nargs=-1, metavar="[LEASE] DURATION")
@click.option("--lease", "named", help="the same as LEASE; not needed while only one is live")
@as_json
async def hold(words: tuple[str, ...], named: str | None, as_json: bool) -> None:
    """More work is coming: for DURATION (`30m`, `2h`; `0` cancels it) the lease is not ended although
    its work is done. Its deadline, its budget and its other terms still hold."""
    if not 1 <= len(words) <= 2:
        raise BadRequest("for how long?", remedy=str(Command("hold", "LEASE", "30m")))
    hours = HOURS_OR_NONE.convert(words[-1], None, None)
    lease = one_lease(words[0] if len(words) == 2 else None, named)
    await _change(lease, "hold", hours=hours, as_json=as_json)


@verb("park")
@lease_argument
@verbose
@as_json
async def park(lease: str | None, as_json: bool) -> None:
    """Refused while a job runs, and where the platform would empty a disk that was used."""
    await _change(lease, "park", as_json=as_json)


@verb("resume")
@lease_argument
@click.option("--at", "address", help="the address that the console shows now: user@host:port")
@click.option(
    "--hours",
    type=HOURS,
    help="hours from now to the new deadline; needed where the old one has passed",
)
@click.option("--budget-usd", type=USD, help="total cap from now on; needed where it is spent")
@verbose
@as_json
async def resume(
    lease: str | None,
    address: str | None,
    hours: float | None,
    budget_usd: Decimal | None,
    as_json: bool,
) -> None:
    """The GPU may be rented to somebody else by now; the disk is kept in any case."""
    await _change(
        lease, "resume", hours=hours, address=address, budget_usd=budget_usd, as_json=as_json
    )


async def _change(
    lease: str | None,
    action: Literal["extend", "park", "resume", "hold"],
    *,
    hours: float | None = None,
    address: str | None = None,
    budget_usd: Decimal | None = None,
    as_json: bool,
) -> None:
    from gpu_tenant.faces.cli.limits import as_owner

    async with output.tenancy() as tenancy:
        name = the_lease(lease, tenancy)
        card = await as_owner(
            tenancy,
            lambda: tenancy.change_lease(
                name, action, hours=hours, address=address, budget_usd=budget_usd
            ),
        )
        output.answer(card, as_json, output.card_in(tenancy))


@verb("recover")
@lease_argument
@click.option("--max-price-usd-h", type=USD, help="price cap from now on; default: as it was")
@as_json
async def recover(lease: str | None, max_price_usd_h: Decimal | None, as_json: bool) -> None:
    """Its job starts again from the newest checkpoint that is here, by the identical command. The new box is rented
    where the terms say (`provision --recover`), or else at the same platform. The deadline stays, and only the rest of
    the budget may be spent. Repeat until the job runs."""
    from gpu_tenant.faces.cli.limits import as_owner
    from gpu_tenant.leases import recover as recovering

    async with output.tenancy() as tenancy:
        name = the_lease(lease, tenancy)
        begins = await recovering.begins_words(tenancy.context, name)
        if begins:
            click.echo(begins, err=True)
        card = await as_owner(
            tenancy,
            lambda: recovering.recover(
                tenancy.context, name, max_price_usd_h=max_price_usd_h, wait_s=3600
            ),
        )
        if begins and not as_json:
            told = begins.split("; ")
            news = [words for words in card.recovered.split("; ") if words not in told]
            card = card.model_copy(update={"recovered": "; ".join(news)})
        output.answer(card, as_json, output.card_in(tenancy))
