"""What a provider answers that is not known is named once, and can be sent to a maintainer."""

import json
from pathlib import Path

import click
import pytest
from arranged import HandClock, setting

from gpu_tenant.faces.cli.registry import command
from gpu_tenant.files.state_dir import Home
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.drift import Drift


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return Home(tmp_path / "state")


def run(*argv: str) -> None:
    try:
        command(argv[0]).main(list(argv[1:]), standalone_mode=False)
    except (SystemExit, click.ClickException):
        return


def notices(home: Home) -> list[str]:
    ledger = Ledger(home.ledger, HandClock())
    try:
        return [alarm.words for alarm in ledger.open_alarms() if alarm.key.startswith("drift ")]
    finally:
        ledger.close()


def test_what_is_not_known_is_named_once_until_there_is_more(home: Home) -> None:
    drift = Drift(setting(home.root, "runpod"))
    drift.note("state", "status MIGRATING", {"status": "MIGRATING"})

    run("leases")
    run("leases")
    once = notices(home)
    drift.note("field", "placement", {"placement": 1})
    run("leases")

    assert len(once) == 1
    assert "status MIGRATING" in once[0]
    assert "doctor --report" in once[0]
    assert len(notices(home)) == 2


def test_doctor_names_it_and_its_report_has_what_was_kept_and_nothing_of_this_computer(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHONE", "json://127.0.0.1:9/")
    home.root.mkdir()
    home.configuration.write_text('[notify.alices-phone]\nurl = "env:PHONE"\n', encoding="utf-8")
    Drift(setting(home.root, "runpod")).note("field", "placement", {"placement": 1})

    run("doctor", "--report")

    assert "a field that is not known: placement" in capsys.readouterr().out
    text = (home.reports / "gpu-tenant-doctor.json").read_text(encoding="utf-8")
    told = json.loads(text)
    assert told["drift"][0]["seen"][0]["what"] == "placement"
    assert ["alarms", "ok"] in told["findings"]
    assert not [secret for secret in ("alice", str(home.root), "PHONE") if secret in text]
