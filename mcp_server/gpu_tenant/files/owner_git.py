"""Reads the owner's own git configuration, of this account and of this computer, for what it says of files."""

import os
from collections.abc import Iterator
from pathlib import Path

from gpu_tenant.files.git_repository import config_values
from gpu_tenant.files.read_small import TooLarge, read_small

_MOST_BYTES = 1 << 20
_MOST_DEPTH = 10
"""One configuration includes another, at most so deep, as in git."""


def owner_settings() -> dict[str, Path]:
    """Return the files that the owner's configuration names, or git's usual places for them.

    `core.excludesfile` has the patterns of what git ignores everywhere, and `core.attributesfile` its attributes.
    """
    usual = _configuration_home() / "git"
    found = {"core.excludesfile": usual / "ignore", "core.attributesfile": usual / "attributes"}
    for file in _configurations():
        for name, value in _settings(file, _MOST_DEPTH):
            if name in found:
                found[name] = expanded(value, file.parent)
    return found


def expanded(value: str, base: Path) -> Path:
    """Return the path that a configuration in the directory `base` means. `~/` is the home directory."""
    try:
        return base / Path(value).expanduser()
    except RuntimeError:  # a user who is not known here
        return base / value


def _configurations() -> Iterator[Path]:
    """Yield the owner's configuration files. A later one goes before an earlier one."""
    if os.environ.get("GIT_CONFIG_NOSYSTEM", "").lower() not in ("1", "true", "yes", "on"):
        yield Path(os.environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig")
    if chosen := os.environ.get("GIT_CONFIG_GLOBAL"):
        yield Path(chosen)
        return
    yield _configuration_home() / "git" / "config"
    yield Path.home() / ".gitconfig"


def _configuration_home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _settings(file: Path, depth: int) -> Iterator[tuple[str, str]]:
    try:
        content = read_small(file, _MOST_BYTES, links="followed")
    except TooLarge:
        return
    for name, value in config_values(os.fsdecode(content or b"")):
        if name == "include.path" and depth:
            yield from _settings(expanded(value, file.parent), depth - 1)
        else:
            yield name, value
