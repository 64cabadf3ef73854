"""Makes one ssh connection, by the owner's ssh config. Only the pinned host is accepted. Our own key is tried first."""

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import asyncssh

from gpu_tenant.domain.address import ssh_of
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    BoxTrouble,
    BoxUnreachable,
    HostKeyChanged,
    LocalTrouble,
)
from gpu_tenant.files.replace_file import replace_file
from gpu_tenant.transports import as_told

_CONNECT_S = 20
_MAX_JUMPS = 8
_HOST_KEYS = (
    "ssh-ed25519",
    *("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    *("rsa-sha2-512", "rsa-sha2-256"),
)
"""Only plain keys. A host certificate contains nothing that could be pinned at the first contact."""
_OWNERS_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
DOCTOR = f"run {Command('doctor')}, which checks the ssh key and the ssh agent on this computer"
AUDIT = f"the state of the box is unknown now; run {Command('audit')} to look again"


def ensure_key(path: Path) -> Path:
    """Make sure that `path` is a private ed25519 key that only its owner can read. The public key is beside it.

    An existing key is kept. Callers at the same time get the same key. Returns `path`.

    Raises:
        LocalTrouble: the key could not be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            fresh = asyncssh.generate_private_key("ssh-ed25519", comment="gpu-tenant")
            part = _write_draft_beside(path, fresh.export_private_key())
            with contextlib.suppress(FileExistsError):
                os.link(part, path)
            part.unlink()
        if stat.S_IMODE(path.stat().st_mode) != 0o600:
            # Change the mode only if it is wrong: on a read-only disk the change fails, and then no
            # box could be reached.
            path.chmod(0o600)
        public = path.with_name(f"{path.name}.pub")
        if not public.exists():
            content = asyncssh.read_private_key(path).export_public_key()
            replace_file(public, content, durable="file", mode=0o644)
    except (OSError, ValueError) as exc:
        raise LocalTrouble(f"no ssh key at {str(path)!r}: {exc}", remedy=DOCTOR) from exc
    return path


class Dialer:
    """Opens connections to a box, and to the jump hosts before it. Checks that each is the same host as before.

    `known_hosts` is this lease's own file of pinned host keys. It is written at the first contact. `owner_ssh`
    is the owner's `~/.ssh`: its config, known hosts and keys are used as well. `tell` is called with a sentence
    whenever a host key is pinned. `password` is shown only to the box, and never to a jump host.
    """

    def __init__(
        self,
        *,
        known_hosts: Path,
        client_key: Path,
        tell: Callable[[str], None],
        owner_ssh: Path,
        password: str | None = None,
    ) -> None:
        self._password = password
        self._known_hosts = known_hosts
        self._client_key = client_key
        self._tell = tell
        self._owner_ssh = owner_ssh

    async def dial(self, target: str) -> asyncssh.SSHClientConnection:
        """Log in to `target`, and pin its host key. After that, `target` must always show this key.

        Raises:
            BoxUnreachable: the target, or a jump host, did not answer.
            HostKeyChanged: the host key is not the known one; nothing was sent.
            BoxTrouble: the target accepted none of our keys.
            BadRequest: `target`, or the owner's ssh config for it, is invalid.
            LocalTrouble: a key cannot be read, or the host key cannot be saved.
        """
        return await self._dial(target, via=None, jumps=0)

    async def _dial(
        self, target: str, *, via: asyncssh.SSHClientConnection | None, jumps: int
    ) -> asyncssh.SSHClientConnection:
        key = _own_key(self._client_key)
        config = self._owner_ssh / "config"
        with contextlib.ExitStack() as on_failure:
            if via:
                on_failure.callback(via.close)
            options = _options(target, key, config)
            hops = options.tunnel.split(",") if isinstance(options.tunnel, str) and not via else []
            if jumps > _MAX_JUMPS:
                raise BadRequest(
                    f"the way to {target!r} has more than {_MAX_JUMPS} jump hosts; probably a ProxyJump leads back to itself",
                    remedy=f"correct it in {config}",
                )
            # If the config has a ProxyJump under `Host *`, a jump host would be its own jump host.
            for hop in hops if target not in hops else []:
                via = await self._dial(hop.removeprefix("ssh://"), via=via, jumps=jumps + 1)
                on_failure.callback(via.close)
            name = options.host_key_alias or _host_name(options.host, options.port)
            pinned = _keys_of(name, self._known_hosts)
            known = pinned or _keys_of(name, self._owner_ssh / "known_hosts")
            guard = _Guard(
                known, options, self._owner_ssh, password=None if jumps else self._password
            )
            try:
                connection = await asyncssh.connect(
                    options.orig_host,
                    options.port,
                    options=options,
                    config=[config] if config.exists() else None,
                    tunnel=via,
                    client_factory=lambda: guard,
                    server_host_key_algs=_prefer(known),
                    agent_path="",  # the guard asks the agent after our own key was refused
                )
            except (asyncssh.Error, OSError, ValueError) as exc:
                raise self._not_let_in(target, name, guard, key, exc) from exc
            on_failure.callback(connection.close)
            assert guard.shown_key
            if not pinned:
                self._pin(name, guard.shown_key, known)
            on_failure.pop_all()
        connection.set_tunnel(via)
        return connection

    def _pin(self, name: str, key: asyncssh.SSHKey, known: Sequence[asyncssh.SSHKey]) -> None:
        """Pin `key` for `name`: from now on, that host must show it.

        Raises:
            HostKeyChanged: another key is already pinned.
            LocalTrouble: the file of pinned keys cannot be read or written.
        """
        try:
            pinned = _keys_of(name, self._known_hosts)
            if pinned and key not in pinned:
                raise self._key_changed(name, pinned, key)
            old = self._known_hosts.read_bytes() if self._known_hosts.exists() else b""
            line = f"{name} ".encode() + key.export_public_key()
            self._known_hosts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._known_hosts, old + line, durable="file")
        except OSError as exc:
            raise LocalTrouble(
                f"cannot write the host key to {str(self._known_hosts)!r}: {exc.strerror}",
                remedy=DOCTOR,
            ) from exc
        source = "as in your own known_hosts" if known else "seen for the first time"
        self._tell(f"pinned {key.get_fingerprint()} for {name}, {source}")

    def _key_changed(
        self, name: str, known: Sequence[asyncssh.SSHKey], offered: asyncssh.SSHKey
    ) -> HostKeyChanged:
        expected = " or ".join(key.get_fingerprint() for key in known)
        pinned = bool(_keys_of(name, self._known_hosts))
        where = self._known_hosts if pinned else self._owner_ssh / "known_hosts"
        return HostKeyChanged(
            f"{name} shows host key {offered.get_fingerprint()}, but {expected} is known;"
            " nothing was sent",
            remedy="ask the box's owner; if the box was reinstalled, remove its line from"
            f" {where}, then run the same command again",
        )

    def _not_let_in(
        self, target: str, name: str, guard: "_Guard", key: asyncssh.SSHKey, exc: Exception
    ) -> BoxTrouble | BadRequest:
        if isinstance(exc, asyncssh.HostKeyNotVerifiable) and guard.shown_key:
            return self._key_changed(name, guard.known, guard.shown_key)
        # sshd counts the keys that it is shown. If the owner has many, it hangs up before all were tried.
        if isinstance(exc, asyncssh.PermissionDenied) or "authentication failures" in str(exc):
            line = key.export_public_key().decode().strip()
            if self._password is not None:
                return BoxTrouble(
                    f"{name} does not accept that password",
                    remedy="copy the password again from the console; it may change at every start",
                )
            return BoxTrouble(
                f"{name} accepted none of our keys",
                remedy=f"if there is a password, {Command('adopt', '...', password_stdin=True)} uses it to install "
                f"our key; otherwise add this line to ~/.ssh/authorized_keys there: {line}",
            )
        if isinstance(exc, asyncssh.Error | OSError):
            return unreachable(target, exc)
        return BadRequest(f"{target!r} cannot be connected to: {exc}", remedy=DOCTOR)


class _Guard(asyncssh.SSHClient):
    """Accepts exactly one host, and offers our keys to it.

    That is the known host. If no host is known yet, it is the first one that answers.
    """

    def __init__(
        self,
        known: Sequence[asyncssh.SSHKey],
        options: asyncssh.SSHClientConnectionOptions,
        owner_ssh: Path,
        *,
        password: str | None = None,
    ) -> None:
        self._password = password
        self.known = known
        self.shown_key: asyncssh.SSHKey | None = None
        self._options = options
        self._ssh = owner_ssh
        self._agent: asyncssh.SSHAgentClient | None = None
        self._asked = False

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Return whether the host's key is accepted. Called in every key exchange, before anything else is sent."""
        accepted = self.known or [self.shown_key or key]
        self.shown_key = key
        return key in accepted

    async def public_key_auth_requested(self) -> Sequence[asyncssh.SSHKeyPair] | None:
        """Return the owner's keys, and None at the next call. Called after our own key was refused."""
        if self._asked:
            return None
        self._asked = True
        named = self._options.config.get("IdentityFile")
        files = named if isinstance(named, list) else [self._ssh / name for name in _OWNERS_KEYS]
        keys: list[asyncssh.SSHKeyPair] = []
        for file in files:
            # An absent or encrypted key file is no error, because the agent may have the key.
            with contextlib.suppress(OSError, ValueError):
                keys += asyncssh.load_keypairs(str(file))
        with contextlib.suppress(OSError, ValueError):
            keys += await self._agents_keys(files)
        return keys

    def password_auth_requested(self) -> str | None:
        """Return the password once, and None after that. Called when no key was accepted."""
        once, self._password = self._password, None
        return once

    def kbdint_auth_requested(self) -> str | None:
        """Return an empty string to allow the box to ask questions, if there is a password. None otherwise."""
        return None if self._password is None else ""

    def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> Sequence[str] | None:
        """Answer with the password if the box asks one question with hidden input. Answer no other question."""
        if len(prompts) == 1 and not prompts[0][1]:
            once = self.password_auth_requested()
            return None if once is None else [once]
        return [] if not prompts else None

    async def _agents_keys(self, files: Sequence[object]) -> Sequence[asyncssh.SSHKeyPair]:
        wanted: list[bytes] | None = None
        if self._options.config.get("IdentitiesOnly"):
            wanted = []
            for file in files:
                with contextlib.suppress(OSError, ValueError):
                    wanted.append(asyncssh.read_public_key(f"{file}.pub").public_data)
            if not wanted:
                return []
        self._agent = await asyncssh.connect_agent(self._options.agent_path or "")
        return await self._agent.get_keys(wanted)

    def auth_completed(self) -> None:
        """Close the connection to the ssh agent. Called when the box has let us in."""
        self._close_agent()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the connection to the ssh agent. Called when the connection ends, even if the login failed."""
        self._close_agent()

    def _close_agent(self) -> None:
        if self._agent:
            self._agent.close()


def _options(
    target: str, key: asyncssh.SSHKey, config: Path
) -> asyncssh.SSHClientConnectionOptions:
    """Return the options to reach `target`, from the target itself and the owner's ssh config."""
    told = ssh_of(target)
    if told is None:
        raise BadRequest(
            f"{target!r} is not an ssh target",
            remedy="write user@host, user@host:port, user@[address]:port or an alias of yours",
        )
    try:
        return asyncssh.SSHClientConnectionOptions(
            config=[config] if config.exists() else None,
            host=told.host,
            port=told.port or (),
            username=told.user or (),
            client_keys=[key],
            known_hosts=asyncssh.import_known_hosts(
                ""
            ),  # so that the guard decides about every key
            encryption_algs="^aes128-gcm@openssh.com,aes256-gcm@openssh.com",
            agent_forwarding=False,
            gss_kex=False,  # with GSS the host would show no key
            connect_timeout=_CONNECT_S,
            login_timeout=_CONNECT_S,
            keepalive_interval=15,
            keepalive_count_max=3,
        )
    except (OSError, ValueError) as exc:
        raise BadRequest(f"{target!r} with {config}: {exc}", remedy="correct that file") from exc


def _own_key(path: Path) -> asyncssh.SSHKey:
    try:
        return asyncssh.read_private_key(path)
    except (OSError, ValueError) as exc:
        raise LocalTrouble(f"no ssh key at {str(path)!r}: {exc}", remedy=DOCTOR) from exc


def _host_name(host: str, port: int) -> str:
    return host if port == asyncssh.DEFAULT_PORT else f"[{host}]:{port}"


def _keys_of(name: str, file: Path) -> Sequence[asyncssh.SSHKey]:
    """Return the keys that a known_hosts `file` has for exactly `name`, including the port."""
    hosts = asyncssh.SSHKnownHosts()
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise LocalTrouble(
            f"cannot read the known host keys in {str(file)!r}: {exc.strerror}", remedy=DOCTOR
        ) from exc
    for line in text.splitlines():
        with contextlib.suppress(ValueError):  # one bad line must not hide the others
            hosts.load(line)
    # Pass host and port together, as one name. If the port were a separate argument, the library
    # would also accept a key for the host without a port.
    return hosts.match(name, "", None)[0]


def _prefer(known: Sequence[asyncssh.SSHKey]) -> Sequence[str]:
    """Return all plain algorithms, those of the `known` keys first. So a host with several keys shows a known one."""
    first = {algorithm.decode() for key in known for algorithm in key.sig_algorithms}
    return sorted(_HOST_KEYS, key=lambda algorithm: algorithm not in first)


def _write_draft_beside(path: Path, content: bytes) -> Path:
    """Write `content` to a new private file in the directory of `path`, and flush it to the disk. Returns its path."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return part


def unreachable(target: str, exc: Exception) -> BoxUnreachable:
    """Make the error for a box that does not answer at `target`."""
    why = as_told((str(exc) or type(exc).__name__).encode())
    return BoxUnreachable(f"no ssh connection to {target!r}: {why}", remedy=AUDIT)
