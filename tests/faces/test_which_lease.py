"""A command that reads what a lease has left finds the newest one without a name, also when none is live."""

from pathlib import Path

import pytest
from arranged import LEASE, HandClock, gone

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.faces.cli.command import Chosen, the_lease
from gpu_tenant.ledger import Ledger


async def test_without_a_name_the_newest_ended_lease_is_read_and_never_worked_on(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite3", HandClock())
    gone(ledger)
    ledger.close()
    tenancy = open_tenancy({"GPU_TENANT_HOME": str(tmp_path), "HOME": str(tmp_path)})
    nothing_named = Chosen((), None, every=False)
    try:
        assert the_lease(None, tenancy, ended="take") == LEASE
        assert nothing_named.or_the_newest(tenancy).leases(tenancy) == [LEASE]
        with pytest.raises(BadRequest, match="no lease is live"):
            the_lease(None, tenancy)
    finally:
        await tenancy.aclose()
