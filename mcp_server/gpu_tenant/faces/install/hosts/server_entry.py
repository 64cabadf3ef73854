"""Our server's entry in a host's settings: its form for each host, and which part of it we may change."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.record import Record
from gpu_tenant.faces.install.hosts import jsonc_edit
from gpu_tenant.faces.install.hosts.jsonc_edit import Json
from gpu_tenant.faces.install.hosts.places import ALIAS, SKILL, HostName, Places
from gpu_tenant.files import toml_edit

Entry = dict[str, Json]


class Replaced(Record):
    """The command and the arguments that our entry had before it was changed."""

    command: str
    args: list[str]


_STARTUP_S = 60
"""The time for the start in Codex. Its default of ten seconds is too short for the first start after an update."""
_LONGEST_CALL_S = 3600
"""The time for one call in Codex. Its default of 300 s is too short for operations that read all files of a job."""


def entry(host: HostName, command: Sequence[str]) -> Entry:
    """Return the server's entry in the form that `host` uses. It contains no key: the server finds its keys itself."""
    started = _started(host, command)
    if host == "codex":
        return {
            **started,
            "env_vars": ["SSH_AUTH_SOCK", "GPU_TENANT_HOME"],
            "startup_timeout_sec": _STARTUP_S,
            "tool_timeout_sec": _LONGEST_CALL_S,
        }
    kind: Entry = {}
    match host:
        case "opencode":
            kind = {"type": "local", "enabled": True}
        case "zed":
            kind = {"source": "custom"}
        case "claude" | "cursor" | "vscode":
            kind = {"type": "stdio"}
        case "gemini" | "kiro" | "windsurf":
            pass
    return {**kind, **started}


def _started(host: HostName, command: Sequence[str]) -> Entry:
    """Return the part of an entry that names the program and its arguments. One host wants both in one list."""
    program, *arguments = command
    if host == "opencode":
        return {"command": [program, *arguments]}
    return {"command": program, "args": [*arguments]}


def with_server(text: str, places: Places, command: Sequence[str]) -> tuple[str, Replaced | None]:
    """Return the settings with our server. Also return the command that our entry had before, if it is changed.

    Options and variables that a person added to our entry, such as `--read-only`, stay.

    Raises:
        Broken: `text` is not in the host's format, or cannot be changed safely.
        Refused: another server has our name.
    """
    wanted = entry(places.host, command)
    old = _entry_in(text, places)
    if old is None:
        return _set(text, places, wanted), None
    replaced = _ours(old)
    if replaced is None or not isinstance(old, dict):
        raise Refused(
            f"{places.settings} has another server by the name of {ALIAS!r}",
            remedy=f"give that server another name there, then `gpu-tenant install {places.host}` again",
        )
    given = replaced.args
    options = given[given.index("serve") + 1 :]
    new: Entry = {**wanted, **old, **_started(places.host, [*command, *options])}
    return (text, None) if new == old else (_set(text, places, new), replaced)


def without_server(text: str, places: Places, replaced: Replaced | None) -> str:
    """Return the settings without our server, or with the entry that it replaced. Other entries are not changed.

    Raises:
        Broken: `text` is not in the host's format, or cannot be changed safely.
    """
    now = _entry_in(text, places)
    if _ours(now) is None or not isinstance(now, dict):
        return text
    if replaced is not None:
        before = _started(places.host, [replaced.command, *replaced.args])
        return _set(text, places, {**now, **before})
    path = (places.key, ALIAS)
    if places.format == "toml":
        return toml_edit.without_table(text, path)
    return jsonc_edit.without_member(text, path)


def _entry_in(text: str, places: Places) -> Json:
    stated = toml_edit.read(text) if places.format == "toml" else jsonc_edit.read(text or "{}")
    servers = stated.get(places.key) if isinstance(stated, dict) else None
    return servers.get(ALIAS) if isinstance(servers, dict) else None


def _set(text: str, places: Places, value: Mapping[str, Json]) -> str:
    path = (places.key, ALIAS)
    if places.format == "toml":
        return toml_edit.with_table(text, path, dict(value))
    return jsonc_edit.with_member(text or "{}\n", path, dict(value))


def _ours(found: Json) -> Replaced | None:
    """Return the command and arguments of an entry that starts our server. None if it starts another one."""
    if not isinstance(found, dict):
        return None
    program, arguments = found.get("command"), found.get("args")
    if isinstance(program, list) and program:
        program, *arguments = program
    if not isinstance(program, str) or not isinstance(arguments, list):
        return None
    words = [word for word in arguments if isinstance(word, str)]
    named = Path(program).stem == SKILL or words[:2] == ["-m", "gpu_tenant"]
    return Replaced(command=program, args=words) if named and "serve" in words else None
