"""What the tests run with is what pyproject.toml asks for, and a new range without `make lock` is seen."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ASKED = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]


def locked() -> dict[str, list[Requirement]]:
    """Every exact version by the package's name; there are several where systems differ."""
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / "tests" / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pinned = Requirement(line)
            found.setdefault(canonicalize_name(pinned.name), []).append(pinned)
    return found


def test_the_lock_has_an_exact_version_within_every_range() -> None:
    pinned = locked()

    for words in ASKED:
        wish = Requirement(words)
        for found in pinned[canonicalize_name(wish.name)]:
            (exact,) = found.specifier
            assert exact.operator == "=="
            assert wish.specifier.contains(exact.version, prereleases=True), (words, str(found))
