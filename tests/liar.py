"""Stands between a tenant and a rehearsal, and changes what the provider says. The rehearsal itself stays true."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Said:
    """One answer of the provider, on its way to the tenant."""

    method: str
    path: str
    asked: Any
    status: int
    body: Any


Lie = Callable[[Said], Said]
Instead = Callable[[str, str, Any], tuple[int, Any] | None]


class Liar:
    """A server that passes everything on to `url`, and lets `lie` change each answer of the provider.

    `instead` may answer a request that is then not passed on.
    """

    def __init__(self, url: str, lie: Lie | None = None, instead: Instead | None = None) -> None:
        self.lie, self.instead = lie, instead
        there = urlsplit(url).netloc
        liar = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                is_control = self.path.startswith("/_rehearsal/")
                asked = _parsed(body)
                if not is_control and liar.instead:
                    answer = liar.instead(self.command, self.path, asked)
                    if answer is not None:
                        self._send(answer[0], json.dumps(answer[1]).encode(), {})
                        return
                link = HTTPConnection(there, timeout=600)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in _OURS}
                link.request(self.command, self.path, body, headers)
                reply = link.getresponse()
                status, content = reply.status, reply.read()
                told = {k: v for k, v in reply.getheaders() if k.lower() not in _OURS}
                link.close()
                if not is_control and liar.lie and (shown := _parsed(content)) is not None:
                    said = liar.lie(Said(self.command, self.path, asked, status, shown))
                    status, content = said.status, json.dumps(said.body).encode()
                self._send(status, content, told)

            def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if status != 204:
                    self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Liar":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


_OURS = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


def each(value: Any, change: Callable[[dict[str, Any]], None]) -> Any:
    """Let `change` change every object in that answer, and return it."""
    if isinstance(value, dict):
        change(value)
        for inner in value.values():
            each(inner, change)
    elif isinstance(value, list):
        for inner in value:
            each(inner, change)
    return value
