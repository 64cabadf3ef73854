"""What a box sends lies below its kept directory, whatever an earlier job left there in its way."""

import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from arranged import lease

from gpu_tenant.durable import DirectoryStore
from gpu_tenant.entries import sound
from gpu_tenant.errors import CaretakerFailed, LocalTrouble
from gpu_tenant.landing import PARTIAL, is_here, land, make_place, partial_of
from gpu_tenant.model import SealedFile
from gpu_tenant.verify import Loss, _reread_entry

HOSTILE = b"not the owner's"


def file(name: str, content: bytes = HOSTILE) -> SealedFile:
    digest = sha256(content).hexdigest()
    return SealedFile(
        name=name, at=f"/box/{name}", kind="file", role="artifact", mtime_ns=1,
        size_bytes=len(content), sha256=digest,
    )  # fmt: skip


def link(name: str, target: str) -> SealedFile:
    return file(name).model_copy(update={"kind": "link", "target": target})


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A kept directory; beside it lies the owner's home, with one file."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "keys").write_bytes(b"mine")
    make_place(tmp_path / "kept", lease())
    (tmp_path / "kept" / "work" / "out").mkdir(parents=True)
    return tmp_path / "kept"


async def lands(kept: Path, entry: SealedFile, stamp: str = "now") -> None:
    partial = None
    if entry.kind == "file":
        partial = partial_of(kept, entry, PARTIAL)
        partial.write_bytes(HOSTILE)
    await land(entry, partial, kept, lease(), superseded=kept / ".superseded" / stamp)


@pytest.mark.parametrize("depth", ["work/out/d", "work/out", "work"])
async def test_nothing_is_written_through_a_link_and_the_link_is_superseded(
    kept: Path, depth: str
) -> None:
    inner = "work/out/d/keys".removeprefix(f"{depth}/")
    away = kept.parent / "home"
    (away / inner).parent.mkdir(parents=True, exist_ok=True)
    (away / inner).write_bytes(b"mine")
    shutil.rmtree(kept / "work")
    (kept / depth).parent.mkdir(parents=True, exist_ok=True)
    (kept / depth).symlink_to(away)

    await lands(kept, file("work/out/d/keys"))

    assert (away / inner).read_bytes() == b"mine"
    assert (kept / "work/out/d/keys").read_bytes() == HOSTILE
    assert (kept / ".superseded/now" / depth).readlink() == away
    assert not (kept / depth).is_symlink()


async def test_a_file_in_the_way_of_a_directory_is_superseded_and_a_directory_in_a_links(
    kept: Path,
) -> None:
    (kept / "work/out/d").write_bytes(b"a file once")

    await lands(kept, file("work/out/d/x"), "first")
    await lands(kept, link("work/out/d", "x"), "second")

    assert (kept / ".superseded/first/work/out/d").read_bytes() == b"a file once"
    assert (kept / ".superseded/second/work/out/d/x").read_bytes() == HOSTILE
    assert (kept / "work/out/d").readlink() == Path("x")


async def test_nothing_is_superseded_through_a_link_either(kept: Path) -> None:
    (kept / "work/out/keys").write_bytes(b"older")
    (kept / ".superseded/now/work").mkdir(parents=True)
    (kept / ".superseded/now/work/out").symlink_to(kept.parent / "home")

    with pytest.raises(LocalTrouble, match="cannot be kept here"):
        await lands(kept, file("work/out/keys"))

    assert (kept.parent / "home" / "keys").read_bytes() == b"mine"
    assert (kept / "work/out/keys").read_bytes() == b"older"


def test_what_lies_behind_a_link_is_not_here_and_proves_nothing(kept: Path) -> None:
    (kept / "work/out/d").symlink_to(kept.parent / "home")
    entry = file("work/out/d/keys", b"mine")

    proved = _reread_entry(kept, entry, lease())

    assert not is_here(kept, entry)
    assert isinstance(proved, Loss)
    assert proved.what == "work/out/d/keys is not here"


async def test_a_store_that_is_a_directory_keeps_nothing_behind_a_link(
    kept: Path, tmp_path: Path
) -> None:
    store = DirectoryStore(kept, words="a disk")
    (tmp_path / "new").write_bytes(HOSTILE)
    (kept / "x").mkdir()
    (kept / "x" / "d").symlink_to(tmp_path / "home")

    await store.put(tmp_path / "new", "x/d/keys", superseded="x/.superseded/now/d/keys")

    assert (tmp_path / "home" / "keys").read_bytes() == b"mine"
    assert (kept / "x/d/keys").read_bytes() == HOSTILE
    assert (kept / "x/.superseded/now/d").is_symlink()


@pytest.mark.parametrize(
    "entries",
    [
        [file("work/d"), file("work/d/x")],
        [file("work/d/e/x"), file("work/d-"), link("work/d", "y")],
        [file("work/d"), file("work/%64")],
        [file("work/../../x")],
        [file("/etc/passwd")],
        [file("work//x")],
        [file("work/a%00")],
        [file("")],
        [file("work")],
        [file(".partial/live/lock")],
        [file("work/x").model_copy(update={"at": "a%00b"})],
        [link("work/d", "/etc")],
        [link("work/d", "..")],
        [link("work/out/d", "../../x")],
        [link("work/out/d", "e/../../../x")],
        [link("work/d", "")],
    ],
)
def test_a_list_in_which_names_are_in_each_others_way_or_lead_out_is_refused(
    entries: list[SealedFile],
) -> None:
    with pytest.raises(CaretakerFailed, match="makes no sense"):
        sound(tuple(entries))


def test_a_list_as_jobs_make_them_is_taken() -> None:
    entries = (
        file("work/out/step-10/a"), link("work/out/latest", "step-10"), link("work/out/up", "../src"),
        file("work/out/step-1"), file("root/data/x"), file("log/train.log"), file("work/100%25"),
    )  # fmt: skip

    assert sound(entries) == entries
