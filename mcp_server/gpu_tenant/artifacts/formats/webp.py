"""WebP images: checks that the RIFF chunks fill the declared size, and that there are pixels.

Source: RFC 9649, section 2. There is no checksum.
"""

from gpu_tenant.artifacts.formats.bounded_file import Broken, Cursor, Findings, Source
from gpu_tenant.domain.wording import some

_PIXELS = {b"VP8 ", b"VP8L", b"ANMF"}


def check(source: Source, findings: Findings) -> None:
    """Check that the chunks fill the size that RIFF declares.

    Raises:
        Broken: the chunks do not fill it, or there are no pixels.
    """
    header = source.read(0, 12)
    if header[:4] != b"RIFF" or header[8:] != b"WEBP":
        raise Broken("it does not begin as a WebP image does")
    end = 8 + int.from_bytes(header[4:8], "little")
    if end > source.size_bytes:
        raise Broken(f"cut off: {some(source.size_bytes, 'byte')} of {end:,}")
    cursor = Cursor(source, 12, end)
    kinds = set()
    while cursor.left:
        kinds.add(cursor.take(4))
        length = cursor.number("<I")
        cursor.skip(length + length % 2)
    if not kinds & _PIXELS:
        raise Broken("an image without pixels")
    if end < source.size_bytes:
        findings.warn(f"{some(source.size_bytes - end, 'byte')} after the image")
    findings.proved.append("chunks fill the declared size")
    findings.not_proved.append("pixels: WebP carries no checksum, only the hash covers them")
