"""A hold keeps every other process off a lease, and ends with its process, however that died."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from arranged import LEASE, NOON, active, eventually, never_used

from gpu_tenant.domain.errors import LeaseHeld
from gpu_tenant.domain.model import LeaseId, LeaseState
from gpu_tenant.ledger import Ledger, Renewal
from gpu_tenant.ledger.hold_owner import Holder, this_process

OTHER = LeaseId("local-efgh")

HOLDING = """
import sys
from datetime import datetime
from pathlib import Path
from gpu_tenant.ledger import Ledger
from gpu_tenant.domain.errors import LeaseHeld
from gpu_tenant.ledger import Renewal
ledger = Ledger(Path(sys.argv[1]), renewal=Renewal(beat_s=0.05))
with ledger.hold(sys.argv[2], "collect", at=datetime.fromisoformat(sys.argv[3])):
    print("held", flush=True)
    sys.stdin.read()
    try:
        ledger.must_still_hold(sys.argv[2])
        print("launched")
    except LeaseHeld as told:
        print(told.message)
print("let go", flush=True)
"""


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    active(ledger)
    active(ledger, OTHER)
    return ledger


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lease until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(path), LEASE, NOON.isoformat()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def free(ledger: Ledger, lease: LeaseId = LEASE, *, at: datetime = NOON) -> bool:
    try:
        with ledger.hold(lease, "teardown", at=at):
            return True
    except LeaseHeld:
        return False


def test_a_lease_held_by_another_process_is_held_and_says_by_whom(
    ledger: Ledger, ledger_file: Path
) -> None:
    with holder(ledger_file) as process:
        with (
            pytest.raises(LeaseHeld, match=f"{LEASE} is in use: collect") as told,
            ledger.hold(LEASE, "teardown", at=NOON),
        ):
            pytest.fail("two at once")

        assert f"process {process.pid}" in told.value.message
        assert "gpu-tenant monitor" in told.value.remedy


def test_another_lease_is_free_meanwhile(ledger: Ledger, ledger_file: Path) -> None:
    with holder(ledger_file):
        assert free(ledger, OTHER)


def test_a_living_holder_keeps_its_hold_however_long_it_takes(
    ledger: Ledger, ledger_file: Path
) -> None:
    with holder(ledger_file):
        assert not free(ledger, at=NOON + timedelta(days=30))


def test_a_holder_that_is_done_lets_go(ledger: Ledger, ledger_file: Path) -> None:
    with holder(ledger_file) as process:
        process.communicate()

        assert free(ledger)


def test_a_killed_holder_has_let_go_at_once(ledger: Ledger, ledger_file: Path) -> None:
    with holder(ledger_file) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()

        assert free(ledger)


def test_a_killed_holder_that_its_parent_has_not_buried_has_let_go_too(
    ledger: Ledger, ledger_file: Path
) -> None:
    with holder(ledger_file) as process:
        process.send_signal(signal.SIGKILL)

        assert eventually(lambda: free(ledger))
        assert process.returncode is None, "nobody has asked how it ended"


def test_the_same_process_does_not_hold_a_lease_twice(ledger: Ledger) -> None:
    with ledger.hold(LEASE, "push", at=NOON):
        assert not free(ledger)
    assert free(ledger)


def test_a_hold_ends_with_the_error_that_ended_the_work(ledger: Ledger) -> None:
    with pytest.raises(ZeroDivisionError), ledger.hold(LEASE, "push", at=NOON):
        raise ZeroDivisionError

    assert free(ledger)


BRISK = Renewal(beat_s=0.05, patience_s=0.5, grace_s=0.5)


def test_a_hold_of_a_computer_that_cannot_be_asked_stands_as_long_as_it_is_renewed(
    ledger_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Ledger(ledger_file, renewal=BRISK)) as ledger:
        active(ledger)
        with holder(ledger_file):
            monkeypatch.setattr("gpu_tenant.ledger.hold_owner._host", lambda: "another computer")

            assert not eventually(lambda: free(ledger), within_s=2.5), "it was broken"


def test_a_hold_of_a_computer_that_went_silent_is_broken_after_a_warning(
    ledger_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Ledger(ledger_file, renewal=BRISK)) as ledger:
        active(ledger)
        with holder(ledger_file) as process:
            monkeypatch.setattr("gpu_tenant.ledger.hold_owner._host", lambda: "another computer")
            process.kill()

            assert not free(ledger), "it may be alive"
            assert eventually(lambda: free(ledger))


def test_a_stopped_holder_keeps_nothing_and_learns_it_before_its_next_effect(
    ledger_file: Path,
) -> None:
    with closing(Ledger(ledger_file, renewal=BRISK)) as ledger:
        active(ledger)
        with holder(ledger_file) as process:
            process.send_signal(signal.SIGSTOP)
            told = eventually(lambda: warned(ledger))
            assert told, "whoever waits is told that the holder is silent"
            assert eventually(lambda: free(ledger))

            process.send_signal(signal.SIGCONT)
            said, _ = process.communicate()

            assert "was broken" in said
            assert "launched" not in said


def warned(ledger: Ledger) -> bool:
    try:
        with ledger.hold(LEASE, "teardown", at=NOON):
            return False
    except LeaseHeld as told:
        return "has not renewed its hold" in told.message and "Ctrl-Z" in told.remedy


def test_who_holds_a_lease_is_told_with_its_purpose_and_since_when(
    ledger: Ledger, ledger_file: Path
) -> None:
    with holder(ledger_file) as process:
        held = ledger.holder_of(LEASE)

        assert held is not None
        assert (held.purpose, held.pid) == ("collect", process.pid)
        assert f"collect (process {process.pid}) has held it for " in held.words
    assert eventually(lambda: ledger.holder_of(LEASE) is None)


def test_a_broken_hold_destroys_launches_and_files_nothing(ledger_file: Path) -> None:
    with (
        closing(Ledger(ledger_file, renewal=Renewal(beat_s=60))) as first,
        closing(Ledger(ledger_file)) as second,
    ):
        active(first)
        with first.hold(LEASE, "teardown", at=NOON):
            first.must_still_hold(LEASE)
            with closing(sqlite3.connect(ledger_file)) as db, db:
                db.execute("UPDATE holds SET token='another'")

            with pytest.raises(LeaseHeld, match="was broken"):
                first.must_still_hold(LEASE)
            with pytest.raises(LeaseHeld, match="was broken"):
                first.file_permit(never_used(first.lease(LEASE)), at=NOON)
            assert second.lease(LEASE).state is LeaseState.ACTIVE
        held = second.holder_of(LEASE)
        assert held is not None, "it has left what is another's alone"


def test_a_later_process_of_the_same_number_is_another_process() -> None:
    me = this_process()

    assert me.alive() is True
    assert Holder(me.host, me.pid, "another start").alive() is False
    assert Holder(me.host, 2**22 + 1, me.started).alive() is False
    assert Holder("another computer", me.pid, me.started).alive() is None
