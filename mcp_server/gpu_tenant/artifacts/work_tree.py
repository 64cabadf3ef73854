"""Reads a work tree in a process of its own, which ends with the call, however large or slow the tree is.

A walk in a thread could not be stopped, and its work in Python would hold up the server and the watch over all leases.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpu_tenant.artifacts.formats.worker_pool import environment
from gpu_tenant.domain.errors import BadRequest, LocalTrouble
from gpu_tenant.files.worktree import LeftOut, WorkTree

_GIT_SETTINGS = ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""These say where the owner's own rules for git are."""


async def read_work_tree(directory: Path, include: Sequence[str] = ()) -> WorkTree:
    """Return what `worktree.read_tree` returns. If the call is cancelled, the reading ends at once.

    Raises:
        BadRequest: as for `worktree.read_tree`.
        OSError: a directory cannot be read.
        LocalTrouble: the process that reads was ended from outside.
    """
    settings = {name: os.environ[name] for name in _GIT_SETTINGS if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gpu_tenant.artifacts.work_tree_worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment() | settings,
        start_new_session=True,  # Ctrl-C is only for us
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        # The process ends when its stdin does, so stdin stays open until its answer is here.
        asked = {"directory": os.fspath(directory), "include": list(include)}
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        answer, last_words = await asyncio.gather(process.stdout.read(), process.stderr.read())
    finally:
        if process.returncode is None:
            # `send_signal` would take the exit status of one that has just ended from whoever waits for it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.stdin.close()
        await process.wait()
    return _tree_of(answer, last_words, directory)


def _tree_of(answer: bytes, last_words: bytes, directory: Path) -> WorkTree:
    try:
        said = json.loads(answer)
    except ValueError:
        words = last_words.decode(errors="replace").strip().rpartition("\n")[2][:200]
        raise LocalTrouble(
            f"{directory} could not be read: {words or 'the process that read it was ended'}",
            remedy="try again; if it happens again, report it with these words",
        ) from None
    if "refused" in said:
        raise BadRequest(said["refused"], remedy=said["remedy"])
    if "errno" in said:
        raise OSError(said["errno"], said["words"], said["path"])
    files = {name: Path(path) for name, path in said["files"].items()}
    return WorkTree(files, [LeftOut(**one) for one in said["left_out"]])
