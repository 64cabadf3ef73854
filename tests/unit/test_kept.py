"""Kept files are re-read several at once; what each proves is told in the seal's order."""

import asyncio
import os
import threading
from hashlib import sha256
from pathlib import Path

import pytest
from arranged import lease

from gpu_tenant import storage
from gpu_tenant.kept import Loss, reread_all
from gpu_tenant.model import Evidence, Lease, SealedFile


def sealed(name: str, content: bytes) -> SealedFile:
    return SealedFile(
        name=name, at=f"/box/{name}", kind="file", role="artifact", mtime_ns=1,
        size_bytes=len(content), sha256=sha256(content).hexdigest(),
    )  # fmt: skip


@pytest.fixture
def of_lease(tmp_path: Path) -> Lease:
    return lease().model_copy(update={"kept_in": str(tmp_path)})


async def test_what_each_file_proves_is_told_in_the_order_of_the_seal(
    tmp_path: Path, of_lease: Lease
) -> None:
    contents = {f"{number}.txt": b"x" * (number * 37 % 11 + 1) for number in range(30)}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    entries = [sealed(name, content) for name, content in contents.items()]
    (tmp_path / "3.txt").unlink()
    (tmp_path / "7.txt").write_bytes(b"y" * len(contents["7.txt"]))
    (tmp_path / "9.txt").write_bytes(contents["9.txt"] + b"more")

    found = await reread_all(entries, of_lease)

    assert [isinstance(proved, Loss) for proved in found] == [
        number in (3, 7, 9) for number in range(30)
    ]
    assert [x.name for x in found if isinstance(x, Evidence)] == [
        name for name in contents if name not in ("3.txt", "7.txt", "9.txt")
    ]
    assert [x.what.split(maxsplit=1)[1] for x in found if isinstance(x, Loss)] == [
        "is not here",
        "has other bytes here than on the box",
        f"has {len(contents['9.txt']) + 4} bytes here and {len(contents['9.txt'])} on the box",
    ]


async def test_nothing_is_proved_of_no_files(of_lease: Lease) -> None:
    assert list(await reread_all([], of_lease)) == []


async def test_a_disk_that_fails_is_an_error_and_no_loss(
    tmp_path: Path, of_lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"content")

    def fails(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", fails)

    with pytest.raises(OSError, match="Input/output error"):
        await reread_all([sealed(name, b"content") for name in "abc"], of_lease)


async def test_cancelled_it_ends_with_the_block_it_is_at(
    tmp_path: Path, of_lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    monkeypatch.setattr(storage, "BLOCK_BYTES", 4096)
    begun, given_up, reads = asyncio.Event(), threading.Event(), []
    loop, read = asyncio.get_running_loop(), os.preadv

    def slow(*what: object) -> int:
        reads.append(what)
        if len(reads) > 10:
            loop.call_soon_threadsafe(begun.set)
            given_up.wait(60)
        return read(*what)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "preadv", slow)
    proving = asyncio.create_task(reread_all([sealed("large", bytes(1 << 20))], of_lease))
    await begun.wait()

    proving.cancel()

    with pytest.raises(asyncio.CancelledError):
        await proving
    given_up.set()
    await loop.shutdown_default_executor()
    assert len(reads) < 20
