"""Serves the dashboard on a port of this computer, until it is told to end and its last action has ended."""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Literal

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, TenantError
from gpu_tenant.faces import chinese
from gpu_tenant.faces.dashboard import actions, downloads, queries, signatures
from gpu_tenant.faces.dashboard.auth import Gate
from gpu_tenant.faces.dashboard.background_tasks import Errands, Trouble
from gpu_tenant.faces.dashboard.metric_series import Courses
from gpu_tenant.faces.dashboard.passkeys import Passkeys
from gpu_tenant.faces.dashboard.poller import Looks, PageEvent
from gpu_tenant.faces.dashboard.runbook_page import comparison_page, runbook_page
from gpu_tenant.faces.dashboard.typed_signature import Signing
from gpu_tenant.service import Tenancy

HOST, HOST_6 = "127.0.0.1", "::1"
NAME = "localhost"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_S = 0.2
_CLOCK = b"gpu-tenant-now"
_PAGE = Path(__file__).parent / "page"
_STATUS = {2: 400, 3: 409, 4: 502, 5: 502, 6: 500, 7: 409, 9: 502}
"""The HTTP status for each exit status of the same error on the command line."""

_OPENING = """\
<!doctype html><meta charset="utf-8"><title>gpu-tenant</title>
<meta http-equiv="refresh" content="0;url={link}">
<p><a href="{link}">The dashboard</a></p>
"""


class Extra(StrEnum):
    """What the dashboard can answer besides its page. It must be requested at the start."""

    METRICS = "metrics"
    """`/metrics`, for Prometheus."""


async def serve(
    opened: Callable[[], Tenancy],
    *,
    port: int,
    extras: frozenset[Extra] = frozenset(),
    sign: Callable[[str], None] | None,
    ready: Callable[[str, Path], None],
    tell: Callable[[str], None],
) -> None:
    """Run the dashboard until it is told to end, and then wait for the actions that its page has started.

    `ready` is called once, with a link and a file. The link contains the token of this start. The file opens the link,
    and only this user can read it. A browser is started with the file and not with the link, because all users of the
    computer may see the command line. `sign` shows a code at the terminal; None if no person started the dashboard at a
    terminal. `tell` is called with what is being waited for.

    Raises:
        BadRequest: the port is in use.
        KeyboardInterrupt: Ctrl-C ended it. After a second Ctrl-C, running actions were not waited for; the next command
            continues them from the ledger.
    """
    with contextlib.ExitStack() as listened:
        listening = [listened.enter_context(place) for place in _listen(port)]
        number: int = listening[0].getsockname()[1]
        names = (HOST, NAME) if _is_ours(listening) else (HOST,)
        token = secrets.token_urlsafe(32)
        looks = Looks(opened)
        app = application(looks, sign, origin=f"http://{NAME}:{number}")
        app.state.extras = extras
        server = _Server(
            uvicorn.Config(
                Gate(app, port=number, token=token, names=names),
                loop="asyncio",
                lifespan="off",
                log_level="warning",
                access_log=False,
                ws="none",
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=3,
                proxy_headers=False,
            )
        )
        link = f"http://{HOST}:{number}/#token={token}"
        opening = looks.tenancy.home.root / f"dashboard-{number}.html"
        try:
            _write_privately(opening, _OPENING.format(link=link))
            ready(link, opening)
            async with looks.kept_up():
                with _told_to_end(server, looks) as signals:
                    await server.serve(sockets=listening)
                    await _waited_for(app.state.errands, signals, tell)
        finally:
            opening.unlink(missing_ok=True)
    if signal.SIGINT in signals:
        raise KeyboardInterrupt


class _Server(uvicorn.Server):
    """A server without its own signal handlers, because running actions must be waited for after its end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signal."""
        yield


@contextlib.contextmanager
def _told_to_end(server: uvicorn.Server, looks: Looks) -> Iterator[list[int]]:
    """While the block runs, let a signal end the server. Yields a list to which the received signals are added."""
    came: list[int] = []
    loop = asyncio.get_running_loop()

    def note_signal(number: int) -> None:
        came.append(number)
        server.should_exit = True
        looks.end()

    for number in _SIGNALS:
        loop.add_signal_handler(number, note_signal, number)
    try:
        yield came
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def _waited_for(
    errands: Errands, signals: Sequence[int], tell: Callable[[str], None]
) -> None:
    """Wait until the actions that the page has started have ended, or until another signal comes."""
    if errands.under_way:
        tell(
            f"waiting for the {', the '.join(errands.under_way)}; Ctrl-C leaves it to the ledger, "
            "and the next command continues it"
        )
    known = len(signals)
    closing = asyncio.create_task(errands.aclose())
    while not closing.done() and len(signals) == known:
        await asyncio.wait([closing], timeout=_POLL_S)
    closing.cancel()


def _listen(port: int) -> list[socket.socket]:
    """Listen on the port at 127.0.0.1, and also at ::1, if this address exists and the port is free there."""
    try:
        first = socket.create_server((HOST, port))
    except OSError as error:
        raise BadRequest(
            f"port {port} of this computer cannot be used ({error.strerror})",
            remedy=f"{Command('dashboard')} without --port takes a free one",
        ) from error
    there = (HOST_6, first.getsockname()[1])
    try:
        return [first, socket.create_server(there, family=socket.AF_INET6)]
    except OSError:
        return [first]


def _is_ours(listening: Sequence[socket.socket]) -> bool:
    """Whether a request to `localhost` at that port reaches us by each of its addresses."""
    if len(listening) > 1:
        return True
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind((HOST_6, 0))
    except OSError:
        return True  # This computer has no ::1, so there is only one address.
    return False


def _write_privately(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)


def application(
    looks: Looks, sign: Callable[[str], None] | None, *, origin: str = f"http://{NAME}"
) -> Starlette:
    """Build the application: its routes, and what they share. A `Gate` must check requests first.

    `origin` is the origin for passkeys.
    """
    errands = Errands(
        looks.tenancy.clock, changed=lambda errand: looks.tell("errand", errand), ended=looks.want
    )
    looks.begun = lambda: [PageEvent("errand", errand) for errand in reversed(errands.newest_first)]
    app = Starlette(
        routes=[
            Route("/", _page),
            Route("/runbooks/compare", _comparison),  # no platform has this slug
            Route("/runbooks/{slug}", _runbook),
            # Only these are compressed. If an answer had both a secret and foreign text, its compressed size could
            # reveal the secret.
            Mount("/page/server", GZipMiddleware(Router(_IN_CHINESE), minimum_size=1000)),
            Mount("/page", GZipMiddleware(StaticFiles(directory=_PAGE), minimum_size=1000)),
            *queries.ROUTES,
            *downloads.ROUTES,
            *actions.ROUTES,
            *signatures.ROUTES,
        ],
        exception_handlers={TenantError: _error_response, Exception: _error_response},
        middleware=[Middleware(_Dated, looks)],
    )
    app.state.looks, app.state.errands, app.state.courses = looks, errands, Courses()
    app.state.extras = frozenset[Extra]()
    app.state.signing, app.state.passkeys = Signing(sign), Passkeys(origin)
    return app


class _Dated:
    """Adds the server's time to each answer. The page uses this clock, and not the browser's."""

    def __init__(self, app: ASGIApp, looks: Looks) -> None:
        self._app, self._looks = app, looks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, with the time in a header."""

        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                now = self._looks.tenancy.clock.now().isoformat().encode()
                message = {**message, "headers": [*message["headers"], (_CLOCK, now)]}
            await send(message)

        await self._app(scope, receive, send_dated)


async def _sentences(_: Request) -> Response:
    return JSONResponse(chinese.sentences())


async def _translator(_: Request) -> Response:
    return FileResponse(chinese.TRANSLATOR, media_type="text/javascript")


_IN_CHINESE = (Route("/sentences.json", _sentences), Route("/translate.js", _translator))
"""The routes that a page in Chinese needs: the server's sentences, and the script that translates with them."""


async def _page(_: Request) -> Response:
    return FileResponse(_PAGE / "index.html")


async def _comparison(request: Request) -> Response:
    lang: Literal["en", "zh"] = "zh" if request.query_params.get("lang") == "zh" else "en"
    return HTMLResponse(comparison_page([*queries.tenancy(request).profiles.values()], lang))


async def _runbook(request: Request) -> Response:
    profile = queries.tenancy(request).profiles.get(request.path_params["slug"])
    if profile is None:
        raise BadRequest("there is no such platform", remedy=f"{Command('profiles')} lists them")
    lang: Literal["en", "zh"] = "zh" if request.query_params.get("lang") == "zh" else "en"
    return HTMLResponse(runbook_page(profile, lang))


async def _error_response(_: Request, error: Exception) -> Response:
    told = Trouble.of(error)
    status = _STATUS.get(error.exit_status, 500) if isinstance(error, TenantError) else 500
    return JSONResponse(told.model_dump(), status)
