"""The line to a rehearsed box, cut and mended; what runs on the box goes on."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Final

_SSHD: Final = shutil.which("sshd", path=f"/usr/sbin:/usr/local/sbin:{os.environ.get('PATH', '')}")


def cut(box: Path) -> None:
    """Nobody listens where the box was, and every session is broken."""
    listener = int((box / "pid").read_text(encoding="utf-8"))
    doomed = [listener]
    for pid in doomed:
        doomed += [child for child in _sshd_below(pid) if child not in doomed]
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def mend(box: Path) -> None:
    """It answers at the same place again."""
    assert _SSHD is not None
    subprocess.run(
        [_SSHD, "-f", box / "sshd_config", "-E", box / "log"],
        check=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(box / "home")},
    )


def _sshd_below(parent: int) -> list[int]:
    """The children of that process that serve a login; a job left its login long ago."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, _, rest = (entry / "stat").read_text(encoding="utf-8").rpartition(")")
            if "(sshd" in name and int(rest.split()[1]) == parent:
                found.append(int(entry.name))
    return found
