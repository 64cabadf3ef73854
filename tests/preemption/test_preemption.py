"""What is lost when a platform takes a box after some notice, and what listening costs. `make preemption` tries 500."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from preemption.interrupted import Interruption, interrupt
from preemption.polled import poll

from box_scripts.caretaker.listening import POLL_S

PREEMPTIONS = int(os.environ.get("PREEMPTIONS", "0"))
SEED = int(os.environ.get("SEED", "0"))
AT_ONCE = int(os.environ.get("AT_ONCE", "8"))
POLLS = int(os.environ.get("POLLS", "1000"))
SAMPLE = (26,)
"""A notice of some seconds, into which a save of less fits."""


@pytest.mark.timeout(max(900, PREEMPTIONS * 240))
def test_what_had_time_to_be_saved_is_not_lost_and_of_the_rest_at_most_an_interval(
    tmp_path: Path,
) -> None:
    seeds = range(SEED, SEED + PREEMPTIONS) if PREEMPTIONS else SAMPLE
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        tried = list[Interruption]()
        for one in at_once.map(lambda seed: interrupt(seed, tmp_path / str(seed)), seeds):
            tried.append(one)
            print(one, flush=True)

    print("\n".join(table(tried)))
    assert [one for one in tried if not one.is_within_the_bar] == []


def table(tried: list[Interruption]) -> list[str]:
    """One line for each kind of interruption."""
    lines = [
        f"{'disk':5} {'time for save and copy':23} {'tried':>6} {'s lost: most':>13} {'none lost':>10}"
    ]
    for disk in ("kept", "lost"):
        for fits in (True, False):
            of = [one for one in tried if (one.disk, one.fits) == (disk, fits)]
            most = max((one.lost_s for one in of), default=0.0)
            none = sum(one.lost_s == 0 for one in of)
            lines.append(
                f"{disk:5} {'yes' if fits else 'no':23} {len(of):6} {most:13.1f} {none:10}"
            )
    return lines


@pytest.mark.timeout(max(900, POLLS // 100))
def test_no_poll_of_a_box_that_stays_is_taken_for_notice_and_polling_costs_next_to_nothing() -> (
    None
):
    if POLLS > 10_000:
        share = POLLS // AT_ONCE
        with ProcessPoolExecutor(AT_ONCE, multiprocessing.get_context("spawn")) as pool:
            polled = [*pool.map(poll, range(SEED, SEED + AT_ONCE), [share] * AT_ONCE)]
    else:
        polled = [poll(SEED, POLLS)]

    polls, answered, false_alarms, cpu_s = (sum(of) for of in zip(*polled, strict=True))
    each_s = cpu_s / polls
    print(
        f"{polls} polls, {answered} of them answered: {false_alarms} false alarms; "
        f"{each_s * 1e6:.0f} us of a core each, {each_s / POLL_S:.3%} at one every {POLL_S:g} s"
    )
    assert false_alarms == 0
    assert answered > polls / 2
