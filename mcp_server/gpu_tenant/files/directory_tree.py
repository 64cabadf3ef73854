"""The directories below one root.

They are opened without following links, and stay open while many files are handled.
"""

import os
from collections import OrderedDict
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

Parts = tuple[str, ...]
"""A path below a root, as a tuple of the names in it."""
_OPEN_AT_ONCE = 64
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_NO_LINK = _DIRECTORY | getattr(os, "O_NOFOLLOW", 0)


class Tree:
    """The open directories below one root. Changes to their names are sure to survive a crash only after `sync`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: OrderedDict[Parts, int] = OrderedDict()
        self._touched: set[Parts] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as closing:
            for opened in self._open.values():
                closing.callback(os.close, opened)
            self._open.clear()

    def directory(self, parts: Parts) -> int:
        """Return the descriptor of the open directory at that path. It is valid until the next call of `spare`.

        Raises:
            OSError: there is no such directory, or a link is on the way to it.
        """
        return self._enter(parts, make=False)

    def make_directory(self, parts: Parts) -> int:
        """Return the descriptor of the directory at that path, and make it if needed. It is valid until `spare`.

        Raises:
            OSError: something that is not a directory is there, or on the way to it.
        """
        return self._enter(parts, make=True)

    def touch(self, parts: Parts) -> None:
        """Note that names in this open directory have changed, so that `sync` flushes it."""
        self._touched.add(parts)

    def spare(self) -> None:
        """Close directories until no more than the allowed number are open.

        The directories that have not been used for longest are closed first.
        """
        while len(self._open) > _OPEN_AT_ONCE:
            self._leave(next(parts for parts in self._open if parts))

    def leave(self, parts: Parts) -> None:
        """Close every open directory at or below `parts`, because that directory is about to be moved."""
        for inner in [inner for inner in self._open if inner[: len(parts)] == parts]:
            self._leave(inner)

    def sync(self) -> None:
        """Flush all changed names to the disk."""
        while self._touched:
            os.fsync(self._open[next(iter(self._touched))])
            self._touched.pop()

    def _leave(self, parts: Parts) -> None:
        opened = self._open.pop(parts)
        try:
            if parts in self._touched:
                self._touched.remove(parts)
                os.fsync(opened)
        finally:
            os.close(opened)

    def _enter(self, parts: Parts, *, make: bool) -> int:
        if () not in self._open:
            self._open[()] = os.open(self._root, _DIRECTORY)
        depth = len(parts)
        while parts[:depth] not in self._open:
            depth -= 1
        for at in range(depth, len(parts)):
            name, above = parts[at], self._open[parts[:at]]
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=above)
                    self._touched.add(parts[:at])
            self._open[parts[: at + 1]] = os.open(name, _NO_LINK, dir_fd=above)
        self._open.move_to_end(parts)
        return self._open[parts]
