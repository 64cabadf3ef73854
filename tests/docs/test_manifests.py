"""A clone is a skill and a plugin in every host: the manifests say the same, and what they start starts."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from docs.manifests import ALIAS, MANIFESTS, NAME, PROJECT, REPOSITORY, ROOT, SHELF, START

SHELL = shutil.which("dash") or "/bin/sh"


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_generated_manifests_are_fresh(name: str) -> None:
    """`make docs` writes them."""
    fresh, file = MANIFESTS[name](), ROOT / name
    if os.environ.get("GPU_TENANT_SNAPSHOTS") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(fresh, encoding="utf-8")

    assert file.read_text(encoding="utf-8") == fresh


def test_nothing_lies_beside_the_generated_copy_of_the_skill() -> None:
    lying = {p.relative_to(ROOT).as_posix() for p in (ROOT / "skills").rglob("*") if p.is_file()}

    assert lying == {name for name in MANIFESTS if name.startswith("skills/")}


def test_every_manifest_tells_the_same_name_version_and_description() -> None:
    told = [
        json.loads((ROOT / name).read_text(encoding="utf-8"))
        for name in MANIFESTS
        if name.endswith("plugin.json")
    ]

    assert len(told) == 2
    for about in told:
        assert (about["name"], about["version"]) == (NAME, PROJECT["version"])
        assert about["description"] == PROJECT["description"]


def test_the_registry_finds_the_same_server_in_the_readme() -> None:
    entry = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
    (package,) = entry["packages"]

    assert f"<!-- mcp-name: {entry['name']} -->" in (ROOT / "README.md").read_text("utf-8")
    assert (package["identifier"], package["version"]) == (NAME, entry["version"])
    assert len(entry["description"]) <= 100
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])


def test_one_setting_says_where_it_lives() -> None:
    told = {name: (ROOT / name).read_text(encoding="utf-8") for name in MANIFESTS}

    for name in (".claude-plugin/plugin.json", "server.json", "CITATION.cff"):
        assert REPOSITORY in told[name]
    ours = re.compile(r"https://github\.com/[\w.-]+/gpu-tenant\b")
    assert {url for text in told.values() for url in ours.findall(text)} == {REPOSITORY}


def test_the_bundle_has_what_its_server_needs_and_nothing_of_the_tests(tmp_path: Path) -> None:
    packer = ROOT / "mcp_server/packaging/bundle.py"
    for target in ("one", "two"):
        subprocess.run([sys.executable, packer, tmp_path / target], check=True)

    with ZipFile(tmp_path / "one") as bundle:
        names = set(bundle.namelist())
        manifest = json.loads(bundle.read("manifest.json"))
        started = bundle.getinfo(START)
    assert manifest["server"]["entry_point"] == START
    assert started.external_attr >> 16 & 0o100, "it may be run"
    needed = {"pyproject.toml", "README.md", "LICENSE", "scripts/requirements.lock", "SKILL.md"}
    assert needed | {"mcp_server/gpu_tenant/__main__.py"} <= names
    assert not [name for name in names if name.startswith(("tests/", "evals/", "."))]
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_what_the_manifests_start_is_there_and_may_be_run() -> None:
    stated = json.loads((ROOT / "mcp.json").read_text(encoding="utf-8"))["mcpServers"][ALIAS]

    assert stated["command"] == f"./{START}"
    assert os.access(ROOT / START, os.X_OK)


def test_the_copy_of_the_skill_leads_to_the_same_files() -> None:
    copied = (ROOT / SHELF / "SKILL.md").read_text(encoding="utf-8")

    assert "(../../references/" in copied
    assert copied.replace("../../", "") == (ROOT / "SKILL.md").read_text(encoding="utf-8")


def test_what_codex_shows_fits_where_it_shows_it() -> None:
    shown = yaml.load((ROOT / "agents/openai.yaml").read_text(encoding="utf-8"), yaml.SafeLoader)  # noqa: TID251 - not a profile

    assert 25 <= len(shown["interface"]["short_description"]) <= 64
    assert f"${NAME}" in shown["interface"]["default_prompt"]
    assert "command" not in shown["dependencies"]["tools"][0]


# The file that starts the server


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "clone/scripts").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / START, tmp_path / "clone" / START)
    (tmp_path / "clone/pyproject.toml").touch()
    return tmp_path / "clone"


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def start(clone: Path, *more: str) -> subprocess.CompletedProcess[str]:
    path = f"{clone.parent / 'bin'}:/usr/bin:/bin"
    return subprocess.run(
        [SHELL, str(clone / START), *more],
        cwd="/",
        env={"PATH": path, "HOME": str(clone.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def test_the_clones_own_server_goes_before_an_installed_one(clone: Path) -> None:
    program(clone.parent / "bin/gpu-tenant", 'echo installed "$@"')
    program(clone / ".venv/bin/gpu-tenant", 'echo own "$@"')

    assert start(clone, "--read-only").stdout == "own serve --read-only\n"


def test_another_program_of_that_name_is_not_started(clone: Path) -> None:
    program(clone.parent / "bin/gpu-tenant", 'echo installed "$@"')
    program(clone.parent / "bin/uv", UV.format(own=clone / ".venv/bin"))

    assert start(clone).stdout == "set up serve\n"


UV = """echo noise
case $1 in
  venv) mkdir -p {own} ;;
  pip) printf '#!/bin/sh\\necho set up "$@"\\n' >{own}/gpu-tenant; chmod +x {own}/gpu-tenant; echo "$@" >>{own}/times ;;
esac"""


def test_the_first_start_sets_the_clone_up_and_keeps_stdout_for_the_server(clone: Path) -> None:
    own = clone / ".venv/bin"
    program(clone.parent / "bin/uv", UV.format(own=own))

    first, second = start(clone), start(clone)

    assert (first.stdout, second.stdout) == ("set up serve\n", "set up serve\n")
    assert "first start: setting up" in first.stderr
    pinned, itself = (own / "times").read_text(encoding="utf-8").splitlines()
    assert "--require-hashes" in pinned
    assert "--no-deps" in itself
    assert not (clone / ".venv.lock").exists()


def test_a_setup_that_died_is_taken_over(clone: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    (clone / ".venv.lock").mkdir()
    (clone / ".venv.lock/pid").write_text(str(gone.pid), encoding="utf-8")
    program(clone.parent / "bin/uv", UV.format(own=clone / ".venv/bin"))

    assert start(clone).stdout == "set up serve\n"


def test_a_setup_that_fails_says_so_on_stderr_and_leaves_no_lock(clone: Path) -> None:
    program(clone.parent / "bin/uv", "echo no network; exit 2")

    failed = start(clone)

    assert (failed.returncode != 0, failed.stdout) == (True, "")
    assert "no network" in failed.stderr
    assert not (clone / ".venv.lock").exists()


def test_a_copy_of_the_skill_alone_says_what_to_install(clone: Path) -> None:
    (clone / "pyproject.toml").unlink()

    alone = start(clone)

    assert (alone.returncode, alone.stdout) == (1, "")
    assert "pip install gpu-tenant" in alone.stderr
