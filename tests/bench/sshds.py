"""Many boxes on loopback: each an sshd of its own, with a port, a host key and a home."""

import getpass
import os
import shlex
import signal
import socket
import subprocess
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from gauge import end_living_in
from links import LOOPBACK, SSHD
from sshd import wait_until


class Sshds:
    """So many of them, which have ended, with all that ran in their homes, when the block is left."""

    def __init__(self, directory: Path, *, count: int, authorized: Path) -> None:
        assert SSHD is not None, "needs a real sshd: `apt-get install openssh-server`"
        self._directory = directory
        self._authorized = authorized
        self._running: list[subprocess.Popen[bytes]] = []
        self.ports = _free_ports(count)

    @property
    def targets(self) -> list[str]:
        """What to give to ssh."""
        return [f"{getpass.getuser()}@{LOOPBACK}:{port}" for port in self.ports]

    def __enter__(self) -> Self:
        Path("/run/sshd").mkdir(exist_ok=True)
        for port in self.ports:
            self._start(port)
        for port in self.ports:
            wait_until(lambda port=port: _answers(port), within_s=60)  # type: ignore[misc]
        return self

    def __exit__(self, *_: object) -> None:
        for port in self.ports:
            end_living_in(self._home(port))
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            process.wait(timeout=10)

    def _home(self, port: int) -> Path:
        return self._directory / str(port) / "home"

    def _start(self, port: int) -> None:
        home = self._home(port)
        home.mkdir(parents=True)
        key = home.parent / "host_key"
        fresh = Ed25519PrivateKey.generate()  # quicker than a hundred ssh-keygen
        key.write_bytes(fresh.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        key.chmod(0o600)
        login = f'cd {shlex.quote(str(home))} && export HOME="$PWD" && exec sh -c "$SSH_ORIGINAL_COMMAND"'
        config = home.parent / "sshd_config"
        config.write_text(
            f"ListenAddress {LOOPBACK}:{port}\nHostKey {key}\nAuthorizedKeysFile {self._authorized}\n"
            "PidFile none\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            "StrictModes no\nPermitRootLogin yes\nUseDNS no\nMaxStartups 100:30:200\n"
            f"SetEnv GPU_TENANT_NO_POWEROFF=1\nForceCommand {login}\n",
            encoding="utf-8",
        )
        log = home.parent / "log"
        argv = [SSHD, "-D", "-f", os.fspath(config), "-E", os.fspath(log)]
        self._running.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL))  # type: ignore[arg-type]


def _free_ports(count: int) -> list[int]:
    """As many as are free now; all are held until the last is known, so that none comes twice."""
    held = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1) as probe:
            return probe.recv(4) == b"SSH-"
    except OSError:
        return False
