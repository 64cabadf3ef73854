"""Packs files into one stream for a box, a chunk at a time. No file is read into memory as a whole."""

import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from gpu_tenant.domain.errors import CaretakerFailed
from gpu_tenant.files.paths import to_remote

_CHUNK_BYTES = 256 << 10
"""Files that are smaller than this are gathered into one chunk."""


async def at_once(size_bytes: int) -> None:
    """Return at once. This is used if there is no limit to wait for."""


async def archive(
    files: Mapping[str, Path],
    *,
    heading: bytes = b"",
    before: Callable[[int], Awaitable[None]] = at_once,
) -> AsyncIterator[bytes]:
    """Yield `heading`, and then the files as a pax archive. Such an archive holds names unchanged, without escapes.

    `before` is awaited with the size of each chunk before the chunk is yielded.

    Raises:
        CaretakerFailed: a file changed while it was read.
    """
    chunk = bytearray(heading)
    for part in _parts(files):
        chunk += part
        if len(chunk) >= _CHUNK_BYTES:
            await before(len(chunk))
            yield bytes(chunk)
            chunk.clear()
    await before(len(chunk))
    yield bytes(chunk)


def _parts(files: Mapping[str, Path]) -> Iterator[bytes]:
    for name, path in files.items():
        with path.open("rb") as source:
            member = tarfile.TarInfo(to_remote(name))
            status = path.stat()
            member.size, member.mtime, member.mode = (
                status.st_size,
                int(status.st_mtime),
                status.st_mode & 0o755,
            )
            yield member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            sent = 0
            while part := source.read(min(_CHUNK_BYTES, member.size - sent)):
                sent += len(part)
                yield part
            if sent != member.size:
                raise CaretakerFailed(
                    f"{path} changed while it was sent",
                    remedy="push again when nothing writes to it",
                )
            yield b"\0" * (-member.size % tarfile.BLOCKSIZE)
    yield b"\0" * tarfile.BLOCKSIZE * 2
