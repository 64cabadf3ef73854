"""Reads the reply of a script on a box, which is one JSON object on the last line of its output."""

import json
import re
from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import (
    BoxDiskFull,
    BoxUnreachable,
    CaretakerFailed,
    JobRunning,
    NotSaved,
)
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.ports import Finished
from gpu_tenant.domain.untrusted_text import quote_text, sentence
from gpu_tenant.files.paths import is_unseen

_LONGEST_TEXT = 12288
"""The maximum length of a text: enough for a path of 4,096 bytes, each of them written as three characters."""
_LONG = re.compile(rb'"[^"]{%d}' % _LONGEST_TEXT)

_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
R = TypeVar("R", bound=BaseModel)


def is_missing(finished: Finished) -> bool:
    """Whether Python ended before the script began, because the script is missing on the box."""
    return finished.exit_status == 2 and b"can't open file" in finished.stderr


def reply_of(finished: Finished) -> dict[str, JsonValue] | None:
    """Read the reply, whether a success or a refusal, from the last line of the output. None if there is none.

    Earlier lines may come from a login script. Every text in the reply is cleaned: no control characters, a single
    line, and a bounded length. Base64 is left as it is.
    """
    # A list of many files is long, so it is copied only if necessary.
    said = finished.stdout.removesuffix(b"\n").removesuffix(b"\r")
    line = said[max(said.rfind(b"\n"), said.rfind(b"\r")) + 1 :]
    try:
        reply = json.loads(line, parse_constant=_refuse_constant)
        if isinstance(reply, dict):
            return (
                reply if _is_plain(line) else {_clean_text(k): _clean(v) for k, v in reply.items()}
            )
    except (ValueError, RecursionError):
        pass
    return None


def _refuse_constant(constant: str) -> JsonValue:
    raise ValueError(f"{constant} is not a number that our scripts write")


def _is_plain(line: bytes) -> bool:
    """Whether no text in the reply needs to be cleaned. This quick check is True for most replies."""
    # In JSON without backslashes, each text is exactly what is between two quotation marks.
    return line.isascii() and b"\\" not in line and b"\x7f" not in line and not _LONG.search(line)


def _clean(said: JsonValue, name: str = "") -> JsonValue:
    if isinstance(said, str):
        return said if name == "base64" and _BASE64.fullmatch(said) else _clean_text(said)
    if isinstance(said, list):
        return [_clean(one) for one in said]
    if isinstance(said, dict):
        return {_clean_text(key): _clean(value, key) for key, value in said.items()}
    return said


def _clean_text(text: str) -> str:
    if len(text) <= _LONGEST_TEXT and not is_unseen(text):
        return text  # Unchanged, so that the name of a file stays the same.
    return sentence(text, most=_LONGEST_TEXT)


SETUP_NAME = re.compile(r"setup\d+")
"""The names of the jobs that set up a box. No other job may have such a name."""


_KILLED_ABOVE = 128
"""A shell adds this to the number of the signal that killed a command."""


def accepted_reply(verb: str, finished: Finished, lease: LeaseId) -> dict[str, JsonValue]:
    """Return the script's reply, if the script succeeded.

    Raises:
        JobRunning, BoxDiskFull, CaretakerFailed, NotSaved: it did not succeed; the message says why.
        BoxUnreachable: the script was killed, as when the box is stopped.
    """
    if finished.exit_status == 127:
        raise CaretakerFailed(
            "there is no python3 on this box, but the caretaker needs one (3.7 or newer)",
            remedy="install it (`apt-get install python3`, or activate the image's conda), then try again",
        )
    reply = reply_of(finished)
    if reply is None or "ok" not in reply:  # A report of progress has no "ok".
        if finished.exit_status > _KILLED_ABOVE:
            # Whoever stops a box kills what runs there. The provider may know more.
            raise BoxUnreachable(
                f"`{verb}` was killed on the box with signal {finished.exit_status - _KILLED_ABOVE}, and gave no reply",
                remedy=f"{Command('leases')} shows whether the box runs",
            )
        raise CaretakerFailed(
            f"`{verb}` ended with status {finished.exit_status} and no reply: {quote_text(words(finished.stderr))}",
            remedy=f"{Command('audit', lease)} looks at the box",
        )
    if reply.get("ok") is True:
        return reply
    code, message = str(reply.get("code")), str(reply.get("message"))
    if code == "JOB_RUNNING":
        named = reply.get("jobs")
        only = named[0] if isinstance(named, list) and len(named) == 1 else None
        job = only if isinstance(only, str) and SETUP_NAME.fullmatch(only) else None
        raise JobRunning(
            f"the box says {quote_text(message)}",
            remedy=f"wait for the job with {Command('monitor', lease, job=job)}, or end it with "
            f"{Command('stop', lease, job=job)}; {Command('collect', lease, live=True)} collects "
            "what is complete while it runs",
        )
    if code == "AT_WORK":
        raise JobRunning(
            message,
            remedy=f"wait for that process, or end it: {Command('ssh', lease, then='kill PID')}; then run the same command again",
        )
    if code == "NOT_SAVED":
        raise NotSaved(
            message,
            remedy=f"{Command('collect', lease)}, then push again; or give the file up by name: {Option('overwrite', 'NAME')}",
        )
    if code == "DISK_FULL":
        raise BoxDiskFull(
            "the disk of the box is full, so nothing was put there",
            remedy=make_room(lease),
        )
    raise CaretakerFailed(
        f"the box says {quote_text(code)}: {quote_text(message)}",
        remedy=f"{Command('monitor', lease)} shows the job's state",
    )


def make_room(lease: LeaseId) -> str:
    """Say how to make room on a full box, and that `collect` works without more room."""
    prune = Command("collect", lease, live=True, keep_last="2", prune_box=True)
    return (
        f"{prune} moves older checkpoints here; {Command('ssh', lease)} lets you remove what nobody needs; "
        f"{Command('collect', lease)} works on a full disk, too"
    )


def read(reply: type[R], said: Mapping[str, JsonValue]) -> R:
    """Read the reply as an instance of the type `reply`.

    Raises:
        CaretakerFailed: the reply does not fit the type.
    """
    try:
        return reply.model_validate(said)
    except ValidationError as error:
        raise CaretakerFailed(
            f"the box's reply could not be understood: {_place(error)} {error.errors()[0]['msg']}",
            remedy="look at the box yourself before you believe what it reports",
        ) from error


def _place(error: ValidationError) -> str:
    return ".".join(quote_text(str(part)) for part in error.errors()[0]["loc"]) or "it"


def words(raw: bytes) -> str:
    """Return the end of what a box printed, safe to show in a sentence."""
    text = raw.decode(errors="replace").strip()[-300:]
    return "".join(c if c.isprintable() else " " for c in text) or "the box said nothing"
