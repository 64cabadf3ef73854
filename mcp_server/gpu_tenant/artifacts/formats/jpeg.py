"""JPEG images: checks the segments and scans from SOI to EOI.

Source: ITU-T T.81, annex B. There is no checksum.
"""

from gpu_tenant.artifacts.formats.bounded_file import CHUNK_BYTES, Broken, Cursor, Findings, Source
from gpu_tenant.domain.wording import some

MAGIC = b"\xff\xd8\xff"
_SCAN, _END = 0xDA, 0xD9
_ALONE = (0x01, *range(0xD0, 0xD9))
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_IN_SCAN = (0x00, *range(0xD0, 0xD8))
"""The bytes that may follow a 0xFF inside a scan: a zero, or a restart marker."""


def check(source: Source, findings: Findings) -> None:
    """Check that segments follow one another from SOI to EOI, and that there is a frame and a scan.

    Raises:
        Broken: the segments do not follow one another, or there is no frame or no scan.
    """
    if source.upto(0, 3) != MAGIC:
        raise Broken("it does not begin as a JPEG image does")
    cursor = Cursor(source, 2)
    markers: set[int] = set()
    while _END not in markers:
        marker = _marker(cursor)
        markers.add(marker)
        if marker != _END and marker not in _ALONE:
            length = cursor.number(">H")
            if length < 2:
                raise Broken(f"a segment of {length} bytes at byte {cursor.at:,}")
            cursor.skip(length - 2)
        if marker == _SCAN:
            _skip_scan(source, cursor)
    if _SCAN not in markers or not markers & _FRAMES:
        raise Broken("no frame, or no scan: an image without pixels")
    if cursor.left:
        findings.warn(f"{some(cursor.left, 'byte')} after the image")
    findings.proved.append("segments and scans follow one another to EOI")
    findings.not_proved.append("pixels: JPEG carries no checksum, only the hash covers them")


def _marker(cursor: Cursor) -> int:
    at = cursor.at
    if cursor.take(1) != b"\xff":
        raise Broken(f"no marker at byte {at:,}")
    code = 0xFF
    while code == 0xFF:
        code = cursor.take(1)[0]
    return code


def _skip_scan(source: Source, cursor: Cursor) -> None:
    """Move the cursor to the marker that ends the scan."""
    while cursor.left > 1:
        content = source.upto(cursor.at, CHUNK_BYTES)
        at = content.find(b"\xff")
        while 0 <= at < len(content) - 1:
            if content[at + 1] not in _IN_SCAN:
                cursor.skip(at)
                return
            at = content.find(b"\xff", at + 2)
        # If the last byte is 0xFF, read it again, together with the byte after it.
        cursor.skip(len(content) - 1 if content.endswith(b"\xff") else len(content))
    raise Broken(f"cut off inside a scan, at byte {cursor.end:,}")
