"""The tenant's side of a rehearsal: its clock, and where the boxes that the API shows really are."""

import asyncio
import json
from datetime import datetime
from urllib.request import Request, urlopen

from pydantic import TypeAdapter

from gpu_tenant.model import Address

_ROUTES: TypeAdapter[dict[str, Address]] = TypeAdapter(dict[str, Address])


class RehearsalClock:
    """The rehearsal's own clock: it runs like a real one, and long waiting jumps ahead."""

    def __init__(self, url: str, *, really_s: float = 0.25) -> None:
        self._url = url
        self._really_s = really_s

    def now(self) -> datetime:
        """As `Clock.now`."""
        return datetime.fromisoformat(_ask(f"{self._url}/_rehearsal/clock")["now"])

    async def sleep(self, seconds: float) -> None:
        """As `Clock.sleep`; of the time that passes there, hardly any passes here."""
        await asyncio.sleep(min(seconds, self._really_s))
        body = json.dumps({"advance_s": seconds}).encode()
        await asyncio.to_thread(_ask, f"{self._url}/_rehearsal/clock", body)


def really_at(url: str, target: str) -> Address | None:
    """Where the box really is that the provider shows at `target`; None where nothing is there."""
    return _ROUTES.validate_python(_ask(f"{url}/_rehearsal/routes")).get(target)


def _ask(url: str, body: bytes | None = None) -> dict[str, str]:
    request = Request(url, data=body, headers={"Content-Type": "application/json"})  # noqa: S310
    with urlopen(request, timeout=10) as answer:  # noqa: S310 - loopback; the scheme is checked in app
        shown: dict[str, str] = json.load(answer)
        return shown
