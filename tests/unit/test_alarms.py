"""An alarm is told at once, then ever more seldom, louder when it stays, and by one process a turn."""

import multiprocessing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from arranged import LEASE, NOON, active

from gpu_tenant.domain.alarm import Alarm, Level, due_at, loudness
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.ledger import Ledger


def _claim(path: Path, turns: list[datetime], together: Any, answers: Any) -> None:
    """As a watchdog would: both ask at the same moment, turn by turn."""
    ledger = Ledger(path)
    for n, now in enumerate(turns):
        together.wait(10)
        answers.put((n, [alarm.key for alarm in ledger.claim_due(now)]))


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    active(ledger)
    return ledger


def after(**length: float) -> datetime:
    return NOON + timedelta(**length)


def raised(
    ledger: Ledger,
    key: str = "price",
    level: Level = Level.NOTICE,
    *,
    at: datetime = NOON,
    words: str = "it costs more than agreed",
    lease_id: LeaseId | None = LEASE,
) -> Alarm:
    return ledger.raise_alarm(key, words, level=level, lease_id=lease_id, at=at)


def tellings(ledger: Ledger, until: datetime, *, each_min: int = 5) -> list[float]:
    """After how many minutes the open alarms were claimed, looked at every few minutes."""
    looks = int((until - NOON) / timedelta(minutes=each_min))
    claims = ((n * each_min, ledger.claim_due(after(minutes=n * each_min))) for n in range(looks))
    return [minutes for minutes, claimed in claims for _ in claimed]


# When it is told


@pytest.mark.parametrize(
    ("level", "minutes"),
    [
        (Level.NOTICE, [0, 15, 75, 315, 1035]),
        (Level.WARNING, [0, 15, 75, 195, 435, 675]),
        (Level.URGENT, [0, 5, 20, 50, 110, 170, 230, 290]),
    ],
)
def test_what_is_open_is_told_at_once_and_then_ever_more_seldom(
    ledger: Ledger, level: Level, minutes: list[int]
) -> None:
    raised(ledger, level=level)

    assert tellings(ledger, after(minutes=minutes[-1] + 5)) == minutes


def test_what_is_urgent_is_told_every_hour_for_ever(ledger: Ledger) -> None:
    raised(ledger, level=Level.URGENT)
    ledger.claim_due(NOON)
    month = [after(days=30, hours=n) for n in range(5)]

    assert [len(ledger.claim_due(at)) for at in month] == [1] * 5


def test_what_stays_open_is_told_as_if_it_were_of_the_next_level_and_no_further(
    ledger: Ledger,
) -> None:
    notice = raised(ledger, "idle")
    warning = raised(ledger, "blind", Level.WARNING)
    urgent = raised(ledger, "end", Level.URGENT)

    assert [loudness(notice, after(hours=h)) for h in (24, 25, 9999)] == [1, 2, 2]
    assert [loudness(warning, after(hours=h)) for h in (12, 13, 9999)] == [2, 3, 3]
    assert loudness(urgent, after(hours=9999)) == Level.URGENT


def test_a_channel_that_fails_does_not_become_urgent_by_itself(ledger: Ledger) -> None:
    alarm = raised(ledger, "notify:phone", Level.WARNING, lease_id=None)

    assert alarm.channel == "phone"
    assert loudness(alarm, after(days=30)) == Level.WARNING


def test_news_of_an_end_as_agreed_does_not_become_a_warning_by_itself(ledger: Ledger) -> None:
    end = raised(ledger, key="ended", level=Level.NOTICE)

    assert loudness(end, after(days=30)) is Level.NOTICE


def test_what_has_grown_louder_by_staying_is_told_at_the_pace_of_its_loudness(
    ledger: Ledger,
) -> None:
    raised(ledger, level=Level.WARNING)
    tellings(ledger, after(hours=12))

    late = [after(hours=13, minutes=n) for n in range(0, 300, 5)]

    assert [at for at in late if ledger.claim_due(at)] == late[::12], "once an hour"


# What is open


def test_an_alarm_is_one_row_however_often_it_is_seen(ledger: Ledger) -> None:
    first = raised(ledger, words="it costs 0.60 USD/h")
    again = raised(ledger, words="it costs 0.70 USD/h", at=after(hours=1))

    assert (again.seq, again.since, again.last_seen_at) == (first.seq, NOON, after(hours=1))
    assert again.words == "it costs 0.70 USD/h"
    assert ledger.open_alarms() == [again]


def test_the_same_thing_about_another_lease_or_none_is_another_alarm(ledger: Ledger) -> None:
    active(ledger, LeaseId("local-efgh"))
    seqs = {raised(ledger, lease_id=id_).seq for id_ in (LEASE, LeaseId("local-efgh"), None)}

    assert len(seqs) == 3
    ledger.end_alarm("price", lease_id=None, at=after(hours=1))
    assert {alarm.lease_id for alarm in ledger.open_alarms()} == {LEASE, "local-efgh"}


def test_an_open_alarm_never_grows_quieter(ledger: Ledger) -> None:
    raised(ledger, level=Level.URGENT)

    assert raised(ledger, level=Level.NOTICE, at=after(hours=1)).level == Level.URGENT


def test_what_often_passes_is_a_notice_until_it_has_lasted(ledger: Ledger) -> None:
    waits = timedelta(minutes=15)

    def seen(minutes: float) -> Level:
        at = NOON + timedelta(minutes=minutes)
        return ledger.raise_alarm(
            "account lambda", "silent", level=Level.URGENT, lease_id=None, at=at, patience=waits
        ).level

    assert [seen(minutes) for minutes in (0, 14, 15)] == [Level.NOTICE, Level.NOTICE, Level.URGENT]
    ledger.end_alarm("account lambda", lease_id=None, at=NOON + timedelta(minutes=20))
    assert seen(60) is Level.NOTICE


def test_one_that_is_raised_louder_is_told_at_once_and_from_the_beginning(ledger: Ledger) -> None:
    raised(ledger)
    tellings(ledger, after(hours=6))
    raised(ledger, level=Level.URGENT, at=after(hours=6))

    told = [bool(ledger.claim_due(after(hours=6, minutes=m))) for m in (0, 4, 5, 19, 20)]

    assert told == [True, False, True, False, True]


def test_what_is_over_is_told_no_more_and_what_comes_back_is_a_new_alarm(ledger: Ledger) -> None:
    first = raised(ledger)
    ledger.end_alarm("price", lease_id=LEASE, at=after(hours=1))

    assert (ledger.open_alarms(), ledger.claim_due(after(hours=2))) == ([], [])
    assert raised(ledger, at=after(hours=3)).seq != first.seq


def test_what_comes_and_goes_is_told_no_more_often_than_what_stays(ledger: Ledger) -> None:
    told = []
    for minute in range(0, 40, 2):
        raised(ledger, at=after(minutes=minute))
        told += [minute] * len(ledger.claim_due(after(minutes=minute)))
        ledger.end_alarm("price", lease_id=LEASE, at=after(minutes=minute + 1))

    assert told == [0, 16, 32]


def test_words_of_others_are_one_line_without_anything_that_a_terminal_obeys(
    ledger: Ledger,
) -> None:
    alarm = raised(ledger, words="no\x1b[2J answer\nfrom \u202eit" + "!" * 5000)

    assert alarm.words.startswith("no answer from it!!!")
    assert len(alarm.words) == 1000


# Who tells it


def test_each_turn_of_an_alarm_is_given_to_one_of_two_processes(
    ledger: Ledger, ledger_file: Path
) -> None:
    keys = [f"thing-{n}" for n in range(20)]
    for key in keys:
        raised(ledger, key, Level.URGENT)
    turns = [after(minutes=m) for m in (0, 0, 3, 5, 5, 20)]
    claimed: list[list[str]] = [[] for _ in turns]

    fork = multiprocessing.get_context("fork")
    together, answers = fork.Barrier(2), fork.SimpleQueue()
    asking = [
        fork.Process(target=_claim, args=(ledger_file, turns, together, answers), daemon=True)
        for _ in range(2)
    ]
    for process in asking:
        process.start()
    for _ in range(len(turns) * len(asking)):
        turn, keys_claimed = answers.get()
        claimed[turn] += keys_claimed
    for process in asking:
        process.join()

    assert [sorted(each) for each in claimed] == [
        sorted(keys),
        [],
        [],
        sorted(keys),
        [],
        sorted(keys),
    ]


def test_what_nobody_asked_for_keeps_its_turn(ledger: Ledger) -> None:
    raised(ledger, "idle")
    raised(ledger, "end", Level.URGENT)

    assert [a.key for a in ledger.claim_due(NOON, least=Level.URGENT)] == ["end"]
    assert [a.key for a in ledger.claim_due(after(minutes=1))] == ["idle"]


def test_what_reached_nobody_is_tried_again_soon_and_told_as_if_it_were_new(
    ledger: Ledger,
) -> None:
    raised(ledger)
    tellings(ledger, after(hours=6))  # it is told twice a day by now
    late = after(days=1)
    ledger.note_reached_nobody(ledger.claim_due(late))

    turns = [(14, False), (15, True), (29, False), (30, True), (89, False), (90, True)]
    found = [
        (minutes, bool(ledger.claim_due(late + timedelta(minutes=minutes)))) for minutes, _ in turns
    ]

    assert found == turns


def test_an_alarm_that_nobody_heard_yet_is_due_since_it_was_raised(ledger: Ledger) -> None:
    assert due_at(raised(ledger), after(hours=3)) == NOON
