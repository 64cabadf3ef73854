"""Whether a state directory belongs to a rehearsal. If so: which provider is rehearsed, and at which address.

The marker is a file in the state directory, and only `gpu-tenant rehearse` writes it. No environment variable
changes the clock or an address. Otherwise anybody who can set a variable could decide what is verified, and
when a deadline has passed.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, LocalTrouble
from gpu_tenant.domain.record import Record
from gpu_tenant.files.replace_file import replace_file

_FILE = "rehearsal.json"
_LOOPBACK = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}")
_ONCE = ("GPU_TENANT_REHEARSAL", "GPU_TENANT_REHEARSED")
"""Variables that older versions used. They are refused."""


class Rehearsal(Record):
    """The provider that is rehearsed, and its address on this computer."""

    provider: str
    url: str


def rehearsal_of(state: Path) -> Rehearsal | None:
    """Return the rehearsal that the state directory belongs to. None if it is a real one.

    Raises:
        LocalTrouble: the marker cannot be read, or names an address on another computer.
    """
    place = state / _FILE
    try:
        said = Rehearsal.model_validate_json(place.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise _spoilt(place, type(error).__name__) from error
    if not _LOOPBACK.fullmatch(said.url):
        raise _spoilt(place, f"{said.url} is not on this computer")
    return said


def put_rehearsal(state: Path, rehearsal: Rehearsal) -> None:
    """Mark the state directory as one of that rehearsal. The ledger in it must be marked as well."""
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(state / _FILE, rehearsal.model_dump_json(), durable="none")


def require_real(state: Path, environ: Mapping[str, str]) -> None:
    """Check that no environment variable claims that this real state directory belongs to a rehearsal.

    Raises:
        BadRequest: a variable that older versions used is set.
    """
    for name in _ONCE:
        if environ.get(name):
            raise BadRequest(
                f"{name} is set, and {state} is not a rehearsal: its clock and its boxes are real",
                remedy=f"`unset {name}`; {Command('rehearse', 'PROVIDER')} prints how to enter a rehearsal",
            )


def _spoilt(place: Path, why: str) -> LocalTrouble:
    return LocalTrouble(
        f"{place} does not say what is rehearsed ({why})",
        remedy=f"open a new shell, and start another one: {Command('rehearse', 'PROVIDER')}",
    )
