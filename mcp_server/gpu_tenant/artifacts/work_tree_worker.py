"""The program that reads one work tree for another process. It ends when its answer is written, or when its stdin ends."""

import json
import os
import sys
from dataclasses import asdict
from io import RawIOBase
from pathlib import Path
from threading import Thread

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.files.worktree import read_tree


def main() -> None:
    """Read the request from stdin, and write the answer to stdout. Both are one line of JSON."""
    # Not through a buffer: while it waits for more, it could not be closed at the end.
    stdin = os.fdopen(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    asked = json.loads(stdin.readline())
    Thread(target=_end_with, args=(stdin,), daemon=True).start()
    sys.stdout.buffer.write(json.dumps(_answer(asked)).encode() + b"\n")


def _end_with(stdin: RawIOBase) -> None:
    stdin.read(1)
    os._exit(1)


def _answer(asked: dict[str, object]) -> dict[str, object]:
    include = asked["include"]
    assert isinstance(include, list)
    try:
        tree = read_tree(Path(str(asked["directory"])), include)
    except BadRequest as refused:
        return {"refused": refused.message, "remedy": refused.remedy}
    except OSError as error:
        return {"errno": error.errno, "words": error.strerror, "path": error.filename}
    files = {name: os.fspath(path) for name, path in tree.files.items()}
    return {"files": files, "left_out": [asdict(one) for one in tree.left_out]}


if __name__ == "__main__":
    main()
