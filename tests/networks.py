"""A network of this computer's own, with hosts in it that have an address and nothing else in common."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from parts import required, root_required


@dataclass(frozen=True)
class Host:
    """A network namespace with `eth0` in the shared network."""

    namespace: str
    address: str

    @property
    def within(self) -> tuple[str, ...]:
        """What a program is begun by, so that it runs there."""
        return ("ip", "netns", "exec", self.namespace)

    def ip(self, *words: str) -> None:
        """`ip` was run there with these words."""
        _ip("-n", self.namespace, *words)

    def loses(self, other: "Host") -> None:
        """What it sends to the other one is lost on the way, without a word."""
        nobody = ("lladdr", "02:00:00:00:00:99", "nud", "permanent")
        self.ip("neigh", "replace", other.address, *nobody, "dev", "eth0")

    def finds(self, other: "Host") -> None:
        """All is as it was before `loses`."""
        self.ip("neigh", "del", other.address, "dev", "eth0")


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """So many hosts behind one bridge that this computer is at, too; gone afterwards."""
    required("ip")
    root_required()
    # 198.18.0.0/15 is set aside for such tests; one network for each process that runs them.
    number = os.getpid() % 250 + 1
    bridge, net = f"gtn{number}", f"198.18.{number}"
    with ExitStack() as undo:
        _ip("link", "add", bridge, "type", "bridge")
        undo.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{net}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        made = []
        for n in range(count):
            host = Host(f"{bridge}-{n}", f"{net}.{11 + n}")
            _ip("netns", "add", host.namespace)
            undo.callback(_ip, "netns", "del", host.namespace)
            near = f"{bridge}v{n}"
            _ip(
                "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", host.namespace
            )
            _ip("link", "set", near, "master", bridge, "up")
            host.ip("addr", "add", f"{host.address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                host.ip("link", "set", device, "up")
            made.append(host)
        yield made


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL)
