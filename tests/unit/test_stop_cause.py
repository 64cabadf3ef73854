"""Why a job was stopped, by the timeline of its lease."""

from datetime import UTC, datetime

import pytest

from gpu_tenant.domain import timeline
from gpu_tenant.domain.stop_cause import StopCause
from gpu_tenant.domain.story import fold
from gpu_tenant.domain.timeline import Event, Line

AT = datetime(2026, 11, 25, tzinfo=UTC)
LAUNCHED = timeline.Launched(job="a", command="train")
ENDING = timeline.Ending(term="budget", words="0.02 of its budget are spent")
BUDGET = StopCause("budget", "0.02 of its budget are spent")
BY_BUDGET = timeline.Stopped(job="a", term="budget", words="0.02 of its budget are spent")


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ((LAUNCHED, ENDING, BY_BUDGET), BUDGET),
        ((LAUNCHED, ENDING), BUDGET),
        ((LAUNCHED, ENDING, timeline.Stopped(job="a")), BUDGET),
        ((LAUNCHED, timeline.Stopped(job="a")), None),
        ((LAUNCHED, timeline.Stopped(job="a"), ENDING), None),
        ((LAUNCHED, ENDING, BY_BUDGET, LAUNCHED), None),
        ((LAUNCHED, ENDING, BY_BUDGET, LAUNCHED, timeline.Stopped(job="a")), None),
        ((LAUNCHED, timeline.Ending(term="teardown"), timeline.Stopped(job="a")), None),
        ((LAUNCHED, ENDING, timeline.Resumed(), timeline.Stopped(job="a")), None),
        ((LAUNCHED, timeline.Stopped(job="b", term="budget")), None),
    ],
)
def test_a_stop_has_the_cause_that_was_written_down_with_or_before_it(
    events: tuple[Event, ...], cause: StopCause | None
) -> None:
    assert fold(Line(AT, event) for event in events).job("a").stop_cause == cause


def test_the_sentence_says_which_term_ended_it_and_what_gives_it_more() -> None:
    assert BUDGET.sentence == "the lease's budget ended it: 0.02 of its budget are spent"
    assert BUDGET.more("runpod-abcd").line == "gpu-tenant terms runpod-abcd --budget-usd N"
