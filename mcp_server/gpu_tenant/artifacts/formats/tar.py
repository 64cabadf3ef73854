"""Tar archives: checks the checksum of every header, the length of every member, and the end marker.

Source: POSIX.1-2017 `pax`, "ustar Interchange Format", and the GNU tar manual, "Basic Tar Format".
Headers carry a checksum, contents do not.
"""

import re
from collections.abc import Iterable, Iterator

from gpu_tenant.artifacts.formats.bounded_file import Broken, Findings, Source, count_of
from gpu_tenant.domain.wording import some

_BLOCK = 512
_PAX, _GNU_SPARSE = b"x", b"S"
_NAMES_ONLY = (b"g", b"L", b"K")
_NO_CONTENT = (b"1", b"2", b"3", b"4", b"5", b"6")
_LONGEST_PAX_BYTES = 1 << 20
_PAX_SIZE = re.compile(rb"(?:^|\n)\d+ size=(\d{1,19})\n")


def check(source: Source, findings: Findings) -> None:
    """Check that every member is there, and that the archive has its end marker.

    Raises:
        Broken: a member or the end marker is missing.
    """
    check_chunks(source.chunks(), findings)


def check_chunks(chunks: Iterable[bytes], findings: Findings) -> None:
    """Check that every member of the archive in `chunks` is there, up to the end marker.

    Raises:
        Broken: a member or the end marker is missing.
    """
    blocks = _Blocks(chunks)
    members = 0
    pax_size: int | None = None
    while True:
        header = blocks.take()
        if not header:
            raise Broken(f"no end marker after {members:,} members: the archive was not finished")
        if not header.strip(b"\0"):
            break
        kind = header[156:157]
        size = _header_size(header, blocks.at - _BLOCK)
        if kind == _PAX:
            pax_size = _pax_size(blocks, size)
            continue
        if kind == _GNU_SPARSE:
            _skip_sparse_map(header, blocks)
        size = size if pax_size is None else pax_size
        pax_size = None
        members += kind not in _NAMES_ONLY
        if kind not in _NO_CONTENT:
            blocks.skip(size)
    second = blocks.take()
    if second.strip(b"\0"):
        raise Broken(f"no header at byte {blocks.at - _BLOCK:,}, after a lone empty block")
    if len(second) < _BLOCK:
        findings.warn("the end marker is one empty block, where two are due")
    if trailing := blocks.trailing():
        findings.warn(f"{some(trailing, 'byte')} after the end marker, which is not padding")
    findings.proved.append(f"{count_of(members, 'member')}, up to the end marker")
    findings.not_proved.append(
        "contents: tar keeps no checksum of contents, only the hash covers them"
    )


class _Blocks:
    """Splits the chunks into tar blocks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks: Iterator[bytes] = iter(chunks)
        self._rest = b""
        self._used = 0
        self.at = 0

    def take(self, size: int = _BLOCK) -> bytes:
        """Return the next block. Empty at the end.

        Raises:
            Broken: only part of a block is left.
        """
        pieces = bytearray()
        while len(pieces) < size and self._fill():
            piece = self._rest[self._used : self._used + size - len(pieces)]
            self._used += len(piece)
            pieces += piece
        self.at += len(pieces)
        if 0 < len(pieces) < size:
            raise Broken(f"cut off at byte {self.at:,}")
        return bytes(pieces)

    def skip(self, size: int) -> None:
        """Skip the content of a member, which is padded to whole blocks.

        Raises:
            Broken: the archive is too short.
        """
        size += -size % _BLOCK
        while size:
            if not self._fill():
                raise Broken(
                    f"cut off at byte {self.at:,}, {some(size, 'byte')} before a member's end"
                )
            step = min(size, len(self._rest) - self._used)
            self._used += step
            self.at += step
            size -= step

    def trailing(self) -> int:
        """Read the rest, and return how many bytes in it are not zero."""
        count = 0
        while self._fill():
            rest = self._rest[self._used :]
            count += len(rest) - rest.count(0)
            self._used = len(self._rest)
        return count

    def _fill(self) -> bool:
        while self._used == len(self._rest):
            self._used, self._rest = 0, next(self._chunks, b"")
            if not self._rest:
                return False
        return True


def _header_size(header: bytes, at: int) -> int:
    """Check the header's checksum. Returns the size of the member's content in bytes."""
    try:
        claimed = int(header[148:156].strip(b"\0 ") or b"0", 8)
    except ValueError as error:
        raise Broken(f"no tar header at byte {at:,}") from error
    blank = header[:148] + b" " * 8 + header[156:]
    signed = sum(blank) - 256 * sum(byte > 127 for byte in blank)
    if claimed not in (sum(blank), signed):
        raise Broken(f"the header at byte {at:,} fails its checksum")
    field = header[124:136]
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.strip(b"\0 ") or b"0", 8)
    except ValueError as error:
        raise Broken(f"the header at byte {at:,} has no size") from error


def _pax_size(blocks: _Blocks, size: int) -> int | None:
    """Read the size that an extended header gives for the member after it. None if it gives none."""
    if size > _LONGEST_PAX_BYTES:
        blocks.skip(size)
        return None
    content = blocks.take(size + -size % _BLOCK)
    if len(content) < size:
        raise Broken(f"cut off inside the extended header at byte {blocks.at:,}")
    found = _PAX_SIZE.search(content[:size])
    return int(found[1]) if found else None


def _skip_sparse_map(header: bytes, blocks: _Blocks) -> None:
    more = header[482]
    while more:
        block = blocks.take()
        if not block:
            raise Broken("cut off inside a sparse map")
        more = block[504]
