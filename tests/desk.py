"""A real HTTP server on this computer, which gives the answers that a test has laid out."""

from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Answer:
    """What the server says next; status 0: it hangs up instead, after having read the request."""

    status: int = 200
    body: str = "{}"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Asked:
    """One request, as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Desk:
    """The server, and everything that was asked of it."""

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self.always: dict[str, str] = {}
        """What it says to `GET /path` when nothing else is laid out."""
        self.asked: list[Asked] = []
        desk = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                sent = {name.lower(): value for name, value in self.headers.items()}
                desk.asked.append(Asked(self.command, self.path, sent, body))
                usual = desk.always.get(f"{self.command} {self.path.partition('?')[0]}", "{}")
                answer = desk.answers.popleft() if desk.answers else Answer(body=usual)
                if answer.status == 0:
                    self.close_connection = True
                    return
                payload = answer.body.encode()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def says(self, *answers: Answer) -> None:
        self.answers += answers

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
