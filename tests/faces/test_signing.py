"""A person signs at a terminal: all of it is shown, by name, and the subject is typed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from terminal import at_a_terminal

from gpu_tenant.domain.signature import SignatureRequest, digest_of
from gpu_tenant.ledger import Ledger

LEASE = "vastai-abcd"
FILES = tuple(f"work/out/checkpoint-{n:04}.pt (3,023,904 bytes)" for n in range(120))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def ledger(home: Path) -> Iterator[Ledger]:
    opened = Ledger(home / "state" / "ledger.sqlite3")
    yield opened
    opened.close()


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the command goes by the real clock


@pytest.fixture
def asked(ledger: Ledger) -> SignatureRequest:
    return ledger.ask_signature(
        kind="waive",
        subject=LEASE,
        digest=digest_of(FILES),
        words=FILES,
        at=now(),
        would=f"destroying {LEASE} would lose this for good",
    )


def signed(ledger: Ledger, asked: SignatureRequest) -> bool:
    return ledger.signed("waive", LEASE, asked.digest, at=now()) is not None


def test_every_name_is_shown_before_anybody_can_sign(
    ledger: Ledger, asked: SignatureRequest
) -> None:
    with at_a_terminal("sign", asked.code, rows=24) as terminal:
        terminal.page_until(f"Type {LEASE}")
        terminal.type(LEASE)
        assert terminal.ended() == 0

    assert all(name in terminal.shown for name in FILES)
    assert signed(ledger, asked)


@pytest.mark.parametrize("typed", ["yes", "vastai-abce", ""])
def test_nothing_is_signed_where_something_else_is_typed(
    ledger: Ledger, asked: SignatureRequest, typed: str
) -> None:
    with at_a_terminal("sign", asked.code, rows=200) as terminal:
        terminal.read_until(f"Type {LEASE}")
        terminal.type(typed or "x")
        status = terminal.ended()

    assert status == 3
    assert "nothing was signed" in terminal.shown
    assert not signed(ledger, asked)


def test_ctrl_c_signs_nothing(ledger: Ledger, asked: SignatureRequest) -> None:
    with at_a_terminal("sign", asked.code, rows=200) as terminal:
        terminal.read_until(f"Type {LEASE}")
        terminal.interrupt()
        assert terminal.ended() == 130

    assert not signed(ledger, asked)


def test_a_pipe_is_no_person(ledger: Ledger, asked: SignatureRequest) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpu_tenant", "sign", asked.code],
        input=f"{LEASE}\n",
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 3
    assert "a person has to sign at a terminal, but this is not one" in done.stderr
    assert not signed(ledger, asked)


def test_where_the_unattended_mark_is_set_a_terminal_signs_nothing(
    ledger: Ledger, asked: SignatureRequest
) -> None:
    with at_a_terminal(
        "sign", asked.code, env={**os.environ, "GPU_TENANT_UNATTENDED": "1"}
    ) as terminal:
        assert terminal.ended() == 3

    assert "this is not one" in terminal.shown
    assert not signed(ledger, asked)


def test_what_waits_is_listed_without_a_terminal(ledger: Ledger, asked: SignatureRequest) -> None:
    words = [sys.executable, "-m", "gpu_tenant", "sign"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    told = subprocess.run([*words, "--json"], capture_output=True, text=True, check=True).stdout

    assert asked.code in listed
    assert json.loads(told)["open"][0]["words"] == list(FILES)
