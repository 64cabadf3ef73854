"""The download mirrors that the owner has configured, for platforms that cannot reach the usual sites."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.domain.model import Profile

_VARIABLES = {"pip": "PIP_INDEX_URL", "hf": "HF_ENDPOINT"}


def mirrors(profile: Profile, configuration: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make pip and the client of Hugging Face use the owner's mirrors.

    Empty if the platform needs no mirror. `[mirrors]` in the configuration takes precedence (`pip = "..."`,
    `hf = "..."`), then this computer's own PIP_INDEX_URL and HF_ENDPOINT are used.

    Raises:
        LocalTrouble: the configuration cannot be read, or a mirror in it contains a password.
    """
    if not profile.mirror_needed:
        return {}
    try:
        said = tomllib.loads(configuration.read_text(encoding="utf-8")).get("mirrors", {})
    except FileNotFoundError:
        said = {}
    except (OSError, ValueError) as error:
        raise LocalTrouble(
            f"{configuration} cannot be read: {error}", remedy="correct that file"
        ) from error
    if not isinstance(said, dict) or not all(isinstance(url, str) for url in said.values()):
        raise LocalTrouble(
            f"{configuration}: `mirrors` is not a table of addresses",
            remedy='begin the table with a line `[mirrors]`, then write `pip = "https://..."`',
        )
    named: dict[str, str] = {}
    for key, variable in _VARIABLES.items():
        url = said.get(key)
        if url is not None and _has_password(url):
            raise LocalTrouble(
                f"{configuration}: the mirror {key} holds a password",
                remedy=f"remove the password there, and pass `--env {variable}=file:PATH` instead",
            )
        # This computer may use a private index with a password in its address. The password must
        # not be sent to other people's boxes.
        url = url or environ.get(variable)
        if url and not _has_password(url):
            named[variable] = url
    return named


def _has_password(url: str) -> bool:
    return "@" in urlsplit(url).netloc
