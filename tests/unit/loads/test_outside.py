"""The large readers, where installed, prove more; where they are not, their absence is stated."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from unit.loads.samples import FIXTURES, GOOD, verdict

from gpu_tenant.loads import inspect


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
