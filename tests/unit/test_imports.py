"""The layers hold, and the contract that says so has teeth."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "mcp_server" / "gpu_tenant"


def lint(package: Path) -> subprocess.CompletedProcess[str]:
    """What import-linter says of `package`, by this repository's contracts."""
    return subprocess.run(
        [
            *(sys.executable, "-c", "from importlinter.cli import lint_imports_command as f; f()"),
            *("--no-cache", "--no-logo", "--config", str(ROOT / "pyproject.toml")),
        ],
        cwd=package.parent,
        env={**os.environ, "PYTHONPATH": str(package.parent), "COLUMNS": "200"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the package, to be spoilt."""
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(PACKAGE, tmp_path / "gpu_tenant", ignore=ignored))


def test_every_import_goes_down() -> None:
    linted = lint(PACKAGE)

    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_a_module_without_a_place_breaks_the_contract(copied: Path) -> None:
    (copied / "utils.py").write_text('"""Odds and ends."""\n', encoding="utf-8")

    linted = lint(copied)

    assert linted.returncode == 1
    assert "gpu_tenant.utils" in linted.stdout


UP_OR_SIDEWAYS = [
    ("domain/permit.py", "gpu_tenant.leases.verify"),
    ("domain/model.py", "gpu_tenant.domain.permit"),
    ("domain/reconcile.py", "gpu_tenant.ledger"),
    ("files/state_dir.py", "gpu_tenant.ledger"),
    ("ledger/leases.py", "gpu_tenant.transports.shell"),
    ("artifacts/collect.py", "gpu_tenant.leases.teardown"),
    ("artifacts/push.py", "gpu_tenant.jobs.launch"),
    ("service.py", "gpu_tenant.providers.local.connector"),
    ("service.py", "gpu_tenant.emulators.rehearsal_client"),
    ("leases/teardown.py", "gpu_tenant.transports.ssh"),
    ("faces/mcp/server.py", "gpu_tenant.providers.profiles"),
    ("providers/local/connector.py", "gpu_tenant.providers.own.connector"),
    ("providers/own/connector.py", "gpu_tenant.ledger"),
    ("app.py", "gpu_tenant.faces.cli"),
]


def test_imports_that_go_up_or_sideways_break_the_contract(copied: Path) -> None:
    """All at once, because each look at the whole package takes seconds; each is named."""
    for module, imported in UP_OR_SIDEWAYS:
        spoilt = copied / module
        spoilt.write_text(
            f"{spoilt.read_text(encoding='utf-8')}\n\nimport {imported}\n", encoding="utf-8"
        )

    linted = lint(copied)

    assert linted.returncode == 1
    assert "BROKEN" in linted.stdout
    told = " ".join(linted.stdout.split())
    for module, imported in UP_OR_SIDEWAYS:
        importer = f"gpu_tenant.{module.removesuffix('.py').replace('/', '.')}"
        assert f"{importer} -> {imported} (l." in told, (importer, imported)
