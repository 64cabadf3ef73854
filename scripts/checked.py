#!/usr/bin/env python3
"""Whether everything a caretaker sealed on the box is here, byte for byte, and loads as what it claims to be.

    ssh BOX 'python3 caretaker.py --home t/caretaker manifest --work t/work' > manifest.json
    checked.py manifest.json DIR

Run it on your own computer, never on the box. An entry `work/out/model.pt` is looked for in DIR/work/out/model.pt
and in DIR/out/model.pt, `log/j1.log` in DIR/log/j1.log, `root/abs/x` in DIR/root/abs/x.

Exit status 0: every entry is here, has its size and its sha256, none is broken, and the manifest leaves
nothing open (no problem, no pattern unmatched, no file unclaimed). 1: each gap is named. 2: a wrong request.
One JSON object on the last line of stdout, a line per gap on stderr. Nothing is written or executed; Python
3.7 or newer, standard library only. A format that the library cannot read is `opaque`: only its hash speaks.
"""

import argparse
import ast
import bz2
import codecs
import contextlib
import csv
import functools
import hashlib
import io
import itertools
import json
import lzma
import os
import pathlib
import pickletools
import re
import stat
import struct
import sys
import zipfile
import zlib

try:
    import sqlite3
except ImportError:  # some systems leave it out of their Python
    sqlite3 = None

CHUNK_BYTES = 1 << 20
AT_ONCE_BYTES = 64 << 20
LONGEST_LINE_BYTES = 32 << 20
NAMED = 100
PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
FIELDS = {"entries": list, "problems": list, "unmatched": list, "unclaimed": dict, "digest": str}


class Misuse(Exception):
    """The request itself is wrong."""


class Broken(Exception):
    """The file is not what it claims to be."""


class Opaque(Exception):
    """The file cannot be judged here, which is nothing against it."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Misuse(message + "; see --help")


def main(argv):
    """The exit status, after the gaps were named and one JSON object was written."""
    try:
        parser = Parser(
            description=__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument(
            "manifest", metavar="MANIFEST", help="what `caretaker.py manifest` printed"
        )
        parser.add_argument("directory", metavar="DIR", help="where the files were brought to")
        given = parser.parse_args(argv)
        reply = checked(manifest_in(given.manifest), os.fsencode(given.directory))
    except Misuse as misuse:
        print(json.dumps({"ok": False, "code": "BAD_REQUEST", "message": str(misuse)}), flush=True)
        return 2
    for gap in reply["gaps"]:
        sys.stderr.write(ascii("{name}: {why}: {detail}".format(**gap))[1:-1] + "\n")
    print(json.dumps(reply), flush=True)
    return 0 if reply["ok"] else 1


def manifest_in(path):
    """The manifest in the file, also below what a login shell has printed before it.

    Raises:
        Misuse: there is none.
    """
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "replace").lstrip("\ufeff")
    except OSError as error:
        raise Misuse("{}: {}".format(path, error.strerror)) from None
    last = (text.strip().splitlines() or [""])[-1]
    for candidate in (text, last):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and "ok" in found:
            if found["ok"] is not True:
                return found
            if all(isinstance(found.get(name), kind) for name, kind in FIELDS.items()):
                return found
    raise Misuse("{} holds no whole reply of `caretaker.py manifest`".format(path))


# --- what is sealed, and what is here -----------------------------------------------------------


def checked(manifest, directory):
    """The reply: every gap between the seal and the directory, and what loading has shown."""
    if not os.path.isdir(directory):
        raise Misuse("{} is no directory".format(os.fsdecode(directory)))
    gaps, formats, opaque, warnings = [], {}, [], []

    def gap(name, why, detail):
        gaps.append({"name": name, "why": why, "detail": str(detail)[:500]})

    for why, detail in left_open(manifest):
        gap("manifest", why, detail)
    same_boot = bool(manifest.get("boot_id")) and manifest.get("boot_id") == boot_id()
    if same_boot:
        warnings.append(
            "this computer bears the box's own boot id: what is only here goes with the box"
        )
    entries, matched = manifest.get("entries") or [], 0
    for entry in entries:
        try:
            name, path = entry["name"], place(directory, entry["name"])
            sealed = entry["kind"], entry["size"], entry["sha256"]
        except (KeyError, TypeError, ValueError):
            gap(str(entry)[:80], "UNSAFE", "the entry is no file below DIR")
            continue
        at = "on the box it is {}".format(entry.get("at"))
        own = unescaped(str(entry.get("at") or "%00"))
        if same_boot and os.path.realpath(path) == own:
            gap(name, "NO_COPY", "this is the box's own file, and no copy")
            continue
        fault = compared(path, sealed, entry)
        if fault:
            gap(name, fault[0], "{}; {}".format(fault[1], at))
            continue
        matched += 1
        if sealed[0] == "link":
            continue
        outcome, form, reason = inspected(path, name)
        formats.setdefault(form, {"loads": 0, "opaque": 0, "broken": 0})[outcome] += 1
        if outcome == "broken":
            gap(name, "BROKEN", "as {}: {}".format(form, reason))
        elif outcome == "opaque":
            opaque.append({"name": name, "why": reason})
    return {
        "ok": not gaps,
        **({"code": "GAPS", "message": "{} gaps; keep the box".format(len(gaps))} if gaps else {}),
        "digest": manifest.get("digest"),
        "entries": len(entries),
        "bytes": sum(
            e["size"] for e in entries if isinstance(e, dict) and isinstance(e.get("size"), int)
        ),
        "matched": matched,
        "gaps": gaps,
        "formats": formats,
        "opaque": opaque[:NAMED],
        "opaque_count": len(opaque),
        "warnings": warnings,
    }


def left_open(manifest):
    """What the seal itself says is not settled."""
    if manifest["ok"] is not True:
        yield (
            manifest.get("code") or "REFUSED",
            manifest.get("message") or "the box could not be sealed",
        )
        return
    entries = manifest["entries"]
    if not entries:
        yield "EMPTY", "nothing is sealed: was --home the one that the job was started with?"
    elif seal_of(entries) != manifest["digest"]:
        yield "ALTERED", "the entries are not those that its digest was made of: seal again"
    if len({str(e.get("name")) for e in entries if isinstance(e, dict)}) != len(entries):
        yield "ALTERED", "two entries have one name"
    for problem in manifest["problems"]:
        yield "PROBLEM", problem
    for pattern in manifest["unmatched"]:
        yield "UNMATCHED", "the declared artifact {} never appeared".format(pattern)
    unclaimed = manifest["unclaimed"]
    if unclaimed.get("count") != 0:
        yield (
            "UNCLAIMED",
            "{} files ({} bytes) that are neither kept nor given up: {}".format(
                unclaimed.get("count"), unclaimed.get("bytes"), unclaimed.get("largest")
            ),
        )


def seal_of(entries):
    """The digest over the entries, as the caretaker makes it."""
    try:
        lines = sorted(
            "{sha256} {size:d} {kind} {0} {name}\n".format(entry.get("target", "-"), **entry)
            for entry in entries
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def boot_id():
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def unescaped(name):
    """The bytes of a file name that the caretaker wrote with %XX for what does not print."""
    return PERCENT.sub(lambda m: bytes((int(m.group(1), 16),)), name.encode("utf-8"))


def place(directory, name):
    """Where the entry should be; it is below the directory.

    Raises:
        ValueError: it would not be.
    """
    raw = unescaped(name)
    if raw.startswith(b"/") or b"\0" in raw or {b"..", b"."} & set(raw.split(b"/")) or not raw:
        raise ValueError(name)
    path = os.path.join(directory, raw)
    if raw.startswith(b"work/") and not os.path.lexists(path):
        return os.path.join(directory, raw[len(b"work/") :])
    return path


def compared(path, sealed, entry):
    """None where the entry is here as it was sealed, else the gap's code and words."""
    kind, size, sha256 = sealed
    try:
        seen = os.lstat(path)
    except OSError as error:
        return "MISSING", "{} ({})".format(os.fsdecode(path), error.strerror)
    if kind == "link":
        if not stat.S_ISLNK(seen.st_mode):
            return "DIFFERS", "a link on the box, and none here"
        if os.readlink(path) != unescaped(str(entry.get("target"))):
            return "DIFFERS", "the link points elsewhere here"
        return None
    if not stat.S_ISREG(seen.st_mode):
        return "DIFFERS", "it is no regular file here"
    if seen.st_size != size:
        return "DIFFERS", "{:,} bytes here, {:,} on the box".format(seen.st_size, size)
    total = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for content in iter(lambda: file.read(CHUNK_BYTES), b""):
                total.update(content)
    except OSError as error:
        return "UNREADABLE", error.strerror
    if total.hexdigest() != sha256:
        return "DIFFERS", "other bytes here than on the box"
    return None


# --- does it load -------------------------------------------------------------------------------


class Source:
    """An open file of known size and claimed name."""

    def __init__(self, file, path, name):
        self.file, self.path, self.name = file, path, name.lower()
        self.size = os.fstat(file.fileno()).st_size

    def read(self, at, size):
        """Exactly these bytes."""
        if not 0 <= at <= at + size <= self.size:
            raise Broken("cut off: {:,} bytes are due at {:,} of {:,}".format(size, at, self.size))
        self.file.seek(at)
        return self.file.read(size)

    def head(self, size=512):
        return self.read(0, min(size, self.size))

    def chunks(self, at=0, end=None):
        end = self.size if end is None else end
        while at < end:
            content = self.read(at, min(CHUNK_BYTES, end - at))
            at += len(content)
            yield content


def inspected(path, name):
    """`loads`, `opaque` or `broken`, the format that the file claims, and why."""
    with open(path, "rb") as file:
        source = Source(file, path, name)
        form = claimed(source)
        if source.size == 0:
            empty = form in ("unknown", "text", "jsonl", "csv")
            return ("opaque" if empty else "broken"), form, "the file is empty"
        try:
            CHECKS.get(form, unread)(source)
        except Broken as fault:
            return "broken", form, str(fault)[:300]
        except (Opaque, MemoryError) as reason:
            return "opaque", form, str(reason)[:300] or type(reason).__name__
        except Exception as surprise:  # noqa: BLE001  what surprises a parser is the file's fault
            return "broken", form, "{}: {}".format(type(surprise).__name__, surprise)[:300]
    return "loads", form, ""


def claimed(source):
    """The format by how the file begins, and by the name's suffix where that is silent."""
    name = source.name.rpartition("/")[2].lower()
    suffix = os.path.splitext(name)[1]
    named = next((form for form, of_it in SUFFIXES.items() if suffix in of_it.split()), None)
    head = source.head()
    seen = next((form for form, magic in MAGIC if re.compile(magic, re.DOTALL).match(head)), None)
    if named is None and suffix not in SILENT:
        # Under any name, only a checkpoint of torch is told by its bytes.
        is_torch = seen == "torch" or (seen == "zip" and holds_pickle(source))
        return "torch" if is_torch else "unknown"
    if seen is None and name.endswith(".pth.tar"):
        return "torch" if PICKLE.match(head) else named
    if seen is None:
        return named or "unknown"
    if seen == "zip":
        if named in ("npz", "torch", "zip"):
            return named
        return "torch" if holds_pickle(source) else seen
    return named if (seen, named) == ("torch", "zip") else seen


def unread(_):
    raise Opaque("the standard library does not read it: only the hash covers it")


def text(_):
    raise Opaque("text has no structure to check: only the hash covers it")


def json_value(content):
    """The content is one JSON value."""
    try:
        json.loads(content.decode("utf-8"), parse_int=float)
    except RecursionError:
        raise Opaque("nested too deeply to be read here") from None
    except ValueError as error:
        raise Broken("no JSON: {}".format(error)) from None


def json_file(chunks):
    content = b""
    for chunk in chunks:
        content += chunk
        if len(content) > AT_ONCE_BYTES:
            raise Opaque("more than {:,} bytes of JSON are not read here".format(AT_ONCE_BYTES))
    json_value(content[3:] if content.startswith(codecs.BOM_UTF8) else content)


def json_or_lines(first, other):
    """One JSON value, or one a line: either is written under the name of the other."""

    def check(source):
        try:
            first(source.chunks())
        except Broken as fault:
            try:
                other(source.chunks())
            except Broken:
                raise fault from None

    return check


def lines(chunks):
    rest = b""
    for chunk in chunks:
        parts = (rest + chunk).split(b"\n")
        rest = parts.pop()
        for part in parts:
            yield part
        if len(rest) > LONGEST_LINE_BYTES:
            raise Opaque(
                "a line of more than {:,} bytes is not read here".format(LONGEST_LINE_BYTES)
            )
    if rest:
        yield rest


def jsonl(chunks):
    values = 0
    for number, line in enumerate(lines(chunks), 1):
        if line.strip():
            try:
                json_value(line)
            except Broken as fault:
                raise Broken("line {:,}: {}".format(number, fault)) from None
            values += 1
    if not values:
        raise Broken("no line holds a value")


def table(chunks, delimiter):
    """Quotes close, and the last row is not cut inside."""
    ended = "the last row has ended"
    last_byte = [b""]

    def rows_of():
        first = True
        for number, line in enumerate(lines(watched()), 1):
            if b"\0" in line:
                raise Broken("line {:,} holds NUL bytes".format(number))
            line = line[3:] if first and line.startswith(codecs.BOM_UTF8) else line
            first = False
            try:
                decoded = line.decode("utf-8")
            except UnicodeDecodeError:
                decoded = line.decode("latin-1")
            yield decoded + "\n"
        yield ended

    def watched():
        for chunk in chunks:
            last_byte[0] = chunk[-1:]
            yield chunk

    csv.field_size_limit(16 << 20)
    rows = ragged = columns = 0
    row, last, closed = [], [], False
    for row in csv.reader(rows_of(), delimiter=delimiter):
        closed = row == [ended]
        if row and not closed:
            rows, columns, last = rows + 1, columns or len(row), row
            ragged += len(row) != columns
    if not closed:
        raise Broken("a quote stays open to the end")
    if not rows:
        raise Broken("no row")
    if last_byte[0] != b"\n" and ragged == 1 and len(last) < columns:
        raise Broken("cut off in the last row: {} columns of {}".format(len(last), columns))


def tar(chunks):
    """Every header by its checksum, every member at its length, and the marker that ends it."""
    stream = Stream(chunks)
    size = None
    while True:
        header = stream.take(512)
        if not header:
            raise Broken("no end marker: the archive was not finished")
        if not header.strip(b"\0"):
            break
        due = tar_size(header)
        kind = header[156:157]
        if kind == b"x":
            if due > 1 << 20:
                stream.skip(due + -due % 512)
                continue
            content = stream.take(due + -due % 512)
            if len(content) < due:
                raise Broken("cut off inside an extended header")
            match = re.search(rb"(?:^|\n)\d+ size=(\d{1,19})\n", content[:due])
            size = int(match.group(1)) if match else None
            continue
        if kind == b"S":
            more = header[482]
            while more:
                block = stream.take(512)
                if not block:
                    raise Broken("cut off inside a sparse map")
                more = block[504]
        due, size = (due if size is None else size), None
        if kind not in b"123456" or not kind:
            stream.skip(due + -due % 512)
    if stream.take(512).strip(b"\0"):
        raise Broken("content follows a lone empty block")
    for _ in stream.rest():
        pass


def tar_size(header):
    said = int(header[148:156].strip(b"\0 ") or b"0", 8)
    blank = header[:148] + b" " * 8 + header[156:]
    if said not in (sum(blank), sum(blank) - 256 * sum(byte > 127 for byte in blank)):
        raise Broken("a header fails its checksum")
    field = header[124:136]
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    return int(field.strip(b"\0 ") or b"0", 8)


class Stream:
    """Chunks, taken in other sizes."""

    def __init__(self, chunks):
        self._chunks, self._held = iter(chunks), b""

    def take(self, size):
        """So many bytes, or none at the end."""
        parts = list(self._upto(size))
        found = b"".join(parts)
        if 0 < len(found) < size:
            raise Broken("cut off, {:,} bytes early".format(size - len(found)))
        return found

    def skip(self, size):
        left = size - sum(len(part) for part in self._upto(size))
        if left:
            raise Broken("cut off, {:,} bytes early".format(left))

    def rest(self):
        return itertools.chain([self._held], self._chunks)

    def _upto(self, size):
        while size:
            if not self._held:
                self._held = next(self._chunks, b"")
                if not self._held:
                    return
            part, self._held = self._held[:size], self._held[size:]
            size -= len(part)
            yield part


def inflated(chunks, start, magic):
    """The content of one compressed stream after another; zeros may lie between them."""
    chunks, head, any_yet = iter(chunks), b"", False
    while True:
        while len(head) < 10:
            chunk = next(chunks, b"")
            head = (head + chunk).lstrip(b"\0")
            if not chunk:
                break
        if not head and any_yet:
            return
        if not re.match(magic, head, re.DOTALL):
            raise Broken(
                "other bytes follow" if any_yet else "it does not begin as its format does"
            )
        inflater, any_yet = start(), True
        while not inflater.eof:
            if not head:
                head = next(chunks, b"")
                if not head:
                    raise Broken("the compressed stream is cut off")
            yield inflater.decompress(head)
            head = b""
        head = inflater.unused_data.lstrip(b"\0")


def packed(start, magic):
    """The check of a compressed file: whole by its own checksums, and so is what is inside."""

    def check(source):
        stem, suffix = os.path.splitext(source.name)
        inner = ".tar" if suffix in TARBALLS else os.path.splitext(stem)[1]
        # Small pieces go in, so that a bomb cannot fill the memory in one step.
        pieces = (c[n : n + 4096] for c in source.chunks() for n in range(0, len(c), 4096))
        stream = inflated(pieces, start, magic)
        reason = None
        if inner in INSIDE:
            try:
                INSIDE[inner](stream)
            except Opaque as opaque:
                reason = opaque
        for _ in stream:
            pass
        if reason:
            raise reason

    return check


def members(source):
    """The archive, and its members that are no directories."""
    try:
        archive = zipfile.ZipFile(source.file)
    except zipfile.BadZipFile as error:
        if "multiple disks" in str(error):
            raise Opaque("one part of an archive that spans several files") from None
        raise Broken(str(error)) from None
    except NotImplementedError as error:
        raise Opaque(str(error)) from None
    found = archive.infolist()
    # What zipfile overlooks: an end record that counts otherwise, and members that overlap the directory.
    tail = source.read(max(0, source.size - 65557), min(source.size, 65557))
    end = tail[tail.rfind(b"PK\5\6") :]
    count, comment = int.from_bytes(end[10:12], "little"), int.from_bytes(end[20:22], "little")
    if 22 + comment > len(end):
        raise Broken("the archive is cut off inside its comment")
    if count not in (len(found), 0xFFFF):
        raise Broken("{:,} members, where the directory has {:,}".format(count, len(found)))
    for member in found:
        if member.header_offset + 30 + member.compress_size > archive.start_dir:
            raise Broken("{!r:.80} reaches into the directory".format(member.filename))
    return archive, found


def zip_content(archive, member):
    """The member's bytes, by its CRC-32 at their end."""
    try:
        with archive.open(member) as file:
            for content in iter(lambda: file.read(CHUNK_BYTES), b""):
                yield content
    except NotImplementedError as error:
        raise Opaque(str(error)) from None
    except RuntimeError as error:  # encrypted
        raise Opaque(str(error)) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise Broken("{!r:.80}: {}".format(member.filename, error)) from None


def zip_whole(source):
    archive, found = members(source)
    reason = None
    for member in found:
        try:
            size = sum(len(content) for content in zip_content(archive, member))
        except Opaque as opaque:
            reason = opaque
            continue
        if size != member.file_size:
            raise Broken("{!r:.80} is cut off".format(member.filename))
    if reason:
        raise reason
    return archive, found


def holds_pickle(source):
    try:
        return any(m.filename.endswith("/data.pkl") for m in members(source)[1])
    except (Broken, Opaque):
        return False


def torch(source):
    head = source.head(len(LEGACY))
    if head == LEGACY:
        raise Opaque("a checkpoint of torch before 1.6: only the hash covers it")
    if head[:1] == b"\x80":
        pickles(source)
        return
    if not head.startswith(b"PK\x03\x04"):
        raise Broken("it begins neither as a zip nor as a pickle")
    archive, found = members(source)
    if all(m.CRC == 0 for m in found if m.file_size):
        for member in found:  # torch can be told to write none
            member.CRC = None
    programs = [m for m in found if m.filename.partition("/")[2] == "data.pkl"]
    for member in found:
        try:
            size = sum(len(content) for content in zip_content(archive, member))
        except Opaque as reason:
            raise Broken("{}: torch never writes that".format(reason)) from None
        if size != member.file_size:
            raise Broken("{!r:.80} is cut off".format(member.filename))
    if not programs:
        raise Broken("no data.pkl: a zip, and no torch checkpoint")
    if programs[0].file_size <= AT_ONCE_BYTES:
        followed(io.BytesIO(b"".join(zip_content(archive, programs[0]))))


def followed(file):
    """The pickle that begins here is whole; it is read, and never built."""
    start = file.tell()
    try:
        for _ in pickletools.genops(file):
            pass
    except ValueError as error:
        raise Broken("the pickle is damaged: {}".format(error)) from None
    end = file.tell()
    file.seek(start)
    try:
        pickletools.dis(file, out=Nowhere())
    except ValueError as error:
        # It forbids two things that a reader lets pass.
        if "already defined" not in str(error) and "stack not empty" not in str(error):
            raise Broken("the pickle is damaged: {}".format(error)) from None
    file.seek(end)


class Nowhere:
    def write(self, _):
        pass


def pickles(source):
    if source.size > AT_ONCE_BYTES:
        raise Opaque("a pickle of more than {:,} bytes is not followed here".format(AT_ONCE_BYTES))
    file = io.BytesIO(source.read(0, source.size))
    followed(file)
    while source.read(file.tell(), min(1, source.size - file.tell())) == b"\x80":
        followed(file)


def npy(source):
    start, due = npy_header(source.head(1 << 16))
    if due is None:
        file = io.BytesIO(source.read(start, source.size - start))
        followed(file)
    elif start + due > source.size:
        raise Broken("{:,} bytes of values, of {:,}".format(source.size - start, due))


def npy_header(head):
    """Where the values begin and how many bytes they take; None for objects."""
    if head[:6] != b"\x93NUMPY":
        raise Broken("it does not begin as a NumPy array does")
    if head[6:8] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise Opaque("an unknown npy version")
    width = 2 if head[6] == 1 else 4
    start = 8 + width + int.from_bytes(head[8 : 8 + width], "little")
    if start > 1 << 16:
        raise Opaque("a header of {:,} bytes is not read here".format(start))
    if start > len(head):
        raise Broken("cut off inside the header")
    said = ast.literal_eval(head[8 + width : start].decode("utf-8" if head[6] == 3 else "latin-1"))
    if not isinstance(said, dict) or set(said) != {"descr", "fortran_order", "shape"}:
        raise Broken("the header lacks descr, fortran_order or shape")
    shape = said["shape"]
    if not isinstance(said["fortran_order"], bool) or not isinstance(shape, tuple):
        raise Broken("the header's order or shape is none")
    if len(shape) > 64 or not all(type(n) is int and n >= 0 for n in shape):
        raise Broken("the shape is {!r:.80}".format(shape))
    each = item_bytes(said["descr"])
    return start, None if each is None else product(shape) * each


def product(numbers):
    return functools.reduce(lambda left, right: left * right, numbers, 1)


def item_bytes(descr, depth=0):
    """How many bytes one element takes; None where it is an object."""
    if depth > 8:
        raise Opaque("a dtype nested so deeply is not read here")
    if isinstance(descr, str):
        match = re.fullmatch(r"[<>|=]?([?biufcSUVmMO])(\d{0,9})(?:\[[^\]]{1,20}\])?", descr)
        kind, size = (match.group(1), int(match.group(2) or 1)) if match else ("", 0)
        if not match or (kind in WIDTHS and size not in WIDTHS[kind]):
            raise Broken("unknown dtype {!r:.80}".format(descr))
        return None if kind == "O" else size * 4 if kind == "U" else size
    if isinstance(descr, list):
        parts = [item_bytes(f[1], depth + 1) for f in descr]
        extents = [product(f[2]) if len(f) > 2 else 1 for f in descr]
        return None if None in parts else sum(p * e for p, e in zip(parts, extents))  # noqa: B905
    if isinstance(descr, tuple) and len(descr) == 2:
        inner = item_bytes(descr[0], depth + 1)
        return None if inner is None else inner * product(descr[1])
    raise Broken("unknown dtype {!r:.80}".format(descr))


def npz(source):
    try:
        archive, found = zip_whole(source)
    except Opaque as reason:
        raise Broken("{}: numpy never writes that".format(reason)) from None
    arrays = [member for member in found if member.filename.endswith(".npy")]
    for member in arrays:
        content = zip_content(archive, member)
        head = b""
        while len(head) < 1 << 16:
            piece = next(content, b"")
            if not piece:
                break
            head += piece
        content.close()
        start, due = npy_header(head[: 1 << 16])
        if due is not None and start + due != member.file_size:
            raise Broken("{!r:.80} has not all its values".format(member.filename))
    if found and not arrays:
        raise Broken("no array among its members: a zip, and no npz")


def safetensors(source):
    length = int.from_bytes(source.read(0, 8), "little")
    if length > 100000000 or 8 + length > source.size:
        raise Broken("the header claims {:,} bytes".format(length))
    header = source.read(8, length)
    if not header.startswith(b"{"):
        raise Broken("the header is no JSON object")
    said = json.loads(header.decode("utf-8"), object_pairs_hook=unique)
    notes = said.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(value, str) for value in notes.values()):
        raise Broken("__metadata__ is no map of strings")
    end = 8 + length
    spans = []
    for name, tensor in said.items():
        dtype, shape, (first, last) = tensor["dtype"], tensor["shape"], tensor["data_offsets"]
        counts = [first, last, *shape]
        if (
            dtype not in BITS
            or not all(type(n) is int and n >= 0 for n in counts)
            or len(shape) > 64
        ):
            raise Broken("{!r:.80} has no dtype, shape or offsets to go by".format(name))
        if last - first != -(-product(shape) * BITS[dtype] // 8):
            raise Broken("{!r:.80} is {} {}, and not its bytes".format(name, dtype, shape))
        spans.append((first, last, name))
    at = 0
    for first, last, name in sorted(spans):
        if first != at:
            raise Broken("{!r:.80} overlaps another, or leaves a hole".format(name))
        at = last
    if end + at != source.size:
        raise Broken("the tensors end at byte {:,}, the file at {:,}".format(end + at, source.size))


def unique(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Broken("a name is used twice")
    return found


def sqlite(source):
    header = source.read(0, 100)
    if not header.startswith(b"SQLite format 3\0"):
        raise Broken("it does not begin as a SQLite database does")
    page = int.from_bytes(header[16:18], "big")
    page = 1 << 16 if page == 1 else page
    if page < 512 or page & (page - 1):
        raise Broken("a page size of {:,} bytes".format(page))
    pages = int.from_bytes(header[28:32], "big")
    counted = header[24:28] == header[92:96] and pages > 0
    if pages * page > source.size if counted else source.size % page:
        raise Broken("cut off: {:,} bytes, in pages of {:,}".format(source.size, page))
    if sqlite3 is None:
        raise Opaque("this Python has no sqlite3")
    place = pathlib.Path(os.fsdecode(os.path.realpath(source.path))).as_uri()
    try:
        with contextlib.closing(
            sqlite3.connect(place + "?mode=ro&immutable=1", uri=True)
        ) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            faults = [str(row[0]) for row in database.execute("PRAGMA integrity_check(3)")]
    except sqlite3.DatabaseError as error:
        if "malformed" in str(error) or "not a database" in str(error):
            raise Broken("SQLite refuses it: {}".format(error)) from None
        return  # a module or a function that is not here is nothing against the file
    if faults != ["ok"]:
        raise Broken("SQLite finds it damaged: {}".format("; ".join(faults)))


def png(source):
    if source.head(8) != b"\x89PNG\r\n\x1a\n":
        raise Broken("it does not begin as a PNG image does")
    at, kinds = 8, set()
    while b"IEND" not in kinds:
        length, kind = struct.unpack(">I4s", source.read(at, 8))
        if not kinds and (kind != b"IHDR" or length != 13):
            raise Broken("the first chunk is not IHDR")
        if at + length + 12 > source.size:
            raise Broken("cut off inside the chunk at byte {:,}".format(at))
        crc = zlib.crc32(kind)
        for piece in source.chunks(at + 8, at + 8 + length):
            crc = zlib.crc32(piece, crc)
        if source.read(at + 8 + length, 4) != struct.pack(">I", crc):
            raise Broken("the chunk at byte {:,} fails its CRC-32".format(at))
        kinds.add(kind)
        at += length + 12
    if b"IDAT" not in kinds:
        raise Broken("an image without pixels")


def gif(source):
    head = source.read(0, 13)
    if head[:6] not in (b"GIF87a", b"GIF89a"):
        raise Broken("it does not begin as a GIF image does")
    at, images = 13 + colours(head[10]), 0
    while True:
        kind = source.read(at, 1)
        if kind == b"\x3b":
            break
        if kind == b"\x21":
            at += 2
        elif kind == b"\x2c":
            images += 1
            at += 11 + colours(source.read(at + 1, 9)[8])
        else:
            raise Broken("unknown block at byte {:,}".format(at))
        length = source.read(at, 1)[0]
        while length:
            at += 1 + length
            length = source.read(at, 1)[0]
        at += 1
    if not images:
        raise Broken("no image before the trailer")


def colours(flags):
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


LEGACY = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
PICKLE = re.compile(rb"\x80[\x02-\x05]")
SUFFIXES = {
    "safetensors": ".safetensors",
    "torch": ".pt .pth",
    "npy": ".npy",
    "npz": ".npz",
    "pickle": ".pkl .pickle",
    "gguf": ".gguf",
    "onnx": ".onnx",
    "parquet": ".parquet",
    "hdf5": ".h5 .hdf5",
    "sqlite": ".sqlite .sqlite3 .db3",
    "json": ".json .ipynb .geojson",
    "jsonl": ".jsonl .ndjson",
    "csv": ".csv .tsv",
    "zip": ".zip .whl .keras .pt2 .mar",
    "tar": ".tar",
    "gzip": ".gz .tgz",
    "bzip2": ".bz2 .tbz .tbz2",
    "xz": ".xz .txz .lzma",
    "zstd": ".zst .zstd .tzst",
    "png": ".png",
    "jpeg": ".jpg .jpeg",
    "gif": ".gif",
    "webp": ".webp",
    "text": ".txt .log .md .yaml .yml .toml .out .err",
}
SILENT = ("", ".bin", ".ckpt", ".db", ".model", ".dat", ".part", ".pdparams")
TARBALLS = (".tgz", ".tbz", ".tbz2", ".txz")
GZIP, BZIP2, XZ = rb"\x1f\x8b\x08", rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", rb"\xfd7zXZ\0|\x5d\0\0"
MAGIC = (
    ("safetensors", rb'.{4}\0{4}\{"'),
    ("torch", re.escape(LEGACY)),
    ("npy", rb"\x93NUMPY"),
    ("gguf", rb"GGUF"),
    ("parquet", rb"PAR1"),
    ("hdf5", rb"\x89HDF\r\n\x1a\n"),
    ("sqlite", rb"SQLite format 3\0"),
    ("zip", rb"PK\x03\x04"),
    ("tar", rb".{257}ustar"),
    ("gzip", GZIP),
    ("bzip2", BZIP2),
    ("xz", rb"\xfd7zXZ\0"),
    ("zstd", rb"\x28\xb5\x2f\xfd"),
    ("png", rb"\x89PNG\r\n\x1a\n"),
    ("jpeg", rb"\xff\xd8\xff[\xdb\xe0-\xef]"),
    ("gif", rb"GIF8[79]a"),
    ("webp", rb"RIFF.{4}WEBP"),
)
WIDTHS = {
    "?": (1,),
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8, 12, 16),
    "c": (8, 16, 24, 32),
    "m": (8,),
    "M": (8,),
}
BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
}
INSIDE = {
    ".tar": tar,
    ".json": json_file,
    ".jsonl": jsonl,
    ".ndjson": jsonl,
    ".csv": functools.partial(table, delimiter=","),
    ".tsv": functools.partial(table, delimiter="\t"),
}
CHECKS = {
    "safetensors": safetensors,
    "torch": torch,
    "npy": npy,
    "npz": npz,
    "pickle": pickles,
    "sqlite": sqlite,
    "json": json_or_lines(json_file, jsonl),
    "jsonl": json_or_lines(jsonl, json_file),
    "csv": lambda source: table(source.chunks(), "\t" if ".tsv" in source.name else ","),
    "zip": zip_whole,
    "tar": lambda source: tar(source.chunks()),
    "gzip": packed(functools.partial(zlib.decompressobj, 31), GZIP),
    "bzip2": packed(bz2.BZ2Decompressor, BZIP2),
    "xz": packed(functools.partial(lzma.LZMADecompressor, memlimit=128 << 20), XZ),
    "png": png,
    "gif": gif,
    "text": text,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
