"""The command that shows open alarms, and tests the channels over which alarms are sent."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import click
from pydantic import Field

from gpu_tenant.domain.alarm import CHANNEL, Alarm, Level, loudness
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.wording import span
from gpu_tenant.faces.chinese import for_terminal
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import as_json, verb

if TYPE_CHECKING:
    from gpu_tenant.leases.cards import Leases
    from gpu_tenant.service import Tenancy

_EVERY = "*"
_WORD: dict[Level, Literal["notice", "warning", "urgent"]] = {
    Level.NOTICE: "notice",
    Level.WARNING: "warning",
    Level.URGENT: "urgent",
}


class OpenAlarm(Record):
    """One alarm that has not ended."""

    lease: str | None
    about: str
    level: Literal["notice", "warning", "urgent"]
    words: str
    open_s: float
    told: int
    told_s_ago: float | None


class Alarms(Record):
    """What a person must know: the open alarms, the oldest first, and then what a check of all leases finds now."""

    alarms: tuple[OpenAlarm, ...]
    seen_now: tuple[str, ...] = Field(
        description="found by this check, whether or not a watchdog has opened an alarm for it"
    )


class Tried(Record):
    """One channel, and the result of a message that was sent over it."""

    channel: str
    taken: bool
    problem: str | None


class Trial(Record):
    """Every channel that was tried."""

    channels: tuple[Tried, ...]


@verb("alarms")
@click.option(
    "--test",
    "tested",
    is_flag=False,
    flag_value=_EVERY,
    metavar="[CHANNEL]",
    help="send a test message over this channel, or over every one; status 1 if one was not accepted",
)
@as_json
async def alarms(tested: str | None, as_json: bool) -> None:
    """Oldest first, with what a check finds now. A channel is a [notify.NAME] in config.toml, in lines as `url = "env:NTFY_URL"`.

    There `url` says where the channel's address is kept. `level` is the lowest level that the channel gets (notice,
    warning, urgent). During `quiet` (23:00-07:00) it gets only urgent ones.
    """
    async with output.tenancy(purpose="look") as tenancy:
        if tested is not None:
            trial = await _test(tenancy, tested)
            output.answer(trial, as_json, _trial)
            if not all(each.taken for each in trial.channels):
                sys.exit(1)
            return
        now, alarms = tenancy.clock.now(), tenancy.ledger.open_alarms()
        # Without a watchdog, alarms are not opened, so problems are found only by checking now.
        looked = await tenancy.list_leases()
        output.answer(
            Alarms(
                alarms=tuple(_open(alarm, now) for alarm in alarms),
                seen_now=tuple(seen_now(looked, alarms)),
            ),
            as_json,
            _alarms,
        )


def seen_now(looked: Leases, opened: Sequence[Alarm]) -> list[str]:
    """Return what a look at all leases found, besides the open alarms. What `leases` asks a person to do is in it."""
    known = {f"{alarm.lease_id or 'the account'}: {alarm.words}" for alarm in opened}
    told = {alarm.lease_id for alarm in opened}
    waits = [
        f"{card.lease}: {card.condition.word}; {card.next}"
        for card in looked.leases
        if card.condition.to_do is not None and not card.alarm and card.lease not in told
    ]
    return [words for words in (*looked.alarms, *waits) if words not in known]


def _open(alarm: Alarm, now: datetime) -> OpenAlarm:
    return OpenAlarm(
        lease=alarm.lease_id,
        about=alarm.key,
        level=_WORD[loudness(alarm, now)],
        words=alarm.words,
        open_s=round((now - alarm.since).total_seconds()),
        told=alarm.told,
        told_s_ago=round((now - alarm.told_at).total_seconds()) if alarm.told_at else None,
    )


async def _test(tenancy: Tenancy, named: str) -> Trial:
    """Send a test message over that channel, or over all channels, even if its level or quiet hours exclude it.

    Raises:
        BadRequest: there is no such channel.
    """
    from gpu_tenant.notifications.notify import Message, notify, read_channels

    channels = read_channels(tenancy.home.configuration)
    chosen = [channel for channel in channels if named in (_EVERY, channel.name)]
    if not chosen:
        known = ", ".join(channel.name for channel in channels)
        raise BadRequest(
            "no channel is set up" if not known else f"no channel {named!r} (known: {known})",
            remedy=f"begin one in {tenancy.home.configuration} with a line `[notify.phone]`, then "
            '`url = "env:NTFY_URL"`',
        )
    test = Message(
        lease=None,
        what="a test",
        level=Level.URGENT,
        words="Alarms reach you here: what bills unseen, what ends soon, what could not be saved.",
        rate=None,
        next=Command("leases").line,
    )
    sent = await notify(chosen, [test], environ=os.environ, now=tenancy.clock.now())
    tried = {attempt.channel: attempt for attempt in sent}
    for attempt in sent:
        if attempt.problem is None:
            key = f"{CHANNEL}{attempt.channel}"
            tenancy.ledger.end_alarm(key, lease_id=None, at=tenancy.clock.now())
    return Trial(
        channels=tuple(
            Tried(
                channel=channel.name,
                taken=channel.name in tried and tried[channel.name].outcome == "taken",
                problem=tried[channel.name].problem if channel.name in tried else channel.wrong,
            )
            for channel in chosen
        )
    )


def _alarms(shown: Alarms) -> None:
    for each in shown.alarms:
        about = f"{each.lease} {each.about}" if each.lease else each.about
        told = (
            f"told {span(each.told_s_ago)} ago"
            if each.told and each.told_s_ago is not None
            else "told to nobody yet"
        )
        click.echo(for_terminal(f"{each.level}: {about}, for {span(each.open_s)}, {told}"))
        click.echo(f"  {for_terminal(each.words)}")
    for words in shown.seen_now:
        click.echo(for_terminal(f"seen now: {words}"))
    if not shown.alarms and not shown.seen_now:
        click.echo(for_terminal("no alarm is open, and a look at everything found nothing wrong"))


def _trial(shown: Trial) -> None:
    for each in shown.channels:
        how = "taken" if each.taken else "not taken"
        click.echo(f"{each.channel}: {how}" + (f": {each.problem}" if each.problem else ""))
