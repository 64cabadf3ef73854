"""`gpu-tenant alarms` shows what is open and tries the channels; doctor shows them and sends nothing."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from arranged import LEASE, NOON, HandClock, active
from hooks import Hook, hook

from gpu_tenant.doctor import examine
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.faces.cli.registry import command
from gpu_tenant.files.state_dir import Home
from gpu_tenant.ledger import Ledger


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def ledger(home: Path) -> Iterator[Ledger]:
    opened = Ledger(home / "ledger.sqlite3", HandClock())
    active(opened)
    yield opened
    opened.close()


@pytest.fixture
def phone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    with hook() as opened:
        monkeypatch.setenv("PHONE", f"json://127.0.0.1:{opened.port}/")
        yield opened


def configured(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text, encoding="utf-8")


def run(*argv: str) -> int:
    """The exit status of `gpu-tenant alarms` with those arguments."""
    try:
        command("alarms").main(list(argv), standalone_mode=False)
    except SystemExit as left:
        return int(str(left.code))
    except click.ClickException as error:
        return error.exit_code
    return 0


def test_open_alarms_are_listed_oldest_first_in_words_and_as_json(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    # This lease is found lost at the first look, and the news of its end outlives it.
    ledger.raise_alarm("ended", "it is over", level=Level.URGENT, lease_id=LEASE, at=NOON)
    ledger.raise_alarm("account:vastai", "no answer", level=Level.NOTICE, lease_id=None, at=NOON)

    assert run() == 0
    in_words = capsys.readouterr().out.splitlines()
    assert run("--json") == 0
    as_json = json.loads(capsys.readouterr().out)["alarms"]

    assert in_words[0].startswith(f"urgent: {LEASE} ended, for ")
    assert in_words[0].endswith(", told to nobody yet")
    assert in_words[1] == "  it is over"
    assert [each["about"] for each in as_json] == ["ended", "account:vastai"]
    assert [each["told"] for each in as_json] == [0, 0]


def test_what_a_look_finds_is_told_though_no_watchdog_has_opened_an_alarm(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lease's box is not on this computer, which the ledger does not know yet."""
    assert ledger.open_alarms() == []

    assert run() == 0

    told = capsys.readouterr().out
    assert told.startswith(f"seen now: {LEASE}: ")
    assert "no alarm is open" not in told


def test_a_test_goes_over_every_channel_whatever_it_wants_and_fails_where_one_does(
    home: Path, ledger: Ledger, phone: Hook, capsys: pytest.CaptureFixture[str]
) -> None:
    configured(
        home,
        '[notify.phone]\nurl = "env:PHONE"\nlevel = "urgent"\nquiet = "00:00-23:59"\n'
        '[notify.other]\nurl = "env:NOT_SET_ANYWHERE"\n[notify.third]\nurl = "none"\n',
    )
    ledger.raise_alarm("notify:phone", "x", level=Level.WARNING, lease_id=None, at=NOON)

    assert run("--test", "--json") == 1
    tried = json.loads(capsys.readouterr().out)["channels"]
    assert run("--test", "phone") == 0

    assert [(each["channel"], each["taken"]) for each in tried] == [
        ("phone", True),
        ("other", False),
        ("third", False),
    ]
    assert "no variable NOT_SET_ANYWHERE" in tried[1]["problem"]
    assert "`url` is not a reference" in tried[2]["problem"]
    assert capsys.readouterr().out == "phone: taken\n"
    assert [body["title"] for body in phone.bodies] == ["gpu-tenant: a test"] * 2
    assert ledger.open_alarms() == [], "it works again"


def test_a_channel_that_there_is_not_is_a_wrong_call(home: Path) -> None:
    configured(home, '[notify.phone]\nurl = "env:PHONE"\n')
    with pytest.raises(BadRequest, match=r"no channel 'fone' \(known: phone\)"):
        run("--test", "fone")


async def examined(home: Path, ledger: Ledger) -> dict[str, tuple[str, str]]:
    """What doctor says of the channels, by their names."""
    checkup = await examine(
        Home(home), ledger=ledger, profiles={}, connectors={}, environ=os.environ
    )
    return {f.subject: (f.level, f.words) for f in checkup.findings if "alarms" in f.subject}


async def test_doctor_names_each_channel_and_where_its_address_is_kept_and_sends_nothing(
    home: Path, ledger: Ledger, phone: Hook
) -> None:
    configured(
        home,
        '[notify.phone]\nurl = "env:PHONE"\nlevel = "warning"\nquiet = "23:00-07:00"\n'
        '[notify.mail]\nurl = "file:~/not-there"\n[notify.chat]\nurl = "cmd:pass chat"\n'
        '[notify.wrong]\nurl = "slack://a/b/c"\n',
    )
    ledger.raise_alarm(
        "notify:chat", "it answered 404", level=Level.WARNING, lease_id=None, at=NOON
    )

    found = await examined(home, ledger)

    assert found["alarms: phone"] == (
        "ok",
        "env:PHONE: sends warning and worse; in its quiet hours, only urgent ones",
    )
    assert found["alarms: mail"] == ("warning", "~/not-there does not exist")
    assert found["alarms: chat"] == ("warning", "it answered 404")
    assert found["alarms: wrong"][0] == "warning"
    assert "slack://" not in found["alarms: wrong"][1]
    assert phone.taken == []


async def test_doctor_says_where_alarms_go_when_no_channel_is_set_up(
    home: Path, ledger: Ledger
) -> None:
    found = await examined(home, ledger)

    assert found["alarms"] == (
        "ok",
        f"only `gpu-tenant alarms` shows them: no [notify.NAME] is in {home / 'config.toml'}",
    )
