"""The script that mounts volumes: run by a real shell, with stand-ins for those of the system's programs that need root."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from parts import required

from gpu_tenant.providers.mount_script import mount_script

STAND_INS = {
    "mountpoint": "exit 1",
    "mount": 'echo "mount $*" >>"$LOG"',
    "mkdir": 'echo "mkdir $*" >>"$LOG"',
    "resize2fs": 'echo "resize2fs $*" >>"$LOG"; exit 1',
    "sleep": 'echo "sleep $*" >>"$LOG"',
}
ROOT_S = "/usr/sbin:/sbin"
SIZE = 64 * 2**20


def ran(script: str, tmp_path: Path, **stand_ins: str) -> list[str]:
    """What the script has asked of the system's programs, and of their stand-ins."""
    programs, fstab, log = tmp_path / "bin", tmp_path / "fstab", tmp_path / "log"
    programs.mkdir(exist_ok=True)
    for name, line in {**STAND_INS, **stand_ins}.items():
        program = programs / name
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    if not fstab.exists():
        fstab.write_text("/dev/sda1 / ext4 defaults 0 1\n")
    # A file is no block device, and nobody but root has one to spare.
    script = script.replace("/etc/fstab", str(fstab)).replace("tries=300", "tries=2")
    script = script.replace("[ -b ", "[ -f ")
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}:{ROOT_S}", "LOG": str(log)}
    subprocess.run(["sh", "-eu"], input=script.encode(), check=True, env=environ)
    return log.read_text().splitlines()


def test_each_volume_is_mounted_once_where_it_is_wanted_and_after_each_boot(tmp_path: Path) -> None:
    script = mount_script([("/dev/none-a", "/data"), ("/dev/none-b", "/more")])

    for _ in range(2):
        done = ran(script, tmp_path)

    assert (tmp_path / "fstab").read_text().splitlines()[1:] == [
        "/dev/none-a /data auto defaults,nofail 0 2",
        "/dev/none-b /more auto defaults,nofail 0 2",
    ]
    assert done[:4] == ["sleep 2", "sleep 2", "mkdir -p /data", "mount /data"]
    assert done.count("mount /more") == 2


def test_a_device_and_a_path_are_words_of_the_shell_and_nothing_else() -> None:
    raw = "/dev/x;reboot"
    script = mount_script([(raw, "/data")], made_raw=[raw])

    assert "mount_volume '/dev/x;reboot' /data" in script
    assert "format_if_blank '/dev/x;reboot'" in script


# What gets a file system


def a_disk(tmp_path: Path) -> Path:
    """A disk on which nothing is."""
    required("mkfs")
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(SIZE)
    return disk


def kind_of(disk: Path) -> str:
    """The kind of file system on it, if there is one."""
    environ = {"PATH": f"{os.environ['PATH']}:{ROOT_S}"}
    ask = ["blkid", "-p", "-o", "value", "-s", "TYPE", str(disk)]
    return subprocess.run(ask, capture_output=True, text=True, env=environ).stdout.strip()


def test_a_blank_volume_that_we_made_gets_a_file_system_once_and_jobs_may_write_there(
    tmp_path: Path,
) -> None:
    disk, where = a_disk(tmp_path), tmp_path / "mounted"
    where.mkdir(mode=0o755)
    script = mount_script([(str(disk), str(where))], made_raw=[str(disk)])
    is_mounted = f'grep -q "^mount {where}" "$LOG"'

    ran(script, tmp_path, mountpoint=is_mounted)
    made = disk.read_bytes()
    done = ran(script, tmp_path, mountpoint=is_mounted)

    assert kind_of(disk) == "ext4"
    assert disk.read_bytes() == made, "the next boot formats nothing"
    assert done.count(f"mount {where}") == 1
    assert where.stat().st_mode & 0o777 == 0o777


def test_what_is_not_mounted_is_not_opened_to_jobs(tmp_path: Path) -> None:
    disk, where = a_disk(tmp_path), tmp_path / "not-mounted"
    where.mkdir(mode=0o755)

    ran(mount_script([(str(disk), str(where))], made_raw=[str(disk)]), tmp_path)

    assert where.stat().st_mode & 0o777 == 0o755


def with_file_system(disk: Path) -> None:
    mkfs = shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:{ROOT_S}")
    assert mkfs is not None
    subprocess.run([mkfs, "-q", "-L", "kept", str(disk)], check=True)


def with_partitions(disk: Path) -> None:
    with disk.open("r+b") as file:
        file.seek(446)
        file.write(bytes([0, 0, 2, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little") * 2)
        file.seek(510)
        file.write(b"\x55\xaa")


def with_raw_bytes(disk: Path) -> None:
    """No program knows what they are: somebody has written to the device itself."""
    with disk.open("r+b") as file:
        file.seek(9 * 2**20)
        file.write(b"weights")


def with_a_log_s_head(disk: Path) -> None:
    """An LVM label, which is no file system."""
    with disk.open("r+b") as file:
        file.seek(512)
        file.write(b"LABELONE" + bytes(16) + b"LVM2 001")


@pytest.mark.parametrize(
    "held", [with_file_system, with_partitions, with_raw_bytes, with_a_log_s_head]
)
def test_what_has_anything_on_it_is_never_formatted(
    held: Callable[[Path], None], tmp_path: Path
) -> None:
    disk = a_disk(tmp_path)
    held(disk)
    was = disk.read_bytes()

    ran(mount_script([(str(disk), "/data")], made_raw=[str(disk)]), tmp_path)

    assert disk.read_bytes() == was


def test_a_volume_that_we_did_not_make_is_never_formatted(tmp_path: Path) -> None:
    disk = a_disk(tmp_path)
    script = mount_script([("/dev/ours", "/ours"), (str(disk), "/data")], made_raw=["/dev/ours"])

    ran(script, tmp_path)

    assert kind_of(disk) == ""
    assert not any(disk.read_bytes())


@pytest.mark.parametrize(
    "missing", [{"blkid": "exit 127"}, {"blkid": "exit 8"}, {"cmp": "exit 127"}], ids=str
)
def test_without_a_clear_answer_nothing_is_formatted(
    missing: dict[str, str], tmp_path: Path
) -> None:
    """Status 8 of blkid: it found several things, and does not know which is meant."""
    disk = a_disk(tmp_path)

    ran(mount_script([(str(disk), "/data")], made_raw=[str(disk)]), tmp_path, **missing)

    assert not any(disk.read_bytes())
