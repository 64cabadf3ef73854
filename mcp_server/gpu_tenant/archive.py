"""Files as one stream for a box, a chunk at a time, none of them read into memory whole."""

import tarfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from gpu_tenant.errors import CaretakerFailed
from gpu_tenant.paths import to_remote

_CHUNK_BYTES = 1 << 20


async def archived(files: Mapping[str, Path]) -> AsyncIterator[bytes]:
    """The files as a pax archive; a tar holds names as they are, unescaped.

    Raises:
        CaretakerFailed: a file became another while it was read.
    """
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
            while chunk := source.read(min(_CHUNK_BYTES, member.size - sent)):
                sent += len(chunk)
                yield chunk
            if sent != member.size:
                raise CaretakerFailed(
                    f"{path} changed while it was sent", remedy="push again when it is quiet"
                )
            yield b"\0" * (-member.size % tarfile.BLOCKSIZE)
    yield b"\0" * tarfile.BLOCKSIZE * 2
