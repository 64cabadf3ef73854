"""Connectors to a server of this computer that says what their provider's rehearsal once said."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from arranged import setting
from desk import Desk

from gpu_tenant.domain.ports import Connector, Credential
from gpu_tenant.files.skill_files import skill_directory
from gpu_tenant.providers.profiles import load_profiles

CORPUS = Path(__file__).parent / "corpus" / "providers"
PROVIDERS = sorted(path.stem for path in CORPUS.glob("*.json"))
_PROFILES = load_profiles(skill_directory() / "profiles")
LISTS = {
    "runpod": ("GET /v2/pods", "pods"),
    "vastai": ("GET /api/v1/instances/", "instances"),
    "lambda_cloud": ("GET /api/v1/instances", "data"),
    "digitalocean": ("GET /v2/droplets", "droplets"),
}
"""Which of the answers lists the boxes, and in which of its fields."""


def answers(provider: str) -> dict[str, Any]:
    """What its rehearsal said, by request: two boxes run."""
    said: dict[str, Any] = json.loads((CORPUS / f"{provider}.json").read_text(encoding="utf-8"))
    return said


@contextmanager
def asking(provider: str, root: Path) -> Iterator[tuple[Connector, Desk]]:
    """A connector, and the server that it asks, which says what `Desk.always` has."""
    desk = Desk()
    desk.always = {path: json.dumps(said) for path, said in answers(provider).items()}
    try:
        connector: Connector = import_module(f"gpu_tenant.providers.{provider}.connector").connect(
            replace(
                setting(root),
                profile=_PROFILES[provider],
                credential=Credential(source="env:A_KEY", read=lambda: "key-of-nobody"),
                rehearsed_at=desk.url,
            )
        )
        yield connector, desk
    finally:
        desk.close()
