"""Writes the script that mounts a virtual machine's volumes at each boot, for platforms that only attach them."""

import shlex
from collections.abc import Collection, Iterable

_HEAD = """#!/bin/sh
# gpu-tenant: mounts the volumes that the order names. It formats none that anything is on.
await_device() {
    tries=300
    until [ -b "$1" ] || [ "$tries" -eq 0 ]; do sleep 2; tries=$((tries - 1)); done
}
mount_volume() {
    await_device "$1"
    mkdir -p "$2"
    grep -q " $2 " /etc/fstab || echo "$1 $2 auto defaults,nofail 0 2" >>/etc/fstab
    mountpoint -q "$2" || mount "$2"
    # Without a size it only ever enlarges, up to the whole of a volume that has grown.
    resize2fs "$1" >/dev/null 2>&1 || :
}
"""
_FORMAT = """# Status 2 of blkid: no sign of a file system, of partitions or of anything else. Any other answer, or any byte but
# zero in the first 16 MiB, and the volume stays as it is.
format_if_blank() {
    await_device "$1"
    if blkid -p "$1" >/dev/null 2>&1 || [ "$?" -ne 2 ]; then return; fi
    if cmp -s -n 16777216 "$1" /dev/zero; then mkfs.ext4 -q -m 0 "$1"; fi
}
# Jobs are not root here.
open_to_jobs() {
    if mountpoint -q "$1"; then chmod a+w "$1"; fi
}
"""


def mount_script(volumes: Iterable[tuple[str, str]], *, made_raw: Collection[str] = ()) -> str:
    """Return the script. `volumes` has the device of each volume, and the path where it is wanted.

    A device may appear some time after the boot, so the script waits for it. A volume that has no file system is left
    as it is. Then nothing is mounted at its path, and the first contact reports that.

    `made_raw` are the devices of volumes that this program made, on a platform that makes them without a file
    system. Such a volume gets an ext4 file system as long as nothing is on it. Jobs may write to it.
    """
    lines: list[str] = []
    for device, path in volumes:
        at, where = shlex.quote(device), shlex.quote(path)
        asked = [["mount_volume", at, where]]
        if device in made_raw:
            asked = [["format_if_blank", at], *asked, ["open_to_jobs", where]]
        lines += [" ".join(words) for words in asked]
    return _HEAD + (_FORMAT if made_raw else "") + "".join(f"{line}\n" for line in lines)
