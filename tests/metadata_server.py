"""A metadata server like Google's, which answers as a test tells it to."""

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Self

NAMED = {"Metadata-Flavor": "Google"}
_ASKED_WITHIN_S = 5.0


class Metadata:
    """It answers on loopback from when it is made, in a thread of its own, one after the other.

    A million polls are made at one: Python's own server would take most of a minute's thousand for itself.
    """

    status: int = 200
    fields: Mapping[str, str] = NAMED
    word = b"FALSE"

    def __init__(self) -> None:
        self.heard: list[tuple[str, str | None]] = []
        self._door = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.server_port: int = self._door.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/m"

    @property
    def address(self) -> tuple[str, int, str, str]:
        return "127.0.0.1", self.server_port, "metadata.google.internal", "/m"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """It answers no more."""
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)  # or its thread would wait for one more
        self._door.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._door.accept()
            except OSError:
                return
            with line, suppress(OSError):
                self._answer(line)

    def _answer(self, line: socket.socket) -> None:
        line.settimeout(_ASKED_WITHIN_S)
        asked = b""
        while b"\r\n\r\n" not in asked:
            part = line.recv(4096)
            if not part:
                return
            asked += part
        first, *lines = asked.decode("latin-1").split("\r\n")
        named = dict(each.split(": ", 1) for each in lines if ": " in each)
        self.heard.append((first.split()[1], named.get("Metadata-Flavor")))
        head = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        head += [f"{name}: {value}" for name, value in self.fields.items()]
        line.sendall("\r\n".join([*head, "", ""]).encode() + self.word)
