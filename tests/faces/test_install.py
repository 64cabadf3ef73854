"""`gpu-tenant install`: shown first, whole or not at all, nothing of anybody else's, and taken back exactly."""

import asyncio
import json
import os
import pty
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import Refused
from gpu_tenant.faces.cli import group
from gpu_tenant.faces.install.hosts import places as where
from gpu_tenant.files.skill_files import skill_directory

HOSTS = (*("claude", "codex", "cursor", "gemini", "kiro", "opencode", "vscode", "windsurf", "zed"),)
KEYS = {"opencode": "mcp", "vscode": "servers", "zed": "context_servers"}
SETTINGS = {
    "claude": (
        ".claude.json",
        '{\n  "numStartups": 3,\n  "mcpServers": {\n    "a": {"command": "x", "env": {"API_KEY": "sekret"}}\n  }\n}\n',
    ),
    "codex": (".codex/config.toml", 'model = "x" # mine\n\n[mcp_servers.a]\ncommand = "x"\n'),
    "cursor": (".cursor/mcp.json", '{"mcpServers": {"a": {"command": "x"}}}'),
    "gemini": (".gemini/settings.json", '{\n  // mine\n  "theme": "dark"\n}\n'),
    "kiro": (".kiro/settings/mcp.json", '{"mcpServers": {"a": {"command": "x"}}}'),
    "opencode": (
        ".config/opencode/opencode.json",
        '{\n  "theme": "dark", // mine\n  "mcp": {"a": {"type": "local", "command": ["x"]}}\n}\n',
    ),
    "windsurf": (".codeium/windsurf/mcp_config.json", '{"mcpServers": {"a": {"command": "x"}}}'),
    "zed": (
        ".config/zed/settings.json",
        '{\n  // mine\n  "context_servers": {"a": {"source": "custom", "command": "x"}}\n}\n',
    ),
    "vscode": (
        ".config/Code/User/mcp.json",
        '{\n\t"servers": {\n\t\t"a": {"command": "x"}, // mine\n\t}\n}\n',
    ),
}
SKILLS = {
    "claude": ".claude/skills",
    "codex": ".agents/skills",
    "cursor": ".cursor/skills",
    "gemini": ".gemini/skills",
    "kiro": ".kiro/skills",
    "opencode": ".config/opencode/skills",
    "vscode": ".copilot/skills",
    "windsurf": ".codeium/windsurf/skills",
    "zed": ".agents/skills",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "GPU_TENANT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "bin/gpu-tenant")])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/gpu-tenant").touch()
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(
        "gpu_tenant.faces.install.plan.skill_directory", lambda: a_skill(tmp_path / "skill")
    )
    return tmp_path / "home"


def a_skill(root: Path) -> Path:
    """A skill with a file of each kind; the real one has a hundred."""
    for name in (
        "SKILL.md",
        "references/errors.md",
        "profiles/local.md",
        "scripts/a.py",
        "scripts/__pycache__/a.pyc",
        "agents/openai.yaml",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name}\n", encoding="utf-8")
    return root


def install(*arguments: str) -> None:
    group.main(["install", *arguments], standalone_mode=False)


def settings(home: Path, host: str) -> Path:
    name, text = SETTINGS[host]
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text, encoding="utf-8")
    return home / name


def servers(host: str, file: Path) -> dict[str, dict[str, object]]:
    text = file.read_text(encoding="utf-8")
    if host == "codex":
        return dict(tomllib.loads(text)["mcp_servers"])
    plain = text.replace("// mine", "").replace("},\n\t}", "}\n\t}").replace("}, \n\t}", "}\n\t}")
    return dict(json.loads(plain)[KEYS.get(host, "mcpServers")])


def everything(home: Path) -> dict[str, str]:
    return {
        path.relative_to(home).as_posix(): f"-> {path.readlink()}"
        if path.is_symlink()
        else path.read_text(encoding="utf-8")
        if path.is_file()
        else "directory"
        for path in home.rglob("*")
    }


@pytest.mark.parametrize("host", HOSTS)
def test_without_a_terminal_and_without_yes_it_only_shows(
    host: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(home, host)
    before = everything(home)

    install(host)

    told = capsys.readouterr()
    assert everything(home) == before
    assert f"files of the skill, in {home}/{SKILLS[host]}/gpu-tenant (--json" in told.out
    assert f"+++ {home}/{SETTINGS[host][0]}\n" in told.out
    assert any(
        f"{start}command{end}" in told.out
        for start, end in (("+", ' = "'), ('"', '": "'), ('"', '": ["'))
    )
    assert "sekret" not in told.out
    assert "nothing was changed; with --yes it is" in told.err


@pytest.mark.parametrize("host", HOSTS)
def test_it_writes_the_skill_and_the_entry_and_leaves_the_rest(host: str, home: Path) -> None:
    file = settings(home, host)
    before = servers(host, file) if host != "gemini" else {}

    install(host, "--yes")

    found = servers(host, file)
    ours = found.pop("gpu")
    assert found == before
    program = str(home.parent / "bin/gpu-tenant")
    wanted = ([program, "serve"], None) if host == "opencode" else (program, ["serve"])
    assert (ours["command"], ours.get("args")) == wanted
    assert "mine" not in SETTINGS[host][1] or "mine" in file.read_text(encoding="utf-8")
    skill = home / SKILLS[host] / "gpu-tenant"
    assert (skill / "SKILL.md").read_text(encoding="utf-8") == "SKILL.md\n"
    assert (skill / "profiles/local.md").is_file()
    assert (skill / "agents/openai.yaml").exists() == (host == "codex")
    assert not list(skill.rglob("__pycache__"))


@pytest.mark.parametrize("host", HOSTS)
def test_a_second_run_changes_nothing_and_remove_takes_all_of_it_back(
    host: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(home, host)
    before = everything(home)
    install(host, "--yes")
    backup = file.with_name(file.name + ".before-gpu-tenant")
    assert backup.read_text(encoding="utf-8") == SETTINGS[host][1]
    installed = everything(home)

    install(host, "--yes")
    again = capsys.readouterr().err
    assert everything(home) == installed
    install(host, "--remove", "--yes")

    assert "nothing to change" in again
    assert everything(home) == before


@pytest.mark.parametrize("host", HOSTS)
def test_where_nothing_was_there_remove_leaves_nothing(host: str, home: Path) -> None:
    install(host, "--yes")
    assert stat.S_IMODE((home / SETTINGS[host][0]).stat().st_mode) == 0o600

    install(host, "--remove", "--yes")

    assert everything(home) == {}


def test_remove_leaves_what_somebody_changed_since(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(home, "claude")
    install("claude", "--yes")
    edited = home / ".claude/skills/gpu-tenant/references/errors.md"
    edited.write_text("my own\n", encoding="utf-8")
    file.write_text(file.read_text(encoding="utf-8").replace(": 3", ": 4"), encoding="utf-8")

    install("claude", "--remove", "--yes")

    assert file.read_text(encoding="utf-8") == SETTINGS["claude"][1].replace(": 3", ": 4")
    assert edited.read_text(encoding="utf-8") == "my own\n"
    assert "was changed after it was installed, so it is left as it is" in capsys.readouterr().err


def test_a_project_gets_its_own_and_a_user_keeps_theirs(home: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()

    install("codex", "--project", str(project), "--yes")
    install("codex", "--yes")
    install("codex", "--remove", "--yes")

    assert servers("codex", project / ".codex/config.toml")["gpu"]
    assert (project / ".agents/skills/gpu-tenant/SKILL.md").is_file()
    assert not (home / ".agents").exists()


def test_linked_directories_follow_the_skill_and_the_hub_is_a_file(
    home: Path, tmp_path: Path
) -> None:
    install("codex", "--link", "--yes")
    skill = home / ".agents/skills/gpu-tenant"
    linked = (skill / "references").readlink(), (skill / "SKILL.md").is_symlink()

    install("codex", "--remove", "--yes")

    assert linked == (tmp_path / "skill/references", False)
    assert not skill.exists()
    assert (tmp_path / "skill/references/errors.md").is_file()


def test_a_link_or_a_clone_of_ones_own_is_left_alone(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".claude/skills").mkdir(parents=True)
    (home / ".claude/skills/gpu-tenant").symlink_to(tmp_path)

    install("claude", "--yes")

    assert "a clone or a link of yours: it is left as it is" in capsys.readouterr().err
    assert not (tmp_path / "SKILL.md").exists()
    assert "gpu" in servers("claude", home / ".claude.json")


def test_what_somebody_added_to_our_entry_stays(home: Path) -> None:
    file = home / ".claude.json"
    own = {
        "type": "stdio",
        "command": "gpu-tenant",
        "args": ["serve", "--read-only"],
        "env": {"A": "b"},
    }
    file.write_text(json.dumps({"mcpServers": {"gpu": own}}), encoding="utf-8")

    install("claude", "--yes")
    changed = servers("claude", file)["gpu"]
    install("claude", "--remove", "--yes")

    assert changed == {**own, "command": str(home.parent / "bin/gpu-tenant")}
    assert json.loads(file.read_text(encoding="utf-8")) == {"mcpServers": {"gpu": own}}


def test_an_entry_that_stood_there_already_is_not_taken_away(home: Path) -> None:
    install("cursor", "--yes")
    (home / ".gpu-tenant/installed.json").unlink()
    text = (home / ".cursor/mcp.json").read_text(encoding="utf-8")

    install("cursor", "--yes")
    install("cursor", "--remove", "--yes")

    assert (home / ".cursor/mcp.json").read_text(encoding="utf-8") == text


def test_another_server_of_that_name_is_not_overwritten(home: Path) -> None:
    (home / ".cursor").mkdir()
    text = '{"mcpServers": {"gpu": {"url": "http://127.0.0.1:1"}}}'
    (home / ".cursor/mcp.json").write_text(text, encoding="utf-8")

    with pytest.raises(Refused, match="another server by the name of 'gpu'"):
        install("cursor", "--yes")

    assert everything(home) == {".cursor": "directory", ".cursor/mcp.json": text}


@pytest.mark.parametrize(
    ("host", "text", "line"),
    [
        ("claude", '{\n  "a": 1\n  "b": 2\n}', 3),
        ("codex", 'a = 1\nb = [\n"x"', 3),
        ("gemini", "[]\n", 1),
    ],
)
def test_settings_that_do_not_read_are_refused_with_their_line_and_nothing_is_changed(
    host: str, text: str, line: int, home: Path
) -> None:
    settings(home, host).write_text(text, encoding="utf-8")
    before = everything(home)

    with pytest.raises(
        Refused, match=rf"{SETTINGS[host][0]}, line {line}: .*; nothing was changed"
    ):
        install(host, "--yes")

    assert everything(home) == before


def test_settings_in_another_encoding_are_refused(home: Path) -> None:
    settings(home, "codex").write_bytes(b'a = 1\nb = "\xff"\n')

    with pytest.raises(Refused, match="line 2: it is not UTF-8"):
        install("codex", "--yes")


def test_links_and_modes_of_settings_stay(home: Path, tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles.json"
    kept.write_text("{}\n", encoding="utf-8")
    kept.chmod(0o640)
    (home / ".claude.json").symlink_to(kept)

    install("claude", "--yes")

    assert (home / ".claude.json").is_symlink()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640
    assert "gpu" in servers("claude", kept)


def test_a_newer_skill_takes_the_place_of_an_older_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = tmp_path / "newer"
    for name in ("SKILL.md", "references/new.md", "profiles/a.md", "scripts/a.py"):
        (newer / name).parent.mkdir(parents=True, exist_ok=True)
        (newer / name).write_text("new\n", encoding="utf-8")
    install("gemini", "--yes")
    monkeypatch.setattr("gpu_tenant.faces.install.plan.skill_directory", lambda: newer)

    install("gemini", "--yes")

    skill = home / ".gemini/skills/gpu-tenant"
    found = {p.relative_to(skill).as_posix() for p in skill.rglob("*") if p.is_file()}
    assert found == {"SKILL.md", "references/new.md", "profiles/a.md", "scripts/a.py"}


def test_hosts_that_were_moved_are_found_where_they_are(tmp_path: Path) -> None:
    moved = {"CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x", "XDG_CONFIG_HOME": "/g"}

    found = {
        host: where.places(host, user=tmp_path, project=None, environ=moved).settings
        for host in ("claude", "codex", "vscode")
    }

    assert {host: str(path) for host, path in found.items()} == {
        "claude": "/c/.claude.json",
        "codex": "/x/config.toml",
        "vscode": "/g/Code/User/mcp.json",
    }


def test_the_answer_as_json_holds_the_changes_and_the_diff(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install("cursor", "--json")

    told = json.loads(capsys.readouterr().out)
    assert told["done"] is False
    assert {"path": str(home / ".cursor/mcp.json"), "does": "writes"} in told["changes"]
    assert '+    "gpu": {' in told["diff"]


@pytest.mark.parametrize(("reply", "done"), [("n\n", False), ("y\n", True)])
def test_at_a_terminal_it_asks(reply: str, done: bool, home: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, reply.encode())
    ran = subprocess.run(
        [sys.executable, "-m", "gpu_tenant", "install", "vscode"],
        stdin=theirs,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        encoding="utf-8",
        check=True,
        timeout=120,
    )
    os.close(ours)
    os.close(theirs)

    assert "make these changes? [y/N]" in ran.stderr
    written = home / ".copilot/skills/gpu-tenant/SKILL.md"
    assert (home / ".config/Code/User/mcp.json").exists() == written.exists() == done
    assert not done or written.read_bytes() == (skill_directory() / "SKILL.md").read_bytes()


# The program stays, and starts


@pytest.mark.parametrize(
    ("installer", "asked", "what", "line"),
    [
        ("uv", "cache dir", "claude", "uv tool install "),
        ("pipx", "environment --value PIPX_VENV_CACHEDIR", "watchdog", "pipx install "),
    ],
)
def test_a_program_in_a_cache_is_not_written_down_and_the_remedy_installs_it_first(
    installer: str,
    asked: str,
    what: str,
    line: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executable(tmp_path / "tools" / installer, f'[ "$*" = "{asked}" ] && echo "{tmp_path}/bin"')
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    monkeypatch.delenv("UV", raising=False)
    before = everything(home)

    with pytest.raises(Refused, match=f"in {installer}'s cache, {tmp_path}/bin, which") as refused:
        install(what, "--yes")

    assert refused.value.remedy.startswith(f"`{line}")
    assert refused.value.remedy.endswith(f"`, then `gpu-tenant install {what}`")
    assert everything(home) == before


async def test_doctor_says_of_what_was_installed_whether_it_still_starts(
    home: Path, tmp_path: Path
) -> None:
    program = executable(tmp_path / "bin/gpu-tenant", '[ "$1" = --version ]')
    (tmp_path / "project").mkdir()
    assert await examined(home) == {}
    await asyncio.to_thread(install, "claude", "--yes")
    await asyncio.to_thread(install, "codex", "--project", str(tmp_path / "project"), "--yes")
    both = ("installed: claude", f"installed: codex --project {tmp_path}/project")

    assert await examined(home) == dict.fromkeys(both, ("ok", f"{program} starts"))

    program.unlink()
    for level, words in (await examined(home)).values():
        assert level == "warning"
        assert words.startswith(f"{program} does not start: ")
    assert (
        "install gpu-tenant again, and then into claude again" in (await examined(home))[both[0]][1]
    )


def executable(path: Path, line: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


async def examined(home: Path) -> dict[str, tuple[str, str]]:
    """What doctor says of what was installed."""
    tenancy = open_tenancy({"HOME": str(home), "PATH": os.environ["PATH"]})
    findings = (await tenancy.doctor()).findings
    await tenancy.aclose()
    return {f.subject: (f.level, f.words) for f in findings if f.subject.startswith("installed")}
