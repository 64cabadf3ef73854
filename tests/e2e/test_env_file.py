"""A job gets the variables of a `.env` file on this computer, and no value of it is written down anywhere."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from e2e.leased import command, end_processes
from e2e.owner import Owner, error_of

SECRET = "q8Zr2" + "TkWm5XbN7cVp"
PROVES = (
    'mkdir out; printf %s "$API_TOKEN" | python3 -c \'import hashlib, sys;'
    ' print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())\' >out/seen; printf %s "$MODE" >out/mode'
)


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").touch()
    (tree / "prod.env").write_text(
        f'# of the team\nexport API_TOKEN="{SECRET}"\nMODE=fast # for now\n\n', encoding="utf-8"
    )
    yield Owner(tmp_path / "state", tree)
    end_processes(tmp_path / "state" / "boxes")


def test_a_job_has_what_a_file_of_variables_says_and_no_record_has_it(owner: Owner) -> None:
    lease = owner.has_box()
    words = ("--lease", lease, "--artifact", "out/", "--env", "MODE=text:slow")
    owner.does_signed("launch", *words, "--env-file", str(owner.tree / "prod.env"), "--", PROVES)
    owner.sees_the_end(lease)

    out = owner.work(lease) / "out"
    assert (out / "seen").read_text("ascii").strip() == sha256(SECRET.encode()).hexdigest()
    assert (out / "mode").read_text("ascii") == "slow"
    owner.does("collect", lease)
    holding = [
        path
        for path in owner.state.rglob("*")
        if path.is_file()
        if SECRET.encode() in path.read_bytes()
    ]
    assert holding == []


def test_a_run_has_it_too_and_a_file_of_variables_is_not_pushed(owner: Owner) -> None:
    (owner.tree / ".gitignore").write_text("*.env\n", encoding="utf-8")
    words = ("--dir", str(owner.tree), "--on", "local", "--artifact", "out/", "--smoke", "true")
    said = owner.does_signed(
        "run", *words, "--yes", "--env-file", str(owner.tree / "prod.env"), "--json", "--", PROVES
    )

    assert SECRET not in said
    lease = json.loads(said)["lease"]
    kept = owner.state / "kept" / lease / "work"
    assert (kept / "out" / "seen").read_text("ascii").strip() == sha256(SECRET.encode()).hexdigest()
    assert not (kept / "prod.env").exists()


@pytest.mark.parametrize("name", ["prod.env", "notes.txt"])
def test_a_push_refuses_a_file_of_secrets_by_its_name_and_by_its_lines(
    owner: Owner, name: str
) -> None:
    lease = owner.has_box()
    (owner.tree / "prod.env").rename(owner.tree / name)

    status, _, err = command("push", str(owner.tree), lease)

    assert status != 0
    assert f"these files look like secrets: {name} (" in error_of(err, "SECRET_REFUSED")
    assert SECRET not in err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (f"A=1\nwhat is {SECRET}\n", "line 2"),
        (f"A={SECRET}\0\n", "cannot be read"),
        (f"RUNPOD_API_KEY={SECRET}\n", "your own keys"),
    ],
)
def test_a_file_that_is_refused_repeats_no_value(owner: Owner, content: str, told: str) -> None:
    lease = owner.has_box()
    file = owner.tree / "bad.env"
    file.write_text(content, encoding="utf-8")

    status, out, err = command(
        "launch", "--lease", lease, "--artifact", "out/", "--env-file", str(file), "--", "true"
    )

    assert status != 0
    assert told in err
    assert error_of(err, "SECRET_REFUSED" if "own keys" in told else "BAD_REQUEST")
    assert SECRET not in out + err
