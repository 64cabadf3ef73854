"""Calls through the official Python client of Kubernetes, which is imported when the first call is made."""

import json
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any, Literal, TypeAlias

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    CredentialRefused,
    NoQuota,
    ProviderSilent,
    ProviderTrouble,
    RateLimited,
)
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

Shown: TypeAlias = Mapping[str, Any]
"""An object as the API shows it."""
Client: TypeAlias = Any
"""The official client. It is untyped, because the types come with an optional package."""

_TIMEOUT_S = (5, 30)
_PAGE = 250
_EXPIRED, _BEGINNINGS = 410, 3
"""The status of an expired cursor, and how often a list is read from its beginning because of it."""
_LOOKS_AGAIN = f"{Command('leases')} looks again; the pod may be running"


class KubernetesClient:
    """The API of the cluster that one kubeconfig context names. Each call returns its answer or raises our error."""

    def __init__(self, context: str, kubeconfig: str | None, bounds: Bounds = BOUNDS) -> None:
        self._context = context
        self._kubeconfig = kubeconfig
        self._made: Client = None
        self._bounds = bounds
        self._aside = Aside("Kubernetes", bounds)

    def client(self) -> Client:
        """Return the official client of that context. It is made once, and threads share its connections.

        Raises:
            ProviderTrouble: the package is not installed, the kubeconfig has no such context, or it cannot be read.
            CredentialRefused: the program that the kubeconfig names for getting a key returned none.
        """
        if self._made is None:
            self._made = _client(self._context, self._kubeconfig)
            rest = self._made.rest_client
            rest.pool_manager = _Pools(rest.pool_manager, self._bounds)
        return self._made

    def alone(self, group: Literal["CoreV1Api"]) -> Client:
        """Return that part of the API on a separate client, because an exec changes the client that it uses.

        Raises:
            ProviderTrouble: see `client`.
            CredentialRefused: see `client`.
        """
        settings = self.client().configuration
        kubernetes = import_module("kubernetes.client")
        return getattr(kubernetes, group)(kubernetes.ApiClient(settings))

    async def ask(
        self,
        group: Literal["BatchV1Api", "CoreV1Api", "StorageV1Api"],
        method: str,
        **fields: object,
    ) -> Shown:
        """Call that method of the client, and return its answer.

        Raises:
            CredentialRefused: the server refused the login with 401 or 403.
            NoQuota: the server refused with 403 because of a quota.
            RateLimited: the status is 429.
            ProviderSilent: there was no readable answer, or a 5xx: the request may have been carried out.
            Rejected: any other refusal, with its status and the server's words.
        """
        return await self._aside.do(partial(self._send, group, method, fields), method)

    async def pages(
        self, group: Literal["BatchV1Api", "CoreV1Api"], method: str, **fields: object
    ) -> list[Shown]:
        """Return every item of that list, to the last page.

        Raises:
            ProviderSilent: a page is not a list or repeats its cursor, or the cursor expired several times. Nothing
                may be concluded.
        """
        for _ in range(_BEGINNINGS):
            try:
                return await self._all(group, method, fields)
            except ProviderTrouble as trouble:
                if getattr(trouble, "status", 0) != _EXPIRED:
                    raise
        raise silent(f"{method}: its pages expire before they can be read")

    async def _all(
        self, group: Literal["BatchV1Api", "CoreV1Api"], method: str, fields: Mapping[str, object]
    ) -> list[Shown]:
        found: list[Shown] = []
        seen: set[str] = set()
        more: dict[str, object] = {}
        leafing = Leafing(method, self._bounds)
        while True:
            # The raw answer is read, because the client's own types refuse a whole page for one odd item.
            page = await self.ask(
                group, method, limit=_PAGE, _preload_content=False, **fields, **more
            )
            items, about = page.get("items"), page.get("metadata", {})
            if not (
                str(page.get("kind", "")).endswith("List")
                and isinstance(items, list)
                and isinstance(about, dict)
            ):
                raise silent(f"the answer to {method} is not a list")
            found += [item if isinstance(item, dict) else {} for item in items]
            cursor = about.get("continue")
            if not cursor:
                return found
            if cursor in seen:
                raise silent(f"{method} repeats its cursor")
            seen.add(cursor)
            leafing.turn()
            more = {"_continue": cursor}

    def _send(self, group: str, method: str, fields: Mapping[str, object]) -> Shown:
        client = self.client()
        kubernetes = import_module("kubernetes.client")
        urllib3 = import_module("urllib3.exceptions")
        try:
            api = getattr(kubernetes, group)(client)
            shown = getattr(api, method)(**fields, _request_timeout=_TIMEOUT_S)
            said: Shown = (
                client.sanitize_for_serialization(shown)
                if fields.get("_preload_content", True)
                else _without_nulls(json.loads(shown.data))
            )
        except kubernetes.ApiException as error:
            raise refusal(method, error.status, str(error.body or error.reason or "")) from error
        except (
            OSError,
            ValueError,
            TypeError,
            AttributeError,
            RecursionError,
            urllib3.HTTPError,
        ) as error:
            raise silent(f"no readable answer to {method}: {type(error).__name__}") from error
        if not isinstance(said, dict):
            raise silent(f"the answer to {method} is not an object")
        return said


def _without_nulls(told: Any) -> Any:
    """Return the answer without its nulls, as the client's own types would represent it."""
    if isinstance(told, dict):
        return {k: _without_nulls(value) for k, value in told.items() if value is not None}
    return [_without_nulls(each) for each in told] if isinstance(told, list) else told


class _Pools:
    """The connections of a client. Each answer is read here, within the size limit."""

    def __init__(self, pools: Client, bounds: Bounds) -> None:
        self._pools = pools
        self._bounds = bounds

    def request(self, *said: object, **more: object) -> object:
        """Send a request, and return the complete answer.

        Raises:
            ProviderSilent: the answer is too large.
        """
        answer = self._pools.request(*said, **{**more, "preload_content": False})
        try:
            body = read_bounded(
                answer.stream(PIECE_BYTES, decode_content=True),
                "Kubernetes: an answer",
                self._bounds,
            )
        except ProviderSilent:
            answer.close()
            raise
        answer.release_conn()
        return import_module("urllib3").HTTPResponse(
            body=body, headers=answer.headers, status=answer.status, reason=answer.reason
        )

    def clear(self) -> None:
        """Close every connection."""
        self._pools.clear()


def _client(context: str, kubeconfig: str | None) -> Client:
    try:
        kubernetes = import_module("kubernetes.client")
        config = import_module("kubernetes.config")
    except ImportError as error:
        raise ProviderTrouble(
            f"Kubernetes needs a package that is not installed: {error.name}",
            remedy=extra_line("kubernetes"),
        ) from error
    settings = kubernetes.Configuration()
    # This program decides on retries, not the client.
    settings.retries = False
    try:
        config.load_kube_config(
            config_file=kubeconfig or "~/.kube/config",
            context=context,
            client_configuration=settings,
            persist_config=False,
        )
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError) as error:
        raise ProviderTrouble(
            f"the kubeconfig does not lead to the context {context!r}: {words(str(error))}",
            remedy="`kubectl config get-contexts` lists the contexts; `context` under [kubernetes] names one",
        ) from error
    return kubernetes.ApiClient(settings)


def refusal(call: str, status: int | None, body: str) -> ProviderTrouble:
    """Return the error for an answer that reports failure. A 403 can be a quota as well as a missing right."""
    said = words(body)
    what = f"the cluster answered {call} with {status}: {said}"
    if status == 429:
        return RateLimited(what, remedy="wait a minute, then run the same command again")
    if status == 403 and "exceeded quota" in body:
        return NoQuota(
            what, remedy="`kubectl describe resourcequota` shows what is used; ask its admin"
        )
    if status in (401, 403):
        return CredentialRefused(
            what, remedy="`kubectl auth can-i --list` shows what this login may do there"
        )
    if not status or status >= 500 or status == 408:
        return ProviderSilent(what, remedy=_LOOKS_AGAIN)
    return rejection(status, body, what)


def silent(what: str) -> ProviderSilent:
    """Return the error for an answer of the cluster from which nothing can be concluded."""
    return ProviderSilent(f"Kubernetes: {what}", remedy=_LOOKS_AGAIN)
