"""The parts are put together from one environment: a platform without its key is not even imported."""

from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from arranged import HandClock, active, profile

from gpu_tenant.app import connect, open_tenancy
from gpu_tenant.domain.errors import BadRequest, LocalTrouble
from gpu_tenant.domain.model import CredentialPlace, Profile
from gpu_tenant.domain.ports import Connector
from gpu_tenant.emulators.server import Stage
from gpu_tenant.files.rehearsal_marker import Rehearsal, put_rehearsal
from gpu_tenant.files.state_dir import Home
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.local.connector import LocalConnector


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
    put_rehearsal(tmp_path, Rehearsal(provider="vastai", url=url))

    with pytest.raises(LocalTrouble, match="not on this computer"):
        open_tenancy({"GPU_TENANT_HOME": str(tmp_path)})

    assert not (tmp_path / "ledger.sqlite3").exists()


@pytest.mark.parametrize("name", ["GPU_TENANT_REHEARSAL", "GPU_TENANT_REHEARSED"])
def test_no_variable_moves_the_clock_of_a_real_ledger(tmp_path: Path, name: str) -> None:
    environ = {"GPU_TENANT_HOME": str(tmp_path), name: "http://127.0.0.1:9"}

    with pytest.raises(BadRequest, match="is not a rehearsal") as told:
        open_tenancy(environ)

    assert f"unset {name}" in told.value.remedy


@pytest.mark.parametrize(
    ("slug", "variable", "key"),
    [
        ("runpod", "RUNPOD_API_BASE_URL", "RUNPOD_API_KEY"),
        ("vastai", "VAST_URL", "VAST_API_KEY"),
        ("lambda_cloud", "LAMBDA_CLOUD_BASE_URL", "LAMBDA_API_KEY"),
        ("digitalocean", "DIGITALOCEAN_API_URL", "DIGITALOCEAN_TOKEN"),
        ("autodl", "AUTODL_API_URL", "AUTODL_TOKEN"),
        ("gcp", "GPU_TENANT_GCP_ENDPOINT", "GPU_TENANT_GCP_PROJECT"),
    ],
)
def test_no_variable_says_where_a_key_is_sent(
    tmp_path: Path, slug: str, variable: str, key: str
) -> None:
    for elsewhere in ("http://127.0.0.1:18999", "https://liar.example"):
        with pytest.raises(BadRequest, match=variable) as told:
            open_tenancy({"GPU_TENANT_HOME": str(tmp_path), key: "k", variable: elsewhere})
        assert f"unset {variable}" in told.value.remedy


async def test_a_variable_that_names_the_usual_place_is_no_trouble(tmp_path: Path) -> None:
    tenancy = open_tenancy(
        {
            "GPU_TENANT_HOME": str(tmp_path),
            "VAST_API_KEY": "k",
            "VAST_URL": "https://console.vast.ai/",
        }
    )
    await tenancy.aclose()


@pytest.mark.parametrize(
    "place", ["http://127.0.0.1:1", "http://proxy.example", "https://me@x", "x"]
)
def test_an_api_that_the_owner_names_is_spoken_to_over_tls(tmp_path: Path, place: str) -> None:
    (tmp_path / "config.toml").write_text(f'[api]\nrunpod = "{place}"\n', encoding="utf-8")

    with pytest.raises(LocalTrouble, match="not at an https address"):
        open_tenancy({"GPU_TENANT_HOME": str(tmp_path), "RUNPOD_API_KEY": "k"})


def test_a_ledger_with_a_real_lease_never_becomes_a_rehearsal(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    active(ledger)
    put_rehearsal(tmp_path, Rehearsal(provider="runpod", url="http://127.0.0.1:9"))

    assert not ledger.be_rehearsed()
    with pytest.raises(LocalTrouble, match="real leases"):
        open_tenancy({"GPU_TENANT_HOME": str(tmp_path)})


async def test_a_rehearsal_s_ledger_is_never_taken_for_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_tenant.app._clock", lambda stage: HandClock())
    put_rehearsal(tmp_path, Rehearsal(provider="runpod", url="http://127.0.0.1:9"))
    await open_tenancy({"GPU_TENANT_HOME": str(tmp_path)}).aclose()
    (tmp_path / "rehearsal.json").unlink()

    with pytest.raises(LocalTrouble, match="belongs to a rehearsal"):
        open_tenancy({"GPU_TENANT_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}]
)
def test_a_web_page_moves_no_clock_of_a_rehearsal(tmp_path: Path, headers: dict[str, str]) -> None:
    with Stage("vastai", tmp_path, way="local", time="frozen") as stage:
        before = stage.world.now
        for path in ("/_rehearsal/clock", "/_rehearsal/reset"):
            with pytest.raises(HTTPError) as told:
                urlopen(Request(f"{stage.url}{path}", b'{"advance_s": 3600}', headers), timeout=120)
            told.value.close()
            assert told.value.code == 403
        assert stage.world.now == before


async def test_a_tenancy_without_any_key_has_this_computer_and_the_owner_s_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tenancy = open_tenancy({"GPU_TENANT_HOME": str(tmp_path / "state")})

    told = await tenancy.list_leases("all")

    assert (told.leases, told.alarms) == ((), ())
    await tenancy.aclose()
