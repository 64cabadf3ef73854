"""How this copy of the program was installed, and so the line that adds what it can use besides."""

import json
import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

_NAME = "gpu-tenant"


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
