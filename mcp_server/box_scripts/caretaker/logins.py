"""Finds traces of a person who worked on this box by hand."""

from __future__ import annotations

import os

LOGIN_RECORDS = ("var/log/wtmp", "var/log/lastlog", "run/utmp")
"""The files in which a system records logins and logouts. An image may have none of them."""


def somebody_may_have_worked(since_ns: int, root: str = "/") -> bool:
    """Whether somebody may have worked here by hand since then: a terminal is open, or a login was recorded.

    A login without a terminal leaves no trace, so it is not noticed.
    """
    for name in LOGIN_RECORDS:
        try:
            if os.stat(os.path.join(root, name)).st_mtime_ns >= since_ns:
                return True
        except OSError:  # this image does not have the file
            pass
    try:
        return any(name.isdigit() for name in os.listdir(os.path.join(root, "dev/pts")))
    except OSError:
        return False
