"""Prints whether SQLite's own integrity check finds a database sound."""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_STOPPED = (sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_INTERRUPT)


def check(path: str) -> dict[str, list[str]]:
    """Run the integrity check. Returns what it proves, in the form that `subprocesses.read` expects."""
    address = f"{Path(path).as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            faults = [str(row[0]) for row in database.execute("PRAGMA integrity_check(3)")]
    except MemoryError:
        return {"stopped": ["it takes more memory than is allowed here"]}
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _DAMAGED:
            return {"problems": [str(error)]}
        if code in _STOPPED:
            return {"stopped": [str(error)]}
        return {"not_proved": [f"SQLite could not check it: {error}"]}
    if faults != ["ok"]:
        return {"problems": [f"it finds damage: {'; '.join(faults)[:250]}"]}
    return {"proved": ["SQLite's integrity check finds it sound"]}


if __name__ == "__main__":
    print(json.dumps(check(sys.argv[1])))  # noqa: T201
