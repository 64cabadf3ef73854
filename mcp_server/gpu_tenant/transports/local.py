"""The way to a box that is only a private directory on this computer."""

import asyncio
import contextlib
import getpass
import os
import secrets
import shutil
import signal
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import AsyncIterable, Sequence
from pathlib import Path
from typing import Literal

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, BoxTrouble, BoxUnreachable, LocalTrouble
from gpu_tenant.domain.ports import Channel, Finished, Listener
from gpu_tenant.transports import (
    CHUNK_BYTES,
    all_of,
    cancelled_once,
    converse,
    run_uninterrupted,
)
from gpu_tenant.transports.process_channel import Child

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class LocalTransport:
    """Runs commands in a directory that is the home of the box, and copies files to and from it."""

    def __init__(self, directory: Path, *, programs: str | None = None) -> None:
        """`programs` is a directory that comes first on the PATH of the box. Only a rehearsal's box has one.

        Such a box has nothing of this process's Python: no virtual environment, and no variable for it. It does not
        answer while there is a file `silent` beside its home.
        """
        self._home = directory.absolute()
        self._programs = programs

    @property
    def home(self) -> Path:
        """The directory on this computer that is the box's home."""
        return self._home

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
            BoxUnreachable: the directory is gone, or `timeout_s` passed and the command was killed.
            BoxTrouble: the command printed more than `MAX_OUTPUT_BYTES`, and was killed.
        """
        self._check_home()
        _require_command(argv)
        # Without this, a caller that is cancelled twice would leave a process that nobody waits for.
        return await cancelled_once(self._run(argv, stdin, timeout_s, listener))

    async def _run(
        self,
        argv: Sequence[str],
        stdin: bytes | AsyncIterable[bytes],
        timeout_s: float,
        listener: Listener | None,
    ) -> Finished:
        loop = asyncio.get_running_loop()
        try:
            # `create_subprocess_exec` is not used: its Process cannot close pipes that a child of
            # the command keeps open.
            transport, pipes = await loop.subprocess_exec(
                lambda: SubprocessStreamProtocol(limit=CHUNK_BYTES, loop=loop),
                *map(os.fsencode, argv),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=self._home,
                env=self._environment(),
                start_new_session=True,
            )
        except OSError as exc:
            self._check_home()
            status = 127 if isinstance(exc, FileNotFoundError) else 126
            return Finished(status, b"", os.fsencode(f"{argv[0]}: {exc.strerror}\n"))
        process = asyncio.subprocess.Process(transport, pipes, loop)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        try:
            async with asyncio.timeout(timeout_s):
                stdout, stderr = await converse(
                    stdin,
                    process.stdin,
                    all_of(process.stdout, listener),
                    all_of(process.stderr),
                    listener=listener,
                )
                status = await process.wait()
        except TimeoutError:
            raise BoxUnreachable(
                f"{argv[0]!r} did not end within {timeout_s:g} s, and was killed",
                remedy=f"run {Command('audit')} to see how busy the box is",
            ) from None
        finally:
            try:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            finally:
                transport.close()
        return Finished(status if status >= 0 else 128 - status, stdout, stderr)

    async def put(self, source: Path, destination: str, *, mode: int = 0o600) -> None:
        """Copy `source` to `destination`. The file appears there complete, by a rename.

        Raises:
            BoxUnreachable: the directory is gone.
            BoxTrouble: the bytes could not be written there.
            LocalTrouble: `source` cannot be read.
        """
        self._check_home()
        target = self._home / destination
        part = target.with_name(f".gpu-tenant-{secrets.token_hex(8)}.part")
        try:
            original = source.open("rb")
        except OSError as exc:
            raise LocalTrouble(
                f"cannot read {str(source)!r}: {exc.strerror}", remedy="check the path; try again"
            ) from exc

        def copy() -> None:
            try:
                private = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(private, "wb") as copied:
                    shutil.copyfileobj(original, copied, CHUNK_BYTES)
                part.chmod(mode)
                part.replace(target)
            except OSError as exc:
                raise _refusal(destination, exc) from exc
            finally:
                with contextlib.suppress(OSError):
                    part.unlink()

        with original:
            await run_uninterrupted(copy)

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        """Start a command with its own pipes, for either `way`: there is no connection to keep.

        Raises:
            BoxUnreachable: the directory is gone.
            BoxTrouble: there is no such command.
        """
        self._check_home()
        _require_command(argv)
        try:
            return Child(argv, cwd=self._home, env=self._environment())
        except OSError as exc:
            raise _refusal(argv[0], exc) from exc

    async def aclose(self) -> None:
        """Do nothing, because nothing is kept open."""

    def _check_home(self) -> None:
        if not self._home.is_dir():
            raise BoxUnreachable(
                f"the box's directory {str(self._home)!r} does not exist",
                remedy=f"restore it, or run {Command('audit')} to look again",
            )
        if self._programs is not None and (self._home.parent / "silent").exists():
            raise BoxUnreachable(
                "the rehearsed box does not answer", remedy=f"{Command('leases')} looks again"
            )

    def _environment(self) -> dict[str, str]:
        path = os.environ.get("PATH") or _DEFAULT_PATH
        if self._programs is not None:
            own = [part for part in path.split(os.pathsep) if not _is_of_an_environment(part)]
            path = os.pathsep.join((self._programs, *own, _DEFAULT_PATH))
        return {
            "PATH": path,
            "LANG": "C.UTF-8",
            "HOME": str(self._home),
            "USER": getpass.getuser(),
            "GPU_TENANT_BOX": str(self._home),
            # The box is this computer, so nothing that runs in it may switch it off.
            "GPU_TENANT_NO_POWEROFF": "1",
        }


def _is_of_an_environment(programs: str) -> bool:
    """Whether that directory belongs to a Python environment that somebody activated here."""
    above = Path(programs).parent
    return (above / "pyvenv.cfg").exists() or (above / "conda-meta").is_dir()


_LOOK = f"run {Command('audit')} to see the box's disks"


def _require_command(argv: Sequence[str]) -> None:
    if not argv or any("\0" in argument for argument in argv):
        raise BadRequest(f"not a command: {list(argv)!r}", remedy="see `gpu-tenant --help`")


def _refusal(path: str, exc: OSError) -> BoxTrouble:
    return BoxTrouble(f"the box refused {path!r}: {exc.strerror}", remedy=_LOOK)
