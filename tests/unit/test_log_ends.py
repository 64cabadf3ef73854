"""What a log says at its end is heard where its job ended with status 0, and what is only quoted or handled is not."""

import pytest
from unit.log_ends import (
    BAD,
    BAD_OF_PROGRAMS,
    GOOD,
    GOOD_OF_PROGRAMS,
    MORE_BAD,
    MORE_GOOD,
    WANDB,
)

from gpu_tenant.jobs.log_end import last_crash, last_loss


def told(log: str) -> str | None:
    crash = last_crash(log)
    return crash.words if crash else last_loss(log)


@pytest.mark.parametrize("what", BAD)
def test_a_failure_at_the_end_is_heard(what: str) -> None:
    assert told(BAD[what]) is not None


@pytest.mark.parametrize("what", GOOD)
def test_work_that_is_done_is_not_doubted(what: str) -> None:
    assert told(GOOD[what]) is None


@pytest.mark.parametrize("log", BAD_OF_PROGRAMS)
def test_the_last_word_of_a_program_that_failed_is_heard(log: str) -> None:
    assert told(log) is not None


@pytest.mark.parametrize("log", GOOD_OF_PROGRAMS)
def test_the_last_word_of_a_program_that_is_done_is_not_doubted(log: str) -> None:
    assert told(log) is None


def test_of_three_hundred_ends_few_are_misheard() -> None:
    """Some as they are, and some after much work with a tracker's last words: few are misheard either way."""
    work = "".join(f"step {i} loss {2 / (i + 1):.3f}\n" for i in range(300))
    bad = [told(x) for x in (*BAD.values(), *MORE_BAD, *(work + x + WANDB for x in BAD.values()))]
    good = [
        told(x) for x in (*GOOD.values(), *MORE_GOOD, *(work + x + WANDB for x in GOOD.values()))
    ]
    heard, false = sum(map(bool, bad)), sum(map(bool, good))

    assert len(bad) + len(good) >= 300
    assert heard / (heard + false) >= 0.98
    assert heard / len(bad) >= 0.95
