"""Calls through Google's official client, which is imported when the first call is made."""

import contextlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property, partial
from importlib import import_module
from io import BytesIO
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from gpu_tenant.domain.clock_offset import ahead_of
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    CredentialRefused,
    NoCapacity,
    NoFunds,
    NoQuota,
    ProviderSilent,
    ProviderTrouble,
    RateLimited,
)
from gpu_tenant.domain.ports import Clock, Credential
from gpu_tenant.files.installation import extra_line
from gpu_tenant.providers.http_client import rejection, words
from gpu_tenant.providers.response_limits import (
    BOUNDS,
    PIECE_BYTES,
    Aside,
    Bounds,
    Leafing,
    read_bounded,
)

Message: TypeAlias = Any
"""One of Google's messages. It is untyped, because the types come with an optional package."""

_TIMEOUT_S, _TRIES, _PAUSE_S = 30, 4, 5.0
_PAGE = 500
_KEPT = ("id", "zone", "labels")
_LOOKS_AGAIN = f"{Command('leases')} looks again; the meter of a box may be running"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class GcpClient:
    """The Compute Engine API for one project. Each call returns its answer or raises one of our errors.

    The client's own retries are off. We use only those methods of the client that return the plain operation. The other
    methods poll the operation at Google's real address, even if another endpoint was configured.
    """

    def __init__(
        self,
        *,
        endpoint: str,
        credential: Credential | None,
        clock: Clock,
        bounds: Bounds = BOUNDS,
    ) -> None:
        self._endpoint = endpoint
        self._credential = credential
        self._clock = clock
        self._bounds = bounds
        self.ahead: timedelta | None = None
        """How far this computer's clock was ahead of Google's at its newest answer. None if it sent no time."""
        self._aside = Aside("Google Cloud", bounds)

    @property
    def project(self) -> str:
        """The project in which boxes are rented.

        Raises:
            BadRequest: no project is named.
        """
        named = self._credential.read().strip() if self._credential else ""
        if not named:
            raise BadRequest("no project is named", remedy="set GPU_TENANT_GCP_PROJECT to its id")
        return named

    async def ask(
        self,
        service: str,
        method: str,
        fields: Mapping[str, object],
        *,
        often: Literal["", "once"] = "",
    ) -> Message:
        """Call that method of that service of the client, and return its answer.

        A call whose answer was lost is sent again, unless `often` is "once". A call that was refused because of a
        rate limit was not carried out, and is always sent again.

        Raises:
            CredentialRefused: Google refused the key with 401 or 403.
            NoQuota: Google refused with 403 because of a quota.
            RateLimited: there were too many calls: 429, or 403 for that reason.
            ProviderSilent: there was no answer, or a 5xx: the request may have been carried out.
            Rejected: any other refusal, with its status and Google's words.
        """
        fields = {"project": self.project, **fields}
        for left in reversed(range(_TRIES)):
            try:
                return await self._aside.do(
                    partial(self._send, service, method, fields), f"{service}.{method}"
                )
            except (ProviderSilent, RateLimited) as trouble:
                lost = isinstance(trouble, ProviderSilent)
                if not left or (lost and often == "once"):
                    raise
                await self._clock.sleep(2.0 ** (_TRIES - 1 - left) if lost else _PAUSE_S)
        raise AssertionError("unreachable")

    async def pages(self, service: str, inside: str = "", filtered: str = "") -> list[Message]:
        """Return every item of a list, to its last page.

        For an aggregated list, `inside` names the field of the items.

        Raises:
            ProviderSilent: a zone is missing, or a page repeats its cursor; nothing may be concluded.
        """
        fields: dict[str, object] = {"max_results": _PAGE}
        if filtered:
            fields["filter"] = filtered
        found: list[Message] = []
        seen: set[str] = set()
        leafing = Leafing(f"Google's list of {service}", self._bounds)
        while True:
            page = await self.ask(service, "aggregated_list" if inside else "list", fields)
            _whole(service, page)
            if inside:
                for scope in page.items.values():
                    _whole(service, scope)
                    found += getattr(scope, inside)
            else:
                found += page.items
            cursor = page.next_page_token
            if not cursor:
                return found
            if cursor in seen:
                raise _silent(f"the list of {service} repeats its cursor")
            seen.add(cursor)
            leafing.turn()
            fields["page_token"] = cursor

    async def wait_for(self, zone: str, operation: Message, *, within_s: float) -> Message:
        """Wait until the operation is done, for at most `within_s` seconds. Return its last known state."""
        give_up_at = self._clock.now() + timedelta(seconds=within_s)
        while operation.status.name != "DONE" and self._clock.now() < give_up_at:
            await self._clock.sleep(2)
            operation = await self.ask(
                "ZoneOperations", "get", {"zone": zone, "operation": operation.name}
            )
        return operation

    def _send(self, service: str, method: str, fields: Mapping[str, object]) -> Message:
        try:
            compute = import_module("google.cloud.compute_v1")
            api = import_module("google.api_core.exceptions")
            auth = import_module("google.auth.exceptions")
            json_format = import_module("google.protobuf.json_format")
            urllib3 = import_module("urllib3.exceptions")
        except ImportError as error:
            raise ProviderTrouble(
                f"Google Cloud needs a package that is not installed: {error.name}",
                remedy=extra_line("gcp"),
            ) from error
        said: list[bytes] = []
        options = {"api_endpoint": self._endpoint} if self._endpoint else {}
        made = getattr(compute, f"{service}Client")
        try:
            # A client for each call, because threads would share a kept connection.
            with made(credentials=self._key, client_options=options) as client:
                # The hook limits the size of an answer, because the client does not. The client's session has no public
                # name.
                hook = partial(self._read, said, self._clock.now())
                vars(client.transport)["_session"].hooks["response"].append(hook)
                return getattr(client, method)(fields, retry=None, timeout=_TIMEOUT_S)
        except api.GoogleAPICallError as error:
            raise _refusal(f"{service}.{method}", error) from error
        except (auth.RefreshError, auth.DefaultCredentialsError) as error:
            raise CredentialRefused(
                f"Google's application-default credentials do not work: {words(str(error))}",
                remedy="`gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS",
            ) from error
        except json_format.Error as error:
            if (service, method) == ("Instances", "aggregated_list") and said:
                with contextlib.suppress(
                    json_format.Error, ValueError, TypeError, AttributeError, RecursionError
                ):
                    return _by_rows(compute, said[-1])
            raise _silent(f"no answer to {service}.{method}: {type(error).__name__}") from error
        # Google's own client fails in many ways on an error that does not have its API's form.
        except (
            OSError,
            ValueError,
            TypeError,
            AttributeError,
            LookupError,
            RecursionError,
            api.GoogleAPIError,
            auth.GoogleAuthError,
            urllib3.HTTPError,  # the answer was cut in the middle, as the hook read it
        ) as error:
            raise _silent(f"no answer to {service}.{method}: {type(error).__name__}") from error

    def _read(self, said: list[bytes], sent: datetime, answer: Message, **_: object) -> None:
        """Read the answer's body within the limit, before the client can read all of it."""
        body = read_bounded(
            answer.raw.stream(PIECE_BYTES, decode_content=True),
            "Google Cloud: an answer",
            self._bounds,
        )
        said.append(body)
        self.ahead = ahead_of(
            str(answer.headers.get("Date", "")),
            sent=sent,
            came=self._clock.now(),
            before=self.ahead,
        )
        answer.raw = BytesIO(body)

    @cached_property
    def _key(self) -> object:
        """Application-default credentials. For an emulator on this computer, anonymous ones."""
        address = urlsplit(self._endpoint)
        if address.hostname in ("127.0.0.1", "localhost", "::1"):
            return import_module("google.auth.credentials").AnonymousCredentials()
        if self._endpoint and address.scheme != "https":
            raise BadRequest(
                f"{self._endpoint} is not https, so a key would be sent unencrypted",
                remedy="in config.toml, set the address for gcp under `[api]` to an https address, or remove it",
            )
        return import_module("google.auth").default(scopes=[_SCOPE])[0]


def _by_rows(compute: Message, body: bytes) -> Message:
    """Return a page of instances. An instance that cannot be parsed keeps only its number, zone and labels.

    An instance that cannot be parsed even with those three becomes an empty one.
    """

    def readable(row: object) -> bool:
        try:
            compute.Instance.from_json(json.dumps(row), ignore_unknown_fields=True)
        except (import_module("google.protobuf.json_format").Error, ValueError, TypeError):
            return False
        return isinstance(row, dict)

    def reduce_row(row: object) -> object:
        if readable(row):
            return row
        kept = {k: v for k, v in row.items() if k in _KEPT} if isinstance(row, dict) else {}
        return kept if readable(kept) else {}

    page = json.loads(body)
    for scope in page["items"].values():
        if "instances" in scope:
            scope["instances"] = [reduce_row(row) for row in scope["instances"]]
    return compute.InstanceAggregatedList.from_json(json.dumps(page), ignore_unknown_fields=True)


_OF_ORGANISATION = (
    "this is a rule of the project's organisation: ask its administrator, or use another project"
)


def failure(operation: Message) -> ProviderTrouble | None:
    """Return what went wrong in an operation, or None. Google answers with 200 even when an operation failed."""
    said = [(entry.code, entry.message) for entry in operation.error.errors]
    if not said:
        return None
    what = f"Google says {words('; '.join(f'{code}: {message}' for code, message in said))}"
    codes = " ".join(code for code, _ in said)
    if "RESOURCE_POOL_EXHAUSTED" in codes:
        return NoCapacity(
            what, remedy=f"choose another zone, or another machine: {Command('offers')}"
        )
    if "QUOTA" in codes:
        return NoQuota(what, remedy="ask Google for more: IAM & Admin, Quotas")
    if "CONDITION_NOT_MET" in codes:
        return ProviderTrouble(what, remedy=_OF_ORGANISATION)
    return ProviderTrouble(what, remedy=f"{Command('leases')} shows what runs")


def _refusal(call: str, error: Message) -> ProviderTrouble:
    """Return our error for Google's exception. A 403 can mean several things. Its reason says which."""
    status = int(error.code or 0)
    try:
        listed = error.errors
    except TypeError:  # Google's list of errors was not a list
        listed = []
    # As text, because a reason that is not text might not be hashable.
    reasons = {str(entry.get("reason", "")) for entry in listed if isinstance(entry, dict)}
    message = str(error.message)
    what = f"Google answered {call} with {status}: {words(message)}"
    if status == 429 or reasons & {"rateLimitExceeded", "userRateLimitExceeded"}:
        return RateLimited(what, remedy="wait a minute, then run the same command again")
    if "quotaExceeded" in reasons:
        return NoQuota(what, remedy="ask Google for more: IAM & Admin, Quotas")
    if status == 402:
        return NoFunds(what, remedy="check the billing account of the project, or rent elsewhere")
    if status == 403 and not reasons:
        # Google's own refusal names its reason. A firewall on the way says nothing about the key.
        return ProviderSilent(what, remedy=_LOOKS_AGAIN)
    if status in (401, 403):
        return CredentialRefused(
            what, remedy="check that this account may use Compute Engine in this project"
        )
    if status >= 500 or status < 400 or status == 408:
        return ProviderSilent(what, remedy=_LOOKS_AGAIN)
    refused = rejection(status, message, what)
    if status == 412 or "conditionNotMet" in reasons:
        refused.remedy = _OF_ORGANISATION
    return refused


def _whole(service: str, page: Message) -> None:
    """Require that the page reports nothing as missing.

    Raises:
        ProviderSilent: something is missing.
    """
    missing = list(getattr(page, "unreachables", ()))
    if page.warning.code not in ("", "NO_RESULTS_ON_PAGE"):
        missing.append(f"{page.warning.code}: {page.warning.message}")
    if missing:
        raise _silent(f"the list of {service} is not complete: {words('; '.join(missing))}")


def _silent(what: str) -> ProviderSilent:
    return ProviderSilent(f"Google Cloud: {what}", remedy=_LOOKS_AGAIN)
