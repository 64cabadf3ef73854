"""How fast the tenant tells of its leases when there are years of them: `python tests/bench/history.py 10000`."""

import asyncio
import json
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from arranged import LEASE, NOON, gone, job

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain import timeline
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy

_LINES = 30
"""A lease that worked for some hours has so many further lines in its timeline."""
_A_MOMENT = re.compile(r"2026-11-20T12:00:00(?:\.\d+)?")


def fill(path: Path, leases: int, *, days_ago: int = 0) -> None:
    """The ledger holds so many ended leases, four a day up to so long ago, each with all that belongs to one.

    One is written by the ledger itself, and copied: a million single transactions would take an hour.
    """
    with closing(Ledger(path)) as ledger:
        gone(ledger)
        ledger.declare(job())
        for number in range(_LINES):
            ledger.note(LEASE, timeline.Progressed(job="job1", done=number, total=_LINES), at=NOON)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type='trigger'").fetchall()
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        db.execute("BEGIN IMMEDIATE")
        for name, _ in triggers:
            db.execute(f'DROP TRIGGER "{name}"')
        for table in tables:
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            key = "id" if table == "leases" else "lease_id"
            if key not in columns:
                continue
            kept = [column for column in columns if column != "seq"]
            said = ",".join(kept)
            rows = db.execute(f"SELECT {said} FROM {table} WHERE {key}=?", (LEASE,)).fetchall()
            places = ",".join("?" * len(kept))
            db.executemany(
                f"INSERT INTO {table}({said}) VALUES ({places})",
                (
                    _earlier(row, number)
                    for number in range(4 * days_ago + 1, 4 * days_ago + leases)
                    for row in rows
                ),
            )
        for _, sql in triggers:
            db.execute(sql)
        db.execute("COMMIT")


def _earlier(row: tuple[object, ...], number: int) -> tuple[object, ...]:
    """The same row of a lease that was some days before."""
    at = NOON - timedelta(hours=6 * number)
    return tuple(
        _A_MOMENT.sub(
            f"{datetime.isoformat(at)[:19]}", value.replace(LEASE, f"local-h{number:05d}")
        )
        if isinstance(value, str)
        else value
        for value in row
    )


async def _timed(what: str, does: Callable[[Tenancy], Awaitable[object]], home: Path) -> None:
    environ = {"GPU_TENANT_HOME": str(home), "HOME": str(home), "PATH": "/usr/bin:/bin"}
    tenancy = open_tenancy(environ)
    begun = time.perf_counter()
    await does(tenancy)
    print(json.dumps({"what": what, "seconds": round(time.perf_counter() - begun, 3)}))
    await tenancy.aclose()


def main(leases: int) -> None:
    """What each of the verbs took, one line of JSON each."""
    with tempfile.TemporaryDirectory() as root:
        home = Path(root)
        fill(home / "ledger.sqlite3", leases)
        size = (home / "ledger.sqlite3").stat().st_size
        print(json.dumps({"leases": leases, "ledger_mb": round(size / 1e6, 1)}))
        asyncio.run(_timed("doctor", lambda tenancy: tenancy.doctor(), home))
        asyncio.run(_timed("leases", lambda tenancy: tenancy.list_leases(), home))
        asyncio.run(_timed("leases --all", lambda tenancy: tenancy.list_leases("all"), home))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
