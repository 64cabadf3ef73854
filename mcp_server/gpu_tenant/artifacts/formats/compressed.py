"""Compressed streams: unpacks them to the end, compares their own checksums, and checks the file inside.

Source: RFC 1952 (gzip), the documents on the bzip2 and .xz file formats, RFC 8878 (zstd). Several streams may
follow one another, with zero bytes between them.
"""

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import PurePath
from typing import Protocol

from gpu_tenant.artifacts.formats import csv_text, json_text, jsonl, tar
from gpu_tenant.artifacts.formats.bounded_file import Broken, Findings, Source, Unread
from gpu_tenant.artifacts.formats.inflate import Inflater, Measure, Zlib, inflate
from gpu_tenant.artifacts.formats.subprocesses import present

GZIP = re.compile(rb"\x1f\x8b\x08")
ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
XZ = re.compile(rb"\xfd7zXZ\0|\x5d\0\0")
ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
_MAGIC_BYTES = 10
_XZ_MEMORY_BYTES = 128 << 20
_ZSTD_WINDOW_BYTES = 128 << 20
_ZSTD_FEED_BYTES = 2048
"""zstd gets this many bytes of input at a time. Four bytes may expand to 128 KiB, and its interface has no limit."""

_INSIDE: dict[str, Callable[[Iterable[bytes], Findings], None]] = {
    ".tar": tar.check_chunks,
    ".json": json_text.check_chunks,
    ".jsonl": jsonl.check_chunks,
    ".ndjson": jsonl.check_chunks,
    ".csv": partial(csv_text.check_chunks, delimiter=","),
    ".tsv": partial(csv_text.check_chunks, delimiter="\t"),
}
_TARBALLS = (".tgz", ".tbz", ".tbz2", ".txz", ".tzst")


def gzip(source: Source, findings: Findings) -> None:
    """Check every gzip member against its CRC-32 and length, and check the file inside."""
    start = partial(Zlib, 16 + zlib.MAX_WBITS)
    _check(source, _streams(source.chunks(), start, GZIP), findings)
    findings.proved.append("the gzip stream is whole, by its CRC-32")


def zlib_stream(source: Source, findings: Findings) -> None:
    """Check the zlib stream against its Adler-32."""
    _check(source, _streams(source.chunks(), partial(Zlib, zlib.MAX_WBITS), ZLIB), findings)
    findings.proved.append("the zlib stream is whole, by its Adler-32")


def bzip2(source: Source, findings: Findings) -> None:
    """Check every bzip2 stream against its CRC-32, and check the file inside."""
    _check(source, _streams(source.chunks(), bz2.BZ2Decompressor, BZIP2), findings)
    findings.proved.append("the bzip2 stream is whole, by its CRC-32")


def xz(source: Source, findings: Findings) -> None:
    """Check every xz stream against its own check value, and check the file inside.

    Raises:
        Unread: unpacking needs more memory than is allowed here.
    """

    def start() -> Inflater:
        return lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)

    try:
        _check(source, _streams(source.chunks(), start, XZ), findings)
    except lzma.LZMAError as error:
        if "emory" in str(error):
            raise Unread("inflating it needs more memory than is allowed here") from error
        raise
    findings.proved.append("the xz stream is whole, by its own check")


def zstd(source: Source, findings: Findings) -> None:
    """Check that every zstd frame is whole, and check the file inside.

    Raises:
        Broken: a frame is not whole.
        Unread: `zstandard` is not installed.
    """
    if not ZSTD.match(source.upto(0, 4)):
        raise Broken("it does not begin as a zstd frame does")
    if not present("zstandard"):
        raise Unread("begins as a zstd frame; not inflated, as zstandard is not installed")
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    feed = (
        chunk[at : at + _ZSTD_FEED_BYTES]
        for chunk in source.chunks()
        for at in range(0, len(chunk), _ZSTD_FEED_BYTES)
    )
    start = partial(_Zstd, decompressor.decompressobj)
    _check(source, _streams(feed, start, ZSTD), findings)
    findings.proved.append("the zstd stream is whole")
    findings.not_proved.append(
        "values: a zstd frame may carry no checksum, only the hash covers them"
    )


class _Stream(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, packed: bytes, /) -> bytes: ...


class _Zstd:
    """`zstandard` with the interface of `Inflater`."""

    needs_input = True

    def __init__(self, start: Callable[[], _Stream]) -> None:
        self._stream = start()

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, packed: bytes, _limit: int, /) -> bytes:
        return self._stream.decompress(packed)


def _check(source: Source, stream: Iterator[bytes], findings: Findings) -> None:
    """Check that the stream is whole, and that its content fits the inner suffix, such as `.json` in `x.json.gz`."""
    source.alone()
    name = PurePath(source.name.lower())
    inner = ".tar" if name.suffix in _TARBALLS else PurePath(name.stem).suffix
    unread: Unread | None = None
    if inner in _INSIDE:
        try:
            _INSIDE[inner](stream, findings)
        except Unread as reason:
            unread = reason
    for _ in stream:
        pass
    if unread:
        raise unread


def _streams(
    packed: Iterator[bytes], start: Callable[[], Inflater], magic: re.Pattern[bytes]
) -> Iterator[bytes]:
    """Yield the content of one stream after another, to the end of the file."""
    measure = Measure()
    packed = measure.taking(packed)
    head = _padded_head(b"", packed)
    read = False
    while head or not read:
        if not magic.match(head):
            # These bytes are not skipped. They may be another stream that is damaged, and its
            # content would be missed.
            raise Broken(
                "bytes follow its last stream" if read else "it does not begin as its format does"
            )
        rest = yield from inflate(chain([head], packed), start(), measure)
        head = _padded_head(rest, packed)
        read = True


def _padded_head(rest: bytes, packed: Iterator[bytes]) -> bytes:
    """Return enough bytes of the next stream to recognize it. Zero bytes before it are dropped. Empty at the end."""
    head = rest.lstrip(b"\0")
    while len(head) < _MAGIC_BYTES and (chunk := next(packed, b"")):
        head = (head + chunk).lstrip(b"\0")
    return head
