"""Sends one message to one address through Apprise, which supports desktops, hooks, ntfy and mail servers."""

import logging
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import Any, Literal

from gpu_tenant.files.installation import extra_line

DESKTOP = "desktop"
"""The address of this computer's own screen."""

_LOADING = threading.Lock()
_SCREENS = ("macosx://", "windows://", "glib://", "dbus://", "gnome://")
_NO_SCREEN = (
    "this desktop cannot be reached: on macOS install terminal-notifier, on Linux python3-gi or "
    "python3-dbus for this Python, on Windows pywin32"
)
_NO_ADDRESS = (
    "its reference does not lead to an address that Apprise knows: see https://appriseit.com/services (a hook "
    "of your own begins with jsons://)"
)
_AS_SHOWN = {
    "https://open.feishu.cn/open-apis/bot/v2/hook/": "feishu://",
    "https://oapi.dingtalk.com/robot/send?access_token=": "dingtalk://",
}
"""How hook addresses begin in the services' consoles, and in Apprise's own form.

Apprise accepts the addresses of Slack and WeCom as the consoles show them, but these addresses only in its own form.
"""
_NO_WITHIN_A_YES = {
    "dingtalk": "errcode",
    "feishu": "code",
    "lark": "code",
    "wecombot": "errcode",
}
"""These services report a refusal in this field of the answer, although the HTTP status is 200.

Apprise checks only the status.
"""
_ANSWERS: ContextVar[list[object] | None] = ContextVar("_ANSWERS", default=None)
"""What came back for this delivery: for each request, the HTTP response or the error."""


def deliver(
    address: str, title: str, body: str, *, kind: Literal["info", "warning", "failure"]
) -> str | None:
    """Deliver the message. Return None if it was accepted, otherwise why not, without quoting the address.

    This waits for the network. Apprise limits each request to some seconds.
    """
    try:
        with _LOADING:
            apprise = _apprise()
    except ImportError:
        return f"the package apprise is not installed here: `{extra_line('notify')}`"
    answers: list[object] = []
    token = _ANSWERS.set(answers)
    try:
        service = _service(apprise, address)
        if service is None:
            return _NO_SCREEN if address == DESKTOP else _NO_ADDRESS
        sender = apprise.Apprise(asset=service.asset)
        sender.add(service)
        taken = sender.notify(
            body,
            title=title,
            notify_type=apprise.NotifyType(kind),
            body_format=apprise.NotifyFormat.TEXT,
        )
        return _why(answers, service) if not taken or _refusal_number(answers, service) else None
    except Exception as error:  # noqa: BLE001 - only the kind is told: the error may contain the address
        return f"it was not sent ({type(error).__name__})"
    finally:
        _ANSWERS.reset(token)


def _service(apprise: ModuleType, address: str) -> Any:
    # No redirects, because a message that was redirected elsewhere would count as accepted. No
    # deadline of Apprise's own, because its threads would live on after ours. Nothing is written to
    # disk.
    asset = apprise.AppriseAsset(
        app_id="gpu-tenant",
        app_desc="gpu-tenant",
        async_mode=False,
        service_timeout=0,
        http_redirects=False,
        interpret_emojis=False,
        pgp_autogen=False,
        pem_autogen=False,
    )
    for shown, scheme in _AS_SHOWN.items():
        if address.startswith(shown):
            address = address.replace(shown, scheme, 1)
    tried = _SCREENS if address == DESKTOP else (address,)
    made = (apprise.Apprise.instantiate(url, asset=asset) for url in tried)
    return next((service for service in made if service is not None), None)


def _refusal_number(answers: list[object], service: Any) -> int | None:
    """Return the error number in an answer with HTTP status 200. None if the service did not refuse."""
    said_in = _NO_WITHIN_A_YES.get(service.secure_protocol)
    body: object = getattr(answers[-1], "json", dict)() if said_in and answers else {}
    number = body.get(said_in) if isinstance(body, Mapping) else None
    return number if isinstance(number, int) and number else None


def _why(answers: list[object], service: Any) -> str:
    last = answers[-1] if answers else None
    status = getattr(last, "status_code", None)
    if isinstance(last, Exception):
        return f"it could not be reached ({type(last).__name__})"
    if status is None:
        return "it was not accepted: the service could not be reached, or does not know us"
    refused = _refusal_number(answers, service) if status == 200 else None
    return f"it answered {status}" + (
        f", with the error {refused} in the answer" if refused else ""
    )


@cache
def _apprise() -> ModuleType:
    """Load Apprise, turn its logs off, and make it record the answers that it gets."""
    import apprise
    import requests

    # Apprise and urllib3 write addresses, which are secrets, to their logs.
    logging.getLogger("apprise").disabled = True
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)

    class Heard(requests.Session):
        """An HTTP session that adds each response or error to the answers of the current delivery."""

        def send(self, request: requests.PreparedRequest, **more: Any) -> requests.Response:
            answers = _ANSWERS.get()
            try:
                answer = super().send(request, **more)
            except requests.RequestException as error:
                if answers is not None:
                    answers.append(error)
                raise
            if answers is not None:
                answers.append(answer)
            return answer

    requests.sessions.Session = Heard  # type: ignore[misc]
    return apprise
