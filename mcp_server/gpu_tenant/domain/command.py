"""A command that somebody may run next, as a value: a verb and its arguments. Each face writes it in its own form.

Inside a sentence, a command is written between backticks, as a line that a person can paste. That line can be parsed
without loss. So even an alarm that was stored a year ago can be shown to an agent with a tool call in it.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

PROGRAM = "gpu-tenant"


class _Argument(NamedTuple):
    """The argument of a tool that an option of the command line corresponds to."""

    name: str
    kind: Literal["text", "number", "list"] = "text"
    flag: str | None = None
    """The value that the option stands for, if the option takes no value on the command line."""
    is_pattern: bool = False

    def as_passed(self, value: str | None) -> str:
        """Return the value as it is passed to the tool."""
        told = self.flag or value or ""
        return _Number(told) if self.kind == "number" else told


_OPTIONS: Mapping[str, _Argument] = {
    "all": _Argument("which", flag="all"),
    "live": _Argument("while_running", flag="snapshot"),
    "artifact": _Argument("artifacts", "list", is_pattern=True),
    "discard": _Argument("discard", "list", is_pattern=True),
    "include": _Argument("include", "list"),
    "include-secret": _Argument("include_secrets", "list"),
    "overwrite": _Argument("overwrite", "list"),
    "quote": _Argument("quotes", "list"),
    "recover": _Argument("recover", "list"),
    "env": _Argument("env", "list"),
    "on": _Argument("provider"),
    "at": _Argument("address"),
    "lease": _Argument("lease"),
    "wait": _Argument("wait_h", "number"),
    "resume": _Argument("id"),
    "yes": _Argument("agree", flag="yes"),
    **{
        name: _Argument(name)
        for name in (
            "name",
            "job",
            "to",
            "python",
            "source",
            "replay",
            "provider",
            "search",
            "smoke",
            "unguarded",
        )
    },
    **{
        name: _Argument(name.replace("-", "_"), "number")
        for name in (
            "hours",
            "price-usd-h",
            "max-price-usd-h",
            "budget-usd",
            "idle-h",
            "rescue-usd",
            "count",
            "max-runtime-h",
            "cursor",
            "attempts",
            "max-usd",
            "vram-gib",
        )
    },
}

_SWITCHES = frozenset(
    {
        "all",
        "at-deadline",
        "ended",
        "follow",
        "live",
        "lost-passkey",
        "password-stdin",
        "prune-box",
        "rest",
        "remove",
        "settle",
        "setup",
        "watch",
        "yes",
    }
)
"""The options that take no value."""


class _Tool(NamedTuple):
    """The tool for a verb, and the tool's names for the verb's arguments and options."""

    name: str
    places: str = ""
    """The tool's names for the positional arguments, in the order of the command line."""
    options: str = ""
    required: str = ""
    """The arguments that the tool requires. If one is omitted, its name in capitals is shown as a placeholder."""
    action: str | None = None
    several: bool = False
    """Whether the verb takes several leases, although the tool takes one."""


_TERMS = "hours price-usd-h max-price-usd-h budget-usd idle-h rescue-usd recover on"
_TOOLS: Mapping[str, _Tool] = {
    "run": _Tool(
        "run", options="resume yes artifact discard smoke hours max-usd on include to vram-gib"
    ),
    "smoke": _Tool("smoke_test", "directory", "include", required="directory command"),
    "offers": _Tool("find_offers", options="on provider hours max-price-usd-h vram-gib"),
    "provision": _Tool("provision", options=f"{_TERMS} quote smoke unguarded count wait"),
    "adopt": _Tool("provision", "target", _TERMS),
    "audit": _Tool("audit", "lease", "lease", required="lease", several=True),
    "push": _Tool(
        "push",
        "directory lease",
        "lease include include-secret overwrite",
        required="lease directory",
    ),
    "prepare": _Tool("prepare", "lease", "lease source replay env", required="lease"),
    "launch": _Tool(
        "launch_detached",
        options="lease artifact discard env name python attempts max-runtime-h",
        required="lease command",
    ),
    "monitor": _Tool("monitor", "lease", "lease job cursor", required="lease", several=True),
    "exec": _Tool("exec", "lease", "lease", required="lease command"),
    "stop": _Tool("stop_job", "lease", "lease job", required="lease", several=True),
    "collect": _Tool(
        "collect", "lease", "lease to artifact discard live", required="lease", several=True
    ),
    "teardown": _Tool("verify_and_teardown", "lease", "lease", required="lease", several=True),
    "extend": _Tool("change_lease", "lease", "lease hours", required="lease", action="extend"),
    "park": _Tool("change_lease", "lease", "lease", required="lease", action="park"),
    "resume": _Tool("change_lease", "lease", "lease at hours", required="lease", action="resume"),
    "recover": _Tool(
        "change_lease",
        "lease",
        "lease max-price-usd-h",
        required="lease",
        action="recover",
    ),
    "call-off": _Tool("change_lease", "lease", required="lease", action="call_off"),
    "hold": _Tool("change_lease", "lease hours", "lease", required="lease", action="hold"),
    "terms": _Tool(
        "change_lease",
        "lease",
        "lease max-price-usd-h budget-usd idle-h rescue-usd",
        required="lease",
        action="terms",
    ),
    "leases": _Tool("list_leases", options="all search"),
    "doctor": _Tool("doctor"),
}

TOOL_OF: Mapping[str, str] = {verb: tool.name for verb, tool in _TOOLS.items()}
"""The tool for each verb that has one. All other verbs are for a person at a terminal."""


@dataclass(frozen=True, slots=True, init=False)
class Command:
    """One call of one verb, with its arguments and options."""

    verb: str
    places: tuple[str, ...]
    """The positional arguments, such as the lease."""
    options: tuple[tuple[str, str | None], ...]
    """Each option with its value, in order. A value of None makes it a switch."""
    then: str
    """What follows `--`: the job's own command."""

    def __init__(self, verb: str, *places: object, then: str = "", **options: object) -> None:
        """Leave out each option that is None or False. True makes it a switch, and a list repeats the option."""
        given: list[tuple[str, str | None]] = []
        for name, value in options.items():
            option = name.strip("_").replace("_", "-")
            if value is True:
                given.append((option, None))
            elif isinstance(value, (list, tuple)):
                given += [(option, str(one)) for one in value]
            elif value is not None and value is not False:
                given.append((option, str(value)))
        object.__setattr__(self, "verb", verb)
        object.__setattr__(self, "places", tuple(map(str, places)))
        object.__setattr__(self, "options", tuple(given))
        object.__setattr__(self, "then", then)

    def __str__(self) -> str:
        """Return the line between backticks, for use in a sentence."""
        return f"`{self.line}`"

    @property
    def line(self) -> str:
        """The line that can be pasted into a shell."""
        words = [PROGRAM, self.verb, *map(shlex.quote, self.places)]
        words += [_in_shell(name, value) for name, value in self.options]
        return " ".join(words + (["--", self.then] if self.then else []))

    @property
    def calls(self) -> tuple[str, ...]:
        """The same command as calls of tools. Empty if only a person at a terminal can run it."""
        tool = _TOOLS.get(self.verb)
        if tool is None or any(name not in tool.options.split() for name, _ in self.options):
            return ()
        several = tool.several and len(self.places) > 1
        return (
            tuple(self._call(tool, (x,)) for x in self.places)
            if several
            else (self._call(tool, self.places),)
        )

    def _call(self, tool: _Tool, places: Sequence[str]) -> str:
        given: dict[str, object] = {
            name: _in_hours(place) if name == "hours" else place
            for name, place in zip(tool.places.split(), places, strict=False)
        }
        for option, value in self.options:
            argument = _OPTIONS[option]
            if argument.kind == "list":
                told = given.setdefault(argument.name, [])
                assert isinstance(told, list)
                told.append(value)
            else:
                given[argument.name] = argument.as_passed(value)
        if self.then:
            given["command"] = _as_given(self.then)
        if tool.action:
            given["action"] = tool.action
        for name in tool.required.split():
            given.setdefault(name, name.upper())
        return f"{tool.name}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


class SignedCommand(Command):
    """A command that asks for a person's signature before it does anything. Its text says so."""

    __slots__ = ()

    def __init__(self, command: Command) -> None:
        """Copy the parts of a command."""
        for name in ("verb", "places", "options", "then"):
            object.__setattr__(self, name, getattr(command, name))

    def __str__(self) -> str:
        """Return the line between backticks, with the remark that it takes a signature."""
        return f"`{self.line}` (takes a person's signature)"


@dataclass(frozen=True, slots=True)
class Option:
    """One option alone, which the reader can add to the call that they have just made."""

    name: str
    value: str | None = None

    def __str__(self) -> str:
        return f"`{_in_shell(self.name, self.value)}`"


class _Number(str):
    """A number, which is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def quoted(command: str) -> str:
    """Return a job's command as it is written after `--`, so that a shell passes it on unchanged."""
    with suppress(ValueError):
        if shlex.join(shlex.split(command)) == command:
            return command
    return shlex.quote(command)


def _as_given(then: str) -> str:
    """Return the job's command from the text after `--`. A single quoted word is the whole command."""
    with suppress(ValueError):
        if len(words := shlex.split(then)) == 1:
            return words[0]
    return then


_HOURS = {"m": 1 / 60, "h": 1, "d": 24}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([mhd])")
_WORD = re.compile(r"""(?:[^\s'"\\]|'[^']*'|"[^"]*"|\\.)+""")
_QUOTED = r"""((?:[^`'"]|'[^']*'|"[^"]*")*)"""
_COMMAND = re.compile(rf"(\bruns )?`{PROGRAM} {_QUOTED}`")
_OPTION = re.compile(rf"`--([a-z-]+)(?: {_QUOTED})?`")
_FENCED = re.compile(r"(?s)<untrusted-(\w+) .*?</untrusted-\1>")


def read(line: str) -> Command | None:
    """Parse the line of a command, without the program's name. None if it cannot be parsed."""
    words: list[str] = []
    then = ""
    try:
        for found in _WORD.finditer(line):
            if found[0] == "--":
                then = line[found.end() :].strip()
                break
            words += shlex.split(found[0])
    except ValueError:
        return None
    if not words:
        return None
    verb, *rest = words
    places, options = [], list[tuple[str, str | None]]()
    left = iter(rest)
    for word in left:
        name = word.removeprefix("--")
        if name == word:
            places.append(word)
        else:
            options.append((name, None if name in _SWITCHES else next(left, None)))
    told = Command(verb, *places, then=then)
    object.__setattr__(told, "options", tuple(options))
    return told


def in_tools(words: str) -> str:
    """Rewrite a text for an agent: each command becomes a tool call, or gets a remark that the person must run it.

    Text from a box, which is fenced by `<untrusted-…>` tags, stays unchanged.
    """
    told, at = [], 0
    for fenced in _FENCED.finditer(words):
        told += [_in_tools(words[at : fenced.start()]), fenced[0]]
        at = fenced.end()
    return "".join([*told, _in_tools(words[at:])])


def _in_tools(words: str) -> str:
    def call(found: re.Match[str]) -> str:
        by_whom, line = found[1] or "", found[2]
        meant = read(line)
        if meant and meant.verb == "guide" and meant.places:
            page, *parts = meant.places
            at = "".join(f", at {part}" for part in parts)
            return f"{by_whom}`skill://{PROGRAM}/references/{page}.md`{at}"
        if meant and meant.verb == "profiles":
            page = f"profiles/{meant.places[0]}.md" if meant.places else "SKILL.md"
            return f"{by_whom}`skill://{PROGRAM}/{page}`"
        calls = meant.calls if meant else ()
        if calls:
            return by_whom + ", then ".join(f"`{each}`" for each in calls)
        return f"{found[0]}" if by_whom else f"{found[0]} (ask the person to run it)"

    def argument(found: re.Match[str]) -> str:
        known = _OPTIONS.get(found[1])
        if known is None:
            return found[0]
        if found[2] is None:
            return f"`{known.name}`"
        value = " ".join(shlex.split(found[2]))
        told = [value] if known.kind == "list" else known.as_passed(value)
        return f"`{known.name}={told!r}`"

    return _OPTION.sub(argument, _COMMAND.sub(call, words))


def _in_hours(said: str) -> str:
    """Convert `30m` to the number of hours that a tool takes."""
    found = _DURATION.fullmatch(said)
    return _Number(float(found[1]) * _HOURS[found[2]] if found else said)


def _in_shell(name: str, value: str | None) -> str:
    if value is None:
        return f"--{name}"
    known = _OPTIONS.get(name)
    # A pattern is quoted even if a shell does not need the quotes, because a reader will replace the pattern by
    # another one.
    is_plain = known and known.is_pattern and "'" not in value
    return f"--{name} " + (f"'{value}'" if is_plain else shlex.quote(value))
