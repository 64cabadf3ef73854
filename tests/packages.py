"""Python packages made by hand, offline: wheels, one that builds when it is told to, a fake framework."""

import subprocess
import sys
import zipfile
from pathlib import Path

BACKEND = """\
import pathlib, time, zipfile
DI = "slowly-1.0.dist-info/"
FILES = {
    "slowly.py": "VERSION = '1.0'\\n",
    DI + "METADATA": "Metadata-Version: 2.1\\nName: slowly\\nVersion: 1.0\\n",
    DI + "WHEEL": "Wheel-Version: 1.0\\nGenerator: hand\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    DI + "RECORD": "slowly.py,,\\n",
}
SIGNS = pathlib.Path(SIGNS_AT)

def build_wheel(directory, config_settings=None, metadata_directory=None):
    (SIGNS / "building").touch()
    while not (SIGNS / "enough").exists():
        time.sleep(0.02)
    pathlib.Path("left_by_the_build.txt").write_text("made here")
    with zipfile.ZipFile(directory + "/slowly-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in FILES.items():
            wheel.writestr(name, text)
    return "slowly-1.0-py3-none-any.whl"
"""


def wheel(directory: Path, name: str, version: str, *, requires: tuple[str, ...] = ()) -> Path:
    """A wheel of one module, which knows its VERSION."""
    directory.mkdir(parents=True, exist_ok=True)
    facts = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {wanted}\n" for wanted in requires)
    made = directory / f"{name}-{version}-py3-none-any.whl"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{facts}/RECORD": f"{name}.py,,\n",
    }
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return made


def slow_package(directory: Path, signs: Path) -> Path:
    """A source tree whose build says `signs/building`, and ends when `signs/enough` is there."""
    directory.mkdir(parents=True)
    signs.mkdir(exist_ok=True)
    (directory / "backend.py").write_text(
        BACKEND.replace("SIGNS_AT", repr(str(signs))), encoding="utf-8"
    )
    (directory / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        encoding="utf-8",
    )
    return directory


def image_with_torch(directory: Path, version: str = "2.3.1+cu121") -> Path:
    """The `bin` of an interpreter that has a torch, as an image's has."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    (site,) = directory.glob("lib/python3*/site-packages")
    facts = site / f"torch-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n", encoding="utf-8"
    )
    (facts / "RECORD").touch()
    (facts / "INSTALLER").write_text("pip\n", encoding="utf-8")
    (site / "torch.py").write_text(f"__version__ = {version!r}\n", encoding="utf-8")
    return directory / "bin"
