"""The way into a container through the API's exec: one websocket for each command, and none is kept open."""

import asyncio
import contextlib
import json
import os
import re
import threading
from collections.abc import AsyncIterable, Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from socket import socket, socketpair
from typing import Any, Literal

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    BoxTrouble,
    BoxUnreachable,
    LocalTrouble,
    ProviderTrouble,
)
from gpu_tenant.domain.model import PodAddress
from gpu_tenant.domain.ports import Channel, Finished, Listener
from gpu_tenant.providers.kubernetes.client import KubernetesClient
from gpu_tenant.providers.kubernetes.websocket import FAR_END, Frames, StderrParser
from gpu_tenant.transports import CHUNK_BYTES, all_of, as_told, converse, run_uninterrupted
from gpu_tenant.transports.shell import refusal_for, write_command

_STALL_S = 300
_DIAL_S = 30.0
"""How long a cluster may take to start an exec."""
_AUDIT = f"run {Command('audit')} to look again; its Job may have ended"
_OUT, _ERR, _STATUS = 1, 2, 3


class PodTransport:
    """Runs commands in the container of one pod, and copies files to it.

    At the far end, a few lines of Python start the command, and end it when the link breaks. Without them, an exec
    whose client is gone would continue to run. They also detect the end of the input. Version 4 of the protocol cannot
    signal it, and version 5 can, so this works with both versions.
    """

    def __init__(self, address: PodAddress) -> None:
        self._address = address
        self._calls = KubernetesClient(address.context, address.kubeconfig)
        self._left: set[_Exec] = set()

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | AsyncIterable[bytes] = b"",
        timeout_s: float,
        listener: Listener | None = None,
    ) -> Finished:
        """Run a command to its end. See `Transport.run`. A command that does not exist ends with 127.

        Raises:
            BoxUnreachable: there is no such pod, the link broke, or `timeout_s` passed and the command was told to
                end.
            BoxTrouble: exec is not allowed, the image has no python3, or more than `MAX_OUTPUT_BYTES` was printed.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._talk(argv, stdin, listener)
        except TimeoutError:
            raise BoxUnreachable(
                f"the command did not end within {timeout_s:g} s, and was told to end",
                remedy=_AUDIT,
            ) from None

    async def put(self, source: Path, destination: str, *, mode: int = 0o600) -> None:
        """Copy `source` to `destination`, which appears complete, by a rename.

        Raises:
            BoxUnreachable: see `run`; also if nothing moved for five minutes.
            BoxTrouble: the box does not accept the file (disk full, no such directory, no permission).
            LocalTrouble: `source` cannot be read, or became shorter meanwhile.
        """
        try:
            original = source.open("rb")
        except OSError as exc:
            raise _unreadable(source, exc.strerror) from exc
        with original:
            size_bytes = os.fstat(original.fileno()).st_size
            argv = write_command(destination, size_bytes=size_bytes, mode=mode)
            try:
                async with asyncio.timeout(_STALL_S) as limit:

                    async def chunks() -> AsyncIterable[bytes]:
                        left = size_bytes
                        while left:
                            read = partial(original.read, min(CHUNK_BYTES, left))
                            chunk = await run_uninterrupted(read)
                            if not chunk:
                                raise _unreadable(
                                    source, "the file became shorter while it was sent"
                                )
                            left -= len(chunk)
                            yield chunk
                            limit.reschedule(asyncio.get_running_loop().time() + _STALL_S)

                    ended = await self._talk(argv, chunks())
            except TimeoutError:
                raise BoxUnreachable(f"nothing moved for {_STALL_S} s", remedy=_AUDIT) from None
        if ended.exit_status:
            raise refusal_for(destination, ended)

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        """Start the command over a websocket of its own, because there is no connection to reuse here.

        Raises:
            BoxUnreachable: see `run`.
            BoxTrouble: see `run`.
        """
        return await self._begin(argv, complaints="dropped")

    async def aclose(self) -> None:
        """Close every link, and tell each command that still runs over one to end."""
        for link in list(self._left):
            link.hang_up()

    async def _talk(
        self,
        argv: Sequence[str],
        stdin: bytes | AsyncIterable[bytes],
        listener: Listener | None = None,
    ) -> Finished:
        link = await self._begin(argv, complaints="kept")
        assert link.complaints is not None
        try:
            _, sink = await asyncio.open_connection(sock=link.writer)
            out, out_sink = await asyncio.open_connection(sock=link.reader)
            err, err_sink = await asyncio.open_connection(sock=link.complaints)
            try:
                stdout, stderr = await converse(
                    stdin, sink, all_of(out, listener), all_of(err), listener=listener
                )
            finally:
                for each in (sink, out_sink, err_sink):
                    each.close()
            return Finished(await asyncio.to_thread(link.status), stdout, stderr)
        finally:
            link.hang_up()

    async def _begin(
        self, argv: Sequence[str], *, complaints: Literal["kept", "dropped"]
    ) -> "_Exec":
        if not argv or any("\0" in argument for argument in argv):
            raise BadRequest(f"not a command: {list(argv)!r}", remedy="see `gpu-tenant --help`")
        try:
            async with asyncio.timeout(_DIAL_S):
                frames = await self._dial_in_thread()
        except TimeoutError:
            raise BoxUnreachable(
                f"the cluster of {self._address.context} does not answer ({_DIAL_S:g} s)",
                remedy=_AUDIT,
            ) from None
        link = _Exec(frames, argv, complaints=complaints, over=self._left.discard)
        self._left.add(link)
        link.start()
        return link

    async def _dial_in_thread(self) -> Frames:
        """Run `_dial` in a thread that does not hold up the program's end. A link that comes too late is closed."""
        answer: Future[Frames] = Future()

        def dial() -> None:
            try:
                frames = self._dial()
            except BaseException as error:  # noqa: BLE001 - raised again where the answer is awaited
                with contextlib.suppress(InvalidStateError):
                    answer.set_exception(error)
                return
            try:
                answer.set_result(frames)
            except InvalidStateError:
                frames.close()

        threading.Thread(target=dial, name="dial", daemon=True).start()
        return await asyncio.wrap_future(answer)

    def _dial(self) -> Frames:
        """Start the far end, which then waits for its command.

        Raises:
            BoxUnreachable: see `run`.
            BoxTrouble: see `run`.
        """
        at = self._address
        try:
            api = self._calls.alone("CoreV1Api")
        except ProviderTrouble as trouble:
            raise BoxTrouble(trouble.message, remedy=trouble.remedy) from trouble
        kubernetes = import_module("kubernetes.client")
        _limit_dialling()
        try:
            made: Any = import_module("kubernetes.stream").stream(
                api.connect_get_namespaced_pod_exec,
                at.pod,
                at.namespace,
                container=at.container,
                command=["python3", "-I", "-S", "-c", FAR_END],
                stdin=True,
                stdout=True,
                stderr=True,
                tty=False,
                binary=True,
                _preload_content=False,
            )
        except kubernetes.ApiException as error:
            raise _kept_out(at, str(error.reason)) from error
        return Frames(made.sock.sock)


@cache
def _limit_dialling() -> None:
    """Make the official client give up connecting a websocket if the server says nothing.

    The client has no option for this. Once connected, `Frames` has a time limit of its own.
    """
    client: Any = import_module("kubernetes.stream.ws_client")
    websocket = client.WebSocket

    def dial_limited(**options: object) -> object:
        made = websocket(**options)
        made.settimeout(_DIAL_S)
        return made

    client.WebSocket = dial_limited


class _Exec:
    """One command in the container, with its input and outputs as local sockets."""

    def __init__(
        self,
        frames: Frames,
        argv: Sequence[str],
        *,
        complaints: Literal["kept", "dropped"],
        over: Callable[["_Exec"], None],
    ) -> None:
        self._frames = frames
        self._argv = argv
        self._over = over
        self._told = b""
        self._far = StderrParser()
        self._why = "the command's exit status did not arrive"
        self._ended = threading.Event()
        self._input, self.writer = socketpair()
        self.reader, self._output = socketpair()
        self.complaints: socket | None = None
        self._complaints: socket | None = None
        if complaints == "kept":
            self.complaints, self._complaints = socketpair()

    def start(self) -> None:
        """Start a separate thread that moves bytes until either end hangs up."""
        threading.Thread(target=self._move, name="exec", daemon=True).start()

    def hang_up(self) -> None:
        """End the link, and tell the command to end. May be called from another thread, and more than once."""
        self._frames.hang_up()

    def status(self) -> int:
        """Wait until the link has ended, and return the exit status.

        Raises:
            BoxUnreachable: the link broke before a status came.
            BoxTrouble: the command could not be started.
        """
        self._ended.wait()
        if self._far.exit_status is not None:
            return self._far.exit_status
        if self._told:
            raise _never_began(self._told)
        raise BoxUnreachable(
            f"the link broke during a command, which was told to end: {self._why}", remedy=_AUDIT
        )

    def _move(self) -> None:
        try:
            order = json.dumps(list(self._argv)).encode()
            self._frames.carry(order, self._input, self._take)
        except (OSError, EOFError) as error:
            self._why = str(error) or type(error).__name__
        finally:
            self._frames.close()
            for near in (self._input, self._output, self._complaints):
                if near is not None:
                    near.close()
            self._ended.set()
            self._over(self)

    def _take(self, channel: int, chunk: bytes) -> None:
        """Pass bytes from one of the exec's channels to their reader."""
        if channel == _OUT:
            _hand(self._output, chunk)
        elif channel == _ERR:
            complaint = self._far.complaints(chunk)
            if self._far.exit_status is not None:
                self._frames.end_input()
            if self._complaints is not None:
                _hand(self._complaints, complaint)
        elif channel == _STATUS:
            self._told += chunk


def _hand(near: socket, chunk: bytes) -> None:
    # A reader that has hung up gets nothing more.
    with contextlib.suppress(OSError):
        near.sendall(chunk)


def _never_began(told: bytes) -> BoxTrouble:
    """Return the error for a far end that never started, from the API's status object."""
    try:
        said = str(json.loads(told).get("message", ""))
    except (ValueError, AttributeError, RecursionError):
        said = told.decode("utf-8", "replace")
    if "python3" in said and ("not found" in said or "no such file" in said.casefold()):
        return BoxTrouble(
            "its image has no python3, and without it gpu-tenant can watch nothing there",
            remedy="name another `image` in [kubernetes]",
        )
    return BoxUnreachable(
        f"the container did not take the command: {as_told(said.encode())}", remedy=_AUDIT
    )


def _kept_out(at: PodAddress, said: str) -> BoxTrouble:
    """Return the error for an exec that was not started. The client gives only an error text, and no status code."""
    status = re.match(r"Handshake status (\d+)", said)
    if status is None:
        return BoxUnreachable(
            f"the cluster of {at.context} does not answer: {as_told(said.encode())}", remedy=_AUDIT
        )
    # After the status, the text has the answer's headers and then its body.
    what = f"the cluster would not let us into {at.pod} ({status[1]}): {as_told(said.rpartition('-+-+-')[2].encode())}"
    if status[1] in ("401", "403"):
        return BoxTrouble(
            what,
            remedy=f"`kubectl auth can-i create pods/exec -n {at.namespace}` says whether you may",
        )
    return BoxUnreachable(what, remedy=_AUDIT)


def _unreadable(source: Path, why: str | None) -> LocalTrouble:
    return LocalTrouble(
        f"cannot read {str(source)!r}: {why}", remedy="check the file, and try again"
    )
