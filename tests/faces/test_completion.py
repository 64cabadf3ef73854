"""A shell completes our commands, and the leases, quotes, platforms and jobs on record here."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from arranged import LEASE, active, job, quote
from click.shell_completion import ShellComplete

from gpu_tenant.faces.cli import group
from gpu_tenant.ledger import Ledger

SHELL = """
source {script}
COMP_WORDS=({line}) COMP_CWORD={at}
_gpu_tenant_completion gpu-tenant
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def completed(*words: str) -> list[str]:
    """What a shell is given for the last of these words."""
    *before, last = words
    found = ShellComplete(group, {}, "gpu-tenant", "_GPU_TENANT_COMPLETE")
    return [item.value for item in found.get_completions(before, last)]


def test_what_is_on_record_is_completed(state: Path) -> None:
    ledger = Ledger(state / "ledger.sqlite3")
    active(ledger)
    ledger.declare(job("train"))
    soon = ledger.now() + timedelta(minutes=10)
    ledger.file_quotes([quote().model_copy(update={"expires_at": soon})], at=ledger.now())

    assert completed("monitor", "") == [LEASE]
    assert completed("launch", "--lease", LEASE[:4]) == [LEASE]
    assert completed("monitor", LEASE, "--job", "t") == ["train"]
    assert completed("provision", "--quote", "") == [quote().id]
    assert completed("rehearse", "vast") == ["vastai"]
    assert completed("offers", "--on", "lambda") == ["lambda_cloud"]


def test_where_nothing_is_on_record_nothing_is_made(state: Path) -> None:
    assert completed("monitor", "") == []
    assert not state.exists()


def test_what_cannot_be_read_completes_nothing(state: Path) -> None:
    state.mkdir()
    (state / "ledger.sqlite3").write_text("no ledger")

    assert completed("monitor", "") == []


def test_a_shell_completes_after_the_installation_and_not_after_its_removal(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "gpu-tenant"
    around = {
        "HOME": str(tmp_path),
        "SHELL": "/bin/bash",
        "PATH": f"{program.parent}:/usr/bin:/bin",
    }

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(words, env=around, text=True, capture_output=True, check=False)

    assert run(str(program), "install", "completion", "--yes").returncode == 0
    script = tmp_path / ".local/share/bash-completion/completions/gpu-tenant"

    asked = SHELL.format(script=script, line="gpu-tenant tear", at=1)
    assert run("bash", "-c", asked).stdout.split() == ["teardown"]
    assert run(str(program), "install", "completion", "--remove", "--yes").returncode == 0
    assert not script.exists()


def test_another_file_at_its_place_stays(tmp_path: Path) -> None:
    theirs = tmp_path / ".config/fish/completions/gpu-tenant.fish"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("complete -c gpu-tenant")
    program = Path(sys.executable).parent / "gpu-tenant"

    ran = subprocess.run(
        [program, "install", "completion", "--shell", "fish", "--yes"],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        text=True,
        capture_output=True,
        check=False,
    )

    assert ran.returncode == 3
    assert "is not ours" in ran.stderr
    assert theirs.read_text() == "complete -c gpu-tenant"
