"""`gpu-tenant install watchdog`: shown first, started by what the computer has, and taken back exactly."""

import configparser
import json
import os
import plistlib
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from parts import required

from gpu_tenant.app import known_platforms
from gpu_tenant.domain.errors import BadRequest, LocalTrouble, Refused
from gpu_tenant.faces.cli import group
from gpu_tenant.files.rehearsal_marker import Rehearsal, put_rehearsal

NAME = "gpu-tenant-watchdog"
UNIT = f".config/systemd/user/{NAME}.service"
LINK = f".config/systemd/user/default.target.wants/{NAME}.service"
PLIST = f"Library/LaunchAgents/{NAME}.plist"

PLATFORMS = cache(known_platforms)
"""The real ones; a third of a second each time."""

PROGRAM = '#!/bin/sh\n[ "$1" = --version ]\n'
STUB_CRONTAB = """\
#!/bin/sh
# A stub: the table is a file beside it.
table="$(dirname "$0")/table"
case "$1" in
  -l) [ -f "$table" ] && exec cat "$table"; echo "no crontab for me" >&2; exit 1 ;;
  -r) exec rm "$table" ;;
  -) exec cat >"$table" ;;
esac
"""
STUB_CONTROL = """\
#!/bin/sh
# A stub: it notes what it is asked, and the service runs once it was started.
here="$(dirname "$0")"
echo "$(basename "$0") $*" >>"$here/asked"
case "$*" in
  *is-active*|print*) [ -f "$here/running" ] ;;
  *restart*|bootstrap*) [ ! -f "$here/broken" ] || { echo "no such thing" >&2; exit 1; }; touch "$here/running" ;;
  *stop*|bootout*) rm -f "$here/running" ;;
esac
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [n for n in os.environ if n.startswith(("GPU_TENANT_", "XDG_", "SSL_", "HTTPS_"))]:
        monkeypatch.delenv(name)
    for name in ("https_proxy", "ALL_PROXY", "all_proxy", "RUNPOD_API_KEY", "VAST_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("gpu_tenant.app.known_platforms", PLATFORMS)
    (tmp_path / "stubs").mkdir()
    # What the stubs are made of, and neither a crontab nor a systemctl of this computer's.
    for name in ("sh", "cat", "rm", "touch", "dirname", "basename"):
        (tmp_path / "stubs" / name).symlink_to(
            next(p for p in (Path("/bin", name), Path("/usr/bin", name)) if p.exists())
        )
    monkeypatch.setenv("PATH", str(tmp_path / "stubs"))
    program = executable(tmp_path / "a bin/gpu-tenant", PROGRAM)
    monkeypatch.setattr(sys, "argv", [str(program)])
    return tmp_path / "home"


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def has(tmp_path: Path, *programs: str) -> Path:
    for name in programs:
        executable(tmp_path / "stubs" / name, STUB_CRONTAB if name == "crontab" else STUB_CONTROL)
    return tmp_path / "stubs"


def install(*arguments: str) -> None:
    group.main(["install", "watchdog", *arguments], standalone_mode=False)


def everything(home: Path) -> dict[str, str]:
    return {
        path.relative_to(home).as_posix(): f"-> {path.readlink()}"
        if path.is_symlink()
        else path.read_text(encoding="utf-8")
        if path.is_file()
        else "directory"
        for path in home.rglob("*")
    }


def strictly(unit: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(
        strict=True, interpolation=None, comment_prefixes=("#",), delimiters=("=",)
    )
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(unit)
    return {section: dict(parser[section]) for section in parser.sections()}


def test_without_yes_it_only_shows(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install("--by", "systemd")

    told = capsys.readouterr()
    assert everything(home) == {}
    assert f"writes   {home}/{UNIT}\nlinks    {home}/{LINK}\n" in told.out
    assert "+Restart=always\n" in told.out
    assert "nothing was changed; with --yes it is" in told.err


def test_the_unit_is_what_systemd_itself_accepts(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_TENANT_HOME", str(home / "100% mine"))
    install("--by", "systemd", "--every", "30", "--yes")

    file = next((home / ".config/systemd/user").glob("*.service"))
    unit = strictly(file.read_text(encoding="utf-8"))
    assert shlex.split(unit["Service"]["ExecStart"]) == [
        str(tmp_path / "a bin/gpu-tenant"),
        "watchdog",
        "--every",
        "30",
    ]
    assert unit["Service"]["Environment"] == f'"GPU_TENANT_HOME={home}/100%% mine"'
    assert (unit["Service"]["Restart"], unit["Service"]["KillMode"]) == ("always", "process")
    assert unit["Install"] == {"WantedBy": "default.target"}
    required("systemd")
    verified = subprocess.run(
        ["/usr/bin/systemd-analyze", "--user", "verify", "--man=no", str(file)],
        env={"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(home)},
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=120,
    )
    assert verified.stdout + verified.stderr == ""


def test_it_is_started_once_and_ended_before_its_files_go(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stubs = has(tmp_path, "systemctl")
    install("--yes")
    first = capsys.readouterr()
    install("--yes")
    again = capsys.readouterr()
    (stubs / "running").unlink()
    install("--yes")
    install("--remove", "--yes")

    assert f"runs     systemctl --user restart {NAME}.service" in first.out
    assert "`loginctl enable-linger`" in first.err
    assert again.out == ""
    assert "nothing to change" in again.err
    asked = (stubs / "asked").read_text(encoding="utf-8").splitlines()
    told = [
        line.split(" --user ")[1]
        for line in asked
        if "is-active" not in line and "show" not in line
    ]
    start, stop = (
        ["daemon-reload", f"restart {NAME}.service"],
        [f"stop {NAME}.service", "daemon-reload"],
    )
    assert told == [*start, *start, *stop]
    assert everything(home) == {}


def test_what_does_not_start_is_told_and_tried_again(home: Path, tmp_path: Path) -> None:
    stubs = has(tmp_path, "systemctl")
    (stubs / "broken").touch()

    with pytest.raises(LocalTrouble, match=r"restart .* failed: no such thing"):
        install("--yes")
    (stubs / "broken").unlink()
    install("--yes")

    assert (stubs / "running").exists()


def test_where_no_systemd_answers_it_says_so(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".config/systemd").mkdir(parents=True)

    install("--yes")

    assert (home / LINK).readlink() == home / UNIT
    assert (
        "the watchdog does not run yet: your user has no running systemd here"
        in capsys.readouterr().err
    )


def test_launchd_gets_an_agent_that_it_keeps_alive(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    stubs = has(tmp_path, "launchctl")

    install("--yes")
    agent = plistlib.loads((home / PLIST).read_bytes())
    install("--every", "30", "--yes")
    install("--remove", "--yes")

    assert agent["ProgramArguments"] == [
        str(tmp_path / "a bin/gpu-tenant"),
        "watchdog",
        "--every",
        "60",
    ]
    assert agent["RunAtLoad"] is agent["KeepAlive"] is agent["AbandonProcessGroup"] is True
    assert agent["StandardErrorPath"] == str(home / ".gpu-tenant/watchdog.log")
    assert "EnvironmentVariables" not in agent
    asked = (stubs / "asked").read_text(encoding="utf-8").splitlines()
    assert [line.split()[1] for line in asked if " print " not in line] == [
        "bootstrap",
        "bootout",
        "bootstrap",
        "bootout",
    ]
    assert everything(home) == {}


@pytest.mark.parametrize(
    "table", [None, b"", b"SHELL=/bin/csh\nKEY=sekret\n# mine\n0 1 * * * backup \\%"]
)
def test_a_crontab_gets_a_line_and_is_given_back_byte_for_byte(
    table: bytes | None, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = has(tmp_path, "crontab") / "table"
    if table is not None:
        kept.write_bytes(table)

    install("--yes")
    install("--every", "240", "--yes")
    written = kept.read_bytes()
    install("--remove", "--yes")

    line = f"*/4 * * * * mkdir -p -m 700 {home}/.gpu-tenant && '{tmp_path}/a bin/gpu-tenant' watchdog --once >>{home}/.gpu-tenant/watchdog.log 2>&1"
    assert written.decode().splitlines()[1] == line
    assert written.endswith(b"<<<\n" + (table or b""))
    assert (kept.read_bytes() if kept.exists() else None) == table
    assert "sekret" not in capsys.readouterr().out
    assert everything(home) == {}


def test_what_somebody_added_to_the_crontab_since_stays(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = has(tmp_path, "crontab") / "table"
    kept.write_bytes(b"0 1 * * * old\n")
    install("--yes")
    kept.write_bytes(b"0 2 * * * newer\n" + kept.read_bytes())
    capsys.readouterr()

    install("--yes")
    again = capsys.readouterr().err
    install("--remove", "--yes")

    assert "nothing to change" in again

    assert kept.read_bytes() == b"0 2 * * * newer\n0 1 * * * old\n"
    assert everything(home) == {}


def test_a_crontab_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    executable(tmp_path / "stubs/crontab", "#!/bin/sh\necho 'you are not allowed' >&2\nexit 1\n")

    with pytest.raises(Refused, match="cannot be read; `crontab` says: you are not allowed"):
        install("--by", "cron", "--yes")


def test_a_percent_in_a_path_does_not_end_crons_command(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = has(tmp_path, "crontab") / "table"
    monkeypatch.setenv("GPU_TENANT_HOME", str(home / "100%"))

    install("--yes")

    words = kept.read_text(encoding="utf-8").splitlines()[1].split(" ", 5)[5]
    assert not re.search(r"(?<!\\)%", words)
    assert f" && env GPU_TENANT_HOME={home}/100\\% " in words


def test_without_a_crontab_the_line_is_told_and_it_is_no_success(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        install("--yes")

    told = capsys.readouterr()
    assert ended.value.code == 1
    assert "nothing was installed, and no watchdog runs" in told.err
    assert told.out.startswith("*/2 * * * * ")
    assert "to whatever runs commands on a schedule" in told.err
    assert everything(home) == {}
    subprocess.run(["/bin/sh", "-c", told.out.split(" ", 5)[5]], env={"PATH": "/bin"}, check=False)
    assert (home / ".gpu-tenant/watchdog.log").is_file()
    assert (home / ".gpu-tenant").stat().st_mode & 0o777 == 0o700


def test_keys_that_only_this_shell_has_are_told_before_anything_is_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".gpu-tenant").mkdir()
    configuration = home / ".gpu-tenant/config.toml"
    configuration.write_text(
        '[credentials]\nlambda_cloud = "file:~/key"\n[tell]\nurl = "env:HOOK"\n', encoding="utf-8"
    )
    for name in ("RUNPOD_API_KEY", "LAMBDA_API_KEY", "VAST_API_KEY"):
        monkeypatch.setenv(name, "sekret")
    (home / ".config/vastai").mkdir(parents=True)
    (home / ".config/vastai/vast_api_key").write_text("sekret", encoding="utf-8")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:sekret@127.0.0.1")

    install("--by", "systemd", "--json")

    told = capsys.readouterr().out
    notes = json.loads(told)["notes"]
    assert [
        re.findall(r"RUNPOD_API_KEY|LAMBDA\w+|VAST\w+|env:HOOK|HTTPS_PROXY", n) for n in notes
    ] == [
        ["RUNPOD_API_KEY"],
        ["env:HOOK"],
        ["HTTPS_PROXY"],
    ]
    assert f'under [credentials] in {configuration}, `runpod = "file:PATH"`' in notes[0]
    assert "sekret" not in told
    assert not (home / UNIT).exists()


def test_a_unit_of_somebody_elses_is_kept_and_given_back(home: Path) -> None:
    (home / UNIT).parent.mkdir(parents=True)
    (home / UNIT).write_text("[Service]\nExecStart=/mine\n", encoding="utf-8")
    before = everything(home)

    install("--yes")
    backup = (home / f"{UNIT}.before-gpu-tenant").read_text(encoding="utf-8")
    install("--remove", "--yes")

    assert backup == "[Service]\nExecStart=/mine\n"
    assert everything(home) == before


def test_an_edited_unit_is_left_and_no_longer_begun(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install("--by", "systemd", "--yes")
    (home / UNIT).write_text("[Service]\nExecStart=/mine\n", encoding="utf-8")

    install("--remove", "--yes")

    assert "was changed after it was installed, so it is left as it is" in capsys.readouterr().err
    assert (home / UNIT).exists()
    assert not (home / LINK).is_symlink()


def test_every_state_directory_has_a_watchdog_of_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("--by", "systemd", "--yes")
    monkeypatch.setenv("GPU_TENANT_HOME", str(home / "a/second"))
    install("--by", "systemd", "--yes")
    both = len(list((home / UNIT).parent.glob("*.service")))

    install("--remove", "--yes")
    monkeypatch.delenv("GPU_TENANT_HOME")
    install("--remove", "--yes")

    assert both == 2
    assert everything(home) == {}


def test_the_last_that_is_taken_back_takes_the_directories_along(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill/SKILL.md").touch()
    monkeypatch.setattr("gpu_tenant.faces.install.plan.skill_directory", lambda: tmp_path / "skill")
    monkeypatch.setenv("GPU_TENANT_HOME", str(home / "deep/down"))
    group.main(["install", "vscode", "--yes"], standalone_mode=False)
    install("--by", "systemd", "--yes")

    group.main(["install", "vscode", "--remove", "--yes"], standalone_mode=False)
    install("--remove", "--yes")

    assert everything(home) == {}


@pytest.mark.parametrize(
    ("arguments", "environ", "words"),
    [
        (["--by", "cron"], {}, "systemd keeps the watchdog running already"),
        (["--link"], {}, "are for a host"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], environ: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("--by", "systemd", "--yes")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    with pytest.raises((Refused, BadRequest), match=words):
        install(*arguments, "--yes")


def test_a_rehearsal_is_not_watched_for_ever(home: Path) -> None:
    put_rehearsal(home / ".gpu-tenant", Rehearsal(provider="vastai", url="http://127.0.0.1:1"))

    with pytest.raises(BadRequest, match="this is a rehearsal"):
        install("--yes")


def test_a_program_that_starts_only_in_this_shell_is_refused(home: Path, tmp_path: Path) -> None:
    executable(tmp_path / "a bin/gpu-tenant", "#!/bin/sh\necho 'No module named x' >&2\nexit 1\n")

    with pytest.raises(Refused, match="does not start outside this shell: No module named x"):
        install("--yes")

    assert everything(home) == {}
