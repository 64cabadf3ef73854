"""The boxes of a rehearsal. They are real: each has a private home behind its own sshd."""

import contextlib
import json
import os
import pwd
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Literal

from pydantic import TypeAdapter

from gpu_tenant.domain.model import Address, LocalAddress, SshAddress
from gpu_tenant.emulators.box_time import BoxTime
from gpu_tenant.emulators.gpus import GpuFault, RehearsedGpus, befallen, put_stand_in
from gpu_tenant.files.replace_file import replace_file

LOOPBACK = "127.0.0.1"
SSHD = shutil.which("sshd", path=f"/usr/sbin:/usr/local/sbin:{os.environ.get('PATH', '')}")
Way = Literal["ssh", "local"]
_LISTENS_WITHIN_S = 10
_PROGRAMS = "bin"
"""Beside the home of a box, so that what stands there never counts as written on it."""

MARKER = ".rehearsal.json"
"""A file in the home of every box that stands in for its platform.

Code that would switch the box off looks for it first, because the box is only processes of this computer.
"""


_NO_VOLUMES: Mapping[str, str] = {}
_FAULTS = TypeAdapter(list[GpuFault])
_FAULTS_FILE, _RENTED_FILE = "gpu_faults.json", "gpus.json"
SILENT = "silent"
"""Beside the home of a box that is reached without ssh: a file that is there while nothing on the box answers."""
_START_FILE = "start"
"""Beside the home of a box: a text that differs at each of its starts, in place of a boot id."""


class Sites:
    """Homes below `root`, one for each box id. They are reached by ssh, or directly if this computer has no sshd.

    A box that should be reached by ssh does not answer while it is off, also where there is no sshd. With the way
    `local`, its disk can be looked at all the time.
    `url` is where the boxes' platform answers. `time` is what their guards go by. None: by real time.
    """

    def __init__(self, root: Path, way: Way, url: str, time: BoxTime | None = None) -> None:
        self._root = root
        self._time = time
        self.mounts_volumes = True
        """Whether a box that is opened finds its volumes mounted. As on a platform that fails to mount them, if not."""
        self._url = url
        self.way: Way = way if SSHD else "local"
        self._stands_in_for_ssh = way == "ssh" and not SSHD

    def open(
        self,
        box_id: str,
        authorized: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        mounts: Sequence[str] = (),
        volumes: Mapping[str, str] = _NO_VOLUMES,
        gpus: RehearsedGpus | None = None,
    ) -> Address:
        """Start the box, and return the address at which it answers.

        The box lets in everyone who holds one of the keys.

        `environ` is the environment that its platform gives its first process. `gpus` are those that were
        rented; None: the box has no `nvidia-smi`. `mounts` are the disks that the platform mounts besides the
        one that the home is on. Each is a directory beside the home, and `wipe` leaves it as it is. `volumes`
        are those that outlive the box, each by the path at which it is mounted.
        """
        directory = self._root / box_id
        home = directory / "home"
        for place in (home, *(directory / stand_in(mount) for mount in mounts)):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.mounts_volumes:
            volumes = _NO_VOLUMES
        for mount, volume in volumes.items():
            kept = self._volume(volume)
            kept.mkdir(parents=True, exist_ok=True, mode=0o700)
            link = directory / stand_in(mount)
            if not link.is_symlink():
                link.symlink_to(kept, target_is_directory=True)
        self._mark(directory, box_id, environ or {}, (*mounts, *volumes))
        replace_file(directory / _START_FILE, secrets.token_hex(8), durable="none")
        self._put_gpus(directory, gpus)
        if self.way == "local":
            (directory / SILENT).unlink(missing_ok=True)
            return LocalAddress(
                directory=os.fspath(home), programs=os.fspath(directory / _PROGRAMS)
            )
        self.close(box_id)
        (directory / "authorized_keys").write_text("\n".join(authorized) + "\n", encoding="utf-8")
        port = _free_port()
        self._start(directory, port)
        return SshAddress(target=f"{pwd.getpwuid(os.getuid()).pw_name}@{LOOPBACK}:{port}")

    def _mark(
        self, directory: Path, box_id: str, environ: Mapping[str, str], mounts: Sequence[str]
    ) -> None:
        """Write the marker into the home, and above all of the box's disks. Nobody can log in before that."""
        said = {
            "environ": dict(environ),
            "api": self._url,
            "power_off": f"{self._url}/_rehearsal/boxes/{box_id}/power_off",
            "metadata": f"{self._url}/_rehearsal/boxes/{box_id}/metadata",
            "start": os.fspath((directory / _START_FILE).absolute()),
            # As seen from the home, so that a box is never taken for another one's disk.
            "places": {mount: f"../{stand_in(mount)}" for mount in mounts},
        }
        if self._time is not None:
            said |= {
                "leaps": os.fspath(self._time.leaps),
                "dues": os.fspath(self._time.dues_of(box_id)),
            }
        content = json.dumps(said)
        for marker in (directory / MARKER, directory / "home" / MARKER):
            # A marker that is written again would count as a file written since the launch.
            if not marker.exists() or marker.read_text(encoding="utf-8") != content:
                marker.write_text(content, encoding="utf-8")

    def delete_volume(self, volume: str) -> None:
        """Remove the volume and everything on it."""
        shutil.rmtree(self._volume(volume), ignore_errors=True)

    def held_bytes(self, volume: str) -> int | None:
        """How many bytes lie on the volume. None if no box has mounted it."""
        kept = self._volume(volume)
        if not kept.is_dir():
            return None
        return sum(file.stat().st_size for file in kept.rglob("*") if file.is_file())

    def _volume(self, volume: str) -> Path:
        """The directory that stands for a volume, beside those of the boxes."""
        return (self._root.parent / "volumes" / volume).absolute()

    def _put_gpus(self, directory: Path, gpus: RehearsedGpus | None) -> None:
        """The stand-in says what was rented, with the faults of this box."""
        if gpus is None:
            return
        first = not (directory / _RENTED_FILE).exists()
        replace_file(directory / _RENTED_FILE, gpus.model_dump_json(), durable="none")
        waiting = self._root / _FAULTS_FILE
        if first and waiting.exists():
            replace_file(directory / _FAULTS_FILE, waiting.read_text("utf-8"), durable="none")
            waiting.unlink()
        _show_gpus(directory)

    def befall(self, box_id: str | None, fault: GpuFault) -> None:
        """The fault has befallen the box's GPUs: at once, or as soon as it has any. None: the next new box."""
        directory = self._root if box_id is None else self._root / box_id
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = _FAULTS.dump_json([*_faults_of(directory), fault])
        replace_file(directory / _FAULTS_FILE, text, durable="none")
        if (directory / _RENTED_FILE).exists():
            _show_gpus(directory)

    def close(self, box_id: str) -> None:
        """End every process of the box. The box's disk stays as it is."""
        directory = self._root / box_id
        if self._stands_in_for_ssh and directory.is_dir():
            (directory / SILENT).touch()
        listener = _listener(directory)
        # All processes are frozen before the first is killed. So no process sees another one end, as at a
        # real stop.
        frozen: set[int] = set()
        while doomed := set(_processes_of(directory / "home", listener)) - frozen:
            for pid in doomed:
                _signal(pid, signal.SIGSTOP)
            frozen |= doomed
        for pid in frozen:
            _signal(pid, signal.SIGKILL)

    def fall_silent(self, box_id: str) -> None:
        """Let nothing on the box answer any more. Its jobs run on."""
        directory = self._root / box_id
        if self.way == "local":
            (directory / SILENT).touch()
            return
        for pid in set(_logins_of(_listener(directory))):
            _signal(pid, signal.SIGKILL)

    def answer_again(self, box_id: str) -> None:
        """Let the box answer as before, at the same address."""
        directory = self._root / box_id
        (directory / SILENT).unlink(missing_ok=True)
        if self.way == "ssh" and _listener(directory) is None:
            _run_sshd(directory)
            _wait_until_listening(directory)

    def wipe(self, box_id: str) -> None:
        """Empty the box's home, as a restart empties a container's disk. The disks beside it stay as they are."""
        self.close(box_id)
        shutil.rmtree(self._root / box_id / "home", ignore_errors=True)
        (self._root / box_id / "home").mkdir(parents=True, mode=0o700)

    def delete(self, box_id: str) -> None:
        """Remove the box and everything on it."""
        self.close(box_id)
        shutil.rmtree(self._root / box_id, ignore_errors=True)

    def close_all(self) -> None:
        """End every process of every box."""
        with contextlib.suppress(FileNotFoundError):
            for directory in self._root.iterdir():
                if directory.is_dir():
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
        programs = shlex.quote(os.fspath(directory / _PROGRAMS))
        login = (
            f'cd {shlex.quote(os.fspath(directory / "home"))} && export HOME="$PWD" PATH={programs}:"$PATH"'
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
        _run_sshd(directory)


def _run_sshd(directory: Path) -> None:
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


def _wait_until_listening(directory: Path) -> None:
    """Wait until the box's sshd takes connections: it begins to listen only after it has become a daemon."""
    config = (directory / "sshd_config").read_text(encoding="utf-8")
    port = int(config.partition("\n")[0].rpartition(":")[2])
    until = monotonic() + _LISTENS_WITHIN_S
    while monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), 1):
            return
        Event().wait(0.02)


def stand_in(mount: str) -> str:
    """The name of the directory that stands for the disk that is mounted there."""
    return "disk" + mount.replace("/", "-")


def _faults_of(directory: Path) -> list[GpuFault]:
    path = directory / _FAULTS_FILE
    return _FAULTS.validate_json(path.read_bytes()) if path.exists() else []


def _show_gpus(directory: Path) -> None:
    shown = RehearsedGpus.model_validate_json((directory / _RENTED_FILE).read_bytes())
    for fault in _faults_of(directory):
        shown = befallen(shown, fault)
    put_stand_in(directory / _PROGRAMS, shown)


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
    """The box's sshd with all its descendants, and every process with the box's home in its environment.

    An sshd that serves a login overwrites its environment, so its parent tells whose it is. A process that was
    left to run by itself is no descendant any more, so its environment tells whose it is.
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
    yield from _with_descendants(listener, parents)


def _logins_of(listener: int | None) -> Iterator[int]:
    """The box's sshd, and what was begun in the logins that it serves now. A detached job is none of these."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
    return _with_descendants(listener, parents)


def _with_descendants(root: int | None, parents: Mapping[int, int]) -> Iterator[int]:
    found = {pid for pid in parents if pid == root}
    while found:
        yield from found
        found = {pid for pid, parent in parents.items() if parent in found}


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as probe:
        return int(probe.getsockname()[1])
