"""Keeps the watchdog running on this computer: plans which files to write and which commands to run, and does it."""

import getpass
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_tenant.domain.errors import BadRequest, LocalTrouble, Refused
from gpu_tenant.domain.model import Profile
from gpu_tenant.faces.install.hosts import crontab
from gpu_tenant.faces.install.hosts.service_units import cron_line, plist, unit
from gpu_tenant.faces.install.registry import (
    KeptBy,
    Plan,
    WatchdogInstall,
    WrittenFile,
    carry_out,
    read,
)
from gpu_tenant.faces.install.service_environment import must_start_alone, what_is_lacking
from gpu_tenant.files.planned_changes import (
    Change,
    Content,
    backup_of,
    digest,
    missing_above,
    plan_replacement,
    there,
)
from gpu_tenant.files.rehearsal_marker import rehearsal_of
from gpu_tenant.files.state_dir import Home

NAME = "gpu-tenant-watchdog"
EVERY_S = 60
_EVERY_MIN = 2
"""The interval in minutes for cron. It is longer than others, because cron starts the whole program each time."""

Command = tuple[str, ...]

_TABLE = Path("crontab")
"""This path means the user's crontab, which is not an ordinary file."""


class TableChange(Change):
    """A change of the crontab, which is not a file."""

    context_lines = 0  # Other lines may contain keys, so the diff shows only our lines.

    def now(self) -> Content:
        """Return the crontab as it is now."""
        return crontab.read()

    def put(self) -> None:
        """Write the crontab as the change makes it."""
        crontab.write(self.after if isinstance(self.after, bytes) else None)


@dataclass(frozen=True, slots=True)
class Service:
    """The files and commands that keep the watchdog running, or that undo this."""

    by: KeptBy
    name: str
    plan: Plan
    before: tuple[Command, ...]
    """Commands that run before the files are written. They may fail, for example if there is nothing to stop."""
    after: tuple[Command, ...]
    then: str
    """What a person must know or do afterwards."""
    line: str = ""
    """A line that the person must add themselves, because this computer has no program that can."""

    @property
    def wanted(self) -> bool:
        """Whether there is anything to do."""
        return self.plan.wanted or bool(self.after)


def plan(
    home: Home,
    *,
    by: KeptBy | None,
    every_s: int | None,
    program: Sequence[str],
    profiles: Iterable[Profile],
    environ: Mapping[str, str],
) -> Service:
    """Plan the changes after which the watchdog runs from now on.

    Raises:
        Refused: the watchdog is kept running in another way already, or the program needs this shell to start.
        BadRequest: this is a rehearsal.
        LocalTrouble: the configuration cannot be read.
    """
    if rehearsal_of(home.root):
        raise BadRequest(
            "this is a rehearsal, which ends with its terminal",
            remedy="`gpu-tenant watchdog` in another terminal with the same GPU_TENANT_HOME watches it",
        )
    register = home.installed
    was = read(register).watchdog
    chosen = by or (was.by if was else _usual(environ))
    if was is not None and was.by != chosen:
        raise Refused(
            f"{was.by} keeps the watchdog running already",
            remedy="first `gpu-tenant install watchdog --remove`",
        )
    must_start_alone(program)
    notes = [*what_is_lacking(home.configuration, profiles, environ)]
    match chosen:
        case "systemd":
            return _systemd(home, program, every_s or EVERY_S, environ, was, notes)
        case "launchd":
            return _launchd(home, program, every_s or EVERY_S, was, notes)
        case "cron":
            return _cron(home, program, every_s, was, notes)


def plan_removal(home: Home) -> Service:
    """Plan the changes that undo what this command wrote, so that the watchdog is not kept running any more.

    Raises:
        Refused: a file cannot be read, or the marks in the crontab were changed.
    """
    register = home.installed
    was = read(register).watchdog
    if was is None:
        nothing = Plan(
            (),
            ("this command installed nothing here, so there is nothing to remove",),
            register,
            None,
            None,
        )
        return Service("cron", _name(home), nothing, (), (), "")
    notes: list[str] = []
    changes = [
        change
        for written in was.written
        if (change := _taken_back(home, was.name, written, notes)) is not None
    ]
    before: tuple[Command, ...] = ()
    after: tuple[Command, ...] = ()
    if was.by == "systemd" and _systemd_answers():
        before = (("systemctl", "--user", "stop", _unit_name(was.name)),)
        after = (("systemctl", "--user", "daemon-reload"),)
    elif was.by == "launchd":
        before = (("launchctl", "bootout", f"{_domain()}/{was.name}"),)
    planned = Plan(tuple(changes), tuple(notes), register, was, None)
    then = (
        "from now on, nothing on this computer watches your leases; look at them yourself, with"
        " `gpu-tenant leases`"
    )
    return Service(was.by, was.name, planned, before, after, then)


def begin(service: Service) -> None:
    """Write the files as planned, and start or end the service that they describe.

    Raises:
        Refused: a file has changed since the plan was made; nothing was changed.
        LocalTrouble: a file could not be written, or the service does not start.
    """
    for command in service.before:
        _run(command)
    carry_out(service.plan)
    for command in service.after:
        ran = _run(command)
        if ran.returncode:
            said = " ".join((ran.stderr or ran.stdout).split())[:300] or f"status {ran.returncode}"
            raise LocalTrouble(
                f"everything is written, but `{' '.join(command)}` failed: {said}",
                remedy="correct that, then run the same command again; until then, run"
                " `gpu-tenant watchdog` in a terminal that you leave open",
            )


# The three ways


def _systemd(
    home: Home,
    program: Sequence[str],
    every_s: int,
    environ: Mapping[str, str],
    was: WatchdogInstall | None,
    notes: list[str],
) -> Service:
    name = _name(home)
    units = _units(environ)
    text = unit([*program, "watchdog", "--every", str(every_s)], _variables(home))
    file = units / _unit_name(name)
    # This is the link that `systemctl enable` would make. It is written here, so that the person
    # sees it before, and it can be undone exactly.
    link = units / "default.target.wants" / file.name
    planned = _plan(home, "systemd", program, {file: text.encode(), link: file}, was, notes)
    after: tuple[Command, ...] = ()
    if _systemd_answers():
        running = _run(("systemctl", "--user", "is-active", "--quiet", file.name)).returncode == 0
        if planned.changes or not running:
            after = (
                ("systemctl", "--user", "daemon-reload"),
                ("systemctl", "--user", "restart", file.name),
            )
        then = f"it runs; `journalctl --user -u {name}` shows what it does"
        if not Path("/var/lib/systemd/linger", getpass.getuser()).exists():
            then += (
                "; it ends when you log out, and then nothing watches your leases; to keep it running,"
                " run `loginctl enable-linger`"
            )
    else:
        then = (
            "the files are written, but the watchdog does not run yet: your user has no running systemd"
            " here (usual in a container, or after `su`). It starts at your next login, if that has a"
            " systemd. Until then, run `gpu-tenant watchdog` in a terminal that you leave open"
        )
    return Service("systemd", name, planned, (), after, then)


def _launchd(
    home: Home, program: Sequence[str], every_s: int, was: WatchdogInstall | None, notes: list[str]
) -> Service:
    name, log = _name(home), _log(home)
    file = Path.home() / "Library/LaunchAgents" / f"{name}.plist"
    text = plist(name, [*program, "watchdog", "--every", str(every_s)], _variables(home), log)
    notes.append("the file for launchd follows its documentation; it has not been tested on a Mac")
    planned = _plan(home, "launchd", program, {file: text}, was, notes)
    stops = ("launchctl", "bootout", f"{_domain()}/{name}")
    starts = ("launchctl", "bootstrap", _domain(), str(file))
    running = _run(("launchctl", "print", f"{_domain()}/{name}")).returncode == 0
    due = bool(planned.changes) or not running
    then = f"it runs while you are logged in and the computer is awake; its messages are in {log}"
    return Service(
        "launchd",
        name,
        planned,
        (stops,) if due and running else (),
        (starts,) if due else (),
        then,
    )


def _cron(
    home: Home,
    program: Sequence[str],
    every_s: int | None,
    was: WatchdogInstall | None,
    notes: list[str],
) -> Service:
    name, log, register = _name(home), _log(home), home.installed
    every_min = _EVERY_MIN if every_s is None else max(1, -(-every_s // 60))
    line = cron_line([*program, "watchdog", "--once"], _variables(home), log, every_min=every_min)
    if crontab.program() is None:
        there_is_none = Plan((), tuple(notes), register, was, was)
        then = "there is no `crontab` here: add that line to whatever runs commands on a schedule"
        return Service("cron", name, there_is_none, (), (), then, line)
    before = crontab.read()
    after = crontab.with_lines(before or b"", name, line)
    known = was.wrote(_TABLE) if was else None
    untouched = known is not None and digest(before) == known.digest
    changes: list[Change] = []
    if after != before:
        backup = home.root / backup_of(_TABLE)
        changes = [
            TableChange(_TABLE, before, after, 0o600, "none" if untouched else "kept", backup)
        ]
    first = None if before is None else digest(before)
    written = WrittenFile(path=str(_TABLE), digest=digest(after), before=first)
    if known is not None:  # Lines that somebody else added since must not be undone.
        left_as = written.digest if changes else known.digest
        written = known.model_copy(update={"digest": left_as})
    made = {*(was.made if was else ()), *missing_above([register])}
    becomes = WatchdogInstall(
        by="cron", name=name, program=tuple(program), written=(written,), made=sorted(made)
    )
    then = f"cron starts it every {every_min} min while the computer is awake; its messages are in {log}"
    return Service(
        "cron", name, Plan(tuple(changes), tuple(notes), register, was, becomes), (), (), then
    )


def _plan(
    home: Home,
    by: KeptBy,
    program: Sequence[str],
    files: Mapping[Path, Content],
    was: WatchdogInstall | None,
    notes: Sequence[str],
) -> Plan:
    changes: list[Change] = []
    written: list[WrittenFile] = []
    for path, content in files.items():
        known = was.wrote(path) if was else None
        before = there(path)
        change = plan_replacement(path, content, 0o644, known=known.digest if known else None)
        if change is not None and change.before is None:
            # `diff` shows a new file only if `backup` is set. No backup is made, because there was no file.
            change = replace(change, backup="kept")
        changes += [change] if change else []
        first = known.before if known else None if before is None else digest(before)
        written.append(WrittenFile(path=str(path), digest=digest(content), before=first))
    register = home.installed
    made = {*(was.made if was else ()), *missing_above([*(c.path for c in changes), register])}
    becomes = WatchdogInstall(
        by=by, name=_name(home), program=tuple(program), written=tuple(written), made=sorted(made)
    )
    return Plan(tuple(changes), tuple(notes), register, was, becomes)


def _taken_back(home: Home, name: str, written: WrittenFile, notes: list[str]) -> Change | None:
    """Plan the change that restores the file as it was before this command. None if there is nothing to change."""
    path = Path(written.path)
    if path == _TABLE:
        return _table_taken_back(home, name, written)
    now, backup = there(path), there(backup_of(path))
    if now is None or written.digest == written.before:
        return None  # The file is gone already, or was there before our installation.
    if digest(now) != written.digest:
        notes.append(f"{path} was changed after it was installed, so it is left as it is")
        return None
    if written.before is not None and digest(backup) == written.before:
        return Change(path, now, backup, backup="used up")
    return Change(path, now, None)


def _table_taken_back(home: Home, name: str, written: WrittenFile) -> Change | None:
    now = crontab.read()
    after: Content = crontab.without_lines(now or b"", name)
    if now is None or after == now:
        return None
    if not after and written.before is None:
        after = None
    return TableChange(_TABLE, now, after, 0o600, "used up", home.root / backup_of(_TABLE))


# This computer


def _usual(environ: Mapping[str, str]) -> KeptBy:
    if sys.platform == "darwin":
        return "launchd"
    return "systemd" if _units(environ).parent.is_dir() or _systemd_answers() else "cron"


def _systemd_answers() -> bool:
    """Whether this user has a running systemd on this computer."""
    if shutil.which("systemctl") is None:
        return False
    return _run(("systemctl", "--user", "show", "--property=Version")).returncode == 0


def _run(command: Command) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def _units(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd/user"


def _unit_name(name: str) -> str:
    return f"{name}.service"


def _domain() -> str:
    return f"gui/{os.getuid()}"


def _name(home: Home) -> str:
    """Return the service's name. It is different for each state directory, because each has its own leases."""
    return NAME if _is_usual(home) else f"{NAME}-{digest(str(home.root).encode())[:8]}"


def _is_usual(home: Home) -> bool:
    return home.root == Path.home() / ".gpu-tenant"


def _variables(home: Home) -> dict[str, str]:
    return {} if _is_usual(home) else {"GPU_TENANT_HOME": str(home.root)}


def _log(home: Home) -> Path:
    return home.root / "watchdog.log"
