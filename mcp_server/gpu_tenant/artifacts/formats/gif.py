"""GIF images: checks the blocks from the header to the trailer.

Source: GIF89a specification, sections 17 to 27. There is no checksum.
"""

from gpu_tenant.artifacts.formats.bounded_file import Broken, Cursor, Findings, Source, count_of
from gpu_tenant.domain.wording import some

_EXTENSION, _IMAGE, _TRAILER = b"\x21", b"\x2c", b"\x3b"


def check(source: Source, findings: Findings) -> None:
    """Check that blocks follow one another up to the trailer, and that there is an image.

    Raises:
        Broken: the blocks do not follow one another, or there is no image.
    """
    cursor = Cursor(source)
    if cursor.take(6) not in (b"GIF87a", b"GIF89a"):
        raise Broken("it does not begin as a GIF image does")
    cursor.skip(4)
    flags = cursor.take(3)[0]
    _skip_colours(cursor, flags)
    images = 0
    while (kind := cursor.take(1)) != _TRAILER:
        if kind == _EXTENSION:
            cursor.skip(1)
        elif kind == _IMAGE:
            images += 1
            _skip_colours(cursor, cursor.take(9)[8])
            cursor.skip(1)
        else:
            raise Broken(f"unknown block at byte {cursor.at - 1:,}")
        while length := cursor.take(1)[0]:
            cursor.skip(length)
    if not images:
        raise Broken("no image before the trailer")
    if cursor.left:
        findings.warn(f"{some(cursor.left, 'byte')} after the image")
    findings.proved.append(f"{count_of(images, 'frame')}, up to the trailer")
    findings.not_proved.append("pixels: GIF carries no checksum, only the hash covers them")


def _skip_colours(cursor: Cursor, flags: int) -> None:
    if flags & 0x80:
        cursor.skip(3 << (flags & 7) + 1)
