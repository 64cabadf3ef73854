"""What the jobs of these lives do, and how each ends."""

from typing import Literal

Kind = Literal[
    "ok", "several", "failed", "killed", "lingers", "unclaimed", "sweep", "out of memory"
]
KINDS: tuple[Kind, ...] = (
    "ok",
    "several",
    "failed",
    "killed",
    "lingers",
    "unclaimed",
    "sweep",
    "out of memory",
)
_THEN = {
    "failed": "; exit 3",
    "killed": "; kill -9 $$",
    "lingers": "; setsid -f sleep 100000 > /dev/null 2>&1; exit 0",
    "unclaimed": "; echo precious > other.bin",
    # More than a process may address fails there, and leaves the tester's computer alone.
    "out of memory": "; ulimit -v 2000000; python3 -c 'bytearray(1 << 40)'",
}
LOOKED_AT_S = dict.fromkeys(("failed", "killed", "lingers", "out of memory"), 900)
"""How long the default terms leave for somebody to look at what went wrong. That is said, and billed."""
CELLS = ("seed-1", "seed-2", "seed-3")


def script(kind: Kind, writes: str) -> str:
    """The command that first writes what is needed, and then ends as its kind does."""
    return writes + _THEN.get(kind, "")
