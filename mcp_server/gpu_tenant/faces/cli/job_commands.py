"""The commands that use a box, and end it. Each reads its arguments, calls an operation, and shows the answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest, OwnerMustAct
from gpu_tenant.domain.wording import size, some
from gpu_tenant.faces.cli import brief_lines, completion, multinode, output, sweep
from gpu_tenant.faces.cli.command import (
    AfterLeases,
    Chosen,
    as_json,
    join_words,
    lease_argument,
    lease_option,
    leases_argument,
    one_lease,
    the_lease,
    verb,
    verbose,
    words_before,
)
from gpu_tenant.faces.cli.many_leases import must_be_one, on_each
from gpu_tenant.faces.cli.quantities import GIB, HOURS, Number

if TYPE_CHECKING:
    from gpu_tenant.artifacts.push import Pushed
    from gpu_tenant.artifacts.snapshot import Snapshot
    from gpu_tenant.leases.cards import TornDown

_LOG_BYTES = 65_536


def _rate(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    from gpu_tenant.transfer.bandwidth_share import bytes_a_second

    return None if value is None else bytes_a_second(value)


_limit_option = click.option(
    "--limit",
    metavar="RATE",
    callback=_rate,
    help="use at most so many bytes a second, e.g. 20M; for all calls: limit_mb_s under [transfers] in "
    "config.toml",
)


@verb("audit")
@leases_argument
@click.option("--gpus", type=click.IntRange(1, 1024), help="how many GPUs the job needs")
@click.option("--vram-gib", type=GIB, help="memory each GPU must have")
@click.option("--disk-gib", type=GIB, help="free disk the job needs")
@click.option(
    "--burn",
    type=click.IntRange(20, 60),
    help="put the GPUs under load, and compare them with what was rented; the whole audit then takes "
    "at most so many seconds",
)
@as_json
async def audit(
    leases: Chosen,
    gpus: int | None,
    vram_gib: float | None,
    disk_gib: float | None,
    burn: int | None,
    as_json: bool,
) -> None:
    """Each finding is ok, a warning or a blocker, with the reason."""
    async with output.tenancy() as tenancy:
        await on_each(
            leases,
            tenancy,
            lambda lease: tenancy.audit(lease, gpus, vram_gib, disk_gib, burn or 0),
            as_json=as_json,
            words=output.audit,
            brief=brief_lines.audit_line,
            wrong=brief_lines.blockers,
            status=lambda audited: 1 if audited.blockers else 0,
            waits="audit",
        )


@verb("push")
@click.argument("directory", type=click.Path(), default=".")
@leases_argument
@click.option(
    "--include-secret", multiple=True, help="a file to send although it looks like a secret"
)
@click.option(
    "--overwrite",
    multiple=True,
    help="a file to replace on the box, although its bytes are saved nowhere else",
)
@click.option(
    "--include", multiple=True, help="a file, folder or link to send although it is left out"
)
@_limit_option
@as_json
async def push(
    directory: str,
    leases: Chosen,
    include_secret: tuple[str, ...],
    include: tuple[str, ...],
    overwrite: tuple[str, ...],
    limit: int | None,
    as_json: bool,
) -> None:
    """What git ignores stays here, and so do secrets, unless you name them (`--include`, `--include-secret`). The answer lists it.

    Nothing on the box is removed. A file that was written on the box and is saved nowhere else is replaced only if you
    name it (`--overwrite`).
    """
    from gpu_tenant.leases.context import call_bytes_s

    async with output.tenancy() as tenancy:
        call_bytes_s.set(limit)
        pushed: list[Pushed] = []

        async def one(lease: str) -> Pushed:
            pushed.append(
                await tenancy.push(
                    lease, directory, list(include_secret), list(overwrite), list(include)
                )
            )
            return pushed[-1]

        await on_each(
            leases,
            tenancy,
            one,
            as_json=as_json,
            words=output.print_pushed,
            brief=brief_lines.push_line,
            moves="push",
        )
        if len(pushed) == 1 and pushed[0].setup and not as_json:
            from gpu_tenant.faces.cli.setup import follow_pushed

            await follow_pushed(tenancy, pushed[0])


@verb("launch", AfterLeases)
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[LEASE] COMMAND..."
)
@lease_option
@click.option(
    "--artifact",
    multiple=True,
    help="what must be kept, as in .gitignore: out/ at any depth, ./out/ at the top",
)
@click.option("--discard", multiple=True, help="a pattern of what may be lost")
@click.option(
    "--env",
    multiple=True,
    help="a variable for the job: NAME=env:VAR, NAME=file:PATH, NAME=keyring:S/U, NAME=ref:R or NAME=text:T",
)
@click.option(
    "--env-file",
    multiple=True,
    type=click.Path(),
    help="a file here of NAME=VALUE lines; its path is on record, and no value",
)
@click.option(
    "--stalled-after",
    metavar="TIME",
    type=HOURS,
    help="stop the job when it has written nothing for so long, as in 45m",
)
@click.option("--max-runtime-h", type=HOURS, help="stop the job after so many hours")
@click.option("--name", help="the job's id; with an id, the same call again starts no second job")
@click.option(
    "--python",
    type=click.Choice(["prepared", "image"]),
    default="prepared",
    show_default=True,
    help="prepared: the environment that `prepare` made, if there is one; image: the image's own",
)
@multinode.options
@sweep.options
@verbose
@as_json
async def launch(
    command: tuple[str, ...],
    lease: str | None,
    artifact: tuple[str, ...],
    discard: tuple[str, ...],
    env: tuple[str, ...],
    env_file: tuple[str, ...],
    max_runtime_h: float | None,
    stalled_after: float | None,
    name: str | None,
    python: Literal["prepared", "image"],
    as_json: bool,
    **over: Any,
) -> None:
    """gpu-tenant launch --artifact out/ -- python3 train.py --epochs 12"""
    from gpu_tenant.providers.credentials import of_env_files

    variables = of_env_files(env_file, env)
    over_a_grid = sweep.take_options(over)
    async with output.tenancy() as tenancy:
        if over_a_grid is not None:
            begun = await sweep.launch(
                tenancy,
                command,
                lease,
                artifact,
                discard,
                variables,
                max_runtime_h=max_runtime_h,
                name=name,
                python=python,
                **over_a_grid,
            )
            output.answer(begun, as_json, sweep.table)
            return
        if multinode.is_meant(over):
            launched_on_all = await multinode.launch(
                tenancy,
                command,
                artifact,
                discard,
                variables,
                max_runtime_h=max_runtime_h,
                name=name,
                python=python,
                **over,
            )
            output.answer(launched_on_all, as_json, multinode.print_launched)
            return
        leases = {known.id for known in tenancy.ledger.leases()}
        strange = [word for word in words_before() if word not in leases]
        if strange and ("/" in strange[0] or len(words_before()) > 1 or lease is not None):
            raise BadRequest(
                f"{strange[0]!r} stands before `--`, and is no lease: the shell may have made it of a pattern",
                remedy=f"quote the pattern: {Option('artifact', 'out/*.pt')}",
            )
        if command[0] in leases:
            lease, command = one_lease(lease, command[0]), command[1:]
            if not command:
                raise BadRequest(
                    f"{lease} is a lease, not a command",
                    remedy=str(Command("launch", lease=lease, artifact="out/", then="COMMAND")),
                )
        launched = await tenancy.launch_detached(
            the_lease(lease, tenancy),
            join_words(command),
            list(artifact),
            list(discard),
            variables,
            max_runtime_h,
            name,
            python,
            stalled_after_s=None if stalled_after is None else stalled_after * 3600,
        )
        output.answer(launched, as_json, output.print_launched)
    if launched.died:
        sys.exit(1)


@verb("monitor")
@leases_argument
@click.option("--job", shell_complete=completion.jobs, help="default: the newest job")
@click.option("--cursor", type=click.IntRange(min=0), help="show the log only from this byte on")
@click.option(
    "--wait-s",
    type=Number(0, 45),
    default=0,
    show_default=True,
    help="wait at most so many seconds for the job's end",
)
@click.option(
    "--follow", "-f", is_flag=True, help="stay, with a progress bar, until the job has ended"
)
@verbose
@as_json
async def monitor(
    leases: Chosen,
    job: str | None,
    cursor: int | None,
    wait_s: float,
    follow: bool,
    as_json: bool,
) -> None:
    """Ctrl-C ends only this command: the job goes on.

    Without --follow, the status is 0, however the job ended. With --follow, it is 1 if the job did not end well.
    """
    async with output.tenancy(purpose="look") as tenancy:
        if follow or cursor is not None:
            one = must_be_one(leases, tenancy, "a log is followed, or read on, from one box")
        if follow:
            from gpu_tenant.faces.cli import bars

            seen = await bars.follow(tenancy, one, job, cursor)
            if as_json:
                output.answer(seen, as_json, output.print_watched)
            if seen.state != "finished":
                sys.exit(1)
            return
        await on_each(
            leases,
            tenancy,
            lambda lease: tenancy.follow(
                lease, job, cursor=cursor, wait_s=wait_s, limit_bytes=_LOG_BYTES
            ),
            as_json=as_json,
            words=output.print_watched,
            brief=brief_lines.watch_line,
            wrong=brief_lines.why,
        )


@verb("stop")
@leases_argument
@click.option("--job", shell_complete=completion.jobs, help="default: the newest job")
@click.option("--grace-s", type=Number(0, 600), default=20, show_default=True)
@verbose
@as_json
async def stop(leases: Chosen, job: str | None, grace_s: float, as_json: bool) -> None:
    async with output.tenancy(purpose="end") as tenancy:
        await on_each(
            leases,
            tenancy,
            lambda lease: tenancy.stop_job(lease, job, grace_s),
            as_json=as_json,
            words=output.print_watched,
            brief=brief_lines.watch_line,
            begun="goes on",
        )


@verb("collect")
@leases_argument
@click.option(
    "--to",
    type=click.Path(),
    help="a directory here; for several leases, each gets PATH/LEASE; default: the last one used, or "
    "~/.gpu-tenant/kept/LEASE",
)
@click.option("--artifact", multiple=True, help="also keep this pattern")
@click.option("--discard", multiple=True, help="give this pattern up")
@click.option(
    "--live", is_flag=True, help="while a job runs: fetch what is complete now, without a seal"
)
@click.option(
    "--keep-last",
    type=click.IntRange(min=1),
    help="with --live: keep so many of the newest checkpoints here (with --prune-box: on the box), and "
    "remove older ones",
)
@click.option(
    "--keep-every",
    type=click.IntRange(min=1),
    help="also keep those whose step is a multiple of this",
)
@click.option(
    "--prune-box",
    is_flag=True,
    help="with --live and --keep-last: older checkpoints are proved here, then removed from the box",
)
@_limit_option
@verbose
@as_json
async def collect(
    leases: Chosen,
    to: str | None,
    artifact: tuple[str, ...],
    discard: tuple[str, ...],
    live: bool,
    keep_last: int | None,
    keep_every: int | None,
    prune_box: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Repeat it after any failure: it goes on from the last byte."""
    if live and (artifact or discard):
        raise BadRequest(
            "--live takes what was declared, and gives nothing up",
            remedy="leave --artifact and --discard for the collect when the job has ended",
        )
    if not live and (keep_last or keep_every or prune_box):
        raise BadRequest(
            "a collect takes everything",
            remedy="--keep-last, --keep-every and --prune-box go with --live",
        )
    from gpu_tenant.artifacts.retention import Retention
    from gpu_tenant.leases.context import call_bytes_s
    from gpu_tenant.leases.watch_actions import pull

    async with output.tenancy() as tenancy:
        call_bytes_s.set(limit)
        leases = leases.or_the_newest(tenancy)
        several = leases.are_several(leases.leases(tenancy))

        def place(lease: str) -> str | None:
            return str(Path(to) / lease) if to is not None and several else to

        if not live:
            await on_each(
                leases,
                tenancy,
                lambda lease: tenancy.collect(lease, place(lease), list(artifact), list(discard)),
                as_json=as_json,
                words=output.print_collected,
                brief=brief_lines.collect_line,
                wrong=brief_lines.not_collected,
                moves="collect",
            )
            return
        policy = None
        if keep_last or keep_every:
            policy = Retention(keep_last=keep_last, keep_every=keep_every)
        await on_each(
            leases,
            tenancy,
            lambda lease: pull(
                tenancy.context,
                lease,
                to=place(lease),
                policy=policy,
                on_the_box="prune" if prune_box else "keep",
            ),
            as_json=as_json,
            words=_snapshot,
            brief=brief_lines.snapshot,
            moves="collect",
        )


def _snapshot(shown: Snapshot) -> None:
    """Print which files were copied, which were not, and what this proves."""
    rows: list[tuple[str, object]] = [
        ("came", f"{some(shown.files, 'file')}, {size(shown.size_bytes)}, in {shown.directory}"),
        *(("", name) for name in shown.names),
    ]
    if shown.unfinished_files:
        named = ", ".join(shown.unfinished)
        rows.append(("unfinished", f"{some(shown.unfinished_files, 'file')}: {named}"))
    if shown.left_out:
        rows.append(("left for next time", some(shown.left_out, "file")))
    rows += [("does not load", name) for name in shown.broken]
    rows += [("no room here", name) for name in shown.no_room]
    rows += [("not wanted", name) for name in shown.not_wanted]
    from gpu_tenant.domain.wording import in_words

    if shown.pruned.here:
        rows.append(("removed here", in_words(shown.pruned.here)))
    if shown.pruned.on_the_box:
        rows.append(("only here now", in_words(shown.pruned.on_the_box)))
    rows += [("stays on the box", words) for words in shown.pruned.stayed]
    rows += [
        ("takes", shown.pace),
        ("proves", shown.proves),
        ("next", shown.next),
    ]
    output.print_list(f"{shown.lease}: a look at what is complete", rows)


@verb("teardown")
@leases_argument
@click.option(
    "--ended", is_flag=True, help="you have ended the box in its console: say so, at a terminal"
)
@verbose
@as_json
async def teardown(leases: Chosen, ended: bool, as_json: bool) -> None:
    """Every kept file is re-read from this computer's disk and compared with the box first."""
    from gpu_tenant.faces.cli import sign

    async with output.tenancy(purpose="end") as tenancy:
        if not ended:
            try:
                await on_each(
                    leases,
                    tenancy,
                    tenancy.verify_and_teardown,
                    as_json=as_json,
                    words=output.receipt,
                    brief=brief_lines.torn_down,
                    begun="goes on",
                    waits="teardown",
                )
            except OwnerMustAct as asked:
                if not sys.stdin.isatty() or as_json:
                    raise
                click.echo(asked.message, err=True)
            else:
                return
        from gpu_tenant.leases.end import attest

        name = must_be_one(leases, tenancy, "one box is attested at a time")
        purpose = "when its console shows that it is gone (Ctrl-C to do it later)"
        done = await sign.with_signature(tenancy, purpose, lambda: attest(tenancy.context, name))
        output.answer(done, as_json, output.receipt)


@verb("waive")
@lease_argument
@click.option(
    "--at-deadline",
    "ahead",
    is_flag=True,
    help="sign now for what cannot be saved when the lease and its rescue sum have run out",
)
@verbose
@as_json
async def waive(lease: str | None, ahead: bool, as_json: bool) -> None:
    """Everything that would be lost is listed, and the lease's id must be typed at a terminal."""
    from gpu_tenant.faces.cli import bars, sign

    if lease is None:  # the person must name the lease, even if only one is live
        raise BadRequest("which lease?", remedy=f"name it: {Command('leases')} lists them")
    from gpu_tenant.leases.end import waive_ahead
    from gpu_tenant.leases.terms_in_force import policy_of

    async with output.tenancy(purpose="end") as tenancy:
        if ahead:
            await sign.with_signature(
                tenancy,
                "to let its box be destroyed then",
                lambda: waive_ahead(tenancy.context, lease),
            )
            output.answer(policy_of(tenancy.context, lease), as_json, output.policy)
            return
        purpose = "to destroy the box and lose all of this"

        async def waive_it() -> TornDown:
            with bars.waits("waive"):
                return await tenancy.waive(lease)

        ended = await sign.with_signature(tenancy, purpose, waive_it)
        output.answer(ended, as_json, output.receipt)
