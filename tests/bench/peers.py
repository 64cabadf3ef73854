"""The programs that people move bytes with today, each as one command over a cold connection."""

import getpass
import shlex
from dataclasses import dataclass
from pathlib import Path

from links import Box

CIPHERS = ("aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com", "")
"""The last is whatever OpenSSH itself prefers."""


@dataclass(frozen=True, slots=True)
class Way:
    """How the peers reach a box: all by the same key, and no connection is shared."""

    box: Box
    key: Path
    cipher: str

    @property
    def options(self) -> list[str]:
        """For every program of OpenSSH."""
        said = {
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.box.known_hosts,
            "StrictHostKeyChecking": "yes",
            "ControlMaster": "no",
            "ControlPath": "none",
            "BatchMode": "yes",
            "LogLevel": "ERROR",
        }
        words = [word for name, value in said.items() for word in ("-o", f"{name}={value}")]
        return [
            *("-F", "/dev/null", "-i", str(self.key)),
            *words,
            *(("-c", self.cipher) if self.cipher else ()),
        ]

    @property
    def host(self) -> str:
        """Who logs in, and where."""
        return f"{getpass.getuser()}@{self.box.address}"

    def ssh(self, command: str = "") -> str:
        """A shell's word for that command on the box; without one, for what rsync appends one to."""
        words = shlex.join(["ssh", *self.options, "-p", str(self.box.port)])
        return f"{words} {self.host} {shlex.quote(command)}" if command else words


def command(peer: str, way: Way, source: Path, to: Path) -> list[str]:
    """What brings `source` of the box, a file or a directory, into the empty directory `to`."""
    name, _, number = peer.partition(" x")
    many = source.is_dir()
    there = f"{way.host}:{source}"
    into = to / source.name
    match name:
        case "scp":
            return ["scp", "-q", "-r", *way.options, "-P", str(way.box.port), there, str(to)]
        case "sftp":
            order = f"get {'-r ' if many else ''}{source} {into}"
            sftp = shlex.join(
                ["sftp", "-q", "-b", "-", *way.options, "-P", str(way.box.port), way.host]
            )
            return _shell(f"echo {shlex.quote(order)} | {sftp}")
        case "rsync":
            return ["rsync", "-a", "-e", way.ssh(), there, str(to)]
        case "ssh cat":
            return _shell(f"{way.ssh(f'exec cat {source}')} > {into}")
        case "tar":
            packed = way.ssh(f"exec tar -C {source.parent} -cf - {source.name}")
            return _shell(f"{packed} | tar -C {to} -xf -")
        case "rclone":
            return _rclone(way, source, into, int(number))
        case "ranges":
            return _ranges(way, source, into, int(number))
    raise AssertionError(f"no peer is called {peer}")


def _shell(line: str) -> list[str]:
    return ["bash", "-o", "pipefail", "-c", line]


def _rclone(way: Way, source: Path, into: Path, streams: int) -> list[str]:
    """`streams` of one file, or so many files at once; no hashes, which is to its advantage."""
    login = {
        "host": way.box.address,
        "port": way.box.port,
        "user": getpass.getuser(),
        "key-file": way.key,
        "shell-type": "unix",
        "concurrency": 64,
        "chunk-size": "32k",
    }
    many = source.is_dir()
    return [
        "rclone",
        "copy" if many else "copyto",
        "--config",
        "/dev/null",
        *(word for name, value in login.items() for word in (f"--sftp-{name}", str(value))),
        "--sftp-disable-hashcheck",
        "--ignore-checksum",
        "--retries",
        "1",
        "--multi-thread-cutoff",
        "1M",
        "--multi-thread-streams",
        "0" if many else str(streams),
        *(("--transfers", str(streams), "--checkers", str(streams)) if many else ()),
        f":sftp:{source}",
        str(into),
    ]


def _ranges(way: Way, source: Path, into: Path, count: int) -> list[str]:
    """So many `ssh dd` at once, a range each; sshd turns some away when many knock, and they knock again."""
    size = source.stat().st_size
    length = -(-size // count)
    read = f"exec dd if={source} bs=1M iflag=skip_bytes,count_bytes status=none"
    lines = ["range() { for again in 1 2 3 4 5 6 7 8; do", f"  {way.ssh()} {way.host} \\"]
    lines += [
        f'    "{read} skip=$1 count={length}" | dd of={into} bs=1M iflag=fullblock \\',
        "    oflag=seek_bytes seek=$1 conv=notrunc status=none",
        '  [ "${PIPESTATUS[0]}" = 255 ] || return 0; sleep 0.2; done; return 1; }',
        f"truncate -s {size} {into}; pids=",
    ]
    lines += [f'range {n * length} & pids="$pids $!"' for n in range(count)]
    lines += ["for pid in $pids; do wait $pid || exit 1; done"]
    return ["bash", "-c", "\n".join(lines)]
