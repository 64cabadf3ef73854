"""The command that installs the skill and the server for an agent's program, or keeps the watchdog running.

It also has a shell complete our commands.
"""

import os
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import cast, get_args

import click

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.record import Record
from gpu_tenant.faces.cli import completion, output
from gpu_tenant.faces.cli.command import as_json, verb
from gpu_tenant.faces.install.hosts.places import HostName, Places, places, this_program
from gpu_tenant.faces.install.plan import plan, plan_removal
from gpu_tenant.faces.install.registry import KeptBy, Plan, carry_out
from gpu_tenant.faces.install.shell_completion import Shell
from gpu_tenant.faces.install.shell_completion import plan as plan_completion
from gpu_tenant.faces.install.watchdog_service import EVERY_S, begin
from gpu_tenant.faces.install.watchdog_service import plan as plan_service
from gpu_tenant.faces.install.watchdog_service import plan_removal as plan_service_removal
from gpu_tenant.files.planned_changes import BACKUP, Change
from gpu_tenant.files.state_dir import Home


class FileChange(Record):
    """One file of an installation."""

    path: str
    does: str


class Installation(Record):
    """The changes for one agent's program (host): done, or only planned."""

    host: HostName
    skill: str
    settings: str
    changes: list[FileChange]
    diff: str
    done: bool
    notes: list[str]
    next: str


class KeepingWatch(Record):
    """The changes that keep the watchdog running: done, or only planned."""

    by: KeptBy
    changes: list[FileChange]
    diff: str
    runs: list[str]
    """The commands that start the watchdog, or end it."""
    done: bool
    notes: list[str]
    next: str


class ShellCompletion(Record):
    """The change that lets a shell complete our commands: done, or only planned."""

    shell: Shell
    changes: list[FileChange]
    done: bool
    next: str


@verb("install")
@click.argument("what", type=click.Choice([*get_args(HostName), "watchdog", "completion"]))
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="for this directory alone, not for the whole user",
)
@click.option("--link", is_flag=True, help="link the skill's directories instead of copying them")
@click.option(
    "--by",
    type=click.Choice(get_args(KeptBy)),
    help="what keeps the watchdog running; default: what this computer has",
)
@click.option(
    "--every",
    type=click.IntRange(10, 1800),
    metavar="SECONDS",
    help=f"how often the watchdog looks; default: {EVERY_S}, by cron 120",
)
@click.option(
    "--shell", type=click.Choice(get_args(Shell)), help="with completion; default: your shell"
)
@click.option("--remove", is_flag=True, help="take back what this command wrote, and nothing else")
@click.option("--yes", is_flag=True, help="do not ask")
@as_json
async def install(
    what: str,
    project: Path | None,
    link: bool,
    by: KeptBy | None,
    every: int | None,
    shell: Shell | None,
    remove: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Shows what would change and asks first; without a terminal and without --yes it only shows.

    A host's settings are changed in place: other servers, comments and the file's mode stay. The
    watchdog becomes a systemd unit, a launchd agent or a line of your crontab, and starts at once.
    """
    _must_be_without(shell and what != "completion", "--shell is", "completion")
    if what == "completion":
        _must_be_without(project or link, "--project and --link are", "a host")
        _must_be_without(by or every, "--by and --every are", "watchdog")
        _complete(shell, remove, yes, as_json)
        return
    if what == "watchdog":
        _must_be_without(project or link, "--project and --link are", "a host")
        _keep_watch(by, every, remove, yes, as_json)
        return
    _must_be_without(by or every, "--by and --every are", "watchdog")
    host, project = cast(HostName, what), project and project.resolve()
    wanted = f"{host} --project {shlex.quote(str(project))}" if project else host
    there = places(host, user=Path.home(), project=project, environ=os.environ)
    register = Home.of(os.environ).installed
    if remove:
        planned = plan_removal(there, project=project, register=register)
    else:
        planned = plan(
            there,
            way="link" if link else "copy",
            project=project,
            command=[*this_program(sys.argv[0], os.environ, wanted=wanted), "serve"],
            register=register,
        )
    if not as_json:
        _tell(planned.changes, there.skills / "gpu-tenant")
        _note(planned)
    done = planned.wanted and _agrees(yes, as_json)
    if done:
        carry_out(planned)
    answer = _answer(planned, there, done=done)
    output.answer(answer, as_json, lambda shown: click.echo(shown.next, err=True))


def _keep_watch(
    by: KeptBy | None, every_s: int | None, remove: bool, yes: bool, as_json: bool
) -> None:
    home = Home.of(os.environ)
    if remove:
        service = plan_service_removal(home)
    else:
        from gpu_tenant.app import known_platforms

        service = plan_service(
            home,
            by=by,
            every_s=every_s,
            program=this_program(sys.argv[0], os.environ, wanted="watchdog"),
            profiles=known_platforms().values(),
            environ=os.environ,
        )
    runs = [" ".join(command) for command in (*service.before, *service.after)]
    if not as_json:
        _tell(service.plan.changes, None)
        for line in runs:
            click.echo(f"{'runs':<8} {line}")
        if service.line:
            click.echo(service.line)
        _note(service.plan)
    done = service.wanted and _agrees(yes, as_json)
    if done:
        begin(service)
    nobody_keeps_it = bool(service.line) and yes
    if nobody_keeps_it:
        words = f"nothing was installed, and no watchdog runs: {service.then}"
    elif service.line or done:
        words = service.then
    elif service.wanted:
        words = "nothing was changed; with --yes it is"
    else:
        words = f"nothing to change; {service.then}" if service.then else "nothing to change"
    kept = KeepingWatch(
        by=service.by,
        changes=_file_changes(service.plan.changes),
        diff=_diff(service.plan.changes),
        runs=[service.line] if service.line else runs,
        done=done,
        notes=list(service.plan.notes),
        next=words,
    )
    output.answer(kept, as_json, lambda shown: click.echo(shown.next, err=True))
    if nobody_keeps_it:
        sys.exit(1)


def _complete(shell: Shell | None, remove: bool, yes: bool, as_json: bool) -> None:
    planned = plan_completion(
        shell, os.environ, script=completion.script, does="remove" if remove else "write"
    )
    if not as_json:
        for change in planned.changes:
            click.echo(f"{change.does:<8} {change.path}")
    done = bool(planned.changes) and _agrees(yes, as_json)
    if done:
        for change in planned.changes:
            change.make()
    if not planned.changes:
        words = "nothing to change" if remove else f"nothing to change; {planned.then}"
    elif not done:
        words = "nothing was changed; with --yes it is"
    else:
        words = "taken back" if remove else planned.then
    answer = ShellCompletion(
        shell=planned.shell, changes=_file_changes(planned.changes), done=done, next=words
    )
    output.answer(answer, as_json, lambda shown: click.echo(shown.next, err=True))


def _must_be_without(given: object, options: str, what: str) -> None:
    if given:
        raise BadRequest(f"{options} for {what}", remedy="`gpu-tenant install --help`")


def _agrees(yes: bool, as_json: bool) -> bool:
    if yes or as_json or not sys.stdin.isatty():
        return yes
    return click.confirm("make these changes?", err=True)


def _tell(changes: tuple[Change, ...], skill: Path | None) -> None:
    parts: Counter[str] = Counter()
    for change in changes:
        if skill is not None and change.path.is_relative_to(skill):
            parts[change.does] += 1
        else:
            click.echo(f"{change.does:<8} {change.path}")
    for does, count in parts.items():
        click.echo(f"{does:<8} {count} files of the skill, in {skill} (--json names each)")
    click.echo(_diff(changes), nl=False)


def _note(planned: Plan) -> None:
    for note in planned.notes:
        click.echo(f"note: {note}", err=True)


def _file_changes(changes: tuple[Change, ...]) -> list[FileChange]:
    return [FileChange(path=str(c.path), does=c.does) for c in changes]


def _diff(changes: tuple[Change, ...]) -> str:
    return "".join(change.diff() for change in changes)


def _answer(planned: Plan, there: Places, *, done: bool) -> Installation:
    if not planned.wanted:
        words = "nothing to change"
    elif not done:
        words = "nothing was changed; with --yes it is"
    elif planned.becomes is None:
        words = f"taken back; start {there.title} again"
    else:
        words = (
            f"done; start {there.title} again (`--remove` takes it back; backups end in {BACKUP})"
        )
    return Installation(
        host=there.host,
        skill=str(there.skills / "gpu-tenant"),
        settings=str(there.settings),
        changes=_file_changes(planned.changes),
        diff=_diff(planned.changes),
        done=done,
        notes=list(planned.notes),
        next=words,
    )
