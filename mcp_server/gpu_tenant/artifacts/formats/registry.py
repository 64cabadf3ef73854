"""The formats that can be read: by which first bytes and names a file claims each, and which check judges it.

The first bytes decide what a file is, and its name only where they do not: checkpoints are called .pth.tar, and tables
that were compressed on the way are still called .csv.
"""

import codecs
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

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
    family: Literal["data", "image", "text"] = "data"
    """A file of data under a name of text is whole. Otherwise a name of another family is wrong."""
    may_be_empty: bool = False


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


def _pickle(source: Source, findings: Findings) -> None:
    """Check a pickle. joblib compresses its pickles with zlib, under the same name."""
    if compressed.ZLIB.match(source.upto(0, 2)):
        compressed.zlib_stream(source, findings)
    else:
        pickle_file.check(source, findings)


def _json(source: Source, findings: Findings) -> None:
    _one_of((json_text.check, jsonl.check, json_text.check_leniently), source, findings)


def _jsonl(source: Source, findings: Findings) -> None:
    _one_of((jsonl.check, json_text.check), source, findings)


def _one_of(checks: Sequence[Check], source: Source, findings: Findings) -> None:
    """Check that a JSON file is one value, or one value a line: either is written under the name of the other.

    Raises:
        Broken: it is neither. The reason is that of the check for its name.
    """
    first: Broken | None = None
    for check in checks:
        tried = Findings()
        try:
            check(source, tried)
        except Broken as fault:
            first = first or fault
        else:
            findings.add(tried)
            return
    assert first is not None
    raise first


_REGISTRY = (
    Format("safetensors", safetensors.check, (".safetensors",), re.compile(rb'.{4}\0{4}\{"', re.S)),
    Format("torch", _torch, (".pt", ".pth"), _begins(torch_legacy.MAGIC)),
    Format("npy", npy.check, (".npy",), _begins(npy.MAGIC)),
    Format("npz", npz.check, (".npz",)),
    Format("pickle", _pickle, (".pkl", ".pickle")),
    Format("gguf", gguf.check, (".gguf",), _begins(gguf.MAGIC)),
    Format("onnx", onnx.check, (".onnx",)),
    Format("parquet", parquet.check, (".parquet",), _begins(parquet.MAGIC), True),
    Format("hdf5", hdf5.check, (".h5", ".hdf5"), _begins(hdf5.MAGIC), True),
    Format("sqlite", sqlite.check, (".sqlite", ".sqlite3", ".db3"), _begins(sqlite.MAGIC), True),
    Format("json", _json, (".json", ".ipynb", ".geojson"), family="text"),
    Format("jsonl", _jsonl, (".jsonl", ".ndjson"), family="text", may_be_empty=True),
    Format("csv", csv_text.check, (".csv", ".tsv"), family="text", may_be_empty=True),
    Format(
        "zip", zip_file.check, (".zip", ".whl", ".keras", ".pt2", ".mar"), _begins(b"PK\x03\x04")
    ),
    Format("tar", tar.check, (".tar",), re.compile(rb".{257}ustar", re.S)),
    Format("gzip", compressed.gzip, (".gz", ".tgz"), compressed.GZIP),
    Format("bzip2", compressed.bzip2, (".bz2", ".tbz", ".tbz2"), compressed.BZIP2),
    Format("xz", compressed.xz, (".xz", ".txz", ".lzma"), _begins(b"\xfd7zXZ\0")),
    Format("zstd", compressed.zstd, (".zst", ".zstd", ".tzst"), _begins(b"\x28\xb5\x2f\xfd")),
    Format("png", png.check, (".png",), _begins(png.MAGIC), family="image"),
    Format(
        "jpeg",
        jpeg.check,
        (".jpg", ".jpeg"),
        re.compile(rb"\xff\xd8\xff[\xdb\xe0-\xef]"),
        family="image",
    ),
    Format("gif", gif.check, (".gif",), re.compile(rb"GIF8[79]a"), family="image"),
    Format("webp", webp.check, (".webp",), re.compile(rb"RIFF.{4}WEBP", re.S), family="image"),
)
TEXT = Format(
    "text",
    text.check,
    (".txt", ".log", ".md", ".yaml", ".yml", ".toml", ".out", ".err"),
    family="text",
    may_be_empty=True,
)
_BY_SUFFIX = {suffix: format for format in (*_REGISTRY, TEXT) for suffix in format.suffixes}
_SILENT = ("", ".bin", ".ckpt", ".db", ".model", ".dat", ".part", ".pdparams", ".th")
"""Suffixes with so many uses that only the content can tell the format."""
_WEIGHT_SUFFIXES = (".bin", ".ckpt", ".pdparams", ".th")
_ALL_READ_BYTES = 16 << 20
_PLACES = 64

FORMATS: tuple[str, ...] = tuple(format.name for format in _REGISTRY)
SUFFIXES: tuple[str, ...] = tuple(_BY_SUFFIX)


_ZIPPED = ("npz", "torch", "zip")
_POINTER = b"version https://git-lfs.github.com/spec/"
_PAGE = re.compile(
    rb"\s*(?:<!DOCTYPE html|<html|<\?xml[^>]*>\s*(?:<!DOCTYPE html|<html|<Error\b))", re.I
)
_WEIGHTS = re.compile(r"model|weight|adapter|checkpoint|ckpt|state|params|optimizer", re.I)
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


_PICKLE = re.compile(rb"\x80[\x02-\x05]")
"""How a pickle of protocol 2 or later begins."""


def claimed_format(source: Source) -> Format | None:
    """Find the format of a file: by its first bytes, or by its suffix if they do not tell."""
    suffix = PurePath(source.name).suffix.lower()
    named = _BY_SUFFIX.get(suffix)
    seen = _by_first_bytes(source)
    if seen is None and source.name.lower().endswith(".pth.tar"):
        # Training scripts write what torch.save makes, or a plain pickle, under this name.
        is_pickle = _PICKLE.match(source.upto(0, 2)) is not None
        return _BY_SUFFIX[".pth"] if is_pickle else named
    if seen is None or named is None:
        return seen or named
    if seen.name == "zip" and named.name in _ZIPPED:
        return named
    if {seen.name, named.name} == {"torch", "zip"}:
        return named  # a TorchScript or exported program, which is a zip as well
    return seen


def _by_first_bytes(source: Source) -> Format | None:
    head = source.upto(0, _HEAD_BYTES)
    for format in _REGISTRY:
        if format.magic and format.magic.match(head):
            if format.name == "zip" and torch_zip.holds_pickle(source):
                return _BY_SUFFIX[".pt"]
            return format
    return None


def not_as_named(source: Source, claim: Format | None) -> str | None:
    """Say why the file cannot be what its name says, whatever its structure. None if it can be.

    What a failed download leaves is an error page, or a pointer, under the name of the file.
    """
    suffix = PurePath(source.name).suffix.lower()
    named = _BY_SUFFIX.get(suffix)
    if suffix not in _SILENT and named in (None, TEXT):
        return None
    head = source.upto(0, _HEAD_BYTES)
    if head.startswith(_POINTER):
        return "it is a git LFS pointer, and not the file that it stands for"
    if _PAGE.match(head):
        return "it is a web page or an error in XML, as a failed download leaves it"
    if named is not None and claim is not None and claim.family != named.family:
        wrong = claim.family == "image" or named.family == "image"
        return f"its name says {named.name}, and it is {claim.name}" if wrong else None
    is_weights = suffix in _WEIGHT_SUFFIXES and _WEIGHTS.search(PurePath(source.name).name)
    if claim is None and is_weights and not head:
        return "the file is empty"
    if claim is None and is_weights and not any(head) and _is_all_zeros(source):
        return "it is nothing but zeros, as a full disk or a crash leaves it"
    if claim is None and is_weights and head and not _NO_TEXT.search(head) and _is_utf8(head):
        return "it is text, where weights are due"
    return None


def _is_all_zeros(source: Source) -> bool:
    """Whether every byte is zero. Of a large file, only some places are looked at."""
    if source.size_bytes <= _ALL_READ_BYTES:
        return not any(any(source.upto(at, 1 << 20)) for at in range(0, source.size_bytes, 1 << 20))
    step = source.size_bytes // _PLACES
    return not any(any(source.upto(at, 4096)) for at in range(0, source.size_bytes, step))


def _is_utf8(head: bytes) -> bool:
    """Whether the bytes are UTF-8, except for a last character that may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
