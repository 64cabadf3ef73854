"""A job that is not there is refused in whole sentences."""

from pathlib import Path

import pytest
from arranged import HandClock, active, job

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.jobs.monitor import job_of
from gpu_tenant.ledger import Ledger


def test_a_lease_without_jobs_says_that_none_was_launched(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite3", HandClock())
    lease = active(ledger)

    with pytest.raises(BadRequest) as bare:
        job_of(lease, None, ledger=ledger)
    ledger.declare(job("train"))
    with pytest.raises(BadRequest) as named:
        job_of(lease, "trian", ledger=ledger)
    ledger.close()

    assert bare.value.message == "local-abcd has no job: none was ever launched on it"
    assert named.value.message == "local-abcd has no job trian (known: train)"
