"""Bytes are read back from their storage as they lie there, in bounded pieces, through no link."""

import os
import random
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from gpu_tenant.files import direct_io
from gpu_tenant.files.direct_io import BLOCK_BYTES, Rereading, Stored, reread_blocks
from gpu_tenant.files.state_dir import reread

SIZES = (0, 1, 4096, 4097, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 77)


@pytest.fixture(params=["unbuffered where it can be", "buffered"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also as on a platform that has no way past its page cache."""
    if request.param == "buffered":
        monkeypatch.delattr(os, "O_DIRECT", raising=False)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("size_bytes", SIZES)
def test_a_file_of_any_length_is_read_whole_in_bounded_pieces(
    tmp_path: Path, size_bytes: int
) -> None:
    content = random.Random(size_bytes).randbytes(size_bytes)
    path = tmp_path / "file"
    path.write_bytes(content)

    blocks = reread_blocks(path)

    assert blocks is not None
    pieces = [bytes(block) for block in blocks]
    assert b"".join(pieces) == content
    assert all(0 < len(piece) <= BLOCK_BYTES for piece in pieces)
    held = reread(path)
    assert held is not None
    assert (held.size_bytes, held.sha256) == (size_bytes, sha256(content).hexdigest())


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("step", [1000, 4096, BLOCK_BYTES + 5])
def test_a_file_that_grows_is_read_back_as_far_as_asked(tmp_path: Path, step: int) -> None:
    content = random.Random(step).randbytes(2 * step + 17)
    path = tmp_path / "growing"

    with path.open("wb") as file:
        rereading = Rereading(path)
        for start in range(0, len(content), step):
            file.write(content[start : start + step])
            file.flush()
            os.fdatasync(file.fileno())
            end = min(start + step, len(content))
            assert rereading.upto(end) == end
            assert rereading.hexdigest() == sha256(content[:end]).hexdigest()
    rereading.close()


def test_what_is_not_there_yet_is_not_counted_as_read(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"12345")
    rereading = Rereading(path)

    assert rereading.upto(3 * BLOCK_BYTES) == 5
    assert rereading.upto(2) == 5

    assert rereading.hexdigest() == sha256(b"12345").hexdigest()
    rereading.close()


def test_no_link_pipe_or_directory_is_taken_for_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()

    for name in ("link", "pipe", "directory", "nothing"):
        assert reread_blocks(tmp_path / name) is None
        with pytest.raises(OSError, match="no regular file"):
            Rereading(tmp_path / name)


def test_a_file_that_took_the_name_of_another_is_not_read_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"the first" * 1000)
    opened = direct_io.open_regular(path)
    assert opened is not None
    path.rename(tmp_path / "aside")
    path.write_bytes(b"the other" * 1000)

    with Stored(opened, path) as stored:
        content = b"".join(bytes(block) for block in stored.blocks(0, stored.size_bytes))

    assert content == b"the first" * 1000


def test_a_reader_that_stops_early_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * BLOCK_BYTES))
    before = _open_files()

    blocks = reread_blocks(path)
    assert blocks is not None
    next(blocks)
    assert _open_files() > before
    blocks.close()  # type: ignore[attr-defined]

    assert _open_files() == before


def _open_files() -> int:
    """How many descriptors this process has, by asking for each low number."""
    held = 0
    for number in range(256):
        with suppress(OSError):
            os.fstat(number)
            held += 1
    return held
