"""Reads secrets where they are kept. A reference names the place: `env:`, `file:`, `env-file:`, `keyring:` or `cmd:`."""

import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import JsonValue

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, CredentialRefused, LocalTrouble, SecretRefused
from gpu_tenant.domain.model import Profile
from gpu_tenant.domain.ports import Credential
from gpu_tenant.files.env_file import read_env_file
from gpu_tenant.files.protected_files import Guarded, homes
from gpu_tenant.process_hardening import UNATTENDED

_FORMS = "NAME=env:VARIABLE, NAME=file:PATH, NAME=keyring:SERVICE/USER, NAME=ref:NAME, or NAME=text:WORDS"


REHEARSAL_KEY = "rehearsal"
"""The beginning of every key that a rehearsal's provider accepts. No key of a real account begins like this."""

_DOORS = frozenset(
    {"SSH_AUTH_SOCK", "SSH_AGENT_PID", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"}
)
"""Variables that lead to programs which hold keys, or which run commands that we do not control."""
_SHORTEST_KEY, _LARGEST_KEY_BYTES = 8, 64 << 10


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Where the keys of the owner's accounts are on this computer. The keys never leave it."""

    variables: frozenset[str]
    places: tuple[Path, ...]
    """Files and directories that hold keys, or that say where keys are."""
    configuration: Path

    @property
    def guarded(self) -> Guarded:
        """The places of these keys, and of the owner's keys to other clouds and machines, as they are now."""
        return Guarded(self.places, *homes(), open_places=(self.configuration.parent / "kept",))

    @property
    def owner_references(self) -> Mapping[str, str]:
        """The references that the owner has written under `[references]`, by their name. Only these may be commands.

        Raises:
            LocalTrouble: the configuration cannot be read.
        """
        said = read_table(self.configuration, "references")
        return {name: str(reference) for name, reference in said.items()}

    @classmethod
    def of(cls, profiles: Iterable[Profile], state: Path) -> "KeyPlaces":
        """Collect the places of all keys that the profiles know, and the state directory itself."""
        known = [profile.credential for profile in profiles if profile.credential]
        files = [Path(place.file).expanduser() for place in known if place.file]
        variables = frozenset(name for place in known for name in place.env)
        return cls(variables, (state, *files), state / "config.toml")

    def without(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return that environment without keys, for a command that somebody else may have chosen.

        In this environment, no command can give the owner's signature.
        """
        kept = {
            name: value
            for name, value in environ.items()
            if name not in self.variables | _DOORS and not name.startswith("GPU_TENANT_")
        }
        return {**kept, UNATTENDED: "1"}

    def refuse_account_key(self, name: str, reference: str) -> None:
        """Require that the reference does not lead to the key of an account.

        Raises:
            SecretRefused: it leads to such a key. A job should get a key of its own, which can be revoked alone.
        """
        scheme, _, rest = reference.partition(":")
        if scheme == "env-file" and (
            name in self.variables or self.guarded.holds(Path(rest).expanduser())
        ):
            raise _of_account(name)
        if scheme == "file":
            path, places = Path(rest).expanduser(), self.guarded
            try:
                real = path.resolve()
                is_odd = real.exists() and not (real.is_file() or real.is_dir())
                is_key = places.holds(path) or (
                    real.is_file() and (real.is_relative_to("/proc") or places.has_key(path))
                )
            except (OSError, ValueError, RuntimeError):
                return  # if the reference leads nowhere, resolving it later raises the error that says so
            if is_key:
                raise _of_account(name)
            if is_odd:
                raise _nowhere(name, f"{rest[:200]} is not a regular file")
        if scheme == "env" and rest in self.variables:
            raise _of_account(name)

    def resolve_name(self, name: str, reference: str) -> str:
        """Return the reference that is meant: `ref:NAME` stands for the owner's reference of that name.

        A command is accepted only if the owner has written down exactly that command.

        Raises:
            SecretRefused: the reference is a command that the owner has not written down.
            BadRequest: no reference has that name.
        """
        scheme, _, rest = reference.partition(":")
        if scheme == "ref":
            if rest not in self.owner_references:
                raise BadRequest(
                    f"no reference is named {rest[:60]!r}",
                    remedy=f"the owner of this computer has to write it under `[references]` in {self.configuration}",
                )
            return self.owner_references[rest]
        if scheme == "cmd" and reference not in self.owner_references.values():
            raise SecretRefused(
                f"the command that {name} refers to is not one that this computer's owner has written down",
                remedy=f'the owner has to write `NAME = "cmd:..."` under `[references]` in {self.configuration};'
                f" then `{name}=ref:NAME`",
            )
        return reference

    def values(self, environ: Mapping[str, str]) -> frozenset[str]:
        """Return the keys of accounts that can be read here without asking a person."""
        found = {environ.get(name, "").strip() for name in self.variables}
        for place in self.places:
            with suppress(OSError, UnicodeDecodeError):
                if place.is_file() and place.stat().st_size < _LARGEST_KEY_BYTES:
                    found.add(place.read_text(encoding="utf-8").strip())
        return frozenset(found - {""})


_IN_TREE = "/./"
"""In the path of a `file:` reference, this stands after a directory that the file may not leave, as in rsync."""


def in_tree(name: str, path: str, tree: Path) -> str:
    """Return the path of a file in the work tree, in a form that never leads out of it, not even over a link.

    Raises:
        SecretRefused: the path leads out of the tree.
    """
    # `tree / path` is `path` if that is absolute. A tree may name itself by its absolute path.
    inside = os.path.relpath(tree / os.path.expanduser(path), tree)  # noqa: PTH111 - an unknown user's `~x` stays
    bound = f"{tree}{_IN_TREE}{inside}"
    _must_stay(name, bound)
    return bound


def _must_stay(name: str, path: str) -> None:
    tree, bound, _ = path.partition(_IN_TREE)
    if not bound:
        return
    real, root = (Path(os.path.realpath(Path(x).expanduser())) for x in (path, tree))
    if real == root or not real.is_relative_to(root):
        raise SecretRefused(
            f"the file that {name} refers to is not in its work tree {tree}",
            remedy="a work tree may name files of its own alone; the owner of this computer can write the reference "
            "under `[references]` in config.toml",
        )


def _of_account(name: str) -> SecretRefused:
    return SecretRefused(
        f"{name} would send one of your own keys, such as the key of your account, to a box that is not yours",
        remedy="make a key for this job alone, with few rights and an expiry date, and refer to that key",
    )


def resolve_all(
    assignments: Sequence[str], environ: Mapping[str, str], *, key_places: KeyPlaces
) -> dict[str, str]:
    """Resolve each `NAME=reference` to the value that its reference leads to now.

    Raises:
        BadRequest: an entry is not a reference, or leads nowhere.
        SecretRefused: an entry contains a secret instead of referring to it, or its value is the key of an account.
    """
    values: dict[str, str] = {}
    for assignment in assignments:
        name, equals, reference = assignment.partition("=")
        if not equals or not (name.isascii() and name.isidentifier()):
            raise BadRequest(
                f"an environment entry for {name[:40]!r} is not NAME=reference",
                remedy=f"write {_FORMS}",
            )
        reference = key_places.resolve_name(name, reference)
        key_places.refuse_account_key(name, reference)
        values[name] = resolve(name, reference, environ=key_places.without(environ))
        # A copy of an account's key in another place is refused like the key itself.
        if len(values[name]) >= _SHORTEST_KEY and values[name] in key_places.values(environ):
            raise _of_account(name)
    return values


def references(assignments: Sequence[str]) -> tuple[str, ...]:
    """Return the same entries in a form that may be recorded: each says where its value is, and contains no value.

    A value that was written out, as text or inside a command, becomes `NAME=text:`. The value is then not on record.
    Code that needs it later, such as a sweep or a recovery, finds `NAME=text:` and asks a person for the value.
    """
    return tuple(map(_without_value, assignments))


def of_env_files(files: Sequence[str], env: Sequence[str]) -> list[str]:
    """Return `env` with a reference for each variable of those files. A later file, and `env`, go before an earlier one.

    A reference names the file, so the value is read from it again whenever it is needed.

    Raises:
        BadRequest: a file cannot be read, or a line is not `NAME=VALUE`.
    """
    found: dict[str, str] = {}
    for file in files:
        place = Path(file).expanduser().absolute()
        found |= dict.fromkeys(read_env_file(place), f"env-file:{place}")
    named = {entry.partition("=")[0] for entry in env}
    return [*(f"{name}={told}" for name, told in found.items() if name not in named), *env]


def must_be_references(assignments: Sequence[str]) -> None:
    """Check that each `NAME=reference` in a work tree's file only says where its value is. No value is read.

    Raises:
        BadRequest: an entry is no reference.
        SecretRefused: an entry refers to a command.
    """
    for assignment in assignments:
        name, _, reference = assignment.partition("=")
        scheme = reference.partition(":")[0]
        if scheme == "cmd":
            raise SecretRefused(
                f"{name} refers to a command, and a file in a work tree may not start commands on this computer",
                remedy=f'write it under `[references]` in your own config.toml; then `{name} = "ref:NAME"`',
            )
        if scheme not in ("env", "file", "keyring", "ref"):
            # The error does not repeat the value, because it may be the secret itself.
            raise BadRequest(
                f"the value of {name} is not a reference",
                remedy=f'write `{name} = "env:VARIABLE"`, file:PATH, keyring:SERVICE/USER or ref:NAME; what is no '
                "secret belongs into the job's command",
            )


def _without_value(assignment: str) -> str:
    """Return the entry as it may be recorded: `NAME=text:` if it contains the value itself."""
    name, _, reference = assignment.partition("=")
    scheme, _, rest = reference.partition(":")
    is_secret = scheme == "cmd" and _looks_secret(name, rest)
    return f"{name}=text:" if scheme == "text" or is_secret else assignment


def _looks_secret(name: str, value: str) -> bool:
    from gpu_tenant.files.secret_scan import find_secrets

    return bool(find_secrets(name, f"{name}={value}".encode()))


def find_credential(
    profile: Profile, configuration: Path, environ: Mapping[str, str]
) -> Credential | None:
    """Find the key of that platform. None if it is neither in a configured place nor in a usual one.

    The owner's `[credentials]` in the configuration come first, such as `runpod = "keyring:runpod/me"`. The
    platform's usual variables and file come next.

    Raises:
        LocalTrouble: the configuration cannot be read.
    """
    place = profile.credential
    named = read_table(configuration, "credentials").get(profile.id)
    if named is not None:
        return _credential(profile, str(named), environ)
    if place is None:
        return None
    for variable in place.env:
        if environ.get(variable):
            return _credential(profile, f"env:{variable}", environ)
    if place.file and Path(place.file).expanduser().is_file():
        return _credential(profile, f"file:{place.file}", environ)
    return None


def only_rehearsed(credential: Credential, state: Path) -> Credential:
    """Return that credential for the rehearsal in `state`. Reading it returns a rehearsal's key, or raises an error.

    In a rehearsal, the key is sent over plain http to the address in the file `rehearsal.json`. Whoever listens there
    could read a real key.
    """

    def read() -> str:
        key = credential.read()
        if not key.startswith(REHEARSAL_KEY):
            raise CredentialRefused(
                f"{state} is a rehearsal, and the key at {credential.source} is not a rehearsal's: it was not sent",
                remedy=f"{Command('rehearse', 'PROVIDER')} prints the variables of a rehearsal; "
                f"if {state} was never one, remove {state / 'rehearsal.json'}",
            )
        return key

    return Credential(credential.source, read)


def read_table(configuration: Path, table: str) -> Mapping[str, JsonValue]:
    """Read the owner's `[table]` from the configuration. Empty if there is none.

    Raises:
        LocalTrouble: the configuration cannot be read.
    """
    try:
        written = configuration.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(configuration, error) from error
    import tomllib  # most owners have no configuration

    try:
        said = tomllib.loads(written).get(table, {})
    except ValueError as error:
        raise _unreadable(configuration, error) from error
    if not isinstance(said, dict):
        raise LocalTrouble(
            f"{configuration}: `{table}` is not a table",
            remedy=f"begin the table with a line `[{table}]`, and write its settings as lines `name = ...` below",
        )
    return said


def _unreadable(configuration: Path, error: Exception) -> LocalTrouble:
    return LocalTrouble(f"{configuration} cannot be read: {error}", remedy="correct that file")


def _credential(profile: Profile, reference: str, environ: Mapping[str, str]) -> Credential:
    @cache
    def read() -> str:
        try:
            key = resolve(f"the key of {profile.title}", reference, environ=environ).strip()
        except BadRequest as error:
            raise CredentialRefused(error.message, remedy=error.remedy) from None
        if not key:
            raise CredentialRefused(
                f"the key of {profile.title} is empty at {shown}", remedy="put the key there"
            )
        return key

    # Something that is not a reference may be the key itself, so the error does not repeat it.
    scheme, _, _ = reference.partition(":")
    shown = reference if scheme in ("env", "file", "keyring", "cmd") else "the configuration"
    return Credential(source=shown, read=read)


def resolve(name: str, reference: str, *, environ: Mapping[str, str]) -> str:
    """Return the value that the reference leads to now. Errors use `name` to say which value is meant.

    Raises:
        BadRequest: the reference has an unknown form, or leads nowhere.
        SecretRefused: the reference is text that looks like a secret.
    """
    scheme, _, rest = reference.partition(":")
    match scheme:
        case "env":
            if rest not in environ:
                raise _nowhere(name, f"this process has no variable {rest}")
            return environ[rest]
        case "file":
            _must_stay(name, rest)
            try:
                return Path(rest).expanduser().read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise _nowhere(name, f"{rest} cannot be read ({type(error).__name__})") from None
        case "env-file":
            file = Path(rest).expanduser()
            values = read_env_file(file)
            if name not in values:
                raise _nowhere(name, f"{file} has no line {name}=")
            return values[name]
        case "keyring":
            return _from_keyring(name, rest)
        case "cmd":
            return _from_command(name, rest, environ)
        case "text":
            if _looks_secret(name, rest):
                raise SecretRefused(
                    f"the value of {name} looks like a secret",
                    remedy=f"refer to it instead: `{name}=env:{name}` or `{name}=file:PATH`",
                )
            return rest
        case _:
            # The error does not repeat the value, because it may be the secret itself.
            raise BadRequest(f"the value of {name} is not a reference", remedy=f"write {_FORMS}")


def _from_command(name: str, rest: str, environ: Mapping[str, str]) -> str:
    try:
        argv = shlex.split(rest)
        ran = subprocess.run(
            argv or [""],
            env=dict(environ),
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise _nowhere(name, f"`{rest}` cannot be run ({type(error).__name__})") from None
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
