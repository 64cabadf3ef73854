"""One SQLite file, opened durably: migrations, transactions, and SQLite's failures as our errors."""

import errno
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self, TypeVar

from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import DiskFull, LedgerBusy, LedgerCorrupt, LedgerTooNew, LocalTrouble
from gpu_tenant.domain.ports import Clock
from gpu_tenant.domain.wording import size
from gpu_tenant.files.disk_reserve import WANTED_BYTES, free_bytes, has_reserve
from gpu_tenant.ledger.salvage import salvage
from gpu_tenant.ledger.schema import MIGRATIONS

T = TypeVar("T")

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_SHUT = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR,
}
"""SQLite's errors for a file that cannot be opened or written, whatever the file contains."""

Connection = sqlite3.Connection
Row = sqlite3.Row
IntegrityError = sqlite3.IntegrityError


class Database:
    """The file of one ledger. Every transaction is durable once its block has been left."""

    def __init__(
        self, path: Path, clock: Clock | None = None, *, busy_timeout_s: float = 5
    ) -> None:
        """Open the ledger at `path`. It is created if there is none.

        `clock` gives the times in the ledger. By default, it is this computer's clock.

        Raises:
            LedgerBusy: another process held the ledger for longer than `busy_timeout_s`.
            LedgerTooNew: the ledger was written by a newer version, and was left as it is.
            LedgerCorrupt: the file cannot be read as a ledger, and was left as it is.
            DiskFull: there is no room to write the ledger.
            LocalTrouble: this computer does not allow writing the ledger.
        """
        self._path = path
        self._copy: TemporaryDirectory[str] | None = None
        self.is_salvaged = False
        self._original = path
        self.clock = clock or WallClock()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._must_be_there()
        self._db = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)
        try:
            with self._translate_errors():
                self._db.row_factory = sqlite3.Row
                # The version is checked before the next pragma, which changes the file: a newer ledger, or a file that
                # is no ledger, must stay as it is.
                self._version()
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")
                self._db.execute("PRAGMA foreign_keys=ON")
            if self._version() < len(MIGRATIONS):
                self._migrate()
        except BaseException:
            self._db.close()
            raise

    @property
    def path(self) -> Path:
        """The path at which the owner knows the ledger, even if this is a copy."""
        return self._original

    def _must_be_there(self) -> None:
        """Create the file if there is none.

        An existing file is opened only by SQLite, never here. When a process closes a file, it loses all its POSIX
        locks on that file, even those of its other connections. Another process would then believe that nobody else has
        the file open. It would remove the log to which these connections still write.
        """
        path = self._path
        try:
            # The mode is right from the start, and SQLite gives its companion files the same mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError as error:
            if path.is_dir():
                raise self._unreadable(_error(errno.EISDIR)) from error
            if not _may_write(path):
                is_read_only = os.statvfs(path).f_flag & os.ST_RDONLY
                why = _error(errno.EROFS if is_read_only else errno.EACCES)
                raise self._unwritable(why) from error
        except OSError as error:
            raise self._full() if error.errno in _NO_ROOM else self._unwritable(error) from error

    @classmethod
    def copy_of(cls, path: Path, clock: Clock | None = None) -> Self:
        """Open a copy of the ledger at `path`, only for reading: what is written to the copy is thrown away.

        Use this if the disk cannot be written. The copy is in memory, if the system has a place for it.

        Raises:
            LedgerCorrupt: the file cannot be read as a ledger.
            LedgerTooNew: the ledger was written by a newer version.
            DiskFull: there is no room for the copy.
            LocalTrouble: the ledger cannot be copied.
        """
        copy = TemporaryDirectory(prefix="gpu-tenant-", dir=_memory())
        try:
            copied = Path(copy.name) / path.name
            _copy_whole(path, copied)
            ledger = cls(copied, clock)
        except OSError as error:
            copy.cleanup()
            raise LocalTrouble(
                f"the ledger {path} cannot be written, and cannot be copied to {copy.name} to be read ({error})",
                remedy="free some space on both, then run the same command again",
            ) from error
        except BaseException:
            copy.cleanup()
            raise
        ledger._copy, ledger._original = copy, path
        return ledger

    @classmethod
    def salvage(cls, path: Path, clock: Clock | None = None) -> tuple[Self, int]:
        """Open a new ledger with what can still be read of the damaged one at `path`, only to look at it.

        What is written to the new ledger is thrown away. Return the new ledger, and how many rows could be read.
        """
        copy = TemporaryDirectory(prefix="gpu-tenant-", dir=_memory())
        try:
            damaged, fresh = Path(copy.name) / "damaged" / path.name, Path(copy.name) / path.name
            damaged.parent.mkdir()
            _copy_whole(path, damaged)
            cls(fresh, clock).close()
            rows = 0
            with suppress(sqlite3.Error):
                rows = salvage(damaged, fresh)
            ledger = cls(fresh, clock)
        except BaseException:
            copy.cleanup()
            raise
        ledger._copy, ledger._original, ledger.is_salvaged = copy, path, True
        return ledger, rows

    @property
    def is_copy(self) -> bool:
        """Whether this is a copy, so that what is written to it is thrown away."""
        return self._copy is not None

    @property
    def directory(self) -> Path:
        """The state directory, which holds the file."""
        return self._original.parent

    def now(self) -> datetime:
        """Return the current instant, by the clock that everything in this ledger uses."""
        return self.clock.now()

    def close(self) -> None:
        """Close the file. Everything written stays, unless the file is a copy."""
        self._db.close()
        if self._copy is not None:
            self._copy.cleanup()

    def _version(self) -> int:
        version: int = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise LedgerTooNew(
                f"the ledger {self._path} has version {version}, this program knows {len(MIGRATIONS)}",
                remedy="upgrade gpu-tenant; the ledger was left as it is",
            )
        return version

    def _migrate(self) -> None:
        with self._transaction() as db:
            # The version is read again under the lock, because another process may have migrated first.
            for script in MIGRATIONS[self._version() :]:
                for statement in _statements(script):
                    db.execute(statement)
            db.execute(f"PRAGMA user_version={len(MIGRATIONS)}")

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise LedgerBusy(
                    f"another program holds {self._path} for writing",
                    remedy="try again; if it stays, `fuser` on that file names the process",
                ) from error
            # The memory that SQLite's readers share is a file, too. If that file cannot grow, SQLite says "disk
            # I/O error".
            if (
                "disk is full" in str(error)
                or error.sqlite_errorcode == sqlite3.SQLITE_IOERR_SHMSIZE
            ):
                raise self._full() from error
            if _is_shut(error):
                raise self._unwritable(error) from error
            raise self._unreadable(error) from error
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def _full(self) -> DiskFull:
        return disk_is_full(self.directory, "nothing was done")

    def _unwritable(self, error: Exception) -> LocalTrouble:
        """Return the error for a sound ledger that cannot be written now.

        Restoring an older ledger would not help.
        """
        return LocalTrouble(
            f"the ledger {self._path} cannot be written ({error}); it was left as it is",
            remedy=f"make sure that {self.directory} is yours and can be written (`ls -ld`, `mount`), then run the "
            f"same command again; until then boxes continue to bill: {Command('leases')} asks each provider",
        )

    def _unreadable(self, error: Exception) -> LedgerCorrupt:
        return LedgerCorrupt(
            f"{self._path} cannot be read as a ledger ({error}); it was left as it is",
            remedy=f"boxes may still be billing: {Command('leases')} shows what can still be read of it and asks "
            f"each provider; then {Command('doctor')} says how it is mended without losing sight of a box",
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._translate_errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                self._undone()
                raise
            finally:
                # SQLite rolls back by itself when the disk is full.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _undone(self) -> None:
        """Forget what a transaction has written that was not committed."""

    def _changes(self) -> int:
        """Return a number that changes when another connection has written to the file. No table is read for it."""
        with self._translate_errors():
            version: int = self._db.execute("PRAGMA data_version").fetchone()[0]
        return version

    def _read(self, read: Callable[[sqlite3.Row], T], sql: str, *values: object) -> list[T]:
        """Apply `read` to every row, and return the results. Raise `LedgerCorrupt` if `read` cannot read a row."""
        with self._translate_errors():
            rows = self._db.execute(sql, values).fetchall()
        try:
            return [read(row) for row in rows]
        except ValueError as error:
            raise self._unreadable(error) from error

    def trace(self, hears: Callable[[str], object] | None) -> None:
        """Call `hears` with every statement that runs from now on. If `hears` is None, stop doing so."""
        self._db.set_trace_callback(hears)

    def check(self) -> None:
        """Check that every page of the file can be read and is consistent.

        Raises:
            LedgerCorrupt: a page is not readable, or not consistent.
        """
        with self._translate_errors():
            found = self._db.execute("PRAGMA integrity_check").fetchone()[0]
        if found != "ok":
            raise self._unreadable(sqlite3.DatabaseError(found))


def _memory() -> str | None:
    """Return a place in memory for private directories. None if the system has none."""
    in_memory = Path("/dev/shm")  # noqa: S108 - the directory in it is private
    return str(in_memory) if os.access(in_memory, os.W_OK) else None


def _copy_whole(path: Path, copy: Path) -> None:
    """Copy the file and its log, which holds the newest part of it, to the directory of `copy`.

    The copying is repeated, at most 20 times, until nothing was written meanwhile.
    """
    parts = [path, path.with_name(path.name + "-wal")]
    for _ in range(20):
        before = [_stamp(part) for part in parts]
        for part in parts:
            if part.exists():
                _copy_elsewhere(part, copy.with_name(part.name))
        if before == [_stamp(part) for part in parts]:
            return


def _may_write(path: Path) -> bool:
    as_effective = os.access in os.supports_effective_ids
    return os.access(path, os.R_OK | os.W_OK, effective_ids=as_effective)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _copy_elsewhere(part: Path, copy: Path) -> None:
    """Copy the file in another process. If this process closed the file, its connections would lose their locks.

    Raises:
        OSError: it cannot be copied.
    """
    copied = subprocess.run(
        ["cp", "--", part, copy],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if copied.returncode:
        raise OSError(copied.stderr.strip())


def _stamp(part: Path) -> tuple[int, int] | None:
    try:
        seen = part.stat()
    except FileNotFoundError:
        return None
    return seen.st_size, seen.st_mtime_ns


def disk_is_full(directory: Path, done: str) -> DiskFull:
    """Return the error for a state directory on a full disk. `done` says in words what was done nevertheless."""
    free, kept = size(free_bytes(directory)), ""
    if has_reserve(directory):
        kept = f"; {Command('teardown')} has a reserve of disk space, and works nevertheless"
    return DiskFull(
        f"the disk of {directory} is full: {free} are free, and the ledger needs {size(WANTED_BYTES)}; {done}",
        remedy=f"free some space there, then run the same command again; {Command('leases')} and "
        f"{Command('monitor')} work even on a full disk{kept}",
    )


@contextmanager
def beside(path: Path) -> Iterator[Connection]:
    """Open another connection to the file, for another thread. An SQLite error ends the block silently."""
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(path, isolation_level=None)) as db,
    ):
        yield db


def has_smoke(path: Path, smoke_id: str) -> bool:
    """Whether another ledger, of any version, has that smoke test. False if that ledger cannot be read."""
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db,
    ):
        return bool(db.execute("SELECT 1 FROM smokes WHERE id=?", (smoke_id,)).fetchone())
    return False


def record(row: Row) -> str:
    """Return the JSON text in the column `record` of a row."""
    text: str = row["record"]
    return text


def moment(text: str) -> datetime:
    """Return the instant that a column holds as text."""
    return datetime.fromisoformat(text)


def _is_shut(error: sqlite3.OperationalError) -> bool:
    """Whether the error is about the disk or the permissions, and not about the content of the file."""
    # A file that ends too early is damaged, although SQLite counts this as a disk error.
    is_short = error.sqlite_errorcode == sqlite3.SQLITE_IOERR_SHORT_READ
    return error.sqlite_errorcode & 0xFF in _SHUT and not is_short


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of `script` one by one, because `executescript` would commit the open transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
