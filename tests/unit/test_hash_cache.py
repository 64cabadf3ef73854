"""What is known to lie in a kept directory lies there; whatever was done to it since is not believed."""

import os
import resource
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from arranged import lease

from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.files.artifact_directory import is_here, land_all, make_place, partial_of
from gpu_tenant.files.hash_cache import KNOWN, Brought, HashCache, clone_file, distrust
from gpu_tenant.files.paths import below

BYTES = b"weights of step 10"
OTHER = b"weights of step 20"
LONG_AGO_NS = 1_700_000_000_123_456_789


def file(name: str, content: bytes = BYTES, mtime_ns: int = LONG_AGO_NS) -> SealedFile:
    return SealedFile(
        name=name,
        at=f"/box/{name}",
        kind="file",
        role="artifact",
        mtime_ns=mtime_ns,
        size_bytes=len(content),
        sha256=sha256(content).hexdigest(),
    )


def link(name: str, target: str) -> SealedFile:
    return file(name).model_copy(update={"kind": "link", "target": target, "sha256": None})


ENTRY = file("work/out/step-10/model")


def collected(directory: Path, *entries: SealedFile, content: bytes = BYTES) -> HashCache:
    """What is known once these have landed, saved as a collect saves it."""
    make_place(directory, lease())
    arrived = []
    for entry in entries:
        partial = None if entry.kind == "link" else partial_of(directory, entry)
        if partial is not None:
            partial.write_bytes(content)
        arrived.append((entry, partial))
    land_all(arrived, directory, lease(), superseded=directory / ".superseded" / "now")
    known = HashCache.of(directory)
    known.note(entries)
    known.save()
    return HashCache.of(directory)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A kept directory with one file, which is known."""
    collected(tmp_path / "kept", ENTRY)
    return tmp_path / "kept"


def rewritten(path: Path) -> None:
    """Other bytes of that length are in the same file, with the same time of modification."""
    before = path.stat()
    with path.open("r+b") as written:
        written.write(OTHER)
    # Once a step of its clock has passed: within one, only the bytes could tell.
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def edited(path: Path) -> None:
    path.write_bytes(OTHER)


def replaced(path: Path) -> None:
    new = path.with_name("new")
    new.write_bytes(OTHER)
    os.utime(new, ns=(LONG_AGO_NS, LONG_AGO_NS))
    new.replace(path)


def is_told(known: HashCache, entry: SealedFile) -> str:
    here, missing, unread = known.glance([entry])
    return "here" if here else "missing" if missing else "unread" if unread else "nothing"


def test_what_landed_is_known_without_being_read(kept: Path) -> None:
    known = HashCache.of(kept)

    assert is_told(known, ENTRY) == "here"
    assert known.is_here(ENTRY)
    assert is_told(known, file(ENTRY.name, OTHER)) == "missing"


@pytest.mark.parametrize("done", [rewritten, edited, replaced])
def test_other_bytes_of_the_same_size_are_read_and_then_known_for_what_they_are(
    kept: Path, done: Callable[[Path], None]
) -> None:
    done(below(kept, ENTRY.name))
    known = HashCache.of(kept)

    assert is_told(known, ENTRY) == "unread"
    assert not known.is_here(ENTRY)
    assert is_told(known, ENTRY) != "here"
    assert known.is_here(file(ENTRY.name, OTHER))


def test_a_file_that_was_read_is_not_read_again(kept: Path) -> None:
    (kept / KNOWN).unlink()
    known = HashCache.of(kept)

    assert is_told(known, ENTRY) == "unread"
    assert known.is_here(ENTRY)
    known.save()

    assert is_told(HashCache.of(kept), ENTRY) == "here"


def test_a_file_whose_time_is_that_of_its_landing_is_read_every_time(tmp_path: Path) -> None:
    (tmp_path / "clock").touch()
    entry = file("work/x", mtime_ns=(tmp_path / "clock").stat().st_mtime_ns)

    known = collected(tmp_path / "kept", entry)

    assert is_told(known, entry) == "unread"
    assert known.is_here(entry)
    assert is_told(known, entry) == "unread"
    below(tmp_path / "kept", entry.name).write_bytes(OTHER)
    assert not known.is_here(entry)


@pytest.mark.parametrize("mtime_ns", [None, LONG_AGO_NS - 1], ids=["edited", "copied over"])
def test_a_file_that_was_written_to_between_landing_and_note_is_not_known(
    kept: Path, mtime_ns: int | None
) -> None:
    path = below(kept, ENTRY.name)
    edited(path)
    if mtime_ns is not None:
        os.utime(path, ns=(mtime_ns, mtime_ns))
    known = HashCache(kept, {})

    known.note([ENTRY])

    assert is_told(known, ENTRY) == "unread"
    assert not known.is_here(ENTRY)


def test_a_link_to_the_very_bytes_is_not_the_file(kept: Path, tmp_path: Path) -> None:
    path = below(kept, ENTRY.name)
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")

    assert is_told(HashCache.of(kept), ENTRY) == "missing"
    assert not HashCache.of(kept).is_here(ENTRY)


@pytest.mark.parametrize("depth", ["work", "work/out", "work/out/step-10"])
def test_the_very_file_behind_a_linked_directory_is_not_here(
    kept: Path, tmp_path: Path, depth: str
) -> None:
    (kept / depth).rename(tmp_path / "moved")
    (kept / depth).symlink_to(tmp_path / "moved")
    known, brought = HashCache.of(kept), Brought.of([kept])

    assert is_told(known, ENTRY) == "missing"
    assert not known.is_here(ENTRY)
    assert brought.find(ENTRY.sha256 or "", ENTRY.size_bytes) is None


def test_what_is_gone_or_is_a_directory_now_is_missing(kept: Path) -> None:
    below(kept, ENTRY.name).unlink()
    assert is_told(HashCache.of(kept), ENTRY) == "missing"

    below(kept, ENTRY.name).mkdir()
    assert is_told(HashCache.of(kept), ENTRY) == "missing"

    shutil.rmtree(kept)
    assert is_told(HashCache.of(kept), ENTRY) == "missing"
    assert not HashCache.of(kept).is_here(ENTRY)


def test_what_is_known_of_another_directory_counts_for_nothing_here(
    kept: Path, tmp_path: Path
) -> None:
    collected(tmp_path / "other", ENTRY, content=OTHER)
    shutil.copy2(kept / KNOWN, tmp_path / "other" / KNOWN)
    known = HashCache.of(tmp_path / "other")

    assert is_told(known, ENTRY) == "unread"
    assert not known.is_here(ENTRY)


def swapped(content: bytes) -> bytes:
    """As a disk damages it: still JSON, and another hash."""
    return content.replace((ENTRY.sha256 or "").encode(), sha256(OTHER).hexdigest().encode())


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "another hash": swapped,
    "empty": lambda content: b"",
    "cut short": lambda content: content[:-9],
    "zeros": lambda content: b"\0" * 4096,
    "no sum": lambda content: b"{}",
    "another form": lambda content: sha256(b"[7]").hexdigest().encode() + b"\n[7]",
    "no JSON": lambda content: sha256(b"\xff").hexdigest().encode() + b"\n\xff",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_cache_is_none(kept: Path, damage: Callable[[bytes], bytes]) -> None:
    (kept / KNOWN).write_bytes(damage((kept / KNOWN).read_bytes()))
    known = HashCache.of(kept)

    assert is_told(known, ENTRY) == "unread"
    assert not known.is_here(file(ENTRY.name, OTHER))
    assert known.is_here(ENTRY)
    assert Brought.of([kept]).find(ENTRY.sha256 or "", ENTRY.size_bytes) is None


@pytest.mark.parametrize(
    "lies",
    [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")],
    ids=["a directory", "a pipe", "a link to what never ends"],
)
def test_what_lies_in_the_place_of_the_cache_is_not_read_and_keeps_nobody_from_work(
    kept: Path, lies: Callable[[Path], None]
) -> None:
    (kept / KNOWN).unlink()
    lies(kept / KNOWN)
    known = HashCache.of(kept)

    assert known.is_here(ENTRY)
    known.save()

    assert is_told(HashCache.of(kept), ENTRY) in ("here", "unread")


def test_nothing_is_written_through_a_link_that_lies_where_the_cache_is_written(
    kept: Path, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_bytes(b"mine")
    (kept / KNOWN).unlink()
    (kept / f"{KNOWN}.new").symlink_to(tmp_path / "keys")
    known = HashCache.of(kept)

    assert known.is_here(ENTRY)
    known.save()

    assert (tmp_path / "keys").read_bytes() == b"mine"


def test_names_of_any_bytes_are_known(tmp_path: Path) -> None:
    entries = [
        file(f"work/out/{name}") for name in ("%FF%0A", "100%25", "模型", "%E2%80%AE", "a b")
    ]

    known = collected(tmp_path / "kept", *entries)

    assert known.glance(entries).here == entries


@pytest.mark.parametrize("name", ["work/../../x", "/etc/passwd", "work//x", "work/a%00", ""])
def test_a_name_that_leads_out_is_refused(kept: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a relative name"):
        HashCache.of(kept).glance([file(name)])


def test_a_link_is_here_where_it_points_as_it_did(tmp_path: Path) -> None:
    entry = link("work/out/latest", "step-%FF")
    known = collected(tmp_path / "kept", entry)

    assert is_told(known, entry) == "here"
    assert known.is_here(entry)
    assert is_told(known, link(entry.name, "step-20")) == "missing"
    assert is_told(known, file(entry.name)) == "missing"
    assert is_told(known, link("work/out", "latest")) == "missing"


def test_many_directories_are_looked_at_with_few_open(tmp_path: Path) -> None:
    entries = [file(f"work/{at % 100}/{at}/x") for at in range(300)]
    known = collected(tmp_path / "kept", *entries)
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/dev/fd").iterdir())) + 90, most))

    try:
        told = known.glance(entries)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))

    assert told.here == entries


def test_once_distrusted_everything_is_read_again(kept: Path) -> None:
    distrust(kept)
    distrust(kept / "nowhere")

    assert is_told(HashCache.of(kept), ENTRY) == "unread"


# Bytes that came before


def test_bytes_that_any_collect_brought_are_found(kept: Path, tmp_path: Path) -> None:
    brought = Brought.of([tmp_path / "nowhere", kept])

    assert brought.find(ENTRY.sha256 or "", ENTRY.size_bytes) == below(kept, ENTRY.name)
    assert brought.find(ENTRY.sha256 or "", 1) is None
    assert brought.sizes_bytes == {ENTRY.size_bytes}


@pytest.mark.parametrize("done", [rewritten, edited, replaced, Path.unlink])
def test_bytes_that_are_there_no_more_are_not_found(
    kept: Path, tmp_path: Path, done: Callable[[Path], None]
) -> None:
    collected(tmp_path / "second", ENTRY)
    brought = Brought.of([kept, tmp_path / "second"])
    done(below(kept, ENTRY.name))

    assert brought.find(ENTRY.sha256 or "", ENTRY.size_bytes) == below(
        tmp_path / "second", ENTRY.name
    )


def test_a_copy_is_its_own_file(kept: Path, tmp_path: Path) -> None:
    source = below(kept, ENTRY.name)

    clone_file(source, tmp_path / "copy")
    (tmp_path / "copy").write_bytes(OTHER)

    assert source.read_bytes() == BYTES
    assert source.stat().st_nlink == 1
    assert is_here(kept, ENTRY)


def test_a_copy_holds_all_bytes_also_on_another_file_system(tmp_path: Path) -> None:
    source, there = tmp_path / "source", Path("/dev/shm") / f"{tmp_path.name}-{os.getpid()}"
    source.write_bytes(os.urandom(3_000_001))
    other = there if there.parent.is_dir() else tmp_path / "other"

    try:
        clone_file(source, other)
        assert other.read_bytes() == source.read_bytes()
    finally:
        other.unlink(missing_ok=True)


def test_nothing_is_overwritten_by_a_copy_and_no_link_is_copied(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(BYTES)
    (tmp_path / "link").symlink_to("source")
    (tmp_path / "there").write_bytes(OTHER)

    with pytest.raises(FileExistsError):
        clone_file(tmp_path / "source", tmp_path / "there")
    with pytest.raises(FileNotFoundError):
        clone_file(tmp_path / "link", tmp_path / "copy")

    assert (tmp_path / "there").read_bytes() == OTHER
    assert not (tmp_path / "copy").exists()


def test_of_a_copy_that_finds_no_room_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(1 << 20))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))

    try:
        with pytest.raises(OSError, match="too large"):
            clone_file(tmp_path / "source", tmp_path / "copy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert not (tmp_path / "copy").exists()
