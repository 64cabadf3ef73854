"""The formats that can be read: by which names and first bytes a file claims each, and which check judges it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from gpu_tenant.artifacts.formats import (
    compressed,
    csv_text,
    gguf,
    gif,
    hdf5,
    jpeg,
    json_text,
    jsonl,
    npy,
    npz,
    onnx,
    parquet,
    pickle_file,
    png,
    safetensors,
    sqlite,
    tar,
    text,
    torch_legacy,
    torch_zip,
    webp,
    zip_file,
)
from gpu_tenant.artifacts.formats.bounded_file import Broken, Findings, Source

Check = Callable[[Source, Findings], None]
_HEAD_BYTES = 512


@dataclass(frozen=True, slots=True)
class Format:
    """A format: the file name suffixes that claim it, the first bytes of its files, and its check."""

    name: str
    check: Check
    suffixes: tuple[str, ...] = ()
    magic: re.Pattern[bytes] | None = None
    read_again: bool = False
    """Whether another program reads the file after us, and should find it in the page cache."""


def _begins(magic: bytes) -> re.Pattern[bytes]:
    return re.compile(re.escape(magic))


def _torch(source: Source, findings: Findings) -> None:
    """Check that a torch checkpoint is whole, in the new or in the old layout.

    Raises:
        Broken: it is not whole, or is no torch checkpoint.
        Unread: it cannot be judged here.
    """
    head = source.upto(0, len(torch_legacy.MAGIC))
    if head.startswith(b"PK\x03\x04"):
        torch_zip.check(source, findings)
    elif head == torch_legacy.MAGIC:
        torch_legacy.check(source, findings)
    elif head[:1] == b"\x80":
        pickle_file.check(source, findings)
    else:
        raise Broken("it begins neither like a zip nor like a pickle")


_REGISTRY = (
    Format("safetensors", safetensors.check, (".safetensors",), re.compile(rb'.{4}\0{4}\{"', re.S)),
    Format("torch", _torch, (".pt", ".pth"), _begins(torch_legacy.MAGIC)),
    Format("npy", npy.check, (".npy",), _begins(npy.MAGIC)),
    Format("npz", npz.check, (".npz",)),
    Format("pickle", pickle_file.check, (".pkl", ".pickle")),
    Format("gguf", gguf.check, (".gguf",), _begins(gguf.MAGIC)),
    Format("onnx", onnx.check, (".onnx",)),
    Format("parquet", parquet.check, (".parquet",), _begins(parquet.MAGIC), True),
    Format("hdf5", hdf5.check, (".h5", ".hdf5"), _begins(hdf5.MAGIC), True),
    Format("sqlite", sqlite.check, (".sqlite", ".sqlite3", ".db3"), _begins(sqlite.MAGIC), True),
    Format("json", json_text.check, (".json", ".ipynb", ".geojson")),
    Format("jsonl", jsonl.check, (".jsonl", ".ndjson")),
    Format("csv", csv_text.check, (".csv", ".tsv")),
    Format(
        "zip", zip_file.check, (".zip", ".whl", ".keras", ".pt2", ".mar"), _begins(b"PK\x03\x04")
    ),
    Format("tar", tar.check, (".tar",), re.compile(rb".{257}ustar", re.S)),
    Format("gzip", compressed.gzip, (".gz", ".tgz"), compressed.GZIP),
    Format("bzip2", compressed.bzip2, (".bz2", ".tbz", ".tbz2"), compressed.BZIP2),
    Format("xz", compressed.xz, (".xz", ".txz", ".lzma"), _begins(b"\xfd7zXZ\0")),
    Format("zstd", compressed.zstd, (".zst", ".zstd", ".tzst"), _begins(b"\x28\xb5\x2f\xfd")),
    Format("png", png.check, (".png",), _begins(png.MAGIC)),
    Format("jpeg", jpeg.check, (".jpg", ".jpeg"), re.compile(rb"\xff\xd8\xff[\xdb\xe0-\xef]")),
    Format("gif", gif.check, (".gif",), re.compile(rb"GIF8[79]a")),
    Format("webp", webp.check, (".webp",), re.compile(rb"RIFF.{4}WEBP", re.S)),
)
TEXT = Format("text", text.check, (".txt", ".log", ".md", ".yaml", ".yml", ".toml", ".out", ".err"))
_BY_SUFFIX = {suffix: format for format in (*_REGISTRY, TEXT) for suffix in format.suffixes}
_SILENT = ("", ".bin", ".ckpt", ".db", ".model", ".dat", ".part", ".pdparams")
"""Suffixes with so many uses that only the content can tell the format."""

FORMATS: tuple[str, ...] = tuple(format.name for format in _REGISTRY)
SUFFIXES: tuple[str, ...] = tuple(_BY_SUFFIX)


def claimed_format(source: Source) -> Format | None:
    """Find the format that a file claims: by its suffix, or by its first bytes if the suffix does not tell."""
    suffix = PurePath(source.name).suffix.lower()
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    if suffix not in _SILENT:
        return None
    head = source.upto(0, _HEAD_BYTES)
    for format in _REGISTRY:
        if format.magic and format.magic.match(head):
            if format.name == "zip" and torch_zip.holds_pickle(source):
                return _BY_SUFFIX[".pt"]
            return format
    return None
