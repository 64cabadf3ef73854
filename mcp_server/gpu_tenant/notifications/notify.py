"""Alarms for a person who is elsewhere: which channels there are, what each is told, and what happens when one fails."""

import asyncio
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, time
from pathlib import Path
from typing import Literal

from gpu_tenant.domain.alarm import CHANNEL, Alarm, Level, loudness
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LocalTrouble, TenantError
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.reconcile import rate_words
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.files.state_dir import Home
from gpu_tenant.ledger import Ledger
from gpu_tenant.notifications.apprise_delivery import DESKTOP, deliver
from gpu_tenant.providers.credentials import configured, resolve

LIMIT_S = 10.0
"""How long one channel is given, in seconds."""
TITLE = 80
BODY = 300
"""How many characters of a title and of a body a phone shows unasked."""

_LEVELS = {level.name.lower(): level for level in Level}
_KINDS: dict[Level, Literal["info", "warning", "failure"]] = {
    Level.NOTICE: "info",
    Level.WARNING: "warning",
    Level.URGENT: "failure",
}
_REFERENCE = re.compile(r"(env|file|keyring|cmd):.+", re.DOTALL)
_QUIET = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_COMMAND = re.compile(r"`(gpu-tenant [^`]+)`")
# This disarms every service's mentions, links and tags. The Markdown that is left harms nobody.
_INERT = str.maketrans({"<": "‹", ">": "›", "@": "＠", "[": "(", "]": ")", "`": "'"})


@dataclass(frozen=True, slots=True)
class Channel:
    """One `[notify.NAME]` of the configuration: a way to a person, and what they want to hear."""

    name: str
    reference: str | None
    """Where its address is kept, or `desktop`. None if what was written is neither."""
    least: Level
    quiet: tuple[time, time] | None
    """By this computer's clock. Urgent alarms are told even then."""
    wrong: str | None
    """What is wrong with what was written. The usable part of it is still used."""

    def takes(self, level: Level, now: datetime) -> bool:
        """Whether an alarm of that level is told here at `now`."""
        return self.reference is not None and level >= self.takes_from(now)

    def takes_from(self, now: datetime) -> Level:
        """The lowest level that is told here at `now`."""
        if self.quiet is None:
            return self.least
        start, end = self.quiet
        clock = now.astimezone().time()
        inside = start <= clock < end if start <= end else clock >= start or clock < end
        return Level.URGENT if inside else self.least


@dataclass(frozen=True, slots=True)
class Message:
    """One alarm as it is told: what happened, what it costs, and the one next command."""

    lease: str | None
    what: str
    level: Level
    words: str
    rate: str | None
    next: str
    channel: str | None = None
    """The channel that it is about, if it is about one."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of telling something over one channel."""

    channel: str
    outcome: Literal["taken", "failed"]
    problem: str | None
    """Why it failed, or what is wrong with the channel although it was taken."""


def read_channels(configuration: Path) -> list[Channel]:
    """The channels of the owner's configuration, also those that are written wrongly.

    Raises:
        LocalTrouble: the configuration cannot be read.
    """
    said = configured(configuration, "notify")
    return [_channel(plain(str(name))[:40], entry) for name, entry in said.items()]


def _channel(name: str, said: object) -> Channel:
    entry: dict[str, object] = said if isinstance(said, dict) else {}
    url, level, quiet = (entry.get(key) for key in ("url", "level", "quiet"))
    wrong: list[str] = []
    reference = (
        url if isinstance(url, str) and (url == DESKTOP or _REFERENCE.fullmatch(url)) else None
    )
    if reference is None:
        # The value is not repeated in the words, because it may be the address itself, which is a
        # secret.
        wrong.append(
            f"`url` is no reference: write env:VARIABLE, file:PATH, keyring:SERVICE/USER, "
            f"cmd:COMMAND or {DESKTOP}, and keep the address itself there"
        )
    if level is not None and level not in _LEVELS:
        wrong.append(f"`level` is none of {', '.join(_LEVELS)}")
    hours = _QUIET.fullmatch(quiet) if isinstance(quiet, str) else None
    if quiet is not None and hours is None:
        wrong.append("`quiet` is not like 23:00-07:00")
    wrong += [f"`{plain(key)[:40]}` means nothing here" for key in entry if key not in _KEYS]
    return Channel(
        name=name,
        reference=reference,
        least=_LEVELS.get(str(level), Level.NOTICE),
        quiet=hours and (time(int(hours[1]), int(hours[2])), time(int(hours[3]), int(hours[4]))),
        wrong=f"[notify.{name}]: {'; '.join(wrong)}" if wrong else None,
    )


_KEYS = ("url", "level", "quiet")


def leads_nowhere(channel: Channel, environ: Mapping[str, str]) -> str | None:
    """Why the channel's reference leads nowhere, as far as can be told without reading it."""
    scheme, _, rest = (channel.reference or "").partition(":")
    if scheme == "env" and not environ.get(rest):
        return f"this process has no variable {rest}"
    if scheme == "file" and not Path(rest).expanduser().is_file():
        return f"{rest} is not there"
    return None


def message(alarm: Alarm, lease: Lease | None, *, now: datetime) -> Message:
    """The alarm as it is told at `now`."""
    named = _COMMAND.search(alarm.words)
    if alarm.channel is not None:
        usual = Command("alarms", test=alarm.channel).line
    else:
        usual = Command("alarms" if lease is None else "leases").line
    return Message(
        lease=lease.id if lease else None,
        what=alarm.key,
        level=loudness(alarm, now),
        words=alarm.words,
        rate=f"It bills {rate_words(lease)}." if lease and lease.state.live else None,
        next=named[1] if named else usual,
        channel=alarm.channel,
    )


def compose(messages: Sequence[Message]) -> tuple[str, str]:
    """A title and a body for one message or several, the most urgent first.

    No mention, link or tag in them takes effect.
    """
    first, *others = sorted(messages, key=lambda m: -m.level)
    about = _about(first)
    if not others:
        end = " ".join(filter(None, (first.rate, f"Next: {first.next}")))
        return _inert(f"gpu-tenant: {about}", TITLE), _ended(_inert(first.words, BODY), end)
    # As many as fit, with a sentence each. The command shows the rest.
    shown = [first, *others][:3]
    more = len(messages) - len(shown)
    end = (f"And {more} more. " if more else "") + f"Next: {Command('alarms').line}"
    room = (BODY - len(end)) // len(shown) - 1
    told = (" ".join(filter(None, (f"{_about(m)}: {m.words}", m.rate))) for m in shown)
    lines = "\n".join(_inert(line, room) for line in told)
    title = f"gpu-tenant: {len(messages)} alarms, first {about}"
    return _inert(title, TITLE), f"{lines}\n{end}"


def _about(told: Message) -> str:
    return f"{told.lease} {told.what}" if told.lease else told.what


def _ended(words: str, end: str) -> str:
    end = _inert(end, BODY // 2)
    return f"{_cut(words, BODY - len(end) - 1)}\n{end}"


def _inert(text: str, most: int) -> str:
    return _cut(" ".join(plain(text).translate(_INERT).split()), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


async def notify(
    channels: Sequence[Channel],
    messages: Sequence[Message],
    *,
    environ: Mapping[str, str],
    now: datetime,
    limit_s: float = LIMIT_S,
) -> list[Attempt]:
    """Each channel was sent what it wants to hear in one message, or was given up after `limit_s`.

    A channel that wants none of the messages was not tried, and is not in the answer.
    """
    wanted = [(c, [m for m in messages if c.takes(m.level, now)]) for c in channels]
    tried = [(channel, heard) for channel, heard in wanted if heard]
    problems = await asyncio.gather(
        *(_sent(channel, heard, environ, limit_s) for channel, heard in tried)
    )
    return [
        Attempt(channel.name, "failed" if problem else "taken", problem or channel.wrong)
        for (channel, _), problem in zip(tried, problems, strict=True)
    ]


async def _sent(
    channel: Channel, messages: Sequence[Message], environ: Mapping[str, str], limit_s: float
) -> str | None:
    """None if the channel took it. Otherwise why not."""
    title, body = compose([_at_home(each, channel) for each in messages])
    kind = _KINDS[max(each.level for each in messages)]
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str | None] = loop.create_future()

    def settle(problem: str | None) -> None:
        if not answer.done():
            answer.set_result(problem)

    def work() -> None:
        problem = _delivered(channel, title, body, kind, environ)
        with suppress(RuntimeError):  # nobody waits any more, and the loop is closed
            loop.call_soon_threadsafe(settle, problem)

    # A separate thread, so that one that hangs holds up neither the others nor the end of this
    # process.
    threading.Thread(target=work, name=f"notify {channel.name}", daemon=True).start()
    try:
        async with asyncio.timeout(limit_s):
            return await answer
    except TimeoutError:
        return f"it took longer than {limit_s:g} s"


def _at_home(told: Message, channel: Channel) -> Message:
    """The message for this channel. If it is about this channel's own failure, its arrival is the end of that."""
    if told.channel != channel.name:
        return told
    words = f"this channel works again; it had failed, so alarms may have been missed: {told.words}"
    return replace(told, words=words, next=Command("alarms").line)


def _delivered(
    channel: Channel,
    title: str,
    body: str,
    kind: Literal["info", "warning", "failure"],
    environ: Mapping[str, str],
) -> str | None:
    reference = channel.reference or ""
    try:
        address = (
            reference
            if reference == DESKTOP
            else resolve(f"the address of the channel {channel.name}", reference, environ=environ)
        )
    except TenantError as error:
        return error.message
    except Exception as error:  # noqa: BLE001 - a keyring's error may hold anything: its kind is told
        return f"its reference leads nowhere ({type(error).__name__})"
    return deliver(address, title, body, kind=kind)


async def tell_due(
    home: Home,
    ledger: Ledger,
    *,
    environ: Mapping[str, str],
    limit_s: float = LIMIT_S,
) -> list[Attempt]:
    """Every alarm that is due was told over the channels that want it.

    A channel that failed becomes an alarm, which the others tell at the next look. It ends when the channel takes
    something again. An alarm that reached nobody stays due.
    """
    try:
        channels = read_channels(home.configuration)
    except LocalTrouble as error:
        words = f"no alarm can be told: {error.message}"
        ledger.raise_alarm("notify", words, level=Level.WARNING, lease_id=None, at=ledger.now())
        return []
    _end_what_is_over(ledger, channels, ledger.now())
    for channel in channels:
        if channel.reference is None and channel.wrong:
            _failed(ledger, channel.name, channel.wrong, ledger.now())
    now = ledger.now()
    usable = [channel.takes_from(now) for channel in channels if channel.reference]
    # Alarms that fall into every channel's quiet time stay due until one channel takes them.
    due = ledger.claim_due(now, least=min(usable)) if usable else []
    if not due:
        return []
    told = [message(a, ledger.lease(a.lease_id) if a.lease_id else None, now=now) for a in due]
    taken: set[str] = set()
    try:
        attempts = await notify(channels, told, environ=environ, now=now, limit_s=limit_s)
        taken = {each.channel for each in attempts if each.outcome == "taken"}
    finally:
        reached = [c for c in channels if c.name in taken]
        ledger.reached_nobody(
            alarm
            for alarm, said in zip(due, told, strict=True)
            if not any(channel.takes(said.level, now) for channel in reached)
        )
    for attempt in attempts:
        if attempt.problem is not None:
            _failed(ledger, attempt.channel, attempt.problem, ledger.now())
        else:
            ledger.end_alarm(f"{CHANNEL}{attempt.channel}", lease_id=None, at=ledger.now())
    return attempts


def _failed(ledger: Ledger, channel: str, problem: str, at: datetime) -> None:
    words = f"alarms do not reach you over the channel {channel}: {problem}"
    ledger.raise_alarm(f"{CHANNEL}{channel}", words, level=Level.WARNING, lease_id=None, at=at)


def _end_what_is_over(ledger: Ledger, channels: Sequence[Channel], at: datetime) -> None:
    names = {channel.name for channel in channels}
    for alarm in ledger.open_alarms():
        gone = alarm.channel is not None and alarm.channel not in names
        if gone or alarm.key == "notify":
            ledger.end_alarm(alarm.key, lease_id=alarm.lease_id, at=at)
