"""Connections through the system's own ssh client: only to the pinned box, and only with the keys that it may see."""

from collections.abc import Callable
from pathlib import Path
from shutil import which
from typing import Self

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.domain.ports import Channel
from gpu_tenant.files.replace_file import replace_file
from gpu_tenant.transports.process_channel import Child

_OPTIONS = (
    "BatchMode yes",
    "ConnectTimeout 20",
    "ServerAliveInterval 15",
    "ServerAliveCountMax 3",
    "LogLevel QUIET",
    "RequestTTY no",
    "RemoteCommand none",
    "ClearAllForwardings yes",
    "PermitLocalCommand no",
)
"""These come first in the configuration, so that they also apply to the ssh clients for the jump hosts."""
_AES = "Ciphers ^aes128-gcm@openssh.com,aes256-gcm@openssh.com"
"""Used if the processor has AES instructions. The default cipher takes a third more time."""
_CPU = Path("/proc/cpuinfo")


class OpenSsh:
    """The installed ssh client, with a separate configuration file for one box."""

    def __init__(self, program: str, name: str, entry: Callable[[], str], config: Path) -> None:
        self._program, self._name, self._entry, self._config = program, name, entry, config
        self._is_written = False

    @classmethod
    def find_client(cls, name: str, entry: Callable[[], str], config: Path) -> Self | None:
        """Return the client. None if ssh is not installed.

        `entry` returns the `Host` block of the configuration for the box, under `name`.
        """
        program = which("ssh")
        return None if program is None else cls(program, name, entry, config)

    def open(self, command: str) -> Channel:
        """Start a process that connects and runs `command`. Whether that works can be seen only from its output.

        Raises:
            LocalTrouble: ssh cannot be started, or its configuration cannot be written.
        """
        try:
            self._write()
            return Child([self._program, "-F", str(self._config), "--", self._name, command])
        except OSError as exc:
            raise LocalTrouble(
                f"cannot start {self._program!r}: {exc.strerror}", remedy=f"run {Command('doctor')}"
            ) from exc

    def _write(self) -> None:
        if self._is_written:
            return
        self._config.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = [*_OPTIONS, *([_AES] if _has_aes() else []), "", self._entry()]
        content = "\n".join(lines).encode("utf-8", "surrogateescape")
        replace_file(self._config, content, durable="none")
        self._is_written = True


def _has_aes() -> bool:
    """Whether this processor has AES instructions. True if unknown, because all recent processors have them."""
    try:
        words = _CPU.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return True
    return "aes" in words
