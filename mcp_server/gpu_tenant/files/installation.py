"""How this copy of the program was installed, which line adds to it, and whether it is there to stay and starts."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

_NAME = "gpu-tenant"
Installer = Literal["uv", "pipx"]


@dataclass(frozen=True, slots=True)
class Cache:
    """A directory that an installer may empty at any time."""

    installer: Installer
    directory: Path


def cache_of(program: Path, environ: Mapping[str, str]) -> Cache | None:
    """Return the cache that the program lies in, as with `uvx` and `pipx run`. None if it lies in none.

    Only uv and pipx themselves know where their caches are.
    """
    lies_in = {program.parent.resolve(), program.resolve().parent}
    for cache in _caches(environ):
        if any(place.is_relative_to(cache.directory.resolve()) for place in lies_in):
            return cache
    return _unkept_cache(lies_in) if environ.get("UV") else None


def _unkept_cache(places: Iterable[Path]) -> Cache | None:
    """Return the cache that `uvx --no-cache` makes in the directory for temporary files, and removes at its end."""
    temporary = Path(tempfile.gettempdir()).resolve()
    for place in places:
        for above in place.parents:
            if above.parent == temporary and above.name.startswith(".tmp"):
                return Cache("uv", above)
    return None


def install_line(installer: Installer) -> str:
    """Return the line for a shell that installs this program to stay, from where this copy came from."""
    what = shlex.quote(source_of(_origin()))
    return f"uv tool install {what}" if installer == "uv" else f"pipx install {what}"


def source_of(origin: Mapping[str, object]) -> str:
    """Return what an installer is given for the same program. `origin` is what an installer noted (PEP 610)."""
    if (folder := _folder(origin)) is not None:
        return str(folder)
    url, control = str(origin.get("url", "")), origin.get("vcs_info")
    if isinstance(control, dict):
        return f"{control.get('vcs', 'git')}+{url}"
    return url or _NAME


def installed_programs(register: Path) -> Mapping[str, Sequence[str]]:
    """Return the programs that others start since `gpu-tenant install` wrote so, by the words after that command.

    `register` is the list that this command keeps (faces/install/registry.py). None is named if it cannot be read.
    """
    try:
        listed = json.loads(register.read_bytes())
        programs = {_words(entry): entry["program"] for entry in listed["installed"]}
        if listed["watchdog"] is not None:
            programs["watchdog"] = listed["watchdog"]["program"]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return {words: program for words, program in programs.items() if program}


def why_not_started(program: Sequence[str]) -> str | None:
    """Return why the program does not start without the variables of this shell. None if it starts."""
    environ = {"HOME": str(Path.home()), "PATH": os.defpath}
    try:
        ran = subprocess.run(
            [*program, "--version"],
            env=environ,
            cwd="/",
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (
        (ran.stderr.strip().splitlines() or [f"status {ran.returncode}"])[-1]
        if ran.returncode
        else None
    )


def _words(entry: Mapping[str, str | None]) -> str:
    project = entry["project"]
    return f"{entry['host']} --project {shlex.quote(project)}" if project else f"{entry['host']}"


def _caches(environ: Mapping[str, str]) -> Iterator[Cache]:
    # `uvx` tells what it starts where it is itself, for it need not be on PATH.
    uv = environ.get("UV") or shutil.which("uv", path=environ.get("PATH"))
    if uv and (said := _answer(uv, "cache", "dir")):
        yield Cache("uv", Path(said))
    pipx = shutil.which("pipx", path=environ.get("PATH"))
    if pipx and (said := _answer(pipx, "environment", "--value", "PIPX_VENV_CACHEDIR")):
        yield Cache("pipx", Path(said))
    elif home := environ.get("PIPX_HOME"):
        yield Cache("pipx", Path(home, ".cache"))


def _answer(*command: str) -> str:
    """Return what the command printed. Nothing if it failed."""
    try:
        ran = subprocess.run(
            command,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if ran.returncode else ran.stdout.strip()


def extra_line(extra: str) -> str:
    """Return the line for a shell that installs one of this program's extras into this very copy."""
    return line_for(
        extra,
        _origin(),
        prefix=Path(sys.prefix),
        python=sys.executable,
        installer="pip" if _has("pip") else "uv",
    )


def line_for(
    extra: str,
    origin: Mapping[str, object],
    *,
    prefix: Path,
    python: str,
    installer: Literal["pip", "uv"],
) -> str:
    """Return that line for a copy in `prefix`. `origin` is what its installer noted: nothing if it came from an index."""
    folder, about = _folder(origin), origin.get("dir_info")
    is_clone = isinstance(about, dict) and bool(about.get("editable"))
    what = shlex.quote(f"{_NAME if folder is None else folder}[{extra}]")
    editable = "-e " if is_clone else ""
    if (prefix / "uv-receipt.toml").is_file():
        return f"uv tool install {editable}{what}"
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx runpip {_NAME} install {editable}{what}"
    if installer == "pip":
        return f"{shlex.quote(python)} -m pip install {editable}{what}"
    return f"uv pip install --python {shlex.quote(python)} {editable}{what}"


def _has(package: str) -> bool:
    """Whether that package is installed here. It is not looked for as a module: setuptools warns of that."""
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def _origin() -> Mapping[str, object]:
    """What the installer noted of where the program came from (PEP 610). Of a bare clone, that is its own folder."""
    try:
        noted = distribution(_NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        clone = Path(__file__).resolve().parents[3]
        return {"url": clone.as_uri(), "dir_info": {"editable": True}}
    try:
        said = json.loads(noted or "{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _folder(origin: Mapping[str, object]) -> Path | None:
    """The folder that the program was installed from, if it is still there."""
    url = urlsplit(str(origin.get("url", "")))
    folder = Path(unquote(url.path))
    is_here = url.scheme == "file" and (folder / "pyproject.toml").is_file()
    return folder if is_here else None
