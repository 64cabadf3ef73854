"""What the page does: each verb of a lease, through the same service and under the same law as everywhere."""

import getpass
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpu_tenant.dashboard.credential_desk import keep_reference, try_key
from gpu_tenant.dashboard.errands import Errand, Errands
from gpu_tenant.dashboard.reads import answer, looks, tenancy
from gpu_tenant.dashboard.signing import Signing
from gpu_tenant.errors import BadRequest
from gpu_tenant.record import Record
from gpu_tenant.service import Tenancy

_Text = Annotated[str, Field(max_length=400)]
_Patterns = Annotated[list[_Text], Field(max_length=100)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Extend(_Body):
    """Until when."""

    hours: Annotated[float, Field(gt=0, le=8760)]


class Resume(_Body):
    """How long, and where the box is now."""

    hours: Annotated[float | None, Field(gt=0, le=8760)] = None
    address: _Text | None = None


class Stop(_Body):
    """Which job, and how long it may take."""

    job: _Text | None = None
    grace_s: Annotated[float, Field(ge=0, le=600)] = 20


class Collect(_Body):
    """Where to, and what besides or less than was declared."""

    to: _Text | None = None
    artifacts: _Patterns = []
    discard: _Patterns = []


class Waive(_Body):
    """A person's signature for exactly the loss that they were shown."""

    digest: _Text
    typed: _Text
    code: _Text = ""


class Nothing(_Body):
    """No more is said."""


class Adopt(_Body):
    """A box of the account that is not ours yet."""

    provider: _Text
    box: _Text
    then: Literal["keep", "park"] = "keep"


class Credential(_Body):
    """Where a platform's key is kept."""

    provider: _Text
    reference: _Text


class Platformed(_Body):
    """Which platform."""

    provider: _Text


_B = TypeVar("_B", bound=_Body)


async def _extend(opened: Tenancy, lease: str, body: Extend) -> Record:
    return await opened.change_lease(lease, "extend", hours=body.hours)


async def _park(opened: Tenancy, lease: str, body: Nothing) -> Record:
    return await opened.change_lease(lease, "park")


async def _resume(opened: Tenancy, lease: str, body: Resume) -> Record:
    return await opened.change_lease(lease, "resume", hours=body.hours, address=body.address)


async def _recover(opened: Tenancy, lease: str, body: Nothing) -> Record:
    return await opened.recover(lease)


async def _stop(opened: Tenancy, lease: str, body: Stop) -> Record:
    return await opened.stop_job(lease, body.job, grace_s=body.grace_s)


async def _collect(opened: Tenancy, lease: str, body: Collect) -> Record:
    return await opened.collect(lease, body.to, artifacts=body.artifacts, discard=body.discard)


async def _snapshot(opened: Tenancy, lease: str, body: Nothing) -> Record:
    return await opened.pull(lease)


async def _teardown(opened: Tenancy, lease: str, body: Nothing) -> Record:
    return await opened.verify_and_teardown(lease)


async def _waive(opened: Tenancy, lease: str, body: Waive) -> Record:
    return await opened.waive(
        lease, shown_digest=body.digest, typed=body.typed,
        signed_by=f"{getpass.getuser()}, on the dashboard's page",
    )  # fmt: skip


_VERBS: dict[str, tuple[type[_Body], Callable[..., Awaitable[Record]]]] = {
    "extend": (Extend, _extend),
    "park": (Nothing, _park),
    "resume": (Resume, _resume),
    "recover": (Nothing, _recover),
    "stop": (Stop, _stop),
    "collect": (Collect, _collect),
    "snapshot": (Nothing, _snapshot),
    "teardown": (Nothing, _teardown),
    "waive": (Waive, _waive),
}


class Begun(Record):
    """What is under way, and what was."""

    errands: tuple[Errand, ...]


async def act(request: Request) -> Response:
    """One verb of one lease is under way."""
    verb, opened = request.path_params["verb"], tenancy(request)
    if verb not in _VERBS:
        raise BadRequest(f"a lease is not told to {verb!r}", remedy=f"one of: {', '.join(_VERBS)}")
    shape, do = _VERBS[verb]
    body = await _body(request, shape)
    lease = opened.ledger.lease(request.path_params["lease"]).id
    if isinstance(body, Waive):
        signing: Signing = request.app.state.signing
        signing.must_fit(lease, body.digest, body.code)
    errands: Errands = request.app.state.errands
    asked = body.model_dump_json()
    return answer(errands.begin(verb, lease, lambda: do(opened, lease, body), asked=asked), 202)


async def adopt(request: Request) -> Response:
    """A box that somebody else rented is being taken under a lease."""
    body, opened = await _body(request, Adopt), tenancy(request)

    take = opened.park_stray if body.then == "park" else opened.adopt
    errands: Errands = request.app.state.errands
    return answer(
        errands.begin(
            "adopt", None, lambda: take(body.provider, body.box), asked=body.model_dump_json()
        ),
        202,
    )


async def begun(request: Request) -> Response:
    """What was begun since the dashboard started."""
    errands: Errands = request.app.state.errands
    return answer(Begun(errands=tuple(errands.newest_first)))


async def credential(request: Request) -> Response:
    """A reference is in the configuration, and was tried."""
    body = await _body(request, Credential)
    written = await keep_reference(tenancy(request), body.provider, body.reference)
    looks(request).reopened()
    return answer(written)


async def credential_test(request: Request) -> Response:
    """The key that is found was tried."""
    body = await _body(request, Platformed)
    return answer(await try_key(tenancy(request), body.provider))


async def _body(request: Request, shape: type[_B]) -> _B:
    """The request's body.

    Raises:
        BadRequest: it is not of that shape; what was sent is not repeated.
    """
    try:
        return shape.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise BadRequest(
            f"{where}: {first['msg'].lower()}", remedy="mend it and try again"
        ) from None


ROUTES = [
    Route("/api/errands", begun),
    Route("/api/leases/{lease}/{verb}", act, methods=["POST"]),
    Route("/api/boxes/adopt", adopt, methods=["POST"]),
    Route("/api/credentials", credential, methods=["POST"]),
    Route("/api/credentials/test", credential_test, methods=["POST"]),
]
