"""The tenant's side of a rehearsal: its clock, and where the boxes that the API shows really are."""

import asyncio
import json
import threading
from datetime import datetime
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from gpu_tenant.model import Address

_ROUTES: TypeAdapter[dict[str, Address]] = TypeAdapter(dict[str, Address])


class RehearsalClock:
    """The rehearsal's own clock: it runs like a real one, and long waiting jumps ahead."""

    def __init__(self, url: str, *, really_s: float = 0.25) -> None:
        self._really_s = really_s
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
        self._turn = threading.Lock()

    def now(self) -> datetime:
        """As `Clock.now`."""
        return self._ask("GET", None)

    async def sleep(self, seconds: float) -> None:
        """As `Clock.sleep`; of the time that passes there, hardly any passes here."""
        await asyncio.sleep(min(seconds, self._really_s))
        await asyncio.to_thread(self._ask, "POST", json.dumps({"advance_s": seconds}))

    def _ask(self, method: str, body: str | None) -> datetime:
        # Time is asked for often: a kept connection takes half the time of a new one.
        with self._turn:
            try:
                return self._asked(method, body)
            except (HTTPException, OSError):
                self._connection.close()
                return self._asked(method, body)

    def _asked(self, method: str, body: str | None) -> datetime:
        self._connection.request(method, "/_rehearsal/clock", body)
        return datetime.fromisoformat(json.loads(self._connection.getresponse().read())["now"])


def really_at(url: str, target: str) -> Address | None:
    """Where the box really is that the provider shows at `target`; None where nothing is there."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request("GET", "/_rehearsal/routes")
        return _ROUTES.validate_json(connection.getresponse().read()).get(target)
    finally:
        connection.close()
