#!/usr/bin/env python3
"""Gives and takes the bytes of named files over stdin and stdout; it lies on no box, but is sent to each.

It needs Python 3.7 and nothing else. Requests are JSON, one on a line; every request has one answer,
except `files`, which has one for each file, and they come in the order of the requests. An answer is 16 bytes (one letter, the
request's number, the length of what follows) and then so many bytes:

    D  bytes as they lie in the file     Z  the same, packed by zlib    S  digests, 8 bytes a block
    A  what became of a write, as JSON   E  why there is no other answer, as JSON with `code` and `message`

    {"id": 1, "do": "read", "at": PATH, "spans": [[FIRST, SIZE], ...], "pack": true}
    {"id": 2, "do": "files", "files": [[PATH, SIZE], ...], "pack": false}
    {"id": 3, "do": "sums", "at": PATH, "first": 0, "size": 67108864, "block": 16384}
    {"id": 4, "do": "write", "at": PATH, "first": 0, "size": 1048576}     and then so many bytes
       or with "pack": 65536                                              and then so many, packed by zlib
    {"id": 5, "do": "gently"}                                             behind every other process
    {"id": 6, "do": "copy", "from": PATH, "at": PATH, "spans": [[FIRST, SIZE], ...]}
    {"id": 7, "do": "echo"}                                               nothing, at once

Paths are percent-escaped as the caretaker writes them. What comes on stdout before the line that is given as
the only argument was said by a login script.
"""

import hashlib
import json
import os
import re
import stat
import struct
import sys
import zlib

HEAD = struct.Struct(">cxxxIQ")
CHUNK_BYTES = 1 << 20
SAMPLE_BYTES = 1 << 16
PAYS_BELOW = 0.8
MOST_BETWEEN = 31
IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")


class Refusal(Exception):
    """A request that was not carried out: its code, and why."""


def unescaped(text):
    """The bytes that a percent-escaped path stands for."""
    return _PERCENT.sub(lambda m: bytes((int(m.group(1), 16),)), text.encode("utf-8"))


def say(letter, number, body):
    """An answer went out whole."""
    write(HEAD.pack(letter, number, len(body)) + body)


def write(content):
    """All of it went out."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(1, rest) :]


def opened(path, least_bytes, most_bytes=sys.maxsize):
    """The regular file at `path`, of at least and at most that size, open for reading.

    Raises:
        Refusal: it is gone, shorter, or no file.
    """
    try:
        fd = os.open(unescaped(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Refusal("GONE" if error.errno == 2 else "UNREADABLE", error.strerror) from None
    seen = os.fstat(fd)
    if not stat.S_ISREG(seen.st_mode) or not least_bytes <= seen.st_size <= most_bytes:
        os.close(fd)
        raise Refusal("SHORTER", "it is no file of %d bytes any more" % least_bytes)
    return fd


def give(number, fd, spans, pack):
    """The bytes of `spans` went out as one answer, packed where a sample says that it pays."""
    total = sum(size for _, size in spans)
    if pack and total and pays(fd, spans):
        packed = zlib.compress(b"".join(exactly(fd, first, size) for first, size in spans), 1)
        if len(packed) < total:
            say(b"Z", number, packed)
            return
    write(HEAD.pack(b"D", number, total))
    try:
        for first, size in spans:
            send(fd, first, size)
    except OSError:
        sys.exit(3)  # behind a head nothing can be said but what it promised


class Sampling:
    """What becomes of the samples: where none pays, they are taken less and less often."""

    left = between = 0


def pays(fd, spans):
    """Whether the middle of the first span packs well enough to be worth the time, or is thought not to."""
    if Sampling.left:
        Sampling.left -= 1
        return False
    first, size = spans[0]
    sample = os.pread(fd, SAMPLE_BYTES, first + max(0, size - SAMPLE_BYTES) // 2)
    if len(sample) <= 512:
        return False
    does = len(zlib.compress(sample, 1)) < PAYS_BELOW * len(sample)
    Sampling.between = 0 if does else min(2 * Sampling.between + 1, MOST_BETWEEN)
    Sampling.left = Sampling.between
    return does


def exactly(fd, first, size):
    """The `size` bytes at `first`; a file that became shorter ends the conversation."""
    content = os.pread(fd, size, first)
    while len(content) < size:
        more = os.pread(fd, size - len(content), first + len(content))
        if not more:
            sys.exit(3)
        content += more
    return content


def send(fd, first, size):
    """The `size` bytes at `first` went out, through the kernel alone where it can."""
    while size:
        try:
            sent = os.sendfile(1, fd, first, min(size, 1 << 30))
        except OSError:
            chunk = exactly(fd, first, min(size, CHUNK_BYTES))
            write(chunk)
            sent = len(chunk)
        if not sent:
            sys.exit(3)  # what was promised cannot be had any more, and a frame has no other end
        first, size = first + sent, size - sent


def read(number, asked):
    spans = asked["spans"]
    fd = opened(asked["at"], max(first + size for first, size in spans))
    try:
        give(number, fd, spans, asked.get("pack"))
    finally:
        os.close(fd)


def files(number, asked):
    for path, size in asked["files"]:
        fd = -1
        try:
            fd = opened(path, size, most_bytes=size)
            # Read before anything is said: what cannot be read is refused, and the next has its turn.
            content = exactly(fd, 0, size)
            packed = (
                zlib.compress(content, 1)
                if asked.get("pack") and pays(fd, [[0, size]])
                else content
            )
            if len(packed) < size:
                say(b"Z", number, packed)
            else:
                say(b"D", number, content)
        except Refusal as refusal:
            refuse(number, refusal)
        except OSError as error:
            refuse(number, Refusal("UNREADABLE", error.strerror))
        finally:
            if fd >= 0:
                os.close(fd)


def sums(number, asked):
    """Eight bytes of the sha256 of every block: enough to find what differs, and the whole is proved later."""
    first, size, block = asked["first"], asked["size"], asked["block"]
    fd = opened(asked["at"], 0)
    try:
        os.lseek(fd, first, os.SEEK_SET)
        digests, left = [], size
        while left > 0:
            content = os.pread(fd, min(left, CHUNK_BYTES // block * block), first + size - left)
            if not content:
                break
            view = memoryview(content)
            digests += [
                hashlib.sha256(view[i : i + block]).digest()[:8] for i in range(0, len(view), block)
            ]
            left -= len(content)
    finally:
        os.close(fd)
    say(b"S", number, b"".join(digests))


def writable(path):
    """The regular file at `path`, open for writing; it is made where it is missing, and so is its directory.

    Neither of the two is reached through a link.
    """
    where, name = os.path.split(unescaped(path))
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for _ in range(5):  # whoever finds the directory empty takes it away
        try:
            parent = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            try:
                os.mkdir(where, 0o700)
            except FileExistsError:
                pass
            continue
        try:
            fd = os.open(name, flags, 0o600, dir_fd=parent)
        except FileNotFoundError:
            continue
        finally:
            os.close(parent)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        break
    raise OSError(22, "no file can be written there")


def put(fd, content, at):
    """All of it lies at `at` of the file."""
    rest = memoryview(content)
    while rest:
        wrote = os.pwrite(fd, rest, at)
        at, rest = at + wrote, rest[wrote:]


def untaken(error):
    """The refusal that tells of an error of the disk."""
    return Refusal("DISK_FULL" if error.errno in (28, 122) else "UNWRITABLE", error.strerror)


def come(size):
    """The next `size` bytes of stdin, a chunk at a time; where it ends before, so does all this."""
    while size:
        chunk = sys.stdin.buffer.read(min(size, CHUNK_BYTES))
        if not chunk:
            sys.exit(3)
        size -= len(chunk)
        yield chunk


def take(number, asked):
    """So many bytes of stdin lie at `first` of the file, which is made where it is missing."""
    at, trouble, fd, packed = asked["first"], None, -1, asked.get("pack")
    try:
        fd = writable(asked["at"])
    except OSError as error:
        trouble = error
    # All of it is read, whatever becomes of it: behind it comes the next request.
    for chunk in [zlib.decompress(b"".join(come(packed)))] if packed else come(asked["size"]):
        try:
            if trouble is None:
                put(fd, chunk, at)
        except OSError as error:
            trouble = error
        at += len(chunk)
    if fd >= 0:
        os.close(fd)
    if trouble is not None:
        raise untaken(trouble)
    say(b"A", number, b"{}")


def gently(number, asked):
    """Every other process goes first from now on, on the processor and on the disk."""
    try:
        os.nice(10)
    except OSError:
        pass
    try:
        import ctypes
        import platform

        ctypes.CDLL(None).syscall(IOPRIO_SET[platform.machine()], 1, 0, 3 << 13)
    except Exception:  # noqa: BLE001, S110  no such call here, and none is needed
        pass
    say(b"A", number, b"{}")


def copy(number, asked):
    """What lies in the `spans` of one file lies at the same places of another, too."""
    spans = asked["spans"]
    source, target = opened(asked["from"], max(first + size for first, size in spans)), -1
    try:
        target = writable(asked["at"])
        for first, size in spans:
            while size:
                content = os.pread(source, min(size, CHUNK_BYTES), first)
                if not content:
                    raise Refusal("SHORTER", "it became shorter while it was read")
                put(target, content, first)
                first, size = first + len(content), size - len(content)
    except OSError as error:
        raise untaken(error) from None
    finally:
        for fd in (source, target):
            if fd >= 0:
                os.close(fd)
    say(b"A", number, b"{}")


def echo(number, asked):
    say(b"A", number, b"")


def refuse(number, refusal):
    code, message = refusal.args
    say(b"E", number, json.dumps({"code": code, "message": str(message)}).encode())


VERBS = {
    "read": read,
    "files": files,
    "sums": sums,
    "write": take,
    "gently": gently,
    "copy": copy,
    "echo": echo,
}


def main(mark):
    """Requests were answered until there were no more."""
    write(mark.encode() + b"\n")
    for line in iter(sys.stdin.buffer.readline, b""):
        asked = json.loads(line.decode())
        try:
            VERBS[asked["do"]](asked["id"], asked)
        except Refusal as refusal:
            refuse(asked["id"], refusal)
        except OSError as error:
            refuse(asked["id"], Refusal("UNREADABLE", error.strerror))


if __name__ == "__main__":
    main(sys.argv[1])
