"""The command that installs packages on the box. It shows the log of the installation until this has ended."""

import asyncio

import click

from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.box.environment.prepare import Prepared
from gpu_tenant.domain.errors import BoxUnreachable
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import as_json, lease_argument, the_lease, verb

_ASK_AGAIN_S = 5


@verb("prepare")
@lease_argument
@click.option("--source", help="a file of the tree, e.g. requirements.txt or pyproject.toml[train]")
@click.option("--clone", metavar="URL[@REF]", help="have git on the box clone the tree")
@click.option("--replay", metavar="LEASE", help="install exactly what that lease's environment had")
@click.option(
    "--env",
    multiple=True,
    help="a variable for the installation: NAME=env:VAR, NAME=file:PATH, NAME=keyring:S/U, NAME=ref:R or NAME=text:T",
)
@as_json
async def prepare(
    lease: str | None,
    source: str | None,
    clone: str | None,
    replay: str | None,
    env: tuple[str, ...],
    as_json: bool,
) -> None:
    """Ctrl-C ends only this command: the setup goes on, and the same command follows it again.

    Without --source, the first that exists is used: uv.lock, requirements.lock, requirements.txt, pyproject.toml.
    """
    async with output.tenancy() as tenancy:
        name = the_lease(lease, tenancy)
        cursor: int | None = 0
        while True:
            made = await tenancy.prepare(name, source, clone, replay, list(env), wait_s=0)
            if made.state != "running":
                break
            while True:
                try:
                    seen = await tenancy.follow(
                        name, made.job, cursor=cursor, wait_s=1, limit_bytes=65_536
                    )
                except BoxUnreachable as error:
                    click.echo(f"note: {error.message}; asking again", err=True)
                    await asyncio.sleep(_ASK_AGAIN_S)
                    continue
                cursor = seen.cursor
                click.echo(seen.log, nl=False, err=True)
                if seen.state in ENDED or seen.state == "absent":
                    break
        output.answer(made, as_json, _print_prepared)


def _print_prepared(made: Prepared) -> None:
    if made.state == "nothing to do":
        why = [("why", line) for line in made.notes]
        output.print_list(f"{made.lease}: nothing to prepare", [*why, ("next", made.next)])
        return
    output.print_list(
        f"{made.lease}: {'already prepared' if made.already else 'prepared'}",
        [
            ("from", f"{made.source}" + (f" at {made.commit}" if made.commit else "")),
            ("environment", f"{made.environment}: {made.packages} packages, by {made.installer}"),
            ("python", made.python),
            *(("held back", line) for line in made.held),
            ("image", ", ".join(f"{n} {v}" for n, v in made.image.items()) or "no framework"),
            *(("note", line) for line in made.notes),
            ("next", made.next),
        ],
    )
