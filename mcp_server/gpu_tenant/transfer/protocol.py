"""The protocol between this program and the courier on a box: requests of one line, and answers of known length."""

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
    """The channel ended, or something came that was not an answer. The requests may be sent again."""


class Answer(NamedTuple):
    """The head of an answer: the kind of body that follows, and its size in bytes."""

    letter: bytes
    number: int
    size_bytes: int


class Conversation:
    """One channel, which only one thread may use. Every method blocks."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._reader, self._writer = channel.reader, channel.writer
        self._number = 0

    def greet(self, script: bytes, mark: str) -> None:
        """Start the courier's script on the box, and skip everything that a login script printed.

        Raises:
            LinkBroken: the courier did not answer.
        """
        self._say(script)
        end, said = f"{mark}\n".encode(), b""
        while not said.endswith(end):
            said += self._exactly(1)
            if len(said) > _MOST_NOISE_BYTES:
                raise LinkBroken("a login script prints without end")

    def round_trip_s(self) -> float:
        """Measure how many seconds a request and an answer without content take.

        Raises:
            LinkBroken: the request was not answered.
        """
        asked_at = time.monotonic()
        self.ask("echo", {})
        if self.head().size_bytes:
            raise LinkBroken("the answer does not fit the request")
        return time.monotonic() - asked_at

    def ask(self, verb: str, request: Mapping[str, object], body: bytes | memoryview = b"") -> int:
        """Send a request, followed by `body`. Returns the number of the request.

        Raises:
            LinkBroken: the request could not be sent.
        """
        self._number += 1
        line = json.dumps({"id": self._number, "do": verb, **request}).encode() + b"\n"
        for part in (line, body):
            self._say(part)
        return self._number

    def head(self) -> Answer:
        """Read the head of the next answer.

        Raises:
            LinkBroken: no answer came.
        """
        answer = Answer(*_HEAD.unpack(self._exactly(_HEAD.size)))
        if answer.letter not in (b"D", b"Z", b"S", b"A", b"E"):
            raise LinkBroken("what came is not an answer")
        return answer

    def body(self, size_bytes: int) -> bytes | bytearray:
        """Read the body of an answer into memory. `size_bytes` is the size that the head of the answer stated.

        Raises:
            LinkBroken: the body did not come completely, or is larger than any answer may be.
        """
        if size_bytes > _MOST_IN_MEMORY_BYTES:
            raise LinkBroken("the answer is larger than any request asks for")
        return self._exactly(size_bytes)

    def read_packed(self, size_bytes: int, held_bytes: int) -> bytes:
        """Read a compressed body of `size_bytes` bytes. Returns its content, which must have `held_bytes` bytes.

        Raises:
            LinkBroken: the body cannot be decompressed to `held_bytes` bytes.
        """
        inflater = zlib.decompressobj()
        try:
            content = inflater.decompress(self.body(size_bytes), max(1, held_bytes))
        except zlib.error as error:
            raise LinkBroken(str(error)) from error
        if not inflater.eof or len(content) != held_bytes:
            raise LinkBroken("a compressed answer has another size than was asked for")
        return content

    def into(self, buffer: memoryview) -> int:
        """Read the next bytes of the body into `buffer`, and return how many were read.

        It returns fewer bytes than fit only if the channel ended. One call waits for all of them, because each
        call costs a switch of threads.
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
        """Tell the thread that waits for an answer that none will come."""
        self._channel.hang_up()

    def close(self) -> None:
        """Close this end of the channel. Only the thread that uses the channel may call this."""
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
    """Return the spans in the form in which a request gives them."""
    return [[span.first, span.size_bytes] for span in spans]
