"""Which files processes have open."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.processes import text_of


def open_files(modes: tuple = (os.O_WRONLY, os.O_RDWR)) -> dict[tuple[int, int], int]:
    """The files that a process has open for writing, and which process, as far as we may look."""
    found = {}
    for pid in (
        [name for name in os.listdir("/proc") if name.isdigit()]
        if os.path.isdir("/proc/self")
        else ()
    ):
        try:
            for fd in os.listdir("/proc/%s/fd" % pid) if int(pid) != os.getpid() else ():
                flags = re.search(r"^flags:\s+(\d+)", text_of("/proc/%s/fdinfo/%s" % (pid, fd)))
                flags = flags or re.search(
                    r"\nflags:\s+(\d+)", text_of("/proc/%s/fdinfo/%s" % (pid, fd))
                )
                if flags and int(flags.group(1), 8) & os.O_ACCMODE in modes:
                    seen = os.stat("/proc/%s/fd/%s" % (pid, fd))
                    found[seen.st_dev, seen.st_ino] = int(pid)
        except OSError:
            continue
    return found
