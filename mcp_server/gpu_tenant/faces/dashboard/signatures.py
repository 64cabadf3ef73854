"""The requests that wait for a person's signature, and how the page signs them."""

import getpass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpu_tenant.domain.errors import BadRequest, Refused, SignatureWanted
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.signature import PASSKEY, SignatureRequest, digest_of
from gpu_tenant.faces.dashboard.passkeys import By, Passkeys
from gpu_tenant.faces.dashboard.queries import answer, by, tenancy
from gpu_tenant.faces.dashboard.request_bodies import Body, Text, body_of
from gpu_tenant.faces.dashboard.typed_signature import Signing
from gpu_tenant.leases import passkeys as care


class Typed(Body):
    """A person's signature for exactly the list that the page has shown."""

    shown: Text
    typed: Text
    code: Text = ""
    credential: str = ""


class Made(Body):
    """A passkey that the browser has made, as the browser describes it."""

    credential: str


class OpenSignatures(Record):
    """The requests that wait for a signature, and what it takes to sign them here."""

    open: tuple[SignatureRequest, ...]
    by: By
    passkeys: tuple[str, ...]
    ends: bool


class ToSign(Record):
    """One request to sign. `shown` identifies its list as it is now."""

    asked: SignatureRequest
    shown: str
    by: By
    options: str | None


class Options(Record):
    """The options for a browser's passkey, in WebAuthn's own form."""

    options: str


class NextSignature(Record):
    """The code of the request that must be signed first. None if nothing needs to be signed."""

    asked: str | None


def _signing_of(request: Request) -> Signing:
    found: Signing = request.app.state.signing
    return found


def _passkeys(request: Request) -> Passkeys:
    found: Passkeys = request.app.state.passkeys
    return found


async def list_waiting(request: Request) -> Response:
    """List all requests that wait for a signature now."""
    opened = tenancy(request)
    now = opened.clock.now()
    known = opened.ledger.passkeys(now)
    return answer(
        OpenSignatures(
            open=tuple(opened.ledger.all_asked(now)),
            by=by(request),
            passkeys=care.ways_to_sign(opened.ledger, at=now) if known else (),
            ends=any(key.ends_at for key in known),
        )
    )


async def to_sign(request: Request) -> Response:
    """Return one request in full. The terminal shows its code, or the answer has the options for a passkey."""
    opened = tenancy(request)
    asked, how = opened.ledger.request_of(request.path_params["code"]), by(request)
    if asked.kind == "lost_passkey":
        how = "terminal" if _signing_of(request).tell else "none"
    options = None
    if how == "passkey":
        known = opened.ledger.passkeys(opened.clock.now())
        options = _passkeys(request).to_sign(asked, known)
    else:
        _signing_of(request).ask(asked)
    return answer(ToSign(asked=asked, shown=asked.shown, by=how, options=options))


async def sign(request: Request) -> Response:
    """Sign the request."""
    body, opened = await body_of(request, Typed), tenancy(request)
    asked, now = opened.ledger.request_of(request.path_params["code"]), opened.clock.now()
    if body.shown != asked.shown:
        raise Refused(
            "this is not the list that was shown; nothing was signed",
            remedy="look at the list once more",
        )
    known = opened.ledger.passkeys(now)
    proof = None
    if known and asked.kind != "lost_passkey":
        proof = _passkeys(request).must_fit(asked, body.credential, known)
    else:
        _signing_of(request).must_fit(asked, body.code)
    if body.typed.strip() != asked.subject:
        raise Refused(
            f"what was typed is not {asked.subject}; nothing was signed",
            remedy="look at the list once more",
        )
    return answer(
        opened.ledger.sign(
            asked, by=getpass.getuser(), form="passkey" if proof else "page", proof=proof, at=now
        )
    )


async def to_set_up(request: Request) -> Response:
    """Return the options with which the browser makes a passkey."""
    opened = tenancy(request)
    known = opened.ledger.passkeys(opened.clock.now())
    options = _passkeys(request).to_set_up(getpass.getuser(), opened.ledger.deployment, known)
    return answer(Options(options=options))


async def set_up(request: Request) -> Response:
    """Take the passkey that the browser has made. Return a request: a person must sign before it may be used."""
    body, opened = await body_of(request, Made), tenancy(request)
    made = _passkeys(request).set_up(body.credential)
    asked = opened.ledger.ask_signature(
        kind="passkey",
        subject=PASSKEY,
        digest=digest_of(made),
        at=opened.clock.now(),
        would="setting up a passkey: from then on nothing is signed without one",
        words=(f"the passkey {made[0][:12]}, which this browser has just made",),
    )
    _passkeys(request).made[asked.code] = made
    return answer(NextSignature(asked=asked.code))


async def signs_now(request: Request) -> Response:
    """Accept the new passkey from now on, if a person has signed for it."""
    opened, code = tenancy(request), request.path_params["code"]
    made, signature = _passkeys(request).made.get(code), opened.ledger.signature(code)
    if made is None or signature is None:
        raise BadRequest("nobody has signed for that passkey", remedy="set it up once more")
    now = opened.clock.now()
    opened.ledger.set_up_passkey(*made, signature, at=now)
    care.alarm_on_changes(opened.ledger, at=now)
    return answer(signature)


async def lose_passkeys(request: Request) -> Response:
    """End all passkeys a day from now, or answer which request must be signed first."""
    return _over_a_signature(request, "lost")


async def keep(request: Request) -> Response:
    """Keep the passkeys that were to end, or answer which request must be signed first."""
    return _over_a_signature(request, "keep")


def _over_a_signature(request: Request, what: str) -> Response:
    opened = tenancy(request)
    now = opened.clock.now()
    try:
        if what == "lost":
            care.end_passkeys(opened.ledger, at=now)
        else:
            care.keep_passkeys(opened.ledger, at=now)
    except SignatureWanted as wanted:
        return answer(NextSignature(asked=wanted.asked))
    care.alarm_on_changes(opened.ledger, at=now)
    return answer(NextSignature(asked=None))


ROUTES = [
    Route("/api/signatures", list_waiting),
    Route("/api/signatures/{code}", to_sign),
    Route("/api/signatures/{code}", sign, methods=["POST"]),
    Route("/api/passkeys/options", to_set_up, methods=["POST"]),
    Route("/api/passkeys", set_up, methods=["POST"]),
    Route("/api/passkeys/lost", lose_passkeys, methods=["POST"]),
    Route("/api/passkeys/keep", keep, methods=["POST"]),
    Route("/api/passkeys/{code}", signs_now, methods=["POST"]),
]
