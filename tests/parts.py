"""What a machine must have for some tests: parts.txt has the list, and `make test-setup` installs all of it."""

import os
import shutil
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

_PATH = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin:/usr/local/sbin"


@cache
def _parts() -> dict[str, tuple[list[str], list[str]]]:
    """Programs and packages by the name of the part."""
    text = Path(__file__).with_name("parts.txt").read_text(encoding="utf-8")
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {name: (programs.split(","), packages.split(",")) for name, programs, packages in rows}


def required(*names: str) -> None:
    """The test goes on where the machine has these parts. Elsewhere it skips."""
    for name in names:
        programs, packages = _parts()[name]
        if any(shutil.which(program, path=_PATH) is None for program in programs):
            lacks(name, f"apt-get install {' '.join(packages)}")


def lacks(what: str, command: str) -> NoReturn:
    """The test skips, and its reason is what it lacks and the command that brings it."""
    pytest.skip(f"needs {what}: `{command}`")


def root_required() -> None:
    if os.geteuid():
        lacks("root", "sudo make test")


def not_run(reasons: list[str]) -> list[str]:
    """Lines for a person: what was not run, how many tests of each, and what brings it."""
    told = [reason.removeprefix("Skipped: ").removeprefix("needs ") for reason in reasons]
    counts = sorted({reason: told.count(reason) for reason in told}.items(), key=lambda x: -x[1])
    width = len(str(max(told.count(reason) for reason in told))) if told else 0
    return [
        "Not run here. `make test-setup` installs all that Debian has of it.",
        *(
            f"  {count:>{width}} {'test' if count == 1 else 'tests'}: {why}"
            for why, count in counts
        ),
    ]
