"""Receivers of notifications on loopback: what a hook was sent, and what it answers."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session


@dataclass
class Hook:
    """An HTTP server that takes what is posted, and answers as a test says."""

    port: int = 0
    status: int = 200
    answer: str = "ok"
    hangs: bool = False
    let_go: threading.Event = field(default_factory=threading.Event)
    taken: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Path and JSON body of each."""

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, body in self.taken]


@contextmanager
def hook() -> Iterator[Hook]:
    told = Hook()

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            told.taken.append((self.path, json.loads(self.rfile.read(length))))
            if told.hangs:
                told.let_go.wait()
                return
            self.send_response(told.status)
            self.end_headers()
            self.wfile.write(told.answer.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing of it on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        told.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield told
        finally:
            told.let_go.set()
            server.shutdown()
            thread.join()


@asynccontextmanager
async def mail_server() -> AsyncIterator[tuple[int, list[EmailMessage]]]:
    """A port where mail is taken, and the mail that was."""
    import asyncio

    taken: list[EmailMessage] = []

    class Box:
        async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
            assert isinstance(envelope.content, bytes)
            mail = message_from_bytes(envelope.content, policy=policy.default)
            assert isinstance(mail, EmailMessage)
            taken.append(mail)
            return "250 taken"

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(Box()), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], taken
    finally:
        server.close()
        await server.wait_closed()
