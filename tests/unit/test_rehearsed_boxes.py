"""What a rehearsal's box does when its platform stops it."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from arranged import PATIENCE_S, eventually
from parts import required
from sshd import make_key

from gpu_tenant.domain.errors import BoxUnreachable
from gpu_tenant.domain.model import LocalAddress, SshAddress
from gpu_tenant.emulators import boxes
from gpu_tenant.emulators.boxes import Sites
from gpu_tenant.transports.local import LocalTransport
from gpu_tenant.transports.ssh import SshTransport, ensure_key

PAIRS = 40


def test_no_process_of_a_stopped_box_sees_another_end(tmp_path: Path) -> None:
    sites = Sites(tmp_path / "boxes", "local", "http://127.0.0.1:1")
    sites.open("b1", [])
    environ = {"HOME": str(tmp_path / "boxes" / "b1" / "home"), "PATH": "/usr/bin:/bin"}
    started: list[subprocess.Popen[bytes]] = []
    try:
        # Of each pair one holds a pipe open, and the other notes that it was closed.
        for number in range(PAIRS):
            holder = subprocess.Popen(["sleep", "600"], env=environ, stdout=subprocess.PIPE)
            started.append(holder)
            note = ["sh", "-c", f"read line; : > {tmp_path}/saw-{number}"]
            started.append(subprocess.Popen(note, env=environ, stdin=holder.stdout))
            assert holder.stdout is not None
            holder.stdout.close()

        sites.close("b1")

        assert [process.wait() for process in started] == [-9] * 2 * PAIRS
        assert not list(tmp_path.glob("saw-*"))
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_login_does_not_outlive_the_stop_of_its_box(tmp_path: Path) -> None:
    required("sshd")
    sites = Sites(tmp_path / "boxes", "ssh", "http://127.0.0.1:1")
    key, door = make_key(tmp_path / "key"), tmp_path / "door"
    address = sites.open("b1", [Path(f"{key}.pub").read_text(encoding="utf-8")])
    assert isinstance(address, SshAddress)
    user, _, port = address.target.rpartition(":")
    host_key = (tmp_path / "boxes" / "b1" / "host_key.pub").read_text(encoding="utf-8")
    known = tmp_path / "known"
    known.write_text(f"[127.0.0.1]:{port} {host_key}", encoding="utf-8")
    pinned = ["-F", "none", "-o", f"UserKnownHostsFile={known}"]
    shared = ["-o", "ControlMaster=yes", "-o", f"ControlPath={door}"]
    login = subprocess.Popen(["ssh", "-N", *pinned, *shared, "-i", key, "-p", port, user])
    try:
        assert eventually(door.exists)

        sites.close("b1")

        assert login.wait(PATIENCE_S) == 255
    finally:
        sites.close("b1")
        login.kill()
        login.wait()


async def test_a_rehearsed_box_has_no_environment_of_whoever_rehearses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = tmp_path / "venv" / "bin"
    active.mkdir(parents=True)
    (active.parent / "pyvenv.cfg").touch()
    (active / "only-here").write_text("#!/bin/sh\necho leaked\n", encoding="utf-8")
    (active / "only-here").chmod(0o755)
    monkeypatch.setenv("PATH", f"{active}:{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", str(active.parent))
    at = Sites(tmp_path / "boxes", "local", "http://127.0.0.1:9").open("b", [])
    assert isinstance(at, LocalAddress)
    box = LocalTransport(Path(at.directory), programs=at.programs)

    said = await box.run(
        ["sh", "-c", "only-here; echo ${VIRTUAL_ENV:-none}; command -v python3"], timeout_s=20
    )

    assert b"not found" in said.stderr
    first, python = said.stdout.decode().splitlines()
    assert first == "none"
    assert not Path(python).is_relative_to(tmp_path)


async def test_without_sshd_a_box_that_is_off_or_silent_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "SSHD", None)
    sites = Sites(tmp_path / "boxes", "ssh", "http://127.0.0.1:9")
    at = sites.open("b", [])
    assert isinstance(at, LocalAddress)
    box = LocalTransport(Path(at.directory), programs=at.programs)

    for stops, begins in (
        (sites.fall_silent, sites.answer_again),
        (sites.close, lambda name: sites.open(name, [])),
    ):
        assert (await box.run(["true"], timeout_s=20)).exit_status == 0
        stops("b")
        with pytest.raises(BoxUnreachable):
            await box.run(["true"], timeout_s=20)
        begins("b")
    assert (await box.run(["true"], timeout_s=20)).exit_status == 0


async def test_a_box_with_sshd_falls_silent_while_its_job_runs_on(tmp_path: Path) -> None:
    required("sshd")
    sites = Sites(tmp_path / "boxes", "ssh", "http://127.0.0.1:9")
    ensure_key(tmp_path / "key")
    at = sites.open("b", [Path(f"{tmp_path / 'key'}.pub").read_text(encoding="utf-8")])
    assert isinstance(at, SshAddress)

    def way() -> SshTransport:
        return SshTransport(
            at,
            known_hosts=tmp_path / "known",
            client_key=ensure_key(tmp_path / "key"),
            tell=lambda words: None,
            owner_ssh=tmp_path / "none",
        )

    try:
        first, later = way(), way()
        job = "setsid sh -c 'while [ ! -e go ]; do sleep 0.05; done; touch done' >/dev/null 2>&1 &"
        await first.run(["sh", "-c", job], timeout_s=30)
        sites.fall_silent("b")
        with pytest.raises(BoxUnreachable):
            await first.run(["true"], timeout_s=10)
        home = tmp_path / "boxes" / "b" / "home"
        (home / "go").touch()
        assert await asyncio.to_thread(eventually, (home / "done").exists)
        sites.answer_again("b")
        assert (await later.run(["cat", "done"], timeout_s=30)).exit_status == 0
        await first.aclose()
        await later.aclose()
    finally:
        sites.close_all()
