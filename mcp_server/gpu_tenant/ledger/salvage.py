"""Copies what can still be read of a damaged ledger into a fresh one."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path


def salvage(damaged: Path, fresh: Path) -> int:
    """Copy every row of `damaged` that can be read into the ledger at `fresh`. Return how many there were.

    `fresh` has empty tables. Its triggers are removed, because incomplete records may break the law that they enforce.
    `damaged` is a copy of the damaged ledger, with its log beside it.
    """
    copied = 0
    with (
        closing(sqlite3.connect(damaged)) as old,
        closing(sqlite3.connect(fresh, isolation_level=None)) as new,
    ):
        old.text_factory = lambda raw: raw.decode("utf-8", "replace")
        new.execute("PRAGMA foreign_keys=OFF")
        for (trigger,) in new.execute(
            "SELECT name FROM sqlite_master WHERE type='trigger'"
        ).fetchall():
            new.execute(f'DROP TRIGGER "{trigger}"')
        tables = new.execute(
            "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        for (table,) in tables:
            columns = [row[1] for row in new.execute(f'PRAGMA table_info("{table}")')]
            named = ", ".join(f'"{column}"' for column in columns)
            places = ", ".join("?" * len(columns))
            for row in _rows(old, table, named):
                with suppress(sqlite3.Error):
                    # A value that the fresh ledger made for itself is replaced by the recorded one.
                    done = new.execute(
                        f'INSERT OR REPLACE INTO "{table}" ({named}) VALUES ({places})',  # noqa: S608 - the schema's own names
                        row,
                    )
                    copied += done.rowcount
    return copied


def _rows(old: sqlite3.Connection, table: str, named: str) -> Iterator[tuple[object, ...]]:
    """Yield the rows that can be read: those before the damage, and then those after it, in reverse order."""
    for order in ("", " ORDER BY rowid DESC"):
        with suppress(sqlite3.Error):
            yield from old.execute(f'SELECT {named} FROM "{table}"{order}')  # noqa: S608 - the schema's own names
            return
