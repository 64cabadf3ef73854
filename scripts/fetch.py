#!/usr/bin/env python3
"""Download one file on the box, to be resumed from the last byte whatever has ended it.

    fetch.py URL DEST [--sha256 H] [--connections N] [--header-file F]

Run it again after any end, also kill -9 or a full disk: it goes on where it stopped, or from the start where
the server's file is another one by now. DEST appears at once and whole, or not at all; until then there are
DEST.partial and DEST.partial.map. An address that holds a signature is a secret: give `-` for URL and
the address on stdin. Secrets in headers go into F, one `Name: value` per line.

Python 3.7 or newer, standard library only. One JSON object on the last line of stdout, progress on stderr;
exit status 0, 1 (not done, with a code: what was fetched is kept unless it says otherwise), 2 (a wrong request).
"""

import argparse
import email.utils
import errno
import fcntl
import hashlib
import http.client
import json
import os
import queue
import random
import re
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

CHUNK_BYTES = 1 << 18
LEAST_PIECE_BYTES = 1 << 20
SYNC_BYTES = 64 << 20
SPARE_BYTES = 16 << 20
SPARE_INODES = 16
MOST_REDIRECTS = 10
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
SIGNATURE = re.compile(
    r"x-amz-|x-goog-|sig|signature|expires|policy|key-pair-id|token|se$|sp$|st$|googleaccessid",
    re.I,
)
AGENT = {"User-Agent": "gpu-tenant-fetch"}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Refusal(Exception):
    """What was asked was not done. `code` tells a program why, and the message tells a person."""

    def __init__(self, code, message, **more):
        super().__init__(message)
        self.reply = dict(more, ok=False, code=code, message=message)


class Passing(Exception):
    """This request failed, and another may not; `after_s` is what the server asks to be waited."""

    def __init__(self, message, after_s=None):
        super().__init__(message)
        self.after_s = after_s


class Changed(Exception):
    """The server's file is not the one whose first bytes are here."""


class Unranged(Exception):
    """The server gives the file as a whole only."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refusal("BAD_REQUEST", message + "; see --help")


def main(argv):
    """The exit status, after one JSON object was written to stdout."""
    try:
        reply = fetch(asked(argv))
    except Refusal as refusal:
        reply = refusal.reply
    except OSError as error:
        reply = disk_trouble(error).reply
    except KeyboardInterrupt:
        reply = Refusal("INTERRUPTED", "interrupted; the same command goes on from here").reply
    except Exception as error:  # noqa: BLE001  a bug too is told as JSON, and not in the words of a library,
        reply = Refusal("FETCH_BROKE", type(error).__name__).reply  # which may quote a header
    print(json.dumps(reply), flush=True)
    sys.stderr.flush()
    # A thread that waits for a dead server must not keep the answer from ending.
    os._exit(0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1)


def disk_trouble(error):
    if error.errno in FULL:
        return Refusal(
            "DISK_FULL",
            "the disk, a quota or a limit on file sizes is full ({}); make room, and the same command goes "
            "on".format(error.strerror),
        )
    return Refusal("OS_ERROR", "{}: {}".format(error.filename or "the disk", error.strerror))


# --- what is asked ------------------------------------------------------------------------------


def asked(argv):
    """The request, checked: an address, a place for the file, a hash in lower case, the headers."""
    parser = Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("url", metavar="URL", help="http or https; - reads it from stdin")
    parser.add_argument("dest", metavar="DEST", help="the file to be; its directory is made")
    parser.add_argument("--sha256", metavar="H", help="what the whole file must hash to")
    parser.add_argument(
        "--connections", type=int, default=4, metavar="N", help="ranges at a time, 1 to 32 (4)"
    )
    parser.add_argument("--header-file", metavar="F", help="headers for the first host alone")
    parser.add_argument(
        "--attempts", type=int, default=8, help="failures in a row before it gives up (8)"
    )
    parser.add_argument(
        "--timeout-s", type=float, default=30.0, help="silence that is a failure (30)"
    )
    parser.add_argument(
        "--backoff-s", type=float, default=1.0, help="the first wait; it doubles (1)"
    )
    parser.add_argument(
        "--max-wait-s", type=float, default=300.0, help="longest wait a server may ask for (300)"
    )
    given = parser.parse_args(argv)
    url = given.url
    if url == "-":
        url = sys.stdin.buffer.readline().decode("ascii", "replace")
    given.url = address(url.strip())
    if given.sha256 is not None:
        given.sha256 = given.sha256.strip().lower()
        if not re.fullmatch("[0-9a-f]{64}", given.sha256):
            raise Refusal("BAD_REQUEST", "--sha256 takes 64 hexadecimal digits")
    if not 1 <= given.connections <= 32 or not 1 <= given.attempts <= 100:
        raise Refusal("BAD_REQUEST", "1 to 32 connections, and 1 to 100 attempts")
    if not (given.timeout_s > 0 and given.backoff_s >= 0 and given.max_wait_s >= 0):
        raise Refusal("BAD_REQUEST", "a time is a number above zero")
    if not given.dest or given.dest.endswith("/") or os.path.isdir(given.dest):
        raise Refusal("BAD_REQUEST", "DEST is the file itself, not its directory")
    given.dest = os.path.realpath(given.dest)
    given.headers = headers_in(given.header_file) if given.header_file else {}
    return given


def address(url):
    """The address, where it can be asked for without giving a secret away."""
    try:
        parts = urllib.parse.urlsplit(url)
        parts.port  # noqa: B018  it raises where it is no number
    except ValueError:
        raise Refusal("BAD_REQUEST", "URL is no address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refusal("BAD_REQUEST", "URL begins with http:// or https:// and names a host")
    if "@" in parts.netloc:
        raise Refusal("BAD_REQUEST", "URL holds a user or a password: use --header-file")
    if re.search(r"[\x00-\x20\x7f-\uffff]", url):
        raise Refusal("BAD_REQUEST", "URL holds a space or a character to be written %XX")
    return urllib.parse.urlunsplit(parts._replace(fragment=""))


def headers_in(path):
    """The headers in the file; no error quotes them."""
    with open(path, "rb") as file:
        lines = file.read(1 << 16).decode("latin-1").splitlines()
    if os.stat(path).st_mode & 0o077:
        note("others on this box may read {}: chmod 600 it".format(path))
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e\t]+?)[ \t]*", line)
        if match is None:
            raise Refusal("BAD_REQUEST", "line {} of {} is no header".format(number, path))
        if match.group(1).lower() in ("range", "if-range", "host", "accept-encoding"):
            raise Refusal("BAD_REQUEST", "line {} sets {}".format(number, match.group(1)))
        found[match.group(1)] = match.group(2)
    return found


def note(text):
    sys.stderr.write("fetch: {}\n".format(text))
    sys.stderr.flush()


# --- one request --------------------------------------------------------------------------------


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        """None: a redirect is answered here, where it is known which headers may go along."""


class Server:
    """The file at its address, asked for in parts."""

    def __init__(self, url, headers, timeout_s):
        self.url, self._headers, self._timeout_s = url, headers, timeout_s
        self._opener = urllib.request.build_opener(Stay)  # with the proxies of the environment

    def open(self, fields):
        """The response to a GET with these headers, redirects followed.

        Raises:
            Refusal: the server said no. Passing: it, or the way to it, failed.
        """
        url, own = self.url, self._headers
        for _ in range(MOST_REDIRECTS):
            request = urllib.request.Request(url, headers=dict(AGENT, **dict(own, **fields)))  # noqa: S310 (http only)
            try:
                return self._opener.open(request, timeout=self._timeout_s)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code in (301, 302, 303, 307, 308):
                        url, own = self._onward(url, own, error.headers.get("Location") or "")
                        continue
                    if error.code == 416:
                        raise Changed(error.headers.get("Content-Range") or "") from None
                    raise refused(error, url) from None
            except urllib.error.URLError as error:
                if isinstance(error.reason, ssl.SSLCertVerificationError):
                    raise Refusal(
                        "TLS_REFUSED", "{} does not prove who it is".format(host(url))
                    ) from None
                raise Passing("{}: {}".format(host(url), error.reason)) from None
            except (OSError, http.client.HTTPException) as error:
                raise Passing("{}: {}".format(host(url), type(error).__name__)) from None
        raise Refusal("REDIRECTS", "more than {} redirects".format(MOST_REDIRECTS))

    def _onward(self, url, own, location):
        there = address(urllib.parse.urljoin(url, location))
        old, new = urllib.parse.urlsplit(url), urllib.parse.urlsplit(there)
        if (old.scheme, new.scheme) == ("https", "http"):
            raise Refusal("REDIRECTS", "it leads from https to http, at {}".format(host(there)))
        same = old.hostname == new.hostname and (
            old.netloc == new.netloc or (old.port in (None, 80) and new.port in (None, 443))
        )
        # Once off its host a header stays away: a stranger could lead it back to a place of his own.
        return there, own if same else {}


def host(url):
    return urllib.parse.urlsplit(url).hostname


def refused(error, url):
    """What the status means: worth another attempt, or not."""
    if error.code in TRANSIENT:
        return Passing("{} answers {}".format(host(url), error.code), retry_after(error.headers))
    hint = {401: "; it wants a header: --header-file", 404: "; there is no such file"}.get(
        error.code, ""
    )
    if error.code == 403:
        hint = "; where the address was signed it may have run out: run it again with a fresh one"
    return Refusal(
        "HTTP_REFUSED", "{} answers {}{}".format(host(url), error.code, hint), status=error.code
    )


def retry_after(headers):
    """The seconds a server asks to be left alone, or None."""
    said = (headers.get("Retry-After") or "").strip()
    if said.isdigit():
        return float(said[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(said).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


class Seen:
    """What a response says of the whole file: size, validators, and whether parts are to be had."""

    def __init__(self, response):
        fields = response.headers
        if (fields.get("Content-Encoding") or "identity").lower() != "identity":
            raise Refusal("ENCODED", "the server packs the file though it was asked not to")
        self.first, self.size = 0, None
        self.ranged = response.status == 206
        if self.ranged:
            match = re.fullmatch(
                r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})", (fields.get("Content-Range") or "").strip()
            )
            if match is None:
                raise Unranged
            self.first, self.size = int(match.group(1)), int(match.group(2))
        elif (fields.get("Content-Length") or "").isdigit():
            self.size = int(fields["Content-Length"])
        etag = (fields.get("ETag") or "").strip()
        # A weak tag promises the same meaning and not the same bytes.
        self.etag = etag if re.fullmatch(r'"[\x21-\x7e]*"', etag) else ""
        self.modified = (fields.get("Last-Modified") or "").strip()[:64]

    @property
    def validator(self):
        return self.etag or self.modified


def look(server):
    """What the server's file is now.

    Raises:
        Passing, Refusal
    """
    try:
        with server.open({"Range": "bytes=0-0"}) as response:
            return Seen(response)
    except Unranged:
        pass
    except Changed:  # 416, as an empty file has no first byte
        pass
    with server.open({}) as response:
        seen = Seen(response)
        seen.ranged = False
        return seen


# --- the file that is to be ---------------------------------------------------------------------


def boot_id():
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class Partial:
    """DEST.partial and the map beside it, which says what of it is there.

    A line of the map is written after the bytes it speaks of, so after a kill it never says too much. After
    a restart of the machine it may, because the system writes in its own order: then only what
    was synced counts.
    """

    ROW = "{:020d} {:020d} {:020d} {:020d}\n"  # first, end, done, synced

    def __init__(self, dest):
        self.path, self.map = dest + ".partial", dest + ".partial.map"
        self.rows, self._head_bytes, self._map_file = [], 0, None
        os.makedirs(os.path.dirname(dest), exist_ok=True)
        self.file = self._held()

    def _held(self):
        """The partial file, open, and nobody else's as long as this process lives."""
        while True:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise Refusal("BUSY", "another fetch is writing " + self.path) from None
            try:
                # Whoever held it before may have made it the finished file in the meantime.
                if os.path.samestat(os.fstat(fd), os.stat(self.path)):
                    return fd
            except FileNotFoundError:
                pass
            os.close(fd)

    def resume(self, identity):
        """How many bytes of the file with this identity are there already, by a map that is whole."""
        try:
            with open(self.map, "rb") as file:
                head = json.loads(file.readline().decode())
                rows = [[int(number) for number in line.split()] for line in file]
            if head["identity"] != identity or os.fstat(self.file).st_size != identity["size"]:
                return 0
            known = 2 if head["boot_id"] == boot_id() else 3
            rows = [[first, end, row[known], row[3]] for row in rows for first, end in [row[:2]]]
        except (OSError, ValueError, RecursionError, KeyError, TypeError, IndexError):
            return 0
        starts, ends = [row[0] for row in rows], [row[1] for row in rows]
        tiled = [*starts, identity["size"]] == [0, *ends]
        if not tiled or not all(r[0] <= r[3] <= r[2] <= r[1] for r in rows):
            return 0
        self.rows = rows
        self._write_map(identity)
        return self.done()

    def begin(self, identity, pieces):
        """It is empty, of its final length, and laid out in so many pieces."""
        size = identity["size"]
        edges = [size * number // pieces for number in range(pieces + 1)]
        self.rows = [[edges[n], edges[n + 1], edges[n], edges[n]] for n in range(pieces)]
        self.empty()
        os.ftruncate(self.file, size)
        self._write_map(identity)

    def empty(self):
        if self._map_file is not None:
            os.close(self._map_file)
            self._map_file = None
        if os.path.exists(self.map):
            os.unlink(self.map)
        os.ftruncate(self.file, 0)

    def _write_map(self, identity):
        head = json.dumps({"identity": identity, "boot_id": boot_id()}).encode() + b"\n"
        self._head_bytes = len(head)
        fd = os.open(self.map + ".new", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        os.write(fd, head + b"".join(self.ROW.format(*row).encode() for row in self.rows))
        os.fsync(fd)
        os.replace(self.map + ".new", self.map)
        self._map_file = fd

    def put(self, number, content):
        """The content is the next of that piece, and the map says so."""
        row = self.rows[number]
        view = memoryview(content)
        while view:
            wrote = os.pwrite(self.file, view, row[2])
            row[2] += wrote
            view = view[wrote:]
        if row[2] - row[3] >= SYNC_BYTES or row[2] == row[1]:
            done = row[2]
            os.fsync(self.file)
            row[3] = done
        line = self.ROW.format(*row).encode()
        os.pwrite(self._map_file, line, self._head_bytes + number * len(line))

    def done(self):
        return sum(row[2] - row[0] for row in self.rows)

    def room(self, size):
        """There is room for the rest, in bytes and in files.

        Raises:
            Refusal: NO_SPACE.
        """
        disk = os.statvfs(os.path.dirname(self.path))
        due = size - os.fstat(self.file).st_blocks * 512 + SPARE_BYTES
        free = disk.f_bavail * disk.f_frsize
        if due > free:
            if not os.fstat(self.file).st_size:
                self.remove()
            raise Refusal(
                "NO_SPACE",
                "{:,} bytes are due, with some to spare, and {:,} are free".format(due, free),
                due_bytes=due,
                free_bytes=free,
            )
        if disk.f_files > 0 and disk.f_favail < SPARE_INODES:
            if not os.fstat(self.file).st_size:
                self.remove()
            raise Refusal(
                "NO_SPACE", "there is no inode left for a file", free_inodes=disk.f_favail
            )

    def remove(self):
        for path in (self.path, self.map, self.map + ".new"):
            if os.path.exists(path):
                os.unlink(path)


# --- the download -------------------------------------------------------------------------------


class Download:
    """The pieces of one file, fetched several at a time into a partial one."""

    def __init__(self, given, server, partial, identity):
        self.given, self.server, self.partial, self.identity = given, server, partial, identity
        self.left, self.stop = queue.Queue(), threading.Event()
        self.trouble, self.alive, self._lock = None, 0, threading.Lock()
        for number, row in enumerate(partial.rows):
            if row[2] < row[1]:
                self.left.put(number)

    def run(self):
        """Every piece is there.

        Raises:
            Refusal, OSError, Changed, Unranged: what ended the first worker that could not go on.
        """
        self.alive = min(self.given.connections, self.left.qsize())
        workers = [threading.Thread(target=self._work, daemon=True) for _ in range(self.alive)]
        for worker in workers:
            worker.start()
        told = time.monotonic()
        while any(worker.is_alive() for worker in workers):
            for worker in workers:
                worker.join(0.05)
            if time.monotonic() - told > 15:
                told = time.monotonic()
                note("{:,} of {:,} bytes".format(self.partial.done(), self.identity["size"]))
            if self.trouble is not None and not isinstance(self.trouble, (Changed, Unranged)):
                break
        # After a change all have ended, so that none writes an old part into the new file.
        if self.trouble is not None:
            raise self.trouble

    def _work(self):
        tries = Tries(self.given, self.stop)
        try:
            while not self.stop.is_set():
                try:
                    number = self.left.get_nowait()
                except queue.Empty:
                    break
                if not self._fetched(number, tries):
                    self.left.put(number)
                    break
        except Exception as trouble:  # noqa: BLE001  it is told by the main thread
            self._end(trouble)
            return
        with self._lock:
            self.alive -= 1
            last = self.alive == 0
        # A server may serve only so many connections: the last one alone decides.
        if last and not self.left.empty() and not self.stop.is_set():
            self._end(tries.given_up())

    def _end(self, trouble):
        with self._lock:
            self.trouble = self.trouble or trouble
        self.stop.set()

    def _fetched(self, number, tries):
        """Whether the piece is there; False where this worker's tries are used up."""
        row = self.partial.rows[number]
        while row[2] < row[1]:
            before = row[2]
            try:
                self._stream(number)
            except Passing as trouble:
                if row[2] - before >= CHUNK_BYTES:
                    tries.failures = 0
                if not tries.again(trouble):
                    return False
            if self.stop.is_set():
                return True
        tries.failures = 0
        return True

    def _stream(self, number):
        row, validator = self.partial.rows[number], self.identity["validator"]
        fields = {"Range": "bytes={}-{}".format(row[2], row[1] - 1)}
        if validator:
            fields["If-Range"] = validator
        with self.server.open(fields) as response:
            seen = Seen(response)
            own = seen.etag if validator.startswith('"') else seen.modified
            other = (
                bool(own and validator and own != validator) or seen.size != self.identity["size"]
            )
            if not seen.ranged and not other:
                raise Unranged
            if other or seen.first != row[2]:
                raise Changed
            while row[2] < row[1]:
                content = received(response, row[1] - row[2])
                if self.stop.is_set():
                    return
                self.partial.put(number, content)


class Tries:
    """How often in a row one worker may fail, and how long it waits in between."""

    def __init__(self, given, stop):
        self.given, self.stop, self.failures, self.last = given, stop, 0, None

    def again(self, trouble):
        """Whether another attempt is due; the wait before it is over.

        Raises:
            Refusal: RETRY_LATER, the server asks for a longer wait than we are willing to.
        """
        self.last = trouble
        self.failures += 1
        if self.failures >= self.given.attempts:
            return False
        wait_s = min(60.0, self.given.backoff_s * 2 ** (self.failures - 1))
        wait_s *= 0.5 + random.random() / 2  # noqa: S311  so that the workers do not come back as one
        if trouble.after_s is not None:
            if trouble.after_s > self.given.max_wait_s:
                raise Refusal(
                    "RETRY_LATER",
                    "the server asks to be left alone for {:.0f} s".format(trouble.after_s),
                    retry_after_s=trouble.after_s,
                )
            wait_s = max(wait_s, trouble.after_s)
        note("{}; again in {:.1f} s".format(trouble, wait_s))
        self.stop.wait(wait_s)
        return True

    def given_up(self):
        return Refusal(
            "GAVE_UP",
            "{} failures in a row, the last: {}; the same command goes on from here".format(
                self.failures, self.last
            ),
        )


def received(response, most):
    """The next bytes of the response, at least one.

    Raises:
        Passing: there are none, though they are due.
    """
    try:
        content = response.read(min(CHUNK_BYTES, most))
    except (OSError, http.client.HTTPException) as error:
        raise Passing("the connection broke: {}".format(type(error).__name__)) from None
    if not content:
        raise Passing("the connection was cut")
    return content


def fetch(given):
    """DEST is there, whole, and its size and hash are what they should be."""
    began = time.monotonic()
    if os.path.lexists(given.dest):
        return existing(given)
    server, tries = (
        Server(given.url, given.headers, given.timeout_s),
        Tries(given, threading.Event()),
    )
    restarts = tries_left = 3
    resumed = 0
    partial = None
    while True:
        seen = persistently(tries, look, server)
        if seen.size is None and given.sha256 is None:
            raise Refusal(
                "NO_SIZE",
                "the server names no size, so only --sha256 could tell a whole file from a cut one",
            )
        partial = partial or Partial(given.dest)
        if os.path.lexists(given.dest):  # by a fetch that ended while we waited for its lock
            partial.remove()
            return existing(given)
        identity = {"address": nameless(given.url), "size": seen.size, "validator": seen.validator}
        try:
            # Without a validator nothing but a hash can tell that two halves are of one file.
            if seen.ranged and seen.size and (seen.validator or given.sha256):
                resumed = partial.resume(identity)
                partial.room(seen.size)
                if not resumed:
                    most = 1 if given.connections == 1 else 4 * given.connections
                    partial.begin(identity, max(1, min(most, seen.size // LEAST_PIECE_BYTES)))
                Download(given, server, partial, identity).run()
                size = seen.size
            else:
                resumed = 0
                size = persistently(tries, whole, server, partial)
            break
        except Unranged:
            note("the server gives no parts any more: from the start, in one piece")
            resumed = 0
            size = persistently(tries, whole, server, partial)
            break
        except Changed:
            restarts -= 1
            partial.empty()
            if not restarts:
                raise Refusal(
                    "CHANGED",
                    "the server's file was another one {} times while it was fetched; what was fetched was "
                    "given up".format(tries_left),
                ) from None
            note("the server's file has changed: from the start")
    return finish(given, partial, size, {"resumed_from": resumed, "began": began})


def persistently(tries, attempt, *of):
    """What the attempt returned in the end."""
    tries.failures = 0
    while True:
        try:
            return attempt(*of)
        except Passing as trouble:
            if not tries.again(trouble):
                raise tries.given_up() from None


def whole(server, partial):
    """How many bytes the file has, all of which are there; for servers that give no parts."""
    with server.open({}) as response:
        seen = Seen(response)
        partial.empty()
        partial.room(seen.size or 0)
        done = 0
        while seen.size is None or done < seen.size:
            try:
                content = received(response, CHUNK_BYTES)
            except Passing:
                if seen.size is None and response.isclosed():
                    break  # the last chunk has come; a cut one is an error of its own
                raise
            view = memoryview(content)
            while view:
                wrote = os.pwrite(partial.file, view, done)
                done, view = done + wrote, view[wrote:]
    return done


def nameless(url):
    """A name for the file at the address, which a new signature does not change, and which tells no secret."""
    parts = urllib.parse.urlsplit(url)
    query = [pair for pair in parts.query.split("&") if not SIGNATURE.match(pair.partition("=")[0])]
    plain = urllib.parse.urlunsplit(parts._replace(query="&".join(query)))
    return hashlib.sha256(plain.encode()).hexdigest()


def existing(given):
    """DEST is the file that was asked for, as its hash says."""
    found = digest(given.dest) if os.path.isfile(given.dest) else None
    if given.sha256 is None or found is None or found != given.sha256:
        why = (
            "no --sha256 says that it is the right one"
            if given.sha256 is None
            else "is another file"
        )
        raise Refusal(
            "EXISTS", "{} is there and {}; move it away first".format(given.dest, why), sha256=found
        )
    size = os.path.getsize(given.dest)
    return {"ok": True, "path": given.dest, "size": size, "sha256": found, "already": True}


def digest(path):
    total = hashlib.sha256()
    with open(path, "rb") as file:
        for content in iter(lambda: file.read(1 << 20), b""):
            total.update(content)
    return total.hexdigest()


def finish(given, partial, size, facts):
    """DEST bears its name, and its bytes and its name are on the disk."""
    os.fsync(partial.file)
    held = os.fstat(partial.file).st_size
    if held != size:
        raise Refusal("SIZE_MISMATCH", "{:,} bytes are here, of {:,}".format(held, size))
    found = digest(partial.path)
    if given.sha256 not in (None, found):
        partial.remove()
        raise Refusal(
            "HASH_MISMATCH",
            "the server's file does not have the hash that was asked for; what was fetched was removed",
            sha256=found,
            size=size,
        )
    os.rename(partial.path, given.dest)
    directory = os.open(os.path.dirname(given.dest), os.O_RDONLY)
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
            raise
    finally:
        os.close(directory)
    partial.remove()
    return {
        "ok": True,
        "path": given.dest,
        "size": size,
        "sha256": found,
        "proved": "sha256" if given.sha256 else "size",
        "already": False,
        "resumed_from": facts["resumed_from"],
        "took_s": round(time.monotonic() - facts["began"], 3),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
