#!/usr/bin/env python3
"""Bring files from the box to the durable store of its owner, and prove there that they arrived.

    keep.py prove --request -
    keep.py keep  --request -

One JSON object on stdin: {"store": {...}, "files": [{"name", "at", "size", "sha256"}]}. The store is
{"kind": "directory", "path"} or {"kind": "s3", "endpoint", "region", "bucket", "prefix", "access_key_id",
"secret_access_key", "session_token" (optional), "addressing": "path" (default) or "virtual"}. Names and places
are text with %XX for what cannot be shown, as a manifest of caretaker.py has them.

prove   writes a small object, reads it back, compares, and deletes that object where the key allows it.
keep    sends each file that the store does not hold yet, reads it back and hashes it. What another version
        left under the same name is moved to .superseded/ first, and never overwritten; what this key may neither
        read nor list is written only where the store itself refuses to replace what is there.

The key comes on stdin alone, is in no file, log or reply, and should be one that was made for this box: it may
write and read below that prefix, and do nothing else. Never give the account's.

Python 3.7 or newer, standard library only. One JSON object on the last line of stdout, progress on stderr;
exit status 0, 1 (something is not kept: `failed` says what and why), 2 (a wrong request).
"""

import argparse
import calendar
import email.utils
import hashlib
import hmac
import http.client
import json
import os
import random
import re
import ssl
import stat
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

CHUNK_BYTES = 1 << 20
PART_BYTES = 64 << 20
MOST_PARTS = 10000
COPY_BYTES = 5 << 30
LONGEST_ANSWER = 1 << 20
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
EMPTY = hashlib.sha256(b"").hexdigest()


class Refusal(Exception):
    """What was asked was not done. `code` tells a program why, and the message tells a person."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.reply = {"ok": False, "code": code, "message": message}


class Passing(Exception):
    """This request failed, but the next may succeed."""


class Absent(Exception):
    """The store has no such object."""


HIDDEN = object()
"""Stands for the size of an object that this key may neither read nor list: it may be there, or not."""
ONLY_NEW = {"If-None-Match": "*"}


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refusal("BAD_REQUEST", message + "; see --help")


def main(argv):
    """The exit status, after one JSON object was written to stdout."""
    try:
        given = asked(argv)
        store, files = requested(given, sys.stdin.buffer.read())
        reply = prove(store) if given.verb == "prove" else keep(store, files)
    except Refusal as refusal:
        reply = refusal.reply
    except Passing as trouble:
        reply = Refusal("NO_ANSWER", str(trouble)).reply
    except OSError as error:
        reply = Refusal("OS_ERROR", error.strerror or type(error).__name__).reply
    except KeyboardInterrupt:
        reply = Refusal("INTERRUPTED", "interrupted; the same command goes on from here").reply
    except Exception as error:  # noqa: BLE001  a bug too is told as JSON, and not in the words of a library,
        reply = Refusal("KEEP_BROKE", type(error).__name__).reply  # its text may quote a header
    print(json.dumps(reply), flush=True)
    if reply.get("code") == "BAD_REQUEST":
        return 2
    return 0 if reply["ok"] and not reply.get("failed") else 1


def note(text):
    sys.stderr.write("keep: {}\n".format(text))
    sys.stderr.flush()


# --- what is asked ------------------------------------------------------------------------------


def asked(argv):
    parser = Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        prog="keep.py",
    )
    parser.add_argument("verb", choices=("prove", "keep"))
    parser.add_argument("--request", required=True, choices=("-",), help="read it from stdin")
    parser.add_argument(
        "--attempts", type=int, default=6, help="failures in a row before it gives up (6)"
    )
    parser.add_argument(
        "--backoff-s", type=float, default=1.0, help="the first wait; it doubles (1)"
    )
    parser.add_argument(
        "--timeout-s", type=float, default=60.0, help="silence that is a failure (60)"
    )
    parser.add_argument(
        "--part-bytes", type=int, default=PART_BYTES, help="larger files go in parts (64 MiB)"
    )
    given = parser.parse_args(argv)
    if not (1 <= given.attempts <= 100 and given.backoff_s >= 0 and given.timeout_s > 0):
        raise Refusal("BAD_REQUEST", "1 to 100 attempts, and times above zero")
    if not 5 << 20 <= given.part_bytes <= 5 << 30:
        raise Refusal("BAD_REQUEST", "a part has 5 MiB to 5 GiB")
    return given


def requested(given, raw):
    """The store and the files, checked. No error quotes the request, because it holds a key."""
    try:
        request = json.loads(raw.decode("utf-8"))
        store, files = request["store"], request.get("files", [])
        kind = store["kind"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refusal("BAD_REQUEST", "the request is no JSON object with a store") from None
    for file in files:
        if not isinstance(file, dict) or not (
            isinstance(file.get("name"), str)
            and isinstance(file.get("at"), str)
            and isinstance(file.get("size"), int)
            and re.fullmatch("[0-9a-f]{64}", str(file.get("sha256")))
        ):
            raise Refusal("BAD_REQUEST", "a file has a name, a place, a size and a sha256")
        inside(file["name"])
    if kind == "directory":
        return Directory(text(store, "path", None, "[^\x00]+")), files
    if kind == "s3":
        return Bucket(given, store), files
    raise Refusal("BAD_REQUEST", "a store is a directory or s3")


def text(store, field, default=None, pattern="[!-~]+"):
    """That field of the store, which has plain letters only. No error repeats its value."""
    value = store.get(field, default)
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise Refusal("BAD_REQUEST", "the store's {} is missing or wrong".format(field))
    return value


def inside(name):
    """The bytes that the name stands for. As a path they lead down, and nowhere else."""
    raw = urllib.parse.unquote_to_bytes(name)
    if b"\0" in raw or any(part in (b"", b".", b"..") for part in raw.split(b"/")):
        raise Refusal("BAD_REQUEST", "a name is relative, and leads down")
    return raw


# --- the verbs ----------------------------------------------------------------------------------


def prove(store):
    """A small object was written and read back just now."""
    name = ".proof/" + "".join(random.choice("0123456789abcdef") for _ in range(32))  # noqa: S311
    content = os.urandom(32).hex().encode()
    store.write(name, content)
    try:
        back = b"".join(store.chunks(name))
    except Absent:
        back = b""
    if back != content:
        raise Refusal("STORE_LIES", "the store does not give back what it took")
    try:
        store.remove(name)
        left = None
    except (Refusal, Passing, Absent) as error:
        # It is enough that it was written and read. A key that cannot delete is the better one.
        left = str(error)
    return {"ok": True, "proved": name, "deleted": left is None, "left_because": left}


def keep(store, files):
    """Each file lies in the store, and was read back from there, or is named with the reason why not."""
    kept, failed = [], []
    now = time.time()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + "{:.6f}".format(now % 1)[1:]
    for number, file in enumerate(files, 1):
        note("{} of {}: {:,} bytes".format(number, len(files), file["size"]))
        try:
            sent = kept_one(store, file, stamp)
        except (Refusal, Passing) as error:
            failed.append({"name": file["name"], "why": str(error)})
        except OSError as error:
            failed.append({"name": file["name"], "why": error.strerror or type(error).__name__})
        else:
            kept.append(
                {
                    "name": file["name"],
                    "sha256": file["sha256"],
                    "size": file["size"],
                    "sent": sent,
                }
            )
    return {"ok": True, "kept": kept, "failed": failed}


def kept_one(store, file, stamp):
    """Whether the file had to be sent. It is in the store, and was read back from there."""
    name = file["name"]
    size = store.size(name)
    if size == file["size"] and same(store, file):
        return False
    if size is HIDDEN:
        store.must_keep_what_it_has()
    elif size is not None:
        store.aside(name, ".superseded/{}/{}".format(stamp, name), size)
    with opened(file) as source:
        store.send(name, source, file, only_new=size is HIDDEN)
    if not same(store, file):
        raise Refusal("STORE_LIES", "the store does not give back what it took")
    return True


def same(store, file):
    """Whether the store's bytes are those of the file. Every one of them was read."""
    digest, size = hashlib.sha256(), 0
    try:
        for content in store.chunks(file["name"]):
            digest.update(content)
            size += len(content)
    except Absent:
        return False
    return (size, digest.hexdigest()) == (file["size"], file["sha256"])


def opened(file):
    """The regular file on the box, opened. It has the size that was sealed."""
    path = os.path.expanduser(os.fsdecode(urllib.parse.unquote_to_bytes(file["at"])))
    # It must not wait: a named pipe in a file's place would never open.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    held = os.fstat(fd)
    if not stat.S_ISREG(held.st_mode) or held.st_size != file["size"]:
        os.close(fd)
        raise Refusal("CHANGED", "it is not the file that was sealed: another kind or size")
    return os.fdopen(fd, "rb")


# --- a directory --------------------------------------------------------------------------------


class Directory:
    """A directory that outlives the box: a network volume, another disk."""

    def __init__(self, path):
        self.root = os.path.abspath(os.path.expanduser(path))
        if not os.path.isdir(self.root):
            raise Refusal("NO_STORE", "the store is no directory on this box")

    def _at(self, name):
        return os.path.join(self.root, os.fsdecode(inside(name)))

    def size(self, name):
        try:
            held = os.lstat(self._at(name))
        except OSError:
            return None
        return held.st_size if stat.S_ISREG(held.st_mode) else -1

    def aside(self, name, to, _):
        os.makedirs(os.path.dirname(self._at(to)), exist_ok=True)
        os.rename(self._at(name), self._at(to))

    def write(self, name, content):
        self._put(name, iter([content]), None)

    def send(self, name, source, file, only_new=False):
        self._put(name, iter(lambda: source.read(CHUNK_BYTES), b""), file["sha256"])

    def _put(self, name, chunks, sha256):
        final, digest = self._at(name), hashlib.sha256()
        partial = os.path.join(self.root, ".partial-{}".format(os.urandom(8).hex()))
        os.makedirs(os.path.dirname(final), exist_ok=True)
        try:
            with open(partial, "xb") as to:
                for content in chunks:
                    to.write(content)
                    digest.update(content)
                to.flush()
                os.fsync(to.fileno())
            if sha256 not in (None, digest.hexdigest()):
                raise Refusal("CHANGED", "it is not the file that was sealed: other bytes")
            os.rename(partial, final)
        finally:
            if os.path.lexists(partial):
                os.unlink(partial)
        where = os.path.dirname(final)
        while True:
            fd = os.open(where, os.O_RDONLY)
            try:
                os.fsync(fd)
            except OSError:  # some network file systems cannot
                pass
            finally:
                os.close(fd)
            if where == self.root:
                return
            where = os.path.dirname(where)

    def chunks(self, name):
        try:
            fd = os.open(self._at(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Absent from None
        with os.fdopen(fd, "rb") as file:
            if hasattr(os, "posix_fadvise"):  # so that the disk is asked, and not the memory
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            for content in iter(lambda: file.read(CHUNK_BYTES), b""):
                yield content

    def remove(self, name):
        try:
            os.unlink(self._at(name))
            os.rmdir(os.path.dirname(self._at(name)))
        except OSError:
            pass


# --- a bucket -----------------------------------------------------------------------------------


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        """None: a signature is for one host, and goes to no other."""


class Stretch:
    """So many bytes of an open file, read from where they begin."""

    def __init__(self, file, first, length):
        self._file, self._first, self.length, self._left = file, first, length, length
        file.seek(first)

    def again(self):
        return Stretch(self._file, self._first, self.length)

    def chunks(self):
        return iter(lambda: self.read(CHUNK_BYTES), b"")

    def read(self, most=-1):
        wanted = self._left if most is None or most < 0 else min(most, self._left)
        content = self._file.read(wanted)
        if wanted and not content:
            raise Refusal("CHANGED", "it became shorter while it was read")
        self._left -= len(content)
        return content


class Bucket:
    """Objects below one prefix of a bucket. The requests are signed here (AWS signature, version 4)."""

    def __init__(self, given, store):
        endpoint = urllib.parse.urlsplit(text(store, "endpoint"))
        if (
            endpoint.scheme not in ("http", "https")
            or not endpoint.hostname
            or "@" in endpoint.netloc
        ):
            raise Refusal("BAD_REQUEST", "the endpoint begins with https:// and names a host")
        self._region = text(store, "region", "us-east-1", "[A-Za-z0-9-]+")
        bucket = text(store, "bucket", None, "[A-Za-z0-9._-]+")
        prefix = text(store, "prefix", "", "[^\x00-\x1f\x7f?#]*").strip("/")
        self._prefix = prefix + "/" if prefix else ""
        self._id = text(store, "access_key_id")
        self._secret = text(store, "secret_access_key")
        self._token = text(store, "session_token") if store.get("session_token") else None
        virtual = text(store, "addressing", "path", "path|virtual") == "virtual"
        self._host = "{}.{}".format(bucket, endpoint.netloc) if virtual else endpoint.netloc
        self._base = endpoint.path.rstrip("/") + ("" if virtual else "/" + bucket)
        self._bucket = bucket
        self._scheme, self._given, self._clock_off_s = endpoint.scheme, given, 0.0
        self._keeps = False
        self._opener = urllib.request.build_opener(Stay)  # with the proxies of the environment

    # what the verbs need

    def size(self, name):
        # This is no HEAD, because its answer has no text: a wrong clock would look like a missing right.
        try:
            with self._asked("GET", name, headers={"Range": "bytes=0-0"}) as response:
                whole = (response.headers.get("Content-Range") or "").rpartition("/")[2]
                whole = whole or response.headers.get("Content-Length") or ""
                return int(whole) if whole.isdigit() else -1
        except Absent:
            return None
        except Refusal as refusal:
            # To a key that may not list, a missing object looks forbidden. An empty one has no first byte.
            if refusal.code in ("FORBIDDEN", "NO_RANGE"):
                return HIDDEN if refusal.code == "FORBIDDEN" else 0
            raise

    def must_keep_what_it_has(self):
        """This very store has just refused a write that is for new names only, because the name is taken."""
        if self._keeps:
            return
        for _ in range(2):  # our own first try may have made it
            try:
                self._answer("PUT", ".proof/once", headers=ONLY_NEW)
            except Refusal as refusal:
                if refusal.code == "EXISTS":
                    self._keeps = True
                    return
                if refusal.code == "FORBIDDEN":
                    raise
                break
        raise Refusal(
            "MAY_OVERWRITE",
            "nobody can tell whether an older version lies there, and the store would write over it: "
            "let this key list what is below the prefix",
        )

    def aside(self, name, to, size):
        """The store itself has copied what lies under `name` to `to`."""
        of = urllib.parse.quote("/{}/{}{}".format(self._bucket, self._prefix, written(name)))
        copy = {"x-amz-copy-source": of}
        if size <= COPY_BYTES:
            # A store may answer 200 and say in the text that it failed.
            if b"<Error" in self._answer("PUT", to, headers=copy):
                raise Refusal("STORE_SAYS_NO", "the store does not keep the older version aside")
            return
        parts = [
            dict(
                copy, **{"x-amz-copy-source-range": "bytes={}-{}".format(first, first + length - 1)}
            )
            for first, length in stretches(size, COPY_BYTES)
        ]
        self._in_parts(to, ((None, EMPTY, headers) for headers in parts), lambda: None)

    def write(self, name, content):
        self._answer("PUT", name, body=content, sha256=hashlib.sha256(content).hexdigest())

    def send(self, name, source, file, only_new=False):
        first = ONLY_NEW if only_new else {}
        size, part = file["size"], self._given.part_bytes
        if size <= part:
            digest = hashlib.sha256()
            for content in Stretch(source, 0, size).chunks():
                digest.update(content)
            if digest.hexdigest() != file["sha256"]:
                raise Refusal("CHANGED", "it is not the file that was sealed: other bytes")
            self._answer(
                "PUT", name, body=Stretch(source, 0, size), sha256=file["sha256"], headers=first
            )
            return
        whole = hashlib.sha256()

        def parts():
            for first, length in stretches(size, max(part, -(-size // MOST_PARTS))):
                stretch, digest = Stretch(source, first, length), hashlib.sha256()
                for content in stretch.chunks():
                    digest.update(content)
                    whole.update(content)
                yield stretch.again(), digest.hexdigest(), {}

        def sealed():
            if whole.hexdigest() != file["sha256"]:
                raise Refusal("CHANGED", "it is not the file that was sealed: other bytes")

        self._in_parts(name, parts(), sealed, first)

    def chunks(self, name):
        # If a stream breaks, its reader asks again, from where it broke.
        done, failures = 0, 0
        while True:
            fields = {"Range": "bytes={}-".format(done)} if done else {}
            with self._asked("GET", name, headers=fields) as response:
                if done and response.status != 206:
                    raise Refusal("NO_RANGES", "the store broke off, and gives no parts")
                left = int(response.headers.get("Content-Length") or 0)
                try:
                    while left:
                        content = response.read(min(CHUNK_BYTES, left))
                        if not content:
                            break
                        left, done, failures = left - len(content), done + len(content), 0
                        yield content
                except (OSError, http.client.HTTPException):
                    pass
            if not left:
                return
            failures += 1
            if failures >= self._given.attempts:
                raise Passing("the store breaks off while it is read")
            self._wait(failures)

    def remove(self, name):
        self._answer("DELETE", name)

    # in parts

    def _in_parts(self, name, parts, sealed, joining=None):
        """The object is there, made of those parts, and `sealed` had no objection. Otherwise nothing is there."""
        answer = self._answer("POST", name, query={"uploads": ""})
        upload = found("UploadId", answer)
        if not upload:
            raise Refusal("STORE_SAYS_NO", "the store begins no upload in parts")
        try:
            self._joined(name, upload, parts, sealed, joining)
        except BaseException:
            # Parts that nobody joins cost money, and no list of objects shows them.
            try:
                self._answer("DELETE", name, query={"uploadId": upload})
            except (Refusal, Passing, Absent):
                note("the parts of an upload could not be given up")
            raise

    def _joined(self, name, upload, parts, sealed, joining):
        rows = []
        for number, (body, sha256, headers) in enumerate(parts, 1):
            query = {"partNumber": str(number), "uploadId": upload}
            with self._asked(
                "PUT", name, query=query, body=body or b"", sha256=sha256, headers=headers
            ) as response:
                said = response.read(LONGEST_ANSWER)
                tag = found("ETag", said) if headers else response.headers.get("ETag")
            if not tag:
                raise Refusal("STORE_SAYS_NO", "the store gave no tag for a part")
            rows.append(
                "<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>".format(number, tag)
            )
        sealed()
        body = "<CompleteMultipartUpload>{}</CompleteMultipartUpload>".format(
            "".join(rows)
        ).encode()
        said = self._answer(
            "POST",
            name,
            query={"uploadId": upload},
            body=body,
            sha256=hashlib.sha256(body).hexdigest(),
            headers=joining,
        )
        if b"<Error" in said:
            raise Refusal("STORE_SAYS_NO", "the store does not join the parts")

    # one request

    def _answer(self, method, name, **more):
        with self._asked(method, name, **more) as response:
            return response.read(LONGEST_ANSWER)

    def _asked(self, method, name, query=None, body=b"", sha256=EMPTY, headers=None):
        """The response. After a passing failure it was asked for again.

        Raises:
            Absent, Refusal: the store said no. Passing: it did not answer, however often it was asked.
        """
        corrected = False
        failures = 0
        while True:
            try:
                return self._once(method, name, query or {}, body, sha256, headers or {})
            except Passing as trouble:
                failures += 1
                if failures >= self._given.attempts:
                    raise Passing("{}, {} times in a row".format(trouble, failures)) from None
                note("{}; again".format(trouble))
                self._wait(failures)
            except Refusal as refusal:
                # The box's clock is wrong, and the store's own has been noted from its answer.
                if refusal.code != "CLOCK" or corrected:
                    raise
                corrected = True

    def _once(self, method, name, query, body, sha256, headers):
        stream = body.again() if isinstance(body, Stretch) else body
        length = stream.length if isinstance(stream, Stretch) else len(stream)
        path = self._base + "/" + urllib.parse.quote(self._prefix + written(name), safe="/~")
        pairs = "&".join(
            "{}={}".format(urllib.parse.quote(k, safe="~"), urllib.parse.quote(v, safe="~"))
            for k, v in sorted(query.items())
        )
        fields = self._signed(method, path, pairs, sha256, headers)
        fields["User-Agent"] = "gpu-tenant-keep"
        if method in ("PUT", "POST"):
            fields["Content-Length"] = str(length)
            fields["Content-Type"] = "application/octet-stream"
        url = "{}://{}{}{}".format(self._scheme, self._host, path, "?" + pairs if pairs else "")
        request = urllib.request.Request(  # noqa: S310  (http only)
            url,
            headers=fields,
            method=method,
            data=(stream if length else b"") if method in ("PUT", "POST") else None,
        )
        try:
            return self._opener.open(request, timeout=self._given.timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                raise self._meaning(error) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise Refusal("TLS_REFUSED", "the store does not prove who it is") from None
            why = type(error.reason).__name__ if isinstance(error.reason, Exception) else ""
            raise Passing("the store does not answer {}".format(why).strip()) from None
        except (OSError, http.client.HTTPException) as error:
            raise Passing("the store does not answer: {}".format(type(error).__name__)) from None

    def _meaning(self, error):
        """What a status means. Of the store's words only the code is repeated, because others quote the key."""
        try:
            code = found("Code", error.read(LONGEST_ANSWER)) or ""
        except (OSError, http.client.HTTPException):
            code = ""
        code = code if re.fullmatch("[A-Za-z]{1,60}", code) else ""
        said = "the store answers {}{}".format(error.code, " " + code if code else "")
        if error.code in TRANSIENT or code in ("SlowDown", "RequestTimeout", "InternalError"):
            return Passing(said)
        if code == "RequestTimeTooSkewed":
            self._set_clock(error.headers.get("Date"))
            return Refusal("CLOCK", said)
        if error.code == 404 and code in ("", "NoSuchKey", "NotFound"):
            return Absent(said)
        if code in ("SecondLevelDomainForbidden", "PathStyleDomainForbidden"):
            said += '; it wants addressing = "virtual"'
        if error.code == 412:
            return Refusal("EXISTS", said + "; it exists, and this key may not read it")
        if error.code == 416:
            return Refusal("NO_RANGE", said)
        if error.code in (301, 302, 307, 308) or code == "AuthorizationHeaderMalformed":
            said += "; its region or its endpoint is another"
        return Refusal("FORBIDDEN" if error.code in (401, 403) else "STORE_SAYS_NO", said)

    def _set_clock(self, date):
        parsed = email.utils.parsedate(date or "")
        if parsed:
            self._clock_off_s = calendar.timegm(parsed) - time.time()

    def _wait(self, failures):
        wait_s = min(60.0, self._given.backoff_s * 2 ** (failures - 1))
        time.sleep(wait_s * (0.5 + random.random() / 2))  # noqa: S311

    def _signed(self, method, path, pairs, sha256, headers):
        now = time.gmtime(time.time() + self._clock_off_s)
        moment, day = time.strftime("%Y%m%dT%H%M%SZ", now), time.strftime("%Y%m%d", now)
        fields = {k.lower(): v for k, v in headers.items()}
        fields.update({"host": self._host, "x-amz-content-sha256": sha256, "x-amz-date": moment})
        if self._token:
            fields["x-amz-security-token"] = self._token
        names = ";".join(sorted(fields))
        lines = "".join("{}:{}\n".format(name, fields[name]) for name in sorted(fields))
        canonical = "\n".join((method, path, pairs, lines, names, sha256))
        scope = "{}/{}/s3/aws4_request".format(day, self._region)
        to_sign = "\n".join(
            ("AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest())
        )
        key = ("AWS4" + self._secret).encode()
        for word in (day, self._region, "s3", "aws4_request"):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
        fields["Authorization"] = (
            "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}".format(
                self._id, scope, names, signature
            )
        )
        return fields


def written(name):
    """The name as that of an object. One quotation mark has a meaning of its own to another client of ours."""
    return name.replace("\u201b", "%E2%80%9B")


def stretches(size, most):
    """Where each part begins and how long it is."""
    return [(first, min(most, size - first)) for first in range(0, size, most)]


def found(tag, said):
    """What one element of an answer holds. There is no parser here that a hostile store could keep busy."""
    match = re.search("<{0}>([^<]*)</{0}>".format(tag), said.decode("utf-8", "replace"))
    return match.group(1) if match else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
