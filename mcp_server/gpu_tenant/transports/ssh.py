"""The way to a box over ssh: over one kept connection, and only to a host whose key is known or pinned."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

import asyncssh

from gpu_tenant.domain.errors import BoxTrouble, BoxUnreachable, LocalTrouble
from gpu_tenant.domain.model import SshAddress
from gpu_tenant.domain.ports import Channel, Finished, Listener
from gpu_tenant.transports import CHUNK_BYTES, all_of, as_told, converse, run_uninterrupted
from gpu_tenant.transports.connection_limit import OURS, Lines
from gpu_tenant.transports.openssh import OpenSsh
from gpu_tenant.transports.shell import command_line, refusal_for, write_command
from gpu_tenant.transports.ssh_channel import Piped
from gpu_tenant.transports.ssh_connect import AUDIT, DOCTOR, Dialer, ensure_key, unreachable

__all__ = ["SshTransport", "ensure_key", "introduce"]

logging.getLogger("asyncssh").setLevel(logging.WARNING)
# asyncio logs this for every packet that was under way when a link broke. We raise an error instead.
logging.getLogger("asyncio").addFilter(lambda line: line.msg != "socket.send() raised exception.")

_CHANNEL_S = 5
_INTRODUCED_WITHIN_S = 30
_KEEP = """
umask 077
mkdir -p ~/.ssh && touch ~/.ssh/authorized_keys || exit 1
grep -qxF "$1" ~/.ssh/authorized_keys && exit 0
[ -z "$(tail -c 1 ~/.ssh/authorized_keys)" ] || echo >>~/.ssh/authorized_keys
printf '%s\\n' "$1" >>~/.ssh/authorized_keys
"""
"""Appends our line to the file. If the last line has no newline, one is added first."""
_STALL_S = 300
_MAX_CHANNELS = 8
"""By default, sshd allows ten sessions on a connection."""
_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)
"""The pauses before further attempts. sshd counts a session as open for a moment after we have seen its end."""
_BESIDE_BYTES = 4 << 20
"""This many bytes may wait in memory to be read, for each channel over the kept connection."""
_WINDOW_BYTES = 32 << 20
"""A stream moves at most this much per round trip. The default of asyncssh, 2 MiB, allows 26 MB/s at 80 ms."""
_SIGNALS = {
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "ILL": 4,
    "ABRT": 6,
    "FPE": 8,
    "KILL": 9,
    "USR1": 10,
    "SEGV": 11,
    "USR2": 12,
    "PIPE": 13,
    "ALRM": 14,
    "TERM": 15,
}


class SshTransport:
    """Runs commands on a box, and copies files to and from it, over one kept ssh connection.

    `known_hosts` is this lease's own file of pinned host keys. It is written at the first contact. `owner_ssh`
    is the owner's own `~/.ssh`: its config, known hosts and keys are used as well. `tell` is called with a
    sentence whenever a host key is pinned. `openssh` is the system's ssh client, for connections beside the
    kept one. `lines` closes idle kept connections if too many are open.
    """

    def __init__(
        self,
        address: SshAddress,
        *,
        known_hosts: Path,
        client_key: Path,
        tell: Callable[[str], None],
        owner_ssh: Path | None = None,
        openssh: OpenSsh | None = None,
        lines: Lines = OURS,
    ) -> None:
        self._lines = lines
        self._users = 0
        self._target = address.target
        self._openssh = openssh
        self._dialer = Dialer(
            known_hosts=known_hosts,
            client_key=client_key,
            tell=tell,
            owner_ssh=owner_ssh or Path.home() / ".ssh",
        )
        self._opening = asyncio.Lock()
        self._channels = asyncio.Semaphore(_MAX_CHANNELS)
        self._kept: asyncssh.SSHClientConnection | None = None
        self._left: list[asyncssh.SSHClientConnection] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | AsyncIterable[bytes] = b"",
        timeout_s: float,
        listener: Listener | None = None,
    ) -> Finished:
        """Run a command to its end. See `Transport.run`. If the command does not exist, the status is 127.

        Raises:
            BoxUnreachable: there is no connection, the link broke, or `timeout_s` passed.
            HostKeyChanged: the host key is not the pinned one; nothing was sent.
            BoxTrouble: the box accepted none of our keys, or the command printed more than `MAX_OUTPUT_BYTES`.
        """
        async with _within(
            timeout_s, f"the command did not end within {timeout_s:g} s, and may still be running"
        ):
            return await self._talk(argv, stdin, listener)

    async def put(self, source: Path, destination: str, *, mode: int = 0o600) -> None:
        """Copy `source` to `destination`. The file appears there complete, by a rename.

        Raises:
            BoxUnreachable: see `run`. Also raised if nothing moved for five minutes.
            HostKeyChanged: see `run`.
            BoxTrouble: the box refuses the file (disk full, no such directory, no permission).
            LocalTrouble: `source` cannot be read, or became shorter meanwhile.
        """
        try:
            original = source.open("rb")
        except OSError as exc:
            raise _unreadable(source, exc.strerror) from exc
        with original:
            size_bytes = os.fstat(original.fileno()).st_size
            async with _within(_STALL_S, f"nothing moved for {_STALL_S} s") as limit:
                argv = write_command(destination, size_bytes=size_bytes, mode=mode)
                chunks = _read(original, source, size_bytes, limit)
                ended = await self._talk(argv, chunks)
        if ended.exit_status:
            raise refusal_for(destination, ended)

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        """Start a command and return its channel.

        With `way="kept"`, the channel uses the kept connection. With `way="own"`, it gets a connection that
        ends with the command. If OpenSSH is installed, it makes that connection, because then the decryption
        runs on another core.

        Raises:
            BoxUnreachable: see `run`.
            HostKeyChanged: see `run`.
            BoxTrouble: see `run`.
        """
        command = command_line(argv)
        if way == "kept":
            with contextlib.ExitStack() as on_failure:
                on_failure.enter_context(self._in_use())
                await self._channels.acquire()
                on_failure.callback(self._channels.release)
                process = await self._start(command, window_bytes=_BESIDE_BYTES)
                return Piped(process, on_failure.pop_all().close)
        if self._openssh is not None:
            return self._openssh.open(command)
        connection = await self._dialer.dial(self._target)
        # When the channel is hung up, this connection is closed. `aclose` waits for it as well.
        self._left = [*(link for link in self._left if not link.is_closed()), connection]
        try:
            return Piped(
                await _begin(connection, command, window_bytes=_WINDOW_BYTES), connection.close
            )
        except BaseException as exc:
            connection.close()
            if isinstance(exc, _UnsentError):
                raise unreachable(self._target, exc) from exc
            raise

    async def aclose(self) -> None:
        """Close every connection. Nothing on the box is stopped by that."""
        self._lines.note_used(self)
        links = [*self._left, *([self._kept] if self._kept else [])]
        self._kept, self._left = None, []
        for link in links:
            link.close()
        for link in links:
            try:
                async with asyncio.timeout(2):
                    await link.wait_closed()
            except TimeoutError:
                link.abort()

    def hang_up(self) -> None:
        """Close the kept connection if it is not in use. The next call opens another."""
        if self._kept is not None and not self._users:
            self._left = [*(link for link in self._left if not link.is_closed()), self._kept]
            self._kept.close()
            self._kept = None

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        self._users += 1
        self._lines.note_used(self)
        try:
            yield
        finally:
            self._users -= 1
            if self._kept is not None and not self._users:
                self._lines.idle(self)

    async def _talk(
        self,
        argv: Sequence[str],
        stdin: bytes | AsyncIterable[bytes],
        listener: Listener | None = None,
    ) -> Finished:
        with self._in_use():
            async with self._channels:
                return await self._run_told(argv, stdin, listener)

    async def _run_told(
        self, argv: Sequence[str], stdin: bytes | AsyncIterable[bytes], listener: Listener | None
    ) -> Finished:
        process = await self._start(command_line(argv))
        try:
            stdout, stderr = await converse(
                stdin,
                process.stdin,
                all_of(process.stdout, listener),
                all_of(process.stderr),
                listener=listener,
            )
            await process.wait_closed()
        except (asyncssh.Error, OSError) as exc:
            raise _cut(exc) from exc
        finally:
            if process.exit_status is None:
                # This only asks the command to end. The box may not receive the signal, and the
                # command may ignore it.
                with contextlib.suppress(OSError):
                    process.terminate()
            process.close()
        if process.exit_signal:
            return Finished(128 + _SIGNALS.get(process.exit_signal[0], 0), stdout, stderr)
        if process.exit_status is None:
            raise _cut(EOFError("the command's exit status did not arrive"))
        return Finished(process.exit_status, stdout, stderr)

    async def _start(
        self, command: str, *, window_bytes: int = _WINDOW_BYTES
    ) -> asyncssh.SSHClientProcess[bytes]:
        """Send `command` exactly once. A command that may have run is never sent again."""
        pauses_s = iter(_PAUSES_S)
        died = False
        while True:
            connection = await self._connect()
            try:
                return await _begin(connection, command, window_bytes=window_bytes)
            except _ChannelRefusedError as exc:
                pause_s = next(pauses_s, None)
                if pause_s is None:
                    raise _no_commands(exc) from exc
                await asyncio.sleep(pause_s)
            except _ConnectionDeadError as exc:
                if died:
                    raise unreachable(self._target, exc) from exc
                died = True
                # The connection is not closed, because a transfer may still use it. If it is dead,
                # its keepalive ends it.
                if self._kept is connection:
                    self._kept = None
                    self._left.append(connection)

    async def _connect(self) -> asyncssh.SSHClientConnection:
        async with self._opening:
            if self._kept is None or self._kept.is_closed():
                self._left = [link for link in self._left if not link.is_closed()]
                self._kept = await self._dialer.dial(self._target)
            return self._kept


class _UnsentError(Exception):
    """The command was not sent."""


class _ConnectionDeadError(_UnsentError):
    """The connection was already dead before the command was sent."""


class _ChannelRefusedError(_UnsentError):
    """The box accepts no further session on this connection, or no session at all. The command was not sent."""


async def _begin(
    connection: asyncssh.SSHClientConnection, command: str, *, window_bytes: int
) -> asyncssh.SSHClientProcess[bytes]:
    """Send `command` on `connection`.

    Raises:
        _UnsentError: the command was not sent. The subclass says why.
        BoxTrouble: the box refused the command.
        BoxUnreachable: the link was lost at a moment when the command may already have begun.
    """
    process: asyncssh.SSHClientProcess[bytes] | None = None

    def open_session() -> asyncssh.SSHClientProcess[bytes]:
        # The library calls this after it has opened the channel and before it sends the command.
        nonlocal process
        limit.reschedule(None)
        process = asyncssh.SSHClientProcess()
        return process

    try:
        async with asyncio.timeout(_CHANNEL_S) as limit:
            await connection.create_session(
                open_session,
                command,
                subsystem=None,
                send_env=None,
                request_pty=False,
                encoding=None,
                window=window_bytes,
            )
    except (asyncssh.Error, OSError) as exc:
        refused = isinstance(exc, asyncssh.ChannelOpenError) and not connection.is_closed()
        if process is None:
            unsent = _ChannelRefusedError if refused else _ConnectionDeadError
            raise unsent(str(exc) or type(exc).__name__) from exc
        raise (_no_commands(exc) if refused else _cut(exc)) from exc
    assert process
    return process


@asynccontextmanager
async def _within(limit_s: float, what: str) -> AsyncIterator[asyncio.Timeout]:
    """Cancel the block if it has not ended after `limit_s` seconds. The block may extend that limit.

    Raises:
        BoxUnreachable: the block was cancelled; the error says `what`.
    """
    try:
        async with asyncio.timeout(limit_s) as limit:
            yield limit
    except TimeoutError:
        raise BoxUnreachable(what, remedy=AUDIT) from None


def _extend(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + _STALL_S)


async def _read(
    original: BinaryIO, source: Path, size_bytes: int, limit: asyncio.Timeout
) -> AsyncIterator[bytes]:
    """Yield the first `size_bytes` of `original`. Bytes that are appended meanwhile are left out."""
    while size_bytes:
        wanted = min(CHUNK_BYTES, size_bytes)
        try:
            chunk = await run_uninterrupted(partial(original.read, wanted))
        except OSError as exc:
            raise _unreadable(source, exc.strerror) from exc
        if not chunk:
            raise _unreadable(source, "the file became shorter while it was sent")
        size_bytes -= len(chunk)
        yield chunk
        _extend(limit)


def _unreadable(source: Path, why: str | None) -> LocalTrouble:
    return LocalTrouble(
        f"cannot read {str(source)!r}: {why}", remedy="check the file, and try again"
    )


def _no_commands(exc: Exception) -> BoxTrouble:
    return BoxTrouble(
        f"the box let us in, but would not run a command: {as_told(str(exc).encode())}",
        remedy=f"use its other ssh address, if its provider shows two; {DOCTOR}",
    )


def _cut(exc: Exception) -> BoxUnreachable:
    why = as_told((str(exc) or type(exc).__name__).encode())
    return BoxUnreachable(
        f"the link broke during a command, which may still be running: {why}", remedy=AUDIT
    )


async def introduce(
    address: SshAddress,
    password: str,
    *,
    known_hosts: Path,
    client_key: Path,
    tell: Callable[[str], None],
    owner_ssh: Path | None = None,
) -> None:
    """Store our key on the box, so that the box accepts it from now on. The password is used once and not stored.

    Raises:
        BoxUnreachable: the box did not answer.
        HostKeyChanged: the host key is not the known one; the password was not sent.
        BoxTrouble: the box does not accept the password, or did not store the key.
    """
    dialer = Dialer(
        known_hosts=known_hosts,
        client_key=client_key,
        tell=tell,
        owner_ssh=owner_ssh or Path.home() / ".ssh",
        password=password,
    )
    line = client_key.with_name(f"{client_key.name}.pub").read_text(encoding="utf-8").strip()
    connection = await dialer.dial(address.target)
    try:
        async with _within(
            _INTRODUCED_WITHIN_S, f"the box did not store our key within {_INTRODUCED_WITHIN_S} s"
        ):
            ended = await connection.run(command_line(["sh", "-c", _KEEP, "keep", line]))
    finally:
        connection.close()
    if ended.exit_status:
        raise BoxTrouble(
            f"the box would not store our key: {as_told(str(ended.stderr).encode())}",
            remedy=f"add this line to ~/.ssh/authorized_keys there: {line}",
        )
