"""Knows from where each host reads skills and MCP servers, and in which form it expects a server."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpu_tenant.domain.errors import Refused
from gpu_tenant.files.installation import cache_of, install_line

HostName = Literal[
    "claude", "codex", "cursor", "gemini", "kiro", "opencode", "vscode", "windsurf", "zed"
]
Format = Literal["json", "toml"]

ALIAS = "gpu"
"""The server's name in every host. It is short, and has no `_`, which one host does not allow."""
SKILL = "gpu-tenant"
"""The name of the skill's directory. Hosts require that it is the skill's name."""


@dataclass(frozen=True, slots=True)
class Places:
    """The files that one host reads, for a user or in a project."""

    host: HostName
    title: str
    skills: Path
    """The directory with the directories of all skills."""
    settings: Path
    """The file with the MCP servers."""
    format: Format
    key: str
    """The key in `settings` under which the servers are."""
    notes: tuple[str, ...]
    """Facts that a person should know, but would not see in the files."""


_TITLES: dict[HostName, str] = {
    "claude": "Claude Code",
    "codex": "Codex",
    "cursor": "Cursor",
    "gemini": "Gemini CLI",
    "kiro": "Kiro",
    "opencode": "OpenCode",
    "vscode": "VS Code",
    "windsurf": "Windsurf",
    "zed": "Zed",
}
_KEYS: dict[HostName, str] = {
    "codex": "mcp_servers",
    "opencode": "mcp",
    "vscode": "servers",
    "zed": "context_servers",
}
_FROM_DOCUMENTATION = (
    "the place that {title} reads is taken from its documentation, and was not tried"
)
_NOTES: dict[HostName, tuple[str, ...]] = {
    "claude": (),
    "codex": (
        "Codex hands a server no keys from the environment: name them in ~/.gpu-tenant/config.toml",
    ),
    "cursor": (_FROM_DOCUMENTATION,),
    "gemini": (
        "Gemini CLI keeps keys and tokens from a server: name them in ~/.gpu-tenant/config.toml",
    ),
    "kiro": (_FROM_DOCUMENTATION,),
    "opencode": (_FROM_DOCUMENTATION,),
    "windsurf": (
        _FROM_DOCUMENTATION,
        "Windsurf reads servers for a user alone: a project gets the skill, and the server is the user's",
    ),
    "zed": (_FROM_DOCUMENTATION,),
    "vscode": (
        _FROM_DOCUMENTATION,
        "this is the file of VS Code's default profile; other profiles, Insiders and VSCodium have their own",
    ),
}
_OF_A_PROJECT = (
    "the command is a path on this computer: leave the server's entry out of what others check out"
)


def places(
    host: HostName, *, user: Path, project: Path | None, environ: Mapping[str, str]
) -> Places:
    """Return the files that `host` reads: for `project`, or for the user whose home directory is `user`."""
    if project is None:
        skills, settings = _of_user(host, user, environ)
    else:
        skills, settings = _of_project(host, project, user)
    notes = tuple(note.format(title=_TITLES[host]) for note in _NOTES[host])
    return Places(
        host=host,
        title=_TITLES[host],
        skills=skills,
        settings=settings,
        format="toml" if host == "codex" else "json",
        key=_KEYS.get(host, "mcpServers"),
        notes=notes if project is None else (*notes, _OF_A_PROJECT),
    )


def _of_user(host: HostName, user: Path, environ: Mapping[str, str]) -> tuple[Path, Path]:
    match host:
        case "claude":
            moved = environ.get("CLAUDE_CONFIG_DIR")
            own = Path(moved) if moved else user / ".claude"
            return own / "skills", (own if moved else user) / ".claude.json"
        case "codex":
            own = Path(environ.get("CODEX_HOME") or user / ".codex")
            return user / ".agents/skills", own / "config.toml"
        case "cursor":
            return user / ".cursor/skills", user / ".cursor/mcp.json"
        case "gemini":
            return user / ".gemini/skills", user / ".gemini/settings.json"
        case "kiro":
            return user / ".kiro/skills", user / ".kiro/settings/mcp.json"
        case "opencode":
            own = _config(user, environ) / "opencode"
            return own / "skills", own / "opencode.json"
        case "vscode":
            return user / ".copilot/skills", _vscode(user, environ) / "User/mcp.json"
        case "windsurf":
            return user / ".codeium/windsurf/skills", _windsurf(user)
        case "zed":
            return user / ".agents/skills", _zed(user, environ) / "settings.json"


def _config(user: Path, environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or user / ".config")


def _windsurf(user: Path) -> Path:
    return user / ".codeium/windsurf/mcp_config.json"


def _zed(user: Path, environ: Mapping[str, str]) -> Path:
    if sys.platform == "win32":
        return Path(environ.get("APPDATA") or user / "AppData/Roaming") / "Zed"
    return user / ".config/zed" if sys.platform == "darwin" else _config(user, environ) / "zed"


def _vscode(user: Path, environ: Mapping[str, str]) -> Path:
    if sys.platform == "darwin":
        return user / "Library/Application Support/Code"
    if sys.platform == "win32":
        return Path(environ.get("APPDATA") or user / "AppData/Roaming") / "Code"
    return _config(user, environ) / "Code"


def _of_project(host: HostName, project: Path, user: Path) -> tuple[Path, Path]:
    match host:
        case "claude":
            return project / ".claude/skills", project / ".mcp.json"
        case "codex":
            return project / ".agents/skills", project / ".codex/config.toml"
        case "cursor":
            return project / ".cursor/skills", project / ".cursor/mcp.json"
        case "gemini":
            return project / ".gemini/skills", project / ".gemini/settings.json"
        case "kiro":
            return project / ".kiro/skills", project / ".kiro/settings/mcp.json"
        case "opencode":
            return project / ".opencode/skills", project / "opencode.json"
        case "vscode":
            return project / ".github/skills", project / ".vscode/mcp.json"
        case "windsurf":
            return project / ".windsurf/skills", _windsurf(user)
        case "zed":
            return project / ".agents/skills", project / ".zed/settings.json"


def this_program(argv0: str, environ: Mapping[str, str], *, wanted: str) -> list[str]:
    """Return the command that starts this same program from any directory, for as long as it stays installed.

    Raises:
        Refused: it runs from a cache. The remedy installs it first, and then `wanted` for good.
    """
    started = Path(argv0).absolute()
    command = [sys.executable, "-m", "gpu_tenant"]
    for program in (started, Path(sys.executable).with_name(SKILL + started.suffix)):
        if program.stem == SKILL and program.is_file():
            command = [str(program)]
            break
    if cache := cache_of(Path(command[0]), environ):
        raise Refused(
            f"this copy of gpu-tenant is in {cache.installer}'s cache, {cache.directory}, which may be emptied at any"
            " time; nothing was written",
            remedy=f"`{install_line(cache.installer)}`, then `gpu-tenant install {wanted}`",
        )
    return command
