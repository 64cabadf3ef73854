"""PNG images: checks the CRC of every chunk, from IHDR to IEND.

Source: W3C Portable Network Graphics, third edition, sections 5.2 to 5.6.
"""

import zlib

from gpu_tenant.artifacts.formats.bounded_file import Broken, Cursor, Findings, Source
from gpu_tenant.domain.wording import some

MAGIC = b"\x89PNG\r\n\x1a\n"


def check(source: Source, findings: Findings) -> None:
    """Check that every chunk is whole, up to IEND.

    Raises:
        Broken: a chunk is damaged, or the image ends early.
    """
    if source.upto(0, 8) != MAGIC:
        raise Broken("it does not begin as a PNG image does")
    cursor = Cursor(source, 8)
    kinds: set[bytes] = set()
    while b"IEND" not in kinds:
        at = cursor.at
        length, kind = cursor.number(">I"), cursor.take(4)
        if not kinds and (kind != b"IHDR" or length != 13):
            raise Broken("the first chunk is not IHDR")
        if length > cursor.left:
            raise Broken(f"cut off inside the chunk at byte {at:,}")
        crc = zlib.crc32(kind)
        for piece in source.chunks(cursor.at, cursor.at + length):
            crc = zlib.crc32(piece, crc)
        cursor.skip(length)
        if cursor.number(">I") != crc:
            raise Broken(f"the chunk at byte {at:,} fails its CRC-32")
        kinds.add(kind)
    if b"IDAT" not in kinds:
        raise Broken("no IDAT: an image without pixels")
    if cursor.left:
        findings.warn(f"{some(cursor.left, 'byte')} after the image")
    findings.proved.append("every chunk is whole, by its CRC-32, up to IEND")
