"""The boxes of a rehearsal. They are real: each has a private home behind its own sshd."""

import contextlib
import json
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from gpu_tenant.domain.model import Address, LocalAddress, SshAddress

LOOPBACK = "127.0.0.1"
SSHD = shutil.which("sshd", path=f"/usr/sbin:/usr/local/sbin:{os.environ.get('PATH', '')}")
Way = Literal["ssh", "local"]
MARKER = ".rehearsal.json"
"""A file in the home of every box that stands in for its platform.

Code that would switch the box off looks for it first, because the box is only processes of this computer.
"""


class Sites:
    """Homes below `root`, one for each box id. They are reached by ssh, or directly if this computer has no sshd.

    `url` is where the boxes' platform answers.
    """

    def __init__(self, root: Path, way: Way, url: str) -> None:
        self._root = root
        self._url = url
        self.way: Way = way if SSHD else "local"

    def open(
        self,
        box_id: str,
        authorized: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        mounts: Sequence[str] = (),
    ) -> Address:
        """The box answers at the returned address, and lets in everyone who holds one of the keys.

        `environ` is the environment that its platform gives its first process. `mounts` are the disks that it mounts
        besides the one that the home is on. Each is a directory beside the home, and `wipe` leaves it as it is.
        """
        directory = self._root / box_id
        home = directory / "home"
        for place in (home, *(directory / stand_in(mount) for mount in mounts)):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._mark(directory, box_id, environ or {}, mounts)
        if self.way == "local":
            return LocalAddress(directory=os.fspath(home))
        self.close(box_id)
        (directory / "authorized_keys").write_text("\n".join(authorized) + "\n", encoding="utf-8")
        port = _free_port()
        self._start(directory, port)
        return SshAddress(target=f"{pwd.getpwuid(os.getuid()).pw_name}@{LOOPBACK}:{port}")

    def _mark(
        self, directory: Path, box_id: str, environ: Mapping[str, str], mounts: Sequence[str]
    ) -> None:
        """The marker is in the home, and above all of the box's disks, before anybody can log in."""
        said = {
            "environ": dict(environ),
            "api": self._url,
            "power_off": f"{self._url}/_rehearsal/boxes/{box_id}/power_off",
            "metadata": f"{self._url}/_rehearsal/boxes/{box_id}/metadata",
            # As seen from the home, so that a box is never taken for another one's disk.
            "places": {mount: f"../{stand_in(mount)}" for mount in mounts},
        }
        content = json.dumps(said)
        for marker in (directory / MARKER, directory / "home" / MARKER):
            # Rewriting it would make it count among the files written since the launch.
            if not marker.exists() or marker.read_text(encoding="utf-8") != content:
                marker.write_text(content, encoding="utf-8")

    def close(self, box_id: str) -> None:
        """Nothing of the box runs. Its disk is as it was."""
        directory = self._root / box_id
        listener = _listener(directory)
        # As at a real stop, no process sees another's end: all are frozen before the first is killed.
        frozen: set[int] = set()
        while doomed := set(_processes_of(directory / "home", listener)) - frozen:
            for pid in doomed:
                _signal(pid, signal.SIGSTOP)
            frozen |= doomed
        for pid in frozen:
            _signal(pid, signal.SIGKILL)

    def wipe(self, box_id: str) -> None:
        """The box's home is empty, like a container's disk after a restart. The disks beside it are as they were."""
        self.close(box_id)
        shutil.rmtree(self._root / box_id / "home", ignore_errors=True)
        (self._root / box_id / "home").mkdir(parents=True, mode=0o700)

    def delete(self, box_id: str) -> None:
        """The box and everything on it are gone."""
        self.close(box_id)
        shutil.rmtree(self._root / box_id, ignore_errors=True)

    def close_all(self) -> None:
        """Nothing of any box runs."""
        with contextlib.suppress(FileNotFoundError):
            for directory in self._root.iterdir():
                self.close(directory.name)

    def _start(self, directory: Path, port: int) -> None:
        host_key = directory / "host_key"
        if not host_key.exists():
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key],
                check=True,
                stdin=subprocess.DEVNULL,
            )
        with contextlib.suppress(OSError):
            Path("/run/sshd").mkdir(exist_ok=True)
        login = (
            f'cd {shlex.quote(os.fspath(directory / "home"))} && export HOME="$PWD"'
            ' && exec "${SHELL:-sh}" -c "${SSH_ORIGINAL_COMMAND:-exec ${SHELL:-sh}}"'
        )
        (directory / "sshd_config").write_text(
            f"ListenAddress {LOOPBACK}:{port}\nHostKey {host_key}\n"
            f"AuthorizedKeysFile {directory / 'authorized_keys'}\nPidFile {directory / 'pid'}\n"
            "UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nStrictModes no\n"
            "PermitRootLogin yes\nUseDNS no\nMaxStartups 100:30:200\n"
            f"SetEnv SHLVL=1 HOME={directory / 'home'} GPU_TENANT_NO_POWEROFF=1\n"
            f"ForceCommand {login}\n",
            encoding="utf-8",
        )
        assert SSHD is not None
        # Its environment has the box's home, so that every process that it starts can be found.
        subprocess.run(
            [SSHD, "-f", directory / "sshd_config", "-E", directory / "log"],
            check=True,
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                "HOME": os.fspath(directory / "home"),
                "GPU_TENANT_NO_POWEROFF": "1",
            },
        )


def stand_in(mount: str) -> str:
    """The name of the directory that stands for the disk that is mounted there."""
    return "disk" + mount.replace("/", "-")


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _listener(directory: Path) -> int | None:
    """The process id of the box's sshd. None if it does not run."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((directory / "pid").read_text(encoding="utf-8"))
        # The process id may have been reused since, so only our own sshd counts.
        command = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
        return pid if os.fspath(directory) in command else None
    return None


def _processes_of(home: Path, listener: int | None) -> Iterator[int]:
    """The box's sshd with all that descends from it, and every process that has the box's home.

    An sshd that serves a login overwrites its environment, and what was left to run by itself has no parent there.
    """
    carried = f"HOME={home}".encode()
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state == "Z":
                continue
            parents[int(entry.name)] = int(parent)
            if carried in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)
    served = {pid for pid in parents if pid == listener}
    while served:
        yield from served
        served = {pid for pid, parent in parents.items() if parent in served}


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as probe:
        return int(probe.getsockname()[1])
