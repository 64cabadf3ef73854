"""Truncated, bit-flipped, emptied, renamed, appended to: what loading can find, it finds."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from unit.formats.samples import GOOD, verdict

from gpu_tenant.artifacts.formats import SUFFIXES

CUTS = [1, 2, 3, 5, 8, 11, 14, 15]

ENDS_EARLY = {
    "log.jsonl": "a cut between two lines leaves no trace, and the last newline is not needed",
    "table.csv": "as above",
    "table.tsv": "as above",
    "format1.tar": "padding follows the end marker",
    "format2.tar": "as above",
    "two_members.csv.gz": "a cut between two gzip members leaves no trace",
    "model.gguf": "padding follows the last tensor",
}

APPENDED_BREAKS = {
    "state_dict.safetensors",
    "model.onnx",
    "external.onnx",
    "metrics.parquet",
    "results.json",
    "log.jsonl",
    "table.csv",
    "table.tsv",
    "log.jsonl.gz",
    "run.tar.gz",
    "run.txz",
    "two_members.csv.gz",
    "log.json.bz2",
    "log.ndjson.xz",
}

STRUCTURE = [
    ("state_dict.pt", b"PK\x03\x04"),
    ("state_dict.pt", b"FloatStorage"),
    ("state_dict.pt", b"data/0"),
    ("state_dict.pt", b"PK\x01\x02"),
    ("state_dict.pt", b"PK\x06\x06"),
    ("state_dict.pt", b"PK\x05\x06"),
    ("legacy.pt", b"\xfc\x9cF\xf9"),
    ("legacy.pt", b"\x10\x00\x00\x00\x00\x00\x00\x00"),
    ("state_dict.safetensors", b"{"),
    ("state_dict.safetensors", b"data_offsets"),
    ("state_dict.safetensors", b"BF16"),
    ("state_dict.safetensors", b"[16,8]"),
    ("array.npy", b"NUMPY"),
    ("array.npy", b"descr"),
    ("array.npy", b"20, 30"),
    ("arrays.npz", b"PK\x01\x02"),
    ("arrays.npz", b"descr"),
    ("model.gguf", b"GGUF"),
    ("model.gguf", b"\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00llama"),
    ("metrics.parquet", b"PAR1"),
    ("data.h5", b"HDF"),
    ("runs.sqlite", b"SQLite"),
    ("runs.sqlite", b"\x0a\x00"),
    ("plot.png", b"IHDR"),
    ("plot.png", b"IDAT"),
    ("plot.png", b"IEND"),
    ("photo.jpg", b"\xff\xda"),
    ("photo.jpg", b"\xff\xd9"),
    ("photo.webp", b"WEBP"),
    ("moving.gif", b"GIF87a"),
    ("protocol4.pkl", b"\x8c\x05steps"),
    ("format1.tar", b"ustar"),
    ("format1.tar", b"a.txt"),
    ("run.txz", b"7zXZ"),
    ("log.jsonl.gz", b"\x1f\x8b"),
    ("log.json.bz2", b"BZh"),
    ("results.json", b"{"),
    ("log.jsonl", b'": 7'),
]


@pytest.mark.parametrize("sixteenth", CUTS)
@pytest.mark.parametrize("name", [name for name in GOOD if name not in ENDS_EARLY])
def test_a_truncated_file_is_broken(tmp_path: Path, name: str, sixteenth: int) -> None:
    content = GOOD[name]

    seen = verdict(tmp_path, name, content[: len(content) * sixteenth // 16])

    assert seen.outcome == "broken"
    assert seen.problem


@pytest.mark.parametrize("name", [name for name in GOOD if name not in ENDS_EARLY])
def test_a_file_without_its_last_byte_is_broken(tmp_path: Path, name: str) -> None:
    assert verdict(tmp_path, name, GOOD[name][:-1]).outcome == "broken"


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("log.jsonl", 100),
        ("table.csv", 40),
        ("table.tsv", 17),
        ("format1.tar", 1000),
        ("format2.tar", 2048),
        ("two_members.csv.gz", 40),
        ("model.gguf", 600),
    ],
)
def test_a_cut_inside_a_record_is_found(tmp_path: Path, name: str, kept: int) -> None:
    assert verdict(tmp_path, name, GOOD[name][:kept]).outcome == "broken"


@pytest.mark.parametrize(("name", "needle"), STRUCTURE)
def test_a_bit_flipped_in_the_structure_is_found(tmp_path: Path, name: str, needle: bytes) -> None:
    content = bytearray(GOOD[name])
    content[content.index(needle)] ^= 1

    assert verdict(tmp_path, name, bytes(content)).outcome == "broken"


@pytest.mark.parametrize("bit", range(8))
def test_any_bit_flipped_in_a_png_is_found(tmp_path: Path, bit: int) -> None:
    content = GOOD["plot.png"]

    for at in range(len(content)):
        flipped = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
        assert verdict(tmp_path, "plot.png", flipped).outcome == "broken", at


@pytest.mark.parametrize("name", ["state_dict.pt", "training.pt", "arrays.npz", "stored.zip"])
def test_any_bit_flipped_in_a_zip_member_is_found(tmp_path: Path, name: str) -> None:
    content = GOOD[name]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        ends = [(member.header_offset, member.compress_size) for member in archive.infolist()]
    starts = [at + 30 + sum(content[at + 26 : at + 30 : 2]) for at, _ in ends]

    for start, (_, size) in zip(starts, ends, strict=True):
        for at in range(start, start + size, max(1, size // 9)):
            flipped = content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
            assert verdict(tmp_path, name, flipped).outcome == "broken", at


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_file_is_broken_where_its_format_has_more_than_rows(
    tmp_path: Path, suffix: str
) -> None:
    seen = verdict(tmp_path, f"file{suffix}", b"")

    if seen.outcome == "opaque":
        rows = {".csv", ".tsv", ".jsonl", ".ndjson"}
        assert suffix in rows | {*(".txt", ".log", ".md", ".yaml", ".yml", ".toml", ".out", ".err")}
        assert seen.warnings == ("empty",)
    else:
        assert seen.problem == "the file is empty"


def test_an_empty_file_that_claims_nothing_is_opaque_and_said_to_be_empty(tmp_path: Path) -> None:
    seen = verdict(tmp_path, "done", b"")

    assert (seen.outcome, seen.warnings) == ("opaque", ("empty",))


@pytest.mark.parametrize("name", GOOD)
def test_appended_bytes_break_a_file_or_are_warned_of(tmp_path: Path, name: str) -> None:
    seen = verdict(tmp_path, name, GOOD[name] + b"\xd7 what was appended")

    if name in APPENDED_BREAKS:
        assert seen.outcome == "broken"
    else:
        assert seen.outcome == "loads"
        assert seen.warnings


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What each good file is by its own name."""
    directory = tmp_path_factory.mktemp("good")
    return {name: verdict(directory, name, content).format for name, content in GOOD.items()}


IMAGES = {"png", "jpeg", "gif", "webp"}
WITHOUT_FIRST_BYTES = {"json", "jsonl", "csv", "text", "onnx", "npz", "pickle", "unknown"}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_under_another_name_is_what_its_first_bytes_say(
    tmp_path: Path, suffix: str, formats: Mapping[str, str]
) -> None:
    claim = verdict(tmp_path, f"x{suffix}", b"\0").format

    for name, content in GOOD.items():
        format = formats[name]
        if (
            claim == format
            or format in WITHOUT_FIRST_BYTES
            or {claim, format} <= {"zip", "torch", "npz"}
        ):
            continue
        if suffix in {".tgz", ".tbz", ".tbz2", ".txz", ".tzst"} and "tar" not in name:
            continue  # the name says what is inside as well
        seen = verdict(tmp_path, f"renamed{suffix}", content)
        # An error page may be called a picture, and a picture weights: no name is so wrong by habit.
        wrong = claim != "text" and (claim in IMAGES) != (format in IMAGES)
        assert (seen.format, seen.outcome) == (format, "broken" if wrong else "loads"), name


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_without_first_bytes_of_its_own_is_judged_by_its_name(
    tmp_path: Path, suffix: str, formats: Mapping[str, str]
) -> None:
    claim = verdict(tmp_path, f"x{suffix}", b"\0").format
    if claim in {"csv", "text", "json", "jsonl", "pickle", "torch", "zip"}:
        return  # any text is a table of some shape, and one of these structures is the other's

    for name, content in GOOD.items():
        if formats[name] in {"json", "jsonl", "csv", "pickle"}:
            assert verdict(tmp_path, f"renamed{suffix}", content).outcome == "broken", name
