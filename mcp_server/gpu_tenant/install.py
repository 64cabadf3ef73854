"""The skill and the server's entry, in the files of one host: what would change, and then the change."""

import difflib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from gpu_tenant.errors import LocalTrouble, Refused
from gpu_tenant.hosts.json_text import Broken
from gpu_tenant.hosts.places import ALIAS, SKILL, HostName, Places
from gpu_tenant.hosts.servers import Replaced, with_server, without_server
from gpu_tenant.record import Record
from gpu_tenant.skill import skill_directory

Way = Literal["copy", "link"]
Content = bytes | Path | None
"""A file's bytes, where a link leads, or that nothing is there."""

PARTS = ("SKILL.md", "profiles", "references", "scripts")
BACKUP = ".before-gpu-tenant"

_SECRET = re.compile(
    r'(?i)((?:key|token|secret|passw|auth|credential|cookie)[\w.-]*"?\s*[:=]\s*)("[^"]*"|\'[^\']*\')'
)


class Installed(Record):
    """What this command wrote for one host, so that it can take back that and nothing else."""

    host: HostName
    project: str | None
    way: Way
    skill: str
    files: dict[str, str]
    """Below `skill`: the digest of what was written, by name."""
    made: list[str]
    """The directories that were not there before."""
    settings: str
    settings_digest: str
    """Of the settings as they were left."""
    settings_before: str | None
    """Of the settings as they were before any of this; None when there were none."""
    replaced: Replaced | None
    """What our entry said before, where one stood there already."""


class Register(Record):
    """Everything that was written, for every host."""

    installed: tuple[Installed, ...] = ()

    def of(self, host: HostName, project: str | None) -> Installed | None:
        """What was written for that host, there."""
        return next((i for i in self.installed if (i.host, i.project) == (host, project)), None)

    def without(self, gone: Installed | None) -> "Register":
        """The rest."""
        return Register(installed=tuple(i for i in self.installed if i != gone))


@dataclass(frozen=True, slots=True)
class Change:
    """One file, as it is and as it would be."""

    path: Path
    before: Content
    after: Content
    mode: int = 0o644
    backup: Literal["kept", "none", "used up"] = "none"

    @property
    def does(self) -> Literal["writes", "changes", "deletes", "links"]:
        """What it is, in a word."""
        if self.after is None:
            return "deletes"
        if isinstance(self.after, Path):
            return "links"
        return "writes" if self.before is None else "changes"

    def diff(self) -> str:
        """The unified diff of a change, also of new settings; the values of others' secrets left out."""
        new_settings = self.before is None and self.backup != "none"
        before = b"" if new_settings else self.before
        if not (isinstance(before, bytes) and isinstance(self.after, bytes)):
            return ""
        old, new = (part.decode(errors="replace").splitlines() for part in (before, self.after))
        lines = difflib.unified_diff(old, new, str(self.path), str(self.path), n=1, lineterm="")
        return "".join(_SECRET.sub(r'\1"..."', line) + "\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every change for one host, not yet made."""

    places: Places
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    register: Path
    was: Installed | None
    becomes: Installed | None


def plan(
    places: Places, *, way: Way, project: Path | None, command: Sequence[str], register: Path
) -> Plan:
    """What has to change for `places` to have the skill and the server.

    Raises:
        Refused: what is there is not ours to change, or cannot be changed safely.
    """
    was = _read(register).of(places.host, _named(project))
    if was is not None and was.way != way:
        raise Refused(
            f"the skill is installed there as a {was.way}",
            remedy=f"first `gpu-tenant install {places.host} --remove`",
        )
    target, notes = places.skills / SKILL, list(places.notes)
    files: dict[str, str] = {}
    changes: list[Change] = []
    if _is_somebody_elses(target, was):
        notes.append(f"{target} is a clone or a link of yours: left as it is")
    else:
        for name, (content, mode) in _skill(places.host, way).items():
            files[name] = _digest(content)
            before = _there(target / name)
            if before != content:
                edited = before is not None and (was is None or was.files.get(name) != _digest(before))  # fmt: skip
                changes.append(Change(target / name, before, content, mode, "kept" if edited else "none"))  # fmt: skip
        for name in sorted(set(was.files) - set(files)) if was else ():
            if (
                (old := _there(target / name)) is not None
                and was
                and _digest(old) == was.files[name]
            ):
                changes.append(Change(target / name, old, None))
    settings = Path(os.path.realpath(places.settings))
    before = _there(settings)
    try:
        text = _text(before)
        after, replaced = with_server(text, places, command)
    except Broken as error:
        raise _broken(places, error) from None
    untouched = was is not None and _digest(before) == was.settings_digest
    if after != text:
        # Where nobody wrote since, the backup of what was there before us stays that.
        backup: Literal["kept", "none"] = "none" if untouched else "kept"
        changes.append(Change(settings, before, after.encode(), _mode(settings), backup))
    becomes = Installed(
        host=places.host, project=_named(project), way=way, skill=str(target), files=files,
        made=sorted({*(was.made if was else ()), *_missing(changes)}),
        settings=str(settings),
        settings_digest=_digest(after.encode()) if was is None or after != text else was.settings_digest,
        settings_before=was.settings_before if was else None if before is None else _digest(before),
        replaced=was.replaced if was else replaced,
    )  # fmt: skip
    return Plan(places, tuple(changes), tuple(notes), register, was, becomes)


def plan_removal(places: Places, *, project: Path | None, register: Path) -> Plan:
    """What has to change for `places` to be as it was before this command first wrote there.

    Raises:
        Refused: the settings cannot be changed safely.
    """
    was = _read(register).of(places.host, _named(project))
    if was is None:
        return Plan(places, (), ("nothing was installed there by this command",), register, was, None)  # fmt: skip
    notes: list[str] = []
    changes: list[Change] = []
    for name, digest in was.files.items():
        path = Path(was.skill) / name
        before = _there(path)
        if before is not None and _digest(before) == digest:
            changes.append(Change(path, before, None))
        elif before is not None:
            notes.append(f"{path} was changed since: left as it is")
    settings = Path(was.settings)
    before = _there(settings)
    backup = _there(_backup(settings))
    if isinstance(before, bytes):
        try:
            after = _settings_without(before, backup, was, places)
        except Broken as error:
            raise _broken(places, error) from None
        if after != before:
            used_up = after == backup or backup is None
            changes.insert(0, Change(settings, before, after, _mode(settings), "used up" if used_up else "kept"))  # fmt: skip
    return Plan(places, tuple(changes), tuple(notes), register, was, None)


def carry_out(plan: Plan) -> None:
    """Every change of `plan` is made: each file whole or not at all, with a backup where it says so.

    Raises:
        Refused: a file is no longer what the plan was made for; nothing was changed.
        LocalTrouble: a file could not be written; the same command goes on from there.
    """
    for change in plan.changes:
        if _there(change.path) != change.before:
            raise Refused(
                f"{change.path} was changed meanwhile, and nothing was written",
                remedy="run the same command again",
            )
    kept = _read(plan.register).without(plan.was)
    try:
        if plan.becomes is not None:  # first, so that a run that is cut off can be taken back
            _write_register(plan.register, [*kept.installed, plan.becomes])
        for change in plan.changes:
            _make(change)
        if plan.was is not None and plan.becomes is None:
            _tidy(plan.was)
            _write_register(plan.register, kept.installed)
    except OSError as error:
        raise LocalTrouble(
            f"{error.filename or plan.places.settings}: {error.strerror}",
            remedy="mend that, then run the same command again: it goes on from there",
        ) from error


# What is there, and what should be


def _skill(host: HostName, way: Way) -> dict[str, tuple[Content, int]]:
    """What belongs into the skill's directory, by name."""
    root = skill_directory()
    parts = (*PARTS, "agents") if host == "codex" else PARTS
    wanted: dict[str, tuple[Content, int]] = {}
    for part in parts:
        # SKILL.md is copied all the same: Codex does not read one that is a link.
        if way == "link" and (root / part).is_dir():
            wanted[part] = (root / part, 0o644)
            continue
        for path in _files(root / part):
            mode = 0o755 if os.access(path, os.X_OK) else 0o644
            wanted[path.relative_to(root).as_posix()] = (path.read_bytes(), mode)
    return wanted


def _files(path: Path) -> Iterator[Path]:
    for file in (path, *sorted(path.rglob("*"))):
        if file.is_file() and "__pycache__" not in file.parts and not file.name.startswith("."):
            yield file


def _is_somebody_elses(target: Path, was: Installed | None) -> bool:
    own_links = was is not None and was.way == "link"
    inside = not own_links and any((target / part).is_symlink() for part in PARTS)
    return target.is_symlink() or (target / ".git").exists() or inside


def _there(path: Path) -> Content:
    try:
        return path.readlink() if path.is_symlink() else path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(
            f"{path} cannot be read: {error.strerror}", remedy="mend that, then run it again"
        ) from error


def _text(content: Content) -> str:
    try:
        return content.decode() if isinstance(content, bytes) else ""
    except UnicodeDecodeError as error:
        line = bytes(error.object[: error.start]).count(b"\n") + 1
        raise Broken("it is not UTF-8", line) from None


def _digest(content: Content) -> str:
    if isinstance(content, Path):
        return f"-> {content}"
    return hashlib.sha256(content or b"").hexdigest()


def _mode(path: Path) -> int:
    # A file with servers in it may hold keys of other people's.
    return path.stat().st_mode & 0o7777 if path.exists() else 0o600


def _missing(changes: Sequence[Change]) -> set[str]:
    return {
        str(parent) for c in changes if c.after for parent in c.path.parents if not parent.exists()
    }


def _named(project: Path | None) -> str | None:
    return None if project is None else str(project)


def _backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


# The settings


def _settings_without(before: bytes, backup: Content, was: Installed, places: Places) -> Content:
    if was.settings_digest == was.settings_before:
        return before  # the entry stood there already
    if _digest(before) == was.settings_digest:
        if was.settings_before is None:
            return None
        if _digest(backup) == was.settings_before:
            return backup
    return without_server(_text(before), places, was.replaced).encode()


def _broken(places: Places, error: Broken) -> Refused:
    return Refused(
        f"{places.settings}, line {error.line}: {error}; nothing was changed",
        remedy=f"mend that line, or add the server by hand: {ALIAS!r} is `gpu-tenant serve`",
    )


# The change


def _make(change: Change) -> None:
    path = change.path
    if change.backup == "kept" and isinstance(change.before, bytes):
        _place(_backup(path), change.before, change.mode)
    match change.after:
        case None:
            path.unlink(missing_ok=True)
        case bytes() as content:
            _place(path, content, change.mode)
        case Path() as target:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.symlink_to(target, target_is_directory=True)
    if change.backup == "used up":
        _backup(path).unlink(missing_ok=True)


def _place(path: Path, content: bytes, mode: int) -> None:
    """The file holds `content`; at no moment did it hold half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _tidy(was: Installed) -> None:
    """No directory is left that was made for what is gone."""
    below = {str(Path(was.skill) / name) for name in was.files}
    inside = {str(p) for name in below for p in Path(name).parents if p.is_relative_to(was.skill)}
    for directory in sorted({*inside, *was.made}, key=len, reverse=True):
        with suppress(OSError):  # it is not empty, or not there
            Path(directory).rmdir()


def _read(register: Path) -> Register:
    content = _there(register)
    try:
        return Register.model_validate_json(content) if isinstance(content, bytes) else Register()
    except ValidationError:
        raise Refused(
            f"{register} does not read as the list of what was installed",
            remedy="look at it; moved away, everything counts as not installed by this command",
        ) from None


def _write_register(register: Path, installed: Sequence[Installed]) -> None:
    if installed:
        _place(register, Register(installed=tuple(installed)).model_dump_json(indent=1).encode(), 0o600)  # fmt: skip
    else:
        register.unlink(missing_ok=True)
        with suppress(OSError):  # the ledger is there, too
            register.parent.rmdir()
