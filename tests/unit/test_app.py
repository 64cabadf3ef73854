"""The parts are put together from one environment: a platform without its key is not even imported."""

from pathlib import Path

import pytest
from arranged import HandClock, profile

from gpu_tenant.app import connect, open_tenancy
from gpu_tenant.connectors.local import LocalConnector
from gpu_tenant.errors import BadRequest
from gpu_tenant.model import CredentialPlace, Profile
from gpu_tenant.ports import Connector
from gpu_tenant.store import Home


def made(of: Profile, root: Path, environ: dict[str, str] | None = None) -> Connector | None:
    return connect(of, Home(root), environ or {}, HandClock())


def test_a_platform_without_a_key_of_its_own_is_always_there(tmp_path: Path) -> None:
    assert isinstance(made(profile("local"), tmp_path), LocalConnector)


def test_a_platform_without_an_api_has_no_connector(tmp_path: Path) -> None:
    assert made(profile("by_hand"), tmp_path) is None


def test_a_platform_whose_key_is_nowhere_has_no_connector(tmp_path: Path) -> None:
    keyed = profile("local").model_copy(update={"credential": CredentialPlace(env=("TINY_KEY",))})

    assert made(keyed, tmp_path) is None
    assert made(keyed, tmp_path, {"TINY_KEY": "k"}) is not None


@pytest.mark.parametrize(
    "url", ["http://api.example.com", "https://10.0.0.1:80", "http://localhost:1", "127.0.0.1:1"]
)
def test_a_rehearsal_is_on_this_computer_or_there_is_none(tmp_path: Path, url: str) -> None:
    environ = {"GPU_TENANT_HOME": str(tmp_path), "GPU_TENANT_REHEARSAL": url}

    with pytest.raises(BadRequest, match="a rehearsal is on this computer") as told:
        open_tenancy(environ)

    assert "unset it to rent for real" in told.value.remedy
    assert not (tmp_path / "ledger.sqlite3").exists()


async def test_a_tenancy_without_any_key_has_this_computer_and_the_owner_s_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tenancy = open_tenancy({"GPU_TENANT_HOME": str(tmp_path / "state")})

    told = await tenancy.list_leases("all")

    assert (told.leases, told.alarms) == ((), ())
    await tenancy.aclose()
