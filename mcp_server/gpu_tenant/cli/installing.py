"""The command that brings the skill and the server to an agent's host."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

import click

from gpu_tenant.cli import show
from gpu_tenant.cli.command import as_json, verb
from gpu_tenant.hosts.places import HostName, places, this_command
from gpu_tenant.install import BACKUP, Plan, carry_out, plan, plan_removal
from gpu_tenant.record import Record
from gpu_tenant.store import Home


class Changed(Record):
    """One file of an installation."""

    path: str
    does: str


class Installation(Record):
    """What was changed for one host, or would be."""

    host: HostName
    skill: str
    settings: str
    changes: list[Changed]
    diff: str
    done: bool
    notes: list[str]
    next: str


@verb("install")
@click.argument("host", type=click.Choice(get_args(HostName)))
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="for this directory alone, not for the whole user",
)
@click.option("--link", is_flag=True, help="link the skill's directories instead of copying them")
@click.option("--remove", is_flag=True, help="take back what this command wrote, and nothing else")
@click.option("--yes", is_flag=True, help="do not ask")
@as_json
async def install(
    host: HostName, project: Path | None, link: bool, remove: bool, yes: bool, as_json: bool
) -> None:
    """Shows what would change and asks first; without a terminal and without --yes it only shows.

    A host's settings are changed in place: other servers, comments and the file's mode stay.
    """
    project = project and project.resolve()
    there = places(host, user=Path.home(), project=project, environ=os.environ)
    register = Home.of(os.environ).root / "installed.json"
    if remove:
        planned = plan_removal(there, project=project, register=register)
    else:
        planned = plan(
            there,
            way="link" if link else "copy",
            project=project,
            command=this_command(sys.argv[0]),
            register=register,
        )
    wanted = bool(planned.changes) or planned.becomes != planned.was
    if not as_json:
        _tell(planned)
    asked = wanted and not yes and not as_json and sys.stdin.isatty()
    done = wanted and (yes or (asked and click.confirm("make these changes?", err=True)))
    if done:
        carry_out(planned)
    answer = _answer(planned, done=done)
    show.answer(answer, as_json, lambda shown: click.echo(shown.next, err=True))


def _tell(planned: Plan) -> None:
    skill = planned.places.skills / "gpu-tenant"
    parts: Counter[str] = Counter()
    for change in planned.changes:
        path = Path(change.path)
        if path.is_relative_to(skill):
            parts[change.does] += 1
        else:
            click.echo(f"{change.does:<8} {path}")
    for does, count in parts.items():
        click.echo(f"{does:<8} {count} files of the skill, in {skill} (--json names each)")
    for change in planned.changes:
        click.echo(change.diff(), nl=False)
    for note in planned.notes:
        click.echo(f"note: {note}", err=True)


def _answer(planned: Plan, *, done: bool) -> Installation:
    wanted = bool(planned.changes) or planned.becomes != planned.was
    title = planned.places.title
    if not wanted:
        words = "nothing to change"
    elif not done:
        words = "nothing was changed; with --yes it is"
    elif planned.becomes is None:
        words = f"taken back; start {title} again"
    else:
        words = f"done; start {title} again (`--remove` takes it back; backups end in {BACKUP})"
    return Installation(
        host=planned.places.host,
        skill=str(planned.places.skills / "gpu-tenant"),
        settings=str(planned.places.settings),
        changes=[Changed(path=str(c.path), does=c.does) for c in planned.changes],
        diff="".join(change.diff() for change in planned.changes),
        done=done,
        notes=list(planned.notes),
        next=words,
    )
