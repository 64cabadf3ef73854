"""Starts a process that outlives its caller."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def spawn_detached(body: Callable[[], object], keep: set[int]) -> None:
    """Run `body` in a detached process. Of the caller's open files, it keeps only those in `keep`."""
    import signal

    # If our caller ignored SIGCHLD, so would we, and the system would reap our child before we can wait for it.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    courier = os.fork()
    if courier:
        os.waitpid(courier, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            for signum in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
                signal.signal(signum, signal.SIG_IGN)
            os.chdir("/")
            null = os.open(os.devnull, os.O_RDWR)
            for fd in range(3):
                os.dup2(null, fd)
            for name in os.listdir("/dev/fd"):
                if int(name) > 2 and int(name) not in keep:
                    try:
                        os.close(int(name))
                    except OSError:  # this was the descriptor of the listing itself
                        pass
            body()
    finally:
        os._exit(0)
