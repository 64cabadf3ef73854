"""The routes that change something. Each calls the same operation, with the same checks, as the command line does."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpu_tenant.domain.choices import SaidWhenDone
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.record import MOST_H, Amount, Hours, Record
from gpu_tenant.faces.dashboard.background_tasks import Errand, Errands
from gpu_tenant.faces.dashboard.credentials import keep_reference, try_key
from gpu_tenant.faces.dashboard.queries import answer, looks, tenancy
from gpu_tenant.faces.dashboard.request_bodies import Body, Patterns, Text, body_of
from gpu_tenant.leases import adopt as adopting
from gpu_tenant.leases.recover import recover
from gpu_tenant.leases.speaker import speaker
from gpu_tenant.leases.watch_actions import park_stray, pull
from gpu_tenant.service import Tenancy


class Extend(Body):
    """How far to extend the lease."""

    hours: Annotated[float, Field(gt=0, le=8760)]


class TermsBody(Body):
    """The terms that change. A term that is left out stays as it is."""

    budget_usd: Amount | None = None
    max_price_usd_h: Amount | None = None
    idle_h: Hours | None = None
    when_done: SaidWhenDone = ""
    name: Text = ""


class More(Body):
    """What the lease needs so that its job can finish: a new total budget, and a new deadline, in hours from now."""

    budget_usd: Amount
    hours: Annotated[float, Field(gt=0, le=8760)]


class Resume(Body):
    """How long the resumed box is needed, and its new address."""

    hours: Annotated[float | None, Field(gt=0, le=8760)] = None
    address: Text | None = None


class Stop(Body):
    """Which job to end, and how many seconds it may take to end."""

    job: Text | None = None
    grace_s: Annotated[float, Field(ge=0, le=600)] = 20


class Collect(Body):
    """Where to collect to, and patterns of files to keep or discard in addition to the declared ones."""

    to: Text | None = None
    artifacts: Patterns = ()
    discard: Patterns = ()


class Nothing(Body):
    """A request without any fields."""


class Adopt(Body):
    """A box in the account that has no lease yet, and what to do with it."""

    provider: Text
    box: Text
    then: Literal["keep", "park"] = "keep"


class Rent(Body):
    """What is rented, and on which terms. A term that is left out has the default of `provision`."""

    quote: Text
    smoke: Text
    hours: Annotated[float | None, Field(gt=0, le=MOST_H)] = None
    budget_usd: Amount | None = None
    name: Text = ""


class Cells(Body):
    """The cells of a sweep to which the action applies."""

    cells: Annotated[tuple[Text, ...], Field(min_length=1, max_length=1000)]


class CredentialBody(Body):
    """Where a platform's key is kept."""

    provider: Text
    reference: Text


class Platformed(Body):
    """The platform to which the action applies."""

    provider: Text


async def _extend(opened: Tenancy, lease: str, body: Extend) -> Record:
    return await opened.change_lease(lease, "extend", hours=body.hours)


async def _terms(opened: Tenancy, lease: str, body: TermsBody) -> Record:
    return await opened.change_lease(
        lease,
        "terms",
        budget_usd=body.budget_usd,
        max_price_usd_h=body.max_price_usd_h,
        idle_h=body.idle_h,
        when_done=body.when_done,
        name=body.name,
    )


async def _give_more(opened: Tenancy, lease: str, body: More) -> Record:
    """Raise the budget, and then move the deadline.

    If moving the deadline is refused, the old deadline still holds, although the budget is already raised.
    """
    await opened.change_lease(lease, "terms", budget_usd=body.budget_usd)
    return await opened.change_lease(lease, "extend", hours=body.hours)


async def _park(opened: Tenancy, lease: str, body: Nothing) -> Record:
    return await opened.change_lease(lease, "park")


async def _resume(opened: Tenancy, lease: str, body: Resume) -> Record:
    return await opened.change_lease(lease, "resume", hours=body.hours, address=body.address)


async def _resume_and_end(opened: Tenancy, lease: str, body: Resume) -> Record:
    """Start a stopped box, collect from it, and tear it down. If it cannot start, nothing has changed."""
    await _resume(opened, lease, body)
    return await _end(opened, lease, Nothing())


async def _look(opened: Tenancy, lease: str, body: Nothing) -> Record:
    """Ask a box that did not answer again. Nothing changes if it still does not answer."""
    return await opened.follow(lease, None, cursor=None, wait_s=0, limit_bytes=1)


async def _recover(opened: Tenancy, lease: str, body: Nothing) -> Record:
    return await recover(opened.context, lease)


async def _stop(opened: Tenancy, lease: str, body: Stop) -> Record:
    return await opened.stop_job(lease, body.job, grace_s=body.grace_s)


async def _stop_and_park(opened: Tenancy, lease: str, body: Stop) -> Record:
    """End the job, and then park the box. If the park is refused, the box stays as it is."""
    await opened.stop_job(lease, body.job, grace_s=body.grace_s)
    return await opened.change_lease(lease, "park")


async def _collect(opened: Tenancy, lease: str, body: Collect) -> Record:
    speaker.set("person")
    return await opened.collect(
        lease, body.to, artifacts=list(body.artifacts), discard=list(body.discard)
    )


async def _snapshot(opened: Tenancy, lease: str, body: Nothing) -> Record:
    return await pull(opened.context, lease)


async def _teardown(opened: Tenancy, lease: str, body: Nothing) -> Record:
    return await opened.verify_and_teardown(lease)


async def _end(opened: Tenancy, lease: str, body: Nothing) -> Record:
    """Collect, then verify and tear down. The teardown is refused if something was not collected or cannot be proved."""
    await opened.collect(lease, None)
    return await opened.verify_and_teardown(lease)


async def _waive(opened: Tenancy, lease: str, body: Nothing) -> Record:
    return await opened.waive(lease)


_VERBS: dict[str, tuple[type[Body], Callable[..., Awaitable[Record]]]] = {
    "extend": (Extend, _extend),
    "terms": (TermsBody, _terms),
    "park": (Nothing, _park),
    "resume": (Resume, _resume),
    "resume_and_end": (Resume, _resume_and_end),
    "give_more": (More, _give_more),
    "look": (Nothing, _look),
    "recover": (Nothing, _recover),
    "stop": (Stop, _stop),
    "stop_and_park": (Stop, _stop_and_park),
    "collect": (Collect, _collect),
    "snapshot": (Nothing, _snapshot),
    "teardown": (Nothing, _teardown),
    "end": (Nothing, _end),
    "waive": (Nothing, _waive),
}


class Begun(Record):
    """The actions that are running, and those that have ended."""

    errands: tuple[Errand, ...]


async def act(request: Request) -> Response:
    """Start one action on one lease."""
    verb, opened = request.path_params["verb"], tenancy(request)
    if verb not in _VERBS:
        raise BadRequest(
            f"{verb!r} is not a verb for a lease", remedy=f"use one of: {', '.join(_VERBS)}"
        )
    shape, do = _VERBS[verb]
    body = await body_of(request, shape)
    lease = opened.ledger.lease(request.path_params["lease"]).id
    errands: Errands = request.app.state.errands
    asked = body.model_dump_json()
    return answer(errands.begin(verb, lease, lambda: do(opened, lease, body), asked=asked), 202)


async def adopt(request: Request) -> Response:
    """Start to adopt a box: make a lease for a box that was rented without one."""
    body, opened = await body_of(request, Adopt), tenancy(request)

    take = (
        partial(park_stray, opened.context)
        if body.then == "park"
        else partial(adopting.adopt, opened.context)
    )
    errands: Errands = request.app.state.errands
    return answer(
        errands.begin(
            "adopt", None, lambda: take(body.provider, body.box), asked=body.model_dump_json()
        ),
        202,
    )


async def rent(request: Request) -> Response:
    """Start to rent a box by a quote, as `provision` does, and under the same limits."""
    body, opened = await body_of(request, Rent), tenancy(request)

    def provision() -> Awaitable[Record]:
        speaker.set("person")  # the page's token is for the person who opened it
        return opened.provision(
            quotes=[body.quote],
            smoke=body.smoke,
            hours=body.hours,
            budget_usd=body.budget_usd,
            name=body.name,
        )

    errands: Errands = request.app.state.errands
    return answer(
        errands.begin("provision", None, provision, asked=body.model_dump_json()),
        202,
    )


async def decide_cells(request: Request) -> Response:
    """Start to run cells of a sweep again, or to give up cells that have not begun."""
    from gpu_tenant.sweeps.commands import give_up_cells, retry_cells

    body, opened, what = (
        await body_of(request, Cells),
        tenancy(request),
        request.path_params["what"],
    )
    if what not in ("again", "give_up"):
        raise BadRequest(f"{what!r} cannot be done with a cell", remedy="use `again` or `give_up`")
    sweep = opened.ledger.sweep(request.path_params["sweep"]).id

    async def decide() -> None:
        if what == "again":
            await retry_cells(opened.context, sweep, body.cells)
        else:
            await give_up_cells(opened.context, sweep, body.cells)

    errands: Errands = request.app.state.errands
    asked = f"{sweep} {body.model_dump_json()}"
    return answer(errands.begin(what, None, decide, asked=asked), 202)


async def list_errands(request: Request) -> Response:
    """List all actions since the start of the dashboard."""
    errands: Errands = request.app.state.errands
    return answer(Begun(errands=tuple(errands.newest_first)))


async def credential(request: Request) -> Response:
    """Write the reference to a platform's key into the configuration, and try the key."""
    body = await body_of(request, CredentialBody)
    written = await keep_reference(tenancy(request), body.provider, body.reference)
    looks(request).take_tenancy()
    return answer(written)


async def credential_test(request: Request) -> Response:
    """Try the platform's key, as it is configured now."""
    body = await body_of(request, Platformed)
    return answer(await try_key(tenancy(request), body.provider))


ROUTES = [
    Route("/api/errands", list_errands),
    Route("/api/leases/{lease}/{verb}", act, methods=["POST"]),
    Route("/api/boxes/adopt", adopt, methods=["POST"]),
    Route("/api/sweeps/{sweep}/{what}", decide_cells, methods=["POST"]),
    Route("/api/boxes/rent", rent, methods=["POST"]),
    Route("/api/credentials", credential, methods=["POST"]),
    Route("/api/credentials/test", credential_test, methods=["POST"]),
]
