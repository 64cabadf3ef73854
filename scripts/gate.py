#!/usr/bin/env python3
"""Tries a command on a box before the job: in a copy of the work directory, with what it takes of the GPU.

    usage: gate.py COPY S COMMAND [VENV]

The current directory is the work directory. COPY is where its copy is made; whatever was there before is removed, and the copy, too, at
the end. Files above 64 MiB, environments and what git keeps are not copied: the copy has links to them. COMMAND is run by `sh` in the
copy, in the environment VENV if one is named. After S seconds it is stopped. The last line of the output is one JSON object: `status`
(null if it was stopped for its time), `seconds`, `peak_mib` and `total_mib` of the fullest GPU (null where `nvidia-smi` does not say),
and `output`, the end of what it printed. Or `skipped`: why it was not tried.
Python 3.7 or newer, standard library only.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LARGE_BYTES, MOST_BYTES, MOST_FILES = 64 << 20, 2 << 30, 50000
LINKED = (".git", ".venv", "venv", "env", "node_modules", ".tox")
TAIL_BYTES, GRACE_S, ROUND_S, SAMPLE_S = 4000, 3, 0.1, 1.0
COPY_S = 40  # whoever started this waits longer: nobody else removes a copy


class TooLarge(Exception):
    """The work directory is too large to copy."""


def copy(source, target):
    """Copy the directory. What is large is linked."""
    count = size = 0
    until = time.monotonic() + COPY_S
    for at, directories, names in os.walk(source):
        here = os.path.join(target, os.path.relpath(at, source))
        os.makedirs(here, exist_ok=True)
        for name in list(directories):
            whole = os.path.join(at, name)
            if name in LINKED or os.path.islink(whole):
                directories.remove(name)
                os.symlink(os.path.realpath(whole), os.path.join(here, name))
        for name in names:
            whole, made = os.path.join(at, name), os.path.join(here, name)
            try:
                seen = os.stat(whole)
            except OSError:
                continue
            count += 1
            if os.path.islink(whole) or seen.st_size > LARGE_BYTES:
                os.symlink(os.path.realpath(whole), made)
            elif os.path.isfile(whole):
                size += seen.st_size
                if size > MOST_BYTES or count > MOST_FILES or time.monotonic() > until:
                    raise TooLarge("the work directory is too large to copy")
                shutil.copy2(whole, made)


def gpu_memory():
    """Return the used and the whole memory, in MiB, of the GPU that is fullest. None if no driver says so."""
    query = "--query-gpu=index,name,utilization.gpu,memory.used,memory.total,temperature.gpu"
    asks = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(asks, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5)
        rows = [line.split(b",") for line in said.stdout.splitlines()]
        return max((int(row[-3]), int(row[-2])) for row in rows)
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None


def attempt(directory, command, seconds, venv):
    """Run the command, and return what there is to say of it."""
    env = dict(os.environ)
    if venv:
        env.update(VIRTUAL_ENV=venv, PATH=os.path.join(venv, "bin") + ":" + env.get("PATH", ""))
    began, looked, fullest = time.monotonic(), 0.0, None
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            ["sh", "-c", command],
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while process.poll() is None and time.monotonic() - began < seconds:
            if time.monotonic() - looked > SAMPLE_S:
                seen, looked = gpu_memory(), time.monotonic()
                fullest = max(seen or (0, 0), fullest or (0, 0)) if seen or fullest else None
            time.sleep(ROUND_S)
        status, took = process.poll(), time.monotonic() - began
        if status is None:
            stop(process)
        end = printed.seek(0, os.SEEK_END)
        printed.seek(max(0, end - TAIL_BYTES))
        tail = printed.read().decode("utf-8", "replace")
    used, total = fullest or (None, None)
    return {
        "status": status,
        "seconds": round(took, 1),
        "peak_mib": used,
        "total_mib": total,
        "output": tail,
    }


def stop(process):
    """Ask the command's process group to end, and kill it after the grace."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE_S)
        except (OSError, subprocess.TimeoutExpired):
            continue


def main():
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return
    place, seconds, command = sys.argv[1:4]
    venv = sys.argv[4] if len(sys.argv) > 4 else ""
    place = os.path.abspath(os.path.expanduser(place))
    shutil.rmtree(place, ignore_errors=True)
    try:
        copy(os.getcwd(), place)
        answer = attempt(place, command, float(seconds), venv)
    except (TooLarge, OSError) as trouble:
        answer = {"skipped": str(trouble)[:300]}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
