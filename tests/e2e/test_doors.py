"""What somebody else said reaches no shell, keys are not shown to what we start, and a start installs what is pinned."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from arranged import eventually
from e2e.leased import end_processes
from e2e.owner import Owner
from e2e.renting import tenant_at
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpu_tenant.app import known_platforms
from gpu_tenant.domain.address import ssh_address, ssh_of
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.leases.pasted_address import address_of
from gpu_tenant.process_hardening import KEYS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").write_text("print(1)\n", encoding="utf-8")
    yield Owner(tmp_path / "state", tree)
    end_processes(tmp_path / "state" / "boxes")


SHELL_WORDS = (
    "x$(id>pwned).y",
    "`id`",
    "a;id",
    "me;id@host",
    "a|b",
    "a&b",
    "a b",
    "-oProxyCommand=id",
    "me@-x",
    "a>b",
    "$HOME",
    "a'b",
    'a"b',
    "a\\b",
    "a\nb",
    "host:99999",
    "host:0",
    "[::1;id]",
    "{a,b}",
    "a*",
    "(a)",
    "~root",
    "",
)


@pytest.mark.parametrize("target", SHELL_WORDS)
def test_a_word_of_a_shell_is_no_host_and_no_user(target: str) -> None:
    assert ssh_of(target) is None
    assert ssh_address(target) is None


@pytest.mark.parametrize(
    "pasted", ["'x$(id>pwned).y'", "ssh root@'h;id'", "ssh -l 'a$(id)' host", "ssh://a%24(id)@h;id"]
)
def test_a_pasted_word_of_a_shell_names_no_machine(pasted: str) -> None:
    with pytest.raises(BadRequest):
        address_of(pasted)


@pytest.mark.parametrize(
    "target",
    [
        "root@203.0.113.7:22022",
        "ubuntu@[2001:db8::1]:22",
        "fe80::1",
        "gpu-box_2",
        "a.b.example",
        "pod-64411@ssh.example",
        "u@corp@bastion",
        "机房",
    ],
)
def test_the_usual_targets_are_taken(target: str) -> None:
    assert (ssh_of(target) is not None) == (target != "fe80::1")


def test_a_target_reaches_no_proxy_command_of_the_owner_s(owner: Owner, tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "config").write_text(
        'Host *\n  ProxyCommand sh -c "exec nc %h %p"\n', encoding="utf-8"
    )

    owner.is_told(2, "BAD_REQUEST", "adopt", f"x$(touch${{IFS}}{tmp_path}/pwned).y")

    assert not (tmp_path / "pwned").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows variables so")
def test_a_server_s_variables_show_no_key(owner: Owner) -> None:
    key = "rpa_" + "SECRET7KEY" * 4
    variables = {**os.environ, "RUNPOD_API_KEY": key, "MY_AWS_SECRET": key + "2", "PLAIN": "seen"}
    server = subprocess.Popen(
        [sys.executable, "-m", "gpu_tenant", "serve"],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        shown = Path(f"/proc/{server.pid}/environ")

        assert eventually(lambda: b"gpu_tenant" in Path(f"/proc/{server.pid}/cmdline").read_bytes())
        assert eventually(lambda: b"SECRET7KEY" not in shown.read_bytes())
        assert b"PLAIN=seen" in shown.read_bytes()
        assert server.poll() is None
    finally:
        server.kill()
        server.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux marks a process so")
def test_a_process_of_ours_is_not_looked_into_and_hands_on_what_it_is_told_to() -> None:
    program = (
        "import os, subprocess, ctypes\nfrom gpu_tenant.process_hardening import harden\nharden()\n"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), os.environ['VAST_API_KEY'], os.environ['HF_TOKEN'])\n"
        "print(subprocess.run(['sh', '-c', 'echo \"[$VAST_API_KEY][$HF_TOKEN]\"'], capture_output=True, text=True).stdout.strip())\n"
        "print(subprocess.run(['sh', '-c', 'echo \"[$VAST_API_KEY]\"'], env=dict(os.environ), capture_output=True, text=True).stdout.strip())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "VAST_API_KEY": "abc", "HF_TOKEN": "def"},
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=120,
    )

    assert ran.stdout.split("\n")[:3] == ["0 abc def", "[][def]", "[abc]"]


def test_every_platform_s_key_is_among_those_that_are_taken_out() -> None:
    named = {
        name
        for profile in known_platforms().values()
        if profile.credential
        for name in profile.credential.env
        if re.search("KEY|TOKEN", name)
    }

    assert named == set(KEYS)


# A start from a clone


def pinned() -> dict[str, str]:
    text = (ROOT / "scripts" / "requirements.lock").read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=[a-z0-9])", text[text.index("\n") :])
    found = {}
    for block in blocks:
        if told := re.match(r"([a-z0-9._-]+)==([^\s;\\]+)", block):
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), told[1]
            found[canonicalize_name(told[1])] = told[2]
    return found


def test_what_a_start_installs_is_all_pinned_with_hashes_and_is_what_the_project_wants() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lock = pinned()
    wanted = [
        Requirement(line)
        for line in (*project["project"]["dependencies"], *project["build-system"]["requires"])
    ]
    seen: set[str] = set()

    while wanted:
        one = wanted.pop()
        name = canonicalize_name(one.name)
        if one.marker and not one.marker.evaluate({"extra": ""}):
            continue
        assert name in lock, f"{name} is not pinned: make lock"
        assert one.specifier.contains(lock[name], prereleases=True), (
            f"{one} against {lock[name]}: make lock"
        )
        if name not in seen:
            seen.add(name)
            try:
                wanted += map(Requirement, requires(name) or ())
            except PackageNotFoundError:
                continue


def test_a_start_runs_no_other_program_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "clone" / "scripts").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    script = tmp_path / "clone" / "scripts" / "serve.sh"
    script.write_bytes((ROOT / "scripts" / "serve.sh").read_bytes())
    other = tmp_path / "bin" / "gpu-tenant"
    other.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", encoding="utf-8")
    other.chmod(0o755)

    ran = subprocess.run(
        ["sh", script],
        env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        check=False,
        timeout=120,
    )

    assert ran.returncode == 1
    assert not (tmp_path / "ran").exists()


# On this computer


@pytest.mark.parametrize("pattern", ["/etc/shadow", "/e*/shadow", "//etc/x", "/"])
def test_a_local_box_has_no_artifacts_outside_of_itself(owner: Owner, pattern: str) -> None:
    lease = owner.has_box()

    owner.is_told(2, "BAD_REQUEST", "launch", "--lease", lease, "--artifact", pattern, "--", "true")
    owner.is_told(2, "BAD_REQUEST", "collect", lease, "--artifact", pattern)

    inside = owner.state / "boxes" / lease / "home" / "out"
    owner.does(
        "launch",
        "--lease",
        lease,
        "--artifact",
        f"{inside}/",
        "--",
        f"mkdir {inside}; echo 1 >{inside}/a",
    )


async def test_a_rehearsed_box_that_is_a_directory_has_no_artifacts_outside_of_itself(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        quotes = await tenant.quotes()
        card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
        for pattern in ("/etc/shadow", "/root/**", f"{tmp_path}/**", "//etc/x"):
            with pytest.raises(BadRequest, match="a directory of this computer"):
                await tenant.tenancy.launch_detached(card.lease, "true", ["out/", pattern])
            with pytest.raises(BadRequest, match="a directory of this computer"):
                await tenant.tenancy.launch_detached(
                    card.lease, "true {a}", ["out/{cell}/", pattern], matrix={"a": [1]}
                )
            with pytest.raises(BadRequest, match="a directory of this computer"):
                await tenant.tenancy.collect(card.lease, artifacts=[pattern])

        inside = tenant.home_of(str(card.box)) / "out"
        assert tenant.tenancy.ledger.declarations(card.lease) == ([], [])
        await tenant.tenancy.launch_detached(card.lease, "true", [f"{inside}/"])


def test_what_lies_in_the_state_directory_is_its_owner_s_alone(owner: Owner) -> None:
    before = os.umask(0)
    try:
        owner.has_box()
        owner.does("watchdog", "--once")
    finally:
        os.umask(before)

    open_to_others = [
        path
        for path in owner.state.rglob("*")
        if path.is_file()
        and "home" not in path.parts
        and path.suffix != ".pub"
        and path.stat().st_mode & 0o077
    ]
    assert not open_to_others
    assert (
        owner.state / "boxes"
    ).stat().st_mode & 0o077 == 0 or owner.state.stat().st_mode & 0o077 == 0


def test_a_state_directory_that_others_may_read_is_told_of(owner: Owner) -> None:
    owner.has_box()
    owner.state.chmod(0o755)

    assert "is open to others: `chmod 700" in owner.does_or_not("doctor")
