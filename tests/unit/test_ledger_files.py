"""A ledger that cannot be believed is said to be so, and is left as it was, byte for byte."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from arranged import LEASE, NOON, active, intended, job

from gpu_tenant.domain.errors import LedgerBusy, LedgerCorrupt, LedgerTooNew, LocalTrouble
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.ledger import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.sqlite3"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A ledger of many pages that nobody has open."""
    path = tmp_path_factory.mktemp("closed") / "ledger.sqlite3"
    ledger = Ledger(path)
    active(ledger)
    for n in range(10):
        ledger.declare(job(f"job{n}", artifacts=(f"out/{n}/" + "x" * 9000,)))
    ledger.close()
    return path.read_bytes()


@pytest.fixture
def written(path: Path, closed: bytes) -> Path:
    """Its file, to be spoilt."""
    path.parent.mkdir(mode=0o700)
    path.touch(0o600)
    path.write_bytes(closed)
    return path


@contextmanager
def another_process(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that has come as far as its first line of output."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout
    assert process.stdin
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


WRITING = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
db.execute("UPDATE leases SET kept_in='half done'")
print("ready", flush=True)
sys.stdin.read()
"""


# Others at the same file


def test_a_ledger_that_another_process_writes_to_is_busy_and_says_so(written: Path) -> None:
    ledger = Ledger(written, busy_timeout_s=0.05)

    with another_process(WRITING, written), pytest.raises(LedgerBusy, match="holds") as told:
        ledger.touch(LEASE, at=NOON)

    assert str(written) in told.value.message
    ledger.touch(LEASE, at=NOON)
    assert ledger.lease(LEASE).touched_at == NOON
    ledger.close()


def test_reading_waits_for_nobody(written: Path) -> None:
    with another_process(WRITING, written):
        ledger = Ledger(written, busy_timeout_s=0.05)
        lease = ledger.lease(LEASE)
        ledger.close()

    assert lease.kept_in is None


def test_what_a_killed_process_had_not_finished_is_not_there(written: Path) -> None:
    ledger = Ledger(written)

    with another_process(WRITING, written) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()

    ledger.touch(LEASE, at=NOON)
    assert ledger.lease(LEASE).kept_in is None
    ledger.close()


OPENING = """
import sys
from pathlib import Path
from gpu_tenant.ledger import Ledger
print("ready", flush=True)
sys.stdin.readline()
Ledger(Path(sys.argv[1]), busy_timeout_s=30).close()
"""


def test_processes_that_make_the_ledger_at_the_same_moment_all_get_it(path: Path) -> None:
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", OPENING, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        for _ in range(4)
    ]
    for process in crowd:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    ended = [process.communicate("go\n") for process in crowd]

    assert [stderr for _, stderr in ended] == [""] * len(crowd)
    assert [process.returncode for process in crowd] == [0] * len(crowd)
    ledger = Ledger(path)
    intended(ledger)
    ledger.close()


TOUCHING = """
import sys
from datetime import datetime
from pathlib import Path
from gpu_tenant.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]), busy_timeout_s=30)
ledger.touch(sys.argv[2], at=datetime.fromisoformat(sys.argv[3]))
ledger.close()
"""


def open_again(path: Path) -> None:
    Ledger(path).close()


def copy_for_looks(path: Path) -> None:
    Ledger.copy_of(path).close()


def salvage(path: Path) -> None:
    Ledger.salvage(path)[0].close()


@pytest.mark.parametrize("opens", [open_again, copy_for_looks, salvage])
def test_a_ledger_opened_twice_in_one_process_keeps_its_locks_against_others(
    written: Path, opens: Callable[[Path], None]
) -> None:
    ledger = Ledger(written)
    ledger.touch(LEASE, at=NOON)
    log = written.with_name(f"{written.name}-wal")
    opens(written)

    # The other process must not take itself for the last one, and remove the log.
    before = log.stat().st_ino
    argv = [sys.executable, "-c", TOUCHING, written, LEASE, NOON.isoformat()]
    subprocess.run(argv, check=True)

    assert log.stat().st_ino == before
    ledger.close()
    again = Ledger(written)
    again.check()
    again.close()


# Whose file it is


def test_the_ledger_is_its_owner_s_alone(written: Path) -> None:
    ledger = Ledger(written)
    ledger.touch(LEASE, at=NOON)
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in written.parent.iterdir()}
    ledger.close()

    assert len(modes) == 3, "the ledger, its log and its index"
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(written.parent.stat().st_mode) == 0o700


def test_a_ledger_that_may_not_be_written_is_said_to_be_so(written: Path) -> None:
    written.chmod(0o400)
    before = written.read_bytes()

    with as_a_plain_user(written), pytest.raises(LocalTrouble, match="Permission denied") as told:
        Ledger(written)

    assert written.read_bytes() == before
    assert stat.S_IMODE(written.stat().st_mode) == 0o400
    assert told.value.code == "LOCAL_TROUBLE"
    assert "backup" not in told.value.remedy


def test_a_ledger_whose_shared_memory_finds_no_room_says_that_the_disk_is_full(
    written: Path,
) -> None:
    # No file may grow beyond that; SQLite's next to the ledger needs 32 KiB.
    code = (
        "import resource, sys; from pathlib import Path; from gpu_tenant.ledger import Ledger;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384)); Ledger(Path(sys.argv[1]))"
    )
    before = written.read_bytes()

    ended = subprocess.run(
        [sys.executable, "-c", code, written], capture_output=True, encoding="utf-8", check=False
    )

    assert "DISK_FULL" in ended.stderr.splitlines()[-1]
    assert written.read_bytes() == before


def test_a_ledger_in_a_directory_that_takes_nothing_is_not_said_to_be_spoilt(
    written: Path,
) -> None:
    written.parent.chmod(0o500)
    before = written.read_bytes()

    with as_a_plain_user(written), pytest.raises(LocalTrouble, match="cannot be written") as told:
        Ledger(written)

    assert written.read_bytes() == before
    assert told.value.code == "LOCAL_TROUBLE"
    assert "backup" not in told.value.remedy


@contextmanager
def as_a_plain_user(path: Path) -> Iterator[None]:
    """Root may write anything, so it steps down while it tries."""
    me = os.geteuid()
    if me == 0:
        for folder in path.parents:
            folder.chmod(folder.stat().st_mode | 0o011)
        os.chown(path, 65534, -1)
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)


# What cannot be believed


def test_a_ledger_of_a_newer_program_is_left_alone(written: Path) -> None:
    raw = sqlite3.connect(written)
    raw.execute("PRAGMA user_version=1000000")
    raw.close()
    before = written.read_bytes()

    with pytest.raises(LedgerTooNew, match="version 1000000") as told:
        Ledger(written)

    assert "upgrade" in told.value.remedy
    assert written.read_bytes() == before


def header_overwritten(path: Path) -> None:
    _overwrite(path, 0, b"\xde\xad\xbe\xef" * 25)


def page_size_overwritten(path: Path) -> None:
    _overwrite(path, 16, b"\xff\xff")


def middle_overwritten(path: Path) -> None:
    _overwrite(path, path.stat().st_size // 2, os.urandom(20_000))


def all_but_the_first_page_overwritten(path: Path) -> None:
    _overwrite(path, 4096, os.urandom(path.stat().st_size - 4096))


def cut_to_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_inside_the_first_page(path: Path) -> None:
    os.truncate(path, 1000)


def cut_inside_the_header(path: Path) -> None:
    os.truncate(path, 50)


def a_text_file(path: Path) -> None:
    path.write_text("dear diary, today I rented a box\n" * 100, encoding="utf-8")


def a_short_text_file(path: Path) -> None:
    path.write_text("hello\n", encoding="utf-8")


def a_number_of_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _overwrite(path: Path, offset: int, garbage: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(garbage)


@pytest.mark.parametrize(
    "spoil",
    [
        header_overwritten,
        page_size_overwritten,
        middle_overwritten,
        all_but_the_first_page_overwritten,
        cut_to_half,
        cut_inside_the_first_page,
        cut_inside_the_header,
        a_text_file,
        a_short_text_file,
        a_number_of_zeros,
    ],
    ids=lambda spoil: spoil.__name__,
)
def test_a_spoilt_ledger_is_found_out_and_left_as_it_is(
    written: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(written)
    before = written.read_bytes()

    with pytest.raises(LedgerCorrupt, match="it was left as it is") as told:
        opened_and_checked(written)

    assert written.read_bytes() == before
    assert "asks each provider" in told.value.remedy


def opened_and_checked(path: Path) -> None:
    ledger = Ledger(path)
    try:
        ledger.check()
    finally:
        ledger.close()


def test_a_row_that_does_not_read_as_what_it_was_is_found_out(written: Path) -> None:
    whole = written.read_bytes()
    written.write_bytes(whole.replace(b'"deadline_at"', b'"deadlino_at"'))
    before = written.read_bytes()
    ledger = Ledger(written)

    with pytest.raises(LedgerCorrupt, match="deadlino_at"):
        ledger.leases()

    ledger.close()
    assert written.read_bytes() == before != whole


def test_a_directory_in_the_ledger_s_place_is_no_ledger(path: Path) -> None:
    path.mkdir(parents=True)

    with pytest.raises(LedgerCorrupt, match="directory"):
        Ledger(path)

    assert list(path.iterdir()) == []


def test_a_database_of_something_else_is_no_ledger(path: Path) -> None:
    path.parent.mkdir()
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE leases(cars TEXT)")
    raw.commit()

    with pytest.raises(LedgerCorrupt, match="already exists"):
        Ledger(path)

    assert raw.execute("SELECT sql FROM sqlite_master").fetchall() == [
        ("CREATE TABLE leases(cars TEXT)",)
    ]
    raw.close()


def test_a_ledger_in_use_passes_its_own_check(written: Path) -> None:
    ledger = Ledger(written)
    intended(ledger, LeaseId("local-efgh"))

    ledger.check()
    ledger.close()


def test_what_is_left_of_a_ledger_is_read_whichever_page_is_damaged(written: Path) -> None:
    whole, pages = written.read_bytes(), written.stat().st_size // 4096
    left, most = Ledger.salvage(written)
    left.close()
    counts = []
    for page in range(0, pages, max(1, pages // 12)):
        written.write_bytes(whole)
        _overwrite(written, page * 4096, os.urandom(4096))
        before = written.read_bytes()

        left, rows = Ledger.salvage(written)

        counts.append(rows)
        assert left.is_copy
        assert left.directory == written.parent
        assert len(left.leases("all")) in (0, 1)
        left.close()
        assert written.read_bytes() == before, "it was left as it is"

    assert most > 10
    assert counts[0] == 0, "without the page that says where the tables are, nothing is found"
    assert max(counts) == most, "a page of an index holds no row"
    assert any(0 < rows < most for rows in counts), counts


def test_a_copy_for_looks_has_what_still_lies_in_the_log_and_changes_nothing(written: Path) -> None:
    open_elsewhere = Ledger(written)
    open_elsewhere.touch(LEASE, at=NOON)  # in the log, which is not yet in the file
    before = written.read_bytes()

    copy = Ledger.copy_of(written)
    copy.end(LEASE, "lost", at=NOON)

    assert copy.lease(LEASE).touched_at == NOON
    copy.close()
    assert open_elsewhere.lease(LEASE).state.live
    assert written.read_bytes() == before
    open_elsewhere.close()
