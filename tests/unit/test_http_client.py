"""A provider is called politely over real sockets: no create twice, no key in an error, no call too many."""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from email.utils import format_datetime

import pytest
from arranged import NOON, HandClock
from desk import Answer, Desk

from gpu_tenant.domain.errors import (
    BadRequest,
    CredentialRefused,
    NoFunds,
    ProviderSilent,
    ProviderTrouble,
    RateLimited,
    Rejected,
)
from gpu_tenant.domain.ports import Credential
from gpu_tenant.providers.http_client import (
    USER_AGENT,
    Method,
    Reply,
    Spacing,
    Wire,
    redact,
    words,
)

KEY = "k-3f9a-not-for-anybody-else"


@pytest.fixture
def desk() -> Iterator[Desk]:
    opened = Desk()
    yield opened
    opened.close()


@pytest.fixture
def wire(desk: Desk, clock: HandClock) -> Wire:
    return wired(desk.url, clock)


def wired(url: str, clock: HandClock, *spacing: Spacing) -> Wire:
    key = Credential(source="env:TINY_API_KEY", read=lambda: KEY)
    return Wire(title="Tiny", base_url=url, credential=key, clock=clock, spacing=spacing)


def passed_s(clock: HandClock) -> float:
    return (clock.now() - NOON).total_seconds()


HANG_UP = Answer(status=0)


# What is sent


async def test_a_call_carries_the_key_in_its_header_and_our_own_name(
    desk: Desk, wire: Wire
) -> None:
    await wire.call("POST", "/boxes", query={"a": "b c"}, body={"gpu": "L4"}, expect=(200,))

    (asked,) = desk.asked
    assert (asked.method, asked.path) == ("POST", "/boxes?a=b+c")
    assert json.loads(asked.body) == {"gpu": "L4"}
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["user-agent"] == USER_AGENT
    assert USER_AGENT.startswith("gpu-tenant/")
    assert KEY not in asked.path


async def test_without_a_credential_nothing_is_said_of_one(desk: Desk, clock: HandClock) -> None:
    await Wire(title="Tiny", base_url=desk.url, credential=None, clock=clock).get("/boxes")

    assert "authorization" not in desk.asked[0].headers


@pytest.mark.parametrize(
    "url",
    [
        *("http://api.example.com", "http://10.0.0.1:8000", "http://127.0.0.1@api.example.com"),
        *("http://127.0.0.1.example.com", "ftp://api.example.com", "api.example.com", ""),
    ],
)
def test_a_key_never_travels_in_clear_to_another_computer(url: str, clock: HandClock) -> None:
    with pytest.raises(BadRequest, match="is not https"):
        wired(url, clock)


async def test_a_redirect_is_not_followed_with_the_key(
    desk: Desk, wire: Wire, clock: HandClock
) -> None:
    desk.says(Answer(302, headers={"Location": f"{desk.url}/elsewhere"}))

    with pytest.raises(ProviderSilent, match="302"):
        await wire.call("POST", "/boxes")

    assert [asked.path for asked in desk.asked] == ["/boxes"]


# What is tried again


@pytest.mark.parametrize("trouble", [HANG_UP, Answer(500), Answer(503, "<html>bad gateway</html>")])
async def test_a_question_is_asked_again_and_a_second_later_each_time_twice_as_long(
    desk: Desk, wire: Wire, clock: HandClock, trouble: Answer
) -> None:
    desk.says(trouble, trouble, trouble, Answer(body='{"boxes": []}'))

    reply = await wire.get("/boxes")

    assert reply.fields == {"boxes": []}
    assert (len(desk.asked), passed_s(clock)) == (4, 1 + 2 + 4)


async def test_a_question_that_is_never_answered_is_silence(desk: Desk, wire: Wire) -> None:
    desk.says(*[HANG_UP] * 9)

    with pytest.raises(ProviderSilent, match="Tiny gave no answer to GET /boxes") as told:
        await wire.get("/boxes")

    assert len(desk.asked) == 4
    assert "gpu-tenant leases" in told.value.remedy


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("trouble", [HANG_UP, Answer(502)], ids=["hangs up", "502"])
async def test_what_changes_something_is_sent_once_because_it_may_have_been_carried_out(
    desk: Desk, wire: Wire, clock: HandClock, method: Method, trouble: Answer
) -> None:
    desk.says(trouble)

    with pytest.raises(ProviderSilent):
        await wire.call(method, "/boxes")

    assert (len(desk.asked), passed_s(clock)) == (1, 0)


async def test_what_may_be_repeated_is(desk: Desk, wire: Wire) -> None:
    desk.says(HANG_UP, Answer(500))

    await wire.call("DELETE", "/boxes/1", repeatable="repeatable")

    assert len(desk.asked) == 3


async def test_a_server_that_is_not_there_is_silence(clock: HandClock) -> None:
    gone = Desk()
    gone.close()

    with pytest.raises(ProviderSilent, match="ConnectError"):
        await wired(gone.url, clock).get("/boxes")


# Turned away


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_whoever_was_turned_away_waits_as_long_as_he_is_told_whatever_he_wanted(
    desk: Desk, wire: Wire, clock: HandClock, method: Method
) -> None:
    desk.says(Answer(429, headers={"Retry-After": "7"}), Answer(429), Answer(200))

    await wire.call(method, "/boxes")

    assert (len(desk.asked), passed_s(clock)) == (3, 7 + 5)


async def test_a_moment_to_come_again_is_a_wait_too(
    desk: Desk, wire: Wire, clock: HandClock
) -> None:
    moment = format_datetime(NOON + timedelta(seconds=40), usegmt=True)
    desk.says(Answer(429, headers={"Retry-After": moment}))

    await wire.get("/boxes")

    assert passed_s(clock) == 40


@pytest.mark.parametrize("said", ["soon", "", "-3", "Fri, 20 Nov 2026 12:00:40 -0000", "\xb2"])
async def test_a_wait_that_nobody_can_read_is_a_short_one(
    desk: Desk, wire: Wire, clock: HandClock, said: str
) -> None:
    desk.says(Answer(429, headers={"Retry-After": said}))

    await wire.get("/boxes")

    assert passed_s(clock) == 5


async def test_a_wait_of_more_than_a_minute_is_told_instead_of_waited(
    desk: Desk, wire: Wire, clock: HandClock
) -> None:
    desk.says(Answer(429, "slow down", {"Retry-After": "61"}))

    with pytest.raises(RateLimited, match="429: “slow down”"):
        await wire.call("POST", "/boxes")

    assert (len(desk.asked), passed_s(clock)) == (1, 0)


async def test_nobody_is_turned_away_for_ever(desk: Desk, wire: Wire) -> None:
    desk.says(*[Answer(429)] * 20)

    with pytest.raises(RateLimited):
        await wire.get("/boxes")

    assert len(desk.asked) == 9


# The allowance


def left(count: int, seconds: int) -> dict[str, str]:
    return {"ratelimit-remaining": str(count), "ratelimit-reset": str(seconds)}


async def test_the_last_calls_of_an_allowance_are_kept_for_teardown(
    desk: Desk, wire: Wire, clock: HandClock
) -> None:
    desk.says(Answer(headers=left(5, 3600)))
    await wire.get("/boxes")

    with pytest.raises(RateLimited, match="5 more calls in the next 3600 s") as told:
        await wire.get("/boxes")
    await wire.call("DELETE", "/boxes/1", urgent="teardown")

    assert "teardown works meanwhile" in told.value.remedy
    assert [asked.method for asked in desk.asked] == ["GET", "DELETE"]
    clock.advance(3600)
    await wire.get("/boxes")


@pytest.mark.parametrize(
    "headers",
    [
        left(4, 30),
        left(4, int(NOON.timestamp()) + 30),
        {"RateLimit": '"minute";r=4;t=30, "hour";r=900;t=3000'},
        {"RateLimit": '"hour";r=900;t=3000,"minute";r=4;t=30'},
    ],
    ids=["seconds to go", "second of the epoch", "two windows", "the tightest counts"],
)
async def test_a_short_wait_for_the_next_allowance_is_waited(
    desk: Desk, wire: Wire, clock: HandClock, headers: dict[str, str]
) -> None:
    desk.says(Answer(headers=headers))
    await wire.get("/boxes")

    await wire.get("/boxes")

    assert passed_s(clock) == 30


@pytest.mark.parametrize(
    "headers",
    [
        left(6, 3600),
        left(0, int(NOON.timestamp() * 1000)),
        {"RateLimit": f'"x";r=0;t={"9" * 30}'},
        {"RateLimit": "garbage", "ratelimit-remaining": "0"},
        {"ratelimit-remaining": "many", "ratelimit-reset": "soon"},
    ],
    ids=["enough left", "milliseconds", "endless", "no reset", "words"],
)
async def test_headers_that_forbid_nothing_or_tell_no_time_hold_nobody_up(
    desk: Desk, wire: Wire, clock: HandClock, headers: dict[str, str]
) -> None:
    desk.says(Answer(headers=headers))
    await wire.get("/boxes")

    await wire.get("/boxes")

    assert passed_s(clock) == 0


async def test_calls_that_a_provider_wants_apart_are_by_the_clock_also_when_made_at_once(
    desk: Desk, clock: HandClock
) -> None:
    wire = wired(desk.url, clock, Spacing("POST", "/boxes/?", 5), Spacing("*", "/.*", 1))

    await wire.call("POST", "/boxes")
    assert passed_s(clock) == 0
    await wire.get("/boxes")
    assert passed_s(clock) == 1
    await wire.call("POST", "/boxes/")
    assert passed_s(clock) == 5
    await asyncio.gather(*(wire.call("POST", "/boxes") for _ in range(2)))
    assert passed_s(clock) >= 15


# What an answer means


@pytest.mark.parametrize(
    ("status", "meant"),
    [
        (401, CredentialRefused),
        (403, CredentialRefused),
        (402, NoFunds),
        (404, Rejected),
        (400, Rejected),
        (500, ProviderSilent),
    ],
)
async def test_a_status_that_nobody_expected_is_told_with_the_provider_s_words(
    desk: Desk, wire: Wire, status: int, meant: type[ProviderTrouble]
) -> None:
    desk.says(Answer(status, '{"error": "not like this"}'))

    with pytest.raises(meant, match=f"POST /boxes with {status}: .*not like this"):
        await wire.call("POST", "/boxes")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, "<html>We are in maintenance.</html>"),
        (201, '{"id": 7}'),
        (202, ""),
        (301, ""),
        (302, "<a href='https://login'>"),
        (408, "{}"),
    ],
)
async def test_an_answer_that_is_neither_yes_nor_no_may_have_done_what_was_asked_for(
    desk: Desk, wire: Wire, status: int, body: str
) -> None:
    desk.says(Answer(status, body))

    with pytest.raises(ProviderSilent, match=f"with {status}.*may have been done"):
        await wire.call("POST", "/boxes", expect=(200, 404))


async def test_a_page_for_people_is_asked_for_again_as_any_lost_answer(
    desk: Desk, wire: Wire
) -> None:
    desk.says(Answer(200, " <!DOCTYPE html>"), Answer(200, '{"boxes": []}'))

    assert (await wire.get("/boxes")).fields == {"boxes": []}


@pytest.mark.parametrize(
    ("status", "body", "meant"),
    [
        (403, "error code: 1010", ProviderSilent),
        (403, "<!DOCTYPE html><html><title>Attention Required!</title></html>", ProviderSilent),
        (403, "", ProviderSilent),
        (403, '{"cloudflare_error": true, "title": "Error 1010"}', ProviderSilent),
        (401, "<html>log in to this network</html>", ProviderSilent),
        (407, "proxy authentication required", ProviderSilent),
        (401, "Unauthorized", CredentialRefused),
        (403, '{"title": "Forbidden", "detail": "access denied"}', CredentialRefused),
    ],
)
async def test_a_firewall_on_the_way_says_nothing_about_the_key(
    desk: Desk, wire: Wire, status: int, body: str, meant: type[ProviderTrouble]
) -> None:
    desk.says(Answer(status, body))

    with pytest.raises(meant) as told:
        await wire.call("POST", "/boxes")

    assert ("check that the key" in told.value.remedy) is (meant is CredentialRefused)


async def test_a_status_that_is_expected_is_an_answer_and_what_is_rejected_keeps_its_words(
    desk: Desk, wire: Wire
) -> None:
    desk.says(Answer(404, "no such box"), Answer(409, "busy"))

    reply = await wire.get("/boxes/1", expect=(200, 404))
    with pytest.raises(Rejected) as told:
        await wire.get("/boxes/1")

    assert (reply.status, reply.text) == (404, "no such box")
    assert (told.value.status, told.value.body) == (409, "busy")


@pytest.mark.parametrize(
    "body", ["<html>maintenance</html>", "OK", "{", "[1", "nul", "[" * 100_000]
)
def test_a_body_that_is_no_json_lets_nothing_be_concluded(body: str) -> None:
    with pytest.raises(ProviderSilent, match="the answer is not JSON"):
        assert Reply(200, {}, body).json


@pytest.mark.parametrize("body", ["", "[]", "null", '"text"', "3"])
def test_a_body_that_is_no_object_has_no_fields(body: str) -> None:
    with pytest.raises(ProviderSilent, match="not an object"):
        assert Reply(200, {}, body).fields


def test_an_empty_body_is_nothing() -> None:
    assert Reply(204, {}, "").json is None


# What must not be shown


@pytest.mark.parametrize("status", [200, 400, 401, 429, 500])
@pytest.mark.parametrize("body", [f'{{"you": "Bearer {KEY}"}}', f"no {KEY} here"])
async def test_a_key_that_is_echoed_is_in_no_error(
    desk: Desk, wire: Wire, status: int, body: str
) -> None:
    desk.says(*[Answer(status, body, {"Retry-After": "100"})] * 9)

    with pytest.raises(ProviderTrouble) as told:
        await wire.call("POST", "/boxes", expect=(201,))

    everything = f"{told.value} {told.value!r} {vars(told.value)}"
    assert KEY not in everything
    assert "(redacted)" in everything


async def test_a_refused_key_is_named_by_where_it_lies(desk: Desk, wire: Wire) -> None:
    desk.says(Answer(401))

    with pytest.raises(CredentialRefused, match=r"\(key from env:TINY_API_KEY\)"):
        await wire.get("/boxes")


def test_what_is_shown_of_a_body_has_no_secrets_no_control_characters_and_an_end() -> None:
    assert redact({"a": [{"api_key": "s", "id": 1}], "env": {"X": "s"}, "environment": "eu"}) == {
        "a": [{"api_key": "(redacted)", "id": 1}],
        "env": "(redacted)",
        "environment": "eu",
    }
    assert words('{"jupyter_token": "s", "why": "full"}') == (
        '“{"jupyter_token": "(redacted)", "why": "full"}”'
    )
    assert words("\x1b[31mno\x1b[0m\n\n  way\u202e") == "“no way”"
    assert len(words("x" * 9999)) == 303
