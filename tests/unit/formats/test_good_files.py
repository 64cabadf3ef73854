"""Good files load, whatever wrote them, and the verdict tells what that proves and what it does not."""

import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from unit.formats.samples import FIXTURES, GOOD, verdict

from gpu_tenant.artifacts.formats import FORMATS, inspect

WITHOUT_CHECKSUM = (
    "legacy.pt",
    "no_crc.pt",
    "state_dict.safetensors",
    "model.gguf",
    "model.onnx",
    "metrics.parquet",
    "data.h5",
    "runs.sqlite",
    "array.npy",
    "format1.tar",
    "photo.jpg",
    "photo.webp",
    "moving.gif",
)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_file_loads_without_a_warning(tmp_path: Path, name: str) -> None:
    seen = verdict(tmp_path, name, GOOD[name])

    assert (seen.outcome, seen.warnings, seen.problem) == ("loads", (), None)
    assert seen.format in FORMATS
    assert seen.proved


def test_every_format_but_zstd_has_a_sample_that_loads(tmp_path: Path) -> None:
    seen = {verdict(tmp_path, name, content).format for name, content in GOOD.items()}

    assert set(FORMATS) - seen == {"zstd"}


@pytest.mark.parametrize("name", WITHOUT_CHECKSUM)
def test_a_format_without_checksum_says_that_only_the_hash_covers_the_values(
    tmp_path: Path, name: str
) -> None:
    seen = verdict(tmp_path, name, GOOD[name])

    assert any("only the hash covers them" in reason for reason in seen.not_proved)


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("state_dict.pt", "torch"),
        ("legacy.pt", "torch"),
        ("state_dict.safetensors", "safetensors"),
        ("model.gguf", "gguf"),
        ("array.npy", "npy"),
        ("runs.sqlite", "sqlite"),
        ("data.h5", "hdf5"),
        ("metrics.parquet", "parquet"),
        ("stored.zip", "zip"),
        ("format1.tar", "tar"),
        ("log.jsonl.gz", "gzip"),
        ("log.json.bz2", "bzip2"),
        ("log.ndjson.xz", "xz"),
        ("plot.png", "png"),
        ("photo.jpg", "jpeg"),
        ("photo.webp", "webp"),
        ("moving.gif", "gif"),
    ],
)
@pytest.mark.parametrize("silent", ["weights.bin", "last.ckpt", "no_suffix"])
def test_where_the_suffix_is_silent_the_content_tells(
    tmp_path: Path, name: str, format: str, silent: str
) -> None:
    seen = verdict(tmp_path, silent, GOOD[name])

    assert (seen.format, seen.outcome) == (format, "loads")


@pytest.mark.parametrize("name", ["raw.bin", "model.ckpt", "a.joblib", "core.1234", "x.cu"])
def test_a_file_that_claims_nothing_is_opaque(tmp_path: Path, name: str) -> None:
    seen = verdict(tmp_path, name, bytes(range(256)) * 9)

    assert seen.outcome == "opaque"
    assert "only the hash covers it" in seen.not_proved[0]


@pytest.mark.parametrize(
    ("content", "note"), [("naïve\n".encode(), ()), (b"na\xefve\n", ("not UTF-8",))]
)
def test_text_is_opaque_with_a_note_on_its_encoding(
    tmp_path: Path, content: bytes, note: tuple[str, ...]
) -> None:
    seen = verdict(tmp_path, "train.log", content)

    assert (seen.format, seen.outcome, seen.warnings) == ("text", "opaque", note)


def test_zstd_without_its_library_is_opaque_and_with_it_loads(tmp_path: Path) -> None:
    seen = inspect(FIXTURES / "log.jsonl.zst", name="log.jsonl.zst")

    absent = "zstandard is not installed" in " ".join(seen.not_proved)
    assert seen.outcome == ("opaque" if absent else "loads")


def test_an_encrypted_zip_is_opaque_with_words(tmp_path: Path) -> None:
    content = bytearray(GOOD["stored.zip"])
    entry = content.index(b"PK\x01\x02")
    content[entry + 8] |= 1

    seen = verdict(tmp_path, "secret.zip", bytes(content))

    assert seen.outcome == "opaque"
    assert "'notes.txt' is encrypted" in seen.not_proved


def test_external_weights_are_named_because_they_must_be_kept_as_well(tmp_path: Path) -> None:
    seen = verdict(tmp_path, "external.onnx", GOOD["external.onnx"])

    assert any("external.weights" in reason for reason in seen.not_proved)


def test_a_wal_database_warns_of_the_file_beside_it(tmp_path: Path) -> None:
    content = bytearray(GOOD["runs.sqlite"])
    content[18:20] = b"\x02\x02"

    seen = verdict(tmp_path, "runs.sqlite", bytes(content))

    assert seen.outcome == "loads"
    assert "-wal file" in seen.warnings[0]


def test_a_missing_file_is_an_error_of_the_disk_and_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        inspect(tmp_path / "absent", name="model.safetensors")


def test_a_zip_with_members_out_of_order_loads(tmp_path: Path) -> None:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("first", "1")
        archive.writestr("second", "2")
        archive.filelist.reverse()

    assert verdict(tmp_path, "odd.zip", file.getvalue()).outcome == "loads"
