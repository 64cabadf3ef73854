"""Finds the skill's own files: inside the package if it is a wheel, or at the root of a checkout."""

from pathlib import Path

import gpu_tenant

_PACKAGE = Path(gpu_tenant.__file__).parent


def skill_directory() -> Path:
    """Return the directory that holds SKILL.md, references/, profiles/ and scripts/."""
    bundled = _PACKAGE / "skill"
    return bundled if bundled.is_dir() else _PACKAGE.parent.parent


def script(name: str) -> Path:
    """Return the path of one of the scripts that run on a box."""
    return skill_directory() / "scripts" / name
