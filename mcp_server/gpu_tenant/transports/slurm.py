"""The way into a Slurm allocation: a step of its job, or the home directory that it shares with the login node."""

import re
import secrets
import shlex
import struct
from collections.abc import AsyncIterable, Sequence
from pathlib import Path
from socket import SHUT_WR, socket, socketpair
from threading import Thread
from typing import Literal

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxTrouble, BoxUnreachable
from gpu_tenant.domain.model import SlurmAddress
from gpu_tenant.domain.ports import Channel, Finished, Listener, Transport
from gpu_tenant.transports import as_told
from gpu_tenant.transports.shell import refusal_for, write_command

SIGNED = "allocation"
"""The file in the lease's directory that an allocation signs when it starts: it writes its job's id into it."""

_STEP = ("--overlap", "--immediate=20", "--nodes=1", "--ntasks=1", "--relative=0")
_LOOK_S = 30
_OVER = re.compile(rb"has expired|Invalid job id specified|already completing or completed")
_PENDING = re.compile(rb"pending execution")
_UNKNOWN = re.compile(rb"Invalid job id")
_ALIVE = re.compile(
    rb"^(?:COMPLETING|CONFIGURING|PENDING|REQUEUED|RESIZING|RUNNING|SIGNALING|STAGE_OUT|STOPPED"
    rb"|SUSPENDED)\s*$",
    re.MULTILINE,
)
"""The states in which a process of the job may still write. Slurm counts COMPLETING as over, but we do not."""

_AT_HOME = 'cd && exec "$@"'
_TOLD = """\
cd || exit
printf '%s\\n' "$0" >&2
"$@"
printf '\\n%s %s\\n' "$0" "$?" >&2
"""
"""Runs its arguments, and reports their exit status on its own, because srun's exit status is not reliable."""

_FRAMED = """\
import os, struct, subprocess, sys
os.chdir(os.path.expanduser("~"))
command = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
while True:
    chunk = os.read(command.stdout.fileno(), 65536)
    if not chunk:
        break
    sys.stdout.buffer.write(struct.pack(">I", len(chunk)) + chunk + b"\\n")
    sys.stdout.buffer.flush()
sys.exit(command.wait())
"""
"""Sends each piece of output with its length before it and a newline after it. Slurm holds back an unfinished line."""


class SlurmTransport:
    """Runs commands on the first node of an allocation, and copies files to and from it.

    `login` is the way to the login node, or to this computer if it is the login node. It is closed together
    with this transport. The home counts as shared if the login node sees the file that the allocation signed.
    """

    def __init__(self, address: SlurmAddress, login: Transport) -> None:
        self._address = address
        self._login = login
        self._is_shared: bool | None = None

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | AsyncIterable[bytes] = b"",
        timeout_s: float,
        listener: Listener | None = None,
    ) -> Finished:
        """Run a command to its end. See `Transport.run`. If the command does not exist, the status is 127.

        If the allocation is over and its home is shared, the command runs on the login node instead. That is
        allowed only when no process of the job can still write.

        Raises:
            BoxUnreachable: the job waits in the queue or is still ending, its step was cut short, or
                `timeout_s` passed.
            BoxTrouble: the way to the login node raised it.
            HostKeyChanged: the way to the login node raised it.
        """
        nonce = secrets.token_hex(8)
        step = [*self._srun(), "sh", "-c", _TOLD, nonce, *argv]
        ended = await self._login.run(step, stdin=stdin, timeout_s=timeout_s, listener=listener)
        told = re.search(
            rb"%b\n(?P<said>.*)\n%b (?P<status>\d+)\n" % ((nonce.encode(),) * 2),
            ended.stderr,
            re.DOTALL,
        )
        if told:
            return Finished(int(told["status"]), ended.stdout, told["said"])
        if _OVER.search(ended.stderr) and isinstance(stdin, bytes) and await self._shares():
            await self._check_over()
            return await self._login.run(
                ["sh", "-c", _AT_HOME, "run", *argv],
                stdin=stdin,
                timeout_s=timeout_s,
                listener=listener,
            )
        raise self._cut(ended)

    async def put(self, source: Path, destination: str, *, mode: int = 0o600) -> None:
        """Copy `source` to `destination`. The file gets this name only when it is complete, by a rename.

        For the errors see `Transport.put`.
        """
        if await self._shares() and not destination.startswith("/"):
            await self._login.put(source, destination, mode=mode)
            return
        content = source.read_bytes()
        argv = write_command(destination, size_bytes=len(content), mode=mode)
        ended = await self.run(argv, stdin=content, timeout_s=300)
        if ended.exit_status:
            raise refusal_for(destination, ended)

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        """Start a command: on the login node if the home is shared, otherwise in a step of the job.

        For the errors see `Transport.open`.
        """
        if await self._shares():
            return await self._login.open(["sh", "-c", _AT_HOME, "open", *argv], way=way)
        step = [*self._srun(), "python3", "-I", "-S", "-c", _FRAMED, *argv]
        return _Unframed(await self._login.open(step, way=way))

    async def aclose(self) -> None:
        """Close the way to the login node. Nothing in the allocation is stopped by that."""
        await self._login.aclose()

    def _srun(self) -> list[str]:
        return [*self._address.before, "srun", *_STEP, f"--jobid={self._address.job}"]

    async def _shares(self) -> bool:
        """Whether the login node sees the file that the allocation signed in its home."""
        if self._is_shared is None:
            signed = f"{self._address.directory}/{SIGNED}"
            looked = await self._login.run(
                ["sh", "-c", f"cd && exec cat {shlex.quote(signed)}"], timeout_s=_LOOK_S
            )
            self._is_shared = self._address.job in looked.stdout.decode(errors="replace").split()
        return self._is_shared

    async def _check_over(self) -> None:
        job = self._address.job
        looked = await self._login.run(
            [*self._address.before, "squeue", "-h", "-j", job, "-o", "%T"], timeout_s=_LOOK_S
        )
        unknown = looked.exit_status and not _UNKNOWN.search(looked.stderr)
        if unknown or _ALIVE.search(looked.stdout):
            raise BoxUnreachable(
                f"the allocation {job} is ending, and its processes may still be saving",
                remedy="try again in a minute",
            )

    def _cut(self, ended: Finished) -> BoxTrouble:
        job = self._address.job
        if _PENDING.search(ended.stderr):
            return BoxUnreachable(
                f"the job {job} waits in the queue, and has no node yet",
                remedy=f"{Command('leases')} shows when it has one; what it saved in its home is kept",
            )
        if _OVER.search(ended.stderr):
            return BoxUnreachable(
                f"the allocation {job} is over, and the login node does not share its home",
                remedy=f"{Command('leases')} shows what ended it",
            )
        return BoxUnreachable(
            f"a step of the job {job} was cut short, and its command may be running: "
            f"{as_told(ended.stderr)}",
            remedy=f"{Command('leases')} shows the state of the job",
        )


class _Unframed:
    """A channel that receives each piece with its length before it, and passes on the piece alone."""

    def __init__(self, framed: Channel) -> None:
        self._framed = framed
        self.reader, self._plain = socketpair()
        Thread(target=self._hand_on, name="unframing", daemon=True).start()

    @property
    def writer(self) -> socket:
        """The socket to which the command's input is written."""
        return self._framed.writer

    def hang_up(self) -> None:
        """Send no more input, and tell the command to end."""
        self._framed.hang_up()

    def _hand_on(self) -> None:
        with self._plain, self._framed.reader, self._framed.reader.makefile("rb") as lines:
            try:
                while len(head := lines.read(4)) == 4:
                    (size,) = struct.unpack(">I", head)
                    chunk = lines.read(size + 1)
                    self._plain.sendall(chunk[:size])
                self._plain.shutdown(SHUT_WR)
            except OSError:
                return
