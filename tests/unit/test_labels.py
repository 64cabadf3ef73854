"""What a lease is called: read, filled in where nobody said anything, found again, and put in order."""

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import LEASE, NOON, intended
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpu_tenant.domain import timeline
from gpu_tenant.domain.labels import Labels
from gpu_tenant.domain.model import Declared, JobId
from gpu_tenant.domain.terms import RentRequest, Terms
from gpu_tenant.leases.names import labels_of
from gpu_tenant.ledger import Ledger


@pytest.mark.parametrize(
    ("said", "project", "name", "tags"),
    [
        ("", None, None, ()),
        ("first try", None, "first try", ()),
        ("llama/first try", "llama", "first try", ()),
        ("llama/", "llama", None, ()),
        ("llama/a/b", "llama", "a/b", ()),
        ("#paper llama/first  try #a.b:c #paper", "llama", "first try", ("paper", "a.b:c")),
        ("#论文 羊驼/第一次", "羊驼", "第一次", ("论文",)),
    ],
)
def test_project_name_and_tags_are_read_from_one_line(
    said: str, project: str | None, name: str | None, tags: tuple[str, ...]
) -> None:
    labels = Labels.parse(said)

    assert labels == Labels(project=project, name=name, tags=tags)
    assert Labels.parse(labels.words) == labels


@pytest.mark.parametrize(
    "said", ["/x", "#", "#a#b", "x" * 61, "a/" + "x" * 61, "#" + "x" * 61, "a\x1b[31m", "a#b"]
)
def test_what_is_no_label_is_refused(said: str) -> None:
    with pytest.raises((ValueError, ValidationError)):
        Labels.parse(said)


def test_more_tags_than_anybody_reads_are_refused() -> None:
    with pytest.raises(ValidationError, match="at most 10 tags"):
        Labels.parse(" ".join(f"#t{n}" for n in range(11)))


@given(st.text(max_size=300))
def test_any_text_is_a_label_that_reads_back_or_is_refused(said: str) -> None:
    try:
        labels = Labels.parse(said)
    except ValueError:
        return

    assert Labels.parse(labels.words) == labels
    assert labels.words.isprintable()


def test_what_nobody_said_is_the_pushed_directory_and_the_newest_command() -> None:
    job = Declared(
        id=JobId("j1"),
        command="python3 train.py --lr 0.1",
        artifacts=(),
        discard=(),
        env_names=(),
        declared_at=NOON,
        launched_at=None,
    )
    pushed = timeline.Line(NOON, timeline.Pushed(tree={"directory": "/home/me/llama"}))
    tagged = timeline.Line(NOON, timeline.Labelled(tags=("paper",)))
    named = timeline.Line(NOON, timeline.Labelled(name="mine"))

    assert labels_of([], []).words == ""
    assert labels_of([pushed], []).words == "llama/"
    assert labels_of([pushed, tagged], [job]).words == "llama/python3 train.py --lr 0.1 #paper"
    assert labels_of([tagged, pushed, named], [job]).words == "llama/mine", "the last word counts"


def test_a_name_is_written_down_with_the_intent_and_changes_no_term(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    lease = ledger.intend(
        lease_id=LEASE,
        provider="local",
        terms=Terms(deadline_at=NOON + timedelta(hours=1)),
        address=None,
        price_usd_h=None,
        at=NOON,
        labels=Labels.parse("llama/first #paper"),
    )

    (told,) = ledger.lines_by_lease(timeline.Labelled)[lease.id]
    assert told.event == timeline.Labelled(project="llama", name="first", tags=("paper",))
    assert "llama" not in lease.terms.model_dump_json()
    ledger.close()


def test_a_lease_without_a_name_has_no_line_about_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    intended(ledger)

    assert ledger.lines_by_lease(timeline.Labelled) == {}
    ledger.close()


def test_a_request_of_a_version_that_knew_no_names_reads_the_same() -> None:
    request = RentRequest(budget_usd=Decimal(5))
    stored = json.loads(request.model_dump_json())
    del stored["labels"]

    assert RentRequest.model_validate(stored) == request
