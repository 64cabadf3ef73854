"""Writes an OpenSSH configuration: a `Host` entry for the box of each lease, with our key and the pinned host key."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from shutil import which
from typing import NamedTuple

from gpu_tenant.domain.address import Ssh, ssh_of
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, LocalTrouble
from gpu_tenant.domain.model import LeaseId, SshAddress
from gpu_tenant.files.replace_file import replace_file
from gpu_tenant.files.state_dir import Home

_MAX_JUMPS = 8
_HEAD = "# Written by gpu-tenant at every change of a lease; what you write here is lost."
_STAMP = "# as things stood: "
_OWNERS_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_OURS = frozenset(
    {
        *("host", "hostname", "port", "user", "proxyjump", "identityfile", "identitiesonly"),
        *("userknownhostsfile", "globalknownhostsfile", "stricthostkeychecking", "checkhostip"),
        *("updatehostkeys", "hashknownhosts", "canonicalizehostname", "forwardagent"),
        *("controlmaster", "controlpath"),
    }
)
"""The options that an entry sets itself. All other options are copied from the owner's own configuration."""


class Reachable(NamedTuple):
    """A lease whose box is reached by ssh."""

    lease: LeaseId
    address: SshAddress


def refresh(boxes: Sequence[Reachable], home: Home, owner_ssh: Path) -> None:
    """Write `home.ssh_config`, with an entry for each of `boxes` and no other.

    The file is not rewritten if the boxes, their pinned host keys and the owner's configuration are
    unchanged.
    """
    before, client = _text(ssh_config(home)), str(which("ssh"))
    owners = _text(owner_ssh / "config")
    known = dict(_stamped_entries(before))
    parts = [_HEAD + "\n\n"]
    for box in boxes:
        of_what = (box.address.target, _text(home.known_hosts(box.lease)), owners, client)
        stamp = f"{_STAMP}{box.lease} {sha256('|'.join(of_what).encode()).hexdigest()[:16]}\n"
        # A new entry needs two calls of ssh. If every change made all entries again, the number of calls would grow
        # with the square of the fleet.
        parts += [stamp, known.get(stamp) or entry(box, home, owner_ssh) + "\n"]
    after = "".join(parts)
    if after != before:
        _replace(ssh_config(home), after, mode=0o600)


def _stamped_entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield every stamp in the file, with the entry below it."""
    lines = text.splitlines(keepends=True)
    at = [number for number, line in enumerate(lines) if line.startswith(_STAMP)]
    for begin, end in pairwise([*at, len(lines)]):
        yield lines[begin], "".join(lines[begin + 1 : end])


def ssh_config(home: Home) -> Path:
    """Return the path of the file with the entries."""
    return home.root / "ssh_config"


def entry(box: Reachable, home: Home, owner_ssh: Path) -> str:
    """Return the entry for that box, and the entries for every jump host on the way to it."""
    return "\n".join(_entry(box, home, owner_ssh))


class Inclusion(NamedTuple):
    """The change to the owner's own configuration that makes plain `ssh LEASE` work."""

    file: Path
    before: str
    line: str

    @property
    def done(self) -> bool:
        """Whether the owner's configuration has the line already."""
        return self.line in [line.strip() for line in self.before.splitlines()]

    @property
    def after(self) -> str:
        """The new text of the file.

        The line comes first, because everything below a `Host` belongs to that host.
        """
        return f"{self.line}\n\n{self.before}" if self.before else f"{self.line}\n"

    def carry_out(self) -> None:
        """Put the line first in the file. The file keeps its mode.

        Raises:
            LocalTrouble: the file cannot be written, or has changed since it was shown.
        """
        if _text(self.file) != self.before:
            raise LocalTrouble(
                f"{self.file} has changed meanwhile", remedy="run the same command again"
            )
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = self.file.stat().st_mode & 0o777 if self.file.exists() else 0o600
            # If the file is a link into a collection of dotfiles, the link stays.
            _replace(self.file.resolve(), self.after, mode=mode)
        except OSError as error:
            raise LocalTrouble(
                f"{self.file} cannot be written: {error.strerror}",
                remedy=f"put this line at the beginning of that file yourself: {self.line}",
            ) from error


def inclusion(home: Home, owner_ssh: Path) -> Inclusion:
    """Return the change to the owner's configuration. It is shown first, and carried out if the owner agrees."""
    place = ssh_config(home)
    owner = owner_ssh.parent
    shown = f"~/{place.relative_to(owner)}" if place.is_relative_to(owner) else str(place)
    file = owner_ssh / "config"
    return Inclusion(file=file, before=_text(file), line=f"Include {_word(shown)}")


def _entry(box: Reachable, home: Home, owner_ssh: Path) -> Iterator[str]:
    owner_ssh = home.ssh_of(box.lease, owner_ssh)
    yield from _blocks(str(box.lease), box.address.target, box, home, owner_ssh, jumps=0)


def _blocks(
    name: str, target: str, box: Reachable, home: Home, owner_ssh: Path, *, jumps: int
) -> Iterator[str]:
    """Yield the block `name` for `target`, after the blocks of the jump hosts that the owner's configuration names."""
    if jumps > _MAX_JUMPS:
        raise BadRequest(
            f"the way to {target!r} has more than {_MAX_JUMPS} jump hosts; probably a ProxyJump leads back to itself",
            remedy=f"correct its ProxyJump in {owner_ssh / 'config'}",
        )
    told = ssh_of(target.removeprefix("ssh://"))
    if told is None:
        raise BadRequest(
            f"{target!r} is not an ssh target",
            remedy=f"{Command('leases')} shows the lease's address",
        )
    plain = _effective(told, None)
    config = owner_ssh / "config"
    effective = _effective(told, config) if config.is_file() else plain
    hops = [hop for hop in _one(effective, "proxyjump").split(",") if hop not in ("", "none")]
    way: list[str] = []
    for hop in hops if target not in hops else []:
        way.append(f"{name}-jump{len(way) + 1}")
        yield from _blocks(way[-1], hop, box, home, owner_ssh, jumps=jumps + 1)
    files = [home.client_key, *_owners_keys(effective, plain, owner_ssh)]
    lines = [
        f"Host {name}",
        f"HostName {_one(effective, 'hostname')}",
        f"Port {_one(effective, 'port')}",
        *([f"User {user}"] if (user := _one(effective, "user")) else []),
        *(f"IdentityFile {_word(file)}" for file in files),
        "IdentitiesOnly yes",
        f"UserKnownHostsFile {_word(home.known_hosts(box.lease))}",
        "GlobalKnownHostsFile /dev/null",
        "StrictHostKeyChecking yes",
        "CheckHostIP no",
        "UpdateHostKeys no",
        "ForwardAgent no",
        "ControlMaster no",
        "ControlPath none",
        *([f"ProxyJump {','.join(way)}"] if way else []),
    ]
    default = {(key, value) for key, values in plain.items() for value in values}
    lines += [
        f"{key} {value}"
        for key, values in effective.items()
        for value in values
        if key not in _OURS and (key, value) not in default
    ]
    yield "\n    ".join(lines) + "\n"


def _owners_keys(
    effective: Mapping[str, Sequence[str]], plain: Mapping[str, Sequence[str]], owner_ssh: Path
) -> Iterable[Path]:
    """Return the keys that the owner's configuration names for that host.

    If it names none, return the usual keys that exist.
    """
    named = [f for f in effective.get("identityfile", ()) if f not in plain.get("identityfile", ())]
    if named:
        return [Path(str(owner_ssh.parent) + f[1:] if f.startswith("~/") else f) for f in named]
    return [path for name in _OWNERS_KEYS if (path := owner_ssh / name).is_file()]


def _effective(told: Ssh, config: Path | None) -> Mapping[str, Sequence[str]]:
    """Return every option that ssh would use for that target with `config`, as `ssh -G` prints it."""
    host, port, user = told.host, told.port and str(told.port), told.user
    said = {"hostname": [host], "port": [port or "22"]} | ({"user": [user]} if user else {})
    if config is None:
        # Without a configuration, no other option depends on the host. So ssh is asked only once for all hosts.
        return {**_defaults(which("ssh")), **said}
    # Read the one file that the transport reads, so that ssh reaches a lease in the same way.
    # Without `-F`, ssh would look up the home in the password database, even if the environment
    # names another home.
    argv = ["-F", str(config), *(["-l", user] if user else []), *(["-p", port] if port else [])]
    # A computer without an ssh client can still give the entry to another computer.
    return _ask_ssh(which("ssh"), *argv, "--", host) or said


@cache
def _defaults(client: str | None) -> Mapping[str, Sequence[str]]:
    return _ask_ssh(client, "-F", "none", "--", "host")


def _ask_ssh(client: str | None, *argv: str) -> Mapping[str, Sequence[str]]:
    """Return the options that `ssh -G` prints for those arguments. Empty if there is no client, or if it fails."""
    try:
        ran = subprocess.run(
            [client or "ssh", "-G", *argv],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    said: dict[str, list[str]] = {}
    for line in ran.stdout.splitlines() if not ran.returncode else ():
        key, _, value = line.partition(" ")
        said.setdefault(key.lower(), []).append(value)
    return said


def _one(options: Mapping[str, Sequence[str]], key: str) -> str:
    return next(iter(options.get(key, ())), "")


def _word(path: str | Path) -> str:
    """Return a path as one word of an ssh configuration. `%` is doubled, because it begins a token there."""
    text = str(path).replace("%", "%%")
    return f'"{text}"' if any(c.isspace() for c in text) else text


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""


def _replace(file: Path, text: str, *, mode: int) -> None:
    replace_file(file, text.encode("utf-8", "surrogateescape"), durable="none", mode=mode)
