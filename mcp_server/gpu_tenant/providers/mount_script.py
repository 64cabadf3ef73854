"""The script that mounts a virtual machine's volumes at its first boot, where the platform only attaches them."""

import shlex
from collections.abc import Iterable

_SCRIPT = """#!/bin/sh
# gpu-tenant: mounts the volumes that the order names. It formats nothing.
mount_volume() {
    tries=300
    until [ -b "$1" ] || [ "$tries" -eq 0 ]; do sleep 2; tries=$((tries - 1)); done
    mkdir -p "$2"
    grep -q " $2 " /etc/fstab || echo "$1 $2 auto defaults,nofail 0 2" >>/etc/fstab
    mountpoint -q "$2" || mount "$2"
    # Without a size it only ever enlarges, up to the whole of a volume that has grown.
    resize2fs "$1" >/dev/null 2>&1 || :
}
"""


def mount_script(volumes: Iterable[tuple[str, str]]) -> str:
    """Return the script, for each volume's device and the path where it is wanted.

    A device may appear some time after the boot, so the script waits for it. A volume that has no file system is
    left as it is: then its path is no mount, and the first contact says so.
    """
    lines = [f"mount_volume {shlex.quote(device)} {shlex.quote(path)}" for device, path in volumes]
    return _SCRIPT + "".join(f"{line}\n" for line in lines)
