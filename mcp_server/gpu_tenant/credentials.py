"""Where a secret is kept, never the secret itself: `env:`, `file:`, `keyring:`, `cmd:`."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_tenant.errors import BadRequest, SecretRefused
from gpu_tenant.secrecy import find_secrets

_FORMS = "NAME=env:VARIABLE, NAME=file:PATH, NAME=keyring:SERVICE/USER, NAME=cmd:COMMAND, or NAME=text:WORDS"


def resolve_all(assignments: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Each `NAME=reference` with the value that its reference leads to now.

    Raises:
        BadRequest: one is no reference, or leads nowhere.
        SecretRefused: a value that looks like a secret was written out instead of referred to.
    """
    values: dict[str, str] = {}
    for assignment in assignments:
        name, equals, reference = assignment.partition("=")
        if not equals or not (name.isascii() and name.isidentifier()):
            raise BadRequest(
                f"an environment entry for {name[:40]!r} is not NAME=reference",
                remedy=f"write {_FORMS}",
            )
        values[name] = _resolve(name, reference, environ)
    return values


def _resolve(name: str, reference: str, environ: Mapping[str, str]) -> str:
    scheme, _, rest = reference.partition(":")
    match scheme:
        case "env":
            if rest not in environ:
                raise _nowhere(name, f"this process has no variable {rest}")
            return environ[rest]
        case "file":
            try:
                return Path(rest).expanduser().read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise _nowhere(name, f"{rest} cannot be read ({type(error).__name__})") from None
        case "keyring":
            return _from_keyring(name, rest)
        case "cmd":
            return _from_command(name, rest)
        case "text":
            if find_secrets(name, f"{name}={rest}".encode()):
                raise SecretRefused(
                    f"the value of {name} looks like a secret",
                    remedy=f"refer to it instead: `{name}=env:{name}` or `{name}=file:PATH`",
                )
            return rest
        case _:
            # The value is not repeated: it may be the secret itself.
            raise BadRequest(f"the value of {name} is not a reference", remedy=f"write {_FORMS}")


def _from_command(name: str, rest: str) -> str:
    try:
        argv = shlex.split(rest)
        ran = subprocess.run(
            argv or [""], capture_output=True, encoding="utf-8", timeout=60, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise _nowhere(name, f"`{rest}` does not run ({type(error).__name__})") from None
    if ran.returncode:
        raise _nowhere(name, f"`{rest}` ended with status {ran.returncode}")
    return ran.stdout.strip()


def _from_keyring(name: str, rest: str) -> str:
    service, _, user = rest.partition("/")
    try:
        import keyring  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise _nowhere(name, "the keyring package is not installed here") from None
    value = keyring.get_password(service, user)
    if value is None:
        raise _nowhere(name, f"the keyring has no entry {service}/{user}")
    return str(value)


def _nowhere(name: str, why: str) -> BadRequest:
    return BadRequest(f"{name} leads nowhere: {why}", remedy=f"set it, or write {_FORMS}")
