#!/usr/bin/env python3
"""Runs one command for a quick look, within seconds and kilobytes, whatever it does.

    usage: exec.py DIR COMMAND S BYTES

DIR is where the command runs, by `sh`. After S seconds, or once it has printed BYTES, the command is killed with all of its process
group. The last line of the output is one JSON object: `status` (null if it was killed for its time), `output`, and `cut`.
Python 3.7 or newer, standard library only.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time


def look(directory, command, seconds, most):
    """Run the command, and return what there is to say of it."""
    until = time.monotonic() + seconds
    process = subprocess.Popen(
        ["sh", "-c", command],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
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
    status = process.poll()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()
    return {
        "status": status,
        "output": printed[:most].decode("utf-8", "replace"),
        "cut": len(printed) > most,
    }


def main():
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return
    directory, command, seconds, most = sys.argv[1:]
    answer = look(directory, command, float(seconds), int(most))
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
