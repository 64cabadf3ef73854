"""The routes that only read: the overview, one lease, its files and logs, offers, history, platforms."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast

from pydantic import AwareDatetime, JsonValue, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gpu_tenant.answers import signature_of
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, Refused, TenantError
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.faces.dashboard.credentials import platforms
from gpu_tenant.faces.dashboard.lease_view import detail_of
from gpu_tenant.faces.dashboard.poller import Looks
from gpu_tenant.faces.dashboard.prometheus import CONTENT_TYPE, metrics_text
from gpu_tenant.faces.dashboard.spend_history import history
from gpu_tenant.faces.dashboard.sse import stream
from gpu_tenant.jobs.samples import Readings, readings_of
from gpu_tenant.leases.cards import LossReport
from gpu_tenant.leases.end import asked_to_waive, assess_loss
from gpu_tenant.leases.read_logs import log_search, log_window
from gpu_tenant.service import Tenancy

_NUMBER = re.compile(r"-?[0-9]{1,15}")


class MetricsView(Readings):
    """The readings of a job over time. The metrics are complete when all of the log was read."""

    log_read_bytes: int | None = None
    log_size_bytes: int | None = None


class Losses(LossReport):
    """What would be lost, and the code of the request for a signature."""

    asked: str | None


def answer(record: Record, status: int = 200) -> Response:
    """Return the record as a JSON response."""
    return Response(record.model_dump_json(by_alias=True), status, media_type="application/json")


def looks(request: Request) -> Looks:
    """Return the object that keeps the state of all leases."""
    found: Looks = request.app.state.looks
    return found


def tenancy(request: Request) -> Tenancy:
    """Return the tenancy that is open now."""
    return looks(request).tenancy


def number(request: Request, name: str, default: int) -> int:
    """Return a whole number from the query.

    Raises:
        BadRequest: it is not a whole number.
    """
    said = request.query_params.get(name)
    if said is None:
        return default
    if not _NUMBER.fullmatch(said):
        raise BadRequest(f"{name} is no whole number", remedy="leave it out, or mend it")
    return int(said)


async def overview(request: Request) -> Response:
    """Return the overview of all leases."""
    which = request.query_params.get("which", "live")
    if which not in ("live", "all"):
        raise BadRequest(f"there is no {which!r} overview", remedy="which=live, or which=all")
    return answer(await looks(request).overview(cast("Literal['live', 'all']", which)))


async def metrics(request: Request) -> Response:
    """Return the state of all leases for Prometheus."""
    if "metrics" not in request.app.state.extras:
        raise BadRequest(
            "this dashboard was started without /metrics",
            remedy=f"{Command('dashboard', metrics=True)} starts one with it",
        )
    text = metrics_text(await looks(request).overview())
    return Response(text, headers={"content-type": CONTENT_TYPE})


async def lease(request: Request) -> Response:
    """Return all that is recorded about one lease."""
    return answer(await detail_of(looks(request), request.path_params["lease"]))


async def readings(request: Request) -> Response:
    """Return the readings and metrics of a job over time."""
    opened, courses = tenancy(request), request.app.state.courses
    found = opened.ledger.lease(request.path_params["lease"])
    job = request.query_params.get("job")
    known = MetricsView(**dict(readings_of(opened.home, found.id, job)))
    if job is not None:
        # The log has the metrics of every step, the readings only of some. If the box does not
        # answer, those of the readings are shown.
        with suppress(TenantError):
            told = await courses.upto_now(opened, found.id, job)
            known = known.model_copy(
                update={
                    "metrics": {**known.metrics, **told.series},
                    "log_read_bytes": told.read_bytes,
                    "log_size_bytes": told.size_bytes,
                }
            )
    return answer(known)


async def log(request: Request) -> Response:
    """Return a window of a job's log."""
    places = request.path_params
    return answer(
        await log_window(
            tenancy(request).context,
            places["lease"],
            places["job"],
            start=number(request, "from", -262144),
            limit=number(request, "limit", 262144),
        )
    )


async def search(request: Request) -> Response:
    """Return the lines of a job's log that contain a text."""
    places, query = request.path_params, request.query_params
    if not query.get("q"):
        raise BadRequest("nothing to look for", remedy="type a word of the log")
    return answer(
        await log_search(
            tenancy(request).context,
            places["lease"],
            places["job"],
            q=query["q"],
            start=number(request, "from", 0),
            case="yes" if query.get("case") == "yes" else "no",
        )
    )


async def sweep(request: Request) -> Response:
    """Return the recorded cells of one sweep, the best first. No box is asked."""
    from gpu_tenant.sweeps.commands import sorted_of

    context, sweep_id = tenancy(request).context, request.path_params["sweep"]
    return answer(await sorted_of(context, sweep_id))


def sealed_file(request: Request) -> tuple[Path, SealedFile]:
    """Return where the lease's files are kept, and which file of its newest seal the query names.

    Raises:
        BadRequest: there is no such file in the seal, or nothing of it was collected.
    """
    opened, name = tenancy(request), request.query_params.get("name", "")
    found = opened.ledger.lease(request.path_params["lease"])
    seal = opened.ledger.seal(found.id)
    entry = next((one for one in seal.entries if one.name == name), None) if seal else None
    if entry is None or found.kept_in is None:
        raise BadRequest(
            "no file of that name was sealed", remedy=f"{Command('collect', found.id)} lists them"
        )
    return Path(found.kept_in), entry


async def preview(request: Request) -> Response:
    """Return the beginning of one file of the newest seal, from its copy on this computer."""
    from gpu_tenant.artifacts.preview import preview_of

    directory, entry = sealed_file(request)
    return answer(
        await asyncio.to_thread(preview_of, directory, entry, request.path_params["lease"])
    )


async def losses(request: Request) -> Response:
    """Return what would be lost for good if the box were destroyed now."""
    opened = tenancy(request)
    report: LossReport = await assess_loss(opened.context, request.path_params["lease"])
    asked = asked_to_waive(opened.context, report).code if report.losses else None
    return answer(Losses(**dict(report), asked=asked))


def by(request: Request) -> Literal["passkey", "terminal", "none"]:
    """Return how a person signs on the page: by a passkey if one is set up, otherwise by a code at our terminal."""
    opened = tenancy(request)
    if opened.ledger.passkeys(opened.clock.now()):
        return "passkey"
    return "terminal" if request.app.state.signing.tell else "none"


_TEXTS = ("gpu", "region", "trust", "interruptible", "provider")
_NUMBERS = ("hours", "max_price_usd_h", "vram_gib", "disk_gb", "upload_gb", "download_gb", "limit")


def _with_types(verb: Callable[..., Awaitable[Record]]) -> Callable[..., Awaitable[Record]]:
    """Return the same operation with its annotations resolved from names to types."""

    async def run_verb(**arguments: object) -> Record:
        return await verb(**arguments)

    signature = signature_of(verb)
    run_verb.__signature__ = signature  # type: ignore[attr-defined]
    run_verb.__annotations__ = {
        **{name: given.annotation for name, given in signature.parameters.items()},
        "return": signature.return_annotation,
    }
    return run_verb


async def offers(request: Request) -> Response:
    """Return the offers of all providers now."""
    from pydantic import validate_call

    given: dict[str, JsonValue] = {
        name: value
        for name, value in request.query_params.items()
        if name in (*_TEXTS, *_NUMBERS) and value.strip()
    }
    try:
        ask = validate_call(_with_types(tenancy(request).find_offers))
        return answer(await ask(**given, explain="explain"))
    except ValidationError as error:
        first = error.errors()[0]
        raise BadRequest(
            f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}", remedy="mend that field"
        ) from None


class PassedSmoke(Record):
    """The newest smoke test, if a box may be rented with it."""

    id: str | None
    command: str | None = None
    at: AwareDatetime | None = None


async def passed_smoke(request: Request) -> Response:
    """Return which smoke test may be named when a box is rented. Its id is null if there is none."""
    from gpu_tenant.jobs.smoke import SmokeReceipt
    from gpu_tenant.leases.provision import require_smoke

    ledger = tenancy(request).ledger
    newest = ledger.newest_smoke()
    found = SmokeReceipt.model_validate_json(newest) if newest else None
    if found is not None:
        with suppress(Refused):
            require_smoke(found.id, ledger=ledger)
            return answer(PassedSmoke(id=found.id, command=found.command, at=found.at))
    return answer(PassedSmoke(id=None))


async def read_spending(request: Request) -> Response:
    """Return what was spent, by day and by lease."""
    return answer(history(tenancy(request)))


async def known_platforms(request: Request) -> Response:
    """Return all platforms, and whether the key of each is found."""
    return JSONResponse([p.model_dump(mode="json") for p in platforms(tenancy(request))])


async def checkup(request: Request) -> Response:
    """Return the findings of `doctor` about this computer."""
    return answer(await tenancy(request).doctor())


ROUTES = [
    Route("/api/overview", overview),
    Route("/metrics", metrics),
    Route("/api/stream", stream),
    Route("/api/leases/{lease}", lease),
    Route("/api/leases/{lease}/readings", readings),
    Route("/api/leases/{lease}/jobs/{job}/log", log),
    Route("/api/leases/{lease}/jobs/{job}/log/search", search),
    Route("/api/leases/{lease}/preview", preview),
    Route("/api/leases/{lease}/losses", losses),
    Route("/api/sweeps/{sweep}", sweep),
    Route("/api/offers", offers),
    Route("/api/smoke", passed_smoke),
    Route("/api/history", read_spending),
    Route("/api/platforms", known_platforms),
    Route("/api/checkup", checkup),
]
