"""The ways to a box: loopback, a fast link of its own, a long one emulated in user space; and a relay that cuts."""

import getpass
import os
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from gauge import end_living_in, end_tree

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from sshd import SSHD, make_key, wait_until  # noqa: E402 - found from the line above

LOOPBACK = "127.0.0.1"
_QUEUE_MS = 100
_LIVES_S = 6 * 3600
"""The emulator ends by itself, should nobody be left to end it."""


class NotHere(Exception):
    """This computer cannot make that link; the text says why."""


class Loopback:
    """The computer's own."""

    words = "loopback"
    here = there = LOOPBACK
    namespace: str | None = None
    rate_mbit: float | None = None
    rtt_s = 0.0
    sockets = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def wire_bytes(self) -> int | None:
        """How many bytes went over it, both ways; None where strangers use it, too."""
        return None

    def settle(self) -> None:
        """Nothing of an earlier transfer is on it or known of it any more."""
        return

    def within(self, *argv: str) -> list[str]:
        """That command, at the far end."""
        return list(argv)


class Fast(Loopback):
    """A pair of virtual Ethernet devices into a network namespace: as fast, and with counters of its own."""

    words = "a fast link of its own"

    def __init__(self) -> None:
        number = os.getpid() % 180 + 20
        self.namespace = f"gt-bench-{os.getpid()}"
        self._device, self._net = f"gtb{os.getpid()}"[:15], f"10.88.{number}"
        self.here, self.there = f"{self._net}.1", f"{self._net}.2"
        self._open = ExitStack()

    def __enter__(self) -> Self:
        if os.geteuid() != 0 or not shutil.which("ip"):
            raise NotHere("a network namespace needs root and iproute2")
        with ExitStack() as undo:
            # Guard: a dead link must not send what is ours out of the default route.
            guard = ("unreachable", f"{self._net}.0/24", "metric", "9999")
            _ip("route", "replace", *guard)
            undo.callback(_ip, "route", "del", *guard, check=False)
            _ip("netns", "add", self.namespace or "")
            undo.callback(_ip, "netns", "del", self.namespace or "", check=False)
            self._ip_there("link", "set", "lo", "up")
            self._join(undo)
            _ip("addr", "add", f"{self.here}/30", "dev", self._device)
            _ip("link", "set", self._device, "up", "mtu", "1500", "txqueuelen", "2000")
            self._ip_there("addr", "add", f"{self.there}/30", "dev", self._device)
            self._ip_there("link", "set", self._device, "up", "mtu", "1500", "txqueuelen", "2000")
            self._route()
            self._open = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def wire_bytes(self) -> int | None:
        """As `Loopback.wire_bytes`: by the counters of this end, headers included."""
        counters = Path(f"/sys/class/net/{self._device}/statistics")
        return sum(
            int((counters / f"{way}_bytes").read_text(encoding="ascii")) for way in ("rx", "tx")
        )

    def settle(self) -> None:
        """As `Loopback.settle`: the queue is empty, and no earlier connection's metrics are kept."""
        threading.Event().wait(0.3 + self.rtt_s * 2)
        _ip("tcp_metrics", "flush", "all", check=False)
        self._ip_there("tcp_metrics", "flush", "all", check=False)

    def within(self, *argv: str) -> list[str]:
        """As `Loopback.within`."""
        return ["ip", "netns", "exec", self.namespace or "", *argv]

    def _join(self, undo: ExitStack) -> None:
        far = ("peer", "name", self._device, "netns", self.namespace or "")
        _ip("link", "add", self._device, "type", "veth", *far)
        undo.callback(_ip, "link", "del", self._device, check=False)

    def _route(self) -> None:
        return

    def _ip_there(self, *words: str, check: bool = True) -> None:
        _ip("-n", self.namespace or "", *words, check=check)


class Long(Fast):
    """A long link, emulated in user space; the box sends with cubic, as most boxes do."""

    def __init__(
        self, scratch: Path, *, rate_mbit: float, rtt_ms: float = 80, loss_percent: float = 0
    ) -> None:
        super().__init__()
        self._scratch, self._loss_percent = scratch, loss_percent
        self.rate_mbit, self.rtt_s = rate_mbit, rtt_ms / 1000
        self.sockets = 32 if loss_percent else 8
        lost = f"{loss_percent:g} % loss" if loss_percent else "no loss"
        self.words = f"{rate_mbit:g} Mbit/s, {rtt_ms:g} ms, {lost}"

    def _join(self, undo: ExitStack) -> None:
        shape = (self.rtt_s * 500, self.rate_mbit or 0, self._loss_percent, _QUEUE_MS, _LIVES_S)
        ends = (self.namespace or "", self._device)
        emulator = subprocess.Popen(
            ["nice", "-n", "-10", _emulator(self._scratch), *ends, *(f"{n:g}" for n in shape)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        undo.callback(_end, emulator)
        assert emulator.stdout
        if emulator.stdout.readline() != b"ready\n":
            raise NotHere("the emulator of long links did not start")

    def _route(self) -> None:
        way = (f"{self.here}/32", "dev", self._device, "src", self.there)
        self._ip_there("route", "replace", *way, "congctl", "cubic")


class Box:
    """An sshd at the far end of a link, with OpenSSH's own limits, and a home for those who log in."""

    def __init__(self, directory: Path, link: Loopback, *, authorized: Path) -> None:
        if SSHD is None:
            raise NotHere("no sshd here: `apt-get install openssh-server`")
        directory.mkdir(parents=True)
        self.home, self.address = directory / "home", link.there
        self.home.mkdir()
        self.port = free_port()
        host_key = make_key(directory / "host_key")
        public = host_key.with_suffix(".pub").read_text(encoding="utf-8").split()
        self.known_hosts = directory / "known_hosts"
        self.known_hosts.write_text(
            f"[{self.address}]:{self.port} {public[0]} {public[1]}\n", encoding="utf-8"
        )
        Path("/run/sshd").mkdir(exist_ok=True)
        login = (
            f'cd {shlex.quote(str(self.home))} && export HOME="$PWD"'
            ' && exec "${SHELL:-sh}" -c "$SSH_ORIGINAL_COMMAND"'
        )
        config = directory / "sshd_config"
        config.write_text(
            f"ListenAddress {self.address}:{self.port}\nHostKey {host_key}\n"
            f"AuthorizedKeysFile {authorized}\nPidFile none\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nStrictModes no\n"
            "PermitRootLogin yes\nUseDNS no\n"
            "SetEnv SHLVL=1 GPU_TENANT_NO_POWEROFF=1\n"
            f"Subsystem sftp {_sftp_server()}\n"
            f"ForceCommand {login}\n",
            encoding="utf-8",
        )
        self._sshd = subprocess.Popen(
            link.within(SSHD, "-D", "-f", str(config), "-E", str(directory / "log")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: _answers(self.address, self.port))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def target(self) -> str:
        """What to give to ssh."""
        return f"{getpass.getuser()}@{self.address}:{self.port}"

    def hang_up(self) -> None:
        """Every session was cut."""
        end_tree(self._sshd.pid, itself=False)

    def close(self) -> None:
        """Neither sshd nor anything that was started through it lives."""
        end_tree(self._sshd.pid, itself=True)
        self._sshd.wait(timeout=10)
        end_living_in(self.home)


class Cutter:
    """A relay in front of a box that resets every connection as each mark of sent bytes is passed."""

    def __init__(self, port: int) -> None:
        self.sent_by_server = 0
        self.cuts = 0
        self._marks: list[int] = []
        self._box_port, self._lock = port, threading.Lock()
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server((LOOPBACK, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        with self._lock:
            self._cut()

    @property
    def target(self) -> str:
        """What to give to ssh."""
        return f"{getpass.getuser()}@{LOOPBACK}:{self.port}"

    def cut_at(self, marks: Sequence[int]) -> None:
        """From now on counted: as the box has sent so many bytes, every connection will be reset."""
        with self._lock:
            self.sent_by_server = self.cuts = 0
            self._marks = sorted(marks)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((LOOPBACK, self._box_port))
                with self._lock:
                    self._ends += (client, server)
                # What is lost at a cut is what a long link holds, and no megabytes of loopback's buffers.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pump = threading.Thread(target=self._up, args=(client, server), daemon=True)
                pump.start()
                threading.Thread(target=self._down, args=(server, client), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := client.recv(1 << 16):
                server.sendall(chunk)
            server.shutdown(socket.SHUT_WR)

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while chunk := server.recv(1 << 16):
                with self._lock:
                    self.sent_by_server += len(chunk)
                    if self._marks and self.sent_by_server >= self._marks[0]:
                        self._marks.pop(0)
                        self.cuts += 1
                        self._cut()
                client.sendall(chunk)
            client.shutdown(socket.SHUT_WR)

    def _cut(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def free_port() -> int:
    """A port at which nobody listens on loopback."""
    with socket.create_server((LOOPBACK, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _emulator(scratch: Path) -> str:
    built = scratch / "long_link"
    if not built.exists():
        if not shutil.which("cc") or not Path("/dev/net/tun").exists():
            raise NotHere("the emulator of long links needs a C compiler and /dev/net/tun")
        source = Path(__file__).with_name("long_link.c")
        subprocess.run(["cc", "-O2", "-o", built, source], check=True)
    return str(built)


def _sftp_server() -> str:
    places = ("/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh", "/usr/libexec")
    return shutil.which("sftp-server", path=":".join(places)) or "internal-sftp"


def _ip(*words: str, check: bool = True) -> None:
    went = subprocess.run(["ip", *words], capture_output=True, encoding="utf-8", check=False)
    if check and went.returncode:
        raise NotHere(f"`ip {' '.join(words)}`: {went.stderr.strip()}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(timeout=10)
    if process.stdout:
        process.stdout.close()


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=2) as probe:
            return probe.recv(4) == b"SSH-"
    except OSError:
        return False
