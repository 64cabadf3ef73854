"""A download on the box ends whole or not at all, whatever the server, the disk or a kill does to it."""

import contextlib
import hashlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from arranged import PATIENCE_S

FETCH = Path(__file__).parents[2] / "scripts" / "fetch.py"
CONTENT = random.Random(7).randbytes(5 << 20)
OTHER = random.Random(8).randbytes(5 << 20)
SECRET = "Bearer hunter2-of-the-tests"
Reply = dict[str, Any]


class Origin(BaseHTTPRequestHandler):
    """One request, answered as the server's present mood has it."""

    server: "Server"

    def do_GET(self) -> None:
        mood = self.server
        with mood.lock:
            mood.asked.append(dict(self.headers) | {"path": self.path})
            mood.open += 1
            crowded = mood.open > mood.most_open
            status = mood.statuses.pop(0) if mood.statuses else None
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._answer(mood, 429 if crowded else status)
        finally:
            with mood.lock:
                mood.open -= 1
            self.close_connection = True

    def _answer(self, mood: "Server", status: int | None) -> None:
        if mood.redirect_to and self.path == "/file":
            self.send_response(302)
            self.send_header("Location", mood.redirect_to)
            self.end_headers()
            return
        if status:
            self.send_response(status)
            for name, value in mood.refusal_headers.items():
                self.send_header(name, value)
            self.end_headers()
            return
        content, etag = mood.content, mood.etag
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        condition = self.headers.get("If-Range")
        first, last = 0, len(content) - 1
        if mood.ranges and wanted and condition in (None, etag):
            first, last = int(wanted[1]), min(last, int(wanted[2] or last))
            if first >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206)
            total = mood.claimed_size or len(content)
            self.send_header("Content-Range", f"bytes {first}-{last}/{total}")
        else:
            self.send_response(200)
        if mood.names_size:
            self.send_header("Content-Length", str(mood.claimed_length or last - first + 1))
        if etag:
            self.send_header("ETag", etag)
        for name, value in mood.more_headers.items():
            self.send_header(name, value)
        self.end_headers()
        body = content[first : last + 1]
        with mood.lock:
            cut = mood.cuts.pop(0) if mood.cuts and len(body) > 1 else None
        self.wfile.write(body[:cut] if cut is not None else body[: mood.hold_after])
        self.wfile.flush()
        if cut is None and mood.hold_after is not None and len(body) > mood.hold_after:
            mood.go_on.wait(20)
            self.wfile.write(body[mood.hold_after :])

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


class Server(ThreadingHTTPServer):
    """A loopback server whose file, patience and honesty a test sets."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Origin)
        self.lock, self.go_on = threading.Lock(), threading.Event()
        self.asked: list[dict[str, str]] = []
        self.content, self.etag, self.ranges, self.names_size = CONTENT, '"one"', True, True
        self.claimed_size = self.claimed_length = 0
        self.statuses: list[int] = []
        self.cuts: list[int] = []
        self.refusal_headers: dict[str, str] = {}
        self.more_headers: dict[str, str] = {}
        self.redirect_to, self.open, self.most_open = "", 0, 99
        self.hold_after: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file"

    def starts(self) -> list[int]:
        return [int(a["Range"][6:].split("-")[0]) for a in self.asked if "Range" in a]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.go_on.set()
        server.shutdown()
        thread.join()


def argv(*words: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(FETCH), "--backoff-s", "0.01", *words]


def fetch(*words: str, stdin: str = "", file_limit: int | None = None) -> tuple[Reply, str]:
    """The reply, and all that was printed."""

    def limit() -> None:
        if file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

    done = subprocess.run(
        argv(*words),
        input=stdin.encode(),
        capture_output=True,
        check=False,
        timeout=120,
        env={"PATH": os.environ["PATH"]},
        preexec_fn=limit,
    )
    reply: Reply = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == (0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1)
    return reply, (done.stdout + done.stderr).decode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_file_comes_whole_in_several_ranges_at_a_time(server: Server, tmp_path: Path) -> None:
    dest = tmp_path / "new folder" / "the weights\nof run 1"

    reply, _ = fetch(server.url, str(dest), "--sha256", sha256(CONTENT).upper())

    assert (reply["ok"], reply["proved"], reply["size"]) == (True, "sha256", len(CONTENT))
    assert dest.read_bytes() == CONTENT
    assert len(set(server.starts())) > 2
    assert list(dest.parent.iterdir()) == [dest]


@pytest.mark.parametrize("connections", ["1", "3"])
def test_after_kill_9_it_goes_on_from_the_last_byte(
    server: Server, tmp_path: Path, connections: str
) -> None:
    dest, words = tmp_path / "f", ("--connections", connections)
    server.hold_after = 1 << 19
    with subprocess.Popen(
        argv(server.url, str(dest), *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as first:
        until_held = int(connections) << 19
        wait_until(lambda: mapped(dest) >= until_held)
        first.send_signal(signal.SIGKILL)
    server.hold_after = None
    server.go_on.set()
    server.asked.clear()

    reply, _ = fetch(server.url, str(dest), *words)

    assert reply["resumed_from"] == until_held
    assert dest.read_bytes() == CONTENT
    assert 1 << 19 in server.starts()
    assert all(a.get("If-Range") == '"one"' for a in server.asked[1:])


def mapped(dest: Path) -> int:
    path = Path(f"{dest}.partial.map")
    rows = (
        [list(map(int, row.split())) for row in path.read_text(encoding="ascii").splitlines()[1:]]
        if path.exists()
        else []
    )
    return sum(row[2] - row[0] for row in rows)


def wait_until(is_so: Any) -> None:
    give_up = time.monotonic() + PATIENCE_S  # a bound, not a synchronisation
    while not is_so():
        assert time.monotonic() < give_up
        time.sleep(0.01)  # noqa: TID251


def half_fetched(server: Server, dest: Path) -> None:
    """DEST.partial holds a part, and its fetch has given up."""
    server.cuts = [1 << 20, 0, 0, 0]
    reply, _ = fetch(server.url, str(dest), "--connections", "1", "--attempts", "2")
    assert (reply["code"], dest.exists()) == ("GAVE_UP", False)
    assert mapped(dest) == 1 << 20
    server.cuts = []
    server.asked.clear()


def test_a_file_that_changed_in_the_meantime_comes_from_its_start(
    server: Server, tmp_path: Path
) -> None:
    half_fetched(server, tmp_path / "f")
    server.content, server.etag = OTHER, '"two"'

    reply, _ = fetch(server.url, str(tmp_path / "f"))

    assert reply["resumed_from"] == 0
    assert (tmp_path / "f").read_bytes() == OTHER


def test_a_file_that_changes_under_way_is_never_a_mixture(server: Server, tmp_path: Path) -> None:
    server.cuts = [1 << 20]
    server.hold_after = 1 << 18
    with subprocess.Popen(
        argv(server.url, str(tmp_path / "f"), "--connections", "2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as run:
        wait_until(lambda: len(server.asked) >= 3)
        server.content, server.etag = OTHER, '"two"'
        server.hold_after = None
        server.go_on.set()
        reply = json.loads(run.communicate(timeout=PATIENCE_S)[0])

    assert reply["ok"]
    assert (tmp_path / "f").read_bytes() == OTHER


def test_the_map_of_another_boot_counts_only_what_was_synced(
    server: Server, tmp_path: Path
) -> None:
    half_fetched(server, tmp_path / "f")
    path = tmp_path / "f.partial.map"
    head, rows = path.read_bytes().split(b"\n", 1)
    path.write_bytes(json.dumps(json.loads(head) | {"boot_id": "earlier"}).encode() + b"\n" + rows)

    reply, _ = fetch(server.url, str(tmp_path / "f"))

    assert reply["resumed_from"] == 0
    assert (tmp_path / "f").read_bytes() == CONTENT


@pytest.mark.parametrize("damage", [b"", b"\xff\xff\n1 2 3 4\n"])
def test_a_damaged_map_means_a_new_beginning(server: Server, tmp_path: Path, damage: bytes) -> None:
    half_fetched(server, tmp_path / "f")
    (tmp_path / "f.partial.map").write_bytes(damage)

    assert fetch(server.url, str(tmp_path / "f"))[0]["resumed_from"] == 0
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_cut_connections_are_taken_up_where_they_broke(server: Server, tmp_path: Path) -> None:
    server.cuts = [300_000, 0, 900_000, 1]

    reply, _ = fetch(server.url, str(tmp_path / "f"), "--connections", "1")

    assert reply["ok"]
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert {300_000, 1_200_000} <= set(server.starts())


def test_a_server_without_ranges_is_read_again_from_the_start(
    server: Server, tmp_path: Path
) -> None:
    server.ranges, server.cuts = False, [0, 1 << 20, len(CONTENT) - 1]

    reply, _ = fetch(server.url, str(tmp_path / "f"))

    assert (reply["ok"], reply["proved"]) == (True, "size")
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_without_a_validator_two_halves_are_joined_only_where_a_hash_will_tell(
    server: Server, tmp_path: Path
) -> None:
    server.etag, server.cuts = "", [1 << 20]

    assert fetch(server.url, str(tmp_path / "f"))[0]["ok"]

    assert (tmp_path / "f").read_bytes() == CONTENT
    assert set(server.starts()) == {0}


def test_a_server_that_serves_one_connection_gets_one(server: Server, tmp_path: Path) -> None:
    server.most_open = 1

    reply, _ = fetch(server.url, str(tmp_path / "f"), "--attempts", "3")

    assert reply["ok"]
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_retry_after_is_waited_for(server: Server, tmp_path: Path) -> None:
    server.statuses, server.refusal_headers = [503], {"Retry-After": "1"}

    reply, _ = fetch(server.url, str(tmp_path / "f"))

    assert reply["ok"]
    assert reply["took_s"] >= 1


def test_a_wait_that_is_too_long_is_told_instead(server: Server, tmp_path: Path) -> None:
    server.statuses, server.refusal_headers = [429], {"Retry-After": "86400"}

    reply, _ = fetch(server.url, str(tmp_path / "f"))

    assert (reply["code"], reply["retry_after_s"]) == ("RETRY_LATER", 86400)
    assert list(tmp_path.iterdir()) == []


def test_retries_have_an_end(server: Server, tmp_path: Path) -> None:
    server.statuses = [500] * 99

    reply, _ = fetch(server.url, str(tmp_path / "f"), "--attempts", "4")

    assert reply["code"] == "GAVE_UP"
    assert len(server.asked) == 4


@pytest.mark.parametrize("status", [403, 404])
def test_a_no_is_not_asked_again(server: Server, tmp_path: Path, status: int) -> None:
    server.statuses = [status] * 9

    reply, _ = fetch(server.url, str(tmp_path / "f"))

    assert (reply["code"], reply["status"], len(server.asked)) == ("HTTP_REFUSED", status, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_hash_leaves_nothing(server: Server, tmp_path: Path) -> None:
    reply, _ = fetch(server.url, str(tmp_path / "f"), "--sha256", sha256(OTHER))

    assert (reply["code"], reply["sha256"]) == ("HASH_MISMATCH", sha256(CONTENT))
    assert list(tmp_path.iterdir()) == []


def test_fewer_bytes_than_were_promised_are_no_success(server: Server, tmp_path: Path) -> None:
    server.ranges, server.claimed_length = False, len(CONTENT) + 1

    reply, _ = fetch(server.url, str(tmp_path / "f"), "--attempts", "2")

    assert reply["code"] == "GAVE_UP"
    assert not (tmp_path / "f").exists()


def test_a_file_of_no_named_size_needs_a_hash(server: Server, tmp_path: Path) -> None:
    server.ranges = server.names_size = False

    assert fetch(server.url, str(tmp_path / "f"))[0]["code"] == "NO_SIZE"
    assert fetch(server.url, str(tmp_path / "f"), "--sha256", sha256(CONTENT))[0]["ok"]
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_packed_answer_is_refused(server: Server, tmp_path: Path) -> None:
    server.more_headers = {"Content-Encoding": "gzip"}

    assert fetch(server.url, str(tmp_path / "f"))[0]["code"] == "ENCODED"


def test_an_empty_file_is_a_file(server: Server, tmp_path: Path) -> None:
    server.content = b""

    assert fetch(server.url, str(tmp_path / "f"))[0]["size"] == 0
    assert (tmp_path / "f").read_bytes() == b""


def test_what_cannot_fit_is_not_begun(server: Server, tmp_path: Path) -> None:
    server.claimed_size = 1 << 58

    reply, _ = fetch(server.url, str(tmp_path / "f"))

    assert (reply["code"], reply["due_bytes"] > 1 << 58) == ("NO_SPACE", True)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_the_same_command_then_goes_on(
    server: Server, tmp_path: Path
) -> None:
    reply, _ = fetch(server.url, str(tmp_path / "f"), file_limit=1 << 20)

    assert (reply["code"], (tmp_path / "f").exists()) == ("DISK_FULL", False)
    assert fetch(server.url, str(tmp_path / "f"))[0]["ok"]


def test_a_place_that_cannot_be_written_is_told(server: Server) -> None:
    assert fetch(server.url, "/proc/nowhere/f")[0]["code"] == "OS_ERROR"


def test_a_secret_header_stays_with_its_host_and_is_never_printed(
    server: Server, tmp_path: Path
) -> None:
    secret = tmp_path / "headers"
    secret.write_bytes(b"# mine\r\n\r\nAuthorization: " + SECRET.encode())  # no newline at its end
    server.redirect_to = server.url.replace("127.0.0.1", "localhost") + "-there?X-Amz-Signature=abc"

    reply, printed = fetch(server.url, str(tmp_path / "f"), "--header-file", str(secret))

    assert reply["ok"]
    at_home = [a for a in server.asked if a["Host"].startswith("127.")]
    abroad = [a for a in server.asked if a["Host"].startswith("localhost")]
    assert {a.get("Authorization") for a in at_home} == {SECRET}
    assert abroad
    assert not any("Authorization" in a for a in abroad)
    assert "hunter2" not in printed
    assert "Signature" not in printed


@pytest.mark.parametrize("line", [b"Range: bytes=0-", b"A: caf\xe9"])
def test_a_bad_header_is_refused_without_being_quoted(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "headers").write_bytes(line + b"\n")

    reply, printed = fetch(
        "http://127.0.0.1:1/", str(tmp_path / "f"), "--header-file", str(tmp_path / "headers")
    )

    assert reply["code"] == "BAD_REQUEST"
    assert "caf" not in printed


def test_an_address_that_is_a_secret_comes_on_stdin(server: Server, tmp_path: Path) -> None:
    server.statuses = [503]

    reply, printed = fetch("-", str(tmp_path / "f"), stdin=server.url + "?sig=hunter2\r\n")

    assert reply["ok"]
    assert server.asked[0]["path"].endswith("sig=hunter2")
    assert "hunter2" not in printed


def test_a_new_signature_is_no_new_file(server: Server, tmp_path: Path) -> None:
    half_fetched(server, tmp_path / "f")

    reply, _ = fetch(server.url + "?X-Amz-Signature=fresh&Expires=9", str(tmp_path / "f"))

    assert reply["resumed_from"] == 1 << 20
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_another_address_is_another_file_whatever_its_tag(server: Server, tmp_path: Path) -> None:
    half_fetched(server, tmp_path / "f")

    assert fetch(server.url + "?shard=2", str(tmp_path / "f"))[0]["resumed_from"] == 0


def test_a_file_that_is_there_is_never_overwritten(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(OTHER)

    for words in ((), ("--sha256", sha256(CONTENT))):
        assert fetch(server.url, str(tmp_path / "f"), *words)[0]["code"] == "EXISTS"
    assert fetch(server.url, str(tmp_path / "f"), "--sha256", sha256(OTHER))[0]["already"]
    assert (tmp_path / "f").read_bytes() == OTHER
    assert server.asked == []


def test_two_at_once_do_not_write_one_file(server: Server, tmp_path: Path) -> None:
    server.hold_after = 1 << 18
    with subprocess.Popen(
        argv(server.url, str(tmp_path / "f")), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as first:
        wait_until(lambda: mapped(tmp_path / "f") > 0)
        assert fetch(server.url, str(tmp_path / "f"))[0]["code"] == "BUSY"
        server.go_on.set()
        assert first.communicate(timeout=PATIENCE_S)[0]

    assert (tmp_path / "f").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("ftp://h/x", "f"),
        ("http://me:hunter2@h/x", "f"),
        ("http://h:port/x", "f"),
        ("http://h/x", "/tmp"),
        ("http://h/x", "f", "--sha256", "12"),
        ("http://h/x", "f", "--connections", "0"),
        ("http://h/x", "f", "--timeout-s", "nan"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_asked(words: tuple[str, ...]) -> None:
    reply, printed = fetch(*words)

    assert reply["code"] == "BAD_REQUEST"
    assert "hunter2" not in printed
