#!/usr/bin/env python3
"""Runs one command for a quick look, within seconds and kilobytes, whatever it does.

    usage: exec.py HOME DIR COMMAND S BYTES

DIR is where the command runs, by `sh`. HOME is the caretaker's home, which marks whatever the command starts as this lease's. After S
seconds, or once it has printed BYTES, or if this script is asked to end, the command is killed with all that it started, whatever that
did to its session or its environment. The last line of the output is one JSON object: `status` (null if it was killed for its time),
`output`, and `cut`.
Python 3.7 or newer, standard library only.
"""

import binascii
import json
import os
import select
import signal
import subprocess
import sys
import time

ROUNDS, ROUND_S = 40, 0.05


def look(home, directory, command, seconds, most):
    """Run the command, and return what there is to say of it."""
    until = time.monotonic() + seconds
    mark = binascii.hexlify(os.urandom(16)).decode()
    home = os.path.realpath(os.path.expanduser(home))
    process = subprocess.Popen(
        ["sh", "-c", command],
        cwd=directory,
        env=dict(os.environ, GPU_TENANT_CARETAKER=home, GPU_TENANT_EXEC=mark),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return watch(process, until, most)
    finally:
        end(process, mark)


def watch(process, until, most):
    """Read what the command prints until it is over, or must be."""
    printed, fd = b"", process.stdout.fileno()
    while len(printed) <= most and time.monotonic() < until:
        if select.select([fd], [], [], 0.05)[0]:
            chunk = os.read(fd, 65536)
            printed += chunk
            if chunk:
                continue
            try:
                process.wait(max(0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            break
        # What the command left running may keep the pipe open for ever.
        if process.poll() is not None and not select.select([fd], [], [], 0)[0]:
            break
    return {
        "status": process.poll(),
        "output": printed[:most].decode("utf-8", "replace"),
        "cut": len(printed) > most,
    }


def end(process, mark):
    """Kill the command's process group, and what has left it but still has the mark."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()
    kill_all(lambda: marked(b"GPU_TENANT_EXEC=" + mark.encode()))


def kill_all(left):
    """Kill the processes that `left` returns, until it returns none. A process may fork while the table is read."""
    for _ in range(ROUNDS):
        pids = left()
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(ROUND_S)


def marked(mark):
    """Return the processes that have this in their environment."""
    found = []
    for pid in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            with open("/proc/" + pid + "/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(int(pid))
        except (OSError, ValueError):
            continue
    return found


def adopt():
    """Make this process the parent of every descendant whose own parent ends. Return whether the system can do that."""
    try:
        import ctypes

        return ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        return False


def descendants():
    """Return all living descendants of this process. Those that have ended are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:  # there is no child any more
        pass
    parents = {}
    for pid in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            with open("/proc/" + pid + "/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                parents[int(pid)] = int(fields[1])
        except (OSError, ValueError, IndexError):
            continue
    found, size = {os.getpid()}, 0
    while size != len(found):
        size = len(found)
        found.update(pid for pid, parent in parents.items() if parent in found)
    return sorted(found - {os.getpid()})


def leave(number, frame):
    sys.exit(128 + number)


def main():
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return
    home, directory, command, seconds, most = sys.argv[1:]
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, leave)
    # The command's own parent is another process. So a command that kills its parent frees nothing.
    watcher = os.fork() if adopt() else 0
    if watcher:
        status = 1
        try:
            status = os.waitpid(watcher, 0)[1]
        finally:
            kill_all(descendants)
        sys.exit(1 if status else 0)
    answer = look(home, directory, command, float(seconds), int(most))
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
