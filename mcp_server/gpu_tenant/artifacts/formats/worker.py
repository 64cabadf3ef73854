"""The program of a reader: it reads kept files for another process, which kills it if a file takes too much.

A request is one line of JSON on stdin. For each of its files, one line is written to stdout as the answer. The
program ends when no request has come for a while, when stdin ends, and after a file that took much memory.
"""

import json
import os
import select
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Lock

from gpu_tenant.artifacts.formats import bounded_file, check_file, resource_limits
from gpu_tenant.files.direct_io import flush_all

_IDLE_S = 20
_AT_ONCE = 2


class _Asker:
    """The process at the other end of the pipes. It sends the requests."""

    def __init__(self) -> None:
        self._asked, self._told = os.dup(0), os.dup(1)
        self._speaking, self._turn = Lock(), Lock()
        # The output of a library must not get between the answers.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)

    def request(self) -> bytes:
        """Read the next request. Empty if no more will come."""
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self._asked], [], [], _IDLE_S)[0]:
                return b""
            piece = os.read(self._asked, 1 << 16)
            if not piece:
                return b""
            line += piece
        return line

    def tell(self, what: object) -> None:
        """Send `what` to the other end."""
        line = json.dumps(what).encode() + b"\n"
        with self._speaking:
            while line:
                line = line[os.write(self._told, line) :]

    def acquire(self) -> None:
        """Ask the other end for permission to use much memory, and wait for it. The other end knows all readers."""
        self._turn.acquire()
        self.tell("turn")
        if os.read(self._asked, 1) != b"\n":
            os._exit(0)  # The other end is gone.

    def release(self) -> None:
        """Give the permission back to the other end."""
        self.tell("done")
        self._turn.release()


def main(memory: str) -> None:
    """Answer requests until none comes any more."""
    asker = _Asker()
    bounded_file.one_at_a_time(asker)
    resource_limits.leave_no_dump()
    if memory == "limited":
        resource_limits.limit_memory()
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        while request := asker.request():
            wanted = json.loads(request)
            files = wanted["files"]
            resource_limits.limit_computing(
                resource_limits.allowance_s(sum(x["size_bytes"] for x in files))
            )
            # Flush all files of a batch together: flushing them one after the other would take
            # longer than all the rest.
            is_batch = len(files) > 1 and wanted["how"] == "prove"
            paths = [Path(x["path"]) for x in files]
            flushed = flush_all(paths) if is_batch else [False for _ in paths]
            answered = partial(_answer, wanted["how"], len(files) == 1)
            # Read two files at the same time, to keep both the disk and a core busy.
            some = threads.map if len(files) > 1 else map
            for answer in some(answered, files, flushed):
                asker.tell(answer)
            if resource_limits.is_strained():
                return


def _answer(how: str, is_alone: bool, file: Mapping[str, str], flushed: bool) -> object:
    answer = _read(how, file, flushed)
    if not is_alone and (
        resource_limits.is_strained() or resource_limits.NO_MEMORY in json.dumps(answer)
    ):
        return {"stopped": resource_limits.NO_MEMORY}  # The other file may have used the memory.
    return answer


def _read(how: str, file: Mapping[str, str], flushed: bool) -> dict[str, object]:
    there, name = Path(file["path"]), file["name"]
    try:
        if how == "inspect":
            return {"verdict": check_file.inspect(there, name=name).model_dump(mode="json")}
        proof = check_file.prove(
            there,
            name=name,
            sha256=file["sha256"],
            stop=Event(),
            flushed="flushed" if flushed else "not flushed",
        )
        if proof is None:
            return {"absent": True}
        return {
            "size_bytes": proof.size_bytes,
            "sha256": proof.sha256,
            "verdict": proof.verdict.model_dump(mode="json"),
        }
    except OSError as error:
        return {"errno": error.errno, "words": error.strerror}
    except MemoryError:
        return {"stopped": resource_limits.NO_MEMORY}
    except Exception as surprise:  # noqa: BLE001  its own process hashes the file then
        return {"stopped": f"its reader gave up: {type(surprise).__name__}: {surprise}"[:300]}


if __name__ == "__main__":
    main(*sys.argv[1:])
