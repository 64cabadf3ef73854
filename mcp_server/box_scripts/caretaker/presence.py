"""Finds out whether somebody is logged in and active: at a terminal, or over another connection."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.processes import living_processes

TERMINAL_S = 1800.0
"""A terminal counts as in use for this many seconds after its last input or output.

If a person's computer dies, its terminals stay open here for hours. So an open terminal alone is not enough.
"""


class Presence:
    """Watches the processes of logins on this box, and whether they did something between two checks."""

    def __init__(self, home: str) -> None:
        self._job = os.fsencode(os.path.realpath(home))
        self._login = os.fsencode(os.path.realpath(os.path.expanduser("~")))
        self._door = os.environb.get(b"SSH_CONNECTION", b"").split()[2:]
        self._entered: dict = {}
        self._terminals: dict = {}
        self._looked = False

    def was_somebody_here(self, now: float) -> bool:
        """Whether somebody was active since the last call. At the first call, this is unknown, and counts as yes.

        `now` is by a clock that nobody can set.
        """
        entered, terminals = self._entering()
        moved, first = entered != self._entered, not self._looked
        self._entered, self._looked = entered, True
        return self._at_one_of(terminals, now) or moved or first

    def _entering(self) -> tuple[dict, set[int]]:
        """Return the processes of logins that belong to no job, each with its CPU time, and their terminals.

        This process and its children are left out.
        """
        found, terminals, table = {}, set(), living_processes()
        for pid, process in table.items():
            above = pid
            while above in table and above != os.getpid():
                above = table[above].parent
            if above == os.getpid():
                continue
            try:
                with open("/proc/%d/environ" % pid, "rb") as file:
                    lines = file.read().split(b"\0")
                with open("/proc/%d/stat" % pid, "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            named = dict(line.partition(b"=")[::2] for line in lines if b"=" in line)
            door = named.get(b"SSH_CONNECTION", b"").split()[2:]
            is_ours = named.get(b"GPU_TENANT_CARETAKER") == self._job or len(fields) < 13
            is_here = named.get(b"HOME") == self._login or door == self._door
            if not door or is_ours or not is_here:
                continue
            found[pid, process.ticks] = (fields[11], fields[12])
            device = int(fields[4])
            major, minor = device >> 8 & 0xFFF, device & 0xFF | device >> 12 & 0xFFF00
            if 136 <= major <= 143:
                terminals.add((major - 136) * 256 + minor)
        return found, terminals

    def _at_one_of(self, terminals: set[int], now: float) -> bool:
        """Whether one of the terminals had input or output in the last `TERMINAL_S` seconds.

        At the first check of a terminal, the wall clock decides. After that, a change of the terminal's time is enough.
        """
        known, self._terminals = self._terminals, {}
        for number in terminals:
            try:
                held = os.stat("/dev/pts/%d" % number)
            except OSError:
                continue
            stamp = max(held.st_atime, held.st_mtime)
            if number not in known:
                at = now - min(TERMINAL_S, max(0.0, time.time() - stamp))
            else:
                at = known[number][1] if known[number][0] == stamp else now
            self._terminals[number] = (stamp, at)
        return any(now - at < TERMINAL_S for _, at in self._terminals.values())
