"""The verbs `index`, `receive` and `place`: take files that are pushed to the box."""

from __future__ import annotations

import errno
import os
import stat
import sys

from box_scripts.caretaker.disk_room import room_at
from box_scripts.caretaker.hashing import CHUNK_BYTES, Changing, Hashes
from box_scripts.caretaker.paths import escape_path, inner_path, is_below, unescape_path, utf8_bytes
from box_scripts.caretaker.progress import TELLING
from box_scripts.caretaker.pushed_files import INCOMING, INCOMING_NAME, pushed_record
from box_scripts.caretaker.records import NUMBER, Locked, write_record
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.since import set_since

TYPE_CHECKING = False
if TYPE_CHECKING:
    import tarfile
    from typing import IO

PLACED: dict = {
    "name": str,
    "incoming": str,
    "size": int,
    "sha256": str,
    "mode": int,
    "mtime": NUMBER,
}


def index(home: str, request: dict) -> dict:
    """Return the hashes of the regular files among `paths`, so that a push can compare them, and the free room.

    `placed` is this box's own record of pushed files. A job can write to it.
    """
    hashes, files, known = Hashes(home, request.get("key")), {}, pushed_record(home)
    since = None
    if request.get("begin"):
        os.makedirs(request["work"], exist_ok=True)
        since = set_since(home, "since-push.json", request["work"])
    for text in request["paths"]:
        path = os.path.join(request["work"], inner_path(unescape_path(text)))
        try:
            if stat.S_ISREG(os.lstat(path).st_mode):
                sha256, seen = hashes.of(path)
                files[text] = {"size": seen.st_size, "sha256": sha256}
        except (Changing, OSError):
            continue
    hashes.save()
    return dict(_room_below(request["work"]), files=files, placed=known, since_ns=since)


def _room_below(work: bytes) -> dict:
    """Return the work directory's path, and how much room there is, even if it does not exist yet."""
    there = work
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    return dict(room_at(there), work=escape_path(work))


def receive(home: str, request: dict) -> dict:
    """Unpack the tar on stdin below `work`. A file appears in its place only when it is complete.

    Raises:
        Refusal: UNSAFE_PATH, UNSAFE_MEMBER or BAD_ARCHIVE; the files before the bad one are in place.
    """
    import tarfile

    work = request["work"]
    os.makedirs(work, exist_ok=True)
    set_since(home, "since-push.json", work)
    files: dict[str, dict] = {}
    placed: dict[str, dict] = {}
    try:
        archive = tarfile.open(  # noqa: SIM115  it need not be closed, because it only reads stdin
            fileobj=sys.stdin.buffer,
            mode="r|",
            bufsize=CHUNK_BYTES,
            encoding="utf-8",
            errors="surrogateescape",
        )
        for member in archive:
            inner = inner_path(utf8_bytes(member.name))
            if inner:
                _receive_member(home, request, inner, archive, member, files, placed)
        # Read the padding at the end, too. Otherwise the sender would get an error, because the pipe is closed.
        while sys.stdin.buffer.read(CHUNK_BYTES):
            pass
    except (tarfile.TarError, EOFError) as error:
        raise Refusal("BAD_ARCHIVE", "the stream is no whole tar: %s" % error) from None
    finally:
        _note_placed(home, work, placed)
    return {"files": files, "bytes": sum(record["size"] for record in files.values())}


def _note_placed(home: str, work: bytes, placed: dict) -> None:
    """Record these files as pushed. Remove the directory for incoming files, if it is empty."""
    try:
        os.rmdir(os.path.join(work, INCOMING))
    except OSError:  # it is not empty, or there is none
        pass
    with Locked(home, "home.lock"):
        write_record(os.path.join(home, "pushed.json"), dict(pushed_record(home), **placed))


def _target(home: str, work: bytes, inner: bytes) -> tuple[bytes, bytes]:
    """Return the pushed file's directory, which may not exist yet, and its path, with links resolved.

    Raises:
        Refusal: UNSAFE_MEMBER: this is outside the work directory, or in the caretaker's own directory.
    """
    parent, base = os.path.split(os.path.join(work, inner))
    parent = os.path.realpath(parent)
    target = os.path.join(parent, base)
    if not is_below(parent, work) or is_below(target, os.fsencode(home)):
        raise _unsafe(inner)
    return parent, target


def _unsafe(inner: bytes) -> Refusal:
    return Refusal(
        "UNSAFE_MEMBER", "it would leave the work directory, or is no file: " + escape_path(inner)
    )


def _receive_member(
    home: str,
    request: dict,
    inner: bytes,
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    files: dict,
    placed: dict,
) -> None:
    """Put the member in its place by a rename. A job that has the old file open keeps the old file."""
    import hashlib

    work = request["work"]
    parent, target = _target(home, work, inner)
    if member.isdir():
        os.makedirs(target, exist_ok=True)
        return
    os.makedirs(parent, exist_ok=True)
    # Not next to the target, where a temporary name could be too long.
    incoming = os.path.join(work, INCOMING)
    os.makedirs(incoming, exist_ok=True)
    if os.path.islink(incoming) or os.lstat(incoming).st_dev != os.lstat(parent).st_dev:
        incoming = parent
    temporary = os.path.join(incoming, INCOMING + b"-%d" % os.getpid())
    if os.path.lexists(temporary):
        os.unlink(temporary)
    try:
        if member.issym():
            if not is_below(
                os.path.realpath(os.path.join(parent, utf8_bytes(member.linkname))), work
            ):
                raise _unsafe(inner)
            os.symlink(utf8_bytes(member.linkname), temporary)
            _may_replace(request, inner, target, None)
            os.replace(temporary, target)
            return
        source: IO[bytes] | None = None
        if member.islnk():
            first = os.path.realpath(os.path.join(work, inner_path(utf8_bytes(member.linkname))))
            if is_below(first, work) and os.path.isfile(first):
                source = open(first, "rb")  # noqa: SIM115  closed with the member below
        elif member.isreg():
            source = archive.extractfile(member)
        if source is None:
            raise _unsafe(inner)
        digest, size = hashlib.sha256(), 0
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with source, os.fdopen(fd, "wb") as file:
            for chunk in iter(lambda: source.read(CHUNK_BYTES), b""):
                digest.update(chunk)
                size += file.write(chunk)
            file.flush()
            os.fchmod(fd, member.mode & 0o777 | 0o600)
            os.utime(fd, ns=(int(member.mtime * 1e9),) * 2)
        _may_replace(request, inner, target, digest.hexdigest())
        os.replace(temporary, target)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)
    files[escape_path(inner)] = {"size": size, "sha256": digest.hexdigest()}
    placed[_below_work(work, target)] = files[escape_path(inner)]


def _over(request: dict) -> dict[bytes, str]:
    """Return which files may be replaced, by name in bytes: as text, the tenant may escape a name differently."""
    if "over_bytes" not in request:
        request["over_bytes"] = {unescape_path(n): str(v) for n, v in request["over"].items()}
    return dict.__getitem__(request, "over_bytes")


def _may_replace(request: dict, inner: bytes, target: bytes, coming: str | None) -> None:
    """Check that the file at `target` may be replaced: `over` allows it, or the file already has the new content.

    If the request has no `over`, as when a person works by hand, every file may be replaced.

    Raises:
        Refusal: NOT_SAVED: it may not be replaced, and was left as it is.
    """
    if "over" not in request or not os.path.lexists(target):
        return
    over = _over(request).get(inner)
    try:
        if stat.S_ISREG(os.lstat(target).st_mode):
            held, _ = Hashes("", None).of(target)
            if held == coming or over in (held, "*"):
                return
        elif over == "*" and os.path.islink(target):
            return
    except (Changing, OSError):
        pass
    raise Refusal(
        "NOT_SAVED",
        "it was written on this box meanwhile, and nobody has saved it: " + escape_path(inner),
    )


def _below_work(work: bytes, target: bytes) -> str:
    return escape_path(target[len(work.rstrip(b"/")) + 1 :])


def place(home: str, request: dict) -> dict:
    """Check the content of each incoming file, and move the file to its place.

    If the content is not what the request says, the incoming file is removed, and named in `other`. The `stale` files
    are removed, too.

    Raises:
        Refusal: UNSAFE_PATH, UNSAFE_MEMBER or BAD_REQUEST; the files before the bad one are in place.
    """
    work = request["work"]
    os.makedirs(work, exist_ok=True)
    set_since(home, "since-push.json", work)
    files: dict[str, dict] = {}
    placed: dict[str, dict] = {}
    other = []
    try:
        for key in request.get("stale", []):
            arrived = _incoming_path(work, key)
            if os.path.lexists(arrived):
                os.unlink(arrived)
        for said in request["files"]:
            if not all(isinstance(said.get(name), kind) for name, kind in PLACED.items()):
                raise Refusal("BAD_REQUEST", "a file has: " + " ".join(PLACED))
            target = _place(home, request, said)
            if target is None:
                other.append(said["name"])
                continue
            files[said["name"]] = {"size": said["size"], "sha256": said["sha256"]}
            placed[_below_work(work, target)] = files[said["name"]]
    finally:
        _note_placed(home, work, placed)
    return dict(_room_below(work), files=files, other=other)


def _incoming_path(work: bytes, key: str) -> bytes:
    """Return the path of the incoming file of that name.

    Raises:
        Refusal: UNSAFE_PATH: this is not the name of an incoming file.
    """
    incoming = os.path.join(work, INCOMING)
    if not INCOMING_NAME(key) or os.path.islink(incoming):
        raise Refusal("UNSAFE_PATH", "not the name of an incoming file: " + ascii(key)[:80])
    return os.path.join(incoming, key.encode())


def _place(home: str, request: dict, said: dict) -> bytes | None:
    """Move one incoming file to its place. Return the place, or None if the content is not what the request says.

    A process that has the old file open keeps the old file.
    """
    work, inner = request["work"], inner_path(unescape_path(said["name"]))
    if not inner:
        raise _unsafe(inner)
    parent, target = _target(home, work, inner)
    arrived = _incoming_path(work, said["incoming"])
    os.makedirs(parent, exist_ok=True)
    source = arrived
    try:
        there = os.lstat(arrived)
        if there.st_dev != os.lstat(parent).st_dev and stat.S_ISREG(there.st_mode):
            # the file cannot be renamed from one file system to another, so copy it
            source = os.path.join(parent, INCOMING + b"-%d" % os.getpid())
            _copy(arrived, source)
        if not _holds_what_was_said(source, said):
            os.unlink(arrived)
            return None
        _may_replace(request, inner, target, said["sha256"])
        os.replace(source, target)
        if source != arrived:
            os.unlink(arrived)
    except FileNotFoundError:
        return None
    finally:
        if source != arrived and os.path.lexists(source):
            os.unlink(source)
    return target


def _copy(path: bytes, destination: bytes) -> None:
    """Copy the regular file to `destination`."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, os.O_RDONLY | flags), "rb") as file:
        made = os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags, 0o600)
        with os.fdopen(made, "wb") as copied:
            for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
                copied.write(chunk)
                TELLING.did(0, len(chunk))


def _holds_what_was_said(path: bytes, said: dict) -> bool:
    """Whether the regular file has the content that the request says. If so, also set its mode and its time."""
    import hashlib

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise
    with os.fdopen(fd, "rb", buffering=0) as file:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode) or before.st_size != said["size"]:
            return False
        digest, view = hashlib.sha256(), memoryview(bytearray(CHUNK_BYTES))
        for count in iter(lambda: file.readinto(view), 0):
            digest.update(view[:count])
            TELLING.did(0, count)
        # An older connection that was given up may still write to the file. Then the hash proves nothing.
        is_still = os.fstat(fd).st_mtime_ns == before.st_mtime_ns
        if digest.hexdigest() != said["sha256"] or not is_still:
            return False
        os.fchmod(fd, said["mode"] & 0o777 | 0o600)
        os.utime(fd, ns=(int(said["mtime"] * 1e9),) * 2)
    return True
