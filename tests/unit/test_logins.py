"""Traces of a person on a box."""

import os
from pathlib import Path

import pytest

from box_scripts.caretaker.logins import somebody_may_have_worked

BEFORE, THEN, AFTER = 1_000, 2_000, 3_000


@pytest.mark.parametrize(
    ("noted_ns", "terminals", "may_be"),
    [
        (None, (), False),
        (BEFORE, (), False),
        (AFTER, (), True),
        (None, ("ptmx",), False),
        (BEFORE, ("ptmx", "0"), True),
    ],
)
def test_a_terminal_or_a_noted_login_somebody_may_have_worked(
    tmp_path: Path, noted_ns: int | None, terminals: tuple[str, ...], may_be: bool
) -> None:
    for name in terminals:
        (tmp_path / "dev/pts").mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev/pts" / name).touch()
    if noted_ns is not None:
        (tmp_path / "var/log").mkdir(parents=True)
        (tmp_path / "var/log/wtmp").touch()
        os.utime(tmp_path / "var/log/wtmp", ns=(noted_ns, noted_ns))

    assert somebody_may_have_worked(THEN, str(tmp_path)) is may_be
