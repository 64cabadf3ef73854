"""The dashboard on a port of this computer, from its first link to its last errand."""

import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from gpu_tenant.dashboard import acts, reads
from gpu_tenant.dashboard.courses import Courses
from gpu_tenant.dashboard.errands import Errand, Errands, Trouble
from gpu_tenant.dashboard.gate import Gate
from gpu_tenant.dashboard.looks import Looks
from gpu_tenant.dashboard.runbooks import runbook_page
from gpu_tenant.errors import BadRequest, TenantError
from gpu_tenant.service import Tenancy

HOST = "127.0.0.1"
_PAGE = Path(__file__).parent / "page"
_STATUS = {2: 400, 3: 409, 4: 502, 5: 502, 6: 500, 7: 409, 9: 502}
"""By the exit status of the same error on the command line."""

_OPENING = """\
<!doctype html><meta charset="utf-8"><title>gpu-tenant</title>
<meta http-equiv="refresh" content="0;url={link}">
<p><a href="{link}">The dashboard</a></p>
"""


async def serve(
    opened: Callable[[], Tenancy],
    *,
    port: int,
    signs: Literal["person", "nobody"],
    ready: Callable[[str, Path], None],
) -> None:
    """The dashboard answered until it was told to end; what its page began was waited for.

    `ready` is called once with the link, which holds the token of this start, and with a file that
    leads there and only this user can read: what a browser is started with, all users may see.

    Raises:
        BadRequest: the port is taken.
    """
    with _listening(port) as listening:
        number: int = listening.getsockname()[1]
        token = secrets.token_urlsafe(32)
        looks = Looks(opened)
        app = Gate(application(looks, signs), port=number, token=token)
        server = uvicorn.Server(
            uvicorn.Config(
                app, loop="asyncio", lifespan="on", log_level="warning", access_log=False, ws="none",
                server_header=False, date_header=False, timeout_graceful_shutdown=3,
                proxy_headers=False,
            )
        )  # fmt: skip
        link = f"http://{HOST}:{number}/#token={token}"
        opening = looks.tenancy.home.root / f"dashboard-{number}.html"
        try:
            _write_privately(opening, _OPENING.format(link=link))
            ready(link, opening)
            await server.serve(sockets=[listening])
        finally:
            opening.unlink(missing_ok=True)


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise BadRequest(
            f"port {port} of this computer cannot be listened at ({error.strerror})",
            remedy="`gpu-tenant dashboard` without --port takes a free one",
        ) from error


def _write_privately(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)


def application(looks: Looks, signs: Literal["person", "nobody"]) -> Starlette:
    """The routes, with what they share; a gate must stand before them."""

    def ended(errand: Errand, trouble: Exception | None) -> None:
        looks.want()

    errands = Errands(
        looks.tenancy.clock, changed=lambda errand: looks.tell("errand", errand), ended=ended
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with looks.kept_up():
            yield
            await errands.aclose()

    app = Starlette(
        routes=[
            Route("/", _page),
            Route("/runbooks/{slug}", _runbook),
            Mount("/page", StaticFiles(directory=_PAGE)),
            *reads.ROUTES,
            *acts.ROUTES,
        ],
        exception_handlers={TenantError: _told, Exception: _told},
        lifespan=lifespan,
    )
    app.state.looks, app.state.errands, app.state.courses = looks, errands, Courses()
    app.state.signs = signs == "person"
    return app


async def _page(_: Request) -> Response:
    return FileResponse(_PAGE / "index.html")


async def _runbook(request: Request) -> Response:
    profile = reads.tenancy(request).profiles.get(request.path_params["slug"])
    if profile is None:
        raise BadRequest("there is no such platform", remedy="`gpu-tenant profiles` lists them")
    lang: Literal["en", "zh"] = "zh" if request.query_params.get("lang") == "zh" else "en"
    return HTMLResponse(runbook_page(profile, lang))


async def _told(_: Request, error: Exception) -> Response:
    told = Trouble.of(error)
    status = _STATUS.get(error.exit_status, 500) if isinstance(error, TenantError) else 500
    return JSONResponse(told.model_dump(), status)
