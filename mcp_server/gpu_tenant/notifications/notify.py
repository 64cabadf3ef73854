"""Sends alarms to a person who is elsewhere: the channels, what is sent over each, and what happens if one fails."""

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
from gpu_tenant.providers.credentials import read_table, resolve

LIMIT_S = 10.0
"""A delivery that takes longer than this many seconds counts as failed."""
TITLE = 80
"""A title has at most this many characters: a phone shows so many before the message is opened."""
BODY = 300
"""A body has at most this many characters: a phone shows so many before the message is opened."""

_LEVELS = {level.name.lower(): level for level in Level}
_KINDS: dict[Level, Literal["info", "warning", "failure"]] = {
    Level.NOTICE: "info",
    Level.WARNING: "warning",
    Level.URGENT: "failure",
}
_REFERENCE = re.compile(r"(env|file|keyring|cmd):.+", re.DOTALL)
_QUIET = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_COMMAND = re.compile(r"`(gpu-tenant [^`]+)`")
# With these characters replaced, no service finds a mention, a link or a tag in the text. Other Markdown is harmless.
_INERT = str.maketrans({"<": "‹", ">": "›", "@": "＠", "[": "(", "]": ")", "`": "'"})


@dataclass(frozen=True, slots=True)
class NotificationChannel:
    """One `[notify.NAME]` of the configuration: where alarms are sent, and which ones."""

    name: str
    reference: str | None
    """Where the channel's address is kept, or `desktop`. None if the configuration says neither."""
    least: Level
    quiet: tuple[time, time] | None
    """The quiet hours, by this computer's clock. Urgent alarms are sent even then."""
    wrong: str | None
    """What is wrong with the channel's configuration. The usable part of it is still used."""

    def takes(self, level: Level, now: datetime) -> bool:
        """Whether an alarm of that level is sent over this channel at `now`."""
        return self.reference is not None and level >= self.takes_from(now)

    def takes_from(self, now: datetime) -> Level:
        """Return the lowest level that is sent over this channel at `now`."""
        if self.quiet is None:
            return self.least
        start, end = self.quiet
        clock = now.astimezone().time()
        inside = start <= clock < end if start <= end else clock >= start or clock < end
        return Level.URGENT if inside else self.least


@dataclass(frozen=True, slots=True)
class Message:
    """One alarm as it is sent: what happened, what it costs, and the next command."""

    lease: str | None
    what: str
    level: Level
    words: str
    rate: str | None
    next: str
    channel: str | None = None
    """The channel that the alarm is about, if it is about one."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of sending something over one channel."""

    channel: str
    outcome: Literal["taken", "failed"]
    problem: str | None
    """Why it failed; or what is wrong with the channel's configuration although it accepted the message; or None."""


def read_channels(configuration: Path) -> list[NotificationChannel]:
    """Return the channels of the owner's configuration, including those with mistakes.

    Raises:
        LocalTrouble: the configuration cannot be read.
    """
    said = read_table(configuration, "notify")
    return [_channel(plain(str(name))[:40], entry) for name, entry in said.items()]


def _channel(name: str, said: object) -> NotificationChannel:
    entry: dict[str, object] = said if isinstance(said, dict) else {}
    url, level, quiet = (entry.get(key) for key in ("url", "level", "quiet"))
    wrong: list[str] = []
    reference = (
        url if isinstance(url, str) and (url == DESKTOP or _REFERENCE.fullmatch(url)) else None
    )
    if reference is None:
        # The words do not repeat the value, because it may be the address itself, which is a secret.
        wrong.append(
            f"`url` is not a reference: write env:VARIABLE, file:PATH, keyring:SERVICE/USER, "
            f"cmd:COMMAND or {DESKTOP}, and put the address itself into that variable, file or keyring, not here"
        )
    if level is not None and level not in _LEVELS:
        wrong.append(f"`level` is not one of {', '.join(_LEVELS)}")
    hours = _QUIET.fullmatch(quiet) if isinstance(quiet, str) else None
    if quiet is not None and hours is None:
        wrong.append("`quiet` is not like 23:00-07:00")
    wrong += [
        f"`{plain(key)[:40]}` is not a setting of a channel" for key in entry if key not in _KEYS
    ]
    return NotificationChannel(
        name=name,
        reference=reference,
        least=_LEVELS.get(str(level), Level.NOTICE),
        quiet=hours and (time(int(hours[1]), int(hours[2])), time(int(hours[3]), int(hours[4]))),
        wrong=f"[notify.{name}]: {'; '.join(wrong)}" if wrong else None,
    )


_KEYS = ("url", "level", "quiet")


def leads_nowhere(channel: NotificationChannel, environ: Mapping[str, str]) -> str | None:
    """Return why the channel's address cannot be read, as far as this is known without reading it. Otherwise None."""
    scheme, _, rest = (channel.reference or "").partition(":")
    if scheme == "env" and not environ.get(rest):
        return f"this process has no variable {rest}"
    if scheme == "file" and not Path(rest).expanduser().is_file():
        return f"{rest} does not exist"
    return None


def message(alarm: Alarm, lease: Lease | None, *, now: datetime) -> Message:
    """Return the message for an alarm that is sent at `now`."""
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
    """Return a title and a body for one message or several, the most urgent first.

    No mention, link or tag in them takes effect.
    """
    first, *others = sorted(messages, key=lambda m: -m.level)
    about = _about(first)
    if not others:
        end = " ".join(filter(None, (first.rate, f"Next: {first.next}")))
        return _inert(f"gpu-tenant: {about}", TITLE), _end_with(_inert(first.words, BODY), end)
    # Up to three messages are shown, shortened to the room that there is. The command shows the rest.
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


def _end_with(words: str, end: str) -> str:
    end = _inert(end, BODY // 2)
    return f"{_cut(words, BODY - len(end) - 1)}\n{end}"


def _inert(text: str, most: int) -> str:
    return _cut(" ".join(plain(text).translate(_INERT).split()), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


async def notify(
    channels: Sequence[NotificationChannel],
    messages: Sequence[Message],
    *,
    environ: Mapping[str, str],
    now: datetime,
    limit_s: float = LIMIT_S,
) -> list[Attempt]:
    """Send each channel the messages that it wants, joined into one message.

    A delivery that takes longer than `limit_s` seconds has failed. A channel that wants none of the messages is not
    tried, and is not in the result.
    """
    wanted = [(c, [m for m in messages if c.takes(m.level, now)]) for c in channels]
    tried = [(channel, heard) for channel, heard in wanted if heard]
    problems = await asyncio.gather(
        *(_send(channel, heard, environ, limit_s) for channel, heard in tried)
    )
    return [
        Attempt(channel.name, "failed" if problem else "taken", problem or channel.wrong)
        for (channel, _), problem in zip(tried, problems, strict=True)
    ]


async def _send(
    channel: NotificationChannel,
    messages: Sequence[Message],
    environ: Mapping[str, str],
    limit_s: float,
) -> str | None:
    """Send the messages over the channel. Return None if the channel accepted them, otherwise why not."""
    title, body = compose([_reworded_for(each, channel) for each in messages])
    kind = _KINDS[max(each.level for each in messages)]
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str | None] = loop.create_future()

    def settle(problem: str | None) -> None:
        if not answer.done():
            answer.set_result(problem)

    def work() -> None:
        problem = _deliver(channel, title, body, kind, environ)
        with suppress(RuntimeError):  # the loop is closed, because nobody waits any more
            loop.call_soon_threadsafe(settle, problem)

    # A separate thread, so that a channel that hangs holds up neither the others nor the end of
    # this process.
    threading.Thread(target=work, name=f"notify {channel.name}", daemon=True).start()
    try:
        async with asyncio.timeout(limit_s):
            return await answer
    except TimeoutError:
        return f"it took longer than {limit_s:g} s"


def _reworded_for(told: Message, channel: NotificationChannel) -> Message:
    """Return the message as it is sent over this channel.

    If the message is about a failure of this same channel, it is changed to say that the channel works again: if it
    arrives, the channel works.
    """
    if told.channel != channel.name:
        return told
    problem = told.words.removeprefix(f"{_failure_of(channel.name)}: ")
    words = f"this channel works again; it had failed, so you may have missed alarms; what was wrong: {problem}"
    return replace(told, words=words, next=Command("alarms").line)


def _deliver(
    channel: NotificationChannel,
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
    except Exception as error:  # noqa: BLE001 - only the kind is told: a keyring's error may contain anything
        return f"its address could not be read from the place that `url` names ({type(error).__name__})"
    return deliver(address, title, body, kind=kind)


async def tell_due(
    home: Home,
    ledger: Ledger,
    *,
    environ: Mapping[str, str],
    limit_s: float = LIMIT_S,
) -> list[Attempt]:
    """Send every alarm that is due over the channels that want it.

    If a channel fails, an alarm about it is raised, which the other channels send at the next call. This alarm ends
    when the channel accepts a message again. An alarm that was sent over no channel stays due.
    """
    try:
        channels = read_channels(home.configuration)
    except LocalTrouble as error:
        words = f"no alarm can be sent: {error.message}"
        ledger.raise_alarm("notify", words, level=Level.WARNING, lease_id=None, at=ledger.now())
        return []
    _end_what_is_over(ledger, channels, ledger.now())
    for channel in channels:
        if channel.reference is None and channel.wrong:
            _note_failure(ledger, channel.name, channel.wrong, ledger.now())
    now = ledger.now()
    usable = [channel.takes_from(now) for channel in channels if channel.reference]
    # An alarm that no channel takes now, because of its quiet hours, stays due until one takes it.
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
        ledger.note_reached_nobody(
            alarm
            for alarm, said in zip(due, told, strict=True)
            if not any(channel.takes(said.level, now) for channel in reached)
        )
    for attempt in attempts:
        if attempt.problem is not None:
            _note_failure(ledger, attempt.channel, attempt.problem, ledger.now())
        else:
            ledger.end_alarm(f"{CHANNEL}{attempt.channel}", lease_id=None, at=ledger.now())
    return attempts


def _note_failure(ledger: Ledger, channel: str, problem: str, at: datetime) -> None:
    words = f"{_failure_of(channel)}: {problem}"
    ledger.raise_alarm(f"{CHANNEL}{channel}", words, level=Level.WARNING, lease_id=None, at=at)


def _failure_of(channel: str) -> str:
    return f"alarms do not reach you over the channel {channel}"


def _end_what_is_over(
    ledger: Ledger, channels: Sequence[NotificationChannel], at: datetime
) -> None:
    names = {channel.name for channel in channels}
    for alarm in ledger.open_alarms():
        gone = alarm.channel is not None and alarm.channel not in names
        if gone or alarm.key == "notify":
            ledger.end_alarm(alarm.key, lease_id=alarm.lease_id, at=at)
