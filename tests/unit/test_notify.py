"""Alarms reach a person over real hooks and real mail on loopback, and a hook that fails is an alarm."""

import asyncio
import logging
import sys
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest
from apprise.plugins.dingtalk import NotifyDingTalk
from apprise.plugins.feishu import NotifyFeishu
from apprise.plugins.slack import NotifySlack
from apprise.plugins.wecombot import NotifyWeComBot
from arranged import LEASE, NOON, PATIENCE_S, HandClock, active, eventually, lease
from hooks import Hook, hook, mail_server

from gpu_tenant.domain.alarm import Alarm, Level
from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.files.installation import extra_line
from gpu_tenant.files.state_dir import Home
from gpu_tenant.ledger import Ledger
from gpu_tenant.notifications.apprise_delivery import deliver
from gpu_tenant.notifications.notify import (
    BODY,
    TITLE,
    Attempt,
    Message,
    compose,
    message,
    notify,
    read_channels,
    tell_due,
)

TOKEN = "3f0e9a1c-7b52-4d0e-a9b1-SECRET77c1d4"


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    active(ledger)
    return ledger


@pytest.fixture
def phone() -> Iterator[Hook]:
    with hook() as opened:
        yield opened


@pytest.fixture
def desk() -> Iterator[Hook]:
    with hook() as opened:
        yield opened


def configured(home: Home, text: str) -> Home:
    home.configuration.write_text(text, encoding="utf-8")
    return home


def web(at: Hook, path: str = "alarms") -> str:
    return f"json://127.0.0.1:{at.port}/{path}"


def told(words: str = "it went wrong", *, level: Level = Level.WARNING, **more: object) -> Message:
    plain: dict[str, object] = {
        "lease": LEASE,
        "what": "price",
        "rate": "It bills at 1.20 USD/h.",
        "next": "gpu-tenant leases",
    }
    return Message(words=words, level=level, **{**plain, **more})  # type: ignore[arg-type]


async def sent(address: str, words: str = "it went wrong") -> str | None:
    title, body = compose([told(words)])
    return await asyncio.to_thread(deliver, address, title, body, kind="warning")


# The services


async def test_a_hook_of_one_s_own_takes_a_title_and_a_body(phone: Hook) -> None:
    assert await sent(web(phone)) is None

    assert phone.bodies[0]["title"] == f"gpu-tenant: {LEASE} price"
    assert phone.bodies[0]["message"] == (
        "it went wrong\nIt bills at 1.20 USD/h. Next: gpu-tenant leases"
    )


async def test_ntfy_takes_it(phone: Hook) -> None:
    assert await sent(f"ntfy://127.0.0.1:{phone.port}/topic") is None

    assert "it went wrong" in str(phone.taken)
    assert "Next: gpu-tenant leases" in str(phone.taken)


async def test_a_mail_server_takes_it_as_plain_text() -> None:
    async with mail_server() as (port, mails):
        address = f"mailto://127.0.0.1:{port}?from=box@example.org&to=me@example.org"
        assert await sent(address, "a <b>bold</b> claim") is None

    assert (mails[0]["Subject"], mails[0]["To"]) == (f"gpu-tenant: {LEASE} price", "me@example.org")
    assert mails[0].get_content_type() == "text/plain"
    assert mails[0].get_content().splitlines()[0] == "a ‹b›bold‹/b› claim"


# Apprise lets nobody name the host of these: the constant that holds it is led to loopback.
SHOWN = {
    "Feishu": (
        NotifyFeishu,
        "notify_url",
        "http://127.0.0.1:{port}/hook/{{token}}/",
        f"https://open.feishu.cn/open-apis/bot/v2/hook/{TOKEN}",
        '{"code":0,"msg":"success"}',
    ),
    "WeCom": (
        NotifyWeComBot,
        "notify_url",
        "http://127.0.0.1:{port}/send?key={{key}}",
        f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={TOKEN}",
        '{"errcode":0}',
    ),
    "DingTalk": (
        NotifyDingTalk,
        "notify_url",
        "http://127.0.0.1:{port}/send?access_token={{token}}",
        "https://oapi.dingtalk.com/robot/send?access_token=3f0e9a1c7b524d0ea9b177c1d4",
        '{"errcode":0}',
    ),
    "Slack": (
        NotifySlack,
        "webhook_url",
        "http://127.0.0.1:{port}/services",
        "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
        "ok",
    ),
}


def led_to(phone: Hook, service: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address that its console shows, with the service itself on loopback."""
    plugin, constant, template, address, answer = SHOWN[service]
    monkeypatch.setattr(plugin, constant, template.format(port=phone.port))
    phone.answer = answer
    return address


@pytest.mark.parametrize("service", SHOWN)
async def test_a_hook_is_taken_as_its_console_shows_it(
    service: str, phone: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = led_to(phone, service, monkeypatch)

    assert await sent(address) is None
    assert "it went wrong" in str(phone.bodies)


@pytest.mark.parametrize(
    ("service", "answer"),
    [
        ("Feishu", '{"code":19024,"msg":"Key Words Not Found"}'),
        ("WeCom", '{"errcode":93000,"errmsg":"invalid webhook url"}'),
        ("DingTalk", '{"errcode":310000,"errmsg":"keywords not in content"}'),
    ],
)
async def test_a_no_inside_a_200_is_a_no(
    service: str, answer: str, phone: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = led_to(phone, service, monkeypatch)
    phone.answer = answer

    problem = await sent(address)

    assert problem is not None
    assert problem.startswith("it answered 200, with the error ")


# What fails


@pytest.mark.parametrize("status", [302, 401, 404, 429, 500])
async def test_an_error_is_told_by_its_number(phone: Hook, status: int) -> None:
    phone.status = status

    assert await sent(web(phone)) == f"it answered {status}"


async def test_what_cannot_be_reached_is_told_so() -> None:
    assert await sent("json://127.0.0.1:1/") == "it could not be reached (ConnectionError)"
    mail = "mailto://127.0.0.1:1?from=a@example.org&to=b@example.org"
    assert "the service could not be reached" in str(await sent(mail))


async def test_what_is_no_address_is_told_without_it() -> None:
    for address in ("", TOKEN, f"https://example.org/{TOKEN}", f"slack://{TOKEN}", "feishu://%$"):
        problem = await sent(address)

        assert problem is not None
        assert "does not lead to an address that Apprise knows" in problem
        assert TOKEN not in problem


async def test_a_hook_that_hangs_is_given_up(home: Home, phone: Hook) -> None:
    phone.hangs = True
    text = '[notify.phone]\nurl = "env:PHONE"\n'
    channels = read_channels(configured(home, text).configuration)

    attempts = await notify(
        channels, [told()], environ={"PHONE": web(phone)}, now=NOON, limit_s=0.3
    )

    assert attempts == [Attempt("phone", "failed", "it took longer than 0.3 s")]


async def test_a_hook_that_hangs_holds_up_no_other(home: Home, phone: Hook, desk: Hook) -> None:
    phone.hangs = True
    text = '[notify.phone]\nurl = "env:PHONE"\n[notify.desk]\nurl = "env:DESK"\n'
    channels = read_channels(configured(home, text).configuration)
    # Apprise itself would give up in four seconds: it is told to read for ten minutes.
    environ = {"PHONE": web(phone, "alarms?rto=600"), "DESK": web(desk)}

    sending = asyncio.create_task(
        notify(channels, [told()], environ=environ, now=NOON, limit_s=2 * PATIENCE_S)
    )
    assert await asyncio.to_thread(eventually, lambda: desk.taken and phone.taken)
    assert not sending.done(), "the first hook hangs still"
    phone.let_go.set()

    assert await sending == [
        Attempt("phone", "failed", "it could not be reached (ConnectionError)"),
        Attempt("desk", "taken", None),
    ]


async def test_without_apprise_the_failure_is_the_command_that_installs_it(
    phone: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu_tenant.notifications import apprise_delivery

    apprise_delivery._apprise.cache_clear()
    monkeypatch.setitem(sys.modules, "apprise", None)

    problem = await sent(web(phone))

    assert problem == f"the package apprise is not installed here: `{extra_line('notify')}`"


async def test_no_address_is_in_a_log_an_error_or_the_ledger(
    home: Home,
    ledger: Ledger,
    clock: HandClock,
    phone: Hook,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("requests").setLevel(logging.DEBUG)
    phone.status = 500
    configured(home, '[notify.a]\nurl="env:A"\n[notify.b]\nurl="env:B"\n[notify.c]\nurl="env:C"\n')
    environ = {
        "A": web(phone, TOKEN),
        "B": f"feishu://{TOKEN}?{TOKEN}=%",
        "C": f"mailto://u:{TOKEN}@127.0.0.1:1",
    }
    ledger.raise_alarm("price", "words", level=Level.URGENT, lease_id=LEASE, at=NOON)

    attempts = await tell_due(home, ledger, environ=environ)

    assert [attempt.outcome for attempt in attempts] == ["failed"] * 3
    assert TOKEN in str(phone.taken), "it was really asked"
    seen = [str(attempts), caplog.text, *capfd.readouterr(), str(ledger.open_alarms())]
    assert not [text for text in seen if TOKEN in text]
    assert not [file for file in home.root.iterdir() if TOKEN.encode() in file.read_bytes()]


# The words


def alarm(words: str, *, key: str = "price", lease_id: str | None = LEASE) -> Alarm:
    return Alarm.model_validate(
        {
            "seq": 1,
            "lease_id": lease_id,
            "key": key,
            "words": words,
            "level": Level.WARNING,
            "since": NOON,
            "last_seen_at": NOON,
            "told": 1,
            "told_at": NOON,
            "ended_at": None,
        }
    )


def test_a_message_says_what_happened_what_it_bills_and_the_one_next_command() -> None:
    standing = lease(price_usd_h=Decimal("1.20"))
    words = "it is past its end; `gpu-tenant collect local-abcd` brings what is on it"

    title, body = compose([message(alarm(words), standing, now=NOON)])

    assert title == "gpu-tenant: local-abcd price"
    assert body == (
        "it is past its end; 'gpu-tenant collect local-abcd' brings what is on it\n"
        "It bills at 1.20 USD/h. Next: gpu-tenant collect local-abcd"
    )


def test_an_unknown_rate_is_told_as_unknown_and_an_ended_lease_bills_nothing() -> None:
    from gpu_tenant.domain.model import LeaseState

    running = message(alarm("x"), lease(), now=NOON)
    ended = message(alarm("x"), lease(LeaseState.LOST), now=NOON)

    assert running.rate == "It bills at an unknown rate."
    assert (ended.rate, ended.next) == (None, "gpu-tenant leases")


def test_several_alarms_are_one_short_message_the_most_urgent_first() -> None:
    many = [told(f"thing {n} " + "went on " * 50, what=f"k{n}") for n in range(5)]
    many[3] = told("a box may be lost", what="end", level=Level.URGENT)

    title, body = compose(many)

    assert title == f"gpu-tenant: 5 alarms, first {LEASE} end"
    assert body.startswith(f"{LEASE} end: a box may be lost It bills at 1.20 USD/h.\n{LEASE} k0: ")
    assert body.endswith("…\nAnd 2 more. Next: gpu-tenant alarms")


@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_a_message_fits_on_a_phone(count: int) -> None:
    long = [told("very long " * 90, what="w" * 200, next="gpu-tenant " + "x" * 300)] * count

    title, body = compose(long)

    assert len(title) <= TITLE
    assert len(body) <= BODY
    assert "Next: gpu-tenant" in body


def test_text_of_a_provider_or_a_box_obeys_nobody() -> None:
    hostile = (
        '<at user_id="all">x</at> <!channel> <@U1> @everyone [here](http://evil.example) '
        "`code`\n# big\x1b]0;title\x07\u202egnp.exe\u200b <script>alert(1)</script>"
    )

    title, body = compose([told(hostile, what=hostile)])

    assert not set("<>[]@`\n\x1b\x07\u202e\u200b") & set(title)
    assert not set("<>[]@`\x1b\x07\u202e\u200b") & set(body)
    assert body.count("\n") == 1, "our own"


# The configuration


def test_a_channel_is_a_reference_a_level_and_quiet_hours(home: Home) -> None:
    hours = f"{NOON.astimezone():%H}:00-{NOON.astimezone() + timedelta(hours=1):%H}:00"
    text = (
        f'[notify.phone]\nurl = "keyring:ntfy/me"\nlevel = "warning"\nquiet = "{hours}"\n'
        '[notify.screen]\nurl = "desktop"\n'
    )
    phone, screen = read_channels(configured(home, text).configuration)

    assert (phone.name, phone.reference, phone.wrong) == ("phone", "keyring:ntfy/me", None)
    assert [phone.takes(level, NOON) for level in Level] == [False, False, True]
    later = NOON + timedelta(hours=2)
    assert [phone.takes(level, later) for level in Level] == [False, True, True]
    assert [screen.takes(level, NOON) for level in Level] == [True, True, True]


def test_quiet_hours_may_pass_midnight(home: Home) -> None:
    inside, outside = (NOON.astimezone() + timedelta(hours=h) for h in (-1, 2))
    text = f'[notify.a]\nurl = "env:A"\nquiet = "{inside:%H:%M}-{outside:%H:%M}"\n'
    [channel] = read_channels(configured(home, text).configuration)

    takes = [channel.takes(Level.WARNING, NOON + timedelta(hours=h)) for h in range(-2, 4)]

    assert takes == [True, False, False, False, True, True]
    shifted = [channel.takes(Level.WARNING, NOON + timedelta(hours=h, minutes=1)) for h in (11, 22)]
    assert shifted == [True, True]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            f'url = "https://open.feishu.cn/open-apis/bot/v2/hook/{TOKEN}"',
            "`url` is not a reference",
        ),
        (f'url = "text:slack://{TOKEN}"', "`url` is not a reference"),
        (f'url = ["{TOKEN}"]', "`url` is not a reference"),
        ('level = "urgent"', "`url` is not a reference"),
        ('url = "env:A"\nlevel = "loud"', "`level` is not one of notice, warning, urgent"),
        ('url = "env:A"\nquiet = "at night"', "`quiet` is not like 23:00-07:00"),
        ('url = "env:A"\nquiet = "25:00-07:00"', "`quiet` is not like"),
        ('url = "env:A"\nlevl = "urgent"', "`levl` is not a setting of a channel"),
    ],
)
def test_what_is_written_wrongly_is_told_and_never_repeated(
    home: Home, entry: str, words: str
) -> None:
    [channel] = read_channels(configured(home, f"[notify.a]\n{entry}\n").configuration)

    assert channel.wrong is not None
    assert channel.wrong.startswith("[notify.a]: ")
    assert words in channel.wrong
    assert TOKEN not in str(channel)


def test_a_channel_with_a_wrong_word_tells_everything_rather_than_nothing(home: Home) -> None:
    text = '[notify.a]\nurl = "env:A"\nlevel = "loud"\nquiet = "always"\n'
    [channel] = read_channels(configured(home, text).configuration)

    assert all(channel.takes(level, NOON) for level in Level)


def test_a_configuration_that_cannot_be_read_says_so(home: Home) -> None:
    assert read_channels(home.configuration) == []
    for text in ("[notify", 'notify = "phone"'):
        with pytest.raises(LocalTrouble):
            read_channels(configured(home, text).configuration)


# A whole turn


def keys(ledger: Ledger) -> list[str]:
    return [alarm.key for alarm in ledger.open_alarms()]


async def test_what_is_due_is_told_once_over_every_channel_that_wants_it(
    home: Home, ledger: Ledger, clock: HandClock, phone: Hook, desk: Hook
) -> None:
    configured(
        home, '[notify.phone]\nurl = "env:PHONE"\nlevel="urgent"\n[notify.desk]\nurl = "env:DESK"\n'
    )
    environ = {"PHONE": web(phone), "DESK": web(desk)}
    for key, level in (("idle", Level.NOTICE), ("end", Level.URGENT)):
        ledger.raise_alarm(key, f"{key} words", level=level, lease_id=LEASE, at=NOON)

    first = await tell_due(home, ledger, environ=environ)
    again = await tell_due(home, ledger, environ=environ)

    assert [attempt.outcome for attempt in first] == ["taken", "taken"]
    assert again == []
    assert [body["title"] for body in phone.bodies] == [f"gpu-tenant: {LEASE} end"]
    assert [body["title"] for body in desk.bodies] == [f"gpu-tenant: 2 alarms, first {LEASE} end"]
    assert keys(ledger) == ["idle", "end"], "telling ends nothing"


async def test_a_channel_that_fails_is_told_over_the_others_at_the_next_look_until_it_works(
    home: Home, ledger: Ledger, clock: HandClock, phone: Hook, desk: Hook
) -> None:
    configured(home, '[notify.phone]\nurl = "env:PHONE"\n[notify.desk]\nurl = "env:DESK"\n')
    environ = {"PHONE": web(phone), "DESK": web(desk)}
    phone.status = 500
    ledger.raise_alarm("end", "it is over", level=Level.URGENT, lease_id=LEASE, at=NOON)

    await tell_due(home, ledger, environ=environ)
    assert keys(ledger) == ["end", "notify:phone"]
    await tell_due(home, ledger, environ=environ)

    assert desk.bodies[1]["title"] == "gpu-tenant: notify:phone"
    assert "do not reach you over the channel phone: it answered 500" in desk.bodies[1]["message"]
    assert "Next: gpu-tenant alarms --test phone" in desk.bodies[1]["message"]

    phone.status = 200
    clock.advance(15 * 60)
    await tell_due(home, ledger, environ=environ)

    assert keys(ledger) == ["end"]
    told = phone.bodies[-1]["message"]
    assert (
        "this channel works again; it had failed, so you may have missed alarms; what was wrong: it"
        in told
    )
    assert "do not reach you" not in told, "what is over is not said as if it went on"


async def test_what_reached_nobody_is_tried_again_until_it_does(
    home: Home, ledger: Ledger, clock: HandClock, phone: Hook
) -> None:
    configured(home, '[notify.phone]\nurl = "env:PHONE"\n')
    environ = {"PHONE": web(phone)}
    phone.status = 503
    ledger.raise_alarm("end", "it is over", level=Level.URGENT, lease_id=LEASE, at=NOON)
    for _ in range(20):
        await tell_due(home, ledger, environ=environ)
        clock.advance(60)
    assert {alarm.key: alarm.told for alarm in ledger.open_alarms()} == {
        "end": 0,
        "notify:phone": 0,
    }
    tried = len(phone.taken)
    phone.status = 200
    clock.advance(60 * 5)

    await tell_due(home, ledger, environ=environ)

    assert 4 <= tried <= 8, "every five minutes, and not at every look"
    assert "it is over" in phone.bodies[-1]["message"]
    assert [(alarm.key, alarm.told) for alarm in ledger.open_alarms()] == [("end", 1)]


async def test_a_reference_that_leads_nowhere_is_an_alarm_and_so_is_a_wrong_one(
    home: Home, ledger: Ledger, clock: HandClock
) -> None:
    configured(home, f'[notify.a]\nurl = "env:NOT_SET"\n[notify.b]\nurl = "slack://{TOKEN}"\n')
    ledger.raise_alarm("end", "it is over", level=Level.URGENT, lease_id=LEASE, at=NOON)

    await tell_due(home, ledger, environ={})

    words = {alarm.key: alarm.words for alarm in ledger.open_alarms()}
    assert "this process has no variable NOT_SET" in words["notify:a"]
    assert "`url` is not a reference" in words["notify:b"]
    assert TOKEN not in str(words)


async def test_in_quiet_hours_only_what_is_urgent_is_told_and_the_rest_when_they_are_over(
    home: Home, ledger: Ledger, clock: HandClock, phone: Hook
) -> None:
    start, end = (NOON.astimezone() + timedelta(hours=h) for h in (-1, 3))
    configured(home, f'[notify.phone]\nurl = "env:P"\nquiet = "{start:%H:%M}-{end:%H:%M}"\n')
    environ = {"P": web(phone)}
    ledger.raise_alarm("idle", "it idles", level=Level.WARNING, lease_id=LEASE, at=NOON)
    ledger.raise_alarm("end", "it is over", level=Level.URGENT, lease_id=LEASE, at=NOON)

    await tell_due(home, ledger, environ=environ)
    ledger.end_alarm("end", lease_id=LEASE, at=NOON)
    clock.advance(3 * 3600)
    await tell_due(home, ledger, environ=environ)

    titles = [body["title"] for body in phone.bodies]
    assert titles == [f"gpu-tenant: {LEASE} end", f"gpu-tenant: {LEASE} idle"]


async def test_without_a_channel_every_alarm_keeps_its_turn(
    home: Home, ledger: Ledger, clock: HandClock
) -> None:
    ledger.raise_alarm("end", "it is over", level=Level.URGENT, lease_id=LEASE, at=NOON)

    assert await tell_due(home, ledger, environ={}) == []
    assert ledger.open_alarms()[0].told_at is None


async def test_a_configuration_that_breaks_is_an_alarm_until_it_is_mended(
    home: Home, ledger: Ledger, clock: HandClock
) -> None:
    configured(home, "[notify")
    await tell_due(home, ledger, environ={})
    assert keys(ledger) == ["notify"]

    configured(home, "")
    await tell_due(home, ledger, environ={})
    assert keys(ledger) == []


async def test_a_channel_that_is_taken_out_is_no_alarm_any_more(
    home: Home, ledger: Ledger, clock: HandClock
) -> None:
    configured(home, '[notify.a]\nurl = "no reference"\n')
    await tell_due(home, ledger, environ={})
    assert keys(ledger) == ["notify:a"]

    configured(home, "")
    await tell_due(home, ledger, environ={})
    assert keys(ledger) == []
