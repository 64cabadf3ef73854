"""Finds where an rclone remote leads, from the owner's configuration. Nothing else of the configuration is kept."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gpu_tenant.artifacts.stores.locality import ELSEWHERE, Whereabouts

Settings = Mapping[str, Mapping[str, str]]
"""The settings of each remote in the configuration. They contain keys, so they are never shown or stored."""

_WRAPS = frozenset({"alias", "crypt", "chunker", "compress", "hasher"})
"""The kinds of remotes that store everything in the one remote that they name."""
_HOST_IN: Mapping[str, str] = {
    "sftp": "host",
    "ftp": "host",
    "smb": "host",
    "webdav": "url",
    "seafile": "url",
}
_SERVICES: Mapping[str, str] = {
    "s3": "endpoint",
    "b2": "endpoint",
    "azureblob": "endpoint",
    "google cloud storage": "endpoint",
    "drive": "",
    "dropbox": "",
    "onedrive": "",
    "box": "",
    "pcloud": "",
    "mega": "",
}
"""The kinds of remotes that lead to one provider's service. If the setting given here is set, it names another host."""
_NAMED = re.compile(r"(?P<name>[\w.+@][\w.+@ -]*):(?P<path>.*)", re.DOTALL)
_DEEPEST = 8


def leads(root: str, settings: Settings, environ: Mapping[str, str]) -> Whereabouts:
    """Find where `REMOTE:path` leads in the end. Remotes that only wrap another remote are followed."""
    for _ in range(_DEEPEST):
        named = _NAMED.fullmatch(root)
        if root.startswith("/") or (root and ":" not in root and not root.startswith("~")):
            return Whereabouts(directory=Path(os.path.abspath(root)))  # noqa: PTH100  as rclone has it
        if named is None:
            return Whereabouts(
                unknown="it leads to another remote in a way that gpu-tenant cannot follow"
            )
        name, path = named["name"], named["path"]
        says = _settings_of(name, settings, environ)
        kind = says.get("type", "")
        if kind == "local":
            return Whereabouts(directory=Path(os.path.abspath(path)))  # noqa: PTH100
        if kind in _WRAPS:
            root = _join(says.get("remote", ""), path)
        elif kind == "combine":
            first, _, rest = path.strip("/").partition("/")
            root = _join(_upstream(says.get("upstreams", ""), first), rest)
        else:
            return _whereabouts_of(kind, says)
    return Whereabouts(unknown="it leads from remote to remote without end")


def _whereabouts_of(kind: str, says: Mapping[str, str]) -> Whereabouts:
    if kind in _SERVICES:
        said = says.get(_SERVICES[kind], "")
        if not said:
            return ELSEWHERE
    elif kind in _HOST_IN and not says.get("ssh"):
        said = says.get(_HOST_IN[kind], "")
    else:
        return Whereabouts(
            unknown="its remote is not configured here"
            if not kind
            else "a remote of its kind may be anywhere"
        )
    try:
        host = urlsplit(said if "://" in said else f"//{said}").hostname
    except ValueError:
        host = None
    return Whereabouts(host=host) if host else Whereabouts(unknown="it names no host")


def _settings_of(name: str, settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Return a remote's settings. Its own variables win over those of its kind, and both win over the file."""
    own = _variables(f"RCLONE_CONFIG_{name.upper()}_", environ)
    of_file = settings.get(name, {})
    kind = own.get("type") or of_file.get("type", "")
    of_kind = _variables(f"RCLONE_{kind.upper().replace(' ', '_')}_", environ) if kind else {}
    if kind == "google cloud storage":
        of_kind |= _variables("RCLONE_GCS_", environ)
    return {**of_file, **of_kind, **own, "type": kind}


def _variables(prefix: str, environ: Mapping[str, str]) -> dict[str, str]:
    return {k[len(prefix) :].lower(): v for k, v in environ.items() if k.startswith(prefix) and v}


def _upstream(said: str, directory: str) -> str:
    """Return the remote that a `combine` remote has under that directory. Empty if there is none."""
    try:
        found = dict(each.partition("=")[::2] for each in shlex.split(said))
    except ValueError:
        return ""
    return found.get(directory, "")


def _join(base: str, path: str) -> str:
    if not base or not path.strip("/"):
        return base
    return base + path.lstrip("/") if base.endswith((":", "/")) else f"{base}/{path.lstrip('/')}"
