"""A timeline is typed here, and stored in the words that it always had."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from arranged import LEASE, NOON, TERMS, intended

from gpu_tenant.domain import timeline
from gpu_tenant.domain.timeline import KINDS, event_of
from gpu_tenant.faces.timeline_text import describe
from gpu_tenant.ledger import Ledger

BEFORE = Path(__file__).parent / "ledgers" / "before_typed_events.sql"
"""A ledger as the version before wrote it: one lease from its intent to its receipt, and, after that, a line of
each further kind."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite3"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(BEFORE.read_text(encoding="utf-8"))
    return path


def test_a_ledger_of_the_version_before_is_read_whole_and_would_be_written_the_same(
    path: Path,
) -> None:
    with closing(sqlite3.connect(path)) as db:
        ((lease,),) = db.execute("SELECT id FROM leases").fetchall()
        rows = db.execute("SELECT kind, detail FROM events ORDER BY seq").fetchall()
    with closing(Ledger(path)) as ledger:
        lines = ledger.events(lease)

    assert [(line.kind, line.event.as_stored()) for line in lines] == [
        (kind, json.loads(detail)) for kind, detail in rows
    ]
    came_later = {timeline.Forewarned, timeline.Placed, timeline.LoggedIn}
    came_later |= {timeline.Executed, timeline.Tracked, timeline.Audited}
    came_later |= {timeline.SettingUp, timeline.SetUp, timeline.Labelled, timeline.Tested}
    came_later |= {timeline.ReadAtStop, timeline.ReadInNotice, timeline.ClockOffset}
    came_later |= {timeline.StoppedByGuard}
    assert {type(line.event) for line in lines} == set(KINDS.values()) - came_later, "each is read"
    for line in lines:
        words = describe(line.event)
        assert not words[0].islower(), words
        assert words.endswith("."), words


@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        ("of a later version", {"a": [1, {"b": None}]}),
        ("marked", {"nonce": ["no", "text"]}),
        ("stopped", {}),
    ],
)
def test_a_line_that_cannot_be_read_keeps_its_word_and_its_fields(
    kind: str, detail: dict[str, object]
) -> None:
    event = event_of(kind, json.loads(json.dumps(detail)))

    assert isinstance(event, timeline.Unread)
    assert (timeline.Line(NOON, event).kind, event.as_stored()) == (kind, detail)
    assert describe(event) == f"{kind}."


def test_a_field_of_a_later_version_hides_no_line() -> None:
    event = event_of("stopped", {"job": "train", "by": "somebody"})

    assert event == timeline.Stopped(job="train")


def test_what_is_written_is_read_back_as_it_was(tmp_path: Path) -> None:
    events: list[timeline.Event] = [
        timeline.NewTerms(**TERMS.model_dump()),
        timeline.Priced(was="0.5", now="0.7"),
        timeline.Recovered(of="own-aaaa", jobs=("train",), restored_files=2),
        timeline.Snapped(listed="l", saves=((1.0, 0.5, 20),), pruned_here=("out/1",)),
        timeline.Taken(fate=None),
    ]
    with closing(Ledger(tmp_path / "ledger.sqlite3")) as ledger:
        intended(ledger)
        for event in events:
            ledger.note(LEASE, event, at=NOON)

        assert [line.event for line in ledger.events(LEASE)][1:] == events
