"""What most unit tests begin with: a ledger of their own, a clock that a test moves, a provider in a dictionary."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from arranged import HandClock
from tiny import TinyProvider

from gpu_tenant.files.state_dir import Home
from gpu_tenant.ledger import Ledger


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def ledger_file(home: Home) -> Path:
    return home.ledger


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def ledger(ledger_file: Path, clock: HandClock) -> Iterator[Ledger]:
    opened = Ledger(ledger_file, clock)
    yield opened
    opened.close()


@pytest.fixture
def tiny(clock: HandClock) -> TinyProvider:
    return TinyProvider(clock)
