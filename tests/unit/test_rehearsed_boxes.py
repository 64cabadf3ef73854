"""What a rehearsal's box does when its platform stops it."""

import subprocess
from pathlib import Path

from arranged import PATIENCE_S, eventually
from parts import required
from sshd import make_key

from gpu_tenant.domain.model import SshAddress
from gpu_tenant.emulators.boxes import Sites

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
