"""What a script on a box has answered: one JSON object on the last line, or why there is none."""

import json
from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from gpu_tenant.errors import CaretakerFailed, JobRunning
from gpu_tenant.model import LeaseId
from gpu_tenant.ports import Finished

R = TypeVar("R", bound=BaseModel)


def is_missing(finished: Finished) -> bool:
    """Whether Python ended before the script began, because the script is not there."""
    return finished.exit_status == 2 and b"can't open file" in finished.stderr


def told(finished: Finished) -> dict[str, JsonValue] | None:
    """The reply, whether it says yes or no; a login script that prints comes before it."""
    lines = finished.stdout.splitlines()
    try:
        reply = json.loads(lines[-1])
    except (IndexError, ValueError):
        return None
    return reply if isinstance(reply, dict) else None


def understood(verb: str, finished: Finished, lease: LeaseId) -> dict[str, JsonValue]:
    """The reply of a script that did what it was asked.

    Raises:
        JobRunning, CaretakerFailed: it did not, and why.
    """
    if finished.exit_status == 127:
        raise CaretakerFailed(
            "there is no python3 on this box, and the caretaker needs one (3.7 or newer)",
            remedy="install it (`apt-get install python3`, or activate the image's conda), then try again",
        )
    reply = told(finished)
    if reply is None:
        raise CaretakerFailed(
            f"`{verb}` ended with status {finished.exit_status} and no reply: {words(finished.stderr)}",
            remedy=f"`gpu-tenant audit {lease}` looks at the box",
        )
    if reply.get("ok") is True:
        return reply
    code, message = str(reply.get("code")), words(str(reply.get("message")).encode())
    if code == "JOB_RUNNING":
        raise JobRunning(
            message,
            remedy=f"wait for it with `gpu-tenant monitor {lease}`, or end it with "
            f"`gpu-tenant stop {lease}`; `gpu-tenant collect {lease} --live` brings "
            "what is complete meanwhile",
        )
    raise CaretakerFailed(
        f"{code}: {message}", remedy=f"`gpu-tenant monitor {lease}` shows the job's state"
    )


def read(reply: type[R], said: Mapping[str, JsonValue]) -> R:
    """The reply in its own type.

    Raises:
        CaretakerFailed: it makes no sense.
    """
    try:
        return reply.model_validate(said)
    except ValidationError as error:
        raise CaretakerFailed(
            f"the box's reply makes no sense: {error.errors()[0]['loc']} {error.errors()[0]['msg']}",
            remedy="look at the box yourself before you believe it",
        ) from error


def words(raw: bytes) -> str:
    """The end of what a box printed, safe to show in a sentence."""
    text = raw.decode(errors="replace").strip()[-300:]
    return "".join(c if c.isprintable() else " " for c in text) or "it said nothing"
