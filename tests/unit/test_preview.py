"""What a kept file begins with: text, a picture, tensors; and what is shown of nothing else."""

import json
import struct
import zlib
from pathlib import Path
from typing import Literal

import pytest

from gpu_tenant.artifacts.preview import preview_of
from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.domain.seal import SealedFile


def entry(name: str, kind: Literal["file", "link"] = "file") -> SealedFile:
    return SealedFile(
        name=name, at=name, kind=kind, role="artifact", size_bytes=0, sha256=None, mtime_ns=0
    )


def kept(directory: Path, name: str, content: bytes) -> SealedFile:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return entry(name)


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    data = zlib.compress(b"\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def safetensors(described: dict[str, object], values: int) -> bytes:
    header = json.dumps(described).encode()
    return struct.pack("<Q", len(header)) + header + bytes(values)


def test_text_is_shown_plain_and_says_where_it_was_cut(tmp_path: Path) -> None:
    short = kept(tmp_path, "work/log.txt", b"a\x1b[31mred\nb\n")
    long = kept(tmp_path, "work/long.csv", "ü,1\n".encode() * 40_000)

    told = preview_of(tmp_path, short, "local-abcd")
    cut = preview_of(tmp_path, long, "local-abcd")

    assert (told.kind, told.whole) == ("text", True)
    assert "\x1b" not in told.text
    assert told.text.endswith("b\n")
    assert (cut.kind, cut.whole, cut.size_bytes) == ("text", False, 200_000)
    assert "\ufffd" not in cut.text


def test_a_picture_is_shown_where_it_is_one(tmp_path: Path) -> None:
    told = preview_of(tmp_path, kept(tmp_path, "work/loss.png", png()), "local-abcd")
    false = preview_of(tmp_path, kept(tmp_path, "work/false.png", png()[:-20]), "local-abcd")

    assert told.kind == "image"
    assert (told.image or "").startswith("data:image/png;base64,")
    assert (false.kind, false.image) == ("none", None)


def test_the_tensors_of_a_checkpoint_are_listed(tmp_path: Path) -> None:
    described = {
        "__metadata__": {"format": "pt"},
        "w\x1b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]},
    }
    told = preview_of(
        tmp_path, kept(tmp_path, "work/m.safetensors", safetensors(described, 26)), "local-abcd"
    )
    broken = preview_of(tmp_path, kept(tmp_path, "work/x.safetensors", b"\xff" * 20), "local-abcd")

    assert told.kind == "tensors"
    assert [(t.dtype, t.shape) for t in told.tensors] == [("F32", (2, 3)), ("BF16", ())]
    assert all("\x1b" not in t.name for t in told.tensors)
    assert broken.kind == "none"


def test_other_bytes_are_not_shown(tmp_path: Path) -> None:
    told = preview_of(tmp_path, kept(tmp_path, "work/a.bin", b"\0\1\2" * 99), "local-abcd")

    assert (told.kind, told.text, told.size_bytes) == ("none", "", 297)


def test_no_link_leads_out_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    here = tmp_path / "kept"
    (here / "work").mkdir(parents=True)
    (here / "work" / "a").symlink_to(tmp_path / "secret")
    (here / "work" / "up").symlink_to(tmp_path)

    for name in ("work/a", "work/up/secret", "work/not-here"):
        with pytest.raises(LocalTrouble, match="is not in"):
            preview_of(here, entry(name), "local-abcd")
    with pytest.raises(LocalTrouble):
        preview_of(here, entry("work/a", "link"), "local-abcd")
