"""Records what was installed on this computer, so that exactly this can be undone."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from gpu_tenant.domain.errors import LocalTrouble, Refused
from gpu_tenant.domain.record import Record
from gpu_tenant.faces.install.hosts.places import HostName
from gpu_tenant.faces.install.hosts.server_entry import Replaced
from gpu_tenant.files.planned_changes import Change, place, there

Way = Literal["copy", "link"]
KeptBy = Literal["systemd", "launchd", "cron"]


class Installed(Record):
    """What was written for one agent's program (host), in enough detail to undo it."""

    host: HostName
    project: str | None
    way: Way
    skill: str
    files: dict[str, str]
    """The files below `skill`: the digest of what was written, by name."""
    made: list[str]
    """The directories that were not there before."""
    settings: str
    settings_digest: str
    """The digest of the settings as we left them."""
    settings_before: str | None
    """The digest of the settings as they were before our first change. None if there were none."""
    replaced: Replaced | None
    """The command of our entry before this installation, if there was such an entry."""
    program: tuple[str, ...] = ()
    """What the host starts, without its last word `serve`. `doctor` tries it."""

    @property
    def directories(self) -> set[str]:
        """The directories that may be empty after this is undone."""
        below = [Path(self.skill) / name for name in self.files]
        inside = {str(p) for f in below for p in f.parents if p.is_relative_to(self.skill)}
        return {*inside, *self.made}


class WrittenFile(Record):
    """One file that keeps the watchdog running."""

    path: str
    digest: str
    """The digest of the file as we left it."""
    before: str | None
    """The digest of the file as it was before our first change. None if there was none."""


class WatchdogInstall(Record):
    """What was written so that the watchdog keeps running."""

    by: KeptBy
    name: str
    written: tuple[WrittenFile, ...]
    made: list[str]
    """The directories that were not there before."""
    program: tuple[str, ...] = ()
    """What is kept running, without its arguments. `doctor` tries it."""

    @property
    def directories(self) -> set[str]:
        """The directories that may be empty after this is undone."""
        return {*self.made}

    def wrote(self, path: Path) -> WrittenFile | None:
        """Return what is recorded about that file. None if it was not written."""
        return next((one for one in self.written if one.path == str(path)), None)


Entry = Installed | WatchdogInstall


class Register(Record):
    """Everything that was written, for all hosts and for the watchdog."""

    installed: tuple[Installed, ...] = ()
    watchdog: WatchdogInstall | None = None

    def of(self, host: HostName, project: str | None) -> Installed | None:
        """Return what was written for that host in that project. None if nothing was."""
        return next((i for i in self.installed if (i.host, i.project) == (host, project)), None)

    def without(self, gone: Entry | None) -> "Register":
        """Return the register without that entry."""
        return Register(
            installed=tuple(i for i in self.installed if i != gone),
            watchdog=None if self.watchdog == gone else self.watchdog,
        )

    def also(self, entry: Entry) -> "Register":
        """Return the register with one more entry."""
        if isinstance(entry, WatchdogInstall):
            return self.model_copy(update={"watchdog": entry})
        return self.model_copy(update={"installed": (*self.installed, entry)})

    def answering_for(self, directories: Sequence[str]) -> "Register":
        """Return the register in which one of the entries also removes these directories when it is undone."""
        entries: list[Entry] = [*self.installed, *([self.watchdog] if self.watchdog else [])]
        if not entries or not directories:
            return self
        made = sorted({*entries[0].made, *directories})
        return self.without(entries[0]).also(entries[0].model_copy(update={"made": made}))


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned changes for one host, or for the watchdog."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    register: Path
    was: Entry | None
    becomes: Entry | None

    @property
    def wanted(self) -> bool:
        """Whether the plan has anything to do."""
        return bool(self.changes) or self.becomes != self.was


def carry_out(plan: Plan) -> None:
    """Make all changes of `plan`. Each file is written completely or not at all, with a backup if the change wants one.

    Raises:
        Refused: a file has changed since the plan was made; nothing was changed.
        LocalTrouble: a file could not be written; running the same command again continues.
    """
    for change in plan.changes:
        if change.now() != change.before:
            raise Refused(
                f"{change.path} was changed meanwhile, and nothing was written",
                remedy="run the same command again",
            )
    kept = read(plan.register).without(plan.was)
    try:
        if plan.becomes is not None:  # first, so that an interrupted installation can be undone
            _write(plan.register, kept.also(plan.becomes))
        for change in plan.changes:
            change.make()
        if plan.was is not None and plan.becomes is None:
            left = _without_empty(plan.was.directories)
            _write(plan.register, kept.answering_for(left))
            _without_empty(left)  # now also the register's own directory
    except OSError as error:
        raise LocalTrouble(
            f"{error.filename or plan.register}: {error.strerror}",
            remedy="correct that, then run the same command again: it continues from there",
        ) from error


def read(register: Path) -> Register:
    """Read everything that was written.

    Raises:
        Refused: the file cannot be understood.
    """
    content = there(register)
    try:
        return Register.model_validate_json(content) if isinstance(content, bytes) else Register()
    except ValidationError:
        raise Refused(
            f"{register} cannot be read as the list of what was installed",
            remedy="look at that file; if you move it away, nothing counts as installed by this command",
        ) from None


def _write(register: Path, said: Register) -> None:
    if said == Register():
        register.unlink(missing_ok=True)
        return
    # Make the directory private, as the ledger would, because the ledger will be in it.
    register.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    place(register, said.model_dump_json(indent=1).encode(), 0o600)


def _without_empty(directories: Iterable[str]) -> list[str]:
    """Remove those of the directories that are empty. Return the others that exist."""
    for directory in sorted(directories, key=len, reverse=True):
        with suppress(OSError):
            Path(directory).rmdir()
    return [directory for directory in directories if Path(directory).is_dir()]
