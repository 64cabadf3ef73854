"""The one HTTP client for providers' REST APIs: it calls politely, and tells their answers apart."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from gpu_tenant import __version__
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    CredentialRefused,
    NoFunds,
    ProviderSilent,
    ProviderTrouble,
    RateLimited,
    Rejected,
)
from gpu_tenant.domain.ports import Asking, Clock, Credential
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.providers.response_limits import BOUNDS, Bounds, silent, unpacked

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

USER_AGENT = f"gpu-tenant/{__version__}"
"""A name of our own, because one provider answers a library's default with 403."""

_TIMEOUT_S = 30.0
_TRIES = 4
_TURNED_AWAY = 8
_LONGEST_WAIT_S = 60.0
_RESERVE = 5
"""How many calls of a provider's allowance are reserved for teardown."""
_WORDS_CHARS = 300
_SECRET_FIELDS = re.compile(
    r"instance_api_key|api_?key|jupyter_(token|url)|extra_env|user_?data|password|secret|result_url|^env$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Spacing:
    """Calls that a provider wants apart: `method` on paths that `path` matches, `seconds` apart."""

    method: Method | Literal["*"]
    path: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer whose status is one that the caller expects."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Json:
        """The body as JSON. None if it is empty.

        Raises:
            ProviderSilent: it is something else, so nothing can be concluded.
        """
        if not self.text:
            return None
        try:
            answer: Json = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise ProviderSilent(
                f"the answer is not JSON: {words(self.text)}", remedy="try again in a minute"
            ) from error
        return answer

    @property
    def fields(self) -> dict[str, Json]:
        """The body as a JSON object.

        Raises:
            ProviderSilent: it is something else.
        """
        answer = self.json
        if not isinstance(answer, dict):
            raise ProviderSilent(
                f"the answer is not an object: {words(self.text)}", remedy="try again in a minute"
            )
        return answer


@dataclass(slots=True)
class _Pace:
    """When the next call may be sent, by the provider's allowance and the required spacing."""

    free_at: dict[Spacing, datetime] = field(default_factory=dict)
    remaining: int | None = None
    renewed_at: datetime | None = None


class Wire:
    """One provider's API behind one base URL and one credential.

    Safe calls (GET, and those that the caller marks `repeatable`) are sent again after a lost
    answer, a 5xx or a 429. Others are sent once, because repeating a create may mean paying twice.
    """

    def __init__(
        self,
        *,
        title: str,
        base_url: str,
        credential: Credential | None,
        clock: Clock,
        spacing: Sequence[Spacing] = (),
        scheme: Literal["Bearer ", ""] = "Bearer ",
        bounds: Bounds = BOUNDS,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise BadRequest(
                f"{base_url} is not https, and a key would travel in clear",
                remedy="use an https address, or one on this computer",
            )
        self._title = title
        self._base = base_url.rstrip("/")
        self._credential = credential
        self._clock = clock
        self._spacing = spacing
        self._scheme = scheme
        self._bounds = bounds
        self._pace = _Pace()

    def asked_with(self, salt: str) -> Asking:
        """Where and with which key the provider is asked.

        The key is a hash, and `salt` is needed to make it again.
        """
        key = self._credential.read() if self._credential else ""
        return Asking(where=place(self._base), key=key_hash(key, salt))

    async def get(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        expect: Sequence[int] = (200,),
        urgent: Literal["", "teardown"] = "",
    ) -> Reply:
        """The answer to a GET, as `call`."""
        return await self.call("GET", path, query=query, expect=expect, urgent=urgent)

    async def call(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json = None,
        expect: Sequence[int] = (200,),
        repeatable: Literal["", "repeatable"] = "",
        urgent: Literal["", "teardown"] = "",
    ) -> Reply:
        """The provider's answer, whose status is one of `expect`.

        `urgent="teardown"` may use the part of the allowance that other calls leave alone.

        Raises:
            CredentialRefused: 401, or 403.
            NoFunds: 402.
            RateLimited: 429, after every wait that was worth it. The request was not carried out.
            ProviderSilent: no answer, or 5xx: the request may have been carried out. Also for an answer that is
                too large, or does not end within a call's time, counted over all attempts.
            ProviderTrouble: any other status that is not expected; with the provider's words.
        """
        # Imported here, because it takes a tenth of the start of a verb, and most verbs ask no
        # provider. It is loaded before the first attempt, so that no attempt's time pays for it.
        import httpx2

        lost = turned_away = 0
        left_s, real_s = self._bounds.call_s, asyncio.get_running_loop().time
        while True:
            await self._wait_for_turn(method, path, urgent)
            begun_s = real_s()
            try:
                async with asyncio.timeout(left_s):
                    reply = await self._send(method, path, query, body)
            except TimeoutError:
                raise silent(
                    f"{self._title} did not end its answer to {method} {path} within "
                    f"{self._bounds.call_s:g} s"
                ) from None
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                # InvalidURL: a page name that is a million letters long does not fit into an
                # address.
                problem: ProviderTrouble = ProviderSilent(
                    f"{self._title} gave no answer to {method} {path}: {type(error).__name__}",
                    remedy=f"{Command('leases')} looks again; the meter of a box may be running",
                )
            else:
                self._note_allowance(reply)
                answer = Reply(reply.status, reply.headers, self._without_key(reply.text))
                if answer.status in expect:
                    return answer
                problem = self.trouble(method, path, answer)
                # A call that got a 429 was not carried out, so any call may be sent again.
                wait_s = _retry_after_s(reply, self._clock.now())
                if isinstance(problem, RateLimited) and self._worth_waiting(wait_s, turned_away):
                    turned_away += 1
                    await self._clock.sleep(wait_s)
                    continue
            lost += 1
            left_s -= real_s() - begun_s
            safe = method == "GET" or repeatable
            if not (isinstance(problem, ProviderSilent) and safe and lost < _TRIES and left_s > 0):
                raise problem from None
            await self._clock.sleep(2.0 ** (lost - 1))

    @staticmethod
    def _worth_waiting(wait_s: float, turned_away: int) -> bool:
        return wait_s <= _LONGEST_WAIT_S and turned_away < _TURNED_AWAY

    async def _send(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Json
    ) -> Reply:
        import httpx2

        headers = {
            "User-Agent": USER_AGENT,
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
        }
        if self._credential is not None:
            headers["Authorization"] = f"{self._scheme}{self._credential.read()}"
        on_this_computer = self._base.startswith("http:")
        # A new connection for each call. Calls are rare, and a kept connection would belong to one
        # event loop.
        async with (
            httpx2.AsyncClient(
                timeout=_TIMEOUT_S,
                verify=_certificates("none" if on_this_computer else "all"),
                trust_env=not on_this_computer,
            ) as client,
            client.stream(
                method, self._base + path, params=query, headers=headers, json=body
            ) as answer,
        ):
            # Unpacked here, within a limit. The library would unpack any answer, however large it
            # grows.
            text = await unpacked(
                answer.aiter_raw(),
                answer.headers.get("Content-Encoding", ""),
                f"{self._title}: the answer to {method} {path}",
                self._bounds,
            )
            return Reply(answer.status_code, answer.headers, text.decode("utf-8", errors="replace"))

    async def _wait_for_turn(self, method: str, path: str, urgent: str) -> None:
        """The provider's spacing has passed, and some of its allowance is left."""
        pace, now = self._pace, self._clock.now()
        if not urgent and pace.remaining is not None and pace.remaining <= _RESERVE:
            wait_s = (pace.renewed_at - now).total_seconds() if pace.renewed_at else 0
            if wait_s > _LONGEST_WAIT_S:
                raise RateLimited(
                    f"{self._title} allows {pace.remaining} more calls in the next {wait_s:.0f} s,"
                    " and they are kept for teardown",
                    remedy="wait until then; teardown works meanwhile",
                )
            if wait_s > 0:
                await self._clock.sleep(wait_s)
            pace.remaining = None
        apart = [
            spacing
            for spacing in self._spacing
            if spacing.method in ("*", method) and re.fullmatch(spacing.path, path)
        ]
        for spacing in apart:
            # The slot is taken before the wait, so that many callers line up behind each other.
            now = self._clock.now()
            mine = max(now, pace.free_at.get(spacing, now))
            pace.free_at[spacing] = mine + timedelta(seconds=spacing.seconds)
            if mine > now:
                await self._clock.sleep((mine - now).total_seconds())
        for spacing in apart[:-1]:
            # Waiting for a later slot made this call later than its earlier slots say.
            free_at = self._clock.now() + timedelta(seconds=spacing.seconds)
            pace.free_at[spacing] = max(pace.free_at[spacing], free_at)

    def _note_allowance(self, reply: Reply) -> None:
        """The tightest allowance window in the answer's headers is recorded."""
        # Headers that cannot be read are ignored. The answer matters more than its headers.
        with contextlib.suppress(ValueError, OverflowError):
            windows = _windows(reply.headers, self._clock.now())
            if windows:
                self._pace.remaining, self._pace.renewed_at = min(windows)

    def _without_key(self, text: str) -> str:
        """The text without the key. Some servers answer with the request that they got, key and all."""
        return text.replace(self._credential.read(), "(redacted)") if self._credential else text

    def trouble(self, method: Method, path: str, reply: Reply) -> ProviderTrouble:
        """What that answer means if nothing more specific is known, with the provider's words."""
        status = reply.status
        what = f"{self._title} answered {method} {path} with {status}: {words(reply.text)}"
        if status == 401 or status == 403:
            source = self._credential.source if self._credential else "none"
            return CredentialRefused(
                f"{what} (key from {source})",
                remedy=f"see that the key is right and may do this; {Command('doctor')}",
            )
        if status == 402:
            return NoFunds(what, remedy="add credit in the provider's console, or rent elsewhere")
        if status == 429:
            return RateLimited(what, remedy="wait a minute, then the same command again")
        if status >= 500:
            return ProviderSilent(
                what, remedy=f"{Command('leases')} looks again; the meter of a box may be running"
            )
        return rejected(status, reply.text, what)


def place(base_url: str) -> str:
    """Where that address is.

    The port on this computer is left out, because a rehearsal may have another each time.
    """
    parts = urlsplit(base_url)
    is_here = parts.hostname in ("127.0.0.1", "::1")
    return f"{parts.scheme}://{parts.hostname if is_here else parts.netloc}{parts.path.rstrip('/')}"


def key_hash(key: str, salt: str) -> str:
    """A hash that tells keys apart and reveals nothing of them."""
    return hmac.new(salt.encode(), key.encode(), hashlib.sha256).hexdigest()[:16]


def rejected(status: int, body: str, what: str) -> Rejected:
    """A refusal with `status` and `body`, whose meaning its connector may know."""
    refusal = Rejected(what, remedy=f"{Command('leases')} shows what runs")
    refusal.status, refusal.body = status, body
    return refusal


def redacted(value: Json) -> Json:
    """The same value without what must not be shown: keys, tokens, environments, user data."""
    if isinstance(value, dict):
        return {
            key: "(redacted)" if _SECRET_FIELDS.search(key) else redacted(inner)
            for key, inner in value.items()
        }
    return [redacted(inner) for inner in value] if isinstance(value, list) else value


def words(body: str) -> str:
    """What a provider said, safe to show in a sentence: short, without secrets and control characters."""
    with contextlib.suppress(ValueError, RecursionError):
        body = json.dumps(redacted(json.loads(body)))
    text = " ".join(plain(body).split())
    return text if len(text) <= _WORDS_CHARS else f"{text[:_WORDS_CHARS]}..."


def _retry_after_s(reply: Reply, now: datetime) -> float:
    """How many seconds the provider asks us to wait. 5 if it does not say."""
    said = reply.headers.get("Retry-After", "")
    try:
        if said.replace(".", "", 1).isdigit():
            return float(said)
        return max(0.0, (parsedate_to_datetime(said) - now).total_seconds())
    except (ValueError, TypeError):
        return 5.0


_POLICY = re.compile(r'"(?P<name>\w+)";r=(?P<left>\d+);t=(?P<seconds>\d+)')


def _windows(headers: Mapping[str, str], now: datetime) -> list[tuple[int, datetime]]:
    """The number of calls left, and when the window is renewed, in either form that providers use."""
    found = [
        (int(match["left"]), now + timedelta(seconds=int(match["seconds"])))
        for match in _POLICY.finditer(headers.get("RateLimit", ""))
    ]
    left, reset = headers.get("ratelimit-remaining", ""), headers.get("ratelimit-reset", "")
    if left.isdigit() and reset.isdigit():
        # One provider gives the seconds left, others seconds since the epoch.
        seconds = int(reset)
        at = (
            now + timedelta(seconds=seconds)
            if seconds < 10**6
            else datetime.fromtimestamp(seconds, UTC)
        )
        found.append((int(left), at))
    return found


@cache
def _certificates(trusted: Literal["all", "none"]) -> ssl.SSLContext:
    """The certificates that TLS trusts. They are cached, because to read this computer's takes 50 ms."""
    if trusted == "none":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return ssl.create_default_context()
