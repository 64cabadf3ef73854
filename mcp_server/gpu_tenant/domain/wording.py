"""One next step in the words of each interface: tools for an agent, commands for a terminal."""

import re
import shlex
from datetime import UTC, datetime

TOOL_OF = {
    "smoke": "smoke_test",
    "offers": "find_offers",
    "adopt": "provision",
    "launch": "launch_detached",
    "stop": "stop_job",
    "teardown": "verify_and_teardown",
    "leases": "list_leases",
    "extend": "change_lease",
    "park": "change_lease",
    "resume": "change_lease",
    "terms": "change_lease",
    "recover": "change_lease",
    "hold": "change_lease",
}
"""The commands whose tool has another name. All others have the same."""

_SAME = ("audit", "push", "prepare", "monitor", "collect", "provision", "doctor")
_COMMAND_OF = {
    tool: verb for verb, tool in TOOL_OF.items() if tool not in ("provision", "change_lease")
}
_COMMAND = re.compile(rf"`gpu-tenant ({'|'.join([*TOOL_OF, *_SAME])})\b([^`]*)`")
_BARE_OPTION = re.compile(
    r"(?<![\w`-])--(smoke|name|hours|discard|artifact|unguarded|recover) (\S+?)(?=[;,:.)]*(?:\s|$))"
)
_FOR_A_PERSON = re.compile(r"--(ended|password-stdin|setup|at-deadline|prune-box)\b")
"""Commands with these options stay commands, because only a person at a terminal can run them."""
_TOOL = re.compile(
    rf"\b(?:({'|'.join(_COMMAND_OF)})|change_lease (extend|park|resume|terms|recover|hold))\b"
)

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([mh])")
_INSTANT = re.compile(r"\bat ([1-9]\d{9})(?:\.\d+)?\b")

_LISTS = {"artifact": "artifacts", "discard": "discard", "quote": "quotes", "recover": "recover"}
_NUMBERS = (
    "hours",
    "price-usd-h",
    "max-price-usd-h",
    "budget-usd",
    "idle-h",
    "rescue-usd",
    "count",
)
_PLACES = {
    "push": ("directory", "lease"),
    "adopt": ("target",),
    "smoke": ("directory",),
    "hold": ("lease", "hours"),
}
"""What the positional arguments of these commands are; for all other commands it is the lease."""


def some(count: int, noun: str) -> str:
    """The count with its noun: `1 file`, `2 files`, `2 boxes`."""
    plural = f"{noun}es" if noun.endswith("x") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def size(count: int | float | None) -> str:
    """A number of bytes, for a person."""
    if count is None:
        return "unknown"
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def span(seconds: float) -> str:
    """A duration, for a person."""
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 120:
        return f"{sign}{seconds:.0f} s"
    if seconds < 7200:
        return f"{sign}{seconds / 60:.0f} min"
    return f"{sign}{seconds / 3600:.1f} h"


def dated(words: str) -> str:
    """The words, with seconds since 1970 replaced by a date."""

    def date(found: re.Match[str]) -> str:
        return f"at {datetime.fromtimestamp(int(found[1]), UTC):%Y-%m-%d %H:%M:%S} UTC"

    return _INSTANT.sub(date, words)


def in_tools(words: str) -> str:
    """The words for an agent, which has tools and perhaps no terminal: each command becomes a tool call."""

    def call(named: re.Match[str]) -> str:
        if _FOR_A_PERSON.search(named[2]):
            return named[0]
        try:
            rest = shlex.split(named[2])
        except ValueError:
            rest = []
        return f"`{_call(named[1], rest)}`"

    def argument(named: re.Match[str]) -> str:
        name, value = named[1], named[2]
        if name in _LISTS:
            return f"{_LISTS[name]}={[value]!r}"
        return f"{name}={value if name in _NUMBERS else repr(value)}"

    return _BARE_OPTION.sub(argument, _COMMAND.sub(call, words))


def in_commands(words: str) -> str:
    """The words for a person at a terminal."""
    return _TOOL.sub(lambda named: f"gpu-tenant {named[2] or _COMMAND_OF[named[1]]}", words)


def in_verbs(words: str) -> str:
    """The words with only the name of each verb, as on buttons."""
    return in_commands(words).replace("gpu-tenant ", "")


def _call(verb: str, rest: list[str]) -> str:
    arguments: dict[str, object] = {}
    places = iter(_PLACES.get(verb, ("lease",)))
    words = iter(rest)
    for word in words:
        name = word.removeprefix("--")
        if word == "--":
            arguments["command"] = " ".join(words)
        elif word == "--all":
            arguments["which"] = "all"
        elif word == "--live":
            arguments["while_running"] = "snapshot"
        elif not word.startswith("--"):
            place = next(places, "target")
            arguments[place] = _in_hours(word) if place == "hours" else word
        elif name in _LISTS:
            arguments[_LISTS[name]] = [next(words, "...")]
        elif name in _NUMBERS:
            arguments[name.replace("-", "_")] = _Plain(next(words, "..."))
        elif name in ("at", "on"):
            arguments[{"at": "address", "on": "provider"}[name]] = next(words, "...")
        else:
            arguments[name.replace("-", "_")] = next(words, "...")
    tool = TOOL_OF.get(verb, verb)
    if tool == "change_lease":
        arguments["action"] = verb
    return f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _in_hours(said: str) -> object:
    """`30m` as the number of hours that a tool takes."""
    found = _DURATION.fullmatch(said)
    return _Plain(f"{float(found[1]) / (60 if found[2] == 'm' else 1):g}") if found else said


class _Plain(str):
    """A number that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
