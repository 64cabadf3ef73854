"""What a line of the timeline says to a person."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from gpu_tenant.domain import timeline
from gpu_tenant.domain.timeline import KINDS, event_of
from gpu_tenant.faces.timeline_text import describe


@given(
    st.sampled_from(sorted(KINDS)),
    st.dictionaries(
        st.sampled_from(
            [
                "usd",
                "words",
                "fate",
                "tree",
                "files",
                "bytes",
                "names",
                "losses",
                "jobs",
                "deadline_at",
                "fraction",
                "from",
                "lost_s",
            ]
        ),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.lists(st.text(), max_size=3),
    ),
)
def test_no_detail_is_too_odd_to_be_told(kind: str, detail: dict[str, JsonValue]) -> None:
    assert "\n" not in describe(event_of(kind, detail))


@pytest.mark.parametrize(
    ("kind", "detail", "words"),
    [
        (
            "price",
            {"from": "0.50", "to": "1.25"},
            "Its price changed from 0.5 USD/h to 1.25 USD/h.",
        ),
        (
            "pushed",
            {"files": 3, "bytes": 4200, "tree": {"directory": "/home/me/job"}},
            "Pushed 3 files, 4.2 KB of /home/me/job: what had changed.",
        ),
        (
            "billed",
            {
                "usd": "3.1",
                "until": "2026-11-20T12:00:00+00:00",
                "parts": {},
                "words": "its invoices",
            },
            "Its provider has billed 3.10 USD until 2026-11-20 12:00 UTC, by its invoices.",
        ),
        (
            "gang",
            {
                "job": "train",
                "launcher": "torchrun",
                "leases": ["a", "b"],
                "command": "train.py",
                "lines": [],
                "interface": "eth0",
            },
            "The job train is one job over 2 boxes, begun by torchrun.",
        ),
        (
            "brokered",
            {"broker": "skypilot", "name": "mine", "place": "1.2.3.4"},
            "The box is rented by skypilot, which calls it mine and ends its bill.",
        ),
        ("billed", {"usd": None}, "Its provider was asked for the bill, but does not show it."),
        (
            "launched",
            {"job": "train", "command": "python3 train.py"},
            "The job train was launched: python3 train.py.",
        ),
        (
            "launched",
            {"sweep": "s1", "jobs": ["a", "b"], "box_time_s": 1.0},
            "2 cells of s1 went to the box: a, b.",
        ),
        (
            "progress",
            {"job": "train", "state": "running", "fraction": 0.25, "done": 5.0, "total": 20.0},
            "The job train: running, 25%, 5 of 20.",
        ),
        (
            "waived",
            {"by": "Ada", "loss": "ab", "losses": ["out/a is not here"]},
            "Ada signed for the loss of what could not be proved: out/a is not here.",
        ),
        (
            "permitted",
            {"ground": "verified", "seal": "a" * 64},
            "Permission to destroy the box: all was verified, seal aaaaaaaaaaaa.",
        ),
        (
            "ended",
            {"state": "lost"},
            "Its provider lists the box no more, seen twice, and nobody here ended it.",
        ),
        ("taken", {"fate": None}, "The box runs again: what had stopped it is over."),
        (
            "snapshot",
            {"files": 0, "bytes": 0, "names": [], "pruned_here": ["out/ckpt-1"]},
            "Checkpoints that the owner's policy no longer wants were removed here: out/ckpt-1.",
        ),
        (
            "intended",
            {
                "deadline_at": "2026-11-20T20:00:00Z",
                "max_price_usd_h": "0.6",
                "budget_usd": None,
                "idle_h": 2.0,
            },
            "Written down before there was a box: until 2026-11-20 20:00 UTC, at most 0.6 USD/h, ended when idle for 2 h.",
        ),
        (
            "recovered",
            {
                "from": "vastai-ab12",
                "restored_files": 2,
                "restored_bytes": 2000,
                "lost_s": 600.0,
                "lost_usd": "0.10",
            },
            "The work of vastai-ab12 goes on here; from 2 files, 2.0 KB; 10 min of work are lost, 0.1 USD.",
        ),
        ("of another version", {"a": 1}, "of another version."),
    ],
)
def test_an_event_is_told_in_a_sentence(
    kind: str, detail: dict[str, JsonValue], words: str
) -> None:
    assert describe(event_of(kind, detail)) == words


def test_a_count_of_steps_is_not_told_as_a_bare_number() -> None:
    assert describe(timeline.Progressed(job="train", state="finished", done=40)) == (
        "The job train: finished, 40 done."
    )


def test_what_a_box_or_a_provider_said_is_told_without_what_an_eye_would_miss() -> None:
    words = describe(timeline.Noticed(words="look\u202e\x1b[31m here\nand there"))

    assert words == "Look here and there."
