"""Kept files are re-read several at once; what each proves is told in the seal's order."""

import asyncio
import os
import tracemalloc
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from arranged import lease

from gpu_tenant.artifacts.formats.worker_pool import SHARED
from gpu_tenant.artifacts.local_evidence import Loss, reread_all
from gpu_tenant.domain.evidence import Evidence
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.seal import SealedFile


def sealed(name: str, content: bytes) -> SealedFile:
    return SealedFile(
        name=name,
        at=f"/box/{name}",
        kind="file",
        role="artifact",
        mtime_ns=1,
        size_bytes=len(content),
        sha256=sha256(content).hexdigest(),
    )


@pytest.fixture
def of_lease(tmp_path: Path) -> Lease:
    return lease().model_copy(update={"kept_in": str(tmp_path)})


@pytest.fixture
def disk(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], None]]:
    """Makes whoever reads files do as the words say where the disk is read: the process is a real one."""
    place = tmp_path_factory.mktemp("disk")

    def does(what: str) -> None:
        (place / "sitecustomize.py").write_text(
            f"import os, threading\ndef preadv(*_):\n    {what}\nos.preadv = preadv\n",
            encoding="utf-8",
        )

    monkeypatch.setenv("PYTHONPATH", str(place))
    SHARED.close()
    yield does
    SHARED.close()


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
    tmp_path: Path, of_lease: Lease, disk: Callable[[str], None]
) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"content")
    disk("raise OSError(5, 'Input/output error')")

    with pytest.raises(OSError, match="Input/output error"):
        await reread_all([sealed(name, b"content") for name in "abc"], of_lease)


async def test_cancelled_it_ends_and_so_does_who_reads(
    tmp_path: Path, of_lease: Lease, disk: Callable[[str], None]
) -> None:
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    disk(
        f"pipe = open({str(pipe)!r}, 'w'); pipe.write(str(os.getpid())); pipe.close()\n"
        "    threading.Event().wait()"
    )
    proving = asyncio.create_task(reread_all([sealed("large", bytes(1 << 20))], of_lease))
    reader = int(await asyncio.to_thread(pipe.read_text, encoding="ascii"))

    proving.cancel()

    with pytest.raises(asyncio.CancelledError):
        await proving
    await asyncio.get_running_loop().shutdown_default_executor()
    with pytest.raises(ProcessLookupError):
        os.kill(reader, 0)


async def test_a_link_on_the_way_to_some_copies_spoils_only_those(
    tmp_path: Path, of_lease: Lease, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (tmp_path / "work" / "good").mkdir(parents=True)
    (tmp_path / "work" / "bad").symlink_to(elsewhere)
    # The same directory, to who splits the name before it is decoded.
    names = ["work/good/a", "work/bad/a", "work/good/b", "work/bad%2Fb"]
    for name in names:
        (tmp_path / name.replace("%2F", "/")).write_bytes(b"x")

    told = await reread_all([sealed(name, b"x") for name in names], of_lease)

    assert [isinstance(one, Loss) for one in told] == [False, True, False, True]


async def test_many_equal_verdicts_are_one_in_memory(tmp_path: Path, of_lease: Lease) -> None:
    entries = [sealed(f"{number}.bin", b"x" * (number + 1)) for number in range(20)]
    for entry in entries:
        (tmp_path / entry.name).write_bytes(b"x" * entry.size_bytes)

    told = await reread_all(entries, of_lease)

    assert len({id(one.verdict) for one in told if isinstance(one, Evidence)}) == 1


def test_a_sealed_file_takes_little_more_memory_than_its_texts() -> None:
    tracemalloc.start()
    try:
        kept = [sealed("name", b"") for _ in range(2000)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # 500 bytes of texts and of a dictionary. What pydantic adds to a record of its own would double it.
    assert taken / len(kept) < 900
