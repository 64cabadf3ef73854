"""The command line: data on stdout, words on stderr, an exit status that tells the kind of failure."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_tenant.faces.cli import SUMMARIES


def run(home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpu_tenant", *argv],
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        check=False,
        timeout=120,
    )


def loaded_by(home: Path, *argv: str) -> set[str]:
    """The modules that the command had imported when it ended."""
    watched = f"import sys, gpu_tenant.faces.cli as c; c.sys.argv = ['gpu-tenant', *{argv!r}]\ntry: c.main()\nfinally: print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run(
        [sys.executable, "-c", watched],
        capture_output=True,
        encoding="utf-8",
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        check=True,
    )
    return set(ran.stderr.split())


RECORDS = {"pydantic", "sqlite3", "asyncio", "rich", "gpu_tenant.app", "gpu_tenant.domain.model"}
"""What a command needs to answer, and its help does not."""

HEAVY = {
    *("asyncssh", "httpx", "jinja2", "jsonschema", "markdown_it", "mcp", "rich", "starlette"),
    *("uvicorn", "webauthn", "yaml", "tomlkit", "apprise", "difflib"),
    *("gpu_tenant.answers", "gpu_tenant.doctor", "gpu_tenant.files.secret_scan"),
    *(
        "gpu_tenant.domain.errand",
        "gpu_tenant.domain.evidence",
        "gpu_tenant.domain.sweep_placement",
    ),
    *("gpu_tenant.leases.verify", "gpu_tenant.leases.teardown", "gpu_tenant.leases.rent"),
    *("gpu_tenant.artifacts.collect", "gpu_tenant.artifacts.formats", "gpu_tenant.jobs.smoke"),
    *("gpu_tenant.jobs.launch", "gpu_tenant.box.guard"),
    *("gpu_tenant.box.audit.probe", "gpu_tenant.sweeps.commands", "gpu_tenant.transfer.download"),
    *("gpu_tenant.providers.http_client", "gpu_tenant.providers.slurm.connector"),
    *("gpu_tenant.providers.kubernetes.connector", "gpu_tenant.transports.ssh"),
}
"""What takes long to import, and what a command that only shows something needs none of."""


def test_help_lists_every_verb_and_imports_nothing_heavy(tmp_path: Path) -> None:
    ran = run(tmp_path, "--help")

    assert all(verb in ran.stdout for verb in SUMMARIES)
    assert "Exit status" in ran.stdout
    assert not (RECORDS | HEAVY | {"gpu_tenant.faces.cli.registry"}) & loaded_by(tmp_path, "--help")


@pytest.mark.parametrize("verb", ["offers", "leases", "monitor", "terms", "launch", "profiles"])
def test_the_help_of_a_verb_imports_nothing_of_a_tenancy(verb: str, tmp_path: Path) -> None:
    assert not (RECORDS | HEAVY) & loaded_by(tmp_path, verb, "--help")


@pytest.fixture(scope="module")
def at_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of somebody who has a lease with a job on it."""
    home = tmp_path_factory.mktemp("at_work")
    provisioned = run(home, "provision", "--smoke", "none")
    assert provisioned.returncode == 0, provisioned.stderr
    (home / "tree").mkdir()
    run(home, "push", str(home / "tree"))
    launched = run(home, "launch", "--artifact", "out/", "--", "true")
    assert launched.returncode == 0, launched.stderr
    yield home
    run(home, "stop")
    run(home, "collect")
    run(home, "teardown")


@pytest.mark.parametrize(
    "shows", ["leases", "leases --all --limit 5", "terms", "profiles", "alarms", "monitor"]
)
def test_a_command_that_shows_something_imports_what_it_shows_and_no_more(
    shows: str, at_work: Path
) -> None:
    # A look at a job asks the caretaker, which can also seal.
    seals = set() if shows == "monitor" else {"gpu_tenant.domain.seal"}
    # There are no volumes here.
    volumes = {"gpu_tenant.leases.volumes", "gpu_tenant.leases.spending_limits"}
    loaded = loaded_by(at_work, *shows.split())
    assert sorted((HEAVY | seals | volumes) & loaded) == []


@pytest.mark.parametrize("verb", SUMMARIES)
def test_every_verb_explains_itself(verb: str, tmp_path: Path) -> None:
    ran = run(tmp_path, verb, "--help")

    assert ran.returncode == 0
    assert SUMMARIES[verb].split(",")[0].split(":")[0] in " ".join(ran.stdout.split())


def test_an_error_has_a_hint_and_the_status_of_its_kind(tmp_path: Path) -> None:
    ran = run(tmp_path, "monitor", "nobody")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines() == [
        "error: UNKNOWN_LEASE: no lease 'nobody' is in the ledger",
        "hint: `gpu-tenant leases --all` lists them",
    ]


def test_json_is_the_same_record_that_the_server_answers(tmp_path: Path) -> None:
    made = json.loads(run(tmp_path, "provision", "--smoke", "none", "--json").stdout)
    listed = json.loads(run(tmp_path, "leases", "--json").stdout)
    ended = json.loads(run(tmp_path, "teardown", "--json").stdout)

    assert [card["lease"] for card in listed["leases"]] == [made["lease"]]
    assert ended["receipt"]["ground"] == "never_used"
    assert ended["receipt"]["cost_usd"] is None, "unknown is not zero"


def test_a_failed_smoke_test_ends_with_status_1_and_shows_why(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.py").write_text("import nothing_of_that_name\n", encoding="utf-8")

    ran = run(tmp_path, "smoke", str(tree), "--", "python3", "a.py")

    assert ran.returncode == 1
    assert "No module named 'nothing_of_that_name'" in ran.stderr
    assert not list(tree.glob("__pycache__")), "it ran in a copy"


def test_a_box_is_refused_without_a_passed_smoke_test(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.sh").write_text("exit 3\n", encoding="utf-8")
    failed = json.loads(run(tmp_path, "smoke", str(tree), "--json", "--", "sh", "a.sh").stdout)

    without = run(tmp_path, "provision")
    with_a_failed_one = run(tmp_path, "provision", "--smoke", failed["id"])

    assert without.returncode == with_a_failed_one.returncode == 3
    assert "did not pass" in with_a_failed_one.stderr
    assert json.loads(run(tmp_path, "leases", "--all", "--json").stdout)["leases"] == []


def test_a_first_order_is_written_once_and_is_in_force_there(tmp_path: Path) -> None:
    made = run(tmp_path, "init", str(tmp_path))
    again = run(tmp_path, "init", str(tmp_path))
    order = tmp_path / "gpu-tenant.toml"
    order.write_text("imgae = 'a'\n", encoding="utf-8")
    wrong = subprocess.run(
        [sys.executable, "-m", "gpu_tenant", "offers"],
        capture_output=True,
        encoding="utf-8",
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        cwd=tmp_path,
        check=False,
        timeout=120,
    )
    form = run(tmp_path, "init", "--schema")

    assert made.returncode == 0, made.stderr
    assert again.returncode == 2
    assert "left as it is" in again.stderr
    assert wrong.returncode == 2
    assert "did you mean `image`?" in wrong.stderr
    assert "image" in json.loads(form.stdout)["properties"]
