"""SQLite databases: the header's page count against the file, then SQLite's own integrity check.

Source: https://www.sqlite.org/fileformat2.html, section 1.3, and `PRAGMA integrity_check`.
"""

import sqlite3
from contextlib import closing

from gpu_tenant.loads.source import Broken, Findings, Source

MAGIC = b"SQLite format 3\x00"
_WAL = 2
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def check(source: Source, findings: Findings) -> None:
    """Every page is there, and SQLite finds the database sound.

    Raises:
        Broken: it does not.
        Unread: it is not the file that was to be proved.
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
        raise Broken(f"cut off: {source.size_bytes:,} bytes, for {pages:,} pages of {page_bytes:,}")
    if missing < 0:
        findings.warn(f"{-missing:,} bytes follow the last page")
    if _WAL in (header[18], header[19]):
        findings.warn("in WAL mode: commits not yet checkpointed are in the -wal file beside it")
    for _ in source.pieces(0, source.size_bytes):
        """The disk is read here, so that its errors are not SQLite's."""
    source.settle()
    _integrity(source, findings)


def _integrity(source: Source, findings: Findings) -> None:
    address = f"{source.path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            faults = [str(row[0]) for row in database.execute("PRAGMA integrity_check(3)")]
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _DAMAGED:
            raise Broken(f"SQLite refuses it: {error}") from error
        findings.not_proved.append(f"SQLite could not check it: {error}")
        return
    if faults != ["ok"]:
        raise Broken(f"SQLite finds it damaged: {'; '.join(faults)[:300]}")
    findings.proved.append("SQLite's integrity check finds it sound")
    findings.not_proved.append(
        "values: SQLite keeps no checksum of them, only the hash covers them"
    )
