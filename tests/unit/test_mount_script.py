"""The script that mounts volumes: run by a real shell, with stand-ins for the system's own programs."""

import os
import stat
import subprocess
from pathlib import Path

from gpu_tenant.providers.mount_script import mount_script

STAND_INS = {
    "mountpoint": "exit 1",
    "mount": 'echo "mount $*" >>"$LOG"',
    "mkdir": 'echo "mkdir $*" >>"$LOG"',
    "resize2fs": 'echo "resize2fs $*" >>"$LOG"; exit 1',
    "sleep": 'echo "sleep $*" >>"$LOG"',
}


def test_each_volume_is_mounted_once_where_it_is_wanted_and_after_each_boot(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in STAND_INS.items():
        program = programs / name
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    fstab, log = tmp_path / "fstab", tmp_path / "log"
    fstab.write_text("/dev/sda1 / ext4 defaults 0 1\n")
    script = mount_script([("/dev/none-a", "/data"), ("/dev/none-b", "/more")])
    script = script.replace("/etc/fstab", str(fstab)).replace("tries=300", "tries=2")
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "LOG": str(log)}

    for _ in range(2):
        subprocess.run(["sh", "-eu"], input=script.encode(), check=True, env=environ)

    assert fstab.read_text().splitlines()[1:] == [
        "/dev/none-a /data auto defaults,nofail 0 2",
        "/dev/none-b /more auto defaults,nofail 0 2",
    ]
    done = log.read_text().splitlines()
    assert done[:4] == ["sleep 2", "sleep 2", "mkdir -p /data", "mount /data"]
    assert done.count("mount /more") == 2


def test_a_device_and_a_path_are_words_of_the_shell_and_nothing_else() -> None:
    script = mount_script([("/dev/x;reboot", "/data")])

    assert "mount_volume '/dev/x;reboot' /data" in script
