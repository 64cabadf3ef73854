#!/usr/bin/env python3
"""Runs one command for a quick look, within seconds and kilobytes, whatever it does.

    usage: exec.py HOME DIR COMMAND S BYTES

DIR is where the command runs, by `sh`. HOME is the caretaker's home, which marks whatever the command starts as this lease's. After S
seconds, or once it has printed BYTES, or if this script is asked to end, the command is killed with all that it started. The last line
of the output is one JSON object: `status` (null if it was killed for its time), `output`, and `cut`.
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
    """Kill the command, with its process group and with what has left that group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()
    # A process may fork while the table is read.
    for _ in range(ROUNDS):
        left = marked(b"GPU_TENANT_EXEC=" + mark.encode())
        if not left:
            return
        for pid in left:
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


def leave(number, frame):
    sys.exit(128 + number)


def main():
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return
    home, directory, command, seconds, most = sys.argv[1:]
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, leave)
    answer = look(home, directory, command, float(seconds), int(most))
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
