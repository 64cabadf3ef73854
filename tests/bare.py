"""The suite on a computer that is not ours: a clone with nothing beside it, an empty home, no optional program.

`make test-bare` runs it. Of parts.txt only what everything needs is there. A test that lacks a part skips, in CI, too, and
the last lines count what was not run. Arguments go to make. What is not committed is not in the clone.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("git", "make", "python", "venv")
SYSTEM = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where some look for a program although PATH does not say so."""
SHOWN = "/opt"
HIDDEN_HERE = "GPU_TENANT_HIDDEN_HERE"
KEPT = ("LANG", "LC_ALL", "TMPDIR", "TERM", HIDDEN_HERE)


def main(arguments: list[str]) -> int:
    if not os.environ.get(HIDDEN_HERE) and _may_mount():
        again = ["unshare", "--mount", sys.executable, __file__, *arguments]
        os.execvpe("unshare", again, {**os.environ, HIDDEN_HERE: "yes"})
    # The sandbox of a smoke test shows its command an empty /tmp, so no folder on PATH may lie there.
    shown = SHOWN if os.access(SHOWN, os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="gt-bare-", ignore_cleanup_errors=True) as made,
        tempfile.TemporaryDirectory(prefix="gt-bare-", dir=shown) as on_path,
    ):
        far, programs = Path(made), Path(on_path) / "bin"
        clone, home = far / "clone", far / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, clone], check=True)
        optional = set(_optional())
        _link_others(programs, optional)
        if os.environ.get(HIDDEN_HERE):
            _hide(optional)

        # What is installed may come from caches and indexes that this computer's own settings name.
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        ours.pop("VIRTUAL_ENV", None)
        installing = ["make", "-C", clone, ".venv/.ready-dev"]
        subprocess.run(installing, env={**ours, "PATH": str(programs)}, check=True)

        theirs = {k: os.environ[k] for k in KEPT if k in os.environ}
        theirs |= {"PATH": str(programs), "HOME": str(home)}
        once_more = ("/bin/bash", "tests/once_more") if os.environ.get("CI") else ()
        testing = [*once_more, "make", "test", *arguments]
        return subprocess.run(testing, cwd=clone, env=theirs, check=False).returncode


def _may_mount() -> bool:
    """Whether a program can be hidden even from those who name its place: that takes root."""
    if os.geteuid() or not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0


def _optional() -> Iterator[str]:
    """Each program that a computer may lack."""
    for line in (ROOT / "tests/parts.txt").read_text(encoding="utf-8").splitlines():
        name, *said = line.split() or ["#"]
        if not name.startswith("#") and name not in NEEDED:
            yield from said[0].split(",")


def _link_others(into: Path, optional: set[str]) -> None:
    """The folder has a link to every program that PATH finds, but for the optional ones."""
    into.mkdir()
    # A name on PATH may be a script for a shell, which chooses among interpreters.
    (into / "python3").symlink_to(Path(sys.executable).resolve())
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = into / program.name
            if (
                program.name not in optional
                and os.access(program, os.X_OK)
                and not link.is_symlink()
            ):
                link.symlink_to(program)


def _hide(optional: set[str]) -> None:
    """No such program can be started, wherever it lies. What runs scripts stays, but not on PATH."""
    stays = {Path(shell).resolve() for shell in ("/bin/sh", "/bin/bash")}
    mount = shutil.which("mount") or "mount"
    places = [*os.environ["PATH"].split(os.pathsep), *SYSTEM]
    found = {(Path(place) / name).resolve() for place in places for name in optional}
    for program in sorted(found - stays, key=lambda one: one.name == "mount"):
        if program.is_file():
            subprocess.run([mount, "--bind", "/dev/null", program], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
