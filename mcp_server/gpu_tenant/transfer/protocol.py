"""What is said over a channel to the courier on a box: requests of one line, answers of known length."""

import json
import socket
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpu_tenant.domain.ports import Channel
from gpu_tenant.transfer.partial_file import Span

CHUNK_BYTES = 1 << 20
_HEAD = struct.Struct(">cxxxIQ")
_MOST_NOISE_BYTES = 1 << 20
_MOST_IN_MEMORY_BYTES = 64 << 20


class LinkBroken(Exception):
    """The channel ended, or what came over it is no answer; what was asked may be asked again."""


class Answer(NamedTuple):
    """The head of an answer: what follows, and how many bytes of it."""

    letter: bytes
    number: int
    size_bytes: int


class Conversation:
    """One channel, of which nobody else knows; every method blocks."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._reader, self._writer = channel.reader, channel.writer
        self._number = 0

    def greet(self, script: bytes, mark: str) -> None:
        """The courier is there, which that script becomes; what a login script had to say lies behind.

        Raises:
            LinkBroken: it never came.
        """
        self._say(script)
        end, said = f"{mark}\n".encode(), b""
        while not said.endswith(end):
            said += self._exactly(1)
            if len(said) > _MOST_NOISE_BYTES:
                raise LinkBroken("a login script prints without end")

    def round_trip_s(self) -> float:
        """How long a request and its answer take that have nothing to carry.

        Raises:
            LinkBroken: it was not answered.
        """
        asked_at = time.monotonic()
        self.ask("echo", {})
        if self.head().size_bytes:
            raise LinkBroken("another answer came than was asked for")
        return time.monotonic() - asked_at

    def ask(self, verb: str, request: Mapping[str, object], body: bytes | memoryview = b"") -> int:
        """The request went out, with the bytes that belong to it; its number.

        Raises:
            LinkBroken: it did not.
        """
        self._number += 1
        line = json.dumps({"id": self._number, "do": verb, **request}).encode() + b"\n"
        for part in (line, body):
            self._say(part)
        return self._number

    def head(self) -> Answer:
        """The next answer's head.

        Raises:
            LinkBroken: none came.
        """
        answer = Answer(*_HEAD.unpack(self._exactly(_HEAD.size)))
        if answer.letter not in (b"D", b"Z", b"S", b"A", b"E"):
            raise LinkBroken("what came is no answer")
        return answer

    def body(self, size_bytes: int) -> bytes | bytearray:
        """So many bytes, in memory.

        Raises:
            LinkBroken: they did not come, or are more than an answer may have.
        """
        if size_bytes > _MOST_IN_MEMORY_BYTES:
            raise LinkBroken("an answer of that size was never asked for")
        return self._exactly(size_bytes)

    def unpacked(self, size_bytes: int, held_bytes: int) -> bytes:
        """What a packed body of that size holds, which is so much.

        Raises:
            LinkBroken: it is no packed body.
        """
        inflater = zlib.decompressobj()
        try:
            content = inflater.decompress(self.body(size_bytes), max(1, held_bytes))
        except zlib.error as error:
            raise LinkBroken(str(error)) from error
        if not inflater.eof or len(content) != held_bytes:
            raise LinkBroken("a packed answer holds something else than was asked for")
        return content

    def into(self, buffer: memoryview) -> int:
        """The body's next bytes fill `buffer`, or as much of it as came before the channel ended; how many.

        One wait for all of them: each piece by itself would cost a change of threads.
        """
        got = 0
        while got < len(buffer):
            try:
                count = self._reader.recv_into(buffer[got:], 0, socket.MSG_WAITALL)
            except OSError:
                break
            if not count:
                break
            got += count
        return got

    def hang_up(self) -> None:
        """Whoever waits for an answer hears that there is none."""
        self._channel.hang_up()

    def close(self) -> None:
        """This end is closed; only for whoever converses."""
        self._channel.hang_up()
        self._reader.close()
        self._writer.close()

    def _say(self, content: bytes | memoryview) -> None:
        rest = memoryview(content)
        while rest:
            try:
                rest = rest[self._writer.send(rest) :]
            except OSError as error:
                raise LinkBroken(str(error.strerror)) from error

    def _exactly(self, size_bytes: int) -> bytearray:
        said = bytearray(size_bytes)
        if self.into(memoryview(said)) < size_bytes:
            raise LinkBroken("the channel ended")
        return said


def spans_asked(spans: Sequence[Span]) -> list[list[int]]:
    """The spans as a request has them."""
    return [[span.first, span.size_bytes] for span in spans]
