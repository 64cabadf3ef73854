"""The routes for downloads: the report, a kept file, a log. The browser never shows these as pages of this origin."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.faces.dashboard.queries import sealed_file, tenancy
from gpu_tenant.jobs.logs.window import MOST_WINDOW_BYTES
from gpu_tenant.leases.read_logs import log_window

_MEDIA_TYPE = "application/octet-stream"


def _as_attachment(name: str) -> dict[str, str]:
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(name)}"}


async def report(request: Request) -> Response:
    """Return the report of the lease as one file."""
    from gpu_tenant.faces.report import as_html, as_markdown, report_of

    opened, form = tenancy(request), request.query_params.get("form", "html")
    if form not in ("html", "md"):
        raise BadRequest(f"there is no report as {form!r}", remedy="form=html, or form=md")
    found = opened.ledger.lease(request.path_params["lease"])
    told = await report_of(opened.context, found.id)
    written = as_html(told) if form == "html" else as_markdown(told)
    headers = _as_attachment(f"gpu-tenant-{found.id}.{form}")
    return Response(written, media_type=_MEDIA_TYPE, headers=headers)


async def kept_file(request: Request) -> Response:
    """Return the copy on this computer of one file of the newest seal."""
    from gpu_tenant.artifacts.preview import kept_path

    directory, entry = sealed_file(request)
    path = await asyncio.to_thread(kept_path, directory, entry, request.path_params["lease"])
    return FileResponse(path, media_type=_MEDIA_TYPE, headers=_as_attachment(path.name))


async def log(request: Request) -> Response:
    """Return all of a job's log up to now as text, without characters that could control a terminal, except colours."""
    lease, job = request.path_params["lease"], request.path_params["job"]
    context = tenancy(request).context

    async def read(start: int) -> tuple[bytes, int, int]:
        part = await log_window(context, lease, job, start=start, limit=MOST_WINDOW_BYTES)
        return part.text.encode(), part.to, part.size

    # Read the first part now, so that an error is raised before anything is sent.
    text, at, size = await read(0)

    async def parts() -> AsyncIterator[bytes]:
        nonlocal at
        yield text
        while at < size:
            more, to, _ = await read(at)
            if to <= at:
                return
            at = to
            yield more

    headers = _as_attachment(f"gpu-tenant-{lease}-{job}.log")
    return StreamingResponse(parts(), media_type=_MEDIA_TYPE, headers=headers)


ROUTES = [
    Route("/api/leases/{lease}/report", report),
    Route("/api/leases/{lease}/file", kept_file),
    Route("/api/leases/{lease}/jobs/{job}/log/file", log),
]
