"""The courier on a box gives and takes the bytes of named files, whatever became of them meanwhile."""

import ast
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from gpu_tenant.files.paths import escape

SCRIPT = Path(__file__).parents[2] / "scripts" / "courier.py"
HEAD = struct.Struct(">cxxxIQ")
NOISE = random.Random(1).randbytes(300_000)
UNREADABLE = "/sys/class/net/lo/speed"
"""A regular file of 4,096 bytes, of which none can be read."""


class Courier:
    """The script as a process, spoken to over pipes."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", *words, str(SCRIPT), "the mark"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdin
        assert self.process.stdout
        self._in, self._out = self.process.stdin, self.process.stdout
        self._number = 0
        # No answer is waited for without a bound.
        self._bound = Timer(20, self.process.kill)
        self._bound.start()
        assert self._out.readline() == b"the mark\n"

    def ask(self, verb: str, body: bytes = b"", **request: object) -> None:
        self._number += 1
        line = json.dumps({"id": self._number, "do": verb, **request}).encode()
        self._in.write(line + b"\n" + body)
        self._in.flush()

    def head(self) -> tuple[str, int, int]:
        """Letter, number and size of the next answer."""
        letter, number, size = HEAD.unpack(self._exactly(HEAD.size))
        return letter.decode(), number, size

    def answer(self) -> tuple[str, int, bytes]:
        """Letter, number and body of the next answer."""
        letter, number, size = self.head()
        return letter, number, self._exactly(size)

    def rest(self) -> bytes:
        """All that comes until it ends."""
        return self._out.read()

    def asked(self, verb: str, body: bytes = b"", **request: object) -> tuple[str, bytes]:
        self.ask(verb, body, **request)
        letter, number, answer = self.answer()
        assert number == self._number
        return letter, answer

    def refused(self, verb: str, body: bytes = b"", **request: object) -> str:
        """The code of the refusal."""
        letter, answer = self.asked(verb, body, **request)
        assert letter == "E"
        told = json.loads(answer)
        assert set(told) == {"code", "message"}
        return str(told["code"])

    def end(self) -> None:
        """No more requests come."""
        self._in.close()

    def close(self) -> int:
        """No more requests come; the status it ends with."""
        self.end()
        status = self.process.wait()
        self._bound.cancel()
        self._out.close()
        return status

    def _exactly(self, size: int) -> bytes:
        content = self._out.read(size)
        if len(content) < size:
            raise EOFError
        return content


@pytest.fixture
def courier() -> Iterator[Courier]:
    made = Courier()
    yield made
    made.close()


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    path = tmp_path / "noise"
    path.write_bytes(NOISE)
    return path


def test_it_is_python_3_7_and_imports_nothing_but_the_library() -> None:
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 7))

    imports = {
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    }
    assert imports <= sys.stdlib_module_names
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


def test_it_ends_well_when_nobody_asks_any_more() -> None:
    assert Courier().close() == 0


def test_spans_come_as_one_answer_in_the_order_they_were_asked_for(
    courier: Courier, noise: Path
) -> None:
    spans = [[200_000, 100_000], [0, 1], [5, 7], [5, 0]]

    letter, body = courier.asked("read", at=escape(str(noise)), spans=spans)

    assert (letter, body) == ("D", NOISE[200_000:] + NOISE[:1] + NOISE[5:12])


def test_what_packs_comes_packed_where_that_was_asked_for(courier: Courier, tmp_path: Path) -> None:
    path, text = tmp_path / "text", b"the same line again\n" * 20_000
    path.write_bytes(text)
    spans = [[0, 100_000], [200_000, 50_000]]

    letter, packed = courier.asked("read", at=str(path), spans=spans, pack=True)
    assert letter == "Z"
    assert zlib.decompress(packed) == text[:100_000] + text[200_000:250_000]
    letter, plain = courier.asked("read", at=str(path), spans=spans, pack=False)
    assert (letter, len(plain)) == ("D", 150_000)
    letter, packed = courier.asked("files", files=[[str(path), len(text)]], pack=True)
    assert (letter, zlib.decompress(packed)) == ("Z", text)


def test_what_does_not_pack_comes_as_it_lies(courier: Courier, noise: Path) -> None:
    assert courier.asked("read", at=str(noise), spans=[[0, 300_000]], pack=True) == ("D", NOISE)


def test_where_nothing_packs_it_is_tried_less_and_less_often_and_never_given_up(
    courier: Courier, noise: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"the same words again. " * 1000)
    kinds = ""
    for path in [noise, text] * 20 + [text] * 40:
        spans = [[0, path.stat().st_size]]
        kinds += courier.asked("read", at=escape(str(path)), spans=spans, pack=True)[0]

    assert kinds[:2] == "DD", "noise, and the next is not looked at"
    assert kinds.endswith("Z" * 8)


def test_an_echo_is_an_answer_and_nothing_more(courier: Courier) -> None:
    assert courier.asked("echo") == ("A", b"")


def test_what_seems_to_pack_and_does_not_comes_as_it_lies(courier: Courier, tmp_path: Path) -> None:
    path = tmp_path / "mixed"
    chance = random.Random(2)
    # Its sample is all zeros, and the rest is noise.
    mixed = chance.randbytes(300_000) + bytes(1 << 16) + chance.randbytes(300_000)
    path.write_bytes(mixed)

    letter, body = courier.asked("read", at=str(path), spans=[[0, len(mixed)]], pack=True)

    assert (zlib.decompress(body) if letter == "Z" else body) == mixed


def test_each_file_has_its_answer_and_one_that_cannot_be_had_spoils_no_other(
    courier: Courier, tmp_path: Path, noise: Path
) -> None:
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe of 0")
    (tmp_path / "grown").write_bytes(b"12345678")
    (tmp_path / "shrunk").write_bytes(b"1")
    names = [
        ("noise", 300_000),
        ("gone", 5),
        ("empty", 0),
        (".", 0),
        ("pipe", 3),
        ("pipe of 0", 0),
        ("grown", 4),
        ("shrunk", 4),
        ("noise/below", 1),
        ("noise", 300_000),
    ]

    courier.ask("files", files=[[escape(str(tmp_path / name)), size] for name, size in names])
    answers = [courier.answer() for _ in names]

    told = [body if letter == "D" else json.loads(body)["code"] for letter, _, body in answers]
    assert told[0] == told[-1] == NOISE
    assert told[1:4] == ["GONE", b"", "SHORTER"]
    assert told[4:8] == ["SHORTER"] * 4
    assert told[8] == "UNREADABLE"


def test_a_file_that_nobody_may_read_is_refused(courier: Courier, noise: Path) -> None:
    if os.geteuid():
        noise.chmod(0)
        assert courier.refused("read", at=str(noise), spans=[[0, 1]]) == "UNREADABLE"
        return
    # To root, only what is no file at all is unreadable; a way through a file is such.
    assert courier.refused("read", at=f"{noise}/x", spans=[[0, 1]]) == "UNREADABLE"


def test_what_cannot_be_read_never_comes_as_a_body() -> None:
    assert Path(UNREADABLE).stat().st_size == 4096
    courier = Courier()
    courier.ask("read", at=UNREADABLE, spans=[[0, 4096]])

    letter, _, size = courier.head()
    courier.end()

    assert len(courier.rest()) == (size if letter == "E" else 0)
    courier.close()


@pytest.mark.parametrize("pack", [False, True])
def test_each_file_of_a_bundle_has_its_answer_though_one_cannot_be_read(
    courier: Courier, noise: Path, pack: bool
) -> None:
    courier.ask("files", files=[[UNREADABLE, 4096], [str(noise), 300_000]], pack=pack)

    assert courier.answer()[0] == "E"
    assert courier.answer() == ("D", 1, NOISE)


@pytest.mark.parametrize("spans", [[[0, 300_001]], [[299_999, 2]], [[0, 5], [400_000, 1]]])
def test_what_lies_behind_the_end_is_refused(
    courier: Courier, noise: Path, spans: list[list[int]]
) -> None:
    assert courier.refused("read", at=str(noise), spans=spans) == "SHORTER"
    assert courier.asked("read", at=str(noise), spans=[[0, 2]]) == ("D", NOISE[:2]), "it goes on"


@pytest.mark.parametrize("pack", [False, True])
def test_a_file_that_shrinks_while_it_is_sent_ends_the_conversation(
    tmp_path: Path, pack: bool
) -> None:
    courier, path, size = Courier(), tmp_path / "file", 64 << 20
    path.touch()
    os.truncate(path, size)
    if pack:  # what is packed is read first, so that a frame is either whole or never begun
        letter, _ = courier.asked("read", at=str(path), spans=[[0, 1 << 20]], pack=True)
        assert letter == "Z"
        assert courier.close() == 0
        return
    courier.ask("read", at=str(path), spans=[[0, size]])
    assert courier.head() == ("D", 1, size)
    # A pipe holds far less than the file, so that most of it is still to be sent.
    os.truncate(path, 1 << 20)

    assert len(courier.rest()) < size
    assert courier.close() == 3


@pytest.mark.parametrize(
    "name",
    [b"a b", b"new\nline", b'it\'s "quoted"', b"%41", b"not\xffutf-8", "é".encode() * 100, b"-n"],
)
def test_every_name_a_file_can_have_is_found(courier: Courier, tmp_path: Path, name: bytes) -> None:
    path = os.fsencode(tmp_path) + b"/" + name
    with Path(os.fsdecode(path)).open("wb") as file:
        file.write(b"content")
    at = escape(os.fsdecode(path))

    assert courier.asked("read", at=at, spans=[[0, 7]]) == ("D", b"content")
    assert courier.asked("files", files=[[at, 7]]) == ("D", b"content")


def test_digests_are_of_every_block_to_the_end(courier: Courier, noise: Path) -> None:
    def digests(first: int, size: int, block: int) -> bytes:
        part = NOISE[first : first + size]
        blocks = [part[at : at + block] for at in range(0, len(part), block)]
        return b"".join(hashlib.sha256(one).digest()[:8] for one in blocks)

    for first, size, block in [
        (0, 300_000, 16_384),
        (16_384, 65_536, 16_384),
        (0, 1 << 26, 16_384),
        (300_000, 50, 16_384),
        (299_999, 1, 16_384),
        (0, 300_000, 300_000),
        (400_000, 10, 16_384),
    ]:
        letter, told = courier.asked("sums", at=str(noise), first=first, size=size, block=block)
        assert (letter, told) == ("S", digests(first, size, block))


@pytest.mark.parametrize("name", ["gone", ".", "pipe"])
def test_of_what_is_no_file_there_are_no_digests(
    courier: Courier, tmp_path: Path, name: str
) -> None:
    os.mkfifo(tmp_path / "pipe")

    letter, _ = courier.asked("sums", at=str(tmp_path / name), first=0, size=5, block=16_384)

    assert letter == "E"


def test_what_is_written_lies_where_it_was_to_lie(courier: Courier, tmp_path: Path) -> None:
    path = tmp_path / "made"

    assert courier.asked("write", NOISE, at=str(path), first=10, size=len(NOISE)) == ("A", b"{}")
    assert courier.asked("write", b"0123456789", at=str(path), first=0, size=10) == ("A", b"{}")
    assert courier.asked("write", b"", at=str(tmp_path / "empty"), first=0, size=0)[0] == "A"

    assert path.read_bytes() == b"0123456789" + NOISE
    assert (tmp_path / "empty").read_bytes() == b""
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_written_is_refused_and_the_next_request_is_heard(
    courier: Courier, tmp_path: Path, noise: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    (tmp_path / "link").symlink_to(precious)

    (tmp_path / "way").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", ".", "pipe", "way/new", "gone/far/below"):
        code = courier.refused("write", NOISE, at=str(tmp_path / name), first=0, size=len(NOISE))
        assert code == "UNWRITABLE"

    assert precious.read_bytes() == b"mine"
    assert not (tmp_path / "new").exists()
    assert courier.asked("read", at=str(noise), spans=[[0, 3]]) == ("D", NOISE[:3])


def test_going_gently_changes_nothing_but_its_place_in_the_queue(
    courier: Courier, noise: Path
) -> None:
    assert courier.asked("gently") == ("A", b"{}")
    assert os.getpriority(os.PRIO_PROCESS, courier.process.pid) >= 10
    assert courier.asked("read", at=str(noise), spans=[[0, 3]]) == ("D", NOISE[:3])


def test_requests_that_are_sent_ahead_are_answered_in_their_order(
    courier: Courier, noise: Path
) -> None:
    for first in range(0, 300_000, 1000):
        courier.ask("read", at=str(noise), spans=[[first, 10]])

    for number, first in enumerate(range(0, 300_000, 1000), start=1):
        assert courier.answer() == ("D", number, NOISE[first : first + 10])


def test_it_takes_part_of_a_body_and_nothing_more_when_the_link_ends(tmp_path: Path) -> None:
    courier, path = Courier(), tmp_path / "cut"
    courier.ask("write", b"begun", at=str(path), first=0, size=100)

    assert courier.close() == 3
    assert path.read_bytes() in (b"", b"begun")
