"""A channel over a session of our ssh connection. It is joined to sockets, so that a thread can wait for it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from socket import socket, socketpair

import asyncssh

_CHUNK_BYTES = 1 << 20


class Piped:
    """The input and output of a command as sockets. The event loop moves the bytes.

    The library's own redirection is not used, because it leaves tasks behind if one side hangs up first.
    """

    def __init__(self, process: asyncssh.SSHClientProcess[bytes], over: Callable[[], None]) -> None:
        """Join the input and output of `process` to sockets. `over` is called once, when the channel is hung up."""
        theirs_in, self.writer = socketpair()
        self.reader, theirs_out = socketpair()
        self._process, self._over = process, over
        self._loop = asyncio.get_running_loop()
        self._moving = [
            self._loop.create_task(_into(process, theirs_in)),
            self._loop.create_task(_out_of(process, theirs_out)),
            self._loop.create_task(_unheard(process)),
        ]
        self._is_over = False

    def hang_up(self) -> None:
        """Close the session. May be called from another thread."""
        with suppress(RuntimeError):  # the loop has ended, and the connection with it
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        for task in self._moving:
            task.cancel()
        with suppress(OSError, asyncssh.Error):
            self._process.terminate()
        self._process.close()
        self._over()


async def _into(process: asyncssh.SSHClientProcess[bytes], source: socket) -> None:
    """Pass everything that is written to the socket on to the command, until one of the two ends."""
    loop = asyncio.get_running_loop()
    source.setblocking(False)
    with source:
        try:
            while chunk := await loop.sock_recv(source, _CHUNK_BYTES):
                process.stdin.write(chunk)
                await process.stdin.drain()
            process.stdin.write_eof()
        except (OSError, asyncssh.Error):
            return  # the reader of the output sees what happened


async def _out_of(process: asyncssh.SSHClientProcess[bytes], target: socket) -> None:
    """Pass everything that the command writes on to the socket, until one of the two ends."""
    loop = asyncio.get_running_loop()
    target.setblocking(False)
    with target:
        try:
            while chunk := await process.stdout.read(_CHUNK_BYTES):
                await loop.sock_sendall(target, chunk)
        except (OSError, asyncssh.Error):
            return


async def _unheard(process: asyncssh.SSHClientProcess[bytes]) -> None:
    """Read the command's error output, and drop it.

    If nobody read it, it would fill the window that both outputs share, and stop the other one.
    """
    with suppress(OSError, asyncssh.Error):
        while await process.stderr.read(_CHUNK_BYTES):
            pass
