"""`gpu-tenant dashboard` in a process of its own, as a person starts it."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Literal, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from sshd import wait_until

_LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/#token=([\w-]+)")


class Dashboard:
    """The server, the link that it printed, and everything it said."""

    def __init__(
        self,
        environment: Mapping[str, str],
        directory: Path,
        *,
        keyboard: Literal["none", "person"] = "none",
    ) -> None:
        """With `keyboard="person"` it was started at a terminal."""
        directory.mkdir(parents=True, exist_ok=True)
        self._environment, self._keyboard = environment, keyboard
        self._out, self._err = directory / "dashboard.out", directory / "dashboard.err"
        self.port, self.token = 0, ""
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.end()
        for screen in self._terminal[:1]:
            os.close(screen)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def link(self) -> str:
        """What the person opens."""
        return f"{self.url}/#token={self.token}"

    @property
    def said(self) -> str:
        """Everything on its terminal so far."""
        return self._out.read_text(encoding="utf-8") + self._err.read_text(encoding="utf-8")

    def end(self) -> None:
        """Somebody pressed Ctrl-C, and it is over, without a word of a fault."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=20)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        assert "Traceback" not in self.said, self.said

    def start_again(self) -> None:
        """It was started once more at the same port, which makes a new token."""
        assert self._process.poll() is not None
        self._start()

    def ask(
        self, path: str, body: object = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of one answer, to one who holds the token and no browser."""
        usual = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}{path}", sent, {**usual, **(headers or {})})
        try:
            with urlopen(request, timeout=20) as answer:
                return answer.status, dict(answer.headers.items()), answer.read()
        except HTTPError as refused:
            with refused:
                return refused.code, dict(refused.headers.items()), refused.read()

    def shows(self, path: str) -> Any:
        """What the API answers."""
        status, _, body = self.ask(path)
        assert status == 200, body
        return json.loads(body)

    def _start(self) -> None:
        self._terminal = pty.openpty() if self._keyboard == "person" else ()
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "gpu_tenant",
                    "dashboard",
                    "--no-open",
                    "--port",
                    str(self.port),
                ],
                env=self._environment,
                start_new_session=True,
                stdout=out,
                stdin=self._terminal[1] if self._terminal else subprocess.DEVNULL,
                stderr=self._terminal[1] if self._terminal else err,
            )
        if self._terminal:
            os.close(self._terminal[1])
            Thread(target=self._read_terminal, args=self._terminal[:1], daemon=True).start()
        wait_until(
            lambda: _LINK.search(self.said) is not None or self._process.poll() is not None,
        )
        link = _LINK.search(self.said)
        assert link, self.said
        self.port, self.token = int(link[1]), link[2]
        wait_until(self._listens)

    def _read_terminal(self, screen: int) -> None:
        """What the terminal shows is kept until nobody has it open any more."""
        with suppress(OSError), self._err.open("ab", buffering=0) as err:
            while shown := os.read(screen, 4096):
                err.write(shown)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
