"""The commands, one function each: read the arguments, call the verb, show the answer."""

import asyncio
import getpass
import signal
import sys
from collections.abc import Awaitable, Callable
from decimal import Decimal, InvalidOperation
from typing import ParamSpec, TypeVar

import click

from gpu_tenant.cli import SUMMARIES, show
from gpu_tenant.errors import BadRequest, Refused

P = ParamSpec("P")
T = TypeVar("T")

COMMANDS: dict[str, click.Command] = {}


class _Usd(click.ParamType[Decimal]):
    name = "usd"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Decimal:
        try:
            amount = Decimal(str(value))
        except InvalidOperation:
            self.fail(f"{value!r} is no amount of money", param, ctx)
        if not amount.is_finite() or amount < 0:
            self.fail(f"{value!r} is no amount of money", param, ctx)
        return amount


USD = _Usd()
as_json = click.option("--json", "as_json", is_flag=True, help="the answer as JSON, on stdout")
lease_argument = click.argument("lease", required=False)
command_argument = click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)


def verb(name: str) -> Callable[[Callable[P, Awaitable[None]]], click.Command]:
    """The coroutine as the command `name`, on the list, with its summary."""

    def wrap(function: Callable[P, Awaitable[None]]) -> click.Command:
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            async def once() -> None:
                await function(*args, **kwargs)

            asyncio.run(once())

        run.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        help_text = SUMMARIES[name] + (f"\n\n{function.__doc__}" if function.__doc__ else "")
        command = click.command(
            name, help=help_text, context_settings={"ignore_unknown_options": False}
        )(run)
        COMMANDS[name] = command
        return command

    return wrap


def joined(words: tuple[str, ...]) -> str:
    """The command line that was meant: one quoted string as it is, several words quoted again."""
    import shlex

    return words[0] if len(words) == 1 else shlex.join(words)


def the_lease(named: str | None, tenancy: show.Opened) -> str:
    """The lease that was named, or the only live one.

    Raises:
        BadRequest: none was named, and not exactly one is live.
    """
    if named is not None:
        return named
    live = [lease.id for lease in tenancy.ledger.leases() if lease.state.live]
    if len(live) == 1:
        return live[0]
    raise BadRequest(
        f"which lease? {', '.join(live)} are live" if live else "no lease is live",
        remedy="name one; `gpu-tenant leases` lists them"
        if live
        else "`gpu-tenant provision` or `gpu-tenant adopt` makes one; `leases --all` lists ended ones",
    )


@verb("smoke")
@click.argument("directory", type=click.Path())
@command_argument
@click.option("--time-limit-s", type=float, default=120, show_default=True)
@as_json
async def smoke(
    directory: str, command: tuple[str, ...], time_limit_s: float, as_json: bool
) -> None:
    """The command runs in a copy of DIRECTORY with CUDA hidden. Its receipt opens `provision`."""
    async with show.tenancy() as tenancy:
        receipt = await tenancy.smoke_test(directory, joined(command), time_limit_s)
        show.answer(receipt, as_json, show.smoke)
    if not receipt.passed:
        sys.exit(1)


def _terms(function: Callable[P, T]) -> Callable[P, T]:
    for option in (
        click.option(
            "--hours",
            type=float,
            default=24,
            show_default=True,
            help="until the deadline, when the box stops its jobs",
        ),
        click.option("--price-usd-h", type=USD, help="what the box costs, if you know"),
        click.option(
            "--max-price-usd-h", type=USD, help="price cap; an unknown price does not pass it"
        ),
        click.option("--budget-usd", type=USD, help="total cap; passing it alarms"),
    ):
        function = option(function)
    return function


@verb("provision")
@click.option("--on", "provider", default="local", show_default=True, help="the provider")
@_terms
@click.option("--smoke", help="id of a passed smoke test, or `none` to go without")
@as_json
async def provision(
    provider: str,
    hours: float,
    price_usd_h: Decimal | None,
    max_price_usd_h: Decimal | None,
    budget_usd: Decimal | None,
    smoke: str | None,
    as_json: bool,
) -> None:
    """The meter may run from here: always end with `gpu-tenant teardown`."""
    async with show.tenancy() as tenancy:
        card = await tenancy.provision(
            provider, None, hours, price_usd_h, max_price_usd_h, budget_usd, smoke
        )
        show.answer(card, as_json, show.card)


@verb("adopt")
@click.argument("target")
@_terms
@as_json
async def adopt(
    target: str,
    hours: float,
    price_usd_h: Decimal | None,
    max_price_usd_h: Decimal | None,
    budget_usd: Decimal | None,
    as_json: bool,
) -> None:
    """TARGET is user@host[:port], or an alias of your ssh config. Its host key is pinned."""
    async with show.tenancy() as tenancy:
        card = await tenancy.provision(
            "own", target, hours, price_usd_h, max_price_usd_h, budget_usd
        )
        show.answer(card, as_json, show.card)


@verb("audit")
@lease_argument
@click.option("--gpus", type=int, help="how many GPUs the job needs")
@click.option("--vram-gib", type=float, help="memory each GPU must have")
@click.option("--disk-gib", type=float, help="free disk the job needs")
@as_json
async def audit(
    lease: str | None,
    gpus: int | None,
    vram_gib: float | None,
    disk_gib: float | None,
    as_json: bool,
) -> None:
    """Each finding is ok, a warning or a blocker, with the reason."""
    async with show.tenancy() as tenancy:
        audited = await tenancy.audit(the_lease(lease, tenancy), gpus, vram_gib, disk_gib)
        show.answer(audited, as_json, show.audit)
    if audited.blockers:
        sys.exit(1)


@verb("push")
@click.argument("directory", type=click.Path())
@lease_argument
@click.option(
    "--include-secret", multiple=True, help="a file to send although it looks like a secret"
)
@as_json
async def push(
    directory: str, lease: str | None, include_secret: tuple[str, ...], as_json: bool
) -> None:
    """.gitignore is honoured, nothing on the box is removed, and secrets stay here unless named."""
    async with show.tenancy() as tenancy:
        with show.bytes_bar("push"):
            pushed = await tenancy.push(the_lease(lease, tenancy), directory, list(include_secret))
        show.answer(pushed, as_json, show.pushed)


@verb("launch")
@command_argument
@click.option("--lease", help="the lease; may be left out while only one is live")
@click.option(
    "--artifact",
    multiple=True,
    help="what must be kept, as in .gitignore: out/ at any depth, ./out/ at the top",
)
@click.option("--discard", multiple=True, help="a pattern of what may be lost")
@click.option("--env", multiple=True, help="NAME=env:VAR, file:PATH, keyring:S/U, cmd:C or text:T")
@click.option("--max-runtime-h", type=click.FloatRange(min=0, min_open=True))
@click.option("--name", help="the job's id; naming it makes a retry safe")
@as_json
async def launch(
    command: tuple[str, ...],
    lease: str | None,
    artifact: tuple[str, ...],
    discard: tuple[str, ...],
    env: tuple[str, ...],
    max_runtime_h: float | None,
    name: str | None,
    as_json: bool,
) -> None:
    """gpu-tenant launch --artifact out/ -- python3 train.py --epochs 12"""
    async with show.tenancy() as tenancy:
        if command[0] in {known.id for known in tenancy.ledger.leases()}:
            raise BadRequest(
                f"{command[0]} is a lease, not a command",
                remedy=f"`gpu-tenant launch --lease {command[0]} --artifact out/ -- COMMAND`",
            )
        launched = await tenancy.launch_detached(
            the_lease(lease, tenancy), joined(command), list(artifact), list(discard), list(env),
            max_runtime_h, name,
        )  # fmt: skip
        show.answer(launched, as_json, show.launched)


@verb("monitor")
@lease_argument
@click.option("--job", help="the newest when left out")
@click.option("--cursor", type=click.IntRange(min=0), help="only log from this byte on")
@click.option("--wait-s", type=click.FloatRange(0, 45), default=0, show_default=True)
@click.option(
    "--follow", "-f", is_flag=True, help="stay, with a progress bar, until the job has ended"
)
@as_json
async def monitor(
    lease: str | None,
    job: str | None,
    cursor: int | None,
    wait_s: float,
    follow: bool,
    as_json: bool,
) -> None:
    """Leaving with Ctrl-C leaves the job alone."""
    async with show.tenancy() as tenancy:
        name = the_lease(lease, tenancy)
        if follow:
            seen = await show.follow(tenancy, name, job, cursor)
            if as_json:
                show.answer(seen, as_json, show.watched)
            if seen.state != "finished":
                sys.exit(1)
        else:
            seen = await tenancy.follow(name, job, cursor=cursor, wait_s=wait_s, limit_bytes=65_536)
            show.answer(seen, as_json, show.watched)


@verb("stop")
@lease_argument
@click.option("--job", help="the newest when left out")
@click.option("--grace-s", type=click.FloatRange(0, 600), default=20, show_default=True)
@as_json
async def stop(lease: str | None, job: str | None, grace_s: float, as_json: bool) -> None:
    async with show.tenancy() as tenancy:
        seen = await tenancy.stop_job(the_lease(lease, tenancy), job, grace_s)
        show.answer(seen, as_json, show.watched)


@verb("collect")
@lease_argument
@click.option(
    "--to",
    type=click.Path(),
    help="a directory here; when left out, the last one used, or ~/.gpu-tenant/kept/LEASE",
)
@click.option("--artifact", multiple=True, help="also keep this pattern")
@click.option("--discard", multiple=True, help="give this pattern up")
@as_json
async def collect(
    lease: str | None,
    to: str | None,
    artifact: tuple[str, ...],
    discard: tuple[str, ...],
    as_json: bool,
) -> None:
    """Repeat it after any failure: it goes on from the last byte."""
    async with show.tenancy() as tenancy:
        with show.bytes_bar("collect"):
            collected = await tenancy.collect(
                the_lease(lease, tenancy), to, list(artifact), list(discard)
            )
        show.answer(collected, as_json, show.collected)


@verb("teardown")
@lease_argument
@as_json
async def teardown(lease: str | None, as_json: bool) -> None:
    """Every kept file is re-read from this computer's disk and compared with the box first."""
    async with show.tenancy() as tenancy:
        ended = await tenancy.verify_and_teardown(the_lease(lease, tenancy))
        show.answer(ended, as_json, show.receipt)


@verb("waive")
@click.argument("lease")
@as_json
async def waive(lease: str, as_json: bool) -> None:
    """The loss is listed, and the lease's id must be typed at a terminal."""
    async with show.tenancy() as tenancy:
        report = await tenancy.assess_loss(lease)
        show.losses(report)
        if not sys.stdin.isatty():
            raise Refused(
                "a waiver is signed by a person at a terminal, and this is none; nothing was destroyed",
                remedy=f"run `gpu-tenant waive {lease}` in a terminal",
            )
        # asyncio would only note the first Ctrl-C, and this prompt must heed it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        typed = click.prompt(f"Type {lease} to destroy the box and lose all of this", err=True)
        ended = await tenancy.waive(
            lease, shown_digest=report.digest, typed=typed, signed_by=getpass.getuser()
        )
        show.answer(ended, as_json, show.receipt)


@verb("leases")
@click.option("--all", "every", is_flag=True, help="ended ones too")
@as_json
async def leases(every: bool, as_json: bool) -> None:
    async with show.tenancy() as tenancy:
        show.answer(await tenancy.list_leases("all" if every else "live"), as_json, show.leases)


@verb("doctor")
@as_json
async def doctor(as_json: bool) -> None:
    async with show.tenancy() as tenancy:
        checkup = await tenancy.doctor()
        show.answer(checkup, as_json, show.checkup)
    if not checkup.healthy:
        sys.exit(1)


@verb("profiles")
@click.argument("slug", required=False)
@as_json
async def profiles(slug: str | None, as_json: bool) -> None:
    """With SLUG: that platform's runbook."""
    async with show.tenancy() as tenancy:
        if slug is not None and slug not in tenancy.profiles:
            raise BadRequest(f"no profile {slug!r}", remedy="`gpu-tenant profiles` lists them")
        chosen = [p for s, p in tenancy.profiles.items() if slug in (None, s)]
        show.profiles(chosen, as_json, whole=slug is not None)


@verb("serve")
@click.option("--read-only", is_flag=True, help="only the tools that look")
async def serve(read_only: bool) -> None:
    """For MCP hosts: `claude mcp add gpu -- gpu-tenant serve`."""
    from gpu_tenant.server import make_server

    await make_server("read-only" if read_only else "full").run_stdio_async()


@verb("demo")
@click.option(
    "--keep", type=click.Path(), help="where the model goes; a temporary place when left out"
)
async def demo(keep: str | None) -> None:
    """No account, no SSH server, no network: the box is a private directory with real processes."""
    from gpu_tenant.cli.tour import tour

    await tour(keep)
