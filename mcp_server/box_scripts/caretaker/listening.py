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
