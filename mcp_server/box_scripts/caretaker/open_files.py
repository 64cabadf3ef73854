"""Finds out which files are open in processes."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.processes import text_of

FLAGS = re.compile(r"^flags:\s+(\d+)", re.MULTILINE).search
NO_FILES = ("socket:[", "pipe:[", "anon_inode:")


def open_files(modes: tuple = (os.O_WRONLY, os.O_RDWR)) -> dict[tuple[int, int], int]:
    """Return the files (device, inode) that are open in those modes, by default for writing, each with a process.

    Processes that we are not allowed to examine are left out.
    """
    found: dict[tuple[int, int], int] = {}
    if not os.path.isdir("/proc/self"):
        return found
    for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
        try:
            opened = os.listdir("/proc/%s/fd" % pid) if int(pid) != os.getpid() else ()
        except OSError:
            continue
        for fd in opened:
            link = "/proc/%s/fd/%s" % (pid, fd)
            try:
                if os.readlink(link).startswith(NO_FILES):
                    continue
                flags = FLAGS(text_of("/proc/%s/fdinfo/%s" % (pid, fd)))
                if flags and int(flags.group(1), 8) & os.O_ACCMODE in modes:
                    seen = os.stat(link)
                    found[seen.st_dev, seen.st_ino] = int(pid)
            except OSError:  # this file was closed meanwhile; the process may have others
                continue
    return found
