"""The protocol between this program and the courier on a box: requests of one line, answers of known length."""

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
    """The channel ended, or something other than an answer came. The requests may be made again."""


class Answer(NamedTuple):
    """The head of an answer: what kind of body follows, and of how many bytes."""

    letter: bytes
    number: int
    size_bytes: int


class Conversation:
    """One channel, which nothing else uses. Every method blocks."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._reader, self._writer = channel.reader, channel.writer
        self._number = 0

    def greet(self, script: bytes, mark: str) -> None:
        """The script runs on the box as the courier, and whatever a login script printed has been skipped.

        Raises:
            LinkBroken: the courier never answered.
        """
        self._say(script)
        end, said = f"{mark}\n".encode(), b""
        while not said.endswith(end):
            said += self._exactly(1)
            if len(said) > _MOST_NOISE_BYTES:
                raise LinkBroken("a login script prints without end")

    def round_trip_s(self) -> float:
        """How long a request and an answer without a payload take.

        Raises:
            LinkBroken: it was not answered.
        """
        asked_at = time.monotonic()
        self.ask("echo", {})
        if self.head().size_bytes:
            raise LinkBroken("another answer came than was asked for")
        return time.monotonic() - asked_at

    def ask(self, verb: str, request: Mapping[str, object], body: bytes | memoryview = b"") -> int:
        """The number of the request, which was sent together with `body`.

        Raises:
            LinkBroken: it was not sent.
        """
        self._number += 1
        line = json.dumps({"id": self._number, "do": verb, **request}).encode() + b"\n"
        for part in (line, body):
            self._say(part)
        return self._number

    def head(self) -> Answer:
        """The head of the next answer.

        Raises:
            LinkBroken: none came.
        """
        answer = Answer(*_HEAD.unpack(self._exactly(_HEAD.size)))
        if answer.letter not in (b"D", b"Z", b"S", b"A", b"E"):
            raise LinkBroken("what came is no answer")
        return answer

    def body(self, size_bytes: int) -> bytes | bytearray:
        """The body of an answer, of that size, in memory.

        Raises:
            LinkBroken: it did not come, or is larger than an answer may be.
        """
        if size_bytes > _MOST_IN_MEMORY_BYTES:
            raise LinkBroken("an answer of that size was never asked for")
        return self._exactly(size_bytes)

    def unpacked(self, size_bytes: int, held_bytes: int) -> bytes:
        """The content of a compressed body of `size_bytes`. Uncompressed it has `held_bytes`.

        Raises:
            LinkBroken: the body is not that.
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
        """How many of the body's next bytes are in `buffer`: all that fit, or what came before the channel ended.

        They are waited for in one call, because a call for each piece would cost a switch of threads.
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
        """A thread that waits for an answer is told that none will come."""
        self._channel.hang_up()

    def close(self) -> None:
        """This end is closed. Only the thread that uses the channel may call this."""
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
    """The spans in the form that a request has them."""
    return [[span.first, span.size_bytes] for span in spans]
