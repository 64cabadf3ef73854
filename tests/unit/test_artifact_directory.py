"""What a box sends lies below its kept directory, whatever an earlier job left there in its way."""

import resource
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
from arranged import lease

from gpu_tenant.artifacts.local_evidence import Loss, reread
from gpu_tenant.artifacts.stores.protocol import DirectoryStore
from gpu_tenant.box.manifest_entries import sound
from gpu_tenant.domain.errors import CaretakerFailed, LocalTrouble
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.files.artifact_directory import (
    PARTIAL,
    SUPERSEDED,
    durable,
    is_here,
    land,
    land_all,
    make_place,
    partial_of,
)

HOSTILE = b"not the owner's"


def file(name: str, content: bytes = HOSTILE) -> SealedFile:
    digest = sha256(content).hexdigest()
    return SealedFile(
        name=name,
        at=f"/box/{name}",
        kind="file",
        role="artifact",
        mtime_ns=1,
        size_bytes=len(content),
        sha256=digest,
    )


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


# Many at once


def land_at_once(kept: Path, entries: Sequence[SealedFile], stamp: str = "now") -> None:
    arrived = []
    for entry in entries:
        partial = partial_of(kept, entry) if entry.kind == "file" else None
        if partial is not None:
            partial.write_bytes(HOSTILE)
        arrived.append((entry, partial))
    land_all(arrived, kept, lease(), superseded=kept / SUPERSEDED / stamp)


def test_of_many_that_land_each_supersedes_what_was_in_its_way(kept: Path) -> None:
    (kept / "work/out/old").write_bytes(b"older")
    (kept / "work/out/d").write_bytes(b"a file once")
    (kept / "work/linked").symlink_to(kept.parent / "home")
    (kept / "work/out/taken/inner").mkdir(parents=True)
    entries = [
        file("work/out/new"),
        file("work/out/old"),
        file("work/out/d/e/x"),
        file("work/out/d/e/y"),
        file("work/linked/keys"),
        file("work/out/taken"),
        link("work/out/latest", "old"),
    ]

    land_at_once(kept, entries)

    aside = kept / ".superseded/now/work"
    assert all(is_here(kept, entry) for entry in entries)
    assert {(kept / e.name).stat().st_mtime_ns for e in entries if e.kind == "file"} == {1}
    assert (aside / "out/old").read_bytes() == b"older"
    assert (aside / "out/d").read_bytes() == b"a file once"
    assert (aside / "linked").readlink() == kept.parent / "home"
    assert (aside / "out/taken/inner").is_dir()
    assert [path.name for path in (kept.parent / "home").iterdir()] == ["keys"]
    assert (kept.parent / "home" / "keys").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["work/out/%s" % ("n" * 300), "work/out/old/x", "work/out/gone"])
def test_where_one_of_many_cannot_be_kept_those_before_it_are_in_place_and_it_is_named(
    kept: Path, name: str
) -> None:
    (kept / "work/out/old").write_bytes(b"older")
    (kept / ".superseded/now/work").mkdir(parents=True)
    (kept / ".superseded/now/work/out").write_bytes(b"in the way of what is to be superseded")
    arrived = []
    for entry in (file("work/out/first"), file(name), file("work/out/last")):
        arrived.append((entry, partial_of(kept, entry)))
        if "gone" not in entry.name:
            partial_of(kept, entry).write_bytes(HOSTILE)

    with pytest.raises(LocalTrouble, match=f" {name} cannot be kept here"):
        land_all(arrived, kept, lease(), superseded=kept / SUPERSEDED / "now")

    assert is_here(kept, file("work/out/first"))
    assert not (kept / "work/out/last").exists()
    assert (kept / "work/out/old").read_bytes() == b"older"


def test_nothing_lands_in_a_directory_that_was_superseded_meanwhile(kept: Path) -> None:
    land_at_once(kept, [file("work/out/d/x"), link("work/out/d", "x"), file("work/out/d/y")])

    assert is_here(kept, file("work/out/d/y"))
    assert (kept / ".superseded/now/work/out/d/x").read_bytes() == HOSTILE
    assert not (kept / ".superseded/now/work/out/d/y").exists()


def test_what_is_superseded_twice_at_one_moment_is_not_overwritten(kept: Path) -> None:
    for content in (b"first", b"second", b"third"):
        (kept / "work/out/x").write_bytes(content)
        land_at_once(kept, [file("work/out/x")])

    aside = kept / ".superseded/now/work/out"
    assert (aside / "x").read_bytes() == b"first"
    assert {path.read_bytes() for path in aside.iterdir()} == {b"first", b"second", b"third"}


def test_of_two_that_land_at_once_neither_moves_away_what_the_other_made(kept: Path) -> None:
    (kept / "work/out/d").write_bytes(b"a file once")
    batches = [[file(f"work/out/d/{at}/{n}") for n in range(5)] for at in range(8)]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(land_at_once, [kept] * 8, batches, map(str, range(8))))

    assert all(is_here(kept, entry) for batch in batches for entry in batch)
    assert [path.read_bytes() for path in (kept / SUPERSEDED).glob("*/work/out/d")] == [
        b"a file once"
    ]


def test_files_of_many_directories_land_with_few_of_them_open(kept: Path) -> None:
    entries = [file(f"work/{at % 100}/{at}/x") for at in range(300)]
    for entry in entries[::2]:
        (kept / entry.name).parent.mkdir(parents=True)
        (kept / entry.name).write_bytes(b"older")
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/dev/fd").iterdir())) + 90, most))

    try:
        land_at_once(kept, entries)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))

    assert all((kept / entry.name).read_bytes() == HOSTILE for entry in entries)
    assert len(list((kept / SUPERSEDED).rglob("x"))) == 150


def test_small_files_are_made_durable_and_one_that_is_gone_is_told(tmp_path: Path) -> None:
    paths = [tmp_path / str(at) for at in range(130)]
    for path in paths:
        path.write_bytes(HOSTILE)

    durable(paths)
    paths[-1].unlink()

    with pytest.raises(FileNotFoundError):
        durable(paths)


# What is here


def test_what_lies_behind_a_link_is_not_here_and_proves_nothing(kept: Path) -> None:
    (kept / "work/out/d").symlink_to(kept.parent / "home")
    entry = file("work/out/d/keys", b"mine")

    proved = reread(kept, entry, lease())

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
        [file("work/" + "d/" * 1000 + "x")],
        [file("work/" + "d" * 4000)],
    ],
)
def test_a_list_in_which_names_are_in_each_others_way_or_lead_out_is_refused(
    entries: list[SealedFile],
) -> None:
    with pytest.raises(CaretakerFailed, match="cannot be right"):
        sound(tuple(entries))


def test_a_list_as_jobs_make_them_is_taken() -> None:
    entries = (
        file("work/out/step-10/a"),
        link("work/out/latest", "step-10"),
        link("work/out/up", "../src"),
        file("work/out/step-1"),
        file("root/data/x"),
        file("log/train.log"),
        file("work/100%25"),
    )

    assert sound(entries) == entries
