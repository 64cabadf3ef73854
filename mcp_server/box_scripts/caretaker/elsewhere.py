"""Finds files that were written on this box outside all directories that are accounted for."""

from __future__ import annotations

import os
import re
import stat

from box_scripts.caretaker.caches import is_cache
from box_scripts.caretaker.mounts import far_mounts
from box_scripts.caretaker.paths import escape_path
from box_scripts.caretaker.processes import text_of
from box_scripts.caretaker.progress import TELLING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from box_scripts.caretaker.jobs import Job

SYSTEM = re.compile(  # where the system, and its package managers, keep their own files
    rb"/(?:bin|boot|etc|lib|lib32|lib64|libx32|proc|sbin|snap|sys|lost\+found|swapfile|swap\.img)"
    rb"|/dev/(?!shm$)[^/]*|/run/(?!user$|shm$)[^/]*|/usr/(?!local$)[^/]*"
    rb"|/usr/local/(?:bin|cuda[^/]*|etc|games|include|lib|lib64|libexec|man|sbin|share|src)"
    rb"|/var/(?:backups|cache|crash|log|lock|mail|run|snap|spool)"
    rb"|/var/lib/(?:apport|apt|buildkit|chrony|cloud|command-not-found|containerd|containers|dbus|dcgm[^/]*|dhcp|docker"
    rb"|dpkg|fwupd|google[^/]*|initramfs-tools|kubelet|landscape|logrotate|man-db|misc|mlocate|plocate|nvidia[^/]*|pam"
    rb"|PackageKit|polkit-1|private|python[^/]*|rsyslog|shim-signed|snapd|sudo|systemd|ubuntu-[^/]*|ucf|update-[^/]*"
    rb"|usbutils|vim|waagent|xml-core)"
).fullmatch
INSTALLED = {b"site-packages", b"dist-packages"}
OF_AN_ENVIRONMENT = re.compile(  # what conda and venv keep in an environment's directory
    rb"bin|compiler_compat|conda-meta|condabin|etc|include|info|lib|lib32|lib64|libexec|man|pkgs|sbin|share|shell|ssl"
    rb"|x86_64-.*|aarch64-.*"
).fullmatch
CLOCK_TICK_NS = 2 * 10**9


class Elsewhere:
    """The files that were written on this box's disks since the launch, outside the accounted directories.

    `written` are those that count as written by the jobs: changed by the time at which the last of their processes
    had ended, and readable. `others` are the rest, such as what a service of the platform writes all the time.
    """

    def __init__(self, tops: list[bytes], since_ns: int, until_ns: int | None) -> None:
        """With `until_ns=None`, nothing is too new. `tops` are not looked at."""
        self._skip = {*tops, *far_mounts(text_of("/proc/self/mountinfo"))}
        self._since_ns, self._until_ns = since_ns, until_ns
        self.written: list[tuple[str, bytes, int]] = []
        self.others: list[tuple[int, str]] = []

    def look(self, is_ours: Callable[[bytes, os.stat_result], bool], busy: set) -> None:
        """Walk over the disks. There is no limit of time, because a file that is not found may be the only copy."""
        packaged = packaged_since(self._since_ns)
        for path, seen in self._changed():
            if path in packaged or is_cache(path) or is_ours(path, seen):
                continue
            at = escape_path(path)
            is_late = self._until_ns is not None and seen.st_ctime_ns > self._until_ns
            if is_late or (seen.st_dev, seen.st_ino) in busy or not os.access(path, os.R_OK):
                self.others.append((seen.st_size, at))
            else:
                self.written.append((at, path, seen.st_size))

    def _changed(self) -> Iterator[tuple[bytes, os.stat_result]]:
        pending, walked = roots(), set()
        while pending:
            top = pending.pop()
            if top in walked:
                continue
            walked.add(top)
            if top != b"/" and (top in self._skip or SYSTEM(top) or os.path.islink(top)):
                continue
            TELLING.did(1, 0)
            try:
                entries = list(os.scandir(top))
            except OSError:
                continue
            names = {entry.name for entry in entries}
            is_environment = b"conda-meta" in names or b"pyvenv.cfg" in names
            for entry in entries:
                try:
                    seen = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(seen.st_mode):
                    if entry.name not in INSTALLED and not (
                        is_environment and OF_AN_ENVIRONMENT(entry.name)
                    ):
                        pending.append(entry.path)
                elif (
                    stat.S_ISREG(seen.st_mode)
                    and seen.st_ctime_ns >= self._since_ns
                    and not SYSTEM(entry.path)
                ):
                    yield entry.path, seen

    def as_answer(self) -> dict:
        """Return the files that do not count as written by the jobs."""
        return {
            "count": len(self.others),
            "bytes": sum(size for size, _ in self.others),
            "largest": [
                {"at": at, "size": size} for size, at in sorted(self.others, reverse=True)[:5]
            ],
            "whole": True,
        }


def roots() -> list[bytes]:
    """Return the directories where the look begins.

    A box may be only processes of somebody's computer, as in a rehearsal. Then its disks are only those directories
    that its environment names, because the others hold that person's own files.
    """
    if "GPU_TENANT_NO_POWEROFF" in os.environ:
        told = os.environ.get("GPU_TENANT_DISKS", "").split(":")
        return [os.path.realpath(os.fsencode(place)) for place in told if place]
    return [b"/", b"/dev/shm"]  # this one is memory, but it is lost with the box, too


def last_sign_ns(jobs: list[Job]) -> int | None:
    """Return when the last process of the jobs had ended. None if that is not recorded."""
    ended = []
    for job in jobs:
        try:
            ended.append(os.stat(job.path("exit.json")).st_mtime_ns)
        except OSError:
            return None
    return max(ended) + CLOCK_TICK_NS if ended else None


def packaged_since(since_ns: int) -> set[bytes]:
    """Return the files of the Debian packages that were installed since then."""
    found: set[bytes] = set()
    try:
        lists = [e for e in os.scandir(b"/var/lib/dpkg/info") if e.name.endswith(b".list")]
    except OSError:
        return found
    for entry in lists:
        try:
            if entry.stat().st_ctime_ns >= since_ns:
                with open(entry.path, "rb") as file:
                    found.update(file.read().splitlines())
        except OSError:
            continue
    return found
