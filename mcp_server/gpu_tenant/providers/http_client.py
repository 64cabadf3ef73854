"""The one HTTP client for providers' REST APIs. It keeps to their limits, and turns refusals into errors."""

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
from gpu_tenant.domain.clock_offset import ahead_of
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
from gpu_tenant.domain.untrusted_text import cite
from gpu_tenant.providers.drift import Drift
from gpu_tenant.providers.response_limits import BOUNDS, Bounds, silent, unpack

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

USER_AGENT = f"gpu-tenant/{__version__}"
"""Our own name, because one provider answers a library's default name with 403."""

_TIMEOUT_S = 30.0
_TRIES = 4
_TURNED_AWAY = 8
_LONGEST_WAIT_S = 60.0
_RESERVE = 5
"""How many calls of a provider's allowance are reserved for teardown."""
_WORDS_CHARS = 300
_LARGEST_FIGURE = 1e15
_UNCLEAR = (408, 425, 499)
"""Refusals that may come after the request was carried out: the time for it was over."""
_FIREWALL = re.compile(
    r"error code: 1\d{3}\b|cloudflare|cf-ray|captcha|incapsula|akamai|web application firewall",
    re.IGNORECASE,
)
_SECRET_FIELDS = re.compile(
    r"instance_api_key|api_?key|jupyter_(token|url)|extra_env|user_?data|password|secret|result_url|^env$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Spacing:
    """A rule of a provider: calls of `method` on paths that match `path` must be `seconds` apart."""

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
        """The body as JSON. None if the body is empty.

        Raises:
            ProviderSilent: the body is not JSON, so nothing can be concluded from it.
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
            ProviderSilent: the body is not a JSON object.
        """
        answer = self.json
        if not isinstance(answer, dict):
            raise ProviderSilent(
                f"the answer is not an object: {words(self.text)}", remedy="try again in a minute"
            )
        return answer


@dataclass(slots=True)
class _Pace:
    """When the next call may be sent, according to the provider's allowance and the required spacing."""

    free_at: dict[Spacing, datetime] = field(default_factory=dict)
    remaining: int | None = None
    renewed_at: datetime | None = None


class Wire:
    """One provider's API behind one base URL and one credential.

    Safe calls are GETs, and those that the caller marks `repeatable`. They are sent again after a lost answer, a 5xx
    or a 429. Any other call is sent again only after a 429, because repeating a create may mean paying twice.
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
        drift: Drift | None = None,
    ) -> None:
        """`drift` looks at every answer for what this program does not know."""
        parts = urlsplit(base_url)
        if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise BadRequest(
                f"{base_url} is not https, so a key would be sent unencrypted",
                remedy="use an https address, or one on this computer",
            )
        self._title = title
        self._base = base_url.rstrip("/")
        self._credential = credential
        self._clock = clock
        self._spacing = spacing
        self._scheme = scheme
        self._bounds = bounds
        self._drift = drift
        self._pace = _Pace()
        self.ahead: timedelta | None = None
        """How far this computer's clock was ahead of the provider's at its newest answer. None if it sent no time."""

    def asked_with(self, salt: str) -> Asking:
        """Return where the provider is asked, and a hash of the key with which it is asked.

        The hash can be made again only with `salt`.
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
        """Send a GET. See `call`."""
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
        """Send a request, and return the provider's answer, whose status is one of `expect`.

        `urgent="teardown"` may use the part of the allowance that other calls leave alone.

        Raises:
            CredentialRefused: the status is 401 or 403, and the answer is the provider's own.
            NoFunds: the status is 402.
            RateLimited: the status is 429 even after waiting, or the wait would be too long. The request was not
            carried out. ProviderSilent: there was no answer, or the status is 5xx: the request may have been carried
            out. Also if
                the answer is too large, or not complete within a call's time, counted over all attempts.
                It is raised as well for an unexpected success, a redirect, and a web page instead of data.
            ProviderTrouble: any other unexpected status, with the provider's words.
        """
        # Imported here, because the import takes a tenth of the start of a verb, and most verbs ask no
        # provider. It happens before the first attempt, so that it uses none of the attempts' time.
        import httpx2

        lost = turned_away = 0
        left_s, real_s = self._bounds.call_s, asyncio.get_running_loop().time
        while True:
            await self._wait_for_turn(method, path, urgent)
            begun_s, sent = real_s(), self._clock.now()
            try:
                async with asyncio.timeout(left_s):
                    reply = await self._send(method, path, query, body)
            except TimeoutError:
                raise silent(
                    f"{self._title} did not complete its answer to {method} {path} within "
                    f"{self._bounds.call_s:g} s"
                ) from None
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                # InvalidURL: the provider's name for the next page may be too long for an address.
                problem: ProviderTrouble = ProviderSilent(
                    f"{self._title} gave no answer to {method} {path}: {type(error).__name__}",
                    remedy=f"{Command('leases')} looks again; the meter of a box may be running",
                )
            else:
                self._note_allowance(reply)
                self.ahead = ahead_of(
                    reply.headers.get("Date", ""),
                    sent=sent,
                    came=self._clock.now(),
                    before=self.ahead,
                )
                answer = Reply(reply.status, reply.headers, self._without_key(reply.text))
                is_expected = answer.status in expect
                if is_expected and not (answer.status < 300 and _is_web_page(answer)):
                    if self._drift is not None and answer.status < 300:
                        self._drift.look(method, path, answer.text)
                    return answer
                problem = self.trouble(method, path, answer)
                if answer.status < 400 or answer.status in _UNCLEAR:
                    problem = silent(f"{problem.message}; what was asked for may have been done")
                # A call that got a 429 was not carried out, so any such call may be sent again.
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
            # becomes.
            text = await unpack(
                answer.aiter_raw(),
                answer.headers.get("Content-Encoding", ""),
                f"{self._title}: the answer to {method} {path}",
                self._bounds,
            )
            return Reply(answer.status_code, answer.headers, text.decode("utf-8", errors="replace"))

    async def _wait_for_turn(self, method: str, path: str, urgent: str) -> None:
        """Wait until the provider's spacing has passed, and some of its allowance is left."""
        pace, now = self._pace, self._clock.now()
        if not urgent and pace.remaining is not None and pace.remaining <= _RESERVE:
            wait_s = (pace.renewed_at - now).total_seconds() if pace.renewed_at else 0
            if wait_s > _LONGEST_WAIT_S:
                raise RateLimited(
                    f"{self._title} allows {pace.remaining} more calls in the next {wait_s:.0f} s, and these "
                    "are kept for a teardown",
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
            # The slot is taken before the wait, so that many callers queue up behind each other.
            now = self._clock.now()
            mine = max(now, pace.free_at.get(spacing, now))
            pace.free_at[spacing] = mine + timedelta(seconds=spacing.seconds)
            if mine > now:
                await self._clock.sleep((mine - now).total_seconds())
        for spacing in apart[:-1]:
            # The wait for a later slot has made this call later than the time noted for its earlier slots.
            free_at = self._clock.now() + timedelta(seconds=spacing.seconds)
            pace.free_at[spacing] = max(pace.free_at[spacing], free_at)

    def _note_allowance(self, reply: Reply) -> None:
        """Record the tightest allowance window in the answer's headers."""
        # Headers that cannot be read are ignored. The answer matters more than its headers.
        with contextlib.suppress(ValueError, OverflowError):
            windows = _windows(reply.headers, self._clock.now())
            if windows:
                self._pace.remaining, self._pace.renewed_at = min(windows)

    def _without_key(self, text: str) -> str:
        """Return the text without the key. Some servers answer with the request that they got, including the key."""
        return text.replace(self._credential.read(), "(redacted)") if self._credential else text

    def trouble(self, method: Method, path: str, reply: Reply) -> ProviderTrouble:
        """Return the error for that answer if nothing more specific is known, with the provider's words."""
        status = reply.status
        what = f"{self._title} answered {method} {path} with {status}: {words(reply.text)}"
        if status in (401, 403, 407) and _is_from_a_firewall(reply):
            return ProviderSilent(
                f"{what}; this comes from a firewall or a proxy on the way, and says nothing about the key",
                remedy=f"try again in a minute, or from another network; {Command('leases')} looks again",
            )
        if status == 401 or status == 403:
            source = self._credential.source if self._credential else "none"
            return CredentialRefused(
                f"{what} (key from {source})",
                remedy=f"check that the key is right and may do this; {Command('doctor')}",
            )
        if status == 402:
            return NoFunds(what, remedy="add credit in the provider's console, or rent elsewhere")
        if status == 429:
            return RateLimited(what, remedy="wait a minute, then run the same command again")
        if status >= 500:
            return ProviderSilent(
                what, remedy=f"{Command('leases')} looks again; the meter of a box may be running"
            )
        return rejection(status, reply.text, what)


def _is_web_page(reply: Reply) -> bool:
    """Whether the answer is a page for people, as during a maintenance, or from a network that wants a login."""
    return reply.text.lstrip("\ufeff \t\r\n")[:1] == "<"


def _is_from_a_firewall(reply: Reply) -> bool:
    """Whether something in front of the API has refused the call. The providers' own refusals are JSON objects."""
    if reply.status == 407 or _FIREWALL.search(reply.text):
        return True
    try:
        is_object = isinstance(json.loads(reply.text), dict)
    except (ValueError, RecursionError):
        is_object = False
    # A 401 in plain words is the provider's: a firewall does not ask for a key.
    return not is_object and (reply.status == 403 or "<html" in reply.text.casefold())


def place(base_url: str) -> str:
    """Return the scheme, host, port and path of that address, to compare it with others.

    The port is left out for an address on this computer, because a rehearsal may have another port each time.
    """
    parts = urlsplit(base_url)
    is_here = parts.hostname in ("127.0.0.1", "::1")
    return f"{parts.scheme}://{parts.hostname if is_here else parts.netloc}{parts.path.rstrip('/')}"


def key_hash(key: str, salt: str) -> str:
    """Return a hash that differs between keys and reveals nothing of them."""
    return hmac.new(salt.encode(), key.encode(), hashlib.sha256).hexdigest()[:16]


def rejection(status: int, body: str, what: str) -> Rejected:
    """Return the error for a refusal with `status` and `body`. The connector may know what it means."""
    refusal = Rejected(what, remedy=f"{Command('leases')} shows what runs")
    refusal.status, refusal.body = status, body
    return refusal


def redact(value: Json) -> Json:
    """Return the same value without what must not be shown: keys, tokens, environments, user data."""
    if isinstance(value, dict):
        return {
            key: "(redacted)" if _SECRET_FIELDS.search(key) else redact(inner)
            for key, inner in value.items()
        }
    return [redact(inner) for inner in value] if isinstance(value, list) else value


def words(body: str) -> str:
    """Quote what a provider said, safe to show in a sentence: short, without secrets and control characters."""
    with contextlib.suppress(ValueError, RecursionError):
        body = json.dumps(redact(json.loads(body)))
    return cite(body, most=_WORDS_CHARS)


def figure(value: Json) -> float | None:
    """Return the value if it is a number that can be calculated with. None for anything else.

    JSON as Python reads it also has NaN, infinities, and whole numbers that no float can hold.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < _LARGEST_FIGURE else None


def counted_gpus(count: Json, name: Json) -> str | None:
    """Return GPUs in words, such as `2 x RTX 4090`. None if the provider does not name them."""
    number = figure(count)
    if not isinstance(name, str) or not name:
        return None
    return name if number is None else f"{number:g} x {name}"


def _retry_after_s(reply: Reply, now: datetime) -> float:
    """Return how many seconds the provider asks us to wait. 5 if it does not say."""
    said = reply.headers.get("Retry-After", "")
    try:
        if said.replace(".", "", 1).isdigit():
            return float(said)
        return max(0.0, (parsedate_to_datetime(said) - now).total_seconds())
    except (ValueError, TypeError):
        return 5.0


_POLICY = re.compile(r'"(?P<name>\w+)";r=(?P<left>\d+);t=(?P<seconds>\d+)')


def _windows(headers: Mapping[str, str], now: datetime) -> list[tuple[int, datetime]]:
    """Read how many calls are left, and when each window is renewed, in both forms that providers use."""
    found = [
        (int(match["left"]), now + timedelta(seconds=int(match["seconds"])))
        for match in _POLICY.finditer(headers.get("RateLimit", ""))
    ]
    left, reset = headers.get("ratelimit-remaining", ""), headers.get("ratelimit-reset", "")
    if left.isdigit() and reset.isdigit():
        # One provider gives the seconds that are left, others give seconds since the epoch.
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
    """Load the certificates that TLS trusts. They are cached, because reading those of this computer takes 50 ms."""
    if trusted == "none":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return ssl.create_default_context()
