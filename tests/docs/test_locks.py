"""What is locked is what pyproject.toml asks for, and a new range without `make lock` is seen."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NEEDED = PROJECT["project"]["dependencies"]
FOR_TESTS = [*NEEDED, *PROJECT["dependency-groups"]["dev"]]


def locked(path: str) -> dict[str, list[Requirement]]:
    """Every exact version by the package's name; there are several where systems differ."""
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / path).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith((" ", "#")):
            pinned = Requirement(line.rstrip("\\ "))
            found.setdefault(canonicalize_name(pinned.name), []).append(pinned)
    return found


@pytest.mark.parametrize(
    ("lock", "asked"),
    [("scripts/requirements.lock", NEEDED), ("tests/requirements.lock", FOR_TESTS)],
)
def test_a_lock_has_one_exact_version_within_every_range(lock: str, asked: list[str]) -> None:
    pinned = locked(lock)

    for words in asked:
        wish = Requirement(words)
        for found in pinned[canonicalize_name(wish.name)]:
            (exact,) = found.specifier
            assert exact.operator == "=="
            assert wish.specifier.contains(exact.version, prereleases=True), (words, str(found))
