"""NaN and infinity are found and named; what was only sampled is stated; memory stays bounded."""

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.formats.samples import FIXTURES, verdict

from gpu_tenant.artifacts.formats import inspect
from gpu_tenant.artifacts.formats.non_finite import LAYOUTS, Tally


def safetensors(**tensors: tuple[str, np.ndarray]) -> bytes:
    """The tensors as a safetensors file, by hand, since numpy has no bfloat16."""
    parts, described, at = [], [], 0
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        shape = list(array.shape)
        described.append(
            f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{at},{at + len(raw)}]}}'
        )
        parts.append(raw)
        at += len(raw)
    header = ("{" + ",".join(described) + "}").encode()
    return struct.pack("<Q", len(header)) + header + b"".join(parts)


def sick(dtype: str, count: int = 4096) -> np.ndarray:
    """Ones, with three NaN and one infinity among them."""
    if dtype == "bf16":
        return (sick("f4", count).view("u4") >> 16).astype("<u2")
    array = np.ones(count, dtype=dtype)
    array[[1, count // 2, count - 1]] = np.nan
    array[2] = -np.inf
    return array


@pytest.mark.parametrize(
    ("name", "dtype"), [("F16", "f2"), ("F32", "f4"), ("F64", "f8"), ("BF16", "bf16")]
)
def test_nan_in_safetensors_is_counted_and_named(tmp_path: Path, name: str, dtype: str) -> None:
    content = safetensors(good=("F32", np.ones(9, "f4")), **{"layer.weight": (name, sick(dtype))})

    seen = verdict(tmp_path, "model.safetensors", content)

    assert seen.outcome == "loads"
    assert seen.warnings == ("layer.weight: 3 NaN, 1 inf of 4,096",)


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8"])
def test_nan_in_an_array_is_counted(tmp_path: Path, dtype: str) -> None:
    file = io.BytesIO()
    np.save(file, sick(dtype))

    seen = verdict(tmp_path, "a.npy", file.getvalue())

    assert seen.warnings == ("the array: 3 NaN, 1 inf of 4,096",)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_nan_in_an_archive_of_arrays_is_counted_and_named(tmp_path: Path, save: object) -> None:
    file = io.BytesIO()
    assert callable(save)
    save(file, good=np.ones(5), weight=sick("f4", 1_000_000))

    seen = verdict(tmp_path, "a.npz", file.getvalue())

    assert seen.warnings == ("weight: 3 NaN, 1 inf of 1,000,000",)


def test_nan_in_a_torch_checkpoint_is_named_by_its_key() -> None:
    seen = inspect(FIXTURES / "nan.pt", name="nan.pt")

    assert seen.outcome == "loads"
    assert seen.warnings == ("layer.weight: 3 NaN, 1 inf of 512",)


@pytest.mark.parametrize("dtype", ["F16", "F32", "F64"])
@pytest.mark.parametrize("order", ["little", "big"])
@given(content=st.binary(min_size=8, max_size=400))
def test_counting_agrees_with_numpy(dtype: str, order: str, content: bytes) -> None:
    width = LAYOUTS[dtype].size_bytes
    content = content[: len(content) // width * width]
    tally = Tally()

    tally.add(content, dtype, "big" if order == "big" else "little")

    values = np.frombuffer(content, f"{'>' if order == 'big' else '<'}f{width}")
    assert (tally.nan, tally.inf) == (np.isnan(values).sum(), np.isinf(values).sum())


def test_a_huge_file_is_sampled_and_says_so_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge.safetensors"
    count = 250_000_000
    header = f'{{"w":{{"dtype":"F32","shape":[{count}],"data_offsets":[0,{4 * count}]}}}}'.encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 4 * count)

    tracemalloc.start()
    seen = inspect(path, name=path.name)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert seen.outcome == "loads"
    assert "values sampled: 67,108,864 of 250,000,000" in seen.not_proved
    assert peak < 16 << 20


@pytest.mark.parametrize("name", ["bomb.zip", "bomb.npz"])
def test_a_member_that_inflates_beyond_its_declared_size_is_stopped(
    tmp_path: Path, name: str
) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(64 << 20))
    content = bytearray(file.getvalue())
    entry = content.index(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", 1000)

    tracemalloc.start()
    seen = verdict(tmp_path, name, bytes(content))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert seen.outcome == "broken"
    assert peak < 16 << 20


def test_overlapping_zip_members_are_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", bytes(5000))
        archive.writestr("b", b"x")
    content = bytearray(file.getvalue())
    first = content.index(b"PK\x01\x02")
    entry = bytes(content[first : first + 47])
    count = 200
    content[first:] = entry * count + struct.pack(
        "<4s4H2IH", b"PK\x05\x06", 0, 0, count, count, 47 * count, first, 0
    )

    seen = verdict(tmp_path, "bomb.zip", bytes(content))

    assert seen.outcome == "broken"
    assert "overlap" in (seen.problem or "")


def test_a_name_from_the_file_cannot_move_a_terminal_or_break_the_verdict(tmp_path: Path) -> None:
    names = {"\\u001b[2Jred": ("F32", sick("f4", 8)), "half \\ud800": ("F32", sick("f4", 8))}

    seen = verdict(tmp_path, "model.safetensors", safetensors(**names))

    assert seen.warnings == ("�[2Jred: 3 NaN, 1 inf of 8", "half �: 3 NaN, 1 inf of 8")
