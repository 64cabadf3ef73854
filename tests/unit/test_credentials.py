"""A secret is referred to, looked up when it is needed, and never repeated in an error."""

import dataclasses
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from arranged import profile, setting

from gpu_tenant.domain.errors import (
    BadRequest,
    CredentialRefused,
    LocalTrouble,
    SecretRefused,
    TenantError,
)
from gpu_tenant.domain.model import CredentialPlace
from gpu_tenant.domain.ports import Credential
from gpu_tenant.process_hardening import UNATTENDED
from gpu_tenant.providers.credentials import KeyPlaces, find_credential, resolve_all

SECRET = "hf_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zAbCd"


PLACES = KeyPlaces(
    frozenset({"VAST_API_KEY"}), (Path("/nowhere/keys"),), Path("/nowhere/config.toml")
)


def resolved(assignment: str, environ: dict[str, str] | None = None) -> str:
    name = assignment.partition("=")[0]
    return resolve_all([assignment], environ or {}, key_places=PLACES)[name]


def test_a_reference_to_a_variable_leads_to_its_value() -> None:
    assert resolved("HF_TOKEN=env:MY_TOKEN", {"MY_TOKEN": SECRET}) == SECRET


def test_a_reference_to_a_file_leads_to_its_text_without_the_last_line_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n", encoding="utf-8")

    assert resolved(f"HF_TOKEN=file:{tmp_path / 'token'}") == SECRET


def test_a_reference_to_a_file_below_the_home_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "token").write_text(SECRET, encoding="utf-8")

    assert resolved("HF_TOKEN=file:~/token") == SECRET


def listed(tmp_path: Path, command: str) -> KeyPlaces:
    """The places of keys, whose owner has written that command down as `vault`."""
    (tmp_path / "config.toml").write_text(
        f"[references]\nvault = {json.dumps(f'cmd:{command}')}\n", encoding="utf-8"
    )
    return replace(PLACES, configuration=tmp_path / "config.toml")


def test_a_reference_to_a_command_leads_to_what_it_prints(tmp_path: Path) -> None:
    command = f"{sys.executable} -c 'print(\"of a vault\")'"
    places = listed(tmp_path, command)

    assert resolve_all([f"A=cmd:{command}"], {}, key_places=places) == {"A": "of a vault"}
    assert resolve_all(["A=ref:vault"], {}, key_places=places) == {"A": "of a vault"}


@pytest.mark.parametrize(
    "command",
    [f"{sys.executable} -c 'import sys; sys.exit(3)'", "/not/there --token", "", "echo 'half"],
)
def test_a_command_that_does_not_run_leads_nowhere(tmp_path: Path, command: str) -> None:
    with pytest.raises(BadRequest, match="leads nowhere"):
        resolve_all(["A=ref:vault"], {}, key_places=listed(tmp_path, command))


def test_plain_words_are_plain_words() -> None:
    assert resolved("MODE=text:fast") == "fast"
    assert resolved("URL=text:http://host:80/a=b") == "http://host:80/a=b"
    assert resolved("EMPTY=text:") == ""


def test_every_entry_is_resolved_and_the_last_of_one_name_holds() -> None:
    assert resolve_all(["A=text:1", "B=env:X", "A=text:2"], {"X": "3"}, key_places=PLACES) == {
        "A": "2",
        "B": "3",
    }


def test_a_secret_that_is_written_out_is_refused_and_not_repeated() -> None:
    with pytest.raises(SecretRefused) as told:
        resolved(f"HF_TOKEN=text:{SECRET}")

    assert SECRET not in str(told.value)
    assert "HF_TOKEN=env:HF_TOKEN" in told.value.remedy


NOWHERE = {
    "a variable that is not set": "A=env:NOT_SET",
    "an empty variable name": "A=env:",
    "a file that is not there": "A=file:/not/there",
    "a folder": "A=file:/",
    "a keyring entry that is not there": "A=keyring:gpu-tenant-tests/nobody",
    "no reference": "A=plain",
    "an unknown kind": "A=vault:secret/a",
    "no value": "A",
    "no name": "=env:A",
    "a name that is none": "A-B=env:X",
    "a name that begins with a digit": "1A=env:X",
    "a name in letters no shell knows": "É=env:X",
}


@pytest.mark.parametrize("assignment", NOWHERE.values(), ids=NOWHERE)
def test_a_reference_that_leads_nowhere_says_so_and_how_to_write_one(assignment: str) -> None:
    with pytest.raises(BadRequest) as told:
        resolve_all([assignment], {"X": "set"}, key_places=PLACES)

    assert "NAME=env:VARIABLE" in told.value.remedy


@pytest.mark.parametrize("written", [f"TOKEN={SECRET}", f"TOKEN=tok:{SECRET}", f"TOKEN={SECRET}:x"])
def test_an_error_never_repeats_what_may_be_the_secret(written: str) -> None:
    with pytest.raises(TenantError) as told:
        resolve_all([written], {}, key_places=PLACES)

    assert SECRET not in str(told.value)


def test_a_file_that_is_no_text_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\x00\xfe")

    with pytest.raises(BadRequest, match="cannot be read"):
        resolved(f"A=file:{tmp_path / 'key'}")


# Where a provider's key lies

KEY = "k-3f9a-not-for-anybody-else"
PLACE = CredentialPlace(env=("TINY_API_KEY", "TINY_TOKEN"), file="~/.tiny/key")
TINY = profile("tiny").model_copy(update={"title": "Tiny", "credential": PLACE})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with nothing in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def found(home: Path, environ: dict[str, str] | None = None) -> Credential:
    credential = find_credential(TINY, home / "config.toml", environ or {})
    assert credential is not None
    return credential


def configure(home: Path, reference: str) -> None:
    (home / "config.toml").write_text(f"[credentials]\ntiny = '{reference}'\n", encoding="utf-8")


def test_the_owner_s_word_comes_first_then_the_variables_in_order_then_the_file(
    home: Path,
) -> None:
    (home / ".tiny").mkdir()
    (home / ".tiny" / "key").write_text("from the file\n", encoding="utf-8")
    in_file = found(home)
    second = found(home, {"TINY_TOKEN": "second"})
    first = found(home, {"TINY_TOKEN": "second", "TINY_API_KEY": "first"})
    configure(home, "env:MINE")
    mine = found(home, {"TINY_API_KEY": "first", "MINE": "mine"})

    assert [(x.source, x.read()) for x in (in_file, second, first, mine)] == [
        ("file:~/.tiny/key", "from the file"),
        ("env:TINY_TOKEN", "second"),
        ("env:TINY_API_KEY", "first"),
        ("env:MINE", "mine"),
    ]


def test_a_variable_that_is_set_to_nothing_is_not_set(home: Path) -> None:
    assert find_credential(TINY, home / "config.toml", {"TINY_API_KEY": ""}) is None


def test_a_key_that_is_nowhere_and_a_platform_that_needs_none_have_no_credential(
    home: Path,
) -> None:
    configure(home, "env:MINE")

    assert find_credential(TINY, home / "none.toml", {}) is None
    assert find_credential(profile("local"), home / "config.toml", {"TINY_TOKEN": "x"}) is None


def test_a_key_is_read_when_it_is_needed_and_then_only_once(home: Path) -> None:
    environ = {"TINY_API_KEY": "old"}
    credential = found(home, environ)

    environ["TINY_API_KEY"] = "new"
    first = credential.read()
    environ["TINY_API_KEY"] = "newer"

    assert (first, credential.read()) == ("new", "new")


@pytest.mark.parametrize("padded", [f"{KEY}\n", f"  {KEY}\r\n", f"{KEY} "])
def test_a_key_is_read_without_the_space_around_it(home: Path, padded: str) -> None:
    assert found(home, {"TINY_API_KEY": padded}).read() == KEY


@pytest.mark.parametrize(
    "reference", ["env:NOT_SET", "file:/not/there", "cmd:/not/there", "env:EMPTY", "text:", "env:"]
)
def test_a_place_without_a_key_is_told_when_the_key_is_needed_and_not_before(
    home: Path, reference: str
) -> None:
    configure(home, reference)
    credential = found(home, {"EMPTY": " \n"})

    with pytest.raises(CredentialRefused, match="the key of Tiny"):
        credential.read()


def test_the_key_is_in_no_representation_of_its_credential_or_of_who_holds_it(home: Path) -> None:
    credential = found(home, {"TINY_API_KEY": KEY})
    credential.read()
    held = dataclasses.replace(setting(home, "tiny"), credential=credential)

    assert KEY not in f"{credential!r} {credential} {held!r} {dataclasses.asdict(credential)}"
    assert "env:TINY_API_KEY" in repr(credential)


@pytest.mark.parametrize("written", [KEY, f"{KEY}:x", f"ENV:{KEY}"])
def test_a_key_that_was_written_into_the_configuration_is_refused_and_not_repeated(
    home: Path, written: str
) -> None:
    configure(home, written)
    credential = found(home)

    with pytest.raises(CredentialRefused, match="is not a reference") as told:
        credential.read()

    assert credential.source == "the configuration"
    assert KEY not in f"{credential!r} {told.value} {told.value!r}"


@pytest.mark.parametrize("text", ["[credentials", "credentials = 'x'", "credentials = [1]", "\xff"])
def test_a_configuration_that_does_not_say_where_keys_lie_is_told(home: Path, text: str) -> None:
    (home / "config.toml").write_bytes(text.encode("latin-1"))

    with pytest.raises(LocalTrouble, match=r"config\.toml"):
        find_credential(TINY, home / "config.toml", {"TINY_API_KEY": KEY})


# The keys of the account


@pytest.mark.parametrize(
    "assignment",
    [
        "X=env:VAST_API_KEY",
        "X=file:/nowhere/keys",
        "X=file:/nowhere/keys/vast",
        "X=file:/nowhere/there/../keys/vast",
    ],
)
def test_the_key_of_an_account_goes_to_no_box(assignment: str) -> None:
    with pytest.raises(SecretRefused, match="the key of your account") as told:
        resolved(assignment, {"VAST_API_KEY": SECRET})

    assert SECRET not in str(told.value)


def test_a_command_that_gives_a_value_runs_without_the_keys_and_cannot_sign(tmp_path: Path) -> None:
    program = "sh -c 'echo $VAST_API_KEY:$GPU_TENANT_HOME:$MINE:$GPU_TENANT_UNATTENDED'"
    environ = {
        "VAST_API_KEY": SECRET,
        "GPU_TENANT_HOME": "/h",
        "MINE": "ours",
        "PATH": "/bin:/usr/bin",
    }

    assert resolve_all(["X=ref:vault"], environ, key_places=listed(tmp_path, program)) == {
        "X": "::ours:1"
    }
    assert PLACES.without(environ) == {"MINE": "ours", "PATH": "/bin:/usr/bin", UNATTENDED: "1"}
