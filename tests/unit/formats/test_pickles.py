"""Pickles are followed and never run; what they would import is named; what is missing is found."""

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
from unit.formats.samples import FIXTURES, GOOD, verdict

from gpu_tenant.artifacts.formats import inspect


class Touches:
    """Unpickles into a command that leaves a trace."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_hostile_pickle_is_named_and_not_run(tmp_path: Path, protocol: int) -> None:
    trace = tmp_path / "trace"

    seen = verdict(tmp_path, "x.pkl", pickle.dumps({"x": Touches(trace)}, protocol))

    assert seen.outcome == "loads"
    assert "system" in seen.warnings[0]
    assert "unpickling is unsafe and was not attempted" in seen.not_proved
    assert not trace.exists()


def test_only_a_pickle_that_names_a_class_is_said_not_to_be_proved_to_unpickle(
    tmp_path: Path,
) -> None:
    plain = verdict(tmp_path, "x.pkl", pickle.dumps({"epoch": 5, "w": [0.5]}))
    named = verdict(tmp_path, "y.pkl", pickle.dumps(OrderedDict(a=1)))

    assert (plain.outcome, plain.not_proved) == ("loads", ())
    assert "that it can be unpickled: the classes that it names may be gone or changed" in (
        named.not_proved
    )


def test_a_hostile_checkpoint_is_named_and_not_run(capfd: pytest.CaptureFixture[str]) -> None:
    seen = inspect(FIXTURES / "hostile.pt", name="hostile.pt")

    assert seen.warnings == ("unpickling would import and may run posix.system",)
    assert "unpickling is unsafe and was not attempted" in seen.not_proved
    assert capfd.readouterr() == ("", "")


def test_a_hostile_second_pickle_is_named_as_well(tmp_path: Path) -> None:
    content = pickle.dumps(1) + pickle.dumps(Touches(tmp_path / "trace"))

    assert "system" in verdict(tmp_path, "x.pkl", content).warnings[0]


def test_a_name_computed_while_unpickling_is_not_taken_for_harmless(tmp_path: Path) -> None:
    # The module's name is a list, which only a hand-written pickle would try.
    content = b"\x80\x04]\x8c\x06system\x93."

    seen = verdict(tmp_path, "x.pkl", content)

    assert "a name computed while unpickling" in seen.warnings[0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x80\x04h\x05.", "memo 5 is read"),
        (b"\x80\x04.", "empty stack"),
        (b"\x80\x04]K\x01e.", "no MARK"),
        (b"\x80\x04\x95\xff\x00\x00\x00\x00\x00\x00\x00N.", "frame of 255 bytes"),
        (b"\x80\x09N.", "protocol 9"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", "cut off"),
        (b"\x80\x04\xfe.", "no pickle opcode"),
        (b"\x80\x04}(K\x01u.", "no value"),
    ],
)
def test_a_damaged_pickle_is_broken_with_the_reason(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    seen = verdict(tmp_path, "x.pkl", content)

    assert seen.outcome == "broken"
    assert reason in (seen.problem or "")


def rezipped(drop: str = "", shorten: str = "") -> bytes:
    """`state_dict.pt` with a member dropped, or without its last byte, and all CRCs right."""
    file = io.BytesIO()
    with zipfile.ZipFile(FIXTURES / "state_dict.pt") as old, zipfile.ZipFile(file, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if not drop or not member.endswith(drop):
                new.writestr(
                    member, content[:-1] if shorten and member.endswith(shorten) else content
                )
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (rezipped(drop="/data/0"), "layer.weight: its values, data/0, are missing"),
        (rezipped(shorten="/data/0"), "layer.weight: data/0 has 511 bytes of 512"),
        (rezipped(drop="data.pkl"), "no data.pkl"),
        (rezipped(shorten="data.pkl"), "cut off"),
    ],
)
def test_a_checkpoint_that_lacks_values_is_broken_though_every_crc_is_right(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    seen = verdict(tmp_path, "model.pt", content)

    assert seen.outcome == "broken"
    assert reason in (seen.problem or "")


def test_a_tensor_that_reaches_beyond_its_storage_is_broken(tmp_path: Path) -> None:
    content = GOOD["legacy.pt"].replace(b"K\x10K\x08\x86", b"K\x10K\x09\x86", 1)

    seen = verdict(tmp_path, "model.pt", content)

    assert "a tensor reaches value" in (seen.problem or "")


def test_a_checkpoint_without_checksums_says_that_only_the_hash_covers_it() -> None:
    seen = inspect(FIXTURES / "no_crc.pt", name="no_crc.pt")

    assert seen.outcome == "loads"
    assert any("checksums turned off" in reason for reason in seen.not_proved)


def test_an_old_checkpoint_that_torch_itself_cannot_read_is_warned_of() -> None:
    seen = inspect(FIXTURES / "legacy_float8.pt", name="legacy_float8.pt")

    assert seen.outcome == "loads"
    assert "torch cannot load float8" in seen.warnings[0]


def test_a_numpy_scalar_is_no_fault_but_not_for_weights_only() -> None:
    seen = inspect(FIXTURES / "numpy_scalar.pt", name="numpy_scalar.pt")

    assert (seen.outcome, seen.warnings) == ("loads", ())
    assert "not loaded by torch: it holds more than weights_only allows" in seen.not_proved
