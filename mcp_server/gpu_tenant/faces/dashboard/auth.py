"""Decides who may use the dashboard: only our own page, with the token that was made at this start.

A web page of another site can send requests to a loopback port, and can let a host name of its own lead to it. So each
request must have our address as its host, must come from our own origin if it states an origin, and must carry the
token. The token is not in a cookie, because a browser adds cookies by itself.
"""

from collections.abc import Iterable
from hmac import compare_digest

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpu_tenant.domain.command import Command

MOST_BYTES = 64 * 1024
"""A request may have at most this many bytes. Our own page's requests are shorter."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "manifest-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Our page never makes HTML from text. Browsers that know these directives enforce this.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

_HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-embedder-policy": b"require-corp",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    b"cache-control": b"no-store",
}


class Gate:
    """Checks each request before the routes see it, refuses requests that are not ours, and adds strict headers."""

    def __init__(
        self, app: ASGIApp, *, port: int, token: str, names: Iterable[str] = ("127.0.0.1",)
    ) -> None:
        self._app = app
        # `localhost` is in `names` only if we listen at both of its addresses: see `server`.
        self._hosts = frozenset(f"{name}:{port}" for name in names)
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to the routes, or answer it with a refusal."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # There are no websockets here. A websocket that is not accepted is closed.

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(k, v) for k, v in message["headers"] if k.lower() not in _HEADERS]
                message = {**message, "headers": [*kept, *_HEADERS.items()]}
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        said = _Said(scope["headers"])
        host = said.one(b"host")
        if host not in self._hosts:
            return _refusal(421, "WRONG_HOST", "the request names another host than the dashboard")
        origin, site = said.one(b"origin"), said.one(b"sec-fetch-site")
        if origin is not None and origin != f"http://{host}":
            return _refusal(403, "OTHER_ORIGIN", "the request came from another site")
        is_api = scope["path"].startswith("/api/") or scope["path"] == "/metrics"
        # A link on another site may open the page, but gets no data.
        is_link = not is_api and said.one(b"sec-fetch-mode") == "navigate"
        ours = (None, "same-origin") if is_api else (None, "same-origin", "none")
        if site not in ours and not is_link:
            return _refusal(403, "OTHER_ORIGIN", "the request came from another site")
        if scope["method"] not in ("GET", "HEAD", *(("POST",) if is_api else ())):
            return _refusal(
                405, "BAD_METHOD", f"{scope['method']} is not a method of the dashboard"
            )
        if not is_api:
            return None
        kind, _, token = (said.one(b"authorization") or "").partition(" ")
        if kind != "Bearer" or not compare_digest(token.encode(), self._token):
            return _refusal(401, "NO_TOKEN", "the token of this start of the dashboard is missing")
        if scope["method"] == "POST":
            length = said.one(b"content-length") or ""
            if (said.one(b"content-type") or "").split(";")[0].strip() != "application/json":
                return _refusal(415, "BAD_REQUEST", "the body of a request must be JSON")
            if not length.isdigit() or int(length) > MOST_BYTES:
                return _refusal(
                    413, "BAD_REQUEST", "a request must be short, and must state its length"
                )
        return None


class _Said:
    """The headers of a request. Repeated headers are joined with commas, so that they match no expected value."""

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._all = list(headers)

    def one(self, name: bytes) -> str | None:
        found = [value for key, value in self._all if key.lower() == name]
        return None if not found else b",".join(found).decode("latin-1")


def _refusal(status: int, code: str, words: str) -> JSONResponse:
    remedy = f"open the link that {Command('dashboard')} shows in its terminal"
    return JSONResponse({"code": code, "message": words, "remedy": remedy}, status)
