"""A metadata server like Google's, which answers as a test tells it to."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAMED = {"Metadata-Flavor": "Google"}


class Metadata(ThreadingHTTPServer):
    """It answers on loopback from when it is made, in threads of its own."""

    status, fields, word = 200, NAMED, b"FALSE"
    daemon_threads = True

    def __init__(self) -> None:
        self.heard: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), _Answers)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/m"

    @property
    def address(self) -> tuple[str, int, str, str]:
        return "127.0.0.1", self.server_port, "metadata.google.internal", "/m"


class _Answers(BaseHTTPRequestHandler):
    server: Metadata

    def do_GET(self) -> None:
        self.server.heard.append((self.path, self.headers["Metadata-Flavor"]))
        self.send_response(self.server.status)
        for name, value in self.server.fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.word)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""
