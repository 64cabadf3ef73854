"""Plans the changes that install the skill and the server's entry in the files of one agent's program (host)."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from gpu_tenant.domain.errors import Refused
from gpu_tenant.faces.install.hosts.places import ALIAS, SKILL, HostName, Places
from gpu_tenant.faces.install.hosts.server_entry import with_server, without_server
from gpu_tenant.faces.install.registry import Installed, Plan, Way, read
from gpu_tenant.files.planned_changes import (
    Change,
    Content,
    backup_of,
    digest,
    missing_above,
    plan_replacement,
    there,
)
from gpu_tenant.files.skill_files import skill_directory
from gpu_tenant.files.toml_edit import TomlError

PARTS = ("SKILL.md", "profiles", "references", "scripts")


def plan(
    places: Places, *, way: Way, project: Path | None, command: Sequence[str], register: Path
) -> Plan:
    """Plan the changes that give `places` the skill and the server.

    Raises:
        Refused: a file there belongs to somebody else, or cannot be changed safely.
    """
    was = read(register).of(places.host, _project_name(project))
    if was is not None and was.way != way:
        raise Refused(
            f"the skill is installed there as a {was.way}",
            remedy=f"first `gpu-tenant install {places.host} --remove`",
        )
    target, notes = places.skills / SKILL, list(places.notes)
    files: dict[str, str] = {}
    changes: list[Change] = []
    if _is_somebody_elses(target, was):
        notes.append(f"{target} is a clone or a link of yours: it is left as it is")
    else:
        for name, (content, mode) in _skill(places.host, way).items():
            files[name] = digest(content)
            known = was.files.get(name) if was else None
            change = plan_replacement(target / name, content, mode, known=known)
            changes += [change] if change else []
        for name in sorted(set(was.files) - set(files)) if was else ():
            if (old := there(target / name)) is not None and was and digest(old) == was.files[name]:
                changes.append(Change(target / name, old, None))
    settings = Path(os.path.realpath(places.settings))
    before = there(settings)
    try:
        text = _text(before)
        after, replaced = with_server(text, places, command)
    except TomlError as error:
        raise _broken_file(places, error) from None
    untouched = was is not None and digest(before) == was.settings_digest
    if after != text:
        # If nobody else has changed the file since, keep the backup from before our first change.
        backup: Literal["kept", "none"] = "none" if untouched else "kept"
        changes.append(Change(settings, before, after.encode(), _mode(settings), backup))
    made = missing_above([*(c.path for c in changes if c.after is not None), register])
    becomes = Installed(
        host=places.host,
        project=_project_name(project),
        way=way,
        skill=str(target),
        files=files,
        made=sorted({*(was.made if was else ()), *made}),
        settings=str(settings),
        settings_digest=digest(after.encode())
        if was is None or after != text
        else was.settings_digest,
        settings_before=was.settings_before if was else None if before is None else digest(before),
        replaced=was.replaced if was else replaced,
        program=tuple(command[:-1]),
    )
    return Plan(tuple(changes), tuple(notes), register, was, becomes)


def plan_removal(places: Places, *, project: Path | None, register: Path) -> Plan:
    """Plan the changes that restore the files in `places` to their state before this command first wrote there.

    Raises:
        Refused: the settings cannot be changed safely.
    """
    was = read(register).of(places.host, _project_name(project))
    if was is None:
        return Plan((), ("nothing was installed there by this command",), register, was, None)
    notes: list[str] = []
    changes: list[Change] = []
    for name, left_as in was.files.items():
        path = Path(was.skill) / name
        before = there(path)
        if before is not None and digest(before) == left_as:
            changes.append(Change(path, before, None))
        elif before is not None:
            notes.append(f"{path} was changed after it was installed, so it is left as it is")
    settings = Path(was.settings)
    before = there(settings)
    backup = there(backup_of(settings))
    if isinstance(before, bytes):
        try:
            after = _settings_without(before, backup, was, places)
        except TomlError as error:
            raise _broken_file(places, error) from None
        if after != before:
            used_up = after == backup or backup is None
            changes.insert(
                0,
                Change(settings, before, after, _mode(settings), "used up" if used_up else "kept"),
            )
    return Plan(tuple(changes), tuple(notes), register, was, None)


# What is there now, and what should be


def _skill(host: HostName, way: Way) -> dict[str, tuple[Content, int]]:
    """Return what the skill's directory should contain, by name."""
    root = skill_directory()
    parts = (*PARTS, "agents") if host == "codex" else PARTS
    wanted: dict[str, tuple[Content, int]] = {}
    for part in parts:
        # SKILL.md is always copied, because Codex does not read it through a link.
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


def _text(content: Content) -> str:
    try:
        return content.decode() if isinstance(content, bytes) else ""
    except UnicodeDecodeError as error:
        line = bytes(error.object[: error.start]).count(b"\n") + 1
        raise TomlError("it is not UTF-8", line) from None


def _mode(path: Path) -> int:
    # A new file is private, because settings of servers may contain keys.
    return path.stat().st_mode & 0o7777 if path.exists() else 0o600


def _project_name(project: Path | None) -> str | None:
    return None if project is None else str(project)


# The settings


def _settings_without(before: bytes, backup: Content, was: Installed, places: Places) -> Content:
    if was.settings_digest == was.settings_before:
        return before  # The entry was there before our installation.
    if digest(before) == was.settings_digest:
        if was.settings_before is None:
            return None
        if digest(backup) == was.settings_before:
            return backup
    return without_server(_text(before), places, was.replaced).encode()


def _broken_file(places: Places, error: TomlError) -> Refused:
    return Refused(
        f"{places.settings}, line {error.line}: {error}; nothing was changed",
        remedy=f"correct that line, or add the server by hand: {ALIAS!r} is `gpu-tenant serve`",
    )
