"""A proof reads a file once, from its storage, and says of it what hashing and inspecting would."""

import os
from hashlib import sha256
from pathlib import Path
from threading import Event

import pytest
from unit.formats.samples import FIXTURES, GOOD

from gpu_tenant.artifacts.formats.check_file import Proof, inspect, prove
from gpu_tenant.artifacts.formats.single_pass import Stopped
from gpu_tenant.files import direct_io

IN_THIS_PROCESS = [name for name in GOOD if not name.endswith((".h5", ".parquet"))]
TORCH = (FIXTURES / "state_dict.pt").read_bytes()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every file were many blocks long."""
    monkeypatch.delattr(os, "O_DIRECT", raising=False)
    monkeypatch.setattr(direct_io, "ALIGNED_BYTES", 64)
    monkeypatch.setattr(direct_io, "BLOCK_BYTES", 64)


def proved(folder: Path, name: str, content: bytes, expected: bytes | None = None) -> Proof:
    path = folder / "staged"
    path.write_bytes(content)
    digest = sha256(content if expected is None else expected).hexdigest()
    proof = prove(path, name=name, sha256=digest)
    assert proof is not None
    assert (proof.size_bytes, proof.sha256) == (len(content), sha256(content).hexdigest())
    return proof


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", [*IN_THIS_PROCESS, "data.h5", "notes.txt", "nothing.known"])
def test_it_says_what_an_inspection_says(tmp_path: Path, name: str) -> None:
    proof = proved(tmp_path, name, GOOD.get(name, b"some words\n" * 40))

    assert proof.verdict == inspect(tmp_path / "staged", name=name)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["nan.pt", "hostile.pt", "no_crc.pt"])
def test_it_warns_of_what_an_inspection_warns_of(tmp_path: Path, name: str) -> None:
    proof = proved(tmp_path, name, (FIXTURES / name).read_bytes())

    assert proof.verdict == inspect(FIXTURES / name, name=name)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["state_dict.pt", "arrays.npz", "stored.zip", "plot.png"])
@pytest.mark.parametrize("at", [0.2, 0.4, 0.6, 0.8, 0.99])
def test_damage_is_told_in_the_same_words(tmp_path: Path, name: str, at: float) -> None:
    content = bytearray(GOOD[name])
    content[int(at * len(content))] ^= 0x40

    proof = proved(tmp_path, name, bytes(content))

    assert proof.verdict == inspect(tmp_path / "staged", name=name)


def test_a_damaged_member_is_told_before_the_pickle_that_it_spoiled(tmp_path: Path) -> None:
    at = TORCH.index(b"FloatStorage")

    proof = proved(tmp_path, "x.pt", TORCH[:at] + b"\xff" + TORCH[at + 1 :])

    assert proof.verdict.problem is not None
    assert "fails its CRC-32" in proof.verdict.problem


def test_every_value_of_a_file_of_many_blocks_is_looked_at(tmp_path: Path) -> None:
    count = 1_500_000
    header = f'{{"w":{{"dtype":"F32","shape":[{count}],"data_offsets":[0,{4 * count}]}}}}'.encode()
    values = bytearray(4 * count)
    for number in (0, (direct_io.BLOCK_BYTES - 8 - len(header)) // 4, count - 1):
        values[4 * number : 4 * number + 4] = b"\0\0\xc0\x7f"

    proof = proved(
        tmp_path, "w.safetensors", len(header).to_bytes(8, "little") + header + bytes(values)
    )

    assert proof.verdict.warnings == ("w: 3 NaN, 0 inf of 1,500,000",)


def test_other_bytes_than_were_to_be_proved_are_handed_to_no_other_program(tmp_path: Path) -> None:
    proof = proved(tmp_path, "x.sqlite", GOOD["runs.sqlite"], expected=b"other")

    assert proof.verdict.outcome == "opaque"
    assert not any("SQLite's integrity check" in what for what in proof.verdict.proved)


def test_only_a_regular_file_is_proved(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")

    for name in ("link", "pipe", "nothing"):
        assert prove(tmp_path / name, name="x.txt", sha256="") is None


def test_a_proof_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(TORCH)
    stop = Event()
    stop.set()

    with pytest.raises(Stopped):
        prove(tmp_path / "x.pt", name="x.pt", sha256="", stop=stop)
