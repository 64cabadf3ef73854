"""Reads which git repository to clone on a box: its address, and the commit to check out."""

import re

from pydantic import JsonValue

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, SecretRefused

_SCP_LIKE = re.compile(r"(?:git@)?[\w.-]+:[^\s:]+")


def repository(asked: str) -> dict[str, JsonValue]:
    """Split `URL[@REF]` into `url` and `ref` (None if there is none).

    Raises:
        SecretRefused: the address contains a user's name or password.
        BadRequest: it is not the address of a git repository.
    """
    scheme, separator, rest = asked.partition("://")
    place = rest if separator else asked
    head, slash, path = place.partition("/")
    path, _, ref = path.partition("@")
    user, at, _ = head.rpartition("@")
    if at and (separator or ":" in user) and not (scheme == "ssh" and ":" not in user):
        raise SecretRefused(
            "the clone's address holds a user's name or secret",
            remedy=f"give the address without these; to use a private repository, clone it on this computer, and {Command('push', 'DIR', 'LEASE')}",
        )
    url = f"{scheme}://{head}{slash}{path}" if separator else f"{head}{slash}{path}"
    known = (
        scheme in ("https", "http", "ssh", "git", "file") if separator else _SCP_LIKE.fullmatch(url)
    )
    if not known or not path or ref.startswith("-") or any(c.isspace() for c in asked):
        raise BadRequest(
            f"{url!r} is not the address of a repository",
            remedy="write https://HOST/OWNER/NAME.git, with @REF for a branch, tag or commit",
        )
    return {"url": url, "ref": ref or None}
