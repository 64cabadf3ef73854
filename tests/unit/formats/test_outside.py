"""The large readers, where installed, prove more; where they are not, their absence is stated."""

import sqlite3
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from unit.formats.samples import FIXTURES, GOOD, verdict

from gpu_tenant.artifacts.formats import inspect
from gpu_tenant.artifacts.formats.bounded_file import Findings, Source, Unread
from gpu_tenant.artifacts.formats.subprocesses import read


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("state_dict.pt", "torch"),
        ("training.pt", "torch"),
        ("metrics.parquet", "pyarrow"),
        ("data.h5", "h5py"),
        ("latest.h5", "h5py"),
    ],
)
def test_a_reader_proves_more_or_is_said_to_be_absent(name: str, package: str) -> None:
    seen = inspect(FIXTURES / name, name=name)

    assert seen.outcome == "loads"
    if find_spec(package):
        assert any(reason.startswith(package) for reason in seen.proved)
    else:
        assert f"not read by {package}, which is not installed" in seen.not_proved


@pytest.mark.parametrize(
    ("name", "package", "at"), [("metrics.parquet", "pyarrow", 60), ("data.h5", "h5py", 4800)]
)
def test_damage_that_only_the_reader_can_see_is_broken_where_it_is_installed(
    tmp_path: Path, name: str, package: str, at: int
) -> None:
    content = bytearray(GOOD[name])
    content[at : at + 40] = bytes(byte ^ 0x55 for byte in content[at : at + 40])

    seen = verdict(tmp_path, name, bytes(content))

    if find_spec(package):
        assert (seen.problem or "").startswith(package)
    else:
        assert seen.outcome == "loads"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A good SQLite file, beside which a library may be put that the readers import."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    path = tmp_path / "good.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("create table t (x)")
        made.commit()
    return path


@pytest.mark.parametrize("signal", ["SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV", "SIGKILL"])
def test_a_library_that_crashes_says_nothing_against_the_file(file: Path, signal: str) -> None:
    crash = f"import os, signal\nos.kill(os.getpid(), signal.{signal})\n"
    (file.parent / f"falls_{signal.lower()}.py").write_text(crash, encoding="utf-8")

    with pytest.raises(Unread), Source(file, file.name) as source:
        read(source, f"falls_{signal.lower()}", "sqlite_check", Findings())


def test_a_library_that_crashes_after_its_verdict_has_given_it(file: Path) -> None:
    (file.parent / "falls_late.py").write_text(
        "import atexit, os, signal, sys\n"
        "atexit.register(lambda: (sys.stdout.flush(), os.kill(os.getpid(), signal.SIGSEGV)))\n",
        encoding="utf-8",
    )
    good = Findings()

    with Source(file, file.name) as source:
        read(source, "falls_late", "sqlite_check", good)

    assert good.proved
