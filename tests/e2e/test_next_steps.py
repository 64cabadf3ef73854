"""The next step that an error names can be taken."""

import socket
from pathlib import Path

import pytest
from e2e.renting import tenant_at

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import BoxUnreachable


async def test_where_nobody_answers_an_adopt_made_no_lease_and_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        target = f"me@127.0.0.1:{taken.getsockname()[1]}"
        tenancy = open_tenancy()
        with pytest.raises(BoxUnreachable) as told:
            await tenancy.provision("own", target=target)

    assert tenancy.ledger.leases("live") == []
    assert f"`gpu-tenant adopt {target} --on own`" in told.value.remedy
    assert "audit" not in told.value.remedy
    await tenancy.aclose()


async def test_a_live_lease_is_listed_with_the_terms_that_were_agreed(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        card = await tenant.rented(hours=2)

        (shown,) = (await tenant.tenancy.list_leases()).leases

        assert shown.terms
        assert shown.terms == card.terms
