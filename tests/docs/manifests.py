"""What every host's packaging says of us, from one source: pyproject.toml and the table below."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

NAME: str = PROJECT["name"]
ALIAS = "gpu"
"""The server's name in a host: short, and without `_`, which one host does not allow."""
TITLE = "GPU tenant"
SHORT = "Run work on rented GPU boxes; end them only when safe"
PROMPT = f"Use ${NAME} to run this training job on a rented GPU and bring back what it writes."
START = "scripts/serve.sh"
"""Starts the server out of a clone; the manifests name nothing else that runs."""
SHELF = f"skills/{NAME}"
"""Where a plugin's skill has to lie; Codex drops links there, so that it must be real files."""

_SCHEMAS = "https://agent-plugins.org/schemas/1.0.0"
_ABOUT = {
    "name": NAME,
    "version": PROJECT["version"],
    "description": PROJECT["description"],
}
_AUTHOR = {"name": PROJECT["authors"][0]["name"]}


def _json(content: object) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _agent_plugin() -> str:
    return _json({"$schema": f"{_SCHEMAS}/plugin.schema.json", **_ABOUT})


def _agent_plugin_server() -> str:
    # A bare name or `./path` is all that may stand in `command`; an absolute one is dropped unseen.
    server = {"type": "stdio", "command": f"./{START}"}
    return _json({"$schema": f"{_SCHEMAS}/mcp.schema.json", "mcpServers": {ALIAS: server}})


def _claude_plugin() -> str:
    # Through sh: the executable bit does not survive every way a clone is copied. Not in `.mcp.json`:
    # there it would also be a server of this repository, opened as a project, and a broken one.
    server = {"command": "sh", "args": ["${CLAUDE_PLUGIN_ROOT}/" + START]}
    rest = {"author": _AUTHOR, "license": PROJECT["license"], "mcpServers": {ALIAS: server}}
    return _json({**_ABOUT, **rest})


def _claude_marketplace() -> str:
    plugin = {"name": NAME, "source": "./", "description": PROJECT["description"]}
    return _json(
        {
            "name": NAME,
            "description": PROJECT["description"],
            "owner": _AUTHOR,
            "plugins": [plugin],
        }
    )


def _agents_marketplace() -> str:
    plugin = {
        "name": NAME,
        "source": {"source": "local", "path": "./"},
        "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
        "category": "Productivity",
    }
    return _json({"name": NAME, "interface": {"displayName": TITLE}, "plugins": [plugin]})


def _gemini_extension() -> str:
    server = {"command": "sh", "args": ["${extensionPath}${/}" + START.replace("/", "${/}")]}
    return _json({**_ABOUT, "mcpServers": {ALIAS: server}})


def _skill_of_the_plugin() -> str:
    """SKILL.md once more, with its paths as they are from there."""
    skill = (ROOT / "SKILL.md").read_text(encoding="utf-8")
    return re.sub(r"(?<![\w/.-])(profiles|references|scripts)/", r"../../\1/", skill)


def _openai() -> str:
    # The dependency names no command: Codex would add it as a server without its argument.
    return f"""\
interface:
  display_name: {json.dumps(TITLE)}
  short_description: {json.dumps(SHORT)}
  default_prompt: {json.dumps(PROMPT)}
dependencies:
  tools:
    - type: "mcp"
      value: "{ALIAS}"
      description: "The same phases as typed tools; `gpu-tenant install codex` adds it."
policy:
  allow_implicit_invocation: true
"""


MANIFESTS: dict[str, Callable[[], str]] = {
    "plugin.json": _agent_plugin,
    "mcp.json": _agent_plugin_server,
    ".claude-plugin/plugin.json": _claude_plugin,
    ".claude-plugin/marketplace.json": _claude_marketplace,
    ".agents/plugins/marketplace.json": _agents_marketplace,
    "gemini-extension.json": _gemini_extension,
    "agents/openai.yaml": _openai,
    f"{SHELF}/agents/openai.yaml": _openai,
    f"{SHELF}/SKILL.md": _skill_of_the_plugin,
}
