"""A secret is referred to, looked up when it is needed, and never repeated in an error."""

import sys
from pathlib import Path

import pytest

from gpu_tenant.credentials import resolve_all
from gpu_tenant.errors import BadRequest, SecretRefused, TenantError

SECRET = "hf_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zAbCd"


def resolved(assignment: str, environ: dict[str, str] | None = None) -> str:
    name = assignment.partition("=")[0]
    return resolve_all([assignment], environ or {})[name]


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


def test_a_reference_to_a_command_leads_to_what_it_prints() -> None:
    assert resolved(f"A=cmd:{sys.executable} -c 'print(\"of a vault\")'") == "of a vault"


def test_plain_words_are_plain_words() -> None:
    assert resolved("MODE=text:fast") == "fast"
    assert resolved("URL=text:http://host:80/a=b") == "http://host:80/a=b"
    assert resolved("EMPTY=text:") == ""


def test_every_entry_is_resolved_and_the_last_of_one_name_holds() -> None:
    assert resolve_all(["A=text:1", "B=env:X", "A=text:2"], {"X": "3"}) == {"A": "2", "B": "3"}


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
    "a command that fails": f"A=cmd:{sys.executable} -c 'import sys; sys.exit(3)'",
    "a command that is not there": "A=cmd:/not/there --token",
    "a command without words": "A=cmd:",
    "a command with an open quote": "A=cmd:echo 'half",
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
        resolve_all([assignment], {"X": "set"})

    assert "NAME=env:VARIABLE" in told.value.remedy


@pytest.mark.parametrize("written", [f"TOKEN={SECRET}", f"TOKEN=tok:{SECRET}", f"TOKEN={SECRET}:x"])
def test_an_error_never_repeats_what_may_be_the_secret(written: str) -> None:
    with pytest.raises(TenantError) as told:
        resolve_all([written], {})

    assert SECRET not in str(told.value)


def test_a_file_that_is_no_text_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\x00\xfe")

    with pytest.raises(BadRequest, match="cannot be read"):
        resolved(f"A=file:{tmp_path / 'key'}")
