"""Zip archives: unpacks every member to its declared size, and compares its CRC. The content is not stored.

Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3 (headers) and 4.5.3 (zip64).
"""

import bz2
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenant.artifacts.formats.bounded_file import (
    Broken,
    Cursor,
    Findings,
    Source,
    Unread,
    count_of,
)
from gpu_tenant.artifacts.formats.inflate import Measure, Zlib, check_measure, inflate
from gpu_tenant.domain.wording import some

_LOCATOR = b"PK\x06\x07"
_ONE_DISK = (bytes(8), bytes(4) + b"\1\0\0\0")
_END, _END_BYTES = b"PK\x05\x06", 22
_LONGEST_COMMENT_BYTES = 0xFFFF
_ENTRY = struct.Struct("<4s6H3I5H2I")
_ENCRYPTED = 1 | 1 << 6 | 1 << 13
"""The flags for encrypted, for strongly encrypted, and for an encrypted directory."""
_UNSAID = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of the central directory, and where its content is in the file."""

    name: str
    method: int
    encrypted: bool
    crc: int | None
    packed_bytes: int
    size_bytes: int
    header_at: int
    content_at: int

    @property
    def stored(self) -> bool:
        """Whether the member's bytes are in the file uncompressed."""
        return self.method == 0 and not self.encrypted


def check(source: Source, findings: Findings) -> None:
    """Check that every member of the archive is whole.

    Raises:
        Broken: a member is not whole, or the directory is damaged.
        Unread: a member is encrypted, or compressed in a way that is not supported here.
    """
    count = 0
    unread: dict[str, str] = {}
    for member in members(source, findings):
        count += 1
        try:
            for _ in content(source, member):
                pass
        except Unread as reason:
            unread.setdefault(str(reason), member.name)
    if unread:
        raise Unread("; ".join(f"{name!r:.80} {reason}" for reason, name in unread.items()))
    findings.proved.append(f"{count_of(count, 'member')} whole, by CRC-32")


def members(source: Source, findings: Findings) -> Iterator[Member]:
    """Yield the archive's members in the order of its directory. Members that overlap are refused.

    Raises:
        Broken: the directory is missing or damaged, points outside the file, or has members that overlap.
    """
    start, cursor, count = _directory(source, findings)
    directory_at = cursor.at
    spans = inflated_bytes = 0
    for _ in range(count):
        member = _member(source, cursor, start)
        if member.content_at + member.packed_bytes > directory_at:
            raise Broken(f"{member.name!r:.80} reaches into the directory")
        spans += member.content_at - member.header_at + member.packed_bytes
        if spans > directory_at:
            raise Broken("members overlap: they claim more bytes than the archive has")
        inflated_bytes += member.size_bytes
        check_measure(inflated_bytes, spans)
        yield member
    if cursor.left:
        raise Broken(
            f"the directory has {some(cursor.left, 'byte')} more than its {count:,} entries"
        )


def content(source: Source, member: Member) -> Iterator[bytes | memoryview]:
    """Yield the member's bytes in pieces of bounded size. At the end, compare their length and CRC-32 with the header.

    A piece is valid only until the next one is requested.

    Raises:
        Broken: the length or the CRC-32 differs.
        Unread: the member is encrypted, or compressed in a way that is not supported here.
    """
    if member.encrypted:
        raise Unread("is encrypted")
    end = member.content_at + member.packed_bytes
    packed, measure = source.chunks(member.content_at, end), Measure()
    match member.method:
        case 0:
            pieces: Iterator[bytes | memoryview] = source.pieces(member.content_at, end)
        case 8:
            pieces = inflate(measure.taking(packed), Zlib(-zlib.MAX_WBITS), measure)
        case 12:
            pieces = inflate(measure.taking(packed), bz2.BZ2Decompressor(), measure)
        case other:
            raise Unread(f"is packed by method {other}, which is not read here")
    crc = seen = 0
    for piece in pieces:
        seen += len(piece)
        if seen > member.size_bytes:
            raise Broken(
                f"{member.name!r:.80} is longer than the {some(member.size_bytes, 'byte')} declared"
            )
        crc = zlib.crc32(piece, crc)
        yield piece
    if seen != member.size_bytes:
        raise Broken(f"{member.name!r:.80} has {some(seen, 'byte')} of {member.size_bytes:,}")
    if member.crc is not None and crc != member.crc:
        raise Broken(f"{member.name!r:.80} fails its CRC-32")


def _directory(source: Source, findings: Findings) -> tuple[int, Cursor, int]:
    """Return where the archive begins, a cursor on its central directory, and the number of entries in it."""
    tail_at = max(0, source.size_bytes - _END_BYTES - _LONGEST_COMMENT_BYTES)
    tail = source.read(tail_at, source.size_bytes - tail_at)
    found = tail.rfind(_END, 0, len(tail) - _END_BYTES + len(_END))
    if found < 0:
        raise Broken("no end-of-directory record: the archive is cut off, or is no zip")
    end_at = tail_at + found
    disk, _, _, count, size, offset, comment = struct.unpack_from("<4H2IH", tail, found + 4)
    trailing = source.size_bytes - end_at - _END_BYTES - comment
    if trailing > 0:
        findings.warn(f"{some(trailing, 'byte')} after the archive")
    elif trailing < 0:
        raise Broken("the archive is cut off inside its comment")
    locator = source.upto(end_at - 20, 20) if end_at >= 20 else b""
    spans_disks = locator.startswith(_LOCATOR) and locator[4:8] + locator[16:20] not in _ONE_DISK
    if disk or spans_disks:
        raise Unread("one part of an archive that spans several files")
    last = end_at
    if locator.startswith(_LOCATOR):
        last = int.from_bytes(locator[8:16], "little")
        record = source.read(last, 56)
        if not record.startswith(b"PK\x06\x06"):
            raise Broken("the zip64 end record is not where its locator says")
        count, size, offset = struct.unpack_from("<3Q", record, 32)
    start = last - size - offset
    if start < 0:
        raise Broken("the directory is larger than the archive")
    if start:
        findings.warn(f"{some(start, 'byte')} before the archive")
    if count * _ENTRY.size > size:
        raise Broken(f"{count:,} members do not fit in a directory of {some(size, 'byte')}")
    return start, Cursor(source, start + offset, last), count


def _member(source: Source, cursor: Cursor, start: int) -> Member:
    """Read the next entry of the directory, and compare it with the header in front of the member's content."""
    fields = _ENTRY.unpack(cursor.take(_ENTRY.size))
    signature, _, _, flags, method, _, _, crc, packed, size, named, extra, comment, *_, offset = (
        fields
    )
    if signature != b"PK\x01\x02":
        raise Broken(f"no directory entry at byte {cursor.at - _ENTRY.size:,}")
    raw_name = cursor.take(named)
    name = raw_name.decode("utf-8" if flags & 0x800 else "cp437", "replace")
    size, packed, offset = _widen(cursor.take(extra), size, packed, offset)
    cursor.skip(comment)
    header_at = start + offset
    header = source.read(header_at, 30)
    local_named, local_extra = struct.unpack_from("<2H", header, 26)
    if not header.startswith(b"PK\x03\x04") or source.read(header_at + 30, local_named) != raw_name:
        raise Broken(f"{name!r:.80} is not where the directory says, at byte {header_at:,}")
    content_at = header_at + 30 + local_named + local_extra
    return Member(name, method, bool(flags & _ENCRYPTED), crc, packed, size, header_at, content_at)


def _widen(extra: bytes, *fields: int) -> list[int]:
    """Return the fields. A field that was too large for its place is read from the zip64 extra field."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            wide = iter(
                struct.unpack_from(f"<{min(size, len(extra) - at - 4) // 8}Q", extra, at + 4)
            )
            return [next(wide, field) if field == _UNSAID else field for field in fields]
        at += 4 + size
    return list(fields)
