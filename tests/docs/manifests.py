"""What every host's packaging says of us, from one source: pyproject.toml and the table below."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

NAME: str = PROJECT["name"]
REPOSITORY: str = PROJECT["urls"]["Repository"]
"""Where it lives. Every address in a manifest is made of this one."""
REGISTRY_NAME = f"io.github.{REPOSITORY.removeprefix('https://github.com/')}"
"""The server's name in the MCP registry: who may publish to that repository may publish it."""
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
_KEYS = {
    "VAST_API_KEY": "Vast.ai",
    "RUNPOD_API_KEY": "RunPod",
    "LAMBDA_API_KEY": "Lambda Cloud",
    "DIGITALOCEAN_TOKEN": "DigitalOcean",
    "AUTODL_TOKEN": "AutoDL",
}
"""The variables that a provider's key may be in. None is required: the program finds keys in files, too."""


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
    rest = {
        "author": _AUTHOR,
        "homepage": REPOSITORY,
        "repository": REPOSITORY,
        "license": PROJECT["license"],
        "mcpServers": {ALIAS: server},
    }
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


def _registry_entry() -> str:
    """The entry in the MCP registry. The package's README proves by `mcp-name` that it is the same server."""
    package = {
        "registryType": "pypi",
        "identifier": NAME,
        "version": PROJECT["version"],
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "packageArguments": [{"type": "positional", "value": "serve"}],
        "environmentVariables": [
            {"name": name, "description": f"Key of {title}", "isSecret": True}
            for name, title in _KEYS.items()
        ],
    }
    return _json(
        {
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
            "name": REGISTRY_NAME,
            "title": TITLE,
            "description": SHORT,
            "version": PROJECT["version"],
            "repository": {"url": REPOSITORY, "source": "github"},
            "packages": [package],
        }
    )


def _bundle() -> str:
    """The manifest of the bundle for desktop programs (MCPB), which is a clone in one file."""
    server = {
        "type": "python",
        "entry_point": START,
        "mcp_config": {"command": "sh", "args": ["${__dirname}/" + START], "env": {}},
    }
    return _json(
        {
            "manifest_version": "0.3",
            "name": NAME,
            "display_name": TITLE,
            "version": PROJECT["version"],
            "description": PROJECT["description"],
            "author": _AUTHOR,
            "repository": {"type": "git", "url": REPOSITORY},
            "homepage": REPOSITORY,
            "documentation": f"{REPOSITORY}#readme",
            "support": f"{REPOSITORY}/issues",
            "license": PROJECT["license"],
            "keywords": PROJECT["keywords"],
            "server": server,
            "tools_generated": True,
            "prompts_generated": True,
            "compatibility": {
                "platforms": ["darwin", "linux"],
                "runtimes": {"python": PROJECT["requires-python"]},
            },
        }
    )


def _citation() -> str:
    return f"""\
cff-version: 1.2.0
message: If you use this software, please cite it as below.
title: {NAME}
abstract: {json.dumps(PROJECT["description"])}
type: software
authors:
  - name: {PROJECT["authors"][0]["name"]}
version: {PROJECT["version"]}
license: {PROJECT["license"]}
repository-code: {REPOSITORY}
"""


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
    "server.json": _registry_entry,
    "mcp_server/packaging/manifest.json": _bundle,
    "CITATION.cff": _citation,
    "agents/openai.yaml": _openai,
    f"{SHELF}/agents/openai.yaml": _openai,
    f"{SHELF}/SKILL.md": _skill_of_the_plugin,
}
