"""SQLite databases: compares the header's page count with the file, and then runs SQLite's own integrity check.

SQLite may evaluate expressions from the file during this check. An index on an expression can take any amount
of computing time.

Source: https://www.sqlite.org/fileformat2.html, section 1.3, and `PRAGMA integrity_check`.
"""

from gpu_tenant.artifacts.formats import subprocesses
from gpu_tenant.artifacts.formats.bounded_file import Broken, Findings, Source
from gpu_tenant.domain.wording import some

MAGIC = b"SQLite format 3\x00"
_WAL = 2


def check(source: Source, findings: Findings) -> None:
    """Check that every page is there, and that SQLite finds no damage.

    Raises:
        Broken: a page is missing, or SQLite finds damage.
        Unread: this is not the file that was to be proved.
    """
    header = source.read(0, 100)
    if not header.startswith(MAGIC):
        raise Broken("it does not begin as a SQLite database does")
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 1 << 16 if page_bytes == 1 else page_bytes
    if page_bytes < 512 or page_bytes & (page_bytes - 1):
        raise Broken(f"a page size of {page_bytes:,} bytes")
    pages = int.from_bytes(header[28:32], "big")
    counted = header[24:28] == header[92:96] and pages > 0
    missing = pages * page_bytes - source.size_bytes if counted else 0
    if missing > 0 or (not counted and source.size_bytes % page_bytes):
        raise Broken(
            f"cut off: {some(source.size_bytes, 'byte')}, for {pages:,} pages of {page_bytes:,}"
        )
    if missing < 0:
        findings.warn(f"{some(-missing, 'byte')} after the last page")
    if _WAL in (header[18], header[19]):
        findings.warn("in WAL mode: commits not yet checkpointed are in the -wal file beside it")
    for _ in source.pieces(0, source.size_bytes):
        """Read the whole file here, so that an error of the disk is not taken for an error of SQLite."""
    subprocesses.read(source, "sqlite3", "sqlite_check", findings)
    findings.not_proved.append(
        "values: SQLite keeps no checksum of its values, only the hash covers them"
    )
