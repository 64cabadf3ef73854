"""Reads back from the disk what has arrived, while the rest is under way."""

import errno
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from threading import Thread

from gpu_tenant.files.artifact_directory import durable
from gpu_tenant.files.direct_io import Rereader, Rereading
from gpu_tenant.transfer.chunks import SMALL_BYTES, Coming, Large
from gpu_tenant.transfer.download_state import DownloadState

_STEP_BYTES = 32 << 20
"""A large file is read back when this many bytes are new. Less means too many flushes, more a long wait at the end."""
_STEP_S = 1.0
"""Small files are flushed together, once in this many seconds: each flush delays the threads that create files."""
_SIDE_BY_SIDE = 4
"""This many small files are read back at the same time. The disk handles several almost as fast as one."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A file that is complete and flushed to the disk. `size_bytes` and `sha256` were read back from there."""

    coming: Coming
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A file that could not be fetched. It was deleted or changed on the box, or cannot be read there."""

    coming: Coming
    why: str


class Prover(Thread):
    """The thread that reads files back as they arrive, until the transfer is over."""

    def __init__(
        self, work: DownloadState, tell: Callable[[Sequence[Arrived | Lost]], None]
    ) -> None:
        super().__init__(name="prover", daemon=True)
        self._work, self._tell = work, tell
        self._rereading: dict[Large, Rereading] = {}
        self._rereaders = [Rereader(SMALL_BYTES) for _ in range(_SIDE_BY_SIDE)]

    def run(self) -> None:
        """Read files back until the transfer is over."""
        try:
            with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="prover") as threads:
                while self._prove(threads):
                    pass
        except BaseException as error:  # noqa: BLE001 - raised again by the code that waits for the transfer
            self._work.fail(error)
        finally:
            for reading in self._rereading.values():
                reading.close()

    def _prove(self, threads: ThreadPoolExecutor) -> bool:
        """Read back everything that is ready. Return whether there may be more to do."""
        todo = self._work.provable(least_bytes=_STEP_BYTES, least_s=_STEP_S)
        if todo is None:
            return False
        files, small, lost = todo
        if lost:
            self._tell([Lost(coming, why) for coming, why in lost])
        for file in files:
            self._read_back(file)
        parts = [part for n in range(_SIDE_BY_SIDE) if (part := small[n::_SIDE_BY_SIDE])]
        for arrived in threads.map(_read_whole, self._rereaders, parts):
            self._tell(arrived)
            self._work.note_proved(len(arrived))
        return True

    def _read_back(self, file: Large) -> None:
        front = file.partial.front
        is_whole = front == file.partial.size_bytes
        file.partial.sync()
        reading = self._rereading.get(file)
        if reading is None:
            reading = self._rereading[file] = Rereading(file.coming.partial)
        file.proved_bytes = reading.upto(front)
        file.partial.save()
        if is_whole:
            self._rereading.pop(file).close()
            self._work.close(file)
            self._tell([Arrived(file.coming, file.proved_bytes, reading.hexdigest())])


def _read_whole(rereader: Rereader, small: Sequence[Coming]) -> Sequence[Arrived]:
    """Flush the files to the disk, read them back from there, and hash what was read.

    Raises:
        OSError: a file cannot be flushed or read, or is gone.
    """
    durable([coming.partial for coming in small])
    arrived: list[Arrived] = []
    for coming in small:
        held = rereader.read(coming.partial)
        if held is None:
            raise OSError(errno.ENOENT, "a file that had arrived was removed", str(coming.partial))
        arrived.append(Arrived(coming, len(held), sha256(held).hexdigest()))
    return arrived
