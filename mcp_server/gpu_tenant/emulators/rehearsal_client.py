"""The tenant's side of a rehearsal: its clock, and the real addresses of the boxes that the API shows."""

import asyncio
import json
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.domain.model import Address

_ANSWER_S, _LEAP_S = 30.0, 600.0
"""How long the rehearsal may take to answer. A leap may wait for guards on boxes again and again."""
_REALLY_S = 0.25
"""The real time of a wait that the clock jumps over."""
_ROUTES: TypeAdapter[dict[str, Address]] = TypeAdapter(dict[str, Address])


class RehearsalClock:
    """The rehearsal's own clock. It runs like a real one, and jumps where a tenant would wait for the platform.

    It does not jump where somebody waits for a job, or where a watchdog waits for its next look. Otherwise a day would
    pass on the meter while a person reads one answer.
    """

    shared_with_boxes = False
    """Its boxes are real processes on this computer, and keep this computer's time."""

    def __init__(self, url: str, *, really_s: float | None = None) -> None:
        """With `really_s`, every wait jumps, also for work, and takes no more than that."""
        self._url = url
        self._really_s = really_s
        self._file: Path | None = None

    def now(self) -> datetime:
        """As `Clock.now`.

        The first question goes to the rehearsal, which also tells where its clock is written. The time is asked for
        several times in each verb, and a request takes a hundred times as long as to read the file.
        """
        if self._file is not None:
            try:
                told = json.loads(self._file.read_bytes())
            except OSError:
                self._file = None  # the rehearsal is over, or began elsewhere
            else:
                ran_s = 0.0 if told["since"] is None else monotonic() - told["since"]
                return datetime.fromtimestamp(told["at"] + ran_s, UTC)
        answer = json.loads(_ask(self._url, "GET", "clock"))
        self._file = Path(answer["file"]) if answer["file"] else None
        return datetime.fromisoformat(answer["now"])

    async def sleep(self, seconds: float) -> None:
        """As `Clock.sleep`. Hardly any real time passes."""
        really_s = _REALLY_S if self._really_s is None else self._really_s
        await asyncio.sleep(min(seconds, really_s))
        body = json.dumps({"advance_s": seconds})
        await asyncio.to_thread(_ask, self._url, "POST", "clock", body, _LEAP_S)

    async def follow(self, seconds: float) -> None:
        """As `Clock.follow`."""
        if self._really_s is None:
            await asyncio.sleep(seconds)
        else:
            await self.sleep(seconds)


def really_at(url: str, target: str) -> Address | None:
    """The real address of the box that the provider shows at `target`. None if nothing is there."""
    return _ROUTES.validate_json(_ask(url, "GET", "routes")).get(target)


def _ask(
    url: str, method: str, path: str, body: str | None = None, timeout_s: float = _ANSWER_S
) -> bytes:
    # Not urllib's opener: every verb asks for the time, and this takes half as long.
    connection = HTTPConnection(urlsplit(url).netloc, timeout=timeout_s)
    try:
        connection.request(method, f"/_rehearsal/{path}", body)
        return connection.getresponse().read()
    except (OSError, HTTPException) as error:
        raise LocalTrouble(
            f"the rehearsal at {url} does not answer ({type(error).__name__}): it is over",
            remedy=f"open a new shell, or unset every variable that {Command('rehearse', 'PROVIDER')} printed",
        ) from None
    finally:
        connection.close()
