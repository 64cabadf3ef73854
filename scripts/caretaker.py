#!/usr/bin/env python3
# `make scripts` joins this file from mcp_server/box_scripts/caretaker: change it there.
"""The caretaker, a script on a rented box: it runs jobs, reports their state, and lists and hashes their files.

It needs Python 3.7 and nothing else (no root, tmux, docker, systemd, rsync, pip). It deletes only the files that its
owner names to `prune`, and only if they are still the same, byte for byte.

    caretaker.py --home DIR VERB --request -     one JSON object of arguments on stdin
    caretaker.py --home DIR VERB --flags ...     the same by hand; see --help

The reply is one JSON object on stdout: `{"ok": true, ...}` with exit status 0, or
`{"ok": false, "code": ..., "message": ...}` with 1 (not done) or 2 (a wrong request, BAD_REQUEST).

File names are bytes and JSON is text, so paths in JSON are escaped: `%`, control characters, characters
that hide or reorder text, and every byte that is not UTF-8 are written as `%XX`. All other characters,
also spaces, quotes and Chinese, stand for themselves. Percent-decoding gives the bytes back.

Patterns are globs in that escaped text, as in .gitignore. `*.pt` matches at any depth below the work
directory, `./x` and `a/b` only from its root; `out/` matches everything below; `**` crosses directories;
`\\*` is a star. `/abs/...` and `~/...` name other places.

DIR contains jobs/<job>/{lock,log,spec,started,main,exit,ending}, since, since-push, pushed, guard, notice, hashes
(.json each), pruned (lines of JSON), heartbeat, and queue/, which belongs to runner.py. The values of `env`
are never written there.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

PARTS = {}  # type: dict[str, str]


class Loader:
    """Makes modules from the texts in PARTS when they are needed. Compiling all would take longer than most calls."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in PARTS:
            return None
        return ModuleSpec(name, self, is_package=not PARTS[name])  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # an ordinary module

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__file__ = __file__
        place = "%s: %s" % (__file__, name.rpartition(".")[2])
        text = PARTS[name][1:]  # without the newline after the opening quotes
        exec(compile(text, place, "exec", dont_inherit=True), module.__dict__)  # noqa: S102


sys.meta_path.insert(0, Loader())


# An empty text is a package.
PARTS["box_scripts"] = ""
PARTS["box_scripts.caretaker"] = ""


# --- refusal -------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.refusal"] = r'''
"""The error for a request that was not carried out."""

from __future__ import annotations


class Refusal(Exception):
    """The request was not carried out. The code says why to a program, and the message to a person."""

    def __init__(self, code: str, message: str, **more: object) -> None:
        super().__init__(message)
        self.reply = dict(more, ok=False, code=code, message=message)
'''


# --- progress ------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.progress"] = r'''
"""Reports to the tenant how much of a long request is done so far, and ends with the tenant's connection."""

from __future__ import annotations

import os
import select
import sys
import time


class Telling:
    """Reports to the tenant how much is done so far, if the request asks for reports."""

    def __init__(self) -> None:
        self.every_s: float | None = None
        self._told_at = time.monotonic()
        self._files = self._read_bytes = 0

    def did(self, files: int, read_bytes: int) -> None:
        """Count processed files and bytes that were read. Report the totals, if the time for a report has come."""
        self._files, self._read_bytes = self._files + files, self._read_bytes + read_bytes
        if self.every_s is None or time.monotonic() - self._told_at < self.every_s:
            return
        self._told_at = time.monotonic()
        sys.stdout.buffer.write(b'{"done":[%d,%d]}\n' % (self._files, self._read_bytes))
        sys.stdout.buffer.flush()


TELLING = Telling()


def end_with_asker() -> None:
    """End this process as soon as the tenant has disconnected, whatever it does then. Nobody needs its work any more."""
    import threading

    def watch() -> None:
        poll = select.poll()
        poll.register(1, 0)  # a broken pipe is always told
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll()):
            os._exit(1)

    if hasattr(select, "poll"):
        threading.Thread(target=watch, daemon=True).start()
'''


# --- paths ---------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.paths"] = r'''
"""Converts file names to printable text and back, and checks which path is below which directory."""

from __future__ import annotations

import re

from box_scripts.caretaker.refusal import Refusal

_UNPRINTABLE = re.compile(
    "[%\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})?")


def escape_path(raw: bytes) -> str:
    """Return the printable text that stands for exactly these bytes."""
    text = raw.decode("utf-8", "surrogateescape")
    return _UNPRINTABLE.sub(lambda m: "".join("%%%02X" % b for b in utf8_bytes(m.group())), text)


def unescape_path(text: str) -> bytes:
    """Return the bytes that `text` stands for.

    Raises:
        ValueError: a `%` has no two hexadecimal digits, or the text is not valid Unicode.
    """

    def byte(match: re.Match[bytes]) -> bytes:
        if match.group(1) is None:
            raise ValueError("a % without two hexadecimal digits in " + ascii(text))
        return bytes((int(match.group(1), 16),))

    return _PERCENT.sub(byte, text.encode("utf-8"))


def utf8_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def is_below(path: bytes, directory: bytes) -> bool:
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def inner_path(raw: bytes) -> bytes:
    """Return the relative path `raw` without empty parts and dots.

    Raises:
        Refusal: UNSAFE_PATH: it is absolute, or contains `..` or a zero byte.
    """
    parts = [part for part in raw.split(b"/") if part not in (b"", b".")]
    if raw.startswith(b"/") or b".." in parts or b"\0" in raw:
        raise Refusal("UNSAFE_PATH", "not a path below the work directory: " + escape_path(raw))
    return b"/".join(parts)
'''


# --- patterns ------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.patterns"] = r'''
"""Matches escaped paths with globs as in .gitignore."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.paths import escape_path, unescape_path, utf8_bytes
from box_scripts.caretaker.refusal import Refusal

_UNIT = re.compile("%([0-9A-F]{2})")
_TOKEN = re.compile(
    r"(?P<run>(?:%[0-9A-Fa-f]{2})+)|\\(?P<quoted>.)|(?P<star>\*+)|(?P<one>\?)"
    r"|\[(?P<not>[!^]?)(?P<set>\]?[^]]*)\]|(?P<plain>[^%\\*?[]+|.)",
    re.DOTALL,
)


def _units(escaped: str) -> str:
    """Return the escaped text with one character for each escape. Such characters are in no escaped text."""
    return _UNIT.sub(lambda m: chr(0xDC00 + int(m[1], 16)), escaped) if "%" in escaped else escaped


class _Class:
    """The characters that one position of a name may have: those of `[a-z]`, or all but those of `[!a-z]`."""

    def __init__(self, chars: str, negated: bool) -> None:
        """Raises: ValueError: a range ends before it begins, or there are no characters."""
        self._ranges, self._negated, at = [], negated, 0
        while at < len(chars):
            is_range = chars[at + 1 : at + 2] == "-" and at + 2 < len(chars)
            first, last = chars[at], chars[at + 2] if is_range else chars[at]
            if first > last:
                raise ValueError("bad character range " + chars[at : at + 3])
            self._ranges.append((first, last))
            at += 3 if is_range else 1
        if not chars:
            raise ValueError("an empty set of characters")

    def has(self, char: str) -> bool:
        if "\udc00" <= char <= "\udcff":  # an escape
            return self._negated
        return any(first <= char <= last for first, last in self._ranges) != self._negated


_ANY = _Class("\0", negated=True)  # no name has this character
LONGEST = 1 << 14


class Segment:
    """One component of a pattern. `literal` is the name that it stands for, in bytes; None if it is a glob."""

    def __init__(self, text: str) -> None:
        """Raises: ValueError: the text is not valid."""
        self.is_any_depth = text == "**"
        chunks: list[list] = [[]]  # what stands between the stars
        literal, is_glob = [], self.is_any_depth
        for token in _TOKEN.finditer(text):
            kind = token.lastgroup
            if kind == "star":
                chunks.append([])
            elif kind == "one":
                chunks[-1].append(_ANY)
            elif kind == "set":
                chunks[-1].append(_Class(token.group("set"), bool(token.group("not"))))
            else:
                plain = token.group("quoted") or token.group("plain")
                raw = utf8_bytes(plain) if plain else unescape_path(token.group())
                chunks[-1].extend(_units(escape_path(raw)))
                literal.append(raw)
                continue
            is_glob = True
        self.literal = None if is_glob else b"".join(literal)
        self.least = sum(map(len, chunks))
        # Text is compared faster than a list of what fits each character.
        plain = [_Class not in map(type, chunk) for chunk in chunks]
        self._chunks = ["".join(c) if p else c for c, p in zip(chunks, plain)]  # noqa: B905

    def matches(self, name: str) -> bool:
        """Whether the name matches, in a time that grows with the length of the name times that of this text.

        After a star, the first place where the next chunk fits is as good as any later one. So no place is tried twice.
        """
        if len(name) < self.least or not _fits(self._chunks[0], name, 0):
            return False
        if len(self._chunks) == 1:
            return len(name) == self.least
        at, end = len(self._chunks[0]), len(name) - len(self._chunks[-1])
        for chunk in self._chunks[1:-1]:
            at = _find(chunk, name, at, end)
            if at < 0:
                return False
            at += len(chunk)
        return _fits(self._chunks[-1], name, end)

    def matches_escaped(self, name: str) -> bool:
        """Whether the escaped name matches."""
        return self.matches(_units(name))


def _fits(chunk: str | list, name: str, at: int) -> bool:
    if isinstance(chunk, str):
        return name.startswith(chunk, at)
    return all(
        char == test if isinstance(test, str) else test.has(char)
        for char, test in zip(name[at : at + len(chunk)], chunk)  # noqa: B905
    )


def _find(chunk: str | list, name: str, at: int, end: int) -> int:
    if isinstance(chunk, str):
        return name.find(chunk, at, end)
    places = range(at, end - len(chunk) + 1)
    return next((place for place in places if _fits(chunk, name, place)), -1)


def _are_at(piece: list[Segment], parts: list[str], at: int) -> bool:
    near = parts[at : at + len(piece)]
    return all(one.matches(part) for one, part in zip(piece, near))  # noqa: B905


class Pattern:
    """One glob. `matches` says whether it covers an escaped path.

    A `relative` pattern is matched against paths below the work directory, any other against absolute paths. All paths
    that an absolute pattern can match are below `prefix`. `place` is the pattern's own text as an escaped path.
    """

    def __init__(self, text: str) -> None:
        """Raises: Refusal: `text` is not a valid pattern, begins with `!`, or contains `..`."""
        from_home = text == "~" or text.startswith("~/")
        self.text, self.relative, self.prefix = text, not (from_home or text.startswith("/")), b""
        if len(text) > LONGEST:
            raise Refusal("BAD_REQUEST", "a pattern has at most %d characters" % LONGEST)
        names = [n for n in text.split("/") if n not in ("", ".")][1 if from_home else 0 :]
        try:
            segments = [Segment(n) for n in names]
        except ValueError as error:
            raise Refusal("BAD_REQUEST", "not a pattern: %s (%s)" % (ascii(text), error)) from None
        if (
            text.startswith("!")
            or any(one.literal == b".." for one in segments)
            or not (names or from_home or text == "/")
        ):
            raise Refusal(
                "BAD_REQUEST",
                "a pattern is not empty, has no .. and no ! at its head: " + ascii(text),
            )
        whole = [
            name.replace("%", "%25") if one.literal is None else escape_path(one.literal)
            for name, one in zip(names, segments)  # noqa: B905 - Python 3.7 knows no strict
        ]
        self.place = "/".join(whole)
        if not self.relative:
            globs = [one.literal for one in segments]
            fixed = globs.index(None) if None in globs else len(globs)
            try:
                segments = self._resolve_beginning(segments, from_home)
            except ValueError as error:  # no path contains a zero byte
                raise Refusal(
                    "BAD_REQUEST", "not a pattern: %s (%s)" % (ascii(text), error)
                ) from None
            self.place = "/".join([escape_path(self.prefix), *whole[fixed:]])
        self._is_anywhere = self.relative and "/" not in text.rstrip("/")
        # Between two `**` stands a piece: components that follow each other.
        self._pieces: list[list[Segment]] = [[]]
        for segment in segments:
            if segment.is_any_depth:
                self._pieces.append([])
            else:
                self._pieces[-1].append(segment)
        is_open = not segments or segments[-1].is_any_depth
        self._below = bool(names and text.endswith("/")) + is_open
        self._least = sum(map(len, self._pieces)) + self._below

    def matches(self, path: str) -> bool:
        """Whether the pattern covers that escaped path, or a directory above it.

        Like a chunk of a name, a piece is sought once, and its first place is as good as any.
        """
        parts = _units(path if self.relative else path[1:]).split("/")
        if len(parts) < self._least or (not self.relative and path[:1] != "/"):
            return False
        at, moves = 0, self._is_anywhere
        for piece in self._pieces:
            last = len(parts) - self._below - len(piece) if moves else at
            while not _are_at(piece, parts, at):
                at += 1
                if at > last:
                    return False
            at, moves = at + len(piece), True
        return at + self._below <= len(parts)

    def _resolve_beginning(self, segments: list[Segment], from_home: bool) -> list[Segment]:
        """Return the segments, with all links resolved in the part before the first glob.

        This is needed because the survey of files finds real paths.
        """
        root = os.path.expanduser(b"~") if from_home else b"/"
        fixed = [one.literal for one in segments]
        fixed = fixed[: fixed.index(None)] if None in fixed else fixed
        names = [raw for raw in fixed if raw is not None]
        if len(names) == len(segments) > 0 and not self.text.endswith("/"):
            # The last name is not resolved: if it is a link, the pattern means the link itself.
            self.prefix = os.path.join(os.path.realpath(os.path.join(root, *names[:-1])), names[-1])
        else:
            self.prefix = os.path.realpath(os.path.join(root, *names))
        real = [
            re.sub(r"([][*?\\])", r"\\\1", escape_path(p)) for p in self.prefix.split(b"/") if p
        ]
        return [*map(Segment, real), *segments[len(names) :]]
'''


# --- pattern_bounds ------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.pattern_bounds"] = r'''
"""Limits how much a discard pattern may cover. Also the verb `patterns`."""

from __future__ import annotations

import os

from box_scripts.caretaker.paths import escape_path, is_below, utf8_bytes
from box_scripts.caretaker.patterns import Pattern
from box_scripts.caretaker.refusal import Refusal


def good_patterns(texts: list[str], bounds: Bounds | None, problems: list[dict]) -> list[Pattern]:
    """Return those of the texts that are valid patterns.

    A text that is not valid, or covers too much, is left out and added to `problems`.
    """
    found = []
    for text in dict.fromkeys(texts):
        try:
            pattern = Pattern(text)
        except Refusal as refusal:
            why, detail = "bad_pattern", refusal.reply["message"]
        else:
            wide = bounds.passed_by(pattern) if bounds else None
            if wide is None:
                found.append(pattern)
                continue
            why, detail = "wide_pattern", "it gives up %s, unseen" % wide
        problems.append({"at": _plain(text), "why": why, "detail": str(detail)})
    return found


class Narrowing:
    """Decides which artifacts are discarded, because a discard is narrower than each pattern that keeps them.

    The discard `out/huge.bin` is a part of the artifact `out/`, so this file is discarded. The discard `*.tmp` is
    not a part of `out/`, so the temporary files in `out/` are kept.
    """

    def __init__(self, artifacts: list[Pattern], discards: list[Pattern]) -> None:
        within = [(d, [a for a in artifacts if _lies_in(d, a)]) for d in discards]
        self._narrower = [(discard, inner) for discard, inner in within if inner]
        self._artifacts = artifacts

    def takes(self, at: str, inner: str | None) -> bool:
        """Whether the artifact at that path is discarded."""
        if not self._narrower:
            return False

        def means(pattern: Pattern) -> bool:
            text = inner if pattern.relative else at
            return text is not None and bool(pattern.matches(text))

        keeping = [artifact for artifact in self._artifacts if means(artifact)]
        return any(
            means(discard) and all(artifact in within for artifact in keeping)
            for discard, within in self._narrower
        )


def _lies_in(discard: Pattern, artifact: Pattern) -> bool:
    """Whether the discard covers a part of the artifact pattern, but not all of it."""
    if discard.relative != artifact.relative or discard.place == artifact.place:
        return False
    if not artifact.matches(discard.place):
        return False
    all_of_it = [p for p in PROBES if discard.matches(artifact.place + "/" + p)]
    return not _is_wide(all_of_it)


def _plain(text: str) -> str:
    """Return the pattern with all unprintable characters escaped."""
    return escape_path(utf8_bytes(text))


TEMPORARY = (b"/tmp", b"/var/tmp", b"/dev/shm")
PROBES = (  # examples of names that jobs write, as different as possible
    "a",
    "zz9.bin",
    "Q7",
    ".h/x",
    "d/e/f",
    "model.pt",
    "metrics.csv",
    "README",
    "7",
    "ckpt-100/w.safetensors",
    "x.y.z",
    "checkpoints/last",
    "results_final.json",
    "1/2",
)


def _is_wide(matched: list[str]) -> bool:
    """Whether a pattern that matches these probes probably matches everything, or everything in subdirectories."""
    return 2 * len(matched) >= len(PROBES) or sum("/" in probe for probe in matched) >= 4


class Bounds:
    """The limits of a discard pattern: it may cover no whole place, and nothing of another lease.

    A place is a directory that must be accounted for, such as the work or the home directory.
    """

    def __init__(self, home: str, work: bytes, tops: list[bytes]) -> None:
        login = os.path.realpath(os.path.expanduser(b"~"))
        self._own = os.path.dirname(work)
        beside, plain = os.path.dirname(self._own), os.path.join(login, b"gpu-tenant")
        is_ours = os.path.basename(beside) == b"gpu-tenant"
        # The directory of another lease may be on another disk of the box.
        self._leases = {plain, beside} if is_ours else set()
        # A place whose name says that it is temporary may be discarded as a whole.
        kept = [top for top in tops if top not in TEMPORARY]
        self._work, self._tops = work, list(dict.fromkeys([*kept, login]))
        self._home = os.fsencode(home)

    def passed_by(self, pattern: Pattern) -> str | None:
        """Return what the pattern covers although it may not, in words. None if it keeps the limits."""
        if pattern.relative:
            matched = [probe for probe in PROBES if pattern.matches(probe)]
            return "all that is written" if _is_wide(matched) else None
        for top in self._tops:
            at = escape_path(top).rstrip("/") + "/"
            if _is_wide([probe for probe in PROBES if pattern.matches(at + probe)]):
                return "all of " + escape_path(top)
        for leases in self._leases:
            others = escape_path(os.path.join(leases, b"own-zzzz/work/out/a"))
            is_there = is_below(pattern.prefix, leases) and not is_below(pattern.prefix, self._own)
            if pattern.matches(others) or is_there:
                return "what belongs to another lease"
        return None


def patterns(home: str, request: dict) -> dict:
    """Report which of these patterns are not valid, or cover too much. Nothing is changed."""
    problems: list[dict] = []
    tops = [request["work"], *sorted(request.get("roots", []))]
    good_patterns(request.get("artifacts", []), None, problems)
    good_patterns(request.get("discard", []), Bounds(home, request["work"], tops), problems)
    return {"problems": problems}
'''


# --- records -------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.records"] = r'''
"""Reads and writes the small JSON records in the caretaker's home directory, and locks them."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import stat

from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SPARE_BYTES = 2048
MOST_BYTES = 1 << 28
NUMBER = (int, float)
TEXTS = [str]
STARTED = {
    "pid": int,
    "start_ticks": int,
    "boot_id": str,
    "started_at": NUMBER,
    "supervisor_pid": int,
    "supervisor_ticks": int,
    "init_ticks": int,
}
SPEC = {
    "cwd": str,
    "artifacts": TEXTS,
    "discard": TEXTS,
    "oom_kills": dict,
    "grace_s": NUMBER,
    "stop_signal": int,
}
EXIT = {
    "exit_code": (int, type(None)),
    "signal": (str, type(None)),
    "ended_at": NUMBER,
    "facts": dict,
}
ENDING = {"why": str, "at": NUMBER}
SINCE = {"since_ns": int}
PUSHED_FILE = {"size": int, "sha256": str}
JOURNAL: dict = {
    "slots": {"slots": int, "slot_gpus": TEXTS},
    "queued": {"queued": str, "spec": dict, "attempts": int, "env_names": TEXTS},
    "held": {"held": TEXTS, "by": str},
    "withdrawn": {"withdrawn": str},
    "began": {"began": str, "job": str, "slot": int, "at": NUMBER, "by": str, "stay": bool},
    "ended": {"ended": str, "job": str, "final": bool, "counts": bool, "state": str},
}
"""The lines of a queue's journal: for each kind of line, the field that identifies it, and all its fields."""
GUARD = {
    "state": str,
    "deadline": (*NUMBER, type(None)),
    "pid": int,
    "start_ticks": int,
    "boot_id": str,
}
NO_GUARD = {"state": "not_armed", "deadline": None, "pid": 0, "start_ticks": 0, "boot_id": ""}


def put_bytes(path: str, content: bytes, flags: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def reserve_record(path: str) -> None:
    """Reserve disk space, so that the record at `path` can be written later even if the disk is full."""
    put_bytes(path + ".spare", b" " * SPARE_BYTES, os.O_CREAT | os.O_TRUNC)


def write_record(path: str, record: dict) -> None:
    """Write `record` to `path`, completely or not at all, and flush it to the disk."""
    content = json.dumps(record, separators=(",", ":")).encode() + b"\n"
    temporary, spare = "%s.%d.tmp" % (path, os.getpid()), path + ".spare"
    try:
        put_bytes(temporary, content, os.O_CREAT | os.O_TRUNC)
    except OSError as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not os.path.exists(spare):
            raise
        put_bytes(spare, content.ljust(SPARE_BYTES), 0)  # its disk space is already reserved
        temporary = spare
    os.replace(temporary, path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot do this
            raise
    finally:
        os.close(directory)


def write_record_if_possible(path: str, record: dict) -> None:
    try:
        write_record(path, record)
    except OSError:
        pass


def is_whole(record: object, fields: dict) -> bool:
    """Whether a value that was read from JSON is a record that has all these fields, with these types.

    `[str]` stands for a list of texts. A job can change these records, so numbers are checked to be finite.
    """
    if not isinstance(record, dict):
        return False
    return all(name in record and _fits(record[name], t) for name, t in fields.items())


def _fits(value: object, types: Any) -> bool:
    if isinstance(types, list):
        return isinstance(value, list) and all(_fits(each, types[0]) for each in value)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(value, str) and "\0" in value:  # a path cannot contain this
        return False
    return isinstance(value, types)


def json_value(raw: bytes) -> Any:
    """Return the value of that JSON.

    Raises:
        ValueError: this is not JSON, or it is nested too deeply.
    """
    try:
        return json.loads(raw.decode())
    except RecursionError as error:
        raise ValueError(str(error)) from None


def journal_line(raw: bytes) -> dict:
    """Return the record in that line of a queue's journal.

    Raises:
        ValueError: it is not a complete record.
    """
    line = json_value(raw)
    kinds = [kind for kind in JOURNAL if kind in line] if isinstance(line, dict) else []
    if not is_whole(line, JOURNAL[kinds[0]] if kinds else {}):
        raise ValueError("it is no record, or a field is missing or of another type")
    record: dict = line
    return record


def read_record(path: str, fields: dict) -> dict | None:
    """Return the record at `path`. None if there is no such file. What a job put there instead of a file is none.

    Raises:
        Refusal: RECORD_CORRUPT: it cannot be read, or does not have these fields with these types.
    """
    record: dict | None
    try:
        # A pipe would be waited for.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENXIO):
            return None
        raise
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode):
            return None
        record = None
        if seen.st_size <= MOST_BYTES:
            with os.fdopen(os.dup(fd), "rb") as file:
                record = json_value(file.read())
    except ValueError:
        record = None
    finally:
        os.close(fd)
    if not is_whole(record, fields):
        raise Refusal("RECORD_CORRUPT", path + " is not a whole record; it was left as it is")
    return record


def lock_file(path: str, mode: int) -> int | None:
    """Lock the file, and return the descriptor that holds the lock. None if another process holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, mode)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise Refusal(
            "LOCK_UNSUPPORTED", "%s: %s; put --home on a local disk" % (path, error)
        ) from None
    return fd


class Locked:
    """Holds a lock while the block runs. Other processes that want this lock wait."""

    def __init__(self, home: str, name: str) -> None:
        self._path = os.path.join(home, name)

    def __enter__(self) -> None:
        self._fd = lock_file(self._path, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        assert self._fd is not None
        os.close(self._fd)
'''


# --- processes -----------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.processes"] = r'''
"""Lists the processes of this machine, from /proc or by ps."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import namedtuple

Process = namedtuple("Process", "pid parent session ticks")


def text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def program_of(pid: int) -> str:
    """Name the program that a process runs, and the script if there is one. No other arguments are shown."""
    words = [word for word in text_of("/proc/%d/cmdline" % pid).split("\0") if word]
    names = [os.path.basename(word) for word in words[:1]]
    names += [os.path.basename(word) for word in words[1:2] if re.search(r"\.(?:py|sh)$", word)]
    return re.sub(r"[^\w.:+ -]", "?", " ".join(names))[:60] or "unknown"


def output_of(*argv: str) -> str:
    import subprocess

    null, plain = subprocess.DEVNULL, dict(os.environ, LC_ALL="C")
    try:
        output = subprocess.check_output(argv, timeout=8, stdin=null, stderr=null, env=plain)
        return output.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return ""


def boot_id() -> str:
    """Return a text that changes when the machine restarts. Empty if the system has none."""
    if sys.platform == "darwin":
        return output_of("sysctl", "-n", "kern.bootsessionuuid").strip()
    return text_of("/proc/sys/kernel/random/boot_id").strip()


def _process(pid: int) -> Process | None:
    """Return the living process with this number. None if there is none; a zombie does not count as living."""
    if not os.path.isdir("/proc/self"):
        return _processes_by_ps().get(pid)
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # If only the main thread is dead, the process lives on in its other threads.
    if len(fields) < 20 or (fields[0] in (b"Z", b"X") and int(fields[17]) <= 1):
        return None
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]))


def living_processes() -> dict[int, Process]:
    if not os.path.isdir("/proc/self"):
        return _processes_by_ps()
    found = (_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def _processes_by_ps() -> dict[int, Process]:
    """Return the living processes by `ps`, for systems without /proc.

    In place of the session there is the process group, and in place of the ticks, the second in which it started.
    """
    found = {}
    for line in output_of("ps", "-axo", "pid=,ppid=,pgid=,stat=,lstart=").splitlines():
        pid, parent, group, state, began = line.split(None, 4)
        if not state.startswith("Z"):
            ticks = int(time.mktime(time.strptime(began.strip())))
            found[int(pid)] = Process(int(pid), int(parent), int(group), ticks)
    return found


def ticks_of(pid: int) -> int:
    """Return when the process began, in ticks of the system's clock. 0 if there is no such process."""
    process = _process(pid)
    return process.ticks if process else 0


def started_ns(pid: int) -> int | None:
    """Return when the process began, in nanoseconds since 1970, to within about a second. None if unknown."""
    booted = re.search(r"^btime (\d+)$", text_of("/proc/stat"), re.MULTILINE)
    ticks = ticks_of(pid)
    if booted is None or ticks <= 0:
        return None
    return int((int(booted.group(1)) + ticks / os.sysconf("SC_CLK_TCK")) * 10**9)


def restarted_since(started: dict) -> str | None:
    """Say why no process of that launch can be alive any more. None if one may be alive."""
    if started["boot_id"] != boot_id():
        return "boot id was %s and is %s" % (started["boot_id"], boot_id())
    if started["init_ticks"] and ticks_of(1) not in (0, started["init_ticks"]):
        return "process 1 has been started again since: the container was restarted"
    return None
'''


# --- jobs ----------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.jobs"] = r'''
"""The jobs in the caretaker's home directory: their records and their processes."""

from __future__ import annotations

import fcntl
import os
import re

from box_scripts.caretaker.processes import living_processes, restarted_since
from box_scripts.caretaker.records import ENDING, SPEC, STARTED, lock_file, read_record
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.processes import Process

LIVE = ("starting", "running", "lingering")
JOB_NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,64}").fullmatch


class Job:
    """One job, with its records and its processes."""

    def __init__(self, home: str, name: str) -> None:
        if not JOB_NAME(name):
            raise Refusal("BAD_REQUEST", "a job is named by 1 to 64 of A-Z a-z 0-9 . _ -")
        self.home, self.name, self.directory = home, name, os.path.join(home, "jobs", name)
        # Every process of the job inherits these variables, so it can be recognised even if its parents have ended.
        self.marks = {b"GPU_TENANT_JOB": name.encode(), b"GPU_TENANT_CARETAKER": os.fsencode(home)}

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def start_record(self) -> dict | None:
        return read_record(self.path("started.json"), STARTED)

    def ending(self) -> dict | None:
        return read_record(self.path("ending.json"), ENDING)

    def spec(self) -> dict:
        spec = read_record(self.path("spec.json"), SPEC)
        if spec is None:
            raise Refusal(
                "RECORD_CORRUPT", self.path("spec.json") + " is missing though the job was started"
            )
        return spec

    def is_held(self) -> bool:
        """Whether the job's supervisor, or a launch in progress, holds the lock of the job."""
        if not os.path.isfile(self.path("lock")):
            return False
        fd = lock_file(self.path("lock"), fcntl.LOCK_SH | fcntl.LOCK_NB)
        if fd is not None:
            os.close(fd)
        return fd is None

    def members(self) -> list[Process]:
        """Return every living process of the job, without its supervisor.

        A process belongs to the job by its parents, by its session, or by the marks in its environment.
        """
        table, members, supervisor = living_processes(), set(), 0
        try:
            started = self.start_record()
        except Refusal:  # then only the marks show which processes are the job's
            started = None
        if started and not restarted_since(started):
            leader, watcher = table.get(started["pid"]), table.get(started["supervisor_pid"])
            if watcher and watcher.ticks == started["supervisor_ticks"]:
                supervisor = watcher.pid
            if not leader or leader.ticks == started["start_ticks"]:
                # While a session has members, the system gives its number to no other session.
                members = {
                    p.pid
                    for p in table.values()
                    if p.session == started["pid"] and p.ticks >= started["start_ticks"]
                }
        marks = {name + b"=" + value for name, value in self.marks.items()}
        for pid in table:
            try:
                with open("/proc/%d/environ" % pid, "rb") as file:
                    if marks.issubset(file.read().split(b"\0")):
                        members.add(pid)
            except OSError:
                continue
        parents, size = members | ({supervisor} if supervisor else set()), -1
        while size != len(parents):
            size = len(parents)
            parents.update(p.pid for p in table.values() if p.parent in parents)
        return [table[pid] for pid in sorted(parents - {supervisor, os.getpid()}) if pid in table]


def all_jobs(home: str) -> list[Job]:
    """Return every job that has a directory here. Anything else in that place is a file that nobody has claimed."""
    place = os.path.join(home, "jobs")
    try:
        names = sorted(os.listdir(place))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [Job(home, n) for n in names if JOB_NAME(n) and os.path.isdir(os.path.join(place, n))]
'''


# --- cgroups -------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.cgroups"] = r'''
"""Reads what the kernel counts for our cgroups: processes killed for lack of memory, and limits that were reached."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.processes import text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def cgroup_files(v2: str, v1: str, controller: str = "memory") -> list[str]:
    """Return the existing files of that name (`v2` or `v1`, by version): our own cgroup's, then its parents'."""
    files = []
    for line in text_of("/proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controller in controllers.split(","):
            bases, name = ["/sys/fs/cgroup/" + controller], v1
        elif not controllers:
            bases, name = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], v2
        else:
            continue
        path = path.rstrip("/") + "/"
        while path:
            path = path.rpartition("/")[0]
            files += [base + path + "/" + name for base in bases]
    return [path for path in files if os.path.isfile(path)]


def oom_kill_counts() -> dict[str, int]:
    """Return how often the kernel killed a process for lack of memory, as counted for our cgroups and the machine."""
    paths = [*cgroup_files("memory.events", "memory.oom_control"), "/proc/vmstat"]
    return _counts_in(paths, OOM_KILL_FIELDS)


def limit_hit_counts() -> dict[str, int]:
    """Return how often our cgroups reached their own limits of memory and of processes.

    The count of kills in a cgroup also rises if the whole machine was short of memory. These counts rise only if
    the cgroup reached its own limit.
    """
    paths = cgroup_files("memory.events", "memory.failcnt")
    paths += cgroup_files("", "memory.memsw.failcnt")
    return _counts_in(paths + cgroup_files("pids.events", "pids.events", "pids"), LIMIT_HIT_FIELDS)


OOM_KILL_FIELDS = {
    "memory.events": "oom_kill ",
    "memory.oom_control": "oom_kill ",
    "vmstat": "oom_kill ",
}
LIMIT_HIT_FIELDS = {
    "memory.events": "oom ",
    "pids.events": "max ",
}  # each of the other files contains only a number


def _counts_in(paths: Iterable[str], names: dict) -> dict[str, int]:
    found = {}
    for path in paths:
        name = names.get(os.path.basename(path), "")
        match = re.search(r"^%s(\d+)$" % name, text_of(path), re.MULTILINE)
        if match:
            found[path] = int(match.group(1))
    return found


def risen_counts(before: dict, names: dict) -> dict:
    """Return the counts that are higher now. The job's files are read again, because we may be in another cgroup."""
    now = _counts_in(before, names)
    risen = [(path, count) for path, count in now.items() if count > before[path]]
    return dict(risen[:6])  # the room that was reserved for the record is limited
'''


# --- disk_room -----------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.disk_room"] = r'''
"""Measures how much room a file system has."""

from __future__ import annotations

import os

FULL_BELOW_BYTES = 1 << 20


def room_at(path: bytes) -> dict:
    try:
        seen = os.statvfs(path)
    except OSError:
        return {"disk_free_bytes": None, "inodes_free": None}
    inodes = seen.f_favail if seen.f_files else None  # some file systems do not count inodes
    return {"disk_free_bytes": seen.f_bavail * seen.f_frsize, "inodes_free": inodes}


def free_share(free: int, whole: int) -> float | None:
    return round(free / whole, 3) if whole else None


def what_is_full(room: dict) -> str | None:
    free, inodes = room.get("disk_free_bytes"), room.get("inodes_free")
    if free is not None and free < FULL_BELOW_BYTES:
        return "disk_full"
    return "inodes_full" if inodes is not None and inodes < 1 else None
'''


# --- failure_cause -------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.failure_cause"] = r'''
"""Finds out why a job has ended, from what can be seen on the box."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.cgroups import LIMIT_HIT_FIELDS, OOM_KILL_FIELDS, risen_counts
from box_scripts.caretaker.disk_room import FULL_BELOW_BYTES, free_share, room_at, what_is_full
from box_scripts.caretaker.paths import escape_path, unescape_path


def end_facts(spec: dict, log_directory: str) -> dict:
    """Return present facts of the box that may explain why a job died. Their size is limited, to fit into a record."""
    work = unescape_path(spec["cwd"])
    facts = dict(
        room_at(work),
        oom_kills=risen_counts(spec["oom_kills"], OOM_KILL_FIELDS),
        limit_hits=risen_counts(spec.get("limit_hits", {}), LIMIT_HIT_FIELDS),
        log_free_bytes=room_at(os.fsencode(log_directory))["disk_free_bytes"],
    )
    try:
        disk = os.statvfs(work)
        facts["disk_share"] = free_share(disk.f_bavail, disk.f_blocks)
        facts["inode_share"] = free_share(disk.f_favail, disk.f_files)
    except OSError:
        pass
    try:
        shm = os.statvfs("/dev/shm")  # noqa: S108
        facts["shm_free_bytes"] = shm.f_bavail * shm.f_frsize
        facts["shm_bytes"] = shm.f_blocks * shm.f_frsize
    except OSError:
        pass
    for place in (os.environ.get("TMPDIR") or "/tmp", os.path.expanduser("~")):  # noqa: S108
        full = what_is_full(room_at(os.fsencode(place)))
        if full and len(place) < 200:
            facts["full_elsewhere"] = [full, place]
    return facts


def kernel_messages(start_ticks: int) -> dict:
    """Return what the kernel's log says since the job began: the last GPU fault, and which processes were killed.

    Only processes that were killed for lack of memory count. The result is empty if we may not read the log.
    """
    told: dict = {"xid": None, "killed": {}}
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return told
    since_us = start_ticks / os.sysconf("SC_CLK_TCK") * 1e6
    for _ in range(100_000):
        try:
            prefix, _, text = os.read(fd, 8192).partition(b";")
            if b"NVRM: Xid" not in text and b"Killed process" not in text:
                continue
            if float(prefix.split(b",")[2]) < since_us:
                continue
            line = text.split(b"\n")[0].decode("utf-8", "replace")[:400]
            killed = re.search(r"ut of memory: Killed process (\d+) ", line)
            if killed:
                told["killed"][int(killed.group(1))] = line
            elif "NVRM: Xid" in line:
                told["xid"] = line
        except BrokenPipeError:  # this message was overwritten before we read it
            continue
        except (OSError, IndexError, ValueError):
            break
    os.close(fd)
    return told


def _memory_sign(spec: dict, facts: dict, killed: str | None) -> tuple[str, str] | None:
    """Return what ran out of memory when the kernel killed a process, the job's cgroup or the host, and the evidence.

    None if the kernel's counts do not show it.
    """
    risen = [
        (path, spec["oom_kills"][path], count)
        for path, count in facts.get("oom_kills", {}).items()
        if count > spec["oom_kills"].get(path, count)
    ]
    ours = [kill for kill in risen if kill[0] != "/proc/vmstat"]
    groups_seen = any(path != "/proc/vmstat" for path in spec["oom_kills"])
    hits = [path for path in facts.get("limit_hits", {}) if not path.endswith("pids.events")]
    if ours:
        counted = "%s: oom_kill went from %d to %d" % ours[0]
        within = killed.startswith("Memory cgroup") if killed else hits or "limit_hits" not in spec
        if within:
            return "cgroup_oom", counted
        return "host_oom", counted + ", and not for its own limit"
    if risen and not groups_seen:
        return "host_oom", "%s: oom_kill went from %d to %d" % risen[0]
    return None


def seek_reason(
    spec: dict, facts: dict, restart: str | None, kernel: dict, otherwise: tuple[str, str]
) -> dict:
    """Return why a job has ended that nobody asked to stop, by the strongest evidence there is.

    In the result, `signs` has all the evidence that could explain the end, for a reader who also has the log. `shares`
    says how much of the disk, of the inodes and of /dev/shm was free.
    """
    signs: dict = {}
    free, inodes = facts.get("disk_free_bytes"), facts.get("inodes_free")
    killed = list(kernel["killed"].values())[-1] if kernel["killed"] else None
    memory = _memory_sign(spec, facts, killed)
    if restart:
        signs["reboot"] = restart
    if memory:
        signs[memory[0]] = memory[1]
    if kernel["xid"]:
        signs["xid"] = kernel["xid"]
    if free is not None and free < FULL_BELOW_BYTES:
        signs["disk_full"] = "%d bytes free where the job worked" % free
    elif inodes is not None and inodes < 1:
        signs["inodes_full"] = "no inodes free where the job worked"
    shm_free = facts.get("shm_free_bytes")
    if shm_free is not None and shm_free < min(FULL_BELOW_BYTES, facts["shm_bytes"] // 8):
        signs["shm_full"] = "%d of %d bytes free in /dev/shm" % (shm_free, facts["shm_bytes"])
    code, evidence = next(iter(signs.items()), otherwise)
    if code not in ("xid", "reboot", otherwise[0]):
        evidence += "; " + otherwise[1]
    # The following signs explain an end only together with the job's own log.
    if facts.get("full_elsewhere"):
        full, place = facts["full_elsewhere"]
        signs.setdefault(full, escape_path(os.fsencode(place)) + " is full")
    for path in facts.get("limit_hits", {}):
        if path.endswith("pids.events"):
            signs["pids_full"] = path + ": the limit of processes was reached"
    if killed and "main_pid" in kernel and kernel["main_pid"] not in kernel["killed"]:
        signs["another_killed"] = killed
    if not spec["oom_kills"]:
        signs["uncounted"] = "the box does not count its kills for memory"
    log_free = facts.get("log_free_bytes")
    if log_free is not None and log_free < 4096:
        signs["log_cut"] = "the disk of the log was full"
    names = ("disk_share", "inode_share", "shm_bytes", "shm_free_bytes")
    shares = {name: facts[name] for name in names if facts.get(name) is not None}
    return {"code": code, "evidence": evidence, "signs": signs, "shares": shares}
'''


# --- job_state -----------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.job_state"] = r'''
"""Finds out the state of a job."""

from __future__ import annotations

from collections import namedtuple

from box_scripts.caretaker.jobs import LIVE
from box_scripts.caretaker.processes import program_of, restarted_since, text_of
from box_scripts.caretaker.records import EXIT, read_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.jobs import Job

Observed = namedtuple("Observed", "state started end held")


def observe(job: Job) -> Observed:
    """Return the state of the job. If it left neither an exit record nor a process, it was killed."""
    first = _look(job)
    # The job may have ended while its records were read. Reading again then finds its exit record.
    return _look(job) if first.state == "killed" and not first.end else first


def _look(job: Job) -> Observed:
    # This is checked before the records are read: if the lock is free, they are final.
    held = job.is_held()
    started = job.start_record()
    if not started:
        return Observed("starting" if held else "absent", None, None, held)
    final, main = read_record(job.path("exit.json"), EXIT), read_record(job.path("main.json"), EXIT)
    if not final and held:
        return Observed("lingering" if main else "running", started, main, held)
    left = [] if final else job.members()
    if left:
        lives = any(p.pid == started["pid"] and p.ticks == started["start_ticks"] for p in left)
        return Observed("running" if lives else "lingering", started, main, held)
    end, ending = final or main, job.ending()
    if ending:
        state = "stopped" if ending["why"] == "stopped" else "killed"
    elif not end or end["signal"] or _told_by_shell(end):
        state = "killed"
    else:
        state = "finished" if end["exit_code"] == 0 else "failed"
    return Observed(state, started, end, held)


def _told_by_shell(end: dict) -> int | None:
    """Return the signal that ended a shell's command, if any: the shell then exits with 128 plus its number."""
    number = (end["exit_code"] or 0) - 128
    return number if number in (1, 2, 3, 4, 6, 7, 8, 9, 11, 15) else None


def _left_running(job: Job, end: dict) -> dict:
    """Say how the command ended, and which processes it left. Only programs are named: arguments may be secret."""
    left = ["%d (%s)" % (process.pid, program_of(process.pid)) for process in job.members()]
    how = "ended by SIG" + end["signal"] if end["signal"] else "exit status %d" % end["exit_code"]
    more = ", and %d more" % (len(left) - 5) if left[5:] else ""
    return {"code": "lingering", "evidence": "%s; left: %s%s" % (how, ", ".join(left[:5]), more)}


def end_reason(job: Job, seen: Observed) -> dict | None:
    if seen.state == "lingering" and seen.end:
        return _left_running(job, seen.end)
    if seen.state in LIVE or not seen.started:
        return None
    ending, end, started = job.ending(), seen.end, seen.started
    if ending:
        return {"code": ending["why"], "evidence": "asked for at %.3f" % ending["at"]}
    if not end:
        pids = (started["pid"], started["supervisor_pid"])
        otherwise = (
            "supervisor_lost",
            "process %d and its supervisor %d are gone, with no exit record" % pids,
        )
    elif end["signal"]:
        otherwise = "signal", "ended by SIG" + end["signal"]
    elif _told_by_shell(end):
        otherwise = (
            "signal",
            "exit status %d, by which a shell reports signal %s"
            % (end["exit_code"], _told_by_shell(end)),
        )
    else:
        otherwise = "exit", end.get("error") or "exit status %d" % end["exit_code"]
        if seen.state == "finished":
            return {"code": "exit", "evidence": otherwise[1]}
    from box_scripts.caretaker.failure_cause import end_facts, kernel_messages, seek_reason

    spec, kernel = job.spec(), kernel_messages(started["start_ticks"])
    if end and end["signal"] == "KILL" and text_of("/proc/2/comm").strip() == "kthreadd":
        # The kernel names a process by the number that we know only if we are not in a PID namespace.
        kernel["main_pid"] = started["pid"]
    if end:
        return seek_reason(spec, end["facts"], None, kernel, otherwise)
    return seek_reason(
        spec, end_facts(spec, job.directory), restarted_since(started), kernel, otherwise
    )
'''


# --- listening -----------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.listening"] = r'''
"""Listens for a platform's notice that it takes the box: from its metadata server, or by SIGTERM from process 1."""

from __future__ import annotations

import json
import os
import time

MARKER = ".rehearsal.json"
METADATA = ("169.254.169.254", 80, "metadata.google.internal", "")
PREEMPTED = "/computeMetadata/v1/instance/preempted"
POLL_S, FAILED_POLL_S = 2.0, 10.0
ANSWER_S, ANSWER_BYTES = 1.0, 4096


def metadata_address(home: str) -> tuple[str, int, str, str] | None:
    """Return the metadata server's host, port and name, and the beginning of its paths. None if it may not be asked.

    On a rehearsal's box, a file in the login home has the address, which is always on this computer.
    """
    marker = rehearsal_marker(home)
    return METADATA if marker is None else _rehearsed_address(marker)


def rehearsal_marker(home: str) -> str | None:
    """Return the file that marks a rehearsal's box, in this directory or one above. None if there is none."""
    directory = home
    while True:
        path = os.path.join(directory, MARKER)
        if os.path.lexists(path):
            return path
        if directory == os.path.dirname(directory):
            return None
        directory = os.path.dirname(directory)


def rehearsed_start(home: str) -> str:
    """Return a text that differs at each start of a rehearsal's box. Empty if this is no rehearsal."""
    marker = rehearsal_marker(home)
    if marker is None:
        return ""
    try:
        with open(marker, encoding="utf-8") as file:
            place = json.load(file)["start"]
        with open(os.path.join(os.path.dirname(marker), place), encoding="utf-8") as file:
            return file.read(64)
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return ""


def _rehearsed_address(path: str) -> tuple[str, int, str, str] | None:
    from urllib.parse import urlsplit

    try:
        with open(path, encoding="utf-8") as file:
            at = urlsplit(json.load(file)["metadata"])
        port = at.port
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    if at.scheme != "http" or at.hostname != "127.0.0.1" or port is None:
        return None
    return at.hostname, port, at.netloc, at.path


def is_preempted(address: tuple[str, int, str, str]) -> bool | None:
    """Whether Google's metadata server says that this box is taken back. None if there was no clear answer.

    Another server may answer at this address. So the answer may take only one second and 4 KB. No proxy is used, and no
    redirect is followed. Only the exact word counts, and only in an answer with the header of Google's server.
    """
    import socket

    host, port, name, before = address
    asked = (
        "GET %s%s HTTP/1.1\r\nHost: %s\r\nMetadata-Flavor: Google\r\nConnection: close\r\n\r\n"
        % (before, PREEMPTED, name)
    )
    give_up, answer = time.monotonic() + ANSWER_S, b""
    try:
        with socket.create_connection((host, port), ANSWER_S) as line:
            line.sendall(asked.encode())
            while len(answer) <= ANSWER_BYTES:
                left_s = give_up - time.monotonic()
                if left_s <= 0:
                    return None
                line.settimeout(left_s)
                part = line.recv(ANSWER_BYTES)
                if not part:
                    break
                answer += part
    except (OSError, ValueError):
        return None
    return _read_answer(answer)


def _read_answer(answer: bytes) -> bool | None:
    head, parted, body = answer.partition(b"\r\n\r\n")
    status, _, fields = head.partition(b"\r\n")
    named = {line.replace(b" ", b"").lower() for line in fields.split(b"\r\n")}
    if len(answer) > ANSWER_BYTES or not parted or status.split(b" ")[1:2] != [b"200"]:
        return None
    if b"metadata-flavor:google" not in named:
        return None
    return {b"TRUE": True, b"FALSE": False}.get(body.strip())


class Listener:
    """Waits, and listens meanwhile for a notice that the box is taken.

    As soon as there is a listener, SIGTERM no longer ends this process, but is received by the listener. Process 1
    sends this signal to all others when the system or the container ends. From any other process it is ignored.
    """

    def __init__(self, home: str, metadata: bool) -> None:
        import signal

        self._address = metadata_address(home) if metadata else None
        self._ask_at = 0.0
        self.polls = self.unclear = 0
        self._waits = getattr(signal, "sigtimedwait", None)
        if self._waits is not None:
            # An ignored signal would be lost. A blocked signal stays until somebody waits for it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def waits(self, seconds: float) -> str | None:
        """Wait for so many seconds, or until there is a notice. Return where the notice came from, or None."""
        import signal

        until = time.monotonic() + seconds
        if self._is_taken():
            return "metadata"
        left_s = until - time.monotonic()
        while left_s > 0:
            if self._waits is None:  # some systems have no sigtimedwait
                time.sleep(left_s)
                return None
            heard = self._waits({signal.SIGTERM}, left_s)
            if heard is not None and heard.si_pid in (0, 1):
                return "shutdown"
            left_s = until - time.monotonic()
        return None

    def lets_go(self) -> None:
        """Let SIGTERM end this process again."""
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _is_taken(self) -> bool:
        if self._address is None or time.monotonic() < self._ask_at:
            return False
        said = is_preempted(self._address)
        self.polls += 1
        self.unclear += said is None
        # If the server gives no clear answer, it is asked less often, but it is never given up. The time is a little
        # shorter than the rounds of the guard, so that no round comes just too early and leaves it out.
        self._ask_at = time.monotonic() + (FAILED_POLL_S if said is None else POLL_S) - 0.2
        return said is True
'''


# --- notice --------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.notice"] = r'''
"""Records and reads the platform's notice that it takes this box back."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.listening import rehearsed_start
from box_scripts.caretaker.processes import boot_id, ticks_of
from box_scripts.caretaker.records import NUMBER, read_record, write_record_if_possible
from box_scripts.caretaker.refusal import Refusal

NOTICE = {"at": NUMBER, "source": str, "boot_id": str, "jobs": list}


def heard_notice(home: str) -> dict | None:
    """Return the notice that was given since this box was started. None if there was none.

    If a box is stopped and started again, an old record may still be on its disk. Such a record does not count.
    """
    try:
        record = read_record(os.path.join(home, "notice.json"), NOTICE)
    except Refusal:  # a damaged record is ignored: the notice is only information
        return None
    if not record or record["boot_id"] != boot_id():
        return None
    start = _start_of(home)
    return record if record.get("start", start) == start else None


def _start_of(home: str) -> str:
    """Return a text that differs at each start of the box. The boot id does not change if only a container restarts."""
    return "%s %d %s" % (boot_id(), ticks_of(1), rehearsed_start(home))


def record_notice(home: str, source: str, **more: object) -> None:
    """Record that notice was given. If there is a record already, add `more` to it."""
    known = heard_notice(home)
    record = known or {
        "at": time.time(),
        "source": source,
        "boot_id": boot_id(),
        "start": _start_of(home),
        "jobs": [],
    }
    write_record_if_possible(os.path.join(home, "notice.json"), dict(record, **more))
'''


# --- status --------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.status"] = r'''
"""The verbs `status` and `tail`."""

from __future__ import annotations

import os
import re
import time

from box_scripts.caretaker.cgroups import cgroup_files
from box_scripts.caretaker.disk_room import room_at
from box_scripts.caretaker.job_state import end_reason, observe
from box_scripts.caretaker.jobs import LIVE, Job, all_jobs
from box_scripts.caretaker.notice import heard_notice
from box_scripts.caretaker.paths import unescape_path
from box_scripts.caretaker.processes import boot_id, output_of, text_of
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.job_state import Observed


def _log_part(job: Job, request: dict) -> dict:
    import binascii

    offset, limit = (
        request.get("offset", -65536),
        max(0, min(request.get("limit", 65536), 16 << 20)),
    )
    part: dict = {}
    with open(job.path("log") if os.path.exists(job.path("log")) else os.devnull, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if offset > size:
            offset, part["truncated"] = 0, True
        offset = max(0, size + offset) if offset < 0 else offset
        file.seek(offset)
        content = file.read(limit)
    text = binascii.b2a_base64(content, newline=False).decode()
    return dict(part, offset=offset, next_offset=offset + len(content), base64=text)


def _sample(job: Job, seen: Observed) -> dict:
    names = ("index", "name", "util_pct", "mem_used_mib", "mem_total_mib", "temp_c")
    query = "--query-gpu=index,name,utilization.gpu,memory.used,memory.total,temperature.gpu"
    gpus = []
    for line in output_of("nvidia-smi", query, "--format=csv,noheader,nounits").splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        gpu: dict = {n: int(c) if c.isdigit() else None for n, c in zip(names, cells)}  # noqa: B905  not in 3.7
        gpus.append(
            dict(gpu, name=cells[1]) if len(cells) == len(names) else {"unread": line[:200]}
        )
    total = re.search(r"MemTotal:\s+(\d+) kB", text_of("/proc/meminfo"))
    limits = [int(total.group(1)) * 1024] if total else []
    limits += [
        int(v)
        for v in map(text_of, cgroup_files("memory.max", "memory.limit_in_bytes"))
        if v.strip().isdigit()
    ]
    used = None
    for path in cgroup_files("memory.current", "memory.usage_in_bytes")[:1]:
        detail = text_of(os.path.join(os.path.dirname(path), "memory.stat"))
        cache = re.search(
            r"^total_inactive_file (\d+)$|^inactive_file (\d+)$", detail, re.MULTILINE
        )
        used = int(text_of(path) or 0) - int((cache.group(1) or cache.group(2)) if cache else 0)
    place = unescape_path(job.spec()["cwd"]) if seen.started else os.fsencode(job.home)
    return dict(
        room_at(place),
        gpus=gpus,
        cpu_load1=round(os.getloadavg()[0], 2),
        mem_used_bytes=used,
        mem_limit_bytes=min(limits) if limits else None,
        procs=len(job.members()) if seen.state in LIVE else 0,
    )


def _brief(job: Job, seen: Observed) -> dict:
    try:
        log = os.stat(job.path("log"))
        size, mtime = log.st_size, log.st_mtime
    except FileNotFoundError:
        size, mtime = 0, None
    end = seen.end or {}
    return {
        "job": job.name,
        "state": seen.state,
        "exit_code": end.get("exit_code"),
        "signal": end.get("signal"),
        "started_at": seen.started["started_at"] if seen.started else None,
        "ended_at": None if seen.state in LIVE else end.get("ended_at"),
        "supervised": seen.held,
        "log_bytes": size,
        "log_mtime": mtime,
    }


def full_status(job: Job, seen: Observed) -> dict:
    return dict(_brief(job, seen), reason=end_reason(job, seen), now=time.time(), boot_id=boot_id())


def status(home: str, request: dict) -> dict:
    """Return the state of one job, or of every job in brief. This is called often, so it reads little."""
    if "job" not in request:
        return {
            "jobs": [_brief(job, observe(job)) for job in all_jobs(home)],
            "notice": heard_notice(home),
            "now": time.time(),
            "boot_id": boot_id(),
        }
    job = Job(home, request["job"])
    seen = observe(job)
    reply = full_status(job, seen)
    if "offset" in request:
        reply["log"] = _log_part(job, request)
    if request.get("sample"):
        reply["sample"] = _sample(job, seen)
    return reply


def tail(home: str, request: dict) -> dict:
    """Return a part of the job's log. A negative offset counts from its end."""
    job = Job(home, request["job"])
    if not os.path.isdir(job.directory):
        raise Refusal("NO_SUCH_JOB", "no job of that name was started here")
    return dict(_log_part(job, request), job=job.name)
'''


# --- mounts --------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.mounts"] = r'''
"""Finds mounted file systems that are on another machine's disk, or on no disk."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.paths import is_below

NO_FILES = (b"/proc", b"/sys", b"/dev", b"/run")


def mount_names(mountinfo: str) -> list[str]:
    """Return a short name for each mount, in order. Two mounts at one place have two names."""
    import hashlib

    seen: dict[bytes, int] = {}
    names = []
    for place in _places(mountinfo):
        seen[place] = seen.get(place, 0) + 1
        names.append(hashlib.sha256(b"%d %s" % (seen[place], place)).hexdigest()[:16])
    return names


def later_mounts(
    mountinfo: str, known: list[str] | None, work: bytes, tops: list[bytes]
) -> list[bytes]:
    """Return the places that hide what was written there: those where something was mounted since the lease began.

    `known` are the names of the mounts from the beginning. If they were not recorded, only the work directory is
    sure to have had no mounts.
    """
    where = [work] if known is None else [work, *tops]
    return [
        place
        for place, name in zip(_places(mountinfo), mount_names(mountinfo))  # noqa: B905 - Python 3.7 knows no strict
        if name not in (known or ()) and any(is_below(place, top) for top in where)
    ]


def _places(mountinfo: str) -> list[bytes]:
    """Return where each mount is, in order, except those where no job writes files."""
    places = []
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        if system:
            place = _unquoted(mount.split()[4])
            if not any(is_below(place, top) for top in NO_FILES):
                places.append(place)
    return places


def _unquoted(place: str) -> bytes:
    return os.fsencode(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), place))


def far_mounts(mountinfo: str) -> set[bytes]:
    """Return the directories where another machine's disk is mounted, or a file system that is on no disk."""
    no_disk = ("proc", "sysfs", "cgroup", "cgroup2", "devtmpfs")
    found = mounted_systems(mountinfo).items()
    return {place for place, system in found if ELSEWHERE(system) or system in no_disk}


def mounted_systems(mountinfo: str) -> dict[bytes, str]:
    """Return the type of the file system at each mount point. If there are several, only the last one is visible."""
    found = {}
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        if system:
            found[_unquoted(mount.split()[4])] = system.split(" ")[0]
    return found


class Outliving:
    """The directories that outlive a stop. Other disks that are mounted below them do not count."""

    def __init__(self, kept: list[bytes], disks: list[bytes], mountinfo: str) -> None:
        """`kept` are the directories. Those also in `disks` count only if a disk is mounted exactly there now."""
        mounted = mounted_systems(mountinfo)
        gone = {place for place in disks if mounted.get(place, "tmpfs") in ("tmpfs", "ramfs")}
        self._kept = [os.path.realpath(place) for place in kept if place not in gone]
        self._others = [
            place
            for place in mounted
            if any(is_below(place, top) and place != top for top in self._kept)
        ]

    def has(self, path: bytes) -> bool:
        """Whether the file outlives a stop."""
        return any(is_below(path, top) for top in self._kept) and not any(
            is_below(path, other) for other in self._others
        )


ELSEWHERE = re.compile(
    r"nfs|cifs|smb|fuse|ceph|lustre|gluster|beegfs|gpfs|weka|9p|virtiofs|afs"
).match


def far_devices(mountinfo: str) -> set[int]:
    """Return the devices whose files get their times from another machine's clock."""
    found = set()
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        if ELSEWHERE(system):
            major, minor = mount.split()[2].split(":")
            found.add(os.makedev(int(major), int(minor)))
    return found
'''


# --- since ---------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.since"] = r'''
"""Records the time from which on written files count."""

from __future__ import annotations

import os

from box_scripts.caretaker.mounts import mount_names
from box_scripts.caretaker.processes import text_of
from box_scripts.caretaker.records import SINCE, Locked, read_record, write_record
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.jobs import Job

MOST_MOUNTS = 2000  # the record must stay small; with more, only the work directory is checked


def set_since(home: str, name: str, directory: bytes) -> int:
    """Record now as the time from which on written files count, unless it is recorded already. Return this time.

    The clocks of two file systems are read, and the earlier time counts. So if one of them is wrong, rather too many
    files count than too few.
    """
    path, moments = os.path.join(home, name), []
    with Locked(home, "home.lock"):
        record = read_record(path, SINCE)
        if record:
            return int(record["since_ns"])
        for place in (directory, os.fsencode(home)):
            marker = os.path.join(place, b".gpu-tenant-since-%d" % os.getpid())
            fd = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            moments.append(os.fstat(fd).st_ctime_ns)
            os.close(fd)
            os.unlink(marker)
        mounts = mount_names(text_of("/proc/self/mountinfo"))[:MOST_MOUNTS]
        write_record(path, {"since_ns": min(moments), "mounts": mounts})
    return min(moments)


def mounts_at_first(home: str) -> list[str] | None:
    """Return the names of the mounts from before the first push or launch. None if they were not recorded."""
    paths = (os.path.join(home, name) for name in ("since-push.json", "since.json"))
    records = [record for record in (read_record(path, SINCE) for path in paths) if record]
    first = min(records, key=lambda record: record["since_ns"], default={})
    mounts = first.get("mounts")
    return mounts if isinstance(mounts, list) and len(mounts) < MOST_MOUNTS else None


def accounted_since_ns(home: str, jobs: list[Job], told_ns: int | None) -> int | None:
    """Return the time from which on written files count: the recorded one, or an earlier one that the tenant names."""
    since = read_record(os.path.join(home, "since.json"), SINCE)
    if jobs and not since:
        raise Refusal(
            "RECORD_CORRUPT",
            os.path.join(home, "since.json") + " is missing though a job was started",
        )
    push = read_record(os.path.join(home, "since-push.json"), SINCE)
    moments = [one["since_ns"] for one in (since or push,) if one]
    return min([*moments, *([told_ns] if told_ns is not None else [])], default=None)
'''


# --- detached ------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.detached"] = r'''
"""Starts a process that outlives its caller."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def spawn_detached(body: Callable[[], object], keep: set[int]) -> None:
    """Run `body` in a detached process. Of the caller's open files, it keeps only those in `keep`."""
    import signal

    # If our caller ignored SIGCHLD, so would we, and the system would reap our child before we can wait for it.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    courier = os.fork()
    if courier:
        os.waitpid(courier, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            for signum in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
                signal.signal(signum, signal.SIG_IGN)
            os.chdir("/")
            null = os.open(os.devnull, os.O_RDWR)
            for fd in range(3):
                os.dup2(null, fd)
            for name in os.listdir("/dev/fd"):
                if int(name) > 2 and int(name) not in keep:
                    try:
                        os.close(int(name))
                    except OSError:  # this was the descriptor of the listing itself
                        pass
            body()
    finally:
        os._exit(0)
'''


# --- stop ----------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.stop"] = r'''
"""The verb `stop`: ends all processes of a job."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.job_state import observe
from box_scripts.caretaker.jobs import LIVE, Job
from box_scripts.caretaker.processes import boot_id, ticks_of
from box_scripts.caretaker.records import write_record_if_possible
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.status import full_status

START_LIMIT_S = 15.0
KILL_LIMIT_S = 10.0


def record_ending(job: Job, why: str) -> None:
    """Record that we are about to end the job, and why. If there is such a record already, it stays."""
    if job.ending() is None:
        # The job is ended even if the disk is full and this cannot be recorded.
        write_record_if_possible(
            job.path("ending.json"), {"why": why, "at": time.time(), "boot_id": boot_id()}
        )


def end_jobs(asked: list[tuple[Job, int, float]]) -> list[int]:
    """End all processes of these jobs. Return the numbers of processes that survived even SIGKILL.

    Each job comes with the signal that asks it to end, and the number of seconds that it may take.
    """
    begun = time.monotonic()
    told: set = set()
    give_up = KILL_LIMIT_S + max((grace_s for _, _, grace_s in asked), default=0.0)
    while True:
        passed = time.monotonic() - begun
        alive = signal_jobs(asked, told, passed)
        if not alive or passed > give_up:
            return sorted(p.pid for p in alive)
        time.sleep(0.05)


def signal_jobs(asked: list[tuple[Job, int, float]], told: set, passed: float) -> set:
    """Ask each process of the jobs to end, once, and kill it when its job's time is over. Return the living processes.

    `told` are the processes that were asked before, and `passed` is the number of seconds since the first call.
    """
    import signal

    alive = set()
    for job, signum, grace_s in asked:
        for process in job.members():
            alive.add(process)
            numbers = (signal.SIGKILL,) if passed >= grace_s else (signum, signal.SIGCONT)
            if process in told and passed < grace_s:
                continue
            for number in numbers:
                try:
                    if ticks_of(process.pid) == process.ticks:
                        os.kill(process.pid, number)
                except OSError:
                    pass
    told |= alive
    return alive


def stop(home: str, request: dict) -> dict:
    """End the job and all its processes.

    Raises:
        Refusal: NO_SUCH_JOB, or STILL_ALIVE with the processes that did not end.
    """
    job, give_up = Job(home, request["job"]), time.monotonic() + START_LIMIT_S
    seen = observe(job)
    while seen.state == "starting" and time.monotonic() < give_up:
        time.sleep(0.05)
        seen = observe(job)
    if seen.state == "absent":
        raise Refusal("NO_SUCH_JOB", "no job of that name was started here")
    already = seen.state not in LIVE
    if not already:
        spec = job.spec()
        record_ending(job, "stopped")
        signum = request.get("signal", spec["stop_signal"])
        left = end_jobs([(job, signum, request.get("grace_s", spec["grace_s"]))])
        give_up = time.monotonic() + KILL_LIMIT_S
        while seen.state in LIVE and not left and time.monotonic() < give_up:
            time.sleep(0.02)
            seen = observe(job)
        if seen.state in LIVE:
            raise Refusal(
                "STILL_ALIVE", "the job does not end; processes left: %s" % left, pids=left
            )
    return dict(full_status(job, seen), already=already)
'''


# --- stall ---------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.stall"] = r'''
"""Whether a job has stopped writing: to its log, and to every other file."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.jobs import Job

LOOK_S = 10.0


class Stall:
    """Watches one job. Only its owner's limit makes its silence an end."""

    def __init__(self, job: Job, limit_s: float | None) -> None:
        self._job, self._limit_s = job, limit_s
        self._wrote: tuple | None = None
        self._since, self._looked = time.monotonic(), 0.0

    def next_look_s(self) -> float:
        """In how many seconds the job must be looked at again."""
        if self._limit_s is None:
            return float("inf")
        return max(0.0, self._looked + min(LOOK_S, self._limit_s / 4) - time.monotonic())

    def is_over_limit(self) -> bool:
        """Look at the job. Whether it has written nothing for as long as its owner allows."""
        if self._limit_s is None or self.next_look_s() > 0:
            return False
        self._looked = time.monotonic()
        wrote = self._written()
        if wrote != self._wrote:
            self._wrote, self._since = wrote, self._looked
        return self._looked - self._since >= self._limit_s

    def _written(self) -> tuple:
        """Return what changes whenever the job writes: the size of its log, and what each of its processes has written."""
        try:
            size = os.stat(self._job.path("log")).st_size
        except OSError:
            size = 0
        each = []
        for member in self._job.members():
            try:
                with open("/proc/%d/io" % member.pid, "rb") as file:
                    each.append((member.pid, file.read().split(b"wchar: ")[1].split()[0]))
            except (OSError, IndexError):
                continue
        return (size, *sorted(each))
'''


# --- launch --------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.launch"] = r'''
"""The verb `start`: starts a job under a supervisor of its own."""

from __future__ import annotations

import fcntl
import os
import time

from box_scripts.caretaker.cgroups import limit_hit_counts, oom_kill_counts
from box_scripts.caretaker.detached import spawn_detached
from box_scripts.caretaker.failure_cause import end_facts
from box_scripts.caretaker.jobs import Job
from box_scripts.caretaker.paths import escape_path, unescape_path, utf8_bytes
from box_scripts.caretaker.patterns import Pattern
from box_scripts.caretaker.processes import boot_id, ticks_of
from box_scripts.caretaker.records import EXIT, lock_file, read_record, reserve_record, write_record
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.since import set_since
from box_scripts.caretaker.stall import Stall
from box_scripts.caretaker.stop import START_LIMIT_S, end_jobs, record_ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def start(home: str, request: dict) -> dict:
    """Launch the job, unless an earlier call has launched it: a job is launched exactly once.

    Raises:
        Refusal: COMMAND_NOT_FOUND (this counts as the launch), LAUNCH_FAILED (nothing ran; start may be
            called again), START_TIMEOUT (unknown whether it runs; call start again).
    """
    job, env = Job(home, request["job"]), request.get("env", {})
    if not request["argv"]:
        raise Refusal("BAD_REQUEST", "argv is empty")
    spec = {
        "cwd": escape_path(request["cwd"]),
        "command": request["argv"][0],
        "env_names": sorted(env),
        "artifacts": [Pattern(p).text for p in request.get("artifacts", [])],
        "discard": [Pattern(p).text for p in request.get("discard", [])],
        "max_runtime_s": request.get("max_runtime_s"),
        "stalled_after_s": request.get("stalled_after_s"),
        "grace_s": request.get("grace_s", 10),
        "stop_signal": request.get("stop_signal", 15),
        "setup": request.get("setup", False),
        "oom_kills": oom_kill_counts(),
        "limit_hits": limit_hit_counts(),
    }
    environment = dict(os.environb)
    for name in request.get("env_unset", []):
        environment.pop(utf8_bytes(name), None)
    environment.setdefault(b"PYTHONUNBUFFERED", b"1")
    environment.update({utf8_bytes(n): utf8_bytes(v) for n, v in env.items()})
    environment.update(job.marks)
    os.makedirs(job.directory, 0o700, exist_ok=True)
    give_up, already, since_ns = time.monotonic() + START_LIMIT_S, True, None
    while job.start_record() is None:
        lock = lock_file(job.path("lock"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            if time.monotonic() > give_up:
                raise Refusal(
                    "START_TIMEOUT", "another start of this job is under way; call start again"
                )
            time.sleep(0.02)
            continue
        try:
            if job.start_record() is None:
                os.makedirs(request["cwd"], exist_ok=True)
                since_ns = set_since(home, "since.json", request["cwd"])
                write_record(job.path("spec.json"), spec)
                for name in ("main.json", "exit.json", "ending.json"):
                    reserve_record(job.path(name))
                _launch(
                    job, spec, [utf8_bytes(a) for a in request["argv"]], environment, lock, give_up
                )
                already = False
        finally:
            os.close(lock)  # This does not unlock it: the supervisor keeps the same lock.
    end = read_record(job.path("exit.json"), EXIT)
    if end and end.get("error"):
        raise Refusal("COMMAND_NOT_FOUND", end["error"], job=job.name, exit_code=127)
    started = job.start_record() or {}
    reply = {name: started[name] for name in ("pid", "start_ticks", "boot_id", "started_at")}
    return dict(reply, job=job.name, already=already, since_ns=since_ns)


def _launch(
    job: Job, spec: dict, argv: list[bytes], environment: dict, lock: int, give_up: float
) -> None:
    """Start the job's command under a supervisor of its own."""
    import select

    told, tell = os.pipe()
    spawn_detached(lambda: _supervise(job, spec, argv, environment, tell), {lock, tell})
    os.close(tell)
    # The last copy of `tell` is closed when the job's program begins, or when all processes that could start it end.
    ready = select.select([told], [], [], max(0.0, give_up - time.monotonic()))[0]
    message = os.read(told, 4096).decode("utf-8", "replace") if ready else ""
    os.close(told)
    if job.start_record() is None:
        if not ready:
            raise Refusal("START_TIMEOUT", "the launch takes long; call start again")
        raise Refusal(
            "LAUNCH_FAILED", "nothing was launched: " + (message or "the supervisor died")
        )


def _supervise(job: Job, spec: dict, argv: list[bytes], environment: dict, tell: int) -> None:
    """Start the job. Wait until the job and all processes that it left behind have ended, and record its end."""
    import select
    import signal

    try:
        import ctypes

        # PR_SET_CHILD_SUBREAPER: if a process of the job becomes a daemon, it becomes our child.
        adopts = ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        adopts = False
    supervisor = {"supervisor_pid": os.getpid(), "supervisor_ticks": ticks_of(os.getpid())}
    main = os.fork()
    if main == 0:
        _become_job(job, spec, argv, environment, tell, supervisor)
    os.close(tell)
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    expires = (
        time.monotonic() + spec["max_runtime_s"]
        if spec["max_runtime_s"] is not None
        else float("inf")
    )
    stall = Stall(job, spec["stalled_after_s"])
    end: dict = {}
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            if adopts or not job.members():
                break
            pid = 0
        if pid == main:
            number = os.WTERMSIG(code) if os.WIFSIGNALED(code) else 0
            names = {int(s): s.name[3:] for s in signal.Signals}
            end = {
                "exit_code": None if number else os.WEXITSTATUS(code),
                "ended_at": time.time(),
                "facts": end_facts(spec, job.directory),
            }
            end["signal"] = names.get(number, "RT%d" % number) if number else None
        if pid:
            continue
        if end and not os.path.exists(job.path("main.json")):
            _insist(job.path("main.json"), end)
        is_stalled = not end and stall.is_over_limit()  # what a command left behind may be silent
        if is_stalled or time.monotonic() >= expires:
            expires, stall = float("inf"), Stall(job, None)
            record_ending(job, "stalled" if is_stalled else "walltime")
            end_jobs([(job, spec["stop_signal"], spec["grace_s"])])
            continue
        wait_s = min(
            expires - time.monotonic(),
            stall.next_look_s() if not end else 3600.0,
            3600.0 if adopts else 1.0,
        )
        select.select([woken], [], [], max(0.0, wait_s))
        try:
            os.read(woken, 4096)
        except BlockingIOError:
            pass
    if job.start_record() and not os.path.exists(job.path("exit.json")):
        _insist(job.path("exit.json"), end)


def _insist(path: str, record: dict) -> None:
    """Write `record` to `path`, and try again until it works. Without this record the job would count as killed."""
    while True:
        try:
            return write_record(path, record)
        except OSError:
            time.sleep(1)


def _become_job(
    job: Job, spec: dict, argv: list[bytes], environment: dict, tell: int, supervisor: dict
) -> NoReturn:
    """Record this process as the job's, and only then become the job's command."""
    import signal

    try:
        os.setsid()
        for signum in set(range(1, signal.NSIG)) - {signal.SIGKILL, signal.SIGSTOP}:
            try:
                signal.signal(signum, signal.SIG_IGN if signum == signal.SIGHUP else signal.SIG_DFL)
            except (OSError, ValueError):  # some signals are reserved for the C library
                pass
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        log = os.open(job.path("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(unescape_path(spec["cwd"]))
        me = {
            "pid": os.getpid(),
            "start_ticks": ticks_of(os.getpid()),
            "boot_id": boot_id(),
            "init_ticks": ticks_of(1),
        }
        write_record(job.path("started.json"), dict(supervisor, started_at=time.time(), **me))
    except BaseException as error:  # noqa: BLE001  after any error, nothing was launched
        os.write(tell, str(error).encode("utf-8", "replace"))
        os._exit(127)
    try:
        os.execvpe(argv[0], argv, environment)  # noqa: S606
    except (OSError, ValueError) as error:
        why = "%s: %s" % (escape_path(argv[0]), getattr(error, "strerror", None) or error)
        end: dict = {"exit_code": 127, "signal": None, "facts": {}, "error": why}
        _insist(job.path("exit.json"), dict(end, ended_at=time.time()))
    finally:
        os._exit(127)
'''


# --- hashing -------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.hashing"] = r'''
"""Computes the SHA-256 of files, and remembers the hashes."""

from __future__ import annotations

import json
import os
import time

from box_scripts.caretaker.progress import TELLING
from box_scripts.caretaker.records import read_record, write_record_if_possible
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

RACY_NS = 2_000_000_000
CHUNK_BYTES = 1 << 20


class Changing(Exception):
    """The file changed while it was read."""


class Hashes:
    """The SHA-256 of files. A hash is remembered only if every later change of its file can be noticed.

    Jobs can write to the file of remembered hashes. So this file is signed with a `key` that only the tenant has, and
    that is never stored on the box. Without a key, no hash is remembered.
    """

    def __init__(self, home: str, key: str | None, rest: Callable[[], None] = lambda: None) -> None:
        self._path, self._rest, self._key = os.path.join(home, "hashes.json"), rest, key
        self._used: dict = {}
        self._known: dict = {}
        try:
            record = read_record(self._path, {"proof": str, "hashes": dict}) if key else None
        except Refusal:  # remembered hashes only save time
            record = None
        if record and record["proof"] == self._proof(record["hashes"]):
            self._known = record["hashes"]

    def _proof(self, hashes: dict) -> str:
        import hashlib
        import hmac

        content = json.dumps(hashes, sort_keys=True, separators=(",", ":")).encode()
        return hmac.new((self._key or "").encode(), content, hashlib.sha256).hexdigest()

    def of(self, path: bytes) -> tuple[str, os.stat_result]:
        """Return the hash and the status of a regular file.

        Raises:
            Changing: it changed while it was read.
            OSError: it cannot be read.
        """
        import hashlib

        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb", buffering=0) as file:
            before, began_ns = os.fstat(fd), time.time_ns()
            key = file_identity(before)
            known = self._known.get(key)
            # If a file is hashed right after a change, another change in the same tick of the clock would go unnoticed.
            if not isinstance(known, list) or known[1] - before.st_ctime_ns < RACY_NS:
                digest, view = hashlib.sha256(), memoryview(bytearray(CHUNK_BYTES))
                count = file.readinto(view)
                while count:
                    digest.update(view[:count])
                    TELLING.did(0, count)
                    self._rest()
                    count = file.readinto(view)
                known = [digest.hexdigest(), began_ns]
        if not os.path.lexists(path) or file_identity(os.lstat(path)) != key:
            raise Changing
        self._used[key] = known
        return known[0], before

    def recall(self, path: bytes) -> tuple[str | None, os.stat_result]:
        """Return the same as `of`, but without reading the file: if its hash is not remembered, it is None."""
        seen = os.lstat(path)
        known = self._known.get(file_identity(seen))
        is_sure = isinstance(known, list) and known[1] - seen.st_ctime_ns >= RACY_NS
        return (self.of(path)[0] if is_sure else None), seen

    def knows(self, seen: os.stat_result) -> bool:
        """Whether the hash of that file is remembered."""
        return file_identity(seen) in self._known

    def save(self) -> None:
        if self._key is None or all(self._known.get(k) == v for k, v in self._used.items()):
            return
        known = dict(self._known, **self._used)
        known = known if len(known) < 200_000 else self._used
        write_record_if_possible(self._path, {"proof": self._proof(known), "hashes": known})


def file_identity(seen: os.stat_result) -> str:
    return "%d:%d:%d:%d:%d" % (
        seen.st_dev,
        seen.st_ino,
        seen.st_size,
        seen.st_mtime_ns,
        seen.st_ctime_ns,
    )
'''


# --- open_files ----------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.open_files"] = r'''
"""Finds out which files are open in processes."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.processes import text_of

FLAGS = re.compile(r"^flags:\s+(\d+)", re.MULTILINE).search
NO_FILES = ("socket:[", "pipe:[", "anon_inode:")


def open_files(modes: tuple = (os.O_WRONLY, os.O_RDWR)) -> dict[tuple[int, int], int]:
    """Return the files (device, inode) that are open in those modes, by default for writing, each with a process.

    Processes that we are not allowed to examine are left out.
    """
    found: dict[tuple[int, int], int] = {}
    if not os.path.isdir("/proc/self"):
        return found
    for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
        try:
            opened = os.listdir("/proc/%s/fd" % pid) if int(pid) != os.getpid() else ()
        except OSError:
            continue
        for fd in opened:
            link = "/proc/%s/fd/%s" % (pid, fd)
            try:
                if os.readlink(link).startswith(NO_FILES):
                    continue
                flags = FLAGS(text_of("/proc/%s/fdinfo/%s" % (pid, fd)))
                if flags and int(flags.group(1), 8) & os.O_ACCMODE in modes:
                    seen = os.stat(link)
                    found[seen.st_dev, seen.st_ino] = int(pid)
            except OSError:  # this file was closed meanwhile; the process may have others
                continue
    return found
'''


# --- survey --------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.survey"] = r'''
"""Walks once over all directories in which jobs may have written files."""

from __future__ import annotations

import os
import stat

from box_scripts.caretaker.paths import escape_path, is_below
from box_scripts.caretaker.progress import TELLING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from box_scripts.caretaker.pattern_bounds import Narrowing
    from box_scripts.caretaker.patterns import Pattern

RESTART_NS = 300 * 10**9  # the image's services write their files within this time of a start
QUIET_BYTES = 1 << 20  # files that the image's services write are smaller
DEEPEST, LONGEST = 512, 3500
IN_MEMORY = b"/dev/shm"  # the only place below /dev that holds files
WITHOUT_BYTES = {"special", "dangling", "escapes", "link_target_not_kept"}  # such things hold none


class Survey:
    """One walk over all files that the jobs may have written. It sorts them into artifacts, links, others, problems."""

    def __init__(
        self,
        work: bytes,
        skip: set[bytes],
        since_ns: int | None,
        artifacts: list[Pattern],
        is_ours: Callable[[bytes, os.stat_result], bool] = lambda path, seen: False,
        narrowing: Narrowing | None = None,
    ) -> None:
        self.work, self.since_ns, self.artifacts = work, since_ns, artifacts
        self._is_ours, self._narrowing = is_ours, narrowing
        self.skip = skip | {b"/proc", b"/sys", b"/dev"}
        self.files: list[tuple[str, bytes]] = []  # artifacts, by name
        self.links: list[tuple[str, bytes]] = []
        self.new_links: list[tuple[str, bytes]] = []  # below the work directory, and no artifact
        self.written: list[tuple[str, bytes, int]] = []  # since launch, and no artifact
        self.leads: set[bytes] = set()  # the targets of links in the work directory
        self.problems: list[dict] = []
        self.matched: set[str] = set()
        self._walked: set[bytes] = set()
        self.launched_ns: int | None = None
        self.restarted_ns: int | None = None
        self._quiet: list[bytes] = []
        self._quiet_work = b""
        self._root = escape_path(work).rstrip("/") + "/"
        self._reaches_out = not all(p.relative for p in artifacts)
        self._inner = [p.matches for p in artifacts if p.relative]
        self._outer = [p.matches for p in artifacts if not p.relative]

    def before(self, rented_ns: int, quiet: list[str], home: str) -> None:
        """Also count files that were written from `rented_ns` on, except quiet files from before the first launch.

        Quiet files are those that the image's own services write while they start, and a work directory that was
        cloned on the box.
        """
        self.launched_ns = self.since_ns
        self.since_ns = min(rented_ns, rented_ns if self.since_ns is None else self.since_ns)
        login = os.path.realpath(os.path.expanduser(b"~"))
        self._quiet = [login + os.fsencode(name)[1:] for name in quiet if name.startswith("~/")]
        if os.path.exists(os.path.join(home, "cloned.json")):
            self._quiet_work = self.work + b"/"

    def _is_quiet(self, path: bytes, seen: os.stat_result) -> bool:
        launched = self.launched_ns
        if launched is not None and seen.st_ctime_ns >= launched:
            return self._came_with_a_start(path, seen)
        if launched is not None and self._quiet_work and path.startswith(self._quiet_work):
            return True
        return self._is_of_the_image(path, seen)

    def _is_of_the_image(self, path: bytes, seen: os.stat_result) -> bool:
        return seen.st_size <= QUIET_BYTES and any(
            path.startswith(place) if place.endswith(b"/") else path == place
            for place in self._quiet
        )

    def _came_with_a_start(self, path: bytes, seen: os.stat_result) -> bool:
        """Whether the image's services wrote the file when the box was started after a stop that emptied the home."""
        begun_ns = self.restarted_ns
        if begun_ns is None or not self._is_of_the_image(path, seen):
            return False
        return begun_ns - RESTART_NS <= seen.st_ctime_ns <= begun_ns + RESTART_NS

    def problem(self, at: str, why: str, detail: object) -> None:
        self.problems.append({"at": at, "why": why, "detail": str(detail)})

    def inner(self, at: str) -> str | None:
        """Return the path relative to the work directory. None if it is elsewhere."""
        return at[len(self._root) :] if at.startswith(self._root) else None

    def walk(self, top: bytes, is_accounted: bool) -> None:
        """Sort all files below `top`, except those that were walked over before. Links are not followed."""
        skip = self.skip - {b"/dev"} if is_below(top, IN_MEMORY) else self.skip
        if any(is_below(top, place) for place in self._walked | skip):
            return
        pending = [top]
        while pending:
            path = pending.pop()
            if path in self._walked or path in skip:
                continue
            TELLING.did(1, 0)
            if path.count(b"/") > DEEPEST or len(path) > LONGEST:
                self.problem(escape_path(path[:80]), "too_deep", "%d bytes of path" % len(path))
                continue
            try:
                seen = os.lstat(path)
                if stat.S_ISDIR(seen.st_mode):
                    below = (os.path.join(path, name) for name in os.listdir(path))
                    pending.extend(_ours_of(below) if _is_shared(seen) else below)
                else:
                    self._place(path, seen, is_accounted)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.problem(
                    escape_path(path), "unreadable", "cannot be accounted for: %s" % error.strerror
                )
        self._walked.add(top)

    def _claims(self, at: str, inner: str | None) -> bool:
        if any(matches(at) for matches in self._outer):
            return True
        return inner is not None and any(matches(inner) for matches in self._inner)

    def _place(self, path: bytes, seen: os.stat_result, is_accounted: bool) -> None:
        is_new = is_accounted and self.since_ns is not None and seen.st_ctime_ns >= self.since_ns
        is_new = is_new and not (self._quiet and self._is_quiet(path, seen))
        if not is_new and not self._reaches_out and not is_below(path, self.work):
            return  # This is true for most files of a home directory, so it is checked first.
        at = escape_path(path)
        inner = self.inner(at)
        name = "work/" + inner if inner is not None else "root" + at
        claimed = self._claims(at, inner)
        if claimed and self._narrowing is not None:
            claimed = not self._narrowing.takes(at, inner)
        if stat.S_ISLNK(seen.st_mode):
            target = os.path.realpath(path)
            if os.path.isdir(target):
                # No file name contains %00. So this matches only a pattern for everything below the directory.
                claimed = claimed or self._claims(at + "/%00", inner and inner + "/%00")
            if claimed:
                self.links.append((name, path))
            elif is_new and inner is not None:
                self.new_links.append((name, path))
            if (claimed or inner is not None) and not is_below(self.work, target):
                self.leads.add(target)
            return
        if not stat.S_ISREG(seen.st_mode):
            if claimed:
                self.problem(at, "special", "neither a file, a directory nor a link")
        elif self._is_ours(path, seen):
            return  # our own files never count, even if a pattern matches
        elif claimed:
            self.files.append((name, path))
            self.note_match(at)
        elif is_new:
            self.written.append((at, path, seen.st_size))

    def note_match(self, at: str) -> None:
        """Note which patterns match a file or link that is kept."""
        if len(self.matched) < len(self.artifacts):
            inner = self.inner(at)
            for pattern in self.artifacts:
                text = inner if pattern.relative else at
                if text is not None and (pattern.matches(text) or pattern.matches(text + "/%00")):
                    self.matched.add(pattern.text)


def _is_shared(directory: os.stat_result) -> bool:
    """Whether everybody may write there, but may remove only their own files, as in /tmp."""
    return bool(directory.st_mode & stat.S_ISVTX and directory.st_mode & stat.S_IWOTH)


def _ours_of(paths: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the paths that a job of this user may have made: those that the user owns, or all if the user is root."""
    for path in paths:
        try:
            if os.geteuid() in (0, os.lstat(path).st_uid):
                yield path
        except FileNotFoundError:
            continue
'''


# --- caches --------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.caches"] = r'''
"""Recognises the files of caches by their paths."""

from __future__ import annotations

import os
import re

DOWNLOADS = (  # what tools keep below .cache/ and can download or make again
    rb"(?:pip|uv|torch|torch_extensions|triton|matplotlib|conda|mamba|numba|nvidia|fontconfig|pre-commit|pypoetry"
    rb"|vllm|flashinfer|deep_gemm|jax|tvm|ccache|go-build|yarn|npm|mesa_shader_cache[^/]*|motd\.[^/]*)(?:/.*|)"
    rb"|huggingface/(?:hub/(?:\.locks/.*|version\.txt|CACHEDIR\.TAG|(?:models|datasets|spaces)--[^/]+"
    rb"/(?:blobs|refs|snapshots|\.no_exist)/.*)|datasets/.*|modules/.*|xet/.*|assets/.*|token|stored_tokens)"
)
BYTECODE = re.compile(rb".*/__pycache__/[^/]+\.pyc(?:\.\d+)?|.*\.pyc").fullmatch
CACHES = (
    re.compile(rb".*/\.cache/(?:" + DOWNLOADS + rb")"),
    # Where HF_HOME, HF_HUB_CACHE and the like name another directory, or a compiler uses a temporary one.
    re.compile(
        rb".*/(?:models|datasets|spaces)--[^/]+--[^/]+/(?:blobs|refs|snapshots|\.no_exist)/.*"
        rb"|(?:/var)?/tmp/torchinductor_[^/]+/.*"
    ),
    re.compile(
        rb".*/\.(?:nv/ComputeCache|triton/(?:cache|dump|llvm|nvidia|pybind11|json)|pytest_cache/(?:v|d|README\.md|CACHEDIR\.TAG"
        rb"|\.gitignore)|mypy_cache/[\d.]+|ruff_cache/[\d.]+)(?:/.*|)"
    ),
)
SAVED_NOTEBOOK = re.compile(
    rb"(.*/)\.ipynb_checkpoints/([^/]+)-checkpoint(\.[^/]+)", re.DOTALL
).fullmatch
ENVIRONMENT = re.compile(
    rb"(.*/(?:\.venv|venv))/(?:(?:lib|lib64|bin|include|share|etc|scratch|clone)/.*|[^/]+)"
).fullmatch
MODULES = re.compile(rb"(.*/node_modules)/(?:\.[^/]+(?:/.*)?|((?:@[^/]+/)?[^/]+)/.*)").fullmatch


def is_cache(path: bytes) -> bool:
    """Whether the path is that of a cached file, or of a file in a Python environment or a Node package that exists."""
    if any(shape.fullmatch(path) for shape in CACHES):
        return True
    if BYTECODE(path) and is_bytecode(path):
        return True
    notebook = SAVED_NOTEBOOK(path)
    if notebook:  # Jupyter's second copy. If the notebook is gone, it is the only copy.
        return os.path.isfile(b"".join(notebook.groups()))
    environment = ENVIRONMENT(path)
    if environment:
        return os.path.isfile(os.path.join(environment.group(1), b"pyvenv.cfg"))
    modules = MODULES(path)
    if modules:
        package = modules.group(2)
        return package is None or os.path.isfile(
            os.path.join(modules.group(1), package, b"package.json")
        )
    return False


def is_bytecode(path: bytes) -> bool:
    """Whether the file begins as Python's compiled code does. Anything may be written under such a name."""
    try:
        with open(path, "rb") as file:
            return file.read(4)[2:] == b"\r\n"
    except OSError:
        return True  # it cannot be read, so it is judged by its name
'''


# --- pushed_files --------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.pushed_files"] = r'''
"""Knows which files a push has put on this box."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.paths import escape_path, unescape_path
from box_scripts.caretaker.records import PUSHED_FILE, is_whole, read_record
from box_scripts.caretaker.refusal import Refusal

INCOMING = b".gpu-tenant-incoming"
INCOMING_NAME = re.compile(r"[0-9a-f]{64}").fullmatch


class Sent:
    """The files that a push has put into the work directory, by the tenant's record, or else by this box's own."""

    def __init__(self, home: str, request: dict) -> None:
        self._work: bytes = request["work"]
        self._way: dict[bytes, bytes] = {}
        self._held: dict[bytes, set[tuple[int, str]]] = {}
        told = request.get("pushed")
        if told is None or request.get("older"):
            for name, one in pushed_record(home).items():
                self._note(name, one["size"], one["sha256"])
        for name, versions in (told or {}).items():
            for size, sha256 in versions:
                self._note(name, int(size), str(sha256))

    def _note(self, name: str, size: int, sha256: str) -> None:
        raw = unescape_path(name)
        parent, base = os.path.split(raw)
        if parent not in self._way:  # on the box, a directory of the tree may be a link
            self._way[parent] = os.path.realpath(os.path.join(self._work, parent))
        self._held.setdefault(os.path.join(self._way[parent], base), set()).add((size, sha256))

    def versions(self, path: bytes, size: int) -> set[str]:
        """Return the hashes of all versions of that size that were sent to that path."""
        return {sha256 for length, sha256 in self._held.get(path, ()) if length == size}

    def incoming(self) -> set[bytes]:
        """Return the temporary names of this tenant's files in the directory for incoming files."""
        import hashlib

        found = set()
        for path, versions in self._held.items():
            name = escape_path(path[len(self._work.rstrip(b"/")) + 1 :])
            for size, sha256 in versions:
                key = hashlib.sha256(("%d %s %s" % (size, sha256, name)).encode("utf-8"))
                found.add(key.hexdigest().encode())
        return found


def pushed_record(home: str) -> dict[str, dict]:
    """Return the size and the sha256 of each file that `receive` and `place` have put in place.

    The keys are escaped paths below the work directory.
    """
    path = os.path.join(home, "pushed.json")
    record = read_record(path, {}) or {}
    if not all(is_whole(file, PUSHED_FILE) for file in record.values()):
        raise Refusal("RECORD_CORRUPT", path + " is not a whole record; it was left as it is")
    return record
'''


# --- own_files -----------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.own_files"] = r'''
"""Recognises the files that the tenant's own programs have put on this box."""

from __future__ import annotations

import os
import re
import stat

from box_scripts.caretaker.paths import is_below
from box_scripts.caretaker.pushed_files import INCOMING, INCOMING_NAME, Sent
from box_scripts.caretaker.records import SPARE_BYTES, json_value

TENANT_SCRIPT = re.compile(
    rb"(?:activity|caretaker|keep|leave|runner)-([0-9a-f]{16})\.py"
).fullmatch
ARRIVING = re.compile(rb"\.gpu-tenant-[0-9a-f]{16}\.part").fullmatch
SCRIPT_BYTES = 1 << 20


class Own:
    """The files that the tenant's own programs have put on this box. They are known by exact name and content."""

    def __init__(self, home: str, request: dict, jobs: set[str]) -> None:
        self._home, self._work = os.path.realpath(os.fsencode(home)), request["work"]
        self._logs = {os.fsencode("jobs/%s/log" % job) for job in jobs}
        is_told = "ours" in request and not request.get("older")
        self._scripts = set(request["ours"]) if is_told else None
        self._incoming: set[bytes] | None = None
        self._home_of, self._request = home, request
        self.beside = os.path.dirname(os.path.realpath(os.fsencode(__file__)))

    def is_ours(self, path: bytes, seen: os.stat_result) -> bool:
        """Whether the file was put here by the tenant's programs, and not by a job."""
        directory, name = os.path.split(path)
        if is_below(path, self._home):
            return self._is_record(path[len(self._home) + 1 :], path, seen)
        if directory == os.path.join(self._work, INCOMING) and INCOMING_NAME(
            name.decode("ascii", "replace")
        ):
            if "pushed" not in self._request:
                return True  # a person who works by hand sends no list of pushed files
            if self._incoming is None:
                self._incoming = Sent(self._home_of, self._request).incoming()
            return name in self._incoming
        if directory != self.beside:
            return False
        named = TENANT_SCRIPT(name)
        if named:
            return self._is_script(path, seen, named[1])
        return bool(ARRIVING(name)) and self._begins_one_of_ours(path, seen)

    def _begins_one_of_ours(self, path: bytes, seen: os.stat_result) -> bool:
        """Whether the file is the first part of one of our scripts, left by a transfer that broke off.

        The complete script must be in the same directory.
        """
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > SCRIPT_BYTES:
            return False
        begun = _content_of(path)
        return begun is not None and any(
            (_content_of(entry.path) or b"").startswith(begun)
            for entry in os.scandir(os.path.dirname(path))
            if not ARRIVING(entry.name)
            and self.is_ours(entry.path, entry.stat(follow_symlinks=False))
        )

    def _is_script(self, path: bytes, seen: os.stat_result, beginning: bytes) -> bool:
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > SCRIPT_BYTES:
            return False
        sha256 = _sha256_of(path)
        if sha256 is None or not sha256.encode().startswith(beginning):
            return False
        return self._scripts is None or sha256 in self._scripts

    def _is_record(self, inner: bytes, path: bytes, seen: os.stat_result) -> bool:
        if not stat.S_ISREG(seen.st_mode):
            return False
        if inner in self._logs:  # the seal lists the logs of jobs separately
            return True
        for shape, most_bytes, form in RECORDS:
            if shape.fullmatch(inner) and seen.st_size <= most_bytes:
                return form is None or _is_of_form(path, form)
        if ARRIVING(inner):
            return self._begins_one_of_ours(path, seen)
        named = PREPARING(inner)
        if named and named[2] == b"py":
            return self._is_script(path, seen, named[1])
        return bool(named) and seen.st_size <= SCRIPT_BYTES and _is_of_form(path, "json")


RECORD_BYTES = 64 << 10
RECORDS = (  # the names of the tenant's own files, their maximum size, and the form of their content
    (re.compile(rb"jobs/[A-Za-z0-9._-]{1,64}/(?:lock|log)"), 0, None),
    (
        re.compile(rb"jobs/[A-Za-z0-9._-]{1,64}/(?:spec|started|main|exit|ending)\.json"),
        RECORD_BYTES,
        "json",
    ),
    (
        re.compile(rb"jobs/[A-Za-z0-9._-]{1,64}/(?:main|exit|ending)\.json\.spare"),
        SPARE_BYTES,
        "json",
    ),
    (
        re.compile(rb"(?:since|since-push|guard|notice|cloned|mark|until)\.json"),
        RECORD_BYTES,
        "json",
    ),
    (re.compile(rb"(?:guard|queue/runner)\.json\.spare"), SPARE_BYTES, "json"),
    (re.compile(rb"(?:pushed|hashes)\.json"), 1 << 28, "json"),
    (re.compile(rb"(?:home|guard|activity)\.lock|heartbeat"), 0, None),
    (re.compile(rb"next-look"), 32, None),
    (re.compile(rb"activity\.jsonl|pruned|queue/journal"), 1 << 28, "lines"),
    (re.compile(rb"activity-latest\.json|queue/runner\.json"), 1 << 24, "json"),
    (re.compile(rb"queue/(?:lock|runner\.lock)"), 0, None),
    (
        re.compile(rb"[A-Za-z0-9._/-]+\.json\.\d+(?:\.tmp)?|activity[a-z.-]+\.new"),
        RECORD_BYTES,
        None,
    ),  # these are left by a crash
)
PREPARING = re.compile(rb"prepare-([0-9a-f]{16})\.(py|json)").fullmatch


def _is_of_form(path: bytes, form: str) -> bool:
    """Whether the file contains only JSON: one object, or with "lines" one object in each line."""
    try:
        with open(path, "rb") as file:
            content = file.read()
        parts = content.splitlines() if form == "lines" else [content] if content.strip() else []
        return all(isinstance(json_value(part), dict) for part in parts if part.strip())
    except (OSError, ValueError):
        return False


def _sha256_of(path: bytes) -> str | None:
    import hashlib

    content = _content_of(path)
    return None if content is None else hashlib.sha256(content).hexdigest()


def _content_of(path: bytes) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(SCRIPT_BYTES + 1)
    except OSError:
        return None
'''


# --- unclaimed -----------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.unclaimed"] = r'''
"""Sorts the written files that are no artifacts: into discarded, pushed, empty and unclaimed ones."""

from __future__ import annotations

import os

from box_scripts.caretaker.caches import is_cache
from box_scripts.caretaker.hashing import Changing
from box_scripts.caretaker.paths import unescape_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.hashing import Hashes
    from box_scripts.caretaker.patterns import Pattern
    from box_scripts.caretaker.pushed_files import Sent
    from box_scripts.caretaker.survey import Survey

BROUGHT_FILES = 200_000
"""At most this many files that nobody has claimed are fetched."""
INCOMING_PREFIX = ".gpu-tenant-"
DEFAULT_DISCARD = [
    "__pycache__/",
    "*.pyc",
    ".cache/",
    ".ipynb_checkpoints/",
    ".pytest_cache/",
    ".mypy_cache/",
    ".ruff_cache/",
    ".nv/",
    ".triton/",
    ".venv/",
    "venv/",
    "node_modules/",
    ".gpu-tenant-incoming-*",
    "~/.bash_history",
    "~/.python_history",
    "~/.lesshst",
    "~/.viminfo",
    "~/.ssh/known_hosts",
    "~/.rehearsal.json",
]


class WrittenFiles:
    """The files that were written since launch and are no artifacts, sorted: discarded, pushed, empty or unclaimed."""

    def __init__(
        self,
        survey: Survey,
        hashes: Hashes,
        sent: Sent,
        discards: list[Pattern],
        defaults: list[Pattern],
        reads: bool,
        brings: bool,
    ) -> None:
        self._survey, self._hashes, self._sent, self._reads = survey, hashes, sent, reads
        self._brings = brings
        self._discards, self._defaults = discards, defaults
        self.is_sure = True
        self._discarded: dict[str, list[int]] = {}
        self.unclaimed: list[tuple[int, str]] = []
        self.empty: list[str] = []
        self._pushed = [0, 0]

    def sort(self) -> None:
        odd: dict[str, list[tuple[int, str]]] = {}
        for at, path, size in self._survey.written:
            inner = self._survey.inner(at)
            reason = discarded_by(at, inner, self._discards, [])
            default = None if reason else discarded_by(at, inner, [], self._defaults)
            if default is not None and not is_cache(path):
                if self._brings and not default.startswith(("~/", INCOMING_PREFIX)):
                    self._leave(at, size)
                else:
                    odd.setdefault(default, []).append((size, at))
            elif reason or default:
                self._discard(str(reason or default), size)
            elif self._was_sent(path, size):
                self._pushed = [self._pushed[0] + 1, self._pushed[1] + size]
            else:
                self._leave(at, size)
        for default, files in odd.items():
            # Some files are named like a cache, but do not look like one. They are discarded by default only if
            # all of them together are small.
            if sum(size for size, _ in files) > ODD_BYTES:
                self.unclaimed += files
            else:
                for size, _ in files:
                    self._discard(default, size)
        self._count_names()

    def _leave(self, at: str, size: int) -> None:
        if size:
            self.unclaimed.append((size, at))
        else:
            self.empty.append(at)

    def bring(self, limit_bytes: int, limit_files: int, busy: set[tuple[int, int]]) -> list[dict]:
        """Return entries for the files that nobody has claimed, the smallest first, within these limits.

        They are no longer unclaimed then. A file that a process may still write to (`busy`: its device and inode), that
        changes, or that cannot be read, stays unclaimed.
        """
        entries: list[dict] = []
        left: list[tuple[int, str]] = []
        brought_bytes = 0
        found = sorted([*self.unclaimed, *((0, at) for at in self.empty)])
        for size, at in found:
            path = unescape_path(at)
            if brought_bytes + size > limit_bytes or len(entries) >= limit_files:
                left.append((size, at))
                continue
            try:
                sha256, seen = self._hashes.of(path) if self._reads else self._hashes.recall(path)
            except FileNotFoundError:
                continue
            except (Changing, OSError):
                left.append((size, at))
                continue
            if (seen.st_dev, seen.st_ino) in busy:
                left.append((size, at))
                continue
            brought_bytes += seen.st_size
            inner = self._survey.inner(at)
            entries.append(
                {
                    "name": "work/" + inner if inner is not None else "root" + at,
                    "at": at,
                    "kind": "file",
                    "class": "unasked",
                    "size": seen.st_size,
                    "sha256": sha256,
                    "mtime_ns": seen.st_mtime_ns,
                }
            )
        self.unclaimed = [one for one in left if one[0]]
        self.empty = [at for size, at in left if not size]
        self._count_names()
        return entries

    def _count_names(self) -> None:
        """Count many empty files as unclaimed. One is usually a marker or a lock, but many names can carry data."""
        if sum(len(os.path.basename(at)) for at in self.empty) > NAME_BYTES:
            self.unclaimed += [(0, at) for at in self.empty]
            self.empty = []

    def add_unread(self, reasons: set[str]) -> None:
        """Also list these patterns as discards, with no files.

        They name places that were discarded, and that cannot be read, so the files there cannot be counted.
        """
        for reason in reasons:
            self._discarded.setdefault(reason, [0, 0])

    def _discard(self, reason: str, size: int) -> None:
        tally = self._discarded.setdefault(reason, [0, 0])
        tally[0], tally[1] = tally[0] + 1, tally[1] + size

    def _was_sent(self, path: bytes, size: int) -> bool:
        versions = self._sent.versions(path, size)
        if not versions:
            return False
        if not self._reads:
            try:
                sha256, _ = self._hashes.recall(path)
            except (Changing, OSError):
                sha256 = None
            self.is_sure = self.is_sure and sha256 in versions
            return True
        try:
            return self._hashes.of(path)[0] in versions
        except (Changing, OSError):
            return False

    def as_answer(self, named: int) -> dict:
        largest = sorted(self.unclaimed, key=lambda item: (-item[0], item[1]))[:named]
        tallies = [
            {"pattern": p, "count": n, "bytes": b} for p, (n, b) in sorted(self._discarded.items())
        ]
        return {
            "unclaimed": {
                "count": len(self.unclaimed),
                "bytes": sum(size for size, _ in self.unclaimed),
                "largest": [_with_time(at, size) for size, at in largest],
            },
            "discarded": {
                "count": sum(t["count"] for t in tallies),
                "bytes": sum(t["bytes"] for t in tallies),
                "patterns": tallies,
            },
            "pushed": {"count": self._pushed[0], "bytes": self._pushed[1]},
            "empty": {"count": len(self.empty), "first": sorted(self.empty)[:20]},
        }


def _with_time(at: str, size: int) -> dict:
    """Describe the file with the time of its last change, which a job cannot set back."""
    try:
        return {"at": at, "size": size, "ctime_ns": os.lstat(unescape_path(at)).st_ctime_ns}
    except OSError:  # it is gone
        return {"at": at, "size": size}


ODD_BYTES, NAME_BYTES = 10 << 20, 2048


def discarded_by(
    at: str, inner: str | None, discards: list[Pattern], defaults: list[Pattern]
) -> str | None:
    """Return the text of the first pattern that discards the file. None if no pattern does.

    The defaults discard caches outside of the work directory, too.
    """
    for pattern in discards:
        text = inner if pattern.relative else at
        if text is not None and pattern.matches(text):
            return pattern.text
    for pattern in defaults:
        text = at if not pattern.relative else inner if inner is not None else at[1:]
        if pattern.matches(text):
            return pattern.text
    return None
'''


# --- at_work -------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.at_work"] = r'''
"""Finds processes that belong to no job, but work in the directories that are to be sealed."""

from __future__ import annotations

import os
import re
import time

from box_scripts.caretaker.own_files import TENANT_SCRIPT, Own
from box_scripts.caretaker.paths import escape_path, is_below, utf8_bytes
from box_scripts.caretaker.processes import living_processes, text_of
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

SHELLS = {"sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "tcsh", "csh"}
BESIDE = re.compile(  # these only carry or show the work of other processes, which are checked separately
    r"sshd.*|dropbear|sftp-server|tmux.*|screen|mosh-server|dtach|abduco|zellij|script|less|more|man|top|htop|btop"
    r"|nvtop|nvitop|gpustat|watch|tail|nvidia-smi|journalctl|gpg-agent|ssh-agent|dbus-daemon|dirmngr|keyboxd",
    re.IGNORECASE,
).fullmatch
WAITS = re.compile(  # these wait for a person, and compute only on request
    r"jupyter.*|ipykernel(?:_launcher)?.*|tensorboard.*|code-server.*|.*/\.(?:vscode|cursor|windsurf)-server/.*|mlflow"
).fullmatch
IDLE_LOOK_S, IDLE_LOOKS, IDLE_CORES = 1.0, 5, 0.1


class AtWork:
    """Finds processes that belong to no job, but work in the directories that are to be sealed."""

    def __init__(
        self, home: str, works: list[bytes], tops: list[bytes], since_ns: int | None, own: Own
    ) -> None:
        """`works` are the work directories, ours first. `tops` are other directories in which only this lease works."""
        self._own = own
        self._home, self._since_ns = os.path.realpath(os.fsencode(home)), since_ns
        self._places = list(dict.fromkeys([*works, *tops]))
        self._mark = b"GPU_TENANT_CARETAKER=" + os.fsencode(home)

    def refuse(self, known: Collection[int] = ()) -> None:
        """Refuse the seal if there is such a process. Processes whose number is in `known` do not count.

        A process counts if it began after the launch and works in one of the places: its directory is there, or it has
        a file there open for writing. It counts even if it sleeps now, because it may write later.

        Raises:
            Refusal: AT_WORK.
        """
        if self._since_ns is None or not os.path.isdir("/proc/self"):
            return
        table, found = living_processes(), []
        apart, pid = set(known), os.getpid()
        # Leave out this process, which makes the seal, and its ancestors.
        while pid in table and pid not in apart:
            apart.add(pid)
            pid = table[pid].parent
        began = re.search(r"^btime (\d+)$", text_of("/proc/stat"), re.MULTILINE)
        if began is None:
            return
        since_ticks = (self._since_ns / 1e9 - 2 - int(began.group(1))) * os.sysconf("SC_CLK_TCK")
        for process in table.values():
            if process.pid in apart or process.ticks < since_ticks:
                continue
            where = self._stands_in(process.pid)
            if where is not None:
                found.append((process, where))
        busy = [one for one in found if not self._waits(one[0].pid)]
        waiting = [one for one in found if one not in busy]
        if waiting and not busy:
            busy = self._computing(waiting)
        if busy:
            words = "; ".join(
                "process %d (%s) in %s" % (process.pid, _words_of(process.pid), escape_path(where))
                for process, where in busy[:3]
            )
            more = ", and %d more" % (len(busy) - 3) if busy[3:] else ""
            raise Refusal(
                "AT_WORK",
                "no job's, and at work: " + words + more,
                pids=[one[0].pid for one in busy],
            )

    def _stands_in(self, pid: int) -> bytes | None:
        """Return the path in our places at which the process works. None if it works in none of them."""
        directory = b"/proc/%d" % pid
        try:
            if os.stat(directory).st_uid != os.geteuid():
                return None
            cwd = os.readlink(directory + b"/cwd")
            with open(directory + b"/environ", "rb") as file:
                is_marked = self._mark in file.read().split(b"\0")
        except OSError:
            return None
        if self._is_apart(pid):
            return None
        if is_marked or self._is_inside(cwd):
            return cwd
        return self._writes_to(pid)

    def _is_inside(self, path: bytes) -> bool:
        """Whether the path is below one of our places, or is the work directory itself.

        For other places, only paths below count: the home directory is one of them, and every login begins there.
        """
        is_deeper = any(is_below(path, place) and path != place for place in self._places)
        return (is_deeper or path == self._places[0]) and not is_below(path, self._home)

    def _writes_to(self, pid: int) -> bytes | None:
        directory = "/proc/%d/" % pid
        try:
            for fd in os.listdir(directory + "fd"):
                path = os.readlink(os.fsencode(directory + "fd/" + fd))
                flags = re.search(r"flags:\s+(\d+)", text_of(directory + "fdinfo/" + fd))
                is_open = flags and int(flags.group(1), 8) & os.O_ACCMODE != os.O_RDONLY
                if is_open and path.startswith(b"/") and self._is_inside(path):
                    return path
        except OSError:
            pass
        return None

    def _is_apart(self, pid: int) -> bool:
        """Whether the process does not count: a waiting shell, a program in BESIDE, or a script of ours."""
        words = _argv_of(pid)
        name = os.path.basename(words[0] if words else "").lstrip("-").rstrip(":")
        if not words:
            return True  # a process of the kernel
        if name in SHELLS:
            return not [
                w for w in words[1:] if not w.startswith("-") or w == "-c"
            ] and _on_terminal(pid)
        if name.startswith("python") and self._runs_ours(pid, words):
            return True
        return bool(BESIDE(name)) and self._writes_to(pid) is None

    def _runs_ours(self, pid: int, words: list[str]) -> bool:
        """Whether the process runs a script of the tenant. Only the file that it runs counts, not further arguments."""
        for word in words[1:]:
            if word in ("-c", "-m", "-"):
                return False
            if not word.startswith("-"):
                break
        else:
            return False
        try:
            # A daemon may have changed its directory. It was started in the one above our scripts.
            begun = os.path.dirname(self._own.beside)
            paths = [os.path.join(at, os.fsencode(word)) for at in (_cwd_of(pid), begun)]
            path = next((path for path in paths if os.path.lexists(path)), paths[0])
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            is_named = TENANT_SCRIPT(os.path.basename(path))
            return bool(is_named) and self._own.is_ours(path, os.lstat(path))
        except OSError:
            return False

    @staticmethod
    def _waits(pid: int) -> bool:
        return any(WAITS(w) or WAITS(os.path.basename(w)) for w in _argv_of(pid)[:4])

    @staticmethod
    def _computing(processes: list) -> list:
        before = {process.pid: _cpu_s(process.pid) for process, _ in processes}
        runnable = dict.fromkeys(before, 0)
        for _ in range(IDLE_LOOKS):
            time.sleep(IDLE_LOOK_S / IDLE_LOOKS)
            for pid in before:
                runnable[pid] += _is_runnable(pid)
        most_s = IDLE_CORES * IDLE_LOOK_S
        return [
            one
            for one in processes
            if _cpu_s(one[0].pid) - before[one[0].pid] > most_s
            or runnable[one[0].pid] > IDLE_LOOKS / 2
        ]


def _cwd_of(pid: int) -> bytes:
    return os.readlink(b"/proc/%d/cwd" % pid)


def _argv_of(pid: int) -> list[str]:
    return [word for word in text_of("/proc/%d/cmdline" % pid).split("\0") if word]


def _words_of(pid: int) -> str:
    return escape_path(utf8_bytes(" ".join(_argv_of(pid)).encode("utf-8", "replace").decode()))[:80]


def _on_terminal(pid: int) -> bool:
    try:
        return os.readlink("/proc/%d/fd/0" % pid).startswith(
            ("/dev/pts/", "/dev/tty", "/dev/console")
        )
    except OSError:
        return False


def _cpu_s(pid: int) -> float:
    fields = text_of("/proc/%d/stat" % pid).rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if len(fields) > 13 else 0.0


def _is_runnable(pid: int) -> bool:
    """Whether a thread of the process runs, or would run if a CPU were free."""
    tasks = "/proc/%d/task" % pid
    try:
        threads = os.listdir(tasks)
    except OSError:
        return False
    stats = (text_of("%s/%s/stat" % (tasks, thread)) for thread in threads)
    return any(stat.rpartition(")")[2].split()[:1] == ["R"] for stat in stats)
'''


# --- elsewhere -----------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.elsewhere"] = r'''
"""Finds files that were written on this box outside all directories that are accounted for."""

from __future__ import annotations

import os
import re
import stat

from box_scripts.caretaker.caches import is_cache
from box_scripts.caretaker.mounts import far_mounts
from box_scripts.caretaker.paths import escape_path
from box_scripts.caretaker.processes import text_of
from box_scripts.caretaker.progress import TELLING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from box_scripts.caretaker.jobs import Job

SYSTEM = re.compile(  # where the system, and its package managers, keep their own files
    rb"/(?:bin|boot|etc|lib|lib32|lib64|libx32|proc|sbin|snap|sys|lost\+found|swapfile|swap\.img)"
    rb"|/dev/(?!shm$)[^/]*|/run/(?!user$|shm$)[^/]*|/usr/(?!local$)[^/]*"
    rb"|/usr/local/(?:bin|cuda[^/]*|etc|games|include|lib|lib64|libexec|man|sbin|share|src)"
    rb"|/var/(?:backups|cache|crash|log|lock|mail|run|snap|spool)"
    rb"|/var/lib/(?:apport|apt|buildkit|chrony|cloud|command-not-found|containerd|containers|dbus|dcgm[^/]*|dhcp|docker"
    rb"|dpkg|fwupd|google[^/]*|initramfs-tools|kubelet|landscape|logrotate|man-db|misc|mlocate|plocate|nvidia[^/]*|pam"
    rb"|PackageKit|polkit-1|private|python[^/]*|rsyslog|shim-signed|snapd|sudo|systemd|ubuntu-[^/]*|ucf|update-[^/]*"
    rb"|usbutils|vim|waagent|xml-core)"
).fullmatch
INSTALLED = {b"site-packages", b"dist-packages"}
OF_AN_ENVIRONMENT = re.compile(  # what conda and venv keep in an environment's directory
    rb"bin|compiler_compat|conda-meta|condabin|etc|include|info|lib|lib32|lib64|libexec|man|pkgs|sbin|share|shell|ssl"
    rb"|x86_64-.*|aarch64-.*"
).fullmatch
CLOCK_TICK_NS = 2 * 10**9


class Elsewhere:
    """The files that were written on this box's disks since the launch, outside the accounted directories.

    `written` are those that count as written by the jobs: changed by the time at which the last of their processes
    had ended, and readable. `others` are the rest, such as what a service of the platform writes all the time.
    """

    def __init__(self, tops: list[bytes], since_ns: int, until_ns: int | None) -> None:
        """With `until_ns=None`, nothing is too new. `tops` are not looked at."""
        self._skip = {*tops, *far_mounts(text_of("/proc/self/mountinfo"))}
        self._since_ns, self._until_ns = since_ns, until_ns
        self.written: list[tuple[str, bytes, int]] = []
        self.others: list[tuple[int, str]] = []

    def look(self, is_ours: Callable[[bytes, os.stat_result], bool], busy: set) -> None:
        """Walk over the disks. There is no limit of time, because a file that is not found may be the only copy."""
        packaged = packaged_since(self._since_ns)
        for path, seen in self._changed():
            if path in packaged or is_cache(path) or is_ours(path, seen):
                continue
            at = escape_path(path)
            is_late = self._until_ns is not None and seen.st_ctime_ns > self._until_ns
            if is_late or (seen.st_dev, seen.st_ino) in busy or not os.access(path, os.R_OK):
                self.others.append((seen.st_size, at))
            else:
                self.written.append((at, path, seen.st_size))

    def _changed(self) -> Iterator[tuple[bytes, os.stat_result]]:
        pending, walked = roots(), set()
        while pending:
            top = pending.pop()
            if top in walked:
                continue
            walked.add(top)
            if top != b"/" and (top in self._skip or SYSTEM(top) or os.path.islink(top)):
                continue
            TELLING.did(1, 0)
            try:
                entries = list(os.scandir(top))
            except OSError:
                continue
            names = {entry.name for entry in entries}
            is_environment = b"conda-meta" in names or b"pyvenv.cfg" in names
            for entry in entries:
                try:
                    seen = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(seen.st_mode):
                    if entry.name not in INSTALLED and not (
                        is_environment and OF_AN_ENVIRONMENT(entry.name)
                    ):
                        pending.append(entry.path)
                elif (
                    stat.S_ISREG(seen.st_mode)
                    and seen.st_ctime_ns >= self._since_ns
                    and not SYSTEM(entry.path)
                ):
                    yield entry.path, seen

    def as_answer(self) -> dict:
        """Return the files that do not count as written by the jobs."""
        return {
            "count": len(self.others),
            "bytes": sum(size for size, _ in self.others),
            "largest": [
                {"at": at, "size": size} for size, at in sorted(self.others, reverse=True)[:5]
            ],
            "whole": True,
        }


def roots() -> list[bytes]:
    """Return the directories where the look begins.

    A box may be only processes of somebody's computer, as in a rehearsal. Then its disks are only those directories
    that its environment names, because the others hold that person's own files.
    """
    if "GPU_TENANT_NO_POWEROFF" in os.environ:
        told = os.environ.get("GPU_TENANT_DISKS", "").split(":")
        return [os.path.realpath(os.fsencode(place)) for place in told if place]
    return [b"/", b"/dev/shm"]  # this one is memory, but it is lost with the box, too


def last_sign_ns(jobs: list[Job]) -> int | None:
    """Return when the last process of the jobs had ended. None if that is not recorded."""
    ended = []
    for job in jobs:
        try:
            ended.append(os.stat(job.path("exit.json")).st_mtime_ns)
        except OSError:
            return None
    return max(ended) + CLOCK_TICK_NS if ended else None


def packaged_since(since_ns: int) -> set[bytes]:
    """Return the files of the Debian packages that were installed since then."""
    found: set[bytes] = set()
    try:
        lists = [e for e in os.scandir(b"/var/lib/dpkg/info") if e.name.endswith(b".list")]
    except OSError:
        return found
    for entry in lists:
        try:
            if entry.stat().st_ctime_ns >= since_ns:
                with open(entry.path, "rb") as file:
                    found.update(file.read().splitlines())
        except OSError:
            continue
    return found
'''


# --- logins --------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.logins"] = r'''
"""Finds traces of a person who worked on this box by hand."""

from __future__ import annotations

import os

LOGIN_RECORDS = ("var/log/wtmp", "var/log/lastlog", "run/utmp")
"""The files in which a system records logins and logouts. An image may have none of them."""


def somebody_may_have_worked(since_ns: int, root: str = "/") -> bool:
    """Whether somebody may have worked here by hand since then: a terminal is open, or a login was recorded.

    A login without a terminal leaves no trace, so it is not noticed.
    """
    for name in LOGIN_RECORDS:
        try:
            if os.stat(os.path.join(root, name)).st_mtime_ns >= since_ns:
                return True
        except OSError:  # this image does not have the file
            pass
    try:
        return any(name.isdigit() for name in os.listdir(os.path.join(root, "dev/pts")))
    except OSError:
        return False
'''


# --- links ---------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.links"] = r'''
"""Symbolic links among the artifacts."""

from __future__ import annotations

import os

from box_scripts.caretaker.paths import escape_path, is_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from box_scripts.caretaker.survey import Survey


def link_entries(survey: Survey, kept: set[bytes]) -> list[dict]:
    """Return an entry for each link that leads to a place in the work directory, or to nothing.

    A link that leads out of it gets none, and is told: it has no bytes, and what it leads to is listed by itself. So
    is one that leads to nothing, or to something that is not kept.

    The target in the entry is the link's own text. If this text is absolute, or has `..` in its middle, the target is
    a simpler path to the same place. The hash is that of the target's text.
    """
    entries, reached = [], _reached(kept)
    for name, path in survey.links:
        at, target = escape_path(path), os.path.realpath(path)
        try:
            seen, text = os.lstat(path), os.readlink(path)
        except OSError as error:
            survey.problem(at, "changing", error.strerror)
            continue
        is_dangling = not os.path.exists(path)
        if is_dangling:
            survey.problem(at, "dangling", "it leads to nothing: " + escape_path(text))
        if not is_below(target, survey.work) or not is_below(path, survey.work):
            if not is_dangling:
                words = "it leads out of the work directory, or into it: to "
                survey.problem(at, "escapes", words + escape_path(target))
            continue
        if not is_dangling and target not in reached:
            survey.problem(at, "link_target_not_kept", escape_path(target) + " is no artifact")
        survey.note_match(at)
        entries.append(_entry(name, path, _plain_way(path, text, survey.work), seen, "artifact"))
    return entries


def undeclared_link_entries(
    survey: Survey, kept: set[bytes], is_discarded: Callable[[str, str | None], bool], most: int
) -> list[dict]:
    """Return an entry for each new link in the work directory that nobody declared, if it leads to what is kept.

    So does one that leads to nothing. All others are left out without a word, because a link has no bytes.
    """
    entries: list[dict] = []
    reached = _reached(kept)
    for name, path in survey.new_links:
        at, target = escape_path(path), os.path.realpath(path)
        if len(entries) >= most or is_discarded(at, survey.inner(at)):
            continue
        if not is_below(target, survey.work) or (os.path.exists(path) and target not in reached):
            continue
        try:
            seen, text = os.lstat(path), os.readlink(path)
        except OSError:
            continue  # It is gone.
        entries.append(_entry(name, path, _plain_way(path, text, survey.work), seen, "unasked"))
    return entries


def _reached(kept: set[bytes]) -> set[bytes]:
    """Return the files that are kept, and all directories that lead to them."""
    reached = set(kept)
    for path in kept:
        parent = os.path.dirname(path)
        while parent not in reached:
            reached.add(parent)
            parent = os.path.dirname(parent)
    return reached


def _entry(name: str, path: bytes, text: bytes, seen: os.stat_result, role: str) -> dict:
    import hashlib

    return {
        "name": name,
        "at": escape_path(path),
        "kind": "link",
        "class": role,
        "size": len(text),
        "sha256": hashlib.sha256(text).hexdigest(),
        "mtime_ns": seen.st_mtime_ns,
        "target": escape_path(text),
    }


def _plain_way(path: bytes, text: bytes, work: bytes) -> bytes:
    """Return the link's text, if it is relative, and has `..` only at its beginning.

    Otherwise return a path of this form that leads to the same place.
    """
    parts = [part for part in text.split(b"/") if part != b"."]
    climbs = next((i for i, part in enumerate(parts) if part != b".."), len(parts))
    parent = os.path.dirname(path)
    depth = os.path.relpath(path, work).count(b"/")
    if not text.startswith(b"/") and b".." not in parts[climbs:] and climbs <= depth:
        return text
    head, tail = os.path.split(text.rstrip(b"/"))
    place = os.path.join(os.path.realpath(os.path.join(parent, head)), tail)
    if tail in (b"", b".", b"..") or not is_below(place, work):
        place = os.path.realpath(path)
    return os.path.relpath(place, parent)
'''


# --- seal ----------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.seal"] = r'''
"""The verb `manifest`: lists and hashes all files that were written since the launch, so that each is accounted for."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.at_work import AtWork
from box_scripts.caretaker.elsewhere import Elsewhere, last_sign_ns
from box_scripts.caretaker.hashing import Changing, Hashes
from box_scripts.caretaker.job_state import observe
from box_scripts.caretaker.jobs import LIVE, Job, all_jobs
from box_scripts.caretaker.links import link_entries, undeclared_link_entries
from box_scripts.caretaker.logins import somebody_may_have_worked
from box_scripts.caretaker.mounts import Outliving, later_mounts
from box_scripts.caretaker.open_files import open_files
from box_scripts.caretaker.own_files import Own
from box_scripts.caretaker.paths import escape_path, unescape_path
from box_scripts.caretaker.pattern_bounds import Bounds, Narrowing, good_patterns
from box_scripts.caretaker.patterns import Pattern
from box_scripts.caretaker.processes import boot_id, started_ns, text_of
from box_scripts.caretaker.pushed_files import Sent
from box_scripts.caretaker.records import GUARD, NO_GUARD, journal_line, read_record
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.since import accounted_since_ns, mounts_at_first
from box_scripts.caretaker.survey import WITHOUT_BYTES, Survey
from box_scripts.caretaker.unclaimed import (
    BROUGHT_FILES,
    DEFAULT_DISCARD,
    WrittenFiles,
    discarded_by,
)


def _refuse_running(home: str, but: str | None = None) -> list[Job]:
    """Return the jobs that were started here. Refuse if one of them still runs, or if another may still be started.

    The job `but` may have processes that it left behind.
    """
    seen = [(job, observe(job).state) for job in all_jobs(home)]
    running = [
        job.name
        for job, state in seen
        if state in LIVE and not (job.name == but and state == "lingering")
    ]
    if running:
        raise Refusal("JOB_RUNNING", "still running: " + ", ".join(running), jobs=running)
    waiting = _waiting(home)
    if waiting:
        told = ", ".join(waiting[:5]) + (" and %d more" % (len(waiting) - 5) if waiting[5:] else "")
        raise Refusal("JOB_RUNNING", "queued, and may still run: " + told, jobs=waiting)
    return [job for job, state in seen if state != "absent"]


def _started_jobs(home: str) -> list[Job]:
    """Return the jobs that were started here, including those that still run."""
    return [job for job in all_jobs(home) if observe(job).state != "absent"]


def _waiting(home: str) -> list[str]:
    """Return the jobs that runner.py may still start, by its journal. None remain when the guard has ended the work."""
    path = os.path.join(home, "queue", "journal")
    try:
        with open(path, "rb") as file:
            whole = file.read().rpartition(b"\n")[0]  # without the last line, if it is incomplete
    except FileNotFoundError:
        return []
    try:
        guard_record = read_record(os.path.join(home, "guard.json"), GUARD) or NO_GUARD
    except Refusal:  # a damaged record counts as no guard
        guard_record = NO_GUARD
    if guard_record["state"] == "fired":
        return []
    waiting, withdrawn = {}, set()
    try:
        for line in map(journal_line, whole.splitlines()):
            if "queued" in line:
                waiting[line["queued"]] = True
            elif "withdrawn" in line:
                withdrawn.add(line["withdrawn"])
            elif "ended" in line:
                waiting[line["job"]] = not line["final"]
    except ValueError:
        raise Refusal("RECORD_CORRUPT", path + " has a line that is not whole") from None
    return [name for name, waits in waiting.items() if waits and name not in withdrawn]


def manifest(home: str, request: dict) -> dict:
    """List every file written since the launch: as an entry, pushed, discarded, unclaimed, or a problem.

    With `elsewhere`, all local disks of the box are searched, and what was written on them counts, too. What changed
    after the jobs had ended counts only with `late`, or if one of the `demanded` artifacts never appeared: then it may
    be anywhere.

    With `bring_bytes`, files that no pattern covers are entries of the class `unasked`, the smallest first, up to that
    many bytes in all. Only the others are unclaimed.

    With `hash: recalled` no file is read. Then hashes that are not remembered are missing, and so is the digest. The
    result is a draft and not a seal, but it is enough to begin to fetch files while the seal is made. With
    `running: listed`, jobs may run meanwhile. The result lists the files so far, and never has a digest.

    A job can change our records on the box. So the request may have better ones, from the tenant's own records:
    `pushed`, `since_ns` and `ours` (the hashes of the tenant's scripts). With `pushed`, only the request's `discard`
    counts, because a job could add discards to its own record. `key` is for the remembered hashes. With `made_by`, the
    answer also lists the files that this job wrote: see `made_files`. This is no seal either.

    Raises:
        Refusal: JOB_RUNNING; or AT_WORK: a process that belongs to no job works in the directories to be sealed.
    """
    is_look, reads = request.get("running") == "listed", request.get("hash") != "recalled"
    if is_look and reads:
        raise Refusal(
            "BAD_REQUEST", "what a job still writes is listed, and not read: hash is recalled"
        )
    maker = Job(home, request["made_by"]) if "made_by" in request else None
    but = maker.name if maker else None
    jobs = _started_jobs(home) if is_look else _refuse_running(home, but)
    specs = [job.spec() for job in jobs]
    wanted = [p for spec in specs for p in spec["artifacts"]] + request.get("artifacts", [])
    unwanted = request.get("discard", [])
    if "pushed" not in request:
        unwanted = [p for spec in specs for p in spec["discard"]] + unwanted
    since_ns = 0 if request.get("ever") else accounted_since_ns(home, jobs, request.get("since_ns"))
    tops = [request["work"], *sorted(request.get("roots", []))]
    bounds = Bounds(home, request["work"], tops)
    problems: list[dict] = []
    artifacts = good_patterns(wanted, None, problems)
    discards = good_patterns(unwanted, bounds, problems)
    defaults = [Pattern(p) for p in DEFAULT_DISCARD] if request.get("default_discard", True) else []
    own = Own(home, request, {job.name for job in jobs})
    skip = {os.path.realpath(os.fsencode(__file__))} | set(request.get("exclude", []))
    narrowing = Narrowing(artifacts, discards)
    survey = Survey(request["work"], skip, since_ns, artifacts, own.is_ours, narrowing)
    survey.problems += problems
    if request.get("rented_ns") and not request.get("ever"):
        survey.before(request["rented_ns"], request.get("quiet", []), home)
        survey.launched_ns = accounted_since_ns(home, jobs, None)
        if request.get("restarted"):
            survey.restarted_ns = started_ns(1)
    for top in tops:
        survey.walk(top, True)
    places = [unescape_path(spec["cwd"]) for spec in specs]
    for top in [*places, *sorted(survey.leads), os.fsencode(home)]:
        survey.walk(top, True)
    at_work = AtWork(
        home, [request["work"], *places], tops if request.get("alone") else [], since_ns, own
    )
    left = {process.pid for process in maker.members()} if maker else set()
    if not is_look:
        at_work.refuse(left)
    for pattern in artifacts:  # declared files count, even outside the accounted directories
        if not pattern.relative:
            survey.walk(pattern.prefix, False)
    for top in sorted(survey.leads):  # of links that were found there
        survey.walk(top, True)
    unread: set[str] = set()  # discards of places that cannot be read, which is no problem then
    problems, survey.problems = survey.problems, []
    for problem in problems:
        below, reason = problem["at"] + "/%00", None
        if problem["why"] in ("unreadable", "too_deep"):
            reason = discarded_by(below, survey.inner(below), discards, defaults)
        if reason is None:
            survey.problems.append(problem)
        else:
            unread.add(reason)
    mountinfo, before = text_of("/proc/self/mountinfo"), mounts_at_first(home)
    for place in later_mounts(mountinfo, before, request["work"], tops):
        detail = "mounted since the lease began, so it hides what was written there; unmount it"
        survey.problem(escape_path(place), "mounted_over", detail)
    hashes = Hashes(home, request.get("key"))
    entries: list[dict] = []
    writers = open_files() if survey.files else {}
    logs = [("log/%s.log" % job.name, os.fsencode(job.path("log"))) for job in jobs]
    for name, path in survey.files + logs:
        at = escape_path(path)
        try:
            sha256, seen = hashes.of(path) if reads else hashes.recall(path)
        except (Changing, FileNotFoundError):
            survey.problem(at, "changing", "it changed, or vanished, while it was read")
            continue
        except OSError as error:
            survey.problem(at, "unreadable", error.strerror)
            continue
        if (seen.st_dev, seen.st_ino) in writers:
            survey.problem(
                at, "open_for_writing", "by process %d" % writers[seen.st_dev, seen.st_ino]
            )
        kind = "log" if name.startswith("log/") else "artifact"
        facts = {"size": seen.st_size, "sha256": sha256, "mtime_ns": seen.st_mtime_ns}
        facts["ctime_ns"] = seen.st_ctime_ns
        entries.append(dict(facts, name=name, at=at, kind="file", **{"class": kind}))
    entries += link_entries(survey, {path for _, path in survey.files})

    unmatched = [p.text for p in artifacts if p.text not in survey.matched]
    elsewhere = None
    if request.get("elsewhere") and since_ns is not None and not is_look:
        is_open = request.get("late") or set(unmatched) & set(request.get("demanded", []))
        elsewhere = Elsewhere(
            [*tops, *places, os.fsencode(home), *request.get("outliving", [])],
            since_ns,
            None if is_open else last_sign_ns(jobs),
        )
        elsewhere.look(own.is_ours, set(open_files()))
        known = {at for at, _, _ in survey.written} | {entry["at"] for entry in entries}
        known.update(map(escape_path, skip))
        survey.written += [one for one in elsewhere.written if one[0] not in known]
    bring_bytes = request.get("bring_bytes")
    written_files = WrittenFiles(
        survey, hashes, Sent(home, request), discards, defaults, reads, bring_bytes is not None
    )
    written_files.sort()
    written_files.add_unread(unread)
    made = made_files(maker, written_files, hashes, request.get("logins", False)) if maker else None
    if bring_bytes is not None:
        busy = {} if is_look else open_files()
        entries += written_files.bring(bring_bytes, BROUGHT_FILES, set(busy))
        kept = {unescape_path(entry["at"]) for entry in entries if entry["kind"] == "file"}

        def is_discarded(at: str, inner: str | None) -> bool:
            return discarded_by(at, inner, discards, defaults) is not None

        entries += undeclared_link_entries(survey, kept, is_discarded, BROUGHT_FILES)
    hashes.save()
    if not is_look and [j.name for j in _refuse_running(home, but)] != [j.name for j in jobs]:
        raise Refusal("JOB_RUNNING", "a job was started while the seal was made; seal again")
    if not is_look:
        at_work.refuse(left)
    entries.sort(key=lambda entry: entry["name"])
    is_sure = written_files.is_sure and all(entry["sha256"] is not None for entry in entries)
    return dict(
        written_files.as_answer(request.get("named", 20)),
        sealed_at=time.time(),
        boot_id=boot_id(),
        since_ns=since_ns,
        digest=_digest(entries) if is_sure and not is_look and not maker else "",
        entries=entries,
        problems=sorted(survey.problems, key=lambda p: (p["at"], p["why"])),
        unmatched=unmatched,
        elsewhere=elsewhere.as_answer() if elsewhere else None,
        lost_by_stop=_lost_by_stop(entries, written_files, survey, request),
        made=made,
        bring_bytes=bring_bytes,
    )


MADE_BYTES, CLOCK_TICK_NS = 16 << 30, 10**7
"""At most this many bytes of a setup's files are read; and a file's time may be this much behind the clock."""


def made_files(maker: Job, written_files: WrittenFiles, hashes: Hashes, logins: bool) -> list[dict]:
    """Return the files that the job wrote and that were not changed after its end, each with its size and hash.

    Only a file's time of change decides. If the job's end was not recorded, there are no such files. The smallest files
    come first. Files beyond MADE_BYTES in all are left out.

    Raises:
        Refusal: AT_WORK: with `logins`, if a person was logged in and may have written some of the files.
    """
    seen = observe(maker)
    if not seen.started or not seen.end:
        return []
    since_ns = int(seen.started["started_at"] * 1e9) - CLOCK_TICK_NS
    until_ns = int(seen.end["ended_at"] * 1e9) + CLOCK_TICK_NS
    if logins and somebody_may_have_worked(since_ns):
        raise Refusal("AT_WORK", "somebody was logged in while it ran, or is now")
    found, read_bytes = [], 0
    for size, at in sorted(written_files.unclaimed + [(0, at) for at in written_files.empty]):
        path = unescape_path(at)
        try:
            if not since_ns <= os.lstat(path).st_ctime_ns <= until_ns:
                continue
            read_bytes += size
            if read_bytes > MADE_BYTES:
                break
            sha256, now = hashes.of(path)
        except (Changing, OSError):
            continue
        if now.st_size == size and since_ns <= now.st_ctime_ns <= until_ns:
            found.append({"at": at, "size": size, "sha256": sha256})
    return found


def _lost_by_stop(
    entries: list[dict], written_files: WrittenFiles, survey: Survey, request: dict
) -> dict | None:
    """List the files that must be accounted for, and that a stop would lose. None if the request has no `kept`."""
    if "kept" not in request:
        return None
    mountinfo = text_of("/proc/self/mountinfo")
    outliving = Outliving(request["kept"], request.get("kept_disks", []), mountinfo)
    found = [(entry.get("size", 0), entry["at"]) for entry in entries]
    # A place that cannot be read may contain anything, so it counts, too.
    amiss = [problem["at"] for problem in survey.problems if problem["why"] not in WITHOUT_BYTES]
    found += [*written_files.unclaimed, *((0, at) for at in amiss)]
    sizes: dict[str, int] = {}
    for size, at in found:
        if not outliving.has(unescape_path(at)):
            sizes[at] = max(size, sizes.get(at, 0))
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return {
        "count": len(sizes),
        "bytes": sum(sizes.values()),
        "largest": [{"at": at, "size": size} for at, size in largest[:20]],
    }


def _digest(entries: list[dict]) -> str:
    """Return the hash of the sorted lines `sha256 size kind target-or-dash name`."""
    import hashlib

    form = "%(sha256)s %(size)d %(kind)s %(target)s %(name)s\n"
    lines = sorted(form % dict(entry, target=entry.get("target", "-")) for entry in entries)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
'''


# --- pace ----------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.pace"] = r'''
"""Limits how much the caretaker slows down jobs: by a share of the time, and by a low priority."""

from __future__ import annotations

import os
import re
import sys
import time

from box_scripts.caretaker.processes import text_of

SHARE = 0.25


class Pace:
    """Keeps this process at work for at most `share` of the time. Call `rest` after every piece of work.

    Only the time in which the process computed, or read from a disk, counts as work. Waiting for a busy CPU core does
    not count, because it takes nothing from others.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._begin()

    def _begin(self) -> None:
        self._since, self._computed, self._read = (
            time.monotonic(),
            time.thread_time(),
            _read_bytes(),
        )

    def rest(self) -> None:
        passed = time.monotonic() - self._since
        if passed < 0.01:
            return
        worked = time.thread_time() - self._computed if _read_bytes() == self._read else passed
        time.sleep(max(0.0, worked / self._share - passed))
        self._begin()


def _read_bytes() -> str:
    """Return the kernel's line with the number of bytes that this process has read from disks. Empty if unknown."""
    found = re.search(r"^read_bytes: \d+", text_of("/proc/self/io"), re.MULTILINE)
    return found.group() if found else ""


def step_back() -> str:
    """Give this process the lowest priority that the system allows. Return in words which that is."""
    words = "at nice %d" % os.nice(10)
    ioprio_set = {"x86_64": 251, "aarch64": 30, "ppc64le": 273, "riscv64": 30, "s390x": 282}
    number = ioprio_set.get(os.uname().machine) if sys.platform == "linux" else None
    # In a 32-bit ABI, the number stands for another system call.
    if number is None or sys.maxsize < 1 << 32:
        return words
    try:
        import ctypes

        if ctypes.CDLL(None).syscall(number, 1, 0, 3 << 13) == 0:  # this process, the idle class
            return words + " and reading when the disk is idle"
    except (ImportError, OSError, AttributeError):
        pass
    return words
'''


# --- checkpoints ---------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.checkpoints"] = r'''
"""Decides whether a checkpoint is complete, from the names and times of files alone."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.paths import escape_path, is_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

PATIENCE_NS = 600 * 10**9
UNDER_WAY = re.compile(  # names that Orbax, transformers and curl use until a file is complete
    rb"(?i)tmp-.+|\.tmp.*|.+\.part|.+[._-](?:tmp|partial|incomplete|inprogress)(?:[-_.]?\d+)?"
    rb"|.+\.tmp\.[\w-]{1,16}"
).fullmatch
STEP = re.compile(
    rb"(?i)(?<![a-z])(checkpoint|ckpt|step|iter|iteration|epoch)s?([-_.=]?)(\d+)(?![0-9a-z])"
)
GROWS = re.compile(rb"(?i).*\.(?:log|txt|csv|jsonl|out|err)|events\.out\..*").fullmatch
SHARD = re.compile(rb"(.+?)-(\d{5})-of-(\d{5})(\.(?:safetensors|bin|pth?)|)").fullmatch
DONE = re.compile(
    rb"(?i)[._]?(?:done|success|completed?|finished|commit_success)(?:\.txt)?"
).fullmatch
WRITTEN_LAST = (  # how to recognise such a checkpoint; where its last file is written; the name of the last file
    (
        re.compile(rb"checkpoint-\d+/.*"),
        "in",
        re.compile(rb"trainer_state\.json|random_states_\d+\.pkl"),
    ),
    (re.compile(rb"[^/]*/.+\.distcp"), "in", re.compile(rb"\.metadata")),
    (re.compile(rb"global_step\d+/.*"), "beside", re.compile(rb"latest")),
    (re.compile(rb"iter_\d{7}/.*"), "beside", re.compile(rb"latest_checkpointed_iteration\.txt")),
)
if TYPE_CHECKING:
    Dates = dict[bytes, tuple[int, int]]  # name: its mtime_ns and ctime_ns
    Dated = dict[bytes, Dates]  # by directory


def _unit(path: bytes, work: bytes) -> bytes | None:
    """Return the directory of the file's checkpoint: the outermost one with the step's number in its name.

    The work directory itself, and what it lies in, is no checkpoint, whatever its name is.
    """
    found, number, directory = None, None, os.path.dirname(path)
    while directory not in (b"/", b"", work.rstrip(b"/")):
        named = STEP.findall(os.path.basename(directory))
        if named and number in (None, int(named[-1][2])):
            found, number = directory, int(named[-1][2])
        elif named:
            break
        directory = os.path.dirname(directory)
    return found


def checkpoint_listing(files: Iterable[bytes], work: bytes) -> Dated:
    """Return the files next to those files, and all files in their checkpoints, with their times."""
    found: Dated = {}
    tops = {os.path.dirname(path) for path in files}
    units = {unit for unit in (_unit(path, work) for path in files) if unit is not None}
    for unit in units:
        tops |= {os.path.dirname(unit), *(folder for folder, _, _ in os.walk(unit))}
    for top in tops:
        found[top] = {}
        try:
            for entry in os.scandir(top):
                seen = entry.stat(follow_symlinks=False)
                found[top][entry.name] = (seen.st_mtime_ns, seen.st_ctime_ns)
        except OSError:
            continue
    return found


def find_unfinished(
    files: Iterable[bytes],
    busy: set[bytes],
    listing: Dated,
    work: bytes,
    now_ns: int,
    quiet_ns: int,
    done: Sequence[Callable[[str], object]],
) -> set[bytes]:
    """Return the files that are still being written, or belong to a checkpoint that is. Only names and times decide.

    A checkpoint in which nothing has changed for PATIENCE_NS counts as complete, because no rule fits every job.
    """
    found: set[bytes] = set()
    whole: dict[bytes, bool] = {}
    for path in files:
        parts = (path[len(work) :] if is_below(path, work) else path).split(b"/")
        if path in busy or any(UNDER_WAY(part) for part in parts if part):
            found.add(path)
            continue
        what = _unit(path, work) or path
        if what not in whole:
            whole[what] = _is_whole(what, busy, listing, now_ns, quiet_ns, done)
        if not whole[what]:
            found.add(path)
    return found


def _is_whole(
    what: bytes,
    busy: set[bytes],
    listing: Dated,
    now_ns: int,
    quiet_ns: int,
    done: Sequence[Callable[[str], object]],
) -> bool:
    """Whether the checkpoint `what`, a directory or a file, is complete."""
    parent, name = os.path.split(what)
    beside = listing.get(parent, {})
    inside = {  # by path below `what`; empty if `what` is a file
        os.path.join(folder, inner)[len(what) + 1 :]: dated
        for folder, names in listing.items()
        if is_below(folder, what)
        for inner, dated in names.items()
        if os.path.join(folder, inner) not in listing
    }
    of_it = inside or {b"": beside.get(name, (0, 0))}
    # A checkpoint can be complete although a log in it still grows.
    lasting = {at: d for at, d in of_it.items() if not GROWS(os.path.basename(at))} or of_it
    if max(max(dated) for dated in lasting.values()) < now_ns - PATIENCE_NS:
        return True
    if inside and any(
        os.path.join(what, at) in busy or now_ns - quiet_ns < max(dated) <= now_ns
        for at, dated in lasting.items()
    ):
        return False
    stem = name[: -len(b".ckpt")] if name.endswith(b".ckpt") else name
    # NeMo puts such a file beside an unfinished checkpoint.
    if {stem + b"-unfinished", name + b".unfinished"} & set(beside):
        return False
    if not _has_all_shards(inside or beside, None if inside else name):
        return False
    written_ns = max(mtime_ns for mtime_ns, _ in lasting.values())
    last = _last_of(name, inside, beside)
    if last == [] and _is_followed(name, beside, written_ns):
        last = None
    is_mark = any(matches(escape_path(name)) for matches in done)
    if last is None and STEP.search(name) and not is_mark:
        last = _done_of(what, listing, done)
        alike = [n for n in beside if name_group(n) == name_group(name)]
        if not last and not done:
            # If similar checkpoints have a marker, this one will get one, too.
            is_usual = any(_done_of(os.path.join(parent, n), listing, done) for n in alike)
            last = [] if is_usual else None
    # Old versions of transformers write their random states just after the file that is taken as the last one here.
    return last is None or any(at + max(quiet_ns, 2 * 10**9) >= written_ns for at in last)


def _is_followed(name: bytes, beside: Dates, written_ns: int) -> bool:
    """Whether the job has begun a checkpoint of a higher step since: then it has ended this one, with other files."""
    step = [int(number) for _, _, number in STEP.findall(name)]
    return any(
        mtime_ns > written_ns and [int(number) for _, _, number in STEP.findall(other)] > step
        for other, (mtime_ns, _) in beside.items()
        if name_group(other) == name_group(name)
    )


def _last_of(name: bytes, inside: Dates, beside: Dates) -> list[int] | None:
    """Return the times of the file that is written last in such a checkpoint. None if its kind is not known."""
    for shape, where, last in WRITTEN_LAST:
        if any(shape.fullmatch(name + b"/" + at) for at in inside):
            names = inside if where == "in" else beside
            return [d[0] for at, d in names.items() if last.fullmatch(os.path.basename(at))]
    return None


def _done_of(what: bytes, listing: Dated, done: Sequence[Callable[[str], object]]) -> list[int]:
    """Return the times of the marker files, in the checkpoint or next to it, that say that it is complete."""
    parent, name = os.path.split(what)
    stem = os.path.splitext(name)[0]

    def says(marker: bytes) -> bool:
        return bool(DONE(marker)) or any(matches(escape_path(marker)) for matches in done)

    found = [dated[0] for at, dated in listing.get(what, {}).items() if says(at)]
    for at, dated in listing.get(parent, {}).items():
        for head in (name, stem):
            rest = at[len(head) :]
            if (
                at != name
                and at.startswith(head)
                and rest[:1] in (b".", b"-", b"_")
                and (DONE(rest[1:]) or any(matches(escape_path(at)) for matches in done))
            ):
                found.append(dated[0])
    return found


def name_group(name: bytes) -> bytes:
    return re.sub(rb"\d+", b"#", name)


def _has_all_shards(names: Iterable[bytes], one: bytes | None) -> bool:
    """Whether each set of shards like `x-00001-of-00004` is complete. With `one`, check only the set of that file."""
    there: dict[tuple, set[bytes]] = {}
    for match in filter(None, map(SHARD, names)):
        there.setdefault((match[1], match[3], match[4]), set()).add(match[2])
    if one is not None:
        shard = SHARD(one)
        there = {shard.group(1, 3, 4): there.get(shard.group(1, 3, 4), set())} if shard else {}
    return all(len(found) >= int(of[1]) for of, found in there.items())
'''


# --- complete ------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.complete"] = r'''
"""The verb `complete`: which artifacts are complete while jobs run."""

from __future__ import annotations

import os
import stat
import time

from box_scripts.caretaker.checkpoints import checkpoint_listing, find_unfinished
from box_scripts.caretaker.hashing import Changing, Hashes, file_identity
from box_scripts.caretaker.job_state import observe
from box_scripts.caretaker.jobs import LIVE, all_jobs
from box_scripts.caretaker.links import link_entries
from box_scripts.caretaker.mounts import far_devices
from box_scripts.caretaker.open_files import open_files
from box_scripts.caretaker.pace import SHARE, Pace, step_back
from box_scripts.caretaker.paths import escape_path, unescape_path
from box_scripts.caretaker.pattern_bounds import Narrowing, good_patterns
from box_scripts.caretaker.patterns import Pattern, Segment
from box_scripts.caretaker.processes import text_of
from box_scripts.caretaker.pushed_files import INCOMING
from box_scripts.caretaker.survey import Survey


def complete(home: str, request: dict) -> dict:
    """List the declared artifacts that nobody is writing now, newest first. Jobs may run meanwhile.

    This is no seal: it proves the content of each file, but not that no other files were written. For a file to be
    complete, four things must be true. It has no temporary name. Its checkpoint has the file that the job writes last.
    It did not change between two checks `quiet_s` apart. Nobody has it open for writing.

    This works and reads for at most `share` of the time (default: a quarter), on one core, at the lowest priority. At
    most `limit_bytes` are read, but at least one file. Files that are left out follow in the next call.
    """
    share = min(1.0, max(0.01, request.get("share", SHARE)))
    began, turn = time.monotonic(), Pace(share)
    stepped_back = step_back()
    survey, running = artifacts_now(home, request)
    hashes = Hashes(home, request.get("key"), turn.rest)
    quiet_ns = int(request.get("quiet_s", 5) * 1e9)
    seen, busy = _looked_twice(survey.files, quiet_ns, hashes)
    listing = checkpoint_listing(seen, request["work"])
    done = [Segment(text).matches_escaped for text in request.get("done", [])]
    held_back = find_unfinished(
        seen, busy, listing, request["work"], time.time_ns(), quiet_ns, done
    )
    newest_first = sorted(
        (one for one in survey.files if one[1] in seen and one[1] not in held_back),
        key=lambda one: (-seen[one[1]].st_mtime_ns, one[0]),
    )
    names = [name for name, path in survey.files if path in held_back]
    entries: list[dict] = []
    kept: set[bytes] = set()
    read, left_out, saved = 0, 0, began
    for name, path in newest_first:
        fresh = 0 if hashes.knows(seen[path]) else seen[path].st_size
        over = read + fresh > request.get("limit_bytes", 1 << 62)
        if read and fresh and (over or time.monotonic() - began > request.get("limit_s", 1 << 62)):
            names, left_out = [*names, name], left_out + 1
            continue
        read += fresh
        try:
            sha256, now = hashes.of(path)
        except (Changing, OSError):
            names.append(name)
            continue
        # Save now and then, so that these files are not read again if the link breaks.
        if time.monotonic() - saved > 30:
            hashes.save()
            saved = time.monotonic()
        facts = {"size": now.st_size, "sha256": sha256, "mtime_ns": now.st_mtime_ns}
        at = escape_path(path)
        entries.append(dict(facts, name=name, at=at, kind="file", **{"class": "artifact"}))
        kept.add(path)
    hashes.save()
    links = link_entries(survey, kept)
    amiss = {problem["at"] for problem in survey.problems}
    return {
        "files": entries + [link for link in links if link["at"] not in amiss],
        "inodes": {entry["name"]: seen[unescape_path(entry["at"])].st_ino for entry in entries},
        "left_out": left_out,
        "unfinished": sorted(names),
        "all_bytes": sum(now.st_size for now in seen.values()),
        "running": running,
        "pace": "at most %g of one core's time and of its disk's, %s" % (share, stepped_back),
        "now": time.time(),
        "login": escape_path(os.path.realpath(os.path.expanduser(b"~"))),
    }


def artifacts_now(home: str, request: dict) -> tuple[Survey, list[str]]:
    """Return a survey of all declared artifacts that exist, and the names of the jobs that run."""
    jobs = [job for job in all_jobs(home) if job.start_record()]
    wanted = [p for job in jobs for p in job.spec()["artifacts"]] + request.get("artifacts", [])
    unwanted = [p for job in jobs for p in job.spec()["discard"]] + request.get("discard", [])
    artifacts = [Pattern(p) for p in dict.fromkeys(wanted)]
    narrowing = Narrowing(artifacts, good_patterns(unwanted, None, []))
    skip = {os.path.realpath(os.fsencode(p)) for p in (home, __file__)}
    skip.add(os.path.join(request["work"], INCOMING))
    survey = Survey(request["work"], skip, None, artifacts, narrowing=narrowing)
    survey.walk(request["work"], False)
    for pattern in artifacts:
        if not pattern.relative:
            survey.walk(pattern.prefix, False)
    return survey, [job.name for job in jobs if observe(job).state in LIVE]


def _looked_twice(
    files: list[tuple[str, bytes]], quiet_ns: int, hashes: Hashes
) -> tuple[dict[bytes, os.stat_result], set[bytes]]:
    """Return the status of the regular files, and which of them are being written.

    If a file's times come from this kernel's clock, one check is enough: its time of change shows whether it has
    changed in the last `quiet_ns`. If they come from another clock (a network file system, a time in the future), the
    file is checked twice.
    """
    first = _stats_of(files)
    remote = far_devices(text_of("/proc/self/mountinfo"))
    now_ns = time.time_ns()
    undated = {
        path
        for path, seen in first.items()
        if seen.st_dev in remote or max(seen.st_mtime_ns, seen.st_ctime_ns) > now_ns
    }
    if not all(hashes.knows(first[path]) for path in undated):
        time.sleep(quiet_ns / 1e9)
    second, writers = _stats_of(files), open_files() if files else {}
    busy = set()
    for path, seen in second.items():
        if path in undated:
            is_busy = file_identity(first[path]) != file_identity(seen)
        else:
            is_busy = max(seen.st_mtime_ns, seen.st_ctime_ns) > now_ns - quiet_ns
        if is_busy or path not in first or (seen.st_dev, seen.st_ino) in writers:
            busy.add(path)
    return second, busy


def _stats_of(files: list[tuple[str, bytes]]) -> dict[bytes, os.stat_result]:
    found = {}
    for _, path in files:
        try:
            seen = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISREG(seen.st_mode):
            found[path] = seen
    return found
'''


# --- prune ---------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.prune"] = r'''
"""The verb `prune`, the only one that deletes files of a job."""

from __future__ import annotations

import errno
import json
import os
import time

from box_scripts.caretaker.checkpoints import STEP, name_group
from box_scripts.caretaker.complete import artifacts_now
from box_scripts.caretaker.hashing import Changing, Hashes
from box_scripts.caretaker.open_files import open_files
from box_scripts.caretaker.pace import SHARE, Pace, step_back
from box_scripts.caretaker.paths import escape_path, is_below, unescape_path
from box_scripts.caretaker.records import Locked, put_bytes
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.patterns import Pattern
    from box_scripts.caretaker.survey import Survey


def prune(home: str, request: dict) -> dict:
    """Remove each named checkpoint, if it is still the same, byte for byte. Otherwise leave all of it.

    Each is {"at", "files": [{"at", "size", "sha256", "mtime_ns", "ino"}]}: a file, or a directory with all its files.
    Before a checkpoint is removed, it is recorded in the log `pruned` (on a full disk, right after). Three kinds of
    files are never removed: the newest checkpoint of its kind, files that are open or that a link leads to, and the
    last file that a declared pattern matches.
    """
    survey, _ = artifacts_now(home, request)
    hashes = Hashes(home, request.get("key"), Pace(SHARE).rest)
    step_back()
    left = {path for _, path in survey.files}
    gone, refused, count, size = [], [], 0, 0
    with Locked(home, "home.lock"):
        for checkpoint in request["checkpoints"]:
            try:
                top, files = _files_of(checkpoint)
            except (KeyError, TypeError, ValueError):
                raise Refusal("BAD_REQUEST", "checkpoints are not as --help says") from None
            why = _why_kept(top, files, survey, left, hashes)
            if why is None:
                is_logged = _log_pruned(home, checkpoint)
                why = _unlink_all(top, files)
                if not is_logged and why is None:  # now there is room for the record
                    _log_pruned(home, checkpoint)
            if why is not None:
                refused.append({"at": checkpoint["at"], "why": why})
                left = {path for path in left if os.path.lexists(path)}
                continue
            left -= set(files)
            gone.append(checkpoint["at"])
            count, size = count + len(files), size + sum(named[0] for named in files.values())
    hashes.save()
    return {"pruned": gone, "files": count, "bytes": size, "refused": refused}


def _files_of(checkpoint: dict) -> tuple[bytes, dict[bytes, tuple[int, str, int, int]]]:
    files = {
        unescape_path(f["at"]): (
            int(f["size"]),
            str(f["sha256"]),
            int(f["mtime_ns"]),
            int(f["ino"]),
        )
        for f in checkpoint["files"]
    }
    if not files:
        raise ValueError
    return unescape_path(checkpoint["at"]), files


def _why_kept(
    top: bytes,
    files: dict[bytes, tuple[int, str, int, int]],
    survey: Survey,
    left: set[bytes],
    hashes: Hashes,
) -> str | None:
    """Return why the checkpoint may not be removed. None if it may."""
    if os.path.realpath(top) != top or not all(is_below(path, top) for path in files):
        return "it is not where it was named"
    if not set(files) <= left:
        return "it is no declared artifact, or is gone"
    if not _has_newer(top, left):
        return "nothing newer of its kind is on the box"
    lying = [os.path.join(d, n) for d, _, names in os.walk(top) for n in names] or [top]
    links = [os.path.join(d, n) for d, inner, _ in os.walk(top) for n in inner]
    if set(lying) != set(files) or any(map(os.path.islink, links)):
        return "there is more in it than was named"
    beside = os.path.dirname(top)
    around = [path for _, path in survey.links] + [
        os.path.join(beside, n) for n in os.listdir(beside)
    ]
    if any(os.path.islink(p) and is_below(os.path.realpath(p), top) for p in around):
        return "a link leads to it"
    for pattern in survey.artifacts:
        matched = {path for path in left if _means(pattern, path, survey)}
        if matched and matched <= set(files):
            return "it is all that is left of the artifact " + pattern.text
    opened = open_files((os.O_RDONLY, os.O_WRONLY, os.O_RDWR))
    for path, (size, sha256, mtime_ns, ino) in files.items():
        try:
            seen = os.lstat(path)
            is_same = (seen.st_size, seen.st_mtime_ns, seen.st_ino) == (size, mtime_ns, ino)
            if not is_same or hashes.of(path)[0] != sha256:
                return "it is not as it was: " + escape_path(path)
        except (Changing, OSError):
            return "it is being changed: " + escape_path(path)
        if (seen.st_dev, seen.st_ino) in opened:
            return "a process has it open: " + escape_path(path)
    return None


def _has_newer(top: bytes, left: set[bytes]) -> bool:
    """Whether there is a checkpoint of the same kind with a higher number in the same directory."""
    parent, name = os.path.split(top)
    steps = [int(found[2]) for found in STEP.findall(name)]
    beside = {
        path[len(parent) + 1 :].split(b"/")[0]
        for path in left
        if is_below(path, parent) and not is_below(path, top)
    }
    alike = (STEP.findall(n) for n in beside if name_group(n) == name_group(name))
    return bool(steps) and any([int(found[2]) for found in other] > steps for other in alike)


def _means(pattern: Pattern, path: bytes, survey: Survey) -> bool:
    at = escape_path(path)
    text = survey.inner(at) if pattern.relative else at
    return text is not None and bool(pattern.matches(text))


def _log_pruned(home: str, checkpoint: dict) -> bool:
    """Write the checkpoint to the log, as a complete line or not at all. Return False if the disk is full.

    The tenant has recorded the same before its request. So the checkpoint may be removed even if this fails.
    """
    line = json.dumps(dict(checkpoint, asked_at=time.time()), separators=(",", ":")) + "\n"
    path = os.path.join(home, "pruned")
    size = os.path.getsize(path) if os.path.exists(path) else 0
    try:
        put_bytes(path, line.encode(), os.O_CREAT | os.O_APPEND)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        if os.path.exists(path):
            os.truncate(path, size)
        return False
    return True


def _unlink_all(top: bytes, files: dict[bytes, tuple[int, str, int, int]]) -> str | None:
    """Remove the files, and directories that are empty then. If one cannot be removed, leave all, and return why.

    Each file is first renamed and then checked again, because a job may put another file in its place.
    """
    moved: dict[bytes, bytes] = {}
    why = None
    for place, (path, (size, _, mtime_ns, ino)) in enumerate(files.items()):
        aside = os.path.join(
            os.path.dirname(path), b".gpu-tenant-pruned-%d-%d" % (os.getpid(), place)
        )
        try:
            os.rename(path, aside)
            moved[aside] = path
            seen = os.lstat(aside)
            is_same = (seen.st_size, seen.st_mtime_ns, seen.st_ino) == (size, mtime_ns, ino)
            why = None if is_same else "it was changed at the last moment: " + escape_path(path)
        except OSError as error:
            why = "%s: %s" % (escape_path(path), error.strerror)
        if why is not None:
            break
    for aside, path in moved.items():
        if why is not None:
            try:
                # Unlike a rename, a link does not overwrite a file that was put there meanwhile.
                os.link(aside, path, follow_symlinks=False)
            except OSError:
                why += "; what was there is " + escape_path(aside)
                continue
        os.unlink(aside)
    for folder, _, _ in os.walk(top, topdown=False) if why is None else ():
        try:
            os.rmdir(folder)
        except OSError:
            continue
    return why
'''


# --- push ----------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.push"] = r'''
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
'''


# --- requests ------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.requests"] = r'''
"""The arguments of each verb: their names and types, and how they are checked."""

from __future__ import annotations

import os

from box_scripts.caretaker.paths import unescape_path
from box_scripts.caretaker.records import NUMBER
from box_scripts.caretaker.refusal import Refusal

SEALING = (
    "work! roots artifacts discard default_discard exclude ever rented_ns quiet hash running"
    " named key pushed older since_ns ours alone elsewhere kept kept_disks restarted made_by"
    " logins bring_bytes late demanded outliving"
)
TAKES = {  # the arguments of each verb; those with a `!` are required
    "start": "job! argv! cwd! env env_unset artifacts discard max_runtime_s stalled_after_s grace_s stop_signal setup",
    "status": "job offset limit sample",
    "tail": "job! offset limit",
    "stop": "job! grace_s signal",
    "manifest": SEALING,
    "patterns": "work! roots artifacts discard",
    "complete": "work! artifacts discard done quiet_s limit_bytes limit_s share key",
    "prune": "work! artifacts discard checkpoints! key",
    "index": "work! paths! begin key",
    "receive": "work! over",
    "place": "work! files! stale over",
    "guard": "deadline left_s grace_s signal idle_s when_done end store seal copy_s scripts notice rehearsed disarm",
}
FIELDS = {  # the kind of each argument, and its help text
    "job": ("text", "name of the job"),
    "argv": ("texts", ""),
    "cwd": ("path", "directory the job runs in; made if missing"),
    "env": ("env", ""),
    "env_unset": ("texts", "variable the job shall not inherit (repeatable)"),
    "artifacts": ("texts", "pattern of files that must be kept (repeatable)"),
    "discard": ("texts", "pattern of files that need not be kept (repeatable)"),
    "max_runtime_s": ("number", "stop the job after so many seconds"),
    "stalled_after_s": ("number", "stop the job once it has written nothing for so many seconds"),
    "grace_s": ("number", "seconds between the asking signal and SIGKILL (10)"),
    "stop_signal": ("signal", "the asking signal (TERM)"),
    "setup": (
        "flag",
        "it sets the box up, and is no work: the end of it is not the end of the work",
    ),
    "made_by": (
        "text",
        "job that set the box up: also tell what it wrote and nobody changed since",
    ),
    "logins": ("flag", "tell nothing that a job wrote if a person may have been at work meanwhile"),
    "signal": ("signal", "the asking signal (as given to start)"),
    "offset": ("whole", "first byte of the log to show; negative: from its end"),
    "limit": ("whole", "most bytes of the log to show (65536)"),
    "sample": ("flag", "also GPUs, load, memory and disk"),
    "work": ("path", "the work directory"),
    "key": ("secret", ""),
    "over": ("object", ""),
    "pushed": ("object", ""),
    "older": ("flag", "also what this box has on record as pushed"),
    "since_ns": ("whole", "account for what was written from then on, at the latest"),
    "ours": ("texts", "hash of a script of the tenant's (repeatable)"),
    "alone": ("flag", "nobody but this lease is at work on this box"),
    "elsewhere": ("flag", "also count what was written on the box's other local disks"),
    "late": ("flag", "there, also what changed after the jobs had ended"),
    "demanded": ("texts", "pattern that has to appear: if it does not, the same (repeatable)"),
    "outliving": ("paths", "directory that outlives the box, not looked at there (repeatable)"),
    "kept": (
        "paths",
        "directory that outlives a stop: tell what counts outside of it (repeatable)",
    ),
    "kept_disks": ("paths", "one of these that has to be a disk of its own (repeatable)"),
    "restarted": ("flag", "a stop has emptied the home: what a start writes there is quiet, too"),
    "begin": ("flag", "what is written from now on counts"),
    "roots": ("paths", "further directory to account for, such as ~ (repeatable)"),
    "default_discard": ("flag", "discard well-known caches (true)"),
    "exclude": ("paths", "directory not to account for (repeatable)"),
    "quiet_s": ("number", "only what was not changed for so many seconds (5)"),
    "limit_bytes": ("whole", "read no more than so many bytes, but always one file"),
    "limit_s": ("number", "begin to read no further file after so many seconds"),
    "share": ("number", "work and read at most this part of the time, of one core (0.25)"),
    "done": (
        "texts",
        "name of what a job writes last, beside or in a checkpoint: *.done (repeatable)",
    ),
    "checkpoints": ("objects", ""),
    "hash": ("text", "`recalled`: only hashes that are known from before"),
    "running": ("text", "`listed`: what jobs that still run have written so far is listed, too"),
    "named": ("whole", "name so many of the files that nobody has claimed (20)"),
    "bring_bytes": (
        "whole",
        "list what nobody has claimed as files to fetch, the smallest first, up to so many bytes",
    ),
    "ever": ("flag", "account for what was there before any launch, too"),
    "rented_ns": ("whole", "account for what was written from then on, too (ns since 1970)"),
    "quiet": (
        "texts",
        "~/path of the image's own, not accounted for before the first launch (repeatable)",
    ),
    "paths": ("texts", "path below the work directory (repeatable)"),
    "files": ("objects", ""),
    "stale": ("texts", "name of an incoming file to be taken away (repeatable)"),
    "deadline": (
        "number",
        "when to stop every job, in seconds since 1970; without it, tell how the guard stands",
    ),
    "left_s": ("number", "seconds until then, where the clocks differ"),
    "idle_s": ("number", "stop so long after the last job ended and the tenant looked"),
    "when_done": (
        "object",
        "after_s, failed_s, not_before_s: stop so long after the last job, once the store has a copy",
    ),
    "end": ("object", ""),
    "store": ("object", ""),
    "seal": ("object", ""),
    "copy_s": ("number", "most seconds for the copy to the store (1800)"),
    "scripts": ("object", ""),
    "notice": ("object", ""),
    "rehearsed": ("flag", "the tenant's ledger is a rehearsal's, and time may leap with it"),
    "disarm": ("flag", "let go of the deadline"),
    "tenant": ("flag", "the tenant is looking: touch the heartbeat"),
    "back_in_s": ("number", "who asks looks after the lease, and is back in so many seconds"),
    "tells_s": ("number", "of what takes long, say so often how much is done, a line each"),
}


def checked_arguments(verb: str, arguments: object) -> dict:
    """Return the arguments in the types that the verb needs: paths as real paths in bytes, signals as numbers.

    Raises:
        Refusal: BAD_REQUEST: an argument is unknown, missing, or of the wrong type.
    """
    names = {name.rstrip("!"): name for name in (TAKES[verb] + " tenant back_in_s tells_s").split()}
    if not isinstance(arguments, dict) or not set(arguments) <= set(names):
        raise Refusal(
            "BAD_REQUEST", "%s takes one JSON object of: %s" % (verb, " ".join(names.values()))
        )
    given = {name: value for name, value in arguments.items() if value is not None}
    missing = [name for name, marked in names.items() if marked.endswith("!") and name not in given]
    if missing:
        raise Refusal("BAD_REQUEST", "%s needs %s" % (verb, ", ".join(missing)))
    checked = {}
    for name, value in given.items():
        try:
            checked[name] = parse_value(FIELDS[name][0], value)
        except (ValueError, KeyError) as error:
            # these values are not repeated in the message, because they may be secret
            detail = "" if name in ("env", "key") else ": %s" % error
            raise Refusal(
                "BAD_REQUEST", "%s is not a proper %s%s" % (name, FIELDS[name][0], detail)
            ) from None
    return checked


def parse_value(kind: str, value: object) -> object:
    if kind in ("texts", "paths") and isinstance(value, list):
        return [parse_value(kind[:-1], item) for item in value]
    if kind == "env" and isinstance(value, dict):
        if any(not name or "=" in name for name in value):
            raise ValueError
        return {
            parse_value("text", name): parse_value("text", text) for name, text in value.items()
        }
    if kind == "secret" and isinstance(value, str) and value:
        return value
    if kind in ("text", "path", "signal") and isinstance(value, str) and "\0" not in value:
        if kind == "text":
            return value
        if kind == "path" and value and b"\0" not in unescape_path(value):
            return os.path.realpath(os.path.expanduser(unescape_path(value)))
        if kind == "signal":
            import signal

            return int(signal.Signals["SIG" + value.upper().replace("SIG", "", 1)])
    if kind == "flag" and isinstance(value, bool):
        return value
    if kind == "object" and isinstance(value, dict):
        return value
    if kind == "objects" and isinstance(value, list):
        return [parse_value("object", item) for item in value]
    if kind == "whole" and type(value) is int:
        return value
    if kind == "number" and type(value) in NUMBER and 0 <= value < 1e12:  # type: ignore[operator]
        return value
    raise ValueError("it is %s" % ascii(value)[:80])
'''


# --- verbs ---------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.verbs"] = r'''
"""The verbs of the caretaker, and the part that has the function for each."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PART_OF = {  # this part has a function with the verb's name
    "start": "launch",
    "status": "status",
    "tail": "status",
    "stop": "stop",
    "manifest": "seal",
    "patterns": "pattern_bounds",
    "complete": "complete",
    "prune": "prune",
    "index": "push",
    "receive": "push",
    "place": "push",
    "guard": "guard",
}

LOOKS = {"status", "tail", "manifest", "patterns", "complete", "index"}
"""These may end at any moment: they begin no process, and remove and replace no file of a job."""


def function_of(verb: str) -> Callable[[str, dict], dict]:
    """Return the function that carries out that verb. Its part is compiled only now, with the parts that it imports."""
    part = __import__("box_scripts.caretaker." + PART_OF[verb], fromlist=[verb])
    function: Callable[[str, dict], dict] = getattr(part, verb)
    return function
'''


# --- by_hand -------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.by_hand"] = r'''
"""Reads a call by hand: a verb with command-line flags in place of one JSON object."""

from __future__ import annotations

import argparse
import os

from box_scripts.caretaker.paths import escape_path
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.requests import FIELDS, TAKES
from box_scripts.caretaker.verbs import PART_OF, function_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def by_hand(argv: list[str], about: str | None) -> tuple[str, str, object]:
    """Return the home, the verb and the arguments. The arguments are None if they come as JSON on stdin."""

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise Refusal("BAD_REQUEST", "%s; see %s --help" % (message, self.prog))

    parser = Parser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", required=True, help="where records and logs are kept")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in PART_OF:
        summary = (function_of(verb).__doc__ or "").splitlines()[0]
        flags = verbs.add_parser(verb, help=summary, description=summary)
        flags.add_argument(
            "--request", choices=["-"], help="read all arguments from stdin, as one JSON object"
        )
        for name in (TAKES[verb] + " tenant back_in_s tells_s").replace("!", "").split():
            kind, text = FIELDS[name]
            flag = "--" + (name[:-1] if name in ("artifacts", "roots", "paths") else name).replace(
                "_", "-"
            )
            if name == "argv":
                flags.add_argument(
                    "argv", nargs="*", help="-- and then the command", metavar="COMMAND"
                )
            elif name == "default_discard":
                flags.add_argument(
                    "--no-default-discard", dest=name, action="store_false", default=None
                )
            elif kind == "flag":
                flags.add_argument(flag, dest=name, action="store_true", default=None, help=text)
            elif kind not in ("env", "object", "objects", "secret"):
                typed = {"number": float, "whole": int}.get(kind, str)
                action = "append" if kind in ("texts", "paths") else "store"
                flags.add_argument(flag, dest=name, action=action, type=typed, help=text)
    given = vars(parser.parse_args(argv))
    home, verb, source = given.pop("home"), given.pop("verb"), given.pop("request")
    if source:
        return home, verb, None
    for name, value in given.items():
        literal = FIELDS[name][0] in ("path", "paths") or name == "paths"
        plain = escape_path if literal else lambda raw: raw.decode("utf-8", "surrogateescape")
        if isinstance(value, str):
            given[name] = plain(os.fsencode(value))
        elif isinstance(value, list):
            given[name] = [plain(os.fsencode(item)) for item in value]
    return home, verb, given
'''


# --- guard_clock ---------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.guard_clock"] = r'''
"""Measures the time that passes on this box. In a rehearsal, the rehearsal's clock decides, which may jump ahead."""

from __future__ import annotations

import json
import os
import time

from box_scripts.caretaker.listening import rehearsal_marker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LEAP_LOOK_S = 0.05


def elapsed_s() -> float:
    """Return the seconds by a clock that nobody can set. It also runs while the machine sleeps."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return time.monotonic()


class GuardClock:
    """Measures how many seconds have passed, and waits.

    In a rehearsal, the clock may jump (leap). Jumps count only if the tenant says that this is a rehearsal. A file in
    the login home then says where the jumps are written. A job can write that file, but on a real box, the tenant never
    says that it is a rehearsal.
    """

    def __init__(self, home: str, rehearsed: bool) -> None:
        self._leaps, self._dues = _told_at(home) if rehearsed else ("", "")
        self._leapt = 0.0
        self._at_round = 0.0

    @property
    def leaps(self) -> bool:
        """Whether the time on this box may jump, because it is a rehearsal's."""
        return bool(self._leaps)

    def elapsed_s(self) -> float:
        """Return the seconds like the function of that name, plus all jumps so far."""
        return elapsed_s() + self._leaps_so_far()

    def begin_round(self) -> float:
        """Return the same as `elapsed_s`. From now on, a jump ends the next wait."""
        self._at_round = self._leaps_so_far()
        return elapsed_s() + self._at_round

    def wait(
        self, listen: Callable[[float], object], seconds: float, seen: float, due: float | None
    ) -> object:
        """Wait for `seconds`, or until `listen` returns something, or until time jumps. Return what `listen` returned.

        `seen` and `due` are for the rehearsal: the time that we have seen, and the time at which something must be done
        here. The rehearsal's clock stops at `due`.
        """
        if not self._leaps:
            return listen(seconds)
        self._tell(seen, due)
        until = time.monotonic() + seconds
        while True:
            left_s = until - time.monotonic()
            if left_s <= 0 or self._leaps_so_far() != self._at_round:
                return None
            said = listen(min(LEAP_LOOK_S, left_s))
            if said:
                return said

    def _leaps_so_far(self) -> float:
        if self._leaps:
            try:
                with open(self._leaps, encoding="utf-8") as file:
                    said = float(file.read())
            except (OSError, ValueError):  # the file is being replaced, or the rehearsal is over
                return self._leapt
            if self._leapt < said < float("inf"):  # time never goes back
                self._leapt = said
        return self._leapt

    def _tell(self, seen: float, due: float | None) -> None:
        try:
            with open(self._dues + ".new", "w", encoding="utf-8") as file:
                json.dump({"pid": os.getpid(), "seen": seen, "due": due}, file)
            os.replace(self._dues + ".new", self._dues)
        except OSError:
            pass  # the rehearsal is over


def _told_at(home: str) -> tuple[str, str]:
    """Return the file with the rehearsal's jumps, and the file for what is due here. Empty if this is no rehearsal."""
    marker = rehearsal_marker(home)
    if marker is None:
        return "", ""
    try:
        with open(marker, encoding="utf-8") as file:
            said = json.load(file)
        leaps, dues = said["leaps"], said["dues"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return "", ""
    known = isinstance(leaps, str) and isinstance(dues, str)
    return (leaps, dues) if known and os.path.isabs(leaps) and os.path.isabs(dues) else ("", "")
'''


# --- next_look -----------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.next_look"] = r'''
"""Records when the watchdog that looks after the lease will ask again. Until then, the guard leaves the end to it."""

from __future__ import annotations

import os
import time


def note_next_look(home: str, back_in_s: float) -> None:
    """Record that a watchdog that looks after the lease will ask again within so many seconds."""
    try:
        with open(os.path.join(home, "next-look"), "w", encoding="utf-8") as file:
            file.write("%.1f\n" % back_in_s)
    except OSError:  # the disk is full; then the guard does not wait
        pass


class NextLook:
    """The time until which a watchdog is expected to ask again, by a clock that nobody can set."""

    def __init__(self, home: str, now: float) -> None:
        self._path = os.path.join(home, "next-look")
        self._noted_ns = 0
        self.until = 0.0
        self.hear(now)
        # This was recorded before the guard began. Only the wall clock shows how long before.
        self.until -= max(0.0, time.time() - self._noted_ns / 1e9)

    def hear(self, now: float) -> None:
        """Read the record, if it has changed since the last call. Its seconds count from `now`."""
        try:
            noted_ns = os.stat(self._path).st_mtime_ns
            if noted_ns == self._noted_ns:
                return
            with open(self._path, encoding="utf-8") as file:
                back_in_s = float(file.read(32))
        except (OSError, ValueError):  # there is no record, or it is being written
            return
        self._noted_ns = noted_ns
        if 0 <= back_in_s < 1e6:
            self.until = now + back_in_s
'''


# --- presence ------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.presence"] = r'''
"""Finds out whether somebody is logged in and active: at a terminal, or over another connection."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.processes import living_processes

TERMINAL_S = 1800.0
"""A terminal counts as in use for this many seconds after its last input or output.

If a person's computer dies, its terminals stay open here for hours. So an open terminal alone is not enough.
"""


class Presence:
    """Watches the processes of logins on this box, and whether they did something between two checks."""

    def __init__(self, home: str) -> None:
        self._job = os.fsencode(os.path.realpath(home))
        self._login = os.fsencode(os.path.realpath(os.path.expanduser("~")))
        self._door = os.environb.get(b"SSH_CONNECTION", b"").split()[2:]
        self._entered: dict = {}
        self._terminals: dict = {}
        self._looked = False

    def was_somebody_here(self, now: float) -> bool:
        """Whether somebody was active since the last call. At the first call, this is unknown, and counts as yes.

        `now` is by a clock that nobody can set.
        """
        entered, terminals = self._entering()
        moved, first = entered != self._entered, not self._looked
        self._entered, self._looked = entered, True
        return self._at_one_of(terminals, now) or moved or first

    def _entering(self) -> tuple[dict, set[int]]:
        """Return the processes of logins that belong to no job, each with its CPU time, and their terminals.

        This process and its children are left out.
        """
        found, terminals, table = {}, set(), living_processes()
        for pid, process in table.items():
            above = pid
            while above in table and above != os.getpid():
                above = table[above].parent
            if above == os.getpid():
                continue
            try:
                with open("/proc/%d/environ" % pid, "rb") as file:
                    lines = file.read().split(b"\0")
                with open("/proc/%d/stat" % pid, "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            named = dict(line.partition(b"=")[::2] for line in lines if b"=" in line)
            door = named.get(b"SSH_CONNECTION", b"").split()[2:]
            is_ours = named.get(b"GPU_TENANT_CARETAKER") == self._job or len(fields) < 13
            is_here = named.get(b"HOME") == self._login or door == self._door
            if not door or is_ours or not is_here:
                continue
            found[pid, process.ticks] = (fields[11], fields[12])
            device = int(fields[4])
            major, minor = device >> 8 & 0xFFF, device & 0xFF | device >> 12 & 0xFFF00
            if 136 <= major <= 143:
                terminals.add((major - 136) * 256 + minor)
        return found, terminals

    def _at_one_of(self, terminals: set[int], now: float) -> bool:
        """Whether one of the terminals had input or output in the last `TERMINAL_S` seconds.

        At the first check of a terminal, the wall clock decides. After that, a change of the terminal's time is enough.
        """
        known, self._terminals = self._terminals, {}
        for number in terminals:
            try:
                held = os.stat("/dev/pts/%d" % number)
            except OSError:
                continue
            stamp = max(held.st_atime, held.st_mtime)
            if number not in known:
                at = now - min(TERMINAL_S, max(0.0, time.time() - stamp))
            else:
                at = known[number][1] if known[number][0] == stamp else now
            self._terminals[number] = (stamp, at)
        return any(now - at < TERMINAL_S for _, at in self._terminals.values())
'''


# --- guarding ------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.guarding"] = r'''
"""The guard: the process that enforces the deadline on the box."""

from __future__ import annotations

import json
import os
import sys
import time

from box_scripts.caretaker.detached import spawn_detached
from box_scripts.caretaker.guard_clock import GuardClock, elapsed_s
from box_scripts.caretaker.job_state import observe
from box_scripts.caretaker.jobs import LIVE, all_jobs
from box_scripts.caretaker.listening import Listener
from box_scripts.caretaker.next_look import NextLook
from box_scripts.caretaker.notice import record_notice
from box_scripts.caretaker.presence import Presence
from box_scripts.caretaker.processes import boot_id, output_of, restarted_since, ticks_of
from box_scripts.caretaker.records import (
    GUARD,
    Locked,
    read_record,
    write_record_if_possible,
)
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.requests import checked_arguments
from box_scripts.caretaker.stop import KILL_LIMIT_S, end_jobs, record_ending, signal_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess

    from box_scripts.caretaker.job_state import Observed
    from box_scripts.caretaker.jobs import Job

LOOK_S, LEAPING_LOOK_S = 60.0, 600.0
"""The guard checks what the box does this often. In a rehearsal, time jumps, so it checks less often."""
GUARD_GRACE_S, COPY_S = 60.0, 1800.0
NOTICE_S, LATE_S, DELIVERY_S = 30.0, 120.0, 2.0
COPY_AGAIN_S, QUIET_S = 5.0, 1.0


def start_holder(home: str, request: dict, wanted: dict) -> dict:
    """Start the guard as a detached process, and return its record."""
    left_s = request.get("left_s", request["deadline"] - time.time())
    clock = GuardClock(home, request.get("rehearsed") is True)
    fires, held = clock.elapsed_s() + left_s, dict(request)
    if "store" in request:
        held["seal"] = checked_arguments("manifest", request.get("seal"))
    look = (request.get("end") or {}).get("look")
    held["look"] = checked_arguments("manifest", look) if look else None
    places = dict(request.get("scripts") or {})
    held["scripts"] = {name: os.path.realpath(places[name]) for name in places}
    record = dict(wanted, state="armed", boot_id=boot_id(), armed_at=time.time())
    record["store"] = "held" if "store" in request else None
    told, tell = os.pipe()

    def body() -> None:
        mine = dict(record, pid=os.getpid(), start_ticks=ticks_of(os.getpid()))
        os.write(tell, b"%d %d" % (mine["pid"], mine["start_ticks"]))
        os.close(tell)
        guarding = Guarding(home, held, mine, fires)
        while guarding.holds() and not guarding.ends():
            pass

    spawn_detached(body, {tell})
    os.close(tell)
    with os.fdopen(told, "rb") as file:
        pid, ticks = file.read().split()
    return dict(record, pid=int(pid), start_ticks=int(ticks))


def states_that_count(work: list[tuple[str, Observed | None]]) -> set[str]:
    """Return the states of these jobs. A job that did not finish is left out if another job was launched after its end.

    If a job ended because the box was stopped, it has no record of its end. Then it had ended when the box ran again.
    """
    begun = [seen for _, seen in work if seen is not None and seen.started]
    newest = max(begun, key=lambda seen: seen.started["started_at"], default=None)
    return {
        state
        for state, seen in work
        if state not in ("failed", "killed", "stopped") or not _is_answered(seen, newest)
    }


def _is_answered(seen: Observed | None, newest: Observed | None) -> bool:
    """Whether that job had ended when the newest job was started."""
    if seen is None or newest is None or seen is newest:
        return False
    if seen.end:
        return bool(seen.end["ended_at"] < newest.started["started_at"])
    return bool(restarted_since(seen.started)) and not restarted_since(newest.started)


class Guarding:
    """What the guard's process does. It keeps to its request, even if its record on the disk is lost."""

    def __init__(self, home: str, request: dict, record: dict, fires: float) -> None:
        self._home, self._request, self._record, self._fires = home, request, record, fires
        self._path = os.path.join(home, "guard.json")
        self._clock = GuardClock(home, request.get("rehearsed") is True)
        self._look_s = LEAPING_LOOK_S if self._clock.leaps else LOOK_S
        self._word = ["--rehearsed"] if self._clock.leaps else []
        self._quiet: tuple = ()
        self._work: set[str] = set()  # the states of all jobs except setups
        self._quiet_since = self._looked_at = self._clock.elapsed_s()
        self._look: object = None
        self._presence = Presence(home)
        self._next_look = NextLook(home, self._clock.elapsed_s())
        self._done_from = self._clock.elapsed_s() + float(
            (request.get("when_done") or {}).get("not_before_s") or 0
        )
        self._copies_wait_s = LOOK_S
        self._notice = request.get("notice") or {}
        self._listener = Listener(home, bool(self._notice.get("metadata")))
        self._is_heeded = False
        self._ready: dict = {}  # scripts that were started and wait for their request

    def holds(self) -> bool:
        """Wait until the deadline has passed, the work is done, or the box was idle too long. Then return True.

        Return False if this guard must end before that: another guard took over, or the system shuts down.
        Time is counted from the start of the guard. So setting the box's clock does not make the lease shorter or
        longer.
        """
        idle_s = self._request.get("idle_s")
        while True:
            seen = self._clock.begin_round()
            why = "deadline" if seen >= self._fires else None
            if why is None and idle_s is not None and self._quiet_s() >= idle_s:
                if self._is_judged_idle(idle_s):
                    why = "idle"
                else:  # no job of ours runs, but somebody works here
                    self._quiet_since = self._clock.elapsed_s()
            if why is None and self._is_done():
                why = "done"
            more = {"state": "fired", "why": why, "fired_at": time.time()} if why else {}
            if not self._notes(**more):
                return False
            if why:
                return True
            self._take_a_look()
            shortest_s = min(
                idle_s or 8.0, (self._request.get("when_done") or {}).get("after_s", 8.0)
            )
            most_s = min(2.0, shortest_s / 4)
            wait_s = min(most_s, max(0.05, self._fires - self._clock.elapsed_s()))
            source = self._clock.wait(self._listens, wait_s, seen, self._due(seen))
            if source and not self._heeds(str(source)):
                return False

    def _listens(self, seconds: float) -> str | None:
        self._next_look.hear(self._clock.elapsed_s())
        return self._listener.waits(seconds)

    def _due(self, seen: float) -> float | None:
        """Return when the guard must act next, if nothing happens before. None if it need not act any more."""
        idle_s, done = self._request.get("idle_s"), self._request.get("when_done")
        dues = [self._fires]
        if idle_s is not None:
            dues += [self._quiet_since + idle_s, self._looked_at]
        if done:
            waits = [done["after_s"], done.get("failed_s")]
            dues += [max(self._done_from, self._quiet_since + s) for s in waits if s is not None]
        return min((due for due in dues if due > seen), default=None)

    def _notes(self, **more: object) -> bool:
        """Record `more`, if possible. Return False if another guard has taken over, or the home directory is gone."""
        try:
            with Locked(self._home, "guard.lock"):
                if not self._is_ours():
                    return False
                if more:
                    self._record.update(more)
                    write_record_if_possible(self._path, self._record)
        except (Refusal, OSError):  # go on guarding even if the record cannot be read
            return os.path.isdir(self._home)
        return True

    def _is_ours(self) -> bool:
        """Whether the record is that of this guard. If the record is lost or damaged, write it again."""
        try:
            latest = read_record(self._path, GUARD)
        except Refusal:
            latest = None
        if latest is None:
            write_record_if_possible(self._path, self._record)
            return True
        return bool(latest["pid"] == os.getpid())

    def _quiet_s(self) -> float:
        """Return for how many seconds no job has run and nobody has asked for the state. 0 before the first job."""
        states, work, heartbeat = [], [], 0
        for job in all_jobs(self._home):
            state, is_work, seen_job = "running", True, None
            try:
                seen_job = observe(job)
                state = seen_job.state
                is_work = state == "absent" or not job.spec().get("setup")
            except (Refusal, OSError):  # an unknown state counts as running
                pass
            states.append(state)
            if is_work:
                work.append((state, seen_job))
        self._work = states_that_count(work)
        try:
            heartbeat = os.stat(os.path.join(self._home, "heartbeat")).st_mtime_ns
        except OSError:
            pass
        seen = (tuple(states), heartbeat)
        if seen != self._quiet or set(LIVE) & set(states) or set(states) <= {"absent"}:
            self._quiet, self._quiet_since = seen, self._clock.elapsed_s()
        return self._clock.elapsed_s() - self._quiet_since

    def _is_done(self) -> bool:
        """Whether all jobs have ended, nobody has been here since, and all artifacts were copied to the store.

        The guard copies them here. If somebody asks for the state or a job starts meanwhile, the work is not done.
        """
        done, end = self._request.get("when_done"), self._request.get("end") or {}
        if not done or "store" not in self._request:
            return False
        # Before the deadline, only a stop that keeps the disk is allowed.
        if end.get("on") != "keep":
            return False
        quiet_s = self._quiet_s()
        if quiet_s > 0 and self._presence.was_somebody_here(self._clock.elapsed_s()):
            self._quiet_since = self._clock.elapsed_s()
            return False
        after_s = done["after_s"]
        if self._work <= {
            "absent"
        }:  # no job except setups was started yet, so the work is still to come
            return False
        if self._work - {"finished", "absent"}:
            after_s = done.get("failed_s")
        if after_s is None or quiet_s < after_s or self._clock.elapsed_s() < self._done_from:
            return False
        heard = self._quiet
        try:
            kept = self._copy_to_store()
        except Exception as error:  # noqa: BLE001  the deadline must be enforced even if copying fails
            kept = {"ok": False, "message": type(error).__name__}
        whole = kept["ok"] and kept["kept"] == kept["files"]
        # All artifacts are in the store. But the stop may lose other files that nobody has discarded.
        if whole and self._loses():
            whole = False
        if not whole:
            self._done_from = self._clock.elapsed_s() + self._copies_wait_s
            self._copies_wait_s = min(2 * self._copies_wait_s, 3600.0)
        self._notes(kept=kept)
        self._quiet_s()
        return bool(
            whole
            and self._quiet == heard
            and not self._presence.was_somebody_here(self._clock.elapsed_s())
        )

    def _is_judged_idle(self, idle_s: float) -> bool:
        """Whether the script `activity`, which judges all of the user's processes, says idle. True without a script."""
        script = self._request["scripts"].get("activity")
        if script is None or not os.path.isfile(script):
            return True
        try:
            said = json.loads(
                output_of(
                    sys.executable, "-I", "-S", script, "judge", "--home", self._home, *self._word
                )
            )
            return bool(said["phase"] == "idle" and said["idle_s"] >= idle_s - 2 * self._look_s)
        except (ValueError, KeyError, TypeError):  # without a clear answer, the box is not idle
            return False

    def _take_a_look(self) -> None:
        """Once a minute, start the script `activity` to note what the box does. Wait for it only in a rehearsal."""
        import subprocess

        script = self._request["scripts"].get("activity")
        if script is None or self._clock.elapsed_s() < self._looked_at:
            return
        self._looked_at = self._clock.elapsed_s() + self._look_s
        null = subprocess.DEVNULL
        try:
            if self._look is not None and self._look.poll() is None:  # type: ignore[attr-defined]
                self._look.kill()  # type: ignore[attr-defined]
            if os.path.isfile(script):
                argv = [sys.executable, "-I", "-S", script, "look", "--home", self._home]
                argv += self._word
                self._look = subprocess.Popen(argv, stdin=null, stdout=null, stderr=null)
                if self._clock.leaps:  # the script must end before the rehearsal's time jumps
                    self._look.wait(LOOK_S)
        except (OSError, subprocess.TimeoutExpired):
            pass

    def _live_jobs(
        self, why: str, since: float = float("inf")
    ) -> tuple[list[tuple[Job, int, float]], dict]:
        """Return each living job with its stop signal and its time to end, and the problems. Record why each job ends.

        Include jobs that failed or were killed after `since`: they may have been ended by the same shutdown.
        """
        asked, problems = [], {}
        for job in all_jobs(self._home):
            signum, grace_s = 15, 10.0
            try:
                seen = observe(job)
                ended_at = (seen.end or {}).get("ended_at", 0.0)
                if seen.state not in LIVE and (seen.state == "finished" or ended_at < since):
                    continue
                spec = job.spec()
                signum, grace_s = spec["stop_signal"], spec["grace_s"]
                record_ending(job, why)
            except (Refusal, OSError) as error:
                problems[job.name] = str(error)
            asked.append((job, self._request.get("signal", signum), grace_s))
        return asked, problems

    def _heeds(self, source: str) -> bool:
        """Save what can be saved, because the platform takes the box. Return whether to go on guarding.

        Each job is asked to end by its own signal, and gets all the time that there is: killing a job while it saves
        would lose the files. Complete artifacts are copied to the store.
        """
        if self._is_heeded and source == "metadata":
            return True
        if not self._notes(state="fired", why="preempted", fired_at=time.time()):
            return False
        if not self._is_heeded:
            self._is_heeded = True
            self._saves(source)
        # If the system shuts down, this process ends, too: a container ends only after its last process.
        return source != "shutdown"

    def _saves(self, source: str) -> None:
        import signal

        within_s = float(self._notice.get("within_s") or NOTICE_S)
        since = time.time() - DELIVERY_S if source == "shutdown" else float("inf")
        asked, problems = self._live_jobs("preempted", since)
        if source == "shutdown":  # then the system has already sent SIGTERM to every process
            asked = [
                (job, signal.SIGCONT if signum == signal.SIGTERM else signum, grace_s)
                for job, signum, grace_s in asked
            ]
        polls = {"polls": self._listener.polls, "unclear": self._listener.unclear}
        names = [job.name for job, _, _ in asked]
        record_notice(self._home, source, jobs=names, within_s=within_s, **polls)
        never = [(job, signum, float("inf")) for job, signum, _ in asked]
        gives_up = elapsed_s() + within_s + LATE_S
        told: set = set()
        copying, copy_at = 0, elapsed_s()
        alive = signal_jobs(never, told, 0.0)
        if "store" in self._request:
            self._gets_ready_to_copy()
        while alive and elapsed_s() < gives_up:
            if "store" in self._request and elapsed_s() >= copy_at:
                if copying == 0:
                    copying = self._begins_to_copy()
                elif os.waitpid(copying, os.WNOHANG)[0]:
                    copying, copy_at = 0, elapsed_s() + COPY_AGAIN_S
            # Not more often, because finding the jobs' processes reads files of every process.
            time.sleep(0.25)
            alive = signal_jobs(never, told, 0.0)
        if copying:
            _end_group(copying)
        record_notice(self._home, source, ended_at=time.time(), left=sorted(p.pid for p in alive))
        if "store" in self._request:
            try:
                kept = self._copy_to_store(whole=not alive)
            except Exception as error:  # noqa: BLE001  the deadline must be enforced even if copying fails
                kept = {"ok": False, "message": type(error).__name__}
            record_notice(self._home, source, kept=kept)
        for process in self._ready.values():
            _end_at_once(process)
        self._ready.clear()
        self._notes(stopped=names, problems=problems)

    def _gets_ready_to_copy(self) -> None:
        """Start the script that copies, and load the module that seals, while the jobs still save.

        On a busy box both take a second or more, and after the jobs have saved, there may be no second to lose.
        """
        from box_scripts.caretaker.seal import manifest  # noqa: F401  loaded now, called later

        try:
            self._ready["keep", "keep"] = self._begins("keep", "keep")
        except OSError:  # then it is started later, when it is needed
            pass

    def _begins_to_copy(self) -> int:
        """Start a process, in its own group, that copies complete artifacts while jobs save. Return its number."""
        child = os.fork()
        if child == 0:
            try:
                os.setpgid(0, 0)
                self._ready.clear()  # these scripts wait for a request of our parent
                self._copy_to_store(whole=False)
            finally:
                os._exit(0)
        return child

    def ends(self) -> bool:
        """Ask the jobs to end, copy the artifacts to the store, and try to end the box's bill.

        Return False if the reason was only that the work was done, and a new job runs now. Then the guard goes on.
        """
        if self._record.get("why") == "done":
            self._quiet_s()
            if set(LIVE) & set(self._quiet[0]):
                return not self._notes(state="armed", why=None)
            self._ends_the_bill()
            return True
        most_s = self._request.get("grace_s", GUARD_GRACE_S)
        asked, problems = self._live_jobs("deadline")
        asked = [(job, signum, min(grace_s, most_s)) for job, signum, grace_s in asked]
        left = end_jobs(asked)
        if not self._notes(stopped=[job.name for job, _, _ in asked], left=left, problems=problems):
            return True
        if "store" in self._request:
            try:
                kept = self._copy_to_store()
            except Exception as error:  # noqa: BLE001  the bill must end even if copying fails
                kept = {"ok": False, "message": type(error).__name__}
            self._notes(kept=kept)
        self._ends_the_bill()
        return True

    def _copy_to_store(self, whole: bool = True) -> dict:
        """Copy the artifacts to the store, the newest first, and return the result.

        With `whole`, the box is sealed first. Otherwise jobs may run, and only complete artifacts are copied.
        """
        give_up = time.monotonic() + KILL_LIMIT_S
        while True:
            try:
                entries = self._sealed_entries() if whole else self._complete_entries()
                break
            except (Refusal, OSError) as error:
                if time.monotonic() > give_up:
                    return {"ok": False, "message": str(error)[:300]}
                time.sleep(0.2)
        names = ("name", "at", "size", "sha256")
        entries.sort(key=lambda entry: -entry.get("mtime_ns", 0))
        files = [{n: entry[n] for n in names} for entry in entries if entry["kind"] == "file"]
        if not files and not whole:
            return {"ok": True, "files": 0, "kept": 0, "at": time.time(), "message": ""}
        wanted = {"store": self._request["store"], "files": files}
        said = self._ask("keep", "keep", wanted, self._request.get("copy_s", COPY_S))
        kept, failed = said.get("kept") or [], said.get("failed") or []
        why = said.get("message") or (json.dumps(failed[0]) if failed else "")
        told = {"ok": said.get("ok") is True, "files": len(files), "kept": len(kept)}
        return dict(told, at=time.time(), message=str(why)[:300])

    def _sealed_entries(self) -> list[dict]:
        from box_scripts.caretaker.seal import manifest  # most guards never seal

        entries: list[dict] = manifest(self._home, dict(self._request["seal"]))["entries"]
        return entries

    def _complete_entries(self) -> list[dict]:
        from box_scripts.caretaker.complete import complete

        seal = self._request["seal"]
        asked = {name: seal[name] for name in ("work", "artifacts", "key") if name in seal}
        files: list[dict] = complete(self._home, dict(asked, quiet_s=QUIET_S, share=1.0))["files"]
        return files

    def _ends_the_bill(self) -> None:
        """Ask the platform to end the bill, until this box is gone or another guard has taken over."""
        end = self._request.get("end") or {"kind": "none"}
        if end["kind"] == "none" or "leave" not in self._request["scripts"]:
            self._notes(meter="nothing on this box ends its bill")
            return
        wanted = {name: end[name] for name in ("kind", "command") if name in end}
        wanted["may"] = "terminate" if end.get("on") == "waive" else "stop"
        begins = self._clock.elapsed_s()
        # The owner signed for a loss after the deadline, not for one before it because the box is idle.
        if end.get("on") == "waive":
            begins = max(begins, self._fires)
        begins += float(end.get("after_s") or 0.0)
        left_s = begins - self._clock.elapsed_s()
        if left_s > 0:
            self._notes(meter="runs on until %.0f, as was agreed" % (time.time() + left_s))
        elif self._left_to_others_until(end) > begins:
            self._notes(meter="left to whoever looks after the lease, while they come back")
        while not self._is_time(max(begins, self._left_to_others_until(end))):
            if not self._notes():
                return
        tries, wait_s = 0, 1.0
        while True:
            loses = "" if end.get("on") == "waive" else self._loses()
            if (
                loses
                and "waived_after_s" in end
                and self._clock.elapsed_s() >= self._waived_at(end)
            ):
                wanted["may"], loses = "terminate", ""
            tries += 1
            if loses:
                if not self._notes(meter={"asked": False, "why": loses, "tries": tries}):
                    return
                # Meanwhile, somebody may save or remove these files.
                time.sleep(min(LOOK_S, 2.0**tries))
                continue
            said = self._ask("leave", "end", wanted, 60.0)
            names = ("asked", "how", "status", "why", "message")
            meter = {n: said[n] for n in names if said.get(n) is not None}
            if not self._notes(meter=dict(meter, tries=tries, at=time.time())):
                return
            if said.get("asked"):
                self._listener.lets_go()  # so that the system can shut down without waiting for us
                wait_s = max(wait_s, 30.0)
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, 300.0)
            if not self._notes():
                return

    def _is_time(self, begins: float) -> bool:
        """Whether the time `begins` has come. If not, wait a little."""
        seen = self._clock.begin_round()
        if seen >= begins:
            return True
        self._take_a_look()
        self._clock.wait(time.sleep, min(2.0, max(0.05, begins - seen)), seen, begins)
        return False

    def _left_to_others_until(self, end: dict) -> float:
        """Return until when a watchdog may prove and end the lease itself, before the guard stops the box.

        A teardown is better than a stop, after which the disk still bills. The guard waits as long as the watchdog
        comes back when it said, but no longer than was agreed.
        """
        if self._record.get("why") != "deadline" or end.get("on") != "keep":
            return 0.0
        self._next_look.hear(self._clock.elapsed_s())
        return min(self._next_look.until, self._fires + float(end.get("left_to_others_s") or 0.0))

    def _waived_at(self, end: dict) -> float:
        return self._fires + float(end["waived_after_s"])

    def _loses(self) -> str:
        """Say which files a stop would lose that must be accounted for. Empty if none, or if a stop keeps all disks."""
        look = self._request.get("look")
        if not look:
            return ""
        from box_scripts.caretaker.seal import manifest

        try:
            seen = manifest(self._home, dict(look, hash="recalled", running="listed"))
        except (Refusal, OSError) as error:
            return "whether a stop would lose anything cannot be seen: %s" % str(error)[:300]
        lost = seen["lost_by_stop"]
        if not lost["count"]:
            return ""
        named = ", ".join(one["at"] for one in lost["largest"][:3])
        return "a stop would lose %d file%s, such as %s" % (
            lost["count"],
            "" if lost["count"] == 1 else "s",
            named,
        )

    def _ask(self, script: str, verb: str, request: dict, limit_s: float) -> dict:
        """Run one of our scripts on this box. Return its reply, or a reply that says why there is none."""
        import subprocess

        process = self._ready.pop((script, verb), None)
        try:
            if process is None or process.poll() is not None:
                process = self._begins(script, verb)
            out, _ = process.communicate(json.dumps(request).encode(), timeout=limit_s)
            said = json.loads(out.splitlines()[-1].decode())
        except subprocess.TimeoutExpired:
            _end_at_once(process)
            return {"ok": False, "message": "it did not end within %d s" % limit_s}
        except (OSError, ValueError, IndexError) as error:
            return {
                "ok": False,
                "message": "%s gave no answer: %s" % (script, type(error).__name__),
            }
        return said if isinstance(said, dict) else {"ok": False, "message": "no answer"}

    def _begins(self, script: str, verb: str) -> subprocess.Popen[bytes]:
        """Start one of our scripts, which waits for its request."""
        import subprocess

        path = self._request["scripts"].get(script, "")
        argv = [sys.executable, "-I", "-S", path, verb, "--request", "-"]
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)


def _end_at_once(process: subprocess.Popen[bytes]) -> None:
    """Kill the process, and close its pipes."""
    process.kill()
    process.communicate()


def _end_group(leader: int) -> None:
    """Kill the child and all processes of its group."""
    import signal

    for ends in (os.killpg, os.kill):  # the child may not have made its group yet
        try:
            ends(leader, signal.SIGKILL)
        except OSError:
            pass
    try:
        os.waitpid(leader, 0)
    except ChildProcessError:
        pass
'''


# --- guard ---------------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.guard"] = r'''
"""The verb `guard`: starts a process that enforces the deadline on the box, or reports its state."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.processes import boot_id, ticks_of
from box_scripts.caretaker.records import (
    GUARD,
    NO_GUARD,
    Locked,
    read_record,
    reserve_record,
    write_record,
)
from box_scripts.caretaker.refusal import Refusal

ASKED_OF_A_GUARD = (
    "deadline",
    "grace_s",
    "signal",
    "idle_s",
    "when_done",
    "end",
    "scripts",
    "notice",
    "rehearsed",
)


def guard(home: str, request: dict) -> dict:
    """Start a process that enforces the deadline on the box. Without a deadline, only report the guard's state.

    A new request replaces the earlier one. At the deadline, each job is asked to stop by its own signal. If there is a
    `store`, the artifacts are then copied to it. If there is an `end`, it says how the box ends its own bill.

    With `when_done`, the box also ends its bill before the deadline: some time after the last job has ended, if nobody
    looks after the lease any more, and all artifacts were copied to the store and read back.

    `look` in `end` is set if a stop empties some of the box's disks. It says how to list the files there. The box is
    then stopped only if none of these files must be accounted for. If the owner has signed for their loss, the box is
    stopped in any case `waived_after_s` seconds after the deadline.

    `store` is kept only in the memory of the process. With `notice`, the process also listens for the platform's notice
    that it takes the box back: `metadata` says whether to ask a metadata server, and `within_s` how many seconds
    before the end a notice comes.
    """
    path, already = os.path.join(home, "guard.json"), False
    with Locked(home, "guard.lock"):
        try:
            record = read_record(path, GUARD) or dict(NO_GUARD)
        except Refusal:
            if "deadline" not in request and not request.get("disarm"):
                raise
            record = dict(NO_GUARD)
        if record["state"] == "armed" and not _holds_still(record):
            record["state"] = "not_armed"
        if request.get("disarm"):
            record = dict(NO_GUARD, state="disarmed")
            write_record(path, record)
        elif "deadline" in request:
            wanted = {name: request.get(name) for name in ASKED_OF_A_GUARD}
            already = record["state"] == "armed" and "store" not in request
            already = already and all(record.get(n) == v for n, v in wanted.items())
            if not already:
                from box_scripts.caretaker.guarding import (
                    start_holder,  # which imports most parts
                )

                reserve_record(path)
                record = start_holder(home, request, wanted)
                write_record(path, record)
    return dict(record, already=already, now=time.time())


def _holds_still(record: dict) -> bool:
    ticks: int = record["start_ticks"]
    return record["boot_id"] == boot_id() and ticks_of(record["pid"]) == ticks > 0
'''


# --- for_runner ----------------------------------------------------------------------------------
PARTS["box_scripts.caretaker.for_runner"] = r'''
"""The functions that runner.py uses. It loads the joined script as a module."""

from __future__ import annotations

from box_scripts.caretaker.detached import spawn_detached
from box_scripts.caretaker.disk_room import room_at, what_is_full
from box_scripts.caretaker.job_state import end_reason, observe
from box_scripts.caretaker.jobs import JOB_NAME, LIVE, Job
from box_scripts.caretaker.launch import start
from box_scripts.caretaker.notice import record_notice
from box_scripts.caretaker.paths import escape_path, unescape_path
from box_scripts.caretaker.patterns import Pattern
from box_scripts.caretaker.processes import boot_id, restarted_since, ticks_of
from box_scripts.caretaker.records import (
    GUARD,
    Locked,
    journal_line,
    lock_file,
    read_record,
    reserve_record,
    write_record,
    write_record_if_possible,
)
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.requests import checked_arguments, parse_value
from box_scripts.caretaker.stop import KILL_LIMIT_S, end_jobs, record_ending

__all__ = [
    "GUARD",
    "JOB_NAME",
    "KILL_LIMIT_S",
    "LIVE",
    "Job",
    "Locked",
    "Pattern",
    "Refusal",
    "boot_id",
    "checked_arguments",
    "end_jobs",
    "end_reason",
    "escape_path",
    "journal_line",
    "lock_file",
    "observe",
    "parse_value",
    "read_record",
    "record_ending",
    "record_notice",
    "reserve_record",
    "restarted_since",
    "room_at",
    "spawn_detached",
    "start",
    "ticks_of",
    "unescape_path",
    "what_is_full",
    "write_record",
    "write_record_if_possible",
]
'''


# --- __main__ ------------------------------------------------------------------------------------
import errno
import json
import os
import sys

from box_scripts.caretaker.progress import TELLING, end_with_asker
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.requests import checked_arguments
from box_scripts.caretaker.verbs import LOOKS, PART_OF, function_of


def _answer(argv: list[str]) -> dict:
    arguments: object
    if (
        len(argv) == 5
        and argv[0] == "--home"
        and argv[2] in PART_OF
        and argv[3:] == ["--request", "-"]
    ):
        home, verb, arguments = argv[1], argv[2], None
    else:
        from box_scripts.caretaker.by_hand import by_hand  # here, because it is slow to compile

        home, verb, arguments = by_hand(argv, __doc__)
    if arguments is None:
        content = sys.stdin.buffer.readline() if verb == "receive" else sys.stdin.buffer.read()
        try:
            arguments = json.loads(content.decode())
        except ValueError:
            raise Refusal("BAD_REQUEST", "stdin holds no JSON object") from None
    request = checked_arguments(verb, arguments)
    home = os.path.realpath(os.path.expanduser(home))
    os.makedirs(home, 0o700, exist_ok=True)
    TELLING.every_s = request.pop("tells_s", None)
    if request.pop("tenant", False):
        try:
            with open(os.path.join(home, "heartbeat"), "ab") as file:
                os.utime(file.fileno())
        except OSError:  # the disk is full
            pass
    back_in_s = request.pop("back_in_s", None)
    if back_in_s is not None:
        from box_scripts.caretaker.next_look import note_next_look

        note_next_look(home, back_in_s)
    if verb in LOOKS:
        end_with_asker()
    return dict(function_of(verb)(home, request), ok=True)


def main(argv: list[str]) -> int:
    """Write one JSON object to stdout. Return the exit status."""
    try:
        reply = _answer(argv)
    except Refusal as refusal:
        reply = refusal.reply
    except OSError as error:
        code = "DISK_FULL" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "OS_ERROR"
        reply = Refusal(code, ascii(str(error))[1:-1]).reply
    except Exception as error:  # noqa: BLE001  a bug is reported as JSON, too
        reply = Refusal(
            "CARETAKER_BROKE", "%s: %s" % (type(error).__name__, ascii(str(error))[1:-1])
        ).reply
    sys.stdout.buffer.write(json.dumps(reply, separators=(",", ":")).encode() + b"\n")
    sys.stdout.buffer.flush()
    return 0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
