"""How the command line is spoken to, and answers: one lease in two ways, errors as JSON, dates as dates."""

import io
import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TextIO

import pytest

from gpu_tenant.app import known_platforms
from gpu_tenant.domain.errors import TenantError
from gpu_tenant.domain.wording import with_dates
from gpu_tenant.errands.answers import Unanswered
from gpu_tenant.faces.cli import main, output, prompts
from gpu_tenant.faces.cli.quantities import HOURS
from gpu_tenant.faces.cli.run import TerminalFace
from gpu_tenant.jobs.monitor import Watched

PLATFORMS = cache(known_platforms)
"""The real ones; a fifth of a second each time."""
Tell = Callable[..., tuple[int, str, str]]
"""A command, and how it ended, on stdout, on stderr."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GPU_TENANT_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("gpu_tenant.app.known_platforms", PLATFORMS)
    return tmp_path


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tell:
    def tell(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["/x/__main__.py", *words])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        said = capsys.readouterr()
        return status, said.out, said.err

    return tell


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        (["monitor", "nobody", "--json"], "UNKNOWN_LEASE", 2),
        (["provision", "--json"], "REFUSED", 3),
        (["extend", "nobody", "--hours", "soon", "--json"], "BAD_REQUEST", 2),
    ],
)
def test_an_error_is_one_json_object_where_the_answer_would_have_been_one(
    words: list[str],
    code: str,
    status: int,
    told: Tell,
) -> None:
    ended, out, err = told(*words)

    error = json.loads(out)["error"]
    assert (error["code"], error["exit_status"], ended) == (code, status, status)
    assert error["message"] in err
    assert "`gpu-tenant " in error["remedy"]
    assert "__main__" not in out + err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["offers", "--hours", "9000"], "more than a year"),
        (["offers", "--hours", "nan"], "not a length of time"),
        (["offers", "--hours", "inf"], "not a length of time"),
        (["offers", "--hours", "0"], "more than 0"),
        (["offers", "--hours", "2 weeks"], "`2h`, `90m`, `1d`"),
        (["offers", "--vram-gib", "-3"], "-3"),
        (["offers", "--vram-gib", "nan"], "not a finite number"),
        (["offers", "--disk-gb", "99999999"], "99999999"),
        (["offers", "--upload-gb", "inf"], "inf"),
        (["provision", "--hours", "-1"], "not a length of time"),
        (["provision", "--idle-h", "nan"], "not a length of time"),
        (["extend", "--hours", "1e9"], "not a length of time"),
        (["limits", "--hours", "nan"], "not a length of time"),
        (["audit", "--disk-gib", "nan"], "not a finite number"),
        (["monitor", "--wait-s", "nan"], "not a finite number"),
        (["colect"], "did you mean `gpu-tenant collect`?"),
        (["lease"], "did you mean `gpu-tenant leases`?"),
        (["ls"], "did you mean `gpu-tenant leases`?"),
        (["log"], "did you mean `gpu-tenant logs`?"),
        (["down"], "did you mean `gpu-tenant teardown`?"),
        (["qqqqqq"], "there is no command 'qqqqqq'"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_wrong_word_on_the_line_is_told_without_a_traceback(
    words: list[str], says: str, told: Tell
) -> None:
    status, out, err = told(*words)

    assert (status, out) == (2, "")
    assert says in err


@pytest.mark.parametrize(
    ("words", "locale", "title"),
    [
        ([], "en_GB.UTF-8", "# This computer"),
        ([], "zh_CN.UTF-8", "# 本机"),
        (["--lang", "zh"], "en_GB.UTF-8", "# 本机"),
        (["--lang", "en"], "zh_CN.UTF-8", "# This computer"),
    ],
)
def test_a_runbook_is_in_the_language_of_the_terminal_or_in_the_one_that_was_named(
    words: list[str], locale: str, title: str, told: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", locale)

    status, out, _ = told("profiles", "local", *words)

    assert status == 0
    assert title in out.splitlines()
    assert ("停止计费" in out) == (title == "# 本机")
    assert "scripts/caretaker.py" in out


@pytest.mark.parametrize(
    ("given", "hours"), [("2", 2), ("2h", 2), ("90m", 1.5), ("1d", 24), ("0.5 h", 0.5), (".5", 0.5)]
)
def test_a_length_of_time_is_given_as_people_write_it(given: str, hours: float) -> None:
    assert HOURS.convert(given, None, None) == hours


@pytest.mark.parametrize(
    ("variable", "value"), [("GPU_TENANT_HOME", ""), ("GPU_TENANT_HOME", "state"), ("HOME", "")]
)
def test_a_state_directory_that_depends_on_where_one_stands_is_refused(
    variable: str, value: str, told: Tell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, value)

    status, _, err = told("leases")

    assert status == 2
    assert "BAD_REQUEST" in err
    assert variable in err
    assert not (tmp_path / "state").exists()


def test_help_names_the_page_that_tells_every_exit_status(told: Tell) -> None:
    _, out, _ = told("--help")
    named = out[out.index("Exit status") :]
    assert "`gpu-tenant guide errors`" in named

    _, page, _ = told("guide", "errors")
    kinds = TenantError.__subclasses__()  # It itself is raised nowhere.
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert f"| `{kind.code}` | {kind.exit_status} |" in page, kind


@pytest.mark.parametrize("on", [[], ["--on", "vastai"]], ids=["anywhere", "at one platform"])
def test_a_run_without_a_key_ends_before_its_smoke_test(
    on: list[str], told: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "train.py").write_text("")
    monkeypatch.chdir(tmp_path / "tree")

    status, out, err = told("run", *on, "--artifact", "out/", "--", "sh", "-c", "sleep 60")

    assert "no key was found" in err
    assert "doctor" in err or "VAST_API_KEY" in err
    assert "error: CREDENTIAL_REFUSED" in err
    assert status == 5
    assert "is tried here first" not in out + err


def test_a_smoke_test_of_another_directory_is_not_offered(
    told: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "other")
    passed, _, _ = told("smoke", ".", "--", "true")
    assert passed == 0
    monkeypatch.chdir(tmp_path / "mine")

    status, _, err = told("provision", "--on", "local")
    assert (status, "no smoke test was named" in err) == (3, True)

    monkeypatch.chdir(tmp_path / "other")
    status, _, err = told("provision", "--on", "local")
    assert status == 0, err
    told("teardown")


def test_the_program_s_name_alone_says_what_to_type_first(told: Tell) -> None:
    status, out, err = told()

    assert (status, err) == (0, "")
    assert "gpu-tenant demo" in out
    assert len(out.splitlines()) <= 24


def test_the_help_of_a_rehearsal_has_the_faults_of_the_platform_that_is_named(told: Tell) -> None:
    _, out, _ = told("rehearse", "--help")
    assert "Of lambda_cloud" not in out
    assert len(out.splitlines()) < 60

    _, out, _ = told("rehearse", "lambda_cloud", "--help")
    assert "Of lambda_cloud" in out
    assert "Of autodl" not in out


def test_a_jobs_own_json_option_is_not_ours(told: Tell) -> None:
    status, out, err = told("launch", "nobody", "--artifact", "x", "--", "train", "--json")

    assert (status, out) == (2, "")
    assert "error: BAD_REQUEST" in err


@pytest.mark.parametrize(
    "words",
    [
        ["audit"],
        ["push", "."],
        ["prepare"],
        ["launch", "--artifact", "x", "--", "true"],
        ["monitor"],
        ["ssh"],
        ["stop"],
        ["collect"],
        ["teardown"],
        ["waive"],
        ["extend", "--hours", "1"],
        ["park"],
    ],
    ids=lambda words: words[0],
)
def test_every_verb_takes_its_lease_by_name(
    words: list[str],
    told: Tell,
) -> None:
    status, _, err = told(words[0], "--lease", "nobody", *words[1:])

    assert (status, err.splitlines()[0]) == (
        2,
        "error: UNKNOWN_LEASE: no lease 'nobody' is in the ledger",
    )


def test_two_names_of_leases_are_one_too_many(told: Tell) -> None:
    status, _, err = told("extend", "one", "--lease", "another", "--hours", "1")

    assert status == 2
    assert "two leases are named: one and another" in err


def test_a_launch_takes_its_lease_as_an_argument_too(
    told: Tell,
) -> None:
    _, out, _ = told("provision", "--smoke", "none", "--json")
    lease = json.loads(out)["lease"]

    alone = told("launch", lease, "--artifact", "x")
    twice = told("launch", "--lease", "another", lease, "--artifact", "x", "--", "true")

    assert f"{lease} is a lease, not a command" in alone[2]
    assert f"two leases are named: another and {lease}" in twice[2]


def test_a_word_before_the_command_that_a_pattern_was_expanded_to_is_refused(told: Tell) -> None:
    _, out, _ = told("provision", "--smoke", "none", "--json")
    lease = json.loads(out)["lease"]

    status, _, err = told(
        "launch", "--lease", lease, "--artifact", "out/a.pt", "out/b.pt", "--", "python3", "-c", "1"
    )

    assert status == 2
    assert "'out/b.pt' stands before `--`" in err
    assert "quote the pattern: `--artifact 'out/*.pt'`" in err


def test_holes_windows_line_ends_and_a_status_hidden_by_a_pipe_are_named(
    told: Tell, tmp_path: Path
) -> None:
    _, out, _ = told("provision", "--smoke", "none", "--json")
    lease = json.loads(out)["lease"]
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "go.sh").write_bytes(b"#!/bin/bash\r\ntrue\r\n")
    (tree / "go.sh").chmod(0o755)
    with (tree / "data.mdb").open("wb") as file:
        file.truncate(65 << 20)

    pushed = told("push", str(tree), lease)[1]
    windows = told("launch", lease, "--artifact", "x", "--", "./go.sh")[1]
    piped = told("launch", lease, "--artifact", "x", "--", "sleep 9 | cat")[1]

    assert "data.mdb has 0.1 GB, of which 0.0 GB are data" in pushed
    assert "./go.sh has the line ends of Windows (CRLF)" in windows
    assert "its exit status is that of cat" in piped


def test_seconds_since_1970_are_told_as_a_date() -> None:
    assert with_dates("stopped: asked for at 1795285811.250; restart") == (
        "stopped: asked for at 2026-11-21 18:30:11 UTC; restart"
    )
    assert with_dates("at 127 of 4200000000123 bytes") == "at 127 of 4200000000123 bytes"


def test_a_look_at_a_job_shows_a_person_dates_and_no_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = Watched(
        lease="l",
        job="j",
        state="killed",
        exit_code=None,
        why="stopped: asked for at 1795285811.250",
        progress=None,
        log="",
        cursor=4711,
        log_skipped_bytes=0,
        log_size_bytes=4711,
        gpus=(),
        memory_used_bytes=None,
        memory_limit_bytes=None,
        disk_free_bytes=None,
        running_s=None,
        cost_usd=None,
        deadline_in_s=60,
        alarm=None,
        next="monitor again with this cursor",
    )

    output.print_watched(seen)

    told = capsys.readouterr().out
    assert "asked for at 2026-11-21 18:30:11 UTC" in told
    assert "cursor" not in told
    assert "4711" not in told


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("y", "yes"), ("Yes", "yes"), ("是", "yes"), ("N", "no"), ("否", "no"), ("m", "more")),
        ("", "no"),
    ],
)
async def test_a_yes_or_no_is_understood_however_short_it_is_typed(
    typed: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await chosen(f"{typed}\n", ("yes", "no", "more"), "no", monkeypatch) == meant


async def test_an_answer_that_is_unclear_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = ("keep", "lose", "later")
    assert await chosen("l\nperhaps\nk\n", ways, "later", monkeypatch) == "keep"

    assert capsys.readouterr().err.count("is not one of keep, lose, later") == 2


async def chosen(
    typed: str, choices: tuple[str, ...], default: str, monkeypatch: pytest.MonkeyPatch
) -> str:
    """What is taken for the answer if that is typed at a terminal."""
    with _terminal_with(typed) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        return await prompts.choice("Which?", choices, default=default)


@pytest.mark.parametrize(
    ("typed", "kept", "lost"), [("", ("out-*/*.pt",), ()), ("lose", (), ("out-2/a.pt",))]
)
async def test_enter_keeps_by_rule_what_nobody_has_claimed_and_only_its_names_are_given_up(
    typed: str, kept: tuple[str, ...], lost: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = Unanswered(
        lease="l", losses=(), unclaimed=("out-2/a.pt",), keeps=("out-*/*.pt",), ways=()
    )
    mine, its = os.openpty()
    with os.fdopen(its, "r+b", buffering=0) as raw:
        terminal = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
        os.write(mine, f"{typed}\n".encode())
        for stream in ("stdin", "stderr"):
            monkeypatch.setattr(sys, stream, terminal)
        told = await TerminalFace(None, "run", agrees=False, quiet=False).answer(asks)
    os.close(mine)

    assert told is not None
    assert (told.artifacts, told.discard) == (kept, lost)


def _terminal_with(typed: str) -> TextIO:
    read, write = os.pipe()
    os.write(write, typed.encode())
    os.close(write)
    return os.fdopen(read, encoding="utf-8")


def test_one_platform_is_named_for_offers_as_for_every_other_verb(told: Tell) -> None:
    for option in ("--on", "--provider"):
        status, _, err = told("offers", option, "nowhere")
        assert status == 2
        assert "nowhere" in err
        assert "No such option" not in err
    help_page = told("offers", "--help")[1]
    assert "--on PROVIDER" in help_page
    assert "--provider" not in help_page
