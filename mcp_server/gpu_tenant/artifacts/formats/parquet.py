"""Parquet: checks the magic bytes at both ends, and the size of the footer. Reads every row if `pyarrow` is installed.

Source: https://parquet.apache.org/docs/file-format/: `PAR1`, data, footer, four bytes of footer length, `PAR1`.
If the footer is encrypted, `PARE` stands in place of `PAR1`.
"""

from gpu_tenant.artifacts.formats import subprocesses
from gpu_tenant.artifacts.formats.bounded_file import Broken, Findings, Source, Unread
from gpu_tenant.domain.wording import some

MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
_FRAME_BYTES = 12


def check(source: Source, findings: Findings) -> None:
    """Check that the footer fits between the magic bytes, and that `pyarrow`, if installed, reads every row.

    Raises:
        Broken: the footer does not fit, or `pyarrow` refuses the file.
        Unread: the footer is encrypted.
    """
    if source.upto(source.size_bytes - 4, 4) == _ENCRYPTED == source.upto(0, 4):
        raise Unread("the footer is encrypted")
    if source.upto(0, 4) != MAGIC:
        raise Broken("it does not begin with PAR1")
    if source.size_bytes < _FRAME_BYTES or source.read(source.size_bytes - 4, 4) != MAGIC:
        raise Broken("it does not end with PAR1: cut off, or followed by other bytes")
    footer = int.from_bytes(source.read(source.size_bytes - 8, 4), "little")
    if not 0 < footer <= source.size_bytes - _FRAME_BYTES:
        raise Broken(f"a footer of {some(footer, 'byte')} in a file of {source.size_bytes:,}")
    findings.proved.append("PAR1 at both ends, with a footer between them")
    findings.not_proved.append("values: pages rarely carry a checksum, only the hash covers them")
    subprocesses.read(source, "pyarrow", "parquet_rows", findings)
