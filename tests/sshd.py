"""Real sshd processes on loopback, and a relay that can cut, stall or redirect the way to one."""

import contextlib
import getpass
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from arranged import PATIENCE_S
from parts import required

LOOPBACK = "127.0.0.1"
NEVER = 1 << 62
SSHD = shutil.which("sshd", path=f"/usr/sbin:/usr/local/sbin:{os.environ.get('PATH', '')}")


def wait_until(true: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
    """`true()` held at last; asserted."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        threading.Event().wait(0.01)


def make_key(path: Path, *, kind: str = "ed25519", passphrase: str = "") -> Path:
    """`path` is a fresh key as OpenSSH makes it; `path`.pub is beside it."""
    required("ssh")
    for old in (path, path.with_name(f"{path.name}.pub")):
        old.unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", path],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return path


class Sshd:
    """One sshd of its own: host key, config, log, and a private home for those who log in.

    Logins are by key alone, as the user that runs the tests.
    """

    def __init__(
        self,
        directory: Path,
        *,
        authorized: Path,
        options: str = "",
        address: str = LOOPBACK,
        within: Sequence[str] = (),
    ) -> None:
        """`within` is what it runs by, such as a command that enters a network namespace."""
        required("sshd", "ps")
        assert SSHD
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._authorized = authorized
        self._options = options
        self._address, self._within = address, within
        self._process: subprocess.Popen[bytes] | None = None
        self._host_key = make_key(directory / "host_key")
        self.home = directory / "home"
        self.home.mkdir(exist_ok=True)
        self.log_file = directory / "log"
        self.port = _free_port()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill_sessions()
        self.stop()

    @property
    def target(self) -> str:
        """What to give to ssh."""
        return f"{getpass.getuser()}@{self._address}:{self.port}"

    @property
    def pid(self) -> int:
        """The process that listens."""
        assert self._process
        return self._process.pid

    @property
    def host_key(self) -> str:
        """Algorithm and key, as in known_hosts."""
        public = self._host_key.with_name(f"{self._host_key.name}.pub").read_text(encoding="utf-8")
        return " ".join(public.split()[:2])

    @property
    def log(self) -> str:
        """Everything sshd has said so far, at its first debug level."""
        return self.log_file.read_text(errors="replace", encoding="utf-8")

    @property
    def logins(self) -> int:
        """How many were let in so far."""
        return self.log.count("Accepted publickey")

    def restart(self, *, new_host_key: Path | None = None) -> None:
        """Every session was cut, and sshd answers at the same port again."""
        self.kill_sessions()
        self.stop()
        if new_host_key:
            self._host_key = new_host_key
        self._start()

    def stop(self) -> None:
        """Nobody listens any more. Sessions live on, as they do with sshd."""
        if self._process:
            self._process.terminate()
            self._process.wait(timeout=120)
            self._process = None

    def kill_sessions(self) -> None:
        """Every session was cut, and what ran in it was killed; sshd still listens."""
        if self._process:
            doomed = list(_descendants(self._process.pid))
            for pid in doomed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _start(self) -> None:
        with contextlib.suppress(PermissionError):
            Path("/run/sshd").mkdir(exist_ok=True)
        # A home of its own; the login shell, then sh, run what was asked, as without it.
        login = (
            f'cd {shlex.quote(str(self.home))} && export HOME="$PWD"'
            ' && exec "${SHELL:-sh}" -c "$SSH_ORIGINAL_COMMAND"'
        )
        config = self._directory / "sshd_config"
        config.write_text(
            f"ListenAddress {self._address}:{self.port}\n"
            f"HostKey {self._host_key}\n"
            f"AuthorizedKeysFile {self._authorized}\n"
            f"PidFile none\n"
            "UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            "StrictModes no\nPermitRootLogin yes\nUseDNS no\nLogLevel DEBUG1\n"
            "MaxStartups 100:30:200\n"
            # Else bash under sshd reads the ~/.bashrc of whoever runs the tests; and the box is this computer.
            "SetEnv SHLVL=1 GPU_TENANT_NO_POWEROFF=1\n"
            f"{self._options}\n"
            f"ForceCommand {login}\n",
            encoding="utf-8",
        )
        self._process = subprocess.Popen(
            [*self._within, SSHD, "-D", "-f", config, "-E", self.log_file],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: _answers(self._address, self.port))


class Relay:
    """A TCP relay on loopback, in threads, that counts bytes and can misbehave on demand."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        """Where the next connections go; set it to swap the target."""
        self.sent_by_client = 0
        self.sent_by_server = 0
        self.connections = 0
        self._flowing = threading.Event()
        self._flowing.set()
        self._swallowed: set[tuple[socket.socket, socket.socket]] = set()
        self._cut_at: dict[str, int] = {}
        self._stall_at = NEVER
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._flowing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    @property
    def target(self) -> str:
        """What to give to ssh."""
        return f"{getpass.getuser()}@{LOOPBACK}:{self.port}"

    def cut(self) -> None:
        """Every connection was reset. New ones are welcome."""
        # Taken all at once: who was cut may be back before the last of them is reset.
        cut, self._pairs = self._pairs, []
        for pair in cut:
            for end in pair:
                _reset(end)

    def cut_after(self, *, server_bytes: int) -> None:
        """Once, when the server has sent that many more bytes, every connection will be reset."""
        self._cut_at["server"] = self.sent_by_server + server_bytes

    def cut_after_client(self, *, client_bytes: int) -> None:
        """Once, when the client has sent that many more bytes, every connection will be reset."""
        self._cut_at["client"] = self.sent_by_client + client_bytes

    def black_hole(self) -> None:
        """Whatever is sent on the connections of now is taken and lost; new ones work."""
        self._swallowed |= set(self._pairs)

    def stall(self) -> None:
        """From now on nothing is taken or given, until `flow`."""
        self._flowing.clear()

    def stall_after(self, *, passed_bytes: int) -> None:
        """Once, when that many more bytes have passed, whichever way, it will stall."""
        self._stall_at = self.sent_by_client + self.sent_by_server + passed_bytes

    @property
    def stalled(self) -> bool:
        return not self._flowing.is_set()

    def flow(self) -> None:
        """All is as it was before `stall`."""
        self._flowing.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                try:
                    server = socket.create_connection((LOOPBACK, self.target_port))
                except OSError:
                    _reset(client)
                    continue
                pair = (client, server)
                for end in pair:
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._pairs.append(pair)
                for who in ("client", "server"):
                    threading.Thread(target=self._pump, args=(who, pair), daemon=True).start()

    def _pump(self, who: str, pair: tuple[socket.socket, socket.socket]) -> None:
        source, sink = pair if who == "client" else pair[::-1]
        count = f"sent_by_{who}"
        try:
            while chunk := source.recv(65536):
                self._flowing.wait()
                until_cut = self._cut_at.get(who, NEVER) - getattr(self, count)
                passed = chunk[: max(until_cut, 0)]
                setattr(self, count, getattr(self, count) + len(passed))
                if self.sent_by_client + self.sent_by_server >= self._stall_at:
                    self._stall_at = NEVER
                    self.stall()
                if pair not in self._swallowed:
                    sink.sendall(passed)
                if len(chunk) >= until_cut:
                    del self._cut_at[who]
                    self.cut()
            sink.shutdown(socket.SHUT_WR)
        except ConnectionResetError:
            if who == "server" and pair not in self._swallowed:
                _reset(pair[0])  # as the client would see it without us in between
        except OSError:
            return


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=1) as probe:
            return probe.recv(4) == b"SSH-"
    except OSError:
        return False


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def _descendants(pid: int) -> Iterator[int]:
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, encoding="utf-8", check=True
    ).stdout
    children: dict[int, list[int]] = {}
    for line in listing.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    waiting = children.get(pid, [])
    while waiting:
        found = waiting.pop()
        yield found
        waiting += children.get(found, [])
